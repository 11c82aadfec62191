//! Only the host reaches the ledger.

use regent_kernel::Kernel;

fn attempt(kernel: &Kernel) {
    let _ledger = kernel.ledger();
}

fn main() {
    let _attempt = attempt;
}
