//! What Regent must make of a server that misbehaves. How it misbehaves is in `xtask/peers/misbehaving.py`.

use std::ops::RangeInclusive;

use super::models::WIRES;
use super::task::{Ended, PATIENCE, Run};
use super::{ANSWER, objections};

/// For cases that use up the time that there is. Others get all they need: a busy machine is no misbehaviour.
const HURRY: &str = "first_byte_ms_max = 1000, idle_ms_max = 1000, total_ms_max = 4000, wait_ms = 20";
/// No count of tokens that a server makes up may be believed: a task here takes less, also one that is charged for the longest answer.
const TOKENS_MAX: u64 = 200_000;

/// The exit codes of a task that is done, that failed for good, and that can be resumed.
const DONE: i32 = 0;
const FAILED: i32 = 20;
const UNVERIFIED: i32 = 21;
const LATER: i32 = 75;

/// A case: what the program ends with, how often it asks, what it says, and which files are there.
pub(super) struct Case {
    name: &'static str,
    code: i32,
    requests: RangeInclusive<usize>,
    says: &'static str,
    files: &'static [&'static str],
    patience: &'static str,
}

const fn done(name: &'static str, requests: usize, files: &'static [&'static str]) -> Case {
    Case { name, code: DONE, requests: requests..=requests, says: "", files, patience: PATIENCE }
}

/// Asked once: asking again can't help.
const fn failed(name: &'static str, says: &'static str) -> Case {
    Case { name, code: FAILED, requests: 1..=1, says, files: &[], patience: PATIENCE }
}

const fn later(name: &'static str, requests: RangeInclusive<usize>, says: &'static str) -> Case {
    Case { name, code: LATER, requests, says, files: &[], patience: PATIENCE }
}

/// Asked for as long as there is time. How many requests fit into it depends on the machine.
const fn late(name: &'static str) -> Case {
    Case { patience: HURRY, ..later(name, 1..=4, "model.late") }
}

/// What the vendor's own task writes.
const OWN: &[&str] = &[super::WRITTEN.0];

pub(super) const CASES: &[Case] = &[
    done("fine", 3, OWN),
    // Waits that the server asks for: long ones end the task for now, and it says until when.
    later("retry-after-hour", 1..=1, "resume at 20"),
    later("retry-after-date", 1..=1, "resume at 20"),
    done("retry-after-now", 4, OWN),
    // What may pass: `tries_max` requests and no more, then the task waits for its person.
    later("too-many", 4..=4, "it answered 429"),
    later("error-500", 4..=4, "it answered 500: The server had an error"),
    later("empty", 4..=4, "it is empty"),
    done("error-500-once", 4, OWN),
    done("error-503-twice", 5, OWN),
    done("error-event-once", 4, OWN),
    done("garbage-once", 4, OWN),
    // An answer that broke off has cost tokens already, so it is asked for once more only.
    // "truncated"; with Ollama "can't be parsed", because half of its last line is taken for a line.
    later("cut", 2..=2, "the answer "),
    later("reset", 2..=2, "the connection was lost"),
    done("cut-once", 4, OWN),
    done("reset-once", 4, OWN),
    late("pings"),
    late("stuck"),
    late("silent"),
    done("slow", 3, OWN),
    // Answers of which the model hears, so that it can do better.
    done("bad-arguments", 4, OWN),
    done("unknown-tool", 4, OWN),
    done("same-index", 4, &["second.txt", "third.txt", super::WRITTEN.0]),
    done("no-id", 4, &["second.txt", super::WRITTEN.0]),
    // What it says is understood; that it did nothing is seen.
    Case { code: UNVERIFIED, ..done("not-streamed", 1, &[]) },
    done("absurd-usage", 4, OWN),
    done("negative-usage", 4, OWN),
    // What asking again can't help.
    failed("web-page", "text/html"),
    failed("redirect", "it answered 302"),
    failed("20-mb", "model.too_large"),
    failed("too-long", "model.too_long"),
    failed("bad-request", "Invalid value"),
    failed("wrong-key", "model.unauthorised"),
    failed("forbidden", "model.unauthorised"),
    failed("no-such-model", "does not exist"),
];

/// Cases that break off an answer or replace it.
const IN_ALL_WIRES: &[&str] =
    &["fine", "slow", "cut", "cut-once", "reset", "reset-once", "web-page", "empty"];

impl Case {
    /// In OpenAI's chat completions; where the protocol's own parser is put to the test, in each.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> {
        let in_all = IN_ALL_WIRES.contains(&self.name);
        WIRES.iter().filter(move |(kind, ..)| in_all || *kind == "openai").map(|&(kind, wire, model)| Run {
            kind,
            wire,
            target: "misbehaving",
            model: model.to_owned(),
            plan: false,
            case: Some(self.name),
            patience: self.patience,
        })
    }

    pub(super) fn faults(&self, ended: &Ended) -> Vec<String> {
        let mut faults = Vec::new();
        if ended.code != self.code {
            faults.push(format!("exit code {}, {} wanted: {}", ended.code, self.code, ended.said));
        }
        if !self.requests.contains(&ended.requests.len()) {
            faults.push(format!("{} requests, {:?} wanted", ended.requests.len(), self.requests));
        }
        if !ended.said.contains(self.says) {
            faults.push(format!("it says `{}`, without `{}`", ended.said, self.says));
        }
        if self.code == DONE && ended.answer != ANSWER {
            faults.push(format!("the answer is `{}`", ended.answer));
        }
        let there: Vec<&str> = ended.files.keys().map(String::as_str).collect();
        if there != self.files {
            faults.push(format!("there is {there:?}, {:?} wanted", self.files));
        }
        if ended.tokens > TOKENS_MAX {
            faults.push(format!("{} tokens are counted, {TOKENS_MAX} at most", ended.tokens));
        }
        faults.extend(objections(&ended.requests).0);
        faults
    }
}

#[cfg(test)]
mod tests {
    //! The table fits the server, and each column of it can fail.

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_case_of_the_server_is_in_the_table() {
        let text = std::fs::read_to_string(crate::root().join("xtask/peers/misbehaving.py")).unwrap();
        let (_, table) = text.split_once("CASES = {").unwrap();
        let names: BTreeSet<&str> = table
            .lines()
            .filter_map(|line| line.strip_prefix("    \"")?.split_once("\": "))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, CASES.iter().map(|case| case.name).collect());
        assert!(IN_ALL_WIRES.iter().all(|case| names.contains(case)));
    }

    #[test]
    fn each_column_can_fail() {
        let case = later("cut", 0..=0, "truncated");
        let fine = || Ended {
            code: LATER,
            answer: String::new(),
            said: "it was truncated".to_owned(),
            tokens: 0,
            files: [].into(),
            requests: Vec::new(),
        };
        assert_eq!(case.faults(&fine()), Vec::<String>::new());
        let worse: [fn(&mut Ended); 4] = [
            |ended| ended.code = 20,
            |ended| ended.said.clear(),
            |ended| ended.tokens = TOKENS_MAX + 1,
            |ended| drop(ended.files.insert("x.txt".to_owned(), String::new())),
        ];
        for (at, worsen) in worse.iter().enumerate() {
            let mut ended = fine();
            worsen(&mut ended);
            assert_eq!(case.faults(&ended).len(), 1, "{at}");
        }
        assert_eq!(done("fine", 3, &[]).faults(&fine()).len(), 3, "code, requests and answer");
    }
}
