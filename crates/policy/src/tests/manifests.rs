//! Active ACS manifests: where each point is evaluated, what each verdict becomes, and that everything else is denied.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{CallSketch, Confidentiality, Layer, Policy, Source, Verdict, load};

/// Returns the verdict that the target contains: `say: deny` in a tool's arguments denies.
const ECHO: &str = r#"
package acs
import rego.v1
default verdict := {"decision": "allow"}
target := input.policy_target.value
verdict := target.say if is_object(target.say)
verdict := {"decision": "deny", "reason": "not_this", "message": target.text} if contains(target.text, "forbidden")
verdict := {"decision": "transform", "transform": {"path": "$policy_target.text", "value": "masked"}} if contains(target.text, "maskme")
"#;

fn manifest(points: &[(&str, &str)]) -> String {
    let mut text = String::from(
        "agent_control_specification_version: 0.3.1-beta\npolicies:\n  p: { type: rego, bundle: ./rules, query: data.acs.verdict }\n\
         tools:\n  pay: { clearance: internal }\n  read: {}\nintervention_points:\n",
    );
    for (point, target) in points {
        let tool = if point.contains("tool") { ", tool_name_from: $.tool_call.name" } else { "" };
        text.push_str(&format!("  {point}: {{ policy_target: {target}, policy: {{ id: p }}{tool} }}\n"));
    }
    text
}

const ALL: &[(&str, &str)] = &[
    ("agent_startup", "$.agent"),
    ("input", "$.input"),
    ("pre_model_call", "$.model_request"),
    ("post_model_call", "$.model_response"),
    ("pre_tool_call", "$.tool_call.args"),
    ("post_tool_call", "$.tool_result"),
    ("output", "$.output"),
    ("agent_shutdown", "$.agent"),
];

fn files() -> BTreeMap<String, String> {
    BTreeMap::from([("rules/a.rego".to_owned(), ECHO.to_owned())])
}

fn policy(points: &[(&str, &str)], layer: Layer) -> Policy {
    let source = Source::new("acs.yml", layer).beside(files());
    load(&manifest(points), &source).unwrap_or_else(|error| panic!("{error}"))
}

fn ask(policy: &Policy, call: Value) -> Verdict {
    CallSketch::parse(&call.to_string()).unwrap().with_facts(|facts| policy.decide(facts))
}

/// A verdict in short: its word, with rule and code if any.
fn word(policy: &Policy, call: Value) -> String {
    match ask(policy, call) {
        Verdict::Allow(grant) => {
            let warned = grant.warnings.first().map(|reason| format!(", warned: {}", reason.message));
            format!("allow{}", warned.unwrap_or_default())
        }
        Verdict::Ask(question) => format!("ask by {}: {}", question.rule.id, question.reason),
        Verdict::Deny(reason) => format!("deny {}: {}", reason.code, reason.message),
    }
}

#[test]
fn the_five_verdicts_map_to_policy_verdicts() {
    let policy = policy(ALL, Layer::User);
    let pay = |say: Value| json!({"tool": "pay", "agent": "ada", "args": {"say": say, "text": "t"}});
    let cases = [
        (json!({"decision": "allow"}), "allow"),
        (json!({"decision": "warn", "message": "careful"}), "allow, warned: careful"),
        (json!({"decision": "escalate", "message": "sure?"}), "ask by acs.pre_tool_call: sure?"),
        (json!({"decision": "deny", "reason": "too_much"}), "deny policy.manifest: pre_tool_call: too_much"),
        (
            json!({"decision": "maybe"}),
            "deny policy.manifest: pre_tool_call: runtime_error:policy_output_invalid",
        ),
        (
            json!({"decision": "allow", "effects": []}),
            "deny policy.manifest: pre_tool_call: runtime_error:policy_output_invalid",
        ),
        (
            json!({"decision": "transform", "transform": {"path": "$snap.tool_call.name", "value": "read"}}),
            "deny policy.manifest: pre_tool_call: runtime_error:transform_target_forbidden",
        ),
    ];
    for (say, expected) in cases {
        assert_eq!(word(&policy, pay(say.clone())), expected, "{say}");
    }
    let Verdict::Allow(grant) = ask(
        &policy,
        pay(json!({"decision": "transform",
        "transform": {"path": "$policy_target.text", "value": "u"}, "result_labels": ["confidential"]})),
    ) else {
        panic!("not allowed")
    };
    let mut args = json!({"say": 1, "text": "t"});
    assert!(grant.transforms.iter().all(|one| one.apply(&mut args)));
    assert_eq!(args, json!({"say": 1, "text": "u"}));
    assert_eq!(grant.result, Some(Confidentiality::Private), "labels of what comes back are kept");
}

