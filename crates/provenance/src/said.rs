//! A call's arguments, split into leaf values.
//!
//! Keys are values too. In an output, a key names a field. In an argument the agent chooses the key, so a key can carry data out as well as
//! any text. Only keys in the tool's schema carry nothing. Omitted and empty arguments carry nothing either, unless an effect needs them: who
//! leaves out whom to affect may affect everyone.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::labels::FieldLabels;
use crate::text;

/// Maximum depth of an argument. Deeper values have no origin.
const DEPTH_MAX: usize = 64;
/// Maximum different values of one sink. Further ones have no origin, because each may be searched in everything received.
const SINK_LEAVES_MAX: usize = 256;

/// The non-empty arguments of a call.
#[derive(Debug)]
pub(crate) struct CallArguments<'v> {
    pub(crate) arguments: Vec<Argument<'v>>,
}

/// One argument.
#[derive(Debug)]
pub(crate) struct Argument<'v> {
    pub(crate) name: &'v str,
    pub(crate) value: &'v Value,
    /// Whether it is a sink.
    pub(crate) is_sink: bool,
    pub(crate) leaves: Vec<Leaf>,
    /// Whether it is a sink that the call leaves empty. To many tools that means everything or everyone, so it has no origin.
    pub(crate) is_unset: bool,
}

/// The value of an argument that a call omits.
const NOTHING: &Value = &Value::Null;

/// A scalar of an argument, or a key.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// Normalized words.
    pub(crate) words: Vec<String>,
    /// The original text.
    pub(crate) text: String,
    /// Whether characters between its words carry information too.
    pub(crate) says_between: bool,
    /// Whether it is an argument name that no schema lists.
    is_name: bool,
}

impl<'v> CallArguments<'v> {
    /// Splits a call's arguments.
    pub(crate) fn new(labels: &'v FieldLabels, args: &'v Value) -> Self {
        let mut arguments = Vec::new();
        for (name, value) in args.as_object().into_iter().flatten() {
            let mut leaves = Vec::new();
            // The caller invents argument names that the schema doesn't list.
            if !labels.fields.contains(name) && !labels.sinks.contains(name) {
                leaves.push(Leaf {
                    is_name: labels.fields.is_empty() && !labels.inferred,
                    ..Leaf::from_text(name)
                });
            }
            collect(value, &labels.fields, 0, &mut leaves);
            let is_sink = labels.is_sink(name, value);
            let is_target = is_sink || labels.also_sinks.contains(name);
            let is_unset = leaves.is_empty() && is_target && labels.fields.requires(name);
            if is_unset {
                leaves.push(Leaf::nowhere());
            } else if leaves.is_empty() && text::is_empty(value) {
                continue;
            }
            if is_sink {
                leaves.sort_by(|one: &Leaf, other| one.text.cmp(&other.text));
                leaves.dedup_by(|one, other| one.text == other.text);
                if leaves.len() > SINK_LEAVES_MAX {
                    leaves.truncate(SINK_LEAVES_MAX);
                    leaves.push(Leaf::nowhere());
                }
            }
            arguments.push(Argument { name, value, is_sink, leaves, is_unset });
        }
        // Arguments without names: any of them may be a sink.
        if !args.is_object() && !text::is_empty(args) {
            let mut leaves = Vec::new();
            collect(args, &labels.fields, 0, &mut leaves);
            leaves.truncate(SINK_LEAVES_MAX);
            leaves.push(Leaf::nowhere());
            let (name, is_unset) = ("arguments", false);
            arguments.push(Argument { name, value: args, is_sink: true, leaves, is_unset });
        }
        Self { arguments }
    }

    /// Adds an empty sink to a call that fills none of its tool's: it leaves it to the tool who or what is affected.
    pub(crate) fn demand_target(&mut self, labels: &'v FieldLabels, args: &'v Value) {
        let is_target = |one: &Argument<'_>| one.is_sink || labels.also_sinks.contains(one.name);
        let names_one = self.arguments.iter().any(|one| is_target(one) && !one.leaves.is_empty());
        if names_one || !labels.acts() || labels.local {
            return;
        }
        let sinks = || labels.sinks.iter().chain(&labels.also_sinks);
        let Some(name) = sinks().find(|name| args.get(name.as_str()).is_some()).or_else(|| sinks().next())
        else {
            return;
        };
        let value = args.get(name).unwrap_or(NOTHING);
        self.arguments.retain(|argument| argument.name != name);
        let leaves = vec![Leaf::nowhere()];
        self.arguments.push(Argument { name, value, is_sink: true, leaves, is_unset: true });
    }

    /// Drops the sinks that the call leaves empty: the agent and the user have left them so.
    pub(crate) fn without_unset(mut self) -> Self {
        self.arguments.retain(|argument| !argument.is_unset);
        self
    }

    /// Drops harmless argument names if no schema lists them. A tool has few of them, and they are plain words.
    pub(crate) fn without_names(mut self, is_idle: impl Fn(&Leaf) -> bool) -> Self {
        for argument in &mut self.arguments {
            argument.leaves.retain(|leaf| !leaf.is_name || !is_idle(leaf));
        }
        self.arguments.retain(|argument| !argument.leaves.is_empty() || !text::is_empty(argument.value));
        self
    }

    /// Drops the arguments in `free`.
    pub(crate) fn without(mut self, free: &[&str]) -> Self {
        self.arguments.retain(|argument| !free.contains(&argument.name));
        self
    }

    /// The arguments that decide who or what is affected.
    pub(crate) fn sinks(&self) -> impl Iterator<Item = &Argument<'v>> {
        self.arguments.iter().filter(|argument| argument.is_sink)
    }

    /// The content arguments.
    pub(crate) fn content(&self) -> impl Iterator<Item = &Argument<'v>> {
        self.arguments.iter().filter(|argument| !argument.is_sink)
    }
}

impl Leaf {
    pub(crate) fn from_text(text: &str) -> Self {
        let says_between = text::says_between(text);
        Self { words: text::all_words(text), text: text.to_owned(), says_between, is_name: false }
    }

    /// A leaf without origin.
    fn nowhere() -> Self {
        Self {
            words: vec![text::NOWHERE.to_owned()],
            text: String::new(),
            says_between: false,
            is_name: false,
        }
    }
}

fn collect(value: &Value, fields: &BTreeSet<String>, depth: usize, leaves: &mut Vec<Leaf>) {
    if depth > DEPTH_MAX {
        leaves.push(Leaf::nowhere());
        return;
    }
    match value {
        Value::Array(items) => {
            for item in items {
                // The number and nesting of empty items carry information, too.
                if text::is_empty(item) {
                    leaves.push(Leaf::nowhere());
                }
                collect(item, fields, depth.saturating_add(1), leaves);
            }
        }
        Value::Object(all) => {
            for (key, field) in all {
                if !fields.contains(key) {
                    leaves.push(Leaf::from_text(key));
                }
                collect(field, fields, depth.saturating_add(1), leaves);
            }
        }
        Value::Null => {}
        Value::String(text) if text.is_empty() => {}
        Value::String(text) => leaves.push(Leaf::from_text(text)),
        Value::Bool(_) | Value::Number(_) => leaves.push(Leaf::from_text(&value.to_string())),
    }
}
