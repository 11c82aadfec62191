//! Rules that look back: "after reading secret data nothing leaves without an approval", "at most one payment", "a write needs a read of
//! the same file first".
//!
//! Such a rule is an ordinary rule with one more condition, [`HistoryTest`], which reads the rule's recorded history, so the same index finds it.
//! *Events* update the history: calls that arm the rule, disarm it, are counted, or are remembered. Events have their own index, so a call
//! touches only the relevant rules.

use sha2::{Digest, Sha256};

use crate::condition::{Clause, LabelTest, paths};
use crate::facts::{Facts, Resource};
use crate::history::{History, Scope};
use crate::index::Index;
use crate::json_path::JsonPath;
use crate::policy::Policy;
use crate::rule::{Effect, Rule};
use crate::verdict::{Reason, RuleId, codes};
use crate::words::Label;

/// The history condition of a rule.
#[derive(Debug, Clone)]
pub(crate) struct HistoryTest {
    pub rule: RuleId,
    pub scope: Scope,
    pub kind: HistoryTestKind,
}

#[derive(Debug, Clone)]
pub(crate) enum HistoryTestKind {
    /// `after`: the event has happened and hasn't been ended.
    Armed,
    /// `at_most`: this many calls were made.
    Spent(u32),
    /// `needs`: the event hasn't happened, or not with the same item.
    Unseen(Same),
}

/// What two calls must have in common.
#[derive(Debug, Clone)]
pub(crate) enum Same {
    /// Nothing.
    Nothing,
    /// The paths that they touch.
    Path,
    /// The hosts that they reach.
    Host,
    /// The values of these arguments: of the earlier call, of the later one.
    Arg(JsonPath, JsonPath),
}

/// Which of the two calls is examined.
#[derive(Debug, Clone, Copy)]
enum PairedCall {
    Earlier,
    Later,
}

impl HistoryTest {
    pub(crate) fn holds(&self, facts: &Facts<'_>) -> bool {
        let cell = facts.past.in_scope(self.scope).get(self.rule);
        match &self.kind {
            HistoryTestKind::Armed => cell.is_some_and(|cell| cell.armed),
            HistoryTestKind::Spent(most) => cell.map_or(0, |cell| cell.count) >= *most,
            HistoryTestKind::Unseen(same) => {
                let Some(cell) = cell else { return true };
                let keys = same.keys(facts, PairedCall::Later);
                keys.is_empty() || !keys.iter().all(|key| cell.seen.contains(key))
            }
        }
    }
}

impl Same {
    fn keys(&self, facts: &Facts<'_>, call: PairedCall) -> Vec<u64> {
        match self {
            Self::Nothing => vec![0],
            Self::Path => paths(facts).map(|(path, _)| key(path.as_bytes())).collect(),
            Self::Host => facts
                .resources
                .iter()
                .filter_map(|resource| match resource {
                    Resource::Endpoint { host, .. } => Some(key(host.to_ascii_lowercase().as_bytes())),
                    Resource::Path { .. } | Resource::Argv(_) | Resource::Secret(_) => None,
                })
                .collect(),
            Self::Arg(earlier, later) => {
                let path = match call {
                    PairedCall::Earlier => earlier,
                    PairedCall::Later => later,
                };
                path.single(facts.args).map(|value| key(value.to_string().as_bytes())).into_iter().collect()
            }
        }
    }
}

/// 64 bits suffice: an attacker would have to find a second preimage.
fn key(bytes: &[u8]) -> u64 {
    Sha256::digest(bytes).iter().take(8).fold(0, |word, byte| (word << 8) | u64::from(*byte))
}

/// Who approved a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovedBy {
    /// No one.
    Nobody,
    /// The host application reports an approval.
    Host,
    /// A reviewer, in Regent.
    Person,
}

impl From<bool> for ApprovedBy {
    fn from(person: bool) -> Self {
        if person { Self::Person } else { Self::Nobody }
    }
}

