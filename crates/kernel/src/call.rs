//! One principal asking for one operation. The table of operations is `regent_wire::Op`.

use std::sync::Arc;

use regent_ledger::Digest;
pub use regent_wire::{HostCall, Measured, Memory, Op, Query, Region, ToolCall};
use serde::{Deserialize, Serialize};

use crate::catalogue::Tool;
use crate::principal::Principal;

/// One request for one operation by one principal. Created only by the kernel.
#[derive(Debug)]
pub struct Call {
    pub(crate) principal: Principal,
    pub(crate) op: Op,
    /// The recorded call that this one was made from, if a guest re-entered.
    pub(crate) parent: Option<u64>,
    pub(crate) depth: u8,
    /// The tools that it is made from and that were not granted everything, the outermost first.
    pub(crate) within: Vec<Arc<Tool>>,
    /// Who reads the output while it comes.
    pub(crate) listener: Option<crate::syscall::Listener>,
}

impl Call {
    /// A call that no other was made from.
    pub(crate) fn top_level(caller: &Principal, op: Op) -> Self {
        Self { principal: caller.clone(), op, parent: None, depth: 0, within: Vec::new(), listener: None }
    }

    /// The caller.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The number of the parent's intent, for a nested call.
    pub fn parent(&self) -> Option<u64> {
        self.parent
    }

    /// What for.
    pub fn op(&self) -> &Op {
        &self.op
    }
}

/// The hash that an approval is bound to: the exact call, who makes it, where, and the files it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallDigest(pub(crate) Digest);

impl std::fmt::Display for CallDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
