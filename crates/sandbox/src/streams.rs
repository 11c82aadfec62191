//! What comes out of a sandbox: the program's output, and the child's records.

use std::os::fd::OwnedFd;
use std::time::Duration;

use regent_kernel::Channel;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::SandboxError;
use crate::launch::SandboxProcess;
use crate::run::watching;
use crate::sink::{QueuedOutput, Sink, SinkRoom};
use crate::spec::Spec;
use crate::sys;
use crate::terminal::FilteredScreen;
use crate::wire::{ChildRecord, RECORD_BYTES};

const CHUNK_BYTES: usize = 64 * 1024;
/// Reads until a terminal is empty. What a job in the background goes on writing isn't waited for.
const SETTLING_READS_MAX: usize = 64;

/// Our ends of the pipes.
#[derive(Debug)]
pub(crate) struct Streams {
    /// Collected; with a sink, what isn't passed on yet. On a terminal, all that is written there.
    pub(crate) stdout: ProgramStream,
    pub(crate) stderr: ProgramStream,
    pub(crate) status: ProgramStream,
    /// Where output goes as it comes.
    sink: Option<Sink>,
    /// The other pipe is read first in the next round, so that neither starves.
    is_errors_turn: bool,
    /// Where reads go first. On the heap, whose pages are only there once they are written to: most programs say little.
    chunk: Vec<u8>,
    output_bytes_left: u64,
    pub(crate) truncated: bool,
    /// The child reported that the program has begun.
    pub(crate) begun: bool,
    /// The child reported how the program ended.
    pub(crate) finished: bool,
    /// How often the child reported that the program was stopped from its terminal.
    pub(crate) stops: usize,
}

#[derive(Debug)]
pub(crate) struct ProgramStream {
    /// Our end of a pipe or of a terminal.
    from: Option<AsyncFd<OwnedFd>>,
    /// Of a terminal: what may pass.
    screen: Option<FilteredScreen>,
    pub(crate) bytes: Vec<u8>,
}

/// Records of one run, with room to spare.
const STATUS_BYTES_MAX: u64 = 1024;

impl Streams {
    pub(crate) fn new(
        running: &mut SandboxProcess,
        spec: &Spec,
        screen: Option<FilteredScreen>,
    ) -> Result<Self, SandboxError> {
        let stdout = running.terminal.take().or_else(|| running.stdout.take());
        Ok(Self {
            stdout: ProgramStream { screen, ..ProgramStream::new(stdout)? },
            stderr: ProgramStream::new(running.stderr.take())?,
            status: ProgramStream::new(running.status.take())?,
            sink: spec.sink.clone(),
            is_errors_turn: false,
            chunk: vec![0; CHUNK_BYTES],
            output_bytes_left: spec.limits.output_bytes_max,
            truncated: false,
            begun: false,
            finished: false,
            stops: 0,
        })
    }

    /// Waits for any of them.
    pub(crate) async fn readable(&self) {
        tokio::select! {
            () = self.output_readable() => {}
            () = self.status.readable() => {}
        }
    }

    async fn output_readable(&self) {
        if let Some(sink) = &self.sink {
            // Nothing is read that can't be passed on: the pipes fill up, and the program waits.
            sink.ready().await;
        }
        tokio::select! {
            () = self.stdout.readable() => {}
            () = self.stderr.readable() => {}
        }
    }

    /// Takes what is there now.
    pub(crate) fn pull(&mut self) {
        let mut both = [(Channel::Output, &mut self.stdout), (Channel::Error, &mut self.stderr)];
        if self.is_errors_turn {
            both.reverse();
        }
        self.is_errors_turn = !self.is_errors_turn;
        for (channel, stream) in both {
            let slot = match self.sink.as_ref().map(|sink| sink.room(channel)) {
                Some(SinkRoom::Full) => continue,
                Some(SinkRoom::Closed) => {
                    stream.from = None;
                    continue;
                }
                Some(SinkRoom::Free(slot)) => Some(slot),
                None => None,
            };
            let pulled = stream.pull(&mut self.chunk, &mut self.output_bytes_left, try_read);
            self.truncated |= pulled == Pulled::Cut;
            if let Some(slot) = slot.filter(|_| !stream.bytes.is_empty()) {
                slot.send(QueuedOutput::Chunk(channel, std::mem::take(&mut stream.bytes)));
            }
        }
        self.status.pull(&mut self.chunk, &mut STATUS_BYTES_MAX.clone(), try_read);
        self.stops = 0;
        for record in self.status.bytes.as_chunks::<RECORD_BYTES>().0 {
            match ChildRecord::decode(*record) {
                Some(ChildRecord::Ready(_)) => self.begun = true,
                Some(ChildRecord::Stopped) => self.stops = self.stops.saturating_add(1),
                Some(ChildRecord::Exited(_) | ChildRecord::Signalled(_)) => self.finished = true,
                Some(ChildRecord::Failed { .. } | ChildRecord::CpuMs(_) | ChildRecord::PeakKib(_)) | None => {
                }
            }
        }
    }

