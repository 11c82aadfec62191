//! The exchanges that wait for a driver. A call's permit takes its exchange out, once.
//!
//! The key is the call itself: the intent of the sandbox's call, the caller, and the arguments as submitted to the kernel. It is not a
//! number in the arguments, because an approval is bound to the arguments: an approved call must stay the same when the program retries it.
//! Two calls with equal keys may swap their exchanges, which is safe because policy gave both the same verdict.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::upgrade::OnUpgrade;
use regent_kernel::{Call, Op, Principal, ToolCall};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use crate::body::Piped;

/// Closed when the sandbox or its broker ends.
pub(crate) type Gone = watch::Receiver<()>;

/// A pending request of a program.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) kind: ExchangeKind,
    /// Receives the response for the program.
    pub(crate) answer: oneshot::Sender<Response<Piped>>,
    pub(crate) gone: Gone,
    /// Its share of the program's concurrency limit, held until it ends.
    pub(crate) room: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(crate) enum ExchangeKind {
    /// A tunnel; becomes a stream once it is answered.
    Tunnel(OnUpgrade),
    /// A request, as received.
    Request(Box<ProgramRequest>),
}

/// A request, as received.
#[derive(Debug)]
pub(crate) struct ProgramRequest {
    /// Without the headers of the connection.
    pub(crate) headers: HeaderMap,
    pub(crate) body: RequestBody,
    /// Decoded basic credentials with a handle, as policy sees them.
    pub(crate) basic: Option<String>,
}

#[derive(Debug)]
pub(crate) enum RequestBody {
    /// Small enough to be checked completely. `json` is set if it contains handles.
    Whole { bytes: Bytes, json: Option<serde_json::Value> },
    /// A streamed body, with its size if announced.
    Stream(Incoming, Option<u64>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ExchangeKey {
    parent: u64,
    chain: Vec<String>,
    call: String,
}

type WaitingExchange = HashMap<ExchangeKey, VecDeque<(u64, Exchange)>>;

/// All pending exchanges.
#[derive(Debug, Default)]
pub(crate) struct ExchangeTable(Arc<Mutex<(u64, WaitingExchange)>>);

impl ExchangeTable {
    /// Queues an exchange for the driver of this call. Dropping the returned slot removes it.
    pub(crate) fn put(
        &self,
        parent: u64,
        caller: &Principal,
        call: &ToolCall,
        exchange: Exchange,
    ) -> ExchangeSlot {
        let key = ExchangeKey::new(parent, caller, call);
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, waiting) = &mut *table;
        *next = next.saturating_add(1);
        waiting.entry(key.clone()).or_default().push_back((*next, exchange));
        ExchangeSlot { table: Arc::clone(&self.0), key, number: *next }
    }

    /// Takes the exchange of a permitted call.
    pub(crate) fn take(&self, call: &Call) -> Option<Exchange> {
        let (Some(parent), Op::RunTool(run)) = (call.parent(), call.op()) else { return None };
        let key = ExchangeKey::new(parent, call.principal(), run);
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = table.1.get_mut(&key)?;
        let taken = queue.pop_front();
        if queue.is_empty() {
            table.1.remove(&key);
        }
        taken.map(|(_, exchange)| exchange)
    }
}

impl ExchangeKey {
    fn new(parent: u64, caller: &Principal, call: &ToolCall) -> Self {
        let chain = caller.chain().to_vec();
        Self { parent, chain, call: format!("{} {}", call.tool, call.args) }
    }
}

/// The slot of a pending exchange.
#[derive(Debug)]
pub(crate) struct ExchangeSlot {
    table: Arc<Mutex<(u64, WaitingExchange)>>,
    key: ExchangeKey,
    number: u64,
}

impl Drop for ExchangeSlot {
    fn drop(&mut self) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = table.1.get_mut(&self.key) {
            queue.retain(|(number, _)| *number != self.number);
            if queue.is_empty() {
                table.1.remove(&self.key);
            }
        }
    }
}
