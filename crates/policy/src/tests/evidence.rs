//! Evidence for policy changes: back-tests, diffs, learned policies, and the smallest cover.

use serde_json::{Value, json};

use super::{call, policy, source};
use crate::{
    Class, Confidentiality, Cover, Integrity, Label, Past, PastCall, Replay, Tier, Trace, Verdict, diff, load,
};

fn recorded(at_ms: i64, agent: &str, tool: &str, verdict: &str, targets: Value) -> PastCall {
    PastCall {
        at_ms,
        session: "s".to_owned(),
        agent: agent.to_owned(),
        class: Class::Agent,
        op: "tool.run".to_owned(),
        tool: Some(tool.to_owned()),
        verdict: verdict.to_owned(),
        rule: None,
        code: None,
        tier: Tier::Host,
        args: json!({}),
        capabilities: Vec::new(),
        targets: serde_json::from_value(targets).expect("targets"),
    }
}

fn path(path: &str, access: &str) -> Value {
    json!([{"path": {"path": path, "access": access}}])
}

fn two_paths(from: &str, to: &str) -> Value {
    json!([{"path": {"path": from, "access": "read"}}, {"path": {"path": to, "access": "write"}}])
}

#[test]
fn a_back_test_counts_changed_verdicts() {
    let old = policy(
        "version: 1\nrules:\n  - { id: read, effect: allow, match: { tool: fs.read, path: '**' } }\n  - { id: write, effect: ask, match: { tool: fs.write } }",
    );
    let new = policy(
        "version: 1\nrules:\n  - { id: read-src, effect: allow, match: { tool: fs.read, path: 'src/**' } }\n  - { id: write-docs, effect: allow, match: { tool: fs.write, path: 'docs/**' } }\n  - { id: mail, effect: ask, match: { tool: mail } }",
    );
    let mut replay = Replay::new(old, new);
    let calls = [
        recorded(1, "ada", "fs.read", "allow", path("src/a", "read")),
        recorded(2, "ada", "fs.read", "allow", path("docs/a", "read")),
        recorded(3, "bob", "fs.read", "allow", path("docs/b", "read")),
        recorded(4, "ada", "fs.write", "ask", path("docs/a", "write")),
        recorded(5, "ada", "fs.write", "ask", path("src/a", "write")),
        recorded(6, "ada", "mail", "deny", json!([])),
        // It was approved and ran; the old policy asks again.
        recorded(7, "ada", "fs.write", "allow", path("docs/c", "write")),
    ];
    for (seq, call) in (0..).zip(&calls) {
        replay.call((0, seq), call);
    }
    let refused = recorded(8, "ada", "gone", "deny", json!([]));
    replay.call((0, 9), &PastCall { code: Some("tool.unknown".to_owned()), ..refused });
    let found = replay.finish();
    assert_eq!((found.calls, found.refused_anyway, found.not_reproduced), (8, 1, 1));
    assert_eq!((found.newly_allowed, found.newly_asked, found.newly_denied), (2, 1, 3));
    let first = &found.changes[0];
    assert_eq!(
        (&*first.agent, &*first.what, first.from, first.to, first.calls),
        ("ada", "fs.write", "ask", "allow", 2)
    );
    assert_eq!(first.rule.as_deref(), Some("write-docs"));
}

#[test]
fn a_back_test_follows_rates_and_rules_that_look_back() {
    let old = policy("version: 1\nrules: [{ id: all, effect: allow }]");
    let new = policy(
        "version: 1\nrules:\n  - { id: all, effect: allow, rate: 2/min }\n  - { id: stays, effect: deny, match: { tool: send }, after: { result: { min_confidentiality: secret } } }",
    );
    let mut replay = Replay::new(old, new);
    replay.call((0, 0), &recorded(0, "ada", "send", "allow", json!([])));
    replay.call((0, 1), &recorded(1, "bob", "fs.read", "allow", path("k", "read")));
    replay.outcome(
        (0, 1),
        Label { integrity: Integrity::File, confidentiality: Confidentiality::Secret },
        true,
    );
    replay.call((0, 2), &recorded(2, "bob", "send", "allow", json!([])));
    replay.call((0, 3), &recorded(3, "ada", "x", "allow", json!([])));
    replay.call((0, 4), &recorded(4, "ada", "x", "allow", json!([])));
    replay.call((0, 5), &recorded(90_000, "ada", "x", "allow", json!([])));
    let found = replay.finish();
    let rules: Vec<_> = found.changes.iter().map(|change| change.rule.clone().unwrap()).collect();
    assert_eq!((found.newly_denied, found.newly_allowed), (2, 0), "{found:#?}");
    assert!(rules.contains(&"stays".to_owned()) && rules.contains(&"all".to_owned()), "{rules:?}");
}

