//! The policy that `regent init` writes says what the manual promises.

use regent_policy::{DEFAULT_POLICY, Layer, Policy, Source, load, run_cases};

fn policy() -> Policy {
    load(DEFAULT_POLICY, &Source::new("policy.yml", Layer::User))
        .unwrap_or_else(|error| panic!("{:#?}", error.findings))
}

#[test]
fn the_default_policy_does_what_the_manual_says() {
    let report = run_cases(&policy(), include_str!("default_policy_cases.yml"))
        .unwrap_or_else(|error| panic!("{error:#?}"));
    assert!(report.is_ok(), "{:#?}", report.failed);
    assert!(report.passed >= 50, "only {} cases", report.passed);
}

#[test]
fn its_examples_were_checked() {
    let outline = policy().outline();
    assert_eq!(outline.len(), 1);
    assert!(outline[0].examples >= 50, "{outline:?}");
}
