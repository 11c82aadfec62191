//! Cancellation of a running call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// Shared by the kernel, which cancels, and the executor, which waits for it. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancel(Arc<CancelState>);

#[derive(Debug, Default)]
struct CancelState {
    reason: AtomicU8,
    wake: Notify,
}

/// Why a call was cancelled. The first reason stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CancelReason {
    /// A signal ended the agent or this call.
    Signal = 1,
    /// The wall clock limit of the grant ran out.
    Deadline = 2,
}

impl Cancel {
    pub(crate) fn pull(&self, why: CancelReason) {
        // The first reason wins; a later one changes nothing, so the result of the exchange doesn't matter.
        if self.0.reason.compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.0.wake.notify_waiters();
        }
    }

    pub(crate) fn why(&self) -> Option<CancelReason> {
        match self.0.reason.load(Ordering::Acquire) {
            1 => Some(CancelReason::Signal),
            2 => Some(CancelReason::Deadline),
            _none => None,
        }
    }

    pub(crate) async fn cancelled(&self) {
        loop {
            // Registered before the flag is read, so a pull in between isn't missed.
            let woken = self.0.wake.notified();
            if self.why().is_some() {
                return;
            }
            woken.await;
        }
    }
}
