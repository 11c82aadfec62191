//! `regent judge`: decisions for agents that others run, one JSON object a line.

use std::io::{BufRead, Read, Write};

use clap::Args;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::calls;
use crate::codes;
use crate::compose;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, CommandResult, Done, Shown};

/// Judge the calls of an agent that somebody else runs
#[derive(Debug, Args)]
#[command(
    after_help = "One JSON object a line on stdin, one answer each on stdout:\n  {\"op\":\"begin\",\"session\":S,\"prompt\":TEXT,\"tools\":{NAME:{\"description\",\"schema\",\"labels\"}},\"trusted\":{\"tools\",\"plan\"},\"applies_changes\":BOOL,\"mediates\":[POINT]}\n  {\"op\":\"decide\",\"session\":S,\"call\":{\"id\",\"tool\",\"args\"}}  ->  {\"decision\":\"allow|ask|deny\",\"reason\",\"args\" where policy has changed them}\n  {\"op\":\"observe\",\"session\":S,\"call\":{…},\"output\":{\"text\",\"data\",\"error\"}}  ->  {\"outcome\",\"withheld\" or \"output\" where policy says so}\n  {\"op\":\"end\",\"session\":S}\n\nThe host performs what is allowed, and what its person agrees to, and says what came of it. Every decision is in the ledger:\nthe project's where you are in one that you trust, else one of its own in your state folder."
)]
pub(crate) struct JudgeArgs {
    /// Talk over stdin and stdout
    #[arg(long, required = true)]
    stdio: bool,
}

/// The longest message.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Messages that are read ahead.
const LINES_AHEAD_MAX: usize = 16;

pub(crate) async fn run(context: &Context, _args: JudgeArgs) -> CommandResult {
    let (kernel, judge) = compose::judge(context).await?;
    let (to, mut lines) = mpsc::channel(LINES_AHEAD_MAX);
    // Reading blocks; the thread ends with its input, or when nobody takes its lines any more.
    std::thread::spawn(move || read_lines(&to));
    let mut answered = 0_u64;
    let mut result = Ok(());
    while let Some(line) = lines.recv().await {
        let answer = match line {
            Ok(line) => judge.answer(&line).await,
            Err(why) => json!({"decision": "deny", "error": why, "reason": why}),
        };
        answered = answered.saturating_add(1);
        if let Err(error) = say(&answer) {
            result = Err(Failure::new(codes::IO, format!("nobody takes the answers: {error}")));
            break;
        }
    }
    calls::settled(result, kernel.shutdown().await)?;
    Ok(Done { data: json!({"answered": answered}), shown: Shown::Already, exit: 0 })
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
