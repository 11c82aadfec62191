//! A policy file in our own format: whatever loads also decides, explains and lints.
#![no_main]

use libfuzzer_sys::fuzz_target;
use regent_policy::{CallSketch, Layer, Source, load};

fuzz_target!(|text: &str| {
    let Ok(policy) = load(text, &Source::new("policy.yml", Layer::Project)) else { return };
    for call in ["{ tool: fs.read, path: src/main.rs }", "{ tool: http.fetch, url: \"https://example.com/a?b\" }", "{ op: agent.list }"] {
        let Ok(call) = CallSketch::parse(call) else { continue };
        call.with_facts(|facts| {
            let verdict = policy.decide(facts);
            assert_eq!(verdict, policy.decide(facts), "same facts, same verdict");
            assert_eq!(policy.explain(facts).verdict.word(), verdict.word(), "an explanation explains the verdict");
        });
    }
    drop(regent_policy::lint(&policy, &["fs.read"]));
});
