//! Properties of all policies and calls.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::source;
use crate::condition::secrets;
use crate::policy::{Hits, Mode};
use crate::rule::Effect;
use crate::{
    CallSketch, DEFAULT_POLICY, Facts, Layer, Limits, Policy, RateCounts, Rates, Source, Tier, Verdict, load,
    run_cases,
};

/// Use counts by the parity of rule ids, for the rates that the policy names.
fn counted(policy: &Policy, facts: &Facts<'_>, used: u32) -> RateCounts {
    let mut counts = RateCounts::default();
    policy.rates(facts, &mut |charge| {
        counts.insert(&charge, if charge.rule.0.is_multiple_of(2) { used } else { 0 });
    });
    counts
}

fn pick(words: &'static [&'static str]) -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => prop::sample::select(words).prop_map(|word| json!(word)),
        1 => prop::collection::vec(prop::sample::select(words), 1..4).prop_map(|words| json!(words)),
    ]
}

/// One condition, from a vocabulary small enough for rules and calls to match.
fn condition() -> BoxedStrategy<(&'static str, Value)> {
    let args = prop::sample::select(vec![
        json!({"/n": 1}),
        json!({"/n": {"lt": 2}}),
        json!({"/n": {"in": [1, 2.0, "x"]}}),
        json!({"/s": {"eq": "x"}}),
        json!({"/s": {"ne": "x"}}),
        json!({"/s": {"exists": false}}),
        json!({"/s": {"matches": "^[x-z]$"}}),
        json!({"/s": {"matches": "x", "ne": "xx"}}),
        json!({"/n": {"matches": "1"}}),
        json!({"$.l[*]": {"gt": 1}}),
        json!({"$..k": {"starts_with": "a"}}),
    ]);
    let labels = prop::sample::select(vec![
        json!({"*": {"less_trusted_than": "user"}}),
        json!({"/s": {"min_confidentiality": "secret"}}),
        json!({"*": {"max_confidentiality": "internal"}}),
    ]);
    prop_oneof![
        pick(&["tool.run", "vfs.*", "vfs.read", "*"]).prop_map(|value| ("op", value)),
        pick(&["fs.read", "fs.*", "fs.{read,write}", "http.fetch", "*", "f*"])
            .prop_map(|value| ("tool", value)),
        pick(&["ada", "bob", "a*", "team-x.*", "team-*"]).prop_map(|value| ("agent", value)),
        pick(&["dev", "ops", "*"]).prop_map(|value| ("role", value)),
        pick(&["file.*", "file.read", "network.request"]).prop_map(|value| ("capability", value)),
        pick(&[
            "src/**",
            "**",
            "src/*.rs",
            "**/*.pem",
            "**/.env",
            "src/a/b",
            "/etc/**",
            "/**",
            "vfs:/agent/${agent}/**",
            "{src,docs}/**",
            "*/a"
        ])
        .prop_map(|value| ("path", value)),
        pick(&["read", "write"]).prop_map(|value| ("access", value)),
        pick(&["example.com", "*.example.com", "*", "a.example.com"]).prop_map(|value| ("host", value)),
        pick(&["GET", "POST"]).prop_map(|value| ("method", value)),
        pick(&["aws", "github/*", "*", "github/token"]).prop_map(|value| ("secret", value)),
        pick(&["git", "/usr/bin/git", "g*", "{ls,git}"]).prop_map(|value| ("program", value)),
        prop::sample::select(vec![
            json!(["git", "..."]),
            json!(["git", "status"]),
            json!([["ls"], ["git", "*"]])
        ])
        .prop_map(|value| ("argv", value)),
        args.prop_map(|value| ("args", value)),
        labels.prop_map(|value| ("labels", value)),
        pick(&["host", "process"]).prop_map(|value| ("tier", value)),
        (0_u16..1000).prop_map(|min| ("trust", json!({"min": min}))),
    ]
    .boxed()
}

