//! The queue itself: pure, so that it can be simulated.

use std::collections::{BTreeMap, HashMap};

use regent_kernel::Priority;

/// Agents whose past is kept; more than that and those who are owed nothing are forgotten.
const AGENTS_MAX: usize = 4_096;
/// Virtual time of one token at a share of 1.
const UNIT: u64 = 1_024;

/// The priority of a call multiplies the share of its agent, without precedence, so nobody starves.
fn factor(priority: Priority) -> u64 {
    match priority {
        Priority::Low => 1,
        Priority::Normal => 4,
        Priority::High => 16,
    }
}

/// Waiting callers, by deficit.
#[derive(Debug)]
pub struct Fair<T> {
    waiting: BTreeMap<(u64, u64), (Priority, T)>,
    /// The virtual time by which each agent has had its share, at each priority: the urgent calls of an agent don't wait for others of
    /// the same name.
    finish: HashMap<(String, Priority), u64>,
    now: u64,
    pushed: u64,
}

impl<T> Default for Fair<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), finish: HashMap::new(), now: 0, pushed: 0 }
    }
}

impl<T> Fair<T> {
    /// Adds a call at the place that its agent's share gives it.
    pub fn push(&mut self, agent: &str, share: u32, priority: Priority, tokens: u64, call: T) {
        let tag = self.charge(agent, share, priority, tokens);
        self.waiting.insert((tag, self.pushed), (priority, call));
        self.pushed = self.pushed.wrapping_add(1);
    }

    /// Counts a call that needn't wait; gives the virtual time at which it would be over.
    pub fn charge(&mut self, agent: &str, share: u32, priority: Priority, tokens: u64) -> u64 {
        let weight = u64::from(share.max(1)).saturating_mul(factor(priority));
        let length = tokens.max(1).saturating_mul(UNIT).checked_div(weight).unwrap_or(0).max(1);
        let flow = (agent.to_owned(), priority);
        let from = self.finish.get(&flow).copied().unwrap_or(0).max(self.now);
        let tag = from.saturating_add(length);
        if self.finish.len() >= AGENTS_MAX {
            let now = self.now;
            self.finish.retain(|_, finish| *finish > now);
        }
        if self.finish.len() < AGENTS_MAX || self.finish.contains_key(&flow) {
            self.finish.insert(flow, tag);
        }
        tag
    }

    /// Whose turn it is.
    pub fn pop(&mut self) -> Option<(Priority, T)> {
        let ((tag, _), call) = self.waiting.pop_first()?;
        self.now = self.now.max(tag);
        Some(call)
    }

    /// Removes callers that no longer wait.
    pub fn forget(&mut self, mut is_gone: impl FnMut(&T) -> bool) {
        self.waiting.retain(|_, (_, call)| !is_gone(call));
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_kept_while_everybody_wants_more() {
        let mut queue = Fair::default();
        for _ in 0..400 {
            queue.push("one", 1, Priority::Normal, 100, "one");
            queue.push("three", 3, Priority::Normal, 100, "three");
        }
        let first: Vec<&str> = (0..400).filter_map(|_| queue.pop()).map(|(_, who)| who).collect();
        let threes = first.iter().filter(|who| **who == "three").count();
        assert!((295..=305).contains(&threes), "{threes}");
    }

    #[test]
    fn background_work_is_slow_and_never_starves() {
        let mut queue = Fair::default();
        queue.push("slow", 1, Priority::Low, 100, true);
        let mut before = 0;
        loop {
            queue.push("busy", 1, Priority::High, 100, false);
            match queue.pop() {
                Some((_, true)) => break,
                Some((_, false)) => before += 1,
                None => panic!("the queue is empty"),
            }
            assert!(before < 100, "starved");
        }
        assert!(before >= 10, "{before}");
    }

    proptest! {
        #[test]
        fn everything_comes_out_once_and_in_order_within_an_agent(
            calls in proptest::collection::vec((0_usize..4, 1_u64..5_000, 0_u32..5), 0..200),
        ) {
            let mut queue = Fair::default();
            for (number, (agent, tokens, share)) in calls.iter().enumerate() {
                queue.push(&agent.to_string(), *share, Priority::Normal, *tokens, (*agent, number));
            }
            let out: Vec<(usize, usize)> = std::iter::from_fn(|| queue.pop()).map(|(_, call)| call).collect();
            prop_assert_eq!(out.len(), calls.len());
            for agent in 0..4 {
                let own: Vec<usize> = out.iter().filter(|(who, _)| *who == agent).map(|(_, number)| *number).collect();
                prop_assert!(own.is_sorted());
                prop_assert_eq!(own.len(), calls.iter().filter(|(who, ..)| *who == agent).count());
            }
        }
    }
}
