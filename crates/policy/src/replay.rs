//! Back-tests: what a policy would have said to calls that a ledger has recorded.
//!
//! Two policies are put the same questions. What the ledger doesn't keep (roles, labels, trust, what was left of a budget) is filled in
//! alike for both, so a difference between them is one between the policies. Rates and rules that look back are followed along: what was
//! really done counts for both.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::facts::{ArgLabels, BudgetLeft, Caller, Facts, RateCounts, Rates, Resource, SessionFacts, Target};
use crate::history::{History, Past};
use crate::policy::Policy;
use crate::sequence::{Awaited, Notes};
use crate::verdict::{Charge, RuleId, Verdict};
use crate::window::Window;
use crate::words::{Class, Confidentiality, Integrity, Label, Tier};

/// Changes that are told apart; what goes beyond is counted in one.
const CHANGES_MAX: usize = 10_000;
/// Calls that wait for their outcome.
const OPEN_MAX: usize = 100_000;
/// Sessions whose history is kept.
const SESSIONS_MAX: usize = 10_000;

/// A call of the past, as its intent in the ledger has it.
#[derive(Debug, Clone, PartialEq)]
pub struct PastCall {
    /// When.
    pub at_ms: i64,
    /// In which session.
    pub session: String,
    /// Who, by the name that policy matches.
    pub agent: String,
    /// What kind of caller.
    pub class: Class,
    /// Which operation.
    pub op: String,
    /// Which tool, if it was one.
    pub tool: Option<String>,
    /// What was decided then: `allow`, `ask` or `deny`.
    pub verdict: String,
    /// By which rule, if one did.
    pub rule: Option<String>,
    /// The word for the reason, if it was denied.
    pub code: Option<String>,
    /// The tier that it was to run at.
    pub tier: Tier,
    /// Its arguments, an empty object if nobody looked them up.
    pub args: Value,
    /// What its tool can do.
    pub capabilities: Vec<String>,
    /// What it reached for.
    pub targets: Vec<Target>,
}

impl PastCall {
    /// Whether the kernel itself refused, whatever policy says.
    fn was_refused(&self) -> bool {
        let is_policys =
            |code: &str| ["policy.", "governance.", "rate."].iter().any(|start| code.starts_with(start));
        self.code.as_deref().is_some_and(|code| !is_policys(code))
    }

    /// The tool, or else the operation.
    pub fn what(&self) -> &str {
        self.tool.as_deref().unwrap_or(&self.op)
    }

    /// The first thing that it touched, in a few words.
    pub fn touched(&self) -> Option<String> {
        Some(match self.targets.first()? {
            Target::Path { path, access } => format!("{access} {path}"),
            Target::Endpoint { scheme, host, port, .. } => format!("{scheme}://{host}:{port}"),
            Target::Argv(argv) => argv.join(" "),
            Target::Secret(name) => format!("secret {name}"),
        })
    }

    /// Hands the call's facts to `ask`, as far as they are known.
    pub fn with_facts<R>(&self, past: Past<'_>, rates: Rates<'_>, ask: impl FnOnce(&Facts<'_>) -> R) -> R {
        let resources: Vec<Resource<'_>> = self.targets.iter().map(Target::view).collect();
        let integrity = match self.class {
            Class::Operator => Integrity::Operator,
            Class::Kernel => Integrity::System,
            Class::Agent => Integrity::OwnModel,
            Class::Service => Integrity::Tool,
            Class::Peer => Integrity::Peer,
        };
        let labels = ArgLabels::all(Label { integrity, confidentiality: Confidentiality::Internal });
        ask(&Facts {
            caller: Caller { class: self.class, agent: &self.agent, roles: &[], trust: 500 },
            op: &self.op,
            tool: self.tool.as_deref(),
            capabilities: &self.capabilities,
            args: &self.args,
            labels: &labels,
            resources: &resources,
            tier: self.tier,
            now_ms: self.at_ms,
            utc_offset_min: 0,
            left: BudgetLeft::default(),
            session: SessionFacts::default(),
            rates,
            past,
        })
    }
}

/// The result of a back-test.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Calls that were judged.
    pub calls: u64,
    /// Of those, ones that the kernel's own rules refuse under any policy.
    pub refused_anyway: u64,
    /// Calls that the old policy, asked again, doesn't decide as it is recorded: what isn't known of them mattered, or it has changed since.
    pub not_reproduced: u64,
    /// Denied or asked before, allowed now.
    pub newly_allowed: u64,
    /// Allowed or denied before, asked now.
    pub newly_asked: u64,
    /// Allowed or asked before, denied now.
    pub newly_denied: u64,
    /// The same, by who, what, which verdicts and which rules; most frequent first.
    pub changes: Vec<Change>,
}

/// Calls that would be decided otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Who.
    pub agent: String,
    /// Which tool or operation.
    pub what: String,
    /// What the old policy says.
    pub from: &'static str,
    /// What the new one says.
    pub to: &'static str,
    /// The new policy's rule, if one decides.
    pub rule: Option<String>,
    /// How many calls.
    pub calls: u64,
    /// One of them: what it touched.
    pub example: Option<String>,
}

/// What makes changes alike: who, what, from which verdict, to which, by which rule.
type Kind = (String, String, &'static str, &'static str, Option<String>);

/// Follows a ledger and puts every call to two policies.
#[derive(Debug)]
pub struct Replay {
    sides: [Side; 2],
    open: BTreeMap<(u16, u64), (String, String, [Awaited; 2])>,
    found: BTreeMap<Kind, (u64, Option<String>)>,
    result: Replayed,
}

