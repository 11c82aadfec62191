//! The supervisor of one run: it performs, in the program's place, every call that can make a name in a folder or that opens a file
//! for writing, unless the name is guarded.
//!
//! The kernel holds such a call (seccomp user notification) and hands it to a thread of ours. The thread reads the path once, opens
//! the folder that it leads to inside the program's own root, judges the folder's real path and the last name, and performs the call
//! relative to that very folder. Nothing that it has judged is looked up again, so that a second thread of the program that swaps the
//! path, a link or a folder meanwhile gains nothing. If we die, the listener closes and the kernel answers `ENOSYS`: nothing appears.
//!
//! The thread must not do more than the program could. It has no capabilities, as the program has none; it acts through the program's
//! own mounts, so that what is read-only there stays read-only; and a folder that isn't in the program's view is refused. In the
//! fallback confinement, which has no mounts of its own, the Landlock rules are applied by path.

mod attributes;
mod judge;
mod locate;
mod order;
mod perform;
mod policy;
mod request;
mod search;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::ended::Confinement;
use crate::error::SandboxError;
use crate::grants::PathAccess;
use crate::handover;
use crate::survey::Guards;
use crate::sys::notify::{self, Notice};
use crate::writes::WriteRule;
pub(crate) use order::order;
use policy::Refusal;
pub(crate) use search::{SEARCH_TIME_MAX, SEARCHED_MAX};

/// How often calls that would block us are tried again, and how many of them at once.
const RETRY: Duration = Duration::from_millis(2);
const RETRIES_MAX: usize = 16;
/// Of the time that retries take, so much is left to other calls before the next ones: a program can have thousands of them waiting.
const RETRY_SHARE: u32 = 9;
/// Refused names that the receipt lists.
const REFUSED_MAX: usize = 16;
/// How long a call waits for other sandboxes before it is looked whether its caller is still there.
const TURN_WAIT: Duration = Duration::from_secs(1);
/// After a turn that took longer, a run leaves the lock to others for as long as it had it.
const LONG_TURN: Duration = Duration::from_millis(2);
const STACK_BYTES: usize = 256 * 1024;

/// What the supervisor of a run has to know about it.
#[derive(Debug)]
pub(crate) struct Ground {
    pub confinement: Confinement,
    /// The workspace, which has the same path inside and outside.
    pub workspace: PathBuf,
    /// What the survey found that judges names.
    pub guards: Guards,
    /// What the fallback lets be used; nothing in the full confinement, where mounts say it.
    pub rules: Vec<(PathBuf, PathAccess)>,
    /// What policy says to writing, if it is asked.
    pub writes: Option<WriteRule>,
    /// The terminal that the program was lent, only to say which it is.
    pub terminal: Option<OwnedFd>,
}

/// The names that were refused in one run.
#[derive(Debug, Default, Clone)]
pub(crate) struct RefusedNames {
    pub paths: Vec<PathBuf>,
    /// Those that policy asks about or denies to `fs.write`, relative to the workspace.
    pub by_policy: Vec<PathBuf>,
    /// Folders that were too large to be searched before they were moved.
    pub unsearched: Vec<PathBuf>,
    /// Those beyond the ones listed.
    pub more: u64,
    /// How long calls waited for other sandboxes, if one waited longer than usual.
    pub waited: Duration,
}

/// The running supervisor. It ends by itself when the last process of the sandbox is gone.
#[derive(Debug)]
pub(crate) struct Supervisor {
    refused: Arc<Mutex<RefusedNames>>,
}

impl Supervisor {
    /// Starts the thread, which waits for the listener of the program's process.
    pub(crate) fn start(channel: UnixStream, ground: Ground) -> Result<Self, SandboxError> {
        let refused = Arc::new(Mutex::new(RefusedNames::default()));
        let shared = Arc::clone(&refused);
        std::thread::Builder::new()
            .name("supervisor".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || serve(channel, ground, shared))
            .map_err(|cause| SandboxError::Host { doing: "starting the supervisor", cause })?;
        Ok(Self { refused })
    }

