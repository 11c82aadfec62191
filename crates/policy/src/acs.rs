//! Agent Control Specification 0.3.1-beta: manifests, the eight intervention points, the five verdicts, and approvals that are bound to
//! the action they were given for.
//!
//! Evaluation is pure: the host hands in a snapshot and answers for annotators and policies by [`Host`]; what comes back is an
//! [`Evaluation`]. Whatever goes wrong on the way is a deny whose reason starts with `runtime_error:`. Nothing is applied on such a way.
//!
//! A manifest is a policy file as well: [`load`](crate::load) puts it in force, and `control.rs` says which point is asked where.

mod canonical;
pub(crate) mod control;
mod evaluate;
mod manifest;
mod path;
mod review;
mod snapshot;
mod verdict;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use evaluate::{Approval, Evaluation, Host, Limits, Mode, Request, resolve};
pub use manifest::{Manifest, ManifestError, PolicyKind};
pub use review::Reviewed;
pub use verdict::{Decision, Verdict};

/// The only version that is understood.
pub const VERSION: &str = "0.3.1-beta";

/// Where in an agent's loop a policy is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// An agent or a session starts.
    AgentStartup,
    /// A request comes in.
    Input,
    /// Before a model is asked.
    PreModelCall,
    /// After it has answered.
    PostModelCall,
    /// Before a tool is called.
    PreToolCall,
    /// After it has come back.
    PostToolCall,
    /// The final answer goes out.
    Output,
    /// An agent or a session ends.
    AgentShutdown,
}

impl Point {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 8] = [
        ("agent_startup", Self::AgentStartup),
        ("input", Self::Input),
        ("pre_model_call", Self::PreModelCall),
        ("post_model_call", Self::PostModelCall),
        ("pre_tool_call", Self::PreToolCall),
        ("post_tool_call", Self::PostToolCall),
        ("output", Self::Output),
        ("agent_shutdown", Self::AgentShutdown),
    ];

    /// The point by that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, point)| *point)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, point)| *point == self).map_or("", |(name, _)| name)
    }

    fn has_tool(self) -> bool {
        matches!(self, Self::PreToolCall | Self::PostToolCall)
    }
}

/// Reasons that only the runtime gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The manifest can't be used.
    #[error("runtime_error:manifest_invalid")]
    ManifestInvalid,
    /// The manifest doesn't configure this point.
    #[error("runtime_error:intervention_point_unknown")]
    PointUnknown,
    /// A path that must lead somewhere doesn't.
    #[error("runtime_error:path_missing")]
    PathMissing,
    /// A path goes through something of another kind.
    #[error("runtime_error:path_type_mismatch")]
    PathTypeMismatch,
    /// The tool isn't in the catalogue.
    #[error("runtime_error:tool_unknown")]
    ToolUnknown,
    /// An annotator failed.
    #[error("runtime_error:annotation_failed")]
    AnnotationFailed,
    /// An annotator took too long.
    #[error("runtime_error:annotation_timeout")]
    AnnotationTimeout,
    /// The policy couldn't be asked.
    #[error("runtime_error:policy_invocation_failed")]
    PolicyInvocationFailed,
    /// What the policy said is no verdict.
    #[error("runtime_error:policy_output_invalid")]
    PolicyOutputInvalid,
    /// A change that can't be made.
    #[error("runtime_error:transform_invalid")]
    TransformInvalid,
    /// A change outside of the policy's target.
    #[error("runtime_error:transform_target_forbidden")]
    TransformTargetForbidden,
    /// Too large, too deep, or too many.
    #[error("runtime_error:resource_limit_exceeded")]
    ResourceLimitExceeded,
    /// What was approved isn't what would be done.
    #[error("runtime_error:approval_action_mismatch")]
    ApprovalActionMismatch,
    /// Nobody could be asked, or nobody answered.
    #[error("runtime_error:approval_unresolved")]
    ApprovalUnresolved,
}

/// `sha256:…` of a value's canonical form.
pub fn identity(value: &Value) -> String {
    canonical::identity(value)
}
