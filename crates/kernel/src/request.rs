//! The request that an agent works on, and the origin of everything that the agent has received since. The rules are in
//! `regent-provenance`; the kernel applies them: it rules in step 1, narrows in step 2 and observes output in step 6.

mod aside;
mod offer;
mod results;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_guard::Kinds;
use regent_policy::{Declassified, Integrity, Label, Layer, Question, Reason, RuleRef, Tier, Verdict};
use regent_provenance::{
    Begin, Cleared, History, Observed, Origin, Reading, Resumable, Ruling, SessionError, Stance, StoredLabel,
    Trusted,
};
use regent_wire::result::{Begun, LabelLowered};
use serde_json::{Value, json};

use crate::agent::AgentId;
use crate::call::{Call, HostCall, Op};
use crate::catalogue::{DriverKind, SideEffect, Tool, ToolSpec};
use crate::executor::RawOutput;
use crate::facts::{Sheet, refusal};
use crate::kernel::Core;
use crate::reach;
use crate::stores::StoreUse;
use crate::syscall::{Frame, Labelled, Outcome, Status};
use aside::StoredSession;
pub use aside::{Aside, RequestSize, Saved};
pub(crate) use offer::{Offer, Offers};
use results::Results;

/// What an agent and its children work on together; nothing before a request has begun.
#[derive(Debug, Clone, Default)]
pub(crate) struct Work(Arc<Mutex<Option<Working>>>);

#[derive(Debug)]
struct Working {
    request: String,
    session: StoredSession,
    /// The tools that later turns have brought.
    later: Vec<Arc<Offer>>,
    /// The first untrusted input, described for reviewers.
    misled_by: Option<String>,
    results: Results,
}

impl Working {
    /// The same request again narrows what it may do; another one is the person's next turn, which may bring tools of its own.
    fn go_on(&mut self, request: &str, offer: Arc<Offer>, trusted: Trusted) -> Result<Begun, SessionError> {
        if self.request == request {
            self.session.narrow(trusted)?;
            return Ok(Begun::Narrowed { narrowed: true });
        }
        if self.session.is_tainted() && trusted.plan.is_some() {
            return Err(SessionError::TooLate);
        }
        let new = offer.tools.keys().filter(|name| self.tool(name).is_none());
        let labels = new.filter_map(|name| Some((name.clone(), offer.labels.get(name)?.clone()))).collect();
        self.session.add_tools(labels)?;
        self.session.next_turn(request, trusted)?;
        self.later.push(offer);
        request.clone_into(&mut self.request);
        Ok(Begun::Turn { plan: json!(self.session.session().plan()), turn: true })
    }

    /// A tool that the host performs. One that it has brought again is the one that it brought first.
    fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        let mut offers = std::iter::once(self.session.offer()).chain(self.later.iter().map(|offer| &**offer));
        offers.find_map(|offer| offer.tools.get(name).cloned())
    }
}

impl Work {
    /// Gives a planned step back that was taken by a call which never ran.
    pub(crate) fn give_back(&self, ruling: &Ruling) {
        if let Some(working) = self.get().as_mut() {
            working.session.give_back(ruling);
        }
    }

    /// Whether a request has begun.
    pub(crate) fn is_begun(&self) -> bool {
        self.get().is_some()
    }

    /// Whether a file that runs later is out of reach of a program: the person hasn't named it.
    pub(crate) fn holds_back(&self, path: &str) -> bool {
        regent_guard::kinds_of(path).intersects(Kinds::RUN_LATER) && !self.names(path)
    }

    /// Whether the request names this, as a whole. False without a request.
    pub(crate) fn names(&self, value: &str) -> bool {
        self.get().as_ref().is_some_and(|working| working.session.session().is_named(value))
    }

    /// The label of what a call has written into a store. Unknown without a request.
    pub(crate) fn stored_label(
        &self,
        tool: &str,
        args: &Value,
        ruling: Option<&Ruling>,
        wrote: &[String],
    ) -> StoredLabel {
        let working = self.get();
        let session = working.as_ref().map(|working| working.session.session());
        session.map_or_else(StoredLabel::worst, |session| session.stored_label(tool, args, ruling, wrote))
    }

    /// Whether the agent has received untrusted input.
    pub(crate) fn is_tainted(&self) -> bool {
        self.get().as_ref().is_some_and(|working| working.session.is_tainted())
    }

