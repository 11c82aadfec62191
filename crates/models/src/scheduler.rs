//! Who is asked next: calls to one provider wait in a fair queue, a few run at once.
//!
//! Weighted fair queueing: each agent has a share, and a call's finish is reckoned from what its agent has had so far and how many
//! tokens the call may take. Who is owed most goes first, so that a short call of one agent doesn't wait behind ten long ones of
//! another, and nobody waits for ever: a priority is a larger share, not a right of way. A full queue refuses (back-pressure).

mod fair;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::oneshot;

pub use fair::Fair;
use regent_kernel::Priority;

/// How many calls one provider gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// At once.
    pub running_max: usize,
    /// That wait. One more is refused.
    pub waiting_max: usize,
}

/// No room even to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{waiting} calls are already waiting for it")]
pub struct Busy {
    /// How many do.
    pub waiting: usize,
}

/// Gives calls to one provider their turns.
#[derive(Debug)]
pub struct Scheduler(Arc<SchedulerShared>);

#[derive(Debug)]
struct SchedulerShared {
    room: Room,
    shares: HashMap<String, u32>,
    inner: Mutex<SchedulerInner>,
}

#[derive(Debug, Default)]
struct SchedulerInner {
    queue: Fair<WaitingCall>,
    /// Turns that run, with the flag by which they are asked to make way.
    running: HashMap<u64, ScheduledCall>,
    next: u64,
}

#[derive(Debug)]
struct WaitingCall {
    agent: String,
    give: oneshot::Sender<SchedulerTurn>,
}

#[derive(Debug)]
struct ScheduledCall {
    priority: Priority,
    make_way: Arc<AtomicBool>,
}

/// A call's turn. Dropping it gives the next call its own.
#[derive(Debug)]
pub struct SchedulerTurn {
    shared: Weak<SchedulerShared>,
    agent: String,
    priority: Priority,
    place: Mutex<SchedulerTicket>,
}

/// Which of the running ones it is.
#[derive(Debug, Clone)]
struct SchedulerTicket {
    id: u64,
    make_way: Arc<AtomicBool>,
}

impl Scheduler {
    /// With room for so many, and shares by agent; one that isn't named has a share of 1.
    pub fn new(room: Room, shares: HashMap<String, u32>) -> Self {
        Self(Arc::new(SchedulerShared { room, shares, inner: Mutex::default() }))
    }

    /// Waits for a turn. `tokens` is what the call may take, the measure of what its agent has had. Dropping the future gives the
    /// place in the queue up.
    pub async fn turn(&self, agent: &str, priority: Priority, tokens: u64) -> Result<SchedulerTurn, Busy> {
        let waiting = {
            let mut inner = self.0.inner();
            inner.queue.forget(|waiting| waiting.give.is_closed());
            if inner.queue.is_empty() && inner.running.len() < self.0.room.running_max {
                inner.queue.charge(agent, self.0.share(agent), priority, tokens);
                return Ok(SchedulerShared::start(&self.0, &mut inner, agent.to_owned(), priority));
            }
            if inner.queue.len() >= self.0.room.waiting_max {
                return Err(Busy { waiting: inner.queue.len() });
            }
            let (give, turn) = oneshot::channel();
            inner.queue.push(
                agent,
                self.0.share(agent),
                priority,
                tokens,
                WaitingCall { agent: agent.to_owned(), give },
            );
            inner.ask_for_way(priority);
            turn
        };
        // The sender lives in the queue of a scheduler that `self` keeps alive.
        waiting.await.map_err(|_| Busy { waiting: 0 })
    }

    /// How many run, and how many wait.
    pub fn load(&self) -> (usize, usize) {
        let inner = self.0.inner();
        (inner.running.len(), inner.queue.len())
    }
}

