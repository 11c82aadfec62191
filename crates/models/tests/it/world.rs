//! A kernel with models and one tool.

use std::sync::Arc;

use regent_kernel::{
    BoxFuture, Catalogue, Completion, Confidentiality, Driver, ExecuteError, Executor, Executors, Host,
    Inference, Integrity, Label, Message, Models, Op, Outcome, Part, Parts, Permit, Principal, RawOutput,
    Reply, Role, Sampling, Secret, Secrets, SideEffect, SystemClock, Tier, ToolCall, ToolSet, ToolSpec,
    Workspace, tier,
};
use regent_ledger::{Entry, Ledger, LedgerKey, Reader};
use regent_models::{
    CapabilitySpec, Events, Hub, Patience, Provider, ProviderError, ProviderKind, ProviderRequest,
    ProviderSettings, Remote, RouterSettings,
};
use regent_policy::{Layer, Source};
use regent_store::MemoryState;
use regent_vault::{Scope, Short, Vault};
use serde_json::json;

pub(crate) const ALLOW_ALL: &str = "version: 1\nrules:\n  - { id: everything, effect: allow }\n";
/// What is in the vault under the name `key`.
pub(crate) const KEY: &str = "sk-Zk3vQ9pL7xW2mN8rT5yB1cD4";

pub(crate) struct ModelsFixture {
    pub(crate) kernel: Host,
    pub(crate) hub: Arc<Hub>,
    _folder: tempfile::TempDir,
}

impl ModelsFixture {
    pub(crate) async fn new(policy: &str, hub: Hub) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("ws")).unwrap();
        let vault = Vault::new(folder.path(), None);
        let scope = Scope { hosts: vec!["api.example.com".to_owned()], ..Scope::default() };
        vault.add("key", Secret::new(KEY.as_bytes().to_vec()), scope, Short::Refused, 1).unwrap();
        let catalogue = Catalogue::default();
        catalogue.admit_own(ToolSet::new("built-in").with(tool(), Driver::host(Arc::new(Finder)))).unwrap();
        let hub = Arc::new(hub);
        let kernel = Host::boot(Parts {
            policy: regent_policy::load(policy, &Source::new("test", Layer::User)).unwrap(),
            ledger: Ledger::in_memory(LedgerKey::generate().unwrap()),
            executors: Executors {
                models: Some(Arc::clone(&hub) as Arc<dyn Models>),
                ..Executors::default()
            },
            catalogue,
            workspace: Workspace::open(&folder.path().join("ws")).unwrap(),
            state: Arc::new(MemoryState::default()),
            secrets: Arc::new(vault) as Arc<dyn Secrets>,
            clock: Arc::new(SystemClock::default()),
            sponsor: "someone".to_owned(),
            session: "s".to_owned(),
        })
        .await
        .unwrap();
        Self { kernel, hub, _folder: folder }
    }

    pub(crate) async fn agent(&self) -> Principal {
        let spec = serde_json::from_value(json!({"name": "worker", "roles": []})).unwrap();
        let operator = self.kernel.operator();
        let Reply::Done(born) = self.kernel.syscall(&operator, Op::Spawn(spec)).await.unwrap() else {
            panic!("no agent")
        };
        let born: serde_json::Value = serde_json::from_slice(born.output.bytes()).unwrap();
        self.kernel.principal_of(&operator, &born["agent"].as_str().unwrap().into()).unwrap()
    }

    /// The agent finds something of this confidentiality, which its conversation carries from then on.
    pub(crate) async fn finds(&self, agent: &Principal, what: &str) {
        let op = Op::RunTool(ToolCall { tool: "find".to_owned(), args: json!({"what": what}) });
        assert!(matches!(self.kernel.syscall(agent, op).await.unwrap(), Reply::Done(_)));
    }

    pub(crate) async fn ask(&self, inference: Inference) -> Outcome {
        match self.kernel.syscall(&self.kernel.operator(), Op::Infer(inference)).await.unwrap() {
            Reply::Done(outcome) => outcome,
            other @ (Reply::Denied(_) | Reply::Pending(_)) => panic!("{other:?}"),
        }
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        Reader::on(self.kernel.ledger().storage()).tail(usize::MAX).unwrap()
    }

    /// What all outcomes together were charged.
    pub(crate) fn charged(&self) -> (u64, u64) {
        let outcomes = self.entries();
        let of = |field: &str| {
            outcomes.iter().filter_map(|entry| entry.body["spent"][field].as_u64()).sum::<u64>()
        };
        (of("tokens"), of("money_microusd"))
    }
}

/// A hub with providers that were made by hand.
pub(crate) fn hub(providers: Vec<(&str, Arc<dyn Provider>, ProviderSettings)>) -> Hub {
    let mut hub = Hub::new(RouterSettings::default(), Arc::new(SystemClock::default())).unwrap();
    for (name, provider, own) in providers {
        hub.add(name, provider, own);
    }
    hub
}

/// Settings that don't wait long.
pub(crate) fn quick(kind: ProviderKind) -> ProviderSettings {
    ProviderSettings { patience: hasty(), ..ProviderSettings::new(kind, &["m"]) }
}

pub(crate) fn hasty() -> Patience {
    Patience {
        connect_ms_max: 2_000,
        first_byte_ms_max: 400,
        idle_ms_max: 400,
        total_ms_max: 8_000,
        tries_max: 3,
        wait_ms: 1,
        wait_ms_max: 50,
    }
}

/// What a million tokens of input cost a dollar, and of output this.
pub(crate) fn priced(output: u64) -> CapabilitySpec {
    serde_json::from_value(json!({"price": {"input": 1_000_000, "output": output}})).unwrap()
}

/// A server of the test that passes for one elsewhere, so that what leaves for it is judged and redacted as such.
#[derive(Debug)]
pub(crate) struct Elsewhere(pub(crate) Remote);

impl Provider for Elsewhere {
    fn endpoint(&self, _model: &str) -> Option<String> {
        Some("https://api.example.com/v1/chat/completions".to_owned())
    }

    fn secret(&self) -> Option<&str> {
        self.0.secret()
    }

    fn takes(&self, part: &Part) -> bool {
        self.0.takes(part)
    }

    fn ask<'a>(
        &'a self,
        ask: ProviderRequest<'a>,
        events: Events,
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.0.ask(ask, events)
    }
}

pub(crate) fn asking(model: &str, text: &str) -> Inference {
    Inference {
        model: model.to_owned(),
        messages: vec![Message::new(Role::User, text)],
        tools: Vec::new(),
        tokens_max: 100,
        sampling: Sampling::default(),
    }
}

pub(crate) fn completion(outcome: &Outcome) -> Completion {
    serde_json::from_slice(outcome.output.bytes()).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

/// A tool that finds things of any confidentiality.
struct Finder;

impl Executor<tier::Host> for Finder {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let confidentiality: Confidentiality =
                serde_json::from_value(permit.args()["what"].clone()).unwrap();
            let label = Label { integrity: Integrity::File, confidentiality };
            Ok(RawOutput::new(b"found".to_vec()).with_label(label))
        })
    }
}

fn tool() -> ToolSpec {
    ToolSpec {
        name: "find".to_owned(),
        description: "Finds something.".to_owned(),
        input: json!({"type": "object"}),
        effect: SideEffect::Read,
        idempotent: true,
        reversible: true,
        tiers: vec![Tier::Host],
        output: Label { integrity: Integrity::File, confidentiality: Confidentiality::Public },
        ..ToolSpec::default()
    }
}
