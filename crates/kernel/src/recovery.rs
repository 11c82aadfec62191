//! After a crash: the calls that began and have no recorded end.
//!
//! An intent that was allowed and recorded, without an outcome, of a process that is gone, is *in doubt*: the effect may have
//! happened or not. The kernel never performs it again by itself. At boot it notes each one in the ledger, once, with what may be
//! done about it. Where the intent has evidence, the note says whether the call took effect, without a question. A
//! call that is the same twice as once may be retried; any other needs a reviewer's decision. The runtime reads the list and acts on it.
//!
//! An intent is recorded without a signature of its own, so one that no checkpoint covers may have been acknowledged: it is in doubt
//! like any other, unless its writer reported it as not recorded. An outcome that no checkpoint covers is no proof, so its call stays
//! in doubt.
//!
//! Reading history at every start would cost more with every day, so the state remembers for each lane how far it was examined. A
//! kernel that shut down with all its calls ended says so itself; then the next one reads nothing. While a kernel runs it renews the
//! mark of its lane now and then. After a crash the lane that the process wrote is read from its mark on.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use regent_ledger::storage::{Files, Lock, Storage};
use regent_ledger::{Digest, Entry, EntryKind, LaneId, ReadError, Reader};
use regent_store::{self as store, FOR_GOOD, Partition, StateError, key_part};
use regent_wire::Version;
use regent_wire::body::{
    Decision, DoubtEffect, DoubtMark, DoubtNext, EntryBody, InDoubtBody, KernelBody, KernelState,
};
use serde::{Deserialize, Serialize};

use crate::approval::TicketId;
use crate::evidence::{DoubtOutcome, EvidenceRef};
use crate::kernel::Core;
use crate::syscall::Fault;

/// How often, and how long apart, we try to get the claim to our own lane from a process that is alive.
const CLAIM_TRIES_MAX: u32 = 100;
const CLAIM_PAUSE_MS: u64 = 10;
/// What an examination looks at.
const EXAMINED: &[EntryKind] = &[EntryKind::Intent, EntryKind::Outcome, EntryKind::Kernel];

/// A call that may or may not have happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InDoubt {
    /// The lane of its intent.
    pub lane: LaneId,
    /// The place of its intent there.
    pub seq: u64,
    /// When it began.
    pub at_ms: i64,
    /// Its arguments, as they were recorded, if it had any.
    pub args: Option<Digest>,
    /// Who made it.
    pub caller: String,
    #[serde(skip)]
    pub(crate) evidence: Option<EvidenceRef>,
    /// Doing it twice is the same as doing it once.
    pub idempotent: bool,
    /// Whether the ledger has a note of it being in doubt.
    pub noted: bool,
    /// What it was.
    pub op: String,
    /// In which session.
    pub session: String,
    /// The question about it, if this boot asked one.
    pub ticket: Option<TicketId>,
    /// Which tool, if it was one.
    pub tool: Option<String>,
}

/// The calls in doubt in the ledger of a folder, read from disk. Those of processes that are alive are not among them.
pub fn in_doubt(root: &Path) -> Result<Vec<InDoubt>, Fault> {
    let storage: Arc<dyn Storage> = Arc::new(Files::new(root));
    let reader = Reader::on(Arc::clone(&storage));
    let mut found = ExaminedCalls::default();
    for lane in reader.lanes()? {
        let live = storage.is_locked(&lock_of(lane)).map_err(ReadError::from)?;
        found.read(reader.lane(lane)?.only(EXAMINED), u64::MAX, live)?;
    }
    Ok(found.finish())
}