/// One policy with what it has noted along the way.
#[derive(Debug)]
struct Side {
    policy: Policy,
    sessions: BTreeMap<String, History>,
    lasting: BTreeMap<String, History>,
    /// How each agent has used rules with a rate along the way.
    windows: BTreeMap<(RuleId, String), Window>,
}

impl Replay {
    /// From the old policy to the new one.
    pub fn new(old: Policy, new: Policy) -> Self {
        let side = |policy| Side {
            policy,
            sessions: BTreeMap::new(),
            lasting: BTreeMap::new(),
            windows: BTreeMap::new(),
        };
        let sides = [side(old), side(new)];
        Self { sides, open: BTreeMap::new(), found: BTreeMap::new(), result: Replayed::default() }
    }

    /// Whether either policy looks at arguments; if not, they needn't be read.
    pub fn needs_args(&self) -> bool {
        self.sides.iter().any(|side| side.policy.looks_at_args())
    }

    /// The next call, and where it is in the ledger.
    pub fn call(&mut self, place: (u16, u64), call: &PastCall) {
        self.result.calls += 1;
        if call.was_refused() {
            self.result.refused_anyway += 1;
            return;
        }
        let [old, new] = self.sides.each_ref().map(|side| side.judge(call));
        if old.word() != call.verdict {
            self.result.not_reproduced += 1;
        }
        if old.word() != new.word() {
            self.note(call, &old, &new);
        }
        // What was really done counts for both.
        if call.verdict == "allow" {
            let awaited = self.sides.each_mut().map(|side| side.begin(call));
            let waits = awaited.iter().any(|awaited| !awaited.is_empty());
            if waits && self.open.len() < OPEN_MAX {
                self.open.insert(place, (call.session.clone(), call.agent.clone(), awaited));
            }
        }
    }

    /// The outcome of a call: the label of its output, and whether it succeeded.
    pub fn outcome(&mut self, intent: (u16, u64), label: Label, went_well: bool) {
        let Some((session, agent, awaited)) = self.open.remove(&intent) else { return };
        for (side, awaited) in self.sides.iter_mut().zip(&awaited) {
            awaited.ended(label, went_well, side.notes(&session, &agent));
        }
    }

    fn note(&mut self, call: &PastCall, old: &Verdict, new: &Verdict) {
        match new {
            Verdict::Allow(_) => self.result.newly_allowed += 1,
            Verdict::Ask(_) => self.result.newly_asked += 1,
            Verdict::Deny(_) => self.result.newly_denied += 1,
        }
        let rule = new.rule().map(|rule| rule.id.to_string());
        let key = (call.agent.clone(), call.what().to_owned(), old.word(), new.word(), rule);
        if self.found.len() < CHANGES_MAX || self.found.contains_key(&key) {
            self.found.entry(key).or_insert_with(|| (0, call.touched())).0 += 1;
        }
    }

    /// The result.
    pub fn finish(mut self) -> Replayed {
        let mut changes: Vec<Change> = self
            .found
            .into_iter()
            .map(|((agent, what, from, to, rule), (calls, example))| Change {
                agent,
                what,
                from,
                to,
                rule,
                calls,
                example,
            })
            .collect();
        changes.sort_by_key(|change| std::cmp::Reverse(change.calls));
        self.result.changes = changes;
        self.result
    }
}

impl Side {
    fn judge(&self, call: &PastCall) -> Verdict {
        static NOTHING: History = History::new();
        let past = Past {
            session: self.sessions.get(&call.session).unwrap_or(&NOTHING),
            lasting: self.lasting.get(&call.agent).unwrap_or(&NOTHING),
        };
        call.with_facts(past, Rates::All(0), |facts| {
            let mut counts = RateCounts::default();
            self.policy.rates(facts, &mut |charge| {
                let window = self.windows.get(&(charge.rule, call.agent.clone()));
                counts.insert(&charge, window.map_or(0, |window| window.used(charge.window_ms, call.at_ms)));
            });
            self.policy.decide(&Facts { rates: Rates::Counted(&counts), ..*facts })
        })
    }

    fn notes(&mut self, session: &str, agent: &str) -> Notes<'_> {
        for (table, key) in [(&mut self.sessions, session), (&mut self.lasting, agent)] {
            if table.len() >= SESSIONS_MAX && !table.contains_key(key) {
                table.pop_first();
            }
        }
        Notes {
            session: self.sessions.entry(session.to_owned()).or_default(),
            lasting: self.lasting.entry(agent.to_owned()).or_default(),
        }
    }

    fn begin(&mut self, call: &PastCall) -> Awaited {
        let charges: Vec<Charge> = match self.judge(call) {
            Verdict::Allow(grant) => grant.charges,
            Verdict::Ask(question) => question.grant.charges,
            Verdict::Deny(_) => Vec::new(),
        };
        for charge in charges {
            let window = self.windows.entry((charge.rule, call.agent.clone())).or_default();
            window.take(&charge, call.at_ms);
        }
        let reach = self.policy.reach();
        if !reach.session && !reach.lasting {
            return Awaited::default();
        }
        let policy = self.policy.clone();
        call.with_facts(Past::default(), Rates::All(0), |facts| {
            policy.begin(facts, true, self.notes(&call.session, &call.agent)).unwrap_or_default()
        })
    }
}
