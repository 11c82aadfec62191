//! `regent demo`: a scripted agent does useful and harmful things before your eyes, through the same kernel, policy, sandbox
//! and ledger as everything else. It works in a temporary folder and is also a self-check: it succeeds only if every step came
//! out as it must.

mod script;
mod task;

use std::path::{Path, PathBuf};

use clap::Args;
use regent_kernel::{Principal, Reply};
use regent_ledger::{LedgerVerdict, Report, VerifyOptions};
use serde_json::{Value, json};

use self::script::{DemoExpectation, DemoFolders, DemoStep};
use crate::calls;
use crate::codes;
use crate::compose::{self, BootedKernel, error_chain};
use crate::context::Context;
use crate::controls::Controls;
use crate::failure::Failure;
use crate::output::{self, CommandResult, Done};
use crate::paths::Project;
use crate::term;

/// Demonstrate Regent: useful and harmful calls, verdicts, sandbox, ledger
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Run a real task with a local model instead
    #[arg(long)]
    task: bool,
    /// Use a script instead of a model
    #[arg(long, requires = "task")]
    no_model: bool,
}

pub(crate) async fn run(context: &Context, args: &DemoArgs) -> CommandResult {
    if args.task {
        return task::run(context, args.no_model).await;
    }
    let world = DemoFolders::make()?;
    let inside = Context { paths: world.paths.clone(), cwd: world.project.clone(), ..context.clone() };
    let project = Project::open(&world.project)?;
    let policy = compose::policy(&inside.paths, Some(&Controls::read(&project)?))?;
    let rules: usize = policy.outline().iter().map(|one| one.rules).sum();
    let running = BootedKernel::boot_with(&inside, &project, policy).await?;
    let mut show = Show { context, rows: Vec::new(), unexpected: Vec::new() };
    show.print(&format!("A kernel runs in a temporary folder, with the policy that `regent init` writes ({rules} rules).\nAn agent named scout starts to work.\n"));

    let agent = calls::spawn(&inside, &running, "scout").await?;
    let mut heading = "";
    for step in script::steps(&world) {
        if step.heading != heading {
            heading = step.heading;
            show.print(&format!("\n{}\n", context.screen.strong(heading)));
        }
        let came = make(&running, &agent, &step).await;
        show.step(&step, came);
    }
    running.close(&inside, Ok(())).await?;
    let evidence = show.ledger(&project.audit(), &world.copy)?;
    show.end(&evidence)
}

/// The result of a step.
#[derive(Debug)]
struct Came {
    verdict: &'static str,
    by: String,
    /// What was really obtained, for programs.
    tier: Option<String>,
    says: String,
    is_stopped: bool,
    is_refused_for_want: bool,
}

async fn make(running: &BootedKernel, agent: &Principal, step: &DemoStep) -> Came {
    let nothing = |verdict, by: String, says: String| Came {
        verdict,
        by,
        tier: None,
        says,
        is_stopped: false,
        is_refused_for_want: false,
    };
    match running.kernel.syscall(agent, step.op.clone()).await {
        Ok(Reply::Done(outcome)) => {
            let confinement = outcome
                .obtained
                .as_ref()
                .and_then(|obtained| obtained.get("confinement"))
                .and_then(Value::as_str);
            let (is_stopped, says) = match calls::succeeded(&outcome) {
                Ok(()) => (false, term::short(outcome.output.text().trim(), 60)),
                Err(failure) => (true, format!("{} ({})", failure.message, failure.code)),
            };
            Came { tier: confinement.map(str::to_owned), is_stopped, ..nothing("allow", String::new(), says) }
        }
        Ok(Reply::Denied(denial)) => {
            let by = denial
                .reason
                .rule
                .as_ref()
                .map_or_else(|| denial.reason.code.to_string(), |rule| rule.id.to_string());
            let is_refused_for_want = denial.reason.code == "tier.unavailable";
            Came { is_refused_for_want, ..nothing("deny", by, denial.reason.message) }
        }
        Ok(Reply::Pending(ticket)) => nothing("ask", ticket.rule, ticket.reason),
        Err(fault) => {
            let failure = Failure::from(fault);
            let is_refused_for_want = failure.code == codes::SANDBOX_UNAVAILABLE.id;
            Came { is_refused_for_want, ..nothing("fault", failure.code.into_owned(), failure.message) }
        }
    }
}

/// What has been shown so far.
#[derive(Debug)]
struct Show<'c> {
    context: &'c Context,
    rows: Vec<Value>,
    unexpected: Vec<String>,
}

/// What the ledger says in the end.
#[derive(Debug)]
struct DemoEvidence {
    report: Report,
    found: String,
}

