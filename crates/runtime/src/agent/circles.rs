//! Notices when an agent goes round in circles: the same reading twice with nothing changed between, or the same turns over and over.

use std::collections::BTreeMap;

use regent_kernel::{Digest, SideEffect, ToolCall};

/// The longest circle that is looked for, in turns.
const CIRCLE_TURNS_MAX: usize = 4;

/// What the calls of an agent have been so far.
#[derive(Debug, Default)]
pub(super) struct Circles {
    /// When each call was last made, counted in changes to the world.
    made: BTreeMap<Digest, u64>,
    changes: u64,
    /// One digest a turn.
    turns: Vec<Digest>,
}

impl Circles {
    /// Whether a call would only bring what was brought before: it reads, and nothing has been changed since.
    pub(super) fn is_repeated(&mut self, call: &ToolCall, effect: SideEffect) -> bool {
        let digest = digest_of(call);
        match effect {
            SideEffect::None | SideEffect::Read => {
                self.made.insert(digest, self.changes) == Some(self.changes)
            }
            SideEffect::Write | SideEffect::Delete | SideEffect::Network => {
                self.changes = self.changes.saturating_add(1);
                false
            }
        }
    }

    /// The answers so far can't be seen any more, so that reading again is no repetition.
    pub(super) fn forget_answers(&mut self) {
        self.made.clear();
    }

    /// Takes in a turn, and says how long the circle is if the last turns are the same few, `times` over.
    pub(super) fn turn(&mut self, calls: &[ToolCall], times: usize) -> Option<usize> {
        let all: Vec<u8> = calls.iter().flat_map(|call| *digest_of(call).as_bytes()).collect();
        self.turns.push(Digest::compute(&all));
        (1..=CIRCLE_TURNS_MAX).find(|length| {
            let wanted = length.saturating_mul(times.max(2));
            let Some(start) = self.turns.len().checked_sub(wanted) else { return false };
            let last = self.turns.get(start..).unwrap_or_default();
            let first = last.get(..*length).unwrap_or_default();
            last.chunks(*length).all(|chunk| chunk == first)
        })
    }
}

fn digest_of(call: &ToolCall) -> Digest {
    // Objects keep their keys sorted, so equal arguments have equal text.
    Digest::compute(format!("{}\n{}", call.tool, call.args).as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(tool: &str, id: u32) -> ToolCall {
        ToolCall { tool: tool.to_owned(), args: json!({"id": id}) }
    }

    #[test]
    fn reading_again_is_a_repetition_until_something_changes() {
        let mut circles = Circles::default();
        assert!(!circles.is_repeated(&call("fs.read", 1), SideEffect::Read));
        assert!(!circles.is_repeated(&call("fs.read", 2), SideEffect::Read));
        assert!(circles.is_repeated(&call("fs.read", 1), SideEffect::Read));
        assert!(!circles.is_repeated(&call("fs.write", 1), SideEffect::Write));
        assert!(!circles.is_repeated(&call("fs.read", 1), SideEffect::Read));
        assert!(!circles.is_repeated(&call("fs.write", 1), SideEffect::Write));
    }

    #[test]
    fn circles_of_one_to_four_turns_are_seen() {
        for length in 1..=4_u32 {
            let mut circles = Circles::default();
            let found: Vec<_> =
                (0..length * 3).map(|turn| circles.turn(&[call("t", turn % length)], 3)).collect();
            assert_eq!(found.last().unwrap(), &Some(length as usize), "{length}");
            assert!(found.iter().rev().skip(1).all(Option::is_none), "{length}: {found:?}");
        }
        let mut circles = Circles::default();
        assert!((0..50).all(|turn| circles.turn(&[call("t", turn)], 3).is_none()));
    }
}
