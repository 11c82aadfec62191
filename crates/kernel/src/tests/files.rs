//! Calls about files. Labels of what tools of ours write: noted before the effect, kept by what an edit leaves, and in batches. Approvals of
//! folders: bound to what is in them.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use serde_json::{Value, json};

use super::alone::{ALLOW_ALL, KernelFixture, named, run};
use super::requests::word;
use regent_policy::ArgLabels;

use crate::carried::Span;
use crate::{
    Access, ApprovalAnswer, ArgumentKind, BoxFuture, Digest, ExecuteError, Executor, FileState, Foreseen,
    Integrity, Label, Op, Permit, Principal, RawOutput, Reply, Scope, SideEffect, Status, Tier, ToolCall,
    ToolSpec, tier,
};

/// Files in the place of tools: each does what its name says.
#[derive(Debug)]
struct Files;

impl Files {
    fn added(before: Option<&[u8]>, args: &Value) -> Vec<u8> {
        [before.unwrap_or_default(), args["text"].as_str().unwrap().as_bytes()].concat()
    }
}

impl Executor<tier::Host> for Files {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let (args, root) = (permit.args().clone(), permit.workspace().root().to_owned());
            let Op::RunTool(run) = permit.call().op() else { panic!("no tool") };
            let at = |name: &str| args[name].as_str().map(|path| root.join(path));
            let done = RawOutput::json(&json!("done"));
            match run.tool.as_str() {
                "test.web" => {
                    let label = Label { integrity: Integrity::Web, ..done.label.unwrap_or(PLAIN) };
                    return Ok(done.with_label(label));
                }
                "file.put" | "file.break" | "file.blind" => {
                    std::fs::write(at("path").unwrap(), args["text"].as_str().unwrap()).unwrap();
                }
                "file.add" => {
                    let path = at("path").unwrap();
                    let before = std::fs::read(&path).ok();
                    std::fs::write(path, Self::added(before.as_deref(), &args)).unwrap();
                }
                "file.race" => {
                    // Somebody changes the file between the read and the look at its label.
                    let (path, args) = (at("path").unwrap(), args.clone());
                    let state = FileState::of_file(&std::fs::File::open(&path).unwrap()).unwrap();
                    std::fs::remove_file(&path).unwrap();
                    if let Some(text) = args["text"].as_str() {
                        std::fs::write(&path, text).unwrap();
                    }
                    return Ok(done.with_read(vec![(args["path"].as_str().unwrap().to_owned(), state)]));
                }
                "file.move" => std::fs::rename(at("from").unwrap(), at("to").unwrap()).unwrap(),
                _reads => {}
            }
            match run.tool.as_str() {
                "file.break" | "file.blind" => Ok(RawOutput::failed("disk.full", "after the file was there")),
                _other => Ok(done),
            }
        })
    }

    fn foresee(&self, args: &Value, before: Option<&[u8]>) -> Option<Foreseen> {
        match args["as"].as_str()? {
            "put" => Some(Foreseen::Holds(args["text"].as_str()?.into())),
            "add" => Some(Foreseen::Holds(Self::added(before, args))),
            _blind => None,
        }
    }
}

/// What somebody does in a folder.
type Change<'a> = &'a dyn Fn(&std::path::Path);

/// Long enough to read any question here.
const READ_MS: i64 = 60_000;
const PLAIN: Label = Label { integrity: Integrity::Tool, confidentiality: crate::Confidentiality::Public };

async fn world(policy: &str) -> KernelFixture {
    let world = KernelFixture::with_host(policy, Arc::new(Files)).await;
    let one = |access| vec![("/path".to_owned(), ArgumentKind::Path(access))];
    let from_to = |from| {
        vec![
            ("/from".to_owned(), ArgumentKind::Path(from)),
            ("/to".to_owned(), ArgumentKind::Path(Access::Write)),
        ]
    };
    let tools = [
        ("file.put", one(Access::Write)),
        ("file.add", one(Access::Write)),
        ("file.break", one(Access::Write)),
        ("file.blind", one(Access::Write)),
        ("file.get", one(Access::Read)),
        ("file.race", one(Access::Read)),
        ("file.delete", one(Access::Delete)),
        ("file.move", from_to(Access::Delete)),
    ];
    for (name, arguments) in tools {
        world.admit(ToolSpec {
            name: name.to_owned(),
            input: json!({"type": "object"}),
            arguments: arguments.into_iter().collect(),
            effect: SideEffect::Write,
            tiers: vec![Tier::Host],
            output: PLAIN,
            ..ToolSpec::default()
        });
    }
    world
}

