//! Policies as text, calls as text, verdicts as words. All tests go through `policy` and `verdict`.

mod adversarial;
mod conditions;
mod decide;
mod declassify;
mod default_policy;
mod evidence;
mod formats;
mod graph;
mod languages;
mod load;
#[cfg(feature = "rego")]
mod manifests;
mod properties;
mod sequences;
mod toolkit;

use crate::{CallSketch, Facts, Layer, Policy, Source, Verdict};

fn source(name: &str) -> Source {
    Source::new(name, Layer::User)
}

/// Loads a valid policy.
fn policy(text: &str) -> Policy {
    crate::load(text, &source("policy.yml"))
        .unwrap_or_else(|error| panic!("{error}\n{:#?}\n{text}", error.findings))
}

/// A strict policy with these rules.
fn rules(rules: &str) -> Policy {
    policy(&format!("version: 1\nrules:\n{rules}"))
}

fn call(text: &str) -> CallSketch {
    CallSketch::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn decide(policy: &Policy, text: &str) -> Verdict {
    call(text).with_facts(|facts: &Facts<'_>| policy.decide(facts))
}

/// `allow`, `ask`, or `deny` with the code of its reason.
fn verdict(policy: &Policy, text: &str) -> String {
    match decide(policy, text) {
        Verdict::Deny(reason) => format!("deny {}", reason.code),
        other @ (Verdict::Allow(_) | Verdict::Ask(_)) => other.word().to_owned(),
    }
}
