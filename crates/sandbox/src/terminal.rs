//! A person's terminal, lent to a program: the program gets a pseudo-terminal of ours.
//!
//! What the program writes takes the way of all output ([`crate::streams`]), filtered by [`FilteredScreen`]; the reader of the call writes it to the
//! terminal. One thread does the rest. It puts the user's terminal into raw mode, so that every key reaches the program (Ctrl-C is a
//! signal to the program's own foreground job), passes on input and size, and puts the terminal back however it ends: when the program
//! does, when the run is killed or dropped, or by a panic. When Ctrl-Z stops the program, it puts the terminal back, suspends this process
//! as the shell's job that it is, and lets the program go on when the job does.

mod filter;
mod keys;
#[cfg(test)]
mod tests;
mod watchdog;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use regent_kernel::JobControl;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use tokio::sync::{Notify, oneshot};

use crate::error::SandboxError;
use crate::sys::terminal::{Modes, TerminalSize, is_anothers};
use filter::Filter;
pub use keys::KeyMode;
use watchdog::Watchdog;

/// How often we check the size of the user's terminal.
const LOOK_NS: i64 = 200_000_000;
const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
/// A program that Ctrl-C should end, and doesn't, is killed at the third of them within this time.
const STOPS_MAX: usize = 3;
const STOPS_WITHIN: Duration = Duration::from_secs(1);
/// A signal to a whole process reaches a thread of it within this time. A process that is stopped doesn't notice how long it took.
const SUSPENDED_WITHIN: Duration = Duration::from_millis(50);

/// How long the terminal may take for the sequences that reset its screen. One that takes nothing (Ctrl-S, a connection that hangs) goes
/// without them.
const FINISH_WITHIN: Duration = Duration::from_millis(200);
/// How long a caller waits for the thread to end: for that, and for a suspension that was under way.
const ENDED_WITHIN: Duration = Duration::from_millis(500);

/// A terminal: the source of input, and the screen that the reader of the call writes to.
#[derive(Debug, Clone)]
pub struct Terminal {
    input: Arc<OwnedFd>,
    output: Arc<OwnedFd>,
}

impl Terminal {
    /// The terminal on this process's own standard input and output.
    ///
    /// # Errors
    /// When they can't be duplicated.
    pub fn of_this_process() -> std::io::Result<Self> {
        let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
        Ok(Self { input: Arc::new(input), output: Arc::new(output) })
    }

    /// Makes the pseudo-terminal like this one. Returns our end, and the program's.
    pub(crate) fn pair(&self) -> Result<(OwnedFd, OwnedFd), SandboxError> {
        let (ours, theirs) =
            crate::sys::terminal::open_pair().map_err(SandboxError::host("opening a pseudo-terminal"))?;
        // Where we can't set it, the terminal has a default.
        if let Ok(modes) = Modes::read(self.input.as_fd()) {
            modes.set(theirs.as_fd(), false).ok();
        }
        if let Ok(window) = TerminalSize::read(self.output.as_fd()) {
            window.set(ours.as_fd()).ok();
        }
        Ok((ours, theirs))
    }
}

/// Puts the modes of a terminal back.
#[derive(Debug)]
struct Restore {
    terminal: Arc<OwnedFd>,
    modes: Modes,
}

impl Drop for Restore {
    fn drop(&mut self) {
        // What was typed for the program, and what the terminal answered to it, must not reach the next reader.
        self.modes.set(self.terminal.as_fd(), true).ok();
    }
}

/// What a program does to a screen: its output is filtered, and what it changes for good is put back in the end.
#[derive(Debug, Clone)]
pub(crate) struct FilteredScreen(Arc<Mutex<Filter>>);

impl FilteredScreen {
    /// Appends to `out` what may pass.
    pub(crate) fn feed(&self, bytes: &[u8], out: &mut Vec<u8>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).feed(bytes, out);
    }

    fn finish(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finish()
    }
}

/// Passes on from a terminal to a program's pseudo-terminal. Dropping it stops that and puts the terminal back.
#[derive(Debug)]
pub(crate) struct Relay {
    /// Closed to stop; a byte suspends.
    stop: Option<OwnedFd>,
    /// Never sent anything: it is closed when the thread has ended, also by a panic.
    ended: oneshot::Receiver<()>,
    raw: RawModes,
    notices: Arc<Notices>,
    screen: FilteredScreen,
}

/// What the user does that concerns the program as a whole.
#[derive(Debug, Default)]
struct Notices {
    stopped: Notify,
    resumed: Notify,
}

