//! Back-tests: how a policy would have decided recorded calls.
//!
//! Two policies decide the same calls. Facts that the ledger lacks (roles, labels, trust, remaining budgets) get the same defaults for
//! both, so every difference is one between the policies. Rates and history are simulated: the calls that actually ran count for both.

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

/// Maximum distinct changes; further ones are counted together.
const CHANGES_MAX: usize = 10_000;
/// Maximum calls without outcome.
const OPEN_MAX: usize = 100_000;
/// Maximum sessions with history.
const SESSIONS_MAX: usize = 10_000;

/// A recorded call, from its intent in the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct PastCall {
    /// When.
    pub at_ms: i64,
    /// The session.
    pub session: String,
    /// The agent's name, as policy matches it.
    pub agent: String,
    /// The class of caller.
    pub class: Class,
    /// The operation.
    pub op: String,
    /// The tool, if any.
    pub tool: Option<String>,
    /// The recorded verdict: `allow`, `ask` or `deny`.
    pub verdict: String,
    /// The deciding rule, if any.
    pub rule: Option<String>,
    /// The reason's code, if denied.
    pub code: Option<String>,
    /// The intended tier.
    pub tier: Tier,
    /// Its arguments; an empty object if they weren't loaded.
    pub args: Value,
    /// The tool's capabilities.
    pub capabilities: Vec<String>,
    /// The resources.
    pub targets: Vec<Target>,
}

impl PastCall {
    /// Whether the kernel itself denied the call, regardless of policy.
    fn was_refused(&self) -> bool {
        let is_policys =
            |code: &str| ["policy.", "governance.", "rate."].iter().any(|start| code.starts_with(start));
        self.code.as_deref().is_some_and(|code| !is_policys(code))
    }

    /// The tool, or else the operation.
    pub fn what(&self) -> &str {
        self.tool.as_deref().unwrap_or(&self.op)
    }

    /// The first resource, in short.
    pub fn touched(&self) -> Option<String> {
        Some(match self.targets.first()? {
            Target::Path { path, access } => format!("{access} {path}"),
            Target::Endpoint { scheme, host, port, .. } => format!("{scheme}://{host}:{port}"),
            Target::Argv(argv) => argv.join(" "),
            Target::Secret(name) => format!("secret {name}"),
        })
    }

    /// Passes the call's known facts to `ask`.
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
    /// Number of decided calls.
    pub calls: u64,
    /// Number of those that the kernel's own rules deny under any policy.
    pub refused_anyway: u64,
    /// Number of calls that the old policy decides differently from the record: unknown facts mattered, or the policy has changed since.
    pub not_reproduced: u64,
    /// Denied or asked before, allowed now.
    pub newly_allowed: u64,
    /// Allowed or denied before, asked now.
    pub newly_asked: u64,
    /// Allowed or asked before, denied now.
    pub newly_denied: u64,
    /// The changes by agent, tool, verdicts and rules; most frequent first.
    pub changes: Vec<VerdictChange>,
}

/// Calls with a different verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerdictChange {
    /// The agent.
    pub agent: String,
    /// The tool or operation.
    pub what: String,
    /// The old verdict.
    pub from: &'static str,
    /// The new verdict.
    pub to: &'static str,
    /// The new policy's deciding rule, if any.
    pub rule: Option<String>,
    /// Number of calls.
    pub calls: u64,
    /// The resource of one of them.
    pub example: Option<String>,
}

/// Changes are grouped by agent, tool, old verdict, new verdict and rule.
type ChangeKey = (String, String, &'static str, &'static str, Option<String>);

/// Reads a ledger and has two policies decide every call.
#[derive(Debug)]
pub struct Replay {
    sides: [Side; 2],
    open: BTreeMap<(u16, u64), (String, String, [Awaited; 2])>,
    found: BTreeMap<ChangeKey, (u64, Option<String>)>,
    result: Replayed,
}

/// One policy with its simulated history.
#[derive(Debug)]
struct Side {
    policy: Policy,
    sessions: BTreeMap<String, History>,
    lasting: BTreeMap<String, History>,
    /// Each agent's use of rate rules.
    windows: BTreeMap<(RuleId, String), Window>,
}

impl Replay {
    /// Compares the old policy with the new one.
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

    /// Whether either policy examines arguments; if not, they needn't be loaded.
    pub fn needs_args(&self) -> bool {
        self.sides.iter().any(|side| side.policy.looks_at_args())
    }

    /// Decides the next call, at this position in the ledger.
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
        // Calls that actually ran count for both.
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
        let mut changes: Vec<VerdictChange> = self
            .found
            .into_iter()
            .map(|((agent, what, from, to, rule), (calls, example))| VerdictChange {
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
