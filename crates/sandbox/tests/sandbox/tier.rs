//! The process tier through a real kernel: judged, confined, labelled, recorded.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use regent_kernel::{
    ArgumentKind, BoxFuture, Catalogue, Driver, DriverKind, ExecuteError, Executor, Executors, Host,
    ManualClock, Op, Outcome, Parts, Permit, RawOutput, Reply, SideEffect, Status, Tier, ToolCall, ToolSet,
    ToolSpec, Workspace, tier,
};
use regent_ledger::{Ledger, LedgerKey};
use regent_policy::{Layer, Source};
use regent_sandbox::{Floor, ProcessTier, Visibility, explain};
use regent_store::MemoryState;
use serde_json::{Value, json};

const POLICY: &str = "\
version: 1
limits: { wall: 5s, output: 10kB, pids: 64 }
rules:
  - { id: everything, effect: allow }
";

pub(crate) struct SandboxFixture {
    kernel: Host,
    folder: tempfile::TempDir,
}

fn spec(name: &str, field: &str, kind: ArgumentKind) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "Runs a program.".to_owned(),
        input: json!({"type": "object", "required": [field]}),
        arguments: BTreeMap::from([(format!("/{field}"), kind)]),
        capabilities: vec!["process.exec".to_owned()],
        effect: SideEffect::Write,
        idempotent: false,
        reversible: false,
        driver: DriverKind::Process,
        tiers: vec![Tier::Process],
        output: ToolSpec::UNKNOWN_OUTPUT,
        ..ToolSpec::default()
    }
}

impl SandboxFixture {
    async fn new() -> Self {
        Self::with(POLICY).await
    }

    pub(crate) async fn with(policy: &str) -> Self {
        Self::made(policy, Arc::new(ProcessTier::new(Floor::Full))).await
    }

    pub(crate) async fn made(policy: &str, process: Arc<dyn Executor<tier::Process>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        let catalogue = Catalogue::default();
        let driver = Driver::process(Some(process), None);
        let tools = ToolSet::new("built-in")
            .with(spec("process.exec", "argv", ArgumentKind::Argv), driver.clone())
            .with(spec("shell.exec", "command", ArgumentKind::Shell), driver);
        catalogue.admit_own(tools).unwrap();
        let kernel = Host::boot(Parts {
            policy: regent_policy::load(policy, &Source::new("test", Layer::User)).unwrap(),
            ledger: Ledger::in_memory(LedgerKey::generate().unwrap()),
            executors: Executors::default(),
            catalogue,
            workspace: Workspace::open(folder.path()).unwrap(),
            state: Arc::new(MemoryState::default()),
            secrets: Arc::new(regent_kernel::NoSecrets),
            clock: Arc::new(ManualClock::starting_at(1)),
            sponsor: "someone".to_owned(),
            session: "s".to_owned(),
        })
        .await
        .unwrap();
        Self { kernel, folder }
    }

    async fn call(&self, tool: &str, args: Value) -> Outcome {
        let op = Op::RunTool(ToolCall { tool: tool.to_owned(), args });
        match self.kernel.syscall(&self.kernel.operator(), op).await.unwrap() {
            Reply::Done(outcome) => outcome,
            Reply::Denied(denial) => panic!("{denial:?}"),
            Reply::Pending(ticket) => panic!("{ticket:?}"),
        }
    }

    pub(crate) async fn sh(&self, line: &str) -> Outcome {
        self.call("shell.exec", json!({"command": line})).await
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }
}

fn failed_with(outcome: &Outcome, code: &str) -> bool {
    matches!(&outcome.status, Status::Failed(failure) if failure.code == code)
}

#[tokio::test]
async fn a_program_runs_in_the_workspace_and_the_receipt_says_how() {
    let world = SandboxFixture::new().await;
    let outcome = world.sh("pwd; echo oops >&2; echo x > made; echo $HOME $USER").await;
    assert_eq!(outcome.status, Status::Ok);
    let said = outcome.output.text().into_owned();
    assert_eq!(said, format!("{}\n/home/agent agent\noops\n", world.path().display()));
    assert_eq!(std::fs::read_to_string(world.path().join("made")).unwrap(), "x\n");
    let receipt = outcome.obtained.unwrap();
    assert_eq!(receipt["confinement"], "full");
    assert_eq!(receipt["ended"]["status"], json!({"code": 0}));
    assert_eq!(receipt["ended"]["stderr_bytes"], 5);
    assert_eq!(receipt["pid_ns"], true);
}

#[tokio::test]
async fn arguments_are_honoured() {
    let world = SandboxFixture::new().await;
    let args = json!({"argv": ["sh", "-c", "pwd; cat; echo $WORD"], "cwd": "sub", "stdin": "in\n", "env": {"WORD": "w"}});
    let outcome = world.call("process.exec", args).await;
    let said = outcome.output.text().into_owned();
    assert_eq!(said, format!("{}\nin\nw\n", world.path().join("sub").display()));
    let late = world.call("process.exec", json!({"argv": ["sleep", "60"], "timeout_ms": 50})).await;
    assert!(failed_with(&late, "process.timeout"), "{late:?}");
    let missing = world.call("process.exec", json!({"argv": ["no-such-program"]})).await;
    assert!(failed_with(&missing, "process.not_started"), "{missing:?}");
    let nowhere = world.call("process.exec", json!({"argv": ["true"], "cwd": "absent"})).await;
    assert!(failed_with(&nowhere, "process.cwd"), "{nowhere:?}");
    let other = world.call("process.exec", json!({"argv": ["true"], "unknown": 1})).await;
    assert!(failed_with(&other, "args.invalid"), "{other:?}");
    let tty = world.call("process.exec", json!({"argv": ["true"], "terminal": true})).await;
    assert!(failed_with(&tty, "process.terminal") || tty.status == Status::Ok, "{tty:?}");
}

