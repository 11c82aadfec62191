//! Manifests and field labels: what a tool of ours declares, as provenance sees it; and what a host declares, as a manifest.

use regent_policy::{Confidentiality, Integrity, Label, Tier};
use regent_provenance::{Declared, Effect, FieldLabels, Taint, Whole, names_in};
use serde_json::{Value, json};

use super::{ArgumentKind, SideEffect, ToolSpec};

impl ToolSpec {
    /// A tool that the host performs: nothing of ours runs, so it has the weakest tier that runs at all.
    pub fn elsewhere(name: &str, declared: &Declared) -> Self {
        let labels = declared.field_labels();
        let (capability, effect) = match labels.effect {
            Effect::Read => ("elsewhere.read", SideEffect::Read),
            Effect::Egress => ("elsewhere.egress", SideEffect::Network),
            Effect::Write => ("elsewhere.write", SideEffect::Write),
        };
        let integrity =
            if labels.taint == Taint::Whole(Whole::None) { Integrity::Tool } else { Integrity::Web };
        let confidentiality =
            if labels.is_confidential() { Confidentiality::Private } else { Confidentiality::Internal };
        let mut input = if declared.schema.is_null() { json!({}) } else { declared.schema.clone() };
        // An argument that the schema doesn't name is undeclared: its effect is unknown.
        if let Value::Object(schema) = &mut input
            && schema.contains_key("properties")
        {
            schema.entry("additionalProperties").or_insert(Value::Bool(false));
        }
        Self {
            name: name.to_owned(),
            description: declared.description.clone(),
            input,
            capabilities: vec![capability.to_owned()],
            effect,
            idempotent: labels.effect == Effect::Read,
            tiers: vec![Tier::Host],
            output: Label { integrity, confidentiality },
            ..Self::default()
        }
    }

    /// The labels of a tool of ours, from its manifest: whatever it resolves (a path, a host, a program) is a sink. What it does to files or
    /// by programs stays on this machine.
    pub fn field_labels(&self) -> FieldLabels {
        let effect = match self.effect {
            SideEffect::None | SideEffect::Read => Effect::Read,
            SideEffect::Write | SideEffect::Delete => Effect::Write,
            SideEffect::Network => Effect::Egress,
        };
        let sinks = self.arguments.keys().filter(|_| effect != Effect::Read);
        // What a program is given beside its words decides what it does as much as they do.
        let runs =
            self.arguments.values().any(|kind| matches!(kind, ArgumentKind::Argv | ArgumentKind::Shell));
        let beside = ["env", "stdin"].into_iter().filter(|_| runs).map(str::to_owned);
        let is_url = |kind: &ArgumentKind| matches!(kind, ArgumentKind::Url);
        let taint = if self.output.integrity <= Integrity::OwnModel { Whole::None } else { Whole::All };
        FieldLabels {
            effect,
            sinks: sinks
                .filter_map(|pointer| pointer.split('/').nth(1))
                .map(str::to_owned)
                .chain(beside)
                .collect(),
            taint: Taint::Whole(taint),
            secret: self.output.confidentiality >= Confidentiality::Private,
            readers: Default::default(),
            inferred: false,
            remembered: Default::default(),
            also_sinks: Default::default(),
            local: effect == Effect::Write && !self.arguments.values().any(is_url),
            fields: names_in(&self.input),
        }
    }
}
