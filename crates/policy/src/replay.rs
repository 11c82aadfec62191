//! Back-tests: what a policy would have said to calls that a ledger has recorded.
//!
//! Two policies are put the same questions. What the ledger doesn't keep (roles, labels, trust, what was left of a budget) is filled in
//! alike for both, so a difference between them is one between the policies. Rates and rules that look back are followed along: what was
//! really done counts for both.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::facts::{ArgLabels, BudgetLeft, Caller, Facts, Rates, Resource, SessionFacts};
use crate::history::{History, Past};
use crate::policy::Policy;
use crate::sequence::{Awaited, Notes};
use crate::verdict::{Charge, RuleId, Verdict};
use crate::window::Window;
use crate::words::{Access, Class, Confidentiality, Integrity, Label, Tier, Word};

/// Changes that are told apart; what goes beyond is counted in one.
const CHANGES_MAX: usize = 10_000;
/// Calls that wait for their outcome.
const OPEN_MAX: usize = 100_000;
/// Sessions whose history is kept.
const SESSIONS_MAX: usize = 10_000;

/// A call as a ledger tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// When.
    pub at_ms: i64,
    /// In which session.
    pub session: String,
    /// Who, by the name that policy matches.
    pub agent: String,
    class: Class,
    op: String,
    tool: Option<String>,
    /// What was decided then: `allow`, `ask` or `deny`.
    pub verdict: String,
    /// By which rule, if one did.
    pub rule: Option<String>,
    /// Whether the kernel itself refused, whatever policy says.
    was_refused: bool,
    tier: Tier,
    args: Value,
    capabilities: Vec<String>,
    targets: Vec<Target>,
}

#[derive(Debug, Clone, PartialEq)]
enum Target {
    Path(String, Access),
    Endpoint { scheme: String, host: String, port: u16, method: String, path: String },
    Argv(Vec<String>),
    Secret(String),
}

impl Recorded {
    /// Reads the body of an intent; `None` if it is none. The arguments and the tool's capabilities come from elsewhere.
    pub fn read(at_ms: i64, body: &Value, args: Option<Value>, capabilities: Vec<String>) -> Option<Self> {
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let targets = body.get("targets").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let code = text("/verdict/code");
        Some(Self {
            at_ms,
            session: text("/session")?,
            agent: text("/caller/name")?,
            class: text("/caller/class").and_then(|word| Class::parse(&word))?,
            op: text("/op")?,
            tool: text("/tool/name"),
            verdict: text("/verdict/effect")?,
            rule: text("/verdict/rule"),
            was_refused: code.is_some_and(|code| {
                !["policy.", "governance.", "rate."].iter().any(|start| code.starts_with(start))
            }),
            tier: text("/tier").and_then(|word| Tier::parse(&word))?,
            args: args.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
            capabilities,
            targets: targets.iter().map(target).collect::<Option<_>>()?,
        })
    }

    /// The tool, or else the operation.
    pub fn what(&self) -> &str {
        self.tool.as_deref().unwrap_or(&self.op)
    }

    /// The first thing that it touched, in a few words.
    pub fn touched(&self) -> Option<String> {
        Some(match self.targets.first()? {
            Target::Path(path, access) => format!("{access} {path}"),
            Target::Endpoint { scheme, host, port, .. } => format!("{scheme}://{host}:{port}"),
            Target::Argv(argv) => argv.join(" "),
            Target::Secret(name) => format!("secret {name}"),
        })
    }

