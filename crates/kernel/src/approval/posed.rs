//! A question as the shared state has it, and how it stands.

use std::collections::BTreeMap;

use regent_ledger::Digest;
use regent_store::{self as store, StateDraft, StateError};
use serde::{Deserialize, Serialize};

use crate::approval::attention;
use crate::approval::question::{Answered, Approved, OpenQuestion, UNIDENTIFIED};
use crate::approval::questions::AnswerResult;
use regent_wire::{ApprovalAnswer, Scope, TicketId, TokenId, Voice};

/// How long a question waits for its answer.
pub(crate) const OPEN_MS_MAX: i64 = 24 * 60 * 60 * 1000;
/// How far in the future a question or an approval may lie and still count: time synchronisation steps the clock back by less.
pub(crate) const AHEAD_MS_MAX: i64 = 1_000;
/// The longest validity of an approval.
const VALID_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1000;
/// How many entries of one index a step removes. A step looks at three indexes.
const PRUNED_MAX: usize = store::CHANGE_WRITES_MAX / 4;
/// The longest advice.
const BECAUSE_CHARS_MAX: usize = 1_000;

/// A question as the state has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Posed {
    pub(crate) digest: Digest,
    pub(crate) question: OpenQuestion,
    /// The last word of each person.
    pub(crate) said: BTreeMap<String, StoredAnswer>,
    /// The agent that an operator started, or the session: its questions are counted together.
    #[serde(default)]
    pub(crate) root: String,
    /// Another program puts it to its own person.
    #[serde(default)]
    pub(crate) elsewhere: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredAnswer {
    answer: ApprovalAnswer,
    until_ms: i64,
    #[serde(default)]
    at_ms: i64,
    #[serde(default)]
    attention_percent: u8,
    /// The token that it was given with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<TokenId>,
}

impl Posed {
    /// The same as it stands among the open questions: those of one cause are numbered, and their cause is read once.
    pub(crate) fn joining(mut self, open: &[OpenQuestion]) -> Self {
        let question = &mut self.question;
        let is_with = |one: &&OpenQuestion| question.cause.is_some() && one.cause == question.cause;
        let with: Vec<&OpenQuestion> = open.iter().filter(is_with).collect();
        question.number = with.iter().map(|one| one.number).max().unwrap_or(0).saturating_add(1);
        let first = with.iter().min_by_key(|one| one.number);
        question.asked_with = first.map(|one| one.id.clone());
        let mut texts: Vec<&str> = question.origins.iter().map(|one| one.from.as_str()).collect();
        texts.push(&question.summary);
        // What the first of them says already takes no time to read again.
        if first.is_none_or(|one| one.reason != question.reason) {
            texts.push(&question.reason);
        }
        if first.is_none_or(|one| one.quote != question.quote) {
            texts.extend(question.quote.as_deref());
        }
        question.read_ms = attention::read_ms(&texts);
        self
    }

    /// Whether one answer can be for both.
    pub(crate) fn is_of_cause(&self, other: &Self) -> bool {
        let (own, others) = (&self.question, &other.question);
        own.cause.is_some()
            && (&own.cause, &own.project) == (&others.cause, &others.project)
            && self.elsewhere == other.elsewhere
    }

    /// Why this answer isn't accepted, independent of reading speed.
    pub(crate) fn refuses(&self, answer: &ApprovalAnswer, by: &str) -> Option<AnswerResult> {
        let is_host = matches!(answer, ApprovalAnswer::HostSays { .. });
        let goes_further = matches!(answer, ApprovalAnswer::Approve { scope, .. } if *scope > Scope::Once);
        let is_approval = matches!(answer, ApprovalAnswer::Approve { .. });
        // Nobody here knows whom a host has asked: it may be a person who answers here as well.
        if is_host && (!self.elsewhere || self.question.approvers > 1) {
            return Some(AnswerResult::NotHosts);
        }
        if self.question.open_names && goes_further {
            return Some(AnswerResult::OpenNames);
        }
        let is_nobody = is_approval && by == UNIDENTIFIED && self.question.approvers > 1;
        is_nobody.then_some(AnswerResult::Unidentified)
    }

    /// Whether somebody has approved it with this token.
    pub(crate) fn was_approved_with(&self, token: &TokenId) -> bool {
        self.said.values().any(|said| said.is_approval_with(token))
    }

    /// Takes back what was approved with a token. Denials stay.
    pub(crate) fn withdraw(&mut self, token: &TokenId) {
        self.said.retain(|_, said| !said.is_approval_with(token));
    }

    /// Any denial denies; otherwise it takes as many approvers as the rule says.
    pub(crate) fn standing(&self, now_ms: i64) -> Answered {
        for said in self.said.values() {
            if let ApprovalAnswer::Deny { because } = &said.answer {
                return Answered::Denied { because: because.clone() };
            }
        }
        let needed = self.question.approvers;
        match u8::try_from(self.agreed(now_ms).count()).unwrap_or(u8::MAX) {
            agreed if agreed >= needed => Answered::Approved,
            agreed => Answered::Waiting { agreed, needed },
        }
    }

