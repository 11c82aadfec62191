//! The one path that everything takes. Read this file first.
//!
//! ```text
//! call → 1 facts → 2 verdict (decide → transform → ask → reserve) → 3 intent in the ledger → 4 permit → 5 effect → 6 label → 7 outcome in the ledger
//! ```
//!
//! Branches live here; what the steps call computes and does not branch on the verdict again. "No" and "not yet" are replies;
//! only "we broke" is an error. If an intent or an outcome can't be written, the kernel takes no more calls.

mod ahead;
mod effect;
mod file_judge;
mod flow;
mod label;
mod outward;
mod permit;

use std::sync::Arc;
use std::task::Poll;

use regent_ledger::{AppendError, EntryDraft, Receipt};
use regent_policy::{ArgLabels, Grant, Label, Limits, Question, Reason, Tier, Verdict};

use crate::agent::RunningCall;
use crate::approval::{AskedQuestion, Consent, Ticket};
use crate::budget::{Reservation, Spent};
use crate::call::{Call, Op};
use crate::carried::Ahead;
use crate::evidence::{DoubtOutcome, Evidence};
use crate::executor::{BoxFuture, RawOutput};
use crate::facts::{Binding, Bound, Sheet};
use crate::journal::{Doubt, JournalLookup};
use crate::kernel::Core;
use crate::principal::Principal;
use crate::record;
use crate::stores::StoreUse;
pub use ahead::AskedAhead;
pub use file_judge::FileJudge;
pub use flow::{Channel, Chunk, Delivery, Overflow, Reading, Stream};
pub(crate) use flow::{Flow, Listener};
pub use label::{Labelled, Nonce};
pub(crate) use permit::Frame;
pub use permit::{JobControl, Permit, Suspension, tier};
pub use regent_wire::Status;

/// Nested calls (a tool asking for a file) stop here.
const DEPTH_MAX: u8 = 8;
/// Calls that are polled on the stack of the call that they are nested in.
const INLINE_DEPTH_MAX: u8 = 2;

/// The kernel's reply. Denials and pending approvals are replies, not errors.
#[derive(Debug)]
pub enum Reply {
    /// It was done, and this came of it.
    Done(Outcome),
    /// Policy, or the kernel's own rules, say no.
    Denied(Denial),
    /// An approval is needed first.
    Pending(Ticket),
}

/// The outcome of a call that was allowed.
#[derive(Debug)]
pub struct Outcome {
    /// The output, with its label.
    pub output: Labelled,
    /// How it ended.
    pub status: Status,
    /// Where the intent is in the ledger.
    pub intent: Receipt,
    /// Where the outcome is in the ledger.
    pub receipt: Receipt,
    /// What it really used.
    pub spent: Spent,
    /// What confinement was really obtained, as the ledger has it.
    pub obtained: Option<serde_json::Value>,
    /// More came back than the grant allowed; the rest was cut.
    pub truncated: bool,
    /// What policy wants the caller to hear although it allowed the call.
    pub warnings: Vec<Reason>,
}

/// A denial, and its entry in the ledger.
#[derive(Debug)]
pub struct Denial {
    /// Why, by which rule, and what to do about it.
    pub reason: Reason,
    /// Where the denied attempt is in the ledger.
    pub intent: Receipt,
}

impl Denial {
    /// Without a reviewer the question can't be answered, so the call is denied.
    fn unasked(question: Question, intent: Receipt) -> Self {
        let Question { rule, reason: message, .. } = question;
        Self {
            reason: Reason { code: "approval.unasked".into(), message, rule: Some(rule), help: None },
            intent,
        }
    }
}

