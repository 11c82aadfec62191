//! Only the host reaches the workspace outside of a call.

use regent_kernel::Kernel;

fn attempt(kernel: &Kernel) {
    let _workspace = kernel.workspace();
}

fn main() {
    let _attempt = attempt;
}
