//! The facts that each condition tests, as cases.

use super::{decide, rules, verdict};

#[test]
fn conditions() {
    // (conditions of an allow, a call, whether it is allowed)
    let cases = [
        ("{ op: 'vfs.*' }", "{ op: vfs.read }", true),
        ("{ op: 'vfs.*' }", "{ op: agent.exit }", false),
        ("{ tool: 'fs.{read,list}' }", "{ tool: fs.list }", true),
        ("{ tool: 'fs.{read,list}' }", "{ tool: fs.write }", false),
        ("{ agent: 'research-*' }", "{ tool: t, agent: research-7 }", true),
        ("{ agent: 'research-*' }", "{ tool: t, agent: ada }", false),
        ("{ role: dev }", "{ tool: t, roles: [ops, dev] }", true),
        ("{ role: dev }", "{ tool: t }", false),
        ("{ trust: { min: 700 } }", "{ tool: t, trust: 700 }", true),
        ("{ trust: { min: 700 } }", "{ tool: t, trust: 699 }", false),
        ("{ class: operator }", "{ tool: t, class: operator }", true),
        ("{ class: operator }", "{ tool: t }", false),
        ("{ capability: 'file.*' }", "{ tool: t, capabilities: [file.read] }", true),
        ("{ capability: 'file.*' }", "{ tool: t, capabilities: [file.read, network.request] }", false),
        ("{ capability: 'file.*' }", "{ tool: t }", false),
        ("{ path: 'src/**' }", "{ tool: t, path: [src/a, src/b/c] }", true),
        ("{ path: 'src/**' }", "{ tool: t, path: [src/a, docs/b] }", false),
        ("{ path: 'src/**' }", "{ tool: t }", false),
        ("{ path: 'src/**', access: read }", "{ tool: t, path: src/a, access: read }", true),
        ("{ path: 'src/**', access: read }", "{ tool: t, path: src/a, access: write }", false),
        ("{ access: [read, list] }", "{ tool: t, path: /x, access: list }", true),
        ("{ host: '*.example.com' }", "{ tool: t, url: 'https://a.example.com/' }", true),
        ("{ host: '*.example.com' }", "{ tool: t, url: 'https://example.com/' }", false),
        ("{ host: Example.COM. }", "{ tool: t, url: 'https://example.com/' }", true),
        ("{ port: [443, 8000-8999] }", "{ tool: t, url: 'https://x.test:8443/' }", true),
        ("{ port: [443, 8000-8999] }", "{ tool: t, url: 'http://x.test/' }", false),
        ("{ method: [GET, head] }", "{ tool: t, url: 'http://x.test/', method: HEAD }", true),
        ("{ method: [GET, head] }", "{ tool: t, url: 'http://x.test/', method: POST }", false),
        ("{ scheme: https }", "{ tool: t, url: 'http://x.test/' }", false),
        ("{ url_path: '/v1/**' }", "{ tool: t, url: 'http://x.test/v1/a?b' }", true),
        ("{ url_path: '/v1/**' }", "{ tool: t, url: 'http://x.test/v2' }", false),
        ("{ argv: [git, status, '...'] }", "{ tool: t, argv: [git, status] }", true),
        ("{ argv: [git, status, '...'] }", "{ tool: t, argv: [git, status, -s] }", true),
        ("{ argv: [git, status] }", "{ tool: t, argv: [git, status, -s] }", false),
        ("{ argv: [git, status, '...'] }", "{ tool: t, argv: [git, push] }", false),
        ("{ argv: [[git, '...'], [ls]] }", "{ tool: t, argv: [ls] }", true),
        ("{ program: '{git,ls}' }", "{ tool: t, argv: [ls, -l] }", true),
        ("{ program: git }", "{ tool: t, argv: [./git] }", false),
        ("{ program: /opt/git }", "{ tool: t, argv: [/opt/git] }", true),
        ("{ secret: 'github/*' }", "{ tool: t, secret: github/token }", true),
        ("{ secret: 'github/*' }", "{ tool: t, args: { h: [ 'Bearer secret://github/token.' ] } }", true),
        ("{ secret: 'github/*' }", "{ tool: t, secret: [github/token, aws] }", false),
        ("{ secret: [github/token, aws] }", "{ tool: t, secret: [github/token, aws] }", true),
        ("{ secret: 'github/*' }", "{ tool: t }", false),
        // A rule that doesn't name the secret doesn't grant it.
        ("{ tool: t }", "{ tool: t, secret: aws }", false),
        ("{ tool: t, capability: '*' }", "{ tool: t, secret: aws }", false),
        ("{ any: [{ tool: t }, { secret: other }] }", "{ tool: t, secret: aws }", false),
        ("{ any: [{ tool: t, secret: aws }, { tool: x }] }", "{ tool: t, secret: aws }", true),
        ("{ all: [{ tool: t }, { secret: aws }] }", "{ tool: t, secret: aws }", true),
        // One condition must name all secrets; two half matches don't count.
        ("{ any: [{ secret: aws }, { secret: github }] }", "{ tool: t, secret: [aws, github] }", false),
        // An operation that isn't a tool call has no handles.
        ("{ op: model.infer }", "{ op: model.infer, args: { messages: 'secret://aws' } }", true),
        ("{ tier: process }", "{ tool: t, tier: process }", true),
        ("{ tier: { min: process } }", "{ tool: t, tier: wasm }", true),
        ("{ tier: { min: process } }", "{ tool: t, tier: host }", false),
        (
            "{ time: { days: [mon], from: '09:00', to: '17:00' } }",
            "{ tool: t, at: '2026-01-05T09:00' }",
            true,
        ),
        (
            "{ time: { days: [mon], from: '09:00', to: '17:00' } }",
            "{ tool: t, at: '2026-01-06T09:00' }",
            false,
        ),
        (
            "{ time: { from: '09:00', to: '17:00' } }",
            "{ tool: t, at: '2026-01-05T08:00', utc_offset: '+01:00' }",
            true,
        ),
        (
            "{ budget_left: { money_usd: { gte: 1 } } }",
            "{ tool: t, left: { money_microusd: 1000000 } }",
            true,
        ),
        (
            "{ budget_left: { money_usd: { gte: 1 } } }",
            "{ tool: t, left: { money_microusd: 999999 } }",
            false,
        ),
        ("{ budget_left: { tokens: { gt: 5 } } }", "{ tool: t }", true),
        ("{ session: { confidence: { gte: 0.8 } } }", "{ tool: t, session: { confidence: 0.9 } }", true),
        ("{ session: { confidence: { gte: 0.8 } } }", "{ tool: t }", false),
        ("{ any: [{ tool: a }, { tool: t }] }", "{ tool: t }", true),
        ("{ all: [{ tool: t }, { agent: x }] }", "{ tool: t }", false),
    ];
    for (when, text, expected) in cases {
        let policy = rules(&format!("  - {{ id: r, effect: allow, match: {when} }}"));
        let word = decide(&policy, text).word();
        assert_eq!(word == "allow", expected, "{when} on {text}");
    }
}

