//! The system call table: everything that a caller can request.

use regent_identity::AgentId;
use regent_ledger::Digest;
use regent_provenance::{Begin, DerivedFrom};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::SpawnSpec;
use crate::approval::{ApprovalAnswer, TicketId};
use crate::message::Inference;
use crate::pipe::{PipeId, PipeSpec};
use crate::signal::{Disposition, MaskChange, Signal};
use crate::token::{TokenId, TokenSpec};
use crate::vfs::{Fd, OpenMode};
use crate::{Budget, BudgetScope};

/// Every operation that a caller can request. Adding a variant breaks every match on it, on purpose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "op", content = "args", rename_all = "snake_case")]
pub enum Op {
    /// Run a catalogued tool (the `exec` of agents) at the tier its manifest names, or a stronger one.
    RunTool(ToolCall),
    /// Have a tool call judged and recorded whose effect the host application performs itself. The outcome is what the host says.
    Elsewhere(HostCall),
    /// Begin the request that an agent works on, or narrow what it may do. Only an operator can.
    Begin {
        /// Who works on it.
        agent: AgentId,
        /// The request, and what the operator knows of its needs.
        begin: Box<Begin>,
    },
    /// Trust a value in an agent's request, wherever it came from. Only an operator can.
    Declassify {
        /// Whose request.
        agent: AgentId,
        /// Which value.
        value: Value,
    },
    /// Ask a model to continue a conversation.
    Infer(Inference),
    /// Keep something in the caller's own memory.
    Remember(Memory),
    /// Look something up in the caller's own memory.
    Recall(Query),
    /// Open a file of the virtual file system.
    Open {
        /// Where, e.g. `/agent/<id>/mem/working/notes`.
        path: String,
        /// What for.
        mode: OpenMode,
    },
    /// Close an open file.
    Close {
        /// The descriptor `Open` gave.
        fd: Fd,
    },
    /// Read from an open file.
    Read {
        /// The descriptor `Open` gave.
        fd: Fd,
        /// Where to start.
        offset: u64,
        /// How much at most.
        bytes_max: u32,
    },
    /// Write to an open file.
    Write {
        /// The descriptor `Open` gave.
        fd: Fd,
        /// Where to start; `None` appends.
        offset: Option<u64>,
        /// What to write.
        content: String,
    },
    /// Describe a file or folder of the virtual file system.
    Stat {
        /// Which one.
        path: String,
    },
    /// List a folder of the virtual file system.
    List {
        /// Which one.
        path: String,
    },
    /// Map a region of the virtual file system into the caller's own tree (the `mmap` of agents).
    Mount {
        /// What is mapped.
        source: String,
        /// Where it appears.
        target: String,
        /// Whether it can be written there.
        writable: bool,
    },
    /// Take a mapping away again.
    Unmount {
        /// Where it appeared.
        target: String,
    },
    /// Start a child agent with no more power than the caller has.
    Spawn(SpawnSpec),
    /// Wait until a child has ended.
    Wait {
        /// Which child.
        agent: AgentId,
    },
    /// End the calling agent.
    Exit {
        /// Its result, 0 for success.
        code: i32,
    },
    /// List the agents that the caller may see.
    Agents,
    /// Make a typed pipe.
    Pipe(PipeSpec),
    /// Put a message into a pipe.
    Send {
        /// Which pipe.
        pipe: PipeId,
        /// The message; it must fit the pipe's schema.
        message: Value,
    },
    /// Take the next message out of a pipe.
    Recv {
        /// Which pipe.
        pipe: PipeId,
        /// How long to wait for one.
        wait_ms_max: u64,
    },
    /// Send a signal to an agent or its whole group.
    Signal {
        /// Who gets it.
        agent: AgentId,
        /// Which one.
        signal: Signal,
        /// To the whole process group.
        group: bool,
    },
    /// Say what the caller does on a signal.
    Sigaction {
        /// Which one.
        signal: Signal,
        /// What to do.
        disposition: Disposition,
    },
    /// Hold back or let through signals.
    Sigprocmask {
        /// How the mask changes.
        change: MaskChange,
    },
    /// Take the signals that wait for the caller's own handling.
    Sigpending,
    /// Read the policy that is in force.
    GetPolicy,
    /// Ask what policy would say to a call, without making it.
    CheckPolicy {
        /// The call in question.
        op: Box<Op>,
    },
    /// Answer a pending question.
    Answer {
        /// Which question.
        ticket: TicketId,
        /// Questions of the same cause that the reviewer saw with it. They get the same answer.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        with: Vec<TicketId>,
        /// What the person says.
        answer: ApprovalAnswer,
    },
    /// List pending questions.
    Questions,
    /// Give a scope its limits. Only an operator can.
    SetBudget {
        /// Whose.
        scope: BudgetScope,
        /// What it may use.
        limits: Budget,
    },
    /// Create a token for a caller. Only an admin can.
    CreateToken(TokenSpec),
    /// List the tokens. Only an admin can.
    Tokens,
    /// Revoke a token from its holder's next call on. Only an admin can.
    RevokeToken {
        /// Which token.
        id: TokenId,
    },
    /// Put another secret in the place of a token's. The old one is worthless from the next call on.
    RotateToken {
        /// Which token.
        id: TokenId,
        /// The SHA-256 of the whole new token.
        sha256: Digest,
    },
    /// Who the caller is, as the kernel has authenticated it.
    Whoami,
}

