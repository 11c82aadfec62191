//! A package's archive as a container of data: one member is read, nothing is unpacked.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{Package, Trouble};

const PIECE_BYTES: usize = 1 << 20;
/// Members that an archive may have.
const MEMBERS_MAX: usize = 10_000;

/// Gives the member's bytes piece by piece, exactly as many as there should be.
pub(super) fn take(
    folder: &Path,
    package: &Package,
    mut give: impl FnMut(&[u8]) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let source = |error: &dyn std::fmt::Display| Trouble::Source(error.to_string());
    let mut files = std::fs::read_dir(folder)
        .map_err(|error| source(&error))?
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    let path = files.find(|path| path.extension().is_some_and(|end| end == "whl" || end == "zip"));
    let path = path.ok_or_else(|| source(&"no archive came"))?;
    let file = File::open(path).map_err(|error| source(&error))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| source(&error))?;
    if archive.len() > MEMBERS_MAX {
        return Err(source(&"the archive has too many members"));
    }
    let member = archive.by_name(&package.member).map_err(|error| source(&error))?;
    // What a member says about its size is its word; what comes out is counted.
    let mut member = member.take(package.bytes.saturating_add(1));
    let mut buffer = vec![0; PIECE_BYTES];
    let mut done = 0_u64;
    loop {
        let count = member.read(&mut buffer).map_err(|error| source(&error))?;
        if count == 0 {
            break;
        }
        done = done.saturating_add(count as u64);
        if done > package.bytes {
            break;
        }
        give(buffer.get(..count).unwrap_or_default())?;
    }
    if done == package.bytes {
        Ok(())
    } else {
        Err(source(&format!("`{}` is not {} bytes long", package.member, package.bytes)))
    }
}
