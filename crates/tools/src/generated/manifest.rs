//! What is written down about a version of a generated tool.

use regent_kernel::{CostClass, Digest, DriverKind, Origin, SideEffect, Tier, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::GeneratedError;

/// What every generated tool's name begins with: none can pass for another kind of tool.
pub(crate) const PREFIX: &str = "gen.";
const NAME_BYTES_MAX: usize = 64;
const DESCRIPTION_BYTES_MAX: usize = 2_000;
const CAPABILITIES_MAX: usize = 32;
pub(crate) const EXAMPLES_MAX: usize = 50;
/// What a tool can't be granted: to make tools, to act for a user, to start agents.
const NEVER_GRANTED: &[&str] = &["tool", "approval", "budget", "policy", "agent", "signal", "skill", "*"];

/// A version of a generated tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Of this file; 1.
    pub format: u32,
    /// The tool's name.
    pub name: String,
    /// From 1.
    pub version: u32,
    /// One sentence, for people and models.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input: Value,
    /// What it was granted.
    pub capabilities: Vec<String>,
    /// The host functions that its source names.
    pub uses: Vec<String>,
    /// What it was tried on.
    pub examples: Vec<Example>,
    /// The digest of the source.
    pub source_sha256: Digest,
    /// The digest of the interpreter that it was tried with.
    pub interpreter_sha256: Digest,
    /// When it was made, in milliseconds since 1970.
    pub made_ms: i64,
    /// Who made it.
    pub made_by: String,
}

/// What a tool gives for an input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// The arguments.
    pub input: Value,
    /// What must come back.
    pub output: Value,
}

/// What is asked of `tool.generate`.
#[derive(Debug, Clone)]
pub(crate) struct GenerateRequest {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) source: String,
    pub(crate) input: Value,
    pub(crate) examples: Vec<Example>,
    pub(crate) capabilities: Vec<String>,
}

impl GenerateRequest {
    /// Reads and checks everything that can be known before it runs.
    pub(crate) fn check(&self) -> Result<Vec<String>, GeneratedError> {
        let refuse = |why: &str| Err(GeneratedError::Refused(why.to_owned()));
        check_name(&self.name)?;
        if self.description.trim().is_empty() || self.description.len() > DESCRIPTION_BYTES_MAX {
            return refuse("a tool needs a description, of at most 2,000 bytes");
        }
        if self.examples.is_empty() || self.examples.len() > EXAMPLES_MAX {
            return refuse("a tool needs between 1 and 50 examples: nothing that wasn't tried is used");
        }
        if self.input.get("type").and_then(Value::as_str) != Some("object") {
            return refuse("the schema of the input must be of the type `object`");
        }
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-:/".contains(c);
        let family = |word: &str| word.split('.').next().unwrap_or_default().to_owned();
        for word in &self.capabilities {
            if word.is_empty() || word.len() > NAME_BYTES_MAX || !word.chars().all(fine) {
                return refuse("a capability is a word like `file.read`");
            }
            if NEVER_GRANTED.contains(&family(word).as_str()) {
                return Err(GeneratedError::Refused(format!(
                    "`{word}` can't be granted to a generated tool"
                )));
            }
        }
        if self.capabilities.len() > CAPABILITIES_MAX {
            return refuse("too many capabilities");
        }
        let script = regent_script::Script::new(&self.source)?;
        let uses: Vec<String> = script.uses().iter().map(|&word| word.to_owned()).collect();
        self.check_uses(&uses)?;
        Ok(uses)
    }

    /// Only what is declared is used.
    fn check_uses(&self, uses: &[String]) -> Result<(), GeneratedError> {
        for function in uses {
            let capability = match function.as_str() {
                "readFile" | "stat" => "file.read",
                "writeFile" | "appendFile" => "file.write",
                "listDir" => "file.list",
                "fetch" => "network.request",
                "kv.get" | "kv.set" => "memory",
                // Which tools it calls is only known when it does; then the kernel looks.
                "callTool" if self.capabilities.is_empty() => "…",
                _free => continue,
            };
            if !self.capabilities.iter().any(|granted| covers(granted, capability)) {
                return Err(GeneratedError::Undeclared { function: function.clone(), capability });
            }
        }
        Ok(())
    }
}

/// `file.read` covers it, and so does `file.read:docs`, for what lies there.
fn covers(granted: &str, wanted: &str) -> bool {
    granted.split(':').next() == Some(wanted)
}

/// Names are folders and go into rules: short, plain, and all their own.
pub(crate) fn check_name(name: &str) -> Result<(), GeneratedError> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    let part = |part: &str| !part.is_empty() && part.chars().all(fine);
    let rest = name.strip_prefix(PREFIX).unwrap_or_default();
    if name.len() > NAME_BYTES_MAX || !rest.split('.').all(part) {
        let shown = name.escape_debug();
        let why = format!(
            "`{shown}` is not a name for a generated tool: `gen.` and then words of a-z, 0-9, `_` and `-`"
        );
        return Err(GeneratedError::Refused(why));
    }
    Ok(())
}

impl Manifest {
    /// As the catalogue has it. The version carries the digest of the manifest, so that every entry of the ledger about the tool does.
    pub(crate) fn spec(&self, digest: Digest) -> ToolSpec {
        let granted =
            |family: &str| self.capabilities.iter().any(|word| word.split('.').next() == Some(family));
        let writes = self.capabilities.iter().any(|word| covers(word, "file.write"));
        let effect = if granted("network") {
            SideEffect::Network
        } else if writes || granted("memory") || granted("process") {
            SideEffect::Write
        } else if self.capabilities.is_empty() {
            SideEffect::None
        } else {
            SideEffect::Read
        };
        let harmless = matches!(effect, SideEffect::None | SideEffect::Read);
        let capabilities =
            std::iter::once("tool.generated".to_owned()).chain(self.capabilities.iter().cloned());
        let short: String = digest.to_string().chars().take(16).collect();
        ToolSpec {
            name: self.name.clone(),
            description: self.description.clone(),
            input: self.input.clone(),
            capabilities: capabilities.collect(),
            effect,
            idempotent: harmless,
            reversible: harmless,
            driver: DriverKind::Wasm,
            tiers: vec![Tier::Wasm],
            version: format!("{}+{short}", self.version),
            cost: CostClass::Cheap,
            origin: Origin::Generated,
            may: Some(self.may()),
            ..ToolSpec::default()
        }
    }

    /// What its own calls may use.
    fn may(&self) -> Vec<String> {
        let mut may = self.capabilities.clone();
        // What the host's `kv` is made of.
        if may.iter().any(|granted| granted == "memory") {
            let operations = ["memory.remember", "vfs.open", "vfs.read", "vfs.close"];
            may.extend(operations.map(str::to_owned));
        }
        may
    }
}

/// Whether two JSON values are the same; `1` and `1.0` are.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, value)| right.get(name).is_some_and(|other| same(value, other)))
        }
        (left, right) => left == right,
    }
}
