//! The effect of each kind of rule and condition.

use std::sync::Arc;

use super::{call, decide, policy, rules, verdict};
use crate::{Facts, Grant, Layer, Policy, RateCounts, Rates, Source, Tier, Transform, Verdict, codes, load};

fn granted(policy: &Policy, text: &str) -> Grant {
    match decide(policy, text) {
        Verdict::Allow(grant) => grant,
        other @ (Verdict::Ask(_) | Verdict::Deny(_)) => panic!("{text}: {other:?}"),
    }
}

#[test]
fn deny_wins_over_ask_and_ask_over_allow_in_any_order() {
    let allow = "{ id: a, effect: allow, match: { tool: t } }";
    let ask = "{ id: b, effect: ask, match: { tool: t } }";
    let deny = "{ id: c, effect: deny, match: { tool: t } }";
    let cases = [
        (vec![allow], "allow"),
        (vec![allow, ask], "ask"),
        (vec![ask, allow], "ask"),
        (vec![deny, ask, allow], "deny policy.denied"),
        (vec![allow, ask, deny], "deny policy.denied"),
        (vec![], "deny policy.no_rule"),
    ];
    for (lines, expected) in cases {
        let policy = policy(&format!(
            "version: 1
rules: [{}]",
            lines.join(", ")
        ));
        assert_eq!(verdict(&policy, "{ tool: t }"), expected, "{lines:?}");
    }
}

#[test]
fn modes() {
    let body = "rules:\n  - { id: d, effect: deny, match: { tool: d }, reason: r }\n  - { id: q, effect: ask, match: { tool: q } }\n  - { id: a, effect: allow, match: { tool: a } }";
    let cases = [
        ("strict", "a", "allow", None),
        ("strict", "d", "deny policy.denied", None),
        ("strict", "q", "ask", None),
        ("strict", "x", "deny policy.no_rule", None),
        ("permissive", "a", "allow", None),
        ("permissive", "d", "deny policy.denied", None),
        ("permissive", "q", "ask", None),
        ("permissive", "x", "allow", Some(codes::UNMATCHED)),
        ("audit", "a", "allow", None),
        ("audit", "d", "allow", Some(codes::WOULD_DENY)),
        ("audit", "q", "allow", Some(codes::WOULD_ASK)),
        ("audit", "x", "allow", Some(codes::WOULD_DENY)),
    ];
    for (mode, tool, expected, warning) in cases {
        let policy = policy(&format!("version: 1\nmode: {mode}\n{body}"));
        let text = format!("{{ tool: {tool} }}");
        assert_eq!(verdict(&policy, &text), expected, "{mode} {tool}");
        if let Some(code) = warning {
            assert_eq!(granted(&policy, &text).warnings[0].code, code, "{mode} {tool}");
        }
    }
}

#[test]
fn exceptions_use_the_reverse_quantifier() {
    let deny = rules(
        "  - { id: d, effect: deny, match: { path: 'secret/**' }, unless: { path: 'secret/public/**' } }\n  - { id: a, effect: allow, match: { path: '**' } }",
    );
    assert_eq!(verdict(&deny, "{ tool: t, path: secret/public/x }"), "allow");
    assert_eq!(verdict(&deny, "{ tool: t, path: secret/x }"), "deny policy.denied");
    // A harmless path beside a secret one doesn't lift the denial.
    assert_eq!(verdict(&deny, "{ tool: t, path: [secret/x, secret/public/x] }"), "deny policy.denied");
    let allow = rules("  - { id: a, effect: allow, match: { path: '**' }, unless: { path: '.git/**' } }");
    assert_eq!(verdict(&allow, "{ tool: t, path: src/x }"), "allow");
    assert_eq!(verdict(&allow, "{ tool: t, path: [src/x, .git/config] }"), "deny policy.no_rule");
}

#[test]
fn a_rate_denies_calls_beyond_its_limit() {
    let policy = rules(
        "  - { id: a, effect: allow, match: { tool: t }, rate: 5/min }\n  - { id: b, effect: allow, match: { tool: t } }\n  - { id: throttle, effect: deny, match: { tool: u }, rate: 2/hour }\n  - { id: c, effect: allow, match: { tool: u } }",
    );
    let ask = |tool: &str, used: u32| {
        call(&format!("{{ tool: {tool} }}"))
            .with_facts(|facts| policy.decide(&Facts { rates: Rates::All(used), ..*facts }))
    };
    let Verdict::Allow(grant) = ask("t", 4) else { panic!("the fifth call is allowed") };
    assert_eq!(grant.charges.len(), 1);
    assert_eq!((grant.charges[0].limit, grant.charges[0].window_ms), (5, 60_000));
    // Another allow doesn't lift a rate.
    let Verdict::Deny(reason) = ask("t", 5) else { panic!("the sixth call is denied") };
    assert_eq!(reason.code, codes::RATE);
    // A deny with a rate throttles: it counts, and denies only beyond the rate.
    let Verdict::Allow(grant) = ask("u", 1) else { panic!("below the rate") };
    assert_eq!(grant.charges.len(), 1);
    assert!(matches!(ask("u", 2), Verdict::Deny(reason) if reason.code == codes::RATE));
}

