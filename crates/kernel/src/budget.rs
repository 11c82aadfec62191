//! Budgets: reserved before the effect, settled after, released if it doesn't come to it. Never check-then-spend.
//!
//! A call is charged to a path of levels: the user's day, the project, the session, then each agent from the oldest ancestor down to
//! the caller. All of them are reserved in one step or none is. The session and the agents live in this process; the user's day
//! and the project are shared between processes (see [`lease`]). A level begins to count when it is given a limit.

mod amounts;
mod estimate;
mod lease;
mod scope;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regent_policy::{BudgetLeft, Reason};
use regent_store::{self as store, State, StateError};
use serde::{Deserialize, Serialize};

use crate::agent::AgentId;
use crate::clock::Clock;
use crate::facts::refusal;
use crate::principal::Principal;
use amounts::Amounts;
pub use amounts::{Budget, Each};
pub(crate) use estimate::Estimate;
use lease::Lease;
pub use scope::BudgetScope;

/// A budget is used up, and waiting does not help.
pub(crate) const EXHAUSTED: &str = "budget.exhausted";
/// How soon a limit that another process has set is seen here.
const LOOK_MS: u64 = 1_000;
/// Levels within one process.
const LEVELS_MAX: usize = 4_096;

/// What a call really used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Bytes sent to other machines.
    pub bytes_out: u64,
    /// Money, in millionths of a US dollar.
    pub money_microusd: u64,
    /// Tokens of models.
    pub tokens: u64,
    /// Time on the wall clock.
    pub wall_ms: u64,
}

/// How a budget stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// What it may use.
    pub limits: Budget,
    /// What was used.
    pub used: Each<u64>,
    /// What is set aside for calls that run, or for processes that run calls.
    pub held: Each<u64>,
}

/// All budgets that this kernel knows.
#[derive(Debug)]
pub(crate) struct Budgets(Arc<Book>);

#[derive(Debug)]
struct Book {
    state: Arc<dyn State>,
    clock: Arc<dyn Clock>,
    /// Who leases.
    owner: String,
    /// Whether there is any limit at all; the common case without costs one load.
    limited: AtomicBool,
    look_at_ms: AtomicU64,
    levels: Mutex<Levels>,
}

#[derive(Debug)]
struct Levels {
    own: HashMap<BudgetScope, Level>,
    user_day: Lease,
    project: Lease,
}

/// What this process knows of one budget, and has taken from it.
#[derive(Debug, Default)]
struct Level {
    limit: Budget,
    /// Of a shared one: since it last said so there.
    used: Amounts,
    held: Amounts,
}

/// What was set aside for one call. Dropping it gives it back.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reservation {
    book: Arc<Book>,
    /// The levels it was set aside at.
    scopes: Vec<BudgetScope>,
    held: Amounts,
    since: Duration,
}

/// What a call is charged, for its outcome. Fields in the order of canonical JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Settled {
    bytes_out: u64,
    money_microusd: u64,
    /// What it used more of than was set aside. It is charged in full.
    over: Vec<&'static str>,
    tokens: u64,
    wall_ms: u64,
}

impl Budgets {
    /// `project` and `session` are what the shared records and leases are named after.
    pub(crate) fn new(state: Arc<dyn State>, clock: Arc<dyn Clock>, project: &str, session: &str) -> Self {
        let mut nonce = [0_u8; 8];
        // Without randomness two kernels of one session would be told apart by nothing; the process id still does.
        if getrandom::fill(&mut nonce).is_err() {
            nonce = u64::from(std::process::id()).to_le_bytes();
        }
        let levels = Levels {
            own: HashMap::new(),
            user_day: Lease::new("budget/user/day".to_owned(), true),
            project: Lease::new(format!("budget/project/{}", store::key_part(project)), false),
        };
        Self(Arc::new(Book {
            state,
            clock,
            owner: format!("{}/{:016x}", store::key_part(session), u64::from_le_bytes(nonce)),
            limited: AtomicBool::new(false),
            look_at_ms: AtomicU64::new(0),
            levels: Mutex::new(levels),
        }))
    }

