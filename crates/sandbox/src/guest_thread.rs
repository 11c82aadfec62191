//! The confinement of a thread that runs a guest of KVM. The tier is another crate; filters and Landlock rules stay here.

use std::io;
use std::os::fd::{AsFd as _, RawFd};

use crate::{grants, seccomp, sys};

/// Takes from the calling thread, for good, what running a guest doesn't need. Landlock denies every file, every TCP port, and signals
/// to other processes. Seccomp allows `KVM_RUN` on `vcpu_fd`, writing to `bell_fd`, waiting, and managing memory that is not executable.
///
/// Returns the kernel's Landlock ABI; zero if there is none. The filter lets nothing be opened either way.
///
/// # Errors
/// If the kernel refuses either. It does unless the thread has `no_new_privs`.
pub fn confine_guest_thread(vcpu_fd: RawFd, bell_fd: RawFd) -> io::Result<u32> {
    let mut landlock_abi = 0;
    if let Ok(rules) = grants::ruleset(grants::Ports::Closed) {
        sys::landlock_restrict(rules.as_fd())?;
        landlock_abi = sys::landlock_abi();
    }
    sys::seccomp(&seccomp::guest_thread(vcpu_fd.cast_unsigned(), bell_fd.cast_unsigned()))?;
    Ok(landlock_abi)
}
