//! An active manifest: the call path evaluates each of its points, and its verdicts become policy verdicts.
//!
//! | point | evaluated | target |
//! |---|---|---|
//! | `agent_startup` | before `agent.spawn` | `$.agent` |
//! | `input` | before `request.begin`, and before `model.infer` for every message of the user | `$.input` |
//! | `pre_model_call` | before `model.infer` | `$.model_request` |
//! | `post_model_call` | after a model call | `$.model_response` |
//! | `pre_tool_call` | before `tool.run` and `tool.elsewhere` | `$.tool_call` |
//! | `post_tool_call` | after a tool call | `$.tool_result` |
//! | `output` | after a model call that requests no tool | `$.output` |
//! | `agent_shutdown` | before `agent.exit` | `$.agent` |
//!
//! If the point before a tool or model call is missing, the call is denied. An evaluation error is a deny too.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::evaluate::{Evaluation, EvaluationLimits, Host, Mode, Request};
use super::manifest::{Manifest, ManifestError, PolicyKind};
use super::verdict::AcsDecision;
use super::{Point, RuntimeError, snapshot};
use crate::body::{BODY_BYTES_MAX, Script};
use crate::facts::Facts;
use crate::transform::Transform;
use crate::verdict::{Layer, Reason, RuleRef, codes};
use crate::words::Confidentiality;

/// The adapter for a manifest with inline Rego: `{ type: custom, adapter: regent/rego, source: … }`.
const INLINE: &str = "regent/rego";

/// Conversations and results exceed the limits that the specification proposes.
const LIMITS: EvaluationLimits = EvaluationLimits {
    snapshot_bytes_max: 4 << 20,
    input_depth_max: 64,
    annotators_max: 16,
    annotation_bytes_max: 256 << 10,
    output_bytes_max: 256 << 10,
};

/// An active manifest.
#[derive(Debug)]
pub(crate) struct Control {
    manifest: Manifest,
    asked: BTreeMap<Point, PointPolicy>,
    layer: Layer,
}

/// The policy of a point.
#[derive(Debug)]
struct PointPolicy {
    script: Script,
    /// Digest of all parts of the script.
    digest: String,
    /// The point as a rule.
    rule: RuleRef,
}

/// A manifest's verdict on a call.
#[derive(Debug, Clone)]
pub(crate) struct PointVerdict {
    /// The point that decided.
    pub rule: RuleRef,
    pub stance: ControlVerdict,
    pub transforms: Vec<Transform>,
    pub warnings: Vec<Reason>,
    /// Minimum confidentiality of the result.
    pub result: Option<Confidentiality>,
}

#[derive(Debug, Clone)]
pub(crate) enum ControlVerdict {
    Allow,
    Ask(String),
    Deny(Reason),
}

/// A manifest's verdict on an output.
#[derive(Debug, Default)]
pub(crate) struct ReviewedOutput {
    pub warnings: Vec<Reason>,
    pub result: Option<Confidentiality>,
}

impl Control {
    /// Compiles a manifest, or reports why it can't be used. `files` are the files that it refers to, by the names it uses; `lines` are the
    /// source lines of its points.
    pub(crate) fn new(
        text: &str,
        layer: Layer,
        files: &BTreeMap<String, String>,
        lines: &BTreeMap<String, u32>,
    ) -> Result<Self, ManifestError> {
        let manifest = Manifest::load(text)?;
        if manifest.allows_on_timeout {
            return Err(ManifestError(
                "`on_timeout: allow` is not supported: a question without an answer is denied".to_owned(),
            ));
        }
        let mut asked = BTreeMap::new();
        for (at, point) in &manifest.points {
            if let Some(name) = point.annotations.keys().next() {
                let at = at.as_str();
                return Err(ManifestError(format!(
                    "`{at}` needs the annotator `{name}`, which is not supported"
                )));
            }
            let Some(policy) = manifest.policies.get(&point.policy) else {
                return Err(ManifestError(format!("unknown policy `{}`", point.policy)));
            };
            let query = [&point.binding, &policy.definition].into_iter().find_map(|one| one.get("query"));
            let query = query.and_then(Value::as_str).unwrap_or_default();
            let (script, digest) = script(&point.policy, policy.kind, &policy.definition, query, files)?;
            let line = lines.get(at.as_str()).copied().unwrap_or(1);
            let rule = RuleRef { id: format!("acs.{}", at.as_str()).into(), layer, line };
            asked.insert(*at, PointPolicy { script, digest, rule });
        }
        Ok(Self { manifest, asked, layer })
    }