#[test]
fn a_diff_reports_who_gains_what() {
    let old = policy(
        "version: 1\nrules:\n  - { id: read, effect: allow, match: { tool: fs.read, path: 'src/**' } }\n  - { id: mail, effect: ask, match: { agent: ada, tool: mail } }\n  - { id: gone, effect: allow, match: { tool: x } }",
    );
    let new = policy(
        "version: 1\nrules:\n  - { id: read, effect: allow, match: { tool: fs.read, path: ['src/**', 'keys/**'] } }\n  - { id: mail, effect: allow, match: { agent: ada, tool: mail } }\n  - { id: web, effect: allow, match: { role: ops, tool: http.fetch, host: '*.example.com' } }",
    );
    let found = diff(&old, &new);
    assert_eq!(
        (found.added, found.removed, found.changed.len()),
        (vec!["user:web".into()], vec!["user:gone".into()], 2)
    );
    let gain =
        |wanted: &dyn Fn(&Value) -> bool| found.gains.iter().find(|shift| wanted(&shift.call)).cloned();
    let keys =
        gain(&|call| call["path"].as_str().is_some_and(|path| path.starts_with("keys"))).expect("a gain");
    assert_eq!((keys.from, keys.to, keys.rule.as_deref()), ("deny", "allow", Some("read")));
    let mail = gain(&|call| call["tool"] == "mail").expect("a gain");
    assert_eq!((&*mail.agent, mail.from, mail.to), ("ada", "ask", "allow"));
    assert!(gain(&|call| call["url"] == "https://any.example.com/").is_some());
    assert!(found.losses.iter().any(|shift| shift.call["tool"] == "x" && shift.to == "deny"));
    let same = diff(&old, &old);
    assert!(same.gains.is_empty() && same.losses.is_empty() && same.changed.is_empty());
}

#[test]
fn a_learned_policy_allows_only_recorded_calls() {
    let argv = json!([{"argv": ["/usr/bin/git", "status"]}]);
    let fetch = json!([{"endpoint": {"scheme": "https", "host": "api.example.com", "port": 443, "method": "GET", "path": "/"}}]);
    let done: Vec<PastCall> = ["a", "b", "c", "d", "e"]
        .iter()
        .map(|name| recorded(1, "ada", "fs.read", "allow", path(&format!("src/{name}"), "read")))
        .chain([
            recorded(1, "ada", "fs.read", "allow", path("docs/[odd]*", "read")),
            recorded(1, "ada", "process.exec", "allow", argv.clone()),
            recorded(1, "bob", "http.fetch", "allow", fetch),
            recorded(1, "bob", "think", "allow", json!([])),
            recorded(1, "ada", "fs.copy", "allow", two_paths("src/a", "out/a")),
            // The same tool without paths, and with a secret besides: each is a rule of its own.
            recorded(1, "bob", "http.fetch", "allow", json!([{"secret": "github/token"}])),
            recorded(
                1,
                "ada",
                "process.exec",
                "allow",
                json!([{"argv": ["/usr/bin/cat", "a"]}, {"path": {"path": "a", "access": "read"}}]),
            ),
            recorded(1, "bob", "evil", "deny", json!([])),
        ])
        .collect();
    let mut trace = Trace::default();
    done.iter().for_each(|call| trace.add(call));
    assert_eq!(trace.seen(), 12);
    let text = trace.policy();
    let learnt =
        load(&text, &source("learnt.yml")).unwrap_or_else(|error| panic!("{:#?}\n{text}", error.findings));
    let verdict = |call: &PastCall| {
        call.with_facts(Past::default(), crate::Rates::All(0), |facts| learnt.decide(facts).word())
    };
    for call in &done {
        assert_eq!(verdict(call), if call.what() == "evil" { "deny" } else { "allow" }, "{call:?}\n{text}");
    }
    for other in [
        recorded(1, "bob", "fs.read", "allow", path("src/a", "read")),
        recorded(1, "ada", "fs.read", "allow", path("src/deep/x", "read")),
        recorded(1, "ada", "fs.read", "allow", path("docs/oddity", "read")),
        recorded(1, "ada", "fs.write", "allow", path("src/a", "write")),
        recorded(1, "ada", "fs.copy", "allow", two_paths("src/a", "out/b")),
        recorded(1, "ada", "process.exec", "allow", json!([{"argv": ["/usr/bin/git", "push"]}])),
    ] {
        assert_eq!(verdict(&other), "deny", "{other:?}");
    }
    assert!(load(&Trace::default().policy(), &source("p")).is_ok());
}

