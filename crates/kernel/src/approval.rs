//! Where the path meets people: an approval that was given makes an ask an allow; else the question is put, within limits.
//!
//! `question` says what questions and answers are, `questions` keeps them, and `attention` slows hasty approvals. An approval is for one
//! [`CallDigest`](crate::CallDigest): who asks (agents by their key), what with which arguments, where, and what the files hold that the call
//! names or runs. If any of that changes it is another call, and another question. The files are compared again when the call is about to run.

mod attention;
mod posed;
mod question;
mod questions;
mod summary;
#[cfg(test)]
mod tests;
mod waiting;

use std::sync::Arc;

use regent_ledger::{Digest, Receipt};
use regent_policy::{Charge, Cover, Layer, Question, Reason, RuleId, RuleRef, Verdict};
use regent_provenance::Ruling;
use regent_store::{State, StateError};
use serde_json::{Value, json};

use crate::budget::Spent;
use crate::call::{Call, CallDigest, Op};
use crate::executor::{BoxFuture, ExecuteError, RawOutput};
use crate::facts::{Binding, Bound, Sheet, TreeState};
use crate::kernel::Core;
use crate::outlast::outlasting;
use crate::principal::Principal;
use crate::rate::Rates;
use crate::recovery::InDoubt;
use crate::syscall::{Fault, Kernel};
pub use attention::Attention;
pub use question::{Answered, Approved, BoundFile, LedgerPlace, OpenQuestion, Traced, UNIDENTIFIED};
use question::{Asker, QuestionDraft};
use questions::{AnswerResult, Consulted, Questions};
use regent_wire::result::AnswerTaken;
pub use regent_wire::result::{SkipReason, Skipped};
pub use regent_wire::{ApprovalAnswer, Scope, TicketId, Voice};
use waiting::Waiting;

/// How many questions one session may put within a minute for the same cause.
const NEW_PER_MINUTE_MAX: u32 = 20;
/// No rule has this number by chance: it is for the count of questions alone.
const QUESTIONS: Charge = Charge { rule: RuleId(u64::MAX), limit: NEW_PER_MINUTE_MAX, window_ms: 60_000 };
/// The same for all causes together, so that an agent can't ask without end by finding new causes.
const ALL_QUESTIONS: Charge = Charge { limit: NEW_PER_MINUTE_MAX * 3, ..QUESTIONS };
const TOO_MANY: &str = "one answer can name 64 questions: answer them in parts";
/// What a reviewer must know of a call without a recorded end.
const IN_DOUBT: &str = "it may or may not have happened; an approval runs it again, a denial skips it and the work continues without it";
/// The rule of questions about calls that may have happened.
const RECOVERY: &str = "recovery";
/// Letters of the digest that questions of one cause share.
const BATCH_LETTERS: usize = 16;
/// The code of a denial because no reviewer was available. Nobody denied the call.
pub const UNATTENDED: &str = "approval.unattended";
/// A waiter looks again after this long at the latest: the wall clock can be set, and a question expires by it.
const LOOK_MS_MAX: u64 = 60 * 60 * 1000;
/// Records that one sweep removes at most.
const SWEPT_MAX: usize = 256;

/// A question that was asked. The ledger has its id; its text belongs to the call and can be erased.
#[derive(Debug, Clone)]
pub struct AskedQuestion {
    /// Its id.
    pub id: TicketId,
    /// The first question of its cause, if it was put with that one.
    pub with: Option<TicketId>,
    /// All of it.
    pub question: Box<OpenQuestion>,
}

/// The result of asking for consent.
pub(crate) enum Consent {
    /// An approval covers exactly this call and these files; a one-time approval is now used up.
    Given(Approved, Bound),
    /// The question is pending.
    Asked(AskedQuestion),
    /// A reviewer denied it, or no reviewer is available.
    Refused(Reason),
}

