//! Only the host knows the operator's principal.

use regent_kernel::Host;

fn attempt(host: &Host) {
    let _operator = host.operator();
}

fn main() {
    let _attempt = attempt;
}
