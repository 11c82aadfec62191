//! What the user has agreed to, by skill: the digest, the grants, and whether an agent brought it.
//!
//! The file is in the user's state folder, never in the project. A lock that came with a download says what its author wanted; it
//! grants nothing. Who signed a skill isn't kept at all: that is computed from the package and the trusted keys at each load.

use std::collections::BTreeMap;

use regent_ledger::Digest;
use regent_tools::PinFile;
use serde::{Deserialize, Serialize};

use crate::error::SkillError;
use crate::permission::Permissions;

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
    pub(crate) fn read(file: &PinFile) -> Result<Self, SkillError> {
        let pins: Self = file.read().map_err(|error| SkillError::pins(file, error))?;
        if pins.schema != SCHEMA {
            let why = format!("it has the unknown kind `{}`", pins.schema.escape_debug());
            return Err(SkillError::Pins { place: file.path().display().to_string(), why });
        }
        Ok(pins)
    }

    /// Writes them at once or not at all, readable by their owner alone.
    pub(crate) fn write(&self, file: &PinFile) -> Result<(), SkillError> {
        file.write(self).map_err(|error| SkillError::pins(file, error))
    }
}
