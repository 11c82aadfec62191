//! Tasks that survive: a crash at every use of the disk, forks, replays, queues.

mod doubt;

use std::path::Path;
use std::sync::Arc;

use regent_kernel::{
    ApprovalAnswer, BoxFuture, Budget, Entry, Host, Inference, Kernel, Op, Reader, Scope, TaskId, Ticket,
};
use regent_ledger::storage::Sim;
use regent_ledger::storage::sim::Plan as Blow;
use regent_ledger::{Ledger, LedgerKey, Options as LedgerOptions};
use regent_store::MemoryState;
use regent_testkit::{Behaviour, Deed, Marks, Puppet, Says, TestKernel, spec};
use serde_json::json;

use crate::door::{Asker, Asking};
use crate::snapshot::{RESTORE, SnapshotOptions, Snapshots, restore_spec, run_restore};
use crate::{Checkpoints, Options, Priority, Runtime, TaskEnd, TaskError, TaskSpec, TaskState};

/// A project whose processes come and go; its disk, its shared state and the world stay.
struct Site {
    folder: tempfile::TempDir,
    state: Arc<MemoryState>,
    marks: Arc<Marks>,
    puppet: Puppet,
    store: Arc<Snapshots>,
}

impl Site {
    fn new(puppet: Puppet) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Snapshots::open(&folder.path().join("snapshots"), SnapshotOptions::default()).unwrap();
        Self { folder, state: Arc::default(), marks: Arc::default(), puppet, store: Arc::new(store) }
    }

    async fn boot(&self, disk: &Sim) -> Option<TestKernel> {
        let key = LedgerKey::load_or_create(&self.folder.path().join("key")).unwrap();
        let ledger = Ledger::open_on(Arc::new(disk.clone()), key, LedgerOptions::default()).ok()?;
        self.boot_on(ledger, self.folder.path()).await
    }

    async fn boot_on(&self, ledger: Ledger, folder: &Path) -> Option<TestKernel> {
        let mut reads = spec("look");
        (reads.effect, reads.idempotent) = (regent_kernel::SideEffect::Read, true);
        TestKernel::builder()
            .tool("mark", Behaviour::Mark(Arc::<Marks>::clone(&self.marks)))
            .tool_as(reads, Behaviour::Echo)
            .tool_as(restore_spec(), Behaviour::Deed(self.restoring()))
            .models(Arc::new(self.puppet.clone()))
            .state(Arc::<MemoryState>::clone(&self.state))
            .ledger(ledger)
            .folder(folder)
            .boot()
            .await
            .ok()
    }

    fn restoring(&self) -> Deed {
        let store = Arc::clone(&self.store);
        Deed::new(move |workspace, args| run_restore(&store, workspace, args))
    }

    /// A person who looks whether the mark was made, and says no to making it again.
    fn options(&self, test: &TestKernel) -> Options {
        let person = Person { marks: Arc::clone(&self.marks), host: test.kernel.clone() };
        Options { asker: Some(Arc::new(person)), ..Options::default() }
    }
}

#[derive(Debug)]
struct Person {
    marks: Arc<Marks>,
    host: Host,
}

impl Asker for Person {
    fn ask<'a>(&'a self, _kernel: &'a Kernel, ticket: &'a Ticket) -> BoxFuture<'a, Asking> {
        Box::pin(async move {
            let kernel = &self.host;
            let is_made =
                self.marks.all().iter().any(|id| meant(kernel, &ticket.summary).contains(&id.to_string()));
            let answer = if is_made {
                ApprovalAnswer::Deny { because: Some("it was made".to_owned()) }
            } else {
                ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 60_000 }
            };
            // Nothing counts before the question can have been read.
            tokio::time::sleep(std::time::Duration::from_millis(ticket.question.read_ms / 4 + 1)).await;
            let answered = kernel
                .syscall(
                    &kernel.operator(),
                    Op::Answer { ticket: ticket.id.clone(), with: Vec::new(), answer },
                )
                .await;
            if answered.is_ok() { Asking::Answered } else { Asking::Later }
        })
    }
}

