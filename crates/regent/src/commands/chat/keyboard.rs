//! What is typed, as it comes: a thread reads the terminal, because a read can't be called off, and stops when nobody listens any more.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use tokio::sync::mpsc;

use crate::codes;
use crate::failure::Failure;

/// Pieces that wait to be handled. What is typed beyond that waits in the terminal.
const PIECES_MAX: usize = 64;

/// What was typed at once, and when.
#[derive(Debug)]
pub(super) struct Typed {
    pub(super) at: Instant,
    pub(super) bytes: Vec<u8>,
}

/// The pieces that are typed; the end when the terminal is gone. Dropping it stops the thread.
#[derive(Debug)]
pub(super) struct Pieces {
    pieces: mpsc::Receiver<Typed>,
    _stop: OwnedFd,
}

impl Pieces {
    pub(super) fn start(input: Arc<OwnedFd>) -> Result<Self, Failure> {
        let fail =
            |error: std::io::Error| Failure::new(codes::IO, format!("can't read the terminal: {error}"));
        let (stopped, stop) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| fail(error.into()))?;
        let (give, pieces) = mpsc::channel(PIECES_MAX);
        let read = move || {
            while let Some(bytes) = piece(&input, &stopped) {
                if give.blocking_send(Typed { at: Instant::now(), bytes }).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("keyboard".to_owned()).spawn(read).map_err(fail)?;
        Ok(Self { pieces, _stop: stop })
    }

    pub(super) async fn next(&mut self) -> Option<Typed> {
        self.pieces.recv().await
    }
}

/// What is typed next; none at the end.
fn piece(input: &OwnedFd, stopped: &OwnedFd) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 4096];
    loop {
        let mut ready = [PollFd::new(input, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match rustix::event::poll(&mut ready, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        }
        let [typed, stop] = ready.map(|one| one.revents());
        if !stop.is_empty() {
            return None;
        }
        if typed.is_empty() {
            continue;
        }
        match rustix::io::read(input, &mut buffer) {
            Ok(0) => return None,
            Ok(count) => {
                buffer.truncate(count);
                return Some(buffer);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return None,
        }
    }
}
