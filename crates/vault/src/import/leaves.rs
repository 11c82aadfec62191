//! The values of a YAML or JSON file in document order, because a MAC covers them in that order.

use std::fmt;

use granit_parser::{Event, Parser, ScalarStyle, options};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::error::VaultError;

const DEPTH_MAX: usize = 48;
const LEAVES_MAX: usize = 100_000;

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImportedValue {
    /// The keys that lead to it, without list indices.
    pub(super) keys: Vec<String>,
    /// The keys that lead to it, with list indices.
    pub(super) place: Vec<String>,
    /// The value as the MAC covers it; `None` for null, which the MAC skips.
    pub(super) text: Option<String>,
}

pub(super) fn parse(text: &str) -> Result<Vec<ImportedValue>, VaultError> {
    if text.trim_start().starts_with('{') { json(text) } else { yaml(text) }
}

fn too_much() -> VaultError {
    VaultError::Import("the file is nested too deeply or has too many values".to_owned())
}

/// An open list or mapping.
enum Open {
    Map(Option<String>),
    List(usize),
}

fn yaml(text: &str) -> Result<Vec<ImportedValue>, VaultError> {
    let options =
        options! { emit_comments: false, flow_nesting_limit: DEPTH_MAX, block_nesting_limit: DEPTH_MAX };
    let refused = |why: &str| VaultError::Import(format!("the file can't be read as YAML: {why}"));
    let (mut leaves, mut open, mut documents) = (Vec::new(), Vec::<Open>::new(), 0_u32);
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, _) = event.map_err(|error| refused(&format!("line {}", error.marker().line())))?;
        match event {
            Event::Scalar(text, style, _, _) => {
                if let Some(Open::Map(key @ None)) = open.last_mut() {
                    *key = Some(text.into_owned());
                    continue;
                }
                let text = if style == ScalarStyle::Plain { counted(&text) } else { Some(text.into_owned()) };
                leaves.push(leaf(&open, text));
                step(&mut open);
            }
            Event::SequenceStart(..) => open.push(Open::List(0)),
            Event::MappingStart(..) => open.push(Open::Map(None)),
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
                step(&mut open);
            }
            Event::DocumentStart(..) => documents = documents.saturating_add(1),
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Anchor(..) => {}
            Event::Alias(_) | Event::UnresolvedAlias(_) => return Err(refused("aliases are not followed")),
            _other => return Err(refused("it has something that is not supported")),
        }
        if open.len() > DEPTH_MAX || leaves.len() > LEAVES_MAX || documents > 1 {
            return Err(too_much());
        }
    }
    Ok(leaves)
}

fn leaf(open: &[Open], text: Option<String>) -> ImportedValue {
    let mut leaf = ImportedValue { keys: Vec::new(), place: Vec::new(), text };
    for one in open {
        match one {
            Open::Map(key) => {
                leaf.keys.extend(key.clone());
                leaf.place.extend(key.clone());
            }
            Open::List(at) => leaf.place.push(at.to_string()),
        }
    }
    leaf
}

/// Advances past a complete value: the next one has another key or index.
fn step(open: &mut [Open]) {
    match open.last_mut() {
        Some(Open::Map(key)) => *key = None,
        Some(Open::List(at)) => *at = at.saturating_add(1),
        None => {}
    }
}

/// The canonical text of a YAML scalar: booleans, null, and numbers with a decimal point.
fn counted(text: &str) -> Option<String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => None,
        "true" | "True" | "TRUE" => Some("True".to_owned()),
        "false" | "False" | "FALSE" => Some("False".to_owned()),
        number if number.contains('.') => {
            let number: Result<f64, _> = number.parse();
            Some(number.map_or_else(|_| text.to_owned(), |number| number.to_string()))
        }
        other => Some(other.to_owned()),
    }
}

fn json(text: &str) -> Result<Vec<ImportedValue>, VaultError> {
    let mut walk = LeafWalk { open: Vec::new(), leaves: Vec::new() };
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = walk.deserialize(&mut reader).and_then(|()| reader.end());
    read.map_err(|error| {
        VaultError::Import(format!("the file can't be read as JSON: line {}", error.line()))
    })?;
    Ok(walk.leaves)
}

struct LeafWalk {
    open: Vec<Open>,
    leaves: Vec<ImportedValue>,
}

impl LeafWalk {
    fn take<E: serde::de::Error>(&mut self, text: Option<String>) -> Result<(), E> {
        if self.leaves.len() > LEAVES_MAX || self.open.len() > DEPTH_MAX {
            return Err(E::custom("too much"));
        }
        self.leaves.push(leaf(&self.open, text));
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &mut LeafWalk {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut LeafWalk {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.take(Some(text.to_owned()))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.take(Some(if value { "True" } else { "False" }.to_owned()))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.take(Some(value.to_string()))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.take(Some(value.to_string()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.take(Some(value.to_string()))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.take(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.open.push(Open::List(0));
        while items.next_element_seed(&mut *self)?.is_some() {
            step(&mut self.open);
        }
        self.open.pop();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        self.open.push(Open::Map(None));
        while let Some(name) = fields.next_key::<String>()? {
            if let Some(Open::Map(key)) = self.open.last_mut() {
                *key = Some(name);
            }
            fields.next_value_seed(&mut *self)?;
        }
        self.open.pop();
        Ok(())
    }
}