impl Show<'_> {
    fn print(&self, text: &str) {
        if !self.context.screen.json {
            // If nobody watches, the exit code still tells.
            let _unseen = output::write_all(text.as_bytes());
        }
    }

    fn step(&mut self, step: &DemoStep, came: Came) {
        let screen = &self.context.screen;
        let is_expected = match step.expected {
            DemoExpectation::Done => came.verdict == "allow" && !came.is_stopped,
            DemoExpectation::Denied(by) => came.verdict == "deny" && came.by == by,
            DemoExpectation::Asked(by) => came.verdict == "ask" && came.by == by,
            DemoExpectation::Contained => came.verdict == "allow" && came.is_stopped,
        };
        // Where the machine gives no confinement at all, refusing to run the program is what must happen.
        let is_less =
            step.needs_sandbox && came.is_refused_for_want && regent_sandbox::probe().fallback.is_some();
        let word = match (came.verdict, came.is_stopped) {
            ("allow", false) => screen.good("allowed  "),
            ("allow", true) => screen.warn("contained"),
            ("ask", _) => screen.warn("asked    "),
            ("deny", _) => screen.bad("denied   "),
            _fault => screen.bad("refused  "),
        };
        let by = if came.by.is_empty() { String::new() } else { format!("{}: ", came.by) };
        let tier = came.tier.as_ref().map(|tier| format!(" [sandbox: {tier}]")).unwrap_or_default();
        let room = screen.width.saturating_sub(16);
        self.print(&format!(
            "  {word}  {}\n             {}\n",
            term::short(step.title, room),
            screen.faint(&term::short(&format!("{by}{}{tier}", came.says), room))
        ));
        if !is_expected && !is_less {
            self.unexpected.push(step.title.to_owned());
            self.print(&format!("             {}\n", screen.bad("this is not the expected result")));
        }
        self.rows.push(json!({
            "title": step.title, "op": step.op, "verdict": came.verdict, "by": came.by, "contained": came.is_stopped, "says": came.says,
            "sandbox": came.tier, "as_expected": is_expected, "less_than_it_could_be": is_less,
        }));
    }

    /// Verifies the ledger, then flips one bit in a copy and verifies that.
    fn ledger(&mut self, audit: &Path, copy: &Path) -> Result<DemoEvidence, Failure> {
        let verified = |folder: &Path| {
            regent_ledger::verify(folder, &VerifyOptions::default())
                .map_err(|error| Failure::new(codes::AUDIT_UNREADABLE, error_chain(&error)))
        };
        let report = verified(audit)?;
        if report.verdict != LedgerVerdict::Ok {
            self.unexpected.push("the ledger verifies".to_owned());
        }
        self.print(&format!(
            "\n{}\n",
            self.context.screen.strong("The ledger has every attempt, verdict and outcome")
        ));
        for lane in &report.lanes {
            self.print(&format!(
                "  {}   {} entries verified, Merkle root {}\n",
                self.context.screen.good("verified"),
                lane.entries,
                lane.root
            ));
        }
        regent_ledger::Reader::new(audit)
            .backup(copy)
            .map_err(|error| Failure::new(codes::AUDIT_UNREADABLE, error_chain(&error)))?;
        flip_a_bit(copy)?;
        let found = match verified(copy)?.verdict {
            LedgerVerdict::Broken(broken) => broken.to_string(),
            LedgerVerdict::Ok | LedgerVerdict::Unproven { .. } => {
                self.unexpected.push("a flipped bit is found".to_owned());
                "nothing".to_owned()
            }
        };
        self.print(&format!(
            "  {}     one bit flipped in a copy: {}\n",
            self.context.screen.bad("found"),
            term::inline(&found)
        ));
        Ok(DemoEvidence { report, found })
    }

    fn end(self, evidence: &DemoEvidence) -> CommandResult {
        let sandbox = regent_sandbox::probe();
        let less = sandbox
            .full
            .as_ref()
            .map(|closed| format!("this machine doesn't provide the full sandbox: {}", closed.reason));
        if let Some(less) = &less {
            self.print(&format!("\n{}\n", self.context.screen.warn(&term::inline(less))));
        }
        let data = json!({
            "steps": self.rows, "ledger": evidence.report, "flipped_bit": evidence.found, "less": less, "unexpected": self.unexpected,
        });
        if !self.unexpected.is_empty() {
            let message = format!("unexpected: {}", self.unexpected.join("; "));
            return Err(Failure::new(codes::DEMO_UNEXPECTED, message)
                .help("`regent doctor` says what this machine lacks")
                .data(data));
        }
        Ok(Done::new(
            data,
            "\nEvery step gave the expected result. Run `regent init` in a project folder to start.\n",
        ))
    }
}

/// Changes one bit in the middle of the first segment.
fn flip_a_bit(ledger: &Path) -> Result<(), Failure> {
    let path = first_segment(ledger)?;
    let mut bytes = std::fs::read(&path).map_err(|error| Failure::io("read", &path, &error))?;
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 1;
    }
    std::fs::write(&path, bytes).map_err(|error| Failure::io("write", &path, &error))
}

fn first_segment(ledger: &Path) -> Result<PathBuf, Failure> {
    let lane = ledger.join("lanes/0000");
    let entries =
        std::fs::read_dir(&lane).map_err(|error| Failure::io("read", &lane, &error))?.filter_map(Result::ok);
    let segment =
        entries.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "jsonl"));
    segment.ok_or_else(|| Failure::new(codes::DEMO_UNEXPECTED, "the copied ledger has no segment"))
}