/// A pending question, as its caller gets it.
#[derive(Debug)]
pub struct Ticket {
    /// The question's id.
    pub id: TicketId,
    /// The call in a line.
    pub summary: String,
    /// The rule that asks.
    pub rule: String,
    /// Why it asks.
    pub reason: String,
    /// The question as the reviewer sees it.
    pub question: Box<OpenQuestion>,
    /// Where it is in the ledger.
    pub intent: Receipt,
}

impl Ticket {
    fn new(asked: AskedQuestion, intent: Receipt) -> Self {
        let AskedQuestion { id, question, .. } = asked;
        let (summary, rule, reason) =
            (question.summary.clone(), question.rule.clone(), question.reason.clone());
        Self { id, summary, rule, reason, question, intent }
    }
}

/// The questions, the answers, and the local waiters.
#[derive(Debug)]
pub(crate) struct Approvals {
    state: Arc<dyn State>,
    rates: Arc<Rates>,
    pub(crate) questions: Questions,
    waiting: Waiting,
}

impl Approvals {
    pub(crate) fn new(state: &Arc<dyn State>, rates: &Arc<Rates>, project: &str) -> Self {
        let questions = Questions::new(Arc::clone(state), project);
        let (rates, waiting) = (Arc::clone(rates), Waiting::new(&**state));
        Self { state: Arc::clone(state), rates, questions, waiting }
    }
}

impl Kernel {
    /// Waits until a question is answered, or gone. The answer may come from another process.
    pub fn answered<'a>(&'a self, ticket: &'a TicketId) -> BoxFuture<'a, Result<Answered, StateError>> {
        Box::pin(self.await_answer(ticket))
    }

    async fn await_answer(&self, ticket: &TicketId) -> Result<Answered, StateError> {
        let Core { gate, clock, .. } = &*self.0;
        let approvals = &gate.approvals;
        let place = approvals.waiting.enter(ticket);
        loop {
            // Listening before looking, so that an answer in between isn't missed.
            let listening = std::pin::pin!(place.listen());
            let now_ms = clock.now_ms();
            let (standing, until_ms) =
                outlasting(u32::MAX, || approvals.questions.standing_until(ticket, now_ms)).await?;
            match standing {
                Answered::Waiting { .. } => {}
                done @ (Answered::Approved | Answered::Denied { .. } | Answered::Gone) => return Ok(done),
            }
            let left_ms = u64::try_from(until_ms.saturating_sub(now_ms)).unwrap_or(0);
            place.woken(listening, &approvals.questions, left_ms.saturating_add(1).min(LOOK_MS_MAX)).await?;
        }
    }
}

impl Kernel {
    /// Where a question stands now.
    pub fn standing<'a>(&'a self, ticket: &'a TicketId) -> BoxFuture<'a, Result<Answered, StateError>> {
        Box::pin(self.0.gate.approvals.questions.standing(ticket, self.0.clock.now_ms()))
    }

    /// How many calls wait that an answer to this question is for: its own, and those of its cause that were asked about before it.
    pub fn count_up_to<'a>(&'a self, ticket: &'a TicketId) -> BoxFuture<'a, Result<usize, StateError>> {
        Box::pin(self.0.gate.approvals.questions.count_up_to(ticket, self.0.clock.now_ms()))
    }
}

