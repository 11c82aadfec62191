//! Only the host replaces the policy.

use regent_kernel::Kernel;

fn attempt(kernel: &Kernel, policy: regent_kernel::Policy) {
    drop(kernel.replace_policy(policy));
}

fn main() {
    let _attempt = attempt;
}
