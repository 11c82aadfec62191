//! What the request means without saying it as it is: the record that it names, and what is worked out of that.

use serde_json::Value;

use super::Session;
use crate::labels::FieldLabels;
use crate::records::Naming;
use crate::said::{Leaf, Said};
use crate::text;

impl Session {
    /// An argument that the request has a word for and a call doesn't have.
    pub(super) fn left_out<'l>(&self, labels: &'l FieldLabels, said: &Said<'_>) -> Option<&'l String> {
        let is_given =
            |name: &str| said.arguments.iter().any(|one| one.name == name || has_key(one.value, name, 0));
        labels.fields.iter().find(|name| self.intent.wants(name) && !is_given(name))
    }

    /// Whether it stands in the one trusted record that has something trusted which the request names. Where the request wants a number worked
    /// out, none is meant as it is.
    pub(super) fn is_beside_named(&self, argument: &str, leaf: &Leaf) -> bool {
        let spelt = leaf.words.join(" ");
        !(self.intent.reckons() && is_number(leaf))
            && self
                .naming(argument, false, |naming| self.transcript.records.is_beside_anywhere(&spelt, naming))
    }

    /// How the request names records. Under a plan, which has fixed what is done and where its objects are, the word for one may be somebody
    /// else's, as subjects are, or a number, or a name within a longer text.
    pub(super) fn naming<T>(&self, argument: &str, planned: bool, with: impl FnOnce(&Naming<'_>) -> T) -> T {
        let marks = |written: &str, spelt: &str, trusted: bool| {
            let is_word = planned || trusted && spelt.contains(char::is_alphabetic);
            let is_whole = is_word && self.intent.is_telling(spelt) && self.transcript.is_in_request(written);
            let names = self.intent.names_within(spelt).filter(|_| planned).map(str::to_owned);
            names.chain(is_whole.then(|| spelt.to_owned())).collect()
        };
        let near = self.intent.about(argument).flatten().flat_map(|word| self.intent.names_within(word));
        let near = near.map(str::to_owned).collect();
        with(&Naming { marks: &marks, near, is_said: &|field| self.intent.about(field).next().is_some() })
    }

    /// Whether a number is what the request wants worked out: the sum or the difference of a number of a record that it names, or a share of
    /// that, and a number that it says, or half of that.
    pub(super) fn is_worked_out(&self, leaf: &Leaf) -> bool {
        let wanted = leaf.words.first().filter(|_| is_number(leaf)).and_then(|word| word.parse::<f64>().ok());
        let Some(wanted) = wanted.filter(|_| self.intent.reckons()) else { return false };
        let is_said = |field: &str| self.intent.about(field).next().is_some();
        let numbers = |name| self.transcript.records.numbers_beside(name, is_said);
        let (plain, shares) = self.intent.figures();
        let plain: Vec<f64> = plain.iter().flat_map(|one| [*one, one / 2.0]).chain([0.0]).collect();
        let is = |one: f64| (one - wanted).abs() < 0.005;
        self.intent.names().flat_map(numbers).any(|number| {
            let parts = shares
                .iter()
                .flat_map(|share| [number * share, number * (1.0 + share), number * (1.0 - share)]);
            let parts: Vec<f64> = parts.chain([number / 2.0]).collect();
            // The number as it is isn't worked out.
            let sums =
                |one: f64| plain.iter().any(|other| is(one + other) || is(one - other) || is(other - one));
            parts.into_iter().any(sums) || (!is(number) && sums(number))
        })
    }
}

pub(super) fn is_number(leaf: &Leaf) -> bool {
    matches!(leaf.words.as_slice(), [word] if text::is_number(word))
}

/// Whether a value has a key at any depth that is looked at.
fn has_key(value: &Value, name: &str, depth: u8) -> bool {
    let below = |value: &Value| depth < 16 && has_key(value, name, depth.saturating_add(1));
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| key == name || below(value)),
        Value::Array(items) => items.iter().any(below),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
