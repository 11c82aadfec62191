//! Several calls of one turn that need an approval: one question, one answer, one denial; and tasks that nobody attends.

use std::sync::atomic::{AtomicU32, Ordering};

use regent_kernel::{ApprovalAnswer, Budget, Kernel, Op, OpenQuestion, Scope, Ticket, UNATTENDED};

use super::*;
use crate::door::{Asker, Asking};
use crate::event::Event;

const ASK: &str = "version: 1\nrules:\n  - { id: rest, effect: allow }\n  - { id: ask, effect: ask, match: { tool: mark } }\n";

/// A person who answers all open questions at once.
#[derive(Debug)]
struct Person {
    host: Host,
    answer: ApprovalAnswer,
    asked: Arc<AtomicU32>,
}

impl Asker for Person {
    fn ask<'a>(&'a self, _kernel: &'a Kernel, _ticket: &'a Ticket) -> BoxFuture<'a, Asking> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::AcqRel);
            let host = &self.host;
            let listed = host.syscall(&host.operator(), Op::Questions).await;
            let Ok(Reply::Done(listed)) = listed else { return Asking::Later };
            let open: Vec<OpenQuestion> = serde_json::from_slice(listed.output.bytes()).unwrap();
            let read_ms: u64 = open.iter().map(|one| one.read_ms).sum();
            tokio::time::sleep(std::time::Duration::from_millis(read_ms / 4 + 50)).await;
            let mut ids = open.into_iter().map(|one| one.id);
            let op =
                Op::Answer { ticket: ids.next().unwrap(), with: ids.collect(), answer: self.answer.clone() };
            match host.syscall(&host.operator(), op).await {
                Ok(Reply::Done(told)) if told.status == regent_kernel::Status::Ok => Asking::Answered,
                _refused => Asking::Later,
            }
        })
    }
}

fn three() -> Puppet {
    let mark = |id: u32| ("mark".to_owned(), json!({"id": id}));
    Puppet::script(vec![Says::Calls(vec![mark(1), mark(2), mark(3)]), finish("done")])
}

async fn with_person(answer: ApprovalAnswer) -> (Stage, TaskEnd, u32) {
    let stage = stage(ASK, three()).await;
    let asked = Arc::new(AtomicU32::new(0));
    let person = Person { host: stage.test.kernel.clone(), answer, asked: Arc::clone(&asked) };
    let options = Options { asker: Some(Arc::new(person)), ..Options::default() };
    let runtime = Runtime::new(stage.test.kernel.kernel(), stage.test.kernel.task_owner(), options);
    let end = runtime.run(quick("mark")).await.unwrap().ended().await.unwrap();
    let asked = asked.load(Ordering::Acquire);
    (stage, end, asked)
}

#[tokio::test]
async fn calls_of_one_turn_are_one_question_and_run_in_their_order() {
    let (stage, end, asked) =
        with_person(ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 60_000 }).await;
    assert_eq!((end.answer.unwrap().text.as_str(), asked), ("done", 1));
    assert_eq!(stage.marks.all(), [1, 2, 3]);
}

/// Says that there is an answer before there is one, once.
#[derive(Debug)]
struct Hasty(Person);

impl Asker for Hasty {
    fn ask<'a>(&'a self, kernel: &'a Kernel, ticket: &'a Ticket) -> BoxFuture<'a, Asking> {
        if self.0.asked.fetch_add(1, Ordering::AcqRel) == 0 {
            return Box::pin(async { Asking::Answered });
        }
        self.0.ask(kernel, ticket)
    }
}

