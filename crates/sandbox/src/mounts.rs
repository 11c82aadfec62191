//! Building the root file system from the parts of the view, in the child, with the mount calls that work on
//! descriptors. Nothing here allocates.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

use crate::error::SetupStep;
use crate::plan::LaunchPlan;
use crate::sys;
use crate::view::{BindKind, FileIdentity, ViewPart};
use crate::wire::{SetupFailure, got, part_failure, setup_failure};

const READ_ONLY: u64 = 1;
const NO_SETUID: u64 = 2;
const NO_DEVICES: u64 = 4;
const NO_EXEC: u64 = 8;

/// Where the new root is mounted until it becomes the root: a folder that every host has.
const STAGE: &CStr = c"/proc";
/// Empty, unreadable things to cover paths with.
const BLANK_FILE: &CStr = c".blank";
const BLANK_DIRECTORY: &CStr = c".blank.d";

/// Builds the root and enters it. Returns bits of [`got`].
pub(crate) fn root(plan: &LaunchPlan) -> Result<u32, SetupFailure> {
    let root = stage(plan).map_err(setup_failure(SetupStep::Root))?;
    let mut bits = 0;
    for (index, part) in plan.view.parts.iter().enumerate() {
        bits |= add(&root, part, bits).map_err(part_failure(step_of(part), index))?;
    }
    enter(&root).map_err(setup_failure(SetupStep::Pivot))?;
    Ok(bits)
}

fn step_of(part: &ViewPart) -> SetupStep {
    match part {
        ViewPart::Directory { .. }
        | ViewPart::File { .. }
        | ViewPart::Link { .. }
        | ViewPart::Private { .. } => SetupStep::View,
        ViewPart::Bind { identity: None, .. } => SetupStep::Bind,
        ViewPart::Bind { identity: Some(_), .. } => SetupStep::Workspace,
        ViewPart::Proc => SetupStep::Proc,
        ViewPart::Blank { .. } | ViewPart::Pin { .. } => SetupStep::Guard,
        ViewPart::Seal => SetupStep::Root,
    }
}

fn stage(plan: &LaunchPlan) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"size", plan.tmpfs_size.as_c_str())?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"nr_inodes", plan.tmpfs_files.as_c_str())?;
    rustix::mount::fsconfig_set_string(context.as_fd(), c"mode", c"0755")?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let root = rustix::mount::fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )?;
    attach(root.as_fd(), CWD, STAGE)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    rustix::fs::openat(&root, BLANK_FILE, flags, Mode::empty())?;
    rustix::fs::mkdirat(&root, BLANK_DIRECTORY, Mode::empty())?;
    Ok(root)
}

/// Adds a part; returns the bit of [`got`] that it gave. `bits` are those that there are already.
fn add(root: &OwnedFd, part: &ViewPart, bits: u32) -> Result<u32, Errno> {
    match part {
        ViewPart::Directory { at } => {
            let mode = Mode::from_raw_mode(0o755);
            match in_parent(root, at, |parent, name| rustix::fs::mkdirat(parent, name, mode)) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(errno),
            }
        }
        ViewPart::File { at, content } => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let mode = Mode::from_raw_mode(0o644);
            let file = in_parent(root, at, |parent, name| rustix::fs::openat(parent, name, flags, mode))?;
            if content.is_empty() { Ok(()) } else { rustix::io::write(file, content).map(drop) }
        }
        ViewPart::Link { at, to } => {
            in_parent(root, at, |parent, name| rustix::fs::symlinkat(to.as_c_str(), parent, name))
        }
        ViewPart::Bind { from, at, kind, identity } => bind(root, from, at, *kind, *identity),
        ViewPart::Private { at } => {
            rustix::fs::chmodat(root, at.as_c_str(), Mode::from_raw_mode(0o1777), AtFlags::empty())?;
            let tree = clone_tree(root.as_fd(), at, false)?;
            attach(tree.as_fd(), root.as_fd(), at)
        }
        // Where the host's own is partly covered (in containers, say) the kernel refuses: then there is none.
        ViewPart::Proc => return Ok(mount_proc(root).map_or(0, |()| got::FRESH_PROC)),
        ViewPart::Blank { optional: true, .. } if bits & got::FRESH_PROC == 0 => Ok(()),
        ViewPart::Blank { tree, below, directory, optional, identity } => {
            match beneath(root, tree, below, *identity) {
                Err(Errno::NOENT) if *optional => Ok(()),
                Err(errno) => Err(errno),
                Ok(target) => {
                    let source = if *directory { BLANK_DIRECTORY } else { BLANK_FILE };
                    attach(clone_tree(root.as_fd(), source, false)?.as_fd(), target.as_fd(), c"")
                }
            }
        }
        ViewPart::Pin { tree, below, read_only, identity } => {
            let target = beneath(root, tree, below, *identity)?;
            let copy = clone_tree(target.as_fd(), c"", true)?;
            let attributes = NO_SETUID | NO_DEVICES | if *read_only { READ_ONLY } else { 0 };
            sys::mount_setattr(copy.as_fd(), true, attributes)?;
            attach(copy.as_fd(), target.as_fd(), c"")
        }
        ViewPart::Seal => sys::mount_setattr(root.as_fd(), false, READ_ONLY | NO_SETUID | NO_DEVICES),
    }
    .map(|()| 0)
}

