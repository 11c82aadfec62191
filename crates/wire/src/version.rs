//! Which version something is written in.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The version of something whose newest known version is `KNOWN`. Without a version it is version 1, and version 1 isn't written.
/// A newer version is an error: a reader that knows half of the fields would draw wrong conclusions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Version<const KNOWN: u64>(u64);

impl<const KNOWN: u64> Version<KNOWN> {
    /// What is written.
    pub const CURRENT: Self = Self(KNOWN);

    /// Which one it is.
    pub fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn first() -> Self {
        Self(1)
    }

    pub(crate) fn is_first(&self) -> bool {
        self.0 == 1
    }
}

impl<'de, const KNOWN: u64> Deserialize<'de> for Version<KNOWN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        if (1..=KNOWN).contains(&number) {
            return Ok(Self(number));
        }
        Err(D::Error::custom(format_args!("version {number} is not one of 1 to {KNOWN}")))
    }
}

impl<const KNOWN: u64> JsonSchema for Version<KNOWN> {
    fn schema_name() -> Cow<'static, str> {
        format!("Version{KNOWN}").into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": 1, "maximum": KNOWN, "default": 1})
    }
}
