//! Choices, as data.

use regent_kernel::Integrity;

use super::*;

fn label(confidentiality: Confidentiality) -> Label {
    Label { integrity: Integrity::User, confidentiality }
}

fn candidate(model: &str, is_remote: bool, cost: Option<u64>) -> Candidate {
    Candidate { model: model.to_owned(), is_remote, is_up: true, refuses: None, money_microusd_max: cost }
}

fn all() -> Vec<Candidate> {
    vec![
        candidate("dear/big", true, Some(9_000)),
        candidate("cheap/small", true, Some(100)),
        candidate("here/tiny", false, Some(0)),
        candidate("odd/one", true, None),
    ]
}

fn first(
    rules: &RouterSettings,
    class: &str,
    confidentiality: Confidentiality,
    seen: &ModelStats,
) -> Option<String> {
    choose(rules, class, label(confidentiality), &all(), seen).fitting().next().map(str::to_owned)
}

#[test]
fn local_first_then_cheap() {
    let choice = choose(
        &RouterSettings::default(),
        ANY,
        label(Confidentiality::Public),
        &all(),
        &ModelStats::default(),
    );
    assert_eq!(choice.fitting().collect::<Vec<_>>(), ["here/tiny", "cheap/small", "dear/big", "odd/one"]);
    assert!(choice.considered[0].why.starts_with("on this machine"), "{:?}", choice.considered[0]);
}

#[test]
fn what_is_secret_or_unknown_never_leaves() {
    use Confidentiality::{Credential, Internal, Pii, Private, Public, Regulated, Secret, Unknown};
    for (level, leaves) in [
        (Public, true),
        (Internal, true),
        (Private, true),
        (Pii, true),
        (Unknown, false),
        (Regulated, false),
        (Secret, false),
        (Credential, false),
    ] {
        let choice = choose(&RouterSettings::default(), ANY, label(level), &all(), &ModelStats::default());
        assert_eq!(choice.fitting().count(), if leaves { 4 } else { 1 }, "{level:?}");
        // Not even where it is preferred.
        let rules: RouterSettings = toml::from_str("[classes.code]\nprefer = ['dear/big']").unwrap();
        let expected = if leaves { "dear/big" } else { "here/tiny" };
        assert_eq!(
            first(&rules, "code", level, &ModelStats::default()).as_deref(),
            Some(expected),
            "{level:?}"
        );
    }
}

#[test]
fn a_ceiling_is_hard_and_the_unpriced_are_over_it() {
    let rules: RouterSettings = toml::from_str("cost_microusd_max = 500").unwrap();
    let choice = choose(&rules, ANY, label(Confidentiality::Public), &all(), &ModelStats::default());
    assert_eq!(choice.fitting().collect::<Vec<_>>(), ["here/tiny", "cheap/small"]);
    let why: Vec<&str> = choice.considered[2..].iter().map(|one| one.why.as_str()).collect();
    assert_eq!(
        why,
        ["it may cost 0.009 USD; the limit is 0.0005 USD", "its price is unknown, and there is a cost limit"]
    );
}

#[test]
fn a_model_that_fails_at_a_class_is_left_for_that_class_alone_and_comes_back_when_it_is_better() {
    let rules: RouterSettings = toml::from_str("good_percent_min = 60").unwrap();
    let mut seen = ModelStats::default();
    for _ in 0..4 {
        seen.learn("code", "here/tiny", false);
    }
    assert_eq!(
        first(&rules, "code", Confidentiality::Public, &seen).as_deref(),
        Some("here/tiny"),
        "too few to say"
    );
    seen.learn("code", "here/tiny", false);
    assert_eq!(first(&rules, "code", Confidentiality::Public, &seen).as_deref(), Some("cheap/small"));
    assert_eq!(first(&rules, "chat", Confidentiality::Public, &seen).as_deref(), Some("here/tiny"));
    // What can't leave still goes to the only one that there is.
    assert_eq!(first(&rules, "code", Confidentiality::Secret, &seen).as_deref(), Some("here/tiny"));
    for _ in 0..300 {
        seen.learn("code", "here/tiny", true);
    }
    assert_eq!(first(&rules, "code", Confidentiality::Public, &seen).as_deref(), Some("here/tiny"));
}

#[test]
fn a_slow_model_stands_behind_and_one_that_is_down_is_out() {
    let rules: RouterSettings = toml::from_str("latency_ms_max = 1000").unwrap();
    let mut seen = ModelStats::default();
    seen.took(ANY, "here/tiny", 20_000);
    assert_eq!(first(&rules, ANY, Confidentiality::Public, &seen).as_deref(), Some("cheap/small"));
    let mut candidates = all();
    candidates[1].is_up = false;
    let choice = choose(&rules, ANY, label(Confidentiality::Public), &candidates, &seen);
    assert_eq!(choice.fitting().next(), Some("dear/big"));
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut seen = ModelStats::default();
    for number in 0..5_000 {
        seen.learn(&format!("class {number}"), "m", true);
        seen.learn("known", "m", true);
    }
    assert_eq!(seen.tally("class 4999", "m"), Tally::default());
    assert!((100..=200).contains(&seen.tally("known", "m").good), "{:?}", seen.tally("known", "m"));
}
