//! JSON Schemas as models' providers take them.
//!
//! `shown` takes out what some servers refuse. [`strict`] rewrites a schema into what the strict modes of OpenAI and Anthropic both accept;
//! [`restored`] turns an answer to that back into one for the schema as it was.

use serde_json::{Map, Value, json};

/// Some servers refuse longer limits of a text.
const LENGTH_MAX: u64 = 2_000;
/// How deep a schema may go: what refers to itself goes deeper.
const DEPTH_MAX: usize = 10;
/// Properties of a strict schema in all.
const PROPERTIES_MAX: usize = 1_000;
/// Of these, those that may be left out: Anthropic compiles each alternative.
const NULLABLE_MAX: usize = 16;
/// Formats of a text that both know.
const FORMATS: [&str; 8] = ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "uuid"];
/// What is kept of a schema. The rest is said in the description.
const KEPT: [&str; 10] =
    ["type", "description", "title", "enum", "const", "format", "anyOf", "properties", "required", "items"];
/// What only helps to write schemas.
const SILENT: [&str; 5] = ["$schema", "$id", "$defs", "definitions", "$comment"];
/// An object of any form travels as text.
const AS_JSON: &str = "a JSON object, written as text";

/// A schema for a model: without limits of texts that some servers refuse.
pub(crate) fn shown(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let is_long = |name: &str, value: &Value| {
                name == "maxLength" && value.as_u64().is_some_and(|n| n > LENGTH_MAX)
            };
            let kept = fields.iter().filter(|(name, value)| !is_long(name, value));
            Value::Object(kept.map(|(name, value)| (name.clone(), shown(value))).collect())
        }
        Value::Array(items) => items.iter().map(shown).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

/// The schema in the form that strict modes take: every object is closed and requires all its properties, those that may be left out may be
/// null, an object of any form is JSON text, references are resolved, and what strict modes don't know is said in descriptions. `None` if
/// it has no such form: it isn't an object, refers to itself, or is too large.
pub fn strict(schema: &Value) -> Option<Value> {
    let strict = rewritten(schema, schema, 0)?;
    strict_problem(&strict).is_none().then_some(strict)
}

/// The schema of an answer with its name, strict if it can be, for OpenAI's protocols.
pub(super) fn strict_or_not(schema: &Value) -> Value {
    let strict = strict(schema);
    let is_strict = strict.is_some();
    json!({"name": "answer", "schema": strict.unwrap_or_else(|| shown(schema)), "strict": is_strict})
}

/// The rule of OpenAI's or Anthropic's strict mode that a schema breaks, if it breaks one.
pub fn strict_problem(schema: &Value) -> Option<String> {
    if schema.get("type") != Some(&json!("object")) {
        return Some("the root is not an object".to_owned());
    }
    let mut count = (0, 0);
    let problem = problem_in(schema, 0, &mut count);
    let (properties, nullable) = count;
    let too_many = properties > PROPERTIES_MAX || nullable > NULLABLE_MAX;
    problem.or_else(|| too_many.then(|| format!("{properties} properties, {nullable} of them nullable")))
}

fn problem_in(schema: &Value, depth: usize, count: &mut (usize, usize)) -> Option<String> {
    let Some(fields) = schema.as_object() else { return Some("a schema is not an object".to_owned()) };
    if depth > DEPTH_MAX {
        return Some("it is too deep".to_owned());
    }
    let allowed = |name: &str| KEPT.contains(&name) || name == "additionalProperties";
    if let Some(name) = fields.keys().find(|name| !allowed(name)) {
        return Some(format!("`{name}` is not supported"));
    }
    let within: Vec<&Value> = match (fields.get("type").and_then(Value::as_str), fields.get("anyOf")) {
        (_, Some(Value::Array(variants))) if !variants.is_empty() => {
            count.1 += 1;
            variants.iter().collect()
        }
        (Some("object"), None) => {
            let properties = fields.get("properties").and_then(Value::as_object)?;
            let is_required = |name: &&String| {
                let required = fields.get("required").and_then(Value::as_array);
                required.is_some_and(|required| required.contains(&json!(name)))
            };
            if fields.get("additionalProperties") != Some(&json!(false)) {
                return Some("an object is open".to_owned());
            }
            if let Some(name) = properties.keys().find(|name| !is_required(name)) {
                return Some(format!("`{name}` is not required"));
            }
            count.0 += properties.len();
            properties.values().collect()
        }
        (Some("array"), None) => match fields.get("items") {
            Some(items) => vec![items],
            None => return Some("a list has no `items`".to_owned()),
        },
        (Some("string" | "integer" | "number" | "boolean" | "null"), None) => Vec::new(),
        (_, _) => return Some("a value has no single type".to_owned()),
    };
    within.into_iter().find_map(|schema| problem_in(schema, depth + 1, count))
}

