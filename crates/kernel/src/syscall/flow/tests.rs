//! Output on its way to a reader: labelled, scrubbed across borders, counted, no faster than it is read.

use std::collections::VecDeque;

use proptest::prelude::*;
use regent_ledger::{Digest, EntryKind};
use serde_json::json;

use super::*;
use crate::tests::alone::{KernelFixture, named};
use crate::{Confidentiality, Integrity, Status, ToolCall};

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
    let world = KernelFixture::new().await;
    let mut stream = world.kernel.stream(&world.person(), drip(json!({})));
    assert_eq!(read(&mut stream).await, "one two three");
    let Reply::Done(outcome) = stream.reply().await.unwrap() else { panic!("not done") };
    assert_eq!((outcome.status, outcome.output.text().as_ref()), (Status::Ok, "one two three"));
}

fn flood_call(chunks: u64) -> Op {
    Op::RunTool(ToolCall { tool: "test.flood".to_owned(), args: json!({"chunks": chunks}) })
}

#[tokio::test]
async fn a_reader_that_is_behind_makes_the_executor_wait() {
    let wide = "version: 1\nlimits: { output: 1GiB }\nrules:\n  - { id: all, effect: allow }\n";
    let world = KernelFixture::with(wide).await;
    let mut stream = world.kernel.stream(&world.person(), flood_call(40_000));
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
    let recorded = world.entries().into_iter().rfind(|entry| entry.kind == EntryKind::Outcome).unwrap();
    let body: serde_json::Value = serde_json::from_str(&recorded.body.to_string()).unwrap();
    let digest = Digest::compute(&vec![b'x'; 20_000 << 10]).to_string();
    for (at, channel) in ["output", "error"].into_iter().enumerate() {
        let kept = KEPT_BYTES_MAX.min(20_000 << 10);
        let expected =
            json!({"channel": channel, "bytes": 20_000 << 10, "digest": digest, "kept_bytes": kept});
        assert_eq!(body["delivered"][at], expected);
    }
}

#[tokio::test]
async fn a_channel_that_nobody_reads_is_told_so() {
    let world = KernelFixture::new().await;
    let mut stream = world.kernel.stream(&world.person(), flood_call(1_000));
    assert_eq!(stream.next().await.unwrap().channel, Channel::Output);
    stream.close(Channel::Error);
    while stream.next().await.is_some() {}
    let Reply::Done(outcome) = stream.reply().await.unwrap() else { panic!("not done") };
    let Status::Failed(failure) = outcome.status else { panic!("{:?}", outcome.status) };
    assert_eq!((failure.code.as_str(), failure.message.as_str()), ("test.unread", "Error"));
}

#[tokio::test]
async fn a_reader_that_goes_away_stops_nothing() {
    let world = KernelFixture::new().await;
    drop(world.kernel.stream(&world.person(), drip(json!({}))));
    let of = |kind| world.entries().into_iter().filter(|entry| entry.kind == kind).count();
    while of(EntryKind::Outcome) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(of(EntryKind::Intent), of(EntryKind::Outcome));
}

#[tokio::test]
async fn what_came_before_a_cancellation_is_recorded() {
    let world = KernelFixture::new().await;
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
    let world = KernelFixture::with(policy).await;
    let mut stream = world.kernel.stream(&world.person(), drip(json!({})));
    assert_eq!(read(&mut stream).await, "one tw");
    let Reply::Done(outcome) = stream.reply().await.unwrap() else { panic!("not done") };
    assert!(matches!(outcome.status, Status::Failed(_)), "{:?}", outcome.status);
    assert_eq!(outcome.output.text(), "one tw");
}

#[tokio::test]
async fn a_denied_stream_is_only_a_reply() {
    let world = KernelFixture::with("version: 1\nrules: []\n").await;
    let mut stream = world.kernel.stream(&world.person(), drip(json!({})));
    assert!(stream.next().await.is_none());
    assert!(matches!(stream.reply().await.unwrap(), Reply::Denied(_)));
}

const VALUE: &[u8] = b"hunter2-hunter2!";
/// So much of its beginning gives a value away.
const TELLING_BYTES: usize = 8;

/// Knows one value.
#[derive(Debug)]
struct OneSecret;

impl Secrets for OneSecret {
    fn reveal(&self, name: &str, _usage: &crate::Usage<'_>) -> Result<crate::Secret, crate::SecretError> {
        Err(crate::SecretError::NotFound(name.to_owned()))
    }

    fn scrub(&self, bytes: &mut Vec<u8>) -> bool {
        let mut part = self.scrub_part(bytes);
        if bytes.len() >= TELLING_BYTES {
            (*bytes, part.masked) = (b"[secret]".to_vec(), true);
        }
        part.bytes.append(bytes);
        *bytes = part.bytes;
        part.masked
    }

    fn scrub_part(&self, held: &mut Vec<u8>) -> Scrubbed {
        let mut part = Scrubbed::default();
        while let Some(at) = held.windows(VALUE.len()).position(|window| window == VALUE) {
            part.bytes.extend(held.drain(..at));
            held.drain(..VALUE.len());
            part.bytes.extend(b"[secret]");
            part.masked = true;
        }
        let begins = |at: &usize| VALUE.starts_with(&held[*at..]);
        let open = (0..held.len()).find(begins).unwrap_or(held.len());
        part.bytes.extend(held.drain(..open));
        part
    }
}

