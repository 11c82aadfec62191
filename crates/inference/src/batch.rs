//! Runs several conversations through one network. A thread owns the weights; conversations join and leave between two tokens.
//!
//! The batch keeps a finished conversation's attention cache, because an agent's next request begins with the same text. A prompt reuses
//! the longest prefix that it shares with any cached conversation, and only the rest is evaluated.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::mpsc::UnboundedSender;

use super::draw::Draw;
use super::grammar::Grammar;
use super::net::{Feed, KvMemory, Net, NetScratch};
use super::vocab::Vocab;

/// Prompt tokens to evaluate per step while other conversations wait for their next token.
const PROMPT_TOKENS: usize = 64;
/// Maximum number of cached conversations, and their total size in bytes.
const REMEMBERED_MAX: usize = 16;
pub(super) const REMEMBERED_BYTES: usize = 512 << 20;
/// Maximum bytes that a grammar may force at once.
const FORCED_BYTES_MAX: usize = 512;

/// A request to the batch.
#[derive(Debug)]
pub(super) struct BatchJob {
    /// The conversation's tokens.
    pub(super) prompt: Vec<u32>,
    /// The grammar that constrains the answer.
    pub(super) grammar: Option<Grammar>,
    /// The sampler.
    pub(super) draw: Draw,
    /// Maximum tokens of the answer.
    pub(super) tokens_max: usize,
    /// Texts that end the answer.
    pub(super) stop: Vec<String>,
    /// Receives the events. The conversation ends when the receiver is dropped.
    pub(super) said: UnboundedSender<BatchEvent>,
    /// Pauses the conversation while set.
    pub(super) hold: Arc<AtomicBool>,
}

/// An event of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BatchEvent {
    /// Number of prompt tokens taken from the cache.
    Remembered(usize),
    /// A step without output.
    Step,
    /// More bytes of the answer, and its number of tokens so far.
    Bytes(Vec<u8>, usize),
    /// The answer ended, on its own or for lack of room.
    Finished {
        /// Whether it ended on its own.
        is_whole: bool,
        /// Total tokens of the answer.
        tokens: usize,
    },
}

enum Order {
    Ask(Box<BatchJob>),
    Look,
    End,
}

/// A network and the thread that runs it.
#[derive(Debug)]
pub(super) struct BatchThread {
    orders: Mutex<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl BatchThread {
    /// Starts the thread with a pool of this many threads.
    pub(super) fn start(net: Net, vocab: Arc<Vocab>, threads: usize) -> Result<Self, String> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .thread_name(|at| format!("local-{at}"));
        let pool = pool.build().map_err(|error| error.to_string())?;
        let (orders, taken) = channel();
        let remembered_max = REMEMBERED_BYTES / net.token_bytes().max(1);
        let mut runner = Runner {
            net,
            vocab,
            room: NetScratch::default(),
            running: Vec::new(),
            past: Vec::new(),
            remembered_max,
        };
        // The pool's own thread runs everything, so that a pool of one thread passes no work between threads.
        let thread = std::thread::Builder::new()
            .name("local-model".to_owned())
            .spawn(move || pool.install(move || runner.run(taken)))
            .map_err(|error| error.to_string())?;
        Ok(Self { orders: Mutex::new(orders), thread: Some(thread) })
    }

    /// Submits a request.
    pub(super) fn ask(&self, job: BatchJob) {
        self.send(Order::Ask(Box::new(job)));
    }

    /// Wakes the thread to check which conversations are paused.
    pub(super) fn look(&self) {
        self.send(Order::Look);
    }

    fn send(&self, order: Order) {
        // If the thread is gone, the request is dropped, and the caller's channel closes.
        drop(self.orders.lock().unwrap_or_else(PoisonError::into_inner).send(order));
    }
}

