//! The nine steps from a snapshot to a verdict, in order, and the resolution of escalations.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::manifest::{Manifest, PointOf};
use super::path::{Path, Root};
use super::verdict::{AcsDecision, AcsVerdict};
use super::{Point, RuntimeError, canonical};

/// Whether a verdict is enforced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Transforms are applied.
    #[default]
    Enforce,
    /// Transforms are checked but not applied.
    EvaluateOnly,
}

/// Limits beyond which evaluation fails closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvaluationLimits {
    /// The snapshot, as canonical JSON.
    pub snapshot_bytes_max: usize,
    /// Nesting depth of the policy's input.
    pub input_depth_max: usize,
    /// Annotators per point.
    pub annotators_max: usize,
    /// Output size of one annotator.
    pub annotation_bytes_max: usize,
    /// Output size of the policy.
    pub output_bytes_max: usize,
}

impl Default for EvaluationLimits {
    fn default() -> Self {
        Self {
            snapshot_bytes_max: 1 << 20,
            input_depth_max: 64,
            annotators_max: 16,
            annotation_bytes_max: 256 << 10,
            output_bytes_max: 256 << 10,
        }
    }
}

/// A request for an evaluation.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The point's name. An unknown name is an error verdict, not a parse error.
    pub point: &'a str,
    /// The complete snapshot at that point.
    pub snapshot: &'a Value,
    /// Whether the verdict is enforced.
    pub mode: Mode,
}

/// Host callbacks of an evaluation: everything that isn't pure.
pub trait Host {
    /// Runs an annotator with this declaration on a value.
    fn annotate(&mut self, name: &str, declared: &Value, value: &Value) -> Result<Value, RuntimeError>;

    /// Evaluates a policy with this definition and binding; `Err` if that fails.
    fn ask(&mut self, definition: &Value, binding: &Value, input: &Value) -> Result<Value, RuntimeError>;
}

/// The result of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// The verdict.
    pub verdict: AcsVerdict,
    /// The five members of the policy's input, as far as evaluation got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The transformed target, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transformed: Option<Value>,
    /// `sha256:…` of the policy's input; `None` if it wasn't evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_identity: Option<String>,
    /// `sha256:…` of the action to perform. An approval applies to exactly this action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforced_identity: Option<String>,
}

impl Manifest {
    /// Evaluates one intervention point.
    pub fn evaluate(
        &self,
        request: &Request<'_>,
        limits: &EvaluationLimits,
        host: &mut dyn Host,
    ) -> Evaluation {
        let mut input = None;
        self.steps(request, limits, host, &mut input).unwrap_or_else(|error| Evaluation {
            verdict: AcsVerdict::refused(error),
            input,
            transformed: None,
            input_identity: None,
            enforced_identity: None,
        })
    }

    fn steps(
        &self,
        request: &Request<'_>,
        limits: &EvaluationLimits,
        host: &mut dyn Host,
        seen: &mut Option<Value>,
    ) -> Result<Evaluation, RuntimeError> {
        let at = Point::parse(request.point).ok_or(RuntimeError::PointUnknown)?;
        let point = self.points.get(&at).ok_or(RuntimeError::PointUnknown)?;
        fits(request.snapshot, limits.snapshot_bytes_max)?;
        let mut input = self.input(at, point, request.snapshot)?;
        if canonical::depth(&input) > limits.input_depth_max {
            return Err(RuntimeError::ResourceLimitExceeded);
        }
        *seen = Some(input.clone());
        let annotations = annotations(point, &input, limits, host)?;
        if let Some(place) = input.get_mut("annotations") {
            *place = Value::Object(annotations);
        }
        *seen = Some(input.clone());
        let policy = self.policies.get(&point.policy).ok_or(RuntimeError::ManifestInvalid)?;
        let said = host
            .ask(&policy.definition, &point.binding, &input)
            .map_err(|_| RuntimeError::PolicyInvocationFailed)?;
        fits(&said, limits.output_bytes_max)?;
        let verdict = AcsVerdict::parse(&said)?;
        let changed = changed(&verdict, &input)?;
        let input_identity = canonical::identity(&input);
        let mut enforced_identity = input_identity.clone();
        let mut transformed = None;
        if let (Some(target), Mode::Enforce) = (changed, request.mode) {
            // The transformed snapshot must stay within the input limits.
            let mut snapshot = request.snapshot.clone();
            if let Some(place) = point.target.get_mut(&mut snapshot) {
                place.clone_from(&target);
            }
            fits(&snapshot, limits.snapshot_bytes_max)?;
            let mut enforced = input.clone();
            if let Some(place) = enforced.pointer_mut("/policy_target/value") {
                place.clone_from(&target);
            }
            enforced_identity = canonical::identity(&enforced);
            transformed = Some(target);
        }
        Ok(Evaluation {
            verdict,
            input: Some(input),
            transformed,
            input_identity: Some(input_identity),
            enforced_identity: Some(enforced_identity),
        })
    }