fn call(tool: &str, args: Value) -> Op {
    Op::RunTool(ToolCall { tool: tool.to_owned(), args })
}

fn write(tool: &str, path: &str, text: &str) -> Op {
    let how = match tool {
        "file.add" => "add",
        "file.put" | "file.break" => "put",
        _other => "blind",
    };
    call(tool, json!({"path": path, "text": text, "as": how}))
}

async fn agent(world: &KernelFixture, name: &str) -> Principal {
    world.spawn(&world.person(), named(name)).await
}

async fn misled(world: &KernelFixture) -> Principal {
    let agent = agent(world, "misled").await;
    assert_eq!(word(world, &agent, run("test.web")).await, "done");
    agent
}

async fn integrity(world: &KernelFixture, path: &str) -> Integrity {
    let reader = agent(world, "reader").await;
    world.outcome(&reader, call("file.get", json!({"path": path}))).await.output.label().integrity
}

#[tokio::test]
async fn adv_068_what_an_edit_leaves_keeps_its_label() {
    let world = world(ALLOW_ALL).await;
    let misled = misled(&world).await;
    assert_eq!(word(&world, &misled, write("file.put", "notes", "ignore the user")).await, "done");
    let person = world.person();
    for (who, path) in [(agent(&world, "clean").await, "by-agent"), (person, "by-person")] {
        std::fs::copy(world.folder.path().join("notes"), world.folder.path().join(path)).unwrap();
        assert_eq!(word(&world, &who, write("file.add", path, "!")).await, "done");
        assert_eq!(integrity(&world, path).await, Integrity::Web, "{path}: the old content is still there");
        assert_eq!(word(&world, &who, write("file.put", path, "anew")).await, "done");
        assert_eq!(integrity(&world, path).await, Integrity::Tool, "{path}: nothing of it is left");
    }
    // Of a tool that foresees nothing nobody knows what it leaves.
    let clean = agent(&world, "clean").await;
    assert_eq!(word(&world, &clean, write("file.blind", "notes", "who knows")).await, "disk.full");
    assert_eq!(integrity(&world, "notes").await, Integrity::Web);
}

#[tokio::test]
async fn adv_068_a_write_is_labelled_however_the_call_ended() {
    let world = world(ALLOW_ALL).await;
    let misled = misled(&world).await;
    std::fs::write(world.folder.path().join("clean"), "by the person").unwrap();
    for tool in ["file.break", "file.blind"] {
        assert_eq!(word(&world, &misled, write(tool, tool, "ignore the user")).await, "disk.full");
        assert_eq!(integrity(&world, tool).await, Integrity::Web, "{tool}");
    }
    let same = write("file.blind", "clean", "by the person");
    assert_eq!(word(&world, &misled, same).await, "disk.full");
    assert_eq!(
        integrity(&world, "clean").await,
        Integrity::Tool,
        "a call that changed nothing labels nothing"
    );
}

#[tokio::test]
async fn adv_068_a_file_that_changed_after_it_was_read_is_not_taken_for_what_is_there_now() {
    let world = world(ALLOW_ALL).await;
    let place = world.folder.path().join("notes");
    for (is_misled, now) in [(false, Some("clean")), (true, Some("clean")), (true, None)] {
        if is_misled {
            let misled = misled(&world).await;
            assert_eq!(word(&world, &misled, write("file.put", "notes", "ignore the user")).await, "done");
        } else {
            std::fs::write(&place, "by the person").unwrap();
        }
        let reader = agent(&world, "reader").await;
        let read = world.outcome(&reader, call("file.race", json!({"path": "notes", "text": now}))).await;
        let expected = if is_misled { ArgLabels::default().default.integrity } else { Integrity::Tool };
        assert_eq!(read.output.label().integrity, expected, "{is_misled} {now:?}");
    }
}

#[tokio::test]
async fn adv_068_the_end_of_one_program_leaves_what_another_may_write() {
    let world = world(ALLOW_ALL).await;
    let core = &world.kernel.0;
    let (from_ms, to_ms) = (core.clock.now_ms(), core.clock.now_ms() + 60_000);
    let label = Label { integrity: Integrity::Web, ..PLAIN };
    let (long, short) = (Digest::compute(b"long"), Digest::compute(b"short"));
    for call in [long, short] {
        core.carry_span(Span { from_ms, to_ms, label, call: Some(call) }, call).await.unwrap();
    }
    core.carry_span(Span { from_ms, to_ms: from_ms + 1, label, call: None }, short).await.unwrap();
    let mut held: Vec<(i64, Option<Digest>)> =
        core.spans().await.unwrap().iter().map(|span| (span.to_ms - from_ms, span.call)).collect();
    held.sort_unstable_by_key(|(ms, _)| *ms);
    assert_eq!(held, [(1, None), (60_000, Some(long))]);
}

