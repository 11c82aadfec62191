//! What a decision says: yes with its conditions, not yet, or no with its reason.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::declassify::{self, Declassified};
use crate::transform::Transform;
use crate::words::{Confidentiality, Tier, Word, words};

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "with")]
pub enum Verdict {
    /// Yes, within these limits.
    Allow(Grant),
    /// Not before a person has agreed.
    Ask(Question),
    /// No.
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

    /// Why not, if the answer is no.
    pub fn denied(&self) -> Option<&Reason> {
        match self {
            Self::Deny(reason) => Some(reason),
            Self::Allow(_) | Self::Ask(_) => None,
        }
    }

    /// The changes to the arguments that an allow, or an approval, is conditional on.
    pub fn transforms(&self) -> &[Transform] {
        match self {
            Self::Allow(grant) => &grant.transforms,
            Self::Ask(question) => &question.grant.transforms,
            Self::Deny(_) => &[],
        }
    }

    /// The rule that decided, if one did.
    pub fn rule(&self) -> Option<&RuleRef> {
        match self {
            Self::Allow(grant) => grant.rule.as_ref(),
            Self::Ask(question) => Some(&question.rule),
            Self::Deny(reason) => reason.rule.as_ref(),
        }
    }
}

impl Verdict {
    /// What holds for somebody who may do no more than its ancestors: the strictest of both. Otherwise an agent that is refused
    /// something, by its name or its roles, would start a child without them. `above` is what the other is called.
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

    /// The strictest of two verdicts on one call, with the conditions of both.
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
    /// The intersection of two grants: the lower limits, the stronger tier, every change and every count; a label only if both lower it.
    #[must_use]
    pub fn meet(mut self, theirs: Self) -> Self {
        self.limits = self.limits.meet(theirs.limits);
        self.tier = self.tier.max(theirs.tier);
        // Mostly the same rules matched for both; once is enough.
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

/// What an allow verdict grants, and what the kernel must enforce.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Grant {
    /// How much it may use.
    pub limits: Limits,
    /// The least tier it must run in.
    pub tier: Tier,
    /// Changes to the arguments, in this order, before they reach the executor.
    ///
    /// A change can touch what the resources were derived from: resolve them again and decide again before acting.
    pub transforms: Vec<Transform>,
    /// Rates to count this call against, atomically with the limit they carry.
    pub charges: Vec<Charge>,
    /// Fields of the result whose label it lowers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub declassify: Vec<Declassified>,
    /// What the caller should hear although the answer is yes.
    pub warnings: Vec<Reason>,
    /// The rule that allowed it; none where the mode did.
    pub rule: Option<RuleRef>,
    /// How confidential what comes back is, at least; none where nothing says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Confidentiality>,
}

/// A question for a reviewer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Question {
    /// The rule that asks.
    pub rule: RuleRef,
    /// Why it asks.
    pub reason: String,
    /// What an allow grants.
    pub grant: Grant,
    /// How many different people have to agree.
    pub approvers: u8,
}

/// Why a call is denied, or what an allow comes with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Stable code; see [`codes`](crate::codes).
    pub code: Cow<'static, str>,
    /// One sentence for the person and the model.
    pub message: String,
    /// The rule, if one decided.
    pub rule: Option<RuleRef>,
    /// What to do about it.
    pub help: Option<String>,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Where a rule is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleRef {
    /// Its id in the file.
    pub id: Arc<str>,
    /// Whose file.
    pub layer: Layer,
    /// Line of the file, from 1.
    pub line: u32,
}

impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({} policy, line {})", self.id, self.layer, self.line)
    }
}

/// Whose policy it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Came with Regent.
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

/// One rate that a call is counted against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Charge {
    /// Whose rate.
    pub rule: RuleId,
    /// Calls within the window at most.
    pub limit: u32,
    /// The window that slides behind the present.
    pub window_ms: u64,
}

/// How much a call may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// Wall clock time.
    pub wall_ms_max: u64,
    /// Processor time.
    pub cpu_ms_max: u64,
    /// What it may say.
    pub output_bytes_max: u64,
    /// Memory.
    pub memory_bytes_max: u64,
    /// Processes and threads.
    pub pids_max: u32,
    /// Open files.
    pub open_files_max: u32,
    /// Size of any one file it writes.
    pub file_bytes_max: u64,
    /// Private temporary space.
    pub tmp_bytes_max: u64,
}

impl Limits {
    /// The stricter of both in everything.
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

    /// No limit in anything: the neutral element of [`meet`](Self::meet).
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
    /// What a call gets where its policy says nothing: enough for a build, too little for an accident.
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
    /// A rule gives only so many calls of a kind, and they are used up.
    pub const SEQUENCE: &str = "policy.sequence";
    /// The policy has a graph, and no edge of it leads from the caller to the thing.
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
    /// The agent is not sure enough.
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
