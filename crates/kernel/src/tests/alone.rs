//! A whole kernel for tests: in memory, with a policy given as text and scripted tools.

use std::borrow::Cow;
use std::sync::Arc;

use regent_ledger::read::Reader;
use regent_ledger::{Entry, EntryKind, Ledger, LedgerKey};
use regent_policy::{Layer, Source};
use regent_store::MemoryState;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    BoxFuture, Catalogue, Channel, Confidentiality, Driver, ExecuteError, Executor, Executors, Host,
    Integrity, Label, ManualClock, Op, Outcome, Parts, Permit, Principal, RawOutput, Reply, SideEffect,
    SpawnSpec, Status, Tier, ToolCall, ToolSet, ToolSpec, Workspace, tier,
};

pub(crate) const ALLOW_ALL: &str =
    "version: 1\nrules:\n  - id: all\n    effect: allow\n    match: { op: \"*\" }\n";

/// Tools, each named for what it does.
const TOOLS: &[&str] = &[
    "test.echo",
    "test.flood",
    "test.hang",
    "test.stubborn",
    "test.panic",
    "test.secret",
    "test.web",
    "test.send",
    "test.drip",
];

pub(crate) struct KernelFixture {
    pub(crate) kernel: Host,
    driver: Driver,
    pub(crate) tools: Arc<Scripted>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) clock: Arc<ManualClock>,
}

/// Runs the tools. `started` gets a permit when a tool that hangs has begun.
#[derive(Debug)]
pub(crate) struct Scripted {
    pub(crate) started: Semaphore,
}

impl Executor<tier::Host> for Scripted {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        let labelled = |integrity, confidentiality| {
            Ok(RawOutput::new(b"x".to_vec()).with_label(Label { integrity, confidentiality }))
        };
        Box::pin(async move {
            let Op::RunTool(run) = permit.call().op() else {
                return Err(ExecuteError::NoDriver(String::new()));
            };
            match run.tool.as_str() {
                "test.hang" => {
                    self.started.add_permits(1);
                    permit.cancelled().await;
                    Ok(RawOutput::new(b"stopped on cancellation".to_vec()))
                }
                "test.stubborn" => {
                    self.started.add_permits(1);
                    std::future::pending().await
                }
                // Says three things, one after the other, and hangs before the end if it is asked to.
                "test.drip" => {
                    for part in ["one ", "two ", "three"] {
                        if permit.emit(Channel::Output, part.as_bytes()).await.is_err() {
                            return Ok(RawOutput::failed("test.overflow", "too much"));
                        }
                    }
                    if permit.args()["hang"] == true {
                        self.started.add_permits(1);
                        permit.cancelled().await;
                    }
                    Ok(RawOutput::new(Vec::new()))
                }
                // As many chunks of a kibibyte as it is asked for, every other one an error.
                "test.flood" => {
                    let count = permit.args()["chunks"].as_u64().unwrap_or(0);
                    for index in 0..count {
                        let channel = if index % 2 == 0 { Channel::Output } else { Channel::Error };
                        let reading = permit.emit(channel, &[b'x'; 1024]).await;
                        if reading == Ok(crate::Reading::Unread) {
                            return Ok(RawOutput::failed("test.unread", format!("{channel:?}")));
                        }
                        self.started.add_permits(1);
                    }
                    Ok(RawOutput::new(Vec::new()))
                }
                "test.panic" => panic!("the tool has a bug"),
                "test.secret" => labelled(Integrity::File, Confidentiality::Secret),
                "test.web" => labelled(Integrity::Web, Confidentiality::Public),
                _echo => Ok(RawOutput::json(permit.args())),
            }
        })
    }
}

impl KernelFixture {
    pub(crate) async fn new() -> Self {
        Self::with(ALLOW_ALL).await
    }

    pub(crate) async fn with(policy: &str) -> Self {
        Self::made(policy, None, None).await
    }

    /// One whose calls elsewhere are performed by this host.
    pub(crate) async fn elsewhere(policy: &str, host: Arc<dyn Executor<tier::Host>>) -> Self {
        Self::made(policy, Some(host), None).await
    }

    /// One whose tools are performed by this host.
    pub(crate) async fn with_host(policy: &str, host: Arc<dyn Executor<tier::Host>>) -> Self {
        Self::made(policy, None, Some(host)).await
    }

