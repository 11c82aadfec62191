//! A `.agents/security.md`: YAML inside Markdown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use regent_policy::{CallSketch, Layer, Source, load};

fuzz_target!(|text: &str| {
    let Ok(policy) = load(text, &Source::new(".agents/security.md", Layer::Project)) else { return };
    if let Ok(call) = CallSketch::parse("{ tool: fs.write, path: src/main.rs }") {
        call.with_facts(|facts| policy.decide(facts));
    }
});
