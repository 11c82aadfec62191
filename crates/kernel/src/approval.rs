//! Questions for a person, and answers bound to the exact call.
//!
//! A question is a record in the shared state, so that any terminal can answer it. A yes is for one [`CallDigest`]: who asks (agents
//! by their key), what with which arguments, where, and what the named files hold. If any of that changes it is another call, and
//! another question. Finding a yes and using it up is one step, so of two callers that race for it one gets it.

mod posed;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use regent_ledger::Receipt;
use regent_policy::{Charge, Question, Reason, RuleId, Verdict};
use regent_store::{self as store, Records, State, StateError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::agent::AgentId;
use crate::call::{Call, CallDigest};
use crate::clock::Clock;
use crate::executor::{ExecuteError, RawOutput};
use crate::facts::Sheet;
use crate::kernel::Core;
use crate::principal::Principal;
use crate::rate;
use crate::recovery::InDoubt;
use crate::syscall::{Fault, Kernel};
use posed::{OPEN_MS_MAX, Posed, Said, fresh_id, index_of, key_of, load, open_of};

/// How many questions may wait at once. More is not asking, it is wearing down.
const OPEN_MAX: usize = 50;
/// How many questions one session may put within a minute.
const NEW_PER_MINUTE_MAX: u32 = 20;
/// How often the state is asked whether another process has brought an answer.
const POLL_MS: u64 = 250;

/// A question's id: short enough to type, random enough not to be guessed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TicketId(pub String);

impl std::fmt::Display for TicketId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a person says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "say")]
pub enum Answer {
    /// Yes: how often and how long.
    Approve {
        /// For what.
        scope: Scope,
        /// For how long.
        valid_ms: u64,
    },
    /// No. It also takes back a yes that hasn't been used up.
    Deny {
        /// Advice to the agent.
        because: Option<String>,
    },
}

/// How far a yes goes. Always for exactly the same call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One time.
    Once,
    /// As often as wanted in this session.
    Session,
    /// As often as wanted in this project.
    Project,
}

/// A question that was put. The ledger is told its id; what it says is the call's, and can be erased.
#[derive(Debug, Clone, Serialize)]
pub struct Asked {
    /// Its id.
    pub id: TicketId,
    /// Why a person is asked.
    #[serde(skip)]
    pub reason: String,
    /// The rule that asks.
    #[serde(skip)]
    pub rule: String,
    /// The call in a line, for the person.
    #[serde(skip)]
    pub summary: String,
}

/// A yes that was found for a call, as the intent records it.
#[derive(Debug, Clone, Serialize)]
pub struct Approved {
    /// Who said it.
    pub by: Vec<String>,
    /// How far it goes.
    pub scope: Scope,
    /// To which question.
    pub ticket: TicketId,
}

/// "Not yet": what the caller gets while a person is asked.
#[derive(Debug)]
pub struct Ticket {
    /// The question's id.
    pub id: TicketId,
    /// The call in a line, for the person.
    pub summary: String,
    /// The rule that asks.
    pub rule: String,
    /// Why it asks.
    pub reason: String,
    /// Where it is in the ledger.
    pub intent: Receipt,
}

impl Ticket {
    pub(crate) fn of(asked: Asked, intent: Receipt) -> Self {
        let Asked { id, reason, rule, summary } = asked;
        Self { id, summary, rule, reason, intent }
    }
}

/// Where a question stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answered")]
pub enum Answered {
    /// Yes.
    Approved,
    /// No, and what to do instead.
    Denied {
        /// Advice to the agent.
        because: Option<String>,
    },
    /// Not enough people have agreed yet.
    Waiting {
        /// How many have.
        agreed: u8,
        /// How many must.
        needed: u8,
    },
    /// There is no such question, or not any more: used up or expired.
    Gone,
}

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// Its id.
    pub id: TicketId,
    /// The call in a line.
    pub summary: String,
    /// Why a person is asked.
    pub reason: String,
    /// The rule that asks.
    pub rule: String,
    /// Who wants to make the call.
    pub caller: String,
    /// In which session.
    pub session: String,
    /// In which project.
    pub project: String,
    /// How many different people have to agree.
    pub approvers: u8,
    /// Who has agreed so far.
    pub agreed: Vec<String>,
    /// Since when it waits.
    pub created_at_ms: i64,
    /// Until when it waits.
    pub expires_at_ms: i64,
}

/// What came of looking for a yes.
#[derive(Debug)]
enum Consulted {
    Approved(Approved),
    Asked(Asked),
    Refused(Reason),
}

/// The questions and answers.
#[derive(Debug)]
pub(crate) struct Approvals {
    state: Arc<dyn State>,
    clock: Arc<dyn Clock>,
    project: String,
    /// Wakes those who wait for an answer that is given in this process.
    answered: Notify,
}

impl Kernel {
    /// Waits until a question is answered, or gone. The answer may come from another process.
    pub async fn answered(&self, ticket: &TicketId) -> Result<Answered, StateError> {
        self.0.approvals.answered(ticket).await
    }
}

