//! Reports tests that can't run on this machine.
//!
//! Test crates include this file by path, so that crates below the kernel can use it without depending on the testkit.

/// Reports that a test is skipped. Where `REGENT_MAY_SKIP` is set, as in CI, it lists the excused reasons; any other one fails the test.
pub(crate) fn skipped(reason: &str, why: &str) {
    if let Ok(excused) = std::env::var("REGENT_MAY_SKIP")
        && !excused.split(',').any(|one| one.trim() == reason)
    {
        panic!("skipped for `{reason}`, which REGENT_MAY_SKIP doesn't excuse: {why}");
    }
    eprintln!("SKIPPED ({reason}): {why}");
}
