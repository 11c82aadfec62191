//! Rules that look back: "after reading secret data nothing leaves until a person agrees", "at most one payment", "a write
//! needs a read of the same file first".
//!
//! Each such rule is an ordinary rule with one more condition, [`Turn`], that reads what the rule has noted so far; so it is
//! found by the same index. What it notes is driven by *events*: calls that arm it, end that, are counted or are remembered.
//! Events are filed in an index of their own, so a call touches the few rules that care and no others.

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

/// What a rule that looks back wants to find.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub rule: RuleId,
    pub scope: Scope,
    pub kind: TurnKind,
}

#[derive(Debug, Clone)]
pub(crate) enum TurnKind {
    /// `after`: it has happened, and isn't over.
    Armed,
    /// `at_most`: so many calls have been made.
    Spent(u32),
    /// `needs`: it hasn't happened, or not with the same thing.
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

/// Which of the two calls is looked at.
#[derive(Debug, Clone, Copy)]
enum Call {
    Earlier,
    Later,
}

impl Turn {
    pub(crate) fn holds(&self, facts: &Facts<'_>) -> bool {
        let cell = facts.past.of(self.scope).get(self.rule);
        match &self.kind {
            TurnKind::Armed => cell.is_some_and(|cell| cell.armed),
            TurnKind::Spent(most) => cell.map_or(0, |cell| cell.count) >= *most,
            TurnKind::Unseen(same) => {
                let Some(cell) = cell else { return true };
                let keys = same.keys(facts, Call::Later);
                keys.is_empty() || !keys.iter().all(|key| cell.seen.contains(key))
            }
        }
    }
}

impl Same {
    fn keys(&self, facts: &Facts<'_>, call: Call) -> Vec<u64> {
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
                    Call::Earlier => earlier,
                    Call::Later => later,
                };
                path.single(facts.args).map(|value| key(value.to_string().as_bytes())).into_iter().collect()
            }
        }
    }
}

/// Half of a digest's strength is enough: a stranger would have to find a second thing with the same one.
fn key(bytes: &[u8]) -> u64 {
    Sha256::digest(bytes).iter().take(8).fold(0, |word, byte| (word << 8) | u64::from(*byte))
}

/// Who approved a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreed {
    /// Nobody.
    Nobody,
    /// The application that performed the call says that it had somebody's agreement.
    Host,
    /// A person, here.
    Person,
}

impl From<bool> for Agreed {
    fn from(person: bool) -> Self {
        if person { Self::Person } else { Self::Nobody }
    }
}

/// What an event does to its rule.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// What the rule waits for happens. With a test, only if what comes back has such a label.
    Arm(Option<LabelTest>),
    /// What ends it. `approved`: only if a person has agreed to the call.
    Disarm { approved: bool },
    /// One more call, of so many. `asks`: beyond them a person is asked.
    Count { most: u32, asks: bool },
    /// The thing is remembered once the call has ended well.
    Remember(Same),
}

/// One event: which calls it is about, and what it does.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub rule: RuleId,
    pub scope: Scope,
    pub act: Act,
}

/// All events of one file.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Which calls each event is about, in the form that the index files.
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

    /// Calls like these, for an event of that rule: to arm, count or remember any part is enough, to disarm all must fit.
    pub(crate) fn calls_of(rule: &Rule, act: &Act, when: Box<[Clause]>) -> Rule {
        let effect = match act {
            Act::Disarm { .. } => Effect::Allow,
            Act::Arm(_) | Act::Count { .. } | Act::Remember(_) => Effect::Deny,
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

/// How far back a policy's rules look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reach {
    /// Over the session.
    pub session: bool,
    /// Across sessions.
    pub lasting: bool,
}

/// The history of a session, and the one that lasts; both are changed in place.
#[derive(Debug)]
pub struct Notes<'a> {
    /// Since the session began.
    pub session: &'a mut History,
    /// Since the agent's name was first used here.
    pub lasting: &'a mut History,
}

impl Notes<'_> {
    fn of(&mut self, scope: Scope) -> &mut History {
        match scope {
            Scope::Session => self.session,
            Scope::Lasting => self.lasting,
        }
    }
}

/// The history changes of a running call: those made at its start, and those due at its end.
#[derive(Debug, Clone, Default)]
pub struct Awaited {
    later: Vec<(RuleId, Scope, Later)>,
    /// What to do if the call doesn't run after all.
    undo: Vec<(RuleId, Scope, Undo)>,
}

/// How a note is taken back. What a call has armed stays armed: another call may have armed it as well, and armed is the stricter state.
#[derive(Debug, Clone, Copy)]
enum Undo {
    Uncount,
    Rearm,
}

#[derive(Debug, Clone)]
enum Later {
    Arm(LabelTest),
    Remember(Vec<u64>),
}

impl Policy {
    /// Which history its rules need; the kernel keeps no other.
    pub fn reach(&self) -> Reach {
        self.sets().iter().map(|set| set.events.reach()).fold(Reach::default(), |all, one| Reach {
            session: all.session || one.session,
            lasting: all.lasting || one.lasting,
        })
    }

    /// A call that was allowed is about to begin: counts it and notes what it arms. To be done in one step with everything else that
    /// changes the same history, because calls side by side may have been judged by the same count; the one that comes too late
    /// hears so here, and nothing is changed.
    pub fn begin(
        &self,
        facts: &Facts<'_>,
        agreed: impl Into<Agreed>,
        mut notes: Notes<'_>,
    ) -> Result<Awaited, Reason> {
        let agreed = agreed.into();
        let mut found: Vec<(RuleId, Scope, Act)> = Vec::new();
        let mut late = None;
        for set in self.sets().iter().filter(|set| set.is_about(facts)) {
            set.events.each(facts, &mut |calls, event| {
                if let Act::Count { most, asks } = event.act
                    && notes.of(event.scope).get(event.rule).map_or(0, |cell| cell.count) >= most
                    && !(asks && agreed != Agreed::Nobody)
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
                Act::Arm(None) => notes.of(scope).arm(rule, true),
                Act::Arm(Some(test)) => awaited.later.push((rule, scope, Later::Arm(test))),
                Act::Disarm { approved: wanted } if wanted && agreed != Agreed::Person => {}
                Act::Disarm { .. } => {
                    if notes.of(scope).get(rule).is_some_and(|cell| cell.armed) {
                        awaited.undo.push((rule, scope, Undo::Rearm));
                    }
                    notes.of(scope).arm(rule, false);
                }
                Act::Count { .. } => {
                    awaited.undo.push((rule, scope, Undo::Uncount));
                    notes.of(scope).count(rule);
                }
                Act::Remember(same) => {
                    awaited.later.push((rule, scope, Later::Remember(same.keys(facts, Call::Earlier))));
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

    /// Whether beginning has changed something that can be taken back.
    pub fn has_noted(&self) -> bool {
        !self.undo.is_empty()
    }

    /// The call doesn't run after all: it isn't counted, and it has ended nothing.
    pub fn take_back(&self, mut notes: Notes<'_>) {
        for (rule, scope, undo) in &self.undo {
            match undo {
                Undo::Uncount => notes.of(*scope).uncount(*rule),
                Undo::Rearm => notes.of(*scope).arm(*rule, true),
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
                // What was read is known, also if the call failed half way.
                Later::Arm(test) if test.holds(label) => notes.of(*scope).arm(*rule, true),
                Later::Remember(keys) if went_well => notes.of(*scope).remember(*rule, keys),
                Later::Arm(_) | Later::Remember(_) => {}
            }
        }
    }
}