fn conditions() -> BoxedStrategy<Value> {
    let flat = prop::collection::vec(condition(), 1..4).prop_map(|entries| {
        Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    });
    let branched = (flat.clone(), prop::collection::vec(flat.clone(), 1..3), any::<bool>()).prop_map(
        |(mut outer, inner, any)| {
            outer[if any { "any" } else { "all" }] = json!(inner);
            outer
        },
    );
    prop_oneof![4 => flat, 1 => branched].boxed()
}

fn rule() -> impl Strategy<Value = Value> {
    let effect =
        prop::sample::select(&["allow", "allow", "allow", "deny", "ask", "transform", "raise-tier"][..]);
    (effect, prop::option::weighted(0.9, conditions()), prop::option::weighted(0.2, conditions()), 0_u8..6)
        .prop_map(|(effect, when, unless, extra)| {
            let mut rule = json!({"effect": effect});
            if let Some(when) = when {
                rule["match"] = when;
            }
            if let Some(unless) = unless {
                rule["unless"] = unless;
            }
            match effect {
                "transform" => rule["set"] = json!({"/n": {"value": extra}}),
                "raise-tier" => {
                    rule["tier"] = json!(if extra.is_multiple_of(2) { "process" } else { "wasm" })
                }
                _ if extra == 0 => rule["rate"] = json!("3/min"),
                "allow" | "ask" if extra == 1 => rule["limits"] = json!({"wall": "1s"}),
                "allow" | "ask" if extra == 2 => rule["limits"] = json!({"pids": 7}),
                _ => {}
            }
            rule
        })
}

fn policy_text(modes: &'static [&'static str], rules_max: usize) -> impl Strategy<Value = String> {
    (prop::sample::select(modes), prop::collection::vec(rule(), 0..rules_max)).prop_map(
        |(mode, mut rules)| {
            for (number, rule) in rules.iter_mut().enumerate() {
                rule["id"] = json!(format!("r{number}"));
            }
            json!({"version": 1, "mode": mode, "rules": rules}).to_string()
        },
    )
}

const ALL_MODES: &[&str] = &["strict", "strict", "permissive", "audit"];

fn path() -> impl Strategy<Value = &'static str> {
    const PATHS: &[&str] = &include!("../../tests/difference/paths.in");
    prop::sample::select(PATHS)
}

fn call() -> impl Strategy<Value = Value> {
    let what = prop_oneof![
        4 => prop::sample::select(&["fs.read", "fs.write", "http.fetch", "x"][..]).prop_map(|tool| json!({"tool": tool})),
        1 => prop::sample::select(&["vfs.read", "agent.exit"][..]).prop_map(|op| json!({"op": op})),
    ];
    let touched = (
        prop::collection::vec(path(), 0..3),
        prop::option::of(prop::sample::select(
            &["https://example.com/", "https://a.example.com/v1", "http://x.test/"][..],
        )),
        prop::option::of(prop::sample::select(vec![
            json!(["git", "status"]),
            json!(["/usr/bin/git", "x"]),
            json!(["./git"]),
            json!(["ls"]),
        ])),
        prop::sample::select(&["read", "write", "list"][..]),
        prop::sample::select(&["GET", "POST"][..]),
    );
    let who = (
        prop::sample::select(&["ada", "bob", "team-x.1", "al"][..]),
        prop::collection::vec(prop::sample::select(&["dev", "ops"][..]), 0..2),
        0_u16..=1000,
        prop::collection::vec(prop::sample::select(&["file.read", "network.request"][..]), 0..3),
    );
    let args = prop::sample::select(vec![
        json!({}),
        json!({"n": 1, "s": "x"}),
        json!({"n": 2.0, "l": [1, 2]}),
        json!({"n": "1", "m": {"k": "ab"}}),
        json!({"s": "y", "l": []}),
        json!({"s": "Bearer secret://github/token"}),
        json!({"l": ["secret://aws", {"k": "secret://github/x secret://aws"}]}),
    ]);
    let label = prop::sample::select(vec![
        json!({}),
        json!({"/s": {"confidentiality": "secret"}}),
        json!({"*": {"integrity": "web"}}),
    ]);
    (what, touched, who, args, label).prop_map(|(mut call, touched, who, args, labels)| {
        let (paths, url, argv, access, method) = touched;
        if !paths.is_empty() {
            call["path"] = json!(paths);
            call["access"] = json!(access);
        }
        if let Some(url) = url {
            call["url"] = json!(url);
            call["method"] = json!(method);
        }
        if let Some(argv) = argv {
            call["argv"] = argv;
        }
        let (agent, roles, trust, capabilities) = who;
        call["agent"] = json!(agent);
        call["trust"] = json!(trust);
        if !roles.is_empty() {
            call["roles"] = json!(roles);
        }
        if !capabilities.is_empty() {
            call["capabilities"] = json!(capabilities);
        }
        call["args"] = args;
        call["labels"] = labels;
        call
    })
}

