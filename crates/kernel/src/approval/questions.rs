//! Putting questions, finding answers, taking them. Each is one step in the shared state.

use std::collections::BTreeMap;
use std::sync::Arc;

use regent_ledger::Digest;
use regent_store::{self as store, FOR_GOOD, Partition, State, StateDraft, StateError, parse};
use serde::{Deserialize, Serialize};

use crate::approval::attention::Attention;
use crate::approval::attention::{self, Record};
use crate::approval::posed::{
    Indexed, OPEN_MS_MAX, Posed, StoredAnswer, asker_index, cause_index, fresh_id, index_of, indexed, key_of,
    load, open_of, posed,
};
use crate::approval::question::{Answered, Approved, Asker, LedgerPlace, OpenQuestion, QuestionDraft};
use regent_wire::result::{SkipReason, Skipped};
use regent_wire::{ApprovalAnswer, Scope, TicketId, TokenId};

/// How many questions of one agent that an operator started, its children included, may wait at once. More would wear reviewers down.
pub(crate) const OPEN_MAX: usize = 50;
/// The last tickets that were answered, for processes that wait for answers.
const ANSWERS: &str = "question-answers";
const ANSWERS_MAX: usize = 64;
/// Questions that one answer can name: more than can be open for one cause, and few enough for one commit.
const BATCH_MAX: usize = 64;
/// A rule longer than this is not small, and no reviewer would read it.
const COVER_BYTES_MAX: usize = 16 << 10;
/// What a host's reports are kept under. No person is called so: names have no space.
const HOST: &str = "host says";

/// The questions of a project and their answers.
#[derive(Debug)]
pub(crate) struct Questions {
    state: Arc<dyn State>,
    partition: Partition,
    project: String,
    /// Steps of this process that write what all questions share take turns, so that they don't conflict with each other.
    turn: tokio::sync::Mutex<()>,
}

/// Answers in the order in which they were given, as far as they are remembered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnswerLog {
    /// How many there have been.
    count: u64,
    /// The last of them.
    last: Vec<TicketId>,
}

impl AnswerLog {
    /// The tickets that were answered since an earlier look; `None` if there were too many to remember.
    pub(crate) fn since(&self, earlier: &Self) -> Option<&[TicketId]> {
        let new = usize::try_from(self.count.checked_sub(earlier.count)?).ok()?;
        self.last.get(self.last.len().checked_sub(new)?..)
    }

    fn add(&mut self, tickets: &[TicketId]) {
        self.count = self.count.saturating_add(u64::try_from(tickets.len()).unwrap_or(u64::MAX));
        self.last.extend_from_slice(tickets);
        let surplus = self.last.len().saturating_sub(ANSWERS_MAX);
        self.last.drain(..surplus);
    }
}

/// The result of looking for an approval.
#[derive(Debug)]
pub(crate) enum Consulted {
    /// There is one, and it is used up if it was for one time.
    Approved(Approved),
    /// The question waits.
    Asked(Box<OpenQuestion>),
    /// A reviewer denied it.
    Denied(TicketId, Option<String>),
    /// Too many questions are pending already.
    Full(usize),
}

/// The result of giving an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AnswerResult {
    /// It counts.
    Taken {
        /// Where the question stands now.
        standing: Answered,
        /// The questions that got it.
        questions: Vec<TicketId>,
        /// Those that it names and that didn't get it.
        skipped: Vec<Skipped>,
        /// When it was put.
        asked_at_ms: i64,
        /// How worn down the person is, this answer included.
        attention: Attention,
    },
    /// The approval came before anyone can have begun to read the question. It doesn't count.
    TooSoon {
        /// The least time, from when the person could begin.
        least_ms: u64,
        /// How long they had.
        had_ms: u64,
    },
    /// The meter is full, and the yes came before the question can have been read. It doesn't count.
    TooFast {
        /// How long it takes to read, from when the person could begin.
        read_ms: u64,
        /// How long they had.
        had_ms: u64,
    },
    /// The meter is full, and the yes goes further than one call. It doesn't count.
    TooWide,
    /// The call makes names at run time, and the approval goes further than one call. It doesn't count.
    OpenNames,
    /// Several reviewers must agree, and this one is unknown. The answer doesn't count.
    Unidentified,
    /// A host reported on a question that it wasn't given. It doesn't count.
    NotHosts,
    /// The answer names more questions than one answer can be for. It doesn't count.
    TooMany,
    /// Questions of several causes have to be answered one by one. It doesn't count.
    NotOneCause,
    /// There is no such question, or not any more.
    Gone,
}

