//! Compares both evaluators.

use regent_policy::{CallSketch, Facts, Layer, Policy, Rates, Source, Tier, Verdict, codes, load};
use serde_json::Value;

use crate::generate::{self, Dice};
use crate::reference::{self, Given, ReferenceVerdict};

/// Default number of pairs.
const PAIRS_DEFAULT: usize = 20_000;
const CALLS: usize = 2_000;
const PAIRS_PER_POLICY: usize = 100;

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[test]
fn the_index_never_differs_from_the_reference_evaluator() {
    let pairs = number("REGENT_DIFFERENCE_PAIRS", PAIRS_DEFAULT);
    let mut dice = Dice::new(number("REGENT_DIFFERENCE_SEED", 7) as u64);
    let calls: Vec<(Value, CallSketch)> = (0..CALLS)
        .map(|_| {
            let call = generate::call(&mut dice);
            let parsed =
                CallSketch::parse(&call.to_string()).unwrap_or_else(|error| panic!("{error}\n{call}"));
            (call, parsed)
        })
        .collect();
    let mut seen = [0_usize; 3];
    for _ in 0..pairs.div_ceil(PAIRS_PER_POLICY) {
        let files: Vec<Value> =
            (0..if dice.below(4) == 0 { 2 } else { 1 }).map(|_| generate::policy(&mut dice)).collect();
        let policy = loaded(&files);
        for _ in 0..PAIRS_PER_POLICY {
            let (call, parsed) = &calls[dice.below(CALLS)];
            let used = u32::try_from(dice.below(5)).unwrap();
            let verdict =
                parsed.with_facts(|facts| policy.decide(&Facts { rates: Rates::All(used), ..*facts }));
            let plain = reference::decide(&files.iter().collect::<Vec<_>>(), call, used.into());
            let ours = answer(&verdict);
            assert_eq!(ours, plain, "\ncall {call}\nused {used}\npolicies {files:#?}\nverdict {verdict:#?}");
            seen[["allow", "ask", "deny"].iter().position(|word| *word == plain.verdict).unwrap()] += 1;
        }
    }
    // A comparison without any allow would prove nothing.
    assert!(seen.iter().all(|count| count * 50 > pairs), "{seen:?} of {pairs}");
    println!("{pairs} pairs, no difference: {} allowed, {} asked, {} denied", seen[0], seen[1], seen[2]);
}

fn loaded(files: &[Value]) -> Policy {
    let mut layers = files.iter().zip([Layer::User, Layer::Project]).map(|(file, layer)| {
        let text = file.to_string();
        load(&text, &Source::new("p", layer)).unwrap_or_else(|error| panic!("{:#?}\n{text}", error.findings))
    });
    let user = layers.next().unwrap();
    Policy::layered(user, layers.next())
}

/// The verdict in the reference evaluator's terms.
fn answer(verdict: &Verdict) -> ReferenceVerdict {
    let (grant, approvers) = match verdict {
        Verdict::Allow(grant) => (Some(grant), 0),
        Verdict::Ask(question) => (Some(&question.grant), u64::from(question.approvers)),
        Verdict::Deny(_) => (None, 0),
    };
    let grant = grant.map(|grant| Given {
        wall_ms_max: grant.limits.wall_ms_max,
        pids_max: grant.limits.pids_max,
        tier: [Tier::Instruction, Tier::Host, Tier::Process, Tier::Wasm, Tier::Microvm]
            .iter()
            .position(|tier| *tier == grant.tier)
            .unwrap(),
        transforms: grant.transforms.len(),
        charges: grant.charges.len(),
        warned: grant.warnings.iter().filter(|warning| warning.code == codes::WARNED).count(),
        approvers,
    });
    ReferenceVerdict { verdict: verdict.word(), rule: verdict.rule().map(|rule| rule.id.to_string()), grant }
}
