//! `regent task`: durable work of agents.

mod history;
mod live;
pub(crate) mod restored;
mod run;
mod shown;
mod watch;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use regent_kernel::{Changes, Effort};
use regent_runtime::{FollowUp, Priority, TaskView};

use crate::context::Context;
use crate::output::CommandResult;
use crate::past::Past;
use crate::term;
pub(crate) use live::{compacted_line, todo_lines};
pub(crate) use run::{
    TaskResult, asks, is_a_model, needs_a_model, one_of, short_of, skills, watch_from, watched,
};
pub(crate) use watch::{News, forward};

/// What an agent is told that only plans.
const PLANNER: &str = "You plan the work and do none of it. Look at what is there, then answer with a plan: numbered steps, each with the files \
that it changes, how it can be checked, and what could go wrong.";
/// How many tasks a shell offers.
const COMPLETED_MAX: u32 = 50;

/// Run agent tasks that survive crashes
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Give an agent a goal and show its work
    Run(RunArgs),
    /// List the newest tasks of this project
    List {
        /// How many at most
        #[arg(short = 'n', long = "lines", default_value_t = 50, value_name = "N")]
        count: u32,
    },
    /// Show a task: steps, verdicts, costs, snapshots, and why it waits
    Show {
        #[command(flatten)]
        which: Which,
    },
    /// Continue a task, or all that can continue; no step runs twice
    Resume {
        /// The task's id or its beginning [default: all that can continue]
        #[arg(add = ArgValueCandidates::new(task_ids))]
        id: Option<String>,
        /// New budget of the whole task, e.g. 0.50usd or tokens=20000,calls=50
        #[arg(long, value_name = "LIMITS", requires = "id")]
        budget: Vec<String>,
        /// Never ask; wait or deny when a call needs an approval
        #[arg(long, value_enum, value_name = "WHAT")]
        unattended: Option<Unattended>,
    },
    /// Say more to a task, also to one that has ended: it goes on with what it knows
    #[command(
        after_help = "Example: regent task continue t-1f3a \"now also update the changelog\"\n\nThe task keeps its conversation, its tools and its budget. A task that was cancelled, or that follows a plan, can't be continued."
    )]
    Continue {
        #[command(flatten)]
        which: Which,
        /// What it is to do next; `-` reads it from stdin
        message: String,
        /// Continue with another model
        #[arg(long, value_name = "MODEL")]
        model: Option<String>,
        /// New budget of the whole task, e.g. 0.50usd or tokens=20000,calls=50
        #[arg(long, value_name = "LIMITS")]
        budget: Vec<String>,
        /// Never ask; wait or deny when a call needs an approval
        #[arg(long, value_enum, value_name = "WHAT")]
        unattended: Option<Unattended>,
    },
    /// Stop a task permanently, in any process
    Cancel {
        #[command(flatten)]
        which: Which,
    },
    /// Fork a task at a step: keep the earlier steps, continue differently
    Fork {
        #[command(flatten)]
        which: Which,
        /// The first step that isn't shared: a turn such as 3, or a step such as 3/tool/0
        #[arg(long, value_name = "STEP")]
        at: String,
        /// Continue with another model
        #[arg(long, value_name = "MODEL")]
        model: Option<String>,
    },
    /// Replay a task from the ledger alone: no model is asked, no tool runs
    Replay {
        #[command(flatten)]
        which: Which,
    },
    /// Show where two tasks diverge
    Diff {
        /// One task's id or its beginning
        #[arg(add = ArgValueCandidates::new(task_ids))]
        left: String,
        /// The other's
        #[arg(add = ArgValueCandidates::new(task_ids))]
        right: String,
    },
    /// Restore the workspace to a snapshot taken during the task
    Rollback {
        #[command(flatten)]
        which: Which,
        /// A snapshot's id, or a step for the last snapshot before it [default: the first snapshot]
        #[arg(long, value_name = "STEP|SNAPSHOT")]
        to: Option<String>,
        /// Don't ask
        #[arg(long)]
        yes: bool,
    },
}

/// Which task.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The task's id or its beginning
    #[arg(add = ArgValueCandidates::new(task_ids))]
    id: String,
}

/// What a new task is to be.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: regent task run \"Write a summary of README.md into SUMMARY.md\" --budget 0.10usd\n\nCtrl-C stops between two steps. `regent task resume` continues, also after a crash."
)]
pub(crate) struct RunArgs {
    /// The goal; `-` reads it from stdin
    goal: String,
    /// The model: `provider/name`, `auto` or `auto:CLASS`
    #[arg(long, default_value = "auto", value_name = "MODEL")]
    model: String,
    /// The tools offered to the agent, separated by commas [default: all that can run, or a few common ones for a
    /// local model]
    #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
    tools: Option<Vec<String>>,
    #[command(flatten)]
    mode: ChangeMode,
    /// Plan first, then run each step with its own agent
    #[arg(long)]
    plan: bool,
    /// Budget, e.g. 0.50usd, tokens=20000, calls=50, time=10m; repeatable
    #[arg(long, value_name = "LIMITS")]
    budget: Vec<String>,
    /// How many turns the agent may take [default: the setting `task.turns`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,
    /// How many tokens the conversation may have, its answer included [default: the model's window]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..))]
    window: Option<u64>,
    /// How many tokens one answer may have [default: what the model and the budget allow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_answer: Option<u64>,
    /// The kind of task, whose templates are in `prompts/NAME` of `.regent` or of your configuration
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// The agent's name, as policy sees it
    #[arg(long, default_value = "worker", value_name = "NAME")]
    agent: String,
    /// A role of the agent, as policy sees it; repeatable
    #[arg(long, value_name = "ROLE")]
    role: Vec<String>,
    /// Priority among waiting tasks
    #[arg(long, value_enum, default_value = "normal")]
    priority: PriorityWord,
    /// How much the model thinks before it answers; it uses the nearest level that it knows [default: the
    /// provider's setting, or the model's own]
    #[arg(long, value_enum, value_name = "LEVEL")]
    effort: Option<EffortWord>,
    /// Never ask; wait or deny when a call needs an approval [default: ask at a terminal, otherwise the
    /// setting `task.unattended`]
    #[arg(long, value_enum, value_name = "WHAT")]
    unattended: Option<Unattended>,
}

