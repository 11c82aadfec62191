//! Proof that one call was allowed and recorded. Minted only by `super`.

use std::marker::PhantomData;
use std::sync::Arc;

use regent_ledger::Receipt;
use regent_policy::{Limits, Verdict};
use serde_json::Value;

use super::{Fault, Reply};
use crate::call::{Call, Op};
use crate::cancel::Cancel;
use crate::clock::Clock;
use crate::executor::BoxFuture;
use crate::kernel::Core;
use regent_workspace::Workspace;

/// Single-use leave to perform exactly one call, at one tier, within limits.
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

    /// What it must stay within.
    pub fn limits(&self) -> Limits {
        self.frame.limits
    }

    /// The place of its intent in the ledger.
    pub fn intent(&self) -> &'s Receipt {
        &self.frame.intent
    }

    /// The folder that the caller works in.
    pub fn workspace(&self) -> &'s Workspace {
        &self.frame.core.workspace
    }

    /// The kernel's clock, for guests that ask what time it is.
    pub fn clock(&self) -> &'s Arc<dyn Clock> {
        &self.frame.core.clock
    }

    /// Resolves when the call must stop: a signal, a deadline, a shutdown.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 's {
        let cancel = self.frame.cancel.clone();
        async move { cancel.cancelled().await }
    }

    /// Whether policy would allow a further call as it stands, without making it: for a driver that meets many things at once (a
    /// search through a folder) and must leave out what its caller may not have. Nothing is recorded because nothing is done.
    pub async fn would_allow(&self, op: Op) -> bool {
        let call = self.nested(op);
        let Ok(sheet) = self.frame.core.facts(&call).await else { return false };
        // What is allowed only with changed arguments, or only when a person agrees, is not allowed as it stands.
        match self.frame.core.decide(&call, &sheet) {
            Verdict::Allow(grant) => grant.transforms.is_empty(),
            Verdict::Ask(_) | Verdict::Deny(_) => false,
        }
    }

    /// Lets guest code ask for more: a host import is a system call too, made as the same principal.
    pub fn syscall(&self, op: Op) -> BoxFuture<'static, Result<Reply, Fault>> {
        Box::pin(Arc::clone(&self.frame.core).owned(self.nested(op)))
    }

    fn nested(&self, op: Op) -> Call {
        Call {
            principal: self.frame.call.principal.clone(),
            op,
            parent: Some(self.frame.intent.seq),
            depth: self.frame.call.depth.saturating_add(1),
        }
    }
}

/// The life of one system call; a permit can't outlive it.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) core: Arc<Core>,
    pub(crate) call: Call,
    pub(crate) args: Value,
    pub(crate) limits: Limits,
    pub(crate) intent: Receipt,
    pub(crate) cancel: Cancel,
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
