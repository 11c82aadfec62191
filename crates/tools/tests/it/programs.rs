//! `process.list` and `process.kill`: programs that run as calls.

use std::sync::Arc;
use std::time::Duration;

use regent_kernel::{
    BoxFuture, Driver, ExecuteError, Executor, Op, Permit, Principal, RawOutput, Reply, Status, ToolCall,
    tier,
};
use regent_tools::Network;
use serde_json::{Value, json};

use super::world::ToolsFixture;

const OPEN: &str = "version: 1\nmode: permissive\n";

/// A program that runs until it is stopped.
struct Endless;

impl Executor<tier::Process> for Endless {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Process>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            permit.cancelled().await;
            Ok(RawOutput::new(Vec::new()))
        })
    }
}

async fn listed(world: &ToolsFixture, who: &Principal) -> Vec<Value> {
    let heard = world.call_as(who, "process.list", json!({})).await;
    assert_eq!(heard.how, "ok", "{}", heard.message);
    let found: Value = serde_json::from_slice(&heard.output).unwrap();
    assert!(found.get("processes").is_none(), "the machine's processes are the operator's");
    found["programs"].as_array().unwrap().clone()
}

#[tokio::test]
async fn only_the_responsible_caller_ends_a_program() {
    let programs = Driver::process(Some(Arc::new(Endless)), None);
    let world = ToolsFixture::with_programs(OPEN, Network::default(), Vec::new(), programs).await;
    let person = world.kernel.operator();
    let (parent, stranger) = (world.agent(&person, "parent").await, world.agent(&person, "stranger").await);
    let child = world.agent(&parent, "child").await;
    for killer in [&child, &parent, &person] {
        let op =
            Op::RunTool(ToolCall { tool: "process.exec".to_owned(), args: json!({"argv": ["sleep", "9"]}) });
        let (kernel, runner) = (world.kernel.kernel(), child.clone());
        let running = tokio::spawn(async move { kernel.syscall(&runner, op).await.unwrap() });
        let call = loop {
            match listed(&world, &child).await.as_slice() {
                [one] => break one["call"].as_u64().unwrap(),
                _not_yet => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        assert_eq!(listed(&world, &parent).await.len(), 1);
        assert_eq!(listed(&world, &parent).await[0]["caller"], "parent/child");
        assert!(listed(&world, &stranger).await.is_empty());
        for (who, call) in [(&stranger, call), (&child, call + 1_000), (&person, 0)] {
            let refused = world.call_as(who, "process.kill", json!({"call": call})).await;
            assert_eq!(refused.how, "failed process.unknown_call");
        }
        let killed = world.call_as(killer, "process.kill", json!({"call": call})).await;
        assert_eq!(killed.how, "ok", "{}", killed.message);
        let Reply::Done(outcome) = running.await.unwrap() else { panic!("not done") };
        assert_eq!(outcome.status, Status::Cancelled);
        assert!(listed(&world, &parent).await.is_empty());
    }
    // A call that runs no program is none, whatever its number.
    let own = world.call_as(&child, "process.kill", json!({"call": 1})).await;
    assert_eq!(own.how, "failed process.unknown_call");
}
