//! Opening a ledger: look at every lane, refuse what doesn't hold, take a lane or start one.
//!
//! Nothing is repaired. A lane that a crash left with an unproven tail stays as it is; a new lane
//! starts, whose first entries say what was found there. A lane that no crash explains keeps the
//! ledger shut.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::chain::Known;
use crate::entry::lane_origin;
use crate::index::{Anchor, Index, IndexError, PATIENT_TRIES, check_witness, index_break};
use crate::internal::RecoveryBody;
use crate::lane::{KeyRing, LaneEnd, LanePlan, LaneState, last_checkpoint, read_head};
use crate::layout::{LANES, OPEN_LOCK, lane_folder, lane_lock, lanes, pack_path, segment_path};
use crate::options::Options;
use crate::seen::Seen;
use crate::storage::{Existing, Lock, Storage};
use crate::why::{Break, Why};
use crate::writer::{Home, LaneWriter, Resumed};
use crate::{LaneId, LedgerKey};

const OPEN_TRIES_MAX: u32 = 200;
const OPEN_PAUSE: Duration = Duration::from_millis(10);

/// Why a ledger didn't open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It doesn't hold. Nothing was touched.
    #[error("the ledger is broken: {0}")]
    Broken(Box<Break>),
    /// It belongs to another key.
    #[error("the ledger is signed by another key")]
    WrongKey,
    /// Others keep its index busy.
    #[error("the ledger's index is held by another process")]
    Busy,
    /// It can't be read or written.
    #[error("can't read or write the ledger")]
    Io(#[from] io::Error),
}

impl From<IndexError> for OpenError {
    fn from(error: IndexError) -> OpenError {
        match error {
            IndexError::Busy => OpenError::Busy,
            IndexError::Broken(broken) => OpenError::Broken(broken),
            IndexError::WrongKey => OpenError::WrongKey,
            IndexError::Io(error) => OpenError::Io(error),
        }
    }
}

/// Opens or starts the ledger in a storage and takes a lane of it.
pub(crate) fn open(
    storage: Arc<dyn Storage>,
    key: LedgerKey,
    options: Options,
) -> Result<LaneWriter, OpenError> {
    // While we look at the lanes we hold their locks for a moment. Others wait meanwhile, or they
    // would take all lanes for used and start new ones; after a while they may, it does no harm.
    let _open = patient_lock(storage.as_ref())?;
    let index = load_or_start(storage.as_ref(), &key, &options)?;
    let at_ms = options.opened_at_ms;
    let home = Home { storage, key, ledger: index.ledger.clone(), options };
    let mut survey = Survey::new(&home, &index)?;
    survey.run()?;
    let Survey { taken, recoveries, locks, unknown, seen, .. } = survey;
    seen.store(home.storage.as_ref(), &home.ledger, &home.key);
    let mut writer = match taken {
        Some(found) if recoveries.is_empty() => LaneWriter::resume(home, found)?,
        Some(_) | None => {
            drop(taken);
            LaneWriter::create(home, at_ms, &recoveries)?
        }
    };
    drop(locks);
    if !unknown.is_empty() {
        // Lanes whose maker died before they were in the index.
        let Home { storage, key, options, .. } = &writer.home;
        Index::update(storage.as_ref(), key, options.witness.as_deref(), PATIENT_TRIES, |index| {
            unknown.iter().for_each(|(lane, anchor)| index.anchor(*lane, *anchor));
        })?;
    }
    writer.upkeep();
    Ok(writer)
}

fn patient_lock(storage: &dyn Storage) -> io::Result<Option<Box<dyn Lock>>> {
    for _ in 0..OPEN_TRIES_MAX {
        if let Some(lock) = storage.lock(OPEN_LOCK)? {
            return Ok(Some(lock));
        }
        std::thread::sleep(OPEN_PAUSE);
    }
    Ok(None)
}

