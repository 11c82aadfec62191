//! Questions without a kernel: ids, the meter, and that only a denial counts at once.

use std::sync::Arc;

use proptest::prelude::*;
use regent_ledger::Digest;
use regent_policy::{Layer, RuleRef};
use regent_store::{MemoryState, StateError};

use super::super::*;
use super::*;
use crate::approval::attention::least_ms;
use crate::approval::posed::{AHEAD_MS_MAX, OPEN_MS_MAX, fresh_id};

mod many;

const START_MS: i64 = 1_700_000_000_000;

/// The questions, for tests that have nothing else to do meanwhile.
struct Waited(Questions);

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

impl Waited {
    fn answer(
        &self,
        tickets: &[TicketId],
        answer: &ApprovalAnswer,
        by: &str,
        now_ms: i64,
    ) -> Result<AnswerResult, StateError> {
        wait(self.0.answer(tickets, answer, (by, None), now_ms))
    }

    fn attention(&self, person: &str, now_ms: i64) -> Result<Attention, StateError> {
        wait(self.0.attention(person, now_ms))
    }

    fn count_up_to(&self, ticket: &TicketId, now_ms: i64) -> Result<usize, StateError> {
        wait(self.0.count_up_to(ticket, now_ms))
    }

    fn find(
        &self,
        digest: &Digest,
        approvers: u8,
        asker: &Asker,
        now_ms: i64,
    ) -> Result<Option<Consulted>, StateError> {
        wait(self.0.find(digest, approvers, asker, now_ms))
    }

    fn put(&self, draft: &QuestionDraft, now_ms: i64) -> Result<Consulted, StateError> {
        wait(self.0.put(draft, now_ms))
    }

    fn standing(&self, ticket: &TicketId, now_ms: i64) -> Result<Answered, StateError> {
        wait(self.0.standing(ticket, now_ms))
    }
}

fn questions() -> Waited {
    Waited(Questions::new(Arc::new(MemoryState::default()), "project"))
}

fn draft(number: u32, elsewhere: bool) -> QuestionDraft {
    QuestionDraft {
        digest: Digest::compute(&number.to_be_bytes()),
        files: Vec::new(),
        open_why: None,
        summary: (format!("work number=`{number}`"), false),
        reason: "work is asked about".to_owned(),
        quote: None,
        cause: None,
        rule: RuleRef { id: "ask".into(), layer: Layer::User, line: 3 },
        origins: Vec::new(),
        cover: None,
        approvers: 1,
        asker: Asker {
            name: "worker".to_owned(),
            session: "s".to_owned(),
            root: "worker".to_owned(),
            in_task: false,
        },
        elsewhere,
    }
}

fn put(questions: &Waited, number: u32, elsewhere: bool, now_ms: i64) -> OpenQuestion {
    match questions.put(&draft(number, elsewhere), now_ms).unwrap() {
        Consulted::Asked(question) => *question,
        other @ (Consulted::Approved(_) | Consulted::Denied(..) | Consulted::Full(_)) => panic!("{other:?}"),
    }
}

fn yes(scope: Scope) -> ApprovalAnswer {
    ApprovalAnswer::Approve { scope, valid_ms: 3_600_000 }
}

#[test]
fn a_row_of_yes_is_a_habit_and_a_no_ends_it() {
    let questions = questions();
    let mut now_ms = START_MS;
    let mut say = |number: u32, answer: ApprovalAnswer| {
        let asked = put(&questions, number, false, now_ms);
        // Slowly enough that each can have been read.
        now_ms += 60_000;
        questions.answer(std::slice::from_ref(&asked.id), &answer, "ada", now_ms).unwrap()
    };
    for number in 0..19 {
        assert!(matches!(say(number, yes(Scope::Session)), AnswerResult::Taken { .. }), "{number}");
    }
    let AnswerResult::Taken { attention, .. } = say(19, yes(Scope::Session)) else { panic!("not taken") };
    assert_eq!((attention.percent, attention.hasty_hour, attention.yes_in_a_row), (100, 0, 20));
    assert_eq!((attention.yes_percent_day, attention.decide_ms_median), (Some(100), Some(60_000)));
    assert_eq!(say(20, yes(Scope::Project)), AnswerResult::TooWide);
    assert!(matches!(say(21, yes(Scope::Once)), AnswerResult::Taken { .. }));
    let AnswerResult::Taken { attention, .. } = say(22, ApprovalAnswer::Deny { because: None }) else {
        panic!("not taken")
    };
    assert_eq!((attention.percent, attention.yes_in_a_row), (0, 0));
    assert!(matches!(say(23, yes(Scope::Project)), AnswerResult::Taken { .. }));
}

