//! Verdicts: allow with conditions, ask, or deny with a reason.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::declassify::{self, Declassified};
use crate::transform::Transform;
use crate::words::{Confidentiality, Tier, Word, words};

/// The verdict on one call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "with")]
pub enum Verdict {
    /// Allow, within these limits.
    Allow(Grant),
    /// Needs an approval.
    Ask(Question),
    /// Deny.
    Deny(Reason),
}

impl Verdict {
    /// `allow`, `ask` or `deny`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Allow(_) => "allow",
            Self::Ask(_) => "ask",
            Self::Deny(_) => "deny",
        }
    }

    /// The reason of a denial.
    pub fn denied(&self) -> Option<&Reason> {
        match self {
            Self::Deny(reason) => Some(reason),
            Self::Allow(_) | Self::Ask(_) => None,
        }
    }

    /// The changes to the arguments that an allow or an approval requires.
    pub fn transforms(&self) -> &[Transform] {
        match self {
            Self::Allow(grant) => &grant.transforms,
            Self::Ask(question) => &question.grant.transforms,
            Self::Deny(_) => &[],
        }
    }

    /// The deciding rule, if any.
    pub fn rule(&self) -> Option<&RuleRef> {
        match self {
            Self::Allow(grant) => grant.rule.as_ref(),
            Self::Ask(question) => Some(&question.rule),
            Self::Deny(reason) => reason.rule.as_ref(),
        }
    }
}

impl Verdict {
    /// Combines the verdict with that of an ancestor: the strictest applies. Otherwise an agent that is denied something by name or role
    /// could start a child without that name or role. `above` is the ancestor's name.
    #[must_use]
    pub fn narrowed(self, theirs: Self, above: &str) -> Self {
        match (self, theirs) {
            (denied @ Self::Deny(_), _) => denied,
            (_, Self::Deny(reason)) => {
                let message = format!("its ancestor `{above}` may not: {}", reason.message);
                Self::Deny(Reason { message, ..reason })
            }
            (own, theirs) => own.stricter(theirs),
        }
    }

    /// The stricter of two verdicts on one call, with the conditions of both.
    #[must_use]
    pub fn stricter(self, theirs: Self) -> Self {
        match (self, theirs) {
            (denied @ Self::Deny(_), _) | (_, denied @ Self::Deny(_)) => denied,
            (Self::Allow(own), Self::Allow(theirs)) => Self::Allow(own.meet(theirs)),
            (Self::Ask(own), Self::Allow(theirs)) => {
                Self::Ask(Question { grant: own.grant.meet(theirs), ..own })
            }
            (Self::Allow(own), Self::Ask(theirs)) => {
                Self::Ask(Question { grant: own.meet(theirs.grant), ..theirs })
            }
            (Self::Ask(own), Self::Ask(theirs)) => {
                let approvers = own.approvers.max(theirs.approvers);
                Self::Ask(Question { grant: own.grant.meet(theirs.grant), approvers, ..own })
            }
        }
    }
}

impl Grant {
    /// The intersection of two grants: lower limits, stronger tier, all changes and charges; declassifications only if both have them.
    #[must_use]
    pub fn meet(mut self, theirs: Self) -> Self {
        self.limits = self.limits.meet(theirs.limits);
        self.rule_wall_ms_max = self.rule_wall_ms_max.min(theirs.rule_wall_ms_max);
        self.tier = self.tier.max(theirs.tier);
        // Usually the same rules matched for both, so duplicates are dropped.
        let new: Vec<_> =
            theirs.transforms.into_iter().filter(|one| !self.transforms.contains(one)).collect();
        self.transforms.extend(new);
        let new: Vec<_> = theirs.charges.into_iter().filter(|one| !self.charges.contains(one)).collect();
        self.charges.extend(new);
        self.result = self.result.max(theirs.result);
        self.declassify = declassify::meet(&self.declassify, &theirs.declassify);
        self
    }
}

