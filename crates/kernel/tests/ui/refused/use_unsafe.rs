//! The lints of this workspace hold: outside the sandbox there is no unsafe code to make a permit with.

#![deny(unsafe_code)]

use regent_kernel::{Permit, tier};

fn conjure() -> Permit<'static, tier::Host> {
    unsafe { std::mem::zeroed() }
}

fn main() {
    let _conjure = conjure;
}
