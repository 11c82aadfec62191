//! Learns the smallest policy from a trace, and the smallest rule for one call. It allows only what was seen, except that several files of
//! one folder become the folder, and that the paths of one kind of call become one list.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::condition::{Clause, Quantifier, all_hold};
use crate::facts::{Facts, Resource};
use crate::load::conditions_of;
use crate::policy::{Obstacle, Policy};
use crate::replay::PastCall;
use crate::verdict::{Layer, RuleRef, Verdict};

/// Maximum files of a folder to list; more become the folder.
const FILES_MAX: usize = 3;
/// Maximum different resources to keep per kind of call.
const THINGS_MAX: usize = 10_000;

/// Collects allowed calls.
#[derive(Debug, Default)]
pub struct Trace {
    calls: BTreeMap<Group, Things>,
    seen: u64,
}

/// The agent, operation and kinds of resources.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    agent: String,
    class: &'static str,
    op: String,
    tool: Option<String>,
    shape: Shape,
}

/// What a call touches. A rule applies to a call only if each of its conditions holds for all of the call's resources of that kind, so
/// calls that touch different kinds need different rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    /// The kinds of access to paths; a copy has two.
    accesses: BTreeSet<&'static str>,
    has_host: bool,
    /// Whether an endpoint has no method, so that a rule can't name methods.
    lacks_method: bool,
    has_program: bool,
    has_secret: bool,
}

impl Shape {
    fn of(resources: &[Resource<'_>]) -> Self {
        let mut shape = Self::default();
        for resource in resources {
            match resource {
                Resource::Path { access, .. } => drop(shape.accesses.insert(access.as_str())),
                Resource::Endpoint { method, .. } => {
                    shape.has_host = true;
                    shape.lacks_method |= method.is_empty();
                }
                Resource::Argv(_) => shape.has_program = true,
                Resource::Secret(_) => shape.has_secret = true,
            }
        }
        shape
    }
}

#[derive(Debug, Default)]
struct Things {
    paths: BTreeSet<String>,
    hosts: BTreeSet<(String, String)>,
    programs: BTreeSet<Vec<String>>,
    secrets: BTreeSet<String>,
}

impl Trace {
    /// Records an allowed call; other calls are ignored.
    pub fn add(&mut self, call: &PastCall) {
        if call.verdict != "allow" {
            return;
        }
        self.seen += 1;
        call.with_facts(crate::history::Past::default(), crate::facts::Rates::All(0), |facts| {
            let group = Group {
                agent: facts.caller.agent.to_owned(),
                class: facts.caller.class.as_str(),
                op: facts.op.to_owned(),
                tool: facts.tool.map(str::to_owned),
                shape: Shape::of(facts.resources),
            };
            self.calls.entry(group).or_default().add(facts);
        });
    }

    /// Number of recorded calls.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The policy as editable YAML. It allows the recorded calls and nothing else.
    pub fn policy(&self) -> String {
        let mut out = format!(
            "# Proposed from {} call(s). Read it before you use it: what was done once isn't always what should be allowed.\nversion: 1\nmode: strict\nrules:\n",
            self.seen
        );
        let mut number = 0;
        for (group, things) in &self.calls {
            number += 1;
            let mut when = Map::new();
            when.insert("class".to_owned(), json!(group.class));
            when.insert("agent".to_owned(), json!(escaped(&group.agent)));
            match &group.tool {
                Some(tool) => when.insert("tool".to_owned(), json!(escaped(tool))),
                None => when.insert("op".to_owned(), json!(group.op)),
            };
            when.extend(things.conditions(&group.shape));
            out.push_str(&format!(
                "  - id: learnt-{number}\n    effect: allow\n    match: {}\n",
                Value::Object(when)
            ));
        }
        if number == 0 {
            out.push_str("  []\n");
        }
        out
    }
}

impl Things {
    fn add(&mut self, facts: &Facts<'_>) {
        for resource in facts.resources {
            match resource {
                Resource::Path { path, .. } if self.paths.len() < THINGS_MAX => {
                    self.paths.insert((*path).to_owned());
                }
                Resource::Endpoint { host, method, .. } if self.hosts.len() < THINGS_MAX => {
                    self.hosts.insert(((*host).to_owned(), (*method).to_owned()));
                }
                Resource::Argv(argv) if self.programs.len() < THINGS_MAX => {
                    self.programs.insert(argv.to_vec());
                }
                Resource::Secret(name) if self.secrets.len() < THINGS_MAX => {
                    self.secrets.insert((*name).to_owned());
                }
                Resource::Path { .. }
                | Resource::Endpoint { .. }
                | Resource::Argv(_)
                | Resource::Secret(_) => {}
            }
        }
    }

