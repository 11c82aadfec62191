//! Proof that one call was allowed and recorded. Minted only by `super`.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use regent_ledger::Receipt;
use regent_policy::{Class, Label, Limits, Reason, Verdict};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Channel, Delivery, Fault, FileJudge, Flow, Overflow, Reading, Reply};
use crate::agent::{Life, Lifecycle, RunningProgram};
use crate::budget::{Reservation, Settled, Spent};
use crate::call::{Call, Op};
use crate::cancel::Cancel;
use crate::catalogue::{Catalogue, Tool};
use crate::clock::Clock;
use crate::executor::BoxFuture;
use crate::facts::{BoundTree, Sheet, Target, refusal};
use crate::grants;
use crate::kernel::Core;
use crate::off_worker::off_worker;
use crate::rules;
use crate::secret::{self, Scrubbed, Secret, SecretError, Usage};
use regent_workspace::{FolderState, Workspace};

/// A program on a terminal ends after this, whether it was stopped or not: labels are foreseen for so long (30 days).
const TERMINAL_WALL_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1000;
/// How often a program that is stopped is looked at.
const STOPPED_LOOK: Duration = Duration::from_millis(100);

/// Single-use permission to perform exactly one call, at one tier, within limits.
///
/// Private fields, no `Clone`, no test constructor: the only source is [`Kernel::syscall`](super::Kernel::syscall), and only
/// after the intent is in the ledger.
#[must_use]
#[derive(Debug)]
pub struct Permit<'s, T: tier::Tier> {
    frame: &'s Frame,
    tier: PhantomData<T>,
}

impl<'s, T: tier::Tier> Permit<'s, T> {
    pub(super) fn mint(frame: &'s Frame) -> Self {
        Self { frame, tier: PhantomData }
    }