impl Core {
    /// Notes what processes before this one have left in doubt. `start` is where our lane stood before we wrote to it.
    pub(crate) async fn recover(&self, start: &regent_ledger::Head) -> Result<(), Fault> {
        // The claims are held until the notes are written and the marks are set.
        let (found, marks, _claims) = self.survey(start).await?;
        let (mut list, mut tree) = (Vec::new(), None);
        for mut call in found.finish().into_iter().filter(|call| !call.noted) {
            let effect = self.effect_of(call.evidence).await;
            if effect != DoubtOutcome::Unknown {
                self.note(EntryKind::Outcome, &note_of(&call, &effect)).await?;
                continue;
            }
            // Asked before it is noted: what a crash leaves in between is asked about again, and put only once.
            if !call.idempotent {
                // A reviewer can only decide what became of it if they see what it was.
                let bytes = call.args.and_then(|digest| self.recorder.ledger.payload(&digest).ok().flatten());
                let args = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
                call.ticket = self.ask_in_doubt(&call, &args, &mut tree).await?;
            }
            self.note(EntryKind::Outcome, &note_of(&call, &effect)).await?;
            list.push(call);
        }
        for (lane, mark) in &marks {
            self.save_mark(*lane, mark).await?;
        }
        self.recorder.unended.begin(start);
        // Set once, here: boot runs once.
        drop(self.recorder.in_doubt.set(list));
        Ok(())
    }

    /// Says that our lane has nothing in doubt, if all our calls have ended. Called when the ledger is closed.
    pub(crate) async fn leave_clean(&self) -> Result<(), Fault> {
        if self.recorder.unended.count() > 0 {
            return Ok(());
        }
        let head = self.recorder.ledger.head();
        let mark = LaneMark { seq: head.size, looks: looks_of(&*self.recorder.ledger.storage(), head.lane)? };
        Ok(self.save_mark(head.lane, &mark).await?)
    }

    /// Remembers that no call before the oldest one that is not over is in doubt, if there is much behind it. It only saves time, so a
    /// failure to write it is no failure. The state of the lane isn't recorded: the next process that finds it free examines it from here on.
    pub(crate) async fn renew_mark(&self) {
        let head = self.recorder.ledger.head();
        let Some(seq) = self.recorder.unended.due(&head) else { return };
        let _only_saves_time = self.save_mark(head.lane, &LaneMark { seq, looks: None }).await.is_err();
    }

    /// Reads what has been written since each lane was last examined: our own lane up to where we began, and the lanes that no process holds.
    async fn survey(
        &self,
        start: &regent_ledger::Head,
    ) -> Result<(ExaminedCalls, Vec<(LaneId, LaneMark)>, Vec<Box<dyn Lock>>), Fault> {
        let storage = self.recorder.ledger.storage();
        let reader = Reader::on(Arc::clone(&storage));
        let (mut found, mut marks, mut claims) = (ExaminedCalls::default(), Vec::new(), Vec::new());
        for lane in reader.lanes()? {
            let (own, looks) = (lane == start.lane, looks_of(&*storage, lane)?);
            let examined = |mark: &LaneMark| if own { mark.seq >= start.size } else { mark.looks == looks };
            let is_live = || storage.is_locked(&lock_of(lane)).map_err(ReadError::from);
            if examined(&self.mark_of(lane).await?) || (!own && is_live()?) {
                continue;
            }
            let claim = claim(&*storage, lane, own).await?;
            // Another may have examined it just before we had the claim.
            let mark = self.mark_of(lane).await?;
            if (claim.is_none() && !own) || examined(&mark) {
                continue;
            }
            let until = if own { start.size } else { u64::MAX };
            let mut here = ExaminedCalls::default();
            let entries = reader.lane_since(lane, mark.seq)?.only(EXAMINED);
            let seq = here.read(entries, until, false)?.max(mark.seq);
            // Someone took the lane while we read it: what looks unfinished may be running. It is theirs to examine.
            if !own && (is_live()? || looks_of(&*storage, lane)? != looks) {
                continue;
            }
            found.join(here);
            marks.push((lane, LaneMark { seq: if own { seq.max(start.size) } else { seq }, looks }));
            claims.extend(claim);
        }
        Ok((found, marks, claims))
    }