impl Core {
    /// The effect of [`Op::Answer`](crate::Op::Answer).
    pub(crate) fn answer(
        &self,
        ticket: &TicketId,
        answer: &Answer,
        by: &Principal,
    ) -> Result<RawOutput, ExecuteError> {
        match self.approvals.answer(ticket, answer, by, self.clock.now_ms())? {
            Answered::Gone => Ok(RawOutput::failed(
                "approval.gone",
                format!(
                    "there is no open question `{}`: it was used up, has expired or never was",
                    ticket.0.escape_debug()
                ),
            )),
            standing @ (Answered::Approved | Answered::Denied { .. } | Answered::Waiting { .. }) => {
                Ok(RawOutput::json(&json!(standing)))
            }
        }
    }

    /// Where a verdict is to ask: a yes that was given makes it an allow; else the question is put, or refused.
    pub(crate) fn ask(
        &self,
        call: &Call,
        sheet: &mut Sheet,
        verdict: &mut Verdict,
    ) -> Result<Option<Asked>, Fault> {
        let Verdict::Ask(question) = &*verdict else { return Ok(None) };
        match self.consult(call, sheet, question)? {
            Consulted::Approved(approved) => {
                sheet.approved = Some(approved);
                *verdict = Verdict::Allow(question.grant.clone());
                Ok(None)
            }
            Consulted::Asked(asked) => Ok(Some(asked)),
            Consulted::Refused(reason) => {
                *verdict = Verdict::Deny(reason);
                Ok(None)
            }
        }
    }

    /// Finds a yes for exactly this call and uses it up, or puts the question.
    fn consult(&self, call: &Call, sheet: &Sheet, question: &Question) -> Result<Consulted, Fault> {
        let digest = sheet.digest(call, &self.workspace)?;
        let who = call.principal();
        if let Some(found) = self.approvals.find(&digest, question, who)? {
            return Ok(found);
        }
        if let Err(reason) = self.approvals.admit(who)? {
            return Ok(Consulted::Refused(reason));
        }
        if let Err(reason) = self.budgets.charge_question(who)? {
            return Ok(Consulted::Refused(reason));
        }
        Ok(self.approvals.ask(&digest, question, who, summary::of(call, sheet))?)
    }
}

impl Approvals {
    pub(crate) fn new(state: Arc<dyn State>, clock: Arc<dyn Clock>, project: &str) -> Self {
        Self { state, clock, project: project.to_owned(), answered: Notify::new() }
    }

    /// Takes note of what a person says.
    pub(crate) fn answer(
        &self,
        ticket: &TicketId,
        answer: &Answer,
        by: &Principal,
        now_ms: i64,
    ) -> Result<Answered, StateError> {
        let said = Said::new(answer, now_ms);
        let answered = store::change(&*self.state, |records| {
            let Some(mut posed) = load(records, ticket, now_ms)? else { return Ok(Answered::Gone) };
            posed.said.insert(by.sponsor().to_owned(), said.clone());
            posed.save(records)?;
            Ok(posed.standing(now_ms))
        })?;
        self.answered.notify_waiters();
        Ok(answered)
    }

    /// The questions that wait.
    pub(crate) fn list(&self) -> Result<Vec<OpenQuestion>, StateError> {
        open_of(self.state.scan("question/")?, self.clock.now_ms())
    }

    async fn answered(&self, ticket: &TicketId) -> Result<Answered, StateError> {
        loop {
            // Listening before looking, so that an answer in between isn't missed.
            let woken = self.answered.notified();
            let now_ms = self.clock.now_ms();
            let Some(bytes) = self.state.get(&key_of(ticket))? else { return Ok(Answered::Gone) };
            let posed: Posed = store::parse(&ticket.0, &bytes)?;
            match posed.standing(now_ms) {
                Answered::Waiting { .. } if !posed.is_over(now_ms) => {}
                Answered::Waiting { .. } => return Ok(Answered::Gone),
                done @ (Answered::Approved | Answered::Denied { .. } | Answered::Gone) => return Ok(done),
            }
            tokio::select! {
                () = woken => {}
                () = tokio::time::sleep(Duration::from_millis(POLL_MS)) => {}
            }
        }
    }

    /// What there already is for this call: a yes (used up in the same step), a no, or the question still open.
    fn find(
        &self,
        digest: &CallDigest,
        question: &Question,
        who: &Principal,
    ) -> Result<Option<Consulted>, StateError> {
        if self.state.scan(&index_of(digest))?.is_empty() {
            return Ok(None);
        }
        let now_ms = self.clock.now_ms();
        store::change(&*self.state, |records| find(records, digest, question, who, now_ms))
    }