    /// What was refused so far.
    pub(crate) fn refused(&self) -> RefusedNames {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(channel: UnixStream, ground: Ground, refused: Arc<Mutex<RefusedNames>>) {
    let listener = loop {
        match handover::receive(channel.as_fd(), RecvFlags::empty()) {
            Ok(Some(listener)) => break listener,
            Err(Errno::INTR) => {}
            // The program was never started.
            Ok(None) | Err(_) => return,
        }
    };
    drop(channel);
    // Without this we could do more than the program; then nobody answers, and every call fails.
    if give_up_privileges().is_err() {
        return;
    }
    notify::take_turns(listener.as_fd());
    let desk = Desk {
        listener,
        ground,
        refused,
        root: None,
        mounts: HashMap::new(),
        waiting: VecDeque::new(),
        rests_until: Instant::now(),
    };
    desk.run();
}

/// What makes this thread no stronger than the program: no capabilities, and a `umask` apart from the rest of this process.
fn give_up_privileges() -> Result<(), Errno> {
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    notify::own_umask()
}

/// How a call ends.
#[derive(Debug)]
enum SupervisedEnd {
    Value(i64),
    File {
        fd: OwnedFd,
        cloexec: bool,
    },
    /// It would block; it is tried again.
    Later,
}

#[derive(Debug)]
struct Desk {
    listener: OwnedFd,
    ground: Ground,
    refused: Arc<Mutex<RefusedNames>>,
    /// The root that everything in the sandbox shares.
    root: Option<OwnedFd>,
    /// The mounts of the program's view, and whether each is the workspace's.
    mounts: HashMap<u64, bool>,
    /// Calls that would block.
    waiting: VecDeque<Notice>,
    /// Until then others have the lock to themselves.
    rests_until: Instant,
}

impl Desk {
    fn run(mut self) {
        let mut next_retry = Instant::now();
        loop {
            let mut ready = [PollFd::new(&self.listener, PollFlags::IN)];
            let pause = next_retry.saturating_duration_since(Instant::now());
            let pause =
                Timespec { tv_sec: pause.as_secs().cast_signed(), tv_nsec: pause.subsec_nanos().into() };
            let timeout = (!self.waiting.is_empty()).then_some(&pause);
            match poll(&mut ready, timeout) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            let [listener] = &ready;
            let events = listener.revents();
            if events.contains(PollFlags::IN) {
                match notify::receive(self.listener.as_fd()) {
                    Ok(notice) => self.take(notice),
                    // The caller has died meanwhile.
                    Err(Errno::INTR | Errno::NOENT) => {}
                    Err(_) => return,
                }
            } else if !events.is_empty() {
                // Nobody is left who could call.
                return;
            }
            let now = Instant::now();
            if !self.waiting.is_empty() && now >= next_retry {
                for _ in 0..self.waiting.len().min(RETRIES_MAX) {
                    if let Some(notice) = self.waiting.pop_front() {
                        self.take(notice);
                    }
                }
                next_retry = Instant::now() + RETRY.max(now.elapsed() * RETRY_SHARE);
            }
        }
    }

    fn take(&mut self, notice: Notice) {
        let Some(done) = self.in_order(&notice) else { return };
        let listener = self.listener.as_fd();
        let result = match done {
            Ok(SupervisedEnd::Value(value)) => Ok(value),
            Ok(SupervisedEnd::File { fd, cloexec }) => {
                match notify::answer_descriptor(listener, notice.id, fd.as_fd(), cloexec) {
                    Ok(()) => return,
                    // The caller has as many open files as it may.
                    Err(errno) => Err(errno),
                }
            }
            Ok(SupervisedEnd::Later) => {
                self.waiting.push_back(notice);
                return;
            }
            Err(errno) => Err(errno),
        };
        // A caller that has died needs no answer.
        notify::answer(listener, notice.id, result).ok();
    }

    /// Performs a call when it is its turn. `None`: the caller has died meanwhile.
    fn in_order(&mut self, notice: &Notice) -> Option<Result<SupervisedEnd, Errno>> {
        // The lock has no queue: a program that has folders searched all the time would leave nothing to others.
        std::thread::sleep(self.rests_until.saturating_duration_since(Instant::now()));
        loop {
            match order(TURN_WAIT) {
                Ok(_one_at_a_time) => {
                    let began = Instant::now();
                    let done = self.perform(notice);
                    if began.elapsed() > LONG_TURN {
                        self.rests_until = Instant::now() + began.elapsed();
                    }
                    return Some(done);
                }
                // Another process looks at a large workspace, or was stopped. To refuse would break a program that has done nothing
                // wrong; the run's own time limit ends the wait, and its failure says what was waited for.
                Err(Errno::WOULDBLOCK) => {
                    self.refused.lock().unwrap_or_else(PoisonError::into_inner).waited += TURN_WAIT;
                }
                Err(_) => return Some(Err(Errno::ACCESS)),
            }
            if !notify::is_waiting(self.listener.as_fd(), notice.id) {
                return None;
            }
        }
    }

    /// Keeps a refused name for the receipt.
    fn note(&self, refusal: Refusal) -> Errno {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let RefusedNames { paths, by_policy, unsearched, more, .. } = &mut *refused;
        let (list, path, errno) = match refusal {
            Refusal::Guarded(path) => (paths, path, Errno::ACCESS),
            Refusal::Policy(path) => (by_policy, path, Errno::ACCESS),
            // As overlay file systems answer for a folder that can't be renamed as one: `mv` copies it then, file by file.
            Refusal::Unsearched(path) => (unsearched, path, Errno::XDEV),
        };
        if !list.contains(&path) {
            if list.len() < REFUSED_MAX {
                list.push(path);
            } else {
                *more = more.saturating_add(1);
            }
        }
        errno
    }
}
