//! All budgets that one kernel knows, and what it sets aside in them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_identity::AgentId;
use regent_policy::{BudgetLeft, Reason};
use regent_store::{self as store, State, StateError};

use super::lease::Report;
use super::levels::{Levels, Room};
use super::{Amounts, Budget, BudgetScope, Estimate, Now, Reservation, Standing};

/// How soon a limit that another process has set is seen here.
pub(crate) const LOOK_MS: u64 = 1_000;
/// How often a reservation asks for a larger lease before the state counts as busy.
const ATTEMPTS_MAX: u32 = 64;
/// The budgets that processes share.
const SHARED: [BudgetScope; 2] = [BudgetScope::UserDay, BudgetScope::Project];

/// What is left where nobody knows.
const NOTHING_LEFT: BudgetLeft = BudgetLeft {
    money_microusd: Some(0),
    tokens: Some(0),
    calls: Some(0),
    wall_ms: Some(0),
    bytes_out: Some(0),
    approvals: Some(0),
};

/// All budgets that this kernel knows.
#[derive(Debug)]
pub(crate) struct Budgets(Arc<Book>);

#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) state: Arc<dyn State>,
    /// Who leases.
    pub(crate) owner: String,
    /// Whether there is any limit at all; the common case without costs one load.
    limited: AtomicBool,
    look_at_ms: AtomicU64,
    levels: Mutex<Levels>,
    /// Held during an exchange with the state: two concurrent reports of one lease would count twice.
    exchanging: tokio::sync::Mutex<()>,
}

impl Budgets {
    /// `project` and `session` are what the shared records and leases are named after.
    pub(crate) fn new(state: Arc<dyn State>, project: &str, session: &str) -> Self {
        let mut nonce = [0_u8; 8];
        // Without randomness two kernels of one session would have the same name; the process id still distinguishes them.
        if getrandom::fill(&mut nonce).is_err() {
            nonce = u64::from(std::process::id()).to_le_bytes();
        }
        Self(Arc::new(Book {
            state,
            owner: format!("{}/{:016x}", store::key_part(session), u64::from_le_bytes(nonce)),
            limited: AtomicBool::new(false),
            look_at_ms: AtomicU64::new(0),
            levels: Mutex::new(Levels::new(project)),
            exchanging: tokio::sync::Mutex::default(),
        }))
    }

