//! A work queue for one thread: the thread takes all queued work at once and sleeps when there is none.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Work in order, for one or more threads.
#[derive(Debug)]
pub(super) struct Queue<J> {
    waiting: Mutex<Waiting<J>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Waiting<J> {
    jobs: VecDeque<J>,
    is_closed: bool,
}

impl<J> Default for Queue<J> {
    fn default() -> Self {
        let waiting = Mutex::new(Waiting { jobs: VecDeque::new(), is_closed: false });
        Self { waiting, arrived: Condvar::new() }
    }
}

impl<J> Queue<J> {
    /// Adds work. After the thread has ended, the work is dropped and its caller gets an error.
    pub(super) fn push(&self, job: J) {
        let mut waiting = self.waiting();
        if !waiting.is_closed {
            waiting.jobs.push_back(job);
            drop(waiting);
            self.arrived.notify_one();
        }
    }

    /// Waits for work and takes what is there, at most `max`; nothing if the queue is closed and empty.
    pub(super) fn take(&self, max: usize) -> Option<Vec<J>> {
        let mut waiting = self.waiting();
        while waiting.jobs.is_empty() {
            if waiting.is_closed {
                return None;
            }
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let count = waiting.jobs.len().min(max);
        Some(waiting.jobs.drain(..count).collect())
    }

    /// Lets the threads end once nothing waits.
    pub(super) fn close(&self) {
        self.waiting().is_closed = true;
        self.arrived.notify_all();
    }

    /// Held by a thread that serves the queue. However the thread ends, also by a panic, no caller waits for an answer that never comes.
    pub(super) fn serve(&self) -> Serving<'_, J> {
        Serving(self)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<J>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the queue when it is dropped, and drops the work that nobody does.
#[derive(Debug)]
pub(super) struct Serving<'q, J>(&'q Queue<J>);

impl<J> Drop for Serving<'_, J> {
    fn drop(&mut self) {
        self.0.close();
        let abandoned = std::mem::take(&mut self.0.waiting().jobs);
        drop(abandoned);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::oneshot;

    use super::Queue;

    #[test]
    fn a_thread_that_panics_leaves_no_caller_waiting() {
        let queue: Arc<Queue<oneshot::Sender<()>>> = Arc::new(Queue::default());
        let (first, second) = (oneshot::channel(), oneshot::channel());
        queue.push(first.0);
        queue.push(second.0);
        let served = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            let _serving = served.serve();
            let _job = served.take(1);
            panic!("broken");
        });
        assert!(thread.join().is_err());
        assert!(first.1.blocking_recv().is_err() && second.1.blocking_recv().is_err());
        let late = oneshot::channel();
        queue.push(late.0);
        assert!(late.1.blocking_recv().is_err());
    }
}
