//! What comes out of a sandbox: the program's output, and the child's records.

use std::os::fd::OwnedFd;

use regent_kernel::Channel;
use tokio::net::unix::pipe::Receiver;

use crate::error::SandboxError;
use crate::launch::Running;
use crate::run::watching;
use crate::sink::{Room, Sink};
use crate::spec::Spec;
use crate::wire::{RECORD_BYTES, Record};

const CHUNK_BYTES: usize = 64 * 1024;

/// Our ends of the pipes.
#[derive(Debug)]
pub(crate) struct Streams {
    /// Collected; with a sink, what isn't passed on yet.
    pub(crate) stdout: Stream,
    pub(crate) stderr: Stream,
    pub(crate) status: Stream,
    /// Where output goes as it comes.
    sink: Option<Sink>,
    /// The other pipe is read first in the next round, so that neither starves.
    is_errors_turn: bool,
    /// Where reads go first. On the heap, whose pages are only there once they are written to: most programs say little.
    chunk: Vec<u8>,
    output_bytes_left: u64,
    pub(crate) truncated: bool,
    /// The child said that the program has begun.
    pub(crate) begun: bool,
    /// The child said how the program ended.
    pub(crate) finished: bool,
    /// How often the child said that the program was stopped from its terminal.
    pub(crate) stops: usize,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pipe: Option<Receiver>,
    pub(crate) bytes: Vec<u8>,
}

/// Records of one run, with room to spare.
const STATUS_BYTES_MAX: u64 = 1024;

impl Streams {
    pub(crate) fn new(running: &mut Running, spec: &Spec) -> Result<Self, SandboxError> {
        Ok(Self {
            stdout: Stream::new(running.stdout.take())?,
            stderr: Stream::new(running.stderr.take())?,
            status: Stream::new(running.status.take())?,
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
                Some(Room::Full) => continue,
                Some(Room::Closed) => {
                    stream.pipe = None;
                    continue;
                }
                Some(Room::Free(slot)) => Some(slot),
                None => None,
            };
            let pulled = stream.pull(&mut self.chunk, &mut self.output_bytes_left, Receiver::try_read);
            self.truncated |= pulled == Pulled::Cut;
            if let Some(slot) = slot.filter(|_| !stream.bytes.is_empty()) {
                slot.send((channel, std::mem::take(&mut stream.bytes)));
            }
        }
        self.status.pull(&mut self.chunk, &mut STATUS_BYTES_MAX.clone(), Receiver::try_read);
        self.stops = 0;
        for record in self.status.bytes.as_chunks::<RECORD_BYTES>().0 {
            match Record::decode(*record) {
                Some(Record::Ready(_)) => self.begun = true,
                Some(Record::Stopped) => self.stops = self.stops.saturating_add(1),
                Some(Record::Exited(_) | Record::Signalled(_)) => self.finished = true,
                Some(Record::Failed { .. } | Record::CpuMs(_) | Record::PeakKib(_)) | None => {}
            }
        }
    }

    /// Takes what is left, when everyone who could write is dead: straight from the pipes, since the runtime may not
    /// have heard yet that there is something. It is collected also where there is a sink: pipes hold little, and nobody waits here.
    pub(crate) fn drain(&mut self) {
        let read = |pipe: &Receiver, buffer: &mut [u8]| Ok(rustix::io::read(pipe, buffer)?);
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

impl Stream {
    fn new(fd: Option<OwnedFd>) -> Result<Self, SandboxError> {
        let pipe = fd.map(Receiver::from_owned_fd).transpose().map_err(watching)?;
        Ok(Self { pipe, bytes: Vec::new() })
    }

    async fn readable(&self) {
        match &self.pipe {
            // An error shows again when reading.
            Some(pipe) => drop(pipe.readable().await),
            None => std::future::pending().await,
        }
    }

    fn pull(
        &mut self,
        chunk: &mut [u8],
        bytes_left: &mut u64,
        read: impl FnOnce(&Receiver, &mut [u8]) -> std::io::Result<usize>,
    ) -> Pulled {
        let Some(pipe) = &self.pipe else { return Pulled::Nothing };
        match read(pipe, chunk) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                let keep = usize::try_from(*bytes_left).unwrap_or(usize::MAX).min(count);
                self.bytes.extend_from_slice(chunk.get(..keep).unwrap_or_default());
                *bytes_left = bytes_left.saturating_sub(keep as u64);
                return if keep < count { Pulled::Cut } else { Pulled::All };
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.pipe = None,
        }
        Pulled::Nothing
    }
}
