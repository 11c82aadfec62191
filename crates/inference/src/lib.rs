//! Local inference: GGUF weights, a network implementation of our own, and answers constrained to the offered tools.
//!
//! No data leaves the machine. One model is loaded at a time and shared by all conversations. If tools are offered, the answer is a call of
//! one of them, enforced by a grammar compiled from their schemas. If a schema is given, the answer matches it. Decoding is greedy unless
//! configured otherwise, so the same conversation gets the same answer, alone or in a batch, from the start or from a cached prefix.
#![forbid(unsafe_code)]

mod batch;
mod chat;
mod dot;
mod draw;
mod examples;
mod gguf;
mod grammar;
mod net;
mod packed;
mod result;
mod template;
#[cfg(test)]
mod tests;
pub mod trial;
mod vocab;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use regent_kernel::{BoxFuture, Inference, Message, ModelUsage, Offer, StopReason, ToolUse};
use regent_models::{Event, Events, Names, Provider, ProviderError, ProviderRequest, TokenUsage, ToolDelta};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use batch::{BatchEvent, BatchJob, BatchThread};
use chat::ChatTemplate;
use draw::Draw;
use examples::{FINISH, FINISH_ARGUMENT, is_finish};
pub use gguf::{Gguf, GgufError};
use grammar::{Grammar, SchemaShape, Shapes};
use net::Net;
use vocab::Vocab;

/// Maximum bytes that a grammar forces before the first sampled token.
const FORCED_BYTES_MAX: usize = 4_096;
/// How often a repeated call is rejected.
const SECOND_THOUGHTS_MAX: usize = 2;
/// Maximum size of weights that are asked for a task's result in a separate conversation.
const SMALL_BYTES_MAX: u64 = 1_500_000_000;

/// A folder of weights, one file `MODEL.gguf` per model.
#[derive(Debug)]
pub struct Local {
    folder: PathBuf,
    threads: usize,
    loaded: tokio::sync::Mutex<Option<Arc<Model>>>,
    /// How long a conversation may be, by file. Reading it takes as long as reading the vocabulary.
    windows: Mutex<BTreeMap<PathBuf, u64>>,
}

/// A loaded model.
#[derive(Debug)]
struct Model {
    path: PathBuf,
    vocab: Arc<Vocab>,
    chat: ChatTemplate,
    batch: BatchThread,
    context: usize,
    is_small: bool,
}

/// The model that this process has loaded, shared by all callers.
static LOADED: Mutex<Option<Weak<Model>>> = Mutex::new(None);

/// The provider for the weights in a folder, with this many threads or the default.
pub fn open(folder: &Path, threads: Option<usize>) -> Arc<dyn Provider> {
    Arc::new(match threads {
        Some(threads) => Local::with_threads(folder, threads),
        None => Local::new(folder),
    })
}

impl Local {
    /// The weights in this folder, with one thread per processor but one.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_threads(folder, cores.saturating_sub(1).max(1))
    }

    /// The weights in this folder, with this many threads.
    pub fn with_threads(folder: impl Into<PathBuf>, threads: usize) -> Self {
        Self {
            folder: folder.into(),
            threads: threads.clamp(1, 256),
            loaded: tokio::sync::Mutex::new(None),
            windows: Mutex::default(),
        }
    }

    /// The path of a model's weights, which may not exist. A name can't lead outside the folder.
    fn path(&self, model: &str) -> Option<PathBuf> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let fine = !model.is_empty() && !model.starts_with('.') && model.chars().all(fits);
        fine.then(|| self.folder.join(format!("{model}.gguf")))
    }

    async fn load(&self, name: &str) -> Result<Arc<Model>, ProviderError> {
        let absent = || {
            ProviderError::Absent(format!("its weights are not downloaded; run `regent model pull {name}`"))
        };
        let path = self.path(name).filter(|path| path.is_file()).ok_or_else(absent)?;
        let mut loaded = self.loaded.lock().await;
        if let Some(model) = loaded.as_ref().filter(|model| model.path == path) {
            return Ok(Arc::clone(model));
        }
        // One model at a time: the previous one is dropped before the next is loaded, unless a conversation still uses it.
        let before = loaded.take();
        let threads = self.threads;
        let load = move || {
            drop(before);
            Model::shared(&path, threads)
        };
        let model = tokio::task::spawn_blocking(load)
            .await
            .map_err(|error| ProviderError::Unfit(error.to_string()))?;
        let model = model.map_err(ProviderError::Absent)?;
        *loaded = Some(Arc::clone(&model));
        Ok(model)
    }
}

