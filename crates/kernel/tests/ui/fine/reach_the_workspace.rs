//! Only the host reaches the workspace outside of a call.

use regent_kernel::Host;

fn attempt(host: &Host) {
    let _workspace = host.workspace();
}

fn main() {
    let _attempt = attempt;
}
