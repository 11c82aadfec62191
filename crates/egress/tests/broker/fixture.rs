//! A kernel whose only tools are sandboxed programs and the broker.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;

use regent_egress::{Broker, CERTIFICATES, Network};
use regent_kernel::{
    ArgumentKind, BoxFuture, Catalogue, Driver, DriverKind, Executors, Host, ManualClock, NoSecrets, Op,
    Outcome, Parts, Permit, Reply, Secrets, SideEffect, Tier, ToolCall, ToolSet, ToolSpec, Workspace, tier,
};
use regent_ledger::{EntryKind, Ledger, LedgerKey, Reader};
use regent_policy::{Layer, Source};
use regent_sandbox::{Bind, EGRESS_PROXY, EgressProxy, Floor, Outfit, ProcessTier};
use regent_store::MemoryState;
use serde_json::{Value, json};

/// Programs may run, and every request may leave.
pub(crate) const ALLOW_ALL: &str = "
version: 1
limits: { wall: 20s, output: 1MiB }
rules:
  - { id: everything, effect: allow }
";

/// The broker as the egress proxy of sandboxes. `serves_ms_max`: when the broker is killed.
#[derive(Debug)]
struct BrokerProxy {
    broker: Broker,
    serves_ms_max: Option<u64>,
}

impl EgressProxy for BrokerProxy {
    fn outfit(&self) -> Result<Outfit, String> {
        let outfit = self.broker.outfit(EGRESS_PROXY)?;
        Ok(Outfit {
            env: outfit.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            binds: vec![Bind { host: outfit.certificates, at: CERTIFICATES.into() }],
        })
    }

    fn serve<'s>(
        &'s self,
        listener: TcpListener,
        permit: &'s Permit<'s, tier::Process>,
    ) -> BoxFuture<'s, ()> {
        Box::pin(async move {
            let serving = self.broker.serve(listener, permit);
            match self.serves_ms_max {
                Some(ms) => drop(tokio::time::timeout(std::time::Duration::from_millis(ms), serving).await),
                None => serving.await,
            }
        })
    }
}

pub(crate) struct BrokerFixture {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) kernel: Host,
    _folder: tempfile::TempDir,
}

/// The configuration of a fixture.
pub(crate) struct Setup<'a> {
    pub(crate) policy: &'a str,
    pub(crate) network: Network,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) serves_ms_max: Option<u64>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self {
            policy: ALLOW_ALL,
            network: Network::default(),
            secrets: Arc::new(NoSecrets),
            serves_ms_max: None,
        }
    }
}

/// A network that may reach these private addresses.
pub(crate) fn reaching(addresses: &[&str]) -> Network {
    Network {
        allow_private: addresses.iter().map(|&address| address.to_owned()).collect(),
        connect_ms_max: 5_000,
        quiet_ms_max: 5_000,
        ..Network::default()
    }
}

impl BrokerFixture {
    pub(crate) async fn new(setup: Setup<'_>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("ws")).unwrap();
        let catalogue = Catalogue::default();
        let broker = Broker::new(setup.network, folder.path());
        let door = BrokerProxy { broker: broker.clone(), serves_ms_max: setup.serves_ms_max };
        let process = ProcessTier::new(Floor::Full).with_egress_proxy(Arc::new(door));
        let programs = ToolSet::new("built-in").with(shell(), Driver::process(Some(Arc::new(process)), None));
        let add = |set: ToolSet, (spec, driver)| set.with(spec, driver);
        catalogue.admit_own(broker.tools().into_iter().fold(programs, add)).unwrap();
        let clock = Arc::new(ManualClock::starting_at(1_700_000_000_000));
        let kernel = Host::boot(Parts {
            policy: regent_policy::load(setup.policy, &Source::new("test", Layer::User)).unwrap(),
            ledger: Ledger::in_memory(LedgerKey::generate().unwrap()),
            executors: Executors::default(),
            catalogue,
            workspace: Workspace::open(&folder.path().join("ws")).unwrap(),
            state: Arc::new(MemoryState::default()),
            secrets: setup.secrets,
            clock: clock.clone(),
            sponsor: "someone".to_owned(),
            session: "s".to_owned(),
        })
        .await
        .unwrap();
        Self { kernel, clock, _folder: folder }
    }

    /// Runs a command line in a sandbox with network access.
    pub(crate) async fn sh(&self, line: &str) -> Outcome {
        self.call("shell.exec", json!({"command": line, "network": true})).await
    }

    /// Runs a command line and returns its output.
    pub(crate) async fn out(&self, line: &str) -> String {
        String::from_utf8_lossy(self.sh(line).await.output.bytes()).into_owned()
    }

    pub(crate) async fn call(&self, tool: &str, args: Value) -> Outcome {
        match self.reply(tool, args).await {
            Reply::Done(outcome) => outcome,
            other @ (Reply::Denied(_) | Reply::Pending(_)) => panic!("{other:?}"),
        }
    }

    pub(crate) async fn reply(&self, tool: &str, args: Value) -> Reply {
        let op = Op::RunTool(ToolCall { tool: tool.to_owned(), args });
        self.kernel.syscall(&self.kernel.operator(), op).await.unwrap()
    }

    /// The intents and outcomes of the broker's calls, in order, once all have ended.
    pub(crate) async fn recorded(&self) -> Vec<(EntryKind, Value)> {
        for _ in 0..200 {
            let found = self.entries();
            let count = |kind| found.iter().filter(|(one, _)| *one == kind).count();
            let open = |(_, body): &&(EntryKind, Value)| body["verdict"]["effect"] == "allow";
            let allowed = found.iter().filter(|(kind, _)| *kind == EntryKind::Intent).filter(open).count();
            if allowed == count(EntryKind::Outcome) {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("a call has no outcome: {:#?}", self.entries());
    }

    /// The payload of an outcome of the broker.
    pub(crate) fn payload_of(&self, outcome: &Value) -> Value {
        let digest = ["output", "args"].into_iter().find_map(|field| outcome[field]["sha256"].as_str());
        let Some(digest) = digest else { return Value::Null };
        let payload = self.kernel.ledger().payload(&digest.parse().unwrap()).unwrap().unwrap_or_default();
        serde_json::from_slice(&payload).unwrap_or(Value::Null)
    }

    fn entries(&self) -> Vec<(EntryKind, Value)> {
        let reader = Reader::on(self.kernel.ledger().storage());
        let entries = reader.entries().unwrap().map(Result::unwrap);
        let mut own = Vec::new();
        entries
            .filter(|entry| {
                let ours = entry.body["tool"]["name"].as_str().is_some_and(|name| name.starts_with("net."));
                if entry.kind == EntryKind::Intent && ours {
                    own.push(entry.seq);
                    return true;
                }
                let of = entry.body["intent"].as_u64();
                entry.kind == EntryKind::Outcome && of.is_some_and(|intent| own.contains(&intent))
            })
            .map(|entry| (entry.kind, entry.body))
            .collect()
    }
}

fn shell() -> ToolSpec {
    ToolSpec {
        name: "shell.exec".to_owned(),
        description: "Runs a line.".to_owned(),
        input: json!({"type": "object", "required": ["command"]}),
        arguments: BTreeMap::from([("/command".to_owned(), ArgumentKind::Shell)]),
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