#[test]
fn policy_names_the_rates_that_a_call_needs_and_a_missing_count_denies() {
    let policy = rules(
        "  - { id: a, effect: allow, match: { tool: t }, rate: 5/min }\n  - { id: b, effect: allow, match: { tool: u } }\n  - { id: c, effect: deny, match: { tool: v }, rate: 2/hour }\n  - { id: d, effect: allow, match: { tool: v } }",
    );
    let candidate = rules("  - { id: a, effect: allow, match: { tool: t }, rate: 9/hour }");
    let digest = candidate.digest();
    let policy = policy.shadowed(candidate, digest);
    let cases: [(&str, &[(u32, u64)]); 3] =
        [("t", &[(5, 60_000), (9, 3_600_000)]), ("u", &[]), ("v", &[(2, 3_600_000)])];
    for (tool, expected) in cases {
        call(&format!("{{ tool: {tool} }}")).with_facts(|facts| {
            let mut needed = Vec::new();
            policy.rates(facts, &mut |charge| needed.push(charge));
            needed.sort_by_key(|charge| charge.window_ms);
            needed.dedup();
            let found: Vec<(u32, u64)> = needed.iter().map(|one| (one.limit, one.window_ms)).collect();
            // The index may name more rates than match, and never fewer.
            assert!(expected.iter().all(|one| found.contains(one)), "{tool}: {found:?}");
            let mut counts = RateCounts::default();
            let none = policy.decide(&Facts { rates: Rates::Counted(&counts), ..*facts });
            assert_eq!(none.word(), if expected.is_empty() { "allow" } else { "deny" }, "{tool}");
            needed.iter().for_each(|charge| counts.insert(charge, 1));
            let facts = Facts { rates: Rates::Counted(&counts), ..*facts };
            assert_eq!(policy.decide(&facts).word(), "allow", "{tool}");
            assert_eq!(policy.decide(&facts), policy.decide(&facts));
            let mut full = RateCounts::default();
            needed.iter().for_each(|charge| full.insert(charge, charge.limit));
            let facts = Facts { rates: Rates::Counted(&full), ..facts };
            assert_eq!(policy.decide(&facts).word(), none.word(), "{tool}");
        });
    }
}

#[test]
fn rates_are_counted_by_layer_and_id() {
    let text = "version: 1\nrules:\n  - { id: a, effect: allow, rate: 5/min }";
    let charge = |text: &str, layer| {
        let policy = load(text, &Source::new("p", layer)).unwrap();
        granted(&policy, "{ tool: t }").charges[0].rule
    };
    let other_place = "version: 1\nrules:\n  - { id: z, effect: deny, match: { tool: z } }\n  - { id: a, effect: allow, rate: 9/min }";
    assert_eq!(charge(text, Layer::User), charge(other_place, Layer::User));
    assert_ne!(charge(text, Layer::User), charge(text, Layer::Project));
}

#[test]
fn matching_rules_combine_limits_tiers_and_changes() {
    let policy = policy(
        "version: 1\nlimits: { wall: 60s, output: 1MiB }\nrules:\n  - { id: a, effect: allow, match: { tool: t }, limits: { wall: 30s }, tier: process }\n  - { id: b, effect: raise-tier, match: { tool: t }, tier: wasm }\n  - { id: c, effect: transform, match: { tool: t }, set: { /n: { clamp: { max: 3 } } } }\n  - { id: d, effect: transform, match: { tool: t }, limits: { output: 5MiB, pids: 2 }, set: { /x: { value: 1 } } }",
    );
    let grant = granted(&policy, "{ tool: t }");
    assert_eq!(grant.limits.wall_ms_max, 30_000);
    assert_eq!(grant.limits.output_bytes_max, 1 << 20);
    assert_eq!(grant.limits.pids_max, 2);
    assert_eq!(grant.tier, Tier::Wasm);
    assert_eq!(grant.transforms.iter().map(Transform::pointer).collect::<Vec<_>>(), ["/n", "/x"]);
    // They allow nothing by themselves.
    let alone = rules(
        "  - { id: b, effect: raise-tier, tier: wasm }\n  - { id: c, effect: transform, set: { /n: { value: 1 } } }",
    );
    assert_eq!(verdict(&alone, "{ tool: t }"), "deny policy.no_rule");
}

