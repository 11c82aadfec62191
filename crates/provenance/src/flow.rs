//! Flow reports: a host that runs a program reports which results a call was computed from.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session::CallId;

/// Maximum sources in one report.
const NAMED_MAX: usize = 4_096;

/// A source that a value can be computed from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FlowSource {
    /// The request, or a constant of the program.
    Request,
    /// The tools' descriptions, which the author of the program has read.
    Tools,
    /// The result of an earlier call in this session.
    Call(CallId),
    /// One field of such a result, by its path, with everything below. The program used nothing else of the result.
    Field(CallId, String),
}

impl FlowSource {
    /// The call of this result.
    pub(crate) fn call(&self) -> Option<CallId> {
        match self {
            Self::Call(call) | Self::Field(call, _) => Some(*call),
            Self::Request | Self::Tools => None,
        }
    }
}

/// The sources of a call. Only a host that runs a program (an interpreter, a workflow) can know them. A host that forwards a model's calls
/// can't: the model may have used anything it has read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DerivedFrom {
    /// The sources of the choice of tool, and of every argument not in `args`.
    pub call: BTreeSet<FlowSource>,
    /// Sources of single arguments.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, BTreeSet<FlowSource>>,
}

/// An invalid report, which is rejected: a partial report would claim that a source wasn't used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// Malformed.
    #[error("`derived_from` must be a list of sources, or `{{call: [...], args: {{name: [...]}}}}`: {0}")]
    Unreadable(String),
    /// It names an unknown call.
    #[error("`derived_from` names {0}, which is not a call of this session with a result")]
    Unknown(String),
}

impl DerivedFrom {
    /// Parses `["request", "c1", {"call": "c2", "field": "orders"}]` for the entire call, or `{"call": […], "args": {"to": […]}}`. `number`
    /// maps the host's ids to calls.
    pub fn read(value: &Value, number: impl Fn(&Value) -> Option<CallId>) -> Result<Self, FlowError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Parts {
            call: Vec<Value>,
            #[serde(default)]
            args: BTreeMap<String, Vec<Value>>,
        }
        let parts = match value.as_array() {
            Some(all) => Parts { call: all.clone(), args: BTreeMap::new() },
            None => Parts::deserialize(value).map_err(|error| FlowError::Unreadable(error.to_string()))?,
        };
        let named = parts.args.values().map(Vec::len).fold(parts.call.len(), usize::saturating_add);
        if named > NAMED_MAX {
            return Err(FlowError::Unreadable(format!("more than {NAMED_MAX} sources")));
        }
        // A call whose id equals one of the two words takes precedence.
        let field = |id: &Value| {
            let call = number(id.get("call")?)?;
            let name = id.get("field")?.as_str()?.to_owned();
            (id.as_object()?.len() == 2).then_some(FlowSource::Field(call, name))
        };
        let source = |id: &Value| match (number(id), id.as_str()) {
            (Some(call), _) => Ok(FlowSource::Call(call)),
            (None, Some("request")) => Ok(FlowSource::Request),
            (None, Some("tools")) => Ok(FlowSource::Tools),
            (None, _) => {
                field(id).ok_or_else(|| FlowError::Unknown(id.to_string().chars().take(64).collect()))
            }
        };
        let all = |ids: &Vec<Value>| ids.iter().map(source).collect::<Result<BTreeSet<FlowSource>, _>>();
        let args = parts.args.iter().map(|(name, ids)| Ok((name.clone(), all(ids)?)));
        Ok(Self { call: all(&parts.call)?, args: args.collect::<Result<_, FlowError>>()? })
    }

    /// The sources of one argument.
    pub(crate) fn sources_of(&self, argument: &str) -> &BTreeSet<FlowSource> {
        self.args.get(argument).unwrap_or(&self.call)
    }

    /// Every source in the report.
    pub(crate) fn all(&self) -> impl Iterator<Item = &FlowSource> {
        self.args.values().chain([&self.call]).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parses_both_shapes_and_rejects_unknown_sources() {
        let number = |id: &Value| match id.as_str() {
            Some("c1") => Some(7),
            Some(_) | None => None,
        };
        let whole = DerivedFrom::read(&json!(["request", "c1", "tools"]), number).unwrap();
        assert_eq!(whole.call, BTreeSet::from([FlowSource::Request, FlowSource::Tools, FlowSource::Call(7)]));
        let parts =
            json!({"call": ["request"], "args": {"to": ["c1"], "id": [{"call": "c1", "field": "ids"}]}});
        let parts = DerivedFrom::read(&parts, number).unwrap();
        assert_eq!(
            (parts.sources_of("to").len(), parts.sources_of("text")),
            (1, &BTreeSet::from([FlowSource::Request]))
        );
        let written = serde_json::to_value(&parts).unwrap();
        let expected =
            json!({"call": ["request"], "args": {"to": [{"call": 7}], "id": [{"field": [7, "ids"]}]}});
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_value::<DerivedFrom>(written).unwrap(), parts);
        let many: Vec<&str> = vec!["request"; NAMED_MAX + 1];
        for odd in [
            json!(["c2"]),
            json!([1]),
            json!([null]),
            json!("request"),
            json!({"args": {"to": []}}),
            json!({"call": [], "args": {"to": ["c2"]}}),
            json!({"call": [], "trust": true}),
            json!(null),
            json!([{"call": "c1"}]),
            json!([{"call": "c2", "field": "to"}]),
            json!([{"call": "c1", "field": "to", "also": 1}]),
            json!(many),
        ] {
            assert!(DerivedFrom::read(&odd, number).is_err(), "{odd}");
        }
        // A call of that name takes precedence over the request.
        let clash = DerivedFrom::read(&json!(["request"]), |_| Some(3)).unwrap();
        assert_eq!(clash.call, BTreeSet::from([FlowSource::Call(3)]));
    }
}
