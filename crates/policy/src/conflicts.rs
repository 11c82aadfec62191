//! Conflict strategies: which of several matching rules decides.
//!
//! A strategy applies to the rules of one file. Other files, the kernel's own rules, exhausted rates and the limits at a file's top are
//! evaluated separately and always apply. No strategy therefore lets a project's file grant more than the user's.

use crate::condition::{Clause, Condition, HostPattern, Names};
use crate::policy::Hits;
use crate::rule::{Effect, Rule};
use crate::words::{Word, words};

/// Which of several matching rules decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conflicts {
    /// A deny beats an ask, which beats an allow. The order of rules doesn't matter.
    #[default]
    DenyOverrides,
    /// An allow beats a deny, which beats an ask.
    AllowOverrides,
    /// The rule with the highest `priority`; in a tie, the first in the file.
    FirstMatch,
    /// The most specific rule; in a tie, the strictest.
    MostSpecific,
}

words!(Conflicts: "deny-overrides" => DenyOverrides, "allow-overrides" => AllowOverrides,
    "first-match" => FirstMatch, "most-specific" => MostSpecific);

impl Conflicts {
    /// Keeps one of the deciding rules.
    pub(crate) fn settle(self, hits: &mut Hits, rules: &[Rule]) {
        let wanting = std::mem::take(&mut hits.deciding);
        let each = || wanting.iter().filter_map(|at| Some((*at, rules.get(*at as usize)?)));
        // `min_by_key` returns the first of equals, and the indices are sorted.
        let winner = match self {
            Self::DenyOverrides => return,
            Self::AllowOverrides => {
                if hits.allow.is_some() {
                    (hits.deny, hits.ask) = (None, None);
                }
                return;
            }
            Self::FirstMatch => each().min_by_key(|(at, rule)| (std::cmp::Reverse(rule.priority), *at)),
            Self::MostSpecific => each().min_by_key(|(at, rule)| {
                (std::cmp::Reverse((specificity(&rule.when), strictness(rule.effect))), *at)
            }),
        };
        let only = |slot: &mut Option<u32>, effect: Effect| {
            *slot = winner.filter(|(_, rule)| rule.effect == effect).map(|(at, _)| at);
        };
        only(&mut hits.deny, Effect::Deny);
        only(&mut hits.ask, Effect::Ask);
        only(&mut hits.allow, Effect::Allow);
    }
}

fn strictness(effect: Effect) -> u8 {
    match effect {
        Effect::Deny => 2,
        Effect::Ask => 1,
        Effect::Allow | Effect::Transform | Effect::RaiseTier | Effect::Warn => 0,
    }
}

/// Specificity of conditions: each counts one, or two without wildcards. `any` counts its least specific branch, `all` the sum.
pub(crate) fn specificity(clauses: &[Clause]) -> u32 {
    clauses.iter().map(|clause| said_by(&clause.condition)).fold(0, u32::saturating_add)
}

fn said_by(condition: &Condition) -> u32 {
    let weight = |is_plain: bool| if is_plain { 2 } else { 1 };
    let named = |names: &Names| weight(names.globs().is_empty());
    match condition {
        Condition::Op(names)
        | Condition::Tool(names)
        | Condition::Agent(names)
        | Condition::Role(names)
        | Condition::Capability(names)
        | Condition::Secret(names) => named(names),
        Condition::Path(test) => weight(test.globs.as_ref().is_some_and(crate::glob::PathSet::is_plain)),
        Condition::Endpoint(test) => weight(test.hosts.as_ref().is_some_and(|hosts| {
            hosts.iter().all(|host| match host {
                HostPattern::Exact(_) => true,
                HostPattern::Below(_) | HostPattern::Any => false,
            })
        })),
        Condition::Argv(patterns) => weight(
            patterns.iter().flat_map(|pattern| &pattern.programs).all(|program| program.exact().is_some()),
        ),
        Condition::Class(_)
        | Condition::Trust { .. }
        | Condition::Arg { .. }
        | Condition::Label { .. }
        | Condition::Tier(_)
        | Condition::Time(_)
        | Condition::Budget { .. }
        | Condition::Session { .. }
        | Condition::History(_)
        | Condition::Body(_)
        | Condition::Expression(_) => 2,
        Condition::Any(branches) => branches.iter().map(|branch| specificity(branch)).min().unwrap_or(0),
        Condition::All(branches) => {
            branches.iter().map(|branch| specificity(branch)).fold(0, u32::saturating_add)
        }
    }
}
