//! Generated tools with a stand-in for the WASM tier: the same interpreter, run natively.

use std::sync::Arc;

use regent_egress::{Broker, Network};
use regent_kernel::{
    BoxFuture, Catalogue, Digest, DriverKind, ExecuteError, Executor, Executors, Host, ManualClock, Op,
    Parts, Permit, RawOutput, Reply, Status, ToolCall, Workspace, tier,
};
use regent_ledger::{Ledger, LedgerKey};
use regent_policy::{Layer, Source, load};
use regent_store::MemoryState;
use serde_json::{Value, json};

use super::*;
use crate::{built_in, tool_set};

/// Runs scripts in this process; of the host it gives `callTool` alone, as a call of the permit's.
#[derive(Debug)]
struct Native;

impl ScriptTier for Native {
    fn script(
        &self,
        interpreter: &[u8],
        digest: Digest,
        source: String,
    ) -> Result<Arc<dyn Executor<tier::Wasm>>, String> {
        assert_eq!(Digest::compute(interpreter), digest);
        Ok(Arc::new(NativeScript(source)))
    }
}

struct NativeScript(String);

impl Executor<tier::Wasm> for NativeScript {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Wasm>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let source = &self.0;
            // A source that begins so stands for a guest that calls that tool.
            if let Some(wanted) = source.strip_prefix("// calls ").and_then(|rest| rest.lines().next()) {
                let call = ToolCall { tool: wanted.to_owned(), args: permit.args().clone() };
                return Ok(match permit.syscall(Op::RunTool(call)).await.unwrap() {
                    Reply::Done(outcome) => RawOutput::new(outcome.output.into_bytes()),
                    Reply::Denied(denial) => RawOutput::failed(&denial.reason.code, denial.reason.message),
                    Reply::Pending(_) => RawOutput::failed("pending", ""),
                });
            }
            let script = regent_script::Script::new(source).unwrap();
            let input = permit.args().to_string();
            Ok(match script.run(&input, &mut regent_script::NoHost, regent_script::Limits::default()) {
                Ok(json) => RawOutput::new(json.into_bytes()),
                Err(error) => RawOutput::failed("tool.failed", error.to_string()),
            })
        })
    }
}

struct GeneratedFixture {
    folder: tempfile::TempDir,
}

impl GeneratedFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("ws")).unwrap();
        std::fs::write(folder.path().join("ws/note.txt"), "hello").unwrap();
        Self { folder }
    }

    fn tools(&self) -> std::path::PathBuf {
        self.folder.path().join("ws/.regent/tools")
    }

    /// A kernel over the same folders: a new session.
    async fn session(&self) -> Session {
        self.session_with(b"the interpreter").await
    }

    async fn session_with(&self, interpreter: &'static [u8]) -> Session {
        let pins = self.folder.path().join("state/pins.json");
        let generated =
            Arc::new(Generated::with_interpreter(self.tools(), pins, Arc::new(Native), interpreter));
        let catalogue = Catalogue::default();
        let broker = Broker::new(Network::default(), self.folder.path());
        let programs = Driver::missing(DriverKind::Process);
        catalogue.admit_own(built_in(&broker, &programs)).unwrap();
        catalogue.admit_own(tool_set("making", host_tools(&generated))).unwrap();
        let refused = generated.admit_all(&catalogue);
        let policy = "version: 1\nrules:\n  - { id: all, effect: allow, match: { op: tool.run } }";
        let parts = Parts {
            policy: load(policy, &Source::new("test", Layer::User)).unwrap(),
            ledger: Ledger::in_memory(LedgerKey::generate().unwrap()),
            executors: Executors::default(),
            catalogue,
            workspace: Workspace::open(&self.folder.path().join("ws")).unwrap(),
            state: Arc::new(MemoryState::default()),
            secrets: Arc::new(regent_kernel::NoSecrets),
            clock: Arc::new(ManualClock::starting_at(1_700_000_000_000)),
            sponsor: "tester".to_owned(),
            session: "test".to_owned(),
        };
        Session { kernel: Host::boot(parts).await.unwrap(), refused }
    }
}

