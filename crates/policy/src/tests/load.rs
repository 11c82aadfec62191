//! Invalid files, and where each error is reported.

use super::source;
use crate::{Finding, load};

fn findings(text: &str) -> Vec<Finding> {
    load(text, &source("policy.yml")).expect_err(text).findings
}

/// A rule in line 3 with its conditions in line 4.
fn with(conditions: &str) -> String {
    format!("version: 1\nrules:\n  - {{ id: a, effect: allow, match:\n{conditions} }}")
}

#[test]
fn mistakes_in_rules_are_reported_at_their_position() {
    let cases = [
        ("mode: strict\nrules: []", 1, 1, "the version is missing", "version: 1"),
        ("version: 2\nrules: []", 1, 10, "a whole number from 1 to 1", ""),
        (
            "version: 1\nmod: strict\nrules: []",
            2,
            1,
            "unknown key `mod` in the policy",
            "did you mean `mode`?",
        ),
        ("version: 1\nmode: strickt\nrules: []", 2, 7, "unknown mode `strickt`", "did you mean `strict`?"),
        ("version: 1\nrules: 5", 2, 8, "`rules` must be a list, not a number", ""),
        ("version: 1\nrules:\n  - effect: allow", 3, 5, "the rule has no `id`", ""),
        ("version: 1\nrules:\n  - id: a", 3, 5, "the rule has no `effect`", ""),
        (
            "version: 1\nrules:\n  - id: a\n    effect: alow",
            4,
            13,
            "unknown effect `alow`",
            "did you mean `allow`?",
        ),
        (
            "version: 1\nrules:\n  - { id: a, effect: deny }\n  - { id: a, effect: deny }",
            4,
            11,
            "the id `a` is taken by the rule in line 3",
            "",
        ),
        ("version: 1\nrules:\n  - { id: a b, effect: deny }", 3, 11, "an id has", ""),
        ("version: 1\nrules:\n  - { id: a, effect: deny, tier: wasm }", 3, 34, "`tier` has no effect", ""),
        ("version: 1\nrules:\n  - { id: a, effect: raise-tier }", 3, 5, "needs `tier`", ""),
        ("version: 1\nrules:\n  - { id: a, effect: allow, rate: often }", 3, 35, "expected a rate", ""),
        ("version: 1\nrules:\n  - { id: a, effect: ask, approvers: 0 }", 3, 38, "from 1 to 100", ""),
    ];
    check(&cases);
}

#[test]
fn top_level_mistakes_are_reported_at_their_position() {
    let cases = [
        ("version: 1\nlimits: { wall: 60 }\nrules: []", 2, 17, "an amount with a unit", ""),
        ("version: 1\nlimits: { wal: 60s }\nrules: []", 2, 11, "unknown key `wal`", "did you mean `wall`?"),
        ("version: 1\nallowed_tools: []\nrules: []", 2, 16, "the list is empty", ""),
        (
            "version: 1\nblocked_patterns: [{ pattern: '(', type: REGEX }]\nrules: []",
            2,
            20,
            "is not a regular expression",
            "",
        ),
        ("version: 1\nconfidence_threshold: 2\nrules: []", 2, 23, "a number from 0 to 1", ""),
        (
            "version: 1\nrules:\n  - { id: a, effect: transform, set: { body: { value: 1 } } }",
            3,
            40,
            "JSON pointer",
            "`/body`",
        ),
        (
            "version: 1\nrules:\n  - { id: a, effect: transform, set: { /b: { value: 1, remove: true } } }",
            3,
            44,
            "exactly one change",
            "",
        ),
        ("version: 1\nrules: [\n", 2, 8, "this is not YAML", ""),
        ("version: 1\n\trules: []", 1, 10, "this is not YAML", ""),
        ("version: 1\nversion: 1\nrules: []", 2, 1, "duplicate key `version`", ""),
        ("version: 1\nrules: !x []", 2, 8, "tags", ""),
        ("version: 1\nrules: []\n---\nversion: 1", 3, 1, "only one document", ""),
        ("version: 1\nrules: []\n? [a]\n: b", 3, 3, "a key must be plain text", ""),
    ];
    check(&cases);
}

/// File, line, column, message, help.
type Mistake<'t> = (&'t str, u32, u32, &'t str, &'t str);