fn registry() -> MutexGuard<'static, Option<Weak<Model>>> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Model {
    fn shared(path: &Path, threads: usize) -> Result<Arc<Self>, String> {
        let mut registry = registry();
        if let Some(model) = registry.as_ref().and_then(Weak::upgrade).filter(|model| model.path == path) {
            return Ok(model);
        }
        let model =
            Arc::new(Self::load(path, threads).map_err(|why| format!("`{}`: {why}", path.display()))?);
        *registry = Some(Arc::downgrade(&model));
        Ok(model)
    }

    fn load(path: &Path, threads: usize) -> Result<Self, String> {
        let said = |error: GgufError| error.to_string();
        let file = File::open(path).map_err(|error| error.to_string())?;
        let is_small = file.metadata().is_ok_and(|metadata| metadata.len() <= SMALL_BYTES_MAX);
        let gguf = Gguf::open(file).map_err(said)?;
        let net = Net::read(&gguf).map_err(said)?;
        let vocab = Arc::new(Vocab::read(&gguf, net.shape.words).map_err(said)?);
        let chat = ChatTemplate::new(gguf.text("tokenizer.chat_template"))?;
        let context = net.shape.window();
        let batch = BatchThread::start(net, Arc::clone(&vocab), threads)?;
        Ok(Self { path: path.to_owned(), vocab, chat, batch, context, is_small })
    }

    /// Prepares the tokens of a conversation, the grammar of the answer, and its forced beginning.
    fn prepare(&self, asked: &InferenceAttempt) -> Result<Prepared, ProviderError> {
        let InferenceAttempt { inference, names, repeated } = asked;
        let mut prompt = self.chat.tokens(&self.vocab, inference, names).map_err(ProviderError::Unfit)?;
        let mut grammar = grammar_of(inference, names, repeated);
        if grammar.is_some() && !inference.tools.is_empty() {
            let (begin, _) = chat::CALL;
            match self.vocab.special(begin) {
                Some(token) => prompt.push(token),
                None => self.vocab.plain(begin, &mut prompt),
            }
            self.vocab.plain("\n", &mut prompt);
        }
        let mut begins = Vec::new();
        if let Some(grammar) = &mut grammar {
            begins = grammar.forced(FORCED_BYTES_MAX);
            grammar.take(&begins);
            self.vocab.plain(&String::from_utf8_lossy(&begins), &mut prompt);
        }
        if prompt.len() >= self.context {
            let why = format!("the conversation has {} tokens, and it takes {}", prompt.len(), self.context);
            return Err(ProviderError::Unfit(why));
        }
        Ok(Prepared { prompt, grammar, begins })
    }
}

/// A request, and the tools whose calls were rejected as repetitions.
struct InferenceAttempt {
    inference: Inference,
    names: Names,
    repeated: Vec<String>,
}

struct Prepared {
    prompt: Vec<u32>,
    grammar: Option<Grammar>,
    begins: Vec<u8>,
}

/// The grammar of the answer: a call of one of the tools, or the given schema.
fn grammar_of(inference: &Inference, names: &Names, repeated: &[String]) -> Option<Grammar> {
    let mut shapes = Shapes::default();
    let root = if inference.tools.is_empty() {
        shapes.compile(inference.sampling.schema.as_ref()?)
    } else {
        let mut calls = Vec::with_capacity(inference.tools.len());
        for offer in allowed(inference, repeated) {
            let name = Value::String(names.wire(&offer.name).to_owned()).to_string();
            let name = shapes.add(SchemaShape::OneOf(vec![name]));
            let args = shapes.compile(&chat::essential(&offer.input));
            let member =
                |name: &str, shape| grammar::Member { name: format!("\"{name}\""), shape, is_required: true };
            calls
                .push(shapes.add(SchemaShape::Object(vec![member("name", name), member("arguments", args)])));
        }
        shapes.add(SchemaShape::Either(calls))
    };
    Some(Grammar::new(shapes, root, "", ""))
}

/// Whether the conversation contains this call, and no new call since. Small models repeat the same call.
fn is_repeated(inference: &Inference, tool: &str, args: &Value) -> bool {
    let calls: Vec<&ToolUse> = inference.messages.iter().flat_map(Message::calls).collect();
    let is_same = |a: &ToolUse, tool: &str, args: &Value| a.tool == tool && a.args == *args;
    let Some(last) = calls.iter().rposition(|call| is_same(call, tool, args)) else { return false };
    let is_first = |(at, call): (usize, &&ToolUse)| {
        !calls.iter().take(at).any(|earlier| is_same(earlier, &call.tool, &call.args))
    };
    !calls.iter().enumerate().skip(last + 1).any(is_first)
}