/// What a question is about. One about a call in doubt names the entry; a reviewer looks it up in the ledger.
fn meant(kernel: &Host, summary: &str) -> String {
    let numbers: Vec<u64> =
        summary.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let (true, [seq, lane]) = (summary.starts_with("repeat"), numbers.as_slice()) else {
        return summary.to_owned();
    };
    let entries = Reader::on(kernel.ledger().storage()).entries().unwrap().map(Result::unwrap);
    let lane_of =
        |entry: &Entry| entry.lane.to_string().chars().filter(char::is_ascii_digit).collect::<String>();
    let mut asked = entries.filter(|entry| entry.seq == *seq && lane_of(entry).parse() == Ok(*lane));
    let digest =
        asked.next().unwrap().body.pointer("/args/sha256").unwrap().as_str().unwrap().parse().unwrap();
    String::from_utf8(kernel.ledger().payload(&digest).unwrap().unwrap()).unwrap()
}

fn finish(answer: &str) -> Says {
    Says::call("task.finish", json!({"answer": answer}))
}

/// Reads, makes two marks side by side, makes a third, and finishes.
fn worker() -> Puppet {
    let mark = |id: u64| ("mark".to_owned(), json!({"id": id}));
    Puppet::script(vec![
        Says::call("look", json!({"at": "a"})),
        Says::Calls(vec![mark(101), mark(102)]),
        Says::Calls(vec![mark(103)]),
        finish("three marks"),
    ])
}

/// Snapshots after each turn that changes something.
fn each_turn(site: &Site, test: &TestKernel) -> Checkpoints {
    let (store, workspace) = (Arc::clone(&site.store), test.kernel.workspace().clone());
    Checkpoints { store, workspace, every_turns: 1, every_ms: 600_000, rest_times: 0 }
}

fn quick(goal: &str) -> TaskSpec {
    TaskSpec { backoff_ms: 1, retries_max: 1, ..TaskSpec::new(goal) }
}

async fn finished(runtime: &Runtime, spec: TaskSpec) -> TaskEnd {
    runtime.run(spec).await.unwrap().ended().await.unwrap()
}

/// Runs a task on a disk that dies at one operation, then resumes it on what is left, and says how it ended.
async fn crash_and_resume(crash_at: u64) -> Option<(Site, TestKernel, TaskId, TaskEnd)> {
    let site = Site::new(worker());
    let disk = Sim::new(crash_at);
    disk.plan(Blow { crash_at: Some(crash_at), ..Blow::default() });
    let accepted = match site.boot(&disk).await {
        Some(test) => match Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test))
            .run(quick("mark"))
            .await
        {
            Ok(mut handle) => {
                handle.ended().await;
                Some(handle.task.clone())
            }
            Err(_) => None,
        },
        None => None,
    };
    let after = disk.after_kill();
    let test = site.boot(&after).await.unwrap();
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test));
    let task = accepted?;
    let end = match runtime.resume(&task).await {
        Ok(mut handle) => handle.ended().await.unwrap(),
        // All of it had been written before the disk died.
        Err(TaskError::Over(..)) => return None,
        Err(error) => panic!("{crash_at}: {error}"),
    };
    Some((site, test, task, end))
}

/// The task's tape, for the words of a failure.
fn describe_tape(kernel: &Host, task: &TaskId) -> String {
    let tapes = crate::task::read(&kernel.records(), |one| one == task).unwrap();
    let line = |step: &crate::task::Recorded| {
        let end = step.end.as_ref().map_or_else(|| "no end".to_owned(), |end| end.status.word().to_owned());
        format!("{} {} {} {:?}: {end}", step.step, step.op, step.verdict, step.why)
    };
    tapes.values().flat_map(|tape| &tape.steps).map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn adv_096_a_crash_at_every_use_of_the_disk_is_survived_and_no_effect_is_made_twice() {
    let site = Site::new(worker());
    let disk = Sim::new(1);
    let test = site.boot(&disk).await.unwrap();
    let booted = disk.operations();
    let undisturbed = finished(
        &Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test)),
        quick("mark"),
    )
    .await;
    assert_eq!(undisturbed.answer.as_ref().unwrap().text, "three marks");
    let operations = disk.operations();
    let mut resumed = 0;
    for crash_at in booted..operations {
        let Some((site, test, task, end)) = crash_and_resume(crash_at).await else { continue };
        resumed += 1;
        assert_eq!(end.state, TaskState::Finalized, "{crash_at}: {:?}", end.why);
        // A mark that was found to be made isn't made again, so what was done may differ; the answer doesn't.
        let said = |end: &TaskEnd| end.answer.as_ref().map(|answer| (answer.text.clone(), answer.turns));
        assert_eq!(said(&end), said(&undisturbed), "{crash_at}");
        let mut marks = site.marks.all();
        marks.sort_unstable();
        let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test));
        assert_eq!(marks, [101, 102, 103], "{crash_at}: {}", describe_tape(&test.kernel, &task));
        let view = runtime.task(&task).unwrap();
        assert_eq!((view.state, view.spent.tokens), (TaskState::Finalized, end.spent.tokens), "{crash_at}");
    }
    assert!(resumed > 20, "only {resumed} of {} points led to a resume", operations - booted);
}

