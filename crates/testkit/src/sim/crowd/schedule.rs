//! The scheduler: the seed picks a ready task or the disk.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use regent_ledger::Ledger;

use crate::random::Random;
use crate::sim::machine::Machine;

/// Far more steps than any simulation needs; beyond this, the tasks are stuck.
const STEPS_MAX: u64 = 200_000;

/// Futures that are polled one at a time.
#[derive(Default)]
pub(super) struct Tasks(Vec<Task>);

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Tasks {
    pub(super) fn add(&mut self, future: impl Future<Output = ()> + 'static) {
        self.0.push(Task { future: Box::pin(future), woken: Arc::new(Woken(AtomicBool::new(true))) });
    }
}

/// The state of the scheduler.
pub(super) struct Schedule<'a> {
    pub(super) random: &'a mut Random,
    pub(super) ledger: &'a Ledger,
    pub(super) machine: &'a Machine,
}

impl Schedule<'_> {
    /// Runs all tasks to their end, or until the machine dies.
    pub(super) fn run(&mut self, mut tasks: Tasks) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            if tasks.0.is_empty() || self.machine.is_dead() {
                return Ok(());
            }
            let ready: Vec<usize> = (0..tasks.0.len()).filter(|at| is_woken(&tasks, *at)).collect();
            let choice = usize::try_from(self.random.below(ready.len() as u64 + 1)).unwrap_or(0);
            let Some(at) = ready.get(choice).copied() else {
                if self.ledger.step() == 0
                    && ready.is_empty()
                    && !tasks.0.iter().any(|task| task.woken.0.load(Ordering::SeqCst))
                {
                    return Err(format!("{} tasks are stuck", tasks.0.len()));
                }
                continue;
            };
            let Some(task) = tasks.0.get_mut(at) else { continue };
            task.woken.0.store(false, Ordering::SeqCst);
            let waker = Waker::from(Arc::clone(&task.woken));
            if let Poll::Ready(()) = task.future.as_mut().poll(&mut Context::from_waker(&waker)) {
                drop(tasks.0.swap_remove(at));
            }
        }
        Err(format!("{} tasks never end", tasks.0.len()))
    }
}

fn is_woken(tasks: &Tasks, at: usize) -> bool {
    tasks.0.get(at).is_some_and(|task| task.woken.0.load(Ordering::SeqCst))
}

/// Yields to the other tasks.
pub(super) async fn pause(times: u64) {
    for _ in 0..times {
        let mut is_first = true;
        std::future::poll_fn(|context| {
            if std::mem::take(&mut is_first) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }
}
