//! The judge's messages as lines: one JSON object a line in, one out, in the order of the questions.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, Read as _, Write};
use std::sync::Arc;

use regent_wire::judge::{JudgeAnswer, JudgeDecision, JudgeMessage};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::JoinHandle;

use super::Judge;
use super::message;

/// The longest message.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Messages that are read ahead.
const LINES_AHEAD_MAX: usize = 16;
/// Messages of different sessions that are answered side by side, so that what they record is committed together.
const SIDE_BY_SIDE_MAX: usize = 64;

/// Answers the messages of one host until its input ends. Returns how many it answered, and fails if nobody takes the answers.
pub async fn serve(
    judge: &Arc<Judge>,
    input: impl BufRead + Send + 'static,
    mut output: impl Write,
    render: fn(&Value) -> Vec<u8>,
) -> io::Result<u64> {
    let (to, mut messages) = mpsc::channel(LINES_AHEAD_MAX);
    // Reading blocks, and parsing a long message takes time that answers must not wait for. The thread ends with its input, or when
    // nobody takes its messages any more.
    std::thread::spawn(move || read_messages(input, &to));
    let mut answered = 0_u64;
    let (mut turns, mut asked, mut is_open) = (MessageOrder::default(), VecDeque::new(), true);
    while is_open || !asked.is_empty() {
        let message = tokio::select! {
            biased;
            // Answers go out in the order of the questions.
            answer = first(&mut asked), if !asked.is_empty() => {
                asked.pop_front();
                answered = answered.saturating_add(1);
                let mut answers = render(&json!(answer));
                // One commit completes many answers. They go out in one write.
                while asked.front().is_some_and(JoinHandle::is_finished) {
                    answers.extend(render(&json!(first(&mut asked).await)));
                    asked.pop_front();
                    answered = answered.saturating_add(1);
                }
                output.write_all(&answers)?;
                output.flush()?;
                continue;
            }
            message = messages.recv(), if is_open && asked.len() < SIDE_BY_SIDE_MAX => message,
        };
        match message {
            Some(message) => asked.push_back(turns.answer(judge, message)),
            None => is_open = false,
        }
    }
    Ok(answered)
}

/// Waits for the answer to the oldest question.
async fn first(asked: &mut VecDeque<JoinHandle<JudgeAnswer>>) -> JudgeAnswer {
    match asked.front_mut() {
        Some(answer) => answer.await.unwrap_or_else(|_torn_down| {
            JudgeAnswer::Decision(JudgeDecision::refused("the session was closed"))
        }),
        None => std::future::pending().await,
    }
}

/// The messages of one session are answered one after the other. So are the reports on stores, also of different sessions: a read must
/// find the label of every write that was reported before it.
#[derive(Debug, Default)]
struct MessageOrder {
    /// Closed when the last message of a session is answered.
    last: HashMap<String, Answered>,
    /// Closed when the last report on a store is answered.
    last_store: Option<Answered>,
}

/// Never sent anything: it is closed when a message is answered.
type Answered = oneshot::Receiver<()>;

impl MessageOrder {
    /// Begins to answer a message.
    fn answer(&mut self, judge: &Arc<Judge>, message: Incoming) -> JoinHandle<JudgeAnswer> {
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
    fn queue(&mut self, message: Option<&JudgeMessage>) -> (Vec<oneshot::Sender<()>>, Vec<Answered>) {
        let (mut done, mut before) = (Vec::new(), Vec::new());
        if let Some(message) = message {
            let (sender, answered) = oneshot::channel();
            done.push(sender);
            before.extend(self.last.insert(message.session().to_owned(), answered));
        }
        if message.is_some_and(JudgeMessage::names_store) {
            let (sender, answered) = oneshot::channel();
            done.push(sender);
            before.extend(self.last_store.replace(answered));
        }
        (done, before)
    }
}

/// A message, or why a line of the input is none.
type Incoming = Result<JudgeMessage, String>;

/// Reads until the input ends. A line that is too long is answered, and what is left of it is skipped.
fn read_messages(mut input: impl BufRead, to: &mpsc::Sender<Incoming>) {
    loop {
        let mut line = Vec::new();
        let read = (&mut input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let message = match read {
            Ok(0) | Err(_) => return,
            Ok(_)
                if line.ends_with(b"\n")
                    || line.len() < usize::try_from(LINE_BYTES_MAX).unwrap_or(usize::MAX) =>
            {
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                message::read(&line)
            }
            Ok(_) => {
                if input.skip_until(b'\n').is_err() {
                    return;
                }
                Err(format!("a message has at most {LINE_BYTES_MAX} bytes"))
            }
        };
        if to.blocking_send(message).is_err() {
            return;
        }
    }
}
