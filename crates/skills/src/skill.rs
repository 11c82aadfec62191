//! Parses `SKILL.md`: the fields of agentskills, the runtime and permissions of older skills, and unknown fields.

use std::collections::BTreeMap;

use regent_kernel::{DriverKind, Tier};
use regent_policy::read_yaml;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::SkillError;
use crate::package::Package;
use crate::permission::{Permission, Permissions};

/// The file that makes a folder a skill.
pub const SKILL_FILE: &str = "SKILL.md";
const HEAD_BYTES_MAX: usize = 64 << 10;
const BODY_BYTES_MAX: usize = 1 << 20;
const NAME_BYTES_MAX: usize = 64;
const DESCRIPTION_CHARS_MAX: usize = 1024;
const FIELDS_MAX: usize = 64;

/// Where a skill's program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    /// No program: its text is shown, never run.
    Instruction,
    /// A program or script in the process sandbox.
    Process,
    /// A WASM component.
    Wasm,
    /// A static program in its own virtual machine.
    Microvm,
}

impl Runtime {
    /// The driver for this runtime.
    pub fn driver(self) -> DriverKind {
        match self {
            Self::Instruction => DriverKind::Host,
            Self::Process => DriverKind::Process,
            Self::Wasm => DriverKind::Wasm,
            Self::Microvm => DriverKind::Microvm,
        }
    }

    /// The minimum tier.
    pub fn tier(self) -> Tier {
        match self {
            Self::Instruction => Tier::Instruction,
            Self::Process => Tier::Process,
            Self::Wasm => Tier::Wasm,
            Self::Microvm => Tier::Microvm,
        }
    }
}

/// The content of a `SKILL.md`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Skill {
    /// Lower case letters, digits and hyphens; also the name of its folder and of its tool.
    pub name: String,
    /// Its purpose.
    pub description: String,
    /// Three numbers, or the author's own scheme.
    pub version: String,
    /// The runtime of its program.
    pub runtime: Runtime,
    /// The program's file.
    pub entrypoint: Option<String>,
    /// The requested permissions.
    pub permissions: Permissions,
    /// Its licence.
    pub license: Option<String>,
    /// Required environment, as free text.
    pub compatibility: Option<String>,
    /// The author's id.
    pub id: Option<String>,
    /// Further fields of the author.
    pub metadata: BTreeMap<String, String>,
    /// Unknown fields. Kept and shown, but without effect.
    pub unknown: BTreeMap<String, Value>,
    /// The instructions.
    #[serde(skip)]
    pub body: String,
}

impl Skill {
    /// Parses the `SKILL.md` of a package, and checks that the files that it names exist.
    pub fn from_package(package: &Package) -> Result<Self, SkillError> {
        let bytes = package
            .file(SKILL_FILE)
            .ok_or_else(|| SkillError::Skill("it is missing at the top of the package".to_owned()))?;
        let text = std::str::from_utf8(bytes).map_err(|_| SkillError::Skill("it is not UTF-8".to_owned()))?;
        let skill = Self::parse(text)?;
        if let Some(entrypoint) = &skill.entrypoint
            && package.file(entrypoint).is_none()
        {
            return Err(SkillError::Skill(format!("its entrypoint `{entrypoint}` is not in the package")));
        }
        Ok(skill)
    }

    /// Parses the text of a `SKILL.md`.
    pub fn parse(text: &str) -> Result<Self, SkillError> {
        let (head, body) = parts(text)?;
        let value = read_yaml(head, SKILL_FILE).map_err(|error| {
            // The header starts in line 2 of the file.
            SkillError::Skill(error.findings.first().map_or_else(
                || error.to_string(),
                |first| {
                    format!(
                        "line {}, column {}: {}",
                        first.line.saturating_add(1),
                        first.column,
                        first.message
                    )
                },
            ))
        })?;
        let Value::Object(fields) = value else {
            return Err(SkillError::Skill("its header is not a list of fields".to_owned()));
        };
        if fields.len() > FIELDS_MAX {
            return Err(SkillError::Skill(format!("its header has more than {FIELDS_MAX} fields")));
        }
        let mut head = SkillHeader(fields);
        let skill = Self {
            name: head.name()?,
            description: head.description()?,
            version: head.version()?,
            runtime: head.runtime()?,
            entrypoint: head.entrypoint()?,
            permissions: head.permissions()?,
            license: head.text("license", 500)?,
            compatibility: head.text("compatibility", 500)?,
            id: head.text("id", 200)?,
            metadata: head.metadata()?,
            unknown: head.0.into_iter().collect(),
            body: body.to_owned(),
        };
        match (skill.runtime, &skill.entrypoint) {
            (Runtime::Instruction, Some(_)) => {
                Err(SkillError::Skill("it has an `entrypoint` but no `runtime` to run it".to_owned()))
            }
            (Runtime::Process | Runtime::Wasm | Runtime::Microvm, None) => {
                Err(SkillError::Skill("it has a `runtime` but no `entrypoint` to run".to_owned()))
            }
            (Runtime::Instruction, None) | (Runtime::Process | Runtime::Wasm | Runtime::Microvm, Some(_)) => {
                Ok(skill)
            }
        }
    }
}

