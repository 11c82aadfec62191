//! `process.list` and `process.kill`: programs that run as calls.

use std::sync::Arc;
use std::time::Duration;

use regent_kernel::{
    BoxFuture, Credential, Driver, ExecuteError, Executor, Op, Permit, PersonRole, Principal, RawOutput,
    Reply, Status, Subject, Token, TokenSpec, ToolCall, tier,
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

/// Somebody who comes with a token.
async fn caller(world: &ToolsFixture, subject: Subject) -> Principal {
    let token = Token::generate().unwrap();
    let spec = TokenSpec { id: token.id().clone(), sha256: token.digest(), subject, valid_ms: None };
    let made = world.kernel.syscall(&world.kernel.operator(), Op::CreateToken(spec)).await.unwrap();
    assert!(matches!(made, Reply::Done(_)), "{made:?}");
    world.kernel.authenticator().authenticate(Credential::Bearer(token.reveal())).await.unwrap()
}

#[tokio::test]
async fn people_and_services_end_their_own_programs_and_an_admin_ends_all() {
    let programs = Driver::process(Some(Arc::new(Endless)), None);
    let world = ToolsFixture::with_programs(OPEN, Network::default(), Vec::new(), programs).await;
    let person = |name: &str| Subject::Person { name: name.to_owned(), role: PersonRole::Operator };
    let (alice, bob) = (caller(&world, person("alice")).await, caller(&world, person("bob")).await);
    let service = caller(&world, Subject::Service { name: "ci".to_owned() }).await;
    let admin = world.kernel.operator();
    for (runner, killer, others) in
        [(&alice, &alice, &bob), (&service, &service, &bob), (&alice, &admin, &service)]
    {
        let op =
            Op::RunTool(ToolCall { tool: "process.exec".to_owned(), args: json!({"argv": ["sleep", "9"]}) });
        let (kernel, who) = (world.kernel.kernel(), runner.clone());
        let running = tokio::spawn(async move { kernel.syscall(&who, op).await.unwrap() });
        let call = loop {
            match listed(&world, runner).await.as_slice() {
                [one] => break one["call"].as_u64().unwrap(),
                _not_yet => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        assert!(listed(&world, others).await.is_empty());
        let refused = world.call_as(others, "process.kill", json!({"call": call})).await;
        assert_eq!(refused.how, "failed process.unknown_call");
        assert_eq!(world.call_as(killer, "process.kill", json!({"call": call})).await.how, "ok");
        let Reply::Done(outcome) = running.await.unwrap() else { panic!("not done") };
        assert_eq!(outcome.status, Status::Cancelled);
    }
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