    /// Hands the call's facts to `ask`, as far as they are known.
    pub fn with_facts<R>(&self, past: Past<'_>, rates: &dyn Rates, ask: impl FnOnce(&Facts<'_>) -> R) -> R {
        let resources: Vec<Resource<'_>> = self.targets.iter().map(Target::view).collect();
        let integrity = match self.class {
            Class::Operator => Integrity::Operator,
            Class::Kernel => Integrity::System,
            Class::Agent => Integrity::OwnModel,
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

impl Target {
    fn view(&self) -> Resource<'_> {
        match self {
            Self::Path(path, access) => Resource::Path { path, access: *access },
            Self::Endpoint { scheme, host, port, method, path } => {
                Resource::Endpoint { scheme, host, port: *port, method, path }
            }
            Self::Argv(argv) => Resource::Argv(argv),
            Self::Secret(name) => Resource::Secret(name),
        }
    }
}

fn target(value: &Value) -> Option<Target> {
    let (kind, body) = value.as_object()?.iter().next()?;
    let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(match kind.as_str() {
        "path" => Target::Path(text("path")?, Access::parse(&text("access")?)?),
        "endpoint" => Target::Endpoint {
            scheme: text("scheme")?,
            host: text("host")?,
            port: body.get("port").and_then(Value::as_u64).and_then(|port| port.try_into().ok())?,
            method: text("method")?,
            path: text("path")?,
        },
        "argv" => Target::Argv(serde_json::from_value(body.clone()).ok()?),
        "secret" => Target::Secret(body.as_str()?.to_owned()),
        _other => return None,
    })
}

/// What came of a back-test.
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
    used: Counted,
}

/// Rates as they were used along the way.
#[derive(Debug, Default)]
struct Counted {
    now_ms: i64,
    agent: String,
    windows: BTreeMap<(RuleId, String), Window>,
}

impl Rates for Counted {
    fn used(&self, rule: RuleId, window_ms: u64) -> u32 {
        let window = self.windows.get(&(rule, self.agent.clone()));
        window.map_or(0, |window| window.used(window_ms, self.now_ms))
    }
}

impl Replay {
    /// From the old policy to the new one.
    pub fn new(old: Policy, new: Policy) -> Self {
        let side = |policy| Side {
            policy,
            sessions: BTreeMap::new(),
            lasting: BTreeMap::new(),
            used: Counted::default(),
        };
        let sides = [side(old), side(new)];
        Self { sides, open: BTreeMap::new(), found: BTreeMap::new(), result: Replayed::default() }
    }

    /// Whether either policy looks at arguments; if not, they needn't be read.
    pub fn needs_args(&self) -> bool {
        self.sides.iter().any(|side| side.policy.looks_at_args())
    }

    /// The next call, and where it is in the ledger.
    pub fn call(&mut self, place: (u16, u64), call: &Recorded) {
        self.result.calls += 1;
        if call.was_refused {
            self.result.refused_anyway += 1;
            return;
        }
        let [old, new] = self.sides.each_mut().map(|side| side.judge(call));
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

    /// The outcome of a call: what came back was labelled so, and it went well or not.
    pub fn outcome(&mut self, intent: (u16, u64), label: Label, went_well: bool) {
        let Some((session, agent, awaited)) = self.open.remove(&intent) else { return };
        for (side, awaited) in self.sides.iter_mut().zip(&awaited) {
            awaited.ended(label, went_well, side.notes(&session, &agent));
        }
    }

    fn note(&mut self, call: &Recorded, old: &Verdict, new: &Verdict) {
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

    /// What came of it.
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
    fn judge(&mut self, call: &Recorded) -> Verdict {
        static NOTHING: History = History::new();
        self.used.now_ms = call.at_ms;
        self.used.agent.clone_from(&call.agent);
        let past = Past {
            session: self.sessions.get(&call.session).unwrap_or(&NOTHING),
            lasting: self.lasting.get(&call.agent).unwrap_or(&NOTHING),
        };
        call.with_facts(past, &self.used, |facts| self.policy.decide(facts))
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

    fn begin(&mut self, call: &Recorded) -> Awaited {
        let charges: Vec<Charge> = match self.judge(call) {
            Verdict::Allow(grant) => grant.charges,
            Verdict::Ask(question) => question.grant.charges,
            Verdict::Deny(_) => Vec::new(),
        };
        for charge in charges {
            let window = self.used.windows.entry((charge.rule, call.agent.clone())).or_default();
            window.take(&charge, call.at_ms);
        }
        let reach = self.policy.reach();
        if !reach.session && !reach.lasting {
            return Awaited::default();
        }
        let policy = self.policy.clone();
        let nothing = crate::facts::NoRates;
        call.with_facts(Past::default(), &nothing, |facts| {
            policy.begin(facts, true, self.notes(&call.session, &call.agent)).unwrap_or_default()
        })
    }
}