    fn input(&self, at: Point, point: &PointOf, snapshot: &Value) -> Result<Value, RuntimeError> {
        let target = point.target.get(snapshot)?;
        let tool = match &point.tool_name_from {
            None => Value::Null,
            Some(path) => {
                let name = path.get(snapshot)?.as_str().ok_or(RuntimeError::PathTypeMismatch)?;
                let mut tool = self.tools.get(name).cloned().ok_or(RuntimeError::ToolUnknown)?;
                if let Some(fields) = tool.as_object_mut() {
                    fields.insert("name".to_owned(), name.into());
                }
                tool
            }
        };
        Ok(json!({
            "intervention_point": at.as_str(),
            "policy_target": {"kind": point.target_kind, "path": point.target_text, "value": target},
            "snapshot": snapshot,
            "annotations": {},
            "tool": tool,
        }))
    }
}

fn fits(value: &Value, bytes_max: usize) -> Result<(), RuntimeError> {
    if canonical::text(value).len() > bytes_max { Err(RuntimeError::ResourceLimitExceeded) } else { Ok(()) }
}

/// Runs every annotator in name order, and stores each output under its name.
fn annotations(
    point: &PointOf,
    input: &Value,
    limits: &EvaluationLimits,
    host: &mut dyn Host,
) -> Result<Map<String, Value>, RuntimeError> {
    if point.annotations.len() > limits.annotators_max {
        return Err(RuntimeError::ResourceLimitExceeded);
    }
    let mut out = Map::new();
    for (name, (from, declared)) in &point.annotations {
        let said = host.annotate(name, declared, looked_at(from, input)?).map_err(|error| {
            if error == RuntimeError::AnnotationTimeout { error } else { RuntimeError::AnnotationFailed }
        })?;
        let reserved =
            said.get("reason").and_then(Value::as_str).is_some_and(|text| text.starts_with("runtime_error:"));
        if reserved || fits(&said, limits.annotation_bytes_max).is_err() {
            return Err(RuntimeError::AnnotationFailed);
        }
        out.insert(name.clone(), said);
    }
    Ok(out)
}

fn looked_at<'v>(path: &Path, input: &'v Value) -> Result<&'v Value, RuntimeError> {
    let root = match path.root {
        Root::Input => Some(input),
        Root::Snapshot => input.get("snapshot"),
        Root::Target => input.pointer("/policy_target/value"),
        Root::Tool => input.get("tool"),
    };
    path.get(root.ok_or(RuntimeError::PathMissing)?)
}

/// The transformed target. Also computed in a dry run, so that invalid transforms are found.
fn changed(verdict: &AcsVerdict, input: &Value) -> Result<Option<Value>, RuntimeError> {
    let Some((path, value)) = &verdict.transform else { return Ok(None) };
    let mut target = input.pointer("/policy_target/value").cloned().ok_or(RuntimeError::TransformInvalid)?;
    let place = path.get_mut(&mut target).ok_or(RuntimeError::TransformInvalid)?;
    place.clone_from(value);
    Ok(Some(target))
}

/// An approver's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// Approves the action with this identity.
    Allow(String),
    /// Denies.
    Deny,
    /// Defers the decision about the action with this identity.
    Suspend(String),
}

/// Resolves an escalation. `answer` is the approver's answer, if any; `now` is the identity of the current action, from a new evaluation.
/// An approval of another action is a denial.
pub fn resolve(evaluation: &Evaluation, answer: Option<&Approval>, now: &str) -> AcsVerdict {
    if evaluation.verdict.decision != AcsDecision::Escalate {
        return evaluation.verdict.clone();
    }
    let bound = |identity: &str| evaluation.enforced_identity.as_deref() == Some(identity) && identity == now;
    let refused = |error| AcsVerdict { result_labels: Vec::new(), ..AcsVerdict::refused(error) };
    match answer {
        None => refused(RuntimeError::ApprovalUnresolved),
        Some(Approval::Allow(identity) | Approval::Suspend(identity)) if !bound(identity) => {
            refused(RuntimeError::ApprovalActionMismatch)
        }
        Some(Approval::Allow(_)) => AcsVerdict { decision: AcsDecision::Allow, ..evaluation.verdict.clone() },
        Some(Approval::Suspend(_)) => evaluation.verdict.clone(),
        Some(Approval::Deny) => AcsVerdict { decision: AcsDecision::Deny, ..evaluation.verdict.clone() },
    }
}