impl Core {
    /// The effect of [`Op::Answer`].
    pub(crate) async fn answer(
        &self,
        (ticket, with): (&TicketId, &[TicketId]),
        answer: &ApprovalAnswer,
        by: &Principal,
    ) -> Result<RawOutput, ExecuteError> {
        let now_ms = self.clock.now_ms();
        let tickets: Vec<TicketId> = [ticket].into_iter().chain(with).cloned().collect();
        let author = (by.sponsor(), by.presented().map(|presented| &presented.id));
        let given = self.gate.approvals.questions.answer(&tickets, answer, author, now_ms).await?;
        self.gate.approvals.waiting.wake(&tickets);
        Ok(match given {
            AnswerResult::Taken { standing, questions, skipped, asked_at_ms, attention } => {
                // An answer to one question that counts is for that question.
                let is_for_several = tickets.len() > 1;
                let (questions, skipped) =
                    (is_for_several.then_some(questions), is_for_several.then_some(skipped));
                let decided_at_ms = now_ms;
                RawOutput::result(&AnswerTaken {
                    standing,
                    asked_at_ms,
                    attention,
                    decided_at_ms,
                    questions,
                    skipped,
                })
            }
            AnswerResult::TooSoon { least_ms, had_ms } => RawOutput::failed(
                "approval.too_soon",
                format!(
                    "the approval came {had_ms} ms after the question, so it doesn't count: read the question, \
                     and answer after at least {least_ms} ms"
                ),
            ),
            AnswerResult::TooFast { read_ms, had_ms } => RawOutput::failed(
                "approval.too_fast",
                format!(
                    "too many approvals came faster than anyone can read, so this one, after {had_ms} ms, doesn't count: \
                     read the question, and answer after at least {read_ms} ms"
                ),
            ),
            AnswerResult::TooWide => RawOutput::failed(
                "approval.once_only",
                "after so many approvals in a row, an approval covers one call only: use the scope `once`, or deny",
            ),
            AnswerResult::OpenNames => RawOutput::failed(
                "approval.once_only",
                "what the call covers isn't known before it runs (file names that are built at run time, or a whole folder): use the scope `once`",
            ),
            AnswerResult::Unidentified => RawOutput::failed(
                "approval.unidentified",
                "several people must approve, and inside a user namespace the system can't tell who you are: run \
                 `regent approve` outside of it (not in `unshare` or a rootless container)",
            ),
            AnswerResult::NotHosts => RawOutput::failed(
                "approval.not_hosts",
                "a host can't answer this question: it was asked here, and must be answered here",
            ),
            AnswerResult::TooMany => RawOutput::failed("approval.too_many", TOO_MANY),
            AnswerResult::NotOneCause => RawOutput::failed(
                "approval.not_one_cause",
                "these questions have different causes: answer them one by one",
            ),
            AnswerResult::Gone => RawOutput::failed(
                "approval.gone",
                format!(
                    "no open question `{}`: it was used, has expired or never existed",
                    ticket.0.escape_debug()
                ),
            ),
        })
    }

    /// The effect of [`Op::Questions`].
    pub(crate) async fn questions(&self, who: &Principal) -> Result<RawOutput, ExecuteError> {
        let open = self.gate.approvals.questions.list(who.sponsor(), self.clock.now_ms()).await?;
        Ok(RawOutput::result(&open))
    }

    /// Where the verdict on the final call is to ask: finds an approval, or puts the question, or refuses to.
    pub(crate) async fn ask(
        &self,
        call: &Call,
        sheet: &Sheet,
        (verdict, question): (&Verdict, &Question),
        bound: Result<Bound, Reason>,
    ) -> Result<Consent, Fault> {
        let bound = match bound {
            Ok(bound) => bound,
            Err(reason) => return Ok(Consent::Refused(reason)),
        };
        let digest = sheet.digest(call, &self.workspace, &bound)?;
        self.consent(call, sheet, (verdict, question), (digest, bound)).await
    }

    /// A call that may have happened already, and isn't the same twice as once, is repeated only if a reviewer agrees to that. This is
    /// asked beside what policy asks: neither answer stands for the other.
    pub(crate) async fn ask_repeat(
        &self,
        call: &Call,
        sheet: &Sheet,
        verdict: &Verdict,
        bound: Result<Bound, Reason>,
    ) -> Result<Option<(Question, Consent)>, Fault> {
        let (Verdict::Allow(grant) | Verdict::Ask(Question { grant, .. })) = verdict else {
            return Ok(None);
        };
        let of_task =
            call.principal().step().map(|step| format!(" of task {}", step.task)).unwrap_or_default();
        let question = Question {
            rule: RuleRef { id: RECOVERY.into(), layer: Layer::User, line: 0 },
            reason: format!("an earlier run{of_task} ended during this call: {IN_DOUBT}"),
            grant: grant.clone(),
            approvers: 1,
        };
        let bound = match bound {
            Ok(bound) => bound,
            Err(reason) => return Ok(Some((question, Consent::Refused(reason)))),
        };
        let Some(digest) = sheet.repeat_digest(&self.workspace, &bound).transpose()? else { return Ok(None) };
        let consent = self.consent(call, sheet, (verdict, &question), (digest, bound)).await?;
        Ok(Some((question, consent)))
    }

