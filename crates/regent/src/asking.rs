//! Asking a person at the terminal while a task waits. One question at a time, and only a plain yes is a yes.

mod question;

use std::io::BufRead as _;
use std::sync::Arc;

use regent_kernel::{Answer, Answered, BoxFuture, Kernel, Op, Reply, Scope, Ticket};
use regent_runtime::door::{Asker, Asking};
use tokio::sync::{Mutex, mpsc};

use crate::stage::Stage;

/// Asks on the terminal; an answer from another one counts as well.
#[derive(Debug)]
pub(crate) struct Terminal {
    stage: Arc<Stage>,
    keyboard: Mutex<Keyboard>,
    valid_ms: u64,
}

impl Terminal {
    /// Asks on this stage; a yes holds so long.
    pub(crate) fn new(stage: Arc<Stage>, valid_ms: u64) -> Self {
        Self { stage, keyboard: Mutex::new(Keyboard::start()), valid_ms }
    }

    async fn put(&self, kernel: &Kernel, ticket: &Ticket) -> Asking {
        // Calls side by side may all be asked about; a person reads one question at a time.
        let mut keyboard = self.keyboard.lock().await;
        self.stage.ask(&question::text(self.stage.screen(), kernel, ticket));
        let answer = loop {
            let line = tokio::select! {
                line = keyboard.line() => line,
                answered = kernel.answered(&ticket.id) => {
                    self.stage.go_on("answered from another terminal");
                    return match answered {
                        Ok(Answered::Approved | Answered::Denied { .. }) => Asking::Answered,
                        Ok(Answered::Waiting { .. } | Answered::Gone) | Err(_) => Asking::Later,
                    };
                }
            };
            // Whoever closes the terminal has not answered.
            let Some(line) = line else { return Asking::Later };
            match self.meant(line.trim()) {
                Some(answer) => break answer,
                None => self.stage.ask("  y, s or n: "),
            }
        };
        self.stage.go_on("");
        let op = Op::Answer { ticket: ticket.id.clone(), answer };
        match kernel.syscall(&kernel.operator(), op).await {
            Ok(Reply::Done(_)) => Asking::Answered,
            Ok(Reply::Denied(_) | Reply::Pending(_)) | Err(_) => Asking::Later,
        }
    }

    /// An empty line is a no.
    fn meant(&self, line: &str) -> Option<Answer> {
        let yes = |scope| Some(Answer::Approve { scope, valid_ms: self.valid_ms });
        match line {
            "y" | "Y" | "yes" => yes(Scope::Once),
            "s" | "S" | "session" => yes(Scope::Session),
            "" | "n" | "N" | "no" => Some(Answer::Deny { because: None }),
            _unclear => None,
        }
    }
}

impl Asker for Terminal {
    fn ask<'a>(&'a self, kernel: &'a Kernel, ticket: &'a Ticket) -> BoxFuture<'a, Asking> {
        Box::pin(self.put(kernel, ticket))
    }
}

/// Lines from stdin, read by a thread of its own: a read can't be called off, so one that nobody waits for any more is kept for the
/// next question.
#[derive(Debug)]
struct Keyboard {
    wanted: std::sync::mpsc::Sender<()>,
    lines: mpsc::UnboundedReceiver<String>,
    reading: bool,
}

impl Keyboard {
    fn start() -> Self {
        let (wanted, wants) = std::sync::mpsc::channel::<()>();
        let (told, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            while wants.recv().is_ok() {
                let mut line = String::new();
                match std::io::stdin().lock().read_line(&mut line) {
                    Ok(1..) if told.send(line).is_ok() => {}
                    Ok(_) | Err(_) => return,
                }
            }
        });
        Self { wanted, lines, reading: false }
    }

    async fn line(&mut self) -> Option<String> {
        if !self.reading {
            self.wanted.send(()).ok()?;
            self.reading = true;
        }
        let line = self.lines.recv().await;
        self.reading = false;
        line
    }
}
