//! Opens a ledger: verifies every lane, rejects damage, and takes a lane or starts one.
//!
//! Nothing is repaired. A lane with an unproven tail after a crash stays as it is; a new lane starts, and its first entries record that
//! tail. A lane whose damage no crash explains prevents opening.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::LedgerKey;
use crate::index::{Index, IndexError, Mismatch, PATIENT_TRIES, check_witness, index_break};
use crate::internal::ReplacesBody;
use crate::layout::{LANES, OPEN_LOCK, lanes};
use crate::options::Options;
use crate::replaced::ReplaceDecision;
use crate::storage::{Lock, Storage};
use crate::survey::{Survey, SurveyResult};
use crate::why::{Break, Defect};
use crate::witness::Witnessed;
use crate::writer::{Beginning, Home, LaneWriter};

const OPEN_TRIES_MAX: u32 = 200;
const OPEN_PAUSE: Duration = Duration::from_millis(10);

/// Why a ledger didn't open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Verification failed. Nothing was changed.
    #[error("the ledger is broken: {0}")]
    Broken(Box<Break>),
    /// It belongs to another key.
    #[error("the ledger is signed by another key")]
    WrongKey,
    /// The witness knows a ledger here, but none exists: it was removed, or the folder was recreated.
    #[error("the ledger that was here is gone: the witness knows ledger {ledger} with {entries} entries")]
    Gone {
        /// The name of the ledger that was here.
        ledger: String,
        /// Entries that the witness knows.
        entries: u64,
    },
    /// It is an older state of the ledger that the witness knows: a backup was put back.
    #[error("an older ledger: the witness has seen version {witnessed} of its index, this is {found}")]
    Older {
        /// The version in the witness.
        witnessed: u64,
        /// The version found.
        found: u64,
    },
    /// The witness knows another ledger here.
    #[error("another ledger: the witness knows {witnessed}, this is {found}")]
    Another {
        /// The name in the witness.
        witnessed: String,
        /// The name found.
        found: String,
    },
    /// Another process holds the index lock, or is writing while this operation needs exclusive access.
    #[error("another process has locked the ledger")]
    Busy,
    /// It can't be read or written.
    #[error("can't read or write the ledger")]
    Io(#[from] io::Error),
}

impl From<Mismatch> for OpenError {
    fn from(mismatch: Mismatch) -> OpenError {
        match mismatch {
            Mismatch::Gone { ledger, entries } => OpenError::Gone { ledger, entries },
            Mismatch::Older { witnessed, found } => OpenError::Older { witnessed, found },
            Mismatch::Another { witnessed, found } => OpenError::Another { witnessed, found },
        }
    }
}

impl OpenError {
    /// Whether the ledger differs from what the witness knows: gone, older, another, truncated or forked. Only
    /// [`Ledger::restore`](crate::Ledger::restore) and [`Ledger::begin_anew`](crate::Ledger::begin_anew) resolve that.
    pub fn is_witnessed(&self) -> bool {
        match self {
            OpenError::Gone { .. } | OpenError::Older { .. } | OpenError::Another { .. } => true,
            OpenError::Broken(broken) => broken.is_witnessed(),
            OpenError::WrongKey | OpenError::Busy | OpenError::Io(_) => false,
        }
    }
}

/// How a ledger is opened.
#[derive(Debug)]
pub(crate) enum Opening {
    /// As the ledger that the witness knows.
    Usual,
    /// As a new ledger in place of another.
    Anew(ReplaceDecision),
    /// As it is, regardless of the witness.
    Restore(ReplaceDecision),
}

