//! All budgets that one kernel knows, and what it sets aside in them.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_identity::AgentId;
use regent_policy::{BudgetLeft, Reason};
use regent_store::{self as store, State, StateError};

use crate::levels::Levels;
use crate::{Amounts, Budget, BudgetScope, Estimate, Now, Reservation, Standing};

/// How soon a limit that another process has set is seen here.
pub(crate) const LOOK_MS: u64 = 1_000;

/// All budgets that this kernel knows.
#[derive(Debug)]
pub struct Budgets(Arc<Book>);

#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) state: Arc<dyn State>,
    /// Who leases.
    pub(crate) owner: String,
    /// Whether there is any limit at all; the common case without costs one load.
    limited: AtomicBool,
    look_at_ms: AtomicU64,
    /// The last time that anybody told us, for when nobody is left to ask.
    told_ms: AtomicI64,
    levels: Mutex<Levels>,
}

impl Budgets {
    /// `project` and `session` are what the shared records and leases are named after.
    pub fn new(state: Arc<dyn State>, project: &str, session: &str) -> Self {
        let mut nonce = [0_u8; 8];
        // Without randomness two kernels of one session would be told apart by nothing; the process id still does.
        if getrandom::fill(&mut nonce).is_err() {
            nonce = u64::from(std::process::id()).to_le_bytes();
        }
        Self(Arc::new(Book {
            state,
            owner: format!("{}/{:016x}", store::key_part(session), u64::from_le_bytes(nonce)),
            limited: AtomicBool::new(false),
            look_at_ms: AtomicU64::new(0),
            told_ms: AtomicI64::new(0),
            levels: Mutex::new(Levels::new(project)),
        }))
    }

    /// What a caller has left in everything: the tightest of its levels. `lineage` is the agents it descends from, oldest first, and
    /// itself if it is one. A look, not a promise; [`reserve`](Self::reserve) is.
    pub fn left(&self, lineage: &[AgentId], now: Now) -> BudgetLeft {
        // What can't be read now can't be reserved either, so the call ends there.
        if self.0.look(now).is_err() || !self.0.limited.load(Ordering::Acquire) {
            return BudgetLeft::default();
        }
        let levels = self.0.levels();
        let left = levels.tightest(&path_of(lineage).collect::<Vec<_>>());
        BudgetLeft {
            money_microusd: left.money_microusd,
            tokens: left.tokens,
            calls: left.calls,
            wall_ms: left.wall_ms,
            bytes_out: left.bytes_out,
            approvals: left.approvals,
        }
    }

    /// Sets aside the most that a call may use, at every level above it, or says which level has too little of what.
    pub fn reserve(
        &self,
        lineage: &[AgentId],
        estimate: &Estimate,
        now: Now,
    ) -> Result<Result<Reservation, Reason>, StateError> {
        let reserved = |scopes, held| Reservation::new(Arc::clone(&self.0), scopes, held, now.elapsed);
        self.0.look(now)?;
        if !self.0.limited.load(Ordering::Acquire) || estimate.most == Amounts::default() {
            return Ok(Ok(reserved(Vec::new(), estimate.most)));
        }
        let mut levels = self.0.levels();
        let path: Vec<_> = path_of(lineage).filter(|scope| levels.left(scope).is_some()).collect();
        let left = levels.tightest(&path);
        // A call may be shorter than its limit, so it is given what time there is; its limit shrinks to that.
        let mut want = estimate.most;
        if want.wall_ms > 0 {
            want.wall_ms = want.wall_ms.min(left.wall_ms.unwrap_or(u64::MAX)).max(1);
        }
        if estimate.unpriced {
            want.money_microusd = left.money_microusd.map_or(0, |money| money.max(1));
        }
        for scope in &path {
            if let Some(short) = levels.short_of(&self.0, scope, want, now.at_ms)? {
                return Ok(Err(levels.exhausted(scope, short, (want, Amounts::default()))));
            }
        }
        for scope in &path {
            levels.hold(scope, want);
        }
        Ok(Ok(reserved(path, want)))
    }

    /// Sets one question to a person aside. It is charged when the reservation is settled.
    pub fn reserve_question(
        &self,
        lineage: &[AgentId],
        now: Now,
    ) -> Result<Result<Reservation, Reason>, StateError> {
        let most = Amounts { approvals: 1, ..Amounts::default() };
        self.reserve(lineage, &Estimate { most, unpriced: false }, now)
    }

    /// Gives a scope its limits. What it has used since it first had any stays used.
    pub fn set(&self, scope: &BudgetScope, limit: Budget, now_ms: i64) -> Result<(), StateError> {
        let book = &self.0;
        let mut levels = book.levels();
        levels.set(&*book.state, scope, limit, now_ms)?;
        book.limited.store(levels.any(), Ordering::Release);
        Ok(())
    }

    /// How a scope stands. A shared one counts what other processes have said they used, and what they have set aside.
    pub fn standing(&self, scope: &BudgetScope, now_ms: i64) -> Result<Standing, StateError> {
        self.0.levels().standing(&*self.0.state, scope, now_ms)
    }

    /// Forgets the level of an agent that has ended.
    pub fn forget(&self, agent: &AgentId) {
        if self.0.limited.load(Ordering::Acquire) {
            self.0.levels().forget(agent);
        }
    }

    /// Gives back what this process has leased and not used.
    pub fn give_back(&self, now_ms: i64) -> Result<(), StateError> {
        self.0.give_back(now_ms)
    }
}

impl Book {
    pub(crate) fn levels(&self) -> MutexGuard<'_, Levels> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks now and then whether another process has set a shared limit. In between, unlimited calls touch no state.
    fn look(&self, now: Now) -> Result<(), StateError> {
        self.told_ms.store(now.at_ms, Ordering::Relaxed);
        let elapsed_ms = u64::try_from(now.elapsed.as_millis()).unwrap_or(u64::MAX);
        if elapsed_ms < self.look_at_ms.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut levels = self.levels();
        if elapsed_ms < self.look_at_ms.load(Ordering::Acquire) {
            // Another thread has looked while we waited for it.
            return Ok(());
        }
        levels.refresh(self, now.at_ms)?;
        self.limited.store(levels.any(), Ordering::Release);
        self.look_at_ms.store(elapsed_ms.saturating_add(LOOK_MS), Ordering::Release);
        Ok(())
    }

    fn give_back(&self, now_ms: i64) -> Result<(), StateError> {
        self.levels().give_back(self, now_ms)
    }
}

impl Drop for Book {
    fn drop(&mut self) {
        // Best effort: a lease that isn't given back counts as spent, which is safe. So is a time that has passed: in the account of
        // a day that has begun since then there is no lease of ours.
        drop(self.give_back(self.told_ms.load(Ordering::Relaxed)));
    }
}

/// The levels that a caller's calls are charged to, from the widest to its own.
fn path_of(lineage: &[AgentId]) -> impl Iterator<Item = BudgetScope> {
    let wide = [BudgetScope::UserDay, BudgetScope::Project, BudgetScope::Session];
    wide.into_iter().chain(lineage.iter().cloned().map(BudgetScope::Agent))
}
