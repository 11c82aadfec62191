//! The facts of a decision: caller, call, labels, remaining budget, time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::history::Past;
use crate::verdict::{Charge, RuleId};
use crate::words::{Access, Class, Confidentiality, Integrity, Label, Tier};

/// The input of one decision. Equal facts give equal verdicts.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The caller.
    pub caller: Caller<'a>,
    /// The operation, e.g. `tool.run`; see [`OPS`](crate::OPS).
    pub op: &'a str,
    /// The tool, if the operation runs one.
    pub tool: Option<&'a str>,
    /// The declared capabilities of the tool, e.g. `file.read`.
    pub capabilities: &'a [String],
    /// The arguments as the executor will receive them.
    pub args: &'a Value,
    /// The origin and confidentiality of each argument.
    pub labels: &'a ArgLabels,
    /// The resolved paths, endpoints, programs and secrets that the call would touch.
    pub resources: &'a [Resource<'a>],
    /// The tier that it would run in.
    pub tier: Tier,
    /// Wall clock, milliseconds since the epoch.
    pub now_ms: i64,
    /// The caller's time zone, in minutes east of UTC.
    pub utc_offset_min: i32,
    /// The caller's remaining budget.
    pub left: BudgetLeft,
    /// Measures of the session.
    pub session: SessionFacts,
    /// How often rules with a rate have been used.
    pub rates: Rates<'a>,
    /// Recorded history, for rules that look back.
    pub past: Past<'a>,
}

/// The caller.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Operator, agent or kernel.
    pub class: Class,
    /// The agent's name, for `agent:` globs and `${agent}` in paths.
    pub agent: &'a str,
    /// Its roles.
    pub roles: &'a [String],
    /// Its trust, 0 to 1000.
    pub trust: u16,
}

/// A resource that a call would touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    /// A file or folder. Relative: inside the workspace. Absolute: outside it. `vfs:/…`: the agents' own file system.
    Path {
        /// Resolved: `/`-separated, without `.`, `..` or links.
        path: &'a str,
        /// The kind of access.
        access: Access,
    },
    /// A network endpoint.
    Endpoint {
        /// `https`, `http`, …
        scheme: &'a str,
        /// Normalised host name or address.
        host: &'a str,
        /// Port.
        port: u16,
        /// HTTP method, or empty.
        method: &'a str,
        /// Path of the URL, or empty.
        path: &'a str,
    },
    /// A program and its arguments.
    Argv(&'a [String]),
    /// A vault secret, by name; the arguments contain its handle.
    Secret(&'a str),
}

/// An owned [`Resource`], as recorded in ledger entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A file or folder, resolved.
    Path {
        /// Relative: inside the workspace. Absolute: outside it. `vfs:/…`: the agents' own file system.
        path: String,
        /// The kind of access.
        access: Access,
    },
    /// A network endpoint.
    Endpoint {
        /// `https`, `http`, …
        scheme: String,
        /// Normalised host name or address.
        host: String,
        /// Port.
        port: u16,
        /// HTTP method, or empty.
        method: String,
        /// Path of the URL, or empty.
        path: String,
    },
    /// A program and its arguments.
    Argv(Vec<String>),
    /// A vault secret, by name.
    Secret(String),
}

impl Target {
    /// The borrowed form that rules use.
    pub fn view(&self) -> Resource<'_> {
        match self {
            Self::Path { path, access } => Resource::Path { path, access: *access },
            Self::Endpoint { scheme, host, port, method, path } => {
                Resource::Endpoint { scheme, host, port: *port, method, path }
            }
            Self::Argv(argv) => Resource::Argv(argv),
            Self::Secret(name) => Resource::Secret(name),
        }
    }
}

/// The labels of a call's arguments, by JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgLabels {
    /// The label of arguments without one of their own.
    pub default: Label,
    /// Labels of single arguments, by JSON pointer such as `/body`.
    pub fields: BTreeMap<String, Label>,
}

impl ArgLabels {
    /// The same label for every argument.
    pub fn all(label: Label) -> Self {
        Self { default: label, fields: BTreeMap::new() }
    }

