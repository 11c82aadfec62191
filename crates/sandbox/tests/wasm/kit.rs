//! A kernel with the WASM tier, the real host tools, and guests to call.

use std::collections::BTreeMap;
use std::sync::Arc;

use regent_egress::{Broker, Network};
use regent_kernel::{Digest, Driver, DriverKind, Outcome, Reply, SideEffect, Status, Tier, ToolSpec};
use regent_ledger::{EntryKind, Reader};
use regent_sandbox::wasm::{WasmConfig, WasmTier};
use regent_testkit::test_kernel::Builder;
use regent_testkit::{TestKernel, run};
use serde_json::{Value, json};

pub(crate) struct WasmFixture {
    pub(crate) kernel: TestKernel,
}

/// Small limits, so that running into them doesn't take long.
pub(crate) const SMALL: &str = "\
version: 1
limits: { wall: 5s, cpu: 300ms, output: 10kB, memory: 8MiB }
rules:
  - { id: everything, effect: allow }
";

/// A tool of the WASM tier that takes any arguments.
pub(crate) fn spec(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "for tests".to_owned(),
        input: json!({"type": "object"}),
        arguments: BTreeMap::new(),
        capabilities: Vec::new(),
        effect: SideEffect::Write,
        idempotent: false,
        reversible: false,
        driver: DriverKind::Wasm,
        tiers: vec![Tier::Wasm],
        output: ToolSpec::UNKNOWN_OUTPUT,
        ..ToolSpec::default()
    }
}

/// The real tools; programs are run by what the test gives.
pub(crate) fn with_host_tools(builder: Builder) -> Builder {
    let broker = Broker::new(Network::default(), &std::env::temp_dir());
    let builder = regent_tools::hosted(&broker)
        .into_iter()
        .fold(builder, |so_far, (spec, driver)| so_far.driven(spec, driver));
    regent_tools::program_specs().into_iter().fold(builder, Builder::declared)
}

/// A guest as a tool.
pub(crate) fn guest(tier: &Arc<WasmTier>, name: &str, wasm: &[u8]) -> (ToolSpec, Driver) {
    (spec(name), Driver::wasm(Arc::new(tier.tool(wasm, Digest::compute(wasm)).unwrap())))
}

impl WasmFixture {
    /// A kernel with these rules and these guests.
    pub(crate) async fn new(policy: &str, guests: &[(&str, Vec<u8>)]) -> Self {
        Self::with(policy, guests, |builder| builder).await
    }

    pub(crate) async fn with(
        policy: &str,
        guests: &[(&str, Vec<u8>)],
        change: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let tier = Arc::new(WasmTier::new(WasmConfig::default()));
        let mut builder = with_host_tools(TestKernel::builder().policy(policy));
        for (name, wasm) in guests {
            let (spec, driver) = guest(&tier, name, wasm);
            builder = builder.driven(spec, driver);
        }
        Self { kernel: change(builder).boot().await.unwrap() }
    }

    pub(crate) async fn outcome(&self, tool: &str, args: Value) -> Outcome {
        match self.kernel.call(run(tool, args)).await.unwrap() {
            Reply::Done(outcome) => outcome,
            Reply::Denied(denial) => panic!("denied: {}", denial.reason),
            Reply::Pending(ticket) => panic!("asked: {}", ticket.summary),
        }
    }

    /// What a call says, or `code: message` of its failure.
    pub(crate) async fn said(&self, tool: &str, args: Value) -> Result<String, String> {
        let outcome = self.outcome(tool, args).await;
        match &outcome.status {
            Status::Ok => Ok(outcome.output.text().into_owned()),
            Status::Failed(failure) => Err(format!("{}: {}", failure.code, failure.message)),
            other @ (Status::TimedOut | Status::Cancelled | Status::Faulted(_)) => Err(format!("{other:?}")),
        }
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.kernel.workspace().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// The bodies of all intents so far, the oldest first.
    pub(crate) fn intents(&self) -> Vec<Value> {
        let reader = Reader::on(self.kernel.kernel.ledger().storage());
        let entries = reader.entries().unwrap().map(Result::unwrap);
        entries.filter(|entry| entry.kind == EntryKind::Intent).map(|entry| entry.body).collect()
    }
}
