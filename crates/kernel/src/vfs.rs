//! The virtual file system of agents.

use regent_policy::Access;
use serde::{Deserialize, Serialize};

use crate::call::{Call, Op};
use crate::kernel::Core;

/// An open file of one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fd(pub u32);

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenMode {
    /// To read.
    Read,
    /// To read and write; made if absent.
    Write,
}

/// All mounts and open files.
#[derive(Debug, Default)]
pub(crate) struct Vfs {}

impl Core {
    /// The absolute virtual paths that an operation touches, in the form policy sees.
    pub(crate) fn vfs_paths(&self, _call: &Call, _op: &Op) -> Vec<(String, Access)> {
        Vec::new()
    }
}
