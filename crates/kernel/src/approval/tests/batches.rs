//! Questions of one cause: one answer for the calls that were shown, each bound to its digest; questions that are put ahead; callers
//! without a reviewer.

use serde_json::json;

use super::*;
use crate::tests::shared::work;
use crate::{AskedAhead, Budget, Principal};

async fn answer_all(world: &ProjectFixture, tickets: &[&Ticket], answer: ApprovalAnswer) -> Status {
    world.clock.advance_ms(60_000);
    let mut ids = tickets.iter().map(|ticket| ticket.id.clone());
    let op = Op::Answer { ticket: ids.next().unwrap(), with: ids.collect(), answer };
    match world.as_operator(op).await {
        Reply::Done(outcome) => outcome.status,
        other @ (Reply::Pending(_) | Reply::Denied(_)) => panic!("not done: {other:?}"),
    }
}

fn text(text: &str) -> Value {
    json!({"text": text})
}

#[tokio::test]
async fn one_answer_is_for_the_calls_that_it_names_and_no_others() {
    let world = asking().await;
    let [a, b, c] = [
        pending(world.work(text("a")).await),
        pending(world.work(text("b")).await),
        pending(world.work(text("c")).await),
    ];
    assert_eq!((a.question.number, b.question.number, c.question.number), (1, 2, 3));
    assert_eq!((&a.question.asked_with, &c.question.asked_with), (&None, &Some(a.id.clone())));
    assert_eq!(answer_all(&world, &[&a, &b], yes(Scope::Once)).await, Status::Ok);
    assert!(done(&world.work(text("a")).await) && done(&world.work(text("b")).await));
    assert_eq!(pending(world.work(text("c")).await).id, c.id, "it wasn't in the answer");
    let after = pending(world.work(text("d")).await);
    assert_eq!(world.runs(), 2, "a call that comes after the answer is another question: {after:?}");
    let again = pending(world.work(text("a")).await);
    assert_ne!(again.id, a.id, "each approval is for one call");
    let why = ApprovalAnswer::Deny { because: Some("not these".to_owned()) };
    assert_eq!(answer_all(&world, &[&c, &after], why).await, Status::Ok);
    for one in ["c", "d"] {
        let Reply::Denied(denial) = world.work(text(one)).await else { panic!("{one} is not denied") };
        assert_eq!(denial.reason.help.as_deref(), Some("not these"));
    }
}

#[tokio::test]
async fn questions_of_two_causes_have_two_answers() {
    let world = asking().await;
    let mine = pending(world.work(text("a")).await);
    let agent = world.agent(&world.kernel.operator(), "x", None).await;
    let theirs = world.kernel.syscall(&agent, work(text("a"))).await.unwrap();
    let status = answer_all(&world, &[&mine, &pending(theirs)], yes(Scope::Once)).await;
    assert!(
        matches!(&status, Status::Failed(failure) if failure.code == "approval.not_one_cause"),
        "{status:?}"
    );
    assert!(!done(&world.work(text("a")).await), "neither was answered");
}

#[tokio::test]
async fn a_question_budget_is_charged_once_for_a_batch() {
    let world = ProjectFixture::new(ASK, Arc::new(MemoryState::default())).await;
    let budget = Budget { approvals: Some(1), ..Budget::default() };
    let agent = world.agent(&world.kernel.operator(), "worker", Some(budget)).await;
    let call = |args: Value| world.kernel.syscall(&agent, work(args));
    let [a, b] = [pending(call(text("a")).await.unwrap()), pending(call(text("b")).await.unwrap())];
    assert_eq!(b.question.asked_with, Some(a.id.clone()));
    assert_eq!(answer_all(&world, &[&a, &b], yes(Scope::Once)).await, Status::Ok);
    assert!(done(&call(text("a")).await.unwrap()) && done(&call(text("b")).await.unwrap()));
    let Reply::Denied(denial) = call(text("c")).await.unwrap() else { panic!("a second question") };
    assert!(denial.reason.code.starts_with("budget."), "{denial:?}");
}

