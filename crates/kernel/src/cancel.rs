//! Telling a running call to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// Shared by the kernel, which pulls it, and the executor, which listens. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancel(Arc<State>);

#[derive(Debug, Default)]
struct State {
    reason: AtomicU8,
    wake: Notify,
}

/// Why a call was told to stop. The first reason stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// A signal ended the agent or this call.
    Signal = 1,
    /// The wall clock limit of the grant ran out.
    Deadline = 2,
}

impl Cancel {
    pub(crate) fn pull(&self, why: Why) {
        // The first reason wins; a later one changes nothing, so the result of the exchange doesn't matter.
        if self.0.reason.compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.0.wake.notify_waiters();
        }
    }

    pub(crate) fn why(&self) -> Option<Why> {
        match self.0.reason.load(Ordering::Acquire) {
            1 => Some(Why::Signal),
            2 => Some(Why::Deadline),
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
