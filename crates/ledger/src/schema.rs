//! JSON Schemas of types that are serialized as text.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{Digest, EntryKind, LaneId};

impl JsonSchema for Digest {
    fn schema_name() -> Cow<'static, str> {
        "Digest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string", "pattern": "^[0-9a-f]{64}$", "description": "A SHA-256 digest, as 64 lower-case hex digits.",
        })
    }
}

impl JsonSchema for LaneId {
    fn schema_name() -> Cow<'static, str> {
        "LaneId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string", "pattern": "^[0-9]{4}$", "description": "A lane's number, with four digits as its folder has it.",
        })
    }
}

impl JsonSchema for EntryKind {
    fn schema_name() -> Cow<'static, str> {
        "EntryKind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words: Vec<&str> = Self::ALL.iter().map(|kind| kind.as_str()).collect();
        json_schema!({"type": "string", "enum": words, "description": "What an entry is about."})
    }
}
