//! The keys under which rules are filed, and those by which a call is looked up. Both halves of each aspect are next to each other, because
//! of their invariant: every call that a rule can match has the rule's key.

use std::collections::HashMap;

use regex::Regex;
use serde_json::Value;

use crate::condition::{Condition, HostPattern, Names, Test, argvs, bare_host, paths, secrets};
use crate::facts::{Facts, Resource};
use crate::glob::{NameGlob, PathGlob, Root, rooted};
use crate::json_path::JsonPath;
use crate::number;
use crate::rule::Rule;

/// Separators within names: `fs.read`, `research-7`, `did:key:…`.
const JOINTS: [u8; 5] = [b'.', b'-', b'_', b':', b'/'];
/// Maximum prefixes of a name or path that make keys.
const JOINTS_MAX: usize = 4;
const COMPONENTS_MAX: usize = 8;
/// Maximum arguments to consider at one node.
const ARGS_MAX: usize = 4;
const SEARCHED_MAX: usize = 64;

/// An aspect that separates rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Aspect {
    Op,
    Tool,
    Agent,
    Role,
    Capability,
    Path,
    Host,
    Program,
    Secret,
    /// The value of one argument.
    Arg(JsonPath),
}

/// The aspects to try on these rules.
pub(super) fn aspects<'r>(rules: impl Iterator<Item = &'r Rule>) -> Vec<Aspect> {
    let mut arguments: HashMap<String, (usize, &JsonPath)> = HashMap::new();
    for clause in rules.flat_map(|rule| &rule.when) {
        if let Condition::Arg { path, tests } = &clause.condition
            && path.is_single()
            && value_keys(tests).is_some()
        {
            arguments.entry(format!("{path:?}")).or_insert((0, path)).0 += 1;
        }
    }
    let mut arguments: Vec<_> = arguments.into_iter().collect();
    arguments.sort_by(|(a, (uses_a, _)), (b, (uses_b, _))| uses_b.cmp(uses_a).then_with(|| a.cmp(b)));
    let mut aspects = vec![
        Aspect::Tool,
        Aspect::Path,
        Aspect::Host,
        Aspect::Program,
        Aspect::Agent,
        Aspect::Op,
        Aspect::Role,
        Aspect::Capability,
        Aspect::Secret,
    ];
    aspects.extend(arguments.into_iter().take(ARGS_MAX).map(|(_, (_, path))| Aspect::Arg(path.clone())));
    aspects
}

/// The argument that most of these rules search, if several do.
pub(super) fn searched<'r>(rules: impl Iterator<Item = &'r Rule>) -> Option<JsonPath> {
    let mut uses: Vec<(&JsonPath, usize)> = Vec::new();
    for path in rules.flat_map(|rule| &rule.when).filter_map(|clause| Some(search(&clause.condition)?.0)) {
        let is_full = uses.len() >= SEARCHED_MAX;
        match uses.iter_mut().find(|(other, _)| *other == path) {
            Some((_, count)) => *count += 1,
            None if is_full => {}
            None => uses.push((path, 1)),
        }
    }
    uses.into_iter().max_by_key(|(_, count)| *count).map(|(path, _)| path.clone())
}

/// The pattern that a rule searches in that argument.
pub(super) fn pattern<'r>(rule: &'r Rule, path: &JsonPath) -> Option<&'r Regex> {
    rule.when
        .iter()
        .filter_map(|clause| search(&clause.condition))
        .find(|(other, _)| *other == path)
        .map(|(_, regex)| regex)
}

/// A search in one argument: without a matching text there, the condition can't hold.
fn search(condition: &Condition) -> Option<(&JsonPath, &Regex)> {
    let Condition::Arg { path, tests } = condition else { return None };
    let regex =
        tests.iter().find_map(|test| if let Test::Matches(regex) = test { Some(regex) } else { None })?;
    path.is_single().then_some((path, regex))
}

