//! Surveys the lanes of a ledger during opening: which are valid, which a crash left with a tail, and which lane is free.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::entry::lane_origin;
use crate::index::{Anchor, Index};
use crate::internal::{LostLane, RecoveryBody};
use crate::lane::{KeyRing, LaneEnd, LanePlan, LaneState, Tail, last_checkpoint, read_head};
use crate::layout::{lane_folder, lane_lock, lanes, pack_path, segment_path};
use crate::note::Checkpoint;
use crate::open::OpenError;
use crate::packs::removed_packs;
use crate::read::known;
use crate::seen::{Seen, Sight};
use crate::storage::{Existing, Lock, Storage};
use crate::verify::missing_lane;
use crate::why::{Break, Defect};
use crate::witness::{LaneHead, LaneWitness, Witnessed};
use crate::writer::{Home, LaneWriter, Resumed};
use crate::{Digest, LaneId};

/// The state of a survey.
pub(crate) struct Survey<'a> {
    storage: &'a dyn Storage,
    home: &'a Home,
    index: &'a Index,
    witnessed: Option<&'a Witnessed>,
    /// An operator decided to continue although the witness knows more. Losses are listed, and no other process may be writing.
    decided: bool,
    keys: KeyRing,
    settled: BTreeMap<LaneId, RecoveryBody>,
    before: Seen,
    /// Removed packs according to entries, computed on first use.
    removed_packs: Option<BTreeSet<(LaneId, u64)>>,
    pub(crate) found: SurveyResult,
}

/// The result of a survey.
#[derive(Default)]
pub(crate) struct SurveyResult {
    pub(crate) seen: Seen,
    pub(crate) taken: Option<LaneWriter>,
    pub(crate) recoveries: Vec<RecoveryBody>,
    /// Locks of the lanes to be settled, held until they are.
    pub(crate) locks: Vec<Box<dyn Lock>>,
    pub(crate) unknown: Vec<(LaneId, Anchor)>,
    /// The heads of all lanes.
    pub(crate) heads: BTreeMap<LaneId, LaneHead>,
    /// Heads that the witness knows and that are missing.
    pub(crate) lost: Vec<LostLane>,
}

/// Whether a lane was taken for writing.
enum LaneClaim {
    Yes,
    /// It belongs to another key, or a crash tore its end.
    NotOurs(Box<dyn Lock>),
    /// Its end can't be extended.
    Stuck(Box<dyn Lock>),
}