    /// What it is, back in memory.
    fn get(&self) -> MutexGuard<'_, Option<Working>> {
        let mut working = self.lock();
        if let Some(working) = working.as_mut() {
            working.session.come_back();
        }
        working
    }

    /// What it is, in memory or not.
    fn lock(&self) -> MutexGuard<'_, Option<Working>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tool that the host of this request performs.
    pub(crate) fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        self.lock().as_ref().and_then(|working| working.tool(name))
    }
}

impl Core {
    /// The effect of [`Op::Begin`]. Who has begun can only narrow.
    pub(crate) fn begin_request(&self, agent: &AgentId, begin: &Begin) -> RawOutput {
        let Some(agent) = self.society.agents.get(agent) else {
            return RawOutput::failed("request.no_agent", "there is no such agent");
        };
        let trusted = match begin.check() {
            Ok(trusted) => trusted,
            Err(error) => return RawOutput::failed("request.invalid", error.to_string()),
        };
        let offer = match self.offers.get(&self.catalogue, &begin.tools) {
            Ok(offer) => offer,
            Err(error) => return RawOutput::failed("request.invalid", error),
        };
        let mut work = agent.life.work().get();
        if let Some(working) = work.as_mut() {
            let is_turn = working.request != begin.request;
            return match working.go_on(&begin.request, offer, trusted) {
                Ok(begun) => {
                    if is_turn {
                        agent.life.begin_request();
                    }
                    RawOutput::result(&begun)
                }
                Err(error) => RawOutput::failed("request.wider", error.to_string()),
            };
        }
        // Only a host has more requests at once than memory is for.
        let history = if begin.tools.is_empty() { History::NotKept } else { History::Kept };
        match Resumable::begin(&begin.request, Arc::clone(&offer.labels), trusted, history) {
            Ok(session) => {
                // The plan in force, also one that was proposed here: for the person to see, and for the ledger.
                let plan = session.session().plan();
                let (inferred, plan) = (offer.inferred.clone(), json!(plan));
                agent.life.begin_request();
                let begun = Begun::New { inferred, plan, tools: begin.tools.len() as u64 };
                *work = Some(Working {
                    request: begin.request.clone(),
                    session: StoredSession::new(session, offer),
                    later: Vec::new(),
                    misled_by: None,
                    results: Results::default(),
                });
                RawOutput::result(&begun)
            }
            Err(error) => RawOutput::failed("request.invalid", error.to_string()),
        }
    }

    /// The effect of [`Op::Declassify`].
    pub(crate) fn declassify(&self, agent: &AgentId, value: &Value) -> RawOutput {
        let agent = self.society.agents.get(agent);
        match agent.as_ref().map(|agent| agent.life.work().get()).as_deref_mut() {
            Some(Some(working)) => {
                working.session.declassify(value);
                RawOutput::result(&LabelLowered {})
            }
            Some(None) | None => RawOutput::failed("request.none", "the agent has no request"),
        }
    }

    /// Step 1: where the arguments come from. Uses the agent's own spelling, before paths are resolved.
    pub(crate) fn rule(&self, call: &Call, sheet: &mut Sheet, tool: &str, args: &Value) {
        let Some(life) = call.principal.life().filter(|life| life.work().is_begun()) else { return };
        let own = sheet.tool.clone().filter(|_| matches!(call.op, Op::RunTool(_)));
        let free = own.as_ref().map(|own| reach::kept_inside(sheet, own)).unwrap_or_default();
        let mut work = life.work().get();
        let Some(working) = work.as_mut() else { return };
        if let Some(own) = own.as_ref().filter(|_| !working.session.session().knows(tool)) {
            // Made since the request began. Where there is no room for another, there is no such tool.
            let _is_known = working.session.add_tools([(tool.to_owned(), own.spec().field_labels())].into());
        }
        let report = if let Op::Elsewhere(host) = &call.op
            && is_hosts(call)
        {
            host.derived_from.as_deref()
        } else {
            None
        };
        let lines = own.as_ref().map(|own| reach::in_lines(own, args));
        let mut ruling = working.session.rule_derived(tool, lines.as_ref().unwrap_or(args), report, &free);
        sheet.quote = working.results.quote(&ruling, own.is_some());
        if ruling.stance == Stance::Ask && own.is_some_and(|own| own.spec().field_labels().local) {
            let untrusted = working.results.named(&ruling).or(working.misled_by.as_deref());
            ruling.reason = reach::why(sheet, untrusted.unwrap_or("a result"));
        }
        drop(work);
        for found in &ruling.found {
            let integrity = match found.origin {
                Origin::Request => Integrity::User,
                Origin::Trusted(_) => Integrity::Tool,
                Origin::Untrusted(_) | Origin::Nowhere => Integrity::Web,
            };
            let pointer = format!("/{}", found.argument.replace('~', "~0").replace('/', "~1"));
            sheet.labels.fields.insert(pointer, Label { integrity, ..sheet.labels.default });
        }
        sheet.ruling = Some(ruling);
    }

