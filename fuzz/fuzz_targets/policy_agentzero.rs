//! An agentzero-style file: TOML keys under a YAML name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use regent_policy::{CallSketch, Layer, Source, load};

fuzz_target!(|text: &str| {
    let Ok(policy) = load(text, &Source::new(".agentzero/policy.yml", Layer::Project)) else { return };
    if let Ok(call) = CallSketch::parse("{ tool: shell.exec, argv: [sh, -c, ls] }") {
        call.with_facts(|facts| policy.decide(facts));
    }
});
