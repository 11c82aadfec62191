//! The beat that makes busy guests step aside: every few milliseconds a guest gives its thread back and is polled again, so that a
//! deadline or a signal is seen and other calls get their turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a guest may keep a thread.
pub(super) const SLICE_MS: u64 = 5;

/// A thread that beats while guests run, and sleeps while none does.
#[derive(Debug)]
pub(super) struct EpochPace {
    state: Arc<PaceState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct PaceState {
    guests: AtomicUsize,
    over: AtomicBool,
}

impl EpochPace {
    pub(super) fn start(vm: &wasmtime::Engine) -> std::io::Result<Self> {
        let state = Arc::new(PaceState::default());
        let (seen, vm) = (Arc::clone(&state), vm.clone());
        let thread = std::thread::Builder::new().name("wasm-pace".to_owned()).spawn(move || {
            while !seen.over.load(Ordering::Acquire) {
                if seen.guests.load(Ordering::Acquire) == 0 {
                    std::thread::park();
                } else {
                    std::thread::sleep(Duration::from_millis(SLICE_MS));
                    vm.increment_epoch();
                }
            }
        })?;
        Ok(Self { state, thread: Some(thread) })
    }

    /// One more guest runs, until what this gives is dropped.
    pub(super) fn keep(&self) -> Beating<'_> {
        if self.state.guests.fetch_add(1, Ordering::AcqRel) == 0 {
            self.wake();
        }
        Beating(&self.state)
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for EpochPace {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // It can't panic: it only sleeps and counts.
            drop(thread.join());
        }
    }
}

/// The beat is needed for as long as this is there.
#[derive(Debug)]
pub(super) struct Beating<'p>(&'p PaceState);

impl Drop for Beating<'_> {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, Ordering::AcqRel);
    }
}
