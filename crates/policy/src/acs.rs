//! Agent Control Specification 0.3.1-beta: manifests, the eight intervention points, the five verdicts, and approvals that are bound to the
//! approved action.
//!
//! Evaluation is pure: the host supplies a snapshot, and runs annotators and policies through [`Host`]; the result is an [`Evaluation`].
//! Every error becomes a deny whose reason starts with `runtime_error:`, and nothing is applied.
//!
//! A manifest is a policy file too: [`load`](crate::load) activates it, and `control.rs` states where each point is evaluated.

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

pub use evaluate::{Approval, Evaluation, EvaluationLimits, Host, Mode, Request, resolve};
pub use manifest::{Manifest, ManifestError, PolicyKind};
pub use review::Reviewed;
pub use verdict::{AcsDecision, AcsVerdict};

/// The only supported version.
pub const VERSION: &str = "0.3.1-beta";

/// An intervention point in an agent's loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// An agent or a session starts.
    AgentStartup,
    /// A request arrives.
    Input,
    /// Before a model call.
    PreModelCall,
    /// After a model call.
    PostModelCall,
    /// Before a tool call.
    PreToolCall,
    /// After a tool call.
    PostToolCall,
    /// The final answer is returned.
    Output,
    /// An agent or a session ends.
    AgentShutdown,
}

impl Point {
    /// All points with their names.
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

    /// The point of that name.
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

/// Reasons that only the runtime produces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The manifest is invalid.
    #[error("runtime_error:manifest_invalid")]
    ManifestInvalid,
    /// The manifest doesn't configure this point.
    #[error("runtime_error:intervention_point_unknown")]
    PointUnknown,
    /// A required path leads nowhere.
    #[error("runtime_error:path_missing")]
    PathMissing,
    /// A path goes through a value of the wrong type.
    #[error("runtime_error:path_type_mismatch")]
    PathTypeMismatch,
    /// The tool isn't in the catalogue.
    #[error("runtime_error:tool_unknown")]
    ToolUnknown,
    /// An annotator failed.
    #[error("runtime_error:annotation_failed")]
    AnnotationFailed,
    /// An annotator timed out.
    #[error("runtime_error:annotation_timeout")]
    AnnotationTimeout,
    /// The policy couldn't be evaluated.
    #[error("runtime_error:policy_invocation_failed")]
    PolicyInvocationFailed,
    /// The policy's output is not a verdict.
    #[error("runtime_error:policy_output_invalid")]
    PolicyOutputInvalid,
    /// A transform can't be applied.
    #[error("runtime_error:transform_invalid")]
    TransformInvalid,
    /// A transform outside the policy's target.
    #[error("runtime_error:transform_target_forbidden")]
    TransformTargetForbidden,
    /// Too large, too deep, or too many.
    #[error("runtime_error:resource_limit_exceeded")]
    ResourceLimitExceeded,
    /// The approved action differs from the current one.
    #[error("runtime_error:approval_action_mismatch")]
    ApprovalActionMismatch,
    /// No approver was available, or none answered.
    #[error("runtime_error:approval_unresolved")]
    ApprovalUnresolved,
}

/// `sha256:…` of a value's canonical form.
pub fn identity(value: &Value) -> String {
    canonical::identity(value)
}
