//! From text to a compiled policy. All findings are reported at once, each at its line and column.

mod native;
mod reader;
mod sketch;
mod units;
mod values;
mod when;

use crate::finding::{Findings, LoadError, Source};
use crate::governance::Governance;
use crate::index::Index;
use crate::policy::{Mode, Policy, RuleSet};
use crate::rule::Rule;
use crate::tree::parse_yaml;
use crate::verdict::Limits;

pub(crate) use reader::Reader;
pub use sketch::CallSketch;
pub(crate) use sketch::sketch;

/// What a loader got out of a file.
#[derive(Debug)]
struct Loaded {
    mode: Mode,
    limits: Limits,
    governance: Governance,
    rules: Vec<Rule>,
    /// Examples with the place of their rule in `rules`.
    examples: Vec<(usize, native::Example)>,
}

/// Compiles the text of a policy file.
pub fn load(text: &str, source: &Source) -> Result<Policy, LoadError> {
    let mut reader = Reader::new(text, source.layer);
    let loaded = parse_yaml(text, &mut reader.findings).map(|root| native::read(&mut reader, &root));
    let mut findings = reader.findings;
    match loaded {
        Some(loaded) if findings.is_empty() => {
            check_examples(&loaded, &mut findings);
            if findings.is_empty() {
                Ok(compiled(loaded, text, source))
            } else {
                Err(findings.into_error(&source.name))
            }
        }
        Some(_) | None => Err(findings.into_error(&source.name)),
    }
}

/// A rule that doesn't do what its author wrote beside it is not loaded.
fn check_examples(loaded: &Loaded, findings: &mut Findings) {
    for (rule, example) in &loaded.examples {
        let Some(rule) = loaded.rules.get(*rule) else { continue };
        let matches = example.call.with_facts(|facts| rule.matches(facts));
        if matches == example.is_match {
            continue;
        }
        let (does, should) = if matches { ("matches", "should not") } else { ("doesn't match", "should") };
        let help = example.call.with_facts(|facts| crate::explain::first_failure(rule, facts));
        let message = format!("rule `{}` {does} this example, and it {should}", rule.at.id);
        match help {
            Some(help) => findings.error_with_help(example.at, message, help),
            None => findings.error(example.at, message),
        }
    }
}

fn compiled(loaded: Loaded, text: &str, source: &Source) -> Policy {
    let rules: Box<[Rule]> = loaded.rules.into();
    let set = RuleSet {
        name: source.name.as_str().into(),
        layer: source.layer,
        mode: loaded.mode,
        limits: loaded.limits,
        governance: loaded.governance,
        index: Index::new(&rules),
        rules,
        examples: loaded.examples.len(),
        is_loaded: true,
    };
    Policy::of(set, text)
}
