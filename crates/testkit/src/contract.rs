//! The exam that every executor of programs takes: no network, no host path, limits kept, dead when told, output labelled, and a
//! receipt that states what was obtained. It is taken through the kernel, because that is how executors are used.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use regent_kernel::{
    ArgumentKind, Executor, Integrity, Outcome, Reply, SideEffect, Status, Tier, ToolSpec, tier,
};
use serde_json::json;

use crate::drivers::run;
use crate::test_kernel::{SetupError, TestKernel};

/// Small limits, so that running into them doesn't take long.
const POLICY: &str = "\
version: 1
limits: { wall: 1500ms, output: 10kB, pids: 64 }
rules:
  - { id: everything, effect: allow }
";
const OUTPUT_BYTES_MAX: usize = 10_000;
/// What an executor may add to say that it cut something off.
const CUT_MARK_BYTES_MAX: usize = 1_000;

/// Puts an executor of the process tier through the exam. Gives back what it failed, all of it.
pub async fn executor_contract(
    executor: Arc<dyn Executor<tier::Process>>,
) -> Result<Vec<String>, SetupError> {
    let kernel =
        TestKernel::builder().policy(POLICY).declared(program_spec()).process(executor).boot().await?;
    let exam = Exam { kernel };
    let mut failed = Vec::new();
    let mut note = |question: &str, answer: Result<(), SetupError>| {
        if let Err(why) = answer {
            failed.push(format!("{question}: {why}"));
        }
    };
    note("runs a program", exam.runs().await);
    note("says how it failed", exam.fails().await);
    note("no network", exam.no_network().await);
    note("no host path", exam.no_host_path().await);
    note("nothing inherited", exam.nothing_inherited().await);
    note("keeps the output limit", exam.keeps_output().await);
    note("keeps the wall clock", exam.keeps_time().await);
    note("leaves nobody behind", exam.leaves_nobody().await);
    Ok(failed)
}

/// `process.exec`, as the built-in tools declare it.
fn program_spec() -> ToolSpec {
    ToolSpec {
        name: "process.exec".to_owned(),
        description: "Runs a program.".to_owned(),
        input: json!({
            "type": "object",
            "properties": {"argv": {"type": "array", "items": {"type": "string"}, "minItems": 1}},
            "required": ["argv"],
            "additionalProperties": false,
        }),
        arguments: BTreeMap::from([("/argv".to_owned(), ArgumentKind::Argv)]),
        capabilities: vec!["process.exec".to_owned()],
        effect: SideEffect::Write,
        idempotent: false,
        reversible: false,
        tiers: vec![Tier::Process],
        output: ToolSpec::UNKNOWN_OUTPUT,
        ..ToolSpec::default()
    }
}

struct Exam {
    kernel: TestKernel,
}

impl Exam {
    async fn shell(&self, line: &str) -> Result<Outcome, SetupError> {
        match self.kernel.call(run("process.exec", json!({"argv": ["/bin/sh", "-c", line]}))).await? {
            Reply::Done(outcome) => Ok(outcome),
            Reply::Denied(denial) => Err(format!("denied: {}", denial.reason).into()),
            Reply::Pending(_) => Err("a person would be asked".into()),
        }
    }

    async fn runs(&self) -> Result<(), SetupError> {
        let outcome = self.shell("echo hello; pwd").await?;
        let said = outcome.output.text().into_owned();
        must(outcome.status == Status::Ok, || format!("`echo` ended with {:?}", outcome.status))?;
        must(said.contains("hello"), || format!("`echo hello` said `{said}`"))?;
        must(outcome.output.label().integrity >= Integrity::Tool, || {
            format!("its output passes for {:?}", outcome.output.label().integrity)
        })?;
        must(outcome.obtained.as_ref().is_some_and(|obtained| !obtained.is_null()), || {
            "the receipt doesn't say what was obtained".to_owned()
        })
    }

    async fn fails(&self) -> Result<(), SetupError> {
        let outcome = self.shell("exit 3").await?;
        must(matches!(outcome.status, Status::Failed(_)), || {
            format!("`exit 3` ended with {:?}", outcome.status)
        })
    }

    async fn no_network(&self) -> Result<(), SetupError> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let line = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo reached");
        let outcome = self.shell(&line).await?;
        must(!outcome.output.text().contains("reached"), || {
            "a program reached a listener of the host".to_owned()
        })?;
        must(listener.accept().is_err(), || "the host's listener was reached".to_owned())
    }

    async fn no_host_path(&self) -> Result<(), SetupError> {
        let outside = tempfile::Builder::new().tempdir_in(std::env::temp_dir())?;
        let secret = outside.path().join("secret");
        std::fs::write(&secret, "a-word-of-the-host")?;
        let place = secret.display();
        let outcome =
            self.shell(&format!("cat '{place}'; echo planted > '{place}'; cat /proc/1/environ")).await?;
        must(!outcome.output.text().contains("a-word-of-the-host"), || {
            "a host file could be read".to_owned()
        })?;
        must(std::fs::read_to_string(&secret)? == "a-word-of-the-host", || {
            "a host file was written".to_owned()
        })
    }

    async fn nothing_inherited(&self) -> Result<(), SetupError> {
        // The tests' own environment has CARGO_MANIFEST_DIR under cargo, and PATH anywhere.
        let outcome = self.shell("env; ls /proc/self/fd").await?;
        let said = outcome.output.text().into_owned();
        must(!said.contains("CARGO_"), || format!("the environment came along: {said}"))?;
        let descriptors = said.lines().filter(|line| line.parse::<u32>().is_ok_and(|fd| fd > 3)).count();
        must(descriptors == 0, || format!("descriptors came along: {said}"))
    }

    async fn keeps_output(&self) -> Result<(), SetupError> {
        let outcome = self.shell("yes | head -c 1000000").await?;
        let bytes = outcome.output.bytes().len();
        must(bytes <= OUTPUT_BYTES_MAX + CUT_MARK_BYTES_MAX, || {
            format!("{bytes} bytes came out; {OUTPUT_BYTES_MAX} are allowed")
        })
    }

    async fn keeps_time(&self) -> Result<(), SetupError> {
        let outcome = self.shell("sleep 60").await?;
        must(outcome.status == Status::TimedOut, || format!("`sleep 60` ended with {:?}", outcome.status))
    }

    /// A grandchild in a session of its own beats on in the workspace for as long as it lives.
    async fn leaves_nobody(&self) -> Result<(), SetupError> {
        let beat = "while :; do echo x >> beat; sleep 0.02; done";
        let line = format!(
            "cd '{}' && (setsid sh -c '{beat}' > /dev/null 2>&1 &) ; sleep 0.3",
            self.kernel.workspace().display()
        );
        self.shell(&line).await?;
        let file = self.kernel.workspace().join("beat");
        let before = std::fs::read(&file).map_or(0, |bytes| bytes.len());
        tokio::time::sleep(Duration::from_millis(200)).await;
        let after = std::fs::read(&file).map_or(0, |bytes| bytes.len());
        must(before == after, || format!("something lives on: {before} beats, then {after}"))
    }
}

fn must(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), SetupError> {
    if holds { Ok(()) } else { Err(otherwise().into()) }
}
