//! Budgets that several processes spend from: each process leases a part, atomically, and spends within it.
//!
//! A leased amount belongs to one process, so parallel processes can't overspend together. A process returns what it didn't use
//! when it ends. One that crashes doesn't: its spending since its last report is unknown, so its lease counts as spent,
//! for the rest of the period. Leases are small parts of the whole, so that this costs little.

use std::collections::BTreeMap;

use regent_store::{self as store, FOR_GOOD, Partition, State, StateError};
use serde::{Deserialize, Serialize};

use super::Standing;
use super::levels::Level;
use super::{Amounts, Budget, Each};

/// A lease that wasn't renewed for this long belongs to a process that is gone.
const LEASE_MS: i64 = 60 * 60 * 1000;
/// The largest part of a budget that one process takes ahead of its need, as a divisor.
const CHUNK_DIVISOR: u64 = 16;
/// And of what is still free, so that the last part isn't all held by one that may not need it.
const FREE_DIVISOR: u64 = 4;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Past periods that an account remembers.
const BEFORE_MAX: usize = 4;

/// A shared budget, as this process sees it.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    key: String,
    /// Counted anew each day (UTC).
    daily: bool,
    pub(crate) level: Level,
    /// What this process has spent, as far as the state is known to have it.
    reported: Amounts,
    period: i64,
    /// What this process may spend without asking.
    granted: Amounts,
    /// The unleased rest, as of the last read.
    free: Amounts,
    renew_at_ms: i64,
}

/// A shared budget, as the state has it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Account {
    leases: BTreeMap<String, Lent>,
    limit: Budget,
    period: i64,
    spent: Amounts,
    /// What was spent in the last periods before this one, in case the clock is ahead and is set right again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    before: BTreeMap<i64, Amounts>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Lent {
    expires_at_ms: i64,
    left: Amounts,
    /// What its owner has reported so far, all in all. A report that was lost on its way back is sent again, and counts once.
    #[serde(default)]
    reported: Amounts,
}

impl Lease {
    pub(crate) fn new(key: String, daily: bool) -> Self {
        Self { key, daily, ..Self::default() }
    }

    pub(crate) fn left(&self) -> Budget {
        let left = self.granted.plus(self.free).minus(self.level.used).minus(self.level.held);
        self.level.limit.zip(left, |limit, left| limit.map(|_| left))
    }

    /// Whether the lease covers `want` beside what is held, without asking the state.
    pub(crate) fn covers(&self, now_ms: i64, want: Amounts) -> bool {
        let enough = self.needed(want).above(self.granted.minus(self.level.used)).is_empty();
        enough && self.period == self.period_at(now_ms) && now_ms < self.renew_at_ms
    }

    fn needed(&self, want: Amounts) -> Amounts {
        self.level.limit.zip(self.level.held.plus(want), |limit, need| limit.map_or(0, |_| need))
    }

    /// Nothing was leased or spent here, so there is nothing to report.
    pub(crate) fn is_untouched(&self) -> bool {
        self.level.used == Amounts::default() && self.granted == Amounts::default()
    }

    /// An exchange's report to the state. The lease goes on being spent from meanwhile: [`apply`](Self::apply) takes that into account.
    pub(crate) fn report(&self, owner: &str, now_ms: i64, want: Amounts) -> Report {
        Report {
            key: self.key.clone(),
            owner: owner.to_owned(),
            now_ms,
            was: self.period,
            period: self.period_at(now_ms),
            used: self.level.used,
            total: self.reported.plus(self.level.used),
            needed: self.needed(want),
        }
    }

    /// Takes over what an exchange gave.
    pub(crate) fn apply(&mut self, report: &Report, exchanged: &Exchanged) {
        self.level.limit = exchanged.limit;
        (self.period, self.granted, self.free) = (report.period, exchanged.mine, exchanged.free);
        self.confirm(report);
        self.renew_at_ms = report.now_ms.saturating_add(LEASE_MS / 2);
    }

