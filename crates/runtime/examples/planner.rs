//! A planner with a governance workflow: a plan is made, its steps are done by child agents side by side, and publishing needs an approval.
//!
//! `cargo run -p regent-runtime --example planner`. The model is a puppet with a script, so that this runs anywhere; with a real provider
//! nothing else changes.

use std::sync::Arc;

use regent_kernel::{ApprovalAnswer, BoxFuture, Inference, Kernel, Op, Principal, Role, Scope, Ticket};
use regent_runtime::door::{Asker, Asking};
use regent_runtime::{Mode, Options, Runtime, TaskSpec};
use regent_testkit::{Behaviour, Puppet, Says, TestKernel};
use serde_json::json;

/// Everything may be done, but publishing is asked about.
const POLICY: &str = "version: 1
rules:
  - { id: everything, effect: allow }
  - { id: publishing, effect: ask, match: { tool: publish }, reason: what is published can't be taken back }
";

/// Stands in for the user at the terminal: prints the question and approves it, once.
#[derive(Debug)]
struct Reviewer(Principal);

impl Asker for Reviewer {
    #[expect(clippy::print_stdout, reason = "an example talks")]
    fn ask<'a>(&'a self, kernel: &'a Kernel, ticket: &'a Ticket) -> BoxFuture<'a, Asking> {
        Box::pin(async move {
            println!("asked: {} ({})", ticket.summary, ticket.reason);
            let answer = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 60_000 };
            // An approval counts from when the question can have been read.
            tokio::time::sleep(std::time::Duration::from_millis(ticket.question.read_ms / 4 + 1)).await;
            let said = kernel
                .syscall(&self.0, Op::Answer { ticket: ticket.id.clone(), with: Vec::new(), answer })
                .await;
            if said.is_ok() { Asking::Answered } else { Asking::Later }
        })
    }
}

/// What the model says, by what it is asked.
fn head(inference: &Inference) -> Says {
    let asked = inference.messages.iter().find(|message| message.role == Role::User);
    let goal = asked.map(|message| message.text()).unwrap_or_default();
    let acted = inference.messages.iter().any(|message| message.role == Role::Tool);
    let finish = |answer: &str| Says::call("task.finish", json!({"answer": answer}));
    if goal.starts_with("Take the goal apart") {
        let plan = json!({"steps": [
            {"id": "facts", "goal": "collect the facts"},
            {"id": "tone", "goal": "find the tone"},
            {"id": "out", "goal": "publish the note", "needs": ["facts", "tone"]},
        ]});
        return Says::Text(plan.to_string());
    }
    match (goal.lines().next().unwrap_or_default(), acted) {
        ("collect the facts", _) => finish("three facts"),
        ("find the tone", _) => finish("plain"),
        ("publish the note", false) => Says::call("publish", json!({"text": "three plain facts"})),
        _published => finish("the note is out"),
    }
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let test = TestKernel::builder()
        .policy(POLICY)
        .tool("publish", Behaviour::Echo)
        .models(Arc::new(Puppet::new(head)))
        .durable()
        .boot()
        .await?;
    let options = Options { asker: Some(Arc::new(Reviewer(test.kernel.operator()))), ..Options::default() };
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), options);
    let spec = TaskSpec { mode: Mode::Plan, ..TaskSpec::new("write and publish a note") };
    let mut task = runtime.run(spec).await?;
    let end = task.ended().await.ok_or("the runtime is gone")?;
    while let Ok(event) = task.events.try_recv() {
        println!("{}", serde_json::to_string(&event)?);
    }
    println!("{}: {:?}", end.state, end.answer.map(|answer| answer.text));
    for (step, recorded) in runtime.steps(&task.task)? {
        println!("{step}: {} {}", recorded.op, recorded.verdict);
    }
    println!("replayed the same: {}", runtime.replay(&task.task).await?.same);
    Ok(())
}
