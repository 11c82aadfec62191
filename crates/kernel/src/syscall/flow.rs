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

/// The channels that nobody reads any more.
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
}

impl Kernel {
    /// The same with streamed output.
    pub fn stream(&self, caller: &Principal, op: Op) -> Stream {
        let (to, chunks) = mpsc::channel(CHUNKS_WAITING_MAX);
        let unread = Arc::new(Unread::default());
        let listener = Listener { chunks: to, unread: Arc::clone(&unread) };
        let call = Call { listener: Some(listener), ..Call::of(caller, op) };
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

    /// Stops reading one channel: the executor hears that nobody reads it when it writes there next.
    pub fn close(&self, channel: Channel) {
        self.unread.flag(channel).store(true, Ordering::Release);
    }

    /// How the call ended. Chunks that weren't read are part of the outcome's output.
    pub async fn reply(self) -> Result<Reply, Fault> {
        // Nobody reads any more: the executor must not wait for it.
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
    /// Somebody reads this channel as it comes.
    Read,
    /// Nobody does, or nobody does any more. The outcome has it all the same.
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
    output: Channelled,
    error: Channelled,
    reasoning: Channelled,
}

#[derive(Debug, Default)]
struct Channelled {
    /// May still turn out to be the beginning of a secret.
    held: Vec<u8>,
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
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let full = part.bytes.len() > room;
        part.bytes.truncate(room);
        self.masked |= part.masked;
        let to = self.channel(channel);
        let keep = KEPT_BYTES_MAX.saturating_sub(to.kept.len()).min(part.bytes.len());
        to.kept.extend_from_slice(part.bytes.get(..keep).unwrap_or_default());
        to.bytes = to.bytes.saturating_add(part.bytes.len() as u64);
        to.digest.update(&part.bytes);
        full
    }
}

impl Flow {
    pub(super) fn new(listener: Option<Listener>, label: Label, whole_only: bool) -> Self {
        let (output, error, reasoning) = Default::default();
        let state = Flowed { label, masked: false, output, error, reasoning };
        Self { listener, whole_only, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, Flowed> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what an executor emits reaches a reader before the call is over.
    pub(crate) fn is_read(&self) -> bool {
        self.listener.is_some() && !self.whole_only
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
            let whole = Chunk { channel: Channel::Output, is_whole: true, output: output.clone() };
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
        self.pass(channel, bytes_max, |held| {
            held.extend_from_slice(bytes);
            secrets.scrub_part(held)
        })
        .await
    }

    /// Passes on what still waited to be told from a secret: a channel has ended.
    pub(super) async fn end(
        &self,
        secrets: &dyn Secrets,
        channel: Channel,
        bytes_max: u64,
    ) -> Result<Reading, Overflow> {
        self.pass(channel, bytes_max, |held| {
            let mut bytes = std::mem::take(held);
            let masked = secrets.scrub(&mut bytes);
            Scrubbed { bytes, masked }
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
        scrub: impl FnOnce(&mut Vec<u8>) -> Scrubbed,
    ) -> Result<Reading, Overflow> {
        let listener = self.listener.as_ref().filter(|_| !self.whole_only);
        let listener = listener.filter(|one| !one.unread.flag(channel).load(Ordering::Acquire));
        // Room first: a call that is cancelled while the reader is behind records nothing that wasn't delivered.
        let room = match listener {
            Some(listener) => listener.chunks.reserve().await.ok(),
            None => None,
        };
        let mut state = self.state();
        let mut part = scrub(&mut state.channel(channel).held);
        let full = state.admit(channel, &mut part, bytes_max);
        let output = Labelled::of(part.bytes, state.label, state.masked);
        drop(state);
        let reading = if room.is_some() { Reading::Read } else { Reading::Unread };
        if let Some(room) = room.filter(|_| !output.bytes().is_empty()) {
            room.send(Chunk { channel, is_whole: false, output });
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
                whole.append(&mut rest);
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
    fn delivered(&self, channel: Channel) -> Delivery {
        let kept_bytes = self.kept.len() as u64;
        Delivery { channel, bytes: self.bytes, digest: self.digest.digest(), kept_bytes }
    }
}

#[cfg(test)]
mod tests {
    use regent_ledger::{Digest, Kind};
    use serde_json::json;

    use super::*;
    use crate::tests::alone::{World, named};
    use crate::{Integrity, Status, ToolCall};

    fn drip(args: serde_json::Value) -> Op {
        Op::RunTool(ToolCall { tool: "test.drip".to_owned(), args })
    }

    async fn read(stream: &mut Stream) -> String {
        let mut text = String::new();
        while let Some(chunk) = stream.next().await {
            assert_eq!(chunk.output.label().integrity, Integrity::Tool);
            text.push_str(&chunk.output.text());
        }
        text
    }

    #[tokio::test]
    async fn chunks_come_labelled_and_the_outcome_has_the_whole() {
        let world = World::new().await;
        let mut stream = world.kernel.stream(&world.person(), drip(json!({})));
        assert_eq!(read(&mut stream).await, "one two three");
        let Reply::Done(outcome) = stream.reply().await.unwrap() else { panic!("not done") };
        assert_eq!((outcome.status, outcome.output.text().as_ref()), (Status::Ok, "one two three"));
    }

    fn flood(chunks: u64) -> Op {
        Op::RunTool(ToolCall { tool: "test.flood".to_owned(), args: json!({"chunks": chunks}) })
    }

    #[tokio::test]
    async fn a_reader_that_is_behind_makes_the_executor_wait() {
        let wide = "version: 1\nlimits: { output: 1GiB }\nrules:\n  - { id: all, effect: allow }\n";
        let world = World::with(wide).await;
        let mut stream = world.kernel.stream(&world.person(), flood(40_000));
        // Without a reader it gets as far as the queue is long, and no further.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.tools.started.available_permits(), CHUNKS_WAITING_MAX);
        let mut read = [0_u64; 2];
        while let Some(chunk) = stream.next().await {
            read[usize::from(chunk.channel == Channel::Error)] += chunk.output.bytes().len() as u64;
        }
        assert_eq!(read, [20_000 << 10; 2]);
        let Reply::Done(outcome) = stream.reply().await.unwrap() else { panic!("not done") };
        assert_eq!(outcome.output.bytes().len(), 2 * KEPT_BYTES_MAX.min(20_000 << 10));
        let recorded = world.entries().into_iter().rfind(|entry| entry.kind == Kind::Outcome).unwrap();
        let body: serde_json::Value = serde_json::from_str(&recorded.body.to_string()).unwrap();
        let digest = Digest::of(&vec![b'x'; 20_000 << 10]).to_string();
        for (at, channel) in ["output", "error"].into_iter().enumerate() {
            let kept = KEPT_BYTES_MAX.min(20_000 << 10);
            let expected =
                json!({"channel": channel, "bytes": 20_000 << 10, "digest": digest, "kept_bytes": kept});
            assert_eq!(body["delivered"][at], expected);
        }
    }

    #[tokio::test]
    async fn a_channel_that_nobody_reads_is_told_so() {
        let world = World::new().await;
        let mut stream = world.kernel.stream(&world.person(), flood(1_000));
        assert_eq!(stream.next().await.unwrap().channel, Channel::Output);
        stream.close(Channel::Error);
        while stream.next().await.is_some() {}
        let Reply::Done(outcome) = stream.reply().await.unwrap() else { panic!("not done") };
        let Status::Failed(failure) = outcome.status else { panic!("{:?}", outcome.status) };
        assert_eq!((failure.code.as_str(), failure.message.as_str()), ("test.unread", "Error"));
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_stops_nothing() {
        let world = World::new().await;
        drop(world.kernel.stream(&world.person(), drip(json!({}))));
        let of = |kind| world.entries().into_iter().filter(|entry| entry.kind == kind).count();
        while of(Kind::Outcome) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(of(Kind::Intent), of(Kind::Outcome));
    }

    #[tokio::test]
    async fn what_came_before_a_cancellation_is_recorded() {
        let world = World::new().await;
        let agent = world.spawn(&world.person(), named("reader")).await;
        let mut stream = world.kernel.stream(&agent, drip(json!({"hang": true})));
        assert_eq!(stream.next().await.unwrap().output.text(), "one ");
        world.started().await;
        world.kernel.raise(agent.agent_id().unwrap(), crate::Signal::Kill, "test").await.unwrap();
        let Reply::Done(outcome) = stream.reply().await.unwrap() else { panic!("not done") };
        assert_eq!((outcome.status, outcome.output.text().as_ref()), (Status::Cancelled, "one two three"));
    }

    #[tokio::test]
    async fn no_more_flows_than_the_grant_allows() {
        let policy = "version: 1\nlimits: { output: 6B }\nrules:\n  - { id: all, effect: allow }\n";
        let world = World::with(policy).await;
        let mut stream = world.kernel.stream(&world.person(), drip(json!({})));
        assert_eq!(read(&mut stream).await, "one tw");
        let Reply::Done(outcome) = stream.reply().await.unwrap() else { panic!("not done") };
        assert!(matches!(outcome.status, Status::Failed(_)), "{:?}", outcome.status);
        assert_eq!(outcome.output.text(), "one tw");
    }

    #[tokio::test]
    async fn a_denied_stream_is_only_a_reply() {
        let world = World::with("version: 1\nrules: []\n").await;
        let mut stream = world.kernel.stream(&world.person(), drip(json!({})));
        assert!(stream.next().await.is_none());
        assert!(matches!(stream.reply().await.unwrap(), Reply::Denied(_)));
    }
}
