//! A manifest: which policy is evaluated at which point, on which target.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path::{Path, Root};
use super::{Point, VERSION};
use crate::tree::read_yaml;

/// Maximum length of a manifest.
const MANIFEST_BYTES_MAX: usize = 1 << 20;
const TOP_KEYS: &[&str] = &[
    "agent_control_specification_version",
    "metadata",
    "extends",
    "policies",
    "intervention_points",
    "tools",
    "annotators",
    "approval",
];
const POINT_KEYS: &[&str] =
    &["policy_target", "policy_target_kind", "policy", "tool_name_from", "annotations"];

/// Why a manifest can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid manifest: {0}")]
pub struct ManifestError(pub(super) String);

/// A validated manifest.
#[derive(Debug, Clone)]
pub struct Manifest {
    pub(super) policies: BTreeMap<String, PolicyOf>,
    pub(super) points: BTreeMap<Point, PointOf>,
    pub(super) tools: Map<String, Value>,
    /// Whether it allows a call if no approver answers.
    pub(super) allows_on_timeout: bool,
}

/// A named policy.
#[derive(Debug, Clone)]
pub(super) struct PolicyOf {
    pub(super) kind: PolicyKind,
    pub(super) definition: Value,
}

/// The language of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyKind {
    /// Rego.
    Rego,
    /// Cedar.
    Cedar,
    /// Fixed verdicts, for tests.
    Test,
    /// The host's adapter decides.
    Custom,
}

/// The configuration of a point.
#[derive(Debug, Clone)]
pub(super) struct PointOf {
    pub(super) target: Path,
    pub(super) target_text: String,
    pub(super) target_kind: Option<String>,
    pub(super) policy: String,
    pub(super) binding: Value,
    pub(super) tool_name_from: Option<Path>,
    /// Annotators by name, and the target of each.
    pub(super) annotations: BTreeMap<String, (Path, Value)>,
}

type Checked<T> = Result<T, ManifestError>;

fn wrong<T>(message: impl Into<String>) -> Checked<T> {
    Err(ManifestError(message.into()))
}

fn object<'v>(value: &'v Value, what: &str) -> Checked<&'v Map<String, Value>> {
    value.as_object().map_or_else(|| wrong(format!("{what} must be a mapping")), Ok)
}

fn known(fields: &Map<String, Value>, keys: &[&str], what: &str) -> Checked<()> {
    match fields.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(key) => wrong(format!("unknown key `{key}` in {what}")),
        None => Ok(()),
    }
}

fn text<'v>(fields: &'v Map<String, Value>, key: &str) -> Checked<Option<&'v str>> {
    match fields.get(key) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
        Some(_) => wrong(format!("`{key}` must be non-empty text")),
    }
}

impl Manifest {
    /// Parses a manifest from YAML or JSON. Unknown keys are errors: a manifest that is only partly understood would restrict less than its
    /// author expects. The host must merge manifests that use `extends` beforehand.
    pub fn load(source: &str) -> Result<Self, ManifestError> {
        if source.len() > MANIFEST_BYTES_MAX {
            return wrong("it is too long");
        }
        let value = read_yaml(source, "manifest").map_err(|error| ManifestError(error.to_string()))?;
        let top = object(&value, "the manifest")?;
        known(top, TOP_KEYS, "the manifest")?;
        match text(top, "agent_control_specification_version")? {
            Some(VERSION) => {}
            Some(other) => return wrong(format!("unknown version `{other}`; supported: `{VERSION}`")),
            None => return wrong("`agent_control_specification_version` is missing"),
        }
        if top.get("extends").is_some_and(|extends| extends.as_array().is_none_or(|all| !all.is_empty())) {
            return wrong("`extends` is not supported; merge the files first");
        }
        let empty = Value::Object(Map::new());
        let part = |key: &str| object(top.get(key).unwrap_or(&empty), &format!("`{key}`"));
        let (declared, tools) = (part("annotators")?, part("tools")?);
        for (name, annotator) in declared {
            let kind = annotator.get("type").and_then(Value::as_str);
            if !matches!(kind, Some("classifier" | "llm" | "endpoint")) {
                return wrong(format!("annotator `{name}` has no known type"));
            }
        }
        if let Some(name) = tools.iter().find(|(_, tool)| !tool.is_object()).map(|(name, _)| name) {
            return wrong(format!("tool `{name}` must be a mapping"));
        }
        let policies = part("policies")?.iter().map(|(name, one)| Ok((name.clone(), policy(name, one)?)));
        let policies = policies.collect::<Checked<BTreeMap<_, _>>>()?;
        let mut points = BTreeMap::new();
        for (name, one) in part("intervention_points")? {
            let Some(at) = Point::parse(name) else {
                return wrong(format!("unknown intervention point `{name}`"));
            };
            points.insert(at, point(at, one, &policies, declared)?);
        }
        if policies.is_empty() || points.is_empty() {
            return wrong("it needs at least one policy and one intervention point");
        }
        let allows_on_timeout = match text(part("approval")?, "on_timeout")? {
            Some("allow") => true,
            Some("deny" | "suspend") | None => false,
            Some(other) => return wrong(format!("`on_timeout` can't be `{other}`")),
        };
        Ok(Self { policies, points, tools: tools.clone(), allows_on_timeout })
    }