    async fn consent(
        &self,
        call: &Call,
        sheet: &Sheet,
        asks: (&Verdict, &Question),
        (digest, bound): (CallDigest, Bound),
    ) -> Result<Consent, Fault> {
        let mut consulted = self.consult(call, sheet, asks, (digest, &bound)).await?;
        // A revocation can miss an approval: a locked vault hides it, or a call had just used it up and gave it back.
        while let Ok(Consulted::Approved(approved)) = &consulted {
            let revoked = match self.tokens.first_revoked(&approved.tokens).await {
                Ok(None) => break,
                Ok(Some(revoked)) => revoked,
                Err(error) => return Err(self.unused(&consulted, error).await),
            };
            self.gate.approvals.questions.disown(approved, revoked).await?;
            consulted = self.consult(call, sheet, asks, (digest, &bound)).await?;
        }
        Ok(match consulted {
            Ok(Consulted::Approved(approved)) => Consent::Given(approved, bound),
            Ok(Consulted::Asked(mut question)) => {
                let person = call.principal().sponsor();
                question.attention =
                    Some(self.gate.approvals.questions.attention(person, self.clock.now_ms()).await?);
                Consent::Asked(AskedQuestion {
                    id: question.id.clone(),
                    with: question.asked_with.clone(),
                    question,
                })
            }
            Ok(Consulted::Denied(ticket, because)) => Consent::Refused(denied_by_reviewer(&ticket, because)),
            Ok(Consulted::Full(open)) => {
                Consent::Refused(too_many(call.principal(), &format!("{open} questions are already pending")))
            }
            Err(reason) => Consent::Refused(reason),
        })
    }

    /// Finds and consumes an approval for exactly this call, or asks the question.
    async fn consult(
        &self,
        call: &Call,
        sheet: &Sheet,
        (verdict, question): (&Verdict, &Question),
        (CallDigest(digest), bound): (CallDigest, &Bound),
    ) -> Result<Result<Consulted, Reason>, Fault> {
        let (who, now_ms) = (call.principal(), self.clock.now_ms());
        let asker = asker(who);
        let cause = cause_of(sheet);
        match self.gate.approvals.questions.find(&digest, question.approvers, &asker, now_ms).await? {
            // A reviewer decides whether a call happened, however long that takes: a denial would settle it for good.
            Some(Consulted::Asked(_)) | None if who.is_unattended() && &*question.rule.id != RECOVERY => {
                return Ok(Err(nobody(question)));
            }
            Some(found) => return Ok(Ok(found)),
            None => {}
        }
        if let Err(reason) = self.gate.approvals.admit(who, &cause, now_ms).await? {
            return Ok(Err(reason));
        }
        let batch = batch_of(who, question, sheet.ruling.as_ref());
        let joins = match &batch {
            Some(batch) => self.gate.approvals.questions.has_open(batch, now_ms).await?,
            None => false,
        };
        // A call that joins an open question is no further question to the person.
        let reserved = if joins {
            None
        } else {
            match self.gate.budgets.reserve_question(who.lineage(), self.now()).await? {
                Ok(reserved) => Some(reserved),
                Err(reason) => {
                    self.gate.approvals.take_back(who, &cause, now_ms).await?;
                    return Ok(Err(reason));
                }
            }
        };
        // A rule can lift what a rule asks; what the kernel asks by itself, none can.
        let lifts = || self.with_facts(call, sheet, |policy, facts| Cover::find(policy, &facts, verdict));
        let draft = QuestionDraft {
            digest,
            files: bound.files.clone(),
            open_why: bound.open_why.clone(),
            summary: summary::summarize(call, sheet),
            reason: question.reason.clone(),
            quote: sheet.quote.clone(),
            cause: batch,
            rule: question.rule.clone(),
            origins: summary::origins(sheet),
            cover: (question.rule.line > 0).then(lifts).flatten(),
            approvers: question.approvers,
            asker,
            elsewhere: matches!(call.op, Op::Elsewhere(_)),
        };
        let put = self.gate.approvals.questions.put(&draft, now_ms).await?;
        // Only a question that was put is charged.
        if matches!(put, Consulted::Asked(_)) {
            let _settled = reserved.map(|one| one.settle(Spent::default(), self.now().elapsed));
        } else if let Err(error) = self.gate.approvals.take_back(who, &cause, now_ms).await {
            return Err(self.unused(&Ok(put), error).await);
        }
        Ok(Ok(put))
    }

