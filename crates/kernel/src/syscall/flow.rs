//! Output that comes while a call still runs: a channel that the kernel owns.
//!
//! Each chunk is scrubbed and labelled before anyone can read it. The kernel counts and hashes everything that it hands to the reader, and
//! keeps the first part of it for the outcome. A reader that is slow makes the executor wait; a reader that has gone away doesn't.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_ledger::DigestWriter;
use regent_policy::Label;
pub use regent_wire::body::{Channel, Delivery};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Fault, Kernel, Labelled, Reply};
use crate::call::{Call, Op};
use crate::executor::RawOutput;
use crate::principal::Principal;
use crate::secret::{Scrubbed, Secrets};

/// Chunks that may wait for their reader; then the executor waits for it too.
const CHUNKS_WAITING_MAX: usize = 64;
/// So much of each channel is kept for the outcome. The rest of a stream is delivered, counted and hashed.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// A part of a call's output, readable while the call runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Where the call wrote it.
    pub channel: Channel,
    /// The whole output at once, as policy's review left it. Nothing came before, and nothing will come after.
    pub is_whole: bool,
    /// Written to a terminal that the program was lent, without what acts on more than the screen.
    pub is_drawn: bool,
    /// The bytes with their label.
    pub output: Labelled,
}

/// A call with streamed output. Dropping this stops the reading, not the call.
#[derive(Debug)]
pub struct Stream {
    chunks: mpsc::Receiver<Chunk>,
    unread: Arc<Unread>,
    reply: JoinHandle<Result<Reply, Fault>>,
}

/// The channels without a reader.
#[derive(Debug, Default)]
struct Unread([AtomicBool; 3]);

impl Unread {
    fn flag(&self, channel: Channel) -> &AtomicBool {
        let [output, error, reasoning] = &self.0;
        match channel {
            Channel::Output => output,
            Channel::Error => error,
            Channel::Reasoning => reasoning,
        }
    }
}

/// The kernel's end of a stream.
#[derive(Debug)]
pub(crate) struct Listener {
    chunks: mpsc::Sender<Chunk>,
    unread: Arc<Unread>,
    is_terminal: bool,
}

impl Kernel {
    /// The same with streamed output.
    pub fn stream(&self, caller: &Principal, op: Op) -> Stream {
        self.streamed(caller, op, false)
    }

    /// The same for a reader that writes to a user's terminal: a program may be lent it.
    pub fn stream_to_terminal(&self, caller: &Principal, op: Op) -> Stream {
        self.streamed(caller, op, true)
    }

    fn streamed(&self, caller: &Principal, op: Op, is_terminal: bool) -> Stream {
        let (to, chunks) = mpsc::channel(CHUNKS_WAITING_MAX);
        let unread = Arc::new(Unread::default());
        let listener = Listener { chunks: to, unread: Arc::clone(&unread), is_terminal };
        let call = Call { listener: Some(listener), ..Call::top_level(caller, op) };
        Stream { chunks, unread, reply: tokio::spawn(Arc::clone(&self.0).enter(call)) }
    }
}

impl Stream {
    /// The next chunk; `None` when no more will come.
    pub async fn next(&mut self) -> Option<Chunk> {
        self.chunks.recv().await
    }

    /// The next chunk, if it has come already.
    pub fn try_next(&mut self) -> Option<Chunk> {
        self.chunks.try_recv().ok()
    }

    /// Stops reading one channel: the executor's next write to it fails.
    pub fn close(&self, channel: Channel) {
        self.unread.flag(channel).store(true, Ordering::Release);
    }

    /// How the call ended. Chunks that weren't read are part of the outcome's output.
    pub async fn reply(self) -> Result<Reply, Fault> {
        // No reader is left: the executor must not wait for one.
        drop(self.chunks);
        match self.reply.await {
            Ok(reply) => reply,
            Err(_torn_down) => Err(Fault::TornDown),
        }
    }
}

/// The output exceeds the granted limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the output exceeds the granted limit")]
pub struct Overflow;

/// Whether anybody will read what an executor emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// A reader takes this channel's output as it arrives.
    Read,
    /// No reader, or none any more. The outcome still has the output.
    Unread,
}

/// What has flowed in one call.
#[derive(Debug)]
pub(crate) struct Flow {
    listener: Option<Listener>,
    /// Policy looks at the whole first: nothing is passed on before.
    whole_only: bool,
    state: Mutex<Flowed>,
}

#[derive(Debug)]
struct Flowed {
    label: Label,
    masked: bool,
    /// The output is drawn on a terminal.
    is_drawn: bool,
    output: Channelled,
    error: Channelled,
    reasoning: Channelled,
}