/// The header between the two `---` lines, and the text after it.
fn parts(text: &str) -> Result<(&str, &str), SkillError> {
    let fail = |why: &str| Err(SkillError::Skill(why.to_owned()));
    let Some(rest) = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n")) else {
        return fail("it does not begin with a line `---`");
    };
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            let (head, body) =
                (rest.get(..at).unwrap_or_default(), rest.get(at + line.len()..).unwrap_or_default());
            if head.len() > HEAD_BYTES_MAX || body.len() > BODY_BYTES_MAX {
                return fail("it is too long");
            }
            return Ok((head, body.trim_start_matches(['\n', '\r'])));
        }
        at += line.len();
    }
    fail("its header has no second line `---`")
}

/// The fields of the header. Parsing removes each field, so the rest is unknown.
struct SkillHeader(Map<String, Value>);

impl SkillHeader {
    fn text(&mut self, key: &str, chars_max: usize) -> Result<Option<String>, SkillError> {
        let text = match self.0.remove(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text,
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                return Err(SkillError::Skill(format!("`{key}` must be text")));
            }
        };
        if text.chars().count() > chars_max {
            return Err(SkillError::Skill(format!("`{key}` has more than {chars_max} characters")));
        }
        Ok(Some(text))
    }

    fn name(&mut self) -> Result<String, SkillError> {
        let name = self.text("name", NAME_BYTES_MAX)?.unwrap_or_default();
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let odd = name.is_empty() || name.starts_with('-') || name.ends_with('-') || name.contains("--");
        if odd || !name.chars().all(fine) {
            let shown = name.escape_debug();
            return Err(SkillError::Skill(format!(
                "`name` must be lower case letters, digits and single hyphens, not `{shown}`"
            )));
        }
        Ok(name)
    }

    fn description(&mut self) -> Result<String, SkillError> {
        let description = self.text("description", DESCRIPTION_CHARS_MAX)?.unwrap_or_default();
        if description.trim().is_empty() {
            return Err(SkillError::Skill("it has no `description`".to_owned()));
        }
        Ok(description.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    fn version(&mut self) -> Result<String, SkillError> {
        let own = self.text("version", 64)?;
        // agentskills has no version field; authors put it into the metadata.
        let from_metadata =
            self.0.get("metadata").and_then(|metadata| metadata.get("version")).and_then(Value::as_str);
        let version = own.or_else(|| from_metadata.map(str::to_owned)).unwrap_or_else(|| "0.0.0".to_owned());
        let fine = |c: char| c.is_ascii_alphanumeric() || ".-+".contains(c);
        if version.is_empty() || version.len() > 48 || !version.chars().all(fine) {
            return Err(SkillError::Skill(format!("invalid `version` `{}`", version.escape_debug())));
        }
        Ok(version)
    }

    /// The runtime, in current or older spelling.
    fn runtime(&mut self) -> Result<Runtime, SkillError> {
        match self.text("runtime", 64)?.as_deref() {
            None | Some("none" | "instruction") => Ok(Runtime::Instruction),
            Some("host" | "process") => Ok(Runtime::Process),
            Some("wasm") => Ok(Runtime::Wasm),
            Some("mvm" | "microvm") => Ok(Runtime::Microvm),
            Some(other) => Err(SkillError::Skill(format!(
                "`runtime` must be instruction, process, wasm or microvm, not `{}`",
                other.escape_debug()
            ))),
        }
    }

    fn entrypoint(&mut self) -> Result<Option<String>, SkillError> {
        let Some(path) = self.text("entrypoint", 512)? else { return Ok(None) };
        crate::package::checked_path(path.as_bytes()).map(Some)
    }

    fn metadata(&mut self) -> Result<BTreeMap<String, String>, SkillError> {
        match self.0.remove("metadata") {
            None | Some(Value::Null) => Ok(BTreeMap::new()),
            Some(Value::Object(fields)) if fields.len() <= FIELDS_MAX => Ok(fields
                .into_iter()
                .map(|(key, value)| {
                    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    (key, value)
                })
                .collect()),
            Some(_) => Err(SkillError::Skill("`metadata` must be a short list of fields".to_owned())),
        }
    }

    fn permissions(&mut self) -> Result<Permissions, SkillError> {
        let mut wanted = Permissions::new();
        for tool in self.allowed_tools()? {
            wanted.insert(permission(&format!("tool:{tool}"))?);
        }
        for (section, own) in [("pii", Permission::PiiToModels), ("secrets", Permission::SecretsToModels)] {
            if let Some(value) = self.0.remove(section)
                && is_allowed(value.get("remote_model_calls"))
            {
                wanted.insert(own);
            }
        }
        let permissions = match self.0.remove("permissions") {
            None | Some(Value::Null) => return Ok(wanted),
            Some(Value::Object(fields)) => fields,
            Some(_) => return Err(SkillError::Skill("`permissions` must be a list of fields".to_owned())),
        };
        for (key, value) in permissions {
            match key.as_str() {
                "filesystem" => filesystem(&value, &mut wanted)?,
                "network" => network(&value, &mut wanted)?,
                "shell" => {
                    if is_allowed(Some(value.get("default").unwrap_or(&value))) {
                        wanted.insert(Permission::Shell);
                    }
                }
                // An unknown permission can't be granted. Ignoring it silently would mislead the user.
                other => {
                    return Err(SkillError::Skill(format!(
                        "`permissions.{}` is not one of filesystem, network, shell",
                        other.escape_debug()
                    )));
                }
            }
        }
        Ok(wanted)
    }

    /// A list, or words separated by spaces; `Bash(git:*)` means `bash`. Other agents pre-approve these tools; here they are only requests.
    fn allowed_tools(&mut self) -> Result<Vec<String>, SkillError> {
        let words: Vec<String> =
            match self.0.remove("allowed-tools").or_else(|| self.0.remove("allowed_tools")) {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::String(text)) => split_tools(&text),
                Some(Value::Array(items)) => {
                    items.iter().filter_map(Value::as_str).flat_map(split_tools).collect()
                }
                Some(_) => {
                    return Err(SkillError::Skill("`allowed-tools` must be a list of names".to_owned()));
                }
            };
        if words.len() > FIELDS_MAX {
            return Err(SkillError::Skill(format!("`allowed-tools` has more than {FIELDS_MAX} names")));
        }
        Ok(words)
    }
}

