//! Where the steps of a task are: by the look-up index as far as it goes, and by each lane's tail beyond that.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use regent_kernel::{Entry, Fault, Reader, TaskId};
use regent_lookup::{Lookup, LookupError, Span};
use regent_runtime::task::TaskIndex;

/// The index of one ledger.
#[derive(Debug)]
pub(super) struct Index {
    place: PathBuf,
    reader: Reader,
    lookup: Mutex<Option<Lookup>>,
}

impl Index {
    /// Over the index at a place, which is made when it is first needed.
    pub(super) fn new(place: &Path, reader: Reader) -> Self {
        Self { place: place.to_path_buf(), reader, lookup: Mutex::default() }
    }

    /// Where the entries of tasks are; of all tasks if none are named.
    fn pieces(&self, tasks: Option<&[TaskId]>) -> Result<Vec<Span>, LookupError> {
        let mut lookup = self.lookup.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = match lookup.take() {
            Some(open) => open,
            None => Lookup::open(&self.place)?,
        };
        open.refresh(&self.reader)?;
        let ids: Vec<String> = match tasks {
            Some(tasks) => tasks.iter().map(ToString::to_string).collect(),
            None => open.tasks("", u32::MAX)?,
        };
        let mut pieces = open.spans_of(&ids)?;
        // What isn't under a checkpoint yet is in no index: this process's own last entries, and those of one that died.
        let sizes = open.sizes()?;
        for lane in self.reader.lanes()? {
            let first = sizes.get(&lane).copied().unwrap_or(0);
            pieces.push(Span { lane, first, last: u64::MAX });
        }
        *lookup = Some(open);
        Ok(pieces)
    }
}

impl TaskIndex for Index {
    fn entries(&self, tasks: &[TaskId]) -> Result<Vec<Entry>, Fault> {
        self.read(Some(tasks))
    }

    fn all(&self) -> Result<Vec<Entry>, Fault> {
        self.read(None)
    }
}

impl Index {
    fn read(&self, tasks: Option<&[TaskId]>) -> Result<Vec<Entry>, Fault> {
        // An index that can't be used costs time, nothing else: then all is read.
        let Ok(pieces) = self.pieces(tasks) else {
            return self.reader.entries()?.map(|entry| Ok(entry?)).collect();
        };
        let mut entries: Vec<(i64, Entry)> = Vec::new();
        for Span { lane, first, last } in pieces {
            // A lane stays in its order, whatever the clock did; a task that moved to another lane goes on there.
            let mut reached_ms = i64::MIN;
            for entry in self.reader.lane_since(lane, first)? {
                let entry = entry?;
                if entry.seq > last {
                    break;
                }
                reached_ms = reached_ms.max(entry.at_ms);
                entries.push((reached_ms, entry));
            }
        }
        entries.sort_by_key(|(reached_ms, _)| *reached_ms);
        Ok(entries.into_iter().map(|(_, entry)| entry).collect())
    }
}
