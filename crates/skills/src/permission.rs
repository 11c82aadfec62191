//! The permissions that a skill can request and a user can grant.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One permission.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Permission {
    /// Read below a folder of the workspace: `read:docs`, `read:.`.
    Read(String),
    /// Write below a folder of the workspace: `write:out`.
    Write(String),
    /// Connect to a host, or to any: `network:example.com`, `network:*`.
    Network(String),
    /// Start programs: `shell`.
    Shell,
    /// Call the tool of that name: `tool:fs.read`, `tool:*`.
    Tool(String),
    /// Send personal data to a remote model: `pii:remote-models`.
    PiiToModels,
    /// Send secrets to a remote model: `secrets:remote-models`.
    SecretsToModels,
}

/// Capabilities for network access.
const NETWORK: &[&str] = &["network.request", "network.connect"];

/// A set of permissions.
pub type Permissions = BTreeSet<Permission>;

/// Maximum length of a host or tool name.
const WORD_BYTES_MAX: usize = 255;

impl Permission {
    /// Whether this permission includes the requested one.
    pub fn covers(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Read(own), Self::Read(wanted)) | (Self::Write(own), Self::Write(wanted)) => {
                own == "."
                    || wanted == own
                    || wanted.strip_prefix(own.as_str()).is_some_and(|rest| rest.starts_with('/'))
            }
            (Self::Network(own), Self::Network(wanted)) | (Self::Tool(own), Self::Tool(wanted)) => {
                own == "*" || own == wanted
            }
            (own, wanted) => own == wanted,
        }
    }

    /// The catalogue's capabilities that nested calls may use.
    pub(crate) fn may(&self) -> Vec<String> {
        let at = |capabilities: &[&str], place: &str| {
            capabilities.iter().map(|capability| format!("{capability}:{place}")).collect()
        };
        let plain = |capabilities: &[&str]| capabilities.iter().map(|&one| one.to_owned()).collect();
        match self {
            Self::Read(path) => at(&["file.read", "file.list", "file.search"], path),
            Self::Write(path) => at(&["file.write"], path),
            Self::Network(host) if host == "*" => plain(NETWORK),
            Self::Network(host) => at(NETWORK, host),
            Self::Shell => plain(&["process.exec"]),
            Self::Tool(name) => plain(&[name.as_str()]),
            Self::PiiToModels | Self::SecretsToModels => Vec::new(),
        }
    }

    /// The capability's name in policy rules.
    pub fn capability(&self) -> Option<&'static str> {
        match self {
            Self::Read(_) => Some("file.read"),
            Self::Write(_) => Some("file.write"),
            Self::Network(_) => Some("network.request"),
            Self::Shell => Some("process.exec"),
            Self::Tool(_) | Self::PiiToModels | Self::SecretsToModels => None,
        }
    }
}

/// Requested permissions that the grants don't cover.
pub(crate) fn missing(wanted: &Permissions, granted: &Permissions) -> Permissions {
    let covered = |one: &&Permission| !granted.iter().any(|own| own.covers(one));
    wanted.iter().filter(covered).cloned().collect()
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(path) => write!(f, "read:{path}"),
            Self::Write(path) => write!(f, "write:{path}"),
            Self::Network(host) => write!(f, "network:{host}"),
            Self::Shell => f.write_str("shell"),
            Self::Tool(name) => write!(f, "tool:{name}"),
            Self::PiiToModels => f.write_str("pii:remote-models"),
            Self::SecretsToModels => f.write_str("secrets:remote-models"),
        }
    }
}

