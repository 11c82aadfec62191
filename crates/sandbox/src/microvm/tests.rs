//! Guests against the real hypervisor, and the dispatcher against hostile arguments.

use super::*;

#[test]
fn guests_can_be_run_here() {
    if !is_offered() {
        eprintln!("SKIPPED: there is no usable /dev/kvm here, so that no guest was run");
        return;
    }
    assert_eq!(probe(), Ok(()));
}