    /// The conditions that cover all calls of this shape.
    fn conditions(&self, shape: &Shape) -> Map<String, Value> {
        let mut rest = Map::new();
        if !self.paths.is_empty() {
            rest.insert("path".to_owned(), json!(folders(&self.paths)));
            rest.insert("access".to_owned(), json!(shape.accesses));
        }
        if !self.hosts.is_empty() {
            let hosts: BTreeSet<&String> = self.hosts.iter().map(|(host, _)| host).collect();
            let methods: BTreeSet<&String> = self.hosts.iter().map(|(_, method)| method).collect();
            rest.insert("host".to_owned(), json!(hosts));
            if !shape.lacks_method {
                rest.insert("method".to_owned(), json!(methods));
            }
        }
        if !self.programs.is_empty() {
            let argv = |argv: &Vec<String>| argv.iter().map(|word| escaped(word)).collect::<Vec<_>>();
            rest.insert("argv".to_owned(), json!(self.programs.iter().map(argv).collect::<Vec<_>>()));
        }
        if !self.secrets.is_empty() {
            rest.insert("secret".to_owned(), json!(self.secrets));
        }
        rest
    }
}

/// Few files of a folder by name, many by the folder.
fn folders(paths: &BTreeSet<String>) -> Vec<String> {
    let mut by_folder: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for path in paths {
        by_folder.entry(path.rsplit_once('/').map_or("", |(folder, _)| folder)).or_default().push(path);
    }
    let mut out = Vec::new();
    for (folder, files) in by_folder {
        if files.len() > FILES_MAX && !folder.is_empty() {
            out.push(format!("{}/*", escaped(folder)));
        } else {
            out.extend(files.iter().map(|file| if file.is_empty() { ".".to_owned() } else { escaped(file) }));
        }
    }
    out
}

/// A name escaped as a pattern that matches only itself.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, next| {
        if matches!(next, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
            out.push('\\');
        }
        out.push(next);
        out
    })
}

/// The smallest change that would allow a call: its conditions, and the rule that needs an exception.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cover {
    /// Conditions that match this call and nothing wider.
    pub conditions: Value,
    /// The rule that asks or denies and needs the exception; `None` if no rule allows the call.
    pub exception_of: Option<RuleRef>,
    /// The lines to add.
    pub lines: String,
}

impl Cover {
    /// The cover of a call that was asked about or denied; `None` if it was allowed. The lines cover every policy file that prevents the
    /// call, so that together they allow it.
    pub fn find(policy: &Policy, facts: &Facts<'_>, verdict: &Verdict) -> Option<Self> {
        let exception_of = match verdict {
            Verdict::Allow(_) => return None,
            Verdict::Ask(question) => Some(question.rule.clone()),
            Verdict::Deny(reason) => reason.rule.clone(),
        };
        let mut things = Things::default();
        things.add(facts);
        let mut when = Map::new();
        when.insert("agent".to_owned(), json!(escaped(facts.caller.agent)));
        match facts.tool {
            Some(tool) => when.insert("tool".to_owned(), json!(escaped(tool))),
            None => when.insert("op".to_owned(), json!(facts.op)),
        };
        when.extend(things.conditions(&Shape::of(facts.resources)));
        let conditions = Value::Object(when);
        let obstacles = policy.obstacles(facts);
        let mut lines: String = obstacles.iter().map(|one| edits(one, &conditions)).collect();
        if obstacles.iter().any(|one| one.layer == Layer::Project) {
            lines.push_str("# then `regent trust`, because the project's policy has changed\n");
        }
        Some(Self { conditions, exception_of, lines })
    }

    /// Compiles the conditions to match many calls; `None` if they are invalid.
    pub fn compiled(&self) -> Option<Covering> {
        conditions_of(&self.conditions.to_string(), Layer::User).map(Covering)
    }
}

/// The lines for one file. An exception disables a rule and allows nothing.
fn edits(obstacle: &Obstacle, conditions: &Value) -> String {
    let Obstacle { layer, rule, is_allowed_otherwise } = obstacle;
    let except = rule.as_ref().map(|rule| {
        format!("# to rule `{}`, {layer} policy, line {}:\nunless: {conditions}\n", rule.id, rule.line)
    });
    let allow = (!is_allowed_otherwise).then(|| {
        let but = if rule.is_some() { "no other" } else { "no" };
        format!(
            "# to the {layer} policy, where {but} rule allows it:\n- id: allow-this\n  effect: allow\n  match: {conditions}\n"
        )
    });
    [except, allow].into_iter().flatten().collect()
}

/// The conditions of a [`Cover`], compiled.
#[derive(Debug)]
pub struct Covering(Box<[Clause]>);

impl Covering {
    /// Whether it would have covered this call too.
    pub fn covers(&self, call: &PastCall) -> bool {
        call.with_facts(crate::history::Past::default(), crate::facts::Rates::All(0), |facts| {
            all_hold(&self.0, facts, Quantifier::Every)
        })
    }
}
