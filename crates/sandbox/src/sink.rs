//! A program's output on its way to a reader, while the program runs.
//!
//! The queue is short: when it is full the program's pipes aren't read, so that they fill up and the program waits in `write`. When nobody
//! reads a channel any more its pipe is closed, and the program hears that as it would in any pipeline (`SIGPIPE`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use regent_kernel::Channel;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// Chunks between the program's pipes and the kernel's queue.
const CHUNKS_WAITING_MAX: usize = 4;

/// What goes through the queue.
#[derive(Debug)]
pub(crate) enum QueuedOutput {
    /// Some output, and where the program wrote it.
    Chunk(Channel, Vec<u8>),
    /// Sent back when the reader is done with what came before.
    Settle(oneshot::Sender<()>),
}

/// Where the output of a run goes instead of into [`crate::FinishedRun`].
#[derive(Debug, Clone)]
pub struct Sink {
    chunks: mpsc::Sender<QueuedOutput>,
    unread: Arc<[AtomicBool; 2]>,
}

/// The other end.
#[derive(Debug)]
pub(crate) struct SinkSource {
    pub(crate) chunks: mpsc::Receiver<QueuedOutput>,
    unread: Arc<[AtomicBool; 2]>,
}

/// What there is room for.
pub(crate) enum SinkRoom<'s> {
    /// One more chunk.
    Free(mpsc::Permit<'s, QueuedOutput>),
    /// Nothing now.
    Full,
    /// Nothing any more: nobody reads it.
    Closed,
}

pub(crate) fn channel() -> (Sink, SinkSource) {
    let (to, chunks) = mpsc::channel(CHUNKS_WAITING_MAX);
    let unread = Arc::new(Default::default());
    (Sink { chunks: to, unread: Arc::clone(&unread) }, SinkSource { chunks, unread })
}

impl Sink {
    /// Waits until there is room.
    pub(crate) async fn ready(&self) {
        // Closed is ready too: then the pipes are closed.
        drop(self.chunks.reserve().await);
    }

    /// Waits until the reader is done with `rest` and what came before, or gone.
    pub(crate) async fn settle(&self, channel: Channel, rest: Vec<u8>) {
        let (done, is_done) = oneshot::channel();
        if !rest.is_empty() && self.chunks.send(QueuedOutput::Chunk(channel, rest)).await.is_err() {
            return;
        }
        if self.chunks.send(QueuedOutput::Settle(done)).await.is_ok() {
            let _gone = is_done.await.is_err();
        }
    }

    pub(crate) fn room(&self, channel: Channel) -> SinkRoom<'_> {
        if flag(&self.unread, channel).load(Ordering::Acquire) {
            return SinkRoom::Closed;
        }
        match self.chunks.try_reserve() {
            Ok(slot) => SinkRoom::Free(slot),
            Err(TrySendError::Full(())) => SinkRoom::Full,
            Err(TrySendError::Closed(())) => SinkRoom::Closed,
        }
    }
}

impl SinkSource {
    /// Nobody reads this channel any more.
    pub(crate) fn close(&self, channel: Channel) {
        flag(&self.unread, channel).store(true, Ordering::Release);
    }
}

fn flag(unread: &[AtomicBool; 2], channel: Channel) -> &AtomicBool {
    let [output, error] = unread;
    match channel {
        Channel::Output => output,
        // No program writes thoughts.
        Channel::Error | Channel::Reasoning => error,
    }
}
