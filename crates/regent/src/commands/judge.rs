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
use crate::judge::{self, Judge, Message, Planner};
use crate::output::{self, CommandResult, Done, Shown};

/// Judge the calls of an agent that somebody else runs
#[derive(Debug, Args)]
#[command(
    after_help = "One JSON object a line on stdin, one answer each on stdout:\n  {\"op\":\"begin\",\"session\":S,\"prompt\":TEXT,\"tools\":{NAME:{\"description\",\"schema\",\"labels\"}},\"trusted\":{\"tools\",\"plan\"},\"applies_changes\":BOOL,\"mediates\":[POINT]}\n  {\"op\":\"decide\",\"session\":S,\"call\":{\"id\",\"tool\",\"args\"},\"derived_from\":[…],\"quarantined\":BOOL}  ->  {\"decision\":\"allow|ask|deny\",\"reason\",\"args\" where policy has changed them}\n  {\"op\":\"observe\",\"session\":S,\"call\":{…},\"output\":{\"text\",\"data\",\"error\"},\"store\":{\"name\",\"key\",\"wrote\"}}  ->  {\"outcome\",\"withheld\" or \"output\" where policy says so}\n  {\"op\":\"read\",\"session\":S,\"read\":{\"id\",\"text\",\"question\",\"type\"}}  ->  {\"value\"}, with --model\n  {\"op\":\"end\",\"session\":S}\n\nWhere `trusted` has no plan, one is proposed from the prompt's own words; the answer to begin shows it. The host performs what is allowed, and what its person agrees to, and says what came of it. Every decision is in the ledger:\nthe project's where you are in one that you trust, else one of its own in your state folder."
)]
pub(crate) struct JudgeArgs {
    /// Talk over stdin and stdout
    #[arg(long, required = true)]
    stdio: bool,
    /// Propose no plan to sessions that bring none
    #[arg(long)]
    no_planner: bool,
    /// Model that proposes plans from the request alone and reads quarantined texts, as `provider/name`
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
}

/// The longest message.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Messages that are read ahead.
const LINES_AHEAD_MAX: usize = 16;
/// Messages of different sessions that are answered side by side, so that what they record is committed together.
const SIDE_BY_SIDE_MAX: usize = 64;

pub(crate) async fn run(context: &Context, args: JudgeArgs) -> CommandResult {
    let (kernel, judge) = compose::judge(context, Planner::new(!args.no_planner, args.model)).await?;
    let judge = Arc::new(judge);
    let (to, mut messages) = mpsc::channel(LINES_AHEAD_MAX);
    // Reading blocks, and parsing a long message takes time that answers must not wait for. The thread ends with its input, or when
    // nobody takes its messages any more.
    std::thread::spawn(move || read_messages(&to));
    let (mut answered, mut result) = (0_u64, Ok(()));
    let (mut turns, mut asked, mut is_open) = (Turns::default(), VecDeque::new(), true);
    while is_open || !asked.is_empty() {
        let message = tokio::select! {
            biased;
            // Answers go out in the order of the questions.
            answer = first(&mut asked), if !asked.is_empty() => {
                asked.pop_front();
                answered = answered.saturating_add(1);
                let mut answers = output::line(&answer);
                // One commit completes many answers. They go out in one write.
                while asked.front().is_some_and(JoinHandle::is_finished) {
                    answers.extend(output::line(&first(&mut asked).await));
                    asked.pop_front();
                    answered = answered.saturating_add(1);
                }
                if let Err(error) = write_out(&answers) {
                    result = Err(Failure::new(codes::IO, format!("nobody takes the answers: {error}")));
                    break;
                }
                continue;
            }
            message = messages.recv(), if is_open && asked.len() < SIDE_BY_SIDE_MAX => message,
        };
        match message {
            Some(message) => asked.push_back(turns.answer(&judge, message)),
            None => is_open = false,
        }
    }
    calls::settled(result, kernel.shutdown().await)?;
    Ok(Done { data: json!({"answered": answered}), shown: Shown::Already, exit: 0 })
}

/// Waits for the answer to the oldest question.
async fn first(asked: &mut VecDeque<JoinHandle<Value>>) -> Value {
    match asked.front_mut() {
        Some(answer) => answer.await.unwrap_or_else(|_torn_down| {
            let why = "it was torn down";
            json!({"decision": "deny", "error": why, "reason": why})
        }),
        None => std::future::pending().await,
    }
}

/// The messages of one session are answered one after the other. So are the reports on stores, also of different sessions: a read must
/// find the label of every write that was reported before it.
#[derive(Debug, Default)]
struct Turns {
    /// Closed when the last message of a session is answered.
    last: HashMap<String, Answered>,
    /// Closed when the last report on a store is answered.
    last_store: Option<Answered>,
}

/// Never sent anything: it is closed when a message is answered.
type Answered = oneshot::Receiver<()>;

impl Turns {
    /// Begins to answer a message.
    fn answer(&mut self, judge: &Arc<Judge>, message: Incoming) -> JoinHandle<Value> {
        if self.last.len() > SIDE_BY_SIDE_MAX {
            self.last.retain(|_, last| matches!(last.try_recv(), Err(TryRecvError::Empty)));
        }
        let judge = Arc::clone(judge);
        let (done, before) = self.queue(message.as_ref().ok());
        tokio::spawn(async move {
            // A message only waits for messages that came before it, so that no two wait for each other.
            for before in before {
                before.await.ok();
            }
            let answer = judge.answer(message).await;
            drop(done);
            answer
        })
    }

    /// Gives what to drop when the message is answered, and the messages that it has to wait for.
    fn queue(&mut self, message: Option<&Message>) -> (Vec<oneshot::Sender<()>>, Vec<Answered>) {
        let (mut done, mut before) = (Vec::new(), Vec::new());
        if let Some(message) = message {
            let (sender, answered) = oneshot::channel();
            done.push(sender);
            before.extend(self.last.insert(message.session().to_owned(), answered));
        }
        if message.is_some_and(Message::names_store) {
            let (sender, answered) = oneshot::channel();
            done.push(sender);
            before.extend(self.last_store.replace(answered));
        }
        (done, before)
    }
}

fn write_out(answers: &[u8]) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(answers)?;
    stdout.flush()
}

/// A message, or why a line of the input is none.
type Incoming = Result<Message, String>;

/// Reads until the input ends. A line that is too long is answered, and what is left of it is skipped.
fn read_messages(to: &mpsc::Sender<Incoming>) {
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
                judge::read(&line)
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
