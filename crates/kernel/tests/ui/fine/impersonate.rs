//! The host gives out principals.

use regent_kernel::{AgentId, Kernel, Principal};

fn child(kernel: &Kernel, parent: &Principal, agent: &AgentId) -> Option<Principal> {
    kernel.principal_of(parent, agent)
}

fn main() {
    let _child = child;
}
