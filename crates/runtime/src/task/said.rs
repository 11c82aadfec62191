//! What the person whose task it is says after the goal: a conversation is a task with more than one request.
//!
//! Each message has its place among the turns, and is recorded before a turn depends on it. So the program of the task stays a program:
//! the same record and the same answers lead to the same calls.

use std::collections::BTreeSet;

use regent_kernel::Status;
use regent_wire::body::EndStatus;
use serde::{Deserialize, Serialize};

use super::tape::Recorded;
use crate::door::{Ancestor, is_before};

/// A message after the goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// The turn that answers it: what came before was said without it.
    pub turn: u32,
    /// In the person's words.
    pub text: String,
    /// The model that goes on from here; the one before, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The person stopped the turn before this and said this instead: what it had not done by then is not done any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<StoppedTurn>,
}

/// A turn that was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoppedTurn {
    /// Which.
    pub turn: u32,
    /// The steps of it that were made: an answer of the model, and calls that have an end.
    pub made: BTreeSet<String>,
}

impl StoppedTurn {
    /// The turn, as far as it came by these steps of the task.
    pub(crate) fn new(turn: u32, steps: &[Recorded]) -> Self {
        let is_made = |step: &Recorded| {
            let is_answer =
                || step.end.as_ref().is_some_and(|end| end.status == EndStatus::Ended(Status::Ok));
            turn_of(&step.step) == Some(turn)
                && if is_thought(&step.step) { is_answer() } else { step.is_over() }
        };
        let made = steps.iter().filter(|step| is_made(step)).map(|step| step.step.clone());
        Self { turn, made: made.collect() }
    }
}

fn is_thought(step: &str) -> bool {
    step.split('/').nth(1).is_some_and(|name| name.split('~').next() == Some("think"))
}

/// Whether the person stopped a task before this step was made, and said something else: then it is not made any more.
pub(crate) fn is_dropped(step: &str, said: &[Said]) -> bool {
    let mut stopped = said.iter().filter_map(|one| one.stopped.as_ref());
    stopped.any(|one| turn_of(step) == Some(one.turn) && !one.made.contains(step))
}

/// The same for a whole turn: the model had no answer yet.
pub(crate) fn is_dropped_turn(turn: u32, said: &[Said]) -> bool {
    let mut stopped = said.iter().filter_map(|one| one.stopped.as_ref());
    stopped.any(|one| one.turn == turn && !one.made.iter().any(|step| is_thought(step)))
}

/// A request and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exchange {
    /// What was asked for: the goal, or a later message.
    pub request: String,
    /// The first turn that worked on it.
    pub turn: u32,
    /// The answer, once there is one.
    pub answer: Option<String>,
}

impl Exchange {
    pub(crate) fn of(said: &Said) -> Self {
        Self { request: said.text.clone(), turn: said.turn, answer: None }
    }
}

/// The number of a step's turn; none for a step of a plan.
pub(crate) fn turn_of(step: &str) -> Option<u32> {
    step.split('/').next()?.parse().ok()
}

/// The turn that a message answers which comes after these steps.
pub(crate) fn next_turn<'s>(steps: impl Iterator<Item = &'s str>) -> u32 {
    // A turn begins with its compaction, if it has one.
    let begins = |step: &&str| step.ends_with("/think") || step.ends_with("/compact");
    let last = steps.filter(begins).filter_map(turn_of).max();
    last.unwrap_or(0).saturating_add(1)
}

/// The model of a step: what the task began with, or what the last message before it names. A fork keeps the models of shared steps.
pub(crate) fn model_at<'m>(
    step: &str,
    first: &'m str,
    ancestors: &'m [Ancestor],
    said: &'m [Said],
) -> &'m str {
    let owner = ancestors.iter().position(|one| is_before(step, &one.at));
    let since = owner.unwrap_or(ancestors.len()).checked_sub(1).and_then(|at| ancestors.get(at));
    let base = owner.and_then(|at| ancestors.get(at)).map_or(first, |one| one.model.as_str());
    let since = since.and_then(|one| turn_of(&one.at)).unwrap_or(0);
    let turn = turn_of(step).unwrap_or(0);
    let named = said.iter().rev().filter(|one| one.turn > since && one.turn <= turn);
    named.filter_map(|one| one.model.as_deref()).next().unwrap_or(base)
}

/// The model that the older task would have gone on with, where a fork parts from it.
pub(crate) fn model_before<'m>(
    at: &str,
    first: &'m str,
    ancestors: &'m [Ancestor],
    said: &'m [Said],
) -> &'m str {
    let older = ancestors.split_last().map_or(ancestors, |(_, older)| older);
    model_at(at, first, older, said)
}

#[cfg(test)]
mod tests {
    use regent_kernel::TaskId;

    use super::*;

    #[test]
    fn a_message_comes_after_the_last_turn_that_has_begun() {
        let cases: &[(&[&str], u32)] = &[
            (&[], 1),
            (&["0/notes"], 1),
            (&["0/notes", "1/think", "1/tool/0"], 2),
            (&["1/think", "2/compact"], 3),
            (&["1/think", "10/think", "2/think", "10/tool/1"], 11),
        ];
        for (steps, turn) in cases {
            assert_eq!(next_turn(steps.iter().copied()), *turn, "{steps:?}");
        }
    }

    #[test]
    fn what_was_not_made_of_a_stopped_turn_is_dropped() {
        let said = |turn: u32, made: &[&str]| {
            let made = made.iter().map(|step| (*step).to_owned()).collect();
            let stopped = Some(StoppedTurn { turn, made });
            Said { turn: turn + 1, text: "no".to_owned(), model: None, stopped }
        };
        let said = [said(2, &["2/think~1", "2/tool/0"]), said(5, &[])];
        for (step, dropped) in [
            ("1/tool/0", false),
            ("2/tool/0", false),
            ("2/tool/1", true),
            ("5/think", true),
            ("6/think", false),
        ] {
            assert_eq!(is_dropped(step, &said), dropped, "{step}");
        }
        let turns: Vec<bool> = (1..=6).map(|turn| is_dropped_turn(turn, &said)).collect();
        assert_eq!(turns, [false, false, false, false, true, false]);
    }

    #[test]
    fn a_message_may_change_the_model_from_its_turn_on() {
        let message = |turn: u32, model: Option<&str>| Said {
            turn,
            text: "and".to_owned(),
            model: model.map(str::to_owned),
            stopped: None,
        };
        let said = [message(3, Some("b")), message(5, None), message(7, Some("c"))];
        let at = |turn: u32, first: &'static str, ancestors: &[Ancestor]| {
            model_at(&format!("{turn}/think"), first, ancestors, &said).to_owned()
        };
        let models: Vec<String> = (1..=8).map(|turn| at(turn, "a", &[])).collect();
        assert_eq!(models, ["a", "a", "b", "b", "b", "b", "c", "c"]);
        // A fork at turn 6 with a model of its own shares what came before, and hears what is said to it afterwards.
        let older =
            [Ancestor { task: TaskId::new("t-1").unwrap(), at: "6".to_owned(), model: "a".to_owned() }];
        let models: Vec<String> = (1..=8).map(|turn| at(turn, "x", &older)).collect();
        assert_eq!(models, ["a", "a", "b", "b", "b", "x", "c", "c"]);
        assert_eq!(model_before("6", "a", &older, &said), "b");
    }
}
