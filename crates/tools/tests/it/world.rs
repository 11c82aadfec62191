//! A kernel with the built-in tools, over a workspace of its own with a secret beside it.

use std::path::PathBuf;
use std::sync::Arc;

use regent_kernel::{
    AgentId, Catalogue, Confidentiality, Driver, DriverKind, Executors, Host, ManualClock, Op, Parts,
    Principal, Reply, SpawnSpec, Status, ToolCall, Workspace,
};
use regent_ledger::{EntryKind, Ledger, LedgerKey, Reader};
use regent_policy::{Layer, Policy, Source, load};
use regent_store::MemoryState;
use regent_tools::{Broker, HostTool, Network, built_in, tool_set};
use serde_json::Value;

/// Allows every tool everywhere: what is refused then is refused by the tools and the kernel themselves.
pub(crate) const ALLOW_ALL: &str = "
version: 1
rules:
  - { id: all, effect: allow, match: { op: tool.run } }
";

/// Allows files inside the workspace only, and not those in `private`.
pub(crate) const ALLOW_INSIDE: &str = "
version: 1
rules:
  - { id: inside, effect: allow, match: { tool: 'fs.*', path: '**' } }
  - { id: private, effect: deny, match: { path: 'private/**' } }
  - { id: dotenv, effect: ask, match: { path: '**/.env' } }
";

pub(crate) struct ToolsFixture {
    tmp: tempfile::TempDir,
    pub(crate) kernel: Host,
}

/// What a call came to, in a form that tests can compare.
#[derive(Debug)]
pub(crate) struct CallReport {
    /// `ok`, `denied CODE`, `failed CODE`, `pending`, `timed out`, `cancelled` or `fault …`.
    pub(crate) how: String,
    pub(crate) message: String,
    pub(crate) output: Vec<u8>,
    pub(crate) confidentiality: Option<Confidentiality>,
}

impl ToolsFixture {
    pub(crate) async fn new(policy: &str) -> Self {
        Self::with(policy, Network::default()).await
    }

    pub(crate) async fn with(policy: &str, network: Network) -> Self {
        Self::with_tools(policy, network, Vec::new()).await
    }

    /// With these tools besides the built-in ones.
    pub(crate) async fn with_tools(policy: &str, network: Network, added: Vec<Arc<dyn HostTool>>) -> Self {
        Self::with_programs(policy, network, added, Driver::missing(DriverKind::Process)).await
    }

    /// The same with what runs programs.
    pub(crate) async fn with_programs(
        policy: &str,
        network: Network,
        added: Vec<Arc<dyn HostTool>>,
        programs: Driver,
    ) -> Self {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::create_dir(tmp.path().join("ws")).unwrap();
        std::fs::create_dir(tmp.path().join("outside")).unwrap();
        std::fs::write(tmp.path().join("outside/secret"), "the secret").unwrap();
        let catalogue = Catalogue::default();
        catalogue.admit_own(built_in(&Broker::new(network, tmp.path()), &programs)).unwrap();
        catalogue.admit_own(tool_set("added", added)).unwrap();
        let parts = Parts {
            policy: policy_of(policy),
            ledger: Ledger::in_memory(LedgerKey::generate().unwrap()),
            executors: Executors::default(),
            catalogue,
            workspace: Workspace::open(&tmp.path().join("ws")).unwrap(),
            state: Arc::new(MemoryState::default()),
            secrets: Arc::new(regent_kernel::NoSecrets),
            clock: Arc::new(ManualClock::starting_at(1_700_000_000_000)),
            sponsor: "tester".to_owned(),
            session: "test".to_owned(),
        };
        Self { kernel: Host::boot(parts).await.unwrap(), tmp }
    }

    /// A path in the workspace.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.tmp.path().join("ws").join(name)
    }

    /// A path beside the workspace, without links.
    pub(crate) fn beside(&self, name: &str) -> String {
        self.kernel.workspace().root().parent().unwrap().join(name).to_str().unwrap().to_owned()
    }

    /// Puts a file into the workspace, past all rules.
    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) async fn call(&self, tool: &str, args: Value) -> CallReport {
        self.call_as(&self.kernel.operator(), tool, args).await
    }

    /// An agent of somebody's.
    pub(crate) async fn agent(&self, parent: &Principal, name: &str) -> Principal {
        let spec = SpawnSpec { name: name.to_owned(), ..SpawnSpec::default() };
        let reply = self.kernel.syscall(parent, Op::Spawn(spec)).await.unwrap();
        let Reply::Done(outcome) = reply else { panic!("not started: {reply:?}") };
        let born: Value = serde_json::from_slice(outcome.output.bytes()).unwrap();
        let id = AgentId::from(born["agent"].as_str().unwrap());
        self.kernel.principal_of(parent, &id).unwrap()
    }

    pub(crate) async fn call_as(&self, caller: &Principal, tool: &str, args: Value) -> CallReport {
        let op = Op::RunTool(ToolCall { tool: tool.to_owned(), args });
        let heard = |how: &str, message: String| CallReport {
            how: how.to_owned(),
            message,
            output: Vec::new(),
            confidentiality: None,
        };
        match self.kernel.syscall(caller, op).await {
            Ok(Reply::Done(outcome)) => {
                let (how, message) = match outcome.status {
                    Status::Ok => ("ok".to_owned(), String::new()),
                    Status::Failed(failure) => (format!("failed {}", failure.code), failure.message),
                    Status::TimedOut => ("timed out".to_owned(), String::new()),
                    Status::Cancelled => ("cancelled".to_owned(), String::new()),
                    Status::Faulted(message) => ("faulted".to_owned(), message),
                };
                let confidentiality = Some(outcome.output.label().confidentiality);
                CallReport { how, message, confidentiality, output: outcome.output.into_bytes() }
            }
            Ok(Reply::Denied(denial)) => {
                heard(&format!("denied {}", denial.reason.code), denial.reason.message)
            }
            Ok(Reply::Pending(_)) => heard("pending", String::new()),
            Err(fault) => heard("fault", fault.to_string()),
        }
    }

    /// What the ledger has of calls so far: the bodies of intents and outcomes, in order.
    pub(crate) fn recorded(&self) -> Vec<(EntryKind, Value)> {
        let reader = Reader::on(self.kernel.ledger().storage());
        let entries = reader.entries().unwrap().map(Result::unwrap);
        entries
            .filter(|entry| matches!(entry.kind, EntryKind::Intent | EntryKind::Outcome))
            .map(|entry| (entry.kind, entry.body))
            .collect()
    }

    /// The JSON of a call that must succeed.
    pub(crate) async fn json(&self, tool: &str, args: Value) -> Value {
        let heard = self.call(tool, args).await;
        assert_eq!(heard.how, "ok", "{}", heard.message);
        serde_json::from_slice(&heard.output).unwrap()
    }
}

pub(crate) fn policy_of(text: &str) -> Policy {
    load(text, &Source::new("test.yml", Layer::User)).unwrap_or_else(|error| panic!("{error:#?}"))
}
