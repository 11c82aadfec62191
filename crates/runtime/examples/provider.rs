//! A custom provider: anything that turns a conversation into the next turn is a model. This one adds numbers.
//!
//! `cargo run -p regent-runtime --example provider`. A provider says before what a call would mean (`plan`: which model, where, how much at
//! most), so that policy and budget judge it; and then performs it against a permit.

use std::sync::Arc;

use regent_kernel::{
    BoxFuture, Completion, ExecuteError, Executor, Inference, Label, Message, ModelPlan, ModelUsage, Models,
    Op, Permit, RawOutput, Reason, Role, Spent, StopReason, ToolUse, tier,
};
use regent_runtime::{Options, Runtime, TaskSpec};
use regent_testkit::TestKernel;
use serde_json::json;

/// A model that needs no weights.
#[derive(Debug)]
struct Adder;

impl Models for Adder {
    fn plan(&self, inference: &Inference, _label: Label) -> Result<ModelPlan, Reason> {
        let tokens_in = inference.messages.iter().map(|message| message.text().len() as u64).sum();
        // It stays on this machine and costs nothing.
        Ok(ModelPlan {
            secrets: Vec::new(),
            model: "local/adder".to_owned(),
            remote: None,
            tokens_in,
            money_microusd_max: Some(0),
        })
    }
}

impl Executor<tier::Host> for Adder {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let Op::Infer(inference) = permit.call().op() else {
                return Err(ExecuteError::NoDriver(permit.call().op().name().to_owned()));
            };
            let asked = inference.messages.iter().rfind(|message| message.role == Role::User);
            let words = asked.map(Message::text).unwrap_or_default();
            let sum: i64 = words.split_whitespace().filter_map(|word| word.parse::<i64>().ok()).sum();
            let call = ToolUse {
                id: "1".to_owned(),
                tool: "task.finish".to_owned(),
                args: json!({"answer": sum.to_string()}),
            };
            let usage = ModelUsage { input: words.len() as u64, cached: 0, output: 1, reasoning: 0 };
            let message = Message::asking("", [call]);
            let completion = Completion {
                model: "local/adder".to_owned(),
                message,
                stop: StopReason::ToolUse,
                usage,
                redacted: Default::default(),
            };
            let body =
                serde_json::to_vec(&completion).map_err(|error| ExecuteError::Broken(error.to_string()))?;
            let tokens = usage.input.saturating_add(usage.output);
            Ok(RawOutput::new(body).with_spent(Spent { tokens, ..Spent::default() }))
        })
    }
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let test = TestKernel::builder().models(Arc::new(Adder)).boot().await?;
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), Options::default());
    let mut task = runtime.run(TaskSpec::new("What is 19 and 23 ?")).await?;
    let end = task.ended().await.ok_or("the runtime is gone")?;
    println!("{}: {:?}, {} tokens", end.state, end.answer.map(|answer| answer.text), end.spent.tokens);
    Ok(())
}
