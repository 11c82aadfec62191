//! The judge's messages as lines: one JSON object a line in, one out, in the order of the questions.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, Read as _, Write};
use std::sync::Arc;
use std::time::Duration;

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

/// How long messages may take to be answered whose answers nobody takes.
const LEFT_MS_MAX: u64 = 60_000;

/// Answers the messages of one host until its input ends. Returns how many it answered, and fails if nobody takes the answers. When it
/// returns, no message is being answered any more.
pub async fn serve(
    judge: &Arc<Judge>,
    input: impl BufRead + Send + 'static,
    output: impl Write,
    render: fn(&Value) -> Vec<u8>,
) -> io::Result<u64> {
    let (to, messages) = mpsc::channel(LINES_AHEAD_MAX);
    // Reading blocks, and parsing a long message takes time that answers must not wait for. The thread ends with its input, or when
    // nobody takes its messages any more.
    std::thread::Builder::new().name("judge-lines".to_owned()).spawn(move || read_messages(input, &to))?;
    let mut asked = VecDeque::new();
    let answered = answer_all(judge, messages, &mut asked, (output, render)).await;
    settle(asked).await;
    answered
}

async fn answer_all(
    judge: &Arc<Judge>,
    mut messages: mpsc::Receiver<Incoming>,
    asked: &mut VecDeque<Answering>,
    (mut output, render): (impl Write, fn(&Value) -> Vec<u8>),
) -> io::Result<u64> {
    let mut answered = 0_u64;
    let (mut turns, mut is_open) = (MessageOrder::default(), true);
    while is_open || !asked.is_empty() {
        let message = tokio::select! {
            biased;
            // Answers go out in the order of the questions.
            answer = first(asked), if !asked.is_empty() => {
                asked.pop_front();
                answered = answered.saturating_add(1);
                let mut answers = render(&json!(answer));
                // One commit completes many answers. They go out in one write.
                while asked.front().is_some_and(|one| one.task.is_finished()) {
                    answers.extend(render(&json!(first(asked).await)));
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

/// A message that is being answered.
#[derive(Debug)]
struct Answering {
    task: JoinHandle<JudgeAnswer>,
    /// It may take as long as a person or a model does, and nothing is left half done if it ends early.
    may_be_dropped: bool,
}

/// Waits for the answer to the oldest question.
async fn first(asked: &mut VecDeque<Answering>) -> JudgeAnswer {
    match asked.front_mut() {
        Some(one) => (&mut one.task).await.unwrap_or_else(|_torn_down| {
            JudgeAnswer::Decision(JudgeDecision::refused("the session was closed"))
        }),
        None => std::future::pending().await,
    }
}

/// Ends what is left of a host that takes no answers. What begins or ends a session, or reports a result, is completed first: a session
/// that appears after the others were closed would stay.
async fn settle(asked: VecDeque<Answering>) {
    asked.iter().filter(|one| one.may_be_dropped).for_each(|one| one.task.abort());
    let until = tokio::time::Instant::now() + Duration::from_millis(LEFT_MS_MAX);
    for mut one in asked {
        if tokio::time::timeout_at(until, &mut one.task).await.is_err() {
            one.task.abort();
            one.task.await.ok();
        }
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
    fn answer(&mut self, judge: &Arc<Judge>, message: Incoming) -> Answering {
        if self.last.len() > SIDE_BY_SIDE_MAX {
            self.last.retain(|_, last| matches!(last.try_recv(), Err(TryRecvError::Empty)));
        }
        let judge = Arc::clone(judge);
        let may_be_dropped = match &message {
            Ok(JudgeMessage::Decide { .. } | JudgeMessage::Read { .. }) | Err(_) => true,
            Ok(JudgeMessage::Begin { .. } | JudgeMessage::Observe { .. } | JudgeMessage::End { .. }) => false,
        };
        let (done, before) = self.queue(message.as_ref().ok());
        let task = tokio::spawn(async move {
            // A message only waits for messages that came before it, so that no two wait for each other.
            for before in before {
                before.await.ok();
            }
            let answer = judge.answer(message).await;
            drop(done);
            answer
        });
        Answering { task, may_be_dropped }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn nothing_is_being_answered_after_a_host_that_takes_no_answers_is_left() {
        let refused = || JudgeAnswer::Refused { error: String::new() };
        let (held, mut is_dropped) = oneshot::channel::<()>();
        let has_begun = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&has_begun);
        let waits_for_a_person = tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
            refused()
        });
        let begins_a_session = tokio::spawn(async move {
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            begun.store(true, Ordering::SeqCst);
            refused()
        });
        settle(VecDeque::from([
            Answering { task: waits_for_a_person, may_be_dropped: true },
            Answering { task: begins_a_session, may_be_dropped: false },
        ]))
        .await;
        assert!(has_begun.load(Ordering::SeqCst), "before the sessions are closed");
        assert!(matches!(is_dropped.try_recv(), Err(TryRecvError::Closed)));
    }
}
