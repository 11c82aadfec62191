//! A conversation without a terminal: each line of stdin is a message, each answer goes to stdout.

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::sync::Arc;

use regent_kernel::Budget;

use super::conversation::Conversation;
use super::{ChatArgs, Opening, none_yet, opened, spec};
use crate::codes;
use crate::commands::task;
use crate::compose::{BootedKernel, tasks};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done, StdoutContent};
use crate::stage::Stage;

/// A message may be so long.
const LINE_BYTES_MAX: u64 = 256 << 10;

pub(super) async fn run(
    context: &Context,
    running: &BootedKernel,
    (args, budget): (ChatArgs, Budget),
    opening: Opening,
) -> CommandResult {
    if std::io::stdin().is_terminal() {
        return Err(Failure::new(
            codes::USAGE,
            "`chat` needs a terminal for its output too, or messages on stdin",
        )
        .help("for a single goal use `regent task run GOAL`"));
    }
    let stage = Arc::new(Stage::new(context.screen));
    let runtime = tasks::runtime(context, running, task::asks(context, running, &stage, args.unattended))?;
    let mut talk = Conversation::new(context, running, runtime, (spec(&args), budget))?;
    match opening {
        Opening::New => {}
        Opening::One(task) => drop(opened(&mut talk, task, args.model).await?),
        Opening::Any => {
            let newest = talk.others()?.into_iter().next().ok_or_else(none_yet)?;
            drop(opened(&mut talk, newest.record.task, args.model).await?);
        }
    }
    let mut last: Option<Done> = None;
    let mut failed = None;
    while let Some(message) = line()? {
        if message.trim().is_empty() {
            continue;
        }
        if let Some(result) = last.take() {
            context.screen.show(result);
        }
        let handle = talk.say(message.trim()).await?;
        let first_turn = talk.view()?.and_then(|view| Some(view.exchanges.last()?.turn)).unwrap_or(0);
        let budget = talk.view()?.map(|view| view.record.spec.budget).unwrap_or_default();
        let ended = task::watch_from(context, &running.host, &stage, (handle, first_turn)).await;
        match task::one_of(ended, budget)?.report(context) {
            Ok(done) => last = Some(done),
            // It has an answer, which was shown: the lines that follow are worked on, and the exit code tells in the end.
            Err(failure) if [codes::exit::DENIED, codes::exit::UNVERIFIED].contains(&failure.exit) => {
                context.screen.say(&context.screen.report(&failure));
                failed = Some(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    if let Some(failure) = failed {
        if let Some(result) = last.take() {
            context.screen.show(result);
        }
        return Err(failure);
    }
    let none = || {
        Failure::new(codes::USAGE, "stdin has no message")
            .help("each line of stdin is a message; for a single goal use `regent task run GOAL`")
    };
    match last {
        Some(done) => Ok(done),
        None if talk.task().is_some() => {
            Ok(Done { shown: StdoutContent::Already, ..Done::new(serde_json::Value::Null, "") })
        }
        None => Err(none()),
    }
}

/// The next line; none at the end.
fn line() -> Result<Option<String>, Failure> {
    let fail = |error: std::io::Error| Failure::new(codes::IO, format!("can't read stdin as text: {error}"));
    let mut line = String::new();
    let count = std::io::stdin().lock().take(LINE_BYTES_MAX + 1).read_line(&mut line).map_err(fail)?;
    if count as u64 > LINE_BYTES_MAX {
        return Err(Failure::new(codes::INPUT_SIZE, format!("a message has at most {LINE_BYTES_MAX} bytes")));
    }
    Ok((count > 0).then_some(line))
}