async fn ahead(world: &ProjectFixture, who: &Principal, args: Value) -> Option<AskedAhead> {
    world.kernel.kernel().ask_ahead(who, work(args)).await.unwrap()
}

#[tokio::test]
async fn asking_ahead_runs_nothing_and_uses_nothing_up() {
    let world = asking().await;
    let me = world.kernel.operator();
    let asked = ahead(&world, &me, text("a")).await.unwrap();
    assert_eq!((asked.is_new, world.runs(), world.questions().len()), (true, 0, 1));
    let size = || world.kernel.ledger().head().size;
    let before = size();
    let again = ahead(&world, &me, text("a")).await.unwrap();
    assert_eq!((again.is_new, &again.question.id), (false, &asked.question.id));
    assert_eq!(
        (size(), world.questions().len()),
        (before, 1),
        "a question that is open is not recorded again"
    );
    let ticket = pending(world.work(text("a")).await);
    assert_eq!(ticket.id, asked.question.id, "the call finds the question that was put for it");
    answer(&world, &ticket.id, yes(Scope::Once)).await;
    assert!(ahead(&world, &me, text("a")).await.is_none(), "it was approved");
    assert_eq!(world.runs(), 0);
    assert!(done(&world.work(text("a")).await), "the approval is still there");
    let open = ProjectFixture::new(OPEN, Arc::new(MemoryState::default())).await;
    let before = open.kernel.ledger().head().size;
    assert!(ahead(&open, &open.kernel.operator(), text("a")).await.is_none());
    assert_eq!((open.runs(), open.kernel.ledger().head().size), (0, before), "no trace");
}

#[tokio::test]
async fn asking_ahead_uses_up_neither_rates_nor_budgets() {
    let rated = |effect: &str| {
        format!(
            "version: 1\nmode: permissive\nrules:\n  - {{ id: seldom, effect: {effect}, match: {{ tool: work }}, rate: 1/hour }}\n"
        )
    };
    for effect in ["ask", "allow"] {
        let world = ProjectFixture::new(&rated(effect), Arc::new(MemoryState::default())).await;
        let budget = Budget { approvals: Some(1), calls: Some(1), ..Budget::default() };
        let agent = world.agent(&world.kernel.operator(), "worker", Some(budget)).await;
        let call = || async { world.kernel.syscall(&agent, work(text("a"))).await.unwrap() };
        for _ in 0..3 {
            assert_eq!(ahead(&world, &agent, text("a")).await.is_some(), effect == "ask");
        }
        if effect == "ask" {
            answer(&world, &pending(call().await).id, yes(Scope::Once)).await;
        }
        assert!(ahead(&world, &agent, text("a")).await.is_none(), "{effect}");
        let reply = call().await;
        assert!(done(&reply), "{effect}: {reply:?}");
        let Reply::Denied(_) = call().await else { panic!("{effect}: the one call is used up") };
    }
}

#[tokio::test]
async fn a_call_that_nobody_attends_is_denied_and_no_answer_is_remembered() {
    let world = asking().await;
    let agent = world.agent(&world.kernel.operator(), "worker", None).await;
    let alone = agent.unattended();
    let call = |who: &Principal, args: Value| {
        let (kernel, who) = (world.kernel.clone(), who.clone());
        async move { kernel.syscall(&who, work(args)).await.unwrap() }
    };
    let Reply::Denied(denial) = call(&alone, text("a")).await else { panic!("not denied") };
    assert_eq!(denial.reason.code, UNATTENDED);
    assert!(world.questions().is_empty(), "nobody is asked later either");
    let child = world.agent(&alone, "child", None).await;
    assert_eq!(code_of(call(&child, text("b")).await), UNATTENDED, "a child is as unattended");
    let ticket = pending(call(&agent, text("a")).await);
    assert_eq!(code_of(call(&alone, text("a")).await), UNATTENDED, "an open question is no answer");
    answer(&world, &ticket.id, yes(Scope::Once)).await;
    assert!(done(&call(&alone, text("a")).await), "an approval counts");
}
