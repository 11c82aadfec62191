//! Reads archives into memory and validates them before any file is written: path traversal, links, devices, archive bombs.
//!
//! An archive counts as a bomb if it unpacks to more than a package may contain, or to a large multiple of its own size. The limits apply
//! while reading, so a bomb uses no more memory than a package.

use std::io::{Cursor, Read};

use tar::EntryType;

use crate::error::SkillError;
use crate::package::{FILE_BYTES_MAX, FILES_MAX, PACKAGE_BYTES_MAX, Package};

/// Maximum entries of an archive, folders included.
const ENTRIES_MAX: usize = 4 * FILES_MAX;
/// Maximum compression ratio. Text compresses about tenfold; only empty data exceeds this.
const RATIO_MAX: u64 = 200;
/// Unpacked size up to which any ratio is accepted.
const RATIO_FREE_BYTES: u64 = 1 << 20;

/// Reads an archive; its first bytes decide the format.
pub(crate) fn read(bytes: &[u8]) -> Result<Package, SkillError> {
    let most = most(bytes.len());
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return read_tar(Bounded::new(flate2::read::MultiGzDecoder::new(bytes), most));
    }
    if bytes.starts_with(b"PK") {
        return read_zip(bytes, most);
    }
    if bytes.get(257..262).is_some_and(|mark| mark == b"ustar") {
        return read_tar(Bounded::new(bytes, most));
    }
    Err(SkillError::Package("it is neither a folder nor a .tar.gz, .tar or .zip archive".to_owned()))
}

/// Maximum unpacked size for that many bytes.
fn most(bytes: usize) -> u64 {
    // A tar has a header block before each file and pads the last one.
    const TAR_OVERHEAD: u64 = 2 * 1024 * ENTRIES_MAX as u64;
    let by_ratio = (bytes as u64).saturating_mul(RATIO_MAX).max(RATIO_FREE_BYTES);
    by_ratio.min(PACKAGE_BYTES_MAX + TAR_OVERHEAD)
}

fn refused(why: impl std::fmt::Display) -> SkillError {
    SkillError::Package(format!("the archive was rejected: {why}"))
}

fn read_tar(stream: impl Read) -> Result<Package, SkillError> {
    let mut package = Package::default();
    let mut archive = tar::Archive::new(stream);
    let mut entries = 0_usize;
    for entry in archive.entries().map_err(refused)? {
        let entry = entry.map_err(refused)?;
        entries += 1;
        if entries > ENTRIES_MAX {
            return Err(refused(format!("it has more than {ENTRIES_MAX} entries")));
        }
        let path = entry.path_bytes().into_owned();
        let shown = || String::from_utf8_lossy(&path).escape_debug().to_string();
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            folder(&path)?;
            continue;
        }
        if kind.is_pax_global_extensions() {
            // Metadata that `git archive` adds.
            continue;
        }
        if !kind.is_file() && !kind.is_contiguous() {
            return Err(refused(format!("`{}` is {}", shown(), named(kind))));
        }
        let executable = entry.header().mode().map_err(refused)? & 0o100 != 0;
        let size = entry.size();
        let bytes = content(entry, size, package.bytes_left(), &path)?;
        package.add(&path, bytes, executable)?;
    }
    Ok(package)
}

fn named(kind: EntryType) -> &'static str {
    if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_hard_link() {
        "a hard link"
    } else if kind.is_character_special() || kind.is_block_special() {
        "a device"
    } else if kind.is_fifo() {
        "a FIFO"
    } else {
        "of an unsupported type"
    }
}

fn read_zip(bytes: &[u8], most: u64) -> Result<Package, SkillError> {
    let mut package = Package::default();
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(refused)?;
    if archive.len() > ENTRIES_MAX {
        return Err(refused(format!("it has more than {ENTRIES_MAX} entries")));
    }
    let mut unpacked = 0_u64;
    for index in 0..archive.len() {
        let file = archive.by_index(index).map_err(refused)?;
        let path = file.name_raw().to_vec();
        let shown = || String::from_utf8_lossy(&path).escape_debug().to_string();
        // The Unix file type that accompanies the mode; other systems store none.
        let kind = file.unix_mode().map_or(0, |mode| mode & 0o170_000);
        if !matches!(kind, 0 | 0o100_000 | 0o040_000) || file.is_symlink() {
            return Err(refused(format!("`{}` is a link, a device or another special file", shown())));
        }
        if file.is_dir() || kind == 0o040_000 {
            folder(&path)?;
            continue;
        }
        let executable = file.unix_mode().is_some_and(|mode| mode & 0o100 != 0);
        let (size, room) = (file.size(), most.saturating_sub(unpacked).min(package.bytes_left()));
        let bytes = content(file, size, room, &path)?;
        unpacked += bytes.len() as u64;
        package.add(&path, bytes, executable)?;
    }
    Ok(package)
}

/// Checks the name of a folder. Folders are created when a file needs them, but their names must be valid.
fn folder(path: &[u8]) -> Result<(), SkillError> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    if path.is_empty() || path == b"." { Ok(()) } else { crate::package::checked_path(path).map(drop) }
}

/// The bytes of one file. Checks the size in the header first, and then the actual size.
fn content(stream: impl Read, claimed: u64, room: u64, path: &[u8]) -> Result<Vec<u8>, SkillError> {
    let most = room.min(FILE_BYTES_MAX);
    let too_much = || {
        let shown = String::from_utf8_lossy(path).escape_debug().to_string();
        refused(format!("`{shown}` unpacks to more than the limit, or is an archive bomb"))
    };
    if claimed > most {
        return Err(too_much());
    }
    let mut bytes = Vec::new();
    stream.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.len() as u64 > most { Err(too_much()) } else { Ok(bytes) }
}

/// A stream that fails beyond its limit.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R> Bounded<R> {
    fn new(inner: R, most: u64) -> Self {
        Self { inner, left: most }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            std::io::Error::other("it unpacks to more than the limit, or is an archive bomb")
        })?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