/// A failure of the kernel itself.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A guest re-entered too often.
    #[error("calls are nested more than {DEPTH_MAX} deep")]
    TooDeep,
    /// The kernel has sealed itself, or is not up.
    #[error("the kernel accepts no calls: {0}")]
    NotRunning(String),
    /// The intent could not be written, so nothing was done.
    #[error("the ledger can't be written: {0}")]
    Ledger(#[from] AppendError),
    /// The call was made, but its outcome could not be recorded. To repeat it would do it twice. The ledger has its intent.
    #[error("call {}/{} was made, but its outcome can't be recorded: {why}", .intent.lane, .intent.seq)]
    Unrecorded {
        /// Where the intent is.
        intent: Receipt,
        /// Why nothing could be recorded.
        why: String,
    },
    /// What should be recorded can't be put into canonical form.
    #[error("the call can't be recorded: {0}")]
    Record(#[from] regent_ledger::CanonicalError),
    /// The executor broke or panicked. The outcome says so.
    #[error("call {intent} failed: {message}")]
    Executor {
        /// Which call.
        intent: u64,
        /// What happened.
        message: String,
    },
    /// The ledger could not be read.
    #[error("the ledger can't be read: {0}")]
    Read(#[from] regent_ledger::ReadError),
    /// A newer Regent wrote an entry that has to be read.
    #[error("the ledger can't be read: {0}")]
    Body(#[from] regent_wire::body::BodyError),
    /// State shared between processes could not be read or changed.
    #[error("the shared state can't be used: {0}")]
    State(#[from] regent_store::StateError),
    /// The call isn't the one that was recorded at this step, or it is being made already.
    #[error("step `{step}` of task `{task}` was another call, or is already running")]
    Diverged {
        /// Which task.
        task: String,
        /// Which step.
        step: String,
    },
    /// What a step gave back has been erased, so the task can't continue from it.
    #[error("the payload {0} has been erased")]
    Erased(regent_ledger::Digest),
    /// The task that ran the call was aborted with the process.
    #[error("the call was aborted")]
    TornDown,
}

/// The result of step 2.
struct Judged {
    verdict: Verdict,
    /// Set if this call became a question.
    asked: Option<AskedQuestion>,
    /// Set where the call is allowed.
    reservation: Option<Reservation>,
}

/// The kernel. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Kernel(pub(crate) Arc<Core>);

impl Kernel {
    /// Makes a system call: the only way to cause an effect. The kernel owns the running call: if the caller goes away, the call still ends with an outcome.
    ///
    /// Like every asynchronous function of the kernel's public face it returns a boxed future: an `async fn` would be compiled again, with
    /// the whole path below it, in each crate that awaits it.
    pub fn syscall(&self, caller: &Principal, op: Op) -> BoxFuture<'static, Result<Reply, Fault>> {
        Arc::clone(&self.0).owned(Call::top_level(caller, op))
    }
}

impl Core {
    /// Runs a call so that dropping the caller's future doesn't drop the call: what isn't over at the first poll continues in a task
    /// of its own. Nothing can be dropped before that, because nothing is awaited. A deeply nested call starts in its task, so that the
    /// stack doesn't grow with what guests call.
    pub(crate) fn owned(self: Arc<Self>, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        let is_deep = call.depth > INLINE_DEPTH_MAX;
        let mut running: BoxFuture<'static, _> = Box::pin(self.enter(call));
        Box::pin(async move {
            if !is_deep {
                let first = std::future::poll_fn(|context| Poll::Ready(running.as_mut().poll(context))).await;
                if let Poll::Ready(reply) = first {
                    return reply;
                }
            }
            match tokio::spawn(running).await {
                Ok(reply) => reply,
                Err(_torn_down) => Err(Fault::TornDown),
            }
        })
    }

    pub(crate) async fn enter(self: Arc<Self>, call: Call) -> Result<Reply, Fault> {
        self.admit().await?;
        if call.depth > DEPTH_MAX {
            return Err(Fault::TooDeep);
        }

        // A step of a task that was made before is answered from the ledger, and never made again.
        match self.known(&call).await? {
            JournalLookup::Answer(reply) => {
                // Hearing something again is hearing it: its label is the caller's from here on.
                if let Reply::Done(outcome) = &*reply {
                    let label = self.label_seen(&call, &outcome.status, &outcome.output);
                    self.society.agents.saw(&call, label, outcome.spent.tokens);
                    self.hear_again(&call, outcome);
                }
                Ok(*reply)
            }
            JournalLookup::Make(doubt) => self.make(call, doubt).await,
        }
    }

    /// Step 2, in this order. Each part works on the final result of the one before it, so that exactly the approved call runs.
    async fn judge(&self, call: &Call, facts: &mut Sheet, doubt: Option<Doubt>) -> Result<Judged, Fault> {
        let (mut verdict, asked) = self.consider(call, facts, doubt).await?;
        // Reserve: budgets, rates and counts are taken, not looked at; a refusal returns what was taken, an approval included.
        let mut reservation = None;
        if let Verdict::Allow(grant) = &mut verdict {
            match self.reserve(call, facts, grant).await? {
                Ok(reserved) => reservation = Some(reserved),
                Err(reason) => {
                    facts.charges.give_back().await;
                    verdict = Verdict::Deny(reason);
                }
            }
        }
        Ok(Judged { verdict, asked, reservation })
    }

    /// Step 2 as far as it takes nothing but an approval.
    async fn consider(
        &self,
        call: &Call,
        facts: &mut Sheet,
        doubt: Option<Doubt>,
    ) -> Result<(Verdict, Option<AskedQuestion>), Fault> {
        // Decide: pure.
        let mut verdict = self.decide(call, facts).await;
        // Transform: the changed call is judged again. From here on there is only the final call.
        if !verdict.transforms().is_empty() {
            verdict = self.transform(call, facts, verdict).await;
        }
        facts.doubt = doubt.filter(|doubt| !doubt.idempotent);
        // Ask: an approval counts if it was given for the digest of the final call.
        let mut asked = None;
        let denied = matches!(verdict, Verdict::Deny(_));
        if facts.doubt.is_some() && !denied {
            let bound = facts.binding().bind(&self.workspace).await;
            match self.ask_repeat(call, facts, &verdict, bound).await? {
                Some((_, Consent::Given(approved, bound))) => facts.agree(approved, bound),
                Some((question, Consent::Asked(one))) => {
                    (asked, verdict) = (Some(one), Verdict::Ask(question));
                }
                Some((_, Consent::Refused(reason))) => verdict = Verdict::Deny(reason),
                None => {}
            }
        }
        if let (Verdict::Ask(question), None) = (&verdict, &asked) {
            let bound = facts.binding().bind(&self.workspace).await;
            match self.ask(call, facts, (&verdict, question), bound).await? {
                Consent::Given(approved, bound) => {
                    facts.agree(approved, bound);
                    verdict = Verdict::Allow(question.grant.clone());
                }
                Consent::Asked(question) => asked = Some(question),
                Consent::Refused(reason) => verdict = Verdict::Deny(reason),
            }
        }
        if !matches!(verdict, Verdict::Allow(_)) {
            facts.charges.give_back().await;
        }
        Ok((verdict, asked))
    }

    /// Only the intent of a call that will run may wait for its outcome's signature.
    async fn record_judged(&self, draft: EntryDraft, verdict: &Verdict) -> Result<Receipt, Fault> {
        match verdict {
            Verdict::Allow(_) => self.recorder.allowed(draft).await,
            Verdict::Ask(_) | Verdict::Deny(_) => self.recorder.intent(draft).await,
        }
    }

    async fn make(self: Arc<Self>, call: Call, doubt: Option<Doubt>) -> Result<Reply, Fault> {
        // 1 facts: what policy may look at, whole. What can't be established is a refusal, not a guess.
        let mut facts = self.facts(&call).await?;
        // A call that a crash cut off: where its target file proves whether it took effect, no question is needed.
        let doubt = match doubt {
            Some(doubt) => match self.look(&doubt, &facts).await {
                DoubtOutcome::Done(evidence) => {
                    return self.recovered(call, facts, doubt.intent, &evidence).await;
                }
                DoubtOutcome::Unknown => Some(doubt),
                DoubtOutcome::NotDone => None,
            },
            None => None,
        };

        // 2 verdict: decide, transform, ask, reserve.
        let judged = self.judge(&call, &mut facts, doubt).await;
        let Judged { verdict, asked, reservation } = facts.unless_fault(judged).await?;

        // 3 intent: recorded before it is acted on, also when the answer is no. A crash can lose the outcome, never this.
        if let Some((evidence, foresight)) = self.foresee(&call, &facts, &verdict).await {
            (facts.evidence, facts.foresight) = (Some(evidence), foresight);
        }
        let draft = record::intent(&self.stamp(&facts), &call, &facts, &verdict, asked.as_ref())?;
        let recorded = self.record_judged(draft, &verdict).await;
        let intent = facts.unless_fault(recorded).await?;
        self.step_begun(&call, intent, verdict.denied(), asked.is_some());
        let noted = self.note_lane(&call, intent.lane).await.map_err(Fault::from);
        let grant = match (verdict, asked) {
            (Verdict::Allow(grant), _) => grant,
            (Verdict::Deny(reason), _) => {
                self.suspend_for(&call, &reason).await?;
                self.count_denial(&call, &reason).await?;
                return Ok(Reply::Denied(Denial { reason, intent }));
            }
            (Verdict::Ask(_), Some(asked)) => return Ok(Reply::Pending(self.pending(asked, intent).await?)),
            (Verdict::Ask(question), None) => return Ok(Reply::Denied(Denial::unasked(question, intent))),
        };

        // 4 permit and 5 effect: the permit borrows this frame, so it can't outlive the call it was minted for.
        let running = self.society.calls.enter(call.principal(), intent.seq, facts.program());
        let agreed_to = facts.take_agreed();
        let agreed_trees = agreed_to.as_ref().map(|(bound, _)| bound.trees.clone()).unwrap_or_default();
        let floor = grant
            .result
            .map_or(facts.output_floor(), |at_least| facts.output_floor().join(label::at_least(at_least)));
        let (agreed, targets) = (facts.is_agreed(), facts.take_targets());
        let (core, limits) = (Arc::clone(&self), (grant.limits, floor));
        let frame = Frame::new(core, call, &mut facts, targets, limits, (intent, running.cancel()));
        let rule_wall_ms_max = grant.rule_wall_ms_max;
        let frame = Frame { agreed, agreed_trees, rule_wall_ms_max, ..frame };
        let deadline = effect::Deadline::start();
        let ready = self.ready(&frame, &facts, grant.tier, (noted, agreed_to));
        let ready = deadline.meets(&frame, ready).await;
        // Only now is it certain that the call runs.
        *frame.held.lock().await = facts.spend(reservation, ready.is_ok()).await;
        let (ended, ahead) = match ready {
            Ok(ahead) => (effect::perform(&frame, grant.tier, deadline).await, ahead),
            Err(ended) => (ended, Ahead::default()),
        };
        self.conclude(frame, facts, Some(grant), (ended, ahead), running).await
    }

    /// What comes before the effect and may refuse it. Gives how a call ends that never runs.
    async fn ready(
        &self,
        frame: &Frame,
        facts: &Sheet,
        tier: Tier,
        (noted, agreed_to): (Result<(), Fault>, Option<(Bound, Binding)>),
    ) -> Result<Ahead, effect::Ended> {
        let refused = |raw| effect::Ended::Itself(Ok(raw));
        let ahead = match noted {
            Ok(()) => self.carry_ahead(frame, facts, tier).await,
            Err(fault) => Err(fault),
        };
        let ahead = match ahead {
            Ok(Ok(ahead)) => ahead,
            Ok(Err(raw)) => return Err(refused(raw)),
            Err(fault) => return Err(refused(RawOutput::failed("label.unnoted", fault.to_string()))),
        };
        // All of this took time: the files that an approval is bound to are compared last.
        match self.stale(agreed_to).await {
            Some(raw) => Err(refused(raw)),
            None => Ok(ahead),
        }
    }

    /// Steps 6 and 7 of a call that took effect before a crash. It was judged then, and its intent is in the ledger: only its outcome is
    /// owed.
    async fn recovered(
        self: Arc<Self>,
        call: Call,
        mut facts: Sheet,
        intent: Receipt,
        evidence: &Evidence,
    ) -> Result<Reply, Fault> {
        self.note_lane(&call, self.recorder.ledger.head().lane).await?;
        self.recorder.unended.resumed(&intent);
        self.await_again(&call, &mut facts);
        let running = self.society.calls.enter(call.principal(), intent.seq, facts.program());
        let (core, limits) = (Arc::clone(&self), (Limits::default(), facts.output_floor()));
        let frame =
            Frame::new(core, call, &mut facts, evidence.targets(), limits, (intent, running.cancel()));
        let ended = (effect::Ended::Itself(Ok(evidence.output())), Ahead::unknown(&frame, &facts));
        self.conclude(frame, facts, None, ended, running).await
    }

    /// What follows from an effect, however it came about. Without a grant nothing is declassified.
    async fn conclude(
        &self,
        frame: Frame,
        facts: Sheet,
        grant: Option<Grant>,
        (ended, ahead): (effect::Ended, Ahead),
        running: RunningCall,
    ) -> Result<Reply, Fault> {
        // 6 label: no byte of the output was readable until here, and no revealed secret is in it after.
        let (mut status, mut raw) = ended.into_parts();
        let (flowed_masked, delivered) = frame.flow.finish(&*self.secrets, &mut raw);
        let masked = label::mask(&*self.secrets, &mut status, &mut raw) | flowed_masked;
        let truncated = raw.cut_to(frame.limits.output_bytes_max);
        let (spent, obtained, breach) = (raw.spent, raw.obtained.take(), raw.breach.take());
        raw.raise(grant.as_ref().and_then(|grant| grant.result).map(label::at_least));
        // What policy withholds was done all the same: whatever follows from the effect follows from how it ended.
        let performed = status.clone();
        let warned = self.review(&frame, &facts, &mut status, &mut raw);
        let tier = grant.as_ref().map(|grant| grant.tier);
        let labelled = self.carry(&frame, &facts, &performed, (tier, &ahead)).await;
        let carried = self.carried(&frame, &raw.read).await;
        let carried = carried.map(|read| read.into_iter().chain(ahead.seen).reduce(Label::join));
        let store = StoreUse::take(&mut raw, &frame, &facts);
        raw.raise(carried.as_ref().map_or(Some(ArgLabels::default().default), |label| *label));
        let obtained = label::with_carried(obtained, carried.as_ref().ok().copied().flatten(), &store);
        let output = Labelled::new(raw, facts.output_floor(), masked);
        frame.flow.release(&output);
        let declassify = grant.as_ref().map_or(&[][..], |grant| &grant.declassify);
        let declassified = self.observe_output(&frame, &facts, (&output, &performed, &store), declassify);

        // 7 outcome: its cost, the confinement obtained, the digest of the output.
        let settled = frame.settle(spent).await;
        let ending = record::Ending {
            status: &status,
            output: &output,
            obtained: &obtained,
            delivered: &delivered,
            spent: settled,
            declassified: &declassified,
            truncated,
        };
        // From here on the effect has happened: whatever fails is never reported as "nothing was done".
        let unrecorded = |why: String| {
            let reported = match &performed {
                Status::Failed(failure) => format!("; the tool reported: {}", failure.message),
                Status::Ok | Status::TimedOut | Status::Cancelled | Status::Faulted(_) => String::new(),
            };
            Fault::Unrecorded { intent: frame.intent, why: format!("{why}{reported}") }
        };
        let draft = record::outcome(&self.stamp(&facts), &frame, &ending)
            .inspect_err(|error| self.recorder.seal(error));
        let draft = draft.map_err(|error| unrecorded(error.to_string()))?;
        let receipt = self.record_outcome(draft, frame.intent).await;
        let receipt = receipt.map_err(|error| unrecorded(error.to_string()))?;
        breach.iter().for_each(|breach| self.recorder.seal(breach));
        // A file is there whose label is lost: nobody may read it as if it had none.
        let labelled = labelled.inspect_err(|fault| self.recorder.seal(fault));
        self.society.agents.saw(&frame.call, self.label_seen(&frame.call, &performed, &output), spent.tokens);
        let noted = self.note_end(&frame.call, &facts, output.label(), performed == Status::Ok).await;
        if performed == Status::Ok && !frame.agreed {
            // What can't be noted of its trust costs the agent a step, and nobody the result.
            let _stays_lower = self.regain_trust(&frame.call).await.is_err();
        }
        // Only now is it over: a shutdown waits for this.
        drop(running);
        noted.map_err(|fault| unrecorded(fault.to_string()))?;
        labelled.and(carried).map_err(|error| unrecorded(error.to_string()))?;
        if let Status::Faulted(message) = status {
            return Err(Fault::Executor { intent: frame.intent.seq, message });
        }
        let warnings = [grant.map_or_else(Vec::new, |grant| grant.warnings), warned].concat();
        let intent = frame.intent;
        let outcome = Outcome { output, status, intent, receipt, spent, obtained, truncated, warnings };
        self.step_ended(&frame.call, &outcome);
        Ok(Reply::Done(outcome))
    }
}
