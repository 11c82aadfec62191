//! The session of one request: what it may use, what it has received, what it has done.

mod flow;
mod grounds;
mod meant;
mod proposed;
mod quarantine;
mod readers;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;

use crate::flow::DerivedFrom;
use crate::infer;
use crate::intent::{self, Intent};
use crate::labels::{Cleared, FieldLabels};
use crate::plan::{Plan, PlanError, ProposedStep};
use crate::records::{self, Extreme};
use crate::ruling::{ArgumentOrigin, Point, Ruling, Stance, quoted};
use crate::said::{self, Argument, CallArguments};
use crate::stored::StoredLabel;
use crate::text;
use crate::transcript::{ReceivedOutput, Transcript};
use flow::Results;
use quarantine::Quarantine;
pub use quarantine::Reading;

/// The number of a call in the ledger or the host.
pub type CallId = u64;

/// Maximum tools of a session.
const TOOLS_MAX: usize = 4_096;
/// Maximum effects that are remembered to detect repetitions.
const ACTS_MAX: usize = 10_000;

/// What a trusted planner, an operator or the host derived from the request before any tool ran.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trusted {
    /// The only tools that the request needs.
    pub tools: Option<BTreeSet<String>>,
    /// The only steps that the request needs.
    pub plan: Option<Plan>,
    /// Without a host plan: proposes one from the words of the request, and from steps of a model that read nothing else.
    pub propose: Option<Vec<ProposedStep>>,
}

/// Why a session can't begin or change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// Too many tools.
    #[error("a session has at most {TOOLS_MAX} tools")]
    TooManyTools,
    /// Untrusted input was already received, so the plan may be an outsider's.
    #[error("a plan must precede the first untrusted input")]
    TooLate,
    /// Wider than the active set of tools.
    #[error("the tool `{0}` is not among the active ones: a session can only be narrowed")]
    WiderTools(String),
    /// An invalid or wider plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// A request and everything received since.
#[derive(Debug, Default)]
pub struct Session {
    /// Shared by sessions that begin with the same tools.
    tools: Arc<HashMap<String, FieldLabels>>,
    allowed: Option<BTreeSet<String>>,
    plan: Option<Planned>,
    transcript: Transcript,
    /// Results that flow reports can name.
    results: Results,
    quarantine: Quarantine,
    /// The extremes ("largest", "latest") that the request names.
    ends: Vec<Extreme>,
    intent: Intent,
    /// Effects that were performed or are running, with the number of calls.
    acts: HashMap<u64, u32>,
    /// The turn of the active plan: a ruling by an earlier plan takes no step of this one.
    turn: u32,
}

#[derive(Debug)]
struct Planned {
    plan: Plan,
    used: Vec<bool>,
    /// Whether the plan was proposed: calls outside it are judged as without a plan.
    is_proposed: bool,
}

/// The result of a call.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The call.
    pub call: CallId,
    /// Its tool.
    pub tool: &'a str,
    /// Its output.
    pub output: &'a Value,
    /// Whether it reports that it had no effect.
    pub failed: bool,
    /// The exact arguments that an operator approved.
    pub agreed: Option<&'a Value>,
    /// Output fields that a policy rule declassifies.
    pub cleared: Option<&'a Cleared>,
    /// How much of the output the agent reads.
    pub reading: Reading,
}

impl Session {
    /// Begins a session with the trusted request, the available tools, and the trusted plan, if any.
    pub fn begin(
        request: &str,
        tools: HashMap<String, FieldLabels>,
        trusted: Trusted,
    ) -> Result<Self, SessionError> {
        Self::begin_with(request, Arc::new(tools), trusted)
    }

    /// Like `begin`, with shared tools.
    pub(crate) fn begin_with(
        request: &str,
        tools: Arc<HashMap<String, FieldLabels>>,
        trusted: Trusted,
    ) -> Result<Self, SessionError> {
        if tools.len() > TOOLS_MAX {
            return Err(SessionError::TooManyTools);
        }
        let mut new = Self { tools, ..Self::default() };
        new.say(request);
        if new.tools.values().any(|labels| labels.inferred) {
            new.taint_by_descriptions();
        }
        new.give(trusted, request);
        Ok(new)
    }

