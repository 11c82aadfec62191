//! Step 5: hand the permit to the executor of its tier, and see to it that the call ends, whatever the executor does.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use regent_policy::Tier;
use tokio::time::Instant;

use super::Status;
use super::permit::{Frame, Permit};
use crate::call::Op;
use crate::cancel::CancelReason;
use crate::catalogue::{Driver, Tool};
use crate::drivers;
use crate::executor::{BoxFuture, ExecuteError, RawOutput};

/// How long an executor may take to stop after a cancellation. Then its future is dropped.
const GRACE_MS_MAX: u64 = 2_000;

/// How an effect ended, before its output is examined.
#[derive(Debug)]
pub(super) enum Ended {
    /// The executor returned.
    Itself(Result<RawOutput, ExecuteError>),
    /// It was cancelled; the output it still returned, if any.
    Stopped(CancelReason, Option<RawOutput>),
    /// It panicked.
    Panicked(String),
}

impl Ended {
    pub(super) fn into_parts(self) -> (Status, RawOutput) {
        let nothing = || RawOutput::new(Vec::new());
        match self {
            Self::Itself(Ok(raw)) => match raw.failure.clone() {
                None => (Status::Ok, raw),
                Some(failure) => (Status::Failed(failure), raw),
            },
            Self::Itself(Err(error)) => (Status::Faulted(error.to_string()), nothing()),
            Self::Stopped(CancelReason::Deadline, raw) => (Status::TimedOut, raw.unwrap_or_else(nothing)),
            Self::Stopped(CancelReason::Signal, raw) => (Status::Cancelled, raw.unwrap_or_else(nothing)),
            Self::Panicked(message) => (Status::Faulted(message), nothing()),
        }
    }
}

/// When a call must have ended, from its permit on.
#[derive(Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Waits for it. A terminal may be lent meanwhile, which leaves the limits of rules and budgets.
    async fn passes(&self, frame: &Frame) {
        frame.job_control.has_run(self.0, || frame.wall_ms_max()).await;
    }

    /// Runs what comes before the effect, unless the call is told to stop before that is done.
    pub(super) async fn meets<T>(
        &self,
        frame: &Frame,
        work: impl Future<Output = Result<T, Ended>> + Send,
    ) -> Result<T, Ended> {
        tokio::select! {
            biased;
            done = work => return done,
            () = frame.cancel.cancelled() => {}
            () = self.passes(frame) => frame.cancel.pull(CancelReason::Deadline),
        }
        Err(Ended::Stopped(frame.cancel.why().unwrap_or(CancelReason::Signal), None))
    }
}

/// Mints the permit and runs it to an end.
pub(super) async fn perform(frame: &Frame, tier: Tier, deadline: Deadline) -> Ended {
    // A call that was told to stop while its intent was written has no effect.
    if let Some(why) = frame.cancel.why() {
        return Ended::Stopped(why, None);
    }
    // Minted inside the guard: an executor that panics before it returns a future is caught as well.
    let dispatched = std::panic::catch_unwind(AssertUnwindSafe(|| dispatch(frame, tier)));
    let mut effect = match dispatched {
        Ok(effect) => Caught(effect),
        Err(panic) => return Ended::Panicked(text_of(panic.as_ref())),
    };
    tokio::select! {
        biased;
        ended = &mut effect => return attribute_end(ended, frame),
        () = frame.cancel.cancelled() => {}
        () = deadline.passes(frame) => frame.cancel.pull(CancelReason::Deadline),
    }
    let why = frame.cancel.why().unwrap_or(CancelReason::Signal);
    match tokio::time::timeout(Duration::from_millis(GRACE_MS_MAX), effect).await {
        Ok(Ok(Ok(raw))) => Ended::Stopped(why, Some(raw)),
        Ok(Err(panic)) => Ended::Panicked(panic),
        Ok(Ok(Err(_))) | Err(_) => Ended::Stopped(why, None),
    }
}

/// Attributes an end to the cancellation, also where the executor noticed it first.
fn attribute_end(ended: Result<Result<RawOutput, ExecuteError>, String>, frame: &Frame) -> Ended {
    match (ended, frame.cancel.why()) {
        (Err(panic), _) => Ended::Panicked(panic),
        (Ok(Ok(raw)), Some(why)) => Ended::Stopped(why, Some(raw)),
        (Ok(result), _) => Ended::Itself(result),
    }
}

fn dispatch(frame: &Frame, tier: Tier) -> BoxFuture<'_, Result<RawOutput, ExecuteError>> {
    let executors = &frame.core.executors;
    match (&frame.call.op, tier) {
        (Op::RunTool(_), _) => match frame.tool.as_deref().map(Tool::driver) {
            Some(driver) => drive(frame, driver, tier),
            None => unavailable(tier),
        },
        (Op::Elsewhere(_), _) => match &executors.elsewhere {
            Some(elsewhere) => elsewhere.execute(Permit::mint(frame)),
            None => unavailable(tier),
        },
        (Op::Infer(_), _) => match &executors.models {
            Some(models) => models.execute(Permit::mint(frame)),
            None => unavailable(tier),
        },
        (_kernels_own, _) => drivers::perform(&frame.core, Permit::mint(frame)),
    }
}

/// The driver is the one that the tool had when the call was judged.
fn drive<'s>(
    frame: &'s Frame,
    driver: &'s Driver,
    tier: Tier,
) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
    let done = match tier {
        Tier::Host => driver.host.as_ref().map(|host| host.execute(Permit::mint(frame))),
        Tier::Process => driver.process.as_ref().map(|process| process.execute(Permit::mint(frame))),
        Tier::Wasm => driver.wasm.as_ref().map(|wasm| wasm.execute(Permit::mint(frame))),
        Tier::Microvm => driver.microvm.as_ref().map(|microvm| microvm.execute(Permit::mint(frame))),
        Tier::Instruction => None,
    };
    done.unwrap_or_else(|| unavailable(tier))
}

/// The choice of tier refuses this before; reaching it is still not a way to run.
fn unavailable<'s>(tier: Tier) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
    Box::pin(
        async move { Err(ExecuteError::Unavailable(format!("there is no executor for the tier `{tier}`"))) },
    )
}

/// A future whose panics are caught: the one place where that happens.
struct Caught<'s, T>(BoxFuture<'s, T>);

impl<T> Future for Caught<'_, T> {
    type Output = Result<T, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let inner = self.0.as_mut();
        match std::panic::catch_unwind(AssertUnwindSafe(|| inner.poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(text_of(panic.as_ref()))),
        }
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the executor panicked: {}", text.unwrap_or("no message"))
}