    /// Takes the planned step that the ruling rests on; of two calls side by side, one gets it.
    pub(crate) fn take_step(&self, call: &Call, sheet: &mut Sheet) -> Option<Reason> {
        let (ruling, life) = (sheet.ruling.as_ref()?, call.principal.life()?);
        let taken = life.work().get().as_mut().is_none_or(|working| working.session.take(ruling));
        if taken {
            sheet.charges.step(ruling);
        }
        (!taken).then(|| refusal("plan.used_up", "another call has used the planned step".to_owned(), ""))
    }

    /// Step 6: records the origin of an output, however it arrived. Returns what rules have declassified of it.
    pub(crate) fn observe_output(
        &self,
        frame: &Frame,
        sheet: &Sheet,
        (output, status, store): (&Labelled, &Status, &Option<StoreUse>),
        rules: &[Declassified],
    ) -> Vec<Declassified> {
        let Some(life) = frame.call.principal.life() else { return Vec::new() };
        let mut work = life.work().get();
        let Some(working) = work.as_mut() else { return Vec::new() };
        // A model's words are what is judged, not what is judged by. What a quarantined reader reads, its agent doesn't.
        let is_quarantine = |outer: &Arc<Tool>| outer.spec().is_quarantine();
        if matches!(frame.call.op, Op::Infer(_)) || frame.call.within.iter().any(is_quarantine) {
            return Vec::new();
        }
        let (tool, ours) = if let Op::RunTool(run) | Op::Elsewhere(HostCall { run, .. }) = &frame.call.op {
            (run.tool.as_str(), false)
        } else {
            // The kernel's own words are trusted; what it only passes on is labelled.
            (frame.call.op.name(), output.label().integrity <= Integrity::OwnModel)
        };
        let said = self.words_of(&frame.call, status);
        if (output.bytes().is_empty() && said.is_none() && sheet.ruling.is_none()) || (ours && said.is_none())
        {
            return Vec::new();
        }
        let received = received_fields(output, said);
        // A host's report vouches for no value: only an approval makes a value trusted.
        let agreed = sheet.is_agreed().then_some(&frame.args);
        let failed = matches!(status, Status::Failed(_));
        let cleared = Cleared {
            trust: rules.iter().flat_map(|one| &one.trust).cloned().collect(),
            open: rules.iter().flat_map(|one| &one.open).cloned().collect(),
        };
        // Only complete, successful output has the fields that it declares.
        let cleared = (*status == Status::Ok).then_some(&cleared);
        let used = working.session.observe_stored(
            sheet.ruling.as_ref(),
            &Observed {
                call: frame.intent.seq,
                tool,
                output: &received,
                failed,
                agreed,
                cleared,
                reading: self.reading(&frame.call, status),
            },
            store.as_ref().and_then(StoreUse::read).unwrap_or(&StoredLabel::default()),
        );
        if let Op::RunTool(run) = &frame.call.op {
            working.results.note(frame.intent.seq, (&run.tool, &frame.args), output.label());
        }
        if working.misled_by.is_none() && working.session.is_tainted() {
            working.misled_by = Some(results::name_of(tool, &frame.args));
        }
        let really =
            |one: &Declassified| one.only(|name| used.trust.contains(name), |name| used.open.contains(name));
        rules.iter().map(really).filter(|one| !one.is_empty()).collect()
    }

    /// How much of a result the agent gets to read. The words of a failure are no typed value.
    fn reading(&self, call: &Call, status: &Status) -> Reading {
        if let Op::Elsewhere(HostCall { quarantined: true, .. }) = &call.op
            && is_hosts(call)
        {
            return Reading::Unread;
        }
        let Op::RunTool(run) = &call.op else { return Reading::Whole };
        let tool = self.catalogue.get(&run.tool).filter(|_| *status == Status::Ok);
        let is_typed = tool.is_some_and(|tool| tool.spec().is_quarantine());
        if is_typed { Reading::Typed } else { Reading::Whole }
    }

    /// What the caller has seen: nothing of others in a failure that a tool of ours tells in its own words.
    pub(crate) fn label_seen(&self, call: &Call, status: &Status, output: &Labelled) -> Label {
        let is_failure = matches!(status, Status::Failed(_)) && output.bytes().is_empty();
        if is_failure && self.words_of(call, status).is_none() {
            return Label { integrity: Integrity::System, ..output.label() };
        }
        output.label()
    }

