//! A kernel with the microVM tier and the real host tools, programs to run in it, and small ones made here.

use std::path::PathBuf;
use std::sync::Arc;

use regent_kernel::{Outcome, Reply, Status, Tier, ToolSpec};
use regent_ledger::{EntryKind, Reader};
use regent_microvm::MicrovmTier;
use regent_testkit::test_kernel::Builder;
use regent_testkit::{TestKernel, run};
use regent_tools::{Broker, Network};
use serde_json::{Value, json};

/// Allows everything; more rules can follow.
pub(crate) const EVERYTHING: &str = "version: 1\nrules:\n  - { id: everything, effect: allow }\n";

/// Everything is allowed, and programs are sent to a microVM.
pub(crate) const RAISED: &str = "\
version: 1
limits: { wall: 20s, output: 100kB, memory: 96MiB }
rules:
  - { id: everything, effect: allow }
";

pub(crate) const BUSYBOX: &str = "/bin/busybox";

pub(crate) struct MicrovmFixture {
    pub(crate) kernel: TestKernel,
}

/// Whether guests can be run here. Says so if not.
pub(crate) fn has_kvm() -> bool {
    let offered = regent_microvm::is_offered();
    if !offered {
        crate::skip::skipped("kvm", "there is no usable /dev/kvm");
    }
    offered
}

/// Whether there is a static busybox. Says so if not.
pub(crate) fn has_busybox() -> bool {
    let is_static =
        std::fs::read(BUSYBOX).is_ok_and(|file| !file.windows(9).any(|part| part == b"/ld-linux"));
    if !is_static {
        crate::skip::skipped("busybox", "there is no static /bin/busybox (Debian package: busybox-static)");
    }
    is_static && has_kvm()
}

/// The real tools.
pub(crate) fn with_tools(builder: Builder) -> Builder {
    regent_tools::program_specs().into_iter().fold(with_hosted(builder), Builder::declared)
}

fn with_hosted(builder: Builder) -> Builder {
    let broker = Broker::new(Network::default(), &std::env::temp_dir());
    let hosted = regent_tools::hosted(&broker).into_iter();
    hosted.fold(builder, |so_far, (spec, driver)| so_far.driven(spec, driver))
}

/// The same, but programs run only as guests, whatever policy says.
pub(crate) fn equipped(builder: Builder) -> Builder {
    let guests = |spec| ToolSpec { tiers: vec![Tier::Microvm], ..spec };
    let programs = regent_tools::program_specs().into_iter().map(guests);
    programs.fold(with_hosted(builder), Builder::declared).microvm(Arc::new(MicrovmTier::new()))
}

impl MicrovmFixture {
    pub(crate) async fn new(policy: &str) -> Self {
        Self { kernel: equipped(TestKernel::builder().policy(policy)).boot().await.unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.kernel.workspace().canonicalize().unwrap()
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_else(|error| format!("{name}: {error}"))
    }

    pub(crate) async fn outcome(&self, tool: &str, args: Value) -> Outcome {
        match self.kernel.call(run(tool, args)).await.unwrap() {
            Reply::Done(outcome) => outcome,
            Reply::Denied(denial) => panic!("denied: {}", denial.reason),
            Reply::Pending(ticket) => panic!("asked: {}", ticket.summary),
        }
    }

    pub(crate) async fn exec<const N: usize>(&self, argv: [&str; N]) -> Outcome {
        self.outcome("process.exec", json!({"argv": argv.to_vec()})).await
    }

    /// What a busybox applet says; it must end well.
    pub(crate) async fn busybox<const N: usize>(&self, words: [&str; N]) -> String {
        let mut argv = vec![BUSYBOX];
        argv.extend(words);
        let outcome = self.outcome("process.exec", json!({"argv": argv})).await;
        let said = outcome.output.text().into_owned();
        assert_eq!(outcome.status, Status::Ok, "{words:?}: {said} {:?}", outcome.obtained);
        said
    }

    /// A line for busybox's own shell; only what it has built in.
    pub(crate) async fn sh(&self, line: &str) -> Outcome {
        self.outcome("shell.exec", json!({"command": line})).await
    }

    /// Runs machine code as a program of the workspace.
    pub(crate) async fn code(&self, code: &[u8]) -> Outcome {
        self.put("program", elf(code));
        self.exec(["./program"]).await
    }

    /// The bodies of all intents so far, the oldest first.
    pub(crate) fn intents(&self) -> Vec<Value> {
        let reader = Reader::on(self.kernel.kernel.ledger().storage());
        let entries = reader.entries().unwrap().map(Result::unwrap);
        entries.filter(|entry| entry.kind == EntryKind::Intent).map(|entry| entry.body).collect()
    }
}

/// The smallest program around some code. Its one part can be read, written and run.
pub(crate) fn elf(code: &[u8]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    for word in [0x40_0078_u64, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    file.extend(7_u32.to_le_bytes());
    let bytes = (120 + code.len()) as u64;
    for word in [0_u64, 0x40_0000, 0x40_0000, bytes, bytes + 4096, 4096] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    file
}

/// `mov rax, number; mov rdi, …; syscall` with up to six arguments.
pub(crate) fn call(number: i64, arguments: &[u64]) -> Vec<u8> {
    let loads: [&[u8]; 6] =
        [&[0x48, 0xbf], &[0x48, 0xbe], &[0x48, 0xba], &[0x49, 0xba], &[0x49, 0xb8], &[0x49, 0xb9]];
    let mut code = vec![0x48, 0xb8];
    code.extend(number.to_le_bytes());
    for (load, argument) in loads.iter().zip(arguments) {
        code.extend(*load);
        code.extend(argument.to_le_bytes());
    }
    code.extend([0x0f, 0x05]);
    code
}

/// `exit` with the low byte of what the last call answered, made positive: zero, or the error's number.
pub(crate) fn exit_with_answer() -> Vec<u8> {
    // mov rdi, rax; neg rdi; mov eax, SYS_exit_group; syscall
    vec![0x48, 0x89, 0xc7, 0x48, 0xf7, 0xdf, 0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05]
}

/// The code that a program exited with, or the signal that ended it, below zero.
pub(crate) fn ended(outcome: &Outcome) -> i64 {
    let status = &outcome.obtained.as_ref().expect("a receipt")["ended"]["status"];
    status["code"].as_i64().unwrap_or_else(|| -status["signal"].as_i64().expect("a status"))
}

pub(crate) fn failed_with(outcome: &Outcome, code: &str) -> bool {
    matches!(&outcome.status, Status::Failed(failure) if failure.code == code)
}
