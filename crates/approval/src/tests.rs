//! Questions without a kernel: ids, the meter, and that nothing but a no is ever taken in haste.

use std::sync::Arc;

use proptest::prelude::*;
use regent_ledger::Digest;
use regent_policy::{Layer, RuleRef};
use regent_store::MemoryState;

use super::*;
use crate::posed::fresh_id;

const START_MS: i64 = 1_700_000_000_000;

fn questions() -> Questions {
    Questions::new(Arc::new(MemoryState::default()), "project")
}

fn draft(number: u32, elsewhere: bool) -> Draft {
    Draft {
        digest: Digest::of(&number.to_be_bytes()),
        summary: format!("work number=`{number}`"),
        reason: "work is asked about".to_owned(),
        rule: RuleRef { id: "ask".into(), layer: Layer::User, line: 3 },
        origins: Vec::new(),
        cover: None,
        approvers: 1,
        asker: Asker { name: "worker".to_owned(), session: "s".to_owned(), in_task: false },
        elsewhere,
    }
}

fn put(questions: &Questions, number: u32, elsewhere: bool, now_ms: i64) -> OpenQuestion {
    match questions.put(&draft(number, elsewhere), now_ms).unwrap() {
        Consulted::Asked(question) => *question,
        other @ (Consulted::Approved(_) | Consulted::Denied(..) | Consulted::Full(_)) => panic!("{other:?}"),
    }
}

fn yes(scope: Scope) -> Answer {
    Answer::Approve { scope, valid_ms: 3_600_000 }
}

#[test]
fn a_row_of_yes_is_a_habit_and_a_no_ends_it() {
    let questions = questions();
    let mut now_ms = START_MS;
    let mut say = |number: u32, answer: Answer| {
        let asked = put(&questions, number, false, now_ms);
        // Slowly enough that each can have been read.
        now_ms += 60_000;
        questions.answer(&asked.id, &answer, "ada", now_ms).unwrap()
    };
    for number in 0..19 {
        assert!(matches!(say(number, yes(Scope::Session)), Given::Taken { .. }), "{number}");
    }
    let Given::Taken { attention, .. } = say(19, yes(Scope::Session)) else { panic!("not taken") };
    assert_eq!((attention.percent, attention.hasty_hour, attention.yes_in_a_row), (100, 0, 20));
    assert_eq!((attention.yes_percent_day, attention.decide_ms_median), (Some(100), Some(60_000)));
    assert_eq!(say(20, yes(Scope::Project)), Given::TooWide);
    assert!(matches!(say(21, yes(Scope::Once)), Given::Taken { .. }));
    let Given::Taken { attention, .. } = say(22, Answer::Deny { because: None }) else { panic!("not taken") };
    assert_eq!((attention.percent, attention.yes_in_a_row), (0, 0));
    assert!(matches!(say(23, yes(Scope::Project)), Given::Taken { .. }));
}

#[test]
fn what_another_program_asks_its_own_person_says_nothing_of_ours() {
    let questions = questions();
    for number in 0..30 {
        let asked = put(&questions, number, true, START_MS);
        let given = questions.answer(&asked.id, &yes(Scope::Once), "ada", START_MS).unwrap();
        assert!(matches!(given, Given::Taken { .. }));
    }
    assert_eq!(questions.attention("ada", START_MS).unwrap().answered_day, 0);
}

#[test]
fn a_longer_question_takes_longer_to_read_within_bounds() {
    let questions = questions();
    let long =
        |chars: usize| Draft { summary: "x".repeat(chars), ..draft(u32::try_from(chars).unwrap(), false) };
    let read = |chars: usize| match questions.put(&long(chars), START_MS).unwrap() {
        Consulted::Asked(question) => question.read_ms,
        other @ (Consulted::Approved(_) | Consulted::Denied(..) | Consulted::Full(_)) => panic!("{other:?}"),
    };
    assert_eq!([read(1), read(281), read(9_000)], [1_000, 3_000, 5_000]);
}

#[test]
fn ids_are_short_readable_and_differ() {
    let ids: std::collections::HashSet<_> = (0..200).map(|_| fresh_id().unwrap()).collect();
    assert_eq!(ids.len(), 200);
    for TicketId(id) in &ids {
        assert!(
            id.len() == 9
                && id
                    .chars()
                    .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-'),
            "{id}"
        );
    }
}

proptest! {
    /// Whatever was answered before, and whatever the clock did: a full meter takes no yes that is wide or hasty, and every no.
    #[test]
    fn a_full_meter_takes_only_what_was_read(
        answers in proptest::collection::vec((any::<bool>(), any::<bool>(), -5_000_i64..20_000), 1..60),
    ) {
        let questions = questions();
        let (mut now_ms, mut last_ms) = (START_MS, i64::MIN);
        for (number, (agrees, wide, waits_ms)) in answers.into_iter().enumerate() {
            let asked = put(&questions, u32::try_from(number).unwrap(), false, now_ms);
            now_ms += waits_ms;
            let worn = questions.attention("ada", now_ms).unwrap().is_worn();
            let had_ms = now_ms - asked.created_at_ms.max(last_ms);
            let scope = if wide { Scope::Session } else { Scope::Once };
            let answer = if agrees { yes(scope) } else { Answer::Deny { because: None } };
            let taken = matches!(questions.answer(&asked.id, &answer, "ada", now_ms).unwrap(), Given::Taken { .. });
            let hasty = had_ms < i64::try_from(asked.read_ms).unwrap();
            prop_assert_eq!(taken, !(agrees && worn && (wide || hasty)));
            if taken {
                last_ms = now_ms;
            } else {
                questions.answer(&asked.id, &Answer::Deny { because: None }, "ada", now_ms).unwrap();
                last_ms = now_ms;
            }
        }
    }
}

#[test]
fn m1_a_hosts_word_is_not_a_persons_approval() {
    let questions = questions();
    let (says, now_ms) = (Answer::HostSays { valid_ms: 60_000 }, START_MS + 10_000);
    let here = put(&questions, 1, false, START_MS).id;
    assert_eq!(questions.answer(&here, &says, "ada", now_ms).unwrap(), Given::NotHosts);
    assert!(matches!(questions.standing(&here, now_ms).unwrap(), Answered::Waiting { .. }));

    let there = put(&questions, 2, true, START_MS).id;
    assert!(matches!(questions.answer(&there, &says, "ada", now_ms).unwrap(), Given::Taken { .. }));
    let elsewhere = draft(2, true);
    let found = questions.find(&elsewhere.digest, 1, &elsewhere.asker, now_ms).unwrap();
    let Some(Consulted::Approved(approved)) = found else { panic!("{found:?}") };
    assert_eq!((approved.voice, approved.by.len(), approved.scope), (Voice::HostSays, 0, Scope::Once));
    assert_eq!(serde_json::to_value(&approved).unwrap()["voice"], "host_says");
    assert_eq!(serde_json::to_value(&says).unwrap()["say"], "host_says");
    // Where two have to agree, a host is one voice.
    let two = Draft { approvers: 2, ..draft(3, true) };
    let Consulted::Asked(asked) = questions.put(&two, START_MS).unwrap() else { panic!("not asked") };
    let Given::Taken { standing, .. } = questions.answer(&asked.id, &says, "ada", now_ms).unwrap() else {
        panic!("not taken")
    };
    assert!(matches!(standing, Answered::Waiting { agreed: 1, needed: 2 }));
}
