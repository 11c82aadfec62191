//! A small kernel for the tests of what kernels share: one tool, a clock that stands still, a policy of the test's choosing.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use regent_ledger::{Ledger, LedgerKey};
use regent_policy::{Access, Confidentiality, Integrity, Label, Layer, Policy, Source, Tier};
use regent_store::State;
use serde_json::{Value, json};

use crate::{
    AgentId, ArgumentKind, BoxFuture, Budget, Catalogue, Clock, Driver, ExecuteError, Executor, Executors,
    Host, ManualClock, Op, Parts, Permit, Principal, RawOutput, Reply, SideEffect, SpawnSpec, Spent,
    ToolCall, ToolSet, ToolSpec, Workspace, tier,
};

/// Everything is allowed.
pub(crate) const OPEN: &str = "version: 1\nmode: permissive\n";
/// Everything is allowed but work, about which one person is asked.
pub(crate) const ASK: &str = "version: 1\nmode: permissive\nrules:\n  - id: ask-work\n    effect: ask\n    match: { tool: work }\n    reason: work is asked about\n";

/// When the clock starts: a day's beginning.
pub(crate) const START_MS: i64 = 20_000 * 24 * 60 * 60 * 1000;

/// A kernel, and what a test needs to see of it.
#[derive(Debug)]
pub(crate) struct ProjectFixture {
    pub(crate) kernel: Host,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) state: Arc<dyn State>,
    /// How often the tool has run.
    pub(crate) runs: Arc<AtomicU32>,
    pub(crate) folder: Arc<tempfile::TempDir>,
}

impl ProjectFixture {
    pub(crate) async fn new(policy: &str, state: Arc<dyn State>) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let clock = Arc::new(ManualClock::starting_at(START_MS));
        Self::boot(policy, SharedProject { folder, clock, state }, ("session-1", "ada"), in_memory()).await
    }

    /// Another kernel in the same project, with the same state and clock, for another session or person.
    pub(crate) async fn next(&self, policy: &str, session: &str, sponsor: &str) -> Self {
        Self::boot(policy, self.place(), (session, sponsor), in_memory()).await
    }

    /// Another kernel in the same project, by a clock of the test's own.
    pub(crate) async fn next_with_clock(&self, policy: &str, clock: Arc<dyn Clock>) -> Self {
        Self::boot_at(policy, self.place(), ("session-1", "ada"), in_memory(), clock).await
    }

    pub(crate) fn place(&self) -> SharedProject {
        SharedProject {
            folder: Arc::clone(&self.folder),
            clock: Arc::clone(&self.clock),
            state: Arc::clone(&self.state),
        }
    }

    pub(crate) async fn boot(
        policy: &str,
        place: SharedProject,
        names: (&str, &str),
        ledger: Ledger,
    ) -> Self {
        let clock = Arc::clone(&place.clock) as _;
        Self::boot_at(policy, place, names, ledger, clock).await
    }

    async fn boot_at(
        policy: &str,
        place: SharedProject,
        (session, sponsor): (&str, &str),
        ledger: Ledger,
        time: Arc<dyn Clock>,
    ) -> Self {
        let SharedProject { folder, clock, state } = place;
        let runs = Arc::new(AtomicU32::new(0));
        let parts = Parts {
            policy: policy_of(policy),
            ledger,
            executors: Executors::default(),
            catalogue: catalogue(&runs),
            workspace: Workspace::open(folder.path()).unwrap(),
            state: Arc::clone(&state),
            secrets: Arc::new(crate::NoSecrets),
            clock: time,
            sponsor: sponsor.to_owned(),
            session: session.to_owned(),
        };
        Self { kernel: Host::boot(parts).await.unwrap(), clock, state, runs, folder }
    }

    /// One more tool, performed like the others.
    pub(crate) fn admit(&self, spec: ToolSpec) {
        let set = ToolSet::new(&spec.name).with(spec, driver(&self.runs));
        self.kernel.catalogue().admit_own(set).unwrap();
    }

    /// The operator lets the tool run.
    pub(crate) async fn work(&self, args: Value) -> Reply {
        self.as_operator(work(args)).await
    }

    pub(crate) async fn as_operator(&self, op: Op) -> Reply {
        self.kernel.syscall(&self.kernel.operator(), op).await.unwrap()
    }

    /// Starts an agent and gives its principal.
    pub(crate) async fn agent(&self, parent: &Principal, name: &str, budget: Option<Budget>) -> Principal {
        let spec = SpawnSpec { name: name.to_owned(), budget, ..SpawnSpec::default() };
        let reply = self.kernel.syscall(parent, Op::Spawn(spec)).await.unwrap();
        let Reply::Done(outcome) = reply else { panic!("not started: {reply:?}") };
        let born: Value = serde_json::from_slice(outcome.output.bytes()).unwrap();
        let id = AgentId::from(born["agent"].as_str().unwrap());
        self.kernel.principal_of(parent, &id).unwrap()
    }

    /// The questions that wait, as ada sees them.
    pub(crate) fn questions(&self) -> Vec<crate::OpenQuestion> {
        let core = &self.kernel.0;
        wait(core.gate.approvals.questions.list("ada", core.clock.now_ms())).unwrap()
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::Relaxed)
    }
}

