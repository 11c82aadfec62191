//! Answers bound to the exact call, used up once, by people only.

use std::sync::Arc;

use regent_store::{MemoryState, SqliteState};
use serde_json::{Value, json};

use super::*;
use crate::tests::shared::{ASK, OPEN, World, code_of, work};
use crate::{BudgetScope, Each, Op, Reply, Status};

const HOUR_MS: u64 = 60 * 60 * 1000;
const TWO: &str = "version: 1\nmode: permissive\nrules:\n  - id: two\n    effect: ask\n    match: { tool: work }\n    approvers: 2\n";

async fn asking() -> World {
    World::new(ASK, Arc::new(MemoryState::default())).await
}

fn pending(reply: Reply) -> Ticket {
    match reply {
        Reply::Pending(ticket) => ticket,
        other @ (Reply::Done(_) | Reply::Denied(_)) => panic!("not pending: {other:?}"),
    }
}

fn done(reply: &Reply) -> bool {
    matches!(reply, Reply::Done(outcome) if outcome.status == Status::Ok)
}

fn yes(scope: Scope) -> Answer {
    Answer::Approve { scope, valid_ms: HOUR_MS }
}

async fn answer(world: &World, ticket: &TicketId, answer: Answer) -> Value {
    match world.as_operator(Op::Answer { ticket: ticket.clone(), answer }).await {
        Reply::Done(outcome) if outcome.status == Status::Ok => {
            serde_json::from_slice(outcome.output.bytes()).unwrap()
        }
        Reply::Done(outcome) => json!(outcome.status),
        other @ (Reply::Pending(_) | Reply::Denied(_)) => panic!("not done: {other:?}"),
    }
}

