//! Parses a policy's output into one of the five verdicts.

use serde::Serialize;
use serde_json::{Map, Value};

use super::RuntimeError;
use super::path::{Path, Root};

/// The five decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AcsDecision {
    /// Allow.
    Allow,
    /// Deny.
    Deny,
    /// Allow with a warning.
    Warn,
    /// Needs an approval.
    Escalate,
    /// Allow with a transformed target.
    Transform,
}

impl AcsDecision {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "allow" => Self::Allow,
            "deny" => Self::Deny,
            "warn" => Self::Warn,
            "escalate" => Self::Escalate,
            "transform" => Self::Transform,
            _other => return None,
        })
    }
}

/// A decision with its details.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AcsVerdict {
    /// The decision.
    pub decision: AcsDecision,
    /// The reason's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason for a reviewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A reference to evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Value>,
    /// Labels of the action's result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub result_labels: Vec<String>,
    #[serde(skip)]
    pub(super) transform: Option<(Path, Value)>,
}

const KEYS: &[&str] = &["decision", "reason", "message", "transform", "evidence", "result_labels"];
const RESERVED: &str = "runtime_error:";

impl AcsVerdict {
    pub(super) fn refused(error: RuntimeError) -> Self {
        Self {
            decision: AcsDecision::Deny,
            reason: Some(error.to_string()),
            message: None,
            evidence: None,
            result_labels: Vec::new(),
            transform: None,
        }
    }

    /// Parses a policy's output.
    pub(super) fn parse(said: &Value) -> Result<Self, RuntimeError> {
        let invalid = RuntimeError::PolicyOutputInvalid;
        let fields = said.as_object().ok_or(invalid)?;
        // An unknown key may be a restriction that would not be enforced.
        if fields.keys().any(|key| !KEYS.contains(&key.as_str())) {
            return Err(invalid);
        }
        let decision =
            fields.get("decision").and_then(Value::as_str).and_then(AcsDecision::parse).ok_or(invalid)?;
        let text = |key: &str| match fields.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(invalid),
        };
        let reason = text("reason")?;
        if reason.as_ref().is_some_and(|reason| reason.starts_with(RESERVED)) {
            return Err(invalid);
        }
        let evidence = match fields.get("evidence") {
            None | Some(Value::Null) => None,
            Some(value @ Value::Object(_)) => Some(value.clone()),
            Some(_) => return Err(invalid),
        };
        let result_labels = match fields.get("result_labels") {
            None | Some(Value::Null) => Vec::new(),
            Some(labels) => serde_json::from_value(labels.clone()).map_err(|_| invalid)?,
        };
        let transform = match (decision, fields.get("transform")) {
            (AcsDecision::Transform, Some(Value::Object(body))) => Some(transform(body)?),
            (AcsDecision::Transform, _) => return Err(invalid),
            (
                AcsDecision::Allow | AcsDecision::Deny | AcsDecision::Warn | AcsDecision::Escalate,
                None | Some(Value::Null),
            ) => None,
            (AcsDecision::Allow | AcsDecision::Deny | AcsDecision::Warn | AcsDecision::Escalate, Some(_)) => {
                return Err(invalid);
            }
        };
        Ok(Self { decision, reason, message: text("message")?, evidence, result_labels, transform })
    }
}

fn transform(body: &Map<String, Value>) -> Result<(Path, Value), RuntimeError> {
    let path = body.get("path").and_then(Value::as_str).ok_or(RuntimeError::TransformInvalid)?;
    let path = Path::parse(path).ok_or(RuntimeError::TransformInvalid)?;
    if path.root != Root::Target {
        return Err(RuntimeError::TransformTargetForbidden);
    }
    let value = body.get("value").ok_or(RuntimeError::TransformInvalid)?;
    Ok((path, value.clone()))
}
