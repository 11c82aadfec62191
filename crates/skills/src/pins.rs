//! The user's approvals of skills: digest, grants, and whether an agent installed the skill.
//!
//! The file is in the user's state folder, never in the project. A lock in a downloaded project contains its author's claims and grants
//! nothing. The signer isn't stored: it is computed from the package and the trusted keys at each load.

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
pub(crate) struct SkillPins {
    schema: String,
    pub(crate) skills: BTreeMap<String, SkillPin>,
}

/// The approval of one skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkillPin {
    /// The digest over all its files.
    pub(crate) digest: Digest,
    /// Its granted permissions.
    pub(crate) granted: Permissions,
    /// Whether an agent installed it.
    pub(crate) by_agent: bool,
}

impl Default for SkillPins {
    fn default() -> Self {
        Self { schema: SCHEMA.to_owned(), skills: BTreeMap::new() }
    }
}

impl SkillPins {
    /// Reads the pins; only a missing file means none.
    pub(crate) fn read(file: &PinFile) -> Result<Self, SkillError> {
        let pins: Self = file.read().map_err(|error| SkillError::pins(file, error))?;
        if pins.schema != SCHEMA {
            let why = format!("it has the unknown kind `{}`", pins.schema.escape_debug());
            return Err(SkillError::Pins { place: file.path().display().to_string(), why });
        }
        Ok(pins)
    }

    /// Writes the pins atomically, readable only by their owner.
    pub(crate) fn write(&self, file: &PinFile) -> Result<(), SkillError> {
        file.write(self).map_err(|error| SkillError::pins(file, error))
    }
}
