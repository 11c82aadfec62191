//! Test tools with scripted behaviour: do nothing, echo, leave a mark, panic, hang, make nested calls.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::{
    BoxFuture, ExecuteError, Executor, Op, Permit, RawOutput, Reply, SideEffect, Tier, ToolCall, ToolSpec,
    Workspace, tier,
};
use serde_json::{Value, json};

/// The behaviour of a test tool.
#[derive(Debug, Clone)]
pub enum Behaviour {
    /// Does nothing and returns nothing.
    Noop,
    /// Returns its arguments.
    Echo,
    /// Leaves a mark in a sink, once per call, named by its argument `id`.
    Mark(Arc<dyn EffectSink>),
    /// Changes the workspace.
    Deed(Deed),
    /// Takes a while, and records its begin and end, by its argument `id`.
    Span(Arc<Spans>),
    /// Panics.
    Panics,
    /// Waits until it is cancelled.
    Hangs,
    /// Waits forever and ignores cancellation.
    Deaf,
    /// Returns this many bytes.
    Floods(usize),
    /// Makes a nested call, as guest code would, and returns its outcome.
    Calls(Box<Op>),
}

/// Receives effects, so that tests can count them.
pub trait EffectSink: Send + Sync + std::fmt::Debug {
    /// Performs the effect durably.
    fn mark(&self, id: u64) -> io::Result<()>;
}

/// Records marks in order.
#[derive(Debug, Default)]
pub struct Marks(Mutex<Vec<u64>>);

impl Marks {
    /// All marks so far.
    pub fn all(&self) -> Vec<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl EffectSink for Marks {
    fn mark(&self, id: u64) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        Ok(())
    }
}

type Doing = dyn Fn(&Workspace, &Value) -> RawOutput + Send + Sync;

/// A change of the workspace by a tool, given its arguments.
#[derive(Clone)]
pub struct Deed(Arc<Doing>);

impl Deed {
    /// A deed that runs this function.
    pub fn new(deed: impl Fn(&Workspace, &Value) -> RawOutput + Send + Sync + 'static) -> Self {
        Self(Arc::new(deed))
    }
}

impl std::fmt::Debug for Deed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deed").finish_non_exhaustive()
    }
}

/// Begins and ends of calls, in order.
#[derive(Debug, Default)]
pub struct Spans(Mutex<Vec<(&'static str, u64)>>);

impl Spans {
    /// All records so far.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, what: &'static str, id: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((what, id));
    }
}

/// The host executor of a test kernel: one behaviour per tool.
#[derive(Debug, Default, Clone)]
pub struct Drivers(BTreeMap<String, Behaviour>);

impl Drivers {
    /// Adds a tool's behaviour.
    #[must_use]
    pub fn with(mut self, tool: &str, behaviour: Behaviour) -> Self {
        self.0.insert(tool.to_owned(), behaviour);
        self
    }
}

impl Executor<tier::Host> for Drivers {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let Op::RunTool(run) = permit.call().op() else {
                return Err(ExecuteError::NoDriver(permit.call().op().name().to_owned()));
            };
            match self.0.get(&run.tool) {
                Some(behaviour) => behave(behaviour, &permit).await,
                None => Err(ExecuteError::NoDriver(run.tool.clone())),
            }
        })
    }
}

async fn behave(behaviour: &Behaviour, permit: &Permit<'_, tier::Host>) -> Result<RawOutput, ExecuteError> {
    match behaviour {
        Behaviour::Noop => Ok(RawOutput::new(Vec::new())),
        Behaviour::Echo => Ok(RawOutput::json(permit.args())),
        Behaviour::Mark(world) => {
            let Some(id) = permit.args().get("id").and_then(Value::as_u64) else {
                return Ok(RawOutput::failed("mark.no_id", "there is no `id`"));
            };
            match world.mark(id) {
                Ok(()) => Ok(RawOutput::json(&json!({"marked": id}))),
                Err(error) => Ok(RawOutput::failed("mark.failed", error.to_string())),
            }
        }
        Behaviour::Deed(deed) => Ok((deed.0)(permit.workspace(), permit.args())),
        Behaviour::Span(spans) => {
            /// Enough yields for any other call to begin.
            const YIELDS: usize = 200;
            let id = permit.args().get("id").and_then(Value::as_u64).unwrap_or(0);
            spans.note("begin", id);
            for _ in 0..YIELDS {
                tokio::task::yield_now().await;
            }
            spans.note("end", id);
            Ok(RawOutput::json(permit.args()))
        }
        Behaviour::Panics => panics(),
        Behaviour::Hangs => {
            permit.cancelled().await;
            Ok(RawOutput::new(b"stopped".to_vec()))
        }
        Behaviour::Deaf => std::future::pending().await,
        Behaviour::Floods(bytes) => Ok(RawOutput::new(vec![b'x'; *bytes])),
        Behaviour::Calls(op) => match permit.syscall((**op).clone()).await {
            Ok(Reply::Done(outcome)) => Ok(RawOutput::new(outcome.output.bytes().to_vec())),
            Ok(Reply::Denied(denial)) => Ok(RawOutput::failed(&denial.reason.code, denial.reason.message)),
            Ok(Reply::Pending(_)) => Ok(RawOutput::failed("pending", "an approval is pending")),
            Err(fault) => Err(ExecuteError::Broken(fault.to_string())),
        },
    }
}

#[expect(clippy::panic, reason = "a tool that panics is what this one is for")]
fn panics() -> Result<RawOutput, ExecuteError> {
    panic!("this tool panics")
}

/// A host-tier tool of this name that takes any arguments. Not idempotent by default.
pub fn spec(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "for tests".to_owned(),
        input: json!({"type": "object"}),
        arguments: BTreeMap::new(),
        capabilities: Vec::new(),
        effect: SideEffect::Write,
        idempotent: false,
        reversible: false,
        tiers: vec![Tier::Host],
        output: ToolSpec::UNKNOWN_OUTPUT,
        ..ToolSpec::default()
    }
}

/// A call of a tool.
pub fn run(tool: &str, args: Value) -> Op {
    Op::RunTool(ToolCall { tool: tool.to_owned(), args })
}