/// The tools that may be called now. The first call can't end the task. If the model repeats a call, that tool is dropped; if it repeats
/// again, it must end the task.
fn allowed<'a>(inference: &'a Inference, repeated: &[String]) -> Vec<&'a Offer> {
    let tools = &inference.tools;
    let is_new = !inference.messages.iter().any(Message::has_calls);
    let is_allowed = |offer: &&Offer| match repeated {
        [] => !(is_new && is_finish(offer)),
        [only] => offer.name != *only,
        [..] => is_finish(offer),
    };
    let chosen: Vec<&Offer> = tools.iter().filter(is_allowed).collect();
    if chosen.is_empty() { tools.iter().collect() } else { chosen }
}

impl Provider for Local {
    fn endpoint(&self, _model: &str) -> Option<String> {
        None
    }

    fn is_ready(&self, model: &str) -> bool {
        self.path(model).is_some_and(|path| path.is_file())
    }

    fn window_tokens(&self, model: &str) -> Option<u64> {
        let path = self.path(model)?;
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tokens) = windows.get(&path) {
            return Some(*tokens);
        }
        let gguf = Gguf::open(File::open(&path).ok()?).ok()?;
        let tokens = net::window(&gguf).ok()? as u64;
        windows.insert(path, tokens);
        Some(tokens)
    }

    fn ask<'a>(
        &'a self,
        ask: ProviderRequest<'a>,
        events: Events,
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(async move {
            let model = self.load(ask.model).await?;
            let mut earlier = EarlierAttempts::default();
            loop {
                let asked = InferenceAttempt {
                    inference: earlier.result.clone().unwrap_or_else(|| ask.inference.clone()),
                    names: ask.names.clone(),
                    repeated: earlier.repeated.clone(),
                };
                let at = Arc::clone(&model);
                let prepared = tokio::task::spawn_blocking(move || at.prepare(&asked))
                    .await
                    .map_err(|error| ProviderError::Unfit(error.to_string()))??;
                let answer = AnswerStream::begin(&model, &ask, prepared, (events.clone(), earlier));
                match answer.follow(&ask).await? {
                    Some(again) => earlier = again,
                    None => return Ok(()),
                }
            }
        })
    }
}

/// Earlier answers that were rejected: repeated calls, or the end of the task.
#[derive(Debug, Default)]
struct EarlierAttempts {
    repeated: Vec<String>,
    /// The request for the result, once the model wants to end the task.
    result: Option<Inference>,
    /// Their usage: tokens generated, and tokens evaluated or cached for another request than the current one.
    tokens: usize,
    read: usize,
    cached: usize,
    remembered: Option<usize>,
}

/// A running answer. Dropping it cancels the answer.
struct AnswerStream<'a> {
    model: &'a Model,
    said: UnboundedReceiver<BatchEvent>,
    hold: Arc<AtomicBool>,
    events: Events,
    /// The answer is a tool call or the result, and is sent only when complete.
    is_call: bool,
    /// Bytes that are not sent yet.
    bytes: Vec<u8>,
    prompt: usize,
    earlier: EarlierAttempts,
}

impl Drop for AnswerStream<'_> {
    fn drop(&mut self) {
        self.said.close();
        self.model.batch.look();
    }
}

impl<'a> AnswerStream<'a> {
    fn begin(
        model: &'a Model,
        ask: &ProviderRequest<'_>,
        prepared: Prepared,
        (events, earlier): (Events, EarlierAttempts),
    ) -> Self {
        let Prepared { prompt, grammar, begins } = prepared;
        let (said, heard) = unbounded_channel();
        let hold = Arc::new(AtomicBool::new(false));
        let sampling = &ask.inference.sampling;
        let tokens_max = usize::try_from(ask.inference.tokens_max).unwrap_or(usize::MAX);
        let result_max = earlier.result.as_ref().map_or(u64::MAX, |result| result.tokens_max);
        let result_max = usize::try_from(result_max).unwrap_or(usize::MAX);
        let tokens_max = tokens_max.saturating_sub(earlier.tokens).clamp(1, result_max.max(1));
        let answer = Self {
            model,
            said: heard,
            hold: Arc::clone(&hold),
            events,
            is_call: !ask.inference.tools.is_empty(),
            bytes: begins,
            prompt: prompt.len(),
            earlier,
        };
        let draw = Draw::new(sampling.temperature, sampling.seed);
        model.batch.ask(BatchJob {
            prompt,
            grammar,
            draw,
            tokens_max,
            stop: sampling.stop.clone(),
            said,
            hold,
        });
        answer
    }

