//! The agent runtime: the agent loop, plans, sub-agents, and tasks that survive crashes. It has no authority of its own:
//! everything goes through [`Kernel::syscall`](regent_kernel::Kernel::syscall), as an agent, and is judged like any other call.
//!
//! # A task in a few lines
//!
//! ```no_run
//! # async fn example(host: regent_kernel::Host) -> Result<(), Box<dyn std::error::Error>> {
//! use regent_runtime::{Options, Runtime, TaskSpec};
//!
//! let runtime = Runtime::new(host.kernel(), host.task_owner(), Options::default());
//! let mut task = runtime.run(TaskSpec::new("How many lines has README.md?")).await?;
//! while let Ok(event) = task.events.recv().await {
//!     drop(event); // plan, turn, tool, verdict, what was used, what is left: for a live view
//! }
//! let end = task.ended().await;
//! # Ok(()) }
//! ```
//!
//! When [`Runtime::run`] returns, the task is in the ledger. Kill the process at any moment: [`Runtime::resume`] continues, and no effect
//! happens twice. The program runs again from the start, and calls with an outcome in the ledger are replayed, not made.
//! [`Runtime::fork`] shares the steps before a turn and continues with another model, [`Runtime::replay`] runs a task from the ledger
//! alone, [`Runtime::diff`] shows where two runs diverge.
//!
//! # Extension points
//!
//! - templates, by layer ([`context::Prompts`]), guardrails and hooks ([`agent::Craft`], [`agent::Hooks`]);
//! - how to ask for approvals while a task waits ([`door::Asker`]);
//! - steps that a model proposes from a request alone ([`planner`]), for agents that run elsewhere;
//! - a plan of your own ([`plan::Plan`]) instead of the model's, executed by [`plan::carry_out`];
//! - tools and models: implement the kernel's `Executor` or `Models`, see `examples/`.
//!
//! # The one rule
//!
//! A program over a [`door::Door`] must be deterministic: given the same answers it makes the same calls under the same step names. It uses no clock,
//! no randomness and no environment; what depends on those is a call. The kernel detects a violation at the first step that differs.
#![forbid(unsafe_code)]

pub mod agent;
pub mod context;
pub mod door;
pub mod event;
pub mod plan;
pub mod planner;
mod runtime;
pub mod snapshot;
pub mod stop;
pub mod task;
pub mod team;
mod tokens;

pub use runtime::{
    Checkpoints, FollowUp, Options, Reins, Replayed, Runtime, TaskEnd, TaskError, TaskHandle, is_running,
};
pub use stop::{Outlook, StopCause, utc};
pub use task::{Mode, Priority, TaskSpec, TaskState, TaskView};
