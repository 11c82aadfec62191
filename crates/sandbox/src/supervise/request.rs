//! A held call, read once: its number, its arguments, and the paths that they point to.

use libc::c_long;
use rustix::io::Errno;

use super::attributes::{Attribute, times};
use crate::sys::notify::{self, Notice};

/// One path argument: where it starts, if it is relative, and the path.
#[derive(Debug)]
pub(super) struct Named {
    pub folder: i32,
    pub path: Vec<u8>,
}

/// What is asked for.
#[derive(Debug)]
pub(super) enum SupervisedCall {
    Open { at: Named, flags: i32, mode: u32 },
    Folder { at: Named, mode: u32 },
    Node { at: Named, mode: u32, device: u64 },
    Link { from: Named, at: Named, flags: i32 },
    Symlink { to: Vec<u8>, at: Named },
    Rename { from: Named, at: Named, flags: u32 },
    Change { descriptor: i32, to: Attribute },
}

/// What `creat` means.
#[cfg(target_arch = "x86_64")]
const CREAT_FLAGS: i32 = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

/// Reads a call's arguments out of its process.
pub(super) fn read(notice: &Notice) -> Result<SupervisedCall, Errno> {
    let [a, b, c, d, e, _] = notice.arguments;
    let text = |address: u64| text(notice.thread, address);
    // The kernel takes descriptors, flags and modes as 32 bits.
    let named = |folder: u64, path: u64| text(path).map(|path| Named { folder: folder as i32, path });
    #[cfg(target_arch = "x86_64")]
    let here = |path: u64| text(path).map(|path| Named { folder: libc::AT_FDCWD, path });
    Ok(match c_long::from(notice.call) {
        libc::SYS_fchmod => SupervisedCall::Change { descriptor: a as i32, to: Attribute::Mode(b as u32) },
        // The filter lets it through without a path only.
        libc::SYS_utimensat => {
            SupervisedCall::Change { descriptor: a as i32, to: Attribute::Times(times(notice.thread, c)?) }
        }
        libc::SYS_openat => SupervisedCall::Open { at: named(a, b)?, flags: c as i32, mode: d as u32 },
        libc::SYS_mkdirat => SupervisedCall::Folder { at: named(a, b)?, mode: c as u32 },
        libc::SYS_mknodat => SupervisedCall::Node { at: named(a, b)?, mode: c as u32, device: d },
        libc::SYS_linkat => {
            SupervisedCall::Link { from: source(notice, a, b, e)?, at: named(c, d)?, flags: e as i32 }
        }
        libc::SYS_symlinkat => SupervisedCall::Symlink { to: text(a)?, at: named(b, c)? },
        libc::SYS_renameat => SupervisedCall::Rename { from: named(a, b)?, at: named(c, d)?, flags: 0 },
        libc::SYS_renameat2 => {
            SupervisedCall::Rename { from: named(a, b)?, at: named(c, d)?, flags: e as u32 }
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => SupervisedCall::Open { at: here(a)?, flags: b as i32, mode: c as u32 },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => SupervisedCall::Open { at: here(a)?, flags: CREAT_FLAGS, mode: b as u32 },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir => SupervisedCall::Folder { at: here(a)?, mode: b as u32 },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mknod => SupervisedCall::Node { at: here(a)?, mode: b as u32, device: c },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_link => SupervisedCall::Link { from: here(a)?, at: here(b)?, flags: 0 },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_symlink => SupervisedCall::Symlink { to: text(a)?, at: here(b)? },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => SupervisedCall::Rename { from: here(a)?, at: here(b)?, flags: 0 },
        _ => return Err(Errno::NOSYS),
    })
}

/// What `linkat` links: with `AT_EMPTY_PATH` and no path it is the descriptor itself.
fn source(notice: &Notice, folder: u64, path: u64, flags: u64) -> Result<Named, Errno> {
    let folder = folder as i32;
    match text(notice.thread, path) {
        Err(Errno::NOENT) if flags as i32 & libc::AT_EMPTY_PATH != 0 && folder != libc::AT_FDCWD => {
            Ok(Named { folder, path: format!("/dev/fd/{folder}").into_bytes() })
        }
        path => path.map(|path| Named { folder, path }),
    }
}

/// A path, without the zero at its end.
fn text(thread: u32, address: u64) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; libc::PATH_MAX as usize];
    let bytes = match notify::read_memory(thread, address, &mut buffer) {
        Ok(bytes) => bytes,
        // Its memory is closed to us, so it can't be judged.
        Err(Errno::PERM) => return Err(Errno::ACCESS),
        Err(errno) => return Err(errno),
    };
    let Some(end) = buffer.iter().take(bytes).position(|byte| *byte == 0) else {
        return Err(if bytes == buffer.len() { Errno::NAMETOOLONG } else { Errno::FAULT });
    };
    buffer.truncate(end);
    if buffer.is_empty() { Err(Errno::NOENT) } else { Ok(buffer) }
}