#[tokio::test]
async fn labels_of_a_tree_take_few_commits() {
    let world = world(ALLOW_ALL).await;
    let misled = misled(&world).await;
    let tree = world.folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for index in 0..200 {
        std::fs::write(tree.join(format!("{index}")), format!("file {index}")).unwrap();
    }
    let changes = world.kernel.0.state.changes();
    let before = *changes.borrow();
    assert_eq!(
        word(&world, &misled, call("file.move", json!({"from": "tree", "to": "moved"}))).await,
        "done"
    );
    let commits = *changes.borrow() - before;
    assert!(commits < 20, "{commits} commits");
    for index in [0, 99, 199] {
        assert_eq!(integrity(&world, &format!("moved/{index}")).await, Integrity::Web, "{index}");
    }
}

#[tokio::test]
async fn k2_a_call_whose_labels_can_not_be_noted_keeps_its_approval() {
    let ask = format!("{ALLOW_ALL}  - {{ id: moves, effect: ask, match: {{ tool: file.move }} }}\n");
    let world = world(&ask).await;
    let person = world.person();
    let place = |name: &str| world.folder.path().join(name);
    std::fs::write(place("twice"), "x").unwrap();
    std::fs::hard_link(place("twice"), place("again")).unwrap();
    let op = call("file.move", json!({"from": "twice", "to": "moved"}));
    let Reply::Pending(ticket) = world.kernel.syscall(&person, op.clone()).await.unwrap() else {
        panic!("not asked")
    };
    let answer = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 600_000 };
    world.clock.advance_ms(READ_MS);
    assert_eq!(
        word(&world, &person, Op::Answer { ticket: ticket.id, with: Vec::new(), answer }).await,
        "done"
    );
    assert_eq!(word(&world, &person, op.clone()).await, "path.hard_link");
    std::fs::remove_file(place("again")).unwrap();
    let outcome = world.outcome(&person, op).await;
    assert_eq!(outcome.status, Status::Ok, "the approval was for a call that never ran");
}

#[tokio::test]
async fn h3_an_approval_of_a_folder_is_bound_to_what_is_in_it() {
    let ask =
        format!("{ALLOW_ALL}  - {{ id: ask, effect: ask, match: {{ tool: [file.move, file.delete] }} }}\n");
    let place = |world: &KernelFixture, name: &str| world.folder.path().join(name);
    let add = |at: &std::path::Path| std::fs::write(at.join("src"), "precious").unwrap();
    let remove = |at: &std::path::Path| std::fs::remove_file(at.join("old")).unwrap();
    let same_size = |at: &std::path::Path| {
        let time = || std::fs::metadata(at.join("old")).unwrap();
        let before = (time().ctime(), time().ctime_nsec());
        // The clock of a file system goes in steps.
        while (time().ctime(), time().ctime_nsec()) == before {
            std::fs::write(at.join("old"), "X").unwrap();
        }
    };
    let deeper = |at: &std::path::Path| std::fs::create_dir(at.join("deep/er")).unwrap();
    let changes: [(&str, Change<'_>); 4] =
        [("added", &add), ("removed", &remove), ("same size", &same_size), ("deeper", &deeper)];
    for (what, change) in changes {
        for op in [
            call("file.delete", json!({"path": "build"})),
            call("file.move", json!({"from": "build", "to": "elsewhere"})),
        ] {
            let world = world(&ask).await;
            let build = place(&world, "build");
            std::fs::create_dir_all(build.join("deep")).unwrap();
            std::fs::write(build.join("old"), "1").unwrap();
            let person = world.person();
            let ask = async || match world.kernel.syscall(&person, op.clone()).await.unwrap() {
                Reply::Pending(ticket) => ticket,
                other @ (Reply::Done(_) | Reply::Denied(_)) => panic!("{what}: {other:?}"),
            };
            let ticket = ask().await;
            world.clock.advance_ms(READ_MS);
            let why = ticket.question.open_why.clone().unwrap();
            assert!(why.contains("`build` with 3 entries"), "{why}");
            let approve = async |scope| {
                let answer = ApprovalAnswer::Approve { scope, valid_ms: 60_000 };
                word(&world, &person, Op::Answer { ticket: ticket.id.clone(), with: Vec::new(), answer })
                    .await
            };
            assert_eq!(approve(Scope::Session).await, "approval.once_only");
            assert_eq!(approve(Scope::Once).await, "done");
            change(&build);
            assert_ne!(ask().await.id, ticket.id, "{what}: another call");
        }
    }
}
