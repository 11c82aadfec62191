//! The exchanges that wait for a driver. A call's permit is what gets one out, and each comes out once.
//!
//! The key is the call itself: the sandbox whose program asked (the intent of its call), the caller, and the arguments as they were
//! put to the kernel. It is not a number in the arguments, because a person's approval is bound to the arguments: what was agreed
//! to must still be the same call when the program tries again. Two calls that are alike in all of this may swap their
//! exchanges; policy has said the same of both.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::upgrade::OnUpgrade;
use regent_kernel::{Call, Op, Principal, ToolCall};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use crate::body::Piped;

/// Ends when the sandbox does, or its broker.
pub(crate) type Gone = watch::Receiver<()>;

/// Something that a program asked for and waits for.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) kind: Kind,
    /// Where the program's answer goes.
    pub(crate) answer: oneshot::Sender<Response<Piped>>,
    pub(crate) gone: Gone,
    /// Its place among those that one program may have at once; kept until it has ended.
    pub(crate) room: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// A tunnel; this becomes its stream once it is answered.
    Tunnel(OnUpgrade),
    /// A request, as it came.
    Request(Box<Asked>),
}

/// A request, as it came.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Without what belongs to the connection.
    pub(crate) headers: HeaderMap,
    pub(crate) body: AskedBody,
    /// A user name and password with a handle in them, as they were shown to policy, decoded.
    pub(crate) basic: Option<String>,
}

#[derive(Debug)]
pub(crate) enum AskedBody {
    /// Small enough to be looked at whole. `json`: it has handles to fill in.
    Whole { bytes: Bytes, json: Option<serde_json::Value> },
    /// The rest; its size, if it was announced.
    Stream(Incoming, Option<u64>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    parent: u64,
    chain: Vec<String>,
    call: String,
}

type Waiting = HashMap<Key, VecDeque<(u64, Exchange)>>;

/// All that wait.
#[derive(Debug, Default)]
pub(crate) struct Table(Arc<Mutex<(u64, Waiting)>>);

impl Table {
    /// Lets an exchange wait for the driver of this call. Dropping what is returned takes it back.
    pub(crate) fn put(
        &self,
        parent: u64,
        caller: &Principal,
        call: &ToolCall,
        exchange: Exchange,
    ) -> ExchangeSlot {
        let key = Key::new(parent, caller, call);
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, waiting) = &mut *table;
        *next = next.saturating_add(1);
        waiting.entry(key.clone()).or_default().push_back((*next, exchange));
        ExchangeSlot { table: Arc::clone(&self.0), key, number: *next }
    }

    /// The exchange of a permitted call.
    pub(crate) fn take(&self, call: &Call) -> Option<Exchange> {
        let (Some(parent), Op::RunTool(run)) = (call.parent(), call.op()) else { return None };
        let key = Key::new(parent, call.principal(), run);
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = table.1.get_mut(&key)?;
        let taken = queue.pop_front();
        if queue.is_empty() {
            table.1.remove(&key);
        }
        taken.map(|(_, exchange)| exchange)
    }
}

impl Key {
    fn new(parent: u64, caller: &Principal, call: &ToolCall) -> Self {
        let chain = caller.chain().to_vec();
        Self { parent, chain, call: format!("{} {}", call.tool, call.args) }
    }
}

/// The place of an exchange that waits.
#[derive(Debug)]
pub(crate) struct ExchangeSlot {
    table: Arc<Mutex<(u64, Waiting)>>,
    key: Key,
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
