//! The tools that exist, each with a digest of what was agreed to. A tool that isn't here can't be called.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use regent_ledger::{CanonicalError, CanonicalJson, Digest};
use regent_policy::{Access, Confidentiality, Integrity, Label, Tier};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How much is said about arguments that don't fit.
const WHY_BYTES_MAX: usize = 400;

/// What a tool is and does, as its author declares it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Lower case ASCII, dots between parts: `fs.read`.
    pub name: String,
    /// One sentence, for people and models.
    pub description: String,
    /// JSON Schema of the arguments. Fields it doesn't name are refused.
    pub input: Value,
    /// What kind of thing each argument is, by JSON pointer, so that policy sees paths and hosts rather than strings.
    pub arguments: BTreeMap<String, ArgumentKind>,
    /// Tags that rules can match, e.g. `file.read`.
    pub capabilities: Vec<String>,
    /// What it does to the world.
    pub effect: SideEffect,
    /// Doing it twice is the same as doing it once: safe to retry after a crash.
    pub idempotent: bool,
    /// Whether it can be undone.
    pub reversible: bool,
    /// The tiers it can run at, weakest first; it never runs below the first.
    pub tiers: Vec<Tier>,
    /// Where its output comes from, and how secret it is at least.
    pub output: Label,
}

/// What kind of thing an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentKind {
    /// A path, and what is done there.
    Path(Access),
    /// A URL that is contacted; a sibling argument `method` is its method.
    Url,
    /// A program and its arguments.
    Argv,
    /// A line for the shell.
    Shell,
}

/// What a tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SideEffect {
    /// Nothing.
    None,
    /// Looks at something.
    Read,
    /// Changes something.
    Write,
    /// Takes something away.
    Delete,
    /// Talks to another machine.
    Network,
}

/// A tool that was admitted to the catalogue.
#[derive(Debug)]
pub struct Tool {
    spec: ToolSpec,
    digest: Digest,
    digest_hex: String,
    schema: jsonschema::Validator,
}

impl Tool {
    /// What it is.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The digest of what it was when it was admitted.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The digest as entries carry it.
    pub(crate) fn digest_hex(&self) -> &str {
        &self.digest_hex
    }

    /// Says what is wrong with the arguments, if anything.
    pub(crate) fn check(&self, args: &Value) -> Result<(), String> {
        self.schema.validate(args).map_err(|error| {
            // Without the values: what an agent passes may be secret or huge, and this goes into the ledger, which forgets nothing.
            let (what, place) = (error.masked().to_string(), error.instance_path().to_string());
            let mut why = if place.is_empty() { what } else { format!("{what} at `{place}`") };
            if why.len() > WHY_BYTES_MAX {
                why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
                why.push('…');
            }
            why
        })
    }

    /// The weakest tier it can run at that is at least `floor`.
    pub(crate) fn tier_at_least(&self, floor: Tier) -> Option<Tier> {
        self.spec.tiers.iter().copied().filter(|tier| *tier >= floor).min()
    }
}

/// A tool can't be admitted.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// Look-alikes of other letters are how one tool passes for another.
    #[error("the tool name `{0}` may only have lower case ASCII letters, digits, `.`, `_` and `-`")]
    Name(String),
    /// It says nowhere that it can run.
    #[error("the tool `{0}` names no tier that it can run at")]
    NoTier(String),
    /// The schema is not one.
    #[error("the schema of `{tool}` is not valid: {why}")]
    Schema {
        /// Whose.
        tool: String,
        /// What is wrong.
        why: String,
    },
    /// Same name, other content: what was agreed to is not what is offered now.
    #[error("the tool `{0}` has changed since it was admitted; remove it and admit it again")]
    Changed(String),
    /// It can't be put into canonical form.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
}

/// All tools that can be called. Cheap to look up in; changes are rare.
#[derive(Debug, Default)]
pub struct Catalogue {
    tools: RwLock<BTreeMap<String, Arc<Tool>>>,
}

impl Catalogue {
    /// Admits a tool. Admitting the same one again is fine; a changed one is refused.
    pub fn admit(&self, spec: ToolSpec) -> Result<Arc<Tool>, AdmitError> {
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        if spec.name.is_empty() || spec.name.len() > 128 || !spec.name.chars().all(fine) {
            return Err(AdmitError::Name(spec.name));
        }
        if spec.tiers.is_empty() {
            return Err(AdmitError::NoTier(spec.name));
        }
        let digest = Digest::of(CanonicalJson::of(&spec)?.as_str().as_bytes());
        let schema = jsonschema::validator_for(&spec.input)
            .map_err(|error| AdmitError::Schema { tool: spec.name.clone(), why: error.to_string() })?;
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = tools.get(&spec.name) {
            return if old.digest == digest {
                Ok(Arc::clone(old))
            } else {
                Err(AdmitError::Changed(spec.name))
            };
        }
        let tool = Arc::new(Tool { digest, digest_hex: digest.to_string(), schema, spec });
        tools.insert(tool.spec.name.clone(), Arc::clone(&tool));
        Ok(tool)
    }

    /// The tool of that name, compared byte by byte.
    pub fn get(&self, name: &str) -> Option<Arc<Tool>> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<Tool>> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Takes a tool away.
    pub fn remove(&self, name: &str) -> bool {
        self.tools.write().unwrap_or_else(PoisonError::into_inner).remove(name).is_some()
    }
}

impl ToolSpec {
    /// The label of output about which nothing is known: made by a tool, as secret as private things.
    pub const UNKNOWN_OUTPUT: Label =
        Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Unknown };
}
