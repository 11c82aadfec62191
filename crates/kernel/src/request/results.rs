//! What results are called in questions, and the words of others that a question quotes.

use std::collections::BTreeMap;

use regent_policy::{Confidentiality, Label};
use regent_provenance::Ruling;
use serde_json::Value;

/// Results whose names are kept. A question about an older one quotes nothing.
const RESULTS_MAX: usize = 512;

/// Results of our own tools, by their calls.
#[derive(Debug, Default)]
pub(super) struct Results(BTreeMap<u64, Option<String>>);

impl Results {
    /// Notes a result. What is about people, or secret, is never quoted.
    pub(super) fn note(&mut self, call: u64, (tool, args): (&str, &Value), label: Label) {
        let is_open = label.confidentiality < Confidentiality::Pii;
        self.0.insert(call, is_open.then(|| name_of(tool, args)));
        if self.0.len() > RESULTS_MAX {
            self.0.pop_first();
        }
    }

    /// The sentence that names the text of others behind a question. An agent that others run has tools that declare what is confidential.
    pub(super) fn quote(&self, ruling: &Ruling, is_ours: bool) -> Option<String> {
        let quote = ruling.quote.as_ref().filter(|quote| !quote.text.is_empty())?;
        let name =
            if is_ours { self.named(ruling)?.to_owned() } else { name_of(&quote.place.tool, &Value::Null) };
        Some(format!("{name} says: \"{}\"", quote.text))
    }

    /// What the quoted text is called.
    pub(super) fn named(&self, ruling: &Ruling) -> Option<&str> {
        self.0.get(&ruling.quote.as_ref()?.place.call)?.as_deref()
    }
}

/// A result, for people: the file, or the tool.
pub(super) fn name_of(tool: &str, args: &Value) -> String {
    match args.get("path").and_then(Value::as_str) {
        Some(path) => format!("`{}`", regent_workspace::escape_name(path.as_bytes())),
        None => format!("the result of `{}`", tool.escape_debug()),
    }
}
