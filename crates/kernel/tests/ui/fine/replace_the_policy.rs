//! Only the host replaces the policy.

use regent_kernel::Host;

fn attempt(host: &Host, policy: regent_kernel::Policy) {
    drop(host.replace_policy(policy));
}

fn main() {
    let _attempt = attempt;
}