    /// The call that was allowed.
    pub fn call(&self) -> &'s Call {
        &self.frame.call
    }

    /// The arguments as policy judged them: resolved, checked against the schema, transformed.
    pub fn args(&self) -> &'s Value {
        &self.frame.args
    }

    /// Its limits.
    pub fn limits(&self) -> Limits {
        Limits { wall_ms_max: self.frame.wall_ms_max(), ..self.frame.limits }
    }

    /// The position of its intent in the ledger.
    pub fn intent(&self) -> &'s Receipt {
        &self.frame.intent
    }

    /// The folder that the caller works in.
    pub fn workspace(&self) -> &'s Workspace {
        &self.frame.core.workspace
    }

    /// The value of a secret whose handle is in the judged arguments. The kernel releases no other secret.
    pub fn secret(&self, name: &str) -> Result<Secret, SecretError> {
        let Frame { targets, call, core, .. } = self.frame;
        if !targets.iter().any(|target| matches!(target, Target::Secret(judged) if judged == name)) {
            return Err(SecretError::NotJudged(name.to_owned()));
        }
        let host = |target: &'s Target| match target {
            Target::Endpoint { host, .. } => Some(host.as_str()),
            Target::Path { .. } | Target::Argv(_) | Target::Secret(_) => None,
        };
        let tool = if let Op::RunTool(run) = &call.op { run.tool.as_str() } else { "" };
        let agents = call.principal.line().filter(|one| one.class() == Class::Agent);
        let usage = Usage {
            tool,
            agents: agents.map(|one| one.name()).collect(),
            hosts: targets.iter().filter_map(host).collect(),
        };
        off_worker(|| core.secrets.reveal(name, &usage))
    }

    /// A text out of the judged arguments with its handles replaced by their values.
    pub fn filled(&self, text: &str) -> Result<Secret, SecretError> {
        secret::filled(text, |name| self.secret(name))
    }

    /// Masks revealed values in what an executor passes on before the call is over; what it returns is scrubbed by the kernel.
    pub fn scrub(&self, bytes: &mut Vec<u8>) -> bool {
        self.frame.core.secrets.scrub(bytes)
    }

    /// The same, for work on another thread.
    pub fn scrubber(&self) -> impl Fn(&mut Vec<u8>) -> bool + Send + 'static {
        let secrets = Arc::clone(&self.frame.core.secrets);
        move |bytes| secrets.scrub(bytes)
    }

    /// The same for a stream; see [`Secrets::scrub_part`](crate::Secrets::scrub_part).
    pub fn scrub_part(&self, held: &mut Vec<u8>) -> Scrubbed {
        self.frame.core.secrets.scrub_part(held)
    }

    /// Whether a reader takes output while the call runs. Without one, an executor may return all output at the end.
    pub fn is_read(&self) -> bool {
        self.frame.flow.is_read()
    }

    /// Raises the label of whatever is emitted from here on.
    pub fn raise_label(&self, label: Label) {
        self.frame.flow.raise(label);
    }

    /// Passes on output while the call runs, in the order of these calls. Waits while the reader is behind.
    pub async fn emit(&self, channel: Channel, bytes: &[u8]) -> Result<Reading, Overflow> {
        let Frame { core, flow, limits, .. } = self.frame;
        flow.take(&*core.secrets, (channel, bytes), limits.output_bytes_max).await
    }

    /// Says that no more will be emitted on a channel, and passes on what was held back because a secret might have begun in it.
    pub async fn end(&self, channel: Channel) -> Result<Reading, Overflow> {
        let Frame { core, flow, limits, .. } = self.frame;
        flow.end(&*core.secrets, channel, limits.output_bytes_max).await
    }

    /// Passes on what is held back because a secret might have begun in it, since nothing follows for now: a prompt, the echo of a key.
    pub async fn flush(&self, channel: Channel) -> Result<Reading, Overflow> {
        let Frame { core, flow, limits, .. } = self.frame;
        flow.flush(&*core.secrets, channel, limits.output_bytes_max).await
    }

    /// Waits until the reader is done with all that was emitted, or gone.
    pub async fn caught_up(&self) {
        self.frame.flow.caught_up().await;
    }

    /// Whether the reader has a terminal that it lends. From then on what is emitted is drawn there: counted and hashed without a limit,
    /// and kept up to the limit. Of the limits of time, those of rules and budgets hold.
    pub fn lend_terminal(&self) -> bool {
        self.frame.flow.lend_terminal()
    }

    /// Where the executor notes that the user has stopped the program with the job that it is in: that time doesn't count.
    pub fn job_control(&self) -> JobControl {
        self.frame.job_control.clone()
    }

    /// What was emitted on a channel so far.
    pub fn delivered(&self, channel: Channel) -> Delivery {
        self.frame.flow.delivered(channel)
    }

    /// The kernel's clock, for guests that ask what time it is.
    pub fn clock(&self) -> &'s Arc<dyn Clock> {
        &self.frame.core.clock
    }

    /// Reserves budget for a call that sends more than planned, `bytes_out` in total. Call it before the bytes leave.
    pub fn reserve_bytes_out(&self, bytes_out: u64) -> BoxFuture<'s, Result<(), Reason>> {
        Box::pin(self.frame.reserve_bytes_out(bytes_out))
    }

    /// Resolves when the call must stop: a signal, a deadline, a shutdown.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 's {
        let cancel = self.frame.cancel.clone();
        async move { cancel.cancelled().await }
    }

    /// Reports when the caller is suspended and resumed (STOP, CONT), so that its programs pause.
    pub fn suspension(&self) -> Suspension {
        let mut stage = self.frame.call.principal.life().map(Life::watch);
        // The agent may be suspended already: the first report is how it is now.
        stage.iter_mut().for_each(watch::Receiver::mark_changed);
        Suspension(stage)
    }

    /// Whether policy would allow a further call as it stands, without making it: for a driver that meets many things at once (a
    /// search through a folder) and must leave out what its caller may not have. Nothing is recorded because nothing is done.
    pub fn would_allow(&self, op: Op) -> BoxFuture<'s, bool> {
        self.frame.would_allow(op)
    }

    /// Whether the caller was granted to change anything. For one that wasn't, a program gets the workspace read-only.
    pub fn may_change(&self) -> bool {
        grants::may_change(&self.frame.call.principal)
    }

    /// Judges reading files of the workspace, many of them, for this caller: a program must not read what `fs.read` would ask
    /// about or deny.
    pub fn read_judge(&self) -> BoxFuture<'s, Result<FileJudge, Fault>> {
        self.frame.read_judge()
    }

    /// The same for writing: a program must not write what `fs.write` would ask about or deny. If a reviewer has approved the program, or
    /// named it, its writes don't come from untrusted input.
    pub fn write_judge(&self) -> BoxFuture<'s, Result<FileJudge, Fault>> {
        self.frame.write_judge()
    }

    /// Makes a nested system call for guest code, as the same principal.
    pub fn syscall(&self, op: Op) -> BoxFuture<'static, Result<Reply, Fault>> {
        Arc::clone(&self.frame.core).owned(self.frame.nested(op))
    }
}

/// How long the user's job control (Ctrl-Z) has stopped a program. Cloning shares it.
///
/// A flag rather than a point in time: when this process goes on, the deadline may be looked at before the end of the stop was noted.
#[derive(Debug, Clone, Default)]
pub struct JobControl(Arc<(AtomicBool, AtomicU64)>);

impl JobControl {
    /// The program is stopped from here on.
    pub fn stop(&self) {
        self.0.0.store(true, Ordering::Release);
    }

    /// It goes on, after as long.
    pub fn go_on(&self, stopped_ms: u64) {
        self.0.1.fetch_add(stopped_ms, Ordering::AcqRel);
        self.0.0.store(false, Ordering::Release);
    }