fn bind(
    root: &OwnedFd,
    from: &CStr,
    at: &CStr,
    kind: BindKind,
    identity: Option<FileIdentity>,
) -> Result<(), Errno> {
    let tree = clone_tree(CWD, from, true)?;
    if let Some(expected) = identity
        && !is_file(&tree, expected)?
    {
        return Err(Errno::STALE);
    }
    let attributes = match kind {
        BindKind::ReadOnly => READ_ONLY | NO_SETUID | NO_DEVICES,
        BindKind::Writable => NO_SETUID | NO_DEVICES,
        // Writing to a device needs no writable mount. Changing the mode or owner of the host's own would.
        BindKind::Device => READ_ONLY | NO_SETUID | NO_EXEC,
    };
    sys::mount_setattr(tree.as_fd(), true, attributes)?;
    attach(tree.as_fd(), inside(root, at)?.as_fd(), c"")
}

fn mount_proc(root: &OwnedFd) -> Result<(), Errno> {
    let context = rustix::mount::fsopen(c"proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // Only processes that one could trace are there at all: the first process is not.
    rustix::mount::fsconfig_set_string(context.as_fd(), c"hidepid", c"ptraceable")?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let proc = rustix::mount::fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )?;
    attach(proc.as_fd(), root.as_fd(), c"proc")
}

fn enter(root: &OwnedFd) -> Result<(), Errno> {
    rustix::process::fchdir(root)?;
    rustix::process::pivot_root(c".", c".")?;
    // The old root now lies over the new one, at the same place.
    rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")
}

/// A detached copy of a mount tree.
fn clone_tree(from: BorrowedFd<'_>, path: &CStr, recursive: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW
        | OpenTreeFlags::AT_EMPTY_PATH;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    rustix::mount::open_tree(from, path, flags)
}

fn attach(tree: BorrowedFd<'_>, to: BorrowedFd<'_>, at: &CStr) -> Result<(), Errno> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if at.is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    rustix::mount::move_mount(tree, c"", to, at, flags)
}

/// A path of the new root. While it is being built, an absolute link in it would lead to the host's own tree: whatever
/// leaves the new root is an error.
fn inside(root: &OwnedFd, path: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Does something with the folder that a path lies in and the path's last name.
fn in_parent<T>(
    root: &OwnedFd,
    path: &CStr,
    act: impl FnOnce(BorrowedFd<'_>, &CStr) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let bytes = path.to_bytes_with_nul();
    let Some(slash) = bytes.iter().rposition(|byte| *byte == b'/') else {
        return act(root.as_fd(), path);
    };
    let (Some(parent), Some(name)) = (bytes.get(..slash), bytes.get(slash + 1..)) else {
        return Err(Errno::INVAL);
    };
    // All zeroes, so that the copy ends in one; a longer path has no room for it.
    let mut buffer = [0; libc::PATH_MAX as usize];
    buffer.get_mut(..slash).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(parent);
    let parent = CStr::from_bytes_until_nul(&buffer).map_err(|_| Errno::NAMETOOLONG)?;
    let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno::INVAL)?;
    act(inside(root, parent)?.as_fd(), name)
}

/// A path below a bind, reached without following a link, so that another writer can't redirect it. A file that isn't the one
/// that was looked at counts as gone: that one is somewhere else by now, uncovered.
fn beneath(
    root: &OwnedFd,
    tree: &CStr,
    below: &CStr,
    identity: Option<FileIdentity>,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let tree = rustix::fs::openat(root, tree, flags, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let target = rustix::fs::openat2(tree, below, flags, Mode::empty(), resolve)?;
    match identity {
        Some(expected) if is_file(&target, expected)? => Ok(target),
        Some(_) => Err(Errno::NOENT),
        None => Ok(target),
    }
}

fn is_file(fd: &OwnedFd, expected: FileIdentity) -> Result<bool, Errno> {
    let found = rustix::fs::fstat(fd)?;
    Ok((FileIdentity { dev: found.st_dev, ino: found.st_ino }) == expected)
}
