//! Results: the output of each operation whose output is JSON. The kernel writes these types, and callers read them.
//!
//! What isn't here is the output itself: the bytes of a tool, of `vfs.read` and of `pipe.recv`. `model.infer` gives a
//! [`Completion`](crate::Completion), `approval.list` a list of [`OpenQuestion`](crate::OpenQuestion), `agent.list` one of [`AgentView`],
//! `token.list` one of [`TokenSummary`](crate::TokenSummary); what changes a token gives the token's.

use regent_identity::AgentId;
use regent_policy::{Class, Consideration, Declassified, Label, Limits, Outline, RuleRef, Tier};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::AgentEnd;
use crate::{
    Answered, Attention, Budget, BudgetScope, Delivered, Disposition, Fd, Lifecycle, PersonRole, PipeId,
    Priority, Signal, Status, TicketId, TokenId,
};

/// Why there is no result to read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    /// The tool or the operation says that it did not work.
    #[error("{} ({})", .0.message, .0.code)]
    Failed(crate::ToolFailure),
    /// It was stopped, or broke.
    #[error("the call was stopped: {0}")]
    Stopped(&'static str),
    /// It isn't what this operation gives.
    #[error("the answer can't be read: {0}")]
    Unreadable(String),
}

/// Reads the result of an operation.
pub fn read<T: DeserializeOwned>(status: &Status, output: &[u8]) -> Result<T, ResultError> {
    match status {
        Status::Ok => {
            serde_json::from_slice(output).map_err(|error| ResultError::Unreadable(error.to_string()))
        }
        Status::Failed(failure) => Err(ResultError::Failed(failure.clone())),
        Status::TimedOut | Status::Cancelled | Status::Faulted(_) => Err(ResultError::Stopped(status.word())),
    }
}

macro_rules! results {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $kind,)*
            }
        )*
    };
}