    /// What the caller has left in everything: the tightest of its levels. A look, not a promise; [`reserve`](Self::reserve) is.
    pub(crate) fn left(&self, who: &Principal) -> BudgetLeft {
        // What can't be read now can't be reserved either, so the call ends there.
        if self.0.look().is_err() || !self.0.limited.load(Ordering::Acquire) {
            return BudgetLeft::default();
        }
        let levels = self.0.levels();
        let left = levels.tightest(&path_of(who).collect::<Vec<_>>());
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
    pub(crate) fn reserve(
        &self,
        who: &Principal,
        estimate: &Estimate,
    ) -> Result<Result<Reservation, Reason>, StateError> {
        let (book, since) = (Arc::clone(&self.0), self.0.clock.elapsed());
        let mut reservation = Reservation { book, scopes: Vec::new(), held: estimate.most, since };
        self.0.look()?;
        if !self.0.limited.load(Ordering::Acquire) || estimate.most == Amounts::default() {
            return Ok(Ok(reservation));
        }
        let mut levels = self.0.levels();
        let path: Vec<_> = path_of(who).filter(|scope| levels.left(scope).is_some()).collect();
        let left = levels.tightest(&path);
        // A call may be shorter than its limit, so it is given what time there is; its limit shrinks to that.
        let mut want = estimate.most;
        if want.wall_ms > 0 {
            want.wall_ms = want.wall_ms.min(left.wall_ms.unwrap_or(u64::MAX)).max(1);
        }
        if estimate.priceless {
            want.money_microusd = left.money_microusd.map_or(0, |money| money.max(1));
        }
        for scope in &path {
            if let Some(short) = levels.short_of(&self.0, scope, want)? {
                return Ok(Err(levels.exhausted(scope, short, Amounts::default())));
            }
        }
        for scope in &path {
            levels.hold(scope, want);
        }
        (reservation.scopes, reservation.held) = (path, want);
        Ok(Ok(reservation))
    }

    /// Charges one question to a person.
    pub(crate) fn charge_question(&self, who: &Principal) -> Result<Result<(), Reason>, StateError> {
        let most = Amounts { approvals: 1, ..Amounts::default() };
        let reserved = self.reserve(who, &Estimate { most, priceless: false })?;
        Ok(reserved.map(|reservation| drop(reservation.charge(Spent::default(), 0))))
    }

    /// Gives a scope its limits. What it has used since it first had any stays used.
    pub(crate) fn set(&self, scope: &BudgetScope, limit: Budget) -> Result<(), StateError> {
        let (book, now_ms) = (&self.0, self.0.clock.now_ms());
        let mut levels = book.levels();
        match scope {
            BudgetScope::UserDay => levels.user_day.set(&*book.state, now_ms, limit)?,
            BudgetScope::Project => levels.project.set(&*book.state, now_ms, limit)?,
            BudgetScope::Session | BudgetScope::Agent(_) => {
                if levels.own.len() >= LEVELS_MAX && !levels.own.contains_key(scope) {
                    return Err(StateError::TooLarge(scope.to_string()));
                }
                levels.own.entry(scope.clone()).or_default().limit = limit;
            }
        }
        book.limited.store(levels.any(), Ordering::Release);
        Ok(())
    }

    /// How a scope stands. A shared one counts what other processes have said they used, and what they have set aside.
    pub(crate) fn standing(&self, scope: &BudgetScope) -> Result<Standing, StateError> {
        let (book, now_ms) = (&self.0, self.0.clock.now_ms());
        let mut levels = book.levels();
        match scope {
            BudgetScope::UserDay => levels.user_day.standing(&*book.state, now_ms),
            BudgetScope::Project => levels.project.standing(&*book.state, now_ms),
            BudgetScope::Session | BudgetScope::Agent(_) => {
                let level = levels.at(scope);
                Ok(level.map_or_else(Standing::default, |level| Standing {
                    limits: level.limit,
                    used: level.used,
                    held: level.held,
                }))
            }
        }
    }

    /// Forgets the level of an agent that has ended.
    pub(crate) fn forget(&self, agent: &AgentId) {
        if self.0.limited.load(Ordering::Acquire) {
            self.0.levels().own.remove(&BudgetScope::Agent(agent.clone()));
        }
    }

    /// Gives back what this process has leased and not used.
    pub(crate) fn give_back(&self) -> Result<(), StateError> {
        self.0.give_back()
    }
}

impl Book {
    fn levels(&self) -> MutexGuard<'_, Levels> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks now and then whether another process has set a shared limit. In between, unlimited calls touch no state.
    fn look(&self) -> Result<(), StateError> {
        let elapsed_ms = u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX);
        if elapsed_ms < self.look_at_ms.load(Ordering::Acquire) {
            return Ok(());
        }
        let (mut levels, now_ms) = (self.levels(), self.clock.now_ms());
        if elapsed_ms < self.look_at_ms.load(Ordering::Acquire) {
            // Another thread has looked while we waited for it.
            return Ok(());
        }
        levels.user_day.refresh(&*self.state, &self.owner, now_ms)?;
        levels.project.refresh(&*self.state, &self.owner, now_ms)?;
        self.limited.store(levels.any(), Ordering::Release);
        self.look_at_ms.store(elapsed_ms.saturating_add(LOOK_MS), Ordering::Release);
        Ok(())
    }