    /// The message of a failure. Our own tools write it in our words, but may quote text of others, such as
    /// the name that a link leads to.
    pub(crate) fn words_of<'s>(&self, call: &Call, status: &'s Status) -> Option<&'s str> {
        let said = match status {
            Status::Failed(failure) => &failure.message,
            Status::Faulted(message) => message,
            Status::Ok | Status::TimedOut | Status::Cancelled => return None,
        };
        // A remote server's words come through a driver of ours, and are not ours.
        let is_ours = |tool: &ToolSpec| {
            tool.driver == DriverKind::Host
                && tool.tiers == [Tier::Host]
                && tool.effect != SideEffect::Network
        };
        if let Op::RunTool(run) = &call.op
            && quotes_only(said, &run.args)
            && self.catalogue.get(&run.tool).is_some_and(|tool| is_ours(tool.spec()))
        {
            return None;
        }
        Some(said)
    }

    /// The same for a replayed step: a task that continues in another process has received the same outputs.
    pub(crate) fn hear_again(&self, call: &Call, outcome: &Outcome) {
        let Some(life) = call.principal.life().filter(|_| !matches!(call.op, Op::Infer(_))) else { return };
        let mut work = life.work().get();
        let Some(working) = work.as_mut() else { return };
        let received = received_fields(&outcome.output, self.words_of(call, &outcome.status));
        let observed = Observed {
            call: outcome.intent.seq,
            tool: call.op.name(),
            output: &received,
            failed: matches!(outcome.status, Status::Failed(_)),
            agreed: None,
            cleared: None,
            reading: self.reading(call, &outcome.status),
        };
        if let Op::RunTool(run) = &call.op {
            let ruling = working.session.rule(&run.tool, &run.args);
            working.session.take(&ruling);
            working.results.note(outcome.intent.seq, (&run.tool, &run.args), outcome.output.label());
            working.session.observe(Some(&ruling), &Observed { tool: &run.tool, ..observed });
        }
        // Its label also covers the outputs of calls within it.
        let is_open =
            outcome.output.label().integrity > Integrity::OwnModel && observed.reading == Reading::Whole;
        if is_open && !working.session.is_tainted() {
            working.session.observe(None, &observed);
        }
        if let (None, true, Op::RunTool(run)) = (&working.misled_by, working.session.is_tainted(), &call.op) {
            working.misled_by = Some(results::name_of(&run.tool, &run.args));
        }
    }
}

/// The output, as fields if it has any, with the message of a failure, which may quote anything.
fn received_fields(output: &Labelled, said: Option<&str>) -> Value {
    let output =
        serde_json::from_slice(output.bytes()).unwrap_or_else(|_| Value::String(output.text().into_owned()));
    match said {
        Some(said) => json!([output, said]),
        None => output,
    }
}

/// Whether a message quotes nothing but what the arguments have as a whole.
pub(crate) fn quotes_only(message: &str, args: &Value) -> bool {
    let given: Vec<&str> =
        args.as_object().into_iter().flat_map(|all| all.values()).filter_map(Value::as_str).collect();
    message.split('`').skip(1).step_by(2).all(|quoted| given.contains(&quoted))
}

/// Step 2: the stricter of what policy and provenance say.
pub(crate) fn ruled(verdict: Verdict, ruling: Option<&Ruling>) -> Verdict {
    let Some(ruling) = ruling else { return verdict };
    match (ruling.stance, verdict) {
        (Stance::Allow, verdict)
        | (Stance::Ask | Stance::Deny, verdict @ Verdict::Deny(_))
        | (Stance::Ask, verdict @ Verdict::Ask(_)) => verdict,
        (Stance::Deny, _) => Verdict::Deny(refusal(
            ruling.code,
            ruling.reason.clone(),
            "do only what the request needs, with values that it names",
        )),
        (Stance::Ask, Verdict::Allow(grant)) => Verdict::Ask(Question {
            rule: RuleRef { id: "provenance".into(), layer: Layer::Builtin, line: 0 },
            reason: ruling.reason.clone(),
            grant,
            approvers: 1,
        }),
    }
}

/// Whether a host makes the call for its agent. An agent that comes with a token of its own isn't believed where its values come from, or
/// that it doesn't read a result.
fn is_hosts(call: &Call) -> bool {
    call.principal.presented().is_none()
}