impl Questions {
    /// The questions of a project, in this state.
    pub(crate) fn new(state: Arc<dyn State>, project: &str) -> Self {
        Self {
            state,
            partition: Partition::containing("question/"),
            project: project.to_owned(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    async fn change<T: Send>(
        &self,
        step: impl FnMut(&mut StateDraft<'_>) -> Result<T, StateError> + Send,
    ) -> Result<T, StateError> {
        store::change(&*self.state, &self.partition, &[], step).await
    }

    /// A look without a change.
    async fn look<T: Send>(
        &self,
        mut step: impl FnMut(&StateDraft<'_>) -> Result<T, StateError> + Send,
    ) -> Result<T, StateError> {
        self.change(|records| step(records)).await
    }

    /// All questions that are kept.
    async fn all(&self) -> Result<Vec<Posed>, StateError> {
        let records = self.state.scan(&self.partition, "question/").await?;
        let all: Result<Vec<Option<Posed>>, StateError> =
            records.iter().map(|record| parse(&record.key, &record.value)).collect();
        Ok(all?.into_iter().flatten().collect())
    }

    /// Takes back what was approved with a token that was revoked.
    pub(crate) async fn withdraw(&self, token: &TokenId) -> Result<(), StateError> {
        let _turn = self.turn.lock().await;
        let all = self.all().await?;
        let meant = all.iter().filter(|posed| posed.was_approved_with(token));
        let keys: Vec<String> = meant.map(|posed| key_of(&posed.question.id)).collect();
        for some in keys.chunks(store::CHANGE_WRITES_MAX) {
            store::change(&*self.state, &self.partition, some, |records| {
                for key in some {
                    if let Some(mut posed) = posed(records, key)? {
                        posed.withdraw(token);
                        posed.save_answer(records)?;
                    }
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Takes note of what a person says to one question, or to several of one cause. All that are still open to the answer get it, in one step;
    /// the others are named as skipped. Reviewers are distinguished by name, not by session.
    /// It is one answer to the meter of attention, and the time to read it is that of all of them.
    pub(crate) async fn answer(
        &self,
        tickets: &[TicketId],
        answer: &ApprovalAnswer,
        (by, token): (&str, Option<&TokenId>),
        now_ms: i64,
    ) -> Result<AnswerResult, StateError> {
        if tickets.len() > BATCH_MAX {
            return Ok(AnswerResult::TooMany);
        }
        let _turn = self.turn.lock().await;
        let keys: Vec<String> = tickets.iter().map(key_of).collect();
        store::change(&*self.state, &self.partition, &keys, |records| {
            let is_approval = matches!(answer, ApprovalAnswer::Approve { .. });
            let (mut batch, mut skipped): (Vec<Posed>, Vec<Skipped>) = Default::default();
            for ticket in tickets {
                let is_denied = |posed: &Posed| matches!(posed.standing(now_ms), Answered::Denied { .. });
                let why = match load(records, ticket, now_ms)? {
                    Some(posed) if is_approval && is_denied(&posed) => SkipReason::Denied,
                    Some(posed) => {
                        batch.push(posed);
                        continue;
                    }
                    None => SkipReason::Over,
                };
                skipped.push(Skipped { id: ticket.clone(), why });
            }
            let Some(first) = batch.first() else { return Ok(AnswerResult::Gone) };
            if batch.iter().skip(1).any(|one| !one.is_of_cause(first)) {
                return Ok(AnswerResult::NotOneCause);
            }
            // A host represents no reviewer: it can't use a reviewer's name or answer a question that was put to reviewers here.
            let is_host = matches!(answer, ApprovalAnswer::HostSays { .. });
            if let Some(refused) = batch.iter().find_map(|posed| posed.refuses(answer, by)) {
                return Ok(refused);
            }
            let by = if is_host { HOST } else { by };
            let attention = match meter(records, &batch, answer, by, now_ms)? {
                Ok(attention) => attention,
                Err(refused) => return Ok(refused),
            };
            for posed in &mut batch {
                posed.said.insert(by.to_owned(), StoredAnswer::new(answer, token, attention.percent, now_ms));
                posed.save_answer(records)?;
            }
            // One that still needs others isn't approved yet.
            let standings = batch.iter().map(|posed| posed.standing(now_ms));
            let standing = standings.max_by_key(|standing| matches!(standing, Answered::Waiting { .. }));
            let asked_at_ms = batch.iter().map(|posed| posed.question.created_at_ms).min().unwrap_or(now_ms);
            let standing = standing.unwrap_or(Answered::Gone);
            let questions: Vec<TicketId> = batch.iter().map(|posed| posed.question.id.clone()).collect();
            let mut log: AnswerLog = records.load(ANSWERS)?.unwrap_or_default();
            log.add(&questions);
            records.save(ANSWERS, &log, FOR_GOOD)?;
            Ok(AnswerResult::Taken { standing, questions, skipped, asked_at_ms, attention })
        })
        .await
    }

    /// The answers so far, of all processes.
    pub(crate) async fn answers(&self) -> Result<AnswerLog, StateError> {
        Ok(store::load(&*self.state, ANSWERS, &self.partition).await?.unwrap_or_default())
    }

    /// Whether a question of this cause is open.
    pub(crate) async fn has_open(&self, cause: &str, now_ms: i64) -> Result<bool, StateError> {
        let of_cause = self.look(|records| indexed(records, &cause_index(cause))).await?;
        Ok(of_cause.iter().any(|one| one.is_open(now_ms)))
    }

    /// How many open questions are answered with this one, its own included: those of its cause that were put before it.
    pub(crate) async fn count_up_to(&self, ticket: &TicketId, now_ms: i64) -> Result<usize, StateError> {
        self.look(|records| {
            let Some(last) = posed(records, &key_of(ticket))?.filter(|one| one.is_open(now_ms)) else {
                return Ok(0);
            };
            let Some(cause) = &last.question.cause else { return Ok(1) };
            let is_its = |one: &&Posed| {
                let (one, last) = (&one.question, &last.question);
                one.id == last.id || (one.project == last.project && one.number < last.number)
            };
            let of_cause = indexed(records, &cause_index(cause))?;
            Ok(of_cause.iter().filter(|one| one.is_open(now_ms)).filter(is_its).count())
        })
        .await
    }

    /// The questions that wait, as this person sees them.
    pub(crate) async fn list(&self, person: &str, now_ms: i64) -> Result<Vec<OpenQuestion>, StateError> {
        let attention = self.attention(person, now_ms).await?;
        let mut open = open_of(self.all().await?, now_ms);
        for question in &mut open {
            question.attention = Some(attention.clone());
        }
        Ok(open)
    }

    /// How much attention a reviewer has left.
    pub(crate) async fn attention(&self, person: &str, now_ms: i64) -> Result<Attention, StateError> {
        self.look(|records| Record::load(records, person)?.attention(records, now_ms)).await
    }

    /// Where a question stands; what can't be answered any more is gone.
    pub(crate) async fn standing(&self, ticket: &TicketId, now_ms: i64) -> Result<Answered, StateError> {
        Ok(self.standing_until(ticket, now_ms).await?.0)
    }

    /// The same, and until when that holds without an answer.
    pub(crate) async fn standing_until(
        &self,
        ticket: &TicketId,
        now_ms: i64,
    ) -> Result<(Answered, i64), StateError> {
        let found = store::load(&*self.state, &key_of(ticket), &self.partition).await?;
        let found: Option<Option<Posed>> = found;
        let Some(posed) = found.flatten() else { return Ok((Answered::Gone, FOR_GOOD)) };
        let until_ms = posed.question.expires_at_ms;
        Ok((
            match posed.standing(now_ms) {
                // One of two approvals may hold for longer than the question is open for the other.
                Answered::Waiting { .. } if now_ms >= until_ms || posed.is_over(now_ms) => Answered::Gone,
                standing @ (Answered::Approved
                | Answered::Denied { .. }
                | Answered::Waiting { .. }
                | Answered::Gone) => standing,
            },
            until_ms,
        ))
    }

    /// What already exists for a call: an approval (consumed in the same step), a denial, or an open question.
    pub(crate) async fn find(
        &self,
        digest: &Digest,
        approvers: u8,
        asker: &Asker,
        now_ms: i64,
    ) -> Result<Option<Consulted>, StateError> {
        self.change(|records| find(records, digest, approvers, asker, now_ms)).await
    }

    /// Gives an approval back that was used for a call which never ran. One that wasn't used up is still there.
    pub(crate) async fn give_back(&self, approved: &Approved) -> Result<(), StateError> {
        let Some(posed) = &approved.used_up else { return Ok(()) };
        self.change(|records| posed.save(records)).await
    }

    /// Takes back an answer that was found, but was given with a token that has been revoked. What the approval used up is asked again.
    pub(crate) async fn disown(&self, approved: &Approved, token: &TokenId) -> Result<(), StateError> {
        let key = key_of(&approved.ticket);
        self.change(|records| {
            let kept = posed(records, &key)?.or_else(|| approved.used_up.as_deref().cloned());
            let Some(mut posed) = kept else { return Ok(()) };
            posed.withdraw(token);
            posed.save(records)
        })
        .await
    }

    /// Puts a question, unless another caller has just put the same.
    pub(crate) async fn put(&self, draft: &QuestionDraft, now_ms: i64) -> Result<Consulted, StateError> {
        let posed = self.posed(draft, now_ms)?;
        let _turn = self.turn.lock().await;
        self.change(|records| {
            if let Some(found) = find(records, &draft.digest, draft.approvers, &draft.asker, now_ms)? {
                return Ok(found);
            }
            let of_digest = Indexed::read(records, &index_of(&draft.digest))?;
            let of_asker = Indexed::read(records, &asker_index(&posed.root))?;
            let of_cause = match &posed.question.cause {
                Some(cause) => Indexed::read(records, &cause_index(cause))?,
                None => Indexed::default(),
            };
            [&of_digest, &of_asker, &of_cause].iter().for_each(|index| index.prune(records));
            // Beyond this they are not listed; the ledger has them all.
            if open_of(of_asker.posed, now_ms).len() >= OPEN_MAX {
                return Ok(Consulted::Full(OPEN_MAX));
            }
            let posed = posed.clone().joining(&open_of(of_cause.posed, now_ms));
            // Calls of one cause are one question to a reviewer.
            if posed.question.asked_with.is_none() {
                attention::note_asked(records, now_ms)?;
            }
            posed.save(records)?;
            Ok(Consulted::Asked(Box::new(posed.question)))
        })
        .await
    }

    /// Where the ledger has the attempt that a question is about.
    pub(crate) async fn recorded(
        &self,
        ticket: &TicketId,
        intent: LedgerPlace,
        now_ms: i64,
    ) -> Result<(), StateError> {
        self.change(|records| {
            let Some(mut posed) = load(records, ticket, now_ms)? else { return Ok(()) };
            if posed.question.intent.is_none() {
                posed.question.intent = Some(intent);
                posed.save(records)?;
            }
            Ok(())
        })
        .await
    }

    fn posed(&self, draft: &QuestionDraft, now_ms: i64) -> Result<Posed, StateError> {
        let QuestionDraft { digest, files, open_why, summary, reason, rule, origins, cover, .. } =
            draft.clone();
        let QuestionDraft { approvers, asker, elsewhere, quote, cause, .. } = draft.clone();
        let (summary, summary_cut) = summary;
        Ok(Posed {
            digest,
            question: OpenQuestion {
                id: fresh_id()?,
                digest: Some(digest),
                files,
                open_names: open_why.is_some(),
                open_why,
                summary,
                summary_cut,
                reason,
                quote,
                cause,
                number: 1,
                asked_with: None,
                rule: rule.id.to_string(),
                rule_at: (rule.line > 0).then_some(rule),
                origins,
                cover: cover.filter(|cover| cover.lines.len() <= COVER_BYTES_MAX),
                intent: None,
                caller: asker.name.clone(),
                session: asker.session.clone(),
                project: self.project.clone(),
                approvers: approvers.max(1),
                agreed: Vec::new(),
                created_at_ms: now_ms,
                expires_at_ms: now_ms.saturating_add(OPEN_MS_MAX),
                read_ms: 0,
                attention: None,
            },
            said: BTreeMap::new(),
            root: asker.root,
            elsewhere,
        })
    }
}

/// Counts an answer, or says why it doesn't count. A batch can be read since its last question was put.
fn meter(
    records: &mut StateDraft<'_>,
    batch: &[Posed],
    answer: &ApprovalAnswer,
    by: &str,
    now_ms: i64,
) -> Result<Result<Attention, AnswerResult>, StateError> {
    if batch.iter().all(|posed| posed.elsewhere) {
        return Ok(Ok(Attention::default()));
    }
    let mut record = Record::load(records, by)?;
    let asked_at_ms = batch.iter().map(|posed| posed.question.created_at_ms).max().unwrap_or(now_ms);
    let read_ms = batch.iter().fold(0, |sum: u64, posed| sum.saturating_add(posed.question.read_ms));
    let had_ms = record.looked_ms(asked_at_ms, now_ms);
    let worn = record.attention(records, now_ms)?.is_worn();
    if let ApprovalAnswer::Approve { scope, .. } = answer {
        if worn && *scope > Scope::Once {
            return Ok(Err(AnswerResult::TooWide));
        }
        if worn && had_ms < read_ms {
            return Ok(Err(AnswerResult::TooFast { read_ms, had_ms }));
        }
        let least_ms = attention::least_ms(read_ms);
        if had_ms < least_ms {
            return Ok(Err(AnswerResult::TooSoon { least_ms, had_ms }));
        }
    }
    record.add(matches!(answer, ApprovalAnswer::Approve { .. }), had_ms, read_ms, now_ms);
    record.save(records, by, now_ms)?;
    record.attention(records, now_ms).map(Ok)
}

fn find(
    records: &mut StateDraft<'_>,
    digest: &Digest,
    approvers: u8,
    asker: &Asker,
    now_ms: i64,
) -> Result<Option<Consulted>, StateError> {
    let (mut denied, mut open) = (None, None);
    for mut posed in indexed(records, &index_of(digest))? {
        if posed.is_over(now_ms) {
            continue;
        }
        // The policy may have been reloaded since, and now want more people.
        posed.question.approvers = posed.question.approvers.max(approvers);
        // A task continues in another session.
        let own_session = posed.question.session == asker.session || asker.in_task;
        match posed.standing(now_ms) {
            Answered::Approved => {
                let mut approved = posed.yes(now_ms);
                if approved.scope == Scope::Session && !own_session {
                    continue;
                }
                if approved.scope == Scope::Once {
                    posed.discard(records);
                    approved.used_up = Some(Box::new(posed));
                }
                return Ok(Some(Consulted::Approved(approved)));
            }
            Answered::Denied { because } if own_session => {
                denied = Some(Consulted::Denied(posed.question.id, because));
            }
            Answered::Waiting { .. } if posed.is_open(now_ms) => {
                open = Some(Consulted::Asked(Box::new(posed.question)));
            }
            Answered::Denied { .. } | Answered::Waiting { .. } | Answered::Gone => {}
        }
    }
    Ok(denied.or(open))
}

#[cfg(test)]
mod tests;