    /// The call fails after its approval was found: a one-time approval is there for the next try.
    async fn unused(&self, consulted: &Result<Consulted, Reason>, error: StateError) -> Fault {
        if let Ok(Consulted::Approved(approved)) = consulted {
            let _stays_used = self.gate.approvals.questions.give_back(approved).await.is_err();
        }
        error.into()
    }

    /// Why an approved call can't run after all: a file that the approval is bound to has changed since it was found.
    pub(crate) async fn stale(&self, agreed: Option<(Bound, Binding)>) -> Option<RawOutput> {
        let (agreed, binding) = agreed?;
        let now = binding.bind(&self.workspace).await;
        let message = "a file that the approval is bound to has changed since it was checked, so nothing ran";
        (now.ok() != Some(agreed)).then(|| RawOutput::failed("approval.stale", message))
    }

    /// Notes where the attempt is recorded, so that a reviewer can see it in full.
    pub(crate) async fn pending(&self, asked: AskedQuestion, intent: Receipt) -> Result<Ticket, Fault> {
        let place = LedgerPlace { lane: intent.lane, seq: intent.seq };
        self.gate.approvals.questions.recorded(&asked.id, place, self.clock.now_ms()).await?;
        Ok(Ticket::new(asked, intent))
    }

    /// Asks what shall become of a call in doubt. An approval says that it may be repeated, with the files as they are now.
    /// `tree` is the workspace's state while nothing runs in it: computed once for all of them.
    pub(crate) async fn ask_in_doubt(
        &self,
        call: &InDoubt,
        args: &Value,
        tree: &mut TreeState,
    ) -> Result<Option<TicketId>, Fault> {
        let what = call.tool.as_deref().unwrap_or(&call.op);
        let tool = call.tool.as_deref().and_then(|name| self.catalogue.get(name));
        // What can't be bound now is asked about here, and refused where the call is repeated.
        let bound = Binding::of_recorded(tool, args).bind_here(&self.workspace, tree).unwrap_or_default();
        let draft = QuestionDraft {
            digest: call.repeat_digest(&self.workspace, &bound)?.0,
            open_why: bound.open_why,
            files: bound.files,
            summary: summary::summarize_doubt(what, args, call),
            reason: format!("the process ended during this call: {IN_DOUBT}"),
            quote: None,
            cause: None,
            rule: RuleRef { id: RECOVERY.into(), layer: Layer::Builtin, line: 0 },
            origins: Vec::new(),
            cover: None,
            approvers: 1,
            asker: Asker {
                name: call.caller.clone(),
                session: call.session.clone(),
                root: format!("{RECOVERY} of {}", call.session),
                in_task: false,
            },
            elsewhere: false,
        };
        Ok(match self.gate.approvals.questions.put(&draft, self.clock.now_ms()).await? {
            Consulted::Asked(question) => Some(question.id),
            // It was answered before the doubt was noted. The answer is for the repetition.
            Consulted::Approved(approved) => {
                self.gate.approvals.questions.give_back(&approved).await?;
                None
            }
            Consulted::Denied(..) | Consulted::Full(_) => None,
        })
    }
}

impl Approvals {
    /// A question that was admitted wasn't put.
    async fn take_back(&self, who: &Principal, cause: &str, admitted_at_ms: i64) -> Result<(), StateError> {
        self.rates.give_back(&ALL_QUESTIONS, &rate_name(who, "any cause"), admitted_at_ms).await?;
        self.rates.give_back(&QUESTIONS, &rate_name(who, cause), admitted_at_ms).await
    }