/// What kernels of one project share.
#[derive(Debug, Clone)]
pub(crate) struct SharedProject {
    pub(crate) folder: Arc<tempfile::TempDir>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) state: Arc<dyn State>,
}

fn in_memory() -> Ledger {
    Ledger::in_memory(LedgerKey::generate().unwrap())
}

pub(crate) fn work(args: Value) -> Op {
    Op::RunTool(ToolCall { tool: "work".to_owned(), args })
}

pub(crate) fn policy_of(text: &str) -> Policy {
    regent_policy::load(text, &Source::new("test", Layer::User)).unwrap()
}

/// The code of a denial; a test that expects one fails on anything else.
pub(crate) fn code_of(reply: Reply) -> Cow<'static, str> {
    match reply {
        Reply::Denied(denial) => denial.reason.code,
        other @ (Reply::Done(_) | Reply::Pending(_)) => panic!("not denied: {other:?}"),
    }
}

fn driver(runs: &Arc<AtomicU32>) -> Driver {
    Driver::host(Arc::new(Worker(Arc::clone(runs))))
}

fn catalogue(runs: &Arc<AtomicU32>) -> Catalogue {
    let catalogue = Catalogue::default();
    let spec = ToolSpec {
        name: "work".to_owned(),
        description: "Counts how often it runs.".to_owned(),
        input: json!({
            "type": "object",
            "properties": {"text": {"type": "string"}, "path": {"type": "string"}, "tokens": {"type": "integer"}},
            "additionalProperties": false,
        }),
        arguments: [("/path".to_owned(), ArgumentKind::Path(Access::Read))].into(),
        capabilities: Vec::new(),
        effect: SideEffect::Write,
        idempotent: false,
        reversible: false,
        tiers: vec![Tier::Host],
        output: Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Public },
        ..ToolSpec::default()
    };
    catalogue.admit_own(ToolSet::new("built-in").with(spec, driver(runs))).unwrap();
    catalogue
}

/// Does nothing but count, after it has let others go first.
struct Worker(Arc<AtomicU32>);

impl Executor<tier::Host> for Worker {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            if permit.args().get("text").is_some_and(|text| text == "never end") {
                std::future::pending::<()>().await;
            }
            self.0.fetch_add(1, Ordering::Relaxed);
            let tokens = permit.args().get("tokens").and_then(Value::as_u64).unwrap_or(0);
            Ok(RawOutput::json(&json!("done")).with_spent(Spent { tokens, ..Spent::default() }))
        })
    }
}

/// Waits for the state from code that isn't asynchronous. The state's own threads, if it has any, go on meanwhile.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        let polled = future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        match polled {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// The bytes of a record.
pub(crate) fn record(state: &dyn State, key: &str) -> Option<Vec<u8>> {
    let partition = regent_store::Partition::containing(key);
    let found = wait(state.read(&partition, &[key.to_owned()])).unwrap();
    found.into_iter().next().flatten().map(|found| found.value)
}