    /// Taints the session with tool descriptions, which are untrusted unless the tool's labels are declared.
    fn taint_by_descriptions(&mut self) {
        self.transcript.taint();
        self.results.describe();
    }

    /// Adds the tools of a later turn. A known tool keeps its labels, because its earlier output was labelled by them.
    pub fn add_tools(&mut self, tools: HashMap<String, FieldLabels>) -> Result<(), SessionError> {
        let new: Vec<_> = tools.into_iter().filter(|(name, _)| !self.tools.contains_key(name)).collect();
        if self.tools.len().saturating_add(new.len()) > TOOLS_MAX {
            return Err(SessionError::TooManyTools);
        }
        if new.iter().any(|(_, labels)| labels.inferred) {
            self.taint_by_descriptions();
        }
        Arc::make_mut(&mut self.tools).extend(new);
        Ok(())
    }

    /// Approximate memory use without the tools.
    pub fn bytes(&self) -> usize {
        let acts = self.acts.len().saturating_mul(16);
        self.transcript.bytes().saturating_add(acts)
    }

    /// Adds a message of the user.
    fn say(&mut self, request: &str) {
        let words = text::words(request);
        self.ends.extend(records::ends_in(&words));
        self.intent.add_message(request);
        self.transcript.say(request);
    }

    /// Begins another turn of the conversation. The old plan and tool list no longer apply; earlier input stays. The turn may bring its own
    /// plan and tools, as long as no untrusted input was received.
    pub fn next_turn(&mut self, request: &str, trusted: Trusted) -> Result<(), SessionError> {
        if self.transcript.is_tainted() && trusted.plan.is_some() {
            return Err(SessionError::TooLate);
        }
        // "The largest" of the previous turn no longer applies.
        self.ends.clear();
        self.say(request);
        self.turn = self.turn.saturating_add(1);
        self.give(trusted, request);
        Ok(())
    }

    /// Activates the plan and tools of a turn.
    fn give(&mut self, Trusted { tools, plan, propose }: Trusted, request: &str) {
        self.allowed = tools;
        self.plan = match plan {
            Some(plan) => Some(Planned::new(plan)),
            // A later turn may propose too: only the request supports a step.
            None => propose
                .map(|steps| Planned { is_proposed: true, ..Planned::new(self.proposal(request, &steps)) }),
        };
    }