#[tokio::test]
async fn a_task_that_is_killed_again_and_again_still_ends_once() {
    for seed in 0..12_u64 {
        let site = Site::new(worker());
        let mut disk = Sim::new(seed);
        let test = site.boot(&disk).await.unwrap();
        let task = {
            let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test));
            // Dies soon after it was taken.
            disk.plan(Blow { crash_at: Some(disk.operations() + 12 + seed), ..Blow::default() });
            match runtime.run(quick("mark")).await {
                Ok(mut handle) => {
                    handle.ended().await;
                    handle.task.clone()
                }
                Err(_) => continue,
            }
        };
        let mut lives = 0_u64;
        let end = loop {
            lives += 1;
            assert!(lives < 60, "{seed}");
            disk = disk.after_kill();
            let test = site.boot(&disk).await.unwrap();
            let strike = disk.operations() + 20 + (seed * 7 + lives * 5) % 43;
            disk.plan(Blow { crash_at: Some(strike), ..Blow::default() });
            let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test));
            match runtime.resume(&task).await {
                Ok(mut handle) => {
                    let end = handle.ended().await.unwrap();
                    if end.state.is_over() {
                        break end.answer.map(|answer| answer.text);
                    }
                }
                Err(TaskError::Over(..)) => break runtime.task(&task).unwrap().answer,
                Err(_) => {}
            }
        };
        assert_eq!(end.as_deref(), Some("three marks"), "{seed}");
        let mut marks = site.marks.all();
        marks.sort_unstable();
        assert_eq!(marks, [101, 102, 103], "{seed}");
    }
}

#[tokio::test]
async fn a_replay_asks_no_model_and_runs_no_tool_and_gives_the_same_prompts() {
    let site = Site::new(worker());
    let test = site.boot(&Sim::new(1)).await.unwrap();
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test));
    let end = finished(&runtime, quick("mark")).await;
    let (asked, marks) = (site.puppet.asked(), site.marks.all());
    let replayed = runtime.replay(&end.task).await.unwrap();
    assert!(replayed.same && replayed.answer.text == end.answer.unwrap().text, "{replayed:?}");
    assert_eq!(replayed.steps, 8);
    assert_eq!((site.puppet.asked(), site.marks.all()), (asked, marks));
    assert!(runtime.diff(&end.task, &end.task).unwrap().is_empty());
}

#[tokio::test]
async fn a_replay_of_a_task_that_is_not_finished_stops_where_the_ledger_does() {
    let site = Site::new(Puppet::new(|_| Says::Text(String::new())));
    let test = site.boot(&Sim::new(1)).await.unwrap();
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test));
    let mut spec = quick("say nothing");
    spec.limits.turns_max = 2;
    let end = finished(&runtime, spec).await;
    let asked = site.puppet.asked();
    assert!(runtime.replay(&end.task).await.is_err());
    assert_eq!(site.puppet.asked(), asked);
}

