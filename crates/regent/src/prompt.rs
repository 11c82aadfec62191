//! Asking at the terminal. There is one place for it, so that nothing typed before a question can answer it.

use std::io::{BufRead as _, Write as _};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::termios::QueueSelector;
use tokio::sync::mpsc;

use crate::calls;
use crate::codes;
use crate::failure::Failure;
use crate::output::Screen;

const LOOK_PAUSE: Duration = Duration::from_millis(30);

/// Asks a question whose answer is yes or no. Only a plain yes is one: an empty line and the end of input are not. Where nobody can be
/// asked it fails, so no caller can take the missing terminal for consent.
pub(crate) async fn confirm(
    screen: &Screen,
    question: &str,
    unasked: impl FnOnce() -> Failure,
) -> Result<bool, Failure> {
    if !screen.can_ask {
        return Err(unasked());
    }
    tokio::select! {
        // In this order: who sees the question can interrupt it.
        biased;
        () = calls::interrupt() => Err(Failure::new(codes::INTERRUPTED, "interrupted; nothing was done")),
        typed = awaited(screen, question) => Ok(typed?.is_some_and(|line| is_yes(&line))),
    }
}

/// Shows a question and reads the line that is typed after it; none at the end of input. The wait can be abandoned: what is typed after
/// that is still there for the next reader.
pub(crate) async fn awaited(screen: &Screen, question: &str) -> Result<Option<String>, Failure> {
    show(screen, question)?;
    let stdin = rustix::stdio::stdin();
    // A read can't be called off, a look can.
    loop {
        let mut looked = [PollFd::new(&stdin, PollFlags::IN)];
        match rustix::event::poll(&mut looked, Some(&Timespec::default())) {
            Ok(0) | Err(Errno::INTR) => tokio::time::sleep(LOOK_PAUSE).await,
            Ok(_) => return read(),
            Err(error) => return Err(unreadable(&error.into())),
        }
    }
}

fn show(screen: &Screen, question: &str) -> Result<(), Failure> {
    screen.say(question);
    std::io::stderr().flush().map_err(|error| Failure::new(codes::IO, format!("can't ask: {error}")))?;
    forget_typed();
    Ok(())
}

fn read() -> Result<Option<String>, Failure> {
    let mut line = String::new();
    let bytes = std::io::stdin().lock().read_line(&mut line).map_err(|error| unreadable(&error))?;
    Ok((bytes > 0).then_some(line))
}

fn unreadable(error: &std::io::Error) -> Failure {
    Failure::new(codes::IO, format!("can't read the answer: {error}"))
}

/// Whether a line is a plain yes.
pub(crate) fn is_yes(line: &str) -> bool {
    matches!(line.trim(), "y" | "Y" | "yes")
}

/// Drops what the terminal holds: it was typed before the question was shown. Without a terminal there is nothing to drop.
fn forget_typed() {
    rustix::termios::tcflush(rustix::stdio::stdin(), QueueSelector::IFlush).ok();
}

/// Lines from stdin, read by a thread of its own, because a read can't be called off. A line counts for the question that was shown when
/// it was typed, and for no other.
#[derive(Debug)]
pub(crate) struct Keyboard {
    /// Asks the thread for a line; none where somebody else reads the terminal.
    wanted: Option<std::sync::mpsc::Sender<()>>,
    lines: mpsc::UnboundedReceiver<(Instant, String)>,
    reading: bool,
    /// When the question was shown that is open now.
    asked_at: Instant,
}

impl Keyboard {
    /// Starts the thread; it reads when a line is wanted.
    pub(crate) fn start() -> Self {
        let (wanted, wants) = std::sync::mpsc::channel::<()>();
        let (told, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            while wants.recv().is_ok() {
                let mut line = String::new();
                match std::io::stdin().lock().read_line(&mut line) {
                    Ok(1..) if told.send((Instant::now(), line)).is_ok() => {}
                    Ok(_) | Err(_) => return,
                }
            }
        });
        Self { wanted: Some(wanted), lines, reading: false, asked_at: Instant::now() }
    }

    /// Lines that somebody else reads, each with the time at which it was typed.
    pub(crate) fn from_lines(lines: mpsc::UnboundedReceiver<(Instant, String)>) -> Self {
        Self { wanted: None, lines, reading: false, asked_at: Instant::now() }
    }

    /// A question is about to be shown. Who reads the terminal for us gives no line that was typed before it is on the screen.
    pub(crate) fn asks(&mut self) {
        self.asked_at = Instant::now();
    }

    /// A question has just been shown: what was typed before it is no answer to it.
    pub(crate) fn asked(&mut self) {
        if self.wanted.is_some() {
            forget_typed();
            self.asked_at = Instant::now();
        }
    }

    /// The next line that is typed after the question; none at the end of input.
    pub(crate) async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(wanted) = self.wanted.as_ref().filter(|_| !self.reading) {
                wanted.send(()).ok()?;
                self.reading = true;
            }
            let (typed_at, line) = self.lines.recv().await?;
            self.reading = false;
            if typed_at >= self.asked_at {
                return Some(line);
            }
        }
    }
}