#[tokio::test]
async fn a_question_is_reported_and_counted_once_however_often_its_call_is_made() {
    let stage = stage(ASK, three()).await;
    let answer = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 60_000 };
    let person = Person { host: stage.test.kernel.clone(), answer, asked: Arc::default() };
    let options = Options { asker: Some(Arc::new(Hasty(person))), ..Options::default() };
    let runtime = Runtime::new(stage.test.kernel.kernel(), stage.test.kernel.task_owner(), options);
    let spec = TaskSpec { budget: Budget { approvals: Some(5), ..Budget::default() }, ..quick("mark") };
    let mut handle = runtime.run(spec).await.unwrap();
    let (mut tickets, mut left) = (Vec::new(), None);
    while let Ok(event) = handle.events.recv().await {
        if let Event::Asked { ticket, .. } = &event {
            tickets.push(ticket.clone());
        }
        if let Event::Used { left: now, .. } = &event {
            left = now.approvals;
        }
    }
    assert_eq!(handle.ended().await.unwrap().answer.unwrap().text, "done");
    assert_eq!((tickets.len(), left), (3, Some(4)), "{tickets:?}");
    let size = tickets.iter().collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!(size, 3, "{tickets:?}");
}

#[tokio::test]
async fn a_denial_of_several_calls_is_reported_once() {
    let (stage, end, asked) =
        with_person(ApprovalAnswer::Deny { because: Some("use echo".to_owned()) }).await;
    assert_eq!((end.answer.unwrap().text.as_str(), asked), ("done", 1));
    assert!(stage.marks.all().is_empty());
    let heard = stage.puppet.requests();
    let told: Vec<_> =
        heard[1].messages.iter().filter(|message| message.role == Role::Tool).map(Message::text).collect();
    assert!(told[0].contains("use echo"), "{told:?}");
    assert_eq!(told[1..], ["[denied (approval.denied): this call was denied too, as above]"; 2]);
}

#[tokio::test]
async fn a_task_that_waits_has_put_all_questions_of_its_turn() {
    let stage = stage(ASK, three()).await;
    let end = run(&stage.test.kernel, quick("mark")).await;
    let StopCause::Waiting { ticket, last, .. } = &*end.why.unwrap() else { panic!("it does not wait") };
    assert_ne!(ticket, last, "an answer to the last one is for all");
    let Ok(Reply::Done(listed)) =
        stage.test.kernel.syscall(&stage.test.kernel.operator(), Op::Questions).await
    else {
        panic!("no questions")
    };
    let open: Vec<OpenQuestion> = serde_json::from_slice(listed.output.bytes()).unwrap();
    let last = open.iter().find(|one| one.id == *last).unwrap();
    assert_eq!((open.len(), last.number), (3, 3));
    assert!(open.iter().all(|one| one.cause == last.cause && one.cause.is_some()));
    assert!(stage.marks.all().is_empty());
}

#[tokio::test]
async fn a_call_that_is_free_keeps_its_place_in_the_turn() {
    let policy = "version: 1\nrules:\n  - { id: rest, effect: allow }\n  - { id: ask, effect: ask, match: { tool: mark, args: { /id: 1 } } }\n";
    let stage = stage(policy, three()).await;
    let end = run(&stage.test.kernel, quick("mark")).await;
    assert!(matches!(&*end.why.unwrap(), StopCause::Waiting { .. }));
    assert!(stage.marks.all().is_empty(), "2 and 3 are allowed, and come after 1");
}

#[tokio::test]
async fn a_task_that_nobody_attends_goes_on_and_lists_what_it_left_undone() {
    let stage = stage(ASK, three()).await;
    let options = Options { unattended: true, ..Options::default() };
    let runtime = Runtime::new(stage.test.kernel.kernel(), stage.test.kernel.task_owner(), options);
    let end = runtime.run(quick("mark")).await.unwrap().ended().await.unwrap();
    assert_eq!(end.answer.unwrap().text, "done");
    let steps: Vec<&str> = end.undone.iter().map(|one| one.step.as_str()).collect();
    assert_eq!(steps, ["1/tool/0", "1/tool/1", "1/tool/2"]);
    assert!(end.undone[0].call.starts_with("mark "), "{:?}", end.undone);
    assert!(stage.marks.all().is_empty());
    assert!(last_of(&stage.puppet.requests()[1]).contains(UNATTENDED), "the agent gets the reason");
}
