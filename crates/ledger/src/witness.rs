//! The witness: a small file outside the ledger that records the head of every lane. It detects truncation, a fork,
//! an older copy, or another ledger in the same place.
//!
//! ```text
//! regent-witness/2 LEDGER COUNTER          one record of 128 bytes: the ledger's name, the index's version
//! lane 0000 SIZE ROOT                      one record of 128 bytes per lane, at (lane + 1) × 128
//! ```
//!
//! Every record ends in a checksum and lies within one sector, so a power cut leaves the old record or the new one.
//! A lane's writer updates its record after each sync and doesn't sync the witness: the witness may lag behind the
//! lane, and is never ahead of it. A lane must contain the recorded head. A record of zeros is empty.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use crate::note::read_decimal;
use crate::{Digest, LaneId};

const RECORD_BYTES: usize = 128;
/// The content of a record, padded with spaces. A space, the checksum and a newline follow.
const TEXT_BYTES: usize = RECORD_BYTES - CHECK_CHARS - 2;
const CHECK_CHARS: usize = 8;
const MAGIC: &str = "regent-witness/2";
/// A record read during a write may be torn; a retry sees it complete.
const READ_TRIES_MAX: u32 = 20;
const READ_PAUSE: Duration = Duration::from_millis(2);
const WITNESS_BYTES_MAX: u64 = (LaneId::MAX.get() as u64 + 2) * RECORD_BYTES as u64;

/// The head of a lane: its number of entries and their root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneHead {
    /// Entries.
    pub size: u64,
    /// Root of the tree over them.
    pub root: Digest,
}

/// The content of a witness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witnessed {
    /// The ledger's name.
    pub ledger: String,
    /// The version of the ledger's index.
    pub counter: u64,
    /// The head of each lane.
    pub lanes: BTreeMap<LaneId, LaneHead>,
}

impl Witnessed {
    /// Reads a witness; `None` if it doesn't exist.
    pub fn read(path: &Path) -> io::Result<Option<Witnessed>> {
        for attempt in 1.. {
            let bytes = match std::fs::File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(named(path, &error)),
                Ok(file) => read_bounded(file).map_err(|error| named(path, &error))?,
            };
            match Witnessed::parse(&bytes) {
                Some(witnessed) => return Ok(Some(witnessed)),
                None if attempt < READ_TRIES_MAX => std::thread::sleep(READ_PAUSE),
                None => break,
            }
        }
        Err(unreadable(path))
    }

    /// Entries in all lanes.
    pub fn entries(&self) -> u64 {
        // The file is untrusted, so the number can be anything.
        self.lanes.values().fold(0, |sum: u64, head| sum.saturating_add(head.size))
    }

    fn parse(bytes: &[u8]) -> Option<Witnessed> {
        if !bytes.starts_with(MAGIC.as_bytes()) {
            return Witnessed::parse_first_version(bytes);
        }
        let mut records = bytes.chunks(RECORD_BYTES);
        let header = read_record(records.next()?)??;
        let mut words = header.split(' ').skip(1);
        let (ledger, counter) = (words.next()?.to_owned(), read_decimal(unpadded(words.next()?))?);
        let mut lanes = BTreeMap::new();
        for (number, record) in records.enumerate() {
            let Some(text) = read_record(record)? else { continue };
            let words: Vec<&str> = text.split(' ').collect();
            let ["lane", lane, size, root] = words.as_slice() else { return None };
            let lane: LaneId = lane.parse().ok().filter(|lane: &LaneId| usize::from(lane.get()) == number)?;
            let root = Digest::from_hex(root.as_bytes())?;
            lanes.insert(lane, LaneHead { size: read_decimal(unpadded(size))?, root });
        }
        Some(Witnessed { ledger, counter, lanes })
    }

    /// Version 1 had the ledger's name and the index's version in one line.
    fn parse_first_version(bytes: &[u8]) -> Option<Witnessed> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (ledger, counter) = text.strip_suffix('\n')?.split_once(' ')?;
        let name = ledger.len() == 16 && ledger.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (ledger, counter) = (name.then(|| ledger.to_owned())?, read_decimal(counter)?);
        Some(Witnessed { ledger, counter, lanes: BTreeMap::new() })
    }

    /// Writes a complete witness, durably.
    pub(crate) fn store(&self, path: &Path) -> io::Result<()> {
        let mut bytes = header(&self.ledger, self.counter);
        for (lane, head) in &self.lanes {
            bytes.resize(offset(*lane), 0);
            bytes.extend_from_slice(&lane_record(*lane, *head));
        }
        let folder = folder_of(path);
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let draft = path.with_extension("tmp");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&draft, path)?;
        File::open(folder)?.sync_all()
    }

    /// Records a version of the index, durably. The caller holds the index lock.
    pub(crate) fn store_counter(path: &Path, ledger: &str, counter: u64) -> io::Result<()> {
        match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(named(path, &error)),
            Ok(file) => {
                let mut start = Vec::new();
                io::Read::read_to_end(&mut io::Read::take(&file, RECORD_BYTES as u64), &mut start)
                    .map_err(|error| named(path, &error))?;
                if start.len() == RECORD_BYTES && start.starts_with(MAGIC.as_bytes()) {
                    file.write_all_at(&header(ledger, counter), 0)?;
                    return file.sync_data();
                }
                // A file of neither version may be a damaged witness with every head, so it isn't replaced.
                if Witnessed::parse_first_version(&start).is_none() {
                    return Err(unreadable(path));
                }
            }
        }
        Witnessed { ledger: ledger.to_owned(), counter, lanes: BTreeMap::new() }.store(path)
    }
}

