//! A file of cases, and one call described in YAML.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use regent_policy::{CallSketch, Layer, Policy, Source, load, run_cases};

static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let text = "version: 1\nrules:\n  - { id: reads, effect: allow, match: { tool: fs.read, path: \"src/**\" } }\n";
    load(text, &Source::new("policy.yml", Layer::User)).expect("a policy")
});

fuzz_target!(|text: &str| {
    drop(run_cases(&POLICY, text));
    if let Ok(call) = CallSketch::parse(text) {
        call.with_facts(|facts| POLICY.decide(facts));
    }
});
