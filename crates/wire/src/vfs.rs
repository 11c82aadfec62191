//! Files of the virtual file system, as they are asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An open file of one agent. Numbers are never used again, so a number means the file it was judged as, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Fd(pub u32);

/// The mode of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OpenMode {
    /// To read.
    Read,
    /// To read and write; made if absent.
    Write,
}