    fn give_back(&self) -> Result<(), StateError> {
        let (mut levels, now_ms) = (self.levels(), self.clock.now_ms());
        levels.user_day.give_back(&*self.state, &self.owner, now_ms)?;
        levels.project.give_back(&*self.state, &self.owner, now_ms)
    }
}

impl Drop for Book {
    fn drop(&mut self) {
        // Best effort: a lease that isn't given back counts as spent, which is safe.
        drop(self.give_back());
    }
}

impl Levels {
    fn any(&self) -> bool {
        let shared = [&self.user_day.level, &self.project.level];
        shared.into_iter().chain(self.own.values()).any(|level| !level.limit.is_unlimited())
    }

    fn at(&mut self, scope: &BudgetScope) -> Option<&mut Level> {
        match scope {
            BudgetScope::UserDay => Some(&mut self.user_day.level),
            BudgetScope::Project => Some(&mut self.project.level),
            BudgetScope::Session | BudgetScope::Agent(_) => self.own.get_mut(scope),
        }
    }

    /// What is left at a level, if it has limits.
    fn left(&self, scope: &BudgetScope) -> Option<Budget> {
        let left = match scope {
            BudgetScope::UserDay => self.user_day.left(),
            BudgetScope::Project => self.project.left(),
            BudgetScope::Session | BudgetScope::Agent(_) => {
                let level = self.own.get(scope)?;
                level.limit.less(level.used.plus(level.held))
            }
        };
        (!left.is_unlimited()).then_some(left)
    }

    /// What all of these have.
    fn tightest(&self, path: &[BudgetScope]) -> Budget {
        let left = path.iter().filter_map(|scope| self.left(scope));
        left.fold(Budget::default(), |all, one| all.meet(one))
    }

