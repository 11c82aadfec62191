//! A new ledger at an old place, and a backup put back in place: decisions that the first entry of a new lane records.
//!
//! The witness refuses a ledger that isn't the one it knows. Only these two lead on from there. Neither removes anything: what
//! lies in the ledger's place is moved aside, as it is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::internal::{LostLane, ReplacesBody};
use crate::ledger::Ledger;
use crate::open::{OpenError, Opening};
use crate::options::Options;
use crate::storage::{Files, Storage};
use crate::witness::Witnessed;
use crate::{LedgerKey, LedgerVerdict, Reader, VerifyError, VerifyOptions, verify};

/// Lanes that a record of the decision lists; the rest are counted.
const LOST_LANES_MAX: usize = 1_000;

/// A ledger that took the place of another.
#[derive(Debug)]
pub struct Replaced {
    /// The ledger, open.
    pub ledger: Ledger,
    /// Where the files are that were in its place, if there were any.
    pub aside: Option<PathBuf>,
    /// What the witness knew, if there was one.
    pub witnessed: Option<Witnessed>,
}

impl Ledger {
    /// Starts a new ledger in place of another, by an operator's decision. Its first entry records what it replaces: the name, the
    /// version of the index and the heads that the witness knew, and the reason.
    pub fn begin_anew(
        root: &Path,
        key: LedgerKey,
        options: Options,
        reason: &str,
    ) -> Result<Replaced, OpenError> {
        let witnessed = read_witness(&options)?;
        let aside = move_aside(root, options.opened_at_ms)?;
        let opening = Opening::Anew(Decision { witnessed: witnessed.clone(), reason: reason.to_owned() });
        let storage: Arc<dyn Storage> = Arc::new(Files::create(root)?);
        let ledger = Ledger::start(crate::open::open(storage, key, options, opening)?)?;
        Ok(Replaced { ledger, aside, witnessed })
    }

    /// Accepts a ledger that lacks entries that the witness knows, by an operator's decision: the backup in `from`, which is copied into
    /// place, or the current one. A new lane's first entry lists what is lost. Lanes that lost entries are closed.
    ///
    /// The backup must verify by itself and belong to the key.
    pub fn restore(
        root: &Path,
        from: Option<&Path>,
        key: LedgerKey,
        options: Options,
        reason: &str,
    ) -> Result<Replaced, OpenError> {
        let witnessed = read_witness(&options)?;
        let mut aside = None;
        if let Some(from) = from {
            must_verify(from, &key)?;
            let draft = free_name(root, "restoring", options.opened_at_ms);
            Reader::new(from).backup(&draft).map_err(|error| OpenError::Io(io::Error::other(error)))?;
            aside = move_aside(root, options.opened_at_ms)?;
            std::fs::rename(&draft, root)?;
        } else {
            must_verify(root, &key)?;
        }
        let opening = Opening::Restore(Decision { witnessed: witnessed.clone(), reason: reason.to_owned() });
        let storage: Arc<dyn Storage> = Arc::new(Files::create(root)?);
        let ledger = Ledger::start(crate::open::open(storage, key, options, opening)?)?;
        Ok(Replaced { ledger, aside, witnessed })
    }
}

/// What was decided, and on what knowledge.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    pub(crate) witnessed: Option<Witnessed>,
    pub(crate) reason: String,
}

impl Decision {
    /// What the new lane's first entry says.
    pub(crate) fn body(&self, how: &str, mut lost: Vec<LostLane>) -> ReplacesBody {
        let lanes_left_out = lost.len().saturating_sub(LOST_LANES_MAX) as u64;
        lost.truncate(LOST_LANES_MAX);
        let (ledger, counter, entries) = self
            .witnessed
            .as_ref()
            .map_or((String::new(), 0, 0), |known| (known.ledger.clone(), known.counter, known.entries()));
        let reason = self.reason.chars().take(1_000).collect();
        ReplacesBody { counter, entries, how: how.to_owned(), lanes: lost, lanes_left_out, ledger, reason }
    }

    /// All that the witness knew, when nothing of it is left.
    pub(crate) fn all_lost(&self) -> Vec<LostLane> {
        let lanes = self.witnessed.iter().flat_map(|witnessed| &witnessed.lanes);
        lanes
            .map(|(lane, head)| LostLane { entries: head.size, found: 0, lane: *lane, root: head.root })
            .collect()
    }
}

fn read_witness(options: &Options) -> Result<Option<Witnessed>, OpenError> {
    Ok(options.witness.as_deref().map(Witnessed::read).transpose()?.flatten())
}

/// A backup that doesn't verify is no backup. An unproven end is what a crash leaves, and is settled like any other.
fn must_verify(folder: &Path, key: &LedgerKey) -> Result<(), OpenError> {
    let options = VerifyOptions { keys: vec![key.public()], ..VerifyOptions::default() };
    match verify(folder, &options) {
        Ok(report) => match report.verdict {
            LedgerVerdict::Ok | LedgerVerdict::Unproven { .. } => Ok(()),
            LedgerVerdict::Broken(broken) => Err(OpenError::Broken(Box::new(broken))),
        },
        Err(VerifyError::Io(error)) => Err(OpenError::Io(error)),
        Err(error @ (VerifyError::NoLedger | VerifyError::Expectation(_))) => {
            let message = format!("`{}`: {error}", folder.display());
            Err(OpenError::Io(io::Error::new(io::ErrorKind::NotFound, message)))
        }
    }
}

/// Moves what lies in a ledger's place aside, unless someone is writing there.
fn move_aside(root: &Path, at_ms: i64) -> Result<Option<PathBuf>, OpenError> {
    let is_empty = match std::fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?.next().is_none(),
    };
    if is_empty {
        return Ok(None);
    }
    let storage = Files::new(root);
    for lane in crate::layout::lanes(&storage)? {
        if storage.is_locked(&crate::layout::lane_lock(lane))? {
            return Err(OpenError::Busy);
        }
    }
    let aside = free_name(root, "replaced", at_ms);
    std::fs::rename(root, &aside)?;
    Ok(Some(aside))
}

/// A name beside the ledger that is free.
fn free_name(root: &Path, word: &str, at_ms: i64) -> PathBuf {
    let name = root.file_name().map_or("ledger".into(), |name| name.to_string_lossy());
    let numbered = |number: u32| {
        let end = if number == 0 { String::new() } else { format!("-{number}") };
        root.with_file_name(format!("{name}.{word}-{at_ms}{end}"))
    };
    let mut number = 0;
    while numbered(number).symlink_metadata().is_ok() {
        number += 1;
    }
    numbered(number)
}