    /// Whose approvals hold now: not one that has expired, nor one that was given while the clock was ahead.
    fn agreed(&self, now_ms: i64) -> impl Iterator<Item = (&String, &StoredAnswer, Scope)> {
        let holds = move |said: &StoredAnswer| now_ms < said.until_ms && !is_ahead(said.at_ms, now_ms);
        let is_somebody = |name: &str| self.question.approvers <= 1 || name != UNIDENTIFIED;
        let counts = move |(name, said): &(&String, &StoredAnswer)| holds(said) && is_somebody(name);
        self.said.iter().filter(counts).filter_map(|(name, said)| match &said.answer {
            ApprovalAnswer::Approve { scope, .. } => Some((name, said, *scope)),
            ApprovalAnswer::HostSays { .. } => {
                (self.question.approvers <= 1).then_some((name, said, Scope::Once))
            }
            ApprovalAnswer::Deny { .. } => None,
        })
    }

    /// By whom, when, and the narrowest of their answers.
    pub(crate) fn yes(&self, now_ms: i64) -> Approved {
        let agreed = || self.agreed(now_ms);
        let is_host = |said: &StoredAnswer| matches!(said.answer, ApprovalAnswer::HostSays { .. });
        let hosts = agreed().any(|(_, said, _)| is_host(said));
        Approved {
            asked_at_ms: self.question.created_at_ms,
            attention_percent: agreed().map(|(_, said, _)| said.attention_percent).max().unwrap_or(0),
            by: agreed().filter(|(_, said, _)| !is_host(said)).map(|(name, _, _)| name.clone()).collect(),
            decided_at_ms: agreed().map(|(_, said, _)| said.at_ms).max().unwrap_or(now_ms),
            scope: agreed().map(|(_, _, scope)| scope).min().unwrap_or(Scope::Once),
            ticket: self.question.id.clone(),
            tokens: agreed().filter_map(|(_, said, _)| said.token.clone()).collect(),
            used_up: None,
            voice: if hosts { Voice::HostSays } else { Voice::Person },
        }
    }

    pub(crate) fn is_open(&self, now_ms: i64) -> bool {
        now_ms < self.question.expires_at_ms && matches!(self.standing(now_ms), Answered::Waiting { .. })
    }

    /// Neither can it still be answered, nor does an answer still hold.
    pub(crate) fn is_over(&self, now_ms: i64) -> bool {
        now_ms >= self.keep_until_ms() || is_ahead(self.question.created_at_ms, now_ms)
    }

    fn keep_until_ms(&self) -> i64 {
        let answers = self.said.values().map(|said| said.until_ms);
        answers.fold(self.question.expires_at_ms, i64::max)
    }

    pub(crate) fn save(&self, records: &mut StateDraft<'_>) -> Result<(), StateError> {
        self.save_answer(records)?;
        let (id, keep_until_ms) = (&self.question.id, self.keep_indexes_until_ms());
        self.indexes().try_for_each(|index| records.save(&index, id, keep_until_ms))
    }

    /// The same for a question that was put before: its indexes are there, and one commit has room for a whole batch.
    pub(crate) fn save_answer(&self, records: &mut StateDraft<'_>) -> Result<(), StateError> {
        records.save(&key_of(&self.question.id), self, self.keep_until_ms())
    }

    /// As long as any answer to it may hold, so that an answer doesn't change them.
    fn keep_indexes_until_ms(&self) -> i64 {
        let held_ms = i64::try_from(VALID_MS_MAX).unwrap_or(i64::MAX).max(OPEN_MS_MAX);
        self.question.expires_at_ms.saturating_add(held_ms)
    }

    pub(crate) fn discard(&self, records: &mut StateDraft<'_>) {
        records.remove(&key_of(&self.question.id));
        self.indexes().for_each(|index| records.remove(&index));
    }

    /// Where it is found: by its call, by who asks, and by its cause. Each of these is short, however many questions wait.
    fn indexes(&self) -> impl Iterator<Item = String> {
        let id = &self.question.id;
        let by_cause = self.question.cause.as_ref().map(|cause| cause_index(cause));
        let all = [Some(index_of(&self.digest)), Some(asker_index(&self.root)), by_cause];
        all.into_iter().flatten().map(move |index| format!("{index}{id}"))
    }
}

impl StoredAnswer {
    pub(crate) fn new(
        answer: &ApprovalAnswer,
        token: Option<&TokenId>,
        attention_percent: u8,
        now_ms: i64,
    ) -> Self {
        let (answer, until_ms) = Self::held(answer, now_ms);
        Self { answer, until_ms, at_ms: now_ms, attention_percent, token: token.cloned() }
    }

    fn is_approval_with(&self, token: &TokenId) -> bool {
        let is_denial = matches!(self.answer, ApprovalAnswer::Deny { .. });
        !is_denial && self.token.as_ref() == Some(token)
    }

