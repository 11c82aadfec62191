//! Verifies a ledger from its files alone, without the kernel, secrets or cached state.
//!
//! It verifies every link of every lane, the root that every checkpoint states, the index, the settled tails and the payloads. It verifies
//! the signature of the last checkpoint of each segment and of each checkpoint before a key change; the chain covers the other checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::chain::KnownTip;
use crate::entry::lane_origin;
use crate::index::{Index, IndexError, check_witness, index_break};
use crate::internal::{EraseBody, RecoveryBody, Tip};
use crate::lane::{
    KeyRing, LaneEnd, LanePlan, LaneState, PackState, Piece, Tail, last_checkpoint, read_head,
};
use crate::layout::{lane_folder, lane_lock, lanes, pack_path, segments};
use crate::note::{Checkpoint, Note};
use crate::payload::Records;
use crate::storage::{Files, Storage};
use crate::why::{Break, Defect};
use crate::witness::Witnessed;
use crate::{Digest, LaneId, PublicKey};

const THREADS_MAX: usize = 8;
/// Digests that a report lists; further ones are only counted.
const PENDING_MAX: usize = 10;
const PACK_BYTES_CAP: u64 = 1 << 30;

/// What to compare a ledger with.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// Keys that are trusted to have signed the index. Without any, the first lane's initial key is used. That proves that the ledger is
    /// consistent, not who wrote it.
    pub keys: Vec<PublicKey>,
    /// Signed checkpoints that were stored elsewhere and must be part of this history.
    pub expect: Vec<String>,
    /// The file that remembers the head of each lane.
    pub witness: Option<PathBuf>,
    /// Skips reading payloads.
    pub skip_payloads: bool,
}

/// The result of verification.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The ledger's name.
    pub ledger: String,
    /// The key that signed the index.
    pub key: String,
    /// Every lane.
    pub lanes: Vec<LaneReport>,
    /// Proven entries in all lanes.
    pub entries: u64,
    /// Payloads that match their digests.
    pub payloads: u64,
    /// Payloads that an entry records as removed.
    pub erased: u64,
    /// Payloads that an entry records as erased, whose bytes are still there.
    pub erase_pending: u64,
    /// The digests of the first such payloads.
    pub pending: BTreeSet<Digest>,
    /// The overall verdict.
    pub verdict: LedgerVerdict,
}

/// The result of verifying one lane.
#[derive(Debug, Clone, Serialize)]
pub struct LaneReport {
    /// The lane.
    pub lane: LaneId,
    /// Proven entries.
    pub entries: u64,
    /// Root of the tree over them.
    pub root: Digest,
    /// Whether a writer was active, so that a write at its end may be in progress.
    pub live: bool,
    /// Whether a recovery entry settled its end.
    pub settled: bool,
    /// Bytes after the last checkpoint that no entry accounts for.
    pub tail: Option<Tail>,
    /// Unvouched entries under a checkpoint, left by a crash.
    pub unvouched: u64,
    /// Bytes at the end of the last pack that no entry accounts for. A crash leaves them, and so does a truncated lane.
    pub stray_pack_bytes: u64,
    /// Entries whose timestamp is older than that of the previous entry. Order is by position, not time.
    pub clock_steps_back: u64,
}

/// The result of verifying a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerVerdict {
    /// Everything verified.
    Ok,
    /// Everything under a checkpoint verified, but lanes end in bytes that no checkpoint covers.
    Unproven {
        /// The lanes.
        lanes: Vec<LaneId>,
    },
    /// The first error found.
    Broken(Break),
}

/// Why verification couldn't run.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The ledger can't be read.
    #[error("can't read the ledger")]
    Io(#[from] io::Error),
    /// There is no ledger, or it has no entries yet.
    #[error("there is no ledger here")]
    NoLedger,
    /// An expected checkpoint can't be parsed, or no trusted key signed it.
    #[error("the expected checkpoint is invalid: {0}")]
    Expectation(String),
}

/// Verifies the ledger in a folder.
pub fn verify(root: &Path, options: &VerifyOptions) -> Result<Report, VerifyError> {
    verify_on(Arc::new(Files::new(root)), options)
}