#[test]
fn the_smallest_cover_is_an_exception_or_an_allow_rule() {
    let policy = policy(
        "version: 1\nrules:\n  - { id: read, effect: allow, match: { tool: fs.read } }\n  - { id: ask-net, effect: ask, match: { tool: http.fetch } }",
    );
    let fetch = call("{ tool: http.fetch, agent: ada, url: 'https://api.example.com/v1' }");
    let cover =
        fetch.with_facts(|facts| Cover::find(&policy, facts, &policy.decide(facts))).expect("it asks");
    assert_eq!(cover.exception_of.as_ref().map(|rule| &*rule.id), Some("ask-net"));
    // With the suggested lines, only this question disappears.
    let text = format!(
        "version: 1\nrules:\n  - {{ id: ask-net, effect: ask, match: {{ tool: http.fetch }}, unless: {c} }}\n  - {{ id: a, effect: allow, match: {c} }}",
        c = cover.conditions
    );
    let covered = super::policy(&text);
    assert_eq!(
        super::verdict(&covered, "{ tool: http.fetch, agent: ada, url: 'https://api.example.com/v1' }"),
        "allow"
    );
    assert_eq!(
        super::verdict(&covered, "{ tool: http.fetch, agent: bob, url: 'https://api.example.com/v1' }"),
        "ask"
    );
    assert_eq!(
        super::verdict(&covered, "{ tool: http.fetch, agent: ada, url: 'https://evil.test/' }"),
        "ask"
    );
    let endpoint = |host: &str| json!([{"endpoint": {"scheme": "https", "host": host, "port": 443, "method": "GET", "path": "/v1"}}]);
    assert!(cover.compiled().unwrap().covers(&recorded(
        1,
        "ada",
        "http.fetch",
        "ask",
        endpoint("api.example.com")
    )));
    assert!(!cover.compiled().unwrap().covers(&recorded(
        1,
        "ada",
        "http.fetch",
        "ask",
        endpoint("evil.test")
    )));
    let write = call("{ tool: fs.write, agent: ada, path: [a, b] }");
    let cover = write.with_facts(|facts| Cover::find(&policy, facts, &policy.decide(facts))).expect("denied");
    assert!(cover.exception_of.is_none() && cover.lines.contains("effect: allow"), "{}", cover.lines);
    let read = call("{ tool: fs.read, path: a }");
    assert!(read.with_facts(|facts| Cover::find(&policy, facts, &policy.decide(facts))).is_none());
    assert!(matches!(super::decide(&policy, "{ tool: fs.read, path: a }"), Verdict::Allow(_)));
}

#[test]
fn a_shadow_counts_and_decides_nothing() {
    let mut counted = crate::Tallied::default();
    let active = policy("version: 1\nrules: [{ id: a, effect: allow, match: { tool: [x, y] } }]");
    let candidate = policy(
        "version: 1\nrules: [{ id: a, effect: allow, match: { tool: x } }, { id: b, effect: ask, match: { tool: z } }]",
    );
    let both = active.clone().shadowed(candidate.clone(), candidate.digest());
    for tool in ["x", "y", "z", "w"] {
        let text = format!("{{ tool: {tool} }}");
        assert_eq!(super::verdict(&both, &text), super::verdict(&active, &text));
        call(&text).with_facts(|facts| {
            let (digest, contrast) = both.contrast(facts, &both.decide(facts)).unwrap();
            assert_eq!(digest, candidate.digest());
            counted.count(contrast);
            assert_eq!(active.contrast(facts, &active.decide(facts)), None);
        });
    }
    assert_eq!(
        (counted.judged, counted.newly_denied, counted.newly_asked, counted.newly_allowed),
        (4, 1, 1, 0)
    );
    assert_eq!(both.digest(), active.digest());
}

#[test]
fn a_tenants_policy_applies_only_to_its_agents() {
    let user = policy("version: 1\nrules: [{ id: all, effect: allow, match: { tool: [x, y] } }]");
    let acme =
        policy("version: 1\nagents: [acme, acme/*]\nrules: [{ id: x, effect: allow, match: { tool: x } }]");
    let both = crate::Policy::layered(user, Some(acme.clone()));
    assert_eq!(super::verdict(&both, "{ tool: y, agent: other }"), "allow");
    assert_eq!(super::verdict(&both, "{ tool: y, agent: acme }"), "deny policy.no_rule");
    assert_eq!(super::verdict(&both, "{ tool: x, agent: acme/child }"), "allow");
    // Alone, it grants nothing to others.
    assert_eq!(super::verdict(&acme, "{ tool: x, agent: other }"), "deny policy.no_rule");
}