/// Removes every `secret:` from a condition, and branches that become empty.
fn strip_secrets(condition: &mut Value) {
    let Some(fields) = condition.as_object_mut() else { return };
    fields.remove("secret");
    for key in ["any", "all"] {
        if let Some(branches) = fields.get_mut(key).and_then(Value::as_array_mut) {
            branches.iter_mut().for_each(strip_secrets);
            branches.retain(|branch| branch.as_object().is_some_and(|branch| !branch.is_empty()));
            if branches.is_empty() {
                fields.remove(key);
            }
        }
    }
}

fn parsed(call: &Value) -> CallSketch {
    CallSketch::parse(&call.to_string()).unwrap_or_else(|error| panic!("{error}\n{call}"))
}

fn loaded(text: &str, layer: Layer) -> Policy {
    load(text, &Source::new("p", layer)).unwrap_or_else(|error| panic!("{:#?}\n{text}", error.findings))
}

fn decided(policy: &Policy, call: &Value, used: u32) -> Verdict {
    parsed(call).with_facts(|facts| {
        let counts = counted(policy, facts, used);
        policy.decide(&Facts { rates: Rates::Counted(&counts), ..*facts })
    })
}

/// The same policy with only those changes that a project may make.
fn narrowing(text: &str) -> String {
    let mut file: Value = serde_json::from_str(text).unwrap();
    for rule in file["rules"].as_array_mut().unwrap() {
        if rule["set"].is_object() {
            rule["set"] = json!({"/timeout_ms": {"clamp": {"max": 9}}, "/inspect": {"value": true}});
        }
    }
    file.to_string()
}

fn strictness(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Allow(_) => 0,
        Verdict::Ask(_) => 1,
        Verdict::Deny(_) => 2,
    }
}

/// The grant of an allow, or after an approval.
fn grant(verdict: &Verdict) -> Option<&crate::Grant> {
    match verdict {
        Verdict::Allow(grant) => Some(grant),
        Verdict::Ask(question) => Some(&question.grant),
        Verdict::Deny(_) => None,
    }
}

