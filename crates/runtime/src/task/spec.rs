//! What a task is to be, and the record that the ledger keeps of it.

use std::collections::BTreeMap;

use regent_kernel::{Budget, Changes, Priority, Sampling, TaskId};
use serde::{Deserialize, Serialize};

use super::said::Said;
use crate::agent::AgentLimits;
use crate::door::Ancestor;

/// The specification of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskSpec {
    /// What is to be done.
    pub goal: String,
    /// Which model, as `provider/name`, `auto` or `auto:CLASS`.
    pub model: String,
    /// The name that policy knows the agent by.
    pub agent: String,
    /// The agent's roles, as policy knows them.
    pub roles: Vec<String>,
    /// Who the agent is, for the prompt.
    pub role: String,
    /// The tools that it is offered; all that can be run, if absent.
    pub tools: Option<Vec<String>>,
    /// Whether it may change anything; if absent, that depends on each request: a question changes nothing. The kernel holds it to that.
    pub changes: Option<Changes>,
    /// Whether its agent keeps a list of what it has to do.
    pub todo: bool,
    /// A line for each skill that it is offered.
    pub skills: Vec<String>,
    /// For templates, as `vars.name`.
    pub vars: BTreeMap<String, String>,
    /// Templates that replace ours, by layer (`system`, `role`, `task`), and others that these include, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub prompts: BTreeMap<String, String>,
    /// What instructs its agents beside the goal.
    #[serde(skip_serializing_if = "Instructions::is_default")]
    pub instructions: Instructions,
    /// How answers are drawn. Nothing is asked for unless somebody does: many models refuse a temperature or a forced call. A model
    /// in this process takes the likeliest token, and always makes a call where tools are offered.
    pub sampling: Sampling,
    /// What each agent may take.
    pub limits: AgentLimits,
    /// What the whole task may use, all runs together.
    pub budget: Budget,
    /// How it goes about it.
    pub mode: Mode,
    /// Who goes first: among tasks that wait to start, and in the queue of a model.
    pub priority: Priority,
    /// How often it is run again by itself when something failed for now.
    pub retries_max: u32,
    /// The pause before the first of these; it doubles each time.
    pub backoff_ms: u64,
    /// It was begun as a conversation: lists of conversations have it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub conversation: bool,
}

impl Default for TaskSpec {
    fn default() -> Self {
        Self {
            goal: String::new(),
            model: "auto".to_owned(),
            agent: "worker".to_owned(),
            roles: Vec::new(),
            role: String::new(),
            tools: None,
            changes: Some(Changes::Allowed),
            todo: false,
            skills: Vec::new(),
            vars: BTreeMap::new(),
            prompts: BTreeMap::new(),
            instructions: Instructions::default(),
            sampling: Sampling::default(),
            limits: AgentLimits::default(),
            budget: Budget::default(),
            mode: Mode::React,
            priority: Priority::Normal,
            retries_max: 2,
            backoff_ms: 1_000,
            conversation: false,
        }
    }
}

impl TaskSpec {
    /// A task with this goal, and everything else as usual.
    pub fn new(goal: impl Into<String>) -> Self {
        Self { goal: goal.into(), ..Self::default() }
    }
}

/// Files with instructions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Instructions {
    /// The user trusts the project: its `AGENTS.md` and `CLAUDE.md` instruct. Otherwise they are content.
    pub project: bool,
    /// The user's own, as they were when the task was taken.
    pub own: Vec<InstructionFile>,
}

/// One such file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstructionFile {
    /// Its path, as its reader knows it.
    pub path: String,
    /// What it says.
    pub text: String,
}

impl Instructions {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How a task is gone about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One agent, turn by turn.
    React,
    /// A plan first, then each step by an agent of its own.
    Plan,
}

/// The record of a task in the ledger: the whole input of the program, so that running it again does the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRecord {
    /// Which task.
    pub task: TaskId,
    /// What it is to be.
    pub spec: TaskSpec,
    /// What the words in its markers are made of. Tools don't see it: it is in no prompt, no argument and no environment.
    pub seed: String,
    /// The tools that it is offered, each with the digest of what was agreed to.
    pub tools: BTreeMap<String, String>,
    /// The tasks that it was forked from, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<Ancestor>,
    /// What the person said after the goal. A new task has none of its own; a fork has those that it shares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<Said>,
}
