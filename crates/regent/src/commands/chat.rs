//! `regent chat`: a conversation with an agent, at a terminal or line by line. It is one task: each message is recorded, and survives
//! whatever happens to this process.

mod acts;
mod conversation;
mod editor;
mod history;
mod keyboard;
mod keys;
mod lines;
mod paint;
mod paste;
mod session;
mod slash;
mod text;
mod view;
mod work;

use std::sync::Arc;

use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use regent_kernel::Budget;
use regent_runtime::TaskSpec;

use super::task::{Unattended, task_ids};
use crate::asking::TerminalAsker;
use crate::codes;
use crate::compose::{BootedKernel, models, tasks};
use crate::context::Context;
use crate::controls::Controls;
use crate::failure::Failure;
use crate::money;
use crate::output::{CommandResult, Done, StdoutContent};
use crate::past;
use crate::prompt::Keyboard;
use crate::stage::Stage;
use crate::trust::{Trust, TrustStanding};
use conversation::Conversation;
use history::History;
use session::{Channels, Session, channels};

/// Talk with an agent about this project; each message is recorded, and work survives crashes
#[derive(Debug, Args)]
#[command(
    after_help = "At a terminal: Enter sends, Alt-Enter begins a new line, Esc stops the agent before its next call, /help lists commands.\n\nWithout a terminal, each line of stdin is a message:\n  printf 'read README.md\\nwhat is missing in it?\\n' | regent chat --unattended deny"
)]
pub(crate) struct ChatArgs {
    /// Continue a conversation: its id or its beginning [default: the only one, or one that you choose]
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "", add = ArgValueCandidates::new(task_ids))]
    resume: Option<String>,
    /// The model: `provider/name`, `auto` or `auto:CLASS` [default: auto, or the conversation's]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// The tools offered to the agent, separated by commas [default: all that can run, or a few common ones for a
    /// local model]
    #[arg(long, value_delimiter = ',', value_name = "TOOLS", conflicts_with = "resume")]
    tools: Option<Vec<String>>,
    /// Budget of the whole conversation, e.g. 0.50usd, tokens=20000, calls=50, time=10m; repeatable
    #[arg(long, value_name = "LIMITS")]
    budget: Vec<String>,
    /// Never ask; wait or deny when a call needs an approval [default: ask at a terminal, otherwise the
    /// setting `task.unattended`]
    #[arg(long, value_enum, value_name = "WHAT")]
    unattended: Option<Unattended>,
}

impl ChatArgs {
    /// Those of `regent` alone.
    fn usual() -> Self {
        Self { resume: None, model: None, tools: None, budget: Vec::new(), unattended: None }
    }
}

/// Which conversation to begin with.
enum Opening {
    New,
    /// One that is asked for.
    Any,
    One(regent_kernel::TaskId),
}

pub(crate) async fn run(context: &Context, args: ChatArgs) -> CommandResult {
    let budget = money::parse(&args.budget)?;
    let opening = match args.resume.as_deref() {
        None => Opening::New,
        Some("") => Opening::Any,
        Some(id) => Opening::One(past::find_task(context, id)?),
    };
    let running = BootedKernel::boot(context).await?;
    let result = match context.screen.interactive {
        true => at_terminal(context, &running, (args, budget), opening).await,
        false => lines::run(context, &running, (args, budget), opening).await,
    };
    running.close(context, result).await
}

/// `regent` alone: a conversation, where there is a terminal, a project that is trusted, and a model; otherwise `None`.
pub(crate) async fn alone(context: &Context) -> Option<CommandResult> {
    if !context.screen.interactive || !is_ready(context) {
        return None;
    }
    Some(run(context, ChatArgs::usual()).await)
}

fn is_ready(context: &Context) -> bool {
    let has_model = || models(context).is_ok_and(|hub| !hub.is_empty());
    let is_trusted = || -> Result<bool, Failure> {
        let project = context.project()?;
        let standing = Trust::load(&context.paths)?.standing(&Controls::read(&project)?);
        Ok(matches!(standing, TrustStanding::Trusted))
    };
    is_trusted().unwrap_or(false) && has_model()
}

fn spec(args: &ChatArgs) -> TaskSpec {
    let tools =
        args.tools.as_ref().map(|tools| tools.iter().filter(|tool| !tool.is_empty()).cloned().collect());
    let model = args.model.clone().unwrap_or_else(|| "auto".to_owned());
    TaskSpec { model, tools, changes: None, ..TaskSpec::default() }
}

/// A conversation to go on with, and the model that was asked for.
async fn opened(
    talk: &mut Conversation<'_>,
    task: regent_kernel::TaskId,
    model: Option<String>,
) -> Result<regent_runtime::TaskView, Failure> {
    let view = talk.open(task).await?;
    model.map_or(Ok(()), |model| talk.set_model(model))?;
    Ok(view)
}

async fn at_terminal(
    context: &Context,
    running: &BootedKernel,
    (args, budget): (ChatArgs, Budget),
    opening: Opening,
) -> CommandResult {
    let (Channels { stage, answers }, tell, lines) = channels();
    let asks = match args.unattended {
        Some(Unattended::Deny) => tasks::Asks::Nobody,
        Some(Unattended::Wait) => tasks::Asks::Later,
        None => {
            let stage = Arc::new(Stage::elsewhere(context.screen, tell.clone()));
            let keyboard = Keyboard::from_lines(lines);
            let valid_ms = context.settings.approve_valid_ms();
            tasks::Asks::At(Arc::new(TerminalAsker::with(running, stage, keyboard, valid_ms)))
        }
    };
    let runtime = tasks::runtime(context, running, asks)?;
    let mut talk = Conversation::new(context, running, runtime, (spec(&args), budget))?;
    let (mut open, mut others) = (None, Vec::new());
    match opening {
        Opening::New => {}
        Opening::One(task) => open = Some(opened(&mut talk, task, args.model).await?),
        Opening::Any => {
            others = talk.others()?;
            match others.as_slice() {
                [] => return Err(none_yet()),
                [one] => {
                    let task = one.record.task.clone();
                    open = Some(opened(&mut talk, task, args.model).await?);
                    others.clear();
                }
                _several => {}
            }
        }
    }
    let project = context.project()?;
    let history = History::new(&context.paths.tasks(&project.root));
    let mut session = Session::new(context, talk, answers, (history, project.root.clone()));
    session.run(stage, (open, others)).await?;
    drop(tell);
    Ok(Done { shown: StdoutContent::Already, ..Done::new(serde_json::Value::Null, "") })
}

fn none_yet() -> Failure {
    Failure::new(codes::TASK_UNKNOWN, "this project has no conversation yet").help("`regent chat` begins one")
}