/// What an allow grants, and what the kernel must enforce.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Grant {
    /// Resource limits.
    pub limits: Limits,
    /// The wall-clock limit that rules alone set: a file's own `limits` are a default, which doesn't end a program on a user's terminal.
    #[serde(skip)]
    pub rule_wall_ms_max: u64,
    /// The minimum tier.
    pub tier: Tier,
    /// Changes to the arguments, in order, before they reach the executor.
    ///
    /// A change can affect the resources: resolve them again and decide again before acting.
    pub transforms: Vec<Transform>,
    /// Rates to charge the call against, atomically with their limits.
    pub charges: Vec<Charge>,
    /// Result fields to declassify.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub declassify: Vec<Declassified>,
    /// Warnings for the caller.
    pub warnings: Vec<Reason>,
    /// The rule that allowed the call; `None` if the mode did.
    pub rule: Option<RuleRef>,
    /// Minimum confidentiality of the output, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Confidentiality>,
}

/// A question for a reviewer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Question {
    /// The asking rule.
    pub rule: RuleRef,
    /// The reason.
    pub reason: String,
    /// What an allow grants.
    pub grant: Grant,
    /// Number of different people who must approve.
    pub approvers: u8,
}

/// The reason of a denial, or a warning with an allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Stable code; see [`codes`](crate::codes).
    pub code: Cow<'static, str>,
    /// One sentence for users and models.
    pub message: String,
    /// The rule, if one decided.
    pub rule: Option<RuleRef>,
    /// How to fix it.
    pub help: Option<String>,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Where a rule is defined.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleRef {
    /// Its id in the file.
    pub id: Arc<str>,
    /// The layer of its file.
    pub layer: Layer,
    /// Line of the file, from 1.
    pub line: u32,
}

impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({} policy, line {})", self.id, self.layer, self.line)
    }
}

/// The layer of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Built into Regent.
    Builtin,
    /// The user's own.
    User,
    /// The project's; it can only narrow.
    Project,
}

words!(Layer: "builtin" => Builtin, "user" => User, "project" => Project);

/// A rule's identity for counting. It depends on layer and id alone, so counts survive a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RuleId(pub u64);

/// One rate that a call is charged against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Charge {
    /// The rule of the rate.
    pub rule: RuleId,
    /// Maximum calls within the window.
    pub limit: u32,
    /// Length of the sliding window.
    pub window_ms: u64,
}

/// Resource limits of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// Wall-clock time.
    pub wall_ms_max: u64,
    /// CPU time.
    pub cpu_ms_max: u64,
    /// Output size.
    pub output_bytes_max: u64,
    /// Memory.
    pub memory_bytes_max: u64,
    /// Processes and threads.
    pub pids_max: u32,
    /// Open files.
    pub open_files_max: u32,
    /// Maximum size of each written file.
    pub file_bytes_max: u64,
    /// Private temporary space.
    pub tmp_bytes_max: u64,
}

impl Limits {
    /// The stricter of both in every limit.
    #[must_use]
    pub fn meet(self, other: Self) -> Self {
        Self {
            wall_ms_max: self.wall_ms_max.min(other.wall_ms_max),
            cpu_ms_max: self.cpu_ms_max.min(other.cpu_ms_max),
            output_bytes_max: self.output_bytes_max.min(other.output_bytes_max),
            memory_bytes_max: self.memory_bytes_max.min(other.memory_bytes_max),
            pids_max: self.pids_max.min(other.pids_max),
            open_files_max: self.open_files_max.min(other.open_files_max),
            file_bytes_max: self.file_bytes_max.min(other.file_bytes_max),
            tmp_bytes_max: self.tmp_bytes_max.min(other.tmp_bytes_max),
        }
    }

    /// Unlimited: the neutral element of [`meet`](Self::meet).
    pub(crate) const UNLIMITED: Self = Self {
        wall_ms_max: u64::MAX,
        cpu_ms_max: u64::MAX,
        output_bytes_max: u64::MAX,
        memory_bytes_max: u64::MAX,
        pids_max: u32::MAX,
        open_files_max: u32::MAX,
        file_bytes_max: u64::MAX,
        tmp_bytes_max: u64::MAX,
    };
}

