//! `regent task`: durable work of agents.

mod history;
mod live;
mod run;
mod shown;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use regent_runtime::{Priority, TaskView};

use crate::context::Context;
use crate::output::CommandResult;
use crate::past::Past;
use crate::term;
pub(crate) use run::{Ended, watched};

/// How many tasks a shell offers.
const COMPLETED_MAX: u32 = 50;

/// Let agents do tasks that survive anything
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Give an agent a goal, and watch it work
    Run(RunArgs),
    /// List the newest tasks of this project
    List {
        /// How many at most
        #[arg(short = 'n', long = "lines", default_value_t = 50, value_name = "N")]
        count: u32,
    },
    /// Show one task: its steps, verdicts, costs and snapshots, and why it waits
    Show {
        #[command(flatten)]
        which: Which,
    },
    /// Go on with a task, or with all that were left over; nothing is done twice
    Resume {
        /// The task's id, or the beginning of it; all that were left over if absent
        #[arg(add = ArgValueCandidates::new(task_ids))]
        id: Option<String>,
        /// What the whole task may use from now on, e.g. 0.50usd or tokens=20000,calls=50
        #[arg(long, value_name = "LIMITS", requires = "id")]
        budget: Vec<String>,
        /// Ask nobody, and do this with calls that you would be asked about
        #[arg(long, value_enum, value_name = "WHAT")]
        unattended: Option<Unattended>,
    },
    /// Stop a task for good, wherever it runs
    Cancel {
        #[command(flatten)]
        which: Which,
    },
    /// Start a new task that shares the steps of another before one, and goes its own way from there
    Fork {
        #[command(flatten)]
        which: Which,
        /// The first step that isn't shared: a turn such as 3, or a step such as 3/tool/0
        #[arg(long, value_name = "STEP")]
        at: String,
        /// Go on with another model
        #[arg(long, value_name = "MODEL")]
        model: Option<String>,
    },
    /// Run a task again from the ledger alone: no model is asked, no tool is run
    Replay {
        #[command(flatten)]
        which: Which,
    },
    /// Show where two tasks part
    Diff {
        /// One task's id, or the beginning of it
        #[arg(add = ArgValueCandidates::new(task_ids))]
        left: String,
        /// The other's
        #[arg(add = ArgValueCandidates::new(task_ids))]
        right: String,
    },
    /// Put the workspace back to a snapshot that was taken while the task ran
    Rollback {
        #[command(flatten)]
        which: Which,
        /// A snapshot's id, or a step: then the last snapshot before it; the first snapshot if absent
        #[arg(long, value_name = "STEP|SNAPSHOT")]
        to: Option<String>,
        /// Ask nothing
        #[arg(long)]
        yes: bool,
    },
}

/// Which task.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The task's id, or the beginning of it
    #[arg(add = ArgValueCandidates::new(task_ids))]
    id: String,
}

/// What a new task is to be.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: regent task run \"Write a summary of README.md into SUMMARY.md\" --budget 0.10usd\n\nCtrl-C stops between two steps, and `regent task resume` goes on; so it does after a crash."
)]
pub(crate) struct RunArgs {
    /// What is to be done; `-` reads it from stdin
    goal: String,
    /// Which model: `provider/name`, `auto` or `auto:CLASS`
    #[arg(long, default_value = "auto", value_name = "MODEL")]
    model: String,
    /// The tools that the agent is offered, separated by commas; if absent all that can be run, or a few common ones for a model on
    /// this machine
    #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
    tools: Option<Vec<String>>,
    /// Make a plan first, and give each step to an agent of its own
    #[arg(long)]
    plan: bool,
    /// What it may use, e.g. 0.50usd, tokens=20000, calls=50, time=10m; may be given more than once
    #[arg(long, value_name = "LIMITS")]
    budget: Vec<String>,
    /// The agent's name, as policy knows it
    #[arg(long, default_value = "worker", value_name = "NAME")]
    agent: String,
    /// A role of the agent, as policy knows it; may be given more than once
    #[arg(long, value_name = "ROLE")]
    role: Vec<String>,
    /// Who goes first where several tasks wait
    #[arg(long, value_enum, default_value = "normal")]
    priority: PriorityWord,
    /// Ask nobody, and do this with calls that you would be asked about; without it you are asked at a terminal, and elsewhere the
    /// setting `task.unattended` counts
    #[arg(long, value_enum, value_name = "WHAT")]
    unattended: Option<Unattended>,
}

/// What a task does with a call that nobody can be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unattended {
    /// Stop there and wait for an answer (exit code 11)
    Wait,
    /// Deny the call and go on without it; the task ends with a list of what was left undone (exit code 10). No answer of yours is recorded
    Deny,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PriorityWord {
    /// When nothing else waits
    Low,
    /// As usual
    Normal,
    /// Before the others
    High,
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
fn task_ids() -> Vec<CompletionCandidate> {
    let listed = || -> Option<Vec<TaskView>> {
        let global = crate::cli::Global { json: true, no_color: true, dir: None, passphrase_fd: None };
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