/// Verifies the ledger in a storage.
pub fn verify_on(storage: Arc<dyn Storage>, options: &VerifyOptions) -> Result<Report, VerifyError> {
    let storage = storage.as_ref();
    // Read first, so that concurrent writes are never behind the witness.
    let witnessed = options.witness.as_deref().map(Witnessed::read).transpose()?.flatten();
    let present = lanes(storage)?;
    let (index, note) = match Index::read(storage) {
        Ok(Some(found)) => found,
        Ok(None) if present.is_empty() => return nothing_here(witnessed.as_ref()),
        Ok(None) => return Ok(Report::broken(index_break(Defect::Index("it is missing".to_owned())))),
        Err(IndexError::Broken(broken)) => return Ok(Report::broken(*broken)),
        Err(IndexError::Io(error)) => return Err(error.into()),
        Err(error @ (IndexError::WrongKey | IndexError::Busy)) => return Err(io::Error::other(error).into()),
    };
    let mut plans = match plan(storage, &index, &present, (options, witnessed.as_ref()))? {
        Ok(plans) => plans,
        Err(broken) => return Ok(Report::broken(broken)),
    };
    let walked = walk_all(storage, &mut plans)?;
    let keys = if options.keys.is_empty() { own_keys(&walked) } else { options.keys.clone() };
    if keys.is_empty() && index.lanes.is_empty() {
        // Its writer died before the first entry: there is nothing to verify yet.
        return nothing_here(witnessed.as_ref().filter(|witnessed| !witnessed.lanes.is_empty()));
    }
    let signer = index.signer(&note, &keys).map_err(|error| index_break(Defect::Index(error.to_string())));
    let ring = match &signer {
        Ok(signer) => index.keys(*signer),
        // The lanes are verified anyway, because an error in a lane is more specific.
        Err(_) => index.lanes.values().map(|anchor| anchor.key).chain(keys).collect(),
    };
    let mut states = Vec::new();
    for (plan, pieces) in plans.iter().zip(walked) {
        states.push(plan.judge(storage, pieces, &KeyRing::StartedBy(ring.clone()))?);
    }
    let signer = match signer {
        Ok(signer) => signer,
        Err(broken) if options.keys.is_empty() => {
            return Ok(Report::broken(first_break(&states).cloned().unwrap_or(broken)));
        }
        Err(broken) => return Ok(Report::broken(broken)),
    };
    if let Some(Err(mismatch)) = witnessed.as_ref().map(|witnessed| check_witness(witnessed, Some(&index))) {
        // A ledger that is another or older as a whole is a better explanation than differences between its lanes.
        let tampered = first_break(&states).filter(|broken| !broken.is_witnessed());
        return Ok(Report::broken(tampered.cloned().unwrap_or_else(|| index_break(mismatch.into()))));
    }
    for expected in &options.expect {
        Checkpoint::open(expected, &ring).map_err(|error| VerifyError::Expectation(error.to_string()))?;
    }
    let mut report = Report {
        ledger: index.ledger.clone(),
        key: signer.to_string(),
        lanes: states.iter().zip(&plans).map(|(state, plan)| LaneReport::new(state, plan)).collect(),
        entries: states.iter().map(|state| state.tip.size()).sum(),
        verdict: conclude(&states, &plans),
        ..Report::broken(index_break(Defect::MissingLane))
    };
    if !options.skip_payloads && !matches!(report.verdict, LedgerVerdict::Broken(_)) {
        check_packs(storage, &states, &mut report)?;
    }
    Ok(report)
}

impl Report {
    fn broken(broken: Break) -> Report {
        Report {
            ledger: String::new(),
            key: String::new(),
            lanes: Vec::new(),
            entries: 0,
            payloads: 0,
            erased: 0,
            erase_pending: 0,
            pending: BTreeSet::new(),
            verdict: LedgerVerdict::Broken(broken),
        }
    }
}