    /// What a level has too little of. A shared one asks for a larger lease before it says so.
    fn short_of(
        &mut self,
        book: &Book,
        scope: &BudgetScope,
        want: Amounts,
    ) -> Result<Option<&'static str>, StateError> {
        let now_ms = book.clock.now_ms();
        match scope {
            BudgetScope::UserDay => self.user_day.cover(&*book.state, &book.owner, now_ms, want),
            BudgetScope::Project => self.project.cover(&*book.state, &book.owner, now_ms, want),
            BudgetScope::Session | BudgetScope::Agent(_) => {
                Ok(self.left(scope).and_then(|left| left.short_of(want)))
            }
        }
    }

    fn hold(&mut self, scope: &BudgetScope, amounts: Amounts) {
        if let Some(level) = self.at(scope) {
            level.held = level.held.plus(amounts);
        }
    }

    /// Ends a hold, and counts what was used of it, or beyond it.
    fn settle(&mut self, scope: &BudgetScope, held: Amounts, used: Amounts) {
        if let Some(level) = self.at(scope) {
            level.held = level.held.minus(held);
            level.used = level.used.plus(used);
        }
    }

    /// Says that there is too little, and whether that may pass by itself: what running calls hold, `own` aside, they may give back.
    fn exhausted(&mut self, scope: &BudgetScope, short: &'static str, own: Amounts) -> Reason {
        let level = self.at(scope);
        let (limit, held) =
            level.map_or_else(Default::default, |level| (level.limit, level.held.minus(own).map(Some)));
        let of = |budget: Budget| {
            budget
                .named()
                .into_iter()
                .find(|(name, _)| *name == short)
                .and_then(|(_, amount)| amount)
                .unwrap_or(0)
        };
        let left = of(self.left(scope).unwrap_or_default());
        let message = format!(
            "the budget `{scope}` has {left} of {} `{short}` left that no running call holds, which is too little",
            of(limit)
        );
        if of(held) > 0 {
            return refusal("budget.held", message, "try again when the running calls have settled");
        }
        refusal(EXHAUSTED, message, "let a person raise it with `regent budget set`")
    }
}

impl Reservation {
    /// How long the call may take, if it is not to take longer than was set aside. No limit where nothing was.
    pub(crate) fn wall_ms_max(&self) -> u64 {
        if self.scopes.is_empty() { u64::MAX } else { self.held.wall_ms }
    }

    /// Sets aside more for a call that turns out to send more, up to `bytes_out` in all, at every level or at none.
    pub(crate) fn widen(&mut self, bytes_out: u64) -> Result<Result<(), Reason>, StateError> {
        let more = bytes_out.saturating_sub(self.held.bytes_out);
        if more == 0 || self.scopes.is_empty() {
            return Ok(Ok(()));
        }
        let want = Amounts { bytes_out: more, ..Amounts::default() };
        let mut levels = self.book.levels();
        for scope in &self.scopes {
            if let Some(short) = levels.short_of(&self.book, scope, want)? {
                return Ok(Err(levels.exhausted(scope, short, self.held)));
            }
        }
        for scope in &self.scopes {
            levels.hold(scope, want);
        }
        self.held.bytes_out = bytes_out;
        Ok(Ok(()))
    }

    /// Charges what was really used, at every level, and gives back the rest.
    pub(crate) fn settle(self, spent: Spent) -> Settled {
        let took = self.book.clock.elapsed().saturating_sub(self.since);
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.charge(spent, took_ms)
    }

    fn charge(mut self, spent: Spent, took_ms: u64) -> Settled {
        let Spent { bytes_out, money_microusd, tokens, wall_ms } = spent;
        let wall_ms = wall_ms.max(took_ms);
        let (calls, approvals) = (self.held.calls, self.held.approvals);
        let used = Amounts { approvals, bytes_out, calls, money_microusd, tokens, wall_ms };
        let scopes = std::mem::take(&mut self.scopes);
        let mut over = Vec::new();
        if !scopes.is_empty() {
            over = used.above(self.held);
            let mut levels = self.book.levels();
            for scope in &scopes {
                levels.settle(scope, self.held, used);
            }
        }
        Settled { bytes_out, money_microusd, over, tokens, wall_ms }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // After settling there is nothing left here to release.
        if !self.scopes.is_empty() {
            let mut levels = self.book.levels();
            for scope in &self.scopes {
                levels.settle(scope, self.held, Amounts::default());
            }
        }
    }
}

/// The levels that a principal's calls are charged to, from the widest to its own.
fn path_of(who: &Principal) -> impl Iterator<Item = BudgetScope> {
    let wide = [BudgetScope::UserDay, BudgetScope::Project, BudgetScope::Session];
    wide.into_iter().chain(who.lineage().iter().cloned().map(BudgetScope::Agent))
}
