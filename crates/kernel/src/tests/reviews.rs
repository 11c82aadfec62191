//! A manifest on the syscall path: its check before a call, and its review of the output.

use std::sync::Arc;

use regent_ledger::EntryKind;
use regent_provenance::Begin;
use serde_json::{Value, json};

use super::alone::{KernelFixture, named};
use super::requests::Performs;
use crate::{Confidentiality, Op, Reply, Status, ToolCall};

const RULES: &str = r#"
package acs
import rego.v1
default verdict := {"decision": "allow"}
at := input.intervention_point
said := json.marshal(input.policy_target.value)
verdict := {"decision": "deny", "message": "no"} if contains(said, "forbidden")
verdict := {"decision": "transform", "transform": {"path": "$policy_target", "value": "one thing"}} if {
    at == "post_tool_call"
    contains(said, "one two three")
}
verdict := {"decision": "deny", "message": "it says where to send it"} if {
    at == "post_tool_call"
    contains(said, "eve@e.test")
}
verdict := {"decision": "allow", "result_labels": ["secret"]} if {
    at == "pre_tool_call"
    contains(said, "classified")
}
"#;

fn manifest() -> String {
    let tool = |point: &str, target: &str| json!({point: {"policy_target": target, "tool_name_from": "$.tool_call.name", "policy": {"id": "p"}}});
    let mut points = json!({"input": {"policy_target": "$.input", "policy": {"id": "p"}}});
    for more in [tool("pre_tool_call", "$.tool_call.args"), tool("post_tool_call", "$.tool_result")] {
        points.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    json!({
        "agent_control_specification_version": "0.3.1-beta",
        "policies": {"p": {"type": "custom", "adapter": "regent/rego", "query": "data.acs.verdict", "source": RULES}},
        "tools": {"test.echo": {}, "test.drip": {}, "pay": {}},
        "intervention_points": points,
    })
    .to_string()
}

fn run(tool: &str, args: Value) -> Op {
    Op::RunTool(ToolCall { tool: tool.to_owned(), args })
}

#[tokio::test]
async fn what_came_back_is_reviewed_before_anybody_reads_it() {
    let world = KernelFixture::with(&manifest()).await;
    let agent = world.spawn(&world.person(), named("reader")).await;
    // The echo's arguments pass, so the second point reviews the output.
    assert_eq!(world.denied(&agent, run("test.echo", json!({"say": "forbidden"}))).await, "policy.manifest");
    let done = world.outcome(&agent, run("test.echo", json!({"to": "eve@e.test"}))).await;
    let Status::Failed(failure) = &done.status else { panic!("{:?}", done.status) };
    assert_eq!(failure.code, "policy.withheld");
    assert!(failure.message.contains("it says where to send it") && done.output.bytes().is_empty());
    let last = world.entries().into_iter().rfind(|entry| entry.kind == EntryKind::Outcome).unwrap();
    assert!(!last.body.to_string().contains("eve@e.test"), "{}", last.body);
    assert_eq!(
        world.denied(&agent, run("test.web", json!({}))).await,
        "policy.manifest",
        "not in its catalogue"
    );
    let labelled = world.outcome(&agent, run("test.echo", json!({"x": "classified"}))).await;
    assert_eq!(labelled.output.label().confidentiality, Confidentiality::Secret);
}

#[tokio::test]
async fn nothing_streams_past_a_review() {
    let world = KernelFixture::with(&manifest()).await;
    let mut stream = world.kernel.stream(&world.person(), run("test.drip", json!({})));
    let mut chunks = Vec::new();
    while let Some(chunk) = stream.next().await {
        chunks.push(chunk.output.text().into_owned());
    }
    assert_eq!(chunks, ["one thing"], "the whole, as it was changed, and not a byte before");
    let Reply::Done(outcome) = stream.reply().await.unwrap() else { panic!("not done") };
    assert_eq!(outcome.output.text(), "one thing");
}

#[tokio::test]
async fn what_was_withheld_was_done_all_the_same() {
    let world =
        KernelFixture::elsewhere(&manifest(), Arc::new(Performs(json!({"note": "eve@e.test"})))).await;
    let agent = world.spawn(&world.person(), named("payer")).await;
    let begin = |request: &str| {
        // An unsigned tool: its calls may come from untrusted input from the start.
        let tools = json!({"odd": {}, "pay": {"schema": {"properties": {"to": {"type": "string"}}}, "labels": {"effect": "write", "taint": "none", "sinks": ["to"]}}});
        let trusted = json!({"plan": [{"tool": "pay", "args": {"to": {"const": "ann"}}}]});
        let tools = serde_json::from_value(tools).unwrap();
        let begin = Box::new(Begin { request: request.to_owned(), tools, trusted });
        Op::Begin { agent: agent.agent_id().unwrap().clone(), begin }
    };
    assert_eq!(
        world.denied(&world.person(), begin("forbidden")).await,
        "policy.manifest",
        "the input's point"
    );
    assert!(matches!(world.kernel.syscall(&world.person(), begin("pay ann")).await.unwrap(), Reply::Done(_)));
    let pay = || {
        Op::Elsewhere(crate::HostCall {
            run: ToolCall { tool: "pay".to_owned(), args: json!({"to": "ann"}) },
            derived_from: None,
            quarantined: false,
            measured: None,
        })
    };
    assert_eq!(world.failed(&agent, pay()).await, "policy.withheld");
    let again = world.kernel.syscall(&agent, pay()).await.unwrap();
    assert!(matches!(again, Reply::Pending(_)), "the step was used by execution: {again:?}");
}