    /// Takes over what a look at the account showed.
    pub(crate) fn saw(&mut self, looked: &Looked) {
        (self.level.limit, self.free) = (looked.limit, looked.free);
    }

    /// Everything was given back.
    pub(crate) fn ended(&mut self, report: &Report) {
        self.confirm(report);
        (self.granted, self.free) = Default::default();
    }

    fn confirm(&mut self, report: &Report) {
        self.level.used = self.level.used.minus(report.used);
        self.reported = report.total;
    }

    fn period_at(&self, now_ms: i64) -> i64 {
        if self.daily { now_ms.div_euclid(DAY_MS) } else { 0 }
    }
}

/// One process's word to a shared budget.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    key: String,
    owner: String,
    now_ms: i64,
    /// The period that the lease is of.
    was: i64,
    period: i64,
    /// What was spent of it since the last report that is known to have arrived.
    used: Amounts,
    /// What was spent in all, earlier reports included.
    total: Amounts,
    needed: Amounts,
}

/// What an exchange gives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchanged {
    limit: Budget,
    mine: Amounts,
    free: Amounts,
    /// What there is too little of.
    pub(crate) short: Option<&'static str>,
}

/// What a look shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Looked {
    limit: Budget,
    free: Amounts,
}

impl Report {
    /// Reports what was spent and leases what is needed, in one step.
    pub(crate) async fn exchange(&self, state: &dyn State) -> Result<Exchanged, StateError> {
        let Self { owner, now_ms, was, period, total, needed, .. } = self;
        self.step(state, |account| {
            // What was used belongs to the period that it was leased in.
            let same_period = account.period == *was;
            if same_period {
                account.settle(owner, *total);
            }
            *account = std::mem::take(account).in_period(*period);
            account.bury(owner, *now_ms);
            if !same_period {
                account.settle(owner, *total);
            }
            let mut mine = account.leases.get(owner).map_or_else(Amounts::default, |lent| lent.left);
            let missing = needed.minus(mine);
            let short =
                account.limit.zip(account.free(), |limit, free| limit.map(|_| free)).short_of(missing);
            if short.is_none() {
                mine = mine.plus(account.chunk(missing));
            }
            let expires_at_ms = now_ms.saturating_add(LEASE_MS);
            let lent = Lent { expires_at_ms, left: mine, reported: *total };
            account.leases.insert(owner.clone(), lent);
            Exchanged { limit: account.limit, mine, free: account.free(), short }
        })
        .await
    }

    /// Reports, and returns all that isn't held: the process ends.
    pub(crate) async fn give_back(&self, state: &dyn State) -> Result<(), StateError> {
        self.step(state, |account| {
            // The time is that of the last use, which may lie long before what others have done since.
            let period = self.period.max(account.period);
            *account = std::mem::take(account).in_period(period);
            account.settle(&self.owner, self.total);
            account.leases.remove(&self.owner);
        })
        .await
    }

    /// Sets the limits; what has been spent stays spent.
    pub(crate) async fn set(&self, state: &dyn State, limit: Budget) -> Result<Looked, StateError> {
        self.step(state, |account| {
            *account = std::mem::take(account).in_period(self.period);
            account.limit = limit;
            Looked { limit, free: account.free() }
        })
        .await
    }

    /// The limits and what is free, without a word: mostly there is no such budget.
    pub(crate) async fn look(&self, state: &dyn State) -> Result<Looked, StateError> {
        let account = self.account(state).await?.unwrap_or_default();
        Ok(Looked { limit: account.limit, free: account.free() })
    }

    /// How the account stands, by all processes together.
    pub(crate) async fn standing(&self, state: &dyn State) -> Result<Standing, StateError> {
        let account = self.account(state).await?.unwrap_or_default();
        let lent = account.leases.values().fold(Amounts::default(), |sum, lent| sum.plus(lent.left));
        Ok(Standing { limits: account.limit, used: account.spent, held: lent })
    }

    async fn account(&self, state: &dyn State) -> Result<Option<Account>, StateError> {
        let account: Option<Account> =
            store::load(state, &self.key, &Partition::containing(&self.key)).await?;
        Ok(account.map(|account| account.in_period(self.period)))
    }