#[test]
fn each_point_before_a_call_gets_its_own_target() {
    let policy = policy(ALL, Layer::User);
    let infer = |text: &str, other: &str| {
        let turn = |role: &str, text: &str| json!({"role": role, "text": text});
        json!({"op": "model.infer", "args": {"model": "m", "tokens_max": 1,
            "messages": [turn("user", text), turn("assistant", other)], "text": other}})
    };
    let in_parts = |parts: Value| json!({"op": "model.infer", "args": {"model": "m", "tokens_max": 1, "messages": [{"role": "user", "parts": parts}]}});
    let cases = [
        (json!({"op": "request.begin", "args": {"begin": {"request": "forbidden"}}}), "input: forbidden"),
        (infer("forbidden", "x"), "input: forbidden"),
        (
            in_parts(json!([{"type": "text", "text": "for"}, {"type": "text", "text": "bidden"}])),
            "input: forbidden",
        ),
        (json!({"op": "agent.spawn", "args": {"text": "forbidden"}}), "agent_startup: forbidden"),
        (json!({"tool": "pay", "args": {"text": "forbidden"}}), "pre_tool_call: forbidden"),
        (json!({"tool": "other", "args": {}}), "pre_tool_call: runtime_error:tool_unknown"),
        (json!({"tool": "pay", "secret": "key", "args": {}}), "no rule of the user policy allows"),
    ];
    for (call, expected) in cases {
        let said = word(&policy, call.clone());
        assert!(said.starts_with("deny ") && said.contains(expected), "{call}: {said}");
    }
    for call in [
        json!({"op": "request.begin", "args": {"begin": {"request": "fine"}}}),
        infer("fine", "forbidden"),
        json!({"op": "agent.spawn", "args": {"name": "a"}}),
        json!({"op": "agent.exit", "args": {"code": 0}}),
        json!({"op": "memory.recall", "args": {}}),
    ] {
        assert_eq!(word(&policy, call.clone()), "allow", "{call}");
    }
    let masked = word(&policy, infer("maskme", "x"));
    assert!(masked.contains("transform_target_forbidden"), "what can't be changed here is denied: {masked}");
}

#[test]
fn a_missing_point_denies() {
    let only_input = policy(&[("input", "$.input")], Layer::User);
    for call in [json!({"tool": "pay", "args": {}}), json!({"op": "model.infer", "args": {"messages": []}})] {
        let said = word(&only_input, call.clone());
        assert!(said.contains("runtime_error:intervention_point_unknown"), "{call}: {said}");
    }
    assert_eq!(word(&only_input, json!({"op": "agent.spawn", "args": {}})), "allow");
    // A missing target is no reason to allow.
    let elsewhere = policy(&[("pre_tool_call", "$.tool_call.args.deep.inside")], Layer::User);
    assert!(word(&elsewhere, json!({"tool": "pay", "args": {}})).contains("runtime_error:path_missing"));
}