    /// Its points, each as a rule.
    pub(crate) fn points(&self) -> impl Iterator<Item = (Point, &RuleRef)> {
        self.asked.iter().map(|(at, asked)| (*at, &asked.rule))
    }

    /// Each point's name, with its target and the digest of its policy.
    pub(crate) fn described(&self) -> impl Iterator<Item = (String, String)> {
        let tools = super::identity(&Value::Object(self.manifest.tools.clone()));
        self.asked.iter().map(move |(at, asked)| {
            let target = self.manifest.points.get(at).map_or("", |point| point.target_text.as_str());
            (asked.rule.id.to_string(), format!("{target} {} {tools}", asked.digest))
        })
    }

    /// The tools in its catalogue.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &str> {
        self.manifest.tools.keys().map(String::as_str)
    }

    /// The verdict on a call before it is made; `None` if no point applies.
    pub(crate) fn before(&self, facts: &Facts<'_>) -> Option<PointVerdict> {
        let needed = match facts.op {
            "tool.run" | "tool.elsewhere" => Some(Point::PreToolCall),
            "model.infer" => Some(Point::PreModelCall),
            _another => None,
        };
        if let Some(at) = needed.filter(|at| !self.asked.contains_key(at)) {
            return Some(self.unconfigured(at));
        }
        let snapshots = snapshot::before(facts, &|at| self.asked.contains_key(&at));
        snapshots.into_iter().fold(None, |so_far: Option<PointVerdict>, (at, snapshot)| {
            let said = snapshot.map_or_else(
                |error| self.failed(at, error),
                |snapshot| self.said(at, &snapshot, &["tool_call", "args"]),
            );
            Some(match so_far {
                None => said,
                Some(before) => before.and(said),
            })
        })
    }

    /// The verdict on an output. The output is transformed or withheld as the manifest says.
    pub(crate) fn after(
        &self,
        facts: &Facts<'_>,
        output: &mut Value,
        failure: Option<&str>,
    ) -> Result<ReviewedOutput, Reason> {
        let mut passed = ReviewedOutput::default();
        for at in [Point::PostToolCall, Point::PostModelCall, Point::Output] {
            if !self.asked.contains_key(&at) {
                continue;
            }
            let Some((field, snapshot)) = snapshot::after(facts, at, output, failure) else { continue };
            let said = self.said(at, &snapshot, &[field]);
            match said.stance {
                ControlVerdict::Allow => {}
                ControlVerdict::Deny(reason) => return Err(withheld(reason)),
                // The effect has happened, and a reviewer can't approve output that they must not see.
                ControlVerdict::Ask(reason) => {
                    let help = Some("you can look at it with the tool's own application".to_owned());
                    let reason =
                        Reason { code: codes::WITHHELD.into(), message: reason, rule: Some(said.rule), help };
                    return Err(withheld(reason));
                }
            }
            if !said.transforms.is_empty() {
                let mut changed = snapshot.get(field).cloned().unwrap_or_default();
                for transform in &said.transforms {
                    transform.apply(&mut changed);
                }
                if !snapshot::put_back(at, changed, output) {
                    let reason = self.failed(at, RuntimeError::TransformInvalid).reason();
                    return Err(withheld(reason));
                }
            }
            passed.warnings.extend(said.warnings);
            passed.result = passed.result.max(said.result);
        }
        Ok(passed)
    }

    /// Whether a point reviews the output of an operation.
    pub(crate) fn looks_after(&self, op: &str) -> bool {
        let points: &[Point] = match op {
            "tool.run" | "tool.elsewhere" => &[Point::PostToolCall],
            "model.infer" => &[Point::PostModelCall, Point::Output],
            _another => &[],
        };
        points.iter().any(|at| self.asked.contains_key(at))
    }

    /// Evaluates a point. A transform must stay below `changeable` in the snapshot.
    fn said(&self, at: Point, snapshot: &Value, changeable: &[&str]) -> PointVerdict {
        let Some(PointPolicy { script, rule, .. }) = self.asked.get(&at) else {
            return self.unconfigured(at);
        };
        let request = Request { point: at.as_str(), snapshot, mode: Mode::Enforce };
        let Evaluation { verdict, .. } = self.manifest.evaluate(&request, &LIMITS, &mut ScriptHost(script));
        let words =
            verdict.message.clone().or_else(|| verdict.reason.clone()).filter(|text| !text.is_empty());
        let words = words.unwrap_or_else(|| format!("`{}` of the manifest decided this", at.as_str()));
        let mut said = PointVerdict {
            rule: rule.clone(),
            stance: ControlVerdict::Allow,
            transforms: Vec::new(),
            warnings: Vec::new(),
            result: verdict.result_labels.iter().map(|label| snapshot::confidentiality(label)).max(),
        };
        match verdict.decision {
            AcsDecision::Allow => {}
            AcsDecision::Deny => said.stance = ControlVerdict::Deny(self.denied(at, words)),
            AcsDecision::Escalate => said.stance = ControlVerdict::Ask(words),
            AcsDecision::Warn => said.warnings.push(Reason {
                code: codes::WARNED.into(),
                message: words,
                rule: Some(rule.clone()),
                help: None,
            }),
            AcsDecision::Transform => {
                let target = self.manifest.points.get(&at).map(|point| &point.target);
                let pointer = verdict.transform.as_ref().zip(target);
                let pointer = pointer.and_then(|((path, _), target)| target.pointer(path, changeable));
                match (pointer, verdict.transform) {
                    (Some(pointer), Some((_, value))) => {
                        said.transforms.push(Transform::Set { pointer, value });
                    }
                    (None, _) | (_, None) => return self.failed(at, RuntimeError::TransformTargetForbidden),
                }
            }
        }
        said
    }

    fn unconfigured(&self, at: Point) -> PointVerdict {
        let help = format!("add the point `{}` to the manifest", at.as_str());
        let mut said = self.failed(at, RuntimeError::PointUnknown);
        if let ControlVerdict::Deny(reason) = &mut said.stance {
            reason.help = Some(help);
        }
        said
    }

    fn failed(&self, at: Point, error: RuntimeError) -> PointVerdict {
        let reason = self.denied(at, error.to_string());
        PointVerdict {
            rule: self.rule(at),
            stance: ControlVerdict::Deny(reason),
            transforms: Vec::new(),
            warnings: Vec::new(),
            result: None,
        }
    }

    fn denied(&self, at: Point, message: String) -> Reason {
        let message = format!("{}: {message}", at.as_str());
        Reason { code: codes::MANIFEST.into(), message, rule: Some(self.rule(at)), help: None }
    }

    fn rule(&self, at: Point) -> RuleRef {
        let id = || RuleRef { id: format!("acs.{}", at.as_str()).into(), layer: self.layer, line: 1 };
        self.asked.get(&at).map_or_else(id, |asked| asked.rule.clone())
    }
}

