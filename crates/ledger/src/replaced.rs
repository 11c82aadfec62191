//! Replaces a ledger: starts a new one in its place, or puts back a backup. The first entry of a new lane records the decision.
//!
//! The witness rejects a ledger other than the one it knows. Only these two operations resolve that. Neither removes files: they move the
//! old ones aside.

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

/// Lanes that the record of the decision lists; further lanes are only counted.
const LOST_LANES_MAX: usize = 1_000;

/// A ledger that replaced another.
#[derive(Debug)]
pub struct Replaced {
    /// The open ledger.
    pub ledger: Ledger,
    /// The path that the old files were moved to, if there were any.
    pub aside: Option<PathBuf>,
    /// The witness's record, if there was a witness.
    pub witnessed: Option<Witnessed>,
}

impl Ledger {
    /// Starts a new ledger in place of another, by an operator's decision. Its first entry records what it replaces: the name, the index
    /// version, the heads that the witness knew, and the reason.
    pub fn begin_anew(
        root: &Path,
        key: LedgerKey,
        options: Options,
        reason: &str,
    ) -> Result<Replaced, OpenError> {
        let witnessed = read_witness(&options)?;
        let aside = move_aside(root, options.opened_at_ms)?;
        let opening =
            Opening::Anew(ReplaceDecision { witnessed: witnessed.clone(), reason: reason.to_owned() });
        let storage: Arc<dyn Storage> = Arc::new(Files::create(root)?);
        let ledger = Ledger::start(crate::open::open(storage, key, options, opening)?)?;
        Ok(Replaced { ledger, aside, witnessed })
    }

    /// Accepts a ledger that lacks entries that the witness knows, by an operator's decision: the backup in `from`, which is copied into
    /// place, or the current ledger. A new lane's first entry lists the loss. Lanes that lost entries are closed.
    ///
    /// The backup must verify on its own and be signed by the key.
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
        let opening =
            Opening::Restore(ReplaceDecision { witnessed: witnessed.clone(), reason: reason.to_owned() });
        let storage: Arc<dyn Storage> = Arc::new(Files::create(root)?);
        let ledger = Ledger::start(crate::open::open(storage, key, options, opening)?)?;
        Ok(Replaced { ledger, aside, witnessed })
    }
}

/// The operator's decision, and the known state that it replaces.
#[derive(Debug, Clone)]
pub(crate) struct ReplaceDecision {
    pub(crate) witnessed: Option<Witnessed>,
    pub(crate) reason: String,
}

impl ReplaceDecision {
    /// The `replaces` part of the new lane's first entry.
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

    /// Every head that the witness knew, for a ledger that is gone entirely.
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

/// Rejects a backup that doesn't verify. An unproven tail, as left by a crash, is accepted and settled later.
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

/// Moves the files in a ledger's place aside, unless a process is writing there.
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

/// An unused name beside the ledger.
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
