//! A permit is something one is handed.

use regent_kernel::{Permit, tier};

fn receive(permit: Permit<'_, tier::Host>) -> u64 {
    permit.intent().seq
}

fn main() {
    let _receive = receive;
}