/// One run of a catalogued tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// The tool's name in the catalogue.
    pub tool: String,
    /// Its arguments, checked against the tool's schema.
    pub args: Value,
}

/// One run of a tool that the host application performs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostCall {
    /// What is run.
    #[serde(flatten)]
    pub run: ToolCall,
    /// What the host says that it was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_from: Option<Box<DerivedFrom>>,
    /// The host keeps the result from its agent: only typed values that are read out of it reach the agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quarantined: bool,
    /// What the host has measured of its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// What a host has measured of its agent, each 0 to 1, for the thresholds of policy. It holds for one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// How sure the agent is of this call.
    #[serde(default)]
    pub confidence: Option<f64>,
    /// How far the agent has moved away from its goal.
    #[serde(default)]
    pub drift: Option<f64>,
}

/// Something to remember.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Which memory.
    pub region: Region,
    /// Under which name.
    pub key: String,
    /// What.
    pub content: String,
}

/// Something to recall.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Query {
    /// Which memory.
    pub region: Region,
    /// Text that an entry's name or content must contain.
    pub text: String,
    /// How many entries at most.
    pub entries_max: u32,
}

/// The three memories of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Region {
    /// What it is working with now.
    Working,
    /// What happened.
    Episodic,
    /// What it knows.
    Semantic,
}

impl Region {
    /// The folder's name below `mem/`.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Episodic => "episodic",
            Self::Semantic => "semantic",
        }
    }
}

/// The names of all operations, from the one list that says which has which.
macro_rules! named {
    ($($pattern:pat => $name:literal,)*) => {
        impl Op {
            /// The name of this operation in policy and ledger.
            pub fn name(&self) -> &'static str {
                match self {
                    $($pattern => $name,)*
                }
            }

            /// Every name; `regent_policy::OPS` is the same list, and a test compares them.
            pub const NAMES: &[&str] = &[$($name),*];
        }
    };
}

named! {
    Op::RunTool(_) => "tool.run",
    Op::Elsewhere(_) => "tool.elsewhere",
    Op::Begin { .. } => "request.begin",
    Op::Declassify { .. } => "label.declassify",
    Op::Infer(_) => "model.infer",
    Op::Remember(_) => "memory.remember",
    Op::Recall(_) => "memory.recall",
    Op::Open { .. } => "vfs.open",
    Op::Close { .. } => "vfs.close",
    Op::Read { .. } => "vfs.read",
    Op::Write { .. } => "vfs.write",
    Op::Stat { .. } => "vfs.stat",
    Op::List { .. } => "vfs.list",
    Op::Mount { .. } => "vfs.mount",
    Op::Unmount { .. } => "vfs.unmount",
    Op::Spawn(_) => "agent.spawn",
    Op::Wait { .. } => "agent.wait",
    Op::Exit { .. } => "agent.exit",
    Op::Agents => "agent.list",
    Op::Pipe(_) => "pipe.open",
    Op::Send { .. } => "pipe.send",
    Op::Recv { .. } => "pipe.recv",
    Op::Signal { .. } => "signal.send",
    Op::Sigaction { .. } => "signal.action",
    Op::Sigprocmask { .. } => "signal.mask",
    Op::Sigpending => "signal.pending",
    Op::GetPolicy => "policy.get",
    Op::CheckPolicy { .. } => "policy.check",
    Op::Answer { .. } => "approval.answer",
    Op::Questions => "approval.list",
    Op::SetBudget { .. } => "budget.set",
    Op::CreateToken(_) => "token.create",
    Op::Tokens => "token.list",
    Op::RevokeToken { .. } => "token.revoke",
    Op::RotateToken { .. } => "token.rotate",
    Op::Whoami => "auth.whoami",
}

#[cfg(test)]
mod tests;
