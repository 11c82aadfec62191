//! Tokens: how a caller that isn't at this terminal shows who it is.
//!
//! A token is `rgt_`, a public id, and 256 random bits. The creator keeps the only copy: the shared state has its SHA-256, and so do the
//! arguments of the call that creates it, so that neither state nor ledger nor this process ever holds a token that it can lose. This module is all
//! that knows how tokens are stored.

use std::sync::Arc;

use regent_ledger::{Digest, hex_string};
use regent_store::{self as store, FOR_GOOD, Partition, State, StateDraft, StateError};
pub use regent_wire::{Subject, TokenId, TokenSpec, TokenState, TokenSummary};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

const PREFIX: &str = "rgt_";
const KEY: &str = "token/";
/// Hexadecimal digits of an id, and of the secret.
const ID_DIGITS: usize = 16;
const SECRET_DIGITS: usize = 64;
/// Tokens that are kept, the revoked and expired ones included.
const TOKENS_MAX: usize = 4_096;
/// How long a token that is over stays in the list.
const OVER_KEPT_MS: i64 = 30 * 24 * 60 * 60 * 1000;
/// When a token was last used is known to the hour, so that using one rarely writes.
const USED_STEP_MS: i64 = 60 * 60 * 1000;
const NAME_CHARS_MAX: usize = 64;
/// Names that would impersonate another caller.
const RESERVED: &[&str] = &["operator", "kernel", "host", "regent", "nobody"];

/// A new token, with its only copy of the secret. It is wiped when it is dropped.
pub struct Token {
    id: TokenId,
    text: Zeroizing<String>,
}

impl Token {
    /// Makes a token out of the machine's randomness.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut id = [0_u8; ID_DIGITS / 2];
        getrandom::fill(&mut id)?;
        Self::with_id(TokenId(hex_string(&id)))
    }

    /// A new secret for a token that exists.
    pub fn renew(id: &TokenId) -> Result<Self, getrandom::Error> {
        Self::with_id(id.clone())
    }

    fn with_id(id: TokenId) -> Result<Self, getrandom::Error> {
        let mut secret = Zeroizing::new([0_u8; SECRET_DIGITS / 2]);
        getrandom::fill(&mut *secret)?;
        // Room for all of it from the start, so that growing leaves no copy behind.
        let mut text = Zeroizing::new(String::with_capacity(PREFIX.len() + ID_DIGITS + 1 + SECRET_DIGITS));
        text.push_str(PREFIX);
        text.push_str(&id.0);
        text.push('_');
        digits(&*secret).for_each(|digit| text.push(digit));
        Ok(Self { id, text })
    }

    /// Its public part.
    pub fn id(&self) -> &TokenId {
        &self.id
    }

    /// What is stored in its place.
    pub fn digest(&self) -> Digest {
        Digest::compute(self.text.as_bytes())
    }

    /// The text to hand to its owner.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({}…)", self.id)
    }
}

fn digits(bytes: &[u8]) -> impl Iterator<Item = char> {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves.filter_map(|half| char::from_digit(u32::from(half), 16))
}

fn is_plain_id(id: &TokenId) -> bool {
    id.0.len() == ID_DIGITS && id.0.bytes().all(is_digit)
}

fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// The id in a token that looks like one.
fn id_in(text: &str) -> Option<TokenId> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let id = TokenId(id.to_owned());
    let looks_right = is_plain_id(&id) && secret.len() == SECRET_DIGITS && secret.bytes().all(is_digit);
    looks_right.then_some(id)
}

/// Whether the subject's name can be anybody's.
pub(crate) fn has_plain_name(subject: &Subject) -> bool {
    match subject {
        Subject::Person { name, .. } | Subject::Service { name } | Subject::Peer { name } => {
            is_plain_name(name)
        }
        Subject::Agent { .. } => true,
    }
}

/// Whether people and programs can be called so.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "._@-".contains(c);
    let is_reserved = RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name));
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(fine) && !is_reserved
}

/// Whether a token is for a person whose name differs from this one only in capitals.
fn other_spelling(subject: &Subject, name: &str) -> Option<Changed> {
    let Subject::Person { name: own, .. } = subject else { return None };
    let differs = own != name && own.eq_ignore_ascii_case(name);
    differs.then(|| Changed::OtherSpelling { given: own.clone(), existing: name.to_owned() })
}

/// A token as the state has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredToken {
    subject: Subject,
    sha256: Digest,
    /// Counts the secrets it has had: a caller with an earlier one is refused at its next call.
    generation: u32,
    created_at_ms: i64,
    created_by: String,
    expires_at_ms: Option<i64>,
    last_used_at_ms: Option<i64>,
    revoked_at_ms: Option<i64>,
}