#[test]
fn an_ask_states_what_an_approval_grants() {
    let policy = rules(
        "  - { id: q, effect: ask, match: { tool: t }, approvers: 2, reason: why, limits: { wall: 1s }, tier: process }",
    );
    let Verdict::Ask(question) = decide(&policy, "{ tool: t }") else { panic!("it asks") };
    assert_eq!((question.approvers, question.reason.as_str()), (2, "why"));
    assert_eq!(question.rule.line, 3);
    assert_eq!(question.grant.limits.wall_ms_max, 1000);
    assert_eq!(question.grant.tier, Tier::Process);
}

#[test]
fn a_partial_ask_says_that_an_approval_covers_the_rest() {
    let text = "  - { id: q, effect: ask, match: { path: 'a/**' } }\n  - { id: r, effect: ask, match: { path: 'a/b' }, approvers: 3 }";
    let said = |call: &str| match decide(&rules(text), call) {
        Verdict::Ask(question) => {
            // In the question, before the answer, and not beside the outcome.
            assert!(question.grant.warnings.is_empty());
            (question.approvers, question.reason.contains("no rule matches the rest"))
        }
        other @ (Verdict::Allow(_) | Verdict::Deny(_)) => panic!("{other:?}"),
    };
    assert_eq!(said("{ tool: t, path: a/c }"), (1, false));
    assert_eq!(said("{ tool: t, path: [a/c, x] }"), (1, true));
    assert_eq!(said("{ tool: t, path: a/b }"), (3, false));
}

#[test]
fn governance_fields_ask_only_about_allowed_calls() {
    let policy = policy(
        "version: 1\nrequire_human_approval: true\nrules: [{ id: a, effect: allow, match: { tool: a } }]",
    );
    assert_eq!(verdict(&policy, "{ tool: a }"), "ask");
    assert_eq!(verdict(&policy, "{ tool: b }"), "deny policy.no_rule");
}

#[test]
fn governance_fields() {
    let cases = [
        ("allowed_tools: [t]", "{ tool: t }", "allow"),
        ("allowed_tools: [t]", "{ tool: u }", "deny governance.allowed_tools"),
        ("allowed_tools: [t]", "{ op: agent.exit }", "allow"),
        (
            "blocked_patterns: ['DROP TABLE']",
            "{ tool: t, args: { q: 'x; drop table y' } }",
            "deny governance.blocked_pattern",
        ),
        ("blocked_patterns: ['DROP TABLE']", "{ tool: t, args: { q: 'select' } }", "allow"),
        ("blocked_patterns: [{ pattern: 'a.c', type: SUBSTRING }]", "{ tool: t, args: { q: abc } }", "allow"),
        (
            "blocked_patterns: [{ pattern: 'a.c', type: REGEX }]",
            "{ tool: t, args: [{ q: xabcx }] }",
            "deny governance.blocked_pattern",
        ),
        (
            "blocked_patterns: [{ pattern: 'rm *', type: GLOB }]",
            "{ tool: t, args: { c: 'rm -rf x' } }",
            "deny governance.blocked_pattern",
        ),
        (
            "blocked_patterns: [{ pattern: 'rm *', type: glob }]",
            "{ tool: t, args: { c: 'farm x' } }",
            "allow",
        ),
        (
            "blocked_patterns: ['say \"hi\"']",
            "{ tool: t, args: { c: 'say \"hi\"' } }",
            "deny governance.blocked_pattern",
        ),
        (
            "blocked_patterns: ['{\"a\":1,\"b\":2}']",
            "{ tool: t, args: { b: 2, a: 1 } }",
            "deny governance.blocked_pattern",
        ),
        ("max_tokens_per_request: 10", "{ tool: t, session: { request_tokens: 10 } }", "allow"),
        (
            "max_tokens_per_request: 10",
            "{ tool: t, session: { request_tokens: 11 } }",
            "deny governance.max_tokens",
        ),
        ("max_tool_calls_per_request: 3", "{ tool: t, session: { tool_calls: 2 } }", "allow"),
        (
            "max_tool_calls_per_request: 3",
            "{ tool: t, session: { tool_calls: 3 } }",
            "deny governance.max_tool_calls",
        ),
        ("max_tool_calls_per_request: 3", "{ op: agent.exit, session: { tool_calls: 3 } }", "allow"),
        (
            "confidence_threshold: 0.8",
            "{ tool: t, session: { confidence: 0.79 } }",
            "deny governance.confidence",
        ),
        ("confidence_threshold: 0.8", "{ tool: t, session: { confidence: 0.8 } }", "allow"),
        ("confidence_threshold: 0.8", "{ tool: t }", "allow"),
        ("drift_threshold: 0.15", "{ tool: t, session: { drift: 0.16 } }", "deny governance.drift"),
        ("require_human_approval: true", "{ tool: t }", "ask"),
        ("require_human_approval: false", "{ tool: t }", "allow"),
        ("require_human_approval: [u]", "{ tool: t }", "allow"),
        ("require_human_approval: [t]", "{ tool: t }", "ask"),
        ("require_human_approval: true", "{ op: agent.exit }", "allow"),
    ];
    for (field, text, expected) in cases {
        let policy = policy(&format!("version: 1\n{field}\nrules:\n  - {{ id: all, effect: allow }}"));
        assert_eq!(verdict(&policy, text), expected, "{field} on {text}");
    }
}