/// The index of the ledger; a new one if nothing is there yet.
fn load_or_start(storage: &dyn Storage, key: &LedgerKey, options: &Options) -> Result<Index, OpenError> {
    let keys = [key.public()];
    let witness = options.witness.as_deref();
    let mut found = Index::load(storage, &keys)?.map(|(index, _)| index);
    if let Some(witness) = witness {
        check_witness(witness, found.as_ref())?;
    }
    if found.is_none() {
        // The index is written before the first lane, so a crash never leaves lanes without it.
        for lane in lanes(storage)? {
            if !crate::layout::segments(storage, lane)?.is_empty() {
                let broken = index_break(Why::Index("it is missing".to_owned()));
                return Err(OpenError::Broken(Box::new(broken)));
            }
        }
        let _lock = crate::index::lock(storage, PATIENT_TRIES)?;
        found = Index::load(storage, &keys)?.map(|(index, _)| index);
        if found.is_none() {
            let mut index = Index::new()?;
            index.store(storage, key, witness)?;
            found = Some(index);
        }
    }
    storage.create_folder(LANES)?;
    found.ok_or_else(|| OpenError::Io(io::Error::other("no index")))
}

/// What opening finds in the lanes.
struct Survey<'a> {
    storage: &'a dyn Storage,
    home: &'a Home,
    index: &'a Index,
    keys: KeyRing,
    settled: BTreeMap<LaneId, RecoveryBody>,
    before: Seen,
    seen: Seen,
    taken: Option<Resumed>,
    recoveries: Vec<RecoveryBody>,
    /// Locks of the lanes to be settled, until they are.
    locks: Vec<Box<dyn Lock>>,
    unknown: Vec<(LaneId, Anchor)>,
}

