//! What was read before needn't be read again: the content of files whose size, times and inode are what they were.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use regent_kernel::Digest;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

/// A change right after a look can leave the same times behind, because file systems count in steps. What changed so shortly before the
/// look is looked at again.
const RACE_NS: i128 = 2_000_000_000;

/// What a file was when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SnapshotStamp {
    dev: u64,
    ino: u64,
    bytes: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl SnapshotStamp {
    pub(super) fn from_stat(stat: &Stat) -> Self {
        let nanoseconds = |ns| i64::try_from(ns).unwrap_or(0);
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
            ctime: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
        }
    }

    /// When it last changed in any way.
    fn changed_ns(&self) -> i128 {
        let ns = |(seconds, ns): (i64, i64)| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        ns(self.mtime).max(ns(self.ctime))
    }

    /// When the file was made or changed last, as its file system tells the time.
    pub(super) fn now_ns(stat: &Stat) -> i128 {
        Self::from_stat(stat).changed_ns()
    }
}

/// What is known of files, by path.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct SnapshotCache {
    files: BTreeMap<String, (SnapshotStamp, Digest)>,
}

impl SnapshotCache {
    /// What an earlier process knew. It is only a shortcut: one that can't be read is empty.
    pub(super) fn load(place: &Path) -> Self {
        fs::read(place).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    pub(super) fn get(&self, path: &str, stamp: &SnapshotStamp) -> Option<Digest> {
        self.files.get(path).filter(|(known, _)| known == stamp).map(|(_, sha256)| *sha256)
    }

    /// Takes note of a file, unless it changed so shortly before `now_ns` that a later change might not show.
    pub(super) fn put(&mut self, path: &str, stamp: SnapshotStamp, sha256: Digest, now_ns: i128) {
        if stamp.changed_ns() < now_ns - RACE_NS {
            self.files.insert(path.to_owned(), (stamp, sha256));
        }
    }

    /// How many entries this has that another one lacks.
    pub(super) fn news_since(&self, other: &Self) -> usize {
        self.files.iter().filter(|(path, known)| other.files.get(*path) != Some(known)).count()
    }
}
