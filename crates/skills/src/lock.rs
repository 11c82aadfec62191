//! The list of installed skills: `.regent/skills.lock`.
//!
//! The lock is part of the project and untrusted. It contains only the skills' names, their sources, and the digest of every file. Grants
//! and trust never come from the lock.

use std::collections::BTreeMap;
use std::path::Path;

use regent_ledger::Digest;
use serde::{Deserialize, Serialize};

use crate::error::SkillError;
use crate::manifest::Manifest;

const LOCK_BYTES_MAX: u64 = 4 << 20;
const SCHEMA: &str = "regent.skills/v2";
/// The schema before grants were pinned outside the project; its trust and grants are ignored.
const SCHEMA_BEFORE: &str = "regent.skills/v1";

/// All installed skills, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    schema: String,
    /// The skills.
    pub skills: BTreeMap<String, Locked>,
}

/// An installed skill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// The author's version.
    pub version: String,
    /// The source for updates.
    pub source: String,
    /// The digest over all files.
    pub digest: Digest,
    /// Every file.
    pub files: Manifest,
    /// Trust and grants that an older lock claims. Parsed so that such a lock loads, and ignored.
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
    /// Reads the lock; a missing file means that no skill is installed.
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
        // The strict parser rejects duplicate keys, which two parsers could read differently.
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

    /// Writes the lock atomically.
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