    /// What is kept of it, and how long it holds.
    fn held(answer: &ApprovalAnswer, now_ms: i64) -> (ApprovalAnswer, i64) {
        match answer {
            ApprovalAnswer::Approve { scope, valid_ms } => {
                let valid_ms = (*valid_ms).min(VALID_MS_MAX);
                let until_ms = now_ms.saturating_add(i64::try_from(valid_ms).unwrap_or(i64::MAX));
                (ApprovalAnswer::Approve { scope: *scope, valid_ms }, until_ms)
            }
            ApprovalAnswer::HostSays { valid_ms } => {
                let valid_ms = (*valid_ms).min(VALID_MS_MAX);
                let until_ms = now_ms.saturating_add(i64::try_from(valid_ms).unwrap_or(i64::MAX));
                (ApprovalAnswer::HostSays { valid_ms }, until_ms)
            }
            ApprovalAnswer::Deny { because } => {
                let because = because.as_ref().map(|text| text.chars().take(BECAUSE_CHARS_MAX).collect());
                (ApprovalAnswer::Deny { because }, now_ms.saturating_add(OPEN_MS_MAX))
            }
        }
    }
}

/// Whether a time lies in the future, further than clocks are stepped back in ordinary operation.
fn is_ahead(at_ms: i64, now_ms: i64) -> bool {
    at_ms > now_ms.saturating_add(AHEAD_MS_MAX)
}

/// A question that isn't over. Only our own ids are looked up.
pub(crate) fn load(
    records: &StateDraft<'_>,
    ticket: &TicketId,
    now_ms: i64,
) -> Result<Option<Posed>, StateError> {
    let posed = posed(records, &key_of(ticket))?;
    Ok(posed.filter(|posed| !posed.is_over(now_ms)))
}

/// A question under its key. A state that can't decrypt one gives `null` in its place: for this process it isn't there.
pub(crate) fn posed(records: &StateDraft<'_>, key: &str) -> Result<Option<Posed>, StateError> {
    Ok(records.load::<Option<Posed>>(key)?.flatten())
}

pub(crate) fn key_of(ticket: &TicketId) -> String {
    format!("question/{}", store::key_part(&ticket.0))
}

pub(crate) fn index_of(digest: &Digest) -> String {
    format!("question-of/{digest}/")
}

pub(crate) fn asker_index(root: &str) -> String {
    format!("question-by/{}/", store::key_part(root))
}

pub(crate) fn cause_index(cause: &str) -> String {
    format!("question-cause/{}/", store::key_part(cause))
}

/// The questions of an index, as far as they are there.
pub(crate) fn indexed(records: &StateDraft<'_>, index: &str) -> Result<Vec<Posed>, StateError> {
    Ok(Indexed::read(records, index)?.posed)
}

/// The questions of an index, and entries of it whose question is gone: an entry is kept as long as any answer to its question could hold.
#[derive(Debug, Default)]
pub(crate) struct Indexed {
    pub(crate) posed: Vec<Posed>,
    gone: Vec<String>,
}

impl Indexed {
    pub(crate) fn read(records: &StateDraft<'_>, index: &str) -> Result<Self, StateError> {
        let (mut found, mut unread) = (Self::default(), Ok(()));
        for (key, value) in records.scan(index)? {
            let ticket: TicketId = store::parse(&key, &value)?;
            match records.load::<Option<Posed>>(&key_of(&ticket)) {
                Ok(Some(posed)) => found.posed.extend(posed),
                Ok(None) => found.gone.push(key),
                // All of them are looked for before the step is run again, so that one read brings them.
                Err(error) => unread = unread.and(Err(error)),
            }
        }
        unread.map(|()| found)
    }

    /// Removes entries that lead nowhere, as many as a commit has room for: what is read with each question stays short.
    pub(crate) fn prune(&self, records: &mut StateDraft<'_>) {
        self.gone.iter().take(PRUNED_MAX).for_each(|key| records.remove(key));
    }
}

/// The questions that still wait, longest first.
pub(crate) fn open_of(all: impl IntoIterator<Item = Posed>, now_ms: i64) -> Vec<OpenQuestion> {
    let mut open = Vec::new();
    for posed in all {
        if posed.is_open(now_ms) {
            let agreed = posed.agreed(now_ms).map(|(name, _, _)| name.clone()).collect();
            open.push(OpenQuestion { agreed, ..posed.question });
        }
    }
    open.sort_by_key(|question| question.created_at_ms);
    open
}

/// Eight characters without look-alikes: 40 bits, and only a reviewer's principal can use one.
pub(crate) fn fresh_id() -> Result<TicketId, StateError> {
    const ALPHABET: [char; 32] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'j', 'k',
        'm', 'n', 'p', 'q', 'r', 's', 't', 'v', 'w', 'x', 'y', 'z',
    ];
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(|error| StateError::Unusable(format!("no randomness: {error}")))?;
    let mut id: String =
        bytes.iter().filter_map(|byte| ALPHABET.get(usize::from(byte & 31))).copied().collect();
    id.insert(4, '-');
    Ok(TicketId(id))
}
