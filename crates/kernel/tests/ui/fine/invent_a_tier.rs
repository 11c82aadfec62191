//! Code can be written for any of them.

use regent_kernel::{Permit, tier};

fn seq<T: tier::Tier>(permit: &Permit<'_, T>) -> u64 {
    permit.intent().seq
}

fn main() {
    let _seq = seq::<tier::Host>;
}
