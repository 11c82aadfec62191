//! Only the host admits tools.

use regent_kernel::Host;

fn attempt(host: &Host) {
    let _catalogue = host.catalogue();
}

fn main() {
    let _attempt = attempt;
}