#[derive(Debug, Default)]
struct Channelled {
    /// May still turn out to be the beginning of a secret.
    held: Vec<u8>,
    /// As much of the beginning of `held` as was passed on all the same, because nothing followed.
    shown: Vec<u8>,
    /// The first part of what was passed on.
    kept: Vec<u8>,
    /// How much was passed on, and its digest.
    bytes: u64,
    digest: DigestWriter,
}

impl Flowed {
    fn channel(&mut self, channel: Channel) -> &mut Channelled {
        match channel {
            Channel::Output => &mut self.output,
            Channel::Error => &mut self.error,
            Channel::Reasoning => &mut self.reasoning,
        }
    }

    /// Counts, hashes and keeps what is about to be passed on, and cuts what is more than allowed. Says whether there was more.
    fn admit(&mut self, channel: Channel, part: &mut Scrubbed, bytes_max: u64) -> bool {
        let flowed = [&self.output, &self.error, &self.reasoning];
        let room = flowed.iter().fold(bytes_max, |room, one| room.saturating_sub(one.bytes));
        // A terminal may stay open for days: what is drawn there has no limit, only what is kept of it.
        let room = if self.is_drawn { u64::MAX } else { room };
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (room, kept_max) = (bytes(room), bytes(bytes_max).min(KEPT_BYTES_MAX));
        let full = part.bytes.len() > room;
        part.bytes.truncate(room);
        self.masked |= part.masked;
        let to = self.channel(channel);
        let keep = kept_max.saturating_sub(to.kept.len()).min(part.bytes.len());
        to.kept.extend_from_slice(part.bytes.get(..keep).unwrap_or_default());
        to.bytes = to.bytes.saturating_add(part.bytes.len() as u64);
        to.digest.update(&part.bytes);
        full
    }
}