impl Opening {
    fn decision(&self) -> Option<&ReplaceDecision> {
        match self {
            Opening::Usual => None,
            Opening::Anew(decision) | Opening::Restore(decision) => Some(decision),
        }
    }
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

/// Opens or creates the ledger in a storage and takes a lane of it.
pub(crate) fn open(
    storage: Arc<dyn Storage>,
    key: LedgerKey,
    options: Options,
    opening: Opening,
) -> Result<LaneWriter, OpenError> {
    // The survey briefly holds the locks of all lanes. Concurrent openers wait for it; otherwise they would see every lane as used and
    // start new ones. After a timeout they proceed anyway, which is safe.
    let _open = patient_lock(storage.as_ref())?;
    // Read before the lanes, so that concurrent writes are never behind the witness.
    let witnessed = options.witness.as_deref().map(Witnessed::read).transpose()?.flatten();
    let index = load_or_start(storage.as_ref(), &key, &options, (&opening, witnessed.as_ref()))?;
    let witnessed = witnessed.filter(|witnessed| witnessed.ledger == index.ledger);
    let home = Home { storage, key, ledger: index.ledger.clone(), options };
    let mut survey = Survey::new(&home, &index, (witnessed.as_ref(), opening.decision().is_some()))?;
    survey.run()?;
    let found = survey.found;
    {
        let _index = crate::index::lock(home.storage.as_ref(), PATIENT_TRIES)?;
        found.seen.store(home.storage.as_ref(), &home.ledger, &home.key);
    }
    match opening {
        Opening::Usual => take_lane(home, found),
        Opening::Anew(decision) => {
            let body = decision.body("begun_anew", decision.all_lost());
            replace(home, found, body, &decision)
        }
        Opening::Restore(decision) => {
            let body = decision.body("restored", found.lost.clone());
            replace(home, found, body, &decision)
        }
    }
}

/// Continues a free lane, or starts one that settles the tails of other lanes.
fn take_lane(home: Home, found: SurveyResult) -> Result<LaneWriter, OpenError> {
    let at_ms = home.options.opened_at_ms;
    let SurveyResult { taken, recoveries, locks, unknown, .. } = found;
    let mut writer = match taken {
        Some(taken) if recoveries.is_empty() => taken,
        Some(_) | None => {
            drop(taken);
            let beginning = Beginning { recoveries: &recoveries, ..Beginning::default() };
            LaneWriter::create(home, at_ms, beginning)?
        }
    };
    drop(locks);
    if !unknown.is_empty() {
        // Lanes whose creator died before it added them to the index.
        let Home { storage, key, options, .. } = &writer.home;
        Index::update(storage.as_ref(), key, options.witness.as_deref(), PATIENT_TRIES, |index| {
            unknown.iter().for_each(|(lane, anchor)| index.anchor(*lane, *anchor));
        })?;
    }
    writer.upkeep();
    Ok(writer)
}

/// Starts a lane that records what it replaces, then updates the witness to this ledger. Until that update, the witness rejects the ledger,
/// and the operator can repeat the decision.
fn replace(
    home: Home,
    found: SurveyResult,
    body: ReplacesBody,
    decision: &ReplaceDecision,
) -> Result<LaneWriter, OpenError> {
    let at_ms = home.options.opened_at_ms;
    let SurveyResult { taken, recoveries, locks, unknown, mut heads, .. } = found;
    drop(taken);
    let known = decision.witnessed.iter().filter(|witnessed| witnessed.ledger == home.ledger);
    let lane_min = known.filter_map(|known| known.lanes.keys().last()).map(|lane| lane.get() + 1).max();
    let beginning =
        Beginning { recoveries: &recoveries, replaces: Some(body), lane_min: lane_min.unwrap_or(0) };
    let mut writer = LaneWriter::create(home, at_ms, beginning)?;
    drop(locks);
    let mut counter = 0;
    let anchor = writer.anchor();
    let Home { storage, key, .. } = &writer.home;
    Index::update(storage.as_ref(), key, None, PATIENT_TRIES, |index| {
        unknown.iter().chain(&anchor).for_each(|(lane, anchor)| index.anchor(*lane, *anchor));
        counter = index.counter + 1;
    })?;
    heads.insert(writer.lane, writer.lane_head());
    if let Some(path) = &writer.home.options.witness {
        Witnessed { ledger: writer.home.ledger.clone(), counter, lanes: heads }.store(path)?;
    }
    writer.attach_witness()?;
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

/// Loads the index, or creates one for a new ledger. Checks it against the witness, which exists afterwards.
fn load_or_start(
    storage: &dyn Storage,
    key: &LedgerKey,
    options: &Options,
    (opening, witnessed): (&Opening, Option<&Witnessed>),
) -> Result<Index, OpenError> {
    let keys = [key.public()];
    let witness = options.witness.as_deref();
    let mut found = Index::load(storage, &keys)?.map(|(index, _)| index);
    if let Some(decision) = opening.decision() {
        // The witness stays unchanged until a lane records the decision.
        let counter_min = decision.witnessed.as_ref().map_or(0, |witnessed| witnessed.counter);
        return decided_index(storage, key, found, counter_min);
    }
    if let Some(witnessed) = witnessed {
        check_witness(witnessed, found.as_ref())?;
    }
    if found.is_none() {
        // The index is written before the first lane, so a crash never leaves lanes without an index.
        for lane in lanes(storage)? {
            if !crate::layout::segments(storage, lane)?.is_empty() {
                let broken = index_break(Defect::Index("it is missing".to_owned()));
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
    } else if let (Some(path), Some(index)) = (witness, &found)
        && witnessed.is_none_or(|witnessed| witnessed.lanes.is_empty())
    {
        // A moved ledger, or a witness of the first version: the witness records it from now on.
        let _lock = crate::index::lock(storage, PATIENT_TRIES)?;
        if Witnessed::read(path)?.is_none_or(|witnessed| witnessed.lanes.is_empty()) {
            Witnessed::store_counter(path, &index.ledger, index.counter)?;
        }
    }
    storage.create_folder(LANES)?;
    found.ok_or_else(|| OpenError::Io(io::Error::other("no index")))
}

/// The index of a ledger that replaces another; its version continues from the old one.
fn decided_index(
    storage: &dyn Storage,
    key: &LedgerKey,
    found: Option<Index>,
    counter_min: u64,
) -> Result<Index, OpenError> {
    let _lock = crate::index::lock(storage, PATIENT_TRIES)?;
    let mut index = match found {
        Some(index) => index,
        None => Index::new()?,
    };
    index.counter = index.counter.max(counter_min);
    index.store(storage, key, None)?;
    storage.create_folder(LANES)?;
    Ok(index)
}