#[test]
fn a_file_of_governance_fields_alone_allows_what_it_lists() {
    let policy = policy("version: 1\nallowed_tools: [t, 'fs.*']\nmax_tool_calls_per_request: 1");
    assert_eq!(verdict(&policy, "{ tool: fs.read, path: x }"), "allow");
    assert_eq!(verdict(&policy, "{ tool: u }"), "deny governance.allowed_tools");
    assert_eq!(verdict(&policy, "{ tool: t, session: { tool_calls: 1 } }"), "deny governance.max_tool_calls");
}

#[test]
fn a_missing_policy_denies_everything() {
    let none = Policy::deny_all();
    assert_eq!(verdict(&none, "{ tool: t }"), "deny policy.not_loaded");
    let all = rules("  - { id: a, effect: allow }");
    assert_eq!(verdict(&Policy::layered(none, Some(all)), "{ tool: t }"), "deny policy.not_loaded");
}

#[test]
fn a_project_can_only_narrow() {
    let user = rules("  - { id: u, effect: allow, match: { tool: [a, b] }, limits: { wall: 10s } }");
    let project = |text: &str| load(text, &Source::new("p", Layer::Project)).unwrap();
    let narrow = project(
        "version: 1\nrules:\n  - { id: p, effect: allow, match: { tool: [a, c] }, limits: { wall: 5s } }",
    );
    let both = Policy::layered(user.clone(), Some(narrow));
    assert_eq!(verdict(&both, "{ tool: a }"), "allow");
    assert_eq!(granted(&both, "{ tool: a }").limits.wall_ms_max, 5000);
    assert_eq!(verdict(&both, "{ tool: b }"), "deny policy.no_rule");
    assert_eq!(verdict(&both, "{ tool: c }"), "deny policy.no_rule");
    for mode in ["permissive", "audit"] {
        let loose = project(&format!("version: 1\nmode: {mode}\nlimits: {{ wall: 99min }}\nrules: []"));
        let both = Policy::layered(user.clone(), Some(loose));
        assert_eq!(verdict(&both, "{ tool: c }"), "deny policy.no_rule", "{mode}");
        assert_eq!(granted(&both, "{ tool: a }").limits.wall_ms_max, 10_000, "{mode}");
    }
}

#[test]
fn digests_identify_exactly_one_policy() {
    let text = "version: 1\nrules: []";
    let digest = |text: &str, layer| load(text, &Source::new("p", layer)).unwrap().digest();
    assert_eq!(digest(text, Layer::User), digest(text, Layer::User));
    assert_ne!(digest(text, Layer::User), digest(text, Layer::Project));
    assert_ne!(digest(text, Layer::User), digest("version: 1\nrules: [] # so", Layer::User));
    let (a, b) = (rules("  - { id: a, effect: allow }"), rules("  - { id: b, effect: allow }"));
    let both = Policy::layered(a.clone(), Some(b.clone())).digest();
    assert_ne!(both, Policy::layered(b, Some(a.clone())).digest());
    assert_ne!(both, a.digest());
}

