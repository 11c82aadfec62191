//! A judged call: the call, its caller and the verdict.

use std::borrow::Cow;
use std::collections::BTreeMap;

use regent_identity::AgentId;
use regent_ledger::{Digest, PayloadRef};
use regent_policy::{Class, PastCall, Target, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Scope, TaskId, TicketId, Version, Voice};

pub(super) const VERSION: u64 = 1;

/// A call was judged. Written before any effect, also for a denial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Intent")]
pub struct IntentBody<'a> {
    /// The approval that the call was found to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<ApprovedBody>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<PayloadRef>,
    /// Who made it.
    #[serde(borrow, default)]
    pub caller: CallerBody<'a>,
    /// How many calls it was made from.
    #[serde(default)]
    pub depth: u8,
    /// What the host says that the call was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_from: Option<PayloadRef>,
    /// What tells after a crash whether the call took effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<PayloadRef>,
    /// Doing it twice is the same as doing it once.
    #[serde(default)]
    pub idempotent: bool,
    /// What was asked for, e.g. `tool.run`.
    #[serde(borrow, default)]
    pub op: Cow<'a, str>,
    /// The place of the intent that it was made from, in the same lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    /// The digest of the policy in force.
    #[serde(borrow, default)]
    pub policy: Cow<'a, str>,
    /// Where each declared argument comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    /// The host keeps the result from its agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quarantined: bool,
    /// In which session.
    #[serde(borrow, default)]
    pub session: Cow<'a, str>,
    /// The step of a task that it is.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepBody<'a>>,
    /// What it reaches for, redacted.
    #[serde(default)]
    pub targets: Cow<'a, [Target]>,
    /// The question that was put to a reviewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<QuestionRef>,
    /// The tier that it was to run at.
    #[serde(default)]
    pub tier: Option<Tier>,
    /// The tool, if it is one.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolBody<'a>>,
    /// Which version this is.
    #[serde(default = "Version::<VERSION>::first", skip_serializing_if = "Version::<VERSION>::is_first")]
    pub v: Version<VERSION>,
    /// What was decided.
    #[serde(borrow)]
    pub verdict: VerdictBody<'a>,
}

/// Who makes a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IntentCaller")]
pub struct CallerBody<'a> {
    /// The agent, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// How a caller from outside was authenticated: by its uid or by a token.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub authenticated: Option<Cow<'a, str>>,
    /// On whose behalf, the person first.
    #[serde(default)]
    pub chain: Cow<'a, [String]>,
    /// What kind of caller.
    #[serde(default)]
    pub class: Option<Class>,
    /// The name that rules match.
    #[serde(borrow, default)]
    pub name: Cow<'a, str>,
    /// An operator's role.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Cow<'a, str>>,
}

impl CallerBody<'_> {
    /// The person's name, if the caller is one: rules know all people as `operator`.
    pub fn person(&self) -> Option<&str> {
        let name = self.chain.first().filter(|_| self.class == Some(Class::Operator));
        name.map(String::as_str).filter(|name| !name.is_empty())
    }

    /// The caller as people know it: a person by their own name.
    pub fn display_name(&self) -> &str {
        self.person().unwrap_or(&self.name)
    }
}

/// A step of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IntentStep")]
pub struct StepBody<'a> {
    /// The digest of the call as it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Digest>,
    /// The step's name.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// The task's.
    pub task: TaskId,
}

/// The tool of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IntentTool")]
pub struct ToolBody<'a> {
    /// The digest of its manifest; empty if it isn't in the catalogue.
    #[serde(borrow, default)]
    pub digest: Cow<'a, str>,
    /// Its name.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
}

/// The verdict on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Yes.
    Allow,
    /// It needs an approval first.
    Ask,
    /// No.
    Deny,
}

impl Decision {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// The verdict on a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IntentVerdict")]
pub struct VerdictBody<'a> {
    /// The word for the reason, if it was denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Cow<'a, str>>,
    /// What was decided.
    pub effect: Decision,
    /// What to do about a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<Cow<'a, str>>,
    /// Why it was denied, in a sentence, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Cow<'a, str>>,
}

/// An approval that was found for a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IntentApproval")]
pub struct ApprovedBody {
    /// When it was asked.
    pub asked_at_ms: i64,
    /// How fatigued the reviewer was, in per cent of the limit; of several reviewers the highest.
    #[serde(default)]
    pub attention_percent: u8,
    /// Who approved it; empty where only the host reports it.
    #[serde(default)]
    pub by: Vec<String>,
    /// When the last of them approved it.
    pub decided_at_ms: i64,
    /// How far it goes.
    pub scope: Scope,
    /// To which question.
    pub ticket: TicketId,
    /// Whose word it is.
    #[serde(default, skip_serializing_if = "Voice::is_person")]
    pub voice: Voice,
}

/// The question that was put about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionRef {
    /// Its id.
    pub id: TicketId,
    /// The first question of its cause, if it was put with that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<TicketId>,
}

impl IntentBody<'_> {
    /// The name of the tool, if it is one.
    pub fn tool_name(&self) -> Option<&str> {
        self.tool.as_ref().map(|tool| &*tool.name)
    }

    /// The tool, or else the operation.
    pub fn what(&self) -> &str {
        self.tool_name().unwrap_or(&self.op)
    }

    /// The rule that decided, or the word for the kernel's own reason.
    pub fn decided_by(&self) -> Option<&str> {
        self.verdict.rule.as_deref().or(self.verdict.code.as_deref())
    }

    /// The call as policies judge it once more; `None` if it doesn't say enough for that. The arguments and the tool's capabilities come
    /// from elsewhere.
    pub fn past_call(&self, at_ms: i64, args: Option<Value>, capabilities: Vec<String>) -> Option<PastCall> {
        Some(PastCall {
            at_ms,
            session: self.session.clone().into_owned(),
            agent: self.caller.name.clone().into_owned(),
            class: self.caller.class?,
            op: self.op.clone().into_owned(),
            tool: self.tool_name().map(str::to_owned),
            verdict: self.verdict.effect.word().to_owned(),
            rule: self.verdict.rule.as_deref().map(str::to_owned),
            code: self.verdict.code.as_deref().map(str::to_owned),
            tier: self.tier?,
            args: args.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
            capabilities,
            targets: self.targets.to_vec(),
        })
    }
}
