//! Which calls are handed to the supervisor: those that can make a name in a folder, those that open a file for writing, and in the
//! fallback those that change an open file's mode and times.
//!
//! A filter of its own, beside the allow-list. Of two filters the stricter answer counts, and "ask" lies between "refuse" and
//! "allow": what the allow-list refuses is refused without asking.

use libc::{c_long, sock_filter};

use crate::ended::Confinement;

use super::{ARCH, and, jump_if_at_least, jump_if_equal, load, load_argument, ret};

/// Calls that make a name, whatever their arguments. `openat2` is on no list at all: see `lists.rs`.
const MAKING: &[c_long] = &[
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
];

/// Calls that change what is known about an open file, whatever it was opened for.
const CHANGING: &[c_long] = &[libc::SYS_fchmod, libc::SYS_utimensat];

/// Calls that open a file, and which argument has the flags.
const OPENING: &[(c_long, u32)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// Flags of which any one makes an opening one for writing.
pub(crate) const WRITING: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32;

/// The filter: a search tree, because the kernel evaluates a new filter for every call number when it is installed.
pub(crate) fn program(confinement: Confinement) -> Vec<sock_filter> {
    let (allow, ask) = (ret(libc::SECCOMP_RET_ALLOW), ret(libc::SECCOMP_RET_USER_NOTIF));
    let opens = |flags: u32| vec![load_argument(flags), and(WRITING), jump_if_equal(0, 0, 1), allow, ask];
    let changing = match confinement {
        Confinement::Full => &[],
        Confinement::LandlockSeccomp => CHANGING,
    };
    let making = MAKING.iter().chain(changing).map(|call| (*call as u32, vec![ask]));
    let opening = OPENING.iter().map(|(call, flags)| (*call as u32, opens(*flags)));
    let mut calls: Vec<(u32, Vec<sock_filter>)> = making.chain(opening).collect();
    calls.sort_by_key(|(call, _)| *call);
    // Calls of foreign ABIs are the other filter's, which kills.
    let mut code = vec![load(4), jump_if_equal(ARCH, 1, 0), allow, load(0)];
    code.extend(tree(&calls));
    code
}

/// Finds the call among these, in the order of their numbers, or allows it.
fn tree(calls: &[(u32, Vec<sock_filter>)]) -> Vec<sock_filter> {
    let allow = ret(libc::SECCOMP_RET_ALLOW);
    let (left, right) = calls.split_at(calls.len() / 2);
    match (left, right) {
        (_, []) => vec![allow],
        ([], [(call, answer), ..]) => {
            let mut code = vec![jump_if_equal(*call, 0, answer.len() as u8)];
            code.extend(answer);
            code.push(allow);
            code
        }
        (_, [(first, _), ..]) => {
            let below = tree(left);
            let mut code = vec![jump_if_at_least(*first, below.len() as u8, 0)];
            code.extend(below);
            code.extend(tree(right));
            code
        }
    }
}
