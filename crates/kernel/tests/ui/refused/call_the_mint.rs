//! The mint is the path's own.

use regent_kernel::{Permit, tier};

fn main() {
    let _permit = Permit::<tier::Host>::mint(todo!());
}