    /// Puts a question, unless another caller has just put the same.
    fn ask(
        &self,
        digest: &CallDigest,
        question: &Question,
        who: &Principal,
        summary: String,
    ) -> Result<Consulted, StateError> {
        let now_ms = self.clock.now_ms();
        let posed = Posed {
            digest: *digest,
            question: OpenQuestion {
                id: fresh_id()?,
                summary,
                reason: question.reason.clone(),
                rule: question.rule.id.to_string(),
                caller: who.name().to_owned(),
                session: who.session().to_owned(),
                project: self.project.clone(),
                approvers: question.approvers.max(1),
                agreed: Vec::new(),
                created_at_ms: now_ms,
                expires_at_ms: now_ms.saturating_add(OPEN_MS_MAX),
            },
            said: BTreeMap::new(),
        };
        store::change(&*self.state, |records| {
            if let Some(found) = find(records, digest, question, who, now_ms)? {
                return Ok(found);
            }
            if open_of(records.scan("question/")?, now_ms)?.len() >= OPEN_MAX {
                return Ok(Consulted::Refused(flood(who, &format!("{OPEN_MAX} questions wait already"))));
            }
            posed.save(records)?;
            Ok(Consulted::Asked(posed.asked()))
        })
    }

    /// Asks what shall become of a call in doubt. The answer is bound to its place in the ledger: a yes says that it may be repeated.
    pub(crate) fn ask_in_doubt(&self, call: &InDoubt, args: &Value) -> Result<Option<TicketId>, StateError> {
        let now_ms = self.clock.now_ms();
        let what = call.tool.as_deref().unwrap_or(&call.op);
        let posed = Posed {
            digest: CallDigest::in_doubt(call.lane, call.seq),
            question: OpenQuestion {
                id: fresh_id()?,
                summary: summary::of_doubt(what, args, call),
                reason: "the process ended during this call: it may or may not have happened".to_owned(),
                rule: "recovery".to_owned(),
                caller: call.caller.clone(),
                session: call.session.clone(),
                project: self.project.clone(),
                approvers: 1,
                agreed: Vec::new(),
                created_at_ms: now_ms,
                expires_at_ms: now_ms.saturating_add(OPEN_MS_MAX),
            },
            said: BTreeMap::new(),
        };
        store::change(&*self.state, |records| {
            // Beyond this nobody reads them; the ledger has them all.
            if open_of(records.scan("question/")?, now_ms)?.len() >= OPEN_MAX {
                return Ok(None);
            }
            posed.save(records)?;
            Ok(Some(posed.question.id.clone()))
        })
    }

    /// Whether one more question can be put to a person at all.
    fn admit(&self, who: &Principal) -> Result<Result<(), Reason>, StateError> {
        let now_ms = self.clock.now_ms();
        // A kernel that runs for weeks asks now and then; that is when it clears away what nobody needs.
        store::sweep(&*self.state, now_ms)?;
        // No rule has this number by chance: it is for the count of questions alone.
        let charge = Charge { rule: RuleId(u64::MAX), limit: NEW_PER_MINUTE_MAX, window_ms: 60_000 };
        // Whoever a person started, with all its children: they can't ask more by being many.
        let asker = who.lineage().first().map_or(who.session(), AgentId::as_str);
        if rate::take(&*self.state, &charge, &format!("questions of {asker}"), now_ms)? {
            return Ok(Ok(()));
        }
        Ok(Err(flood(who, &format!("more than {NEW_PER_MINUTE_MAX} new questions within a minute"))))
    }
}

fn find(
    records: &mut dyn Records,
    digest: &CallDigest,
    question: &Question,
    who: &Principal,
    now_ms: i64,
) -> Result<Option<Consulted>, StateError> {
    let (mut denied, mut open) = (None, None);
    for record in records.scan(&index_of(digest))? {
        let ticket: TicketId = store::parse(&record.key, &record.value)?;
        let Some(mut posed) = load(records, &ticket, now_ms)? else { continue };
        // The policy may have been reloaded since, and now want more people.
        posed.question.approvers = posed.question.approvers.max(question.approvers);
        // A task goes on in another session.
        let own_session = posed.question.session == who.session() || who.step().is_some();
        match posed.standing(now_ms) {
            Answered::Approved => {
                let (by, scope) = posed.yes(now_ms);
                if scope == Scope::Session && !own_session {
                    continue;
                }
                if scope == Scope::Once {
                    posed.discard(records)?;
                }
                return Ok(Some(Consulted::Approved(Approved { by, scope, ticket })));
            }
            Answered::Denied { because } if own_session => denied = Some(no(&posed, because)),
            Answered::Waiting { .. } if posed.is_open(now_ms) => open = Some(posed.asked()),
            Answered::Denied { .. } | Answered::Waiting { .. } | Answered::Gone => {}
        }
    }
    Ok(denied.map(Consulted::Refused).or_else(|| open.map(Consulted::Asked)))
}

fn no(posed: &Posed, because: Option<String>) -> Reason {
    let message = format!("a person has said no to this call (question `{}`)", posed.question.id);
    let help =
        because.unwrap_or_else(|| "do something else; asking again won't help in this session".to_owned());
    Reason { code: "approval.denied", message, rule: None, help: Some(help) }
}

fn flood(who: &Principal, what: &str) -> Reason {
    let message = format!("too many questions for a person: {what}; this call isn't asked about");
    let help = match who.agent_id() {
        Some(id) => format!(
            "pause the agent with `regent agent signal {} STOP`, and answer what waits with `regent approve`",
            id.as_str()
        ),
        None => "answer what waits with `regent approve list`".to_owned(),
    };
    Reason { code: "approval.flood", message, rule: None, help: Some(help) }
}
