//! Generates calls from the conditions of rules, to compare the verdicts of two policies.

use serde_json::{Map, Value, json};

use crate::condition::{ArgvPart, ArgvPattern, Clause, Condition, EndpointTest, HostPattern, Names, Test};
use crate::glob::NameGlob;
use crate::load::CallSketch;
use crate::policy::Policy;
use crate::rule::Rule;

/// Maximum calls per rule.
const PER_RULE_MAX: usize = 16;
/// Maximum alternatives per condition.
const PER_CONDITION_MAX: usize = 4;

/// Calls for every rule of a policy, each with its description.
pub(crate) fn calls(policy: &Policy) -> Vec<(Value, CallSketch)> {
    let rules = policy.sets().iter().flat_map(|set| &set.rules);
    let tools =
        policy.sets().iter().filter_map(|set| set.control.as_ref()).flat_map(|control| control.tools());
    let called = tools.filter_map(|tool| parsed(Map::from_iter([("tool".to_owned(), json!(tool))])));
    rules.flat_map(of_rule).chain(called).collect()
}

fn of_rule(rule: &Rule) -> Vec<(Value, CallSketch)> {
    let mut all = vec![Map::new()];
    extend(&mut all, &rule.when);
    let call = |mut fields: Map<String, Value>| {
        if !fields.contains_key("tool") && !fields.contains_key("op") {
            fields.insert("tool".to_owned(), json!("any.tool"));
        }
        parsed(fields)
    };
    all.into_iter().filter_map(call).collect()
}

fn parsed(fields: Map<String, Value>) -> Option<(Value, CallSketch)> {
    let value = Value::Object(fields);
    CallSketch::parse(&value.to_string()).ok().map(|sketch| (value, sketch))
}

/// Every way to satisfy the clauses.
fn extend(all: &mut Vec<Map<String, Value>>, clauses: &[Clause]) {
    for clause in clauses {
        if let Condition::Any(branches) = &clause.condition {
            let mut wider = Vec::new();
            for branch in branches.iter().take(PER_CONDITION_MAX) {
                let mut some = all.clone();
                extend(&mut some, branch);
                wider.extend(some);
            }
            *all = wider;
        } else if let Condition::All(branches) = &clause.condition {
            branches.iter().for_each(|branch| extend(all, branch));
        } else {
            let options = options(&clause.condition);
            if !options.is_empty() {
                *all =
                    all.iter().flat_map(|fields| options.iter().map(|option| with(fields, option))).collect();
            }
        }
        all.truncate(PER_RULE_MAX);
    }
}

fn with(fields: &Map<String, Value>, option: &Map<String, Value>) -> Map<String, Value> {
    let mut out = fields.clone();
    for (key, value) in option {
        match (out.get_mut(key), value) {
            (Some(Value::Object(inner)), Value::Object(more)) => inner.extend(more.clone()),
            (Some(_), _) => {}
            (None, value) => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    out
}

fn one(key: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(key.to_owned(), value)])
}

fn named(key: &str, names: &Names, as_list: bool) -> Vec<Map<String, Value>> {
    let samples = names.exact().map(str::to_owned).chain(names.globs().iter().map(NameGlob::sample));
    let value = |text: String| if as_list { json!([text]) } else { json!(text) };
    samples.take(PER_CONDITION_MAX).map(|text| one(key, value(text))).collect()
}

fn options(condition: &Condition) -> Vec<Map<String, Value>> {
    match condition {
        Condition::Class(classes) => {
            classes.iter().map(|class| one("class", json!(class.as_str()))).collect()
        }
        Condition::Agent(names) => named("agent", names, false),
        Condition::Role(names) => named("roles", names, true),
        Condition::Trust { min, .. } => vec![one("trust", json!(min))],
        Condition::Op(names) => {
            let ops = crate::words::OPS.iter().filter(|op| names.matches(op) && **op != "tool.run");
            ops.take(PER_CONDITION_MAX).map(|op| one("op", json!(op))).collect()
        }
        Condition::Tool(names) => named("tool", names, false),
        Condition::Capability(names) => named("capabilities", names, true),
        Condition::Secret(names) => named("secret", names, false),
        Condition::Path(test) => {
            let access = test.access.as_ref().and_then(|access| access.first());
            let samples = test.globs.iter().flat_map(|globs| globs.samples());
            let mut paths: Vec<Map<String, Value>> =
                samples.take(PER_CONDITION_MAX).map(|path| one("path", json!(path))).collect();
            if paths.is_empty() {
                paths.push(one("path", json!("some/file")));
            }
            if let Some(access) = access {
                paths
                    .iter_mut()
                    .for_each(|path| drop(path.insert("access".to_owned(), json!(access.as_str()))));
            }
            paths
        }
        Condition::Endpoint(test) => endpoints(test),
        Condition::Argv(patterns) => patterns.iter().take(PER_CONDITION_MAX).map(argv).collect(),
        Condition::Arg { path, tests } => {
            let wanted = tests.iter().find_map(Test::wanted).and_then(<[Value]>::first);
            let named = path.plain_name().zip(wanted);
            named.map(|(name, value)| one("args", json!({ name: value }))).into_iter().collect()
        }
        Condition::Tier(tiers) => {
            tiers.first().map(|tier| one("tier", json!(tier.as_str()))).into_iter().collect()
        }
        Condition::Label { .. }
        | Condition::Time(_)
        | Condition::Budget { .. }
        | Condition::Session { .. }
        | Condition::History(_)
        | Condition::Body(_)
        | Condition::Expression(_)
        | Condition::Any(_)
        | Condition::All(_) => Vec::new(),
    }
}

fn endpoints(test: &EndpointTest) -> Vec<Map<String, Value>> {
    let hosts: Vec<String> = match &test.hosts {
        None => vec!["example.com".to_owned()],
        Some(hosts) => hosts.iter().take(PER_CONDITION_MAX).map(host).collect(),
    };
    let scheme = test.schemes.as_ref().and_then(|all| all.first()).map_or("https", |scheme| scheme);
    let method = test.methods.as_ref().and_then(|all| all.first()).map_or("GET", |method| method);
    let url = |host: &String| {
        let mut call = one("url", json!(format!("{scheme}://{host}/")));
        call.insert("method".to_owned(), json!(method));
        call
    };
    hosts.iter().map(url).collect()
}

fn argv(pattern: &ArgvPattern) -> Map<String, Value> {
    let part = |part: &ArgvPart| match part {
        ArgvPart::One(globs) => globs.first().map(NameGlob::sample),
        ArgvPart::Gap => None,
    };
    let program = pattern.programs.first().map(NameGlob::sample);
    let words: Vec<String> = program.into_iter().chain(pattern.rest.iter().filter_map(part)).collect();
    one("argv", json!(words))
}

fn host(pattern: &HostPattern) -> String {
    match pattern {
        HostPattern::Exact(host) => host.to_string(),
        HostPattern::Below(domain) => format!("any.{domain}"),
        HostPattern::Any => "any.example".to_owned(),
    }
}