/// What a task may change. The kernel holds its agents to it.
#[derive(Debug, Clone, Copy, Args)]
#[group(multiple = false)]
pub(crate) struct ChangeMode {
    /// Change nothing: files can only be read, and programs get the workspace read-only
    #[arg(long)]
    read_only: bool,
    /// Change nothing and answer with a plan
    #[arg(long)]
    plan_only: bool,
    /// Ask before each change
    #[arg(long)]
    ask_writes: bool,
    /// Let it change things although the goal is a question [default: a question changes nothing]
    #[arg(long)]
    may_write: bool,
}

impl ChangeMode {
    pub(crate) fn changes(self) -> Option<Changes> {
        match self {
            Self { read_only: true, .. } | Self { plan_only: true, .. } => Some(Changes::Denied),
            Self { ask_writes: true, .. } => Some(Changes::Asked),
            Self { may_write: true, .. } => Some(Changes::Allowed),
            _by_request => None,
        }
    }

    /// What the agent is told about itself.
    pub(crate) fn role(self) -> &'static str {
        if self.plan_only { PLANNER } else { "" }
    }
}

/// What a task does with a call that nobody can be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unattended {
    /// Stop and wait for an answer (exit code 11)
    Wait,
    /// Deny the call and continue; the task ends with a list of what was left undone (exit code 10). This isn't recorded as your answer
    Deny,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PriorityWord {
    /// Only if no other task waits
    Low,
    /// In order of arrival
    Normal,
    /// Before other tasks
    High,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EffortWord {
    /// Don't think, where that can be turned off
    None,
    /// As little as possible
    Minimal,
    /// Little
    Low,
    /// As usual
    Medium,
    /// Much
    High,
    /// More than much
    Xhigh,
    /// As much as possible
    Max,
}

impl From<EffortWord> for Effort {
    fn from(word: EffortWord) -> Self {
        match word {
            EffortWord::None => Self::None,
            EffortWord::Minimal => Self::Minimal,
            EffortWord::Low => Self::Low,
            EffortWord::Medium => Self::Medium,
            EffortWord::High => Self::High,
            EffortWord::Xhigh => Self::Xhigh,
            EffortWord::Max => Self::Max,
        }
    }
}

impl From<PriorityWord> for Priority {
    fn from(word: PriorityWord) -> Self {
        match word {
            PriorityWord::Low => Self::Low,
            PriorityWord::Normal => Self::Normal,
            PriorityWord::High => Self::High,
        }
    }
}

impl TaskCommand {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Run(_) => "task.run",
            Self::List { .. } => "task.list",
            Self::Show { .. } => "task.show",
            Self::Resume { .. } => "task.resume",
            Self::Continue { .. } => "task.continue",
            Self::Cancel { .. } => "task.cancel",
            Self::Fork { .. } => "task.fork",
            Self::Replay { .. } => "task.replay",
            Self::Diff { .. } => "task.diff",
            Self::Rollback { .. } => "task.rollback",
        }
    }
}

pub(crate) async fn run(context: &Context, command: TaskCommand) -> CommandResult {
    match command {
        TaskCommand::Run(args) => run::run(context, args).await,
        TaskCommand::Resume { id, budget, unattended } => {
            run::resume(context, id.as_deref(), &budget, unattended).await
        }
        TaskCommand::Continue { which, message, model, budget, unattended } => {
            let message = FollowUp { text: message, model, instead: false };
            run::say(context, &which.id, message, (&budget, unattended)).await
        }
        TaskCommand::Fork { which, at, model } => run::fork(context, &which.id, &at, model).await,
        TaskCommand::Cancel { which } => history::cancel(context, &which.id).await,
        TaskCommand::Replay { which } => history::replay(context, &which.id).await,
        TaskCommand::Diff { left, right } => history::diff(context, &left, &right),
        TaskCommand::Rollback { which, to, yes } => {
            history::rollback(context, &which.id, to.as_deref(), yes).await
        }
        TaskCommand::List { count } => shown::list(context, count),
        TaskCommand::Show { which } => shown::show(context, &which.id),
    }
}

/// Ids of tasks, for completion. What can't be read completes nothing.
pub(crate) fn task_ids() -> Vec<CompletionCandidate> {
    let listed = || -> Option<Vec<TaskView>> {
        let global = crate::cli::Global::for_completion();
        let context = Context::new(&global, "regent.complete").ok()?;
        Past::open(&context).ok()?.newest(COMPLETED_MAX).ok()
    };
    let tasks = listed().unwrap_or_default().into_iter();
    tasks
        .map(|one| {
            let help = term::short(&one.record.spec.goal, 60);
            CompletionCandidate::new(one.record.task.as_str().to_owned()).help(Some(help.into()))
        })
        .collect()
}
