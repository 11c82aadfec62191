//! It can be passed on.

use regent_kernel::{Permit, tier};

fn pass_on<'s>(permit: Permit<'s, tier::Host>) -> Permit<'s, tier::Host> {
    permit
}

fn main() {
    let _pass_on = pass_on;
}