fn split_tools(text: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let outside: String = text
        .chars()
        .filter(|c| match c {
            '(' => {
                depth = depth.saturating_add(1);
                false
            }
            ')' => {
                depth = depth.saturating_sub(1);
                false
            }
            _other => depth == 0,
        })
        .collect();
    outside
        .split([' ', ',', '\n', '\t'])
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect()
}

fn permission(text: &str) -> Result<Permission, SkillError> {
    text.parse().map_err(|error: crate::permission::PermissionError| SkillError::Skill(error.to_string()))
}

fn is_allowed(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Bool(allowed)) => *allowed,
        // An unknown word counts as a request, so that the user sees it.
        Some(Value::String(word)) => !matches!(word.as_str(), "deny" | "none" | "never" | "false" | ""),
        None | Some(Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_)) => false,
    }
}

fn filesystem(value: &Value, wanted: &mut Permissions) -> Result<(), SkillError> {
    let Value::Object(fields) = value else {
        return Err(SkillError::Skill("`permissions.filesystem` must have `read` and `write`".to_owned()));
    };
    for (key, paths) in fields {
        if !matches!(key.as_str(), "read" | "write") {
            return Err(SkillError::Skill(format!(
                "unknown key `permissions.filesystem.{}`",
                key.escape_debug()
            )));
        }
        let one = |path: &str| permission(&format!("{key}:{path}"));
        match paths {
            Value::Null => {}
            Value::String(path) => drop(wanted.insert(one(path)?)),
            Value::Array(paths) if paths.len() <= FIELDS_MAX => {
                for path in paths {
                    let path =
                        path.as_str().ok_or_else(|| SkillError::Skill("a path must be text".to_owned()))?;
                    wanted.insert(one(path)?);
                }
            }
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                return Err(SkillError::Skill(format!(
                    "`permissions.filesystem.{key}` must be a short list of paths"
                )));
            }
        }
    }
    Ok(())
}

/// `network: {default: deny}`, `network: allow`, `network: [hosts]`, `network: {hosts: [hosts]}`.
fn network(value: &Value, wanted: &mut Permissions) -> Result<(), SkillError> {
    let hosts = match value {
        Value::Array(hosts) => Some(hosts),
        Value::Object(fields) => {
            fields.get("hosts").or_else(|| fields.get("allowed_hosts")).and_then(Value::as_array)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    if let Some(hosts) = hosts {
        for host in hosts.iter().take(FIELDS_MAX) {
            let host = host.as_str().ok_or_else(|| SkillError::Skill("a host must be text".to_owned()))?;
            wanted.insert(permission(&format!("network:{}", host.to_ascii_lowercase()))?);
        }
    } else if is_allowed(Some(value.get("default").unwrap_or(value))) {
        wanted.insert(Permission::Network("*".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