    /// How long it was stopped so far; nothing while it is.
    pub fn stopped_ms(&self) -> Option<u64> {
        let is_stopped = self.0.0.load(Ordering::Acquire);
        (!is_stopped).then(|| self.0.1.load(Ordering::Acquire))
    }

    /// Waits until a program that began at `began` has run for `wall_ms_max`, not counting the time in which it was stopped.
    pub async fn has_run(&self, began: Instant, wall_ms_max: impl Fn() -> u64) {
        loop {
            let left = self.stopped_ms().map_or(STOPPED_LOOK, |stopped_ms| {
                let wall_ms = wall_ms_max();
                let most_ms = wall_ms.saturating_add(stopped_ms).min(wall_ms.max(TERMINAL_WALL_MS_MAX));
                Duration::from_millis(most_ms).saturating_sub(began.elapsed())
            });
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

/// Whether an agent is suspended, as it changes. By default: never.
#[derive(Debug, Default)]
pub struct Suspension(Option<watch::Receiver<Lifecycle>>);

impl Suspension {
    /// Waits for the next change, and returns whether the agent is suspended now; the first time, at once. An operator is never suspended:
    /// then it waits forever.
    pub async fn changed(&mut self) -> bool {
        if let Some(stage) = &mut self.0 {
            if stage.changed().await.is_ok() {
                return *stage.borrow_and_update() == Lifecycle::Suspended;
            }
            self.0 = None;
        }
        std::future::pending().await
    }
}

impl<'s> Permit<'s, tier::Host> {
    /// The tools that exist, for a driver that makes tools. Only drivers of ours run at this tier.
    pub fn catalogue(&self) -> &'s Catalogue {
        &self.frame.core.catalogue
    }

    /// Whether a folder holds what it held when a reviewer approved this call. Also if they were not asked about it. `None`: there is no
    /// folder at the path.
    pub fn is_as_approved(&self, path: &str, state: Option<&FolderState>) -> bool {
        self.frame.agreed_trees.iter().all(|tree| !tree.is_at(path) || Some(&tree.state) == state)
    }

    /// The programs that run as calls of the caller and of the agents below it.
    pub fn programs(&self) -> Vec<RunningProgram> {
        self.frame.core.society.calls.programs(self.frame.call.principal())
    }

    /// Ends one of these programs with all its processes: its call ends as cancelled. Says whether it is one of these.
    pub fn end_program(&self, call: u64) -> bool {
        self.frame.core.society.calls.end_program(self.frame.call.principal(), call)
    }
}

/// The life of one system call; a permit can't outlive it.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) core: Arc<Core>,
    pub(crate) call: Call,
    /// The tool that runs, as it was when the call was judged.
    pub(crate) tool: Option<Arc<Tool>>,
    pub(crate) args: Value,
    /// What the arguments reach for, as policy judged it.
    pub(crate) targets: Vec<Target>,
    pub(crate) limits: Limits,
    /// The limit of a program on a user's terminal.
    pub(crate) rule_wall_ms_max: u64,
    pub(crate) job_control: JobControl,
    pub(crate) intent: Receipt,
    /// When it was let loose.
    pub(crate) began_ms: i64,
    /// The same on the clock that is never set.
    pub(crate) began: std::time::Duration,
    /// A reviewer has approved this call.
    pub(crate) agreed: bool,
    /// The folders that they approved it for, with everything in them.
    pub(crate) agreed_trees: Vec<BoundTree>,
    pub(crate) cancel: Cancel,
    pub(crate) flow: Flow,
    /// What was set aside for it; taken when it is settled.
    pub(crate) held: tokio::sync::Mutex<Option<Reservation>>,
}

impl Frame {
    /// The frame of a call that is about to run. It takes the arguments and targets that policy judged; `limits` are those of the grant.
    pub(crate) fn new(
        core: Arc<Core>,
        mut call: Call,
        facts: &mut Sheet,
        targets: Vec<Target>,
        (limits, floor): (Limits, Label),
        (intent, cancel): (Receipt, Cancel),
    ) -> Self {
        let reviewed = facts.policy.policy.reviews(call.op.name());
        Self {
            tool: facts.tool.clone(),
            args: facts.take_args(),
            targets,
            limits,
            rule_wall_ms_max: limits.wall_ms_max,
            job_control: JobControl::default(),
            intent,
            began_ms: core.clock.now_ms(),
            began: core.clock.elapsed(),
            agreed: false,
            agreed_trees: Vec::new(),
            cancel,
            flow: Flow::new(call.listener.take(), floor, reviewed),
            held: tokio::sync::Mutex::new(None),
            core,
            call,
        }
    }

    /// How long it may run. A default doesn't end what a user is looking at.
    pub(super) fn wall_ms_max(&self) -> u64 {
        match self.flow.is_drawn() {
            true => self.rule_wall_ms_max.min(TERMINAL_WALL_MS_MAX),
            false => self.limits.wall_ms_max,
        }
    }