impl Default for Limits {
    /// The default limits: enough for a build, too little for an accident.
    fn default() -> Self {
        Self {
            wall_ms_max: 10 * 60 * 1000,
            cpu_ms_max: 20 * 60 * 1000,
            output_bytes_max: 10 << 20,
            memory_bytes_max: 4 << 30,
            pids_max: 512,
            open_files_max: 4096,
            file_bytes_max: 1 << 30,
            tmp_bytes_max: 1 << 30,
        }
    }
}

/// Stable codes of reasons with explanations; `regent explain CODE` prints them.
pub mod codes {
    /// A rule denies the call.
    pub const DENIED: &str = "policy.denied";
    /// No rule allows it, and the mode is strict.
    pub const NO_RULE: &str = "policy.no_rule";
    /// A rule's rate is used up.
    pub const RATE: &str = "policy.rate";
    /// No policy is loaded.
    pub const NOT_LOADED: &str = "policy.not_loaded";
    /// No rule matched; permissive mode allowed it.
    pub const UNMATCHED: &str = "policy.unmatched";
    /// Audit mode allowed a call that would have been denied.
    pub const WOULD_DENY: &str = "policy.would_deny";
    /// Audit mode allowed a call that would have needed an approval.
    pub const WOULD_ASK: &str = "policy.would_ask";
    /// A rule warns about an allowed call.
    pub const WARNED: &str = "policy.warned";
    /// A rule limits the number of such calls, and they are used up.
    pub const SEQUENCE: &str = "policy.sequence";
    /// The policy has a graph without an edge from the caller to the resource.
    pub const NO_EDGE: &str = "policy.no_edge";
    /// A manifest denies the call, or can't be evaluated.
    pub const MANIFEST: &str = "policy.manifest";
    /// A manifest withholds the output.
    pub const WITHHELD: &str = "policy.withheld";
    /// The tool is not among `allowed_tools`.
    pub const ALLOWED_TOOLS: &str = "governance.allowed_tools";
    /// The arguments contain a blocked pattern.
    pub const BLOCKED_PATTERN: &str = "governance.blocked_pattern";
    /// The request has used too many tokens.
    pub const MAX_TOKENS: &str = "governance.max_tokens";
    /// The request has made too many tool calls.
    pub const MAX_TOOL_CALLS: &str = "governance.max_tool_calls";
    /// The agent's confidence is too low.
    pub const CONFIDENCE: &str = "governance.confidence";
    /// The agent has drifted too far from its goal.
    pub const DRIFT: &str = "governance.drift";

    /// Every code with its explanation.
    pub const ALL: &[(&str, &str)] = &[
        (DENIED, "a deny rule matches the call; deny beats every allow"),
        (NO_RULE, "no rule allows the call; strict mode denies it"),
        (RATE, "a rule limits the calls in a time window, and they are used up; try again later"),
        (NOT_LOADED, "no policy is loaded, so nothing is allowed; run `regent init` or fix the policy file"),
        (UNMATCHED, "no rule matched; permissive mode allowed the call"),
        (WOULD_DENY, "the policy is in audit mode: strict mode would have denied this call"),
        (WOULD_ASK, "the policy is in audit mode: strict mode would have asked for an approval"),
        (WARNED, "a rule adds a warning to a call that it allows"),
        (SEQUENCE, "a rule limits such calls in a session, and they are used up"),
        (NO_EDGE, "the policy's graph has no edge from the caller to the target"),
        (
            MANIFEST,
            "an intervention point of the ACS manifest denies the call, is missing, or couldn't be evaluated (`runtime_error:…`)",
        ),
        (
            WITHHELD,
            "the call was made and recorded, but an intervention point of the ACS manifest withholds its output",
        ),
        (ALLOWED_TOOLS, "the policy has a list of `allowed_tools` without this tool"),
        (BLOCKED_PATTERN, "the arguments match `blocked_patterns`"),
        (MAX_TOKENS, "the request has used more tokens than `max_tokens_per_request`"),
        (MAX_TOOL_CALLS, "the request has made as many tool calls as `max_tool_calls_per_request`"),
        (CONFIDENCE, "the agent's confidence is below `confidence_threshold`"),
        (DRIFT, "the agent has drifted from its goal by more than `drift_threshold`"),
    ];
}