#[test]
fn tests_on_arguments() {
    let args = "{ n: 5, s: hello, l: [1, 2], m: { k: v }, t: '7' }";
    // (test, matches an allow, matches a deny)
    let cases = [
        ("/n: 5", true, true),
        ("/n: 5.0", true, true),
        ("/n: { ne: 5 }", false, false),
        ("/n: { gt: 4, lt: 6 }", true, true),
        ("/n: { gte: 6 }", false, false),
        ("/n: { lte: 5 }", true, true),
        ("/s: { in: [hello, x] }", true, true),
        ("/s: { not_in: [hello, x] }", false, false),
        ("/s: { contains: ell }", true, true),
        ("/s: { not_contains: ell }", false, false),
        ("/s: { starts_with: he, ends_with: lo }", true, true),
        ("/s: { matches: '^h.*o$' }", true, true),
        ("/l: { contains: 2 }", true, true),
        ("/l: { eq: [1, 2.0] }", true, true),
        ("/m: { contains: k }", true, true),
        ("$.l[*]: { in: [1, 2] }", true, true),
        ("$.l[*]: { in: [1] }", false, true),
        ("$..k: v", true, true),
        ("/s: { exists: true }", true, true),
        ("/z: { exists: false }", true, true),
        ("/z: { exists: true }", false, false),
        ("/s: { any: [{ eq: x }, { starts_with: h }] }", true, true),
        ("/s: { all: [{ eq: x }, { starts_with: h }] }", false, false),
        // Missing or of the wrong type: the safe result.
        ("/z: { ne: 1 }", false, true),
        ("/z: { eq: 1 }", false, false),
        ("/z: { gt: 1 }", false, false),
        ("/t: { gt: 1 }", false, true),
        ("/t: { lt: 1 }", false, true),
    ];
    for (test, allows, denies) in cases {
        let (path, test) = test.split_once(": ").unwrap();
        let when = format!("{{ args: {{ '{path}': {test} }} }}");
        let text = format!("{{ tool: t, args: {args} }}");
        let allow = rules(&format!("  - {{ id: r, effect: allow, match: {when} }}"));
        assert_eq!(decide(&allow, &text).word() == "allow", allows, "allow on {path}: {test}");
        let deny = rules(&format!("  - {{ id: r, effect: deny, match: {when} }}"));
        assert_eq!(verdict(&deny, &text) == "deny policy.denied", denies, "deny on {path}: {test}");
    }
}