/// A flow with what its reader has got.
struct Tap {
    flow: Flow,
    chunks: mpsc::Receiver<Chunk>,
    read: Vec<u8>,
}

impl Tap {
    fn new(is_terminal: bool) -> Self {
        let (to, chunks) = mpsc::channel(CHUNKS_WAITING_MAX);
        let listener = Listener { chunks: to, unread: Arc::default(), is_terminal };
        let label = Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Public };
        Self { flow: Flow::new(Some(listener), label, false), chunks, read: Vec::new() }
    }

    fn look(&mut self) -> String {
        while let Ok(chunk) = self.chunks.try_recv() {
            self.read.extend_from_slice(chunk.output.bytes());
        }
        String::from_utf8_lossy(&self.read).into_owned()
    }

    async fn say(&mut self, text: &[u8]) -> Result<Reading, Overflow> {
        let said = self.flow.take(&OneSecret, (Channel::Output, text), 100).await;
        self.look();
        said
    }

    async fn flush(&mut self) -> String {
        self.flow.flush(&OneSecret, Channel::Output, 100).await.unwrap();
        self.look()
    }
}

#[tokio::test]
async fn what_waits_is_passed_on_when_nothing_follows() {
    let mut tap = Tap::new(false);
    tap.say(b"password for hunt").await.unwrap();
    assert_eq!(tap.look(), "password for ");
    assert_eq!(tap.flush().await, "password for hunt");
    assert_eq!(tap.flush().await, "password for hunt", "once");
    tap.say(b"ress: ").await.unwrap();
    assert_eq!(tap.look(), "password for huntress: ");
}

#[tokio::test]
async fn adv_031_a_secret_that_comes_slowly_is_masked_before_it_is_given_away() {
    let mut tap = Tap::new(false);
    for byte in VALUE {
        tap.say(&[*byte]).await.unwrap();
        tap.flush().await;
    }
    tap.say(b" after").await.unwrap();
    assert_eq!(tap.look(), "hunter2[secret] after");
    let delivered = tap.flow.delivered(Channel::Output);
    assert_eq!((delivered.bytes, delivered.digest), (21, Digest::compute(&tap.read)));
}

#[tokio::test]
async fn what_is_drawn_on_a_terminal_has_no_limit_and_what_is_kept_of_it_has() {
    for is_terminal in [false, true] {
        let mut tap = Tap::new(is_terminal);
        assert_eq!(tap.flow.lend_terminal(), is_terminal);
        let said = (tap.say(&[b'x'; 60]).await, tap.say(&[b'x'; 60]).await);
        assert_eq!(said, (Ok(Reading::Read), if is_terminal { Ok(Reading::Read) } else { Err(Overflow) }));
        let delivered = tap.flow.delivered(Channel::Output);
        assert_eq!((delivered.bytes, delivered.kept_bytes), (if is_terminal { 120 } else { 100 }, 100));
    }
}

#[tokio::test]
async fn a_reader_has_caught_up_when_it_comes_back_for_more_or_is_gone() {
    let mut tap = Tap::new(false);
    tap.flow.take(&OneSecret, (Channel::Output, b"last"), 100).await.unwrap();
    {
        let caught_up = tap.flow.caught_up();
        tokio::pin!(caught_up);
        assert!(now(&mut caught_up).await.is_none());
        assert_eq!(tap.chunks.recv().await.unwrap().output.bytes(), b"last");
        assert!(now(&mut caught_up).await.is_none(), "it may still be writing");
        assert!(tap.chunks.recv().await.unwrap().output.bytes().is_empty());
        assert!(now(&mut caught_up).await.is_some());
    }
    tap.chunks.close();
    tap.flow.caught_up().await;
}

/// What a future has now, if anything.
async fn now<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn adv_031_no_way_to_cut_and_to_wait_gives_a_secret_away(
        words in prop::collection::vec(prop_oneof![Just(VALUE.to_vec()), Just(VALUE[..5].to_vec()), Just(b"x".to_vec())], 0..6),
        cuts in prop::collection::vec((1_usize..9, any::<bool>()), 0..60),
    ) {
        let text = words.concat();
        let mut tap = Tap::new(true);
        tap.flow.lend_terminal();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut left, mut cuts) = (text.as_slice(), VecDeque::from(cuts));
            while !left.is_empty() {
                let (bytes, waits) = cuts.pop_front().unwrap_or((usize::MAX, false));
                let (part, rest) = left.split_at(bytes.min(left.len()));
                tap.say(part).await.unwrap();
                if waits { tap.flush().await; }
                left = rest;
            }
            tap.flow.end(&OneSecret, Channel::Output, 100).await.unwrap();
        });
        tap.look();
        prop_assert!(!tap.read.windows(TELLING_BYTES).any(|window| window == &VALUE[..TELLING_BYTES]));
        prop_assert!(!tap.read.windows(4).any(|window| window == &VALUE[VALUE.len() - 4..]));
        if !words.iter().any(|word| word == VALUE) {
            prop_assert_eq!(&tap.read, &text);
        }
    }
}
