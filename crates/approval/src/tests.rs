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
        files: Vec::new(),
        open_why: None,
        summary: (format!("work number=`{number}`"), false),
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
fn m4_no_approval_counts_before_anyone_can_have_begun_to_read() {
    let questions = questions();
    let [first, second] = [0, 1].map(|number| put(&questions, number, false, START_MS));
    let least_ms = i64::try_from(least_ms(first.read_ms)).unwrap();
    assert_eq!(least_ms, 250);
    let soon = |question: &OpenQuestion, now_ms: i64| {
        let given = questions.answer(&question.id, &yes(Scope::Once), "ada", now_ms).unwrap();
        matches!(given, Given::TooSoon { .. })
    };
    assert!(soon(&first, START_MS) && soon(&first, START_MS + least_ms - 1));
    assert!(!soon(&first, START_MS + least_ms));
    // The second question is read after the first: two keys pressed in a row don't answer both.
    assert!(soon(&second, START_MS + least_ms + 1));
    assert_eq!(
        questions.standing(&second.id, START_MS + least_ms + 1).unwrap(),
        Answered::Waiting { agreed: 0, needed: 1 }
    );
    // A denial counts at any time.
    let given = questions.answer(&second.id, &Answer::Deny { because: None }, "ada", START_MS).unwrap();
    assert!(matches!(given, Given::Taken { .. }));
}

#[test]
fn m6_an_approval_given_while_the_clock_was_ahead_does_not_hold() {
    const YEAR_MS: i64 = 365 * 24 * 60 * 60 * 1000;
    let questions = questions();
    let asker = draft(0, false).asker;
    let asked = put(&questions, 0, false, START_MS);
    let given = questions.answer(&asked.id, &yes(Scope::Project), "ada", START_MS + YEAR_MS);
    assert!(matches!(given.unwrap(), Given::Gone), "the question has expired by then");
    // Ahead by less than a question waits: it is answered, and the clock is set right again.
    let ahead_ms = START_MS + OPEN_MS_MAX / 2;
    let given = questions.answer(&asked.id, &yes(Scope::Project), "ada", ahead_ms);
    assert!(matches!(given.unwrap(), Given::Taken { .. }));
    let found = |now_ms| questions.find(&draft(0, false).digest, 1, &asker, now_ms).unwrap();
    assert!(matches!(found(ahead_ms), Some(Consulted::Approved(_))));
    assert!(matches!(found(START_MS + 60_000), Some(Consulted::Asked(_))), "asked again");
    // The answer that was given ahead of time doesn't keep anyone from answering now.
    let given = questions.answer(&asked.id, &yes(Scope::Once), "ada", START_MS + 60_000).unwrap();
    assert!(matches!(given, Given::Taken { standing: Answered::Approved, .. }), "{given:?}");
    // A question that was put while the clock was ahead is over.
    let future = put(&questions, 7, false, START_MS + YEAR_MS);
    let given = questions.answer(&future.id, &yes(Scope::Project), "ada", START_MS + YEAR_MS + 60_000);
    assert!(matches!(given.unwrap(), Given::Taken { .. }));
    assert!(questions.find(&draft(7, false).digest, 1, &asker, START_MS + 120_000).unwrap().is_none());
}

#[test]
fn a_longer_question_takes_longer_to_read_within_bounds() {
    let questions = questions();
    let long = |chars: usize| Draft {
        summary: ("x".repeat(chars), false),
        ..draft(u32::try_from(chars).unwrap(), false)
    };
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
        let (mut now_ms, mut answered) = (START_MS, Vec::new());
        for (number, (agrees, wide, waits_ms)) in answers.into_iter().enumerate() {
            let asked = put(&questions, u32::try_from(number).unwrap(), false, now_ms);
            now_ms += waits_ms;
            let gone = asked.created_at_ms > now_ms + AHEAD_MS_MAX;
            let worn = questions.attention("ada", now_ms).unwrap().is_worn();
            let last_ms = answered.iter().rev().find(|at_ms| **at_ms <= now_ms).copied().unwrap_or(i64::MIN);
            let had_ms = (now_ms - asked.created_at_ms.max(last_ms)).max(0);
            let scope = if wide { Scope::Session } else { Scope::Once };
            let answer = if agrees { yes(scope) } else { Answer::Deny { because: None } };
            let taken = matches!(questions.answer(&asked.id, &answer, "ada", now_ms).unwrap(), Given::Taken { .. });
            let hasty = had_ms < i64::try_from(asked.read_ms).unwrap();
            let soon = had_ms < i64::try_from(least_ms(asked.read_ms)).unwrap();
            prop_assert_eq!(taken, !gone && !(agrees && (soon || worn && (wide || hasty))));
            if !taken && !gone {
                questions.answer(&asked.id, &Answer::Deny { because: None }, "ada", now_ms).unwrap();
            }
            if !gone {
                answered.push(now_ms);
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

#[test]
fn b11_nobody_in_a_user_namespace_is_a_second_person() {
    let (questions, now_ms) = (questions(), START_MS + 10_000);
    let two = Draft { approvers: 2, ..draft(1, false) };
    let Consulted::Asked(asked) = questions.put(&two, START_MS).unwrap() else { panic!("not asked") };
    let unknown = questions.answer(&asked.id, &yes(Scope::Once), UNIDENTIFIED, now_ms).unwrap();
    assert_eq!(unknown, Given::Unidentified);
    // One that was given for a single approver doesn't count when policy wants two later on.
    let one = put(&questions, 2, false, START_MS);
    for by in [UNIDENTIFIED, "ada (uid 1000)"] {
        questions.answer(&one.id, &yes(Scope::Project), by, now_ms).unwrap();
    }
    let draft = draft(2, false);
    let found = questions.find(&draft.digest, 2, &draft.asker, now_ms).unwrap();
    assert!(matches!(found, Some(Consulted::Asked(_))), "{found:?}");
    assert!(matches!(
        questions.find(&draft.digest, 1, &draft.asker, now_ms).unwrap(),
        Some(Consulted::Approved(_))
    ));
}

#[test]
fn d6_a_denial_stays_one_whatever_a_prompt_says_that_is_still_open() {
    let questions = questions();
    let asked = put(&questions, 1, false, START_MS);
    let deny = Answer::Deny { because: None };
    assert!(matches!(
        questions.answer(&asked.id, &deny, "ada", START_MS + 60_000).unwrap(),
        Given::Taken { .. }
    ));
    for who in ["ada", "eve"] {
        let given = questions.answer(&asked.id, &yes(Scope::Once), who, START_MS + 62_000).unwrap();
        assert_eq!(given, Given::Gone, "{who}");
    }
    let standing = questions.standing(&asked.id, START_MS + 63_000).unwrap();
    assert!(matches!(standing, Answered::Denied { .. }), "{standing:?}");
    // The other way round it counts: an approval that wasn't used yet can be taken back.
    let asked = put(&questions, 2, false, START_MS);
    questions.answer(&asked.id, &yes(Scope::Once), "ada", START_MS + 60_000).unwrap();
    questions.answer(&asked.id, &deny, "ada", START_MS + 61_000).unwrap();
    let standing = questions.standing(&asked.id, START_MS + 63_000).unwrap();
    assert!(matches!(standing, Answered::Denied { .. }), "{standing:?}");
}
