//! What the request means without saying it as it is: the record that it names, and what is worked out of that.

use super::Session;
use crate::labels::FieldLabels;
use crate::records::Naming;
use crate::said::{Leaf, Said};
use crate::text;

impl Session {
    /// An argument that the request has a word for and a call doesn't have.
    pub(super) fn left_out<'l>(&self, labels: &'l FieldLabels, said: &Said<'_>) -> Option<&'l String> {
        // In JSON a quotation mark is escaped unless it is around a key or a value.
        let has_key =
            |value: &serde_json::Value, name: &str| value.to_string().contains(&format!("\"{name}\":"));
        let is_given =
            |name: &str| said.arguments.iter().any(|one| one.name == name || has_key(one.value, name));
        labels.fields.iter().find(|name| self.intent.wants(name) && !is_given(name))
    }

    /// Whether it stands in the one record that the request names, of this tool or of each that has it. Where the request wants a number worked
    /// out, none is meant as it is.
    pub(super) fn is_beside_named(&self, argument: &str, leaf: &Leaf, planned: Option<&str>) -> bool {
        let (spelt, records) = (leaf.words.join(" "), &self.transcript.records);
        let naming = self.naming(argument, planned.is_some());
        let is_as_is = !self.intent.reckons() || !is_number(leaf);
        is_as_is
            && match planned {
                Some(tool) => records.is_beside(tool, &spelt, &naming),
                None => records.is_beside_anywhere(&spelt, &naming),
            }
    }

    fn naming<'n>(&'n self, argument: &'n str, planned: bool) -> Naming<'n> {
        Naming { intent: &self.intent, transcript: &self.transcript, argument, planned }
    }

    /// Whether a number is what the request wants worked out: half of a number of a record that it names, or the sum or the difference of that
    /// number, or of a share of it, and a number that the request says, or half of that. Names in untrusted text do: an attacker who adds a record of that name makes it ambiguous.
    pub(super) fn is_worked_out(&self, argument: &str, leaf: &Leaf) -> bool {
        let wanted = leaf.words.first().filter(|_| is_number(leaf)).and_then(|word| word.parse::<f64>().ok());
        let Some(wanted) = wanted.filter(|_| self.intent.reckons()) else { return false };
        let (plain, shares) = self.intent.figures();
        let plain: Vec<f64> = plain.iter().flat_map(|one| [*one, one / 2.0]).chain([0.0]).collect();
        let is = |one: f64| (one - wanted).abs() < 0.005;
        let is_sum =
            |one: f64| plain.iter().any(|other| is(one + other) || is(one - other) || is(other - one));
        let gives_it = |number: f64| {
            let of = |share: &f64| [number * share, number * (1.0 + share), number * (1.0 - share)];
            // The number as it is isn't worked out.
            is(number / 2.0) || (!is(number) && is_sum(number)) || shares.iter().flat_map(of).any(is_sum)
        };
        let (records, naming) = (&self.transcript.records, self.naming(argument, true));
        let mut numbers = records.numbers().filter(|(.., number)| gives_it(*number));
        numbers.any(|(tool, spelt, _)| records.is_beside(tool, spelt, &naming))
    }
}

pub(super) fn is_number(leaf: &Leaf) -> bool {
    matches!(leaf.words.as_slice(), [word] if text::is_number(word))
}