/// The schema that a reference means, with what stands beside it.
fn resolved(schema: &Value, root: &Value, depth: usize) -> Option<Value> {
    if depth > DEPTH_MAX {
        return None;
    }
    let fields = schema.as_object()?;
    let mut whole = match fields.get("$ref").and_then(Value::as_str) {
        Some(reference) => {
            let target = root.pointer(reference.strip_prefix('#')?)?;
            resolved(target, root, depth + 1)?.as_object()?.clone()
        }
        None => Map::new(),
    };
    whole.extend(
        fields.iter().filter(|(name, _)| *name != "$ref").map(|(name, value)| (name.clone(), value.clone())),
    );
    if let Some(Value::Array(all)) = whole.remove("allOf") {
        for one in &all {
            merge(&mut whole, resolved(one, root, depth + 1)?.as_object()?)?;
        }
    }
    if let Some(Value::Array(one)) = whole.remove("oneOf") {
        whole.insert("anyOf".to_owned(), Value::Array(one));
    }
    Some(Value::Object(whole))
}

/// Two schemas that both hold, if they say different things.
fn merge(whole: &mut Map<String, Value>, other: &Map<String, Value>) -> Option<()> {
    for (name, value) in other {
        match (whole.get_mut(name), value) {
            (None, _) => drop(whole.insert(name.clone(), value.clone())),
            (Some(Value::Object(own)), Value::Object(more)) if name == "properties" => {
                let is_new = more.keys().all(|name| !own.contains_key(name));
                is_new.then(|| own.extend(more.clone()))?;
            }
            (Some(Value::Array(own)), Value::Array(more)) if name == "required" => own.extend(more.clone()),
            (Some(own), _) if own == value || name == "description" => {}
            (Some(_), _) => return None,
        }
    }
    Some(())
}

fn rewritten(schema: &Value, root: &Value, depth: usize) -> Option<Value> {
    let schema = resolved(schema, root, depth)?;
    let fields = schema.as_object()?;
    if let Some((variants, can_be_null)) = variants(fields) {
        let mut all = Vec::with_capacity(variants.len() + 1);
        for variant in &variants {
            all.push(rewritten(variant, root, depth + 1)?);
        }
        if can_be_null {
            all.push(json!({"type": "null"}));
        }
        let mut union = json!({"anyOf": all});
        say(&mut union, fields);
        return Some(union);
    }
    let mut own = Map::new();
    let kind = kind(fields)?;
    own.insert("type".to_owned(), json!(kind));
    for name in ["title", "enum", "const"] {
        own.extend(fields.get(name).map(|value| (name.to_owned(), value.clone())));
    }
    let format = fields.get("format").and_then(Value::as_str).filter(|format| FORMATS.contains(format));
    own.extend(format.map(|format| ("format".to_owned(), json!(format))));
    if kind == "array" {
        let items = fields
            .get("items")
            .map_or_else(|| Some(json!({"type": "string"})), |items| rewritten(items, root, depth + 1))?;
        own.insert("items".to_owned(), items);
    }
    if kind == "object" {
        let Some(properties) = closed(fields) else {
            let mut text = json!({"type": "string", "description": AS_JSON});
            say(&mut text, fields);
            return (depth > 0).then_some(text);
        };
        let mut all = Map::new();
        for (name, property) in properties {
            let property = rewritten(property, root, depth + 1)?;
            let property = if is_required(fields, name) { property } else { nullable(property) };
            all.insert(name.clone(), property);
        }
        own.insert("required".to_owned(), all.keys().map(|name| json!(name)).collect());
        own.insert("properties".to_owned(), Value::Object(all));
        own.insert("additionalProperties".to_owned(), json!(false));
    }
    let mut own = Value::Object(own);
    say(&mut own, fields);
    Some(own)
}

/// The alternatives that a schema has, and whether null is one of them.
fn variants(fields: &Map<String, Value>) -> Option<(Vec<Value>, bool)> {
    let is_null = |schema: &Value| schema.get("type") == Some(&json!("null"));
    if let Some(Value::Array(variants)) = fields.get("anyOf") {
        let others = variants.iter().filter(|variant| !is_null(variant)).cloned().collect();
        return Some((others, variants.iter().any(is_null)));
    }
    let Some(Value::Array(kinds)) = fields.get("type") else { return None };
    let others = kinds.iter().filter(|kind| **kind != json!("null")).map(|kind| {
        let mut one = fields.clone();
        one.insert("type".to_owned(), kind.clone());
        if let Some(Value::Array(values)) = one.get_mut("enum") {
            values.retain(|value| !value.is_null());
        }
        one.remove("description");
        Value::Object(one)
    });
    Some((others.collect(), kinds.contains(&json!("null"))))
}

/// The type, also where a schema only implies it.
fn kind(fields: &Map<String, Value>) -> Option<&str> {
    match fields.get("type") {
        Some(kind) => kind.as_str(),
        None if fields.contains_key("properties") => Some("object"),
        None if fields.contains_key("items") => Some("array"),
        None if fields.contains_key("enum") || fields.contains_key("const") => {
            let value = fields.get("const").or_else(|| fields.get("enum")?.get(0))?;
            match value {
                Value::String(_) => Some("string"),
                Value::Bool(_) => Some("boolean"),
                Value::Number(number) => Some(if number.is_f64() { "number" } else { "integer" }),
                Value::Null | Value::Array(_) | Value::Object(_) => None,
            }
        }
        // Anything at all: as text.
        None => Some("object"),
    }
}

