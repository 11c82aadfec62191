//! What belongs to one guest for the time of one call: its limits, its output, and the door.

use std::sync::Arc;

use regent_kernel::{Clock, Label, Limits, Op, Reply, Status};
use wasmtime::component::{ComponentType, Lift, Lower, ResourceTable};
use wasmtime::{AsContextMut, ResourceLimiter, Trap};

use super::door::GuestDoor;

/// Instructions that a host call is worth, so that a storm of them ends like a loop does.
const CALL_FUEL: u64 = 1_000;
/// Lines that nobody asked for are kept up to here.
const LOG_BYTES_MAX: usize = 64 << 10;
/// Elements of all tables of a guest together.
const TABLE_ELEMENTS_MAX: usize = 200_000;

/// One guest.
#[derive(Debug)]
pub(super) struct WasmGuest {
    pub(super) tool: String,
    pub(super) door: GuestDoor,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) held: GuestMemory,
    pub(super) said: GuestOutput,
    /// What all that came in through the door is labelled, together.
    pub(super) label: Option<Label>,
    pub(super) calls: u64,
    /// It is whole and runs: what was refused from now on was refused to its own code.
    pub(super) begun: bool,
    pub(super) resources: ResourceTable,
    /// The adapter of older modules calls back into the guest; not again from there.
    pub(super) inside: bool,
}

impl WasmGuest {
    pub(super) fn new(tool: &str, clock: &Arc<dyn Clock>, limits: &Limits) -> Self {
        let mut resources = ResourceTable::new();
        resources.set_max_capacity(super::machine::HANDLES_PER_GUEST_MAX);
        Self {
            tool: tool.to_owned(),
            door: GuestDoor::default(),
            clock: Arc::clone(clock),
            held: GuestMemory::new(limits),
            said: GuestOutput::new(limits),
            label: None,
            calls: 0,
            begun: false,
            resources,
            inside: false,
        }
    }
}

/// A denial, a pending approval or a failure, as the guest sees it.
#[derive(Debug, Clone, ComponentType, Lift, Lower)]
#[component(record)]
pub(super) struct HostFailure {
    pub(super) code: String,
    pub(super) message: String,
}

impl HostFailure {
    pub(super) fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}

/// The kernel broke under a nested call; the guest ends, and so does the call.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Broke(pub(super) String);

/// Takes the price of a host call that carries this many bytes.
pub(super) fn charge(mut store: impl AsContextMut<Data = WasmGuest>, bytes: usize) -> wasmtime::Result<()> {
    let mut store = store.as_context_mut();
    let price = CALL_FUEL.saturating_add(bytes as u64 / 4);
    store.data_mut().calls += 1;
    let left = store.get_fuel()?.checked_sub(price);
    store.set_fuel(left.unwrap_or(0))?;
    left.map(drop).ok_or_else(|| Trap::OutOfFuel.into())
}

/// Makes a system call for the guest. What comes back is already judged, recorded and labelled; the label joins that of what the guest
/// returns in the end.
pub(super) async fn ask(
    mut store: impl AsContextMut<Data = WasmGuest>,
    op: Op,
) -> wasmtime::Result<Result<Vec<u8>, HostFailure>> {
    charge(&mut store, 0)?;
    let door = store.as_context_mut().data().door.clone();
    let reply = match door.ask(op).await {
        Ok(reply) => reply,
        Err(regent_kernel::Fault::TooDeep) => {
            return Ok(Err(HostFailure::new("call.too_deep", "calls are nested too deeply")));
        }
        Err(fault) => return Err(wasmtime::Error::new(Broke(fault.to_string()))),
    };
    let outcome = match reply {
        Reply::Done(outcome) => outcome,
        Reply::Denied(denial) => {
            return Ok(Err(HostFailure::new(&denial.reason.code, denial.reason.message)));
        }
        Reply::Pending(ticket) => {
            let message = format!("needs an approval: {}", ticket.id);
            return Ok(Err(HostFailure::new("approval.pending", message)));
        }
    };
    let label = outcome.output.label();
    let mut store = store.as_context_mut();
    let guest = store.data_mut();
    guest.label = Some(guest.label.map_or(label, |so_far| so_far.join(label)));
    Ok(match outcome.status {
        Status::Ok if outcome.truncated => {
            Err(HostFailure::new("call.truncated", "the output exceeds the limit of a call"))
        }
        Status::Ok => Ok(outcome.output.into_bytes()),
        Status::Failed(failure) => Err(HostFailure { code: failure.code, message: failure.message }),
        Status::TimedOut => Err(HostFailure::new("call.timed_out", "time limit reached")),
        Status::Cancelled => Err(HostFailure::new("call.cancelled", "the call was stopped")),
        Status::Faulted(message) => return Err(wasmtime::Error::new(Broke(message))),
    })
}