    async fn made(
        policy: &str,
        elsewhere: Option<Arc<dyn Executor<tier::Host>>>,
        host: Option<Arc<dyn Executor<tier::Host>>>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tools = Arc::new(Scripted { started: Semaphore::new(0) });
        let (catalogue, clock) = (Catalogue::default(), Arc::new(ManualClock::starting_at(1_000_000)));
        let driver = Driver::host(host.unwrap_or(tools.clone()));
        let add = |set: ToolSet, name: &&str| set.with(spec(name), driver.clone());
        catalogue.admit_own(TOOLS.iter().fold(ToolSet::new("built-in"), add)).unwrap();
        let kernel = Host::boot(Parts {
            policy: regent_policy::load(policy, &Source::new("test", Layer::User)).unwrap(),
            ledger: Ledger::in_memory(LedgerKey::generate().unwrap()),
            executors: Executors { elsewhere, ..Executors::default() },
            catalogue,
            workspace: Workspace::open(folder.path()).unwrap(),
            state: Arc::new(MemoryState::default()),
            secrets: Arc::new(crate::NoSecrets),
            clock: clock.clone(),
            sponsor: "ada".to_owned(),
            session: "s-1".to_owned(),
        });
        Self { kernel: kernel.await.unwrap(), driver, tools, folder, clock }
    }

    /// One more tool, performed like the others.
    pub(crate) fn admit(&self, spec: ToolSpec) {
        let set = ToolSet::new(&spec.name).with(spec, self.driver.clone());
        self.kernel.catalogue().admit_own(set).unwrap();
    }

    pub(crate) fn person(&self) -> Principal {
        self.kernel.operator()
    }

    /// Starts an agent and hands out its principal.
    pub(crate) async fn spawn(&self, parent: &Principal, spec: SpawnSpec) -> Principal {
        let born = self.done(parent, Op::Spawn(spec)).await;
        self.kernel.principal_of(parent, &born["agent"].as_str().unwrap().into()).unwrap()
    }

    /// What the ledger has, oldest first.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        Reader::on(self.kernel.ledger().storage()).tail(usize::MAX).unwrap()
    }

    /// The events in the life of an agent, as the ledger has them.
    pub(crate) fn life_of(&self, who: &Principal) -> Vec<String> {
        let agent = json!(who.agent_id().unwrap());
        let of_it = |entry: &Entry| entry.kind == EntryKind::Agent && entry.body["agent"] == agent;
        let entries = self.entries().into_iter().filter(of_it);
        entries.map(|entry| entry.body["event"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until a tool that hangs has begun.
    pub(crate) async fn started(&self) {
        self.tools.started.acquire().await.unwrap().forget();
    }

    pub(crate) async fn outcome(&self, who: &Principal, op: Op) -> Outcome {
        let name = op.name();
        match self.kernel.syscall(who, op).await.unwrap() {
            Reply::Done(outcome) => outcome,
            other @ (Reply::Denied(_) | Reply::Pending(_)) => panic!("{name}: {other:?}"),
        }
    }

    /// The JSON that came of a call that went well.
    pub(crate) async fn done(&self, who: &Principal, op: Op) -> Value {
        let outcome = self.outcome(who, op).await;
        assert_eq!(outcome.status, Status::Ok);
        serde_json::from_slice(outcome.output.bytes()).unwrap()
    }

    /// The code of a failure.
    pub(crate) async fn failed(&self, who: &Principal, op: Op) -> String {
        let status = self.outcome(who, op).await.status;
        let Status::Failed(failure) = status else { panic!("{status:?}") };
        failure.code
    }

    /// The code of a refusal.
    pub(crate) async fn denied(&self, who: &Principal, op: Op) -> Cow<'static, str> {
        match self.kernel.syscall(who, op).await.unwrap() {
            Reply::Denied(denial) => denial.reason.code,
            other @ (Reply::Done(_) | Reply::Pending(_)) => panic!("{other:?}"),
        }
    }
}

/// An agent with a name and nothing else.
pub(crate) fn named(name: &str) -> SpawnSpec {
    SpawnSpec { name: name.to_owned(), ..SpawnSpec::default() }
}

pub(crate) fn run(tool: &str) -> Op {
    Op::RunTool(ToolCall { tool: tool.to_owned(), args: json!({}) })
}

fn spec(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "For tests.".to_owned(),
        input: json!({"type": "object"}),
        arguments: std::collections::BTreeMap::new(),
        capabilities: Vec::new(),
        effect: SideEffect::None,
        idempotent: true,
        reversible: true,
        tiers: vec![Tier::Host],
        output: Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Public },
        ..ToolSpec::default()
    }
}
