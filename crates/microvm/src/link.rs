//! What passes between a guest's thread, which may do nothing, and the call that holds the permit, which may do what policy allows.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Something that the guest wants and that needs leave. Paths are the workspace's own.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GuestRequest {
    /// The content of a file.
    Read(String),
    /// Metadata of a file or folder.
    Stat(String),
    /// What is in a folder.
    List(String),
    /// To put content into a file.
    Write(Save),
}

/// Content to be put into a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Save {
    /// Where.
    pub(super) path: String,
    /// What.
    pub(super) content: Vec<u8>,
    /// Over what is there, or not.
    pub(super) how: WriteMode,
}

/// How content is put into a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteMode {
    /// Only if nothing is there.
    Create,
    /// Over what is there.
    Replace,
    /// Behind what is there.
    Append,
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GuestReply {
    /// To `Read`.
    Content(Vec<u8>),
    /// To `Stat`.
    About(About),
    /// To `List`.
    Names(Vec<(String, GuestFileKind)>),
    /// To `Write`.
    Saved,
}

/// Metadata of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct About {
    pub(super) kind: GuestFileKind,
    pub(super) bytes: u64,
    /// Permission bits.
    pub(super) mode: u32,
    pub(super) modified_ms: u64,
}

/// What something in a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuestFileKind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A link.
    Link,
    /// A device that only reads and writes.
    Device,
    /// A pipe.
    Pipe,
}

/// The other side, as the guest's calls see it. The executor's is [`Link`]; tests have their own.
pub(super) trait Outside {
    /// Asks and waits. `EINTR` if the guest is to end.
    fn ask(&self, ask: GuestRequest) -> Result<GuestReply, Errno>;
    /// Waits until then, or for ever, or until the guest is to end.
    fn rest(&self, until: Option<Instant>);
    /// Whether the guest is to end.
    fn is_stopped(&self) -> bool;
}

/// Both ends of the line: the guest's thread asks, the call answers.
#[derive(Debug)]
pub(super) struct Link {
    line: Mutex<LinkState>,
    changed: Condvar,
    stopped: AtomicBool,
    held: AtomicBool,
    /// Counts up when the guest's thread has sent a message.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct LinkState {
    ask: Option<GuestRequest>,
    reply: Option<Result<GuestReply, Errno>>,
    ended: bool,
}

/// What the call receives from the guest's thread.
#[derive(Debug)]
pub(super) enum GuestMessage {
    /// It wants something.
    Ask(GuestRequest),
    /// It has ended.
    Ended,
    /// Nothing.
    Nothing,
}

impl Link {
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (stopped, held) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { line: Mutex::default(), changed: Condvar::new(), stopped, held, bell })
    }

    /// A second descriptor of the bell, to be watched.
    pub(super) fn bell(&self) -> io::Result<OwnedFd> {
        self.bell.try_clone()
    }

    /// The number that the guest's thread may write to.
    pub(super) fn bell_fd(&self) -> i32 {
        self.bell.as_raw_fd()
    }

    /// Takes the guest's message.
    pub(super) fn take_message(&self) -> GuestMessage {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        match (line.ask.take(), line.ended) {
            (Some(ask), _) => GuestMessage::Ask(ask),
            (None, true) => GuestMessage::Ended,
            (None, false) => GuestMessage::Nothing,
        }
    }

    /// Answers the guest's request.
    pub(super) fn reply(&self, reply: Result<GuestReply, Errno>) {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).reply = Some(reply);
        self.changed.notify_all();
    }

    /// Tells the guest's thread to end. It still has to be woken if the guest runs.
    pub(super) fn stop(&self) {
        self.change(&self.stopped, true);
    }

    /// Tells the guest's thread to pause or to continue. To pause it has to be woken, too.
    pub(super) fn hold(&self, held: bool) {
        self.change(&self.held, held);
    }

    /// Waits while the guest is to pause. It may end meanwhile.
    pub(super) fn wait_while_held(&self) {
        if !self.held.load(Ordering::SeqCst) {
            return;
        }
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        while self.held.load(Ordering::SeqCst) && !self.is_stopped() {
            line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn change(&self, what: &AtomicBool, to: bool) {
        what.store(to, Ordering::SeqCst);
        // Under the lock, so that nobody who has looked already misses it.
        drop(self.line.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// The guest's thread is done.
    pub(super) fn end(&self) {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.ring();
    }

    fn ring(&self) {
        // It fails only when it has been rung more often than can be counted.
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).ok();
    }
}

impl Outside for Link {
    fn ask(&self, ask: GuestRequest) -> Result<GuestReply, Errno> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.ask = Some(ask);
        self.ring();
        loop {
            if let Some(reply) = line.reply.take() {
                return reply;
            }
            if self.is_stopped() {
                return Err(Errno::INTR);
            }
            line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn rest(&self, until: Option<Instant>) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_stopped() {
            let left = match until {
                Some(until) => until.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(3600),
            };
            if left.is_zero() {
                return;
            }
            line = self.changed.wait_timeout(line, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}