/// A text that is not a permission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a permission: {1}")]
pub struct PermissionError(String, &'static str);

impl FromStr for Permission {
    type Err = PermissionError;

    fn from_str(text: &str) -> Result<Self, PermissionError> {
        let fail = |why| PermissionError(text.chars().take(80).flat_map(char::escape_debug).collect(), why);
        match text.split_once(':') {
            Some(("read", path)) => folder(path).map(Self::Read).map_err(fail),
            Some(("write", path)) => folder(path).and_then(writable).map(Self::Write).map_err(fail),
            Some(("network", host)) => word(host).map(Self::Network).map_err(fail),
            Some(("tool", name)) => word(name).map(Self::Tool).map_err(fail),
            None if text == "shell" => Ok(Self::Shell),
            Some(("pii", "remote-models")) => Ok(Self::PiiToModels),
            Some(("secrets", "remote-models")) => Ok(Self::SecretsToModels),
            Some(_) | None => Err(fail(
                "use read:FOLDER, write:FOLDER, network:HOST, shell, tool:NAME, pii:remote-models or secrets:remote-models",
            )),
        }
    }
}

impl TryFrom<String> for Permission {
    type Error = PermissionError;

    fn try_from(text: String) -> Result<Self, PermissionError> {
        text.parse()
    }
}

impl From<Permission> for String {
    fn from(permission: Permission) -> Self {
        permission.to_string()
    }
}

/// The canonical spelling of a folder or file of the workspace. `docs/**` means `docs`. Other patterns are errors, because a sandbox mounts
/// paths, not patterns.
fn folder(text: &str) -> Result<String, &'static str> {
    let bare = text.strip_suffix("/**").or_else(|| text.strip_suffix("/*")).unwrap_or(text);
    let bare = bare.trim_start_matches("./").trim_end_matches('/');
    if matches!(bare, "" | "." | "*" | "**") {
        return if text.is_empty() || text.starts_with('/') {
            Err("it names no folder")
        } else {
            Ok(".".to_owned())
        };
    }
    if bare.starts_with(['/', '~', '$']) || bare.len() > 1024 {
        return Err("name a folder relative to the workspace");
    }
    if bare.contains(['*', '?', '[', ']', '{', '}', '\\', ':']) || bare.chars().any(char::is_control) {
        return Err("only whole folders and files can be granted");
    }
    let mut names = bare.split('/');
    if names.clone().any(|name| matches!(name, "" | "." | "..")) {
        return Err("a folder is named without dots");
    }
    let steers = regent_guard::kinds_of(bare).intersects(regent_guard::Kinds::UNWRITABLE);
    if steers || names.next().is_some_and(|first| *regent_guard::fold_name(first) == *".agents") {
        return Err("this folder controls Regent, git, editors or shells, which skills may not access");
    }
    Ok(bare.to_owned())
}

/// Rejects write access to a folder that could come to contain a guarded file (`.cargo` for `.cargo/config.toml`). The sandbox sees only
/// paths relative to the granted folder, so it could not guard that file.
fn writable(place: String) -> Result<String, &'static str> {
    let (parent, name) = place.rsplit_once('/').unwrap_or(("", &place));
    match regent_guard::creation(parent, name, regent_guard::Kinds::UNWRITABLE) {
        regent_guard::Creation::Free => Ok(place),
        regent_guard::Creation::Guarded(_) | regent_guard::Creation::OnTheWay(_) => {
            Err("it has files that control Regent, git, editors or shells, which skills may not write")
        }
    }
}

fn word(text: &str) -> Result<String, &'static str> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-*".contains(c);
    if text.is_empty() || text.len() > WORD_BYTES_MAX || !text.chars().all(fine) {
        return Err("it has characters that no host or tool name has");
    }
    if text != "*" && text.contains('*') {
        return Err("only a single `*` for all is allowed; other patterns aren't");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_permission_has_one_spelling() {
        let cases = [
            ("read:docs", "read:docs"),
            ("read:docs/**", "read:docs"),
            ("read:./docs/", "read:docs"),
            ("write:**", "write:."),
            ("read:.", "read:."),
            ("network:*", "network:*"),
            ("network:api.example.com", "network:api.example.com"),
            ("tool:fs.read", "tool:fs.read"),
            ("shell", "shell"),
        ];
        for (text, written) in cases {
            assert_eq!(text.parse::<Permission>().unwrap().to_string(), written);
        }
        for text in [
            "",
            "read:",
            "read:/etc",
            "read:/",
            "read:~/.ssh",
            "read:../x",
            "read:a/../b",
            "read:*.md",
            "read:.regent/skills",
            "write:.git/hooks",
            "write:sub/.GIT/hooks",
            "read:.REGENT/audit",
            "write:.vscode",
            "write:.agents",
            "write:sub/.cargo",
            "write:.config",
            "network:",
            "network:*.com",
            "network:EXAMPLE.com",
            "tool:fs.*",
            "shell:all",
            "read:a\nb",
            "read:$HOME",
            "everything",
        ] {
            assert!(text.parse::<Permission>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_grant_covers_everything_below_its_folder() {
        let cases = [
            ("read:.", "read:docs", true),
            ("read:docs", "read:docs/a", true),
            ("read:docs", "read:docsies", false),
            ("read:docs", "read:.", false),
            ("write:.", "read:docs", false),
            ("network:*", "network:example.com", true),
            ("network:example.com", "network:*", false),
            ("tool:*", "tool:fs.read", true),
            ("shell", "shell", true),
            ("shell", "network:*", false),
        ];
        for (own, wanted, covered) in cases {
            let (own, wanted): (Permission, Permission) = (own.parse().unwrap(), wanted.parse().unwrap());
            assert_eq!(own.covers(&wanted), covered, "{own} {wanted}");
        }
    }
}