impl<'a> Survey<'a> {
    pub(crate) fn new(
        home: &'a Home,
        index: &'a Index,
        (witnessed, decided): (Option<&'a Witnessed>, bool),
    ) -> Result<Survey<'a>, OpenError> {
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
            witnessed,
            decided,
            keys: KeyRing::Any(index.keys(key)),
            settled,
            before: Seen::load(storage, &index.ledger, key),
            removed_packs: None,
            found: SurveyResult::default(),
        })
    }

    pub(crate) fn run(&mut self) -> Result<(), OpenError> {
        let present = lanes(self.storage)?;
        let witnessed = if self.decided { None } else { self.witnessed };
        if let Some(broken) = missing_lane(self.index, witnessed, &present) {
            return Err(OpenError::Broken(Box::new(broken)));
        }
        if let Some(witnessed) = self.witnessed.filter(|_| self.decided) {
            for (lane, head) in witnessed.lanes.iter().filter(|(lane, _)| !present.contains(lane)) {
                self.found.lost.push(LostLane { entries: head.size, found: 0, lane: *lane, root: head.root });
            }
        }
        present.into_iter().try_for_each(|lane| self.look_at(lane))
    }

    fn look_at(&mut self, lane: LaneId) -> Result<(), OpenError> {
        let lock = self.storage.lock(&lane_lock(lane))?;
        if self.decided && lock.is_none() {
            return Err(OpenError::Busy);
        }
        let origin = lane_origin(&self.home.ledger, lane);
        let mut plan = LanePlan::new(self.storage, lane, origin)?;
        plan.live = lock.is_none();
        plan.settled = self.settled.get(&lane).cloned();
        plan.known = known(self.index, self.witnessed, lane);
        // The candidate lane for writing is verified to its end even if its metadata is unchanged.
        let candidate = lock.is_some() && self.found.taken.is_none() && plan.settled.is_none();
        let (mut state, lost) = self.compare(&mut plan, candidate)?;
        let head = LaneHead { size: state.tip.size(), root: state.tip.frontier.root() };
        if head.size > 0 {
            self.found.heads.insert(lane, head);
        }
        if lock.is_some() {
            self.remember(lane, head)?;
        }
        if state.end == LaneEnd::Clean && lock.is_some() && !self.index.lanes.contains_key(&lane) {
            let key = read_head(self.storage, lane)?.key.unwrap_or(self.home.key.public());
            self.found.unknown.push((lane, Anchor { key, size: head.size, root: head.root }));
        }
        let Some(lock) = lock else { return Ok(()) };
        let stray = plan.settled.is_none() && self.has_strays(&plan, &state)?;
        if stray && !candidate {
            // The recorded pack length must be known to the byte.
            state = self.walk(&plan, true)?;
        }
        if let LaneEnd::Broken(broken) = &state.end {
            return Err(OpenError::Broken(Box::new(broken.clone())));
        }
        if lost {
            // Continuing a lane that lost entries would assign their positions a second time.
            return self.close(&plan, &state, lock);
        }
        match &state.end {
            LaneEnd::Unproven(tail) => {
                self.make_durable(&plan)?;
                let torn = self.decided || tail.torn_bytes > 0 || plan.settled.is_some();
                let refused = if torn {
                    LaneClaim::NotOurs(lock)
                } else {
                    self.sign(&plan, &state, tail.entries, lock)?
                };
                match refused {
                    LaneClaim::Yes => Ok(()),
                    LaneClaim::NotOurs(lock) | LaneClaim::Stuck(lock) => self.close(&plan, &state, lock),
                }
            }
            LaneEnd::Clean if (candidate || stray) && !self.decided => {
                self.make_durable(&plan)?;
                match self.sign(&plan, &state, 0, lock)? {
                    // A lane of an older key is left alone.
                    LaneClaim::Yes | LaneClaim::NotOurs(_) => Ok(()),
                    LaneClaim::Stuck(lock) => self.close(&plan, &state, lock),
                }
            }
            LaneEnd::Empty | LaneEnd::Clean | LaneEnd::Live | LaneEnd::Settled | LaneEnd::Broken(_) => Ok(()),
        }
    }

    /// Walks a lane and compares it with its known state. If an operator decided to continue although the witness knows more, also returns
    /// whether the lane lost entries.
    fn compare(&mut self, plan: &mut LanePlan, candidate: bool) -> Result<(LaneState, bool), OpenError> {
        let mut state = self.walk(plan, candidate)?;
        let mut lost = false;
        if let LaneEnd::Broken(broken) = &state.end
            && self.decided
            && broken.is_witnessed()
        {
            plan.known = known(self.index, None, plan.lane);
            state = self.walk(plan, candidate)?;
            lost = true;
            self.lose(&state);
        }
        match &state.end {
            LaneEnd::Broken(broken) => Err(OpenError::Broken(Box::new(broken.clone()))),
            LaneEnd::Empty | LaneEnd::Clean | LaneEnd::Live | LaneEnd::Settled | LaneEnd::Unproven(_) => {
                Ok((state, lost))
            }
        }
    }

    /// Records that a new lane must settle the end of this one, which gets no more entries.
    fn close(&mut self, plan: &LanePlan, state: &LaneState, lock: Box<dyn Lock>) -> Result<(), OpenError> {
        let none = Tail { entries: 0, torn_bytes: 0, bytes: 0, sha256: Digest::compute(b"") };
        match &state.end {
            LaneEnd::Unproven(tail) => self.found.recoveries.push(self.recovery(plan, state, tail)?),
            LaneEnd::Clean => {
                self.found.recoveries.push(RecoveryBody::of_tail(plan.lane, &state.tip, &none));
            }
            LaneEnd::Empty | LaneEnd::Live | LaneEnd::Settled | LaneEnd::Broken(_) => return Ok(()),
        }
        self.found.locks.push(lock);
        Ok(())
    }

    /// Whether the last pack of a lane is longer than its entries record.
    fn has_strays(&self, plan: &LanePlan, state: &LaneState) -> io::Result<bool> {
        let Some(first) = plan.segments.last().copied() else { return Ok(false) };
        let walked = state.packs.last().filter(|pack| pack.first == first);
        let seen = || self.before.get(plan.lane, first).and_then(|before| before.pack_bytes);
        let said = walked.map(|pack| pack.found.unwrap_or(pack.recorded)).or_else(seen);
        let found = self.storage.stat(&pack_path(plan.lane, first))?.map_or(0, |stat| stat.bytes);
        Ok(said.is_some_and(|said| found > said))
    }

    /// Updates the witness to the head of a lane whose lock we hold, if it lags behind.
    fn remember(&self, lane: LaneId, head: LaneHead) -> io::Result<()> {
        let known =
            self.witnessed.and_then(|witnessed| witnessed.lanes.get(&lane)).map_or(0, |known| known.size);
        match &self.home.options.witness {
            Some(path) if !self.decided && head.size > known => {
                LaneWitness::open(path, lane)?.renew(head.size, head.root)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Records the witness's head of a lane that is incomplete.
    fn lose(&mut self, state: &LaneState) {
        if let Some(head) = self.witnessed.and_then(|witnessed| witnessed.lanes.get(&state.lane)) {
            let found = state.tip.size();
            let lost = LostLane { entries: head.size, found, lane: state.lane, root: head.root };
            self.found.lost.push(lost);
        }
    }

    /// Syncs a lane that a killed writer may have left only in the page cache. Once a tail is settled, or in the index, it must not change,
    /// not even by a power cut.
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

    /// Walks the segments of a lane that changed since their last verification, and checks the length of all packs.
    fn walk(&mut self, plan: &LanePlan, to_the_end: bool) -> Result<LaneState, OpenError> {
        let mut buffer = Vec::new();
        let mut pieces = Vec::new();
        let mut sights = Vec::new();
        let last = plan.segments.len().saturating_sub(1);
        for (position, first) in plan.segments.iter().enumerate() {
            let stat = self.storage.stat(&segment_path(plan.lane, *first))?;
            let before = self.before.get(plan.lane, *first).filter(|before| Some(before.stat) == stat);
            let always = position == last && (to_the_end || plan.live || plan.settled.is_some());
            let skipped = before.filter(|_| !always);
            if skipped.is_some() && !plan.must_be_compared(self.storage, position)? {
                pieces.push(None);
            } else {
                // If the previous segment has no valid end, that segment is at fault.
                let Some(start) = plan.start(self.storage, position)? else { break };
                pieces.push(Some(plan.walk(self.storage, position, start, &mut buffer)?));
            }
            let recorded = pieces.last().and_then(Option::as_ref).map(|piece| Some(piece.walk.pack_bytes));
            let dropped = before.is_some_and(|before| before.pack_bytes.is_none());
            let known =
                if dropped { None } else { recorded.or(before.map(|before| before.pack_bytes)).flatten() };
            // No cache entry for a segment that is about to grow: its metadata will change anyway.
            sights.push((*first, stat.filter(|_| position != last || !(plan.live || to_the_end)), known));
        }
        let mut state = plan.judge(self.storage, pieces, &self.keys)?;
        for (first, stat, pack_bytes) in sights {
            let pack_bytes = match pack_bytes {
                Some(recorded) if !matches!(state.end, LaneEnd::Broken(_)) => {
                    self.look_at_pack(plan.lane, first, recorded, &mut state)?
                }
                other => other,
            };
            if let Some(stat) = stat {
                self.found.seen.set(plan.lane, first, Sight { stat, pack_bytes });
            }
        }
        Ok(state)
    }

    /// Checks a pack's length. A pack is synced before the entries that name its payloads, so no crash makes it shorter than recorded.
    fn look_at_pack(
        &mut self,
        lane: LaneId,
        first: u64,
        recorded: u64,
        state: &mut LaneState,
    ) -> Result<Option<u64>, OpenError> {
        if recorded == 0 {
            return Ok(Some(0));
        }
        let file = pack_path(lane, first);
        let found = self.storage.stat(&file)?.map_or(0, |stat| stat.bytes);
        if found >= recorded {
            return Ok(Some(recorded));
        }
        if self.removed_packs.is_none() {
            self.removed_packs = Some(removed_packs(self.storage)?);
        }
        if self.removed_packs.as_ref().is_some_and(|removed| removed.contains(&(lane, first))) {
            return Ok(None);
        }
        let why = Defect::PackShort { expected: recorded, found };
        state.end = LaneEnd::Broken(Break { lane: Some(lane), seq: None, file, line: None, why });
        Ok(Some(recorded))
    }

    /// The entry that settles a torn tail. Entries that the witness knows remain valid, because their writer received an acknowledgement.
    fn recovery(&self, plan: &LanePlan, state: &LaneState, tail: &Tail) -> io::Result<RecoveryBody> {
        let body = RecoveryBody::of_tail(plan.lane, &state.tip, tail);
        let known = self.witnessed.and_then(|witnessed| witnessed.lanes.get(&plan.lane));
        let within = |head: &&LaneHead| head.size > body.proven && head.size <= body.proven + body.entries;
        let Some(head) = known.filter(within) else { return Ok(body) };
        let mut known = plan.clone();
        known.settled = Some(RecoveryBody { proven: head.size, ..body.clone() });
        let position = plan.segments.len().saturating_sub(1);
        let Some(start) = known.start(self.storage, position)? else { return Ok(body) };
        let piece = known.walk(self.storage, position, start, &mut Vec::new())?;
        let none = Tail { entries: 0, torn_bytes: 0, bytes: 0, sha256: Digest::compute(b"") };
        let rest = piece.tail.unwrap_or(none);
        let entries = body.entries - (head.size - body.proven);
        Ok(RecoveryBody::of_tail(plan.lane, &piece.walk.proven, &Tail { entries, ..rest }))
    }

    /// Takes a lane that ends in complete entries, if our key signed it, and signs entries that no checkpoint covers. The survey keeps the
    /// first such lane.
    fn sign(
        &mut self,
        plan: &LanePlan,
        state: &LaneState,
        unsigned: u64,
        lock: Box<dyn Lock>,
    ) -> Result<LaneClaim, OpenError> {
        let Some(first) = plan.segments.last().copied() else { return Ok(LaneClaim::NotOurs(lock)) };
        let bytes = self.storage.stat(&segment_path(plan.lane, first))?.map_or(0, |stat| stat.bytes);
        let pack = state.packs.last().copied().filter(|pack| pack.first == first);
        let pack_bytes = pack.map_or(0, |pack| pack.recorded);
        let length = |first| -> io::Result<u64> {
            Ok(self.storage.stat(&pack_path(plan.lane, first))?.map_or(0, |stat| stat.bytes))
        };
        let (found, next) = (length(first)?, state.whole.size());
        if !self.is_ours(plan, state)? {
            return Ok(LaneClaim::NotOurs(lock));
        }
        // A pack without a segment has stray bytes, and a segment can't be created with another pack.
        if (next == first && found > 0) || (next != first && length(next)? > 0) {
            return Ok(LaneClaim::Stuck(lock));
        }
        // An empty last segment: the lane ends in the previous one.
        let ends_in = if bytes == 0 { plan.segments.iter().rev().nth(1).copied() } else { Some(first) };
        let Some(ends_in) = ends_in else { return Ok(LaneClaim::NotOurs(lock)) };
        let end = self.last_signed(plan, state, ends_in)?;
        let vouched = self.witnessed.and_then(|witnessed| witnessed.lanes.get(&plan.lane));
        let vouched = vouched.map_or(0, |head| head.size).clamp(state.tip.size(), next);
        // An entry already records the longer pack, or the pack was removed on purpose: nothing to record.
        let said = pack.is_some_and(|pack| pack.found == Some(found)) || found < pack_bytes;
        let pack_found = (found != pack_bytes).then_some(if said { pack_bytes } else { found });
        let resumed = Resumed {
            lane: plan.lane,
            lock,
            first,
            bytes,
            pack_bytes,
            tip: state.whole.clone(),
            checkpoint: end,
            unsigned,
            unvouched: next - vouched,
            pack_found,
        };
        let writer = LaneWriter::resume(self.home.clone(), resumed)?;
        self.found.unknown.extend(writer.anchor().filter(|_| unsigned > 0));
        if self.found.taken.is_none() {
            self.found.taken = Some(writer);
        }
        Ok(LaneClaim::Yes)
    }

    /// Whether our key signed the last checkpoint. If the last segment has none, the previous one ends in it.
    fn is_ours(&self, plan: &LanePlan, state: &LaneState) -> io::Result<bool> {
        let own = self.home.key.public();
        if let Some(signer) = state.signer {
            return Ok(signer == own);
        }
        for first in plan.segments.iter().rev().take(2) {
            if let Some(end) = last_checkpoint(self.storage, plan.lane, *first, &plan.origin)? {
                return Ok(Checkpoint::open(&end.note, &[own]).is_ok());
            }
        }
        Ok(false)
    }

    /// The last checkpoint of a lane whose last non-empty segment is this one.
    fn last_signed(
        &self,
        plan: &LanePlan,
        state: &LaneState,
        ends_in: u64,
    ) -> io::Result<(Checkpoint, String)> {
        if let Some(end) = last_checkpoint(self.storage, plan.lane, ends_in, &plan.origin)? {
            return Ok((end.checkpoint, end.note));
        }
        // Entries without a checkpoint follow it; the caller is about to write one that covers them.
        let (size, root) = (state.tip.size(), state.tip.frontier.root());
        Ok((Checkpoint { origin: plan.origin.clone(), size, root }, String::new()))
    }
}