    /// The label at a pointer: its own or that of the nearest parent, joined with all labels inside it.
    ///
    /// An object is as tainted as its worst field, so the fields below the pointer count.
    pub fn label_of(&self, pointer: &str) -> Label {
        let own = self.nearest(pointer).unwrap_or(self.default);
        self.fields
            .range::<str, _>((std::ops::Bound::Included(pointer), std::ops::Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(pointer))
            .filter(|(key, _)| is_inside(key, pointer))
            .fold(own, |label, (_, inner)| label.join(*inner))
    }

    fn nearest(&self, pointer: &str) -> Option<Label> {
        let mut around = pointer;
        loop {
            if let Some(label) = self.fields.get(around) {
                return Some(*label);
            }
            around = around.rsplit_once('/')?.0;
        }
    }
}

fn is_inside(key: &str, pointer: &str) -> bool {
    key.strip_prefix(pointer).is_some_and(|rest| rest.starts_with('/'))
}

impl Default for ArgLabels {
    /// The unknown label: as untrusted as the web, with unknown confidentiality.
    fn default() -> Self {
        Self::all(Label { integrity: Integrity::Web, confidentiality: Confidentiality::Unknown })
    }
}

/// The caller's remaining budget. `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLeft {
    /// Money, in millionths of a US dollar.
    pub money_microusd: Option<u64>,
    /// Model tokens.
    pub tokens: Option<u64>,
    /// Calls.
    pub calls: Option<u64>,
    /// Wall clock time.
    pub wall_ms: Option<u64>,
    /// Bytes sent out.
    pub bytes_out: Option<u64>,
    /// Questions that a reviewer may still be asked.
    pub approvals: Option<u64>,
}

/// Measures of the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionFacts {
    /// Tool calls since the request began.
    pub tool_calls: u32,
    /// Tokens since the session began.
    pub tokens: u64,
    /// Tokens of the current request.
    pub request_tokens: u64,
    /// The agent's confidence in this step, 0 to 1, if measured.
    pub confidence: Option<f64>,
    /// The agent's drift from its goal, 0 to 1, if measured.
    pub drift: Option<f64>,
}

/// Use counts of rate rules, collected before the decision.
#[derive(Debug, Clone, Copy)]
pub enum Rates<'a> {
    /// The same count for every rule, for described calls.
    All(u32),
    /// The counts for the rates that [`Policy::rates`](crate::Policy::rates) named. A missing rate counts as used up.
    Counted(&'a RateCounts),
}

impl Rates<'_> {
    /// Calls charged to this rule within the last `window_ms`.
    pub fn used(self, rule: RuleId, window_ms: u64) -> u32 {
        match self {
            Self::All(used) => used,
            Self::Counted(counts) => counts.0.get(&(rule, window_ms)).copied().unwrap_or(u32::MAX),
        }
    }
}

/// Counts by rule and window. One rule can have two windows, because a candidate policy may change it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RateCounts(BTreeMap<(RuleId, u64), u32>);

impl RateCounts {
    /// Sets the count for a charge's rate.
    pub fn insert(&mut self, charge: &Charge, used: u32) {
        self.0.insert((charge.rule, charge.window_ms), used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_joins_its_own_or_its_parents_with_inner_labels() {
        let user = Label { integrity: Integrity::User, confidentiality: Confidentiality::Public };
        let web = Label { integrity: Integrity::Web, confidentiality: Confidentiality::Public };
        let secret = Label { integrity: Integrity::User, confidentiality: Confidentiality::Secret };
        let labels = ArgLabels {
            default: user,
            fields: BTreeMap::from([
                ("/body".to_owned(), web),
                ("/body/key".to_owned(), secret),
                ("/body-2".to_owned(), secret),
            ]),
        };
        let cases = [
            ("", user.join(web).join(secret)),
            ("/to", user),
            ("/body", web.join(secret)),
            ("/body/text", web),
            ("/body/key", secret),
            ("/body-2/x", secret),
            ("/bod", user),
        ];
        for (pointer, label) in cases {
            assert_eq!(labels.label_of(pointer), label, "at {pointer:?}");
        }
    }
}