    async fn step<T: Send>(
        &self,
        state: &dyn State,
        mut step: impl FnMut(&mut Account) -> T + Send,
    ) -> Result<T, StateError> {
        let (key, partition) = (&self.key, Partition::containing(&self.key));
        store::change(state, &partition, std::slice::from_ref(key), |records| {
            let mut account: Account = records.load(key)?.unwrap_or_default();
            let result = step(&mut account);
            records.save(key, &account, FOR_GOOD)?;
            Ok(result)
        })
        .await
    }
}

impl Account {
    /// The account in this period. A new one starts with nothing spent and nothing lent; a clock set back starts none. An account that
    /// is more than one period ahead was moved there by a clock that was wrong: it comes back to this period, with what was spent in
    /// it before and what was spent under the wrong date, so that the mistake neither adds to this period nor closes all that follow.
    fn in_period(mut self, period: i64) -> Self {
        if period > self.period {
            self.before.insert(self.period, self.spent);
            let is_next = period == self.period.saturating_add(1);
            while self.before.len() > BEFORE_MAX {
                // A clock that jumps ahead again and again doesn't push out the period that it began in.
                if is_next {
                    self.before.pop_first();
                } else {
                    self.merge_newest();
                }
            }
            let spent = self.before.remove(&period).unwrap_or_default();
            (self.period, self.spent, self.leases) = (period, spent, BTreeMap::new());
        } else if self.period > period.saturating_add(1) {
            let wrong = self.before.split_off(&period);
            let ours = wrong.into_values().fold(Amounts::default(), Amounts::plus);
            let ends_ms = period.saturating_add(1).saturating_mul(DAY_MS);
            for lent in self.leases.values_mut() {
                lent.expires_at_ms = lent.expires_at_ms.min(ends_ms);
            }
            (self.period, self.spent) = (period, ours.plus(self.spent));
        }
        self
    }

    /// Makes the two newest of the earlier periods one.
    fn merge_newest(&mut self) {
        let newest = self.before.pop_last();
        if let (Some((_, amounts)), Some(mut other)) = (newest, self.before.last_entry()) {
            *other.get_mut() = other.get().plus(amounts);
        }
    }

    fn free(&self) -> Amounts {
        let lent = self.leases.values().fold(Amounts::default(), |sum, lent| sum.plus(lent.left));
        let taken = self.spent.plus(lent);
        self.limit.zip(taken, |limit, taken| limit.map_or(0, |limit| limit.saturating_sub(taken)))
    }

    /// Moves what the owner says it has spent from its lease to what is spent, beyond what an earlier report has moved.
    fn settle(&mut self, owner: &str, total: Amounts) {
        // A lease that was buried is spent already, all of it; so is one of another period.
        let Some(lent) = self.leases.get_mut(owner) else { return };
        let used = total.minus(lent.reported);
        lent.reported = total;
        lent.left = lent.left.minus(used);
        self.spent = self.spent.plus(used);
    }

    /// Counts the leases of processes that are gone as spent.
    fn bury(&mut self, owner: &str, now_ms: i64) {
        let (leases, spent) = (&mut self.leases, &mut self.spent);
        leases.retain(|name, lent| {
            let keep = name == owner || now_ms < lent.expires_at_ms;
            if !keep {
                *spent = spent.plus(lent.left);
            }
            keep
        });
    }

    /// What is missing, and something ahead where anything is missing.
    fn chunk(&self, missing: Amounts) -> Amounts {
        let free = self.free();
        let ahead = self.limit.zip(free, |limit, free| {
            limit.map_or(0, |limit| (limit / CHUNK_DIVISOR).min(free / FREE_DIVISOR))
        });
        let chunk: Each<u64> =
            missing.zip(ahead, |missing, ahead| if missing == 0 { 0 } else { missing.max(ahead) });
        self.limit.zip(chunk, |limit, chunk| limit.map_or(0, |_| chunk))
    }
}
