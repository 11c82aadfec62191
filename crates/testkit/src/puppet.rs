//! A scripted model: a function from the conversation to the next turn.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::{
    BoxFuture, Completion, ExecuteError, Executor, Inference, Label, Message, ModelPlan, ModelUsage, Models,
    Op, Permit, RawOutput, Reason, Role, Spent, StopReason, ToolUse, tier,
};
use serde_json::Value;

/// Tokens that each turn costs.
pub const PUPPET_TOKENS: u64 = 10;

/// The next turn of a puppet.
#[derive(Debug, Clone)]
pub enum Says {
    /// It calls tools.
    Calls(Vec<(String, Value)>),
    /// It answers with text.
    Text(String),
    /// The provider fails.
    Fails(String),
    /// The provider fails, and its receipt contains this about a retry.
    FailsFor(String, Value),
}

impl Says {
    /// A turn that calls one tool.
    pub fn call(tool: &str, args: Value) -> Self {
        Self::Calls(vec![(tool.to_owned(), args)])
    }
}

type Head = Arc<dyn Fn(&Inference) -> Says + Send + Sync>;

/// The model. Clones share it.
#[derive(Clone)]
pub struct Puppet {
    head: Head,
    asked: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<Inference>>>,
    redacted: BTreeMap<String, String>,
}

impl Puppet {
    /// A puppet whose turns this function decides.
    pub fn new(head: impl Fn(&Inference) -> Says + Send + Sync + 'static) -> Self {
        Self { head: Arc::new(head), asked: Arc::default(), heard: Arc::default(), redacted: BTreeMap::new() }
    }

    /// A puppet with a script: the number of its earlier turns in the conversation selects the next one.
    pub fn script(turns: Vec<Says>) -> Self {
        Self::new(move |inference| {
            let spoken = inference.messages.iter().filter(|message| message.role == Role::Assistant).count();
            turns.get(spoken).cloned().unwrap_or_else(|| Says::Text("the script is over".to_owned()))
        })
    }

    /// Simulates a remote model: these placeholders replace these values in its prompts.
    #[must_use]
    pub fn redacting(mut self, table: impl IntoIterator<Item = (&'static str, &'static str)>) -> Self {
        let owned = |(placeholder, value): (&str, &str)| (placeholder.to_owned(), value.to_owned());
        self.redacted = table.into_iter().map(owned).collect();
        self
    }

    /// Number of requests that reached it.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Acquire)
    }

    /// The requests, in order.
    pub fn requests(&self) -> Vec<Inference> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl std::fmt::Debug for Puppet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Puppet").field("asked", &self.asked()).finish_non_exhaustive()
    }
}

impl Models for Puppet {
    fn plan(&self, inference: &Inference, _label: Label) -> Result<ModelPlan, Reason> {
        let model = inference.model.clone();
        Ok(ModelPlan {
            secrets: Vec::new(),
            model,
            remote: None,
            tokens_in: PUPPET_TOKENS,
            money_microusd_max: Some(PUPPET_TOKENS),
        })
    }
}

impl Executor<tier::Host> for Puppet {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let Op::Infer(inference) = permit.call().op() else {
                return Err(ExecuteError::NoDriver(permit.call().op().name().to_owned()));
            };
            let number = self.asked.fetch_add(1, Ordering::AcqRel);
            self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(inference.clone());
            let (text, calls, stop) = match (self.head)(inference) {
                Says::Fails(why) => return Ok(RawOutput::failed("model.unavailable", why)),
                Says::FailsFor(why, retry) => {
                    let receipt = serde_json::json!({"retry": retry});
                    return Ok(RawOutput::failed("model.refused", why).with_obtained(receipt));
                }
                Says::Text(text) => (text, Vec::new(), StopReason::End),
                Says::Calls(calls) => (String::new(), calls, StopReason::ToolUse),
            };
            let named = |(index, (tool, args)): (usize, (String, Value))| ToolUse {
                id: format!("c{number}-{index}"),
                tool,
                args,
            };
            let calls: Vec<ToolUse> = calls.into_iter().enumerate().map(named).collect();
            let completion = Completion {
                model: inference.model.clone(),
                message: Message::asking(text, calls),
                stop,
                usage: ModelUsage { input: PUPPET_TOKENS, cached: 0, output: 0, reasoning: 0 },
                redacted: self.redacted.clone(),
            };
            let body =
                serde_json::to_vec(&completion).map_err(|error| ExecuteError::Broken(error.to_string()))?;
            let spent = Spent { tokens: PUPPET_TOKENS, money_microusd: PUPPET_TOKENS, ..Spent::default() };
            Ok(RawOutput::new(body).with_spent(spent))
        })
    }
}
