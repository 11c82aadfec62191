//! The files in a ledger's folder.
//!
//! ```text
//! index                        signed: every lane, with its key, size and root
//! seen                         signed: verified segments with their file metadata
//! lanes/0000/lock              held by the lane's one writer
//! lanes/0000/000000000000.jsonl  segment, named by its first entry
//! lanes/0000/000000000000.pack   payloads of that segment
//! ```

use std::io;

use crate::LaneId;
use crate::storage::{Appender, Existing, Lock, Storage};

pub(crate) const LANES: &str = "lanes";
pub(crate) const INDEX: &str = "index";
pub(crate) const INDEX_LOCK: &str = "index.lock";
pub(crate) const OPEN_LOCK: &str = "open.lock";
pub(crate) const SEEN: &str = "seen";

pub(crate) fn lane_folder(lane: LaneId) -> String {
    format!("{LANES}/{lane}")
}

pub(crate) fn lane_lock(lane: LaneId) -> String {
    format!("{LANES}/{lane}/lock")
}

pub(crate) fn segment_path(lane: LaneId, first: u64) -> String {
    format!("{LANES}/{lane}/{first:012}.jsonl")
}

pub(crate) fn pack_path(lane: LaneId, first: u64) -> String {
    format!("{LANES}/{lane}/{first:012}.pack")
}

/// The lanes that have a folder, in order.
pub(crate) fn lanes(storage: &dyn Storage) -> io::Result<Vec<LaneId>> {
    Ok(storage.list(LANES)?.iter().filter_map(|name| name.parse().ok()).collect())
}

/// The first entries of a lane's segments, in order. Unknown files are ignored.
pub(crate) fn segments(storage: &dyn Storage, lane: LaneId) -> io::Result<Vec<u64>> {
    let names = storage.list(&lane_folder(lane))?;
    let mut firsts: Vec<u64> =
        names.iter().filter_map(|name| first_of(name.strip_suffix(".jsonl")?)).collect();
    firsts.sort_unstable();
    Ok(firsts)
}

fn first_of(stem: &str) -> Option<u64> {
    let digits = stem.len() >= 12 && stem.bytes().all(|byte| byte.is_ascii_digit());
    let first = digits.then(|| stem.parse().ok())??;
    (format!("{first:012}") == stem).then_some(first)
}

/// Creates a file, or takes an existing empty one.
pub(crate) fn new_file(storage: &dyn Storage, path: &str) -> io::Result<Box<dyn Appender>> {
    match storage.appender(path, Existing::Refused) {
        Err(error)
            if error.kind() == io::ErrorKind::AlreadyExists
                && storage.stat(path)?.is_some_and(|stat| stat.bytes == 0) =>
        {
            storage.appender(path, Existing::Required)
        }
        file => file,
    }
}

/// Takes the first lane whose folder is empty, or creates the next folder.
pub(crate) fn vacant_lane(storage: &dyn Storage, lane_min: u16) -> io::Result<(LaneId, Box<dyn Lock>)> {
    let existing = lanes(storage)?;
    for lane in existing.iter().filter(|lane| lane.get() >= lane_min) {
        if segments(storage, *lane)?.is_empty()
            && let Some(lock) = storage.lock(&lane_lock(*lane))?
            && segments(storage, *lane)?.is_empty()
        {
            return Ok((*lane, lock));
        }
    }
    let mut number = existing.last().map_or(0, |lane| lane.get() + 1).max(lane_min);
    while let Some(lane) = LaneId::new(number) {
        storage.create_folder(&lane_folder(lane))?;
        if let Some(lock) = storage.lock(&lane_lock(lane))?
            && segments(storage, lane)?.is_empty()
        {
            return Ok((lane, lock));
        }
        number += 1;
    }
    Err(io::Error::other(format!("all {} lanes are in use", LaneId::MAX.get())))
}