#[tokio::test]
async fn a_fork_shares_what_came_before_and_goes_its_own_way_with_another_model() {
    let head = |inference: &Inference| {
        let spoken = inference.messages.iter().filter(|message| message.has_calls()).count();
        match (spoken, inference.model.as_str()) {
            (0, _) => Says::call("mark", json!({"id": 1})),
            (1, "test/bold") => Says::call("mark", json!({"id": 3})),
            (1, _) => Says::call("mark", json!({"id": 2})),
            (_, model) => finish(model),
        }
    };
    let site = Site::new(Puppet::new(head));
    let test = site.boot(&Sim::new(1)).await.unwrap();
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test));
    let first = finished(&runtime, TaskSpec { model: "test/shy".to_owned(), ..quick("mark") }).await;
    let mut handle = runtime.fork(&first.task, "2", Some("test/bold".to_owned())).await.unwrap();
    let second = handle.ended().await.unwrap();
    assert_eq!(second.answer.unwrap().text, "test/bold");
    // The first mark was shared, not made again.
    assert_eq!(site.marks.all(), [1, 2, 3]);
    let parted: Vec<String> =
        runtime.diff(&first.task, &second.task).unwrap().into_iter().map(|one| one.step).collect();
    assert_eq!(parted, ["2/think", "2/tool/0", "3/think"]);
    let replayed = runtime.replay(&second.task).await.unwrap();
    assert!(replayed.same);
    let third = runtime.fork(&second.task, "1", None).await.unwrap().ended().await.unwrap();
    assert_eq!(third.state, TaskState::Finalized);
    assert_eq!(site.marks.all(), [1, 2, 3, 1, 3]);
}

#[tokio::test]
async fn a_task_out_of_budget_waits_and_goes_on_when_there_is_more() {
    let site = Site::new(worker());
    let disk = Sim::new(1);
    let test = site.boot(&disk).await.unwrap();
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test));
    let mut spec = quick("mark");
    (spec.limits.answer_tokens_max, spec.budget.tokens) = (5, Some(35));
    let end = finished(&runtime, spec).await;
    assert_eq!(end.state, TaskState::Pending, "{:?}", end.why);
    assert!(runtime.resume_all().await.unwrap().is_empty(), "it waits for someone");
    let again = runtime.resume(&end.task).await.unwrap().ended().await.unwrap();
    assert_eq!((again.state, again.spent.tokens), (TaskState::Pending, end.spent.tokens));
}

#[tokio::test]
async fn cancelling_stops_before_the_next_step_and_is_final() {
    let site =
        Site::new(Puppet::new(|inference| Says::call("mark", json!({"id": inference.messages.len()}))));
    let test = site.boot(&Sim::new(1)).await.unwrap();
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test));
    let mut handle = runtime.run(quick("mark for ever")).await.unwrap();
    while site.marks.all().len() < 2 {
        tokio::task::yield_now().await;
    }
    runtime.cancel(&handle.task).await.unwrap();
    assert_eq!(handle.ended().await.unwrap().state, TaskState::Finalized);
    let task = handle.task.clone();
    assert!(matches!(runtime.resume(&task).await, Err(TaskError::Over(..))));
    assert!(matches!(runtime.cancel(&task).await, Err(TaskError::Over(..))));
    assert!(matches!(runtime.task(&TaskId::new("t-none").unwrap()), Err(TaskError::Unknown(_))));
}

#[tokio::test]
async fn a_thousand_tasks_run_at_once() {
    let site = Site::new(Puppet::script(vec![Says::call("look", json!({"at": 1})), finish("seen")]));
    let test = site.boot(&Sim::new(1)).await.unwrap();
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test));
    let mut handles = Vec::new();
    for number in 0..1_000 {
        let priority = if number % 10 == 0 { Priority::High } else { Priority::Normal };
        handles.push(runtime.run(TaskSpec { priority, ..quick("look") }).await.unwrap());
    }
    for handle in &mut handles {
        assert_eq!(handle.ended().await.unwrap().state, TaskState::Finalized);
    }
    assert_eq!(runtime.tasks().unwrap().len(), 1_000);
}

#[tokio::test]
async fn what_waited_in_the_queue_is_taken_up_again() {
    let site = Site::new(Puppet::script(vec![finish("done")]));
    let disk = Sim::new(1);
    let test = site.boot(&disk).await.unwrap();
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test));
    let mut tasks = Vec::new();
    for _ in 0..20 {
        // Recorded, and then the process is gone.
        tasks.push(runtime.run(quick("wait")).await.unwrap().task.clone());
    }
    let test = site.boot(&disk.after_kill()).await.unwrap();
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), site.options(&test));
    let mut handles = runtime.resume_all().await.unwrap();
    for handle in &mut handles {
        assert_eq!(handle.ended().await.unwrap().answer.unwrap().text, "done");
    }
    let views = runtime.tasks().unwrap();
    assert!(tasks.iter().all(|task| {
        views.iter().any(|view| view.record.task == *task && view.state == TaskState::Finalized)
    }));
}