#[test]
fn outputs_are_transformed_or_withheld() {
    let policy = policy(ALL, Layer::User);
    let review = |call: Value, output: &str, failure: Option<&str>| {
        let mut bytes = output.as_bytes().to_vec();
        let sketch = CallSketch::parse(&call.to_string()).unwrap();
        let said = sketch.with_facts(|facts| policy.review(facts, &mut bytes, failure));
        (said.map_err(|reason| reason.code), String::from_utf8(bytes).unwrap())
    };
    let read = || json!({"tool": "read", "args": {}});
    let (said, bytes) = review(read(), r#"{"text":"fine"}"#, None);
    assert!(said.is_ok() && bytes == r#"{"text":"fine"}"#);
    let (said, bytes) = review(read(), r#"{"text":"maskme","n":1}"#, None);
    assert!(said.is_ok());
    assert_eq!(serde_json::from_str::<Value>(&bytes).unwrap(), json!({"text": "masked", "n": 1}));
    assert_eq!(review(read(), r#"{"text":"forbidden"}"#, None).0, Err("policy.withheld".into()));
    let escalated = r#"{"say":{"decision":"escalate"}}"#;
    assert_eq!(
        review(read(), escalated, None).0,
        Err("policy.withheld".into()),
        "there is no question after the call"
    );
    let labelled = r#"{"say":{"decision":"allow","result_labels":["odd"]}}"#;
    assert_eq!(review(read(), labelled, None).0.unwrap().confidentiality, Some(Confidentiality::Secret));
    assert!(review(read(), "plain text", None).0.is_ok());
    let infer = || json!({"op": "model.infer", "args": {"messages": []}});
    let answer = |text: &str, calls: Value| {
        json!({"model": "m", "message": {"role": "assistant", "text": text, "calls": calls}, "stop": "end", "usage": {}}).to_string()
    };
    let call = json!([{"id": "1", "tool": "read", "args": {}}]);
    assert!(review(infer(), &answer("fine", call.clone()), None).0.is_ok());
    let (said, bytes) = review(infer(), &answer("maskme", json!([])), None);
    assert!(said.is_ok());
    assert_eq!(serde_json::from_str::<Value>(&bytes).unwrap()["message"]["text"], "masked", "the output");
    let (said, bytes) = review(infer(), &answer("maskme", call), None);
    assert!(said.is_ok() && bytes.contains("maskme"), "not the last word, and the response has no `text`");
    assert_eq!(review(infer(), &answer("forbidden", json!([])), None).0, Err("policy.withheld".into()));

    let in_parts = |text: &str, call: Option<Value>| {
        let thought =
            json!({"type": "reasoning", "provider": "p", "model": "m", "text": "maskme", "opaque": {}});
        let said = json!({"type": "text", "text": text});
        let parts: Vec<Value> = [thought, said].into_iter().chain(call).collect();
        json!({"model": "m", "message": {"role": "assistant", "parts": parts}, "stop": "end", "usage": {}})
            .to_string()
    };
    let call = json!({"type": "tool_use", "id": "1", "tool": "read", "args": {}});
    let (said, bytes) = review(infer(), &in_parts("maskme", None), None);
    let masked = json!({"role": "assistant", "text": "masked"});
    assert!(said.is_ok());
    assert_eq!(serde_json::from_str::<Value>(&bytes).unwrap()["message"], masked, "and no thought of it");
    let (said, bytes) = review(infer(), &in_parts("maskme", Some(call)), None);
    assert!(said.is_ok() && bytes.contains("maskme"), "not the last word");
    assert_eq!(review(infer(), &in_parts("forbidden", None), None).0, Err("policy.withheld".into()));
}

#[test]
fn a_projects_manifest_only_narrows() {
    let user = load(
        "version: 1\nrules:\n  - { id: all, effect: allow, match: { tool: read } }\n",
        &Source::new("u", Layer::User),
    );
    let both = Policy::layered(user.unwrap(), Some(policy(ALL, Layer::Project)));
    assert_eq!(word(&both, json!({"tool": "read", "args": {}})), "allow");
    assert!(word(&both, json!({"tool": "pay", "args": {}})).starts_with("deny policy.no_rule"));
    assert!(
        word(&both, json!({"tool": "read", "args": {"text": "forbidden"}}))
            .starts_with("deny policy.manifest")
    );
    let control_file = json!({"tool": "read", "path": ".regent/policy.yml", "access": "write", "args": {}});
    assert!(word(&policy(ALL, Layer::User), control_file).starts_with("deny policy.denied"));
}

#[test]
fn unsupported_manifest_features_are_load_errors() {
    let whole = manifest(&[("pre_tool_call", "$.tool_call.args")]);
    let cases = [
        (whole.replace("0.3.1-beta", "0.9.0"), "unknown version"),
        (whole.replace("type: rego, bundle: ./rules,", "type: rego,"), "no `bundle`"),
        (whole.replace("./rules", "../rules"), "no `bundle`"),
        (whole.replace("./rules", "./empty"), "without Rego"),
        (whole.replace("bundle: ./rules", "bundle_url: { url: x }"), "bundle_url"),
        (whole.replace("data.acs.verdict", "data.acs.none"), "no rule `none`"),
        (whole.replace("data.acs.verdict", "1 == 1"), "not a rule path"),
        (whole.replace("type: rego", "type: test"), "for tests only"),
        (whole.replace("type: rego", "type: custom, adapter: other"), "unknown adapter"),
        (whole.replace("tools:", "extends: [base.yml]\ntools:"), "`extends` is not supported"),
        (whole.replace("tools:", "approval: { on_timeout: allow }\ntools:"), "without an answer is denied"),
        (whole.replace("tools:", "surprise: 1\ntools:"), "unknown key"),
        (
            whole
                .replace("tools:", "annotators: { pii: { type: classifier } }\ntools:")
                .replace("policy: {", "annotations: { pii: { from: $policy_target } }, policy: {"),
            "needs the annotator `pii`",
        ),
    ];
    for (text, expected) in cases {
        let source = Source::new("acs.yml", Layer::User).beside(files());
        let error = load(&text, &source).unwrap_err().findings.first().unwrap().message.clone();
        assert!(error.contains(expected), "{text}\n{error}");
    }
    let inline = whole.replace(
        "type: rego, bundle: ./rules,",
        "type: custom, adapter: regent/rego, source: \"package acs\\nverdict := {\\\"decision\\\": \\\"allow\\\"}\",",
    );
    let policy = load(&inline, &Source::new("acs.yml", Layer::User)).unwrap();
    assert_eq!(word(&policy, json!({"tool": "pay", "args": {}})), "allow");
}

#[test]
fn the_digest_of_a_manifest_covers_its_files() {
    let text = manifest(ALL);
    let of = |rules: &str| {
        let files = BTreeMap::from([("rules/a.rego".to_owned(), rules.to_owned())]);
        load(&text, &Source::new("acs.yml", Layer::User).beside(files)).unwrap().digest()
    };
    assert_ne!(of(ECHO), of(&format!("{ECHO}\n# other\n")));
    assert_eq!(crate::acs::Manifest::load(&text).unwrap().refers_to(), ["rules"]);
}

#[test]
fn detects_differences_between_manifests() {
    let text = manifest(&[("pre_tool_call", "$.tool_call.args")]);
    let of = |rules: &str| {
        let files = BTreeMap::from([("rules/a.rego".to_owned(), rules.to_owned())]);
        load(&text, &Source::new("acs.yml", Layer::User).beside(files)).unwrap()
    };
    let never = "package acs\nverdict := {\"decision\": \"deny\"}\n";
    let found = crate::diff(&of(ECHO), &of(never));
    assert_eq!(found.changed, ["user:acs.pre_tool_call"]);
    assert!(
        found.losses.iter().any(|shift| shift.call["tool"] == "pay") && found.gains.is_empty(),
        "{found:?}"
    );
    assert_eq!(crate::diff(&of(ECHO), &of(ECHO)).changed, Vec::<String>::new());
}
