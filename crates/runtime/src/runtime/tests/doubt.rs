//! A call that a crash cut off is checked, not asked about, where the file that it writes tells what became of it.

use std::sync::atomic::{AtomicU32, Ordering};

use regent_tools::{Broker, Network};

use super::*;

/// Counts the questions, and leaves them to somebody else.
#[derive(Debug, Default)]
struct Counts(AtomicU32);

impl Asker for Counts {
    fn ask<'a>(&'a self, _kernel: &'a Kernel, _ticket: &'a Ticket) -> BoxFuture<'a, Asking> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Asking::Later })
    }
}

/// A project whose agent works with the real file tools.
struct Desk {
    site: Site,
    asked: Arc<Counts>,
}

const FILES: [(&str, &str); 2] = [("deep/list", "1\ntwo\n"), ("note", "final")];

/// Creates, appends, edits, replaces, and makes two calls that fail. None of these calls is idempotent.
fn writer() -> Puppet {
    let write = |path: &str, mode: &str, content: &str| {
        ("fs.write".to_owned(), json!({"path": path, "mode": mode, "content": content}))
    };
    let edit =
        |old: &str, new: &str| ("fs.edit".to_owned(), json!({"path": "deep/list", "old": old, "new": new}));
    Puppet::script(vec![
        Says::Calls(vec![write("deep/list", "create", "one\n")]),
        Says::Calls(vec![write("deep/list", "append", "two\n"), write("note", "replace", "draft")]),
        Says::Calls(vec![edit("one", "1"), edit("three", "3")]),
        Says::Calls(vec![write("note", "replace", "final"), write("note", "create", "lost")]),
        finish("written"),
    ])
}

impl Desk {
    fn new() -> Self {
        Self::with(writer())
    }

    fn with(puppet: Puppet) -> Self {
        Self { site: Site::new(puppet), asked: Arc::default() }
    }

    async fn boot(&self, disk: &Sim) -> Option<(TestKernel, Runtime)> {
        let folder = self.site.folder.path();
        let key = LedgerKey::load_or_create(&folder.join("key")).unwrap();
        let ledger = {
            let options = LedgerOptions { witness: Some(folder.join("witness")), ..LedgerOptions::default() };
            Ledger::open_on(Arc::new(disk.clone()), key, options).ok()?
        };
        let broker = Broker::new(Network::default(), &folder.join("broker"));
        let tools =
            regent_tools::hosted(&broker).into_iter().filter(|(spec, _)| spec.name.starts_with("fs."));
        let test = tools
            .fold(TestKernel::builder(), |builder, (spec, driver)| builder.driven(spec, driver))
            .models(Arc::new(self.site.puppet.clone()))
            .state(Arc::<MemoryState>::clone(&self.site.state))
            .ledger(ledger)
            .folder(folder)
            .boot()
            .await
            .ok()?;
        let asker = Some(Arc::<Counts>::clone(&self.asked) as Arc<dyn Asker>);
        let options = Options { asker, ..Options::default() };
        let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), options);
        Some((test, runtime))
    }

    /// Runs the task on a disk that dies at one operation. Gives what is left of the disk, and the task if it was accepted.
    async fn killed(&self, crash_at: u64) -> (Sim, Option<TaskId>) {
        let disk = Sim::new(crash_at);
        disk.plan(Blow { crash_at: Some(crash_at), ..Blow::default() });
        let mut task = None;
        if let Some((_test, runtime)) = self.boot(&disk).await
            && let Ok(mut handle) = runtime.run(quick("write")).await
        {
            handle.ended().await;
            task = Some(handle.task.clone());
        }
        assert_eq!(self.asked.0.load(Ordering::Relaxed), 0, "nothing is asked before the crash");
        (disk.after_kill(), task)
    }

    fn path(&self, file: &str) -> std::path::PathBuf {
        self.site.folder.path().join("workspace").join(file)
    }

    fn read(&self) -> Vec<Option<String>> {
        FILES.iter().map(|(file, _)| std::fs::read_to_string(self.path(file)).ok()).collect()
    }
}

fn written() -> Vec<Option<String>> {
    FILES.iter().map(|(_, content)| Some((*content).to_owned())).collect()
}

/// The uses of the disk that a whole run takes: when it is up, and when it is over.
async fn points() -> std::ops::Range<u64> {
    let desk = Desk::new();
    let disk = Sim::new(1);
    let (_test, runtime) = desk.boot(&disk).await.unwrap();
    let booted = disk.operations();
    let end = finished(&runtime, quick("write")).await;
    assert_eq!(end.answer.unwrap().text, "written");
    assert_eq!(desk.read(), written());
    booted..disk.operations()
}

/// Copies, moves and deletes, files and folders. None of these calls is idempotent but the one that makes a folder.
fn mover() -> Puppet {
    let call = |tool: &str, args: serde_json::Value| Says::Calls(vec![(tool.to_owned(), args)]);
    let tree = |from: &str, to: &str| json!({"from": from, "to": to, "recursive": true});
    Puppet::script(vec![
        call("fs.mkdir", json!({"path": "new"})),
        call("fs.write", json!({"path": "a/deep/one", "mode": "create", "content": "1"})),
        call("fs.copy", tree("a", "b")),
        call("fs.move", tree("b", "c/d")),
        call("fs.copy", json!({"from": "a/deep/one", "to": "c/one"})),
        call("fs.copy", json!({"from": "a/deep/one", "to": "c/one"})),
        call("fs.delete", json!({"path": "a", "recursive": true})),
        call("fs.move", json!({"from": "c/one", "to": "two"})),
        finish("written"),
    ])
}