/// One lane's record in the witness.
#[derive(Debug)]
pub(crate) struct LaneWitness {
    file: File,
    lane: LaneId,
}

impl LaneWitness {
    /// Opens the witness, which exists since the index was last written or read.
    pub(crate) fn open(path: &Path, lane: LaneId) -> io::Result<LaneWitness> {
        let file = OpenOptions::new().write(true).open(path).map_err(|error| named(path, &error))?;
        Ok(LaneWitness { file, lane })
    }

    /// Records the lane's head. The caller holds the lane's lock and has synced the lane.
    pub(crate) fn renew(&self, size: u64, root: Digest) -> io::Result<()> {
        let record = lane_record(self.lane, LaneHead { size, root });
        let written = self.file.write_all_at(&record, offset(self.lane) as u64);
        // A full disk here doesn't mean that the lane's disk is full: the entries written to the lane remain valid.
        written.map_err(|error| io::Error::other(format!("can't write the witness: {error}")))
    }
}

fn offset(lane: LaneId) -> usize {
    (usize::from(lane.get()) + 1) * RECORD_BYTES
}

fn header(ledger: &str, counter: u64) -> Vec<u8> {
    record(&format!("{MAGIC} {ledger} {counter:020}"))
}

fn lane_record(lane: LaneId, head: LaneHead) -> Vec<u8> {
    record(&format!("lane {lane} {:020} {}", head.size, head.root))
}

fn record(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(TEXT_BYTES, b' ');
    let check = check(&bytes);
    bytes.push(b' ');
    bytes.extend_from_slice(&check);
    bytes.push(b'\n');
    bytes
}

fn check(text: &[u8]) -> Vec<u8> {
    Digest::compute(text).hex().into_iter().take(CHECK_CHARS).collect()
}

/// The text of a record; `Some(None)` if it is all zeros, `None` if it is invalid.
fn read_record(bytes: &[u8]) -> Option<Option<String>> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(None);
    }
    let (text, rest) = bytes.split_at_checked(TEXT_BYTES)?;
    let expected = [b" ".as_slice(), &check(text), b"\n"].concat();
    let text = std::str::from_utf8(text).ok()?;
    (rest == expected).then(|| Some(text.trim_end_matches(' ').to_owned()))
}

/// Strips the leading zeros of a number of twenty digits.
fn unpadded(digits: &str) -> &str {
    let trimmed = digits.trim_start_matches('0');
    if trimmed.is_empty() && !digits.is_empty() { "0" } else { trimmed }
}

fn read_bounded(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, WITNESS_BYTES_MAX), &mut bytes)?;
    Ok(bytes)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn unreadable(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the witness `{}` is unreadable", path.display()))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the witness `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(size: u64) -> LaneHead {
        LaneHead { size, root: Digest::compute(&size.to_le_bytes()) }
    }

    #[test]
    fn h7_a_witness_comes_back_and_every_flip_of_it_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/witness");
        assert_eq!(Witnessed::read(&path).unwrap(), None);
        let lanes = [0, 3].map(|number| (LaneId::new(number).unwrap(), head(u64::from(number) + 7)));
        let witnessed = Witnessed {
            ledger: "0123456789abcdef".to_owned(),
            counter: 3,
            lanes: lanes.into_iter().collect(),
        };
        witnessed.store(&path).unwrap();
        assert_eq!(Witnessed::read(&path).unwrap(), Some(witnessed.clone()));

        LaneWitness::open(&path, LaneId::new(9).unwrap()).unwrap().renew(5, head(5).root).unwrap();
        Witnessed::store_counter(&path, &witnessed.ledger, 4).unwrap();
        let read = Witnessed::read(&path).unwrap().unwrap();
        assert_eq!((read.counter, read.lanes.len(), read.entries()), (4, 3, 7 + 10 + 5));

        let good = std::fs::read(&path).unwrap();
        for at in (0..good.len()).filter(|at| good[*at] != 0) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(Witnessed::parse(&bad), None, "byte {at}");
        }
        std::fs::write(&path, "").unwrap();
        let error = Witnessed::read(&path).unwrap_err();
        assert!(error.to_string().contains("state/witness"), "{error}");
    }

    #[test]
    fn h7_the_first_version_of_a_witness_is_read_and_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("witness");
        std::fs::write(&path, "0123456789abcdef 12\n").unwrap();
        let read = Witnessed::read(&path).unwrap().unwrap();
        assert_eq!((read.ledger.as_str(), read.counter, read.lanes.len()), ("0123456789abcdef", 12, 0));
        Witnessed::store_counter(&path, &read.ledger, 13).unwrap();
        assert_eq!(Witnessed::read(&path).unwrap().unwrap().counter, 13);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), RECORD_BYTES as u64);
    }

    #[test]
    fn h7_a_witness_that_cannot_be_read_is_not_replaced_by_one_without_heads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("witness");
        for damaged in
            [&b""[..], b"\0\0\0", b"regent-witness/2 0123", b"regent-witness/3 0123456789abcdef 1\n"]
        {
            std::fs::write(&path, damaged).unwrap();
            let refused = Witnessed::store_counter(&path, "0123456789abcdef", 5).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
            assert_eq!(std::fs::read(&path).unwrap(), damaged);
        }
    }

    #[test]
    fn numbers_in_a_witness_do_not_overflow() {
        let lanes = [0, 1].map(|number| (LaneId::new(number).unwrap(), head(u64::MAX)));
        let witnessed = Witnessed { ledger: String::new(), counter: 0, lanes: lanes.into_iter().collect() };
        assert_eq!(witnessed.entries(), u64::MAX);
    }
}