results! {
    /// `agent.spawn`: the new agent.
    Spawned {
        /// Its id.
        agent: AgentId,
        /// The name of its key.
        did: Option<String>,
    }

    /// `agent.wait`: the agent, which has ended unless the wait was stopped.
    Waited {
        /// Which agent.
        agent: AgentId,
        /// How it ended.
        end: Option<AgentEnd>,
        /// Where it is in its life.
        state: Lifecycle,
    }

    /// `agent.exit`.
    Exited {
        /// False if it had ended before.
        ended: bool,
    }

    /// `agent.list`: one agent.
    AgentView {
        /// Its id.
        agent: AgentId,
        /// How many of its calls were denied.
        denials: u64,
        /// The name of its key.
        did: String,
        /// How it ended, if it has.
        end: Option<AgentEnd>,
        /// Its process group.
        group: AgentId,
        /// The name that rules match.
        name: String,
        /// Who started it: an agent, or `operator`.
        parent: String,
        /// How urgent its calls to models are.
        #[serde(default)]
        priority: Priority,
        /// Its roles.
        roles: Vec<String>,
        /// How many of its calls run now.
        running: u64,
        /// The person whom it works for.
        sponsor: String,
        /// Since when it lives.
        started_at_ms: i64,
        /// Where it is in its life.
        state: Lifecycle,
        /// Tokens of models that it has used.
        tokens: u64,
        /// How many tools it has called.
        tool_calls: u64,
        /// How far it is trusted, 0 to 1000.
        trust: u16,
    }

    /// `signal.send`.
    Signalled {
        /// The signal's number.
        number: u8,
        /// The signal.
        signal: Signal,
        /// Who got it.
        to: Vec<SignalledAgent>,
    }

    /// `signal.send`: one agent that got the signal.
    SignalledAgent {
        /// Which.
        agent: AgentId,
        /// What became of the signal.
        delivered: Delivered,
        /// Where the agent dies of it: whether the last of its calls has ended.
        over: Option<bool>,
    }

    /// `signal.action`.
    SignalAction {
        /// What the agent does now.
        disposition: Disposition,
        /// On which signal.
        signal: Signal,
    }

    /// `signal.mask`.
    SignalMask {
        /// Held back from now on.
        masked: Vec<Signal>,
        /// Let through by the change.
        through: Vec<Signal>,
    }

    /// `signal.pending`.
    PendingSignals {
        /// What waited for the agent's own handling.
        signals: Vec<Signal>,
    }

    /// `vfs.open`.
    Opened {
        /// The descriptor.
        fd: Fd,
    }

    /// `vfs.close`.
    Closed {
        /// The descriptor, which is never used again.
        closed: Fd,
    }

    /// `vfs.write`.
    WrittenFile {
        /// How long the file is now.
        bytes: u64,
        /// How much of it was written.
        written: u64,
    }

    /// `vfs.stat`.
    FileStat {
        /// How long the file is.
        bytes: u64,
        /// A folder, not a file.
        folder: bool,
        /// The label of all that is in it; none for a folder above the mounts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<Label>,
    }

    /// `vfs.list`.
    FolderNames {
        /// Names of files and folders.
        names: Vec<String>,
    }

    /// `vfs.mount`.
    Mounted {
        /// Where it appears.
        mounted: String,
        /// Whether it can be written there.
        writable: bool,
    }

    /// `vfs.unmount`.
    Unmounted {
        /// Where it appeared.
        unmounted: String,
    }

    /// `memory.remember`.
    Remembered {
        /// How long the entry is.
        bytes: u64,
        /// Where it is in the virtual file system.
        path: String,
    }

    /// `memory.recall`.
    Recollection {
        /// There was more than fits.
        cut: bool,
        /// What was found, in the order of names.
        entries: Vec<RecalledEntry>,
    }

    /// `memory.recall`: one entry.
    RecalledEntry {
        /// What it holds.
        content: String,
        /// Its name.
        key: String,
        /// The label of its content.
        label: Label,
    }

    /// `pipe.open`.
    Piped {
        /// The pipe.
        pipe: PipeId,
    }

    /// `pipe.send`.
    Sent {
        /// How many messages wait in the pipe.
        waiting: u64,
    }

    /// `policy.get`.
    PolicyView {
        /// The digest of the policy, as entries carry it.
        digest: String,
        /// Its files.
        layers: Vec<Outline>,
    }

    /// `policy.check`: what policy would say.
    Checked {
        /// The code of a denial.
        code: Option<String>,
        /// The rules that were looked at, and how each fared.
        considered: Vec<Consideration>,
        /// Labels that a rule would lower.
        declassify: Vec<Declassified>,
        /// `allow`, `ask` or `deny`.
        effect: String,
        /// What to do about a denial.
        help: Option<String>,
        /// How much the call could use.
        #[serde(default)]
        limits: Option<Limits>,
        /// Why.
        reason: Option<String>,
        /// The rule that decides.
        rule: Option<RuleRef>,
        /// The tier that it would run in.
        tier: Option<Tier>,
    }

    /// `approval.answer`: an answer that counts.
    AnswerTaken {
        /// Where the question stands now.
        #[serde(flatten)]
        standing: Answered,
        /// When it was put.
        asked_at_ms: i64,
        /// How much attention the person has left, this answer included.
        attention: Attention,
        /// When it was answered.
        decided_at_ms: i64,
        /// The questions that got the answer, if it names several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        questions: Option<Vec<TicketId>>,
        /// Those that it names and that didn't get it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        skipped: Option<Vec<Skipped>>,
    }

    /// A question that an answer names and that doesn't get it.
    #[derive(Eq)]
    Skipped {
        /// Which.
        id: TicketId,
        /// Why not.
        why: SkipReason,
    }

    /// `budget.set`.
    BudgetSet {
        /// What it may use.
        limits: Budget,
        /// Whose.
        scope: BudgetScope,
    }

    /// `auth.whoami`: the identity that was validated, not the one that the caller claims.
    Identity {
        /// The agent's id, if it is one.
        agent: Option<AgentId>,
        /// How it was authenticated.
        authenticated: Option<String>,
        /// Who vouches, from the person down to the caller.
        chain: Vec<String>,
        /// What kind of caller it is.
        class: Class,
        /// The name for people to read.
        name: String,
        /// An operator's role.
        role: Option<PersonRole>,
        /// The session that its calls are recorded under.
        session: String,
        /// The token that it presented.
        token: Option<TokenId>,
    }

    /// `label.declassify`.
    LabelLowered {}
}

/// Why a question doesn't get an answer that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// It was denied before. A denial is final: a prompt that is still open elsewhere must not turn it around.
    Denied,
    /// It was used up, has expired or never was.
    Over,
}

/// `request.begin`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Begun {
    /// The agent's first request.
    New {
        /// Tools whose labels were inferred.
        inferred: Vec<String>,
        /// The plan in force, also one that was proposed here.
        plan: Value,
        /// How many tools the host performs.
        tools: u64,
    },
    /// The person's next turn.
    Turn {
        /// The plan in force.
        plan: Value,
        /// True.
        turn: bool,
    },
    /// The same request again, which can only narrow.
    Narrowed {
        /// True.
        narrowed: bool,
    },
}

#[cfg(test)]
mod tests;