impl<'a> Survey<'a> {
    fn new(home: &'a Home, index: &'a Index) -> Result<Survey<'a>, OpenError> {
        let storage = home.storage.as_ref();
        let mut settled = BTreeMap::new();
        for lane in lanes(storage)? {
            for recovery in read_head(storage, lane)?.recoveries {
                settled.insert(recovery.lane, recovery);
            }
        }
        let key = home.key.public();
        Ok(Survey {
            storage,
            home,
            index,
            keys: KeyRing::Any(index.keys(key)),
            settled,
            before: Seen::load(storage, &index.ledger, key),
            seen: Seen::default(),
            taken: None,
            recoveries: Vec::new(),
            locks: Vec::new(),
            unknown: Vec::new(),
        })
    }

    fn run(&mut self) -> Result<(), OpenError> {
        let present = lanes(self.storage)?;
        if let Some(lane) = self.index.lanes.keys().find(|lane| !present.contains(lane)) {
            let file = lane_folder(*lane);
            let broken = Break { lane: Some(*lane), seq: None, file, line: None, why: Why::MissingLane };
            return Err(OpenError::Broken(Box::new(broken)));
        }
        present.into_iter().try_for_each(|lane| self.look_at(lane))
    }

    fn look_at(&mut self, lane: LaneId) -> Result<(), OpenError> {
        let lock = self.storage.lock(&lane_lock(lane))?;
        let origin = lane_origin(&self.home.ledger, lane);
        let mut plan = LanePlan::new(self.storage, lane, origin)?;
        plan.live = lock.is_none();
        plan.settled = self.settled.get(&lane).cloned();
        plan.known = self.known(lane);
        // The lane that we may take is verified to its end, whatever it looks like from outside.
        let candidate = lock.is_some() && self.taken.is_none() && plan.settled.is_none();
        let state = self.walk(&plan, candidate)?;
        if state.end == LaneEnd::Clean && lock.is_some() && !self.index.lanes.contains_key(&lane) {
            let key = read_head(self.storage, lane)?.key.unwrap_or(self.home.key.public());
            let (size, root) = (state.tip.size(), state.tip.frontier.root());
            self.unknown.push((lane, Anchor { key, size, root }));
        }
        match (&state.end, lock) {
            (LaneEnd::Broken(broken), _) => return Err(OpenError::Broken(Box::new(broken.clone()))),
            (LaneEnd::Unproven(tail), Some(lock)) => {
                self.make_durable(&plan)?;
                self.recoveries.push(RecoveryBody {
                    entries: tail.entries,
                    lane,
                    proven: state.tip.size(),
                    root: state.tip.frontier.root(),
                    tail_bytes: tail.bytes,
                    tail_sha256: tail.sha256,
                    torn_bytes: tail.torn_bytes,
                });
                self.locks.push(lock);
            }
            (LaneEnd::Clean, Some(lock)) if candidate => {
                self.make_durable(&plan)?;
                self.consider(&plan, state, lock)?;
            }
            (
                LaneEnd::Empty | LaneEnd::Clean | LaneEnd::Live | LaneEnd::Settled | LaneEnd::Unproven(_),
                _,
            ) => {}
        }
        Ok(())
    }

    /// What a killed writer left may be in the system's memory only. Once it is settled, or in the index, it must not
    /// change any more, not even by a loss of power.
    fn make_durable(&self, plan: &LanePlan) -> io::Result<()> {
        // Older segments were synced before the next one was started.
        for first in plan.segments.iter().rev().take(2) {
            for path in [segment_path(plan.lane, *first), pack_path(plan.lane, *first)] {
                if self.storage.stat(&path)?.is_some() {
                    self.storage.appender(&path, Existing::Required)?.sync()?;
                }
            }
        }
        self.storage.sync_folder(&lane_folder(plan.lane))
    }

    fn known(&self, lane: LaneId) -> Vec<Known> {
        let anchor = self.index.lanes.get(&lane);
        anchor
            .map(|anchor| Known { size: anchor.size, root: anchor.root, from: "the index" })
            .into_iter()
            .collect()
    }

    /// Walks the segments of a lane that changed since they were last verified.
    fn walk(&mut self, plan: &LanePlan, to_the_end: bool) -> Result<LaneState, OpenError> {
        let mut buffer = Vec::new();
        let mut pieces = Vec::new();
        let last = plan.segments.len().saturating_sub(1);
        for (position, first) in plan.segments.iter().enumerate() {
            let stat = self.storage.stat(&segment_path(plan.lane, *first))?;
            let unchanged = stat.is_some() && self.before.get(plan.lane, *first) == stat;
            let always = position == last && (to_the_end || plan.live || plan.settled.is_some());
            if unchanged && !always {
                pieces.push(None);
            } else {
                // Where the segment before has no good end, that one is at fault.
                let Some(start) = plan.start(self.storage, position)? else { break };
                pieces.push(Some(plan.walk(self.storage, position, start, &mut buffer)?));
            }
            // What is about to grow will look different anyway.
            if let Some(stat) = stat.filter(|_| position != last || !(plan.live || to_the_end)) {
                self.seen.set(plan.lane, *first, stat);
            }
        }
        Ok(plan.judge(self.storage, pieces, &self.keys)?)
    }

    /// Takes a lane that ends cleanly, if it is ours to go on with.
    fn consider(&mut self, plan: &LanePlan, state: LaneState, lock: Box<dyn Lock>) -> Result<(), OpenError> {
        let Some(first) = plan.segments.last().copied() else { return Ok(()) };
        let bytes = self.storage.stat(&segment_path(plan.lane, first))?.map_or(0, |stat| stat.bytes);
        let pack_bytes = state.packs.last().map_or(0, |(_, recorded)| *recorded);
        let length = |first| -> io::Result<u64> {
            Ok(self.storage.stat(&pack_path(plan.lane, first))?.map_or(0, |stat| stat.bytes))
        };
        let next = state.tip.size();
        // Stray payload bytes of a crash are left alone, and so is a lane of an older key.
        let strays = length(first)? != pack_bytes || (next != first && length(next)? > 0);
        if strays || state.signer != Some(self.home.key.public()) {
            return Ok(());
        }
        // If the last segment was made and nothing written to it, the lane ends in the one before.
        let ends_in = if bytes == 0 { plan.segments.iter().rev().nth(1).copied() } else { Some(first) };
        let Some(ends_in) = ends_in else { return Ok(()) };
        let Some(end) = last_checkpoint(self.storage, plan.lane, ends_in, &plan.origin)? else {
            return Ok(());
        };
        let checkpoint = (end.checkpoint, end.note);
        let (lane, tip) = (plan.lane, end.tip);
        self.taken = Some(Resumed { lane, lock, first, bytes, pack_bytes, tip, checkpoint });
        Ok(())
    }
}
