//! Compares two policies: which calls gain or lose permission.
//!
//! Rules are compared by id and content. For the effect, both policies decide calls that are generated from the conditions of all their
//! rules. This is a search, not a proof; a back-test on the ledger covers real calls.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::condition::Clause;
use crate::declassify::goes_beyond;
use crate::policy::Policy;
use crate::rule::Rule;
use crate::verdict::Verdict;
use crate::witness;

/// The differences between two policies.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PolicyDiff {
    /// Rules that only the new policy has.
    pub added: Vec<String>,
    /// Rules that only the old one has.
    pub removed: Vec<String>,
    /// Rules with the same id and different content.
    pub changed: Vec<String>,
    /// Calls that the new policy allows or asks about, and the old one treats more strictly.
    pub gains: Vec<Shift>,
    /// The reverse.
    pub losses: Vec<Shift>,
    /// Number of calls tried.
    pub tried: usize,
}

/// A call with a different verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shift {
    /// The agent; `agent` means any.
    pub agent: String,
    /// The call, as `policy test` takes it.
    pub call: Value,
    /// The old verdict.
    pub from: &'static str,
    /// The new verdict.
    pub to: &'static str,
    /// The rule that decides now, or decided before.
    pub rule: Option<String>,
}

/// Compares two policies.
pub fn diff(old: &Policy, new: &Policy) -> PolicyDiff {
    let mut out = PolicyDiff::default();
    let (before, after) = (rules(old), rules(new));
    for (id, said) in &after {
        match before.get(id) {
            None => out.added.push(id.clone()),
            Some(other) if other != said => out.changed.push(id.clone()),
            Some(_) => {}
        }
    }
    out.removed = before.keys().filter(|id| !after.contains_key(*id)).cloned().collect();
    let mut calls: BTreeMap<String, _> = BTreeMap::new();
    for (words, call) in witness::calls(old).into_iter().chain(witness::calls(new)) {
        calls.entry(words.to_string()).or_insert((words, call));
    }
    out.tried = calls.len();
    for (words, call) in calls.into_values() {
        let [was, is] = [old, new].map(|policy| call.with_facts(|facts| policy.decide(facts)));
        let rank = |verdict: &Verdict| match verdict {
            Verdict::Allow(_) => 0,
            Verdict::Ask(_) => 1,
            Verdict::Deny(_) => 2,
        };
        let (list, decides) = match rank(&is).cmp(&rank(&was)) {
            std::cmp::Ordering::Less => (&mut out.gains, &is),
            std::cmp::Ordering::Greater => (&mut out.losses, &is),
            std::cmp::Ordering::Equal => match labels(&was, &is) {
                Some(std::cmp::Ordering::Greater) => (&mut out.gains, &is),
                Some(_) => (&mut out.losses, &is),
                None => continue,
            },
        };
        let labels = labels(&was, &is);
        list.push(Shift {
            agent: words.get("agent").and_then(Value::as_str).unwrap_or("agent").to_owned(),
            from: if labels == Some(std::cmp::Ordering::Less) { DECLASSIFIED } else { was.word() },
            to: if labels == Some(std::cmp::Ordering::Greater) { DECLASSIFIED } else { is.word() },
            rule: decides.rule().or(was.rule()).map(|rule| rule.id.to_string()),
            call: words,
        });
    }
    out
}

/// The same verdict, with a declassified result.
const DECLASSIFIED: &str = "allow, and declassify";

/// Whether the new policy labels the result of a call that both allow less or more strictly.
fn labels(was: &Verdict, is: &Verdict) -> Option<std::cmp::Ordering> {
    let (Verdict::Allow(was), Verdict::Allow(is)) = (was, is) else { return None };
    if goes_beyond(&is.declassify, &was.declassify) {
        return Some(std::cmp::Ordering::Greater);
    }
    goes_beyond(&was.declassify, &is.declassify).then_some(std::cmp::Ordering::Less)
}

/// Every rule by id, with its full content.
fn rules(policy: &Policy) -> BTreeMap<String, String> {
    let clauses =
        |clauses: &[Clause]| clauses.iter().map(|clause| &*clause.text).collect::<Vec<_>>().join("; ");
    let said = |rule: &Rule| {
        format!(
            "{} {} | {} | {:?} {:?} {:?} {:?} {:?} {} {}",
            rule.effect,
            clauses(&rule.when),
            clauses(&rule.unless),
            rule.limits,
            rule.rate,
            rule.tier,
            rule.transforms,
            rule.declassify,
            rule.approvers,
            rule.priority
        )
    };
    let all = policy.sets().iter().flat_map(|set| set.rules.iter().map(move |rule| (set, rule)));
    let points = policy.sets().iter().flat_map(|set| {
        let described = set.control.iter().flat_map(|control| control.described());
        described.map(|(id, said)| (format!("{}:{id}", set.layer), said))
    });
    all.map(|(set, rule)| (format!("{}:{}", set.layer, rule.at.id), said(rule))).chain(points).collect()
}
