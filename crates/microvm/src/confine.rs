//! The thread that runs a guest gives up everything but running it. If a guest ever got the better of the hypervisor's interface, the
//! thread it would be in can open nothing, start nothing and reach nobody.
//!
//! It is a thread of our own process: memory is shared, so that this is a second wall, not the first.

use regent_sandbox::confine_guest_thread;
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::Serialize;

use super::link::Link;
use super::machine::Vm;

/// What the thread has really given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Confined {
    pub(super) seccomp: bool,
    pub(super) landlock_abi: u32,
    pub(super) no_new_privs: bool,
    pub(super) capabilities_dropped: bool,
}

/// Confines the calling thread for good.
pub(super) fn confine(machine: &Vm, link: &Link) -> std::io::Result<Confined> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_no_new_privs(true)?;
    let capabilities_dropped = rustix::thread::set_capabilities(None, none).is_ok();
    let landlock_abi = confine_guest_thread(machine.vcpu_fd(), link.bell_fd())?;
    Ok(Confined { seccomp: true, landlock_abi, no_new_privs: true, capabilities_dropped })
}
