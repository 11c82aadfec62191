//! The default policy of `regent init` matches the manual.

use super::policy;
use crate::{DEFAULT_POLICY, run_cases};

#[test]
fn the_default_policy_matches_the_manual() {
    let report = run_cases(&policy(DEFAULT_POLICY), include_str!("default_policy_cases.yml")).unwrap();
    assert!(report.is_ok(), "{:#?}", report.failed);
    assert!(report.passed >= 60, "only {} cases", report.passed);
}

#[test]
fn its_examples_were_checked() {
    let outline = policy(DEFAULT_POLICY).outline();
    assert_eq!(outline.len(), 1);
    assert!(outline[0].examples >= 50, "{outline:?}");
}

#[test]
fn a_failed_case_is_reported_with_its_reason() {
    let cases =
        "cases:\n  - { name: n, call: { tool: fs.read, path: /x }, expect: allow, rule: read-workspace }";
    let report = run_cases(&policy(DEFAULT_POLICY), cases).unwrap();
    assert_eq!(report.passed, 0);
    assert_eq!(report.failed[0].line, 2);
    assert_eq!(report.failed[0].expected, "allow by rule `read-workspace`");
    assert!(
        report.failed[0].got.starts_with("asked by rule `outside-workspace`"),
        "{}",
        report.failed[0].got
    );
}

#[test]
fn rejects_a_file_of_cases_with_mistakes() {
    for text in [
        "",
        "cases: {}",
        "cases: [{ call: { tool: x } }]",
        "cases: [{ call: {}, expect: allow }]",
        "case: []",
    ] {
        assert!(run_cases(&policy(DEFAULT_POLICY), text).is_err(), "{text}");
    }
}