impl Flow {
    pub(super) fn new(listener: Option<Listener>, label: Label, whole_only: bool) -> Self {
        let (output, error, reasoning) = Default::default();
        let state = Flowed { label, masked: false, is_drawn: false, output, error, reasoning };
        Self { listener, whole_only, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, Flowed> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what an executor emits reaches a reader before the call is over.
    pub(crate) fn is_read(&self) -> bool {
        self.listener.is_some() && !self.whole_only
    }

    /// Whether the reader has a terminal to lend; then the output is drawn there from here on.
    pub(super) fn lend_terminal(&self) -> bool {
        let lends = self.lends();
        self.state().is_drawn |= lends;
        lends
    }

    pub(super) fn lends(&self) -> bool {
        self.is_read() && self.listener.as_ref().is_some_and(|listener| listener.is_terminal)
    }

    /// Whether a terminal was lent.
    pub(super) fn is_drawn(&self) -> bool {
        self.state().is_drawn
    }

    /// Raises the label of whatever comes from here on.
    pub(crate) fn raise(&self, label: Label) {
        let mut state = self.state();
        state.label = state.label.join(label);
    }

    /// Passes on the whole where nothing was passed on before.
    pub(super) fn release(&self, output: &Labelled) {
        if let Some(listener) =
            self.listener.as_ref().filter(|_| self.whole_only && !output.bytes().is_empty())
        {
            let (channel, output) = (Channel::Output, output.clone());
            let whole = Chunk { channel, is_whole: true, is_drawn: false, output };
            // A reader that has gone away misses it; the outcome doesn't. There is room: it is the first.
            let _gone = listener.chunks.try_send(whole).is_err();
        }
    }

    /// Takes in a chunk and passes on what is safe to pass on.
    pub(super) async fn take(
        &self,
        secrets: &dyn Secrets,
        (channel, bytes): (Channel, &[u8]),
        bytes_max: u64,
    ) -> Result<Reading, Overflow> {
        self.pass(channel, bytes_max, |one| {
            one.held.extend_from_slice(bytes);
            let part = secrets.scrub_part(&mut one.held);
            one.unshown(part)
        })
        .await
    }

    /// Passes on bytes that might begin a secret, because nothing follows for now.
    ///
    /// Of a value that this process revealed, 8 bytes or more still wait, and if the value goes on after this, its rest is masked. A value
    /// that an earlier process revealed is recognised only when it is complete: each piece of it that comes before a pause is passed on, and
    /// only the piece that completes the value is masked.
    pub(super) async fn flush(
        &self,
        secrets: &dyn Secrets,
        channel: Channel,
        bytes_max: u64,
    ) -> Result<Reading, Overflow> {
        let waits = |one: &Channelled| one.held.len() > one.shown.len();
        if !waits(self.state().channel(channel)) {
            return Ok(Reading::Read);
        }
        self.pass(channel, bytes_max, |one| {
            let mut held = one.held.clone();
            if secrets.scrub(&mut held) {
                return Scrubbed::default();
            }
            let bytes = held.get(one.shown.len()..).unwrap_or_default().to_vec();
            one.shown = held;
            Scrubbed { bytes, masked: false }
        })
        .await
    }

    /// Waits until the reader is done with everything that was passed on, or gone.
    pub(super) async fn caught_up(&self) {
        let Some(listener) = self.listener.as_ref().filter(|_| !self.whole_only) else { return };
        let (label, masked) = {
            let state = self.state();
            (state.label, state.masked)
        };
        let output = Labelled::from_bytes(Vec::new(), label, masked);
        let empty = Chunk { channel: Channel::Output, is_whole: false, is_drawn: false, output };
        // It takes this one when it is done with those before.
        if listener.chunks.send(empty).await.is_ok() {
            let _gone = listener.chunks.reserve_many(CHUNKS_WAITING_MAX).await.is_err();
        }
    }

    /// Passes on bytes that might have begun a secret: a channel has ended.
    pub(super) async fn end(
        &self,
        secrets: &dyn Secrets,
        channel: Channel,
        bytes_max: u64,
    ) -> Result<Reading, Overflow> {
        self.pass(channel, bytes_max, |one| {
            let mut bytes = std::mem::take(&mut one.held);
            let masked = secrets.scrub(&mut bytes);
            one.unshown(Scrubbed { bytes, masked })
        })
        .await
    }

    /// What was passed on so far.
    pub(super) fn delivered(&self, channel: Channel) -> Delivery {
        self.state().channel(channel).delivered(channel)
    }

    async fn pass(
        &self,
        channel: Channel,
        bytes_max: u64,
        scrub: impl FnOnce(&mut Channelled) -> Scrubbed,
    ) -> Result<Reading, Overflow> {
        let listener = self.listener.as_ref().filter(|_| !self.whole_only);
        let listener = listener.filter(|one| !one.unread.flag(channel).load(Ordering::Acquire));
        // Room first: a call that is cancelled while the reader is behind records nothing that wasn't delivered.
        let room = match listener {
            Some(listener) => listener.chunks.reserve().await.ok(),
            None => None,
        };
        let mut state = self.state();
        let mut part = scrub(state.channel(channel));
        let full = state.admit(channel, &mut part, bytes_max);
        let is_drawn = state.is_drawn;
        let output = Labelled::from_bytes(part.bytes, state.label, state.masked);
        drop(state);
        let reading = if room.is_some() { Reading::Read } else { Reading::Unread };
        if let Some(room) = room.filter(|_| !output.bytes().is_empty()) {
            room.send(Chunk { channel, is_whole: false, is_drawn, output });
        }
        if full { Err(Overflow) } else { Ok(reading) }
    }

    /// Where the executor gave nothing back in the end, what flowed is the output: the output proper, then the errors. Says whether a
    /// secret was in it, and what was delivered.
    pub(super) fn finish(&self, secrets: &dyn Secrets, raw: &mut RawOutput) -> (bool, Vec<Delivery>) {
        let mut state = self.state();
        let is_read = self.is_read();
        let (mut whole, mut delivered) = (Vec::new(), Vec::new());
        for channel in Channel::ALL {
            let one = state.channel(channel);
            if is_read && one.bytes > 0 {
                delivered.push(one.delivered(channel));
            }
            let mut rest = std::mem::take(&mut one.held);
            whole.append(&mut one.kept);
            // What a reader waited for when the executor was cut off was not delivered.
            if !is_read {
                let masked = secrets.scrub(&mut rest);
                // A part of it may have been flushed, and is kept already.
                whole.append(&mut one.unshown(Scrubbed { bytes: rest, masked }).bytes);
                state.masked |= masked;
            }
        }
        if raw.bytes.is_empty() {
            raw.bytes = whole;
            raw.raise(Some(state.label));
        }
        (state.masked, delivered)
    }
}

impl Channelled {
    /// What of a part wasn't passed on before.
    fn unshown(&mut self, mut part: Scrubbed) -> Scrubbed {
        let same = self.shown.iter().zip(&part.bytes).take_while(|(shown, byte)| shown == byte).count();
        if same == part.bytes.len() {
            self.shown.drain(..same);
        } else {
            self.shown.clear();
        }
        part.bytes.drain(..same);
        part
    }

    fn delivered(&self, channel: Channel) -> Delivery {
        let kept_bytes = self.kept.len() as u64;
        Delivery { channel, bytes: self.bytes, digest: self.digest.digest(), kept_bytes }
    }
}

#[cfg(test)]
mod tests;