    /// The files and folders of its policies, as named in the manifest.
    pub fn refers_to(&self) -> Vec<String> {
        let bundles = self.policies.values().filter_map(|policy| policy.definition.get("bundle"));
        let mut names: Vec<String> =
            bundles.filter_map(Value::as_str).filter_map(super::control::plain_path).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Whether a text looks like a manifest; [`load`](Self::load) decides.
    pub fn may_be_one(text: &str) -> bool {
        text.contains("agent_control_specification_version")
    }

    /// Its policies, each with its language and definition.
    pub fn policies(&self) -> impl Iterator<Item = (&str, PolicyKind, &Value)> {
        self.policies.iter().map(|(name, policy)| (name.as_str(), policy.kind, &policy.definition))
    }
}

fn policy(name: &str, value: &Value) -> Checked<PolicyOf> {
    let fields = object(value, &format!("policy `{name}`"))?;
    let kind = match text(fields, "type")? {
        Some("rego") => PolicyKind::Rego,
        Some("cedar") => PolicyKind::Cedar,
        Some("test") => PolicyKind::Test,
        Some("custom") if text(fields, "adapter")?.is_some() => PolicyKind::Custom,
        Some("custom") => return wrong(format!("policy `{name}` names no `adapter`")),
        Some(_) | None => return wrong(format!("policy `{name}` has no known type")),
    };
    Ok(PolicyOf { kind, definition: value.clone() })
}

fn point(
    at: Point,
    value: &Value,
    policies: &BTreeMap<String, PolicyOf>,
    annotators: &Map<String, Value>,
) -> Checked<PointOf> {
    let what = format!("`{}`", at.as_str());
    let fields = object(value, &what)?;
    known(fields, POINT_KEYS, &what)?;
    let snapshot = |text: &str, key: &str| match Path::parse(text) {
        Some(path) if path.root == Root::Snapshot => Ok(path),
        Some(_) | None => wrong(format!("`{key}` of {what} must be a path into the snapshot")),
    };
    let Some(target_text) = text(fields, "policy_target")? else {
        return wrong(format!("{what} has no `policy_target`"));
    };
    let tool_name_from =
        text(fields, "tool_name_from")?.map(|text| snapshot(text, "tool_name_from")).transpose()?;
    if tool_name_from.is_some() != at.has_tool() {
        return wrong(format!("{what}: `tool_name_from` is only for the tool points"));
    }
    let binding = object(fields.get("policy").unwrap_or(&Value::Null), &format!("`policy` of {what}"))?;
    let id = text(binding, "id")?.map_or_else(|| wrong(format!("`policy` of {what} has no `id`")), Ok)?;
    let Some(bound) = policies.get(id) else {
        return wrong(format!("{what} names the unknown policy `{id}`"));
    };
    if bound.kind == PolicyKind::Rego
        && binding.get("query").is_none()
        && bound.definition.get("query").is_none()
    {
        return wrong(format!("{what}: a Rego policy needs a `query`"));
    }
    let mut annotations = BTreeMap::new();
    if let Some(all) = fields.get("annotations") {
        for (name, one) in object(all, &format!("`annotations` of {what}"))? {
            let from = one.as_object().map_or(Ok(None), |one| text(one, "from"))?.and_then(Path::parse);
            let Some(from) =
                from.filter(|from| !(from.root == Root::Input && from.begins_with("annotations")))
            else {
                return wrong(format!("annotation `{name}` of {what} has no valid `from`"));
            };
            let Some(declared) = annotators.get(name) else {
                return wrong(format!("annotation `{name}` of {what} names no annotator"));
            };
            annotations.insert(name.clone(), (from, declared.clone()));
        }
    }
    Ok(PointOf {
        target: snapshot(target_text, "policy_target")?,
        target_text: target_text.to_owned(),
        target_kind: text(fields, "policy_target_kind")?.map(str::to_owned),
        policy: id.to_owned(),
        binding: Value::Object(binding.clone()),
        tool_name_from,
        annotations,
    })
}