/// The effect of an event on its rule.
#[derive(Debug, Clone)]
pub(crate) enum HistoryEffect {
    /// Arms the rule. With a test, only if the output has such a label.
    Arm(Option<LabelTest>),
    /// Disarms the rule. `approved`: only if the call was approved.
    Disarm { approved: bool },
    /// Counts a call. `asks`: calls beyond the maximum are asked about.
    Count { most: u32, asks: bool },
    /// Remembers the item after the call has succeeded.
    Remember(Same),
}

/// One event: the calls that it matches, and its effect.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub rule: RuleId,
    pub scope: Scope,
    pub act: HistoryEffect,
}

/// All events of one file.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The calls of each event, as rules for the index.
    calls: Box<[Rule]>,
    events: Box<[Event]>,
    index: Index,
    reach: Reach,
}

impl Events {
    pub(crate) fn new(events: Vec<(Rule, Event)>) -> Self {
        let has = |scope| events.iter().any(|(_, event): &(Rule, Event)| event.scope == scope);
        let reach = Reach { session: has(Scope::Session), lasting: has(Scope::Lasting) };
        let (calls, events): (Vec<_>, Vec<_>) = events.into_iter().unzip();
        Self { index: Index::new(&calls), calls: calls.into(), events: events.into(), reach }
    }

    /// The calls of an event: to arm, count or remember, any part matches; to disarm, all parts must match.
    pub(crate) fn calls_of(rule: &Rule, act: &HistoryEffect, when: Box<[Clause]>) -> Rule {
        let effect = match act {
            HistoryEffect::Disarm { .. } => Effect::Allow,
            HistoryEffect::Arm(_) | HistoryEffect::Count { .. } | HistoryEffect::Remember(_) => Effect::Deny,
        };
        let mut calls = Rule::new(&rule.at.id, rule.at.layer, rule.at.line, effect);
        calls.when = when;
        calls
    }

    fn each(&self, facts: &Facts<'_>, visit: &mut impl FnMut(&Rule, &Event)) {
        let mut found = Vec::new();
        self.index.candidates(facts, &mut |at| found.push(at));
        found.sort_unstable();
        found.dedup();
        for at in found {
            if let (Some(calls), Some(event)) = (self.calls.get(at as usize), self.events.get(at as usize))
                && calls.matches(facts)
            {
                visit(calls, event);
            }
        }
    }

    fn reach(&self) -> Reach {
        self.reach
    }
}

/// Which histories a policy's rules use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reach {
    /// Over the session.
    pub session: bool,
    /// The permanent history.
    pub lasting: bool,
}

/// The session's and the permanent history, both changed in place.
#[derive(Debug)]
pub struct Notes<'a> {
    /// Since the session began.
    pub session: &'a mut History,
    /// Since the first use of the agent's name.
    pub lasting: &'a mut History,
}

impl Notes<'_> {
    fn in_scope(&mut self, scope: Scope) -> &mut History {
        match scope {
            Scope::Session => self.session,
            Scope::Lasting => self.lasting,
        }
    }
}

/// The history changes of a running call: those made at its start, and those due at its end.
#[derive(Debug, Clone, Default)]
pub struct Awaited {
    later: Vec<(RuleId, Scope, DeferredChange)>,
    /// Changes to undo if the call doesn't run.
    undo: Vec<(RuleId, Scope, Undo)>,
}

/// How to undo a change. Arming is not undone: another call may have armed the rule too, and armed is the stricter state.
#[derive(Debug, Clone, Copy)]
enum Undo {
    Uncount,
    Rearm,
}

#[derive(Debug, Clone)]
enum DeferredChange {
    Arm(LabelTest),
    Remember(Vec<u64>),
}

impl Policy {
    /// Which histories its rules need; the kernel keeps no others.
    pub fn reach(&self) -> Reach {
        self.sets().iter().map(|set| set.events.reach()).fold(Reach::default(), |all, one| Reach {
            session: all.session || one.session,
            lasting: all.lasting || one.lasting,
        })
    }

    /// The most approvers that any of its rules asks for.
    pub fn approvers_max(&self) -> u8 {
        let rules = self.sets().iter().flat_map(|set| &set.rules);
        rules.map(|rule| rule.approvers).max().unwrap_or(1)
    }