#[test]
fn adv_007_distinguishes_integers_beyond_2_to_the_53() {
    let policy = rules("  - { id: r, effect: allow, match: { args: { /n: 9007199254740993 } } }");
    assert_eq!(verdict(&policy, "{ tool: t, args: { n: 9007199254740993 } }"), "allow");
    assert_eq!(verdict(&policy, "{ tool: t, args: { n: 9007199254740992 } }"), "deny policy.no_rule");
}

#[test]
fn combined_searches_match_like_single_ones() {
    let lines: String = (0..50)
        .map(|n| {
            format!(
                "  - {{ id: r{n}, effect: deny, match: {{ args: {{ /q: {{ matches: 'word{n}\\b' }} }} }} }}\n"
            )
        })
        .collect();
    let policy = rules(&format!("{lines}  - {{ id: all, effect: allow }}"));
    for (text, expected) in [
        ("{ q: 'a word7 b' }", "r7"),
        ("{ q: word77 }", "all"),
        ("{ q: 5 }", "all"),
        ("{}", "all"),
        ("{ q: word9 word3 }", "r3"),
    ] {
        let verdict = decide(&policy, &format!("{{ tool: t, args: {text} }}"));
        assert_eq!(verdict.rule().map(|rule| rule.id.to_string()).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn labels_of_each_argument() {
    let cases = [
        ("{ /body: { integrity: [web, tool] } }", "{ /body: { integrity: web } }", true),
        ("{ /body: { integrity: [web, tool] } }", "{ /other: { integrity: web } }", false),
        ("{ '*': { integrity: web } }", "{ /other: { integrity: web } }", true),
        ("{ '*': { less_trusted_than: own_model } }", "{ /a: { integrity: tool } }", true),
        ("{ '*': { less_trusted_than: own_model } }", "{ /a: { integrity: own_model } }", false),
        ("{ /a: { at_least_as_trusted_as: user } }", "{ /a: { integrity: operator } }", true),
        ("{ /a: { min_confidentiality: private } }", "{ /a: { confidentiality: unknown } }", true),
        ("{ /a: { max_confidentiality: private } }", "{ /a: { confidentiality: unknown } }", true),
        ("{ /a: { min_confidentiality: pii } }", "{ /a: { confidentiality: unknown } }", false),
        ("{ /a: { confidentiality: private } }", "{ /a: { confidentiality: unknown } }", true),
        ("{ /a: { confidentiality: secret } }", "{ /a/b: { confidentiality: secret } }", true),
    ];
    for (test, labels, expected) in cases {
        let policy = rules(&format!("  - {{ id: r, effect: deny, match: {{ labels: {test} }} }}"));
        let text = format!("{{ tool: t, labels: {labels} }}");
        assert_eq!(verdict(&policy, &text) == "deny policy.denied", expected, "{test} on {labels}");
    }
}