impl PointVerdict {
    /// Combines two verdicts: the stricter one, with the requirements of both.
    fn and(mut self, other: Self) -> Self {
        let strictness = |stance: &ControlVerdict| match stance {
            ControlVerdict::Allow => 0,
            ControlVerdict::Ask(_) => 1,
            ControlVerdict::Deny(_) => 2,
        };
        if strictness(&other.stance) > strictness(&self.stance) {
            (self.stance, self.rule) = (other.stance, other.rule);
        }
        self.transforms.extend(other.transforms);
        self.warnings.extend(other.warnings);
        self.result = self.result.max(other.result);
        self
    }

    fn reason(self) -> Reason {
        match self.stance {
            ControlVerdict::Deny(reason) => reason,
            ControlVerdict::Ask(message) => {
                Reason { code: codes::MANIFEST.into(), message, rule: Some(self.rule), help: None }
            }
            ControlVerdict::Allow => Reason {
                code: codes::MANIFEST.into(),
                message: String::new(),
                rule: Some(self.rule),
                help: None,
            },
        }
    }
}

fn withheld(reason: Reason) -> Reason {
    let message = format!("the call was made, but its output is withheld: {}", reason.message);
    Reason { code: codes::WITHHELD.into(), message, ..reason }
}

/// Evaluates a manifest's policies.
struct ScriptHost<'a>(&'a Script);

