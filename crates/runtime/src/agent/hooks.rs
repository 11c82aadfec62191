//! Where a program that uses the runtime gets to hear what its agents do, and to say a word.

use regent_kernel::{BoxFuture, Message, TaskId};

use super::AgentAnswer;
use crate::stop::StopCause;

/// Called around the loop. Each does nothing unless it is written.
///
/// A task that is resumed runs from the start, so hooks hear everything again; what [`on_tick`](Self::on_tick) says must depend on
/// nothing but its arguments, or the task can't be resumed.
pub trait Hooks: Send + Sync + std::fmt::Debug {
    /// The agent is about to begin.
    fn on_bootstrap<'a>(&'a self, task: &'a TaskId, goal: &'a str) -> BoxFuture<'a, ()> {
        let _unused = (task, goal);
        Box::pin(std::future::ready(()))
    }

    /// The model has answered.
    fn on_message<'a>(&'a self, task: &'a TaskId, message: &'a Message) -> BoxFuture<'a, ()> {
        let _unused = (task, message);
        Box::pin(std::future::ready(()))
    }

    /// A turn is about to begin.
    fn on_tick<'a>(&'a self, task: &'a TaskId, turn: u32) -> BoxFuture<'a, Tick> {
        let _unused = (task, turn);
        Box::pin(std::future::ready(Tick::GoOn))
    }

    /// The agent has ended, or stopped.
    fn on_shutdown<'a>(
        &'a self,
        task: &'a TaskId,
        ended: &'a Result<AgentAnswer, StopCause>,
    ) -> BoxFuture<'a, ()> {
        let _unused = (task, ended);
        Box::pin(std::future::ready(()))
    }
}

/// A hook's decision at the start of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tick {
    /// Nothing.
    GoOn,
    /// Tell the model this.
    Say(String),
    /// Stop here.
    Cancel,
}

/// No hooks.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