impl LaneReport {
    fn new(state: &LaneState, plan: &LanePlan) -> LaneReport {
        let tail = match &state.end {
            LaneEnd::Unproven(tail) => Some(tail.clone()),
            LaneEnd::Empty | LaneEnd::Clean | LaneEnd::Live | LaneEnd::Settled | LaneEnd::Broken(_) => None,
        };
        LaneReport {
            lane: state.lane,
            entries: state.tip.size(),
            root: state.tip.frontier.root(),
            live: plan.live,
            settled: plan.settled.is_some(),
            tail,
            unvouched: state.unvouched,
            stray_pack_bytes: 0,
            clock_steps_back: state.clock_steps_back,
        }
    }
}

/// The result if there is no ledger or no entry: an error if the witness knows one.
fn nothing_here(witnessed: Option<&Witnessed>) -> Result<Report, VerifyError> {
    let gone = witnessed.map(|witnessed| check_witness(witnessed, None));
    match gone {
        Some(Err(mismatch)) => Ok(Report::broken(index_break(mismatch.into()))),
        Some(Ok(())) | None => Err(VerifyError::NoLedger),
    }
}

/// The keys to trust by default: the initial key of the first lane, and the keys that it was rotated to.
fn own_keys(walked: &[Vec<Option<Piece>>]) -> Vec<PublicKey> {
    let first_key = |pieces: &Vec<Option<Piece>>| pieces.first()?.as_ref()?.walk.first_key;
    let mut keys: Vec<PublicKey> = walked.iter().find_map(first_key).into_iter().collect();
    loop {
        let known = keys.len();
        for pieces in walked {
            if first_key(pieces).is_some_and(|first| keys.contains(&first)) {
                let announced = pieces.iter().flatten().flat_map(|piece| &piece.walk.keys);
                let new: Vec<PublicKey> =
                    announced.map(|(_, key)| *key).filter(|key| !keys.contains(key)).collect();
                keys.extend(new);
            }
        }
        if keys.len() == known {
            return keys;
        }
    }
}

/// Collects what is known of each lane before the walk.
fn plan(
    storage: &dyn Storage,
    index: &Index,
    present: &[LaneId],
    (options, witnessed): (&VerifyOptions, Option<&Witnessed>),
) -> Result<Result<Vec<LanePlan>, Break>, VerifyError> {
    // If the witness knows another ledger, lanes aren't comparable; the index check reports that.
    let witnessed = witnessed.filter(|witnessed| witnessed.ledger == index.ledger);
    if let Some(broken) = missing_lane(index, witnessed, present) {
        return Ok(Err(broken));
    }
    let mut settled: BTreeMap<LaneId, RecoveryBody> = BTreeMap::new();
    let mut plans = Vec::new();
    for lane in present {
        for recovery in read_head(storage, *lane)?.recoveries {
            settled.insert(recovery.lane, recovery);
        }
        let mut plan = LanePlan::new(storage, *lane, lane_origin(&index.ledger, *lane))?;
        plan.known = crate::read::known(index, witnessed, *lane);
        plans.push(plan);
    }
    for plan in &mut plans {
        plan.settled = settled.get(&plan.lane).cloned();
    }
    for note in &options.expect {
        let expected = Note::parse(note)
            .and_then(|note| Checkpoint::parse(note.unverified_text()))
            .map_err(|error| VerifyError::Expectation(error.to_string()))?;
        let known = KnownTip::expected(expected.size, expected.root);
        match plans.iter_mut().find(|plan| plan.origin == expected.origin) {
            Some(plan) => plan.known.push(known),
            None => return Ok(Err(index_break(Defect::UnknownLane(expected.origin)))),
        }
    }
    Ok(Ok(plans))
}

/// Reports a lane that the index or the witness knows and that has no folder.
pub(crate) fn missing_lane(
    index: &Index,
    witnessed: Option<&Witnessed>,
    present: &[LaneId],
) -> Option<Break> {
    let present: BTreeSet<LaneId> = present.iter().copied().collect();
    let anchored = index.lanes.keys().map(|lane| (*lane, Defect::MissingLane));
    let known = witnessed.into_iter().flat_map(|witnessed| &witnessed.lanes);
    let known = known.map(|(lane, head)| (*lane, Defect::LaneGone { entries: head.size }));
    let (lane, why) = anchored.chain(known).find(|(lane, _)| !present.contains(lane))?;
    Some(Break { lane: Some(lane), seq: None, file: lane_folder(lane), line: None, why })
}

