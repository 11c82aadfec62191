//! What is installed: `.regent/skills.lock`.
//!
//! The user trusts the folder with this file as it is, like the project's policy: a lock that came with a download, or that somebody
//! changed together with the files, is not in force before the user has said so.

use std::collections::BTreeMap;
use std::path::Path;

use regent_ledger::Digest;
use serde::{Deserialize, Serialize};

use crate::error::SkillError;
use crate::manifest::Manifest;
use crate::permission::Permissions;
use crate::plan::Trust;

const LOCK_BYTES_MAX: u64 = 4 << 20;
const SCHEMA: &str = "regent.skills/v1";

/// Everything that is installed, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    schema: String,
    /// The skills.
    pub skills: BTreeMap<String, Locked>,
}

/// One skill that is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// As its author counts.
    pub version: String,
    /// Where it came from, so that it can be updated.
    pub source: String,
    /// Who vouches for it.
    pub trust: Trust,
    /// The name of the trusted key that signed it.
    pub signer: Option<String>,
    /// What it may do. Never more than it asked for.
    pub granted: Permissions,
    /// Of all its files.
    pub digest: Digest,
    /// Every file.
    pub files: Manifest,
}

impl Default for Lock {
    fn default() -> Self {
        Self { schema: SCHEMA.to_owned(), skills: BTreeMap::new() }
    }
}

impl Lock {
    /// Reads the lock; none means that nothing is installed.
    pub fn read(path: &Path) -> Result<Self, SkillError> {
        let length = match std::fs::symlink_metadata(path) {
            Ok(meta) if meta.is_file() => meta.len(),
            Ok(_) => return Err(SkillError::Lock("it is not a plain file".to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(SkillError::io(path, error)),
        };
        if length > LOCK_BYTES_MAX {
            return Err(SkillError::Lock(format!("it has more than {LOCK_BYTES_MAX} bytes")));
        }
        let bytes = std::fs::read(path).map_err(|error| SkillError::io(path, error))?;
        // The strict reader: no key twice, so that two readers can't see two locks.
        let value =
            regent_ledger::canonical::parse(&bytes).map_err(|error| SkillError::Lock(error.to_string()))?;
        let lock: Self =
            serde_json::from_value(value).map_err(|error| SkillError::Lock(error.to_string()))?;
        if lock.schema != SCHEMA {
            return Err(SkillError::Lock(format!("it is of the kind `{}`", lock.schema.escape_debug())));
        }
        Ok(lock)
    }

    /// Writes it at once or not at all.
    pub(crate) fn write(&self, path: &Path) -> Result<(), SkillError> {
        let fail = |error| SkillError::io(path, error);
        let mut text =
            serde_json::to_vec_pretty(self).map_err(|error| SkillError::Lock(error.to_string()))?;
        text.push(b'\n');
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut draft = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
        std::io::Write::write_all(&mut draft, &text).map_err(fail)?;
        draft.as_file().sync_all().map_err(fail)?;
        draft.persist(path).map_err(|error| fail(error.error))?;
        Ok(())
    }
}