/// The reference evaluator: evaluates all rules of a one-file policy and combines them as the manual says.
fn plainly(policy: &Policy, facts: &Facts<'_>) -> (u8, Option<String>, Limits, Tier) {
    let set = &policy.sets()[0];
    let matching: Vec<_> = set.rules.iter().filter(|rule| rule.matches(facts)).collect();
    let first = |effect: Effect| {
        matching
            .iter()
            .find(|rule| rule.effect == effect && (effect != Effect::Deny || rule.rate.is_none()))
            .map(|rule| rule.at.id.to_string())
    };
    let used_up = matching.iter().find(|rule| rule.is_used_up(facts)).map(|rule| rule.at.id.to_string());
    let limits = matching.iter().filter_map(|rule| rule.limits).fold(set.limits, Limits::meet);
    let tier = matching.iter().filter_map(|rule| rule.tier).fold(facts.tier, Tier::max);
    let answer = match (first(Effect::Deny).or(used_up), first(Effect::Ask), first(Effect::Allow)) {
        (Some(deny), _, _) => (2, Some(deny)),
        (None, Some(ask), _) => (1, Some(ask)),
        (None, None, Some(allow)) => (0, Some(allow)),
        (None, None, None) => {
            (if set.mode == Mode::Permissive && secrets(facts).next().is_none() { 0 } else { 2 }, None)
        }
    };
    match set.mode {
        Mode::Strict | Mode::Permissive => (answer.0, answer.1, limits, tier),
        Mode::Audit => (0, answer.1.filter(|_| answer.0 == 0), limits, tier),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_index_never_changes_the_outcome(text in policy_text(ALL_MODES, 40), calls in prop::collection::vec(call(), 1..8), used in 0_u32..5) {
        let policy = loaded(&text, Layer::User);
        for call in &calls {
            parsed(call).with_facts(|facts| {
                let counts = counted(&policy, facts, used);
                let facts = Facts { rates: Rates::Counted(&counts), ..*facts };
                let set = &policy.sets()[0];
                let mut walked = Hits::default();
                for (at, rule) in set.rules.iter().enumerate() {
                    if rule.matches(&facts) {
                        walked.add(u32::try_from(at).unwrap(), rule, &facts);
                    }
                }
                assert_eq!(set.hits(&facts), walked, "{call}");
            });
        }
    }

    #[test]
    fn decide_equals_the_reference_evaluator(text in policy_text(ALL_MODES, 12), call in call(), used in 0_u32..5) {
        let policy = loaded(&text, Layer::User);
        parsed(&call).with_facts(|facts| {
            let counts = counted(&policy, facts, used);
            let facts = Facts { rates: Rates::Counted(&counts), ..*facts };
            let (answer, rule, limits, tier) = plainly(&policy, &facts);
            let verdict = policy.decide(&facts);
            assert_eq!(strictness(&verdict), answer, "{verdict:?}");
            assert_eq!(verdict.rule().map(|rule| rule.id.to_string()), rule);
            if let Some(grant) = grant(&verdict) {
                assert_eq!((grant.limits, grant.tier), (limits, tier));
            }
            // The same question gets the same answer, and so does `explain`.
            assert_eq!(policy.decide(&facts), verdict);
            assert_eq!(policy.explain(&facts).verdict, verdict);
        });
    }

    #[test]
    fn a_project_never_grants_what_the_user_does_not(user in policy_text(ALL_MODES, 8), project in policy_text(ALL_MODES, 8), call in call(), used in 0_u32..5) {
        let (user, project) = (loaded(&user, Layer::User), loaded(&narrowing(&project), Layer::Project));
        let alone = decided(&user, &call, used);
        let both = decided(&Policy::layered(user, Some(project.clone())), &call, used);
        prop_assert!(strictness(&both) >= strictness(&alone), "{both:?} is looser than {alone:?}");
        prop_assert!(strictness(&both) >= strictness(&decided(&project, &call, used)));
        if let (Some(both), Some(alone)) = (grant(&both), grant(&alone)) {
            prop_assert_eq!(both.limits, both.limits.meet(alone.limits));
            prop_assert!(both.tier >= alone.tier);
            prop_assert!(alone.transforms.iter().all(|change| both.transforms.contains(change)));
            prop_assert!(alone.charges.iter().all(|charge| both.charges.contains(charge)));
        }
    }

    #[test]
    fn an_added_deny_always_wins(text in policy_text(&["strict", "permissive"], 10), call in call(), place in any::<prop::sample::Index>()) {
        let mut file: Value = serde_json::from_str(&text).unwrap();
        let rules = file["rules"].as_array_mut().unwrap();
        rules.insert(place.index(rules.len() + 1), json!({"id": "no", "effect": "deny"}));
        prop_assert_eq!(strictness(&decided(&loaded(&file.to_string(), Layer::User), &call, 0)), 2);
    }

    #[test]
    fn the_order_of_the_rules_does_not_matter(text in policy_text(ALL_MODES, 10), call in call()) {
        let mut file: Value = serde_json::from_str(&text).unwrap();
        let one = decided(&loaded(&text, Layer::User), &call, 4);
        file["rules"].as_array_mut().unwrap().reverse();
        let other = decided(&loaded(&file.to_string(), Layer::User), &call, 4);
        prop_assert_eq!(strictness(&one), strictness(&other));
        let given = |verdict: &Verdict| grant(verdict).map(|grant| (grant.limits, grant.tier, grant.charges.len()));
        prop_assert_eq!(given(&one), given(&other));
    }

    #[test]
    fn touching_more_never_makes_a_call_acceptable(text in policy_text(&["strict"], 10), mut call in call(), first in path(), second in path()) {
        let policy = loaded(&text, Layer::User);
        call["path"] = json!([first]);
        let before = decided(&policy, &call, 0);
        call["path"] = json!([first, second]);
        let after = decided(&policy, &call, 0);
        // If an ask matches the new part, the reviewer decides about the entire call.
        prop_assert!(strictness(&before) == 0 || strictness(&after) > 0, "{before:?} became {after:?}");
    }

    #[test]
    fn only_a_rule_that_names_a_secret_grants_it(text in policy_text(&["strict", "permissive"], 10), mut call in call(), name in prop::sample::select(&["aws", "github/token", "other"][..])) {
        // Rules without `secret:` can't allow a call with a secret.
        let mut file: Value = serde_json::from_str(&text).unwrap();
        for rule in file["rules"].as_array_mut().unwrap() {
            for side in ["match", "unless"] {
                strip_secrets(&mut rule[side]);
                if rule[side].as_object().is_none_or(serde_json::Map::is_empty) {
                    rule.as_object_mut().unwrap().remove(side);
                }
            }
        }
        call["secret"] = json!(name);
        call["tool"] = json!("fs.read");
        if let Some(fields) = call.as_object_mut() {
            fields.remove("op");
        }
        let verdict = decided(&loaded(&file.to_string(), Layer::User), &call, 0);
        prop_assert!(strictness(&verdict) > 0, "{verdict:?}");
        // Adding a secret never makes a call more acceptable.
        let policy = loaded(&text, Layer::User);
        let with = strictness(&decided(&policy, &call, 0));
        if with == 0 {
            let named = policy.sets()[0].rules.iter().any(|rule| rule.when.iter().any(|clause| clause.text.contains("secret") || clause.text.contains("any") || clause.text.contains("all")));
            prop_assert!(named);
        }
    }

    #[test]
    fn loaders_never_panic(text in "(?s).{0,200}", yaml in "[-a-z0-9:{}\\[\\]\"'&*!|> \n.,#?/$]{0,200}", toml in "([a-z_]{1,12} = [\"a-z0-9{}\\[\\].,=-]{0,20}\n){1,5}") {
        for text in [&text, &yaml, &toml] {
            for name in ["policy.yml", "security.md"] {
                drop(load(text, &source(name)));
            }
            drop(CallSketch::parse(text));
            drop(run_cases(&Policy::deny_all(), text));
        }
    }

    #[test]
    fn a_damaged_policy_never_panics(at in any::<prop::sample::Index>(), length in 0_usize..40, with in ".{0,8}") {
        let boundary = |at: usize| (at..=DEFAULT_POLICY.len()).find(|at| DEFAULT_POLICY.is_char_boundary(*at)).unwrap();
        let start = boundary(at.index(DEFAULT_POLICY.len()));
        let end = boundary((start + length).min(DEFAULT_POLICY.len()));
        let damaged = format!("{}{with}{}", &DEFAULT_POLICY[..start], &DEFAULT_POLICY[end..]);
        if let Err(error) = load(&damaged, &source("policy.yml")) {
            prop_assert!(!error.findings.is_empty());
            prop_assert!(error.findings.iter().all(|finding| finding.line >= 1 && finding.column >= 1));
        }
    }
}
