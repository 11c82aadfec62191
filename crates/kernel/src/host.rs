//! The second handle: who boots a kernel, grants, reloads and acts as the operator.
//!
//! [`Kernel`] makes system calls, and every crate above the kernel may hold it. [`Host`] holds everything that is not a system call:
//! the operator's principal, the ledger, the workspace, the catalogue, the policy in force. Only the composition root holds a `Host`,
//! and it passes on the parts that a component needs, by name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use regent_ledger::{Digest, EntryKind, EntryPlace, Head, Ledger, ReadError, Reader};
use regent_policy::{Outline, Policy, Tallied};
use regent_wire::Version;
use regent_wire::body::{KernelBody, KernelState, PolicyBody};
use regent_workspace::Workspace;

use crate::agent::{AgentId, Delivered};
use crate::budget::{BudgetScope, Standing};
use crate::call::{Call, Op};
use crate::catalogue::{Catalogue, Tool};
use crate::executor::BoxFuture;
use crate::kernel::{Core, InForce, Parts};
use crate::principal::Principal;
use crate::record;
use crate::recorder::Phase;
use crate::recovery::InDoubt;
use crate::signal::Signal;
use crate::syscall::{Fault, Kernel, Reply};

/// Records that a boot clears away at most: the rest is for the next one.
const SWEPT_AT_BOOT_MAX: usize = 10_000;

/// A kernel with the authority of the process that booted it. Cloning shares it. It dereferences to the [`Kernel`], which has less.
#[derive(Debug, Clone)]
pub struct Host {
    pub(crate) kernel: Kernel,
}

impl Deref for Host {
    type Target = Kernel;

    fn deref(&self) -> &Kernel {
        &self.kernel
    }
}

/// The owner of a runtime's tasks: their principal, and the ledger with their steps. The composition root creates it;
/// a [`Kernel`] can't produce one.
#[derive(Debug, Clone)]
pub struct TaskOwner {
    /// Who starts the agents of the tasks, and under whose name tasks are recorded.
    pub principal: Principal,
    /// Where the steps of the tasks are recorded.
    pub records: Records,
}

/// The ledger, read-only.
#[derive(Debug, Clone)]
pub struct Records(Ledger);

impl Records {
    /// Reads entries.
    pub fn reader(&self) -> Reader {
        Reader::on(self.0.storage())
    }

    /// The bytes that a digest in an entry stands for; `None` if they were erased.
    pub fn payload(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        self.0.payload(digest)
    }

    /// The same for a payload that an entry names, which is faster.
    pub fn payload_of(&self, entry: EntryPlace, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        self.0.payload_of(entry, digest)
    }

    /// Where the lane of this process ends.
    pub fn head(&self) -> Head {
        self.0.head()
    }
}