impl SchedulerShared {
    fn inner(&self) -> MutexGuard<'_, SchedulerInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn share(&self, agent: &str) -> u32 {
        self.shares.get(agent).copied().unwrap_or(1)
    }

    fn start(
        shared: &Arc<Self>,
        inner: &mut SchedulerInner,
        agent: String,
        priority: Priority,
    ) -> SchedulerTurn {
        let id = inner.next;
        inner.next = inner.next.wrapping_add(1);
        let make_way = Arc::new(AtomicBool::new(false));
        inner.running.insert(id, ScheduledCall { priority, make_way: Arc::clone(&make_way) });
        SchedulerTurn {
            shared: Arc::downgrade(shared),
            agent,
            priority,
            place: Mutex::new(SchedulerTicket { id, make_way }),
        }
    }

    fn ended(shared: &Arc<Self>, id: u64) {
        let mut inner = shared.inner();
        inner.running.remove(&id);
        let refused = Self::hand_on(shared, &mut inner);
        drop(inner);
        drop(refused);
    }

    /// Gives turns to those who wait, as far as there is room. A waiter that has gone away hands its turn back; dropping that takes the
    /// lock again, so it is for the caller to do outside.
    fn hand_on(shared: &Arc<Self>, inner: &mut SchedulerInner) -> Vec<SchedulerTurn> {
        let mut refused = Vec::new();
        while inner.running.len() < shared.room.running_max
            && let Some((priority, WaitingCall { agent, give })) = inner.queue.pop()
        {
            if give.is_closed() {
                continue;
            }
            let turn = Self::start(shared, inner, agent, priority);
            if let Err(turn) = give.send(turn) {
                inner.running.remove(&turn.place().id);
                refused.push(turn);
            }
        }
        refused
    }
}

impl SchedulerInner {
    /// Asks one running call of lower priority to make way, if there is one that hasn't been asked.
    fn ask_for_way(&self, priority: Priority) {
        let lower = self.running.values().filter(|one| one.priority < priority);
        let unasked =
            lower.filter(|one| !one.make_way.load(Ordering::Acquire)).min_by_key(|one| one.priority);
        if let Some(one) = unasked {
            one.make_way.store(true, Ordering::Release);
        }
    }
}

impl SchedulerTurn {
    /// Whether someone more urgent waits. A generation in this process looks at it between two tokens, keeps its state, drops its
    /// turn, and waits for another one to continue. Remote generations can't be paused and needn't check.
    pub fn should_yield(&self) -> bool {
        self.place().make_way.load(Ordering::Acquire)
    }

    /// Yields: the caller with the largest deficit goes first, and this call waits for its next turn. It continues by itself if nobody waits.
    pub async fn give_way(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let (give, turn) = oneshot::channel();
        let refused = {
            let mut inner = shared.inner();
            inner.running.remove(&self.place().id);
            let mut refused = SchedulerShared::hand_on(&shared, &mut inner);
            // Others first, then back into the queue. What it may take has been counted already.
            let waiting = WaitingCall { agent: self.agent.clone(), give };
            inner.queue.push(&self.agent, shared.share(&self.agent), self.priority, 1, waiting);
            refused.extend(SchedulerShared::hand_on(&shared, &mut inner));
            refused
        };
        drop(refused);
        if let Ok(turn) = turn.await {
            // The new place is ours; the old one, which nobody holds, goes with the new turn.
            std::mem::swap(&mut *self.place(), &mut *turn.place());
        }
    }