    /// The active plan.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref().map(|planned| &planned.plan)
    }

    /// Everything received.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Narrows what the session may do. Before any untrusted input a first plan may be given; nothing is ever widened.
    pub fn narrow(&mut self, trusted: Trusted) -> Result<(), SessionError> {
        if let (Some(new), Some(old)) = (&trusted.tools, &self.allowed)
            && let Some(tool) = new.iter().find(|tool| !old.contains(*tool))
        {
            return Err(SessionError::WiderTools(tool.clone()));
        }
        // A proposed plan can't be narrowed.
        let made = self.plan.as_ref().filter(|planned| !planned.is_proposed);
        if self.transcript.is_tainted() && made.is_none() && trusted.plan.is_some() {
            return Err(SessionError::TooLate);
        }
        if let (Some(new), Some(old)) = (&trusted.plan, made)
            && let Some(error) = new.beyond(&old.left())
        {
            return Err(error.into());
        }
        if let Some(tools) = trusted.tools {
            self.allowed = Some(tools);
        }
        if let Some(plan) = trusted.plan {
            self.turn = self.turn.saturating_add(1);
            self.plan = Some(Planned::new(plan));
        }
        Ok(())
    }

    /// Whether there is a tool of this name.
    pub fn knows(&self, tool: &str) -> bool {
        self.tools.contains_key(tool)
    }

    pub(crate) fn labels_of(&self, tool: &str) -> Option<&FieldLabels> {
        self.tools.get(tool)
    }

    /// Whether anything untrusted was received.
    pub fn is_tainted(&self) -> bool {
        self.transcript.is_tainted()
    }

    /// Whether the user named a value in full.
    pub fn is_named(&self, value: &str) -> bool {
        self.transcript.is_in_request(value)
    }

    /// Rules on a call that may have been computed from anything received so far. Changes nothing.
    pub fn rule(&self, tool: &str, args: &Value) -> Ruling {
        self.rule_derived(tool, args, None, &[])
    }

    /// Rules on a call with a flow report. The arguments `free` have no relevant effect, regardless of their origin.
    pub fn rule_derived(
        &self,
        tool: &str,
        args: &Value,
        report: Option<&DerivedFrom>,
        free: &[&str],
    ) -> Ruling {
        let Some(labels) = self.tools.get(tool) else {
            let reason = format!("unknown tool `{}` in this session", tool.escape_debug());
            return Ruling::new(Point::deny("provenance.unknown_tool", reason));
        };
        let said = self.said(tool, labels, args).without(free);
        if labels.local && said.sinks().next().is_none() {
            return Ruling { swayed: self.transcript.is_tainted(), ..Ruling::new(Point::fine()) };
        }
        let unswayed = match self.unswayed(report, &said) {
            Ok(unswayed) => unswayed,
            Err(refused) => return Ruling::new(refused),
        };
        let is_open = |argument: &Argument<'_>| !self.may_tell(labels, argument, report);
        let by_grounds = || {
            let is_fine = |argument: &Argument<'_>| unswayed.has(argument) && is_open(argument);
            self.by_grounds_but(tool, labels, &said, unswayed.call, is_fine)
        };
        let mut ruling = match &self.plan {
            Some(planned) if planned.is_proposed => {
                self.by_proposal(planned, tool, labels, &said, by_grounds)
            }
            Some(planned) => {
                let ruling = self.by_plan(planned, tool, labels, &said);
                let is_fine = unswayed.is_all(&said) && said.arguments.iter().all(is_open);
                if is_fine { ruling.waived() } else { ruling }
            }
            None => Ruling::new(by_grounds()),
        };
        (ruling.swayed, ruling.is_ours) = (!unswayed.is_all(&said), unswayed.call);
        let is_needed = self.allowed.as_ref().is_none_or(|allowed| allowed.contains(tool));
        if !is_needed && labels.acts() && !unswayed.call {
            ruling.tighten(Point::ask(
                "provenance.not_needed",
                format!("`{tool}` is not needed for this request"),
            ));
        }
        ruling.tighten(self.is_for_readers(labels, &said));
        let also = said.content().filter(|one| labels.also_sinks.contains(one.name) && !unswayed.has(one));
        also.for_each(|argument| ruling.tighten(self.is_grounded(tool, argument)));
        // File changes may be repeated.
        if labels.acts() && !labels.local {
            ruling.acts = acts_of(tool, &said);
        }
        ruling.found = self.found(&said);
        ruling.turn = self.turn;
        self.explain(&mut ruling, &said);
        if let Some(why) = unswayed.contradiction.filter(|_| ruling.stance != Stance::Allow) {
            ruling.reason = format!("{}; {why}", ruling.reason);
        }
        ruling
    }

    /// Splits a call. Unlisted argument names count if they may reveal received data.
    pub(crate) fn said<'v>(&self, tool: &str, labels: &'v FieldLabels, args: &'v Value) -> CallArguments<'v> {
        let may_tell = self.transcript.may_tell_secrets(self.transcript.open());
        let mut said = CallArguments::new(labels, args);
        // What is new affects no one else: an event without guests is the agent's own.
        match self.transcript.is_tainted() {
            false => said = said.without_unset(),
            true if intent::only_creates(tool) => {}
            true => said.demand_target(labels, args),
        }
        said.without_names(|name| {
            let is_plain = name.text.chars().all(|c| c.is_alphabetic() || c == '_');
            let is_usual = infer::is_usual_argument(&name.text);
            is_usual || (is_plain && !may_tell && self.transcript.seen(&name.words).sources == 0)
        })
    }

    /// Prefixes the reason with the worst value in question and its origin.
    fn explain(&self, ruling: &mut Ruling, said: &CallArguments<'_>) {
        let about = said.arguments.iter().find(|argument| ruling.about.as_deref() == Some(argument.name));
        let worst = about.and_then(|argument| {
            let leaves = argument.leaves.iter();
            let leaves = leaves.map(|leaf| (self.transcript.origin_of_leaf(argument, leaf), leaf));
            leaves.max_by(|(one, _), (other, _)| one.cmp(other))
        });
        if ruling.stance == Stance::Ask {
            ruling.quote =
                self.transcript.quote(worst.as_ref().map(|(_, leaf)| *leaf), self.quarantine.unread());
        }
        if let Some(unset) = about.filter(|argument| argument.is_unset) {
            let name = quoted(unset.name);
            ruling.reason =
                format!("`{name}` is empty, and that may mean everything or everyone: {}", ruling.reason);
        } else if let (Some(argument), Some((origin, leaf))) = (about, worst) {
            let (name, value) = (quoted(argument.name), quoted(&leaf.text));
            let whence = if origin == crate::Origin::Nowhere {
                "which was chosen by the model (it is in neither the request nor a tool result)".to_owned()
            } else {
                format!("which is from {origin}")
            };
            ruling.reason = format!("`{name}` is \"{value}\", {whence}: {}", ruling.reason);
        }
    }

    /// Takes the planned step of a ruling and claims the call's effect. If two calls were judged concurrently, one gets the step, and the
    /// other must be judged again.
    pub fn take(&mut self, ruling: &Ruling) -> bool {
        let is_unplanned = ruling.stance == Stance::Allow && ruling.step.is_none();
        let is_repeated = is_unplanned && self.is_done(&ruling.acts);
        // The user's own program may repeat its calls.
        let is_taken = (ruling.is_ours || !is_repeated)
            && self.slot(ruling).is_none_or(|used| !std::mem::replace(used, true));
        if is_taken {
            self.count(ruling, |calls| calls.saturating_add(1));
        }
        is_taken
    }

    /// Gives back a [taken](Self::take) step of a call that never ran.
    pub fn give_back(&mut self, ruling: &Ruling) {
        if let Some(used) = self.slot(ruling) {
            *used = false;
        }
        self.count(ruling, |calls| calls.saturating_sub(1));
    }

    /// Whether a call has this effect already, or is about to. After too many effects, everything counts as done.
    fn is_done(&self, acts: &BTreeSet<u64>) -> bool {
        let is_done = |act: &u64| self.acts.get(act).is_some_and(|calls| *calls > 0);
        !acts.is_empty() && (self.acts.len() >= ACTS_MAX || acts.iter().any(is_done))
    }

    fn count(&mut self, ruling: &Ruling, change: impl Fn(u32) -> u32) {
        for act in &ruling.acts {
            if self.acts.len() < ACTS_MAX || self.acts.contains_key(act) {
                let calls = self.acts.entry(*act).or_default();
                *calls = change(*calls);
            }
        }
    }

    /// The used flag of a ruling's step, if it belongs to the active plan.
    fn slot(&mut self, ruling: &Ruling) -> Option<&mut bool> {
        let step = ruling.step.filter(|_| ruling.turn == self.turn)?;
        self.plan.as_mut()?.used.get_mut(step)
    }

    /// Receives the result of the call that `ruling` was about. Execution consumes a step, but a failed call may be repeated. Returns the
    /// fields whose labels were lowered, for the ledger.
    pub fn observe(&mut self, ruling: Option<&Ruling>, observed: &Observed<'_>) -> Cleared {
        self.observe_stored(ruling, observed, &StoredLabel::default())
    }

    /// [`observe`](Self::observe) for an output that was read from a store, with the stored label.
    pub fn observe_stored(
        &mut self,
        ruling: Option<&Ruling>,
        observed: &Observed<'_>,
        stored: &StoredLabel,
    ) -> Cleared {
        if let Some(ruling) = ruling {
            if let Some(used) = self.slot(ruling) {
                *used = !observed.failed;
            }
            // A host that takes nothing in advance has still performed the call.
            let now = |calls: u32| if observed.failed { calls.saturating_sub(1) } else { calls.max(1) };
            self.count(ruling, now);
        }
        let Observed { call, tool, output, failed, agreed, cleared, reading } = *observed;
        self.agree(tool, agreed);
        let nothing = Cleared::default();
        let swayed = ruling.map_or(self.transcript.is_tainted(), |ruling| ruling.swayed);
        // The text of a failure is untrusted: it may quote anything.
        let worst = FieldLabels::worst(&Value::Null);
        let (labels, cleared) = match self.tools.get(tool) {
            Some(labels) if !failed => (labels, cleared.unwrap_or(&nothing)),
            Some(_) | None => (&worst, &nothing),
        };
        let is_read = reading == Reading::Whole;
        let stored = self.quarantine.label_of(reading, labels, stored);
        let labels = &*labels.at_least(&stored);
        let mut hearing =
            self.transcript.add_output(&ReceivedOutput { call, tool, labels, output, cleared, is_read });
        let cleared = std::mem::take(&mut hearing.cleared);
        let is_confidential = labels.is_confidential();
        self.quarantine(reading, ruling, &hearing);
        self.results.add(call, swayed, is_confidential, hearing);
        cleared
    }

    /// Trusts the targets in approved arguments from here on.
    fn agree(&mut self, tool: &str, agreed: Option<&Value>) {
        let Some(labels) = self.tools.get(tool) else { return };
        for (name, value) in agreed.and_then(Value::as_object).into_iter().flatten() {
            if labels.is_sink(name, value) {
                self.transcript.agree(value);
            }
        }
    }

    /// Trusts this value from now on, whatever its origin. The operator decides this.
    pub fn declassify(&mut self, value: &Value) {
        self.transcript.agree(value);
    }

    /// Records untrusted input from another channel: a message, a file, a child agent.
    pub fn taint(&mut self) {
        self.results.beside = true;
        self.transcript.taint();
    }

    fn found(&self, said: &CallArguments<'_>) -> Vec<ArgumentOrigin> {
        let of = |argument: &Argument<'_>| ArgumentOrigin {
            argument: argument.name.to_owned(),
            sink: argument.is_sink,
            origin: self.transcript.origin_of(argument),
        };
        said.arguments.iter().map(of).collect()
    }
}