impl Relay {
    pub(crate) fn start(
        terminal: Terminal,
        ours: OwnedFd,
        job_control: JobControl,
    ) -> Result<Self, SandboxError> {
        let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let (stop_read, stop) = pipe.map_err(SandboxError::host("making a pipe"))?;
        let notices = Arc::new(Notices::default());
        let screen = FilteredScreen(Arc::new(Mutex::new(Filter::new())));
        let raw = RawModes::default();
        let (noticed, put_back, modes) = (Arc::clone(&notices), screen.clone(), raw.clone());
        let (ends, ended) = oneshot::channel::<()>();
        let work = move || {
            TerminalRelay::new(terminal, (ours, stop_read), (noticed, job_control), modes).run(&put_back);
            drop(ends);
        };
        let thread = std::thread::Builder::new().name("terminal".to_owned()).spawn(work);
        thread.map_err(|cause| SandboxError::Host { doing: "starting a thread", cause })?;
        Ok(Self { stop: Some(stop), ended, raw, notices, screen })
    }

    /// Where the program's output goes through.
    pub(crate) fn screen(&self) -> FilteredScreen {
        self.screen.clone()
    }

    /// Waits until the user insists on stopping the program.
    pub(crate) async fn stopped(&self) {
        self.notices.stopped.notified().await;
    }

    /// The program was stopped from its terminal: so is this process.
    pub(crate) fn suspend(&self) {
        if let Some(stop) = &self.stop {
            // A full pipe already wakes the reader.
            rustix::io::write(stop, b"z").ok();
        }
    }

    /// Waits until this process goes on after it was suspended.
    pub(crate) async fn resumed(&self) {
        self.notices.resumed.notified().await;
    }

    /// Stops it and waits until the terminal is put back. A thread that the terminal holds up is left alone: its descriptors are its own,
    /// dropping the relay puts the modes back, and the next thing that the thread does is to end.
    pub(crate) async fn close(mut self) {
        self.stop = None;
        tokio::time::timeout(ENDED_WITHIN, &mut self.ended).await.ok();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop = None;
        // Not by the thread alone: it may hang in a read whose bytes another reader took.
        self.raw.end();
    }
}

/// The modes that the user's terminal had, while it is raw: shared by the thread that changes them and the relay, which may have to put
/// them back without it.
#[derive(Debug, Clone, Default)]
struct RawModes(Arc<Mutex<RawState>>);

#[derive(Debug, Default)]
struct RawState {
    /// Set while the user's terminal is raw.
    restore: Option<Restore>,
    /// Puts them back if this process is killed. Started with the first change.
    watchdog: Option<Watchdog>,
    /// It stays as it is from here on.
    is_over: bool,
}

impl RawModes {
    fn lock(&self) -> MutexGuard<'_, RawState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every byte passes as it is, both ways.
    fn begin(&self, terminal: &Terminal) {
        self.begin_as(terminal, Modes::raw);
    }

    fn begin_as(&self, terminal: &Terminal, changed: fn(Modes) -> Modes) {
        let mut state = self.lock();
        if state.is_over || state.restore.is_some() {
            return;
        }
        if let Ok(modes) = Modes::read(terminal.input.as_fd()) {
            // Before the modes are changed, so that they are put back whatever happens after.
            state.restore = Some(Restore { terminal: Arc::clone(&terminal.input), modes });
            state.watchdog = state.watchdog.take().or_else(|| Watchdog::start(terminal, &modes));
            state.watchdog.iter().for_each(Watchdog::raw);
            changed(modes).set(terminal.input.as_fd(), false).ok();
        }
    }

    fn put_back(&self) {
        let mut state = self.lock();
        state.restore = None;
        state.watchdog.iter().for_each(Watchdog::put_back);
    }

    /// Puts them back for good.
    fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.restore = None;
        state.watchdog.iter().for_each(Watchdog::put_back);
        state.watchdog = None;
    }
}

struct TerminalRelay {
    terminal: Terminal,
    ours: OwnedFd,
    stop: OwnedFd,
    notices: Arc<Notices>,
    job_control: JobControl,
    window: Option<TerminalSize>,
    raw: RawModes,
    /// Typed, and not yet taken by the program.
    pending: Vec<u8>,
    /// Whether more can be typed.
    reads: bool,
    /// Nobody is at the terminal any more.
    is_gone: bool,
    /// When Ctrl-C was pressed last.
    stops: Vec<Instant>,
}

impl Drop for TerminalRelay {
    fn drop(&mut self) {
        // By a panic, too: without this thread nobody passes on what is typed into a raw terminal.
        self.raw.end();
    }
}

impl TerminalRelay {
    fn new(
        terminal: Terminal,
        (ours, stop): (OwnedFd, OwnedFd),
        (notices, job_control): (Arc<Notices>, JobControl),
        raw: RawModes,
    ) -> Self {
        let window = TerminalSize::read(terminal.output.as_fd()).ok();
        let (pending, stops) = (Vec::new(), Vec::new());
        let (reads, is_gone) = (false, false);
        Self { terminal, ours, stop, notices, job_control, window, raw, pending, reads, is_gone, stops }
    }

    fn run(mut self, screen: &FilteredScreen) {
        while self.pass() {}
        // The modes first: that waits for nothing.
        self.raw.end();
        self.write(&screen.finish(), FINISH_WITHIN);
    }

