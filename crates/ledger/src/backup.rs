//! Copies a ledger consistently while processes write to it.
//!
//! The index is copied first and packs last, because the index is never ahead of the lanes and entries are never ahead of their packs. A
//! lane with an active writer is cut after its last checkpoint. Every other lane is copied byte for byte, including settled tails.

use std::path::Path;

use crate::lane::SEGMENT_BYTES_CAP;
use crate::layout::{INDEX, LANES, lane_folder, lane_lock, pack_path, segment_path, segments};
use crate::line::Line;
use crate::note::NOTE_BYTES_MAX;
use crate::read::{ReadError, Reader};
use crate::storage::{Existing, Files, Storage, read_all};
use crate::{EntryKind, LaneId, Ledger};

impl Ledger {
    /// Copies the ledger to an empty or new folder while writing continues. The copy opens and verifies.
    pub fn backup(&self, destination: &Path) -> Result<(), ReadError> {
        Reader::on(self.storage()).backup(destination)
    }
}

impl Reader {
    /// Copies the ledger to an empty or new folder.
    pub fn backup(&self, destination: &Path) -> Result<(), ReadError> {
        let copy = Files::create(destination)?;
        if !copy.list("")?.is_empty() {
            return Err(ReadError::NotEmpty(destination.display().to_string()));
        }
        let index = read_all(self.storage.as_ref(), INDEX, NOTE_BYTES_MAX as u64)?
            .ok_or_else(|| ReadError::NoLedger("the index is missing".to_owned()))?;
        copy.create_folder(LANES)?;
        for lane in self.lanes()? {
            self.copy_lane(lane, &copy)?;
        }
        copy.replace(INDEX, &index)?;
        Ok(())
    }

    fn copy_lane(&self, lane: LaneId, copy: &Files) -> Result<(), ReadError> {
        let storage = self.storage.as_ref();
        copy.create_folder(&lane_folder(lane))?;
        let live = storage.is_locked(&lane_lock(lane))?;
        let firsts = segments(storage, lane)?;
        let mut bytes = Vec::new();
        for first in &firsts {
            storage.read(&segment_path(lane, *first), 0, SEGMENT_BYTES_CAP, &mut bytes)?;
            if live && firsts.last() == Some(first) {
                bytes.truncate(end_of_last_checkpoint(&bytes));
            }
            write_new(copy, &segment_path(lane, *first), &bytes)?;
        }
        for first in &firsts {
            let path = pack_path(lane, *first);
            if storage.stat(&path)?.is_some() {
                storage.read(&path, 0, u64::MAX, &mut bytes)?;
                write_new(copy, &path, &bytes)?;
            }
        }
        Ok(copy.sync_folder(&lane_folder(lane))?)
    }
}

fn write_new(copy: &Files, path: &str, bytes: &[u8]) -> Result<(), ReadError> {
    let mut file = copy.appender(path, Existing::Refused)?;
    file.append(bytes)?;
    Ok(file.sync()?)
}

fn end_of_last_checkpoint(bytes: &[u8]) -> usize {
    let valid = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    let (mut at, mut end) = (0, 0);
    while let Ok(line) = Line::scan(bytes.get(at..valid).unwrap_or_default()) {
        at += line.bytes.len() + 1;
        if line.kind == EntryKind::Checkpoint {
            end = at;
        }
    }
    end
}
