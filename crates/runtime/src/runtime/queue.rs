//! Who goes first: the most urgent, then the oldest. A fixed number run at once.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_kernel::BoxFuture;

use crate::task::Priority;

/// Jobs that wait and jobs that run. Cloning shares it.
#[derive(Clone)]
pub(super) struct JobQueue {
    state: Arc<Mutex<QueueState>>,
    running_max: usize,
    waiting_max: usize,
}

#[derive(Default)]
struct QueueState {
    waiting: BinaryHeap<WaitingJob>,
    running: usize,
    came: u64,
}

struct WaitingJob {
    priority: Priority,
    came: u64,
    job: BoxFuture<'static, ()>,
}

impl JobQueue {
    pub(super) fn new(running_max: usize, waiting_max: usize) -> Self {
        Self { state: Arc::default(), running_max: running_max.max(1), waiting_max }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_full(&self) -> bool {
        self.lock().waiting.len() >= self.waiting_max
    }

    /// Takes a job, if there is room for it.
    pub(super) fn add(&self, priority: Priority, job: BoxFuture<'static, ()>) -> bool {
        {
            let mut state = self.lock();
            if state.waiting.len() >= self.waiting_max {
                return false;
            }
            state.came = state.came.saturating_add(1);
            let came = state.came;
            state.waiting.push(WaitingJob { priority, came, job });
        }
        self.start();
        true
    }

    /// Starts what there is room for.
    fn start(&self) {
        loop {
            let next = {
                let mut state = self.lock();
                if state.running >= self.running_max {
                    return;
                }
                let Some(next) = state.waiting.pop() else { return };
                state.running = state.running.saturating_add(1);
                next
            };
            let place = QueueSlot(self.clone());
            tokio::spawn(async move {
                next.job.await;
                drop(place);
            });
        }
    }
}

/// A place among those that run; given up even if the job panics.
struct QueueSlot(JobQueue);

impl Drop for QueueSlot {
    fn drop(&mut self) {
        {
            let mut state = self.0.lock();
            state.running = state.running.saturating_sub(1);
        }
        // At the end of the runtime nobody can be started any more.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.0.start();
        }
    }
}

impl std::fmt::Debug for JobQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.lock();
        f.debug_struct("Queue")
            .field("waiting", &state.waiting.len())
            .field("running", &state.running)
            .finish()
    }
}

impl Ord for WaitingJob {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.priority, std::cmp::Reverse(self.came)).cmp(&(other.priority, std::cmp::Reverse(other.came)))
    }
}

impl PartialOrd for WaitingJob {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for WaitingJob {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for WaitingJob {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_urgent_go_first_and_the_others_in_order() {
        let queue = JobQueue::new(1, 10);
        let order = Arc::new(Mutex::new(Vec::new()));
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        assert!(queue.add(Priority::Low, Box::pin(async { drop(gone.await) })));
        for (name, priority) in
            [("a", Priority::Normal), ("b", Priority::Low), ("c", Priority::High), ("d", Priority::Normal)]
        {
            let order = Arc::clone(&order);
            assert!(queue.add(priority, Box::pin(async move { order.lock().unwrap().push(name) })));
        }
        go.send(()).unwrap();
        while order.lock().unwrap().len() < 4 {
            tokio::task::yield_now().await;
        }
        assert_eq!(*order.lock().unwrap(), ["c", "a", "d", "b"]);
    }

    #[tokio::test]
    async fn a_job_that_panics_gives_up_its_place_and_a_full_queue_takes_none() {
        let queue = JobQueue::new(1, 1);
        assert!(queue.add(Priority::Normal, Box::pin(async { panic!("as the test wants it") })));
        let done = Arc::new(tokio::sync::Notify::new());
        let told = Arc::clone(&done);
        assert!(queue.add(Priority::Normal, Box::pin(async move { told.notify_one() })));
        assert!(!queue.add(Priority::High, Box::pin(async {})));
        done.notified().await;
    }
}
