//! Code without it compiles under the same lint.

#![deny(unsafe_code)]

use regent_kernel::{Permit, tier};

fn weigh(permit: &Permit<'_, tier::Host>) -> usize {
    std::mem::size_of_val(permit)
}

fn main() {
    let _weigh = weigh;
}
