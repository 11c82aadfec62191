//! Typed pipes between agents: bounded, with a schema for messages and a label on each message.
//!
//! The creator of a pipe writes; the `reader` that it names reads. When the writer ends, the reader still gets the queued messages and then
//! an error that the pipe is closed. When the reader ends, the writer gets that error at once. A send to a full pipe fails;
//! no message is dropped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jsonschema::PatternOptions;
use regent_policy::{Confidentiality, Integrity, Label};
pub use regent_wire::{PipeId, PipeSpec};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::agent::AgentId;

/// Pipes at the same time.
const PIPES_MAX: usize = 1024;
/// Pipes that one agent has made and that are still there.
const PIPES_OF_ONE_MAX: usize = 64;
const MESSAGES_MAX: u32 = 1024;
const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// What waits in one pipe at most, whatever its own limits come to.
const WAITING_BYTES_MAX: usize = 8 << 20;
const SCHEMA_BYTES_MAX: usize = 64 << 10;
/// How large a pattern of a schema may become when it is compiled.
const PATTERN_BYTES_MAX: usize = 256 << 10;
/// How long a read waits at most.
const WAIT_MS_MAX: u64 = 60_000;

/// Random, and small enough that every JSON reader gets it exactly.
fn random_id() -> Result<PipeId, PipeError> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(PipeError::NoRandomness)?;
    Ok(PipeId(u64::from_le_bytes(bytes) >> 11))
}

/// Why a pipe doesn't do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PipeError {
    #[error("{0}")]
    Spec(String),
    #[error("there are too many pipes")]
    TooMany,
    #[error("there is no such pipe")]
    Unknown,
    #[error("the message is larger than the pipe's limit of {0} bytes")]
    TooLarge(u32),
    #[error("the message doesn't fit the pipe's schema: {0}")]
    Mismatch(String),
    #[error("the pipe is full; try again when its reader has read")]
    Full,
    #[error("the pipe is empty")]
    Empty,
    #[error("the other end of the pipe is gone")]
    Closed,
    #[error("the system returned no random numbers: {0}")]
    NoRandomness(getrandom::Error),
}

impl PipeError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Spec(_) => "pipe.invalid",
            Self::TooMany => "pipe.too_many",
            Self::Unknown => "pipe.unknown",
            Self::TooLarge(_) => "pipe.too_large",
            Self::Mismatch(_) => "pipe.mismatch",
            Self::Full => "pipe.full",
            Self::Empty => "pipe.empty",
            Self::Closed => "pipe.closed",
            Self::NoRandomness(_) => "pipe.no_randomness",
        }
    }
}

/// A message on its way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub(crate) bytes: Vec<u8>,
    pub(crate) label: Label,
}

/// All pipes.
#[derive(Debug, Default)]
pub(crate) struct Pipes(Mutex<BTreeMap<PipeId, Arc<Pipe>>>);

#[derive(Debug)]
struct Pipe {
    id: PipeId,
    writer: AgentId,
    spec: PipeSpec,
    schema: jsonschema::Validator,
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<Message>,
    bytes: usize,
    closed: bool,
}

impl Pipe {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.waiting().closed = true;
        self.changed.notify_waiters();
    }

    fn take(&self) -> Result<Message, PipeError> {
        let mut waiting = self.waiting();
        match waiting.messages.pop_front() {
            Some(message) => {
                waiting.bytes = waiting.bytes.saturating_sub(message.bytes.len());
                Ok(message)
            }
            None if waiting.closed => Err(PipeError::Closed),
            None => Err(PipeError::Empty),
        }
    }
}