    async fn mark_of(&self, lane: LaneId) -> Result<LaneMark, StateError> {
        let key = self.key("examined", lane);
        Ok(store::load(&*self.state, &key, &Partition::containing(&key)).await?.unwrap_or_default())
    }

    async fn save_mark(&self, lane: LaneId, mark: &LaneMark) -> Result<(), StateError> {
        let key = self.key("examined", lane);
        let partition = Partition::containing(&key);
        store::change(&*self.state, &partition, &[], |records| records.save(&key, mark, FOR_GOOD)).await
    }

    fn key(&self, what: &str, lane: LaneId) -> String {
        format!("{what}/{}/{lane}", key_part(&self.workspace.root().to_string_lossy()))
    }
}

/// Two kernels must not both note the calls of one lane. A claim is a lock on a file of the lane, so it ends with its process. For our
/// own lane we wait a little for a process that is alive: no other process will examine it while we hold it. A note too many is better
/// than none, and a start that stalls is worse than both.
async fn claim(storage: &dyn Storage, lane: LaneId, own: bool) -> Result<Option<Box<dyn Lock>>, ReadError> {
    let path = format!("lanes/{lane}/examining");
    for _ in 0..CLAIM_TRIES_MAX {
        let claim = storage.lock(&path)?;
        if claim.is_some() || !own {
            return Ok(claim);
        }
        tokio::time::sleep(Duration::from_millis(CLAIM_PAUSE_MS)).await;
    }
    Ok(None)
}

/// How far a lane was examined, and what its files looked like then.
#[derive(Debug, Default, Serialize, Deserialize)]
struct LaneMark {
    looks: Option<Digest>,
    seq: u64,
}

/// What was read so far: the calls that have begun, and those of which an end is known.
#[derive(Debug, Default)]
struct ExaminedCalls {
    begun: BTreeMap<(LaneId, u64), InDoubt>,
    ended: BTreeSet<(LaneId, u64)>,
    noted: BTreeSet<(LaneId, u64)>,
}

impl ExaminedCalls {
    /// Reads entries of a lane up to a place, and says where the next examination begins. In a live lane, what has begun since
    /// its process came up is running, not in doubt.
    fn read(
        &mut self,
        entries: impl Iterator<Item = Result<Entry, ReadError>>,
        until: u64,
        live: bool,
    ) -> Result<u64, Fault> {
        let (mut next, mut since_boot) = (0, Vec::new());
        for entry in entries {
            let entry = entry?;
            if entry.seq >= until {
                break;
            }
            next = entry.seq.saturating_add(1);
            match entry.kind {
                EntryKind::Intent if !entry.refused => {
                    if let Some(call) = begun(&entry)? {
                        since_boot.push((call.lane, call.seq));
                        self.begun.insert((call.lane, call.seq), call);
                    }
                }
                EntryKind::Outcome if entry.proven => self.end(&entry)?,
                EntryKind::Kernel if is_boot(&entry)? => since_boot.clear(),
                EntryKind::Intent
                | EntryKind::Outcome
                | EntryKind::Kernel
                | EntryKind::Answer
                | EntryKind::Agent
                | EntryKind::Policy
                | EntryKind::Lane
                | EntryKind::Recovery
                | EntryKind::Key
                | EntryKind::Erase
                | EntryKind::Pack
                | EntryKind::Resume
                | EntryKind::Checkpoint => {}
            }
        }
        if live {
            since_boot.iter().for_each(|place| drop(self.begun.remove(place)));
        }
        Ok(next)
    }

    fn end(&mut self, entry: &Entry) -> Result<(), Fault> {
        // An outcome that can't be read ends nothing.
        let Some(body) = EntryBody::read_known(entry)? else { return Ok(()) };
        let Some(place) = body.intent_place(entry) else { return Ok(()) };
        // A note of a call that could be checked says what became of it.
        if matches!(&body, EntryBody::InDoubt(note) if note.effect == DoubtEffect::Unknown) {
            self.noted.insert(place);
        } else if self.begun.remove(&place).is_none() {
            self.ended.insert(place);
        }
        Ok(())
    }

