//! `governance.toolkit/v1` files load unchanged and with their meaning.

use super::{decide, source, verdict};
use crate::{Policy, Verdict, codes, load};

fn file(text: &str) -> Policy {
    load(text, &source("policy.yaml")).unwrap_or_else(|error| panic!("{:#?}\n{text}", error.findings))
}

const POLICY: &str = r#"
apiVersion: governance.toolkit/v1
version: "1.0"
name: production-policy
default_action: deny
rules:
  - name: block-destructive
    condition: "action.type in ['drop', 'delete', 'truncate']"
    action: deny
    priority: 100
    description: "Destructive operations require human approval"
  - name: approve-send
    condition: "tool_name == 'send_email' and not (args.to ends_with '@example.com')"
    action: require_approval
    approvers: ["security-team"]
    priority: 50
  - name: send
    condition: { field: tool_name, operator: eq, value: send_email }
    action: allow
    priority: 10
  - name: big
    condition: "tool_name == 'pay' and amount >= 1000"
    action: deny
    priority: 20
  - name: pay
    condition: "tool_name == 'pay' and (agent_id == 'ada' or trust_score > 800)"
    action: warn
    message: money moves
    limit: "5/hour"
    priority: 10
  - name: off
    condition: "true"
    action: allow
    enabled: false
  - name: shell
    condition: { field: action, operator: matches, value: "^shell[.:](ls|git)$" }
    action: allow
"#;

#[test]
fn a_toolkit_policy_loads_as_it_is() {
    let policy = file(POLICY);
    let cases = [
        ("{ tool: drop }", "deny policy.denied"),
        ("{ tool: send_email, args: { to: a@example.com } }", "allow"),
        ("{ tool: send_email, args: { to: a@evil.test } }", "ask"),
        ("{ tool: send_email, args: {} }", "ask"),
        ("{ tool: pay, agent: ada, args: { amount: 5 } }", "allow"),
        ("{ tool: pay, agent: ada, args: { amount: 5000 } }", "deny policy.denied"),
        ("{ tool: pay, agent: bob, args: { amount: 5 } }", "deny policy.no_rule"),
        ("{ tool: pay, agent: bob, trust: 900, args: { amount: 5 } }", "allow"),
        ("{ tool: 'shell:ls' }", "allow"),
        ("{ tool: 'shell:rm' }", "deny policy.no_rule"),
        ("{ tool: other }", "deny policy.no_rule"),
        ("{ tool: fs.write, path: .git/config }", "deny policy.denied"),
        ("{ op: agent.exit }", "allow"),
    ];
    for (text, expected) in cases {
        assert_eq!(verdict(&policy, text), expected, "{text}");
    }
    let Verdict::Allow(grant) = decide(&policy, "{ tool: pay, agent: ada, args: { amount: 5 } }") else {
        panic!("allowed")
    };
    assert_eq!((&*grant.warnings[0].code, &*grant.warnings[0].message), (codes::WARNED, "money moves"));
    assert_eq!(grant.charges[0].limit, 5);
    // A missing priority comes last, and the first rule in the file wins a tie.
    let open = file(
        "apiVersion: governance.toolkit/v1\nagents: [ada]\ndefault_action: allow\nrules:\n  - { name: a, condition: \"message == 'show me the secret'\", action: deny }",
    );
    assert_eq!(verdict(&open, "{ tool: x, agent: ada, args: { message: hi } }"), "allow");
    assert_eq!(
        verdict(&open, "{ tool: x, agent: ada, args: { message: show me the secret } }"),
        "deny policy.denied"
    );
    assert_eq!(verdict(&open, "{ tool: x, agent: bob, args: { message: hi } }"), "deny policy.denied");
}

#[test]
fn mistakes_in_a_toolkit_policy_are_errors() {
    let rule = |rest: &str| format!("apiVersion: governance.toolkit/v1\nrules:\n  - {{ name: a, {rest} }}");
    let cases = [
        (rule("action: deny"), "no `condition`"),
        (rule("condition: 'true'"), "no `action`"),
        (rule("condition: 'true', action: maybe"), "unknown action"),
        (rule("condition: 'tool_name ==', action: deny"), "ends too early"),
        (rule("condition: 'tool_name = 1', action: deny"), "unexpected"),
        (rule("condition: 'governance.failed', action: deny"), "is not a field"),
        (rule("condition: 'true', action: deny, stage: post_tool"), "can't be evaluated before"),
        (rule("condition: { field: tool, operator: almost, value: x }, action: deny"), "unexpected"),
        (rule("condition: \"tool matches '('\", action: deny"), "regular expression"),
        (rule("condition: 'true', action: deny, when: now"), "unknown key `when`"),
        ("apiVersion: governance.toolkit/v2\nrules: []".to_owned(), "unknown version"),
        ("apiVersion: governance.toolkit/v1\nspec: {}".to_owned(), "unknown key `spec`"),
    ];
    for (text, message) in cases {
        let found = load(&text, &source("p.yml")).expect_err(&text).findings;
        assert!(found.iter().any(|finding| finding.message.contains(message)), "{text}: {found:#?}");
    }
    let deep = format!("{}true{}", "(".repeat(40), ")".repeat(40));
    assert!(load(&rule(&format!("condition: '{deep}', action: allow")), &source("p.yml")).is_err());
}
