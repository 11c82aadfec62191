//! Group commit: many callers share one write and one sync.
//!
//! Callers put drafts in a queue. The thread that holds the lane's writer takes all drafts, commits them as one batch and completes every
//! caller. Usually that is the lane's own thread, so that no executor thread waits for a slow disk. A caller commits on its own thread if
//! it blocks anyway, or if it is the only caller and the disk is fast: two context switches would then cost as much as the sync.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::writer::{Item, LaneWriter};
use crate::{AppendError, Head, Receipt};

/// Maximum bytes in the queue; beyond it, callers get an error.
const WAITING_BYTES_MAX: usize = 256 << 20;
/// Maximum bytes per commit.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// A caller whose draft was just committed often sends the next one immediately: spin briefly before sleeping.
const SPINS_BEFORE_SLEEP: u32 = 1000;
/// The maximum time that a commit waits for callers of the previous batches. It also never exceeds half the duration of the last commit,
/// because on a fast disk waiting costs more than it saves.
const GATHER_MAX: Duration = Duration::from_millis(5);
/// After a slower commit, the lane's thread commits until the disk is fast again.
const QUICK_COMMIT: Duration = Duration::from_millis(2);

/// A draft being recorded. Resolves to its receipt once it is durable and signed.
#[derive(Debug)]
#[must_use = "a draft counts as recorded only when this has resolved"]
pub struct Appending(AppendState);

#[derive(Debug)]
enum AppendState {
    Ready(Option<Result<Receipt, AppendError>>),
    Waiting(Arc<Slot>),
}

impl Appending {
    pub(crate) fn ready(result: Result<Receipt, AppendError>) -> Appending {
        Appending(AppendState::Ready(Some(result)))
    }

