//! Rego, by regorus: in-process, without clock, network, randomness or files, and with a time limit.

mod bounded;

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, Value};

use super::{BodyError, input};
use crate::facts::Facts;

/// Time limit of an evaluation; beyond it the result is unknown.
const EVALUATION_MS_MAX: u64 = 50;
/// Steps between two clock checks.
const STEPS_PER_LOOK: NonZeroU32 = NonZeroU32::new(1024).unwrap();

/// A module, and the rule to query.
pub(crate) struct Module {
    /// Evaluation mutates the engine, so callers take turns.
    engine: Mutex<Engine>,
    query: String,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("query", &self.query).finish_non_exhaustive()
    }
}

impl Module {
    /// A complete module with a rule `match`, or plain expressions that must all hold.
    pub(crate) fn new(text: &str) -> Result<Self, BodyError> {
        let starts = |word: &str| text.lines().any(|line| line.trim_start().starts_with(word));
        if starts("package ") {
            return Self::asking(text, "match");
        }
        let body: Vec<&str> = text.lines().collect();
        Self::asking(
            &format!("package regent\nimport rego.v1\nmatch if {{\n{}\n}}\n", body.join("\n")),
            "match",
        )
    }

    /// A module, queried for one of its rules.
    pub(crate) fn asking(text: &str, rule: &str) -> Result<Self, BodyError> {
        let mut engine = engine()?;
        let package = add(&mut engine, "rule.rego", text)?;
        Self::tried(engine, format!("{package}.{rule}"))
    }

    /// Modules, queried for one rule by its full path.
    pub(crate) fn compile(parts: &[(&str, &str)], query: &str) -> Result<Self, BodyError> {
        if !query.starts_with("data.") {
            return Err(invalid(&format!("`{query}` is not a rule path such as `data.PACKAGE.RULE`")));
        }
        let mut engine = engine()?;
        for (name, text) in parts {
            add(&mut engine, name, text)?;
        }
        Self::tried(engine, query.to_owned())
    }

    /// Evaluates once, so that a missing rule or function is reported at load time. Other errors may disappear with a call's input.
    fn tried(mut engine: Engine, query: String) -> Result<Self, BodyError> {
        engine.set_input(Value::new_object());
        if let Err(error) = engine.eval_rule(query.clone()) {
            let said = error.to_string();
            if said.contains("not a valid rule path") {
                return Err(invalid(&format!(
                    "it has no rule `{}`",
                    query.rsplit('.').next().unwrap_or(&query)
                )));
            }
            if said.contains("could not find function") {
                return Err(invalid(&error));
            }
        }
        Ok(Self { engine: Mutex::new(engine), query })
    }

    /// The boolean result; `None` on an error.
    pub(crate) fn says(&self, facts: &Facts<'_>) -> Option<bool> {
        match self.answer(&serde_json::Value::Object(input::all(facts)))? {
            Value::Bool(said) => Some(said),
            // In Rego, a rule without default that doesn't hold is undefined, which means false.
            Value::Undefined => Some(false),
            // `deny contains …`: any element is a reason.
            Value::Set(said) => Some(!said.is_empty()),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// The rule's value for this input.
    pub(crate) fn answer(&self, input: &serde_json::Value) -> Option<Value> {
        let input = serde_json::from_value(input.clone()).ok()?;
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        engine.set_input(input);
        engine.eval_rule(self.query.clone()).ok()
    }
}

fn engine() -> Result<Engine, BodyError> {
    let mut engine = Engine::new();
    engine.set_strict_builtin_errors(true);
    engine.set_execution_timer_config(ExecutionTimerConfig {
        limit: Duration::from_millis(EVALUATION_MS_MAX),
        check_interval: STEPS_PER_LOOK,
    });
    bounded::install(&mut engine)?;
    Ok(engine)
}

/// Adds a module, and returns its package.
fn add(engine: &mut Engine, name: &str, text: &str) -> Result<String, BodyError> {
    engine.add_policy(name.to_owned(), text.to_owned()).map_err(|error| invalid(&error))
}

fn invalid(error: &dyn std::fmt::Display) -> BodyError {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    BodyError::Invalid(format!("invalid Rego: {}", lines.join(" ")))
}
