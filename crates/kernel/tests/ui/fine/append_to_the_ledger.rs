//! Only the host reaches the ledger.

use regent_kernel::Host;

fn attempt(host: &Host) {
    let _ledger = host.ledger();
}

fn main() {
    let _attempt = attempt;
}