    /// Blocks the thread until it resolves.
    pub(crate) fn wait(mut self) -> Result<Receipt, AppendError> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

impl Future for Appending {
    type Output = Result<Receipt, AppendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            // Polled again after completion: the result was already taken.
            AppendState::Ready(result) => Poll::Ready(result.take().unwrap_or(Err(AppendError::Closed))),
            AppendState::Waiting(slot) => slot.poll(context),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Receives the result of one caller.
#[derive(Debug, Default)]
struct Slot(Mutex<SlotState>);

#[derive(Debug, Default)]
struct SlotState {
    result: Option<Result<Receipt, AppendError>>,
    waker: Option<Waker>,
}

impl Slot {
    fn complete(&self, result: Result<Receipt, AppendError>) {
        let mut state = held(&self.0);
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Receipt, AppendError>> {
        let mut state = held(&self.0);
        if let Some(result) = &state.result {
            return Poll::Ready(result.clone());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn is_complete(&self) -> bool {
        held(&self.0).result.is_some()
    }
}

/// The callers of one batch. Every caller gets a result, even if the writer panics.
struct Batch(Vec<Arc<Slot>>);

impl Batch {
    fn complete(mut self, result: Result<Vec<Receipt>, AppendError>) {
        let slots = std::mem::take(&mut self.0);
        match result {
            Ok(receipts) => {
                slots.iter().zip(receipts).for_each(|(slot, receipt)| slot.complete(Ok(receipt)));
            }
            Err(error) => slots.iter().for_each(|slot| slot.complete(Err(error.clone()))),
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let error = AppendError::Sealed("the writer has failed".to_owned());
        self.0.iter().for_each(|slot| slot.complete(Err(error.clone())));
    }
}

/// A lane's writer and the callers that wait for it.
#[derive(Debug)]
pub(crate) struct Lane {
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Whether the queue has work, readable without the queue's lock.
    has_work: AtomicBool,
    /// The last commit was fast and had one caller, so the next caller may commit itself.
    alone: AtomicBool,
    /// Only [`Lane::step`] commits.
    stepped: bool,
    writer: Mutex<LaneWriter>,
    head: Mutex<Head>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<(Item, Arc<Slot>)>,
    bytes: usize,
    /// Queue length at which the lane's sleeping thread wakes; `None` if it is awake.
    wakes_at: Option<usize>,
    /// Expected drafts per batch, and the duration of the last commit.
    expected: (usize, Duration),
    stopped: bool,
}

/// A panic under a lock leaves a batch without results. The writer advances its own state only after a write, so continuing with a poisoned
/// lock is sound.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lane {
    pub(crate) fn new(writer: LaneWriter, stepped: bool) -> Lane {
        let (lane, size, hash) = writer.position();
        Lane {
            queue: Mutex::default(),
            wake: Condvar::new(),
            has_work: AtomicBool::new(false),
            alone: AtomicBool::new(false),
            stepped,
            writer: Mutex::new(writer),
            head: Mutex::new(Head { lane, size, hash }),
        }
    }

    pub(crate) fn head(&self) -> Head {
        held(&self.head).clone()
    }

    /// Runs `run` with the writer, between batches.
    pub(crate) fn with_writer<T>(&self, run: impl FnOnce(&mut LaneWriter) -> T) -> T {
        let mut writer = held(&self.writer);
        let result = run(&mut writer);
        self.publish_head(&writer);
        drop(writer);
        self.wake_if_waiting();
        result
    }

    fn publish_head(&self, writer: &LaneWriter) {
        let (lane, size, hash) = writer.position();
        *held(&self.head) = Head { lane, size, hash };
    }

    /// Commits one draft on the caller's thread: for storage that doesn't wait for a disk.
    pub(crate) fn append_inline(&self, item: Item) -> Result<Receipt, AppendError> {
        let mut writer = held(&self.writer);
        let mut receipts = Vec::with_capacity(1);
        writer.commit(vec![item], &mut receipts)?;
        self.publish_head(&writer);
        receipts.first().copied().ok_or(AppendError::Closed)
    }

    /// Puts a draft in the queue for the lane's thread. A caller without competition commits one batch here and leaves later drafts to the
    /// lane's thread.
    pub(crate) fn append(&self, item: Item) -> Appending {
        let slot = match self.enqueue(item) {
            Ok(slot) => slot,
            Err(error) => return Appending::ready(Err(error)),
        };
        if !self.stepped
            && self.alone.load(Ordering::Relaxed)
            && let Ok(mut writer) = self.writer.try_lock()
        {
            self.commit_batch(&mut writer);
        }
        self.wake_if_waiting();
        Appending(AppendState::Waiting(slot))
    }

    /// Puts a draft in the queue and commits the queue here, unless another thread is committing.
    pub(crate) fn append_blocking(&self, item: Item) -> Result<Receipt, AppendError> {
        let slot = self.enqueue(item)?;
        loop {
            match self.writer.try_lock() {
                Ok(mut writer) => {
                    self.commit_waiting(&mut writer);
                    drop(writer);
                    self.wake_if_waiting();
                }
                // The holder of the writer checks the queue again after it releases the writer.
                Err(TryLockError::WouldBlock) => return Appending(AppendState::Waiting(slot)).wait(),
                Err(TryLockError::Poisoned(poisoned)) => drop(poisoned.into_inner()),
            }
            if slot.is_complete() {
                return Appending(AppendState::Waiting(slot)).wait();
            }
        }
    }

    fn enqueue(&self, item: Item) -> Result<Arc<Slot>, AppendError> {
        let slot = Arc::new(Slot::default());
        let mut queue = held(&self.queue);
        if queue.stopped {
            return Err(AppendError::Closed);
        }
        let bytes = item.bytes();
        if queue.bytes + bytes > WAITING_BYTES_MAX {
            return Err(AppendError::Backlog);
        }
        queue.bytes += bytes;
        queue.waiting.push((item, slot.clone()));
        self.has_work.store(true, Ordering::Release);
        Ok(slot)
    }

    fn wake_if_waiting(&self) {
        let mut queue = held(&self.queue);
        if queue.wakes_at.is_some_and(|drafts| queue.waiting.len() >= drafts || queue.stopped) {
            queue.wakes_at = None;
            drop(queue);
            self.wake.notify_one();
        }
    }

    /// Takes a batch from the queue.
    fn take(&self) -> Vec<(Item, Arc<Slot>)> {
        let mut queue = held(&self.queue);
        let mut bytes = 0;
        let count = queue
            .waiting
            .iter()
            .take_while(|(item, _)| {
                let fits = bytes == 0 || bytes + item.bytes() <= BATCH_BYTES_MAX;
                bytes += item.bytes();
                fits
            })
            .count();
        let rest = queue.waiting.split_off(count);
        let batch = std::mem::replace(&mut queue.waiting, rest);
        queue.bytes = queue.waiting.iter().map(|(item, _)| item.bytes()).sum();
        self.has_work.store(!queue.waiting.is_empty(), Ordering::Release);
        batch
    }

    /// Commits one batch on the caller's thread. Returns its number of drafts.
    pub(crate) fn step(&self) -> usize {
        self.commit_batch(&mut held(&self.writer))
    }

    /// Commits all pending drafts.
    fn commit_waiting(&self, writer: &mut LaneWriter) {
        while self.commit_batch(writer) > 0 {}
    }

    /// Commits one batch if any draft is pending. Returns its number of drafts.
    fn commit_batch(&self, writer: &mut LaneWriter) -> usize {
        let batch = self.take();
        if batch.is_empty() {
            return 0;
        }
        let started = Instant::now();
        let (items, slots): (Vec<Item>, Vec<Arc<Slot>>) = batch.into_iter().unzip();
        let slots = Batch(slots);
        let count = slots.0.len();
        let mut receipts = Vec::with_capacity(count);
        let result = writer.commit(items, &mut receipts);
        let took = started.elapsed();
        self.expect(count, took);
        self.alone.store(count == 1 && took < QUICK_COMMIT, Ordering::Relaxed);
        self.publish_head(writer);
        slots.complete(result.map(|()| receipts));
        writer.upkeep();
        count
    }

    /// Updates the expected batch size. A small batch lowers it slowly, because a batch that started early says little about the number of
    /// callers.
    fn expect(&self, count: usize, took: Duration) {
        let mut queue = held(&self.queue);
        let before = queue.expected.0;
        queue.expected = (count.max(before.saturating_sub(before.div_ceil(8))), took);
    }

    /// Waits briefly for the callers of the previous batches, which often return together. Without this wait, the first caller starts a
    /// batch of its own, the others miss it, and one round of all callers takes several commits.
    fn gather(&self) {
        let mut queue = held(&self.queue);
        let (drafts, took) = queue.expected;
        let until = Instant::now() + (took / 2).min(GATHER_MAX);
        while !queue.stopped && (1..drafts).contains(&queue.waiting.len()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            queue.wakes_at = Some(drafts);
            queue = self.wake.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.wakes_at = None;
    }

    /// The lane's thread: commits until the lane is stopped and no draft is pending.
    pub(crate) fn run(&self) {
        loop {
            let commit = || loop {
                self.gather();
                if self.step() == 0 {
                    return;
                }
            };
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(commit)).is_err() {
                return self.abandon();
            }
            let mut spins = 0;
            while spins < SPINS_BEFORE_SLEEP && !self.has_work.load(Ordering::Acquire) {
                std::hint::spin_loop();
                spins += 1;
            }
            let mut queue = held(&self.queue);
            while queue.waiting.is_empty() {
                if queue.stopped {
                    return;
                }
                queue.wakes_at = Some(1);
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            queue.wakes_at = None;
        }
    }

    /// Fails all pending callers after a bug in the lane's thread.
    fn abandon(&self) {
        let mut queue = held(&self.queue);
        queue.stopped = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        let error = AppendError::Sealed("the ledger's thread has failed".to_owned());
        waiting.iter().for_each(|(_, slot)| slot.complete(Err(error.clone())));
    }

    /// Rejects further drafts; pending ones are still committed.
    pub(crate) fn stop(&self) {
        held(&self.queue).stopped = true;
        self.wake_if_waiting();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::CanonicalJson;
    use crate::entry::Prepared;
    use crate::storage::Memory;
    use crate::{EntryKind, LedgerKey, Options};

    fn lane(expected: (usize, Duration)) -> Lane {
        let key = LedgerKey::from_seed(&[7; 32]);
        let writer = LaneWriter::in_memory(Arc::new(Memory::default()), key, Options::default());
        let lane = Lane::new(writer, true);
        held(&lane.queue).expected = expected;
        lane
    }

    fn append(lane: &Lane) {
        let body = CanonicalJson::encode(&serde_json::json!({})).unwrap();
        let prepared = Prepared::new(EntryKind::Intent, 0, &body);
        drop(lane.append(Item { prepared, at_ms: 0, payloads: Vec::new(), signed: true }));
    }

    #[test]
    fn a_commit_waits_for_the_callers_of_the_previous_batch() {
        let slow = Duration::from_secs(10);
        // A busy machine may wake the second caller too late. One successful round is enough; without the wait there is none.
        let succeeded = (0..50).any(|_| {
            let lane = lane((2, slow));
            append(&lane);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_micros(300));
                    append(&lane);
                });
                lane.gather();
                held(&lane.queue).waiting.len() == 2
            })
        });
        assert!(succeeded);
    }

    #[test]
    fn a_commit_waits_at_most_its_limit_and_not_without_callers() {
        let slow = Duration::from_secs(10);
        for (expected, waiting) in
            [((32, slow), 1), ((1, slow), 1), ((32, Duration::ZERO), 1), ((32, slow), 0)]
        {
            let lane = lane(expected);
            (0..waiting).for_each(|_| append(&lane));
            let started = Instant::now();
            lane.gather();
            assert!(started.elapsed() < slow / 2, "{expected:?}");
            assert_eq!(lane.step(), waiting, "what is there is committed");
        }
    }

    #[test]
    fn the_expected_batch_size_rises_fast_and_falls_to_one_when_callers_leave() {
        let lane = lane((0, Duration::ZERO));
        for (count, expected) in [(1, 1), (32, 32), (1, 28), (31, 31)] {
            lane.expect(count, Duration::ZERO);
            assert_eq!(held(&lane.queue).expected.0, expected);
        }
        (0..31).for_each(|_| lane.expect(1, Duration::ZERO));
        assert_eq!(held(&lane.queue).expected.0, 1);
    }
}
