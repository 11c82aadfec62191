//! One call that is asked about again and again: what is read for it stays bounded.

use regent_store::State as _;

use super::*;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn of_session(session: usize) -> QuestionDraft {
    let draft = draft(1, false);
    QuestionDraft { asker: Asker { session: format!("s{session}"), ..draft.asker.clone() }, ..draft }
}

fn asked(found: Consulted) -> OpenQuestion {
    match found {
        Consulted::Asked(question) => *question,
        other @ (Consulted::Approved(_) | Consulted::Denied(..) | Consulted::Full(_)) => panic!("{other:?}"),
    }
}

#[test]
fn a_call_that_was_denied_in_many_sessions_can_still_be_asked_about_and_approved() {
    let questions = questions();
    let deny = ApprovalAnswer::Deny { because: None };
    for session in 0..100 {
        let open = asked(questions.put(&of_session(session), START_MS).unwrap());
        questions.answer(std::slice::from_ref(&open.id), &deny, "ada", START_MS + 60_000).unwrap();
    }
    let now_ms = START_MS + 120_000;
    let last = of_session(100);
    assert!(questions.find(&last.digest, 1, &last.asker, now_ms).unwrap().is_none());
    let open = asked(questions.put(&last, now_ms).unwrap());
    let approve = yes(Scope::Once);
    questions.answer(std::slice::from_ref(&open.id), &approve, "ada", now_ms + 60_000).unwrap();
    let found = questions.find(&last.digest, 1, &last.asker, now_ms + 61_000).unwrap();
    assert!(matches!(found, Some(Consulted::Approved(_))), "{found:?}");
}

#[test]
fn entries_of_questions_that_are_gone_are_removed_by_the_next_question() {
    let state = Arc::new(MemoryState::default());
    let questions = Waited(Questions::new(Arc::clone(&state) as Arc<dyn State>, "project"));
    for session in 0..40 {
        let now_ms = START_MS + i64::try_from(session).unwrap() * DAY_MS;
        wait(state.sweep(now_ms, 1_000)).unwrap();
        asked(questions.put(&of_session(session), now_ms).unwrap());
    }
    let partition = Partition::containing("question/");
    for index in [index_of(&of_session(0).digest), asker_index("worker")] {
        let entries = wait(state.scan(&partition, &index)).unwrap();
        assert!(entries.len() <= 2, "{} entries in {index}", entries.len());
    }
}

#[test]
fn a_question_for_two_people_ends_in_time_also_if_one_approval_holds_longer() {
    let questions = questions();
    let open = asked(questions.put(&QuestionDraft { approvers: 2, ..draft(1, false) }, START_MS).unwrap());
    let week = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 7 * 86_400_000 };
    questions.answer(std::slice::from_ref(&open.id), &week, "ada", START_MS + 60_000).unwrap();
    let standing = |at_ms| questions.standing(&open.id, at_ms).unwrap();
    assert_eq!(standing(START_MS + OPEN_MS_MAX - 1), Answered::Waiting { agreed: 1, needed: 2 });
    assert_eq!(standing(START_MS + OPEN_MS_MAX), Answered::Gone);
}
