//! Only the host knows the operator's principal.

use regent_kernel::Kernel;

fn attempt(kernel: &Kernel) {
    let _operator = kernel.operator();
}

fn main() {
    let _attempt = attempt;
}
