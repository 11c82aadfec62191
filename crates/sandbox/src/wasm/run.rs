//! One call of one guest, from an empty store to its outcome.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use regent_kernel::{BoxFuture, Clock, ExecuteError, Limits, Op, Suspension};

use super::compiled::{Compiled, Spoken};
use super::door::NestedReply;
use super::guest::WasmGuest;
use super::machine::{WasmMachine, fuel};

/// What is to be done.
pub(super) struct WasmJob<'j> {
    pub(super) compiled: &'j Compiled,
    pub(super) source: Option<&'j str>,
    pub(super) tool: &'j str,
    pub(super) input: String,
    pub(super) limits: Limits,
    pub(super) clock: &'j Arc<dyn Clock>,
}

/// Its outcome.
pub(super) struct GuestRun {
    pub(super) how: GuestEnd,
    pub(super) guest: WasmGuest,
    pub(super) fuel_used: u64,
    pub(super) limits: Limits,
    pub(super) wall_ms: u64,
}

/// How a guest ended.
pub(super) enum GuestEnd {
    /// By itself.
    Said(Spoken),
    /// By us, because the call was cancelled. Its stack and its memory are gone.
    Stopped,
    /// By a trap, a limit, or something of ours.
    Trapped(wasmtime::Error),
}

/// Runs a guest until it ends or the call must stop. Its calls are made by `syscall`, one at a time, in this very future.
pub(super) async fn run(
    machine: &WasmMachine,
    job: WasmJob<'_>,
    syscall: impl Fn(Op) -> BoxFuture<'static, NestedReply>,
    stop: impl Future<Output = ()>,
    suspension: Suspension,
) -> Result<GuestRun, ExecuteError> {
    let began = job.clock.elapsed();
    let guest = WasmGuest::new(job.tool, job.clock, &job.limits);
    let door = guest.door.clone();
    let mut store =
        machine.store(guest, &job.limits).map_err(|error| ExecuteError::Broken(error.to_string()))?;
    let how = {
        let _beating = machine.beat();
        let mut guest = pin!(job.compiled.call(&mut store, job.source.unwrap_or_default(), &job.input));
        tokio::select! {
            biased;
            () = stop => GuestEnd::Stopped,
            said = unless_held(suspension, door.serve(guest.as_mut(), syscall)) => match said {
                Ok(said) => GuestEnd::Said(said),
                Err(error) => GuestEnd::Trapped(error),
            },
        }
    };
    let fuel_used = fuel(&job.limits).saturating_sub(store.get_fuel().unwrap_or(0));
    let took = job.clock.elapsed().saturating_sub(began);
    Ok(GuestRun {
        how,
        guest: store.into_data(),
        fuel_used,
        limits: job.limits,
        wall_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Runs a guest except while its agent is suspended. A busy guest gives its thread back every few milliseconds and is not taken up again.
async fn unless_held<T>(mut suspension: Suspension, guest: impl Future<Output = T>) -> T {
    let mut guest = pin!(guest);
    let mut is_held = false;
    loop {
        let changed = suspension.changed();
        let mut changed = pin!(changed);
        let ended = std::future::poll_fn(|context| {
            if let Poll::Ready(now) = changed.as_mut().poll(context) {
                is_held = now;
                return Poll::Ready(None);
            }
            if is_held { Poll::Pending } else { guest.as_mut().poll(context).map(Some) }
        });
        if let Some(ended) = ended.await {
            return ended;
        }
    }
}
