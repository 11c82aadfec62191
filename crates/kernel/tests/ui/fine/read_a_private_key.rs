//! Its public half is.

use regent_kernel::{Did, Principal};

fn known_as(who: &Principal) -> Option<&Did> {
    who.did()
}

fn main() {
    let _known_as = known_as;
}