#[tokio::test]
async fn adv_098_a_crash_leads_to_no_question_about_a_copy_a_move_or_a_deletion() {
    let is_done = |desk: &Desk| {
        let there = ["new", "c/d/deep/one", "two"].iter().all(|path| desk.path(path).exists());
        there && ["a", "b", "c/one"].iter().all(|path| !desk.path(path).exists())
    };
    let desk = Desk::with(mover());
    let disk = Sim::new(1);
    let (_test, runtime) = desk.boot(&disk).await.unwrap();
    let booted = disk.operations();
    assert_eq!(finished(&runtime, quick("write")).await.answer.unwrap().text, "written");
    assert!(is_done(&desk));
    let mut seen: Vec<String> = Vec::new();
    for crash_at in booted..disk.operations() {
        let desk = Desk::with(mover());
        let (disk, task) = desk.killed(crash_at).await;
        let Some(task) = task else { continue };
        let (test, runtime) = desk.boot(&disk).await.unwrap();
        seen.extend(effects(&test));
        if let Ok(mut handle) = runtime.resume(&task).await {
            let end = handle.ended().await.unwrap();
            assert_eq!(end.state, TaskState::Finalized, "{crash_at}: {:?}", end.why);
        }
        assert!(is_done(&desk), "{crash_at}: {}", describe_tape(&test.kernel, &task));
        assert_eq!(desk.asked.0.load(Ordering::Relaxed), 0, "{crash_at}");
    }
    for effect in ["done", "not_done"] {
        assert!(seen.iter().any(|one| one == effect), "no call was found {effect}: {seen:?}");
    }
    assert!(!seen.iter().any(|one| one == "unknown"), "{seen:?}");
}

/// What the kernel noted at boot about calls in doubt that can't simply be repeated.
fn effects(test: &TestKernel) -> Vec<String> {
    let entries = Reader::on(test.kernel.ledger().storage()).entries().unwrap().map(Result::unwrap);
    let is_note = |entry: &Entry| {
        entry.body.get("status").is_some_and(|status| status == "in_doubt")
            && entry.body["idempotent"] == false
    };
    entries.filter(is_note).map(|note| note.body["effect"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn adv_098_a_crash_at_every_use_of_the_disk_leads_to_no_question_about_a_file() {
    let mut seen: Vec<String> = Vec::new();
    let mut resumed = 0;
    for crash_at in points().await {
        let desk = Desk::new();
        let (disk, task) = desk.killed(crash_at).await;
        let Some(task) = task else { continue };
        let (test, runtime) = desk.boot(&disk).await.unwrap();
        seen.extend(effects(&test));
        match runtime.resume(&task).await {
            Ok(mut handle) => {
                let end = handle.ended().await.unwrap();
                assert_eq!(end.state, TaskState::Finalized, "{crash_at}: {:?}", end.why);
                assert_eq!(end.answer.unwrap().text, "written", "{crash_at}");
                resumed += 1;
            }
            Err(TaskError::Over(..)) => {}
            Err(error) => panic!("{crash_at}: {error}"),
        }
        assert_eq!(desk.read(), written(), "{crash_at}: {}", describe_tape(&test.kernel, &task));
        assert_eq!(desk.asked.0.load(Ordering::Relaxed), 0, "{crash_at}");
        assert!(test.kernel.in_doubt().iter().all(|call| call.idempotent), "{crash_at}");
        // What was settled stays settled: the next process finds nothing to check, and the tape can be replayed.
        assert!(runtime.replay(&task).await.unwrap().same, "{crash_at}");
    }
    assert!(resumed > 20, "only {resumed} points led to a resume");
    for effect in ["done", "not_done"] {
        assert!(seen.iter().any(|one| one == effect), "no call was found {effect}: {seen:?}");
    }
    assert!(!seen.iter().any(|one| one == "unknown"), "{seen:?}");
}

type Change = fn(&Desk, &Path);

/// Kills the task at each point, changes both files, and resumes it. Gives how the runs with a file tool in doubt ended.
async fn changed_meanwhile(change: Change) -> Vec<TaskState> {
    let mut states = Vec::new();
    // Each write takes several uses of the disk.
    for crash_at in points().await.step_by(3) {
        let desk = Desk::new();
        let (disk, task) = desk.killed(crash_at).await;
        FILES.iter().for_each(|(file, _)| change(&desk, &desk.path(file)));
        let before = desk.read();
        let (test, runtime) = desk.boot(&disk).await.unwrap();
        let found = effects(&test);
        assert!(found.iter().all(|effect| effect == "unknown"), "{crash_at}: {found:?}");
        let (Some(task), false) = (task, found.is_empty()) else { continue };
        let end = runtime.resume(&task).await.unwrap().ended().await.unwrap();
        assert_eq!(desk.read(), before, "{crash_at}: {:?}", end.why);
        states.push(end.state);
    }
    assert!(states.len() > 5, "{states:?}");
    states
}

#[tokio::test]
async fn adv_098_a_file_that_somebody_changed_meanwhile_is_asked_about_and_left_alone() {
    let states = changed_meanwhile(|_, file| {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let old = std::fs::read_to_string(file).unwrap_or_default();
        std::fs::write(file, format!("{old}mine\n")).unwrap();
    });
    assert!(states.await.iter().all(|state| *state == TaskState::Pending));
}

#[tokio::test]
async fn adv_098_a_link_to_the_right_content_outside_of_the_workspace_proves_nothing() {
    let states = changed_meanwhile(|desk, file| {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let outside = desk.site.folder.path().join(file.file_name().unwrap());
        if std::fs::rename(file, &outside).is_err() {
            std::fs::write(&outside, "").unwrap();
        }
        std::os::unix::fs::symlink(&outside, file).unwrap();
    });
    states.await;
}
