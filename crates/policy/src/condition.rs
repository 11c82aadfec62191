//! Conditions of rules, and their evaluation against the facts.
//!
//! An `allow` must cover the entire call; every other effect matches if any part does. A condition on paths, endpoints, programs,
//! capabilities or labels therefore holds for an `allow` if *every* one of the call's matches (and there is one), and for other effects if
//! *any* does. In `unless` it is the reverse: an exception from an `allow` applies to any part, an exception from a `deny` only if it
//! covers everything. A call can't become acceptable by adding to it.
//!
//! An `allow` covers only what it names: one on `tool` and `path` imposes nothing on the hosts that the tool also reaches, and lets them
//! pass. Name `host` too, or ask about `capability: network.*` as the default policy does. Secrets are the exception: an `allow` that
//! doesn't name every secret of a call doesn't match it ([`names_secrets`]).

mod args;
mod names;
mod resources;
mod time;

use std::sync::Arc;

use serde_json::Value;

pub(crate) use args::Test;
pub(crate) use names::Names;
pub(crate) use resources::{
    ArgvPart, ArgvPattern, EndpointTest, HostPattern, PathTest, argvs, bare_host, paths, secrets,
};
pub(crate) use time::{DAY_MINUTES, Window};

use crate::body::Body;
use crate::expression::Expression;
use crate::facts::Facts;
use crate::json_path::JsonPath;
use crate::sequence::HistoryTest;
use crate::words::{Class, Confidentiality, Integrity, Label, Tier};

/// Whether a condition must hold for all items or for any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantifier {
    Every,
    Any,
}

impl Quantifier {
    /// The quantifier for a rule's exceptions.
    pub(crate) fn flipped(self) -> Self {
        match self {
            Self::Every => Self::Any,
            Self::Any => Self::Every,
        }
    }

    /// Quantifies over items; an empty sequence never holds.
    pub(crate) fn over<T>(self, mut items: impl Iterator<Item = T>, mut fits: impl FnMut(T) -> bool) -> bool {
        match self {
            Self::Any => items.any(fits),
            Self::Every => {
                let Some(first) = items.next() else { return false };
                fits(first) && items.all(fits)
            }
        }
    }
}

/// One condition with its source line, for explanations.
#[derive(Debug, Clone)]
pub(crate) struct Clause {
    pub condition: Condition,
    /// Its source on one line, e.g. `path: src/**`.
    pub text: Box<str>,
    pub line: u32,
}

/// A condition. All clauses of a rule must hold.
#[derive(Debug, Clone)]
pub(crate) enum Condition {
    Class(Box<[Class]>),
    Agent(Names),
    Role(Names),
    Trust {
        min: u16,
        max: u16,
    },
    Op(Names),
    Tool(Names),
    Capability(Names),
    Path(PathTest),
    Endpoint(EndpointTest),
    Argv(Box<[ArgvPattern]>),
    Secret(Names),
    Arg {
        path: JsonPath,
        tests: Box<[Test]>,
    },
    Label {
        pointer: Option<Box<str>>,
        test: LabelTest,
    },
    Tier(Box<[Tier]>),
    Time(Box<[Window]>),
    Budget {
        meter: Meter,
        tests: Box<[Test]>,
    },
    Session {
        gauge: Gauge,
        tests: Box<[Test]>,
    },
    /// The rule's recorded history.
    History(HistoryTest),
    /// A rule body in another language.
    Body(Arc<Body>),
    /// A condition in the syntax of another format.
    Expression(Arc<Expression>),
    Any(Box<[Box<[Clause]>]>),
    All(Box<[Box<[Clause]>]>),
}

impl Condition {
    pub(crate) fn holds(&self, facts: &Facts<'_>, quantifier: Quantifier) -> bool {
        match self {
            Self::Class(classes) => classes.contains(&facts.caller.class),
            Self::Agent(names) => names.matches(facts.caller.agent),
            Self::Role(names) => facts.caller.roles.iter().any(|role| names.matches(role)),
            Self::Trust { min, max } => (*min..=*max).contains(&facts.caller.trust),
            Self::Op(names) => names.matches(facts.op),
            Self::Tool(names) => facts.tool.is_some_and(|tool| names.matches(tool)),
            Self::Capability(names) => {
                quantifier.over(facts.capabilities.iter(), |capability| names.matches(capability))
            }
            Self::Path(test) => test.holds(facts, quantifier),
            Self::Endpoint(test) => test.holds(facts, quantifier),
            Self::Argv(patterns) => resources::argv_holds(patterns, facts, quantifier),
            Self::Secret(names) => quantifier.over(secrets(facts), |name| names.matches(name)),
            Self::Arg { path, tests } => args::holds(path, tests, facts.args, quantifier),
            Self::Label { pointer: Some(pointer), test } => test.holds(facts.labels.label_of(pointer)),
            Self::Label { pointer: None, test } => {
                let labels = std::iter::once(&facts.labels.default).chain(facts.labels.fields.values());
                quantifier.over(labels, |label| test.holds(*label))
            }
            Self::Tier(tiers) => tiers.contains(&facts.tier),
            Self::Time(windows) => {
                windows.iter().any(|window| window.contains(facts.now_ms, facts.utc_offset_min))
            }
            Self::Budget { meter, tests } => {
                let left = meter.read(facts);
                tests.iter().all(|test| test.holds(&left, quantifier))
            }
            Self::Session { gauge, tests } => {
                gauge.read(facts).is_some_and(|value| tests.iter().all(|test| test.holds(&value, quantifier)))
            }
            Self::History(turn) => turn.holds(facts),
            Self::Body(body) => body.holds(facts, quantifier),
            Self::Expression(expression) => expression.holds(facts, quantifier),
            Self::Any(branches) => branches.iter().any(|branch| all_hold(branch, facts, quantifier)),
            Self::All(branches) => branches.iter().all(|branch| all_hold(branch, facts, quantifier)),
        }
    }