fn check(cases: &[Mistake<'_>]) {
    for &(text, line, column, message, help) in cases {
        let found = findings(text);
        let fits = |finding: &&Finding| {
            (finding.line, finding.column) == (line, column)
                && finding.message.contains(message)
                && finding.help.as_deref().unwrap_or_default().contains(help)
        };
        assert!(
            found.iter().any(|finding| fits(&finding)),
            "{text}\nwanted {line}:{column} {message} ({help})\ngot {found:#?}"
        );
    }
}

#[test]
fn mistakes_in_conditions_are_reported_at_their_position() {
    let cases = [
        ("{ toll: x }", 3, "unknown key `toll`", "did you mean `tool`?"),
        ("{}", 1, "no conditions are given", ""),
        ("{ op: tool.rum }", 7, "unknown operation `tool.rum`", "did you mean `tool.run`?"),
        ("{ op: 'zzz.*' }", 7, "unknown operation", ""),
        ("{ class: agents }", 10, "unknown class `agents`", "did you mean `agent`?"),
        ("{ trust: { min: 1001 } }", 17, "from 0 to 1000", ""),
        ("{ trust: { min: 9, max: 8 } }", 10, "above", ""),
        ("{ path: '~/x' }", 9, "`~` is not expanded", "absolute"),
        ("{ path: 'a/../b' }", 9, "can't contain", ""),
        ("{ access: raed }", 11, "unknown access `raed`", "did you mean `read`?"),
        ("{ host: 'https://x.test' }", 9, "is not a host pattern", "their own keys"),
        ("{ host: 'a.*.test' }", 9, "is not a host pattern", ""),
        ("{ port: 99999 }", 9, "expected a port", ""),
        ("{ url_path: v1 }", 13, "starts with `/`", ""),
        ("{ argv: git }", 9, "expected a list", ""),
        ("{ argv: ['...', x] }", 10, "must be the program", ""),
        ("{ args: { amount: 5 } }", 11, "starts with `/` or `$`", "`/amount`"),
        ("{ args: { /a: { equals: 5 } } }", 17, "unknown test `equals`", ""),
        ("{ args: { /a: { gt: x } } }", 21, "expected a number", ""),
        ("{ args: { /a: { in: 5 } } }", 21, "needs a list", ""),
        ("{ args: { /a: [1] } }", 15, "expected a test", "in:"),
        ("{ args: { /a: { matches: '(?=x)' } } }", 26, "is not a regular expression", ""),
        ("{ labels: { body: { integrity: web } } }", 13, "is not an argument", "JSON pointer"),
        ("{ labels: { /b: { integrity: wep } } }", 30, "unknown origin `wep`", "did you mean `web`?"),
        ("{ tier: procss }", 9, "unknown tier `procss`", "did you mean `process`?"),
        ("{ time: { from: 9 } }", 17, "expected text", ""),
        ("{ time: { days: [monday] } }", 18, "unknown day", ""),
        ("{ budget_left: { money: { lt: 1 } } }", 18, "unknown budget `money`", ""),
        ("{ session: { drft: { lt: 1 } } }", 14, "unknown measure `drft`", "did you mean `drift`?"),
        ("{ any: [] }", 8, "the list is empty", ""),
        ("{ tool: 5 }", 9, "expected text, found a number", "quote it"),
        ("{ tool: { a: b } }", 9, "expected text, found a mapping", ""),
    ];
    for (conditions, column, message, help) in cases {
        let found = findings(&with(conditions));
        let fits = |finding: &Finding| {
            (finding.line, finding.column) == (4, column)
                && finding.message.contains(message)
                && finding.help.as_deref().unwrap_or_default().contains(help)
        };
        assert!(found.iter().any(fits), "{conditions}\nwanted 4:{column} {message} ({help})\ngot {found:#?}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once_in_order() {
    let found = findings(
        "version: 7\nmode: x\nrules:\n  - { id: a, effect: y }\n  - { id: b, effect: allow, match: { tool: 1, hosts: z } }",
    );
    let lines: Vec<u32> = found.iter().map(|finding| finding.line).collect();
    assert_eq!(lines, [1, 2, 4, 5, 5]);
}

#[test]
fn a_finding_spans_the_text_that_it_is_about() {
    let text = "version: 1\nmode: strickt\nrules: []";
    let finding = findings(text).remove(0);
    assert_eq!(&text[finding.span.start..finding.span.end], "strickt");
}

#[test]
fn a_failed_example_is_an_error_at_its_line() {
    let text = "version: 1\nrules:\n  - id: a\n    effect: allow\n    match: { tool: fs.read, path: 'src/**' }\n    examples:\n      match:\n        - { tool: fs.read, path: src/x }\n        - { tool: fs.read, path: docs/x }\n      not_match:\n        - { tool: fs.read, path: src/y }\n";
    let found = findings(text);
    assert_eq!(
        found.iter().map(|finding| (finding.line, finding.column)).collect::<Vec<_>>(),
        [(9, 11), (11, 11)]
    );
    assert_eq!(found[0].message, "rule `a` doesn't match this example, and it should");
    assert_eq!(found[0].help.as_deref(), Some("`path: 'src/**'` in line 5 doesn't match"));
    assert_eq!(found[1].message, "rule `a` matches this example, and it should not");
}

#[test]
fn the_example_of_the_manual_loads_and_passes() {
    let manual = include_str!("../../README.md");
    let (_, rest) = manual.split_once("```yaml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    assert_eq!(super::policy(example).outline()[0].examples, 2);
}

#[test]
fn anchors_and_aliases_are_supported() {
    let text = "version: 1\nrules:\n  - { id: a, effect: allow, match: { tool: &t [x, y] } }\n  - { id: b, effect: deny, match: { tool: *t, agent: bob } }";
    let policy = super::policy(text);
    assert_eq!(super::verdict(&policy, "{ tool: y, agent: bob }"), "deny policy.denied");
}

#[test]
fn adv_002_odd_texts_are_errors_or_unambiguous() {
    for text in [
        "version: 1\nrules: []\nrules: [{ id: a, effect: allow }]",
        "version: 1\nrules:\n  - { id: a, effect: allow, id: b }",
        "version: 1\nmax_tokens_per_request: .nan\nrules: []",
        "version: 1\nmax_tokens_per_request: 1e999\nrules: []",
        "version: 1\nrules: []\nname: \"\\ud800\"",
        "version: 1\nrules: []\nname: \"a\0b\"",
        "",
        "\0",
        "null",
        "[]",
        "version: 1\nrules: [{ <<: { effect: allow }, id: a }]",
    ] {
        assert!(load(text, &source("policy.yml")).is_err(), "{text:?}");
    }
    // A byte order mark is not part of the text.
    assert!(load("\u{feff}version: 1\nrules: []", &source("policy.yml")).is_ok());
}

#[test]
fn adv_006_rejects_oversized_input() {
    let many =
        |count: usize| format!("version: 1\nrules:\n{}", "  - { id: a, effect: deny }\n".repeat(count));
    assert!(findings(&many(20_001))[0].message.contains("at most 20000"));
    let huge = format!("version: 1\nrules: [] # {}", "x".repeat(5 << 20));
    assert!(findings(&huge)[0].message.contains("larger than"));
    let deep = format!("version: 1\nrules: {}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(!findings(&deep).is_empty());
    let bomb = format!(
        "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n{}",
        (1..10)
            .map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(", ")))
            .collect::<String>()
    );
    assert!(findings(&bomb).iter().any(|finding| finding.message.contains("repeated by alias")));
    assert!(!findings("version: 1\nrules: &r [*r]").is_empty());
    let regex = |pattern: &str| findings(&with(&format!("{{ args: {{ /a: {{ matches: '{pattern}' }} }} }}")));
    assert!(regex("(\\w{1000}){1000}")[0].message.contains("too large"));
    assert!(regex(&"a".repeat(3000))[0].message.contains("longer than"));
    let rule = |n: usize| {
        format!(
            "  - {{ id: r{n}, effect: deny, match: {{ args: {{ /a: {{ matches: '\\w{{5}}{n}' }} }} }} }}\n"
        )
    };
    let regexes = format!("version: 1\nrules:\n{}", (0..600).map(rule).collect::<String>());
    assert!(findings(&regexes).iter().any(|finding| finding.message.contains("too large together")));
    let braces = with(&format!("{{ path: '{}' }}", "{a,b}".repeat(12)));
    assert!(findings(&braces)[0].message.contains("expand to more than"));
}

#[test]
fn named_sets_match_folded_names_in_their_own_tree() {
    let text = "version: 1\nrules:\n  - { id: guard, effect: deny, match: { access: write, path: ['@control-files', '/@secrets', 'own/**'] } }";
    let policy = load(text, &source("policy.yml")).unwrap();
    let cases = [
        (".git/config", true),
        ("a/.GIT/config", true),
        (".regent/x", true),
        ("own/x", true),
        ("OWN/x", false),
        (".env", false),
        ("/srv/.ENV", true),
        ("/srv/.git/config", false),
        ("vfs:/self/.git/config", false),
        ("src/main.rs", false),
    ];
    for (path, denied) in cases {
        let verdict = super::decide(&policy, &format!("{{ tool: fs.write, path: '{path}' }}"));
        let by_guard = verdict
            .denied()
            .is_some_and(|reason| reason.rule.as_ref().is_some_and(|rule| &*rule.id == "guard"));
        assert_eq!(by_guard, denied, "{path}: {verdict:?}");
    }
}

#[test]
fn an_unknown_set_is_an_error_and_a_literal_at_sign_is_not() {
    let text = |path: &str| {
        format!("version: 1\nrules:\n  - {{ id: a, effect: deny, match: {{ path: '{path}' }} }}")
    };
    let error = load(&text("@control"), &source("policy.yml")).unwrap_err();
    assert!(error.findings[0].message.contains("unknown set `@control`"), "{error:?}");
    assert!(error.findings[0].help.as_ref().unwrap().contains("`@control-files`"), "{error:?}");
    for literal in ["@types/**", "**/@scope/x", "@x.y", "\\@control"] {
        assert!(load(&text(literal), &source("policy.yml")).is_ok(), "{literal}");
    }
}
