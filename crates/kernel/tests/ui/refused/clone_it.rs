//! A permit is for one call, so there is only one of it.

use regent_kernel::{Permit, tier};

fn copy<'s>(permit: &Permit<'s, tier::Host>) -> Permit<'s, tier::Host> {
    permit.clone()
}

fn main() {
    let _copy = copy;
}
