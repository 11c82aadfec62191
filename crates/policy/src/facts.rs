//! Everything a decision may look at, handed in whole: the caller, the call, the labels, what is left, the time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::history::Past;
use crate::verdict::{Charge, RuleId};
use crate::words::{Access, Class, Confidentiality, Integrity, Label, Tier};

/// One question to policy. Same facts, same verdict.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The caller.
    pub caller: Caller<'a>,
    /// Which operation, e.g. `tool.run`; see [`OPS`](crate::OPS).
    pub op: &'a str,
    /// Which tool, if the operation is one.
    pub tool: Option<&'a str>,
    /// What the tool is declared to be able to do, e.g. `file.read`.
    pub capabilities: &'a [String],
    /// The arguments, as the executor will get them.
    pub args: &'a Value,
    /// Where each argument came from and how confidential it is.
    pub labels: &'a ArgLabels,
    /// The paths, endpoints, programs and secrets that the call would touch, already resolved.
    pub resources: &'a [Resource<'a>],
    /// The tier it would run in.
    pub tier: Tier,
    /// Wall clock, milliseconds since the epoch.
    pub now_ms: i64,
    /// What the caller's clocks show, as minutes east of UTC.
    pub utc_offset_min: i32,
    /// What is left of the caller's budget.
    pub left: BudgetLeft,
    /// What the session has done so far.
    pub session: SessionFacts,
    /// How often rules with a rate have been used.
    pub rates: Rates<'a>,
    /// What has happened so far, for rules that look back.
    pub past: Past<'a>,
}

/// The caller.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Person, agent or kernel.
    pub class: Class,
    /// The agent's name; what `agent:` globs match and `${agent}` in a path stands for.
    pub agent: &'a str,
    /// Its roles.
    pub roles: &'a [String],
    /// How far it is trusted, 0 to 1000.
    pub trust: u16,
}

/// Something that a call would touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    /// A file or folder. Relative: inside the workspace. Absolute: outside it. `vfs:/…`: the agents' own file system.
    Path {
        /// Resolved: `/`-separated, no dots, no links left to follow.
        path: &'a str,
        /// What is done with it.
        access: Access,
    },
    /// Something on the network.
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
    /// A secret of the vault, by name; the arguments hold a handle to it.
    Secret(&'a str),
}

/// The same with its own text: what entries of the ledger keep of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A file or folder, resolved.
    Path {
        /// Relative: inside the workspace. Absolute: outside it. `vfs:/…`: the agents' own file system.
        path: String,
        /// What is done with it.
        access: Access,
    },
    /// Something on the network.
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
    /// A secret of the vault, by name.
    Secret(String),
}

impl Target {
    /// As rules look at it.
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
    /// The label of whatever has none of its own.
    pub default: Label,
    /// Labels of single arguments; the key is a JSON pointer such as `/body`.
    pub fields: BTreeMap<String, Label>,
}

impl ArgLabels {
    /// The same label for every argument.
    pub fn all(label: Label) -> Self {
        Self { default: label, fields: BTreeMap::new() }
    }

    /// The label at a pointer: its own, or else that of the nearest value around it, joined with everything inside it.
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
    /// Nothing known: as untrusted as the web, as confidential as unknown.
    fn default() -> Self {
        Self::all(Label { integrity: Integrity::Web, confidentiality: Confidentiality::Unknown })
    }
}

/// What is left of the caller's budget. `None` means that none is set.
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
    /// Questions that a person may still be asked.
    pub approvals: Option<u64>,
}

/// What the session has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionFacts {
    /// Tool calls since the request began.
    pub tool_calls: u32,
    /// Tokens since the session began.
    pub tokens: u64,
    /// Tokens of the request at hand.
    pub request_tokens: u64,
    /// How sure the agent is of this step, 0 to 1, where something measures it.
    pub confidence: Option<f64>,
    /// How far it has drifted from its goal, 0 to 1, where something measures it.
    pub drift: Option<f64>,
}

/// How often rules with a rate have been used, counted before policy looks at the call.
#[derive(Debug, Clone, Copy)]
pub enum Rates<'a> {
    /// Every rule so often: for calls that are only described.
    All(u32),
    /// The counts of the rates that [`Policy::rates`](crate::Policy::rates) named. A rate that is missing counts as used up.
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

/// Counts by rule and window. One rule can have two windows: a candidate policy changes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RateCounts(BTreeMap<(RuleId, u64), u32>);

impl RateCounts {
    /// Notes how often the rate of a charge has been used.
    pub fn insert(&mut self, charge: &Charge, used: u32) {
        self.0.insert((charge.rule, charge.window_ms), used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_its_own_or_the_one_around_it_joined_with_what_is_inside() {
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
