//! The thread that notices commits of other processes: inotify on the write-ahead log, and then a look at the newest version.
//!
//! A process writes the log before it makes the commit visible, so the event comes too early. The thread looks again, at growing intervals,
//! for as long as a commit may take. It sleeps while there are no writes.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;
use tokio::sync::watch;

use super::{announce, rows};
use crate::StateError;

/// For how long after an event a new version is expected: longer than an fsync of a slow disk takes.
const EXPECTED: Duration = Duration::from_secs(10);
/// How soon it is looked for again, at first and at last.
const LOOK: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(100);
/// How often to look where the system gives no inotify.
const UNWATCHED: Duration = Duration::from_millis(250);

/// The thread and how to end it.
#[derive(Debug)]
pub(super) struct Watcher {
    thread: JoinHandle<()>,
    stop: Arc<OwnedFd>,
}

impl Watcher {
    pub(super) fn start(
        path: &Path,
        connection: Connection,
        changed: watch::Sender<u64>,
    ) -> Result<Self, StateError> {
        let unusable =
            |error: std::io::Error| StateError::Unusable(format!("the state can't be watched: {error}"));
        let stop = Arc::new(
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|error| unusable(error.into()))?,
        );
        let (log, stopped) = (log_of(path), Arc::clone(&stop));
        let work = move || run(&connection, &changed, watch_log(&log), &stopped);
        let thread =
            std::thread::Builder::new().name("state-watcher".to_owned()).spawn(work).map_err(unusable)?;
        Ok(Self { thread, stop })
    }

    pub(super) fn stop(self) {
        if rustix::io::write(&*self.stop, &1_u64.to_ne_bytes()).is_ok() {
            drop(self.thread.join());
        }
    }
}

fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// None where the system gives no more inotify instances: the thread then looks at intervals.
fn watch_log(log: &Path) -> Option<OwnedFd> {
    let events = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok()?;
    inotify::add_watch(&events, log, inotify::WatchFlags::MODIFY).ok()?;
    Some(events)
}

fn run(connection: &Connection, changed: &watch::Sender<u64>, events: Option<OwnedFd>, stop: &OwnedFd) {
    let (mut expected_until, mut interval) = (None::<Instant>, LOOK);
    loop {
        let timeout = match (&events, expected_until) {
            (None, _) => Some(UNWATCHED),
            (Some(_), Some(_)) => Some(interval),
            (Some(_), None) => None,
        };
        let Some(has_event) = wait(events.as_ref(), stop, timeout) else { return };
        if has_event {
            (expected_until, interval) = (Some(Instant::now() + EXPECTED), LOOK);
        }
        let before = *changed.borrow();
        // A read that fails is no news; waiting callers find out when they read.
        let newest = rows::total(connection).map_or(before, |total| total.version);
        announce(changed, newest);
        interval = if newest > before { LOOK } else { (interval * 2).min(LOOK_MAX) };
        // A new version doesn't end it: the event may have been for the commit after that.
        expected_until = expected_until.filter(|until| Instant::now() < *until);
    }
}

/// Waits for an event or the time; nothing if the state is closed.
fn wait(events: Option<&OwnedFd>, stop: &OwnedFd, timeout: Option<Duration>) -> Option<bool> {
    let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
    fds.extend(events.map(|events| PollFd::new(events, PollFlags::IN)));
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    // An interrupted wait is a short one.
    if poll(&mut fds, timeout.as_ref()).is_err() {
        // An interrupted wait is a short one.
        return Some(false);
    }
    let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
    if is_ready(0) {
        return None;
    }
    let has_event = is_ready(1);
    if let Some(events) = events.filter(|_| has_event) {
        // They are only counted: whichever they are, there is one thing to look at.
        let mut buffer = [0_u8; 4096];
        while rustix::io::read(events, &mut buffer).is_ok_and(|count| count == buffer.len()) {}
    }
    Some(has_event)
}
