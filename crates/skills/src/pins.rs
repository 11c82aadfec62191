//! What the user has agreed to, by skill: the digest, the grants, and whether an agent brought it.
//!
//! The file is in the user's state folder, never in the project. A lock that came with a download says what its author wanted; it
//! grants nothing. Who signed a skill isn't kept at all: that is computed from the package and the trusted keys at each load.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use regent_ledger::Digest;
use serde::{Deserialize, Serialize};

use crate::error::SkillError;
use crate::permission::Permissions;

const PINS_BYTES_MAX: u64 = 4 << 20;
const SCHEMA: &str = "regent.skill-pins/v1";

/// The pins of one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pins {
    schema: String,
    pub(crate) skills: BTreeMap<String, Pin>,
}

/// What was agreed to of one skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pin {
    /// Of all its files.
    pub(crate) digest: Digest,
    /// What it may do.
    pub(crate) granted: Permissions,
    /// An agent installed it.
    pub(crate) by_agent: bool,
}

impl Default for Pins {
    fn default() -> Self {
        Self { schema: SCHEMA.to_owned(), skills: BTreeMap::new() }
    }
}

impl Pins {
    /// Reads the pins; only a file that doesn't exist means none.
    pub(crate) fn read(path: &Path) -> Result<Self, SkillError> {
        let length = match std::fs::symlink_metadata(path) {
            Ok(meta) if meta.is_file() => meta.len(),
            Ok(_) => return Err(damaged(path, "it is not a plain file")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(SkillError::io(path, error)),
        };
        if length > PINS_BYTES_MAX {
            return Err(damaged(path, &format!("it has more than {PINS_BYTES_MAX} bytes")));
        }
        let bytes = std::fs::read(path).map_err(|error| SkillError::io(path, error))?;
        let value =
            regent_ledger::canonical::parse(&bytes).map_err(|error| damaged(path, &error.to_string()))?;
        let pins: Self = serde_json::from_value(value).map_err(|error| damaged(path, &error.to_string()))?;
        if pins.schema != SCHEMA {
            return Err(damaged(path, &format!("it is of the kind `{}`", pins.schema.escape_debug())));
        }
        Ok(pins)
    }

    /// Writes them at once or not at all, readable by their owner alone.
    pub(crate) fn write(&self, path: &Path) -> Result<(), SkillError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let fail = |error| SkillError::io(path, error);
        let text = serde_json::to_vec_pretty(self).map_err(|error| damaged(path, &error.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fail)?;
        let mut draft = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
        draft.write_all(&text).map_err(fail)?;
        draft.as_file().sync_all().map_err(fail)?;
        draft.persist(path).map_err(|error| fail(error.error))?;
        Ok(())
    }
}

fn damaged(path: &Path, why: &str) -> SkillError {
    SkillError::Pins { place: path.display().to_string(), why: why.to_owned() }
}