    /// Passes on what was written to the terminal, and waits until its reader is done with it. A terminal's driver hands on what was
    /// written a moment later: so long is waited for more.
    pub(crate) async fn settle(&mut self, quiet: Duration) {
        let Some(sink) = self.sink.clone() else { return };
        for _ in 0..SETTLING_READS_MAX {
            let more = tokio::time::timeout(quiet, self.stdout.readable());
            if self.stdout.from.is_none() || more.await.is_err() {
                break;
            }
            let pulled = self.stdout.pull(&mut self.chunk, &mut self.output_bytes_left, try_read);
            self.truncated |= pulled == Pulled::Cut;
        }
        sink.settle(Channel::Output, std::mem::take(&mut self.stdout.bytes)).await;
    }

    /// Takes the output that is left, when everyone who could write is dead: straight from the pipes, since the runtime may not
    /// have been notified of it yet. It is collected also where there is a sink: pipes hold little, and nobody waits here.
    pub(crate) fn drain(&mut self) {
        for stream in [&mut self.stdout, &mut self.stderr] {
            loop {
                match stream.pull(&mut self.chunk, &mut self.output_bytes_left, read) {
                    Pulled::All => {}
                    Pulled::Nothing => break,
                    Pulled::Cut => {
                        self.truncated = true;
                        break;
                    }
                }
            }
        }
    }

    /// Takes the records that are left.
    pub(crate) fn drain_status(&mut self) {
        while self.status.pull(&mut self.chunk, &mut STATUS_BYTES_MAX.clone(), read) == Pulled::All {}
    }
}

/// What one read gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pulled {
    Nothing,
    All,
    /// More than may be kept.
    Cut,
}

impl ProgramStream {
    fn new(fd: Option<OwnedFd>) -> Result<Self, SandboxError> {
        let watch = |fd: OwnedFd| {
            rustix::io::ioctl_fionbio(&fd, true)?;
            sys::watch_readable(fd)
        };
        let from = fd.map(watch).transpose().map_err(watching)?;
        Ok(Self { from, screen: None, bytes: Vec::new() })
    }

    async fn readable(&self) {
        match &self.from {
            // An error shows again when reading.
            Some(from) => drop(from.readable().await),
            None => std::future::pending().await,
        }
    }

    fn pull(
        &mut self,
        chunk: &mut [u8],
        bytes_left: &mut u64,
        read: impl FnOnce(&AsyncFd<OwnedFd>, &mut [u8]) -> std::io::Result<usize>,
    ) -> Pulled {
        let Some(from) = &self.from else { return Pulled::Nothing };
        match read(from, chunk) {
            Ok(0) => self.from = None,
            Ok(count) => {
                let keep = usize::try_from(*bytes_left).unwrap_or(usize::MAX).min(count);
                let kept = chunk.get(..keep).unwrap_or_default();
                match &self.screen {
                    Some(screen) => screen.feed(kept, &mut self.bytes),
                    None => self.bytes.extend_from_slice(kept),
                }
                *bytes_left = bytes_left.saturating_sub(keep as u64);
                return if keep < count { Pulled::Cut } else { Pulled::All };
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // A terminal that nobody has open any more is an error, too.
            Err(_) => self.from = None,
        }
        Pulled::Nothing
    }
}

fn read(from: &AsyncFd<OwnedFd>, buffer: &mut [u8]) -> std::io::Result<usize> {
    Ok(rustix::io::read(from, buffer)?)
}

fn try_read(from: &AsyncFd<OwnedFd>, buffer: &mut [u8]) -> std::io::Result<usize> {
    from.try_io(Interest::READABLE, |from| Ok(rustix::io::read(from, buffer)?))
}