/// The properties of an object that has no others. One that lists properties and doesn't say whether it has others counts as such.
fn closed(fields: &Map<String, Value>) -> Option<&Map<String, Value>> {
    let properties = fields.get("properties").and_then(Value::as_object);
    match fields.get("additionalProperties") {
        Some(Value::Bool(false)) | None => properties.filter(|properties| !properties.is_empty()),
        Some(_) => None,
    }
}

fn is_required(fields: &Map<String, Value>, name: &str) -> bool {
    let required = fields.get("required").and_then(Value::as_array);
    required.is_some_and(|required| required.iter().any(|one| one == name))
}

fn nullable(schema: Value) -> Value {
    match schema.get("anyOf").and_then(Value::as_array) {
        Some(variants) if variants.contains(&json!({"type": "null"})) => schema,
        Some(_) | None => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

/// Adds what isn't kept of a schema to its description, in words that a model reads as well as the keyword.
fn say(schema: &mut Value, fields: &Map<String, Value>) {
    let is_said = |name: &str| {
        !KEPT.contains(&name)
            && !SILENT.contains(&name)
            && !matches!(name, "anyOf" | "oneOf" | "allOf" | "$ref" | "additionalProperties")
    };
    let mut said: Vec<String> = Vec::new();
    let own = schema.get("description").and_then(Value::as_str);
    said.extend(own.map(str::to_owned));
    said.extend(fields.get("description").and_then(Value::as_str).map(str::to_owned));
    let is_long =
        |name: &str, value: &Value| name == "maxLength" && value.as_u64().is_some_and(|n| n > LENGTH_MAX);
    let format = fields.get("format").filter(|format| !FORMATS.iter().any(|known| *format == known));
    let limits = fields.iter().filter(|(name, value)| is_said(name) && !is_long(name, value));
    let limits: Vec<String> = limits
        .map(|(name, value)| format!("{name}: {value}"))
        .chain(format.map(|format| format!("format: {format}")))
        .collect();
    // Each alternative says its own.
    if !limits.is_empty() && schema.get("anyOf").is_none() {
        said.push(format!("({})", limits.join(", ")));
    }
    if let (Some(own), false) = (schema.as_object_mut(), said.is_empty()) {
        own.insert("description".to_owned(), json!(said.join(" ")));
    }
}

/// An answer to a strict schema as one to the schema as it was: null where something may be left out is nothing, and JSON text where an object
/// of any form is meant is that object. Anything else stays.
pub fn restored(schema: &Value, mut answer: Value) -> Value {
    restore(schema, schema, &mut answer, 0);
    answer
}

fn restore(schema: &Value, root: &Value, answer: &mut Value, depth: usize) {
    let Some(schema) = resolved(schema, root, depth) else { return };
    let Some(fields) = schema.as_object() else { return };
    if let Some((variants, _)) = variants(fields) {
        // The only alternative, or the one that the answer's type fits.
        let fits = |variant: &&Value| {
            let variant = resolved(variant, root, depth + 1);
            let kind = variant.as_ref().and_then(|variant| kind(variant.as_object()?));
            matches!((kind, &*answer), (Some("object"), Value::Object(_)) | (Some("array"), Value::Array(_)))
        };
        let variant = if let [one] = variants.as_slice() { Some(one) } else { variants.iter().find(fits) };
        if let Some(variant) = variant {
            restore(variant, root, answer, depth + 1);
        }
        return;
    }
    match (kind(fields), &mut *answer) {
        (Some("object"), Value::String(text)) if closed(fields).is_none() => {
            if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
                *answer = object;
            }
        }
        (Some("object"), Value::Object(values)) => {
            let Some(properties) = fields.get("properties").and_then(Value::as_object) else { return };
            values.retain(|name, value| {
                let may_be_absent =
                    |property| !is_required(fields, name) && !takes_null(property, root, depth);
                !value.is_null() || !properties.get(name).is_some_and(may_be_absent)
            });
            for (name, value) in values {
                if let Some(property) = properties.get(name) {
                    restore(property, root, value, depth + 1);
                }
            }
        }
        (Some("array"), Value::Array(values)) => {
            let Some(items) = fields.get("items") else { return };
            values.iter_mut().for_each(|value| restore(items, root, value, depth + 1));
        }
        (_, _) => {}
    }
}

/// Whether null is a value of its own there.
fn takes_null(schema: &Value, root: &Value, depth: usize) -> bool {
    let Some(schema) = resolved(schema, root, depth + 1) else { return true };
    let Some(fields) = schema.as_object() else { return true };
    variants(fields).map_or(fields.get("type").is_none_or(|kind| kind == "null"), |(_, null)| null)
}

#[cfg(test)]
mod tests;