    /// What a caller has left in everything: the tightest of its levels. `lineage` is the agents it descends from, oldest first, and
    /// itself if it is one. A look, not a promise; [`reserve`](Self::reserve) is.
    pub(crate) async fn left(&self, lineage: &[AgentId], now: Now) -> BudgetLeft {
        // What can't be read counts as used up: a rule about a low budget must hold then.
        if self.0.look(now).await.is_err() {
            return NOTHING_LEFT;
        }
        if !self.0.limited.load(Ordering::Acquire) {
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
    pub(crate) async fn reserve(
        &self,
        lineage: &[AgentId],
        estimate: &Estimate,
        now: Now,
    ) -> Result<Result<Reservation, Reason>, StateError> {
        let reserved = |scopes, held| Reservation::new(Arc::clone(&self.0), scopes, held, now.elapsed);
        self.0.look(now).await?;
        if !self.0.limited.load(Ordering::Acquire) || estimate.most == Amounts::default() {
            return Ok(Ok(reserved(Vec::new(), estimate.most)));
        }
        let path: Vec<_> = {
            let levels = self.0.levels();
            path_of(lineage).filter(|scope| levels.left(scope).is_some()).collect()
        };
        let wanted = |levels: &Levels| {
            let left = levels.tightest(&path);
            // A call may be shorter than its limit, so it is given what time there is; its limit shrinks to that.
            let mut want = estimate.most;
            if want.wall_ms > 0 {
                want.wall_ms = want.wall_ms.min(left.wall_ms.unwrap_or(u64::MAX)).max(1);
            }
            if estimate.unpriced {
                want.money_microusd = left.money_microusd.map_or(0, |money| money.max(1));
            }
            want
        };
        let held = self.0.hold(&path, wanted, Amounts::default(), now.at_ms).await?;
        Ok(held.map(|held| reserved(path, held)))
    }

    /// Reserves one question. It is charged when the reservation is settled.
    pub(crate) async fn reserve_question(
        &self,
        lineage: &[AgentId],
        now: Now,
    ) -> Result<Result<Reservation, Reason>, StateError> {
        let most = Amounts { approvals: 1, ..Amounts::default() };
        self.reserve(lineage, &Estimate { most, unpriced: false }, now).await
    }

    /// Gives a scope its limits. What it has used since it first had any stays used.
    pub(crate) async fn set(
        &self,
        scope: &BudgetScope,
        limit: Budget,
        now_ms: i64,
    ) -> Result<(), StateError> {
        let book = &self.0;
        let _only = book.exchanging.lock().await;
        match book.report(scope, now_ms, Amounts::default()) {
            Some(report) => {
                let looked = report.set(&*book.state, limit).await?;
                book.levels().lease(scope).into_iter().for_each(|lease| lease.saw(&looked));
            }
            None => book.levels().set_own(scope, limit)?,
        }
        book.limited.store(book.levels().any(), Ordering::Release);
        Ok(())
    }

    /// How a scope stands. A shared one counts the use and the reservations that other processes have reported.
    pub(crate) async fn standing(&self, scope: &BudgetScope, now_ms: i64) -> Result<Standing, StateError> {
        match self.0.report(scope, now_ms, Amounts::default()) {
            Some(report) => report.standing(&*self.0.state).await,
            None => Ok(self.0.levels().standing_own(scope)),
        }
    }

    /// Forgets the level of an agent that has ended.
    pub(crate) fn forget(&self, agent: &AgentId) {
        if self.0.limited.load(Ordering::Acquire) {
            self.0.levels().forget(agent);
        }
    }

    /// Gives back what this process has leased and not used. Without it the lease counts as spent once it expires, which is safe.
    pub(crate) async fn give_back(&self, now_ms: i64) -> Result<(), StateError> {
        let book = &self.0;
        let _only = book.exchanging.lock().await;
        for scope in SHARED {
            let is_untouched = book.levels().lease(&scope).is_none_or(|lease| lease.is_untouched());
            if let Some(report) = book.report(&scope, now_ms, Amounts::default()).filter(|_| !is_untouched) {
                report.give_back(&*book.state).await?;
                book.levels().lease(&scope).into_iter().for_each(|lease| lease.ended(&report));
            }
        }
        Ok(())
    }
}

impl Book {
    pub(crate) fn levels(&self) -> MutexGuard<'_, Levels> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, scope: &BudgetScope, now_ms: i64, want: Amounts) -> Option<Report> {
        self.levels().lease(scope).map(|lease| lease.report(&self.owner, now_ms, want))
    }

    /// Sets amounts aside at all of these levels, or at none. What is wanted is computed anew after each exchange: it depends on what
    /// is left. `own` is what the caller holds already.
    pub(crate) async fn hold(
        &self,
        path: &[BudgetScope],
        wanted: impl Fn(&Levels) -> Amounts,
        own: Amounts,
        now_ms: i64,
    ) -> Result<Result<Amounts, Reason>, StateError> {
        for _attempt in 0..ATTEMPTS_MAX {
            let (want, grow) = {
                let mut levels = self.levels();
                let (want, mut grow) = (wanted(&levels), None);
                for scope in path {
                    match levels.room(scope, want, now_ms) {
                        Room::Enough => {}
                        Room::AskForMore => grow = grow.or(Some(scope)),
                        Room::Short(short) => {
                            return Ok(Err(levels.exhausted(scope, short, (want, own))));
                        }
                    }
                }
                if grow.is_none() {
                    path.iter().for_each(|scope| levels.hold(scope, want));
                }
                (want, grow)
            };
            let Some(scope) = grow else { return Ok(Ok(want)) };
            if let Some(short) = self.grow(scope, want, now_ms).await? {
                return Ok(Err(self.levels().exhausted(scope, short, (want, own))));
            }
        }
        // Others were always faster to take what was leased.
        Err(StateError::Busy)
    }

    /// Asks the state for a larger lease; says what there is too little of.
    async fn grow(
        &self,
        scope: &BudgetScope,
        want: Amounts,
        now_ms: i64,
    ) -> Result<Option<&'static str>, StateError> {
        let _only = self.exchanging.lock().await;
        let report = {
            let mut levels = self.levels();
            let Some(lease) = levels.lease(scope) else { return Ok(None) };
            // Another call may have made it large enough while this one waited for its turn.
            if lease.covers(now_ms, want) {
                return Ok(None);
            }
            lease.report(&self.owner, now_ms, want)
        };
        let exchanged = report.exchange(&*self.state).await?;
        self.levels().lease(scope).into_iter().for_each(|lease| lease.apply(&report, &exchanged));
        Ok(exchanged.short)
    }

    /// Looks now and then whether another process has set a shared limit. In between, unlimited calls touch no state.
    async fn look(&self, now: Now) -> Result<(), StateError> {
        let elapsed_ms = u64::try_from(now.elapsed.as_millis()).unwrap_or(u64::MAX);
        let is_known = || elapsed_ms < self.look_at_ms.load(Ordering::Acquire);
        if is_known() {
            return Ok(());
        }
        let _only = self.exchanging.lock().await;
        if is_known() {
            // Another call has looked while this one waited for its turn.
            return Ok(());
        }
        for scope in SHARED {
            let is_untouched = self.levels().lease(&scope).is_none_or(|lease| lease.is_untouched());
            let Some(report) = self.report(&scope, now.at_ms, Amounts::default()) else { continue };
            if is_untouched {
                let looked = report.look(&*self.state).await?;
                self.levels().lease(&scope).into_iter().for_each(|lease| lease.saw(&looked));
            } else {
                // Report what was spent as well: other processes should see it.
                let exchanged = report.exchange(&*self.state).await?;
                self.levels().lease(&scope).into_iter().for_each(|lease| lease.apply(&report, &exchanged));
            }
        }
        self.limited.store(self.levels().any(), Ordering::Release);
        self.look_at_ms.store(elapsed_ms.saturating_add(LOOK_MS), Ordering::Release);
        Ok(())
    }
}

/// The levels that a caller's calls are charged to, from the widest to its own.
fn path_of(lineage: &[AgentId]) -> impl Iterator<Item = BudgetScope> {
    let wide = [BudgetScope::UserDay, BudgetScope::Project, BudgetScope::Session];
    wide.into_iter().chain(lineage.iter().cloned().map(BudgetScope::Agent))
}

#[cfg(test)]
mod tests;