impl StoredToken {
    fn state(&self, now_ms: i64) -> TokenState {
        match (self.revoked_at_ms, self.expires_at_ms) {
            (Some(_), _) => TokenState::Revoked,
            (None, Some(end)) if now_ms >= end => TokenState::Expired,
            (None, _) => TokenState::Active,
        }
    }

    fn summary(&self, id: TokenId, now_ms: i64) -> TokenSummary {
        TokenSummary {
            id,
            subject: self.subject.clone(),
            state: self.state(now_ms),
            created_by: self.created_by.clone(),
            created_at_ms: self.created_at_ms,
            expires_at_ms: self.expires_at_ms,
            last_used_at_ms: self.last_used_at_ms,
            rotations: self.generation,
        }
    }

    fn keep_until_ms(&self) -> i64 {
        let over_at_ms = self.revoked_at_ms.or(self.expires_at_ms);
        over_at_ms.map_or(FOR_GOOD, |at_ms| at_ms.saturating_add(OVER_KEPT_MS))
    }

    fn save(&self, records: &mut StateDraft<'_>, id: &TokenId) -> Result<(), StateError> {
        records.save(&key(id), self, self.keep_until_ms())
    }
}

fn key(id: &TokenId) -> String {
    format!("{KEY}{id}")
}

fn partition() -> Partition {
    Partition::containing(KEY)
}

/// The token that a caller has presented, so that each of its calls can ask whether it still holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Presented {
    pub(crate) id: TokenId,
    generation: u32,
}

/// Why a token doesn't open anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// Misspelt, revoked, replaced, or never made. The caller can't distinguish these.
    Invalid,
    /// The right one, too late.
    Expired,
}

/// The result of a change.
#[derive(Debug)]
pub(crate) enum Changed {
    Done(TokenSummary),
    /// There is no such token, it is over, or it was replaced.
    Unknown,
    /// The id is taken, or isn't one.
    BadId,
    /// A person has the same name in another spelling. Two people would be told apart by capitals alone.
    OtherSpelling {
        given: String,
        existing: String,
    },
    /// There is no room for another one.
    TooMany,
}

/// The tokens in the shared state.
#[derive(Debug)]
pub(crate) struct Tokens {
    state: Arc<dyn State>,
}

impl Tokens {
    pub(crate) fn new(state: &Arc<dyn State>) -> Self {
        Self { state: Arc::clone(state) }
    }

    async fn kept(&self, id: &TokenId) -> Result<Option<StoredToken>, StateError> {
        store::load(&*self.state, &key(id), &partition()).await
    }

    /// The subject of a token. Reports expiry only to a caller that has all of it.
    pub(crate) async fn find(
        &self,
        text: &str,
        now_ms: i64,
    ) -> Result<Result<(Subject, Presented), Unusable>, StateError> {
        let Some(id) = id_in(text) else { return Ok(Err(Unusable::Invalid)) };
        let Some(kept) = self.kept(&id).await? else { return Ok(Err(Unusable::Invalid)) };
        let is_right: bool = Digest::compute(text.as_bytes()).as_bytes().ct_eq(kept.sha256.as_bytes()).into();
        if !is_right || kept.revoked_at_ms.is_some() {
            return Ok(Err(Unusable::Invalid));
        }
        if kept.state(now_ms) != TokenState::Active {
            return Ok(Err(Unusable::Expired));
        }
        self.note_use(&id, &kept, now_ms).await;
        let presented = Presented { id, generation: kept.generation };
        Ok(Ok((kept.subject, presented)))
    }

    /// Whether what was presented earlier still holds.
    pub(crate) async fn check(
        &self,
        presented: &Presented,
        now_ms: i64,
    ) -> Result<Result<(), Unusable>, StateError> {
        let kept = self.kept(&presented.id).await?;
        Ok(match kept.map(|kept| (kept.generation == presented.generation, kept.state(now_ms))) {
            Some((true, TokenState::Active)) => Ok(()),
            Some((true, TokenState::Expired)) => Err(Unusable::Expired),
            Some((true, TokenState::Revoked) | (false, _)) | None => Err(Unusable::Invalid),
        })
    }

    /// Whether a token was revoked. One that nobody knows any more was revoked before.
    pub(crate) async fn is_revoked(&self, id: &TokenId) -> Result<bool, StateError> {
        Ok(self.kept(id).await?.is_none_or(|kept| kept.revoked_at_ms.is_some()))
    }