    /// Whether one more question can be asked at all.
    async fn admit(
        &self,
        who: &Principal,
        cause: &str,
        now_ms: i64,
    ) -> Result<Result<(), Reason>, StateError> {
        // A kernel that runs for weeks asks now and then; it then removes what is no longer needed.
        self.state.sweep(now_ms, SWEPT_MAX).await?;
        if self.rates.take(&QUESTIONS, &rate_name(who, cause), now_ms).await? {
            if self.rates.take(&ALL_QUESTIONS, &rate_name(who, "any cause"), now_ms).await? {
                return Ok(Ok(()));
            }
            self.rates.give_back(&QUESTIONS, &rate_name(who, cause), now_ms).await?;
        }
        Ok(Err(too_many(who, &format!("more than {NEW_PER_MINUTE_MAX} new questions within a minute"))))
    }
}

/// An agent that an operator started is counted with all its children, so that they can't ask more by being many. Each cause has its own
/// count: the questions that one stranger's text brings about don't use up those of other calls.
fn rate_name(who: &Principal, cause: &str) -> String {
    format!("questions of {} for {cause}", root(who))
}

/// The agent that an operator started, or the caller that is no agent in its session.
fn root(who: &Principal) -> String {
    match who.lineage().first() {
        Some(leader) => leader.as_str().to_owned(),
        None => format!("{} of {}", who.display_name(), who.session()),
    }
}

fn cause_of(sheet: &Sheet) -> String {
    sheet.ruling.as_ref().and_then(Ruling::cause).unwrap_or_else(|| "policy".to_owned())
}

/// What questions are answered together: those of one task or agent, one rule, and one text of others. Whether a call that may have
/// happened is repeated is decided for each call by itself.
fn batch_of(who: &Principal, question: &Question, ruling: Option<&Ruling>) -> Option<String> {
    if &*question.rule.id == RECOVERY {
        return None;
    }
    let whose = who.step().map_or_else(|| root(who), |step| step.task.as_str().to_owned());
    let Question { rule, approvers, .. } = question;
    // The text that is quoted is the source, also where a value isn't in it.
    let source = ruling.map(|ruling| match &ruling.quote {
        Some(quote) => format!("{} of call {}", ruling.code, quote.place.call),
        None => ruling.cause().unwrap_or_default(),
    });
    let parts = json!([whose, rule.id, rule.layer, rule.line, approvers, source]);
    Some(Digest::compute(parts.to_string().as_bytes()).to_string().chars().take(BATCH_LETTERS).collect())
}

fn nobody(question: &Question) -> Reason {
    let message = format!("this call needs an approval, and nobody can be asked: {}", question.reason);
    let help = "continue without it, and report at the end what was left undone".to_owned();
    Reason { code: UNATTENDED.into(), message, rule: Some(question.rule.clone()), help: Some(help) }
}

fn asker(who: &Principal) -> Asker {
    Asker {
        name: who.display_name().to_owned(),
        session: who.session().to_owned(),
        root: root(who),
        in_task: who.step().is_some(),
    }
}

fn denied_by_reviewer(ticket: &TicketId, because: Option<String>) -> Reason {
    let message = format!("a reviewer denied this call (question `{ticket}`)");
    let help = because
        .unwrap_or_else(|| "do something else; repeating the call won't help in this session".to_owned());
    Reason { code: "approval.denied".into(), message, rule: None, help: Some(help) }
}

fn too_many(who: &Principal, what: &str) -> Reason {
    let message = format!("too many questions: {what}; this call is denied");
    let help = match who.agent_id() {
        Some(id) => format!(
            "pause the agent with `regent agent signal {} STOP`, and answer pending questions with `regent approve`",
            id.as_str()
        ),
        None => "list pending questions with `regent approve list`".to_owned(),
    };
    Reason { code: "approval.flood".into(), message, rule: None, help: Some(help) }
}