impl Aspect {
    /// A rule's keys; `None` if it doesn't test the aspect or has no fixed keys.
    pub(super) fn keys_for(&self, rule: &Rule) -> Option<Vec<u64>> {
        rule.when.iter().find_map(|clause| match (self, &clause.condition) {
            (Self::Op, Condition::Op(names))
            | (Self::Tool, Condition::Tool(names))
            | (Self::Agent, Condition::Agent(names))
            | (Self::Role, Condition::Role(names))
            | (Self::Capability, Condition::Capability(names))
            | (Self::Secret, Condition::Secret(names)) => name_keys(names),
            (Self::Path, Condition::Path(test)) => {
                let globs = test.globs.as_ref()?;
                // Sets match folded names, which aren't keys, so such a rule is a candidate for every path of its tree.
                let guards = globs
                    .guards()
                    .iter()
                    .map(|guard| Some(KeyHash::start(KeyKind::Below(guard.root())).done()));
                globs.globs().iter().map(path_key).chain(guards).collect()
            }
            (Self::Host, Condition::Endpoint(test)) => test.hosts.as_ref()?.iter().map(host_key).collect(),
            (Self::Program, Condition::Argv(patterns)) => patterns
                .iter()
                .flat_map(|pattern| &pattern.programs)
                .map(|program| Some(KeyHash::start(KeyKind::Exact).text(base_name(program.exact()?)).done()))
                .collect(),
            (Self::Arg(wanted), Condition::Arg { path, tests }) if wanted == path => value_keys(tests),
            _ => None,
        })
    }

    /// A call's keys.
    pub(super) fn keys_of(&self, facts: &Facts<'_>, visit: &mut impl FnMut(u64)) {
        match self {
            Self::Op => each_name_key(facts.op, visit),
            Self::Tool => {
                if let Some(tool) = facts.tool {
                    each_name_key(tool, visit);
                }
            }
            Self::Agent => each_name_key(facts.caller.agent, visit),
            Self::Role => facts.caller.roles.iter().for_each(|role| each_name_key(role, visit)),
            Self::Capability => {
                facts.capabilities.iter().for_each(|capability| each_name_key(capability, visit))
            }
            Self::Path => paths(facts).for_each(|(path, _)| each_path_key(path, visit)),
            Self::Host => {
                for resource in facts.resources {
                    if let Resource::Endpoint { host, .. } = resource {
                        each_host_key(host, visit);
                    }
                }
            }
            Self::Program => argvs(facts).filter_map(<[String]>::first).for_each(|program| {
                visit(KeyHash::start(KeyKind::Exact).text(base_name(program)).done());
            }),
            Self::Secret => secrets(facts).for_each(|name| each_name_key(name, visit)),
            Self::Arg(path) => {
                if let Some(value) = path.single(facts.args)
                    && let Some(key) = value_key(value)
                {
                    visit(key);
                }
            }
        }
    }
}

fn base_name(program: &str) -> &str {
    program.rsplit_once('/').map_or(program, |(_, name)| name)
}

/// The keys of all names, unless one has no key.
fn name_keys(names: &Names) -> Option<Vec<u64>> {
    let exact = names.exact().map(|name| Some(KeyHash::start(KeyKind::Exact).text(name).done()));
    exact.chain(names.globs().iter().map(glob_key)).collect()
}

/// The pattern's literal prefix up to its last separator.
fn glob_key(glob: &NameGlob) -> Option<u64> {
    let prefix = glob.prefix().as_bytes();
    let joints = prefix.iter().enumerate().filter(|(_, byte)| JOINTS.contains(byte)).take(JOINTS_MAX);
    let (end, _) = joints.last()?;
    Some(KeyHash::start(KeyKind::Prefix).bytes(prefix.get(..=end)?).done())
}

fn each_name_key(name: &str, visit: &mut impl FnMut(u64)) {
    visit(KeyHash::start(KeyKind::Exact).text(name).done());
    let mut hash = KeyHash::start(KeyKind::Prefix);
    let mut joints = 0;
    for byte in name.bytes() {
        hash = hash.byte(byte);
        if JOINTS.contains(&byte) {
            visit(hash.done());
            joints += 1;
            if joints == JOINTS_MAX {
                return;
            }
        }
    }
}

/// The pattern's literal leading components; without any, its final name or extension.
fn path_key(glob: &PathGlob) -> Option<u64> {
    let below = KeyHash::start(KeyKind::Below(glob.root()));
    if glob.literal_parts().next().is_some() {
        return Some(glob.literal_parts().take(COMPONENTS_MAX).fold(below, KeyHash::component).done());
    }
    let Some(last) = glob.last_part() else { return Some(below.done()) };
    if let Some(name) = last.exact() {
        return Some(KeyHash::start(KeyKind::Name(glob.root())).text(name).done());
    }
    match last.suffix().and_then(|suffix| suffix.rsplit_once('.')) {
        Some((_, extension)) => Some(KeyHash::start(KeyKind::Extension(glob.root())).text(extension).done()),
        None => Some(below.done()),
    }
}

