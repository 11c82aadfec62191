//! Resolves what the request implies: the record that it identifies, and numbers calculated from it.

use super::Session;
use crate::labels::FieldLabels;
use crate::records::Naming;
use crate::said::{CallArguments, Leaf};
use crate::text;

impl Session {
    /// An argument that the request mentions and the call omits.
    pub(super) fn left_out<'l>(
        &self,
        labels: &'l FieldLabels,
        said: &CallArguments<'_>,
    ) -> Option<&'l String> {
        // In JSON, a quotation mark is escaped unless it delimits a key or a value.
        let has_key =
            |value: &serde_json::Value, name: &str| value.to_string().contains(&format!("\"{name}\":"));
        let is_given =
            |name: &str| said.arguments.iter().any(|one| one.name == name || has_key(one.value, name));
        labels.fields.iter().find(|name| self.intent.wants(name) && !is_given(name))
    }

    /// Whether the value is in the one record that the request names, of this tool or of each tool with that value. If the request asks for
    /// a calculation, a plain value doesn't count.
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

    /// Whether a number is a calculation that the request asks for: half of a number of an identified record; or the sum or difference of
    /// that number, or a percentage of it, and a number in the request, or half of that. Records with names in untrusted text count too: an
    /// attacker who adds a record of that name makes it ambiguous.
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
            // The unchanged number isn't a calculation.
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