struct Session {
    kernel: Host,
    refused: Vec<(String, GeneratedError)>,
}

impl Session {
    /// The JSON that comes back, or `code: message`.
    async fn call(&self, tool: &str, args: Value) -> Result<Value, String> {
        let op = Op::RunTool(ToolCall { tool: tool.to_owned(), args });
        match self.kernel.syscall(&self.kernel.operator(), op).await.unwrap() {
            Reply::Done(outcome) => match &outcome.status {
                Status::Ok => Ok(serde_json::from_slice(outcome.output.bytes()).unwrap_or_else(|_| {
                    Value::String(String::from_utf8_lossy(outcome.output.bytes()).into_owned())
                })),
                Status::Failed(failure) => Err(format!("{}: {}", failure.code, failure.message)),
                other @ (Status::TimedOut | Status::Cancelled | Status::Faulted(_)) => {
                    Err(format!("{other:?}"))
                }
            },
            Reply::Denied(denial) => Err(format!("{}: {}", denial.reason.code, denial.reason.message)),
            Reply::Pending(_) => Err("pending".to_owned()),
        }
    }

    async fn generate(&self, source: &str, output: Value) -> Result<Value, String> {
        self.call("tool.generate", wanted(source, &[], output)).await
    }
}

fn wanted(source: &str, capabilities: &[&str], output: Value) -> Value {
    json!({
        "name": "gen.add", "description": "Adds two numbers.", "source": source, "capabilities": capabilities,
        "input": {"type": "object", "additionalProperties": false, "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
        "examples": [{"input": {"a": 1, "b": 2}, "output": output}],
    })
}

const ADD: &str = "export function run({ a, b }) { return a + b; }";
const ADD_AS_TEXT: &str = "export function run({ a, b }) { return `${a + b}`; }";

#[tokio::test]
async fn made_in_one_session_used_in_the_next_rolled_back_and_removed() {
    let world = GeneratedFixture::new();
    let made = world.session().await.generate(ADD, json!(3)).await.unwrap();
    assert_eq!(
        (&made["name"], &made["version"], &made["examples"]),
        (&json!("gen.add"), &json!(1), &json!(1))
    );
    assert!(world.tools().join("gen.add/v1/tool.js").is_file());

    let next = world.session().await;
    assert!(next.refused.is_empty());
    let spec = next.kernel.catalogue().get("gen.add").unwrap().spec().clone();
    assert_eq!(
        (spec.origin, &spec.tiers[..]),
        (regent_kernel::Origin::Generated, &[regent_kernel::Tier::Wasm][..])
    );
    assert_eq!(spec.capabilities, ["tool.generated"]);
    assert_eq!(spec.may, Some(Vec::new()));
    assert!(spec.version.starts_with("1+"), "{}", spec.version);
    assert_eq!(next.call("gen.add", json!({"a": 40, "b": 2})).await.unwrap(), json!(42));
    assert!(next.call("gen.add", json!({"c": 1})).await.unwrap_err().starts_with("args.invalid"));

    let second = next.generate(ADD_AS_TEXT, json!("3")).await.unwrap();
    assert_eq!(second["version"], 2);
    assert_eq!(next.call("gen.add", json!({"a": 1, "b": 1})).await.unwrap(), json!("2"));
    next.call("tool.rollback", json!({"name": "gen.add"})).await.unwrap();
    assert_eq!(next.call("gen.add", json!({"a": 1, "b": 1})).await.unwrap(), json!(2));
    assert!(
        next.call("tool.rollback", json!({"name": "gen.add"}))
            .await
            .unwrap_err()
            .contains("no version before v1")
    );

    let third = world.session().await;
    assert_eq!(third.call("gen.add", json!({"a": 1, "b": 1})).await.unwrap(), json!(2));
    third.call("tool.rollback", json!({"name": "gen.add", "version": 2})).await.unwrap();
    assert_eq!(third.call("gen.add", json!({"a": 1, "b": 1})).await.unwrap(), json!("2"));
    third.call("tool.remove", json!({"name": "gen.add"})).await.unwrap();
    assert!(third.call("gen.add", json!({"a": 1, "b": 1})).await.unwrap_err().starts_with("tool.unknown"));
    assert!(!world.tools().join("gen.add").exists());
}

#[tokio::test]
async fn changed_bytes_are_refused_before_each_use_and_never_repaired() {
    let world = GeneratedFixture::new();
    let session = world.session().await;
    session.generate(ADD, json!(3)).await.unwrap();
    let args = || json!({"a": 1, "b": 2});
    for (file, change) in
        [("v1/tool.js", "export function run() { return 'evil'; }"), ("v1/manifest.json", "{}")]
    {
        let path = world.tools().join("gen.add").join(file);
        let before = std::fs::read(&path).unwrap();
        assert_eq!(session.call("gen.add", args()).await.unwrap(), json!(3));
        std::fs::write(&path, change).unwrap();
        // In the session that made it, and in the next.
        assert!(session.call("gen.add", args()).await.unwrap_err().starts_with("tool.changed"), "{file}");
        let next = world.session().await;
        assert_eq!(next.refused[0].1.code(), "tool.changed", "{file}");
        assert!(next.call("gen.add", args()).await.unwrap_err().starts_with("tool.unknown"), "{file}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), change, "nothing is repaired");
        std::fs::write(&path, before).unwrap();
    }
    // The pointer, and files that are links or gone.
    std::fs::write(world.tools().join("gen.add/active.json"), r#"{"active":7}"#).unwrap();
    assert_eq!(world.session().await.refused[0].1.code(), "tool.changed");
    std::fs::write(world.tools().join("gen.add/active.json"), r#"{"active":1}"#).unwrap();
    assert!(world.session().await.refused.is_empty());
    let source = world.tools().join("gen.add/v1/tool.js");
    std::fs::rename(&source, world.folder.path().join("elsewhere.js")).unwrap();
    assert_eq!(world.session().await.refused[0].1.code(), "tool.changed");
    std::os::unix::fs::symlink(world.folder.path().join("elsewhere.js"), &source).unwrap();
    assert_eq!(world.session().await.refused[0].1.code(), "tool.unreadable");
}

#[tokio::test]
async fn a_consistent_forgery_is_refused_too() {
    let world = GeneratedFixture::new();
    world.session().await.generate(ADD, json!(3)).await.unwrap();
    // A tool that came with the folder, complete and consistent in itself, is still not one that was made here.
    let copy = world.tools().join("gen.other/v1");
    std::fs::create_dir_all(&copy).unwrap();
    for file in ["v1/tool.js", "active.json"] {
        std::fs::copy(world.tools().join("gen.add").join(file), world.tools().join("gen.other").join(file))
            .unwrap();
    }
    let manifest = std::fs::read_to_string(world.tools().join("gen.add/v1/manifest.json")).unwrap();
    std::fs::write(copy.join("manifest.json"), manifest.replace("gen.add", "gen.other")).unwrap();
    // And one whose source and manifest were exchanged together.
    let evil = "export function run() { return 'evil'; }";
    let old = Digest::compute(ADD.as_bytes()).to_string();
    std::fs::write(world.tools().join("gen.add/v1/tool.js"), evil).unwrap();
    let forged = manifest.replace(&old, &Digest::compute(evil.as_bytes()).to_string());
    std::fs::write(world.tools().join("gen.add/v1/manifest.json"), forged).unwrap();
    let session = world.session().await;
    let codes: Vec<_> = session.refused.iter().map(|(name, error)| (name.as_str(), error.code())).collect();
    assert_eq!(codes, [("gen.add", "tool.changed"), ("gen.other", "tool.not_made_here")]);
}

#[tokio::test]
async fn another_interpreter_is_not_the_one_it_was_tried_with() {
    let world = GeneratedFixture::new();
    world.session().await.generate(ADD, json!(3)).await.unwrap();
    let session = world.session_with(b"another interpreter").await;
    assert_eq!(session.refused[0].1.code(), "tool.interpreter");
    // Made again, it is tried again.
    assert_eq!(session.generate(ADD, json!(3)).await.unwrap()["version"], 2);
    assert_eq!(session.call("gen.add", json!({"a": 1, "b": 2})).await.unwrap(), json!(3));
}

#[tokio::test]
async fn what_does_not_hold_is_not_kept() {
    let world = GeneratedFixture::new();
    let session = world.session().await;
    let cases = [
        (wanted(ADD, &[], json!(4)), "tool.example: example 1: expected 4, got 3"),
        (wanted("export function run() { return", &[], json!(3)), "tool.source: "),
        (
            wanted("export function run() { null.x; }", &[], json!(3)),
            "tool.example: example 1: tool.failed: TypeError",
        ),
        (
            wanted("export function run() { return regent.readFile('x'); }", &[], json!(3)),
            "tool.undeclared: ",
        ),
        (
            wanted("export function run() { return fetch('http://x'); }", &["file.read"], json!(3)),
            "tool.undeclared: ",
        ),
        (
            wanted("export function run() { return regent.callTool('fs.read', {}); }", &[], json!(3)),
            "tool.undeclared: ",
        ),
        (wanted(ADD, &["tool.generate"], json!(3)), "tool.refused: `tool.generate` can't be granted"),
        (wanted(ADD, &["*"], json!(3)), "tool.refused: "),
        (wanted(ADD, &["File Read"], json!(3)), "tool.refused: "),
    ];
    for (args, expected) in cases {
        let refused = session.call("tool.generate", args).await.unwrap_err();
        assert!(refused.starts_with(expected), "{refused}");
    }
    for name in ["fs.read", "gen.", "gen..x", "gen.X", "gen.a/b", "gen.../../x", "generate", "gen.é"] {
        let mut args = wanted(ADD, &[], json!(3));
        args["name"] = json!(name);
        let refused = session.call("tool.generate", args).await.unwrap_err();
        assert!(
            refused.starts_with("tool.refused") || refused.starts_with("args.invalid"),
            "{name}: {refused}"
        );
    }
    assert!(!world.tools().exists(), "nothing was written");
    let left: Vec<_> = session.kernel.catalogue().all().iter().map(|tool| tool.spec().name.clone()).collect();
    assert!(!left.iter().any(|name| name.starts_with("gen.")), "{left:?}");
}

#[tokio::test]
async fn a_tool_reaches_only_for_what_it_was_granted() {
    let world = GeneratedFixture::new();
    let session = world.session().await;
    let reader = "// calls fs.read\nexport function run() { return regent.readFile('note.txt'); }";
    let args = |capabilities: &[&str]| {
        json!({
            "name": "gen.reader", "description": "Reads.", "source": reader, "capabilities": capabilities,
            "examples": [{"input": {"path": "note.txt"}, "output": "hello"}],
        })
    };
    // The stand-in calls `fs.read` whatever the source says, as a guest that found a way round the check would.
    let sly = reader.replace("regent.readFile('note.txt')", "1");
    let mut without = args(&["file.list"]);
    without["source"] = json!(sly);
    let refused = session.call("tool.generate", without).await.unwrap_err();
    assert!(refused.contains("tool.not_granted"), "{refused}");
    // Granted, it is called; what comes back is text here, so the example says how it fails.
    let refused = session.call("tool.generate", args(&["file.read"])).await.unwrap_err();
    assert!(refused.starts_with("tool.example: example 1: the result is not JSON"), "{refused}");
}