#[test]
fn explain_names_the_rule_its_line_and_why_others_did_not_match() {
    let policy = rules(
        "  - { id: read, effect: allow, match: { tool: fs.read, path: 'src/**' } }\n  - { id: docs, effect: allow, match: { tool: fs.read, path: 'docs/**' }, unless: { agent: bob } }\n  - { id: other, effect: allow, match: { tool: x } }",
    );
    let explanation =
        call("{ tool: fs.read, path: docs/a, agent: bob }").with_facts(|facts| policy.explain(facts));
    assert_eq!(explanation.unrelated, 1);
    let shown = serde_json::to_value(&explanation.considered).unwrap();
    assert_eq!(
        shown[0]["outcome"],
        serde_json::json!({ "fared": "missed", "condition": "path: 'src/**'", "line": 3 })
    );
    assert_eq!(shown[1]["outcome"], serde_json::json!({ "fared": "excepted", "line": 4 }));
    assert!(
        explanation.summary.starts_with("denied by mode (user policy: strict)"),
        "{}",
        explanation.summary
    );
    let explanation = call("{ tool: fs.read, path: src/a }").with_facts(|facts| policy.explain(facts));
    assert_eq!(explanation.summary, "allowed by rule `read` (user policy, line 3)");
}

#[test]
fn a_policy_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>(_: &Arc<T>) {}
    shared(&Arc::new(Policy::deny_all()));
}

#[test]
fn adv_009_names_are_escaped_in_messages() {
    let Verdict::Deny(reason) = decide(
        &rules("  - { id: a, effect: allow, match: { tool: x } }"),
        "{ tool: fs.read, path: \"a\\nb\\e[31m\" }",
    ) else {
        panic!("denied")
    };
    assert!(!reason.message.contains(['\n', '\u{1b}']), "{:?}", reason.message);
}

#[test]
fn c2_a_project_changes_no_call_except_to_narrow_it() {
    let load_as = |layer, effect: &str, set: &str| {
        let text = format!(
            "version: 1\nrules:\n  - {{ id: r, effect: {effect}, match: {{ tool: t }}, set: {{ {set} }} }}\n"
        );
        load(&text, &Source::new("p", layer))
    };
    for set in [
        "/url: { value: \"http://evil.test/\" }",
        "/command: { value: \"echo swapped; id\" }",
        "/headers: { remove: true }",
        "/body: { redact: \"a\", mask: \"b\" }",
        "/path: { truncate: 3 }",
        "/inspect: { value: false }",
        "/network: { value: true }",
        "/timeout_ms: { value: 5 }",
        "/timeout_ms: { clamp: { min: 5 } }",
        "/timeout_ms: { clamp: { min: 1, max: 5 } }",
        "/amount: { clamp: { max: 5 } }",
        "/inspect: { value: true }, /url: { value: \"http://evil.test/\" }",
    ] {
        for effect in ["allow", "ask", "transform"] {
            let error = load_as(Layer::Project, effect, set).expect_err(set);
            assert!(error.findings[0].message.contains("can only narrow"), "{set}: {:?}", error.findings);
            assert!(load_as(Layer::User, effect, set).is_ok(), "{set}");
        }
    }
    for set in [
        "/inspect: { value: true }",
        "/network: { value: false }",
        "/terminal: { value: false }",
        "/timeout_ms: { clamp: { max: 1000 } }",
        "/bytes_max: { clamp: { max: 10 } }, /inspect: { value: true }",
    ] {
        assert!(load_as(Layer::Project, "transform", set).is_ok(), "{set}");
    }
}

#[test]
fn a_project_cannot_undo_the_users_changes() {
    let line = |change: &str| {
        format!("  - {{ id: r, effect: allow, match: {{ tool: t }}, set: {{ /x: {change} }} }}\n")
    };
    let user = rules(&line("{ value: 1 }"));
    for change in ["{ value: 2 }", "{ remove: true }"] {
        let both = Policy::layered(user.clone(), Some(rules(&line(change))));
        let mut args = serde_json::json!({"x": 0});
        for transform in granted(&both, "{ tool: t, args: { x: 0 } }").transforms {
            transform.apply(&mut args);
        }
        assert_eq!(args, serde_json::json!({"x": 1}), "{change}");
    }
}

#[test]
fn the_time_limit_of_rules_is_told_from_the_default_of_a_file() {
    let default =
        policy("version: 1\nlimits: { wall: 10min }\nrules: [{ id: a, effect: allow, match: { tool: t } }]");
    let of_default = granted(&default, "{ tool: t }");
    assert_eq!((of_default.limits.wall_ms_max, of_default.rule_wall_ms_max), (600_000, u64::MAX));
    let rule = policy(
        "version: 1\nlimits: { wall: 10min }\nrules: [{ id: a, effect: allow, match: { tool: t }, limits: { wall: 1h } }]",
    );
    let of_rule = granted(&rule, "{ tool: t }");
    assert_eq!((of_rule.limits.wall_ms_max, of_rule.rule_wall_ms_max), (600_000, 3_600_000));
    assert_eq!(of_default.meet(of_rule).rule_wall_ms_max, 3_600_000);
}