impl Host for ScriptHost<'_> {
    fn annotate(&mut self, _name: &str, _declared: &Value, _value: &Value) -> Result<Value, RuntimeError> {
        Err(RuntimeError::AnnotationFailed)
    }

    fn ask(&mut self, _definition: &Value, _binding: &Value, input: &Value) -> Result<Value, RuntimeError> {
        self.0.answer(input).ok_or(RuntimeError::PolicyInvocationFailed)
    }
}

fn script(
    name: &str,
    kind: PolicyKind,
    definition: &Value,
    query: &str,
    files: &BTreeMap<String, String>,
) -> Result<(Script, String), ManifestError> {
    let wrong = |why: &str| Err(ManifestError(format!("policy `{name}` {why}")));
    let text = |key: &str| definition.get(key).and_then(Value::as_str);
    let parts: Vec<(&str, &str)> = match kind {
        PolicyKind::Rego if definition.get("bundle_url").is_some() => {
            return wrong(
                "has a `bundle_url`, which isn't supported: put the files beside the manifest and name them in `bundle`",
            );
        }
        PolicyKind::Rego => match text("bundle").and_then(plain_path) {
            Some(bundle) => {
                let inside = format!("{bundle}/");
                let all = files.iter().filter(|(file, _)| **file == bundle || file.starts_with(&inside));
                all.map(|(file, text)| (file.as_str(), text.as_str())).collect()
            }
            None => return wrong("has no `bundle` beside the manifest, so it can't be evaluated"),
        },
        PolicyKind::Custom if text("adapter") == Some(INLINE) => match text("source") {
            Some(source) => vec![(name, source)],
            None => return wrong("has no `source`"),
        },
        PolicyKind::Custom => {
            return wrong(&format!("names an unknown adapter; supported: `{INLINE}`"));
        }
        PolicyKind::Test => return wrong("has fixed verdicts, which is for tests only"),
        PolicyKind::Cedar => {
            return wrong("is in Cedar; only Rego is supported in manifests");
        }
    };
    if parts.is_empty() {
        return wrong("has a `bundle` without Rego files");
    }
    if parts.iter().map(|(_, text)| text.len()).sum::<usize>() > BODY_BYTES_MAX {
        return wrong("is too long");
    }
    let script =
        Script::new(&parts, query).map_err(|error| ManifestError(format!("policy `{name}`: {error}")))?;
    Ok((script, super::identity(&json!([parts, query]))))
}

/// The canonical spelling of a path beside the manifest; `None` if it leads elsewhere.
pub(crate) fn plain_path(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let fine = !path.starts_with('/') && !path.contains('\0') && !parts.is_empty() && !parts.contains(&"..");
    fine.then(|| parts.join("/"))
}