#[tokio::test]
async fn reports_how_the_program_failed() {
    let world = SandboxFixture::new().await;
    assert!(failed_with(&world.sh("exit 3").await, "process.exit"));
    assert!(failed_with(&world.sh("kill -9 $$").await, "process.signal"));
    let long = world.sh("yes").await;
    assert!(failed_with(&long, "process.output"), "{long:?}");
    assert_eq!(long.output.bytes().len(), 10_000);
}

#[tokio::test]
async fn adv_023_control_files_are_guarded_in_every_call() {
    let world = SandboxFixture::new().await;
    std::fs::create_dir_all(world.path().join(".regent/audit")).unwrap();
    std::fs::write(world.path().join(".regent/audit/payload"), "hunter2").unwrap();
    let outcome =
        world.sh("cat .regent/audit/*; ls .regent; echo x > .regent/policy.yml; rm -r .regent; exit 0").await;
    assert!(!outcome.output.text().contains("payload:") && !outcome.output.text().contains("hunter2"));
    assert!(world.path().join(".regent/audit/payload").exists());
    assert!(!world.path().join(".regent/policy.yml").exists());
    let refused = world
        .sh("echo x > .mcp.json; git init -q . 2>/dev/null; mkdir -p .git/hooks; echo x > .git/hooks/y; exit 3")
        .await;
    assert!(failed_with(&refused, "process.exit"), "{refused:?}");
    let Status::Failed(failure) = &refused.status else { panic!() };
    assert!(failure.message.contains("/.mcp.json`") && failure.message.contains("/.git`"), "{failure:?}");
    let receipt = refused.obtained.unwrap();
    assert_eq!(receipt["ended"]["planted"], json!([]));
    assert_eq!(receipt["ended"]["refused"][0], world.path().join(".mcp.json").to_str().unwrap());
    assert!(!world.path().join(".mcp.json").exists() && !world.path().join(".git").exists());
}

/// A sandbox that did not hold.
struct Breached;

impl Executor<tier::Process> for Breached {
    fn execute<'s>(&'s self, _: Permit<'s, tier::Process>) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async { Ok(RawOutput::new(b"said".to_vec()).with_breach("`.envrc` is still there")) })
    }
}

#[tokio::test]
async fn c1_a_guarded_file_that_stays_is_recorded_and_seals_the_kernel() {
    let world = SandboxFixture::made(POLICY, Arc::new(Breached)).await;
    let outcome = world.sh("anything").await;
    assert_eq!(outcome.output.text(), "said", "the result is recorded and returned");
    let op = Op::RunTool(ToolCall { tool: "shell.exec".to_owned(), args: json!({"command": "true"}) });
    let next = world.kernel.syscall(&world.kernel.operator(), op).await;
    assert!(next.unwrap_err().to_string().contains("`.envrc` is still there"));
}

#[tokio::test]
async fn h6_what_policy_asks_about_or_denies_to_fs_read_no_program_reads() {
    let world = SandboxFixture::with(
        "\
version: 1
rules:
  - { id: everything, effect: allow }
  - { id: notes, effect: ask, match: { tool: fs.read, path: \"notes/**\" } }
  - { id: keys, effect: deny, match: { path: \"**/*.pem\" } }
",
    )
    .await;
    for (file, text) in [("notes/a", "one"), ("sub/x.pem", "two"), (".env", "three"), ("plain", "four")] {
        let path = world.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    std::os::unix::fs::symlink("plain", world.path().join("link.pem")).unwrap();
    let said = world.sh("cat notes/a sub/x.pem .env plain link.pem; exit 0").await.output.text().into_owned();
    // This policy has nothing against `.env`; the link's own name is denied, and so is what it leads to.
    assert!(said.starts_with("three") && !said.contains("one") && !said.contains("two"), "{said}");
    assert!(!said.contains("four"), "{said}");
}

#[tokio::test]
async fn h6_a_program_that_no_rule_about_reading_speaks_of_sees_the_workspace() {
    let world = SandboxFixture::with(
        "\
version: 1
rules:
  - { id: programs, effect: allow, match: { tool: [shell.exec, process.exec] } }
",
    )
    .await;
    std::fs::write(world.path().join("plain"), "shown").unwrap();
    assert_eq!(world.sh("cat plain").await.output.text(), "shown");
}

#[test]
fn the_view_can_be_explained_without_running_anything() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::write(root.join(".env"), "").unwrap();
    let mut spec = ProcessTier::new(Floor::Full).spec(&root);
    spec.argv = vec!["true".into()];
    let explained = explain(&spec).unwrap();
    let shown =
        |path: &str| explained.places.iter().find(|place| place.path == path).map(|place| place.shown);
    assert_eq!(shown("/usr"), Some(Visibility::ReadOnly));
    assert_eq!(shown("/tmp"), Some(Visibility::Private));
    assert_eq!(shown(root.to_str().unwrap()), Some(Visibility::Writable));
    assert_eq!(shown(&format!("{}/.env", root.display())), Some(Visibility::Hidden));
    let text = explained.to_string();
    assert!(text.contains("system calls: ") && text.contains("limits: "), "{text}");
}