    /// The first of these tokens that was revoked.
    pub(crate) async fn first_revoked<'t>(
        &self,
        ids: &'t [TokenId],
    ) -> Result<Option<&'t TokenId>, StateError> {
        for id in ids {
            if self.is_revoked(id).await? {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Records the hour of use, for display. A full disk therefore refuses no caller.
    async fn note_use(&self, id: &TokenId, kept: &StoredToken, now_ms: i64) {
        let hour_ms = now_ms.saturating_sub(now_ms.rem_euclid(USED_STEP_MS));
        if kept.last_used_at_ms == Some(hour_ms) {
            return;
        }
        let noted = store::change(&*self.state, &partition(), &[key(id)], |records| {
            let Some(mut now) = records.load::<StoredToken>(&key(id))? else { return Ok(()) };
            now.last_used_at_ms = Some(hour_ms);
            now.save(records, id)
        })
        .await;
        drop(noted);
    }

    pub(crate) async fn create(
        &self,
        spec: &TokenSpec,
        (by, operator): (&str, &str),
        now_ms: i64,
    ) -> Result<Changed, StateError> {
        if !is_plain_id(&spec.id) {
            return Ok(Changed::BadId);
        }
        let valid_ms = spec.valid_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        let new = StoredToken {
            subject: spec.subject.clone(),
            sha256: spec.sha256,
            generation: 0,
            created_at_ms: now_ms,
            created_by: by.to_owned(),
            expires_at_ms: valid_ms.map(|ms| now_ms.saturating_add(ms)),
            last_used_at_ms: None,
            revoked_at_ms: None,
        };
        store::change(&*self.state, &partition(), &[], |records| {
            if records.get(&key(&spec.id))?.is_some() {
                return Ok(Changed::BadId);
            }
            let others = records.scan(KEY)?;
            if others.len() >= TOKENS_MAX {
                return Ok(Changed::TooMany);
            }
            if let Some(refused) = other_spelling(&spec.subject, operator) {
                return Ok(refused);
            }
            for (key, value) in others {
                let other: StoredToken = store::parse(&key, &value)?;
                if let Subject::Person { name, .. } = &other.subject
                    && let Some(refused) = other_spelling(&spec.subject, name)
                {
                    return Ok(refused);
                }
            }
            new.save(records, &spec.id)?;
            Ok(Changed::Done(new.summary(spec.id.clone(), now_ms)))
        })
        .await
    }

    pub(crate) async fn list(&self, now_ms: i64) -> Result<Vec<TokenSummary>, StateError> {
        let records = self.state.scan(&partition(), KEY).await?.into_iter();
        let summary = |record: store::Record| {
            let kept: StoredToken = store::parse(&record.key, &record.value)?;
            let id = record.key.strip_prefix(KEY).unwrap_or_default().to_owned();
            Ok(kept.summary(TokenId(id), now_ms))
        };
        let mut all = records.map(summary).collect::<Result<Vec<_>, StateError>>()?;
        all.sort_by_key(|one| (one.created_at_ms, one.id.clone()));
        Ok(all)
    }

    pub(crate) async fn revoke(&self, id: &TokenId, now_ms: i64) -> Result<Changed, StateError> {
        self.alter(id, now_ms, |_| true, |kept| kept.revoked_at_ms = Some(now_ms)).await
    }

    /// Puts another secret in the place of the one there is. The new one is valid as long as the first was. Whoever has presented this
    /// token replaces it only as long as theirs is the latest: a replaced secret makes no new one.
    pub(crate) async fn rotate(
        &self,
        id: &TokenId,
        sha256: Digest,
        presented: Option<&Presented>,
        now_ms: i64,
    ) -> Result<Changed, StateError> {
        let presented = presented.filter(|presented| presented.id == *id);
        let is_latest =
            |kept: &StoredToken| presented.is_none_or(|presented| presented.generation == kept.generation);
        self.alter(id, now_ms, is_latest, |kept| {
            let began_ms = kept.expires_at_ms.map(|end| end.saturating_sub(kept.created_at_ms));
            kept.expires_at_ms = began_ms.map(|valid_ms| now_ms.saturating_add(valid_ms));
            kept.created_at_ms = now_ms;
            kept.sha256 = sha256;
            kept.generation = kept.generation.saturating_add(1);
            kept.last_used_at_ms = None;
        })
        .await
    }

    /// Changes a token that isn't revoked. An expired one can be revoked, and rotated into a new life.
    async fn alter(
        &self,
        id: &TokenId,
        now_ms: i64,
        may: impl Fn(&StoredToken) -> bool + Send + Sync,
        change: impl Fn(&mut StoredToken) + Send + Sync,
    ) -> Result<Changed, StateError> {
        if !is_plain_id(id) {
            return Ok(Changed::Unknown);
        }
        store::change(&*self.state, &partition(), &[key(id)], |records| {
            let kept: Option<StoredToken> = records.load(&key(id))?;
            let Some(mut kept) = kept.filter(|kept| kept.revoked_at_ms.is_none() && may(kept)) else {
                return Ok(Changed::Unknown);
            };
            change(&mut kept);
            kept.save(records, id)?;
            Ok(Changed::Done(kept.summary(id.clone(), now_ms)))
        })
        .await
    }
}
