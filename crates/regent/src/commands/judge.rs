//! `regent judge`: decisions for agents that others run, one JSON object a line.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, Read, Write};
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::JoinHandle;

use crate::calls;
use crate::codes;
use crate::compose;
use crate::context::Context;
use crate::failure::Failure;
use crate::judge::{self, Judge};
use crate::output::{self, CommandResult, Done, Shown};

/// Judge the calls of an agent that somebody else runs
#[derive(Debug, Args)]
#[command(
    after_help = "One JSON object a line on stdin, one answer each on stdout:\n  {\"op\":\"begin\",\"session\":S,\"prompt\":TEXT,\"tools\":{NAME:{\"description\",\"schema\",\"labels\"}},\"trusted\":{\"tools\",\"plan\"},\"applies_changes\":BOOL,\"mediates\":[POINT]}\n  {\"op\":\"decide\",\"session\":S,\"call\":{\"id\",\"tool\",\"args\"}}  ->  {\"decision\":\"allow|ask|deny\",\"reason\",\"args\" where policy has changed them}\n  {\"op\":\"observe\",\"session\":S,\"call\":{…},\"output\":{\"text\",\"data\",\"error\"}}  ->  {\"outcome\",\"withheld\" or \"output\" where policy says so}\n  {\"op\":\"end\",\"session\":S}\n\nWhere `trusted` has no plan, one is proposed from the prompt's own words; the answer to begin shows it. The host performs what is allowed, and what its person agrees to, and says what came of it. Every decision is in the ledger:\nthe project's where you are in one that you trust, else one of its own in your state folder."
)]
pub(crate) struct JudgeArgs {
    /// Talk over stdin and stdout
    #[arg(long, required = true)]
    stdio: bool,
    /// Propose no plan to sessions that bring none
    #[arg(long)]
    no_planner: bool,
}

/// The longest message.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Messages that are read ahead.
const LINES_AHEAD_MAX: usize = 16;
/// Messages of different sessions that are answered side by side, so that what they record is committed together.
const SIDE_BY_SIDE_MAX: usize = 64;

pub(crate) async fn run(context: &Context, args: JudgeArgs) -> CommandResult {
    let (kernel, judge) = compose::judge(context, !args.no_planner).await?;
    let judge = Arc::new(judge);
    let (to, mut lines) = mpsc::channel(LINES_AHEAD_MAX);
    // Reading blocks; the thread ends with its input, or when nobody takes its lines any more.
    std::thread::spawn(move || read_lines(&to));
    let (mut answered, mut result) = (0_u64, Ok(()));
    let (mut turns, mut asked, mut is_open) = (Turns::default(), VecDeque::new(), true);
    while is_open || !asked.is_empty() {
        let line = tokio::select! {
            biased;
            // Answers go out in the order of the questions.
            answer = first(&mut asked), if !asked.is_empty() => {
                asked.pop_front();
                answered = answered.saturating_add(1);
                if let Err(error) = say(&answer) {
                    result = Err(Failure::new(codes::IO, format!("nobody takes the answers: {error}")));
                    break;
                }
                continue;
            }
            line = lines.recv(), if is_open && asked.len() < SIDE_BY_SIDE_MAX => line,
        };
        match line {
            Some(line) => asked.push_back(turns.answer(&judge, line)),
            None => is_open = false,
        }
    }
    calls::settled(result, kernel.shutdown().await)?;
    Ok(Done { data: json!({"answered": answered}), shown: Shown::Already, exit: 0 })
}

/// Waits for the answer to the oldest question.
async fn first(asked: &mut VecDeque<JoinHandle<Value>>) -> Value {
    match asked.front_mut() {
        Some(answer) => answer.await.unwrap_or_else(|_torn_down| refused("it was torn down")),
        None => std::future::pending().await,
    }
}

fn refused(why: &str) -> Value {
    json!({"decision": "deny", "error": why, "reason": why})
}

/// The messages of one session are answered one after the other.
#[derive(Debug, Default)]
struct Turns {
    /// Closed when the last message of a session is answered.
    last: HashMap<String, oneshot::Receiver<()>>,
}

impl Turns {
    /// Begins to answer a message.
    fn answer(&mut self, judge: &Arc<Judge>, line: Result<Vec<u8>, String>) -> JoinHandle<Value> {
        if self.last.len() > SIDE_BY_SIDE_MAX {
            self.last.retain(|_, last| matches!(last.try_recv(), Err(TryRecvError::Empty)));
        }
        let judge = Arc::clone(judge);
        let message = match line {
            Ok(line) => judge::read(&line),
            Err(why) => return tokio::spawn(async move { refused(&why) }),
        };
        let (done, until) = oneshot::channel();
        let session = message.as_ref().ok().map(|message| message.session().to_owned());
        let before = session.and_then(|session| self.last.insert(session, until));
        tokio::spawn(async move {
            if let Some(before) = before {
                // It is never sent anything: that it is closed is the message.
                before.await.ok();
            }
            let answer = judge.answer(message).await;
            drop(done);
            answer
        })
    }
}

fn say(answer: &Value) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&output::line(answer))?;
    stdout.flush()
}

/// Reads until the input ends. A line that is too long is answered, and what is left of it is skipped.
fn read_lines(to: &mpsc::Sender<Result<Vec<u8>, String>>) {
    let mut stdin = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let read = (&mut stdin).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let message = match read {
            Ok(0) | Err(_) => return,
            Ok(_)
                if line.ends_with(b"\n")
                    || line.len() < usize::try_from(LINE_BYTES_MAX).unwrap_or(usize::MAX) =>
            {
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                Ok(line)
            }
            Ok(_) => {
                if stdin.skip_until(b'\n').is_err() {
                    return;
                }
                Err(format!("a message has {LINE_BYTES_MAX} bytes at most"))
            }
        };
        if to.blocking_send(message).is_err() {
            return;
        }
    }
}
