//! What travels? The versioned types that leave the process.
//!
//! [`Op`] is the system call table, with the arguments of every operation. [`Reply`] is the reply to an operation, and [`result`] has the
//! results. [`OpenQuestion`] is a question for a reviewer, [`event::Event`] reports the progress of a task, and [`judge`] has the messages of hosts that
//! run agents of their own.
//!
//! The bodies of ledger entries are in [`body`]. The kernel writes them through these types and everybody reads them through these
//! types, so a field that is renamed or removed breaks the build and not a reader at run time.
//!
//! Words that rules are written in (`Label`, `Tier`, `Class`) are `regent-policy`'s, digests and places in the ledger are
//! `regent-ledger`'s. This crate has no input, no output and no clock.
#![forbid(unsafe_code)]

mod agent;
mod amounts;
mod approval;
pub mod body;
mod budget_scope;
pub mod event;
pub mod judge;
mod message;
mod op;
mod pipe;
mod priority;
mod question;
mod reply;
pub mod result;
mod role;
mod signal;
mod status;
mod task;
mod token;
mod version;
mod vfs;

pub use agent::{Lifecycle, SpawnSpec};
pub use amounts::{Amounts, Budget, Each, Spent};
pub use approval::{AnswerCall, ApprovalAnswer, Scope, TicketId, Voice};
pub use budget_scope::BudgetScope;
pub use message::{
    Completion, Effort, Inference, Message, ModelUsage, Offer, Part, Reasoning, Role, Sampling, StopReason,
    ToolUse,
};
pub use op::{HostCall, Measured, Memory, Op, Query, Region, ToolCall};
pub use pipe::{PipeId, PipeSpec};
pub use priority::Priority;
pub use question::{Answered, Attention, BoundFile, LedgerPlace, OpenQuestion, Traced};
pub use reply::{Denial, Fault, Outcome, Output, Reason, Reply, Ticket};
pub use role::PersonRole;
pub use signal::{Delivered, Disposition, MaskChange, Signal, SignalError};
pub use status::{Status, ToolFailure};
pub use task::TaskId;
pub use token::{Subject, TokenId, TokenSpec, TokenState, TokenSummary};
pub use version::Version;
pub use vfs::{Fd, OpenMode};
