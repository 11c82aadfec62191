//! Only the host admits tools.

use regent_kernel::Kernel;

fn attempt(kernel: &Kernel) {
    let _catalogue = kernel.catalogue();
}

fn main() {
    let _attempt = attempt;
}