    /// Follows the answer to its end. Returns the earlier attempts if the answer was rejected and must be requested again.
    async fn follow(mut self, ask: &ProviderRequest<'_>) -> Result<Option<EarlierAttempts>, ProviderError> {
        loop {
            match self.said.recv().await {
                Some(BatchEvent::Remembered(tokens)) => {
                    self.earlier.remembered.get_or_insert(tokens);
                    self.report(0).await?;
                }
                Some(BatchEvent::Step) => {}
                Some(BatchEvent::Bytes(bytes, _)) => {
                    self.bytes.extend(bytes);
                    if !self.is_call {
                        self.send_text(false).await?;
                    }
                }
                Some(BatchEvent::Finished { is_whole, tokens }) => {
                    return self.end(ask, is_whole, tokens).await;
                }
                None => return Err(ProviderError::Cut),
            }
            if ask.turn.should_yield() {
                self.hold.store(true, Ordering::Release);
                ask.turn.give_way().await;
                self.hold.store(false, Ordering::Release);
                self.model.batch.look();
            }
        }
    }

    fn remembered(&self) -> usize {
        self.earlier.remembered.unwrap_or(0).min(self.prompt)
    }

    async fn report(&self, output: usize) -> Result<(), ProviderError> {
        let count = |tokens: usize| u64::try_from(tokens).unwrap_or(u64::MAX);
        let remembered = self.remembered();
        let usage = ModelUsage {
            input: count(self.earlier.read.saturating_add(self.prompt - remembered)),
            cached: count(self.earlier.cached.saturating_add(remembered)),
            output: count(self.earlier.tokens.saturating_add(output)),
            reasoning: 0,
        };
        self.events.give(Event::Usage(TokenUsage::from(usage))).await
    }

    /// Sends complete characters; at the end, everything.
    async fn send_text(&mut self, is_end: bool) -> Result<(), ProviderError> {
        let whole = match std::str::from_utf8(&self.bytes) {
            Ok(_) => self.bytes.len(),
            // An incomplete character waits for its remaining bytes; invalid bytes are replaced.
            Err(error) if !is_end && error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.bytes.len(),
        };
        let rest = self.bytes.split_off(whole);
        let told = std::mem::replace(&mut self.bytes, rest);
        if told.is_empty() {
            return Ok(());
        }
        self.events.give(Event::Text(String::from_utf8_lossy(&told).into_owned())).await
    }

    async fn end(
        mut self,
        ask: &ProviderRequest<'_>,
        is_whole: bool,
        tokens: usize,
    ) -> Result<Option<EarlierAttempts>, ProviderError> {
        let mut stop = if is_whole { StopReason::End } else { StopReason::Length };
        if self.earlier.result.is_some() {
            let text = String::from_utf8_lossy(&self.bytes).trim().to_owned();
            let (name, args) =
                (ask.names.wire(FINISH).to_owned(), json!({FINISH_ARGUMENT: text}).to_string());
            self.events.give(Event::Tool(ToolDelta { index: 0, id: None, name: Some(name), args })).await?;
            stop = StopReason::ToolUse;
        } else if !self.is_call {
            self.send_text(true).await?;
        } else if is_whole {
            let call: Value = serde_json::from_slice(&self.bytes)
                .map_err(|error| ProviderError::Malformed(format!("the request for a tool: {error}")))?;
            let args = call.get("arguments").cloned().unwrap_or_default();
            let name = call.get("name").and_then(Value::as_str).map(str::to_owned);
            let tool = name.as_deref().map(|name| ask.names.ours(name)).unwrap_or_default();
            if self.earlier.repeated.len() < SECOND_THOUGHTS_MAX && is_repeated(ask.inference, tool, &args) {
                let mut earlier = std::mem::take(&mut self.earlier);
                earlier.repeated.push(tool.to_owned());
                earlier.tokens = earlier.tokens.saturating_add(tokens);
                return Ok(Some(earlier));
            }
            if self.model.is_small
                && tool == FINISH
                && let Some(result) = result::asked_for(ask.inference, ask.names)
            {
                return Ok(Some(self.set_aside(result, tokens)));
            }
            let args = args.to_string();
            self.events.give(Event::Tool(ToolDelta { index: 0, id: None, name, args })).await?;
            stop = StopReason::ToolUse;
        }
        self.report(tokens).await?;
        self.events.give(Event::Stop(stop)).await?;
        Ok(None)
    }

    /// Discards this answer in favour of another request, and adds up its usage.
    fn set_aside(&mut self, result: Inference, tokens: usize) -> EarlierAttempts {
        let remembered = self.remembered();
        let mut earlier = std::mem::take(&mut self.earlier);
        earlier.tokens = earlier.tokens.saturating_add(tokens);
        earlier.read = earlier.read.saturating_add(self.prompt - remembered);
        earlier.cached = earlier.cached.saturating_add(remembered);
        (earlier.remembered, earlier.result) = (None, Some(result));
        earlier
    }
}