    fn join(&mut self, other: Self) {
        self.begun.extend(other.begun);
        self.ended.extend(other.ended);
        self.noted.extend(other.noted);
    }

    fn finish(self) -> Vec<InDoubt> {
        let Self { begun, ended, noted } = self;
        begun
            .into_iter()
            .filter(|(place, _)| !ended.contains(place))
            .map(|(place, call)| InDoubt { noted: noted.contains(&place), ..call })
            .collect()
    }
}

/// A call that was allowed. What an entry doesn't say is taken for the worse: an intent that can't be read may have been acted on.
fn begun(entry: &Entry) -> Result<Option<InDoubt>, Fault> {
    let body = EntryBody::read_known(entry)?;
    let unknown = InDoubt {
        lane: entry.lane,
        seq: entry.seq,
        at_ms: entry.at_ms,
        args: None,
        caller: String::new(),
        evidence: None,
        idempotent: false,
        noted: false,
        op: String::new(),
        session: String::new(),
        ticket: None,
        tool: None,
    };
    let Some(EntryBody::Intent(intent)) = body else { return Ok(Some(unknown)) };
    Ok((intent.verdict.effect == Decision::Allow).then(|| InDoubt {
        args: intent.args.map(|args| args.sha256),
        caller: intent.caller.name.clone().into_owned(),
        evidence: EvidenceRef::named(&intent, entry.proven),
        idempotent: intent.idempotent,
        op: intent.op.clone().into_owned(),
        session: intent.session.clone().into_owned(),
        tool: intent.tool_name().map(str::to_owned),
        ..unknown
    }))
}

/// The entry for a call in doubt, in place of its outcome.
fn note_of<'a>(call: &'a InDoubt, effect: &DoubtOutcome) -> InDoubtBody<'a> {
    let (effect, next) = match effect {
        DoubtOutcome::Done(_) => (DoubtEffect::Done, DoubtNext::Record),
        DoubtOutcome::NotDone => (DoubtEffect::NotDone, DoubtNext::Retry),
        DoubtOutcome::Unknown if call.idempotent => (DoubtEffect::Unknown, DoubtNext::Retry),
        DoubtOutcome::Unknown => (DoubtEffect::Unknown, DoubtNext::Ask),
    };
    InDoubtBody {
        effect,
        idempotent: call.idempotent,
        intent: call.seq,
        lane: Some(call.lane),
        next,
        op: Cow::Borrowed(&call.op),
        session: Cow::Borrowed(&call.session),
        status: DoubtMark::InDoubt,
        v: Version::CURRENT,
    }
}

/// Whether a kernel came up here.
fn is_boot(entry: &Entry) -> Result<bool, Fault> {
    let Some(EntryBody::Kernel(note)) = EntryBody::read_known(entry)? else { return Ok(false) };
    Ok(matches!(*note, KernelBody::State { state: KernelState::Running, .. }))
}

fn lock_of(lane: LaneId) -> String {
    format!("lanes/{lane}/lock")
}

/// The names and sizes of a lane's segments: if they are as before, nothing was written.
fn looks_of(storage: &dyn Storage, lane: LaneId) -> Result<Option<Digest>, ReadError> {
    let folder = format!("lanes/{lane}");
    let mut looks = String::new();
    for name in storage.list(&folder)?.into_iter().filter(|name| name.ends_with(".jsonl")) {
        let bytes = storage.stat(&format!("{folder}/{name}"))?.map_or(0, |stat| stat.bytes);
        looks.push_str(&format!("{name} {bytes}\n"));
    }
    Ok(Some(Digest::compute(looks.as_bytes())))
}
