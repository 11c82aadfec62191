//! The labels of tools, for people: which are in force, where each is from, and how to correct them.

use std::collections::BTreeSet;

use regent_kernel::{FieldLabels, Taint, ToolSpec, Whole};
use regent_protocols::labels::known::{self, KnownTool, LabelSource};
use regent_protocols::labels::{Corrected, Corrections, effect_word, snippet, taint_word};
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::labels;
use crate::output::{CommandResult, Done};
use crate::state;
use crate::term;
use crate::trust::Trust;

/// The labels of one tool.
#[derive(Debug, Serialize)]
pub(super) struct LabelledTool {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    server: String,
    labels: FieldLabels,
    /// Where they are from.
    from: From,
    /// When its definition last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_at_ms: Option<i64>,
    /// An entry for `labels.toml`, to correct.
    #[serde(skip_serializing_if = "Option::is_none")]
    correction: Option<String>,
}

/// Where labels are from, in words.
#[derive(Debug, Serialize)]
struct From {
    /// Most of them.
    labels: &'static str,
    /// The effect, if it is from elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<&'static str>,
    /// The taint, if it is from elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    taint: Option<&'static str>,
    /// The project's file makes them stricter.
    stricter_by_project: bool,
}

/// The tools of hosts that have this name.
pub(super) async fn find(context: &Context, name: &str) -> Result<Vec<LabelledTool>, Failure> {
    load(context, Some(name)).await
}

async fn load(context: &Context, name: Option<&str>) -> Result<Vec<LabelledTool>, Failure> {
    // Where nobody has judged anything yet there is no state to look into.
    if state::is_unused(context) {
        return Ok(Vec::new());
    }
    let state = state::open(context).await?;
    let tools = known::list(&*state, name).await.map_err(|error| state::failed(context, &error))?;
    let trusted = Trust::of_judged(&context.paths, &context.cwd)?;
    let corrections = labels::load(&context.paths, trusted.as_ref())?;
    tools.into_iter().map(|tool| in_force(tool, &corrections)).collect()
}

fn in_force(tool: KnownTool, corrections: &Corrections) -> Result<LabelledTool, Failure> {
    let KnownTool { name, server, labels, source, observed, changed_at_ms, .. } = tool;
    let invalid = |why: String| Failure::new(crate::codes::CONFIG_INVALID, why);
    let corrected = corrections.apply(&name, &server, labels).map_err(invalid)?;
    let Corrected { mut labels, by_user, by_project } = corrected;
    let is_observed = labels.taint == Taint::Whole(Whole::Observed);
    if is_observed {
        labels.remembered.extend(observed);
    }
    let from = match (by_user, source) {
        (true, _) => "your file",
        (false, LabelSource::Declared) => "declared",
        (false, LabelSource::Unreadable) => "strictest labels: the host's can't be read",
        (false, LabelSource::Servers) => "list of servers",
        (false, LabelSource::Name | LabelSource::Annotations) => "inferred by name",
    };
    let effect = (!by_user && source == LabelSource::Annotations).then_some("inferred by annotation");
    let taint = is_observed.then_some("observed");
    let correction = Some(snippet(&name, &server, &labels));
    let from = From { labels: from, effect, taint, stricter_by_project: by_project };
    Ok(LabelledTool { name, server, labels, from, changed_at_ms, correction })
}

/// A tool of ours. Its manifest declares its labels, and nobody corrects them.
pub(super) fn own(spec: &ToolSpec) -> LabelledTool {
    let from = From { labels: "declared", effect: None, taint: None, stricter_by_project: false };
    let (labels, changed_at_ms, correction) = (spec.field_labels(), None, None);
    LabelledTool { name: spec.name.clone(), server: String::new(), labels, from, changed_at_ms, correction }
}

impl LabelledTool {
    /// Its labels, one a line.
    pub(super) fn text(&self) -> String {
        let FieldLabels { effect, sinks, also_sinks, taint, secret, readers, remembered, .. } = &self.labels;
        let sinks = sinks | also_sinks;
        let words = |words: &BTreeSet<String>| match words.is_empty() {
            true => "–".to_owned(),
            false => words.iter().map(|word| term::inline(word)).collect::<Vec<_>>().join(", "),
        };
        let taint = match taint {
            Taint::Whole(Whole::Observed) => {
                let named = remembered.iter().map(|field| match field.as_str() {
                    "" => "text without a field".to_owned(),
                    "*" => "all fields".to_owned(),
                    field => term::inline(field).into_owned(),
                });
                let named: Vec<String> = named.collect();
                let so_far = if named.is_empty() { "nothing so far".to_owned() } else { named.join(", ") };
                format!("observed ({so_far})")
            }
            Taint::Whole(whole) => taint_word(*whole).to_owned(),
            Taint::Fields(fields) => words(fields),
        };
        let From { labels: from, effect: effect_from, stricter_by_project, .. } = &self.from;
        let effect_from = effect_from.map(|from| format!("  ({from})")).unwrap_or_default();
        let stricter = if *stricter_by_project { ", stricter by the project's file" } else { "" };
        let mut text = format!(
            "labels        {from}{stricter}\n  effect      {}{effect_from}\n  sinks       {}\n  taint       {taint}\n  secret      {}\n  readers     {}\n",
            effect_word(*effect),
            words(&sinks),
            if *secret { "yes" } else { "no" },
            words(readers),
        );
        if self.changed_at_ms.is_some() {
            text.push_str("  its definition has changed since it was first seen\n");
        }
        text
    }
}

/// The tools of hosts, each with the entry that corrects it.
pub(super) fn text(context: &Context, tools: &[LabelledTool]) -> String {
    let mut text = String::new();
    for tool in tools {
        let of = if tool.server.is_empty() {
            String::new()
        } else {
            format!(" of `{}`", term::inline(&tool.server))
        };
        text.push_str(&format!(
            "{}  a tool of another application{of}\n{}",
            context.screen.strong(&term::inline(&tool.name)),
            tool.text()
        ));
        if let Some(correction) = &tool.correction {
            let path = context.paths.labels();
            text.push_str(&format!(
                "\nto correct them, add this to `{}`:\n\n{}\n",
                path.display(),
                term::block(correction)
            ));
        }
    }
    text
}

/// `regent tool list --judged`
pub(super) async fn list(context: &Context) -> CommandResult {
    let tools = load(context, None).await?;
    let mut text = String::new();
    if tools.is_empty() {
        text.push_str("`regent judge` has seen no tools of other applications yet\n");
    }
    for tool in &tools {
        let taint = match &tool.labels.taint {
            Taint::Whole(whole) => taint_word(*whole).to_owned(),
            Taint::Fields(fields) => {
                fields.iter().map(|field| term::inline(field)).collect::<Vec<_>>().join(",")
            }
        };
        let server = if tool.server.is_empty() { "–" } else { &tool.server };
        text.push_str(&format!(
            "{} {:<16} {:<7} taint {taint:<10}  {}\n",
            context.screen.strong(&format!("{:<24}", term::inline(&tool.name))),
            term::inline(server),
            effect_word(tool.labels.effect),
            context.screen.faint(tool.from.labels),
        ));
    }
    let listed: Vec<Value> = tools.iter().map(|tool| json!(tool)).collect();
    Ok(Done::new(json!({"judged": listed}), text))
}
