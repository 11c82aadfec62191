//! The virtual file system, and memory, which lives in it.

use std::sync::Arc;

use regent_policy::{Confidentiality, Integrity, Label};
use regent_wire::result::{
    Closed, FileStat, FolderNames, Mounted, Opened, RecalledEntry, Recollection, Remembered, Unmounted,
    WrittenFile,
};

use super::{HostPermit, Performed};
use crate::call::{Memory, Query};
use crate::executor::RawOutput;
use crate::kernel::Core;
use crate::vfs::{Fd, MountedPath, Node, OpenMode, Stat, VfsError, VfsPath};

/// Entries that one recall brings back, and what they hold together.
const RECALLED_MAX: u32 = 100;
const RECALLED_BYTES_MAX: usize = 1 << 20;

/// Turns the file system's no into the caller's answer.
fn answer(result: Result<RawOutput, VfsError>) -> Performed {
    Ok(result.unwrap_or_else(|error| RawOutput::failed(error.code(), error.to_string())))
}

fn find(core: &Arc<Core>, permit: &HostPermit<'_>, path: &str) -> Result<(VfsPath, Node), VfsError> {
    let who = permit.call().principal();
    let path = VfsPath::parse(path, &who.home())?;
    let node = core.trees(who, path.tree()).find(&path)?;
    Ok((path, node))
}

fn opened(
    core: &Arc<Core>,
    permit: &HostPermit<'_>,
    fd: Fd,
) -> Result<(VfsPath, OpenMode, MountedPath), VfsError> {
    let who = permit.call().principal();
    let (path, mode) = core.society.vfs.opened(&who.home(), fd)?;
    let place = core.trees(who, path.tree()).find(&path)?.place(&path)?;
    Ok((path, mode, place))
}

pub(super) fn open(core: &Arc<Core>, permit: HostPermit<'_>, path: &str, mode: OpenMode) -> Performed {
    answer((|| {
        let (path, node) = find(core, &permit, path)?;
        let place = node.place(&path)?;
        match (place.stat(), mode) {
            (Ok(stat), _) if stat.folder => return Err(VfsError::NotAFile(path.to_string())),
            (Ok(_), OpenMode::Read) => {}
            // Writing nothing makes the file, or says why it can't be written.
            (_, OpenMode::Write) => {
                place.write(None, &[], core.label_of_input(permit.call()))?;
            }
            (Err(error), OpenMode::Read) => return Err(error),
        }
        let (who, home) = (permit.call().principal(), permit.call().principal().home());
        let fd = core.trees(who, &home).open(&home, path, mode)?;
        Ok(RawOutput::result(&Opened { fd }))
    })())
}

pub(super) fn close(core: &Arc<Core>, permit: HostPermit<'_>, fd: Fd) -> Performed {
    let closed = core.society.vfs.close(&permit.call().principal().home(), fd);
    answer(closed.map(|()| RawOutput::result(&Closed { closed: fd })))
}

pub(super) fn read(
    core: &Arc<Core>,
    permit: HostPermit<'_>,
    fd: Fd,
    offset: u64,
    bytes_max: u32,
) -> Performed {
    let most = u64::from(bytes_max).min(permit.limits().output_bytes_max);
    answer((|| {
        let (_, _, place) = opened(core, &permit, fd)?;
        let content = place.read(offset, usize::try_from(most).unwrap_or(usize::MAX))?;
        Ok(RawOutput::new(content.bytes).with_label(content.label))
    })())
}

pub(super) fn write(
    core: &Arc<Core>,
    permit: HostPermit<'_>,
    fd: Fd,
    offset: Option<u64>,
    content: &str,
) -> Performed {
    answer((|| {
        let (path, mode, place) = opened(core, &permit, fd)?;
        if mode == OpenMode::Read {
            return Err(VfsError::ReadOnly(path.to_string()));
        }
        let bytes = place.write(offset, content.as_bytes(), core.label_of_input(permit.call()))?;
        Ok(RawOutput::result(&WrittenFile { bytes, written: content.len() as u64 }))
    })())
}

pub(super) fn stat(core: &Arc<Core>, permit: HostPermit<'_>, path: &str) -> Performed {
    answer((|| match find(core, &permit, path)?.1 {
        Node::Above(_) => Ok(RawOutput::result(&FileStat { bytes: 0, folder: true, label: None })),
        Node::In(place) => {
            let Stat { folder, bytes, label } = place.stat()?;
            Ok(RawOutput::result(&FileStat { bytes, folder, label: Some(label) }).with_label(label))
        }
    })())
}

pub(super) fn list(core: &Arc<Core>, permit: HostPermit<'_>, path: &str) -> Performed {
    answer((|| match find(core, &permit, path)?.1 {
        Node::Above(names) => Ok(RawOutput::result(&FolderNames { names })),
        Node::In(place) => {
            let listing = place.list()?;
            Ok(RawOutput::result(&FolderNames { names: listing.names }).with_label(listing.label))
        }
    })())
}

pub(super) fn mount(
    core: &Arc<Core>,
    permit: HostPermit<'_>,
    source: &str,
    target: &str,
    writable: bool,
) -> Performed {
    answer((|| {
        let who = permit.call().principal();
        let (path, node) = find(core, &permit, source)?;
        let place = node.place(&path)?.narrowed(writable)?;
        let target = VfsPath::parse(target, &who.home())?;
        core.trees(who, target.tree()).map(place, &target)?;
        Ok(RawOutput::result(&Mounted { mounted: target.to_string(), writable }))
    })())
}

pub(super) fn unmount(core: &Arc<Core>, permit: HostPermit<'_>, target: &str) -> Performed {
    answer((|| {
        let target = VfsPath::parse(target, &permit.call().principal().home())?;
        core.society.vfs.unmap(&target)?;
        Ok(RawOutput::result(&Unmounted { unmounted: target.to_string() }))
    })())
}

pub(super) fn remember(core: &Arc<Core>, permit: HostPermit<'_>, memory: &Memory) -> Performed {
    answer((|| {
        let path = format!("/self/mem/{}/{}", memory.region.folder(), memory.key);
        let (path, node) = find(core, &permit, &path)?;
        let label = core.label_of_input(permit.call());
        let bytes = node.place(&path)?.put(memory.content.as_bytes(), label)?;
        Ok(RawOutput::result(&Remembered { bytes, path: path.to_string() }))
    })())
}

/// Looks for text in the names and content of one memory. Entries come in the order of their names.
pub(super) fn recall(core: &Arc<Core>, permit: HostPermit<'_>, query: &Query) -> Performed {
    answer((|| {
        let (path, node) = find(core, &permit, &format!("/self/mem/{}", query.region.folder()))?;
        let most = usize::try_from(query.entries_max.min(RECALLED_MAX)).unwrap_or(usize::MAX);
        let found = node.place(&path)?.search(&query.text, most)?;
        let remembered = Label { integrity: Integrity::Memory, confidentiality: Confidentiality::Public };
        let (mut label, mut bytes, mut entries) = (remembered, 0_usize, Vec::new());
        let count = found.len();
        for one in found {
            bytes = bytes.saturating_add(one.content.len());
            if bytes > RECALLED_BYTES_MAX {
                break;
            }
            label = label.join(one.label);
            entries.push(RecalledEntry { content: one.content, key: one.name, label: one.label });
        }
        let cut = entries.len() < count;
        Ok(RawOutput::result(&Recollection { cut, entries }).with_label(label))
    })())
}
