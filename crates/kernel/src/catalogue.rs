//! Which tools are there, and what performs each? A tool that isn't here can't be called.
//!
//! Tools come and go in sets ([`ToolSet`]): those of Regent itself, of one skill, of one server. A set has a digest. It is admitted if that digest
//! is the one that was agreed to, and is off otherwise.

mod driver;
mod labels;
mod set;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use regent_ledger::{CanonicalError, CanonicalJson, Digest};
use regent_policy::{Access, Confidentiality, Integrity, Label, Tier};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

pub use driver::{Driver, DriverKind};
pub use set::ToolSet;

/// Maximum length of the message about arguments that don't fit.
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
    /// What kind of driver performs it. Registration refuses a driver of another kind.
    #[serde(default)]
    pub driver: DriverKind,
    /// The tiers it can run at, weakest first; it never runs below the first.
    pub tiers: Vec<Tier>,
    /// Where its output comes from, and how secret it is at least.
    pub output: Label,
    /// Which edition of the tool this is.
    #[serde(default = "unversioned")]
    pub version: String,
    /// What a call roughly costs.
    #[serde(default)]
    pub cost: CostClass,
    /// Who vouches for it.
    #[serde(default)]
    pub origin: Origin,
    /// What the calls that it makes may use: names of tools and operations, capabilities, families of them (`file.*`), and capabilities at a place (`file.read:docs`,
    /// `network.request:example.com`). `None`: whatever its caller may.
    #[serde(default)]
    pub may: Option<Vec<String>>,
}

/// The capability of tools that programs call through us. A model is never offered one.
pub const FROM_PROGRAM: &str = "from.program";
/// The capability of tools that only an operator may call. The kernel refuses agents, whatever policy says.
pub const FOR_OPERATOR: &str = "for.operator";
/// The capability of a tool of ours that reads a text in its caller's stead and returns one typed value. The caller doesn't count as having read the
/// text.
pub const QUARANTINE: &str = "text.quarantine";

/// A blank to fill in. It has no name and no tier, so it isn't admitted as it is; what it leaves unsaid is the cautious answer.
impl Default for ToolSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            description: String::new(),
            input: Value::Bool(false),
            arguments: BTreeMap::new(),
            capabilities: Vec::new(),
            effect: SideEffect::Write,
            idempotent: false,
            reversible: false,
            driver: DriverKind::default(),
            tiers: Vec::new(),
            output: Self::UNKNOWN_OUTPUT,
            version: unversioned(),
            cost: CostClass::default(),
            origin: Origin::default(),
            may: None,
        }
    }
}

fn unversioned() -> String {
    "1.0.0".to_owned()
}

/// What a call roughly costs, in money or waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostClass {
    /// Nothing worth counting.
    Free,
    /// Milliseconds on this machine.
    Cheap,
    /// Seconds, or another machine's help.
    #[default]
    Moderate,
    /// Minutes, or money.
    Expensive,
}

/// Who vouches for a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Regent itself.
    BuiltIn,
    /// Signed with a key that the user trusts.
    Verified,
    /// Unsigned, or signed with an unknown key.
    #[default]
    Community,
    /// An agent wrote it.
    Generated,
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

/// A tool that was admitted to the catalogue, with what performs it. A call keeps the one that it was judged with.
#[derive(Debug)]
pub struct Tool {
    spec: ToolSpec,
    driver: Driver,
    source: Arc<str>,
    digest: Digest,
    digest_hex: String,
    schema: jsonschema::Validator,
}

impl Tool {
    /// A tool that nothing of ours performs: the host application does, or it is only judged.
    pub(crate) fn undriven(spec: ToolSpec) -> Result<Self, AdmitError> {
        let driver = Driver::missing(spec.driver);
        Self::new(spec, driver, "host".into())
    }

    /// A tool with its schema compiled. The catalogue checks its name.
    fn new(spec: ToolSpec, driver: Driver, source: Arc<str>) -> Result<Self, AdmitError> {
        let digest = Digest::compute(CanonicalJson::encode(&spec)?.as_str().as_bytes());
        let schema = jsonschema::validator_for(&spec.input)
            .map_err(|error| AdmitError::Schema { tool: spec.name.clone(), why: error.to_string() })?;
        Ok(Self { digest, digest_hex: digest.to_string(), schema, spec, driver, source })
    }

    /// What it is.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// What performs it.
    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The set that it belongs to: `built-in`, `skill:pdf`, `mcp:github`.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The digest of what it was when it was admitted.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The digest as entries carry it.
    pub fn digest_hex(&self) -> &str {
        &self.digest_hex
    }

