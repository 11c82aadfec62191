//! What is installed: `.regent/skills.lock`.
//!
//! The lock travels with the project, so it says only what anyone may say: which skills there are, where they came from, and the digest
//! of every file. What a skill may do, and whether somebody vouches for it, is never taken from here.

use std::collections::BTreeMap;
use std::path::Path;

use regent_ledger::Digest;
use serde::{Deserialize, Serialize};

use crate::error::SkillError;
use crate::manifest::Manifest;

const LOCK_BYTES_MAX: u64 = 4 << 20;
const SCHEMA: &str = "regent.skills/v2";
/// As written before grants were pinned outside of the project; what it says about trust and grants is ignored.
const SCHEMA_BEFORE: &str = "regent.skills/v1";

/// Everything that is installed, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    schema: String,
    /// The skills.
    pub skills: BTreeMap<String, Locked>,
}

/// One skill that is installed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// As its author counts.
    pub version: String,
    /// Where it came from, so that it can be updated.
    pub source: String,
    /// Of all its files.
    pub digest: Digest,
    /// Every file.
    pub files: Manifest,
    /// What an older lock claims about trust and grants. Read so that such a lock loads, and used for nothing.
    #[serde(default, skip_serializing)]
    trust: serde::de::IgnoredAny,
    #[serde(default, skip_serializing)]
    signer: serde::de::IgnoredAny,
    #[serde(default, skip_serializing)]
    granted: serde::de::IgnoredAny,
}

impl Locked {
    pub(crate) fn new(version: String, source: String, digest: Digest, files: Manifest) -> Self {
        let ignored = serde::de::IgnoredAny;
        Self { version, source, digest, files, trust: ignored, signer: ignored, granted: ignored }
    }
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
            Ok(_) => return Err(SkillError::Lock("it is not a regular file".to_owned())),
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
        let mut lock: Self =
            serde_json::from_value(value).map_err(|error| SkillError::Lock(error.to_string()))?;
        if lock.schema == SCHEMA_BEFORE {
            lock.schema = SCHEMA.to_owned();
        }
        if lock.schema != SCHEMA {
            return Err(SkillError::Lock(format!(
                "it has the unknown kind `{}`",
                lock.schema.escape_debug()
            )));
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
