//! The ruling of provenance on a call, and its reason.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::quote::Quote;
use crate::transcript::Origin;

/// The stance of provenance. Ordered by strictness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stance {
    /// The call may run.
    Allow,
    /// A reviewer must approve.
    Ask,
    /// The call is denied.
    Deny,
}

/// The origin of one leaf of the arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArgumentOrigin {
    /// The argument.
    pub argument: String,
    /// Whether the argument is a sink.
    pub sink: bool,
    /// The leaf's origin.
    pub origin: Origin,
}

/// The decision of provenance about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ruling {
    /// Allow, ask or deny.
    pub stance: Stance,
    /// The stable code of the reason.
    pub code: &'static str,
    /// The reason in a sentence; empty for an allow.
    pub reason: String,
    /// The origin of each argument, by its worst leaf.
    pub found: Vec<ArgumentOrigin>,
    /// The untrusted text behind a question.
    #[serde(skip)]
    pub quote: Option<Quote>,
    /// The argument that the reason is about, if any.
    #[serde(skip)]
    pub(crate) about: Option<String>,
    /// The planned step that the call would consume.
    #[serde(skip)]
    pub(crate) step: Option<usize>,
    /// The effects of the call, to detect repetitions.
    #[serde(skip)]
    pub(crate) acts: BTreeSet<u64>,
    /// The turn of the plan that has the step.
    #[serde(skip)]
    pub(crate) turn: u32,
    /// An untrusted party may have influenced the call, and so its result.
    #[serde(skip)]
    pub(crate) swayed: bool,
    /// Only the user and the agent can have chosen to make the call.
    #[serde(skip)]
    pub(crate) is_ours: bool,
}

impl Ruling {
    /// The origin of each declared argument, in one word.
    pub fn words(&self) -> BTreeMap<&str, &'static str> {
        self.found.iter().map(|found| (found.argument.as_str(), found.origin.word())).collect()
    }

    /// The origin of an argument, by its worst leaf.
    pub(crate) fn origin_of(&self, argument: &str) -> Option<&Origin> {
        self.found.iter().find(|found| found.argument == argument).map(|found| &found.origin)
    }

    /// The cause of a question: the reason's code, and the output that the value is from. `None` if nothing is asked.
    pub fn cause(&self) -> Option<String> {
        let about = self.found.iter().find(|found| Some(&found.argument) == self.about.as_ref());
        let from = match about.map(|found| &found.origin) {
            Some(Origin::Untrusted(place) | Origin::Trusted(place)) => format!(" of call {}", place.call),
            Some(Origin::Request | Origin::Nowhere) | None => String::new(),
        };
        (self.stance == Stance::Ask).then(|| format!("{}{from}", self.code))
    }

    /// Applies another point, if it is stricter. A denied call takes no step.
    pub(crate) fn tighten(&mut self, point: Point) {
        if point.stance > self.stance {
            (self.stance, self.code, self.reason) = (point.stance, point.code, point.reason);
            self.about = point.about;
        }
    }

    /// The ruling without its question, because only the user and the agent can have chosen the call.
    pub(crate) fn waived(self) -> Self {
        if self.stance == Stance::Deny {
            return self;
        }
        let Point { stance, code, reason, about } = Point::fine();
        Self { stance, code, reason, about, ..self }
    }

    pub(crate) fn new(point: Point) -> Self {
        let Point { stance, code, reason, about } = point;
        let found = Vec::new();
        Self {
            stance,
            code,
            reason,
            quote: None,
            about,
            found,
            step: None,
            acts: BTreeSet::new(),
            turn: 0,
            swayed: true,
            is_ours: false,
        }
    }
}

/// One finding about a call.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) stance: Stance,
    pub(crate) code: &'static str,
    /// For a finding about an argument, what is wrong with its value. The value and its origin are put before it.
    pub(crate) reason: String,
    pub(crate) about: Option<String>,
}

impl Point {
    pub(crate) fn fine() -> Self {
        Self { stance: Stance::Allow, code: "provenance.fine", reason: String::new(), about: None }
    }

    pub(crate) fn ask(code: &'static str, reason: String) -> Self {
        Self { stance: Stance::Ask, code, reason, about: None }
    }

    /// A question about the value of one argument.
    pub(crate) fn ask_about(code: &'static str, argument: &str, reason: impl Into<String>) -> Self {
        Self { about: Some(argument.to_owned()), ..Self::ask(code, reason.into()) }
    }

    pub(crate) fn deny(code: &'static str, reason: String) -> Self {
        Self { stance: Stance::Deny, ..Self::ask(code, reason) }
    }

    /// The stricter of two; the first if equal.
    pub(crate) fn or(self, other: Self) -> Self {
        if other.stance > self.stance { other } else { self }
    }
}

/// Untrusted text quoted in a question: short, on one line, and unable to end the quotation.
pub(crate) fn quoted(text: &str) -> String {
    quoted_within(text, 60)
}

/// [`quoted`] with a limit on characters.
pub(crate) fn quoted_within(text: &str, chars_max: usize) -> String {
    let mut escaped = text.chars().flat_map(char::escape_debug);
    let short: String = escaped.by_ref().take(chars_max).collect();
    if escaped.next().is_some() { short + "\u{2026}" } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotation_is_short_and_inescapable() {
        let cases = [
            ("eve@evil.test", "eve@evil.test".to_owned()),
            ("a\"\nb\u{202e}", r#"a\"\nb\u{202e}"#.to_owned()),
            (&"x".repeat(60), "x".repeat(60)),
            (&"x".repeat(61), format!("{}\u{2026}", "x".repeat(60))),
        ];
        for (text, expected) in cases {
            assert_eq!(quoted(text), expected);
        }
    }
}