    /// How long it may be there, stopped or not: files that change meanwhile get its label.
    pub(crate) fn wall_ms_foreseen(&self) -> u64 {
        let on_terminal = if self.flow.lends() { TERMINAL_WALL_MS_MAX } else { 0 };
        self.limits.wall_ms_max.max(on_terminal)
    }

    /// A call that guest code makes within this one.
    fn nested(&self, op: Op) -> Call {
        Call {
            // What a step does inside is part of the step.
            principal: self.call.principal.with_step(None),
            op,
            parent: Some(self.intent.seq),
            depth: self.call.depth.saturating_add(1),
            within: self.within(),
            listener: None,
        }
    }

    async fn reserve_bytes_out(&self, bytes_out: u64) -> Result<(), Reason> {
        let mut held = self.held.lock().await;
        let Some(reserved) = held.as_mut() else { return Ok(()) };
        match reserved.widen(bytes_out, self.core.clock.now_ms()).await {
            Ok(widened) => widened,
            Err(error) => Err(refusal("budget.unknown", error.to_string(), "")),
        }
    }

    fn would_allow(&self, op: Op) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let call = self.nested(op);
            let Ok(mut sheet) = self.core.facts(&call).await else { return false };
            // What is allowed only with changed arguments, or only with an approval, is not allowed as it stands.
            match self.core.decide(&call, &mut sheet).await {
                Verdict::Allow(grant) => grant.transforms.is_empty(),
                Verdict::Ask(_) | Verdict::Deny(_) => false,
            }
        })
    }

    fn read_judge(&self) -> BoxFuture<'_, Result<FileJudge, Fault>> {
        Box::pin(FileJudge::reading(&self.core, |op| self.nested(op)))
    }

    fn write_judge(&self) -> BoxFuture<'_, Result<FileJudge, Fault>> {
        let agreed = self.agreed || self.is_named();
        Box::pin(FileJudge::writing(&self.core, |op| self.nested(op), agreed))
    }

    /// Whose grants hold for the calls that are made from here.
    fn within(&self) -> Vec<Arc<Tool>> {
        let narrows = |tool: &&Arc<Tool>| tool.spec().may.is_some() || rules::is_for_operator(tool);
        let own = self.tool.iter().filter(narrows);
        self.call.within.iter().chain(own).cloned().collect()
    }

    /// Whether the request has the program that runs, as a whole.
    fn is_named(&self) -> bool {
        let line = self.targets.iter().find_map(|target| match target {
            Target::Argv(argv) => match argv.as_slice() {
                [shell, option, line] if shell == "/bin/sh" && option == "-c" => Some(line.clone()),
                words => Some(words.join(" ")),
            },
            Target::Path { .. } | Target::Endpoint { .. } | Target::Secret(_) => None,
        });
        let life = self.call.principal.life();
        life.zip(line).is_some_and(|(life, line)| life.work().names(&line))
    }

    pub(super) async fn settle(&self, spent: Spent) -> Option<Settled> {
        let held = self.held.lock().await.take();
        held.map(|reserved| reserved.settle(spent, self.core.clock.elapsed()))
    }
}

/// Where a permitted call may run. Sealed: a new tier is a kernel change.
pub mod tier {
    mod sealed {
        pub trait Sealed {}
    }

    /// A place where a permitted call may run.
    pub trait Tier: sealed::Sealed + Send + Sync + 'static {}

    /// Our own drivers, in this process.
    #[derive(Debug)]
    pub enum Host {}
    /// A program in the process sandbox.
    #[derive(Debug)]
    pub enum Process {}
    /// A WASM component.
    #[derive(Debug)]
    pub enum Wasm {}
    /// A guest in a virtual machine of its own.
    #[derive(Debug)]
    pub enum Microvm {}

    impl sealed::Sealed for Host {}
    impl sealed::Sealed for Process {}
    impl sealed::Sealed for Wasm {}
    impl sealed::Sealed for Microvm {}
    impl Tier for Host {}
    impl Tier for Process {}
    impl Tier for Wasm {}
    impl Tier for Microvm {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_in_which_job_control_stopped_a_program_does_not_count() {
        let (control, began) = (JobControl::default(), Instant::now());
        let ended = {
            let control = control.clone();
            tokio::spawn(async move {
                control.has_run(began, || 1_000).await;
                began.elapsed().as_secs()
            })
        };
        tokio::time::sleep(Duration::from_millis(500)).await;
        control.stop();
        tokio::time::sleep(Duration::from_secs(660)).await;
        assert!(!ended.is_finished(), "the limit passed while it was stopped");
        control.go_on(660_000);
        assert_eq!(ended.await.unwrap(), 661);
    }
}