    /// Records the start of an allowed call: counts it, and arms or disarms rules. Run this in one atomic step with all other
    /// changes to the same history, because concurrent calls may have been judged by the same count. A call that comes too late is denied
    /// here, and nothing changes.
    pub fn begin(
        &self,
        facts: &Facts<'_>,
        agreed: impl Into<ApprovedBy>,
        mut notes: Notes<'_>,
    ) -> Result<Awaited, Reason> {
        let agreed = agreed.into();
        let mut found: Vec<(RuleId, Scope, HistoryEffect)> = Vec::new();
        let mut late = None;
        for set in self.sets().iter().filter(|set| set.is_about(facts)) {
            set.events.each(facts, &mut |calls, event| {
                if let HistoryEffect::Count { most, asks } = event.act
                    && notes.in_scope(event.scope).get(event.rule).map_or(0, |cell| cell.count) >= most
                    && !(asks && agreed != ApprovedBy::Nobody)
                {
                    late.get_or_insert_with(|| too_late(calls, most));
                }
                found.push((event.rule, event.scope, event.act.clone()));
            });
        }
        if let Some(reason) = late {
            return Err(reason);
        }
        let mut awaited = Awaited::default();
        for (rule, scope, act) in found {
            match act {
                HistoryEffect::Arm(None) => notes.in_scope(scope).arm(rule, true),
                HistoryEffect::Arm(Some(test)) => {
                    awaited.later.push((rule, scope, DeferredChange::Arm(test)))
                }
                HistoryEffect::Disarm { approved: wanted } if wanted && agreed != ApprovedBy::Person => {}
                HistoryEffect::Disarm { .. } => {
                    if notes.in_scope(scope).get(rule).is_some_and(|cell| cell.armed) {
                        awaited.undo.push((rule, scope, Undo::Rearm));
                    }
                    notes.in_scope(scope).arm(rule, false);
                }
                HistoryEffect::Count { .. } => {
                    awaited.undo.push((rule, scope, Undo::Uncount));
                    notes.in_scope(scope).count(rule);
                }
                HistoryEffect::Remember(same) => {
                    awaited.later.push((
                        rule,
                        scope,
                        DeferredChange::Remember(same.keys(facts, PairedCall::Earlier)),
                    ));
                }
            }
        }
        Ok(awaited)
    }
}

fn too_late(calls: &Rule, most: u32) -> Reason {
    Reason {
        code: codes::SEQUENCE.into(),
        message: format!("rule `{}` allows {most} of these calls, and they are used up", calls.at.id),
        rule: Some(calls.at.clone()),
        help: None,
    }
}

impl Awaited {
    /// Whether the end of the call changes nothing.
    pub fn is_empty(&self) -> bool {
        self.later.is_empty()
    }

    /// Whether the start of the call changed something that can be undone.
    pub fn has_noted(&self) -> bool {
        !self.undo.is_empty()
    }

    /// Undoes the start of a call that doesn't run after all.
    pub fn take_back(&self, mut notes: Notes<'_>) {
        for (rule, scope, undo) in &self.undo {
            match undo {
                Undo::Uncount => notes.in_scope(*scope).uncount(*rule),
                Undo::Rearm => notes.in_scope(*scope).arm(*rule, true),
            }
        }
    }

    /// Whether the end of the call changes the permanent history.
    pub fn is_lasting(&self) -> bool {
        self.later.iter().any(|(_, scope, _)| *scope == Scope::Lasting)
    }

    /// Records the end of a call with the label of its output and whether it succeeded. Idempotent.
    pub fn ended(&self, label: Label, went_well: bool, mut notes: Notes<'_>) {
        for (rule, scope, later) in &self.later {
            match later {
                // Data that was read is known, even if the call failed halfway.
                DeferredChange::Arm(test) if test.holds(label) => notes.in_scope(*scope).arm(*rule, true),
                DeferredChange::Remember(keys) if went_well => notes.in_scope(*scope).remember(*rule, keys),
                DeferredChange::Arm(_) | DeferredChange::Remember(_) => {}
            }
        }
    }
}