/// Walks all segments of all lanes on several threads.
fn walk_all(storage: &dyn Storage, plans: &mut [LanePlan]) -> io::Result<Vec<Vec<Option<Piece>>>> {
    let mut walked: Vec<Vec<Option<Piece>>> = Vec::new();
    let mut done = walk_jobs(storage, plans).into_iter();
    for plan in plans.iter_mut() {
        // A segment without a start follows one without a valid end; the latter is at fault.
        let pieces: Vec<Option<Piece>> =
            done.by_ref().take(plan.segments.len()).collect::<io::Result<_>>()?;
        let mut pieces: Vec<Option<Piece>> = pieces.into_iter().take_while(Option::is_some).collect();
        let position = plan.segments.len().saturating_sub(1);
        let ends_open = |piece: &Option<Piece>| piece.as_ref().is_some_and(|piece| piece.tail.is_some());
        if pieces.len() == plan.segments.len() && pieces.last().is_some_and(ends_open) {
            plan.live = storage.is_locked(&lane_lock(plan.lane))?;
            // A writer may have finished in between, so a write in progress is complete by now.
            if let Some(start) = plan.start(storage, position)? {
                pieces.pop();
                pieces.push(Some(plan.walk(storage, position, start, &mut Vec::new())?));
            }
        }
        walked.push(pieces);
    }
    Ok(walked)
}

/// Walks every segment. Returns the results in the order of lanes and segments.
fn walk_jobs(storage: &dyn Storage, plans: &[LanePlan]) -> Vec<io::Result<Option<Piece>>> {
    let jobs: Vec<(&LanePlan, usize)> = plans
        .iter()
        .flat_map(|plan| (0..plan.segments.len()).map(move |position| (plan, position)))
        .collect();
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, io::Result<Option<Piece>>)>> = Mutex::default();
    let work = || {
        let mut buffer = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((plan, position)) = jobs.get(number).copied() else { return };
            let walked = plan.start(storage, position).and_then(|start: Option<Tip>| {
                start.map(|start| plan.walk(storage, position, start, &mut buffer)).transpose()
            });
            done.lock().unwrap_or_else(PoisonError::into_inner).push((number, walked));
        }
    };
    let threads =
        std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX).min(jobs.len());
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, walked)| walked).collect()
}

/// The verdict: the first break, else the unproven tails, else ok.
fn conclude(states: &[LaneState], plans: &[LanePlan]) -> LedgerVerdict {
    if let Some(broken) = first_break(states) {
        return LedgerVerdict::Broken(broken.clone());
    }
    let open = states.iter().filter(|state| matches!(state.end, LaneEnd::Unproven(_)));
    let unproven: Vec<LaneId> = open.map(|state| state.lane).collect();
    // A recovery must itself be proven, and all recoveries of one tail must agree.
    let recoveries = states.iter().flat_map(|state| &state.recoveries);
    for recovery in recoveries {
        let plan = plans.iter().find(|plan| plan.lane == recovery.lane);
        if plan.is_none_or(|plan| plan.settled.as_ref() != Some(recovery)) {
            let file = lane_folder(recovery.lane);
            let why = Defect::SettledTail;
            return LedgerVerdict::Broken(Break {
                lane: Some(recovery.lane),
                seq: None,
                file,
                line: None,
                why,
            });
        }
    }
    if unproven.is_empty() { LedgerVerdict::Ok } else { LedgerVerdict::Unproven { lanes: unproven } }
}

fn first_break(states: &[LaneState]) -> Option<&Break> {
    states.iter().find_map(|state| match &state.end {
        LaneEnd::Broken(broken) => Some(broken),
        LaneEnd::Empty | LaneEnd::Clean | LaneEnd::Live | LaneEnd::Settled | LaneEnd::Unproven(_) => None,
    })
}

