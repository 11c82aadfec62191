//! Rule bodies and whole files in other languages.

use super::source;
#[cfg(any(feature = "rego", feature = "cedar"))]
use super::{policy, verdict};
use crate::load;

#[cfg(not(feature = "rego"))]
#[test]
fn a_disabled_rego_body_is_a_load_error() {
    let text = "version: 1\nrules: [{ id: a, effect: deny, rego: 'true' }]";
    let found = load(text, &source("p.yml")).expect_err("no Rego").findings;
    assert!(found.iter().any(|finding| finding.message.contains("has no Rego")), "{found:#?}");
    assert!(load("package x\nallow := true", &source("p.rego")).is_err());
}

#[cfg(not(feature = "cedar"))]
#[test]
fn a_disabled_cedar_body_is_a_load_error() {
    let text = "version: 1\nrules: [{ id: a, effect: deny, cedar: 'permit(principal, action, resource);' }]";
    assert!(load(text, &source("p.yml")).is_err());
    assert!(load("permit(principal, action, resource);", &source("p.cedar")).is_err());
}

#[cfg(feature = "rego")]
#[test]
fn a_rego_body_is_one_more_condition() {
    let policy = policy(
        r#"
version: 1
rules:
  - id: small
    effect: allow
    match: { tool: pay }
    rego: |
      input.args.amount < 100
      input.agent == "ada"
  - id: module
    effect: deny
    match: { tool: pay }
    rego: |
      package x
      import rego.v1
      default match := false
      match if { some word in input.args.words; word == "evil" }
  - { id: strange, effect: deny, match: { tool: odd }, rego: 'input.args.n + "x" == 1' }
  - { id: strange-too, effect: allow, match: { tool: odd }, rego: 'input.args.n + "x" == 1' }
"#,
    );
    let cases = [
        ("{ tool: pay, agent: ada, args: { amount: 5 } }", "allow"),
        ("{ tool: pay, agent: ada, args: { amount: 500 } }", "deny policy.no_rule"),
        ("{ tool: pay, agent: bob, args: { amount: 5 } }", "deny policy.no_rule"),
        ("{ tool: pay, agent: ada, args: {} }", "deny policy.no_rule"),
        ("{ tool: pay, agent: ada, args: { amount: 5, words: [ok, evil] } }", "deny policy.denied"),
        // An evaluation error makes a deny match and an allow not match.
        ("{ tool: odd, args: { n: 1 } }", "deny policy.denied"),
    ];
    for (text, expected) in cases {
        assert_eq!(verdict(&policy, text), expected, "{text}");
    }
    for body in ["this is no rego (", "package x\\nallow := true", "http.send({})"] {
        let text = format!("version: 1\nrules: [{{ id: a, effect: allow, rego: \"{body}\" }}]");
        assert!(load(&text, &source("p.yml")).is_err(), "{body}");
    }
}

#[cfg(feature = "rego")]
#[test]
fn a_rego_file_allows_asks_and_denies() {
    let text = r#"package agents
import rego.v1
allow if input.tool == "fs.read"
allow if input.tool == "mail"
ask if input.tool == "mail"
deny contains "outside" if { some file in input.paths; startswith(file.path, "/") }
"#;
    let policy = load(text, &source("p.rego")).unwrap_or_else(|error| panic!("{error}"));
    let cases = [
        ("{ tool: fs.read, path: a }", "allow"),
        ("{ tool: fs.read, path: /etc/passwd }", "deny policy.denied"),
        ("{ tool: mail }", "ask"),
        ("{ tool: other }", "deny policy.no_rule"),
    ];
    for (text, expected) in cases {
        assert_eq!(verdict(&policy, text), expected, "{text}");
    }
    assert!(load("package x\nimport rego.v1\nother if true", &source("p.rego")).is_err());
}

#[cfg(feature = "cedar")]
#[test]
fn a_cedar_file_is_one_rule_for_each_statement() {
    let text = r#"// Who may do what.
@id("ada-reads")
permit(principal == Agent::"ada", action == Action::"fs.read", resource)
when { context.args.path like "src/*" };
permit(principal, action in [Action::"mail", Action::"pay"], resource) unless { context.trust < 300 };
forbid(principal, action, resource == File::"src/secret");
forbid(principal, action == Action::"pay", resource) when { context.args.amount > 100 };
"#;
    let policy = load(text, &source("p.cedar")).unwrap_or_else(|error| panic!("{error}"));
    let cases = [
        ("{ tool: fs.read, agent: ada, path: src/a }", "allow"),
        ("{ tool: fs.read, agent: ada, path: docs/a }", "deny policy.no_rule"),
        ("{ tool: fs.read, agent: bob, path: src/a }", "deny policy.no_rule"),
        ("{ tool: fs.read, agent: ada, path: src/secret }", "deny policy.denied"),
        // Every touched resource must be permitted, and any may be forbidden.
        ("{ tool: fs.read, agent: ada, path: [src/a, src/secret] }", "deny policy.denied"),
        ("{ tool: mail, agent: x }", "allow"),
        ("{ tool: mail, agent: x, trust: 200 }", "deny policy.no_rule"),
        ("{ tool: pay, args: { amount: 5 } }", "allow"),
        ("{ tool: pay, args: { amount: 500 } }", "deny policy.denied"),
        // A forbid with an evaluation error matches.
        ("{ tool: pay, args: {} }", "deny policy.denied"),
        ("{ tool: pay, args: { amount: 1.5 } }", "deny policy.denied"),
        // Escapes of another language in the arguments: a rule that examines them can't be evaluated. Other rules are unaffected.
        (
            "{ tool: pay, args: { amount: 5, to: { __entity: { type: Agent, id: ada } } } }",
            "deny policy.denied",
        ),
        ("{ tool: mail, args: { to: { __entity: { type: Agent, id: ada } } } }", "allow"),
        ("{ tool: mail, secret: aws }", "deny policy.no_rule"),
    ];
    for (text, expected) in cases {
        assert_eq!(verdict(&policy, text), expected, "{text}");
    }
    let super::Verdict::Allow(grant) = super::decide(&policy, "{ tool: fs.read, agent: ada, path: src/a }")
    else {
        panic!("allowed")
    };
    let rule = grant.rule.unwrap();
    assert_eq!((&*rule.id, rule.line), ("ada-reads", 3));
    for text in ["", "permit(", "permit(principal == ?principal, action, resource);"] {
        assert!(load(text, &source("p.cedar")).is_err(), "{text}");
    }
}

#[cfg(feature = "cedar")]
#[test]
fn a_cedar_body_is_one_more_condition() {
    let policy = policy(
        "version: 1\nrules:\n  - { id: a, effect: allow, match: { tool: x }, cedar: 'permit(principal, action, resource) when { context.args.n < 5 };' }",
    );
    assert_eq!(verdict(&policy, "{ tool: x, args: { n: 1 } }"), "allow");
    assert_eq!(verdict(&policy, "{ tool: x, args: { n: 7 } }"), "deny policy.no_rule");
    assert_eq!(verdict(&policy, "{ tool: x, args: { n: '1' } }"), "deny policy.no_rule");
}
