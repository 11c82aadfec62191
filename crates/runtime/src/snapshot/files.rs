//! Reading the workspace: everything under it, in order, reached beneath the held folder and through no link.

use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};

use regent_kernel::{Digest, FileKind, PathError, Workspace};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{Item, Snapshot, SnapshotError, SnapshotOptions, What};

/// What a picture's form is called.
const SCHEMA: u32 = 1;
/// Folders inside folders.
const DEPTH_MAX: usize = 128;

/// Looks at everything, hands on the content of files, and says what there is.
pub(super) fn scan(
    workspace: &Workspace,
    options: &SnapshotOptions,
    mut keep: impl FnMut(&[u8]) -> Result<(), SnapshotError>,
) -> Result<Snapshot, SnapshotError> {
    let mut scan = Scan {
        workspace,
        options,
        found: Snapshot { schema: SCHEMA, items: Vec::new(), skipped: Vec::new() },
        bytes: 0,
    };
    scan.folder(".", 0, &mut keep)?;
    let mut found = scan.found;
    found.items.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

struct Scan<'a> {
    workspace: &'a Workspace,
    options: &'a SnapshotOptions,
    found: Snapshot,
    bytes: u64,
}

impl Scan<'_> {
    fn folder(
        &mut self,
        folder: &str,
        depth: usize,
        keep: &mut impl FnMut(&[u8]) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        let most = self.options.items_max.saturating_sub(self.found.items.len());
        let listing = match self.workspace.list(folder, most.saturating_add(1)) {
            Ok(listing) => listing,
            Err(_unreadable) if folder != "." => {
                self.found.skipped.push(folder.to_owned());
                return Ok(());
            }
            Err(error) => return Err(SnapshotError::Path { path: folder.to_owned(), error }),
        };
        if listing.more || listing.items.len() > most || depth > DEPTH_MAX {
            let what = format!("more than {} files, or folders {DEPTH_MAX} deep", self.options.items_max);
            return Err(SnapshotError::TooLarge(what));
        }
        for item in listing.items {
            let text = String::from_utf8(item.name).ok().filter(|name| !name.chars().any(char::is_control));
            let Some(name) = text else {
                self.found.skipped.push(format!("{folder}/?"));
                continue;
            };
            if self.options.excluded.contains(&name) {
                continue;
            }
            let path = if folder == "." { name } else { format!("{folder}/{name}") };
            match item.kind {
                FileKind::Folder => {
                    let mode = self.workspace.stat(&path).map_or(0o755, |found| found.mode);
                    self.found.items.push(Item { path: path.clone(), mode, what: What::Folder });
                    self.folder(&path, depth.saturating_add(1), keep)?;
                }
                FileKind::File => self.file(path, keep)?,
                FileKind::Link => self.link(path),
                FileKind::Special => self.found.skipped.push(path),
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        path: String,
        keep: &mut impl FnMut(&[u8]) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        let room = self.options.bytes_max.saturating_sub(self.bytes);
        let mut content = Vec::new();
        let read = self.workspace.open_read(&path).and_then(|file| {
            let mode = self.workspace.stat(&path)?.mode;
            file.take(room.saturating_add(1))
                .read_to_end(&mut content)
                .map_err(|error| PathError::Os(error.to_string()))?;
            Ok(mode)
        });
        let Ok(mode) = read else {
            self.found.skipped.push(path);
            return Ok(());
        };
        let bytes = content.len() as u64;
        if bytes > room {
            return Err(SnapshotError::TooLarge(format!("more than {} bytes", self.options.bytes_max)));
        }
        self.bytes = self.bytes.saturating_add(bytes);
        keep(&content)?;
        self.found.items.push(Item { path, mode, what: What::File { sha256: Digest::of(&content), bytes } });
        Ok(())
    }

    fn link(&mut self, path: String) {
        let leads = parent(self.workspace, &path).ok().and_then(|(folder, name)| {
            rustix::fs::readlinkat(&folder, name, Vec::new()).ok()?.into_string().ok()
        });
        match leads {
            Some(to) => self.found.items.push(Item { path, mode: 0, what: What::Link(to) }),
            None => self.found.skipped.push(path),
        }
    }
}

/// The folder that holds a name, opened beneath the workspace through no link, and the name.
pub(super) fn parent<'a>(workspace: &Workspace, path: &'a str) -> Result<(OwnedFd, &'a str), SnapshotError> {
    let (above, name) = path.rsplit_once('/').unwrap_or((".", path));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        .union(ResolveFlags::NO_SYMLINKS)
        .union(ResolveFlags::NO_MAGICLINKS)
        .union(ResolveFlags::NO_XDEV);
    let folder = rustix::fs::openat2(workspace.as_fd(), above, flags, Mode::empty(), resolve)
        .map_err(|errno| SnapshotError::Path { path: path.to_owned(), error: PathError::from(errno) })?;
    Ok((folder, name))
}