#[tokio::test]
async fn two_processes_do_not_run_one_task() {
    let site =
        Site::new(Puppet::new(|inference| Says::call("hangs", json!({"n": inference.messages.len()}))));
    let test = site.boot(&Sim::new(1)).await.unwrap();
    let locks = site.folder.path().join("locks");
    let options = || Options { locks: Some(locks.clone()), ..site.options(&test) };
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), options());
    let handle = runtime.run(quick("hang")).await.unwrap();
    let other = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), options());
    assert!(matches!(other.resume(&handle.task).await, Err(TaskError::Busy(_))));
    assert!(matches!(runtime.resume(&handle.task).await, Err(TaskError::Busy(_))));
    assert!(crate::is_running(&locks, &handle.task).unwrap());
    assert!(!crate::is_running(&locks, &TaskId::new("t-other").unwrap()).unwrap());
}

#[tokio::test]
async fn d11_a_resumed_task_goes_back_to_before_it_was_interrupted() {
    let site = Site::new(worker());
    let test = site.boot(&Sim::new(1)).await.unwrap();
    let options = Options { snapshots: Some(each_turn(&site, &test)), ..site.options(&test) };
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), options);
    let mut spec = quick("mark");
    (spec.limits.answer_tokens_max, spec.budget.tokens) = (5, Some(35));
    let task = finished(&runtime, spec).await.task;
    std::fs::write(test.workspace().join("made-meanwhile"), "x").unwrap();
    runtime.set_budget(&task, Budget::default()).await.unwrap();
    let end = runtime.resume(&task).await.unwrap().ended().await.unwrap();
    assert_eq!(end.state, TaskState::Finalized);

    let taken = runtime.task(&task).unwrap().snapshots;
    let steps: Vec<&str> = taken.iter().map(|(_, step)| step.as_str()).collect();
    assert!(steps.len() > 2 && steps[1..].iter().all(|step| *step != "0"), "{steps:?}");
    assert!(steps.is_sorted_by(|one, other| crate::door::is_before(one, other)), "{steps:?}");
    let restored = runtime.rollback(&task, "1").await.unwrap();
    assert_eq!(restored.removed, ["made-meanwhile"]);
}

#[tokio::test]
async fn snapshots_of_the_workspace_are_taken_at_milestones_and_noted() {
    let site = Site::new(worker());
    let test = site.boot(&Sim::new(1)).await.unwrap();
    let options = Options { snapshots: Some(each_turn(&site, &test)), ..site.options(&test) };
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), options);
    let end = finished(&runtime, quick("mark")).await;
    let steps: Vec<String> =
        runtime.task(&end.task).unwrap().snapshots.into_iter().map(|(_, step)| step).collect();
    assert_eq!(steps, ["0", "2", "3"]);

    let file = test.workspace().join("made-later");
    std::fs::write(&file, "x").unwrap();
    let restored = runtime.rollback(&end.task, "2/tool/1").await.unwrap();
    assert!(restored.removed == ["made-later"] && !file.exists(), "{restored:?}");
    let view = runtime.task(&end.task).unwrap();
    assert!(view.state == TaskState::Finalized && view.why.unwrap().contains("after step `0`"));
    assert!(runtime.rollback(&end.task, "0").await.is_err());

    // The intent was in the ledger before a file changed, with the snapshot that undoes it; no agent can make that call.
    let tape =
        crate::task::read(&test.kernel.records(), |one| *one == end.task).unwrap().remove(&end.task).unwrap();
    let place = |step: &str| tape.steps.iter().position(|one| one.step.ends_with(step)).unwrap();
    assert!(place("/before") < place("/restore") && place("/restore") < place("/rollback"));
    assert_eq!(tape.steps[place("/restore")].tool.as_deref(), Some(RESTORE));
    assert!(view.snapshots.iter().any(|(id, after)| *id == restored.before && after == "rollback"));
    let agent = regent_testkit::test_kernel::spawn(&test.kernel, "worker").await.unwrap();
    let args = json!({"task": "t", "snapshot": restored.before, "before": restored.before});
    let reply = test.kernel.syscall(&agent, regent_testkit::run(RESTORE, args)).await.unwrap();
    let regent_kernel::Reply::Denied(denial) = reply else { panic!("{reply:?}") };
    assert_eq!(denial.reason.code, "tool.operator_only");
}
