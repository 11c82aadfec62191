//! What comes while a call still runs: a channel that the kernel owns. Each chunk is scrubbed and labelled before anyone can read it;
//! what was recorded in the end is the whole, or the part that came.

use std::sync::{Arc, Mutex, PoisonError};

use regent_policy::Label;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Fault, Kernel, Labelled, Reply};
use crate::call::{Call, Op};
use crate::executor::RawOutput;
use crate::principal::Principal;
use crate::secret::Secrets;

/// Chunks that may wait for their reader; then the executor waits for it too.
const CHUNKS_WAITING_MAX: usize = 64;

/// A call whose output is read as it comes. Dropping this stops the reading, not the call.
#[derive(Debug)]
pub struct Stream {
    chunks: mpsc::Receiver<Labelled>,
    reply: JoinHandle<Result<Reply, Fault>>,
}

impl Kernel {
    /// The same door, for output that takes its time.
    pub fn stream(&self, caller: &Principal, op: Op) -> Stream {
        let (to, chunks) = mpsc::channel(CHUNKS_WAITING_MAX);
        let call = Call {
            principal: caller.clone(),
            op,
            parent: None,
            depth: 0,
            within: Vec::new(),
            listener: Some(to),
        };
        Stream { chunks, reply: tokio::spawn(Arc::clone(&self.0).enter(call)) }
    }
}

impl Stream {
    /// The next chunk; `None` when no more will come.
    pub async fn next(&mut self) -> Option<Labelled> {
        self.chunks.recv().await
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

/// More came than the grant allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more came than the grant allows")]
pub struct Overflow;

/// What has flowed in one call.
#[derive(Debug)]
pub(crate) struct Flow {
    listener: Option<mpsc::Sender<Labelled>>,
    floor: Label,
    /// Policy looks at the whole first: nothing is passed on before.
    whole_only: bool,
    state: Mutex<Flowed>,
}

#[derive(Debug, Default)]
struct Flowed {
    /// May still turn out to be the beginning of a secret.
    held: Vec<u8>,
    /// Scrubbed, and passed on if anyone listens.
    whole: Vec<u8>,
    masked: bool,
}

impl Flow {
    pub(super) fn new(listener: Option<mpsc::Sender<Labelled>>, floor: Label, whole_only: bool) -> Self {
        Self { listener, floor, whole_only, state: Mutex::default() }
    }

    /// Passes on the whole where nothing was passed on before.
    pub(super) fn release(&self, output: &Labelled) {
        if let Some(listener) =
            self.listener.as_ref().filter(|_| self.whole_only && !output.bytes().is_empty())
        {
            // A reader that has gone away misses it; the outcome doesn't. There is room: it is the first.
            let _gone = listener.try_send(output.clone()).is_err();
        }
    }

    /// Takes in a chunk and passes on what is safe to pass on.
    pub(super) async fn take(
        &self,
        secrets: &dyn Secrets,
        bytes: &[u8],
        bytes_max: u64,
    ) -> Result<(), Overflow> {
        let (chunk, masked, full) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.held.extend_from_slice(bytes);
            let mut part = secrets.scrub_part(&mut state.held);
            let room = usize::try_from(bytes_max).unwrap_or(usize::MAX).saturating_sub(state.whole.len());
            let full = part.bytes.len() > room;
            part.bytes.truncate(room);
            state.whole.extend_from_slice(&part.bytes);
            state.masked |= part.masked;
            (part.bytes, state.masked, full)
        };
        if let Some(listener) = &self.listener
            && !chunk.is_empty()
            && !self.whole_only
        {
            // A reader that has gone away misses it; the outcome doesn't.
            let _gone = listener.send(Labelled::of(chunk, self.floor, masked)).await.is_err();
        }
        if full { Err(Overflow) } else { Ok(()) }
    }

    /// Where the executor gave nothing back in the end, what flowed is the output. Says whether a secret was in it.
    pub(super) fn finish(&self, secrets: &dyn Secrets, raw: &mut RawOutput) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = std::mem::take(&mut state.held);
        let masked = secrets.scrub(&mut rest) | state.masked;
        let mut whole = std::mem::take(&mut state.whole);
        whole.append(&mut rest);
        if raw.bytes.is_empty() {
            raw.bytes = whole;
        }
        masked
    }
}

#[cfg(test)]
mod tests {
    use regent_ledger::Kind;
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
            assert_eq!(chunk.label().integrity, Integrity::Tool);
            text.push_str(&chunk.text());
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
        assert_eq!(stream.next().await.unwrap().text(), "one ");
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