impl Host {
    /// Boots a kernel and records it.
    pub fn boot(parts: Parts) -> BoxFuture<'static, Result<Self, Fault>> {
        Box::pin(Self::booted(parts))
    }

    async fn booted(parts: Parts) -> Result<Self, Fault> {
        let start = parts.ledger.head();
        let core = Arc::new(Core::new(parts));
        let policy = core.policy();
        let running = core.state_note(KernelState::Running, Some(&policy.digest));
        // Written with the first entry that follows: a kernel that does nothing leaves nothing.
        core.recorder.ledger.announce(record::note(EntryKind::Kernel, core.clock.now_ms(), &running)?)?;
        core.state.sweep(core.clock.now_ms(), SWEPT_AT_BOOT_MAX).await?;
        core.recover(&start).await?;
        core.recorder.turn(Phase::Running);
        if let Some(tool) = core.catalogue.undriven() {
            core.recorder.turn(Phase::Degraded(format!("this machine has no driver for `{tool}`")));
        }
        Ok(Self { kernel: Kernel(core) })
    }

    /// The handle that makes system calls and nothing else: for the runtime, tools and protocols.
    pub fn kernel(&self) -> Kernel {
        self.kernel.clone()
    }

    /// A call that its caller owns: dropping the future is a crash in the middle of the call. For simulations; all other callers
    /// use [`Kernel::syscall`].
    pub fn attached(&self, caller: &Principal, op: Op) -> BoxFuture<'static, Result<Reply, Fault>> {
        Box::pin(Arc::clone(self.core()).enter(Call::top_level(caller, op)))
    }

    fn core(&self) -> &Arc<Core> {
        &self.kernel.0
    }

    /// The principal of the operator.
    pub fn operator(&self) -> Principal {
        self.core().operator.clone()
    }

    /// The operator as the owner of tasks.
    pub fn task_owner(&self) -> TaskOwner {
        TaskOwner { principal: self.operator(), records: self.records() }
    }

    /// How a budget stands.
    pub fn budget<'a>(&'a self, scope: &'a BudgetScope) -> BoxFuture<'a, Result<Standing, Fault>> {
        Box::pin(async { Ok(self.core().gate.budgets.standing(scope, self.core().clock.now_ms()).await?) })
    }

    /// Activates another policy, and records that. Calls that the old one judged continue.
    pub fn replace_policy(&self, policy: Policy) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.replaced(policy))
    }

    async fn replaced(&self, policy: Policy) -> Result<(), Fault> {
        let (core, next) = (self.core(), InForce::new(policy));
        let files = next.policy.outline().into_iter().map(|one| Cow::Owned(one.name)).collect();
        let was = core.policy();
        let body = PolicyBody {
            files,
            policy: Cow::Borrowed(&next.digest),
            session: core.operator.session().into(),
            v: Version::CURRENT,
            was: Cow::Borrowed(&was.digest),
        };
        core.note(EntryKind::Policy, &body).await?;
        core.replace_policy(next);
        Ok(())
    }

    /// Decisions of candidate policies that differed since the last call, by the digest of the candidate's file.
    pub fn take_tallies(&self) -> BTreeMap<[u8; 32], Tallied> {
        self.core().gate.tallies.take()
    }

    /// The tools that can be called; sets of them are admitted and withdrawn here, while calls run.
    pub fn catalogue(&self) -> &Catalogue {
        &self.core().catalogue
    }

    /// The folder that agents work in.
    pub fn workspace(&self) -> &Workspace {
        &self.core().workspace
    }

    /// The ledger that it writes.
    pub fn ledger(&self) -> &Ledger {
        &self.core().recorder.ledger
    }

    /// The ledger that it writes, read-only.
    pub fn records(&self) -> Records {
        Records(self.core().recorder.ledger.clone())
    }

    /// The calls that were in doubt when this kernel booted.
    pub fn in_doubt(&self) -> &[InDoubt] {
        self.core().recorder.in_doubt.get().map_or(&[], Vec::as_slice)
    }

    /// Raises a signal on the kernel's own account.
    pub fn raise<'a>(
        &'a self,
        agent: &'a AgentId,
        signal: Signal,
        why: &'a str,
    ) -> BoxFuture<'a, Result<Delivered, Fault>> {
        self.kernel.raise(&self.operator(), agent, signal, why)
    }

    /// Stops taking calls, stops the running ones, and closes the ledger.
    pub fn shutdown(&self) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.closed())
    }

    async fn closed(&self) -> Result<(), Fault> {
        let core = self.core();
        core.recorder.turn(Phase::Shutdown);
        core.end_agents().await;
        core.serve_returns().await;
        // The disk may have room by now for what it had none for. Whatever fails, the rest is still done.
        let settled = core.recorder.settle_owed(|| core.catalogue.undriven().is_none()).await;
        // That it ended well is in the closing checkpoint and in the state; only calls that are not over are worth a word.
        let noted = if core.recorder.unended.count() > 0 {
            core.note(EntryKind::Kernel, &core.state_note(KernelState::Shutdown, None)).await.map(drop)
        } else {
            Ok(())
        };
        let given_back = core.gate.budgets.give_back(core.clock.now_ms()).await.map_err(Fault::from);
        let closed = core.recorder.ledger.close().map_err(Fault::from);
        settled.and(noted).and(given_back).and(closed)?;
        core.leave_clean().await
    }
}

impl Core {
    fn state_note<'a>(&'a self, state: KernelState, policy: Option<&'a str>) -> KernelBody<'a> {
        let (policy, session) = (policy.map(Cow::Borrowed), self.operator.session().into());
        KernelBody::State { lossy: self.state.is_lossy(), policy, session, state, v: Version::CURRENT }
    }
}

impl Kernel {
    /// An outline of the active policy.
    pub fn policy_outline(&self) -> Vec<Outline> {
        self.0.policy().policy.outline()
    }

    /// The digest of the active policy.
    pub fn policy_digest(&self) -> String {
        self.0.policy().digest.clone()
    }

    /// The kernel's phase.
    pub fn phase(&self) -> Phase {
        self.0.recorder.phase()
    }

    /// The time by the kernel's clock.
    pub fn now_ms(&self) -> i64 {
        self.0.clock.now_ms()
    }

    /// A tool that can be called, by its name.
    pub fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        self.0.catalogue.get(name)
    }

    /// Tells when tools came or went.
    pub fn tool_changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.catalogue.changes()
    }

    /// All tools that can be called.
    pub fn tools(&self) -> Vec<Arc<Tool>> {
        self.0.catalogue.all()
    }
}