    fn place(&self) -> MutexGuard<'_, SchedulerTicket> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SchedulerTurn {
    fn drop(&mut self) {
        let id = self.place().id;
        if let Some(shared) = self.shared.upgrade() {
            SchedulerShared::ended(&shared, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduler(running_max: usize, waiting_max: usize) -> Arc<Scheduler> {
        Arc::new(Scheduler::new(Room { running_max, waiting_max }, HashMap::new()))
    }

    async fn waits(
        scheduler: &Arc<Scheduler>,
        agent: &'static str,
        priority: Priority,
        tokens: u64,
    ) -> tokio::task::JoinHandle<SchedulerTurn> {
        let before = scheduler.load().1;
        let task = tokio::spawn({
            let scheduler = Arc::clone(scheduler);
            async move { scheduler.turn(agent, priority, tokens).await.unwrap() }
        });
        while scheduler.load().1 == before {
            tokio::task::yield_now().await;
        }
        task
    }

    #[tokio::test]
    async fn no_more_run_than_may_and_a_full_queue_refuses() {
        let scheduler = scheduler(1, 1);
        let first = scheduler.turn("a", Priority::Normal, 1).await.unwrap();
        let second = waits(&scheduler, "a", Priority::Normal, 1).await;
        assert_eq!(scheduler.turn("a", Priority::Normal, 1).await.unwrap_err(), Busy { waiting: 1 });
        drop(first);
        let second = second.await.unwrap();
        assert_eq!(scheduler.load(), (1, 0));
        drop(second);
        assert_eq!(scheduler.load(), (0, 0));
    }

    #[tokio::test]
    async fn who_has_had_least_goes_first() {
        let scheduler = scheduler(1, 64);
        let running = scheduler.turn("hog", Priority::Normal, 10_000).await.unwrap();
        let hog = waits(&scheduler, "hog", Priority::Normal, 10_000).await;
        let small = waits(&scheduler, "other", Priority::Normal, 50).await;
        drop(running);
        let turn = small.await.unwrap();
        assert!(!hog.is_finished());
        drop(turn);
        drop(hog.await.unwrap());
    }

    #[tokio::test]
    async fn a_waiter_that_goes_away_takes_no_turn() {
        let scheduler = scheduler(1, 8);
        let running = scheduler.turn("a", Priority::Normal, 1).await.unwrap();
        let gone = waits(&scheduler, "b", Priority::Normal, 1).await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        let stays = tokio::spawn({
            let scheduler = Arc::clone(&scheduler);
            async move { scheduler.turn("c", Priority::Normal, 1).await.unwrap() }
        });
        tokio::task::yield_now().await;
        drop(running);
        drop(stays.await.unwrap());
        assert_eq!(scheduler.load(), (0, 0));
    }

    #[tokio::test]
    async fn a_running_call_is_asked_to_make_way_for_a_more_urgent_one_only() {
        let scheduler = scheduler(1, 8);
        let running = scheduler.turn("a", Priority::Low, 1).await.unwrap();
        let same = waits(&scheduler, "b", Priority::Low, 1).await;
        assert!(!running.should_yield());
        let urgent = waits(&scheduler, "c", Priority::High, 1).await;
        assert!(running.should_yield());
        drop(running);
        let urgent = urgent.await.unwrap();
        assert!(!urgent.should_yield());
        drop(urgent);
        drop(same.await.unwrap());
    }

    #[tokio::test]
    async fn who_makes_way_comes_back_and_nothing_is_lost() {
        let scheduler = scheduler(1, 8);
        let running = scheduler.turn("a", Priority::Low, 1_000).await.unwrap();
        running.give_way().await;
        assert_eq!(scheduler.load(), (1, 0), "nobody waits, so it goes on");
        let urgent = waits(&scheduler, "b", Priority::High, 100_000).await;
        assert!(running.should_yield());
        let back = tokio::spawn(async move {
            running.give_way().await;
            running
        });
        let urgent = urgent.await.unwrap();
        assert_eq!((scheduler.load(), back.is_finished()), ((1, 1), false));
        drop(urgent);
        let running = back.await.unwrap();
        assert!(!running.should_yield());
        assert_eq!(scheduler.load(), (1, 0));
        // One that is dropped while it waits leaves no trace.
        let other = waits(&scheduler, "c", Priority::High, 1).await;
        let back = tokio::spawn(async move { running.give_way().await });
        let other = other.await.unwrap();
        back.abort();
        assert!(back.await.unwrap_err().is_cancelled());
        drop(other);
        assert_eq!(scheduler.load(), (0, 0));
    }
}