/// Compares every payload with its digest and with the recorded erasures.
fn check_packs(storage: &dyn Storage, states: &[LaneState], report: &mut Report) -> io::Result<()> {
    let erasures: Vec<&EraseBody> = states.iter().flat_map(|state| &state.erasures).collect();
    let erased: BTreeSet<Digest> = erasures.iter().filter_map(|erase| erase.sha256).collect();
    let dropped: BTreeSet<(LaneId, u64)> =
        erasures.iter().filter_map(|erase| erase.lane.zip(erase.segment)).collect();
    let mut bytes = Vec::new();
    for state in states {
        let last = state.packs.last().map(|pack| pack.first);
        for PackState { first, recorded, found: noted } in &state.packs {
            let file = pack_path(state.lane, *first);
            if dropped.contains(&(state.lane, *first)) {
                continue;
            }
            let found = storage.stat(&file)?.map_or(0, |stat| stat.bytes);
            if found < *recorded {
                report.find(state.lane, file, Defect::PackShort { expected: *recorded, found });
                return Ok(());
            }
            let allowed = noted.unwrap_or(*recorded);
            if found > allowed && last != Some(*first) && state.end != LaneEnd::Settled {
                report.find(state.lane, file, Defect::PackLong { expected: allowed, found });
                return Ok(());
            }
            if found > allowed {
                report.stray(storage, state, found - allowed)?;
            }
            if *recorded == 0 {
                continue;
            }
            storage.read(&file, 0, (*recorded).min(PACK_BYTES_CAP), &mut bytes)?;
            if let Err(at) = check_pack(&bytes, &erased, report) {
                report.find(state.lane, file, Defect::Payload { at });
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Checks one pack; the error is the offset of the first bad record.
fn check_pack(bytes: &[u8], erased: &BTreeSet<Digest>, report: &mut Report) -> Result<(), u64> {
    for record in Records::new(bytes) {
        let (at, header, stored) = record?;
        match (erased.contains(&header.digest), header.is_erased(), header.fits(stored)) {
            (false, false, true) => report.payloads += 1,
            (true, true, true) => report.erased += 1,
            // The erasure was recorded and then interrupted: repeating it completes it.
            (true, _, _) => {
                report.erase_pending += 1;
                if report.pending.len() < PENDING_MAX {
                    report.pending.insert(header.digest);
                }
            }
            (false, _, _) => return Err(at),
        }
    }
    Ok(())
}

impl Report {
    /// Handles a pack that is longer than its lane's entries record. Either a writer is active, or a recovery entry accounts for it, or the
    /// end of the lane is unproven.
    fn stray(&mut self, storage: &dyn Storage, state: &LaneState, bytes: u64) -> io::Result<()> {
        if state.end == LaneEnd::Settled || storage.is_locked(&lane_lock(state.lane))? {
            return Ok(());
        }
        // A writer may have finished in between, so a write in progress is complete by now.
        let last = segments(storage, state.lane)?.last().copied().unwrap_or(0);
        let origin = lane_origin(&self.ledger, state.lane);
        let now = last_checkpoint(storage, state.lane, last, &origin)?;
        if now.is_some_and(|now| now.tip.size() > state.whole.size()) {
            return Ok(());
        }
        self.lanes
            .iter_mut()
            .filter(|lane| lane.lane == state.lane)
            .for_each(|lane| lane.stray_pack_bytes = bytes);
        match &mut self.verdict {
            LedgerVerdict::Ok => self.verdict = LedgerVerdict::Unproven { lanes: vec![state.lane] },
            LedgerVerdict::Unproven { lanes } if !lanes.contains(&state.lane) => lanes.push(state.lane),
            LedgerVerdict::Unproven { .. } | LedgerVerdict::Broken(_) => {}
        }
        Ok(())
    }

    fn find(&mut self, lane: LaneId, file: String, why: Defect) {
        self.verdict = LedgerVerdict::Broken(Break { lane: Some(lane), seq: None, file, line: None, why });
    }
}
