//! Policy: rule sets, loaders, and one pure decision function.
//!
//! [`load`] compiles the text of a policy file, [`Policy::layered`] puts a project's file below the user's, and [`Policy::decide`] decides
//! one call from its [`Facts`]. The crate has no clock, no file, no network and no lock. [`Policy::explain`] explains a decision.
#![forbid(unsafe_code)]

pub mod acs;
mod below;
mod body;
mod cases;
mod condition;
mod conflicts;
mod declassify;
mod diff;
mod explain;
mod expression;
mod facts;
mod finding;
mod glob;
mod governance;
mod graph;
mod handle;
mod history;
mod index;
mod json_path;
mod learn;
mod lint;
mod load;
mod number;
mod policy;
mod replay;
mod rule;
mod sequence;
mod shadow;
mod transform;
mod tree;
mod verdict;
mod window;
mod witness;
mod words;

pub use cases::{CaseFailure, CaseReport, run_cases};
pub use conflicts::Conflicts;
pub use declassify::Declassified;
pub use diff::{PolicyDiff, Shift, diff};
pub use explain::{Consideration, Explanation, Fared, Outline};
pub use facts::{ArgLabels, BudgetLeft, Caller, Facts, RateCounts, Rates, Resource, SessionFacts, Target};
pub use finding::{Finding, Level, LoadError, Source, Span, nearest};
pub use glob::{GlobError, PathPattern};
pub use handle::{
    HANDLE_SCHEME, Handle, SECRET_NAME_BYTES_MAX, SECRET_USE, each_secret, handles, is_secret_name,
};
pub use history::{History, Past};
pub use learn::{Cover, Covering, Trace};
pub use lint::lint;
pub use load::{CallSketch, load};
pub use policy::{Mode, Policy};
pub use replay::{PastCall, Replay, Replayed, VerdictChange};
pub use rule::Effect;
pub use sequence::{ApprovedBy, Awaited, Notes, Reach};
pub use shadow::{Contrast, Tallied};
pub use transform::{Pattern, Transform};
pub use tree::read_yaml;
pub use verdict::{Charge, Grant, Layer, Limits, Question, Reason, RuleId, RuleRef, Verdict, codes};
pub use window::Window;
pub use words::{Access, Class, Confidentiality, Integrity, Label, OPS, Tier};

/// The policy that `regent init` writes: commented, with examples, strict.
pub const DEFAULT_POLICY: &str = include_str!("default_policy.yml");

#[cfg(test)]
mod tests;
