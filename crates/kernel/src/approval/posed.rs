//! A question as the shared state has it, and how it stands.

use std::collections::BTreeMap;

use regent_store::{self as store, Record, Records, StateError};
use serde::{Deserialize, Serialize};

use super::{Answer, Answered, Asked, OpenQuestion, Scope, TicketId};
use crate::call::CallDigest;

/// How long a question waits for its answer.
pub(super) const OPEN_MS_MAX: i64 = 24 * 60 * 60 * 1000;
/// How long a yes can hold.
const VALID_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1000;
/// The longest advice.
const BECAUSE_CHARS_MAX: usize = 1_000;

/// A question as the state has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Posed {
    pub(super) digest: CallDigest,
    pub(super) question: OpenQuestion,
    /// The last word of each person.
    pub(super) said: BTreeMap<String, Said>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Said {
    answer: Answer,
    until_ms: i64,
}

impl Posed {
    /// Any no is a no; else it takes as many people as the rule says.
    pub(super) fn standing(&self, now_ms: i64) -> Answered {
        for said in self.said.values() {
            if let Answer::Deny { because } = &said.answer {
                return Answered::Denied { because: because.clone() };
            }
        }
        let needed = self.question.approvers;
        match u8::try_from(self.agreed(now_ms).count()).unwrap_or(u8::MAX) {
            agreed if agreed >= needed => Answered::Approved,
            agreed => Answered::Waiting { agreed, needed },
        }
    }

    /// Who has said yes, and still means it.
    pub(super) fn agreed(&self, now_ms: i64) -> impl Iterator<Item = (&String, Scope)> {
        self.said.iter().filter(move |(_, said)| now_ms < said.until_ms).filter_map(
            |(name, said)| match &said.answer {
                Answer::Approve { scope, .. } => Some((name, *scope)),
                Answer::Deny { .. } => None,
            },
        )
    }

    /// By whom, and the narrowest of what they said.
    pub(super) fn yes(&self, now_ms: i64) -> (Vec<String>, Scope) {
        let scope = self.agreed(now_ms).map(|(_, scope)| scope).min().unwrap_or(Scope::Once);
        (self.agreed(now_ms).map(|(name, _)| name.clone()).collect(), scope)
    }

    pub(super) fn is_open(&self, now_ms: i64) -> bool {
        now_ms < self.question.expires_at_ms && matches!(self.standing(now_ms), Answered::Waiting { .. })
    }

    /// Neither can it still be answered, nor does an answer still hold.
    pub(super) fn is_over(&self, now_ms: i64) -> bool {
        now_ms >= self.keep_until_ms()
    }

    fn keep_until_ms(&self) -> i64 {
        let answers = self.said.values().map(|said| said.until_ms);
        answers.fold(self.question.expires_at_ms, i64::max)
    }

    pub(super) fn save(&self, records: &mut dyn Records) -> Result<(), StateError> {
        let (id, keep_until_ms) = (&self.question.id, self.keep_until_ms());
        store::save(records, &key_of(id), self, keep_until_ms)?;
        store::save(records, &format!("{}{id}", index_of(&self.digest)), id, keep_until_ms)
    }

    pub(super) fn discard(&self, records: &mut dyn Records) -> Result<(), StateError> {
        let id = &self.question.id;
        records.remove(&key_of(id))?;
        records.remove(&format!("{}{id}", index_of(&self.digest)))
    }

    pub(super) fn asked(&self) -> Asked {
        let OpenQuestion { id, summary, reason, rule, .. } = self.question.clone();
        Asked { id, reason, rule, summary }
    }
}

impl Said {
    pub(super) fn new(answer: &Answer, now_ms: i64) -> Self {
        match answer {
            Answer::Approve { scope, valid_ms } => {
                let valid_ms = (*valid_ms).min(VALID_MS_MAX);
                let until_ms = now_ms.saturating_add(i64::try_from(valid_ms).unwrap_or(i64::MAX));
                Self { answer: Answer::Approve { scope: *scope, valid_ms }, until_ms }
            }
            Answer::Deny { because } => {
                let because = because.as_ref().map(|text| text.chars().take(BECAUSE_CHARS_MAX).collect());
                Self { answer: Answer::Deny { because }, until_ms: now_ms.saturating_add(OPEN_MS_MAX) }
            }
        }
    }
}

/// A question that isn't over. Only our own ids are looked up.
pub(super) fn load(
    records: &dyn Records,
    ticket: &TicketId,
    now_ms: i64,
) -> Result<Option<Posed>, StateError> {
    let posed: Option<Posed> = store::load(records, &key_of(ticket))?;
    Ok(posed.filter(|posed| !posed.is_over(now_ms)))
}

pub(super) fn key_of(ticket: &TicketId) -> String {
    format!("question/{}", store::key_part(&ticket.0))
}

pub(super) fn index_of(digest: &CallDigest) -> String {
    format!("question-of/{digest}/")
}

/// The questions that still wait, longest first.
pub(super) fn open_of(records: Vec<Record>, now_ms: i64) -> Result<Vec<OpenQuestion>, StateError> {
    let mut open = Vec::new();
    for record in records {
        let posed: Posed = store::parse(&record.key, &record.value)?;
        if posed.is_open(now_ms) {
            let agreed = posed.agreed(now_ms).map(|(name, _)| name.clone()).collect();
            open.push(OpenQuestion { agreed, ..posed.question });
        }
    }
    open.sort_by_key(|question| question.created_at_ms);
    Ok(open)
}

/// Eight characters without look-alikes: 40 bits, and only a person's principal can use one.
pub(super) fn fresh_id() -> Result<TicketId, StateError> {
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