#[tokio::test]
async fn a_question_says_what_a_yes_would_be_to() {
    let world = asking().await;
    let ticket = pending(world.work(json!({"text": "hello\u{1b}[2J\nworld", "path": "src"})).await);
    assert_eq!(ticket.summary, "work path=`src` text=`hello\\u{1b}[2J\\u{a}world` → read src");
    assert_eq!((ticket.rule.as_str(), ticket.reason.as_str()), ("ask-work", "work is asked about"));
    let open = world.kernel.0.approvals.list().unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!((&open[0].id, open[0].caller.as_str(), open[0].approvers), (&ticket.id, "operator", 1));
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn a_long_argument_is_shortened_and_says_so() {
    let world = asking().await;
    let ticket = pending(world.work(json!({"text": "é".repeat(10_000)})).await);
    assert!(ticket.summary.contains("… (19760 bytes more)"), "{}", ticket.summary);
    assert!(ticket.summary.chars().count() <= 601);
}

#[tokio::test]
async fn the_same_call_is_asked_about_once() {
    let world = asking().await;
    let first = pending(world.work(json!({"text": "a"})).await);
    let second = pending(world.work(json!({"text": "a"})).await);
    let other = pending(world.work(json!({"text": "b"})).await);
    assert_eq!(first.id, second.id);
    assert_ne!(first.id, other.id);
    assert_eq!(world.kernel.0.approvals.list().unwrap().len(), 2);
}

#[tokio::test]
async fn adv_078_once_is_once() {
    let world = asking().await;
    let ticket = pending(world.work(json!({})).await);
    assert_eq!(answer(&world, &ticket.id, yes(Scope::Once)).await, json!({"answered": "approved"}));
    assert!(done(&world.work(json!({})).await));
    let again = pending(world.work(json!({})).await);
    assert_ne!(again.id, ticket.id);
    assert_eq!(world.runs(), 1);
    let gone = answer(&world, &ticket.id, yes(Scope::Once)).await;
    assert_eq!(gone["failed"]["code"], "approval.gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn adv_078_of_many_that_race_for_one_yes_one_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Arc::new(SqliteState::open(&folder.path().join("state.db")).unwrap()) as Arc<dyn State>;
    for state in [Arc::new(MemoryState::default()) as Arc<dyn State>, open()] {
        let world = World::new(ASK, state).await;
        let other = world.next(ASK, "session-2", "ada").await;
        let ticket = pending(world.work(json!({})).await);
        answer(&world, &ticket.id, yes(Scope::Once)).await;
        let calls: Vec<_> = (0..16)
            .map(|number| {
                let kernel = if number % 2 == 0 { &world.kernel } else { &other.kernel }.clone();
                tokio::spawn(
                    async move { kernel.syscall(&kernel.operator(), work(json!({}))).await.unwrap() },
                )
            })
            .collect();
        let mut ran = 0;
        for call in calls {
            ran += u32::from(done(&call.await.unwrap()));
        }
        assert_eq!((ran, world.runs() + other.runs()), (1, 1));
    }
}

#[tokio::test]
async fn adv_078_not_after_it_has_expired() {
    let world = asking().await;
    let ticket = pending(world.work(json!({})).await);
    answer(&world, &ticket.id, yes(Scope::Session)).await;
    assert!(done(&world.work(json!({})).await));
    world.clock.advance_ms(i64::try_from(HOUR_MS).unwrap());
    assert_eq!(pending(world.work(json!({})).await).id, ticket.id, "the question is open again");
    world.clock.advance_ms(OPEN_MS_MAX);
    assert_ne!(pending(world.work(json!({})).await).id, ticket.id, "and then it is over");
    assert_eq!(world.runs(), 1);
}

#[tokio::test]
async fn adv_078_a_yes_for_a_session_is_not_for_another_run() {
    let world = asking().await;
    let ticket = pending(world.work(json!({})).await);
    answer(&world, &ticket.id, yes(Scope::Session)).await;
    let other = world.next(ASK, "session-2", "ada").await;
    pending(other.work(json!({})).await);
    assert!(done(&world.work(json!({})).await) && done(&world.work(json!({})).await));

    let bob = world.next(ASK, "session-1", "bob").await;
    pending(bob.work(json!({})).await);
    answer(&world, &ticket.id, yes(Scope::Project)).await;
    assert!(done(&other.work(json!({})).await) && done(&other.work(json!({})).await));
    assert_eq!((world.runs(), other.runs(), bob.runs()), (2, 2, 0));
}

#[tokio::test]
async fn adv_077_what_changes_after_the_yes_is_another_call() {
    let world = asking().await;
    let file = world.folder.path().join("plan.txt");
    std::fs::write(&file, "harmless").unwrap();
    let args = json!({"path": "plan.txt", "text": "run it"});
    let ticket = pending(world.work(args.clone()).await);
    answer(&world, &ticket.id, yes(Scope::Project)).await;

    std::fs::write(&file, "harmful").unwrap();
    assert_ne!(pending(world.work(args.clone()).await).id, ticket.id, "the file holds something else");
    let other = json!({"path": "plan.txt", "text": "run it all"});
    assert_ne!(pending(world.work(other).await).id, ticket.id, "another argument");
    let elsewhere = World::new(ASK, Arc::clone(&world.state)).await;
    std::fs::write(elsewhere.folder.path().join("plan.txt"), "harmless").unwrap();
    assert_ne!(pending(elsewhere.work(args.clone()).await).id, ticket.id, "another folder");
    assert_eq!(world.runs() + elsewhere.runs(), 0);

    std::fs::write(&file, "harmless").unwrap();
    assert!(done(&world.work(args).await), "exactly what was agreed to");
}

#[tokio::test]
async fn a_no_holds_for_the_session_and_gives_its_advice() {
    let world = asking().await;
    let ticket = pending(world.work(json!({})).await);
    let advice = Answer::Deny { because: Some("use the test server".to_owned()) };
    answer(&world, &ticket.id, advice).await;
    match world.work(json!({})).await {
        Reply::Denied(denial) => {
            assert_eq!(denial.reason.code, "approval.denied");
            assert_eq!(denial.reason.help.as_deref(), Some("use the test server"));
        }
        other @ (Reply::Done(_) | Reply::Pending(_)) => panic!("not denied: {other:?}"),
    }
    let later = world.next(ASK, "session-2", "ada").await;
    assert_ne!(pending(later.work(json!({})).await).id, ticket.id);
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn a_yes_that_was_not_used_can_be_taken_back() {
    let world = asking().await;
    let ticket = pending(world.work(json!({})).await);
    answer(&world, &ticket.id, yes(Scope::Project)).await;
    answer(&world, &ticket.id, Answer::Deny { because: None }).await;
    assert_eq!(code_of(world.work(json!({})).await), "approval.denied");
}

#[tokio::test]
async fn two_approvers_are_two_people() {
    let world = World::new(TWO, Arc::new(MemoryState::default())).await;
    let bob = world.next(TWO, "session-2", "bob").await;
    let ticket = pending(world.work(json!({})).await);
    let half = json!({"answered": "waiting", "agreed": 1, "needed": 2});
    assert_eq!(answer(&world, &ticket.id, yes(Scope::Project)).await, half);
    assert_eq!(answer(&world, &ticket.id, yes(Scope::Project)).await, half, "the same person again");
    pending(world.work(json!({})).await);
    assert_eq!(answer(&bob, &ticket.id, yes(Scope::Once)).await, json!({"answered": "approved"}));
    assert!(done(&world.work(json!({})).await));
    pending(world.work(json!({})).await);
    assert_eq!(world.runs(), 1, "the narrower of both");
}

#[tokio::test]
async fn adv_078_a_yes_to_one_agent_is_not_for_its_twin() {
    let world = asking().await;
    let person = world.kernel.operator();
    let (one, two) = (world.agent(&person, "twin", None).await, world.agent(&person, "twin", None).await);
    let ask = |who: &Principal| {
        let (kernel, who) = (world.kernel.clone(), who.clone());
        async move { kernel.syscall(&who, work(json!({}))).await.unwrap() }
    };
    let ticket = pending(ask(&one).await);
    answer(&world, &ticket.id, yes(Scope::Project)).await;
    assert_ne!(pending(ask(&two).await).id, ticket.id, "same name, same call, another key");
    assert!(done(&ask(&one).await));
    assert_eq!(world.runs(), 1);
}

#[tokio::test]
async fn adv_081_an_agent_cannot_answer_its_own_question() {
    let world = asking().await;
    let agent = world.agent(&world.kernel.operator(), "sly", None).await;
    let ticket = pending(world.kernel.syscall(&agent, work(json!({}))).await.unwrap());
    for op in [Op::Answer { ticket: ticket.id.clone(), answer: yes(Scope::Project) }, Op::Questions] {
        assert_eq!(code_of(world.kernel.syscall(&agent, op).await.unwrap()), "approval.not_a_person");
    }
    assert_eq!(world.kernel.0.approvals.list().unwrap().len(), 1);
    pending(world.kernel.syscall(&agent, work(json!({}))).await.unwrap());
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn adv_079_five_hundred_questions_in_a_minute_are_refused_not_granted() {
    let world = asking().await;
    let (mut asked, mut refused) = (0, 0);
    for number in 0..500 {
        match world.work(json!({"text": format!("{number}")})).await {
            Reply::Pending(_) => asked += 1,
            other @ (Reply::Done(_) | Reply::Denied(_)) => {
                assert_eq!(code_of(other), "approval.flood");
                refused += 1;
            }
        }
    }
    assert_eq!((asked, refused), (NEW_PER_MINUTE_MAX, 500 - NEW_PER_MINUTE_MAX));
    // Slowly is no way round either: only so many wait at once, whoever asks.
    for number in 500..600 {
        world.clock.advance_ms(60_000);
        let _reply = world.work(json!({"text": format!("{number}")})).await;
    }
    assert_eq!(world.kernel.0.approvals.list().unwrap().len(), OPEN_MAX);
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn questions_are_a_budget_too() {
    let world = asking().await;
    let limits = Each { approvals: Some(2), ..Each::default() };
    world.as_operator(Op::SetBudget { scope: BudgetScope::Session, limits }).await;
    pending(world.work(json!({"text": "1"})).await);
    pending(world.work(json!({"text": "2"})).await);
    pending(world.work(json!({"text": "1"})).await);
    assert_eq!(code_of(world.work(json!({"text": "3"})).await), "budget.exhausted");
}

#[tokio::test]
async fn who_waits_hears_of_an_answer_from_here_and_from_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let world = World::new(ASK, Arc::new(SqliteState::open(&path).unwrap())).await;
    let other = World::new(OPEN, Arc::new(SqliteState::open(&path).unwrap())).await;
    for (number, answerer) in [&world, &other].into_iter().enumerate() {
        let ticket = pending(world.work(json!({"text": format!("{number}")})).await);
        let (kernel, id) = (world.kernel.clone(), ticket.id.clone());
        let waiting = tokio::spawn(async move { kernel.answered(&id).await });
        tokio::task::yield_now().await;
        answer(answerer, &ticket.id, yes(Scope::Once)).await;
        assert_eq!(waiting.await.unwrap(), Ok(Answered::Approved));
    }
    let nowhere = world.kernel.answered(&TicketId("../../etc".to_owned())).await;
    assert_eq!(nowhere, Ok(Answered::Gone));
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
