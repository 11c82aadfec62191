//! The levels that calls are charged to, as this process knows them.

use std::collections::HashMap;

use regent_identity::AgentId;
use regent_policy::Reason;
use regent_store::{self as store, StateError};

use super::lease::Lease;
use super::{Amounts, Budget, BudgetScope, Standing};

/// A budget is used up, and waiting does not help.
pub(crate) const EXHAUSTED: &str = "budget.exhausted";
/// Running calls hold what is wanted, and may give it back.
const HELD: &str = "budget.held";
/// Levels within one process.
const LEVELS_MAX: usize = 4_096;

#[derive(Debug)]
pub(crate) struct Levels {
    own: HashMap<BudgetScope, Level>,
    user_day: Lease,
    project: Lease,
}

/// What this process knows of one budget, and has taken from it.
#[derive(Debug, Default)]
pub(crate) struct Level {
    pub(crate) limit: Budget,
    /// Of a shared one: since its last report there.
    pub(crate) used: Amounts,
    pub(crate) held: Amounts,
}

/// Whether there is room for a call at one level.
pub(crate) enum Room {
    Enough,
    /// There is too little of this.
    Short(&'static str),
    /// The lease is too small or too old.
    AskForMore,
}

impl Levels {
    pub(crate) fn new(project: &str) -> Self {
        Self {
            own: HashMap::new(),
            user_day: Lease::new("budget/user/day".to_owned(), true),
            project: Lease::new(format!("budget/project/{}", store::key_part(project)), false),
        }
    }

    pub(crate) fn any(&self) -> bool {
        let shared = [&self.user_day.level, &self.project.level];
        shared.into_iter().chain(self.own.values()).any(|level| !level.limit.is_unlimited())
    }

    fn level_mut(&mut self, scope: &BudgetScope) -> Option<&mut Level> {
        match scope {
            BudgetScope::UserDay => Some(&mut self.user_day.level),
            BudgetScope::Project => Some(&mut self.project.level),
            BudgetScope::Session | BudgetScope::Agent(_) => self.own.get_mut(scope),
        }
    }

    /// The shared budget behind a scope.
    pub(crate) fn lease(&mut self, scope: &BudgetScope) -> Option<&mut Lease> {
        match scope {
            BudgetScope::UserDay => Some(&mut self.user_day),
            BudgetScope::Project => Some(&mut self.project),
            BudgetScope::Session | BudgetScope::Agent(_) => None,
        }
    }

    /// Gives a level of this process its limits.
    pub(crate) fn set_own(&mut self, scope: &BudgetScope, limit: Budget) -> Result<(), StateError> {
        if self.own.len() >= LEVELS_MAX && !self.own.contains_key(scope) {
            return Err(StateError::TooLarge(scope.to_string()));
        }
        self.own.entry(scope.clone()).or_default().limit = limit;
        Ok(())
    }

    /// How a level of this process stands.
    pub(crate) fn standing_own(&self, scope: &BudgetScope) -> Standing {
        self.own.get(scope).map_or_else(Standing::default, |level| Standing {
            limits: level.limit,
            used: level.used,
            held: level.held,
        })
    }

    pub(crate) fn forget(&mut self, agent: &AgentId) {
        self.own.remove(&BudgetScope::Agent(agent.clone()));
    }

    /// What is left at a level, if it has limits.
    pub(crate) fn left(&self, scope: &BudgetScope) -> Option<Budget> {
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
    pub(crate) fn tightest(&self, path: &[BudgetScope]) -> Budget {
        let left = path.iter().filter_map(|scope| self.left(scope));
        left.fold(Budget::default(), |all, one| all.meet(one))
    }

    /// Whether a level has room. A shared one can say that its lease has to grow first.
    pub(crate) fn room(&mut self, scope: &BudgetScope, want: Amounts, now_ms: i64) -> Room {
        match self.lease(scope) {
            Some(lease) if lease.covers(now_ms, want) => Room::Enough,
            Some(_) => Room::AskForMore,
            None => match self.left(scope).and_then(|left| left.short_of(want)) {
                Some(short) => Room::Short(short),
                None => Room::Enough,
            },
        }
    }

    pub(crate) fn hold(&mut self, scope: &BudgetScope, amounts: Amounts) {
        if let Some(level) = self.level_mut(scope) {
            level.held = level.held.plus(amounts);
        }
    }

    /// Ends a hold, and counts what was used of it, or beyond it.
    pub(crate) fn settle(&mut self, scope: &BudgetScope, held: Amounts, used: Amounts) {
        if let Some(level) = self.level_mut(scope) {
            level.held = level.held.minus(held);
            level.used = level.used.plus(used);
        }
    }

    /// Says that there is too little, how much is needed, and whether that may pass by itself: what running calls hold, `own` aside, they
    /// may give back.
    pub(crate) fn exhausted(
        &mut self,
        scope: &BudgetScope,
        short: &'static str,
        (want, own): (Amounts, Amounts),
    ) -> Reason {
        let level = self.level_mut(scope);
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
        // An agent's limit is what earlier runs of its task have left, so it tells its reader nothing.
        let (whose, of_limit) = match scope {
            BudgetScope::Agent(_) => ("of this agent".to_owned(), String::new()),
            BudgetScope::UserDay | BudgetScope::Project | BudgetScope::Session => {
                (format!("`{scope}`"), format!(" of {}", amount(short, of(limit))))
            }
        };
        let mut message = format!(
            "the budget {whose} is too low: this call may need {}, {}{of_limit} left",
            amount(short, of(want.map(Some))),
            amount(short, left)
        );
        let (code, help) = if of(held) > 0 {
            message.push_str(&format!(", {} held by running calls", amount(short, of(held))));
            (HELD, "try again when the running calls have settled")
        } else {
            (EXHAUSTED, "raise it with `regent budget set`")
        };
        Reason { code: code.into(), message, rule: None, help: Some(help.to_owned()) }
    }
}

/// An amount as people read it.
fn amount(name: &str, amount: u64) -> String {
    let counted = |noun: &str| format!("{amount} {noun}{}", if amount == 1 { "" } else { "s" });
    match name {
        "approvals" => counted("question"),
        "bytes_out" => format!("{amount} bytes out"),
        "money_microusd" => format!("{}.{:06} USD", amount / 1_000_000, amount % 1_000_000),
        "wall_ms" => format!("{}.{:03} s", amount / 1_000, amount % 1_000),
        name => counted(name.trim_end_matches('s')),
    }
}
