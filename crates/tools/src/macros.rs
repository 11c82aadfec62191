//! What the code that `#[tool]` writes needs. Not for other eyes.

use std::collections::BTreeMap;

use regent_kernel::BoxFuture;
pub use regent_kernel::{
    Access, ArgumentKind, CostClass, DriverKind, Foreseen, Origin, SideEffect, Tier, ToolSpec,
};
use regent_kernel::{ExecuteError, RawOutput};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
pub use serde_json::Value;
use serde_json::{Map, json};
pub use {schemars, serde};

use crate::manifest::INTEGER_MAX;
use crate::output;
use crate::tool::{Context, ToolError};

/// What [`HostTool::run`](crate::HostTool::run) gives.
pub type ToolFuture<'s> = BoxFuture<'s, Result<RawOutput, ToolError>>;

/// The call's arguments as the function's own types.
pub fn arguments<T: DeserializeOwned>(permit: &Context<'_>) -> Result<T, ToolError> {
    T::deserialize(permit.args()).map_err(|error| output::failure("args.invalid", error.to_string()).into())
}

/// The same before the call: what can't be read foresees nothing.
pub fn foreseeable<T: DeserializeOwned>(args: &Value) -> Option<T> {
    T::deserialize(args).ok()
}

/// The kinds of a tool's arguments, by pointer.
pub fn kinds(kinds: &[(&str, ArgumentKind)]) -> BTreeMap<String, ArgumentKind> {
    kinds.iter().map(|(pointer, kind)| ((*pointer).to_owned(), *kind)).collect()
}

/// A result as JSON.
pub fn json<T: Serialize>(done: &T) -> Result<RawOutput, ToolError> {
    let text = serde_json::to_vec(done).map_err(|error| ExecuteError::Broken(error.to_string()))?;
    Ok(RawOutput::new(text))
}

/// The schema of the arguments, in the form that all tools have theirs: one closed object, nothing to look up elsewhere, whole numbers
/// that every JSON reader agrees on, and an argument that may be left out rather than `null`. A schema in `given` stands as it is, and takes
/// its description from the doc comment if it has none.
pub fn input<T: JsonSchema>(kinds: &BTreeMap<String, ArgumentKind>, given: Vec<(&str, Value)>) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut own = match schema.to_value() {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    };
    let required = own.remove("required").unwrap_or_else(|| json!([]));
    let mut properties = own.remove("properties").unwrap_or_else(|| json!({}));
    let mut given: BTreeMap<&str, Value> = given.into_iter().collect();
    for (name, field) in properties.as_object_mut().into_iter().flatten() {
        if let Some(mut schema) = given.remove(name.as_str()) {
            if let (Some(own), Some(text)) = (schema.as_object_mut(), field.get("description")) {
                own.entry("description").or_insert_with(|| text.clone());
            }
            *field = schema;
            continue;
        }
        if !required.as_array().is_some_and(|all| all.iter().any(|one| one == name)) {
            without_null(field);
        }
        let kind = kinds.get(&format!("/{name}"));
        if let (Some(ArgumentKind::Path(_)), Some(field)) = (kind, field.as_object_mut()) {
            field.insert("minLength".to_owned(), json!(1));
            field.insert("maxLength".to_owned(), json!(4095));
        }
        bound_numbers(field);
    }
    let mut input = json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties});
    // Definitions are left only where types refer to themselves.
    if let (Some(definitions), Some(fields)) = (own.remove("$defs"), input.as_object_mut()) {
        fields.insert("$defs".to_owned(), definitions);
    }
    input
}

fn without_null(field: &mut Value) {
    let Some(fields) = field.as_object_mut() else { return };
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|one| one != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            fields.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(words)) = fields.get_mut("enum") {
        words.retain(|one| !one.is_null());
    }
    if let Some(Value::Array(choices)) = fields.get_mut("anyOf") {
        choices.retain(|one| one.get("type").is_none_or(|kind| kind != "null"));
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            fields.remove("anyOf");
            for (name, value) in only {
                fields.entry(name).or_insert(value);
            }
        }
    }
}

/// Rust's names of number formats mean nothing to a validator; its largest numbers are read differently by different readers.
fn bound_numbers(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("type").is_some_and(|kind| kind == "integer") {
                fields.entry("minimum").or_insert_with(|| json!(-(INTEGER_MAX.cast_signed())));
                fields.entry("maximum").or_insert_with(|| json!(INTEGER_MAX));
            }
            if fields.get("type").is_some_and(|kind| kind == "integer" || kind == "number") {
                fields.remove("format");
            }
            fields.values_mut().for_each(bound_numbers);
        }
        Value::Array(items) => items.iter_mut().for_each(bound_numbers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
