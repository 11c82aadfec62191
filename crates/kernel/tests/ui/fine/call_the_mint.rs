//! What a permit offers to everyone: to look at what it is for.

use regent_kernel::{Permit, tier};

fn main() {
    let _look = Permit::<tier::Host>::call;
}
