//! The policy engines that a Rust user would otherwise take, with the same rules and the same question.

use std::hint::black_box;
use std::str::FromStr;

use anyhow::{Context as _, Result, ensure};
use cedar_policy::{Authorizer, Context, Decision, Entities, EntityUid, PolicySet, Request};
use serde_json::json;

use crate::policy::{AGENT, TOOL, folder};

/// A question that can be put again and again.
pub type Question = Box<dyn FnMut()>;

/// Cedar with `rules` permits of which the last applies.
pub fn cedar(rules: usize) -> Result<Question> {
    let mut text = String::new();
    for number in 0..rules {
        text.push_str(&format!(
            "permit(principal == Agent::\"{AGENT}\", action == Action::\"{TOOL}\", resource) when {{ context.path like \"{}/*\" }};\n",
            folder(number)
        ));
    }
    let policies = PolicySet::from_str(&text)?;
    let path = format!("{}/deep/file.rs", folder(rules - 1));
    let request = Request::new(
        EntityUid::from_str(&format!("Agent::\"{AGENT}\""))?,
        EntityUid::from_str(&format!("Action::\"{TOOL}\""))?,
        EntityUid::from_str("Tool::\"host\"")?,
        Context::from_json_value(json!({"path": path}), None)?,
        None,
    )?;
    let (authorizer, entities) = (Authorizer::new(), Entities::empty());
    let decision = authorizer.is_authorized(&request, &policies, &entities).decision();
    ensure!(decision == Decision::Allow, "cedar should allow this");
    Ok(Box::new(move || {
        black_box(authorizer.is_authorized(&request, &policies, &entities));
    }))
}

/// Rego on regorus with `rules` bodies of which the last applies.
pub fn regorus(rules: usize) -> Result<Question> {
    let mut text = String::from("package agent\nimport rego.v1\ndefault allow := false\n");
    for number in 0..rules {
        text.push_str(&format!(
            "allow if {{ input.agent == \"{AGENT}\"; input.tool == \"{TOOL}\"; startswith(input.path, \"{}/\") }}\n",
            folder(number)
        ));
    }
    let mut engine = regorus::Engine::new();
    engine.add_policy("bench.rego".to_owned(), text)?;
    let path = format!("{}/deep/file.rs", folder(rules - 1));
    let input = json!({"agent": AGENT, "tool": TOOL, "path": path}).to_string();
    let input = regorus::Value::from_json_str(&input)?;
    engine.set_input(input.clone());
    let said = engine.eval_rule("data.agent.allow".to_owned())?;
    ensure!(said == regorus::Value::from(true), "regorus should allow this");
    Ok(Box::new(move || {
        engine.set_input(input.clone());
        black_box(engine.eval_rule("data.agent.allow".to_owned()).context("it did before").ok());
    }))
}