impl Pipes {
    fn all(&self) -> MutexGuard<'_, BTreeMap<PipeId, Arc<Pipe>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: PipeId) -> Result<Arc<Pipe>, PipeError> {
        self.all().get(&id).cloned().ok_or(PipeError::Unknown)
    }

    /// Makes a pipe.
    pub(crate) fn make(&self, writer: AgentId, spec: PipeSpec) -> Result<PipeId, PipeError> {
        let schema = check(&spec)?;
        let id = random_id()?;
        let pipe = Pipe { id, writer, spec, schema, waiting: Mutex::default(), changed: Notify::new() };
        let mut all = self.all();
        let own = all.values().filter(|other| other.writer == pipe.writer).count();
        if all.len() >= PIPES_MAX || own >= PIPES_OF_ONE_MAX || all.contains_key(&id) {
            return Err(PipeError::TooMany);
        }
        all.insert(id, Arc::new(pipe));
        Ok(id)
    }

    /// Who writes and who reads.
    pub(crate) fn ends(&self, id: PipeId) -> Option<(AgentId, AgentId)> {
        self.get(id).ok().map(|pipe| (pipe.writer.clone(), pipe.spec.reader.clone()))
    }

    /// Puts a message in. Never waits: a full pipe is the writer's to know of.
    pub(crate) fn send(&self, id: PipeId, message: &Value, label: Label) -> Result<usize, PipeError> {
        let pipe = self.get(id)?;
        let bytes = message.to_string().into_bytes();
        if bytes.len() > pipe.spec.message_bytes_max as usize {
            return Err(PipeError::TooLarge(pipe.spec.message_bytes_max));
        }
        pipe.schema.validate(message).map_err(|error| PipeError::Mismatch(error.to_string()))?;
        let mut waiting = pipe.waiting();
        if waiting.closed {
            return Err(PipeError::Closed);
        }
        let is_full = waiting.messages.len() >= pipe.spec.messages_max as usize
            || waiting.bytes.saturating_add(bytes.len()) > WAITING_BYTES_MAX;
        if is_full {
            return Err(PipeError::Full);
        }
        waiting.bytes += bytes.len();
        // The reader receives another agent's output, with that agent's taint.
        let from_a_peer = Label { integrity: Integrity::Peer, confidentiality: Confidentiality::Public };
        waiting.messages.push_back(Message { bytes, label: label.join(from_a_peer) });
        let count = waiting.messages.len();
        drop(waiting);
        pipe.changed.notify_waiters();
        Ok(count)
    }

    /// Takes the next message out, and waits a while for one. Dropping the future loses none.
    pub(crate) async fn recv(&self, id: PipeId, wait_ms_max: u64) -> Result<Message, PipeError> {
        let pipe = self.get(id)?;
        let taken = async {
            loop {
                // Registered before the look, so a message in between isn't missed.
                let changed = pipe.changed.notified();
                match pipe.take() {
                    Err(PipeError::Empty) => changed.await,
                    other => return other,
                }
            }
        };
        let wait = Duration::from_millis(wait_ms_max.min(WAIT_MS_MAX));
        let message = tokio::time::timeout(wait, taken).await.unwrap_or(Err(PipeError::Empty));
        if matches!(message, Err(PipeError::Closed)) {
            // Drained and without a writer: nothing can come any more.
            self.all().remove(&id);
        }
        message
    }

    /// An agent has ended: closes the pipes that it writes and removes those that it reads.
    pub(crate) fn forsake(&self, agent: &AgentId) {
        let mut all = self.all();
        for pipe in all.values().filter(|pipe| pipe.spec.reader == *agent || pipe.writer == *agent) {
            pipe.close();
        }
        all.retain(|_, pipe| pipe.spec.reader != *agent);
    }

    /// The pipes that an agent holds an end of: those it reads, those it writes.
    pub(crate) fn list(&self, agent: &AgentId) -> (Vec<Value>, Vec<Value>) {
        let all = self.all();
        let describe = |pipe: &Arc<Pipe>| {
            let waiting = pipe.waiting();
            json!({
                "closed": waiting.closed,
                "messages": waiting.messages.len(),
                "messages_max": pipe.spec.messages_max,
                "pipe": pipe.id,
                "reader": pipe.spec.reader,
                "writer": pipe.writer,
            })
        };
        let inbox = all.values().filter(|pipe| pipe.spec.reader == *agent).map(describe).collect();
        let outbox = all.values().filter(|pipe| pipe.writer == *agent).map(describe).collect();
        (inbox, outbox)
    }
}

/// Says what is wrong with a pipe that someone wants, or gives its schema, compiled. Patterns run in linear time: the schema comes
/// from an agent.
fn check(spec: &PipeSpec) -> Result<jsonschema::Validator, PipeError> {
    if !(1..=MESSAGES_MAX).contains(&spec.messages_max) {
        return Err(PipeError::Spec(format!("`messages_max` must be 1 to {MESSAGES_MAX}")));
    }
    if !(1..=MESSAGE_BYTES_MAX).contains(&spec.message_bytes_max) {
        return Err(PipeError::Spec(format!("`message_bytes_max` must be 1 to {MESSAGE_BYTES_MAX}")));
    }
    if spec.schema.to_string().len() > SCHEMA_BYTES_MAX {
        return Err(PipeError::Spec(format!("a schema has at most {SCHEMA_BYTES_MAX} bytes")));
    }
    let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX);
    let options = jsonschema::options().with_pattern_options(patterns);
    options.build(&spec.schema).map_err(|error| PipeError::Spec(format!("the schema is not valid: {error}")))
}

#[cfg(test)]
mod tests;