fn each_path_key(path: &str, visit: &mut impl FnMut(u64)) {
    let (root, below) = rooted(path);
    let mut hash = KeyHash::start(KeyKind::Below(root));
    visit(hash.done());
    let mut last = None;
    for (depth, component) in below.split('/').filter(|part| !part.is_empty()).enumerate() {
        if depth < COMPONENTS_MAX {
            hash = hash.component(component);
            visit(hash.done());
        }
        last = Some(component);
    }
    let Some(name) = last else { return };
    visit(KeyHash::start(KeyKind::Name(root)).text(name).done());
    if let Some((_, extension)) = name.rsplit_once('.') {
        visit(KeyHash::start(KeyKind::Extension(root)).text(extension).done());
    }
}

fn host_key(pattern: &HostPattern) -> Option<u64> {
    match pattern {
        HostPattern::Exact(host) => Some(KeyHash::start(KeyKind::Exact).lower(host).done()),
        HostPattern::Below(domain) => Some(KeyHash::start(KeyKind::Suffix).lower_reversed(domain).done()),
        HostPattern::Any => None,
    }
}

/// From the end, so that the key of every parent domain is visited.
fn each_host_key(host: &str, visit: &mut impl FnMut(u64)) {
    let host = bare_host(host);
    visit(KeyHash::start(KeyKind::Exact).lower(host).done());
    let mut hash = KeyHash::start(KeyKind::Suffix);
    for byte in host.bytes().rev() {
        if byte == b'.' {
            visit(hash.done());
        }
        hash = hash.byte(byte.to_ascii_lowercase());
    }
}

/// The keys of the values that a test can accept.
fn value_keys(tests: &[Test]) -> Option<Vec<u64>> {
    tests.iter().find_map(|test| match test {
        Test::Eq(value) => Some(vec![value_key(value)?]),
        Test::In(values) => values.iter().map(value_key).collect(),
        Test::Ne(_)
        | Test::Gt(_)
        | Test::Lt(_)
        | Test::Gte(_)
        | Test::Lte(_)
        | Test::NotIn(_)
        | Test::Contains(_)
        | Test::NotContains(_)
        | Test::StartsWith(_)
        | Test::EndsWith(_)
        | Test::Matches(_)
        | Test::Exists(_)
        | Test::Any(_)
        | Test::All(_) => None,
    })
}

/// Equal values have equal keys.
fn value_key(value: &Value) -> Option<u64> {
    match value {
        Value::Null => Some(KeyHash::start(KeyKind::Null).done()),
        Value::Bool(value) => Some(KeyHash::start(KeyKind::Bool).byte(u8::from(*value)).done()),
        Value::Number(value) => {
            Some(KeyHash::start(KeyKind::Number).bytes(&number::key(value).to_le_bytes()).done())
        }
        Value::String(value) => Some(KeyHash::start(KeyKind::Exact).text(value).done()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// The kind of a key, so that different kinds don't collide.
#[derive(Debug, Clone, Copy)]
enum KeyKind {
    Exact,
    Prefix,
    Suffix,
    Below(Root),
    Name(Root),
    Extension(Root),
    Null,
    Bool,
    Number,
}

/// FNV-1a, which yields a hash at every separator in passing. Mixed at the end, because the table uses it unchanged.
#[derive(Debug, Clone, Copy)]
struct KeyHash(u64);

impl KeyHash {
    fn start(kind: KeyKind) -> Self {
        let root = |root: Root| match root {
            Root::Relative => 0,
            Root::Absolute => 1,
            Root::Vfs => 2,
        };
        let tag = match kind {
            KeyKind::Exact => 1,
            KeyKind::Prefix => 2,
            KeyKind::Suffix => 3,
            KeyKind::Null => 4,
            KeyKind::Bool => 5,
            KeyKind::Number => 6,
            KeyKind::Below(tree) => 10 + root(tree),
            KeyKind::Name(tree) => 20 + root(tree),
            KeyKind::Extension(tree) => 30 + root(tree),
        };
        Self(0xcbf2_9ce4_8422_2325).byte(tag)
    }

    fn byte(self, byte: u8) -> Self {
        Self((self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        bytes.iter().fold(self, |hash, byte| hash.byte(*byte))
    }

    fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    fn component(self, name: &str) -> Self {
        self.byte(b'/').text(name)
    }

    fn lower(self, text: &str) -> Self {
        text.bytes().fold(self, |hash, byte| hash.byte(byte.to_ascii_lowercase()))
    }

    fn lower_reversed(self, text: &str) -> Self {
        text.bytes().rev().fold(self, |hash, byte| hash.byte(byte.to_ascii_lowercase()))
    }

    fn done(self) -> u64 {
        let stirred = (self.0 ^ (self.0 >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        stirred ^ (stirred >> 29)
    }
}
