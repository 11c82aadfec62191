//! The constraint graph, strategies and warnings, as texts.

use super::{decide, policy, source, verdict};
use crate::{Verdict, codes, load};

const GRAPH: &str = "
version: 1
rules: [{ id: all, effect: allow, match: { any: [{ agent: '*' }, { secret: '*' }] } }, { id: secrets, effect: allow, match: { secret: '*' } }]
graph:
  - { from: researcher, to: { host: '*.example.com' } }
  - { from: { role: ops }, to: { place: vault } }
  - { from: { place: vault }, to: { secret: 'prod/*' } }
  - { from: { place: vault }, to: { host: vault.test }, match: { args: { /mfa: true } } }
  - { from: '*', to: { path: '**', access: [read, list] } }
  - { from: '*', to: { path: 'private/**' }, effect: deny, priority: 10, reason: not yours }
  - { from: ada, to: { path: 'private/ada/**' }, priority: 20 }
";

#[test]
fn only_edges_lead_to_a_resource() {
    let policy = policy(GRAPH);
    let cases = [
        ("{ tool: http.fetch, agent: researcher, url: 'https://a.example.com/' }", "allow"),
        ("{ tool: http.fetch, agent: researcher, url: 'https://evil.test/' }", "deny policy.no_edge"),
        ("{ tool: http.fetch, agent: other, url: 'https://a.example.com/' }", "deny policy.no_edge"),
        ("{ tool: fs.read, path: a }", "allow"),
        ("{ tool: fs.write, path: a }", "deny policy.no_edge"),
        ("{ tool: fs.read, path: private/x }", "deny policy.no_edge"),
        ("{ tool: fs.read, agent: ada, path: private/ada/x }", "allow"),
        ("{ tool: fs.read, agent: ada, path: [private/ada/x, private/x] }", "deny policy.no_edge"),
        ("{ tool: db, agent: o, roles: [ops], secret: prod/db }", "allow"),
        ("{ tool: db, agent: o, roles: [ops], secret: test/db }", "deny policy.no_edge"),
        ("{ tool: db, agent: o, secret: prod/db }", "deny policy.no_edge"),
        ("{ tool: x, agent: o, roles: [ops], url: 'https://vault.test/', args: { mfa: true } }", "allow"),
        ("{ tool: x, agent: o, roles: [ops], url: 'https://vault.test/', args: {} }", "deny policy.no_edge"),
        // A call without resources needs no edge.
        ("{ tool: think }", "allow"),
    ];
    for (text, expected) in cases {
        assert_eq!(verdict(&policy, text), expected, "{text}");
    }
    let Verdict::Deny(reason) = decide(&policy, "{ tool: fs.read, path: private/x }") else { panic!("no") };
    assert_eq!(reason.message, "not yours");
}

#[test]
fn rejects_invalid_graphs() {
    let edges = |edges: &str| format!("version: 1\nrules: []\ngraph: [{edges}]");
    let cases = [
        ("{ from: a }", "no `to`"),
        ("{ from: a, to: { place: x } }", "no edge leads from `x`"),
        ("{ from: { place: x }, to: { host: h } }", "no edge leads to `x`"),
        (
            "{ from: a, to: { place: x } }, { from: { place: x }, to: { place: y } }, { from: { place: y }, to: { place: x } }",
            "cycle",
        ),
        ("{ from: a, to: { tool: x } }", "unknown key `tool`"),
        ("{ from: a, to: { host: h }, effect: ask }", "`allow` or `deny`"),
    ];
    for (text, message) in cases {
        let found = load(&edges(text), &source("p.yml")).expect_err(text).findings;
        assert!(found.iter().any(|finding| finding.message.contains(message)), "{text}: {found:#?}");
    }
}

#[test]
fn the_strategy_selects_the_deciding_rule() {
    let rules = "rules:
  - { id: broad, effect: allow, match: { tool: fs.* }, priority: 1 }
  - { id: ask, effect: ask, match: { tool: fs.write }, priority: 2 }
  - { id: no, effect: deny, match: { tool: fs.*, path: 'src/**' } }
  - { id: exact, effect: allow, match: { tool: fs.write, path: src/a } }";
    let cases = [
        ("deny-overrides", "{ tool: fs.write, path: src/a }", "deny", "no"),
        ("allow-overrides", "{ tool: fs.write, path: src/a }", "allow", "broad"),
        ("first-match", "{ tool: fs.write, path: src/a }", "ask", "ask"),
        ("first-match", "{ tool: fs.read, path: src/a }", "allow", "broad"),
        ("most-specific", "{ tool: fs.write, path: src/a }", "allow", "exact"),
        // Both are equally specific; the stricter one applies.
        ("most-specific", "{ tool: fs.write, path: src/b }", "deny", "no"),
        ("most-specific", "{ tool: fs.read, path: src/b }", "deny", "no"),
    ];
    for (strategy, call, word, rule) in cases {
        let policy = policy(&format!("version: 1\nconflicts: {strategy}\n{rules}"));
        let said = decide(&policy, call);
        assert_eq!((said.word(), said.rule().map(|rule| &*rule.id)), (word, Some(rule)), "{strategy} {call}");
    }
    assert!(load(&format!("version: 1\nconflicts: mine\n{rules}"), &source("p")).is_err());
}

#[test]
fn a_warning_is_reported_and_allows_nothing() {
    let policy = policy(
        "version: 1\nrules: [{ id: w, effect: warn, match: { tool: [x, y] }, reason: careful }, { id: a, effect: allow, match: { tool: x } }]",
    );
    let Verdict::Allow(grant) = decide(&policy, "{ tool: x }") else { panic!("allowed") };
    assert_eq!((&*grant.warnings[0].code, &*grant.warnings[0].message), (codes::WARNED, "careful"));
    assert_eq!(verdict(&policy, "{ tool: y }"), "deny policy.no_rule");
}