/// A guest's output besides its result.
#[derive(Debug)]
pub(super) struct GuestOutput {
    /// Standard output, of commands.
    pub(super) output: Vec<u8>,
    output_bytes_max: usize,
    /// Log lines and standard error.
    pub(super) log: Vec<u8>,
    log_bytes_max: usize,
    /// Something did not fit.
    pub(super) cut: bool,
    /// Standard input, of commands: what is left of it.
    pub(super) input: std::io::Cursor<Vec<u8>>,
}

impl GuestOutput {
    fn new(limits: &Limits) -> Self {
        let bytes_max = usize::try_from(limits.output_bytes_max).unwrap_or(usize::MAX);
        Self {
            output: Vec::new(),
            output_bytes_max: bytes_max,
            log: Vec::new(),
            log_bytes_max: bytes_max.min(LOG_BYTES_MAX),
            cut: false,
            input: std::io::Cursor::default(),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.cut |= !keep(&mut self.output, bytes, self.output_bytes_max);
    }

    pub(super) fn note(&mut self, bytes: &[u8]) {
        self.cut |= !keep(&mut self.log, bytes, self.log_bytes_max);
    }
}

fn keep(into: &mut Vec<u8>, bytes: &[u8], bytes_max: usize) -> bool {
    let room = bytes_max.saturating_sub(into.len()).min(bytes.len());
    into.extend(bytes.iter().take(room));
    room == bytes.len()
}

/// What a guest holds, and how much it may.
#[derive(Debug)]
pub(super) struct GuestMemory {
    memory_bytes: usize,
    memory_bytes_max: usize,
    pub(super) memory_bytes_peak: usize,
    table_elements: usize,
    /// It wanted more than it may have.
    pub(super) refused: Option<ExceededLimit>,
}

/// What a guest wanted too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExceededLimit {
    Memory,
    Table,
}

impl GuestMemory {
    fn new(limits: &Limits) -> Self {
        Self {
            memory_bytes: 0,
            memory_bytes_max: usize::try_from(limits.memory_bytes_max).unwrap_or(usize::MAX),
            memory_bytes_peak: 0,
            table_elements: 0,
            refused: None,
        }
    }
}

impl ResourceLimiter for GuestMemory {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let all = self.memory_bytes.saturating_sub(current).saturating_add(desired);
        if all > self.memory_bytes_max {
            self.refused = Some(ExceededLimit::Memory);
            return Ok(false);
        }
        // Its own maximum stops it: that is not our limit, and it isn't counted.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        self.memory_bytes = all;
        self.memory_bytes_peak = self.memory_bytes_peak.max(all);
        Ok(true)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let all = self.table_elements.saturating_sub(current).saturating_add(desired);
        if all > TABLE_ELEMENTS_MAX {
            self.refused = Some(ExceededLimit::Table);
            return Ok(false);
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        self.table_elements = all;
        Ok(true)
    }

    fn instances(&self) -> usize {
        super::machine::INSTANCES_PER_GUEST_MAX as usize
    }

    fn tables(&self) -> usize {
        super::machine::TABLES_PER_GUEST_MAX as usize
    }

    fn memories(&self) -> usize {
        super::machine::MEMORIES_PER_GUEST_MAX as usize
    }
}
