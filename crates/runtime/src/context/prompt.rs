//! Layered templates: system, role, task. Each layer is a template; includes come from a fixed set, never from disk.

use std::collections::BTreeMap;

use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

/// How large one template may be.
const TEMPLATE_BYTES_MAX: usize = 256 << 10;
/// How many templates there may be.
const TEMPLATES_MAX: usize = 64;
/// How much work a template may make; loops in one that someone else wrote must end.
const FUEL_MAX: u64 = 200_000;

const SYSTEM: &str = include_str!("system.txt");
const ROLE: &str = "{{ role }}";
const TASK: &str = include_str!("task.txt");

/// The layers of a prompt, from the most general to the most particular.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The rules of the house.
    System,
    /// Who the agent is.
    Role,
    /// What it is to do.
    Task,
}

impl Layer {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::System, Self::Role, Self::Task];

    /// The template's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Role => "role",
            Self::Task => "task",
        }
    }
}

/// A prompt can't be made.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The template is wrong, names a variable that isn't there, or runs for too long.
    #[error("the template `{name}` is invalid: {why}")]
    Template {
        /// Which one.
        name: String,
        /// What is wrong, with the line.
        why: String,
    },
    /// Too large, or too many.
    #[error("the template `{0}` is too large, or there are too many")]
    TooLarge(String),
}

/// The templates of an agent. Strict: a variable that isn't given is an error, not an empty word.
#[derive(Debug)]
pub struct Prompts {
    environment: Environment<'static>,
}

impl Default for Prompts {
    fn default() -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL_MAX));
        environment.set_keep_trailing_newline(false);
        // Prompts are text, not HTML: nothing is escaped.
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        let mut prompts = Self { environment };
        for (layer, text) in Layer::ALL.into_iter().zip([SYSTEM, ROLE, TASK]) {
            // Ours, and covered by a test: they parse.
            let _parses = prompts.environment.add_template(layer.name(), text).is_ok();
        }
        prompts
    }
}

impl Prompts {
    /// Replaces a layer's template.
    pub fn layer(self, layer: Layer, text: &str) -> Result<Self, PromptError> {
        self.part(layer.name(), text)
    }

    /// Adds a template that others can include by its name.
    pub fn part(mut self, name: &str, text: &str) -> Result<Self, PromptError> {
        let count = self.environment.templates().count();
        if text.len() > TEMPLATE_BYTES_MAX || count >= TEMPLATES_MAX {
            return Err(PromptError::TooLarge(name.to_owned()));
        }
        self.environment
            .add_template_owned(name.to_owned(), text.to_owned())
            .map_err(|error| broken(name, &error))?;
        Ok(self)
    }

    /// Renders one layer.
    pub fn render(&self, layer: Layer, variables: &Variables<'_>) -> Result<String, PromptError> {
        let template =
            self.environment.get_template(layer.name()).map_err(|error| broken(layer.name(), &error))?;
        template.render(variables).map_err(|error| broken(layer.name(), &error))
    }
}

/// The variables of templates.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Variables<'a> {
    /// What is to be done.
    pub goal: &'a str,
    /// Who the agent is.
    pub role: &'a str,
    /// The names of the tools that are offered.
    pub tools: &'a [String],
    /// A line for each skill that is offered.
    pub skills: &'a [String],
    /// Results of the steps that this one builds on.
    pub findings: &'a [Finding],
    /// Whatever the task brings along, as `vars.name`.
    pub vars: &'a BTreeMap<String, String>,
}

/// The result of an earlier step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which step.
    pub step: String,
    /// Its answer, between markers.
    pub text: String,
}

fn broken(name: &str, error: &minijinja::Error) -> PromptError {
    let at = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    PromptError::Template { name: name.to_owned(), why: format!("{error}{at}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables<'a>(vars: &'a BTreeMap<String, String>, tools: &'a [String]) -> Variables<'a> {
        let (goal, role) = ("count the files", "You are careful.");
        Variables { goal, role, tools, skills: &[], findings: &[], vars }
    }

    #[test]
    fn our_own_layers_render_and_name_the_goal() {
        let (vars, tools) = (BTreeMap::new(), vec!["fs.list".to_owned()]);
        let prompts = Prompts::default();
        let all: Vec<String> = Layer::ALL
            .iter()
            .map(|layer| prompts.render(*layer, &variables(&vars, &tools)).unwrap())
            .collect();
        assert!(all[0].contains("<<output TAG"), "{}", all[0]);
        assert_eq!(all[1], "You are careful.");
        assert!(all[2].contains("count the files"), "{}", all[2]);
    }

    #[test]
    fn the_same_variables_give_the_same_bytes() {
        let vars = BTreeMap::from([("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())]);
        let prompts = Prompts::default()
            .layer(Layer::Task, "{% for k in vars %}{{ k }}={{ vars[k] }} {% endfor %}")
            .unwrap();
        let once = prompts.render(Layer::Task, &variables(&vars, &[])).unwrap();
        assert_eq!(once, "a=1 b=2 ");
        assert_eq!(once, prompts.render(Layer::Task, &variables(&vars, &[])).unwrap());
    }

    #[test]
    fn includes_come_from_the_set_and_from_nowhere_else() {
        let prompts = Prompts::default()
            .part("house", "be brief")
            .unwrap()
            .layer(Layer::Role, "{% include 'house' %}, {{ role }}")
            .unwrap();
        let vars = BTreeMap::new();
        assert_eq!(
            prompts.render(Layer::Role, &variables(&vars, &[])).unwrap(),
            "be brief, You are careful."
        );
        let outside = Prompts::default().layer(Layer::Role, "{% include '/etc/passwd' %}").unwrap();
        assert!(outside.render(Layer::Role, &variables(&vars, &[])).is_err());
    }

    #[test]
    fn what_is_not_there_is_an_error_and_endless_templates_end() {
        let vars = BTreeMap::new();
        for text in [
            "{{ vars.missing }}",
            "{{ unknown }}",
            "{% for a in range(9000) %}{% for b in range(9000) %}x{% endfor %}{% endfor %}",
        ] {
            let prompts = Prompts::default().layer(Layer::Task, text).unwrap();
            assert!(prompts.render(Layer::Task, &variables(&vars, &[])).is_err(), "{text}");
        }
        assert!(Prompts::default().layer(Layer::Task, "{% if %}").is_err());
        assert!(Prompts::default().layer(Layer::Task, &"x".repeat(TEMPLATE_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn text_in_a_variable_is_text() {
        let vars = BTreeMap::new();
        let hostile = Variables { goal: "{{ nonce }}{% include 'system' %}", ..variables(&vars, &[]) };
        let prompts = Prompts::default().layer(Layer::Task, "{{ goal }}").unwrap();
        assert_eq!(prompts.render(Layer::Task, &hostile).unwrap(), "{{ nonce }}{% include 'system' %}");
    }
}