    /// Its branches, if it combines conditions.
    pub(crate) fn branches(&self) -> &[Box<[Clause]>] {
        if let Self::Any(branches) | Self::All(branches) = self { branches } else { &[] }
    }

    /// Whether it examines a call's arguments directly.
    pub(crate) fn looks_at_args(&self) -> bool {
        matches!(self, Self::Arg { .. } | Self::Body(_) | Self::Expression(_) | Self::History(_))
    }
}

/// Whether every clause holds.
pub(crate) fn all_hold(clauses: &[Clause], facts: &Facts<'_>, quantifier: Quantifier) -> bool {
    clauses.iter().all(|clause| clause.condition.holds(facts, quantifier))
}

/// Whether every clause could hold for a call like this one with other paths and arguments.
pub(crate) fn could_hold(clauses: &[Clause], facts: &Facts<'_>) -> bool {
    clauses.iter().all(|Clause { condition, .. }| {
        if let Condition::Path(test) = condition {
            return test.is_about_access(facts);
        }
        let mut branches = condition.branches().iter().map(|branch| could_hold(branch, facts));
        if matches!(condition, Condition::Any(_)) {
            return branches.any(|could| could);
        }
        if matches!(condition, Condition::All(_)) {
            return branches.all(|could| could);
        }
        condition.looks_at_args() || condition.holds(facts, Quantifier::Any)
    })
}

/// Whether these clauses, which all hold, name every secret of the call. In `any`, the branch that names them must hold.
pub(crate) fn names_secrets(clauses: &[Clause], facts: &Facts<'_>) -> bool {
    clauses.iter().any(|clause| {
        let is_any = matches!(clause.condition, Condition::Any(_));
        let branch_does = |branch: &[Clause]| {
            names_secrets(branch, facts) && (!is_any || all_hold(branch, facts, Quantifier::Every))
        };
        if let Condition::Secret(names) = &clause.condition {
            return secrets(facts).all(|name| names.matches(name));
        }
        clause.condition.branches().iter().any(|branch| branch_does(branch))
    })
}

/// A test on a label. All given parts must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelTest {
    /// One of these origins.
    pub integrity: Option<Box<[Integrity]>>,
    /// An origin less trusted than this.
    pub less_trusted_than: Option<Integrity>,
    /// An origin at least as trusted as this.
    pub at_least_as_trusted_as: Option<Integrity>,
    /// One of these.
    pub confidentiality: Option<Box<[Confidentiality]>>,
    /// This level or stricter.
    pub min_confidentiality: Option<Confidentiality>,
    /// This level or more open.
    pub max_confidentiality: Option<Confidentiality>,
}

impl LabelTest {
    pub(crate) fn holds(&self, label: Label) -> bool {
        let level = label.confidentiality.judged();
        self.integrity.as_ref().is_none_or(|list| list.contains(&label.integrity))
            && self.less_trusted_than.is_none_or(|bound| label.integrity > bound)
            && self.at_least_as_trusted_as.is_none_or(|bound| label.integrity <= bound)
            && self.confidentiality.as_ref().is_none_or(|list| {
                list.iter().any(|one| *one == label.confidentiality || one.judged() == level)
            })
            && self.min_confidentiality.is_none_or(|bound| level >= bound.judged())
            && self.max_confidentiality.is_none_or(|bound| level <= bound.judged())
    }
}

/// A remaining budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meter {
    MoneyUsd,
    Tokens,
    Calls,
    WallS,
    BytesOut,
    Approvals,
}

impl Meter {
    /// Without a budget, more is left than any number.
    fn read(self, facts: &Facts<'_>) -> Value {
        let left = &facts.left;
        let (amount, unit) = match self {
            Self::MoneyUsd => (left.money_microusd, 1e6),
            Self::WallS => (left.wall_ms, 1e3),
            Self::Tokens => return whole(left.tokens),
            Self::Calls => return whole(left.calls),
            Self::BytesOut => return whole(left.bytes_out),
            Self::Approvals => return whole(left.approvals),
        };
        #[expect(clippy::cast_precision_loss, reason = "exact up to nine billion dollars or 285,000 years")]
        amount.map_or_else(|| whole(None), |amount| Value::from(amount as f64 / unit))
    }
}

fn whole(amount: Option<u64>) -> Value {
    Value::from(amount.unwrap_or(u64::MAX))
}

/// A measure of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gauge {
    ToolCalls,
    Tokens,
    RequestTokens,
    Confidence,
    Drift,
}

impl Gauge {
    fn read(self, facts: &Facts<'_>) -> Option<Value> {
        let session = &facts.session;
        match self {
            Self::ToolCalls => Some(Value::from(session.tool_calls)),
            Self::Tokens => Some(Value::from(session.tokens)),
            Self::RequestTokens => Some(Value::from(session.request_tokens)),
            Self::Confidence => session.confidence.map(Value::from),
            Self::Drift => session.drift.map(Value::from),
        }
    }
}