    /// Says what is wrong with the arguments, if anything.
    pub fn check(&self, args: &Value) -> Result<(), String> {
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
    pub fn tier_at_least(&self, floor: Tier) -> Option<Tier> {
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
    /// Another set has a tool of that name: no set can take the place of a tool that it doesn't own.
    #[error("the tool `{tool}` of `{source_name}` has the name of a tool of `{owner}`")]
    Taken {
        /// Which name.
        tool: String,
        /// Who wants it.
        source_name: String,
        /// Who has it.
        owner: String,
    },
    /// The driver isn't what the manifest says, or can't run at a tier that the manifest names.
    #[error("the tool `{tool}` can't be driven: {why}")]
    Driver {
        /// Which tool.
        tool: String,
        /// What is wrong.
        why: String,
    },
    /// This set isn't approved.
    #[error("nobody has agreed to the tools of `{0}`")]
    Unagreed(String),
    /// The set has changed since its approval. It is off until it is approved again.
    #[error("the tools of `{source_name}` have changed since they were agreed to ({agreed}, now {found})")]
    Changed {
        /// Whose.
        source_name: String,
        /// The digest that was agreed to.
        agreed: Digest,
        /// The digest of what is offered.
        found: Digest,
    },
    /// A version is displayed and compared, so it is a plain word.
    #[error("`{0}` is not a version")]
    Version(String),
    /// It can't be put into canonical form.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
}

/// All tools that can be called. Cheap to look up in; changes are rare.
#[derive(Debug, Default)]
pub struct Catalogue {
    tools: RwLock<BTreeMap<String, Arc<Tool>>>,
    /// How often tools came or went.
    changes: watch::Sender<u64>,
}

impl Catalogue {
    /// Activates a set, in place of its source's previous one. `agreed` is the approved digest: if it isn't the set's, the
    /// source has no tools from here on. All of a set is admitted, or nothing of it.
    pub fn admit(&self, set: ToolSet, agreed: Option<Digest>) -> Result<(), AdmitError> {
        let source = set.source_name().clone();
        let offered = match set.agreed(agreed).and_then(ToolSet::into_tools) {
            Ok(offered) => offered,
            Err(error) => {
                self.withdraw(&source);
                return Err(error);
            }
        };
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        tools.retain(|_, tool| tool.source != source);
        self.note_change();
        for tool in &offered {
            if let Some(other) = tools.get(&tool.spec.name) {
                return Err(AdmitError::Taken {
                    tool: tool.spec.name.clone(),
                    source_name: source.to_string(),
                    owner: other.source.to_string(),
                });
            }
        }
        tools.extend(offered.into_iter().map(|tool| (tool.spec.name.clone(), Arc::new(tool))));
        Ok(())
    }

    /// Puts a set of Regent's own in force: the program that runs vouches for it.
    pub fn admit_own(&self, set: ToolSet) -> Result<(), AdmitError> {
        let digest = set.digest()?;
        self.admit(set, Some(digest))
    }

    /// Takes away all tools of a source. Calls that run go on with the driver that they began with; for the next call they are unknown. Says
    /// whether there were any.
    pub fn withdraw(&self, source: &str) -> bool {
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        let before = tools.len();
        tools.retain(|_, tool| &*tool.source != source);
        let is_fewer = tools.len() < before;
        if is_fewer {
            self.note_change();
        }
        is_fewer
    }

    /// Wakes those who wait for tools to come or go. The number only changes; its value means nothing.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Called while the tools are locked, so that a woken waiter sees all of a set or nothing of it.
    fn note_change(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// The tool of that name, compared byte by byte.
    pub fn get(&self, name: &str) -> Option<Arc<Tool>> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone)
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<Tool>> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner).values().map(Arc::clone).collect()
    }

    /// The name of a tool that can't be performed on this machine, if there is one.
    pub(crate) fn undriven(&self) -> Option<String> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        let undriven = |tool: &&Arc<Tool>| tool.spec.tiers.iter().all(|tier| !tool.driver.has(*tier));
        tools.values().find(undriven).map(|tool| tool.spec.name.clone())
    }
}

impl ToolSpec {
    /// The label of output about which nothing is known: made by a tool, as secret as private things.
    pub const UNKNOWN_OUTPUT: Label =
        Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Unknown };

    /// Whether it reads in its caller's stead. Only a tool of Regent itself that runs in this process can vouch for returning nothing but typed
    /// values.
    pub fn is_quarantine(&self) -> bool {
        self.origin == Origin::BuiltIn
            && self.driver == DriverKind::Host
            && self.tiers == [Tier::Host]
            && self.capabilities.iter().any(|one| one == QUARANTINE)
    }
}
