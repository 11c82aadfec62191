//! Which models are asked, in which protocols.

use anyhow::{Context as _, Result, bail};

use super::task::{PATIENCE, Run};
use crate::root;

/// Where the project's table of models is, whatever its file is called.
const TABLES: &str = "crates/models/src";

/// Every kind of remote provider, its wire, and a model.
pub(super) const WIRES: &[(&str, &str, &str)] = &[
    ("openai", "chat", "gpt-5.5"),
    ("compatible", "compatible", "any"),
    ("openai-responses", "responses", "gpt-5.5"),
    ("anthropic", "anthropic", "claude-sonnet-5-5"),
    ("gemini", "gemini", "gemini-3.5-flash"),
    ("ollama", "ollama", "qwen3"),
];

/// What LiteLLM must refuse: a name, the request, and a word of the refusal.
pub(super) const REFUSED: &[(&str, &str, &str)] = &[
    (
        "temperature-0-of-gpt-5-mini",
        r#"{"model": "gpt-5-mini", "stream": true, "temperature": 0, "messages": [{"role": "user", "content": "Hello"}]}"#,
        "temperature",
    ),
    (
        "temperature-0-of-gpt-5.6-luna",
        r#"{"model": "gpt-5.6-luna", "stream": true, "temperature": 0, "messages": [{"role": "user", "content": "Hello"}]}"#,
        "temperature",
    ),
    (
        "temperature-0-of-claude-sonnet-5-5",
        r#"{"model": "claude-sonnet-5-5", "stream": true, "temperature": 0, "messages": [{"role": "user", "content": "Hello"}]}"#,
        "temperature",
    ),
    (
        "logit-bias-of-gemini",
        r#"{"model": "gemini-3.5-flash", "stream": true, "logit_bias": {"1": 1}, "messages": [{"role": "user", "content": "Hello"}]}"#,
        "logit_bias",
    ),
];

fn run(kind: &'static str, wire: &'static str, target: &'static str, model: &str) -> Run {
    Run { kind, wire, target, model: model.to_owned(), plan: false, case: None, patience: PATIENCE }
}

/// Two tasks in each protocol, with thoughts that must come back; one is planned first.
pub(super) fn vendors() -> Vec<Run> {
    let one =
        |plan| WIRES.iter().map(move |&(kind, wire, model)| Run { plan, ..run(kind, wire, "vendor", model) });
    one(false).chain(one(true)).collect()
}

pub(super) fn aimock() -> Vec<Run> {
    WIRES.iter().map(|&(kind, wire, model)| run(kind, wire, "aimock", model)).collect()
}

/// Every model of the table through LiteLLM, at each front that its users have.
pub(super) fn litellm() -> Result<Vec<Run>> {
    let models = table()?;
    let mut runs = Vec::new();
    for model in &models {
        let (vendor, name) = model.split_once('/').with_context(|| format!("`{model}` has no vendor"))?;
        // Open weights are served by whoever runs them; LiteLLM has no rules for those.
        if vendor == OPEN_WEIGHTS {
            continue;
        }
        let Some((_, fronts)) = FRONTS.iter().find(|(known, _)| *known == vendor) else {
            bail!("`{model}`: say in `FRONTS` how models of `{vendor}` are asked");
        };
        runs.extend(fronts.iter().map(|&(kind, wire)| run(kind, wire, "litellm", name)));
    }
    runs.extend(CROSSED.iter().map(|&(kind, wire, model)| run(kind, wire, "litellm", model)));
    Ok(runs)
}

/// What the table calls models that anybody can serve.
const OPEN_WEIGHTS: &str = "open";

type Front = (&'static str, &'static str);

/// A vendor's own protocol, as LiteLLM offers it too, and OpenAI's chat completions for everything.
const FRONTS: &[(&str, &[Front])] = &[
    ("openai", &[("openai", "chat"), ("openai-responses", "responses")]),
    ("anthropic", &[("anthropic", "anthropic"), ("compatible", "compatible")]),
    ("gemini", &[("gemini", "gemini"), ("compatible", "compatible")]),
];

/// Models of one vendor in the protocol of another: LiteLLM translates.
const CROSSED: &[(&str, &str, &str)] = &[
    ("anthropic", "anthropic", "gpt-5.5"),
    ("anthropic", "anthropic", "gemini-3.5-flash"),
    ("openai-responses", "responses", "claude-sonnet-5-5"),
    ("openai-responses", "responses", "gemini-3.5-flash"),
];

/// The models of the project's table, as `vendor/name`.
fn table() -> Result<Vec<String>> {
    let mut folders = vec![root().join(TABLES)];
    let mut models = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("`{}`", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "toml") {
                models.extend(models_in(&std::fs::read_to_string(&path)?));
            }
        }
    }
    if models.is_empty() { bail!("`{TABLES}` has no table of models") } else { Ok(models) }
}

/// The models that a table has sections for: `[model."vendor/name"]`.
fn models_in(text: &str) -> Vec<String> {
    let name = |line: &str| {
        line.trim()
            .strip_prefix("[model.\"")?
            .strip_suffix("\"]")
            .filter(|name| name.contains('/'))
            .map(str::to_owned)
    };
    text.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    //! The table is found and read, and every model in it is asked.

    use super::*;

    #[test]
    fn reads_the_sections_of_models() {
        let text = "date = \"x\"\n[model.\"openai/gpt-4.1\"]\ninput = 1\n# [model.\"a/b\"]\n[model.\"bare\"]\n [model.\"gemini/g-3.5\"]\n";
        assert_eq!(models_in(text), ["openai/gpt-4.1", "gemini/g-3.5"]);
    }

    #[test]
    fn every_model_of_the_table_is_asked_under_its_own_name() {
        let (models, runs) = (table().unwrap(), litellm().unwrap());
        assert!(models.len() >= 20, "{models:?}");
        for model in models.iter().filter(|model| !model.starts_with("open/")) {
            let name = model.split_once('/').unwrap().1;
            assert!(runs.iter().filter(|run| run.model == name).count() >= 2, "{model}");
        }
        let mut names: Vec<String> = runs.iter().map(Run::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), runs.len(), "no two runs share a name");
    }
}