    /// A job in the background may not read, and leaves the terminal as it is; the one in the foreground has it raw.
    fn follow_job(&mut self) {
        let is_ours = !is_anothers(self.terminal.input.as_fd());
        self.reads = is_ours && !self.is_gone;
        if is_ours {
            self.raw.begin(&self.terminal);
        }
    }

    /// Called once all output so far is on the screen. Restores the terminal and stops this process, with the job of the shell's that it is
    /// in. Returns when the job goes on, or at once if nobody could let it go on: then the kernel doesn't stop it.
    fn suspend(&mut self) {
        self.raw.put_back();
        let began = Instant::now();
        self.job_control.stop();
        rustix::process::kill_current_process_group(rustix::process::Signal::TSTP).ok();
        std::thread::sleep(SUSPENDED_WITHIN);
        // Where this process wasn't stopped, a program that stops itself again and again gains nothing.
        let stopped = began.elapsed().saturating_sub(SUSPENDED_WITHIN).as_millis();
        self.job_control.go_on(u64::try_from(stopped).unwrap_or(u64::MAX));
        self.follow_job();
        self.notices.resumed.notify_one();
    }

    /// One round; false when it is over.
    fn pass(&mut self) -> bool {
        self.follow_job();
        self.follow_window();
        // What was typed goes to the program before more is taken.
        let second = match self.pending.is_empty() {
            true => PollFd::new(&self.terminal.input, PollFlags::IN),
            false => PollFd::new(&self.ours, PollFlags::OUT),
        };
        let mut ready = [PollFd::new(&self.stop, PollFlags::IN), second];
        // An empty set would still wake us for a terminal that is gone.
        let count = if self.reads || !self.pending.is_empty() { 2 } else { 1 };
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        let Some(asked) = ready.get_mut(..count) else { return false };
        match rustix::event::poll(asked, Some(&look)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
        let [stop, second] = ready.map(|one| one.revents());
        if stop.contains(PollFlags::IN) && rustix::io::read(&self.stop, &mut [0; 1]) == Ok(1) {
            self.suspend();
            // The program that had the terminal meanwhile has read what was there.
            return true;
        }
        if !stop.is_empty() {
            return false;
        }
        match (second.is_empty(), self.pending.is_empty()) {
            (true, _) => true,
            (false, false) => self.push(),
            (false, true) => {
                self.take();
                true
            }
        }
    }

    fn follow_window(&mut self) {
        let now = TerminalSize::read(self.terminal.output.as_fd()).ok();
        if now != self.window {
            self.window = now;
            now.map(|window| window.set(self.ours.as_fd()));
        }
    }

    /// Takes what was typed.
    fn take(&mut self) {
        let mut buffer = [0; 4096];
        match rustix::io::read(&*self.terminal.input, &mut buffer) {
            Ok(0) | Err(Errno::IO) => {
                // The terminal is gone: so the program hears.
                self.is_gone = true;
                self.pending.push(CTRL_D);
            }
            Ok(count) => {
                let typed = buffer.get(..count).unwrap_or_default();
                self.count_stops(typed);
                self.pending.extend_from_slice(typed);
            }
            Err(_) => {}
        }
    }

    /// Where the program has made Ctrl-C a key like any other (raw mode), or another key the signal (Emacs), pressing it says nothing.
    fn count_stops(&mut self, typed: &[u8]) {
        let interrupt = Modes::read(self.ours.as_fd()).ok().and_then(|modes| modes.interrupt_key());
        if interrupt != Some(CTRL_C) {
            return self.stops.clear();
        }
        let now = Instant::now();
        self.stops.retain(|at| now.duration_since(*at) < STOPS_WITHIN);
        self.stops.extend(typed.iter().filter(|byte| **byte == CTRL_C).map(|_| now));
        if self.stops.len() >= STOPS_MAX {
            self.notices.stopped.notify_one();
        }
    }

    /// Gives the program what was typed; false when it has no terminal any more.
    fn push(&mut self) -> bool {
        match rustix::io::write(&self.ours, &self.pending) {
            Ok(count) => drop(self.pending.drain(..count.min(self.pending.len()))),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return false,
        }
        true
    }

    /// Writes to the user's terminal as much as it takes in time: byte by byte, because a write of one doesn't block where there is room.
    fn write(&self, mut bytes: &[u8], within: Duration) {
        let until = Instant::now() + within;
        while let Some((byte, rest)) = bytes.split_first() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let Ok(left) = Timespec::try_from(left) else { return };
            let mut ready = [PollFd::new(&*self.terminal.output, PollFlags::OUT)];
            let written = match rustix::event::poll(&mut ready, Some(&left)) {
                Ok(0) => return,
                Ok(_) => rustix::io::write(&*self.terminal.output, &[*byte]),
                Err(error) => Err(error),
            };
            match written {
                Ok(_) => bytes = rest,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return,
            }
        }
    }
}
