//! The kernel's entries about itself: its state, its policy, and removals by retention.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Version;

pub(super) const VERSION: u64 = 1;

/// Another policy is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PolicyNote")]
pub struct PolicyBody<'a> {
    /// What it consists of.
    #[serde(default)]
    pub files: Vec<Cow<'a, str>>,
    /// Its digest.
    #[serde(borrow)]
    pub policy: Cow<'a, str>,
    /// In which session.
    #[serde(borrow, default)]
    pub session: Cow<'a, str>,
    /// Which version this is.
    #[serde(default = "Version::<VERSION>::first", skip_serializing_if = "Version::<VERSION>::is_first")]
    pub v: Version<VERSION>,
    /// The digest of the one before.
    #[serde(borrow, default)]
    pub was: Cow<'a, str>,
}

/// What the kernel, or a chore of the operator's, notes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "KernelNote")]
pub enum KernelBody<'a> {
    /// The kernel came up or went down.
    State {
        /// The shared state is on a server that may lose what it has acknowledged.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lossy: bool,
        /// The digest of the policy in force.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<Cow<'a, str>>,
        /// In which session.
        #[serde(default)]
        session: Cow<'a, str>,
        /// What it is now.
        state: KernelState,
        /// Which version this is.
        #[serde(default = "Version::<VERSION>::first", skip_serializing_if = "Version::<VERSION>::is_first")]
        v: Version<VERSION>,
    },
    /// `regent gc` is about to remove something.
    Removal(#[serde(borrow)] RemovalBody<'a>),
}

/// What state a kernel is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KernelState {
    /// It takes calls.
    Running,
    /// It takes no more.
    Shutdown,
}

/// What retention settings removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RemovalNote")]
pub struct RemovalBody<'a> {
    /// Who had it removed.
    #[serde(default)]
    pub by: Cow<'a, str>,
    /// What.
    pub gc: RemovalGroup<'a>,
    /// Which version this is.
    #[serde(default = "Version::<VERSION>::first", skip_serializing_if = "Version::<VERSION>::is_first")]
    pub v: Version<VERSION>,
}

/// Things of one kind that are removed together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovalGroup<'a> {
    /// How much it is.
    pub bytes: u64,
    /// What the setting no longer keeps and can't be removed yet.
    pub in_use: InUse,
    /// The names of the first of them.
    pub items: Vec<String>,
    /// How many more there are.
    pub items_left_out: u64,
    /// How many were removed.
    pub removed: u64,
    /// The setting that says so.
    pub rule: Cow<'a, str>,
    /// What they are.
    pub what: Cow<'a, str>,
}

/// What a running process still writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InUse {
    /// How much it is.
    pub bytes: u64,
    /// How many.
    pub count: u64,
}
