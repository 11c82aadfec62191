//! The kernel: one call path of facts, verdict, intent, permit, effect, label and outcome. Start at [`syscall`].
#![forbid(unsafe_code)]

mod agent;
mod approval;
mod authenticate;
mod budget;
mod call;
mod cancel;
mod carried;
mod catalogue;
mod charges;
mod clock;
mod command;
mod drivers;
pub mod endpoint;
mod evidence;
mod executor;
mod facts;
mod history;
mod host;
mod identity;
mod journal;
mod kernel;
mod model;
mod off_worker;
mod outlast;
mod pipe;
mod principal;
mod rate;
mod reach;
mod record;
mod recorder;
pub mod recovery;
mod request;
mod role;
mod rules;
mod secret;
mod signal;
mod stores;
pub mod syscall;
mod tally;
#[cfg(test)]
mod tests;
mod token;
mod turns;
mod unended;
mod vfs;
mod within;

pub use agent::{AgentId, Delivered, Lifecycle, RunningProgram, SpawnSpec};
pub use approval::{
    Answered, ApprovalAnswer, Approved, AskedQuestion, Attention, BoundFile, LedgerPlace, OpenQuestion,
    Scope, SkipReason, Skipped, Ticket, TicketId, Traced, UNATTENDED, UNIDENTIFIED, Voice,
};
pub use authenticate::{AuthError, Authenticator, Credential};
pub use budget::{Budget, BudgetScope, Each, Spent, Standing};
pub use call::{Call, CallDigest, HostCall, Measured, Memory, Op, Query, Region, ToolCall};
pub use carried::label_of_path;
pub use catalogue::{
    AdmitError, ArgumentKind, Catalogue, CostClass, Driver, DriverKind, FOR_OPERATOR, FROM_PROGRAM, Origin,
    QUARANTINE, SideEffect, Tool, ToolSet, ToolSpec,
};
pub use clock::{Clock, ManualClock, SystemClock};
pub use executor::{BoxFuture, ExecuteError, Executor, Executors, Foreseen, RawOutput, ToolFailure};
pub use host::{Host, Records, TaskOwner};
pub use identity::{Did, DidError};
pub use journal::TaskId;
pub use kernel::Parts;
pub use model::{ModelPlan, Models};
pub use pipe::{PipeId, PipeSpec};
pub use principal::Principal;
pub use recorder::Phase;
pub use regent_ledger::{Digest, Entry, EntryKind, EntryPlace, Reader, hex_string};
pub use regent_policy::{
    Access, Class, Confidentiality, Integrity, Label, Limits, PathPattern, Policy, Reason, Tier, handles,
    is_secret_name, nearest,
};
pub use regent_provenance::{
    ALL_FIELDS, Begin, Declared, DerivedFrom, Effect as LabelEffect, FieldLabels, StoredLabel, Taint, Whole,
    strangers_fields,
};
pub use regent_store::{State, StateError};
pub use regent_wire::result;
pub use regent_wire::{
    Completion, Effort, Inference, Message, ModelUsage, Offer, Part, Priority, Reasoning, Role, Sampling,
    StopReason, ToolUse,
};
pub use regent_workspace::{
    FileKind, FileMetadata, FileState, FolderEntry, FolderState, Listing, Missing, Overlap, OwnFolders,
    PathError, Placement, RemoveError, StopFlag, TreeEntry, TreeError, TreeLimits, Workspace, Written,
    escape_name,
};
pub use request::{Aside, RequestSize, Saved};
pub use role::PersonRole;
pub use secret::{NoSecrets, SECRET_BYTES_MAX, Scrubbed, Secret, SecretError, Secrets, Usage};
pub use signal::{Disposition, MaskChange, Signal, SignalError};
pub use stores::StoreUse;
pub use syscall::{
    AskedAhead, Channel, Chunk, Delivery, Denial, Fault, FileJudge, JobControl, Kernel, Labelled, Nonce,
    Outcome, Overflow, Permit, Reading, Reply, Status, Stream, Suspension, tier,
};
pub use token::{Subject, Token, TokenId, TokenSpec, TokenState, TokenSummary};
pub use vfs::{Fd, OpenMode};