#[test]
fn what_another_program_asks_its_own_person_says_nothing_of_ours() {
    let questions = questions();
    for number in 0..30 {
        let asked = put(&questions, number, true, START_MS);
        let given =
            questions.answer(std::slice::from_ref(&asked.id), &yes(Scope::Once), "ada", START_MS).unwrap();
        assert!(matches!(given, AnswerResult::Taken { .. }));
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
        let given =
            questions.answer(std::slice::from_ref(&question.id), &yes(Scope::Once), "ada", now_ms).unwrap();
        matches!(given, AnswerResult::TooSoon { .. })
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
    let given = questions
        .answer(std::slice::from_ref(&second.id), &ApprovalAnswer::Deny { because: None }, "ada", START_MS)
        .unwrap();
    assert!(matches!(given, AnswerResult::Taken { .. }));
}

#[test]
fn m6_an_approval_given_while_the_clock_was_ahead_does_not_hold() {
    const YEAR_MS: i64 = 365 * 24 * 60 * 60 * 1000;
    let questions = questions();
    let asker = draft(0, false).asker;
    let asked = put(&questions, 0, false, START_MS);
    let given =
        questions.answer(std::slice::from_ref(&asked.id), &yes(Scope::Project), "ada", START_MS + YEAR_MS);
    assert!(matches!(given.unwrap(), AnswerResult::Gone), "the question has expired by then");
    // Ahead by less than a question waits: it is answered, and the clock is set right again.
    let ahead_ms = START_MS + OPEN_MS_MAX / 2;
    let given = questions.answer(std::slice::from_ref(&asked.id), &yes(Scope::Project), "ada", ahead_ms);
    assert!(matches!(given.unwrap(), AnswerResult::Taken { .. }));
    let found = |now_ms| questions.find(&draft(0, false).digest, 1, &asker, now_ms).unwrap();
    assert!(matches!(found(ahead_ms), Some(Consulted::Approved(_))));
    assert!(matches!(found(START_MS + 60_000), Some(Consulted::Asked(_))), "asked again");
    // The answer that was given ahead of time doesn't keep anyone from answering now.
    let given = questions
        .answer(std::slice::from_ref(&asked.id), &yes(Scope::Once), "ada", START_MS + 60_000)
        .unwrap();
    assert!(matches!(given, AnswerResult::Taken { standing: Answered::Approved, .. }), "{given:?}");
    // A question that was put while the clock was ahead is closed.
    let future = put(&questions, 7, false, START_MS + YEAR_MS);
    let given = questions.answer(
        std::slice::from_ref(&future.id),
        &yes(Scope::Project),
        "ada",
        START_MS + YEAR_MS + 60_000,
    );
    assert!(matches!(given.unwrap(), AnswerResult::Taken { .. }));
    assert!(questions.find(&draft(7, false).digest, 1, &asker, START_MS + 120_000).unwrap().is_none());
}

#[test]
fn a_longer_question_takes_longer_to_read_within_bounds() {
    let questions = questions();
    let long = |chars: usize| QuestionDraft {
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
            let answer = if agrees { yes(scope) } else { ApprovalAnswer::Deny { because: None } };
            let taken = matches!(questions.answer(std::slice::from_ref(&asked.id), &answer, "ada", now_ms).unwrap(), AnswerResult::Taken { .. });
            let hasty = had_ms < i64::try_from(asked.read_ms).unwrap();
            let soon = had_ms < i64::try_from(least_ms(asked.read_ms)).unwrap();
            prop_assert_eq!(taken, !gone && !(agrees && (soon || worn && (wide || hasty))));
            if !taken && !gone {
                questions.answer(std::slice::from_ref(&asked.id), &ApprovalAnswer::Deny { because: None }, "ada", now_ms).unwrap();
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
    let (says, now_ms) = (ApprovalAnswer::HostSays { valid_ms: 60_000 }, START_MS + 10_000);
    let here = put(&questions, 1, false, START_MS).id;
    assert_eq!(
        questions.answer(std::slice::from_ref(&here), &says, "ada", now_ms).unwrap(),
        AnswerResult::NotHosts
    );
    assert!(matches!(questions.standing(&here, now_ms).unwrap(), Answered::Waiting { .. }));

    let there = put(&questions, 2, true, START_MS).id;
    assert!(matches!(
        questions.answer(std::slice::from_ref(&there), &says, "ada", now_ms).unwrap(),
        AnswerResult::Taken { .. }
    ));
    let elsewhere = draft(2, true);
    let found = questions.find(&elsewhere.digest, 1, &elsewhere.asker, now_ms).unwrap();
    let Some(Consulted::Approved(approved)) = found else { panic!("{found:?}") };
    assert_eq!((approved.voice, approved.by.len(), approved.scope), (Voice::HostSays, 0, Scope::Once));
    assert_eq!(serde_json::to_value(&says).unwrap()["say"], "host_says");
    // Where two people have to agree, a host is neither of them: its user may be one who answers here.
    let two = QuestionDraft { approvers: 2, ..draft(3, true) };
    let Consulted::Asked(asked) = questions.put(&two, START_MS).unwrap() else { panic!("not asked") };
    let given = questions.answer(std::slice::from_ref(&asked.id), &says, "ada", now_ms).unwrap();
    assert_eq!(given, AnswerResult::NotHosts);
    // Nor if policy wants two only since it has spoken.
    let one = put(&questions, 4, true, START_MS);
    questions.answer(std::slice::from_ref(&one.id), &says, "ada", now_ms).unwrap();
    let elsewhere = draft(4, true);
    let found = questions.find(&elsewhere.digest, 2, &elsewhere.asker, now_ms).unwrap();
    assert!(matches!(found, Some(Consulted::Asked(_))), "{found:?}");
}

#[test]
fn one_answer_is_for_as_many_questions_as_can_wait() {
    let answers = [
        yes(Scope::Once),
        ApprovalAnswer::Approve { scope: Scope::Project, valid_ms: u64::MAX },
        ApprovalAnswer::Deny { because: None },
    ];
    for answer in answers {
        let (questions, mut now_ms) = (questions(), START_MS);
        let tickets: Vec<TicketId> = (0..u32::try_from(OPEN_MAX).unwrap())
            .map(|number| {
                let draft = QuestionDraft { cause: Some("one".to_owned()), ..draft(number, false) };
                match questions.put(&draft, START_MS).unwrap() {
                    Consulted::Asked(question) => question.id,
                    other @ (Consulted::Approved(_) | Consulted::Denied(..) | Consulted::Full(_)) => {
                        panic!("{other:?}")
                    }
                }
            })
            .collect();
        now_ms += 600_000;
        let given = questions.answer(&tickets, &answer, "ada", now_ms).unwrap();
        let AnswerResult::Taken { questions: taken, .. } = given else { panic!("{given:?}") };
        assert_eq!(taken.len(), OPEN_MAX);
        // It is found by its call for as long as the answer holds.
        let last = draft(3, false);
        let state = &questions.0.state;
        wait(state.sweep(now_ms + 2 * OPEN_MS_MAX, 1_000)).unwrap();
        let found = questions.find(&last.digest, 1, &last.asker, now_ms + 2 * OPEN_MS_MAX).unwrap();
        let lasts = matches!(answer, ApprovalAnswer::Approve { scope: Scope::Project, .. });
        assert_eq!(matches!(found, Some(Consulted::Approved(_))), lasts, "{answer:?}");
        let many: Vec<TicketId> = std::iter::repeat_n(tickets[0].clone(), 65).collect();
        assert_eq!(questions.answer(&many, &answer, "ada", now_ms).unwrap(), AnswerResult::TooMany);
    }
}

#[test]
fn b11_nobody_in_a_user_namespace_is_a_second_person() {
    let (questions, now_ms) = (questions(), START_MS + 10_000);
    let two = QuestionDraft { approvers: 2, ..draft(1, false) };
    let Consulted::Asked(asked) = questions.put(&two, START_MS).unwrap() else { panic!("not asked") };
    let unknown =
        questions.answer(std::slice::from_ref(&asked.id), &yes(Scope::Once), UNIDENTIFIED, now_ms).unwrap();
    assert_eq!(unknown, AnswerResult::Unidentified);
    // One that was given for a single approver doesn't count when policy wants two later on.
    let one = put(&questions, 2, false, START_MS);
    for by in [UNIDENTIFIED, "ada (uid 1000)"] {
        questions.answer(std::slice::from_ref(&one.id), &yes(Scope::Project), by, now_ms).unwrap();
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
    let deny = ApprovalAnswer::Deny { because: None };
    assert!(matches!(
        questions.answer(std::slice::from_ref(&asked.id), &deny, "ada", START_MS + 60_000).unwrap(),
        AnswerResult::Taken { .. }
    ));
    for who in ["ada", "eve"] {
        let given = questions
            .answer(std::slice::from_ref(&asked.id), &yes(Scope::Once), who, START_MS + 62_000)
            .unwrap();
        assert_eq!(given, AnswerResult::Gone, "{who}");
    }
    let standing = questions.standing(&asked.id, START_MS + 63_000).unwrap();
    assert!(matches!(standing, Answered::Denied { .. }), "{standing:?}");
    // The other way round it counts: an approval that wasn't used yet can be taken back.
    let asked = put(&questions, 2, false, START_MS);
    questions.answer(std::slice::from_ref(&asked.id), &yes(Scope::Once), "ada", START_MS + 60_000).unwrap();
    questions.answer(std::slice::from_ref(&asked.id), &deny, "ada", START_MS + 61_000).unwrap();
    let standing = questions.standing(&asked.id, START_MS + 63_000).unwrap();
    assert!(matches!(standing, Answered::Denied { .. }), "{standing:?}");
}

fn put_for(questions: &Waited, number: u32, cause: &str, now_ms: i64) -> OpenQuestion {
    let draft = QuestionDraft { cause: Some(cause.to_owned()), ..draft(number, false) };
    match questions.put(&draft, now_ms).unwrap() {
        Consulted::Asked(question) => *question,
        other @ (Consulted::Approved(_) | Consulted::Denied(..) | Consulted::Full(_)) => panic!("{other:?}"),
    }
}

#[test]
fn calls_of_one_cause_are_one_question_to_the_meter() {
    let questions = questions();
    let all: Vec<OpenQuestion> =
        (0..3).map(|number| put_for(&questions, number, "readme", START_MS)).collect();
    let numbers: Vec<u32> = all.iter().map(|one| one.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(all[0].asked_with, None);
    assert!(all[1..].iter().all(|one| one.asked_with.as_ref() == Some(&all[0].id)));
    assert_eq!(put_for(&questions, 9, "mail", START_MS).asked_with, None, "another cause");
    assert_eq!(questions.attention("ada", START_MS).unwrap().asked_hour, 2);
    let ids: Vec<TicketId> = all.iter().map(|one| one.id.clone()).collect();
    let read_ms: u64 = all.iter().map(|one| one.read_ms).sum();
    // A quarter of the time to read one of them is too soon for three.
    let soon_ms = START_MS + i64::try_from(least_ms(all[0].read_ms)).unwrap();
    let given = questions.answer(&ids, &yes(Scope::Once), "ada", soon_ms).unwrap();
    assert!(matches!(given, AnswerResult::TooSoon { least_ms, .. } if least_ms == read_ms / 4), "{given:?}");
    let later_ms = START_MS + i64::try_from(read_ms).unwrap();
    let given = questions.answer(&ids, &yes(Scope::Once), "ada", later_ms).unwrap();
    let AnswerResult::Taken { attention, standing: Answered::Approved, .. } = given else {
        panic!("{given:?}")
    };
    assert_eq!((attention.answered_hour, attention.yes_in_a_row, attention.hasty_hour), (1, 1, 0));
}

#[test]
fn one_answer_is_for_the_questions_that_it_names() {
    let questions = questions();
    let first = put_for(&questions, 0, "readme", START_MS);
    let second = put_for(&questions, 1, "readme", START_MS);
    let other = put_for(&questions, 2, "mail", START_MS);
    let third = put_for(&questions, 3, "readme", START_MS);
    let now_ms = START_MS + 60_000;
    let count = |one: &OpenQuestion| questions.count_up_to(&one.id, now_ms).unwrap();
    assert_eq!([&first, &second, &other, &third].map(count), [1, 2, 1, 3]);
    let mixed = [first.id.clone(), other.id.clone()];
    assert_eq!(
        questions.answer(&mixed, &yes(Scope::Once), "ada", now_ms).unwrap(),
        AnswerResult::NotOneCause
    );
    questions.answer(&[first.id.clone(), second.id.clone()], &yes(Scope::Once), "ada", now_ms).unwrap();
    let standing = |one: &OpenQuestion| questions.standing(&one.id, now_ms).unwrap();
    assert_eq!([standing(&first), standing(&second)], [Answered::Approved, Answered::Approved]);
    assert_eq!([&first, &third].map(count), [0, 1], "what is answered isn't open");
    for one in [&third, &other] {
        assert!(matches!(standing(one), Answered::Waiting { .. }), "{one:?}");
    }
    // A call of the same cause that comes after the answer is a question of its own.
    let found =
        questions.find(&Digest::compute(&7_u32.to_be_bytes()), 1, &draft(7, false).asker, now_ms).unwrap();
    assert!(found.is_none());
}

#[test]
fn an_answer_names_the_questions_that_got_it_and_those_that_did_not() {
    let questions = questions();
    let [used, denied, open] = [0, 1, 2].map(|number| put_for(&questions, number, "readme", START_MS).id);
    let now_ms = START_MS + 60_000;
    let (later_ms, deny) = (now_ms + 60_000, ApprovalAnswer::Deny { because: None });
    questions.answer(std::slice::from_ref(&used), &yes(Scope::Once), "ada", now_ms).unwrap();
    questions.find(&draft(0, false).digest, 1, &draft(0, false).asker, now_ms).unwrap();
    questions.answer(std::slice::from_ref(&denied), &deny, "ada", now_ms).unwrap();
    let ids = [used.clone(), denied.clone(), open.clone()];
    let given = questions.answer(&ids, &yes(Scope::Once), "ada", later_ms).unwrap();
    let AnswerResult::Taken { standing: Answered::Approved, questions: got, skipped, .. } = given else {
        panic!("{given:?}")
    };
    assert_eq!(got, std::slice::from_ref(&open));
    let (over, final_) = (SkipReason::Over, SkipReason::Denied);
    assert_eq!(skipped, [Skipped { id: used, why: over }, Skipped { id: denied.clone(), why: final_ }]);
    assert!(matches!(questions.standing(&denied, later_ms).unwrap(), Answered::Denied { .. }));
}

#[test]
fn questions_without_a_cause_are_answered_one_by_one() {
    let questions = questions();
    let [one, two] = [0, 1].map(|number| put(&questions, number, false, START_MS));
    let given = questions.answer(&[one.id, two.id], &yes(Scope::Once), "ada", START_MS + 60_000).unwrap();
    assert_eq!(given, AnswerResult::NotOneCause);
}

#[test]
fn ten_thousand_questions_of_many_agents_wait_and_one_agent_may_not_put_them_all() {
    let questions = questions();
    let of = |number: u32, root: &str| {
        let asker = Asker { root: root.to_owned(), ..draft(number, false).asker };
        questions.put(&QuestionDraft { asker, ..draft(number, false) }, START_MS).unwrap()
    };
    for number in 0..10_000 {
        assert!(matches!(of(number, &format!("agent-{}", number / 25)), Consulted::Asked(_)), "{number}");
    }
    for number in 10_000..10_000 + u32::try_from(OPEN_MAX).unwrap() {
        assert!(matches!(of(number, "talkative"), Consulted::Asked(_)), "{number}");
    }
    assert!(matches!(of(20_000, "talkative"), Consulted::Full(OPEN_MAX)));
    assert!(matches!(of(20_001, "another"), Consulted::Asked(_)));
}

#[test]
fn other_processes_learn_which_questions_were_answered() {
    let state: Arc<MemoryState> = Arc::default();
    let [asking, answering] = [0, 1].map(|_| Waited(Questions::new(Arc::clone(&state) as _, "project")));
    let earlier = wait(asking.0.answers()).unwrap();
    assert_eq!(earlier.since(&earlier), Some(&[][..]));
    let asked: Vec<OpenQuestion> = (0..100)
        .map(|number| {
            let asker = Asker { root: format!("agent-{number}"), ..draft(number, true).asker };
            match asking.put(&QuestionDraft { asker, ..draft(number, true) }, START_MS).unwrap() {
                Consulted::Asked(question) => *question,
                other @ (Consulted::Approved(_) | Consulted::Denied(..) | Consulted::Full(_)) => {
                    panic!("{other:?}")
                }
            }
        })
        .collect();
    let deny = |question: &OpenQuestion| {
        let given = answering.answer(
            std::slice::from_ref(&question.id),
            &ApprovalAnswer::Deny { because: None },
            "ada",
            START_MS,
        );
        assert!(matches!(given.unwrap(), AnswerResult::Taken { .. }));
    };
    asked.iter().take(3).for_each(deny);
    let now = wait(asking.0.answers()).unwrap();
    let expected: Vec<TicketId> = asked.iter().take(3).map(|one| one.id.clone()).collect();
    assert_eq!(now.since(&earlier), Some(&expected[..]));
    asked.iter().skip(3).for_each(deny);
    assert_eq!(wait(asking.0.answers()).unwrap().since(&now), None, "more than are remembered");
}