impl Drop for BatchThread {
    fn drop(&mut self) {
        self.send(Order::End);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// A running conversation.
struct ActiveConversation {
    job: BatchJob,
    /// The prompt and the answer so far.
    tokens: Vec<u32>,
    memory: KvMemory,
    said: usize,
    /// The end of the output, held back because a stop text may begin in it.
    held_back: Vec<u8>,
    is_over: bool,
}

struct Runner {
    net: Net,
    vocab: Arc<Vocab>,
    room: NetScratch,
    running: Vec<ActiveConversation>,
    /// Caches of finished conversations, latest last.
    past: Vec<KvMemory>,
    remembered_max: usize,
}

impl Runner {
    fn run(&mut self, orders: Receiver<Order>) {
        loop {
            let is_idle = !self.running.iter().any(ActiveConversation::can_continue);
            // Blocks while idle; otherwise takes the pending orders.
            let mut order = if is_idle { orders.recv().ok() } else { orders.try_recv().ok() };
            if is_idle && order.is_none() {
                return;
            }
            while let Some(one) = order {
                match one {
                    Order::Ask(job) => self.begin(*job),
                    Order::Look => {}
                    Order::End => return,
                }
                order = orders.try_recv().ok();
            }
            self.cache_finished();
            self.step();
            self.cache_finished();
        }
    }

    /// Starts a conversation from the longest cached prefix of its prompt.
    fn begin(&mut self, job: BatchJob) {
        let shared = |memory: &KvMemory| {
            let same = memory.tokens().iter().zip(&job.prompt).take_while(|(a, b)| a == b).count();
            // At least one token must be evaluated, or there are no scores for the next one.
            same.min(job.prompt.len().saturating_sub(1))
        };
        let best = self.past.iter().enumerate().map(|(at, memory)| (shared(memory), at)).max();
        let beside = self.running.iter().enumerate().map(|(at, one)| (shared(&one.memory), at)).max();
        let memory = match (best, beside) {
            (Some((same, at)), _) if same > 0 && beside.is_none_or(|(other, _)| other <= same) => {
                let memory = self.past.get(at).map(|memory| (memory.tokens().len(), memory));
                match memory {
                    // The same conversation continues: take its cache. A conversation that only shares a prefix is left and copied.
                    Some((length, _)) if length <= same + 1 => {
                        let mut memory = self.past.remove(at);
                        memory.truncate(same);
                        memory
                    }
                    Some((_, memory)) => memory.beginning(same),
                    None => KvMemory::default(),
                }
            }
            (_, Some((same, at))) if same > 0 => {
                self.running.get(at).map(|one| one.memory.beginning(same)).unwrap_or_default()
            }
            _ => KvMemory::default(),
        };
        drop(job.said.send(BatchEvent::Remembered(memory.tokens().len())));
        let tokens = job.prompt.clone();
        self.running.push(ActiveConversation {
            job,
            tokens,
            memory,
            said: 0,
            held_back: Vec::new(),
            is_over: false,
        });
    }

    /// One step for all conversations that can continue.
    fn step(&mut self) {
        let mut room_left = PROMPT_TOKENS;
        let mut feeds = Vec::new();
        let mut whose = Vec::new();
        for (at, one) in self.running.iter_mut().enumerate() {
            if !one.can_continue() {
                continue;
            }
            let unread = one.tokens.get(one.memory.tokens().len()..).unwrap_or_default();
            // A conversation always gets one token, so that generation never waits for other conversations' prompts.
            let count = unread.len().min(room_left.max(1));
            room_left = room_left.saturating_sub(if count > 1 { count } else { 0 });
            let wants_next = count == unread.len();
            let tokens = unread.get(..count).unwrap_or_default();
            feeds.push(Feed { memory: &mut one.memory, tokens, wants_next });
            whose.push((at, wants_next));
        }
        if feeds.is_empty() {
            return;
        }
        let mut scores = self.net.step(&mut self.room, &mut feeds).into_iter();
        drop(feeds);
        for (at, wants_next) in whose {
            let Some(one) = self.running.get_mut(at) else { continue };
            match (wants_next, wants_next.then(|| scores.next()).flatten()) {
                (true, Some(scores)) => one.accept_scores(&scores, &self.vocab, self.net.shape.context),
                (true | false, _) => one.send(BatchEvent::Step),
            }
        }
    }

    /// Caches finished conversations.
    fn cache_finished(&mut self) {
        let (over, running) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|one| one.is_over || one.job.said.is_closed());
        self.running = running;
        let over: Vec<ActiveConversation> = over;
        for one in over {
            self.past.retain(|memory| !one.memory.tokens().starts_with(memory.tokens()));
            self.past.push(one.memory);
        }
        let mut tokens: usize = self.past.iter().map(|memory| memory.tokens().len()).sum();
        while self.past.len() > REMEMBERED_MAX || tokens > self.remembered_max {
            let Some(oldest) = self.past.first().map(|memory| memory.tokens().len()) else { break };
            self.past.remove(0);
            tokens = tokens.saturating_sub(oldest);
        }
    }
}

impl ActiveConversation {
    fn can_continue(&self) -> bool {
        !self.is_over && !self.job.hold.load(Ordering::Acquire)
    }

    fn send(&mut self, said: BatchEvent) {
        // The receiver is gone, so the conversation is over.
        self.is_over |= self.job.said.send(said).is_err();
    }

    /// Samples the next token.
    fn accept_scores(&mut self, scores: &[f32], vocab: &Vocab, context: usize) {
        let next = self.job.draw.next(scores, vocab, self.job.grammar.as_ref());
        let Some(token) = next.filter(|token| !vocab.is_end(*token)) else {
            return self.end(next.is_some());
        };
        let mut bytes = vocab.bytes(token).to_vec();
        self.tokens.push(token);
        self.said += 1;
        let mut is_over = false;
        if let Some(grammar) = &mut self.job.grammar {
            grammar.take(&bytes);
            let forced = grammar.forced(FORCED_BYTES_MAX);
            // Partial characters can't be tokenized; text that the grammar forces consists of complete characters.
            if let Ok(text) = std::str::from_utf8(&forced) {
                let before = self.tokens.len();
                vocab.plain(text, &mut self.tokens);
                self.said += self.tokens.len() - before;
                grammar.take(&forced);
                bytes.extend(forced);
            }
            is_over = grammar.is_over();
        }
        let (bytes, has_stopped) = self.release(&bytes);
        is_over |= has_stopped;
        self.send(BatchEvent::Bytes(bytes, self.said));
        if is_over {
            self.end(true);
        } else if self.said >= self.job.tokens_max || self.tokens.len() >= context {
            self.end(false);
        }
    }

    /// The bytes that can be sent now, and whether a stop text was found. The stop text is not sent.
    fn release(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let stops = || self.job.stop.iter().filter(|stop| !stop.is_empty());
        let Some(longest) = stops().map(String::len).max() else { return (bytes.to_vec(), false) };
        let mut held = std::mem::take(&mut self.held_back);
        held.extend_from_slice(bytes);
        let find = |stop: &String| held.windows(stop.len()).position(|part| part == stop.as_bytes());
        if let Some(at) = stops().filter_map(find).min() {
            held.truncate(at);
            return (held, true);
        }
        self.held_back = held.split_off(held.len().saturating_sub(longest - 1));
        (held, false)
    }

    fn end(&mut self, is_whole: bool) {
        let tokens = self.said;
        let held_back = std::mem::take(&mut self.held_back);
        if !held_back.is_empty() {
            self.send(BatchEvent::Bytes(held_back, tokens));
        }
        self.send(BatchEvent::Finished { is_whole, tokens });
        self.is_over = true;
    }
}

#[cfg(test)]
mod tests;