impl Planned {
    fn new(plan: Plan) -> Self {
        Self { used: vec![false; plan.steps.len()], plan, is_proposed: false }
    }

    /// The unused steps.
    fn left(&self) -> Plan {
        let steps = self.plan.steps.iter().zip(&self.used).filter(|(_, used)| !**used);
        Plan { steps: steps.map(|(step, _)| step.clone()).collect() }
    }
}

/// Maximum combinations of targets to distinguish; beyond that, they count as one.
const COMBINATIONS_MAX: usize = 1024;

/// The effects of a call, to detect repetitions: the tool with each target and with all of them; without a target, its content. A target
/// that was affected before is affected again, even along with others.
fn acts_of(tool: &str, said: &CallArguments<'_>) -> BTreeSet<u64> {
    let spelt = |leaf: &said::Leaf| match leaf.words.as_slice() {
        [word] if text::is_number(word) => {
            word.parse::<f64>().map_or(word.clone(), |number| number.to_string())
        }
        words => words.join(" "),
    };
    let hash = |affected: &BTreeSet<String>| {
        let mut hasher = DefaultHasher::new();
        (tool, affected).hash(&mut hasher);
        hasher.finish()
    };
    let names_somebody = said.sinks().next().is_some();
    let affected = said.arguments.iter().filter(|argument| argument.is_sink || !names_somebody);
    let by_argument: Vec<BTreeSet<String>> =
        affected.map(|argument| argument.leaves.iter().map(spelt).collect()).collect();
    // A target counts once, whatever the argument and the number of mentions.
    let all: BTreeSet<String> = by_argument.iter().flatten().cloned().collect();
    let mut acts = BTreeSet::from([hash(&all)]);
    let count = by_argument.iter().fold(1_usize, |count, one| count.saturating_mul(one.len().max(1)));
    if names_somebody && count <= COMBINATIONS_MAX {
        let mut combinations = vec![BTreeSet::new()];
        for one in by_argument.iter().filter(|one| !one.is_empty()) {
            let with = |so_far: &BTreeSet<String>| {
                let so_far = so_far.clone();
                one.iter().map(move |leaf| &so_far | &BTreeSet::from([leaf.clone()])).collect::<Vec<_>>()
            };
            combinations = combinations.iter().flat_map(with).collect();
        }
        acts.extend(combinations.iter().map(hash));
    }
    acts
}
