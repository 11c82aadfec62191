//! Finds the few rules that could match a call without evaluating all of them.
//!
//! The index is a tree. Each inner node examines one aspect (the tool, the agent, a path, a host, the program, one argument's value …) and
//! leads to the rules filed under the call's key, and to those that don't test the aspect. Each level uses the aspect that best separates
//! the remaining rules, so even a thousand rules on one tool that differ in path, agent or account are separated. Keys are hashes and only
//! a filter: every candidate is still evaluated in full, so a collision costs time and never changes a verdict.

mod keys;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use keys::Aspect;
use regex::{Regex, RegexSet, RegexSetBuilder};
use serde_json::Value;

use crate::facts::Facts;
use crate::json_path::JsonPath;
use crate::rule::Rule;

/// This few rules are evaluated faster than separated.
const LEAF_RULES_MAX: usize = 3;
/// Maximum depth of the tree.
const DEPTH_MAX: u8 = 8;
/// Fewer patterns than this are searched one by one.
const SEARCH_RULES_MIN: usize = 8;
/// Maximum memory of a search automaton.
const SEARCH_BYTES_MAX: usize = 32 << 20;
/// Limits how often rules with several names are filed.
const FILED_PER_RULE_MAX: usize = 8;
const FILED_SLACK: usize = 65_536;

/// The index of a rule set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    nodes: Vec<Node>,
}

#[derive(Debug, Clone)]
enum Node {
    Leaf(Box<[u32]>),
    Split {
        aspect: Aspect,
        keyed: Keyed,
        rest: Option<u32>,
    },
    /// Rules that search the same argument for different patterns: one pass finds those that can match.
    Search {
        path: JsonPath,
        set: RegexSet,
        rules: Box<[u32]>,
        rest: Option<u32>,
    },
}

type Keyed = HashMap<u64, u32, BuildHasherDefault<AsIs>>;

impl Index {
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let mut builder =
            Builder { rules, nodes: Vec::new(), filed_left: rules.len() * FILED_PER_RULE_MAX + FILED_SLACK };
        let all = (0..).take(rules.len()).collect();
        builder.file(all, 0);
        Self { nodes: builder.nodes }
    }

    /// Calls `visit` with every rule that could match, unordered and possibly twice.
    pub(crate) fn candidates(&self, facts: &Facts<'_>, visit: &mut impl FnMut(u32)) {
        self.descend(0, facts, visit);
    }

    fn descend(&self, node: u32, facts: &Facts<'_>, visit: &mut impl FnMut(u32)) {
        match self.nodes.get(node as usize) {
            None => {}
            Some(Node::Leaf(rules)) => rules.iter().for_each(|rule| visit(*rule)),
            Some(Node::Split { aspect, keyed, rest }) => {
                aspect.keys_of(facts, &mut |key| {
                    if let Some(found) = keyed.get(&key) {
                        self.descend(*found, facts, visit);
                    }
                });
                if let Some(rest) = rest {
                    self.descend(*rest, facts, visit);
                }
            }
            Some(Node::Search { path, set, rules, rest }) => {
                if let Some(text) = path.single(facts.args).and_then(Value::as_str) {
                    set.matches(text).iter().filter_map(|at| rules.get(at)).for_each(|rule| visit(*rule));
                }
                if let Some(rest) = rest {
                    self.descend(*rest, facts, visit);
                }
            }
        }
    }
}

struct Builder<'r> {
    rules: &'r [Rule],
    nodes: Vec<Node>,
    filed_left: usize,
}

/// The partition of rules by one aspect.
struct Parts {
    keyed: HashMap<u64, Vec<u32>>,
    rest: Vec<u32>,
}

impl Parts {
    /// The approximate worst-case number of rules per call.
    fn cost(&self) -> usize {
        self.rest.len() + self.keyed.values().map(Vec::len).max().unwrap_or(0)
    }

    fn filed(&self) -> usize {
        self.keyed.values().map(Vec::len).sum()
    }
}

impl Builder<'_> {
    /// Files rules below a new node and returns it.
    fn file(&mut self, rules: Vec<u32>, depth: u8) -> u32 {
        let here = self.reserve();
        let best =
            if rules.len() <= LEAF_RULES_MAX || depth >= DEPTH_MAX { None } else { self.best_split(&rules) };
        let node = match best {
            None => self.search(rules, depth),
            Some((aspect, parts)) => {
                self.filed_left = self.filed_left.saturating_sub(parts.filed());
                let mut keyed = Keyed::default();
                for (key, part) in parts.keyed {
                    keyed.insert(key, self.file(part, depth + 1));
                }
                let rest = (!parts.rest.is_empty()).then(|| self.file(parts.rest, depth + 1));
                Node::Split { aspect, keyed, rest }
            }
        };
        if let Some(slot) = self.nodes.get_mut(here as usize) {
            *slot = node;
        }
        here
    }

    /// Rules with equal keys may still search for different patterns.
    fn search(&mut self, rules: Vec<u32>, depth: u8) -> Node {
        if rules.len() < SEARCH_RULES_MIN || depth >= DEPTH_MAX {
            return Node::Leaf(rules.into());
        }
        let rule = |at: &u32| self.rules.get(*at as usize);
        let Some(path) = keys::searched(rules.iter().filter_map(rule)) else {
            return Node::Leaf(rules.into());
        };
        let pattern = |at: &u32| rule(at).and_then(|rule| keys::pattern(rule, &path)).map(Regex::as_str);
        let (searching, rest): (Vec<u32>, Vec<u32>) = rules.iter().partition(|at| pattern(at).is_some());
        let set = RegexSetBuilder::new(searching.iter().filter_map(pattern))
            .size_limit(SEARCH_BYTES_MAX)
            .dfa_size_limit(SEARCH_BYTES_MAX)
            .build();
        match set {
            Ok(set) if searching.len() >= SEARCH_RULES_MIN && set.len() == searching.len() => {
                let rest = (!rest.is_empty()).then(|| self.file(rest, depth + 1));
                Node::Search { path, set, rules: searching.into(), rest }
            }
            Ok(_) | Err(_) => Node::Leaf(rules.into()),
        }
    }

    fn reserve(&mut self) -> u32 {
        let here = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(Node::Leaf(Box::default()));
        here
    }

    fn best_split(&self, rules: &[u32]) -> Option<(Aspect, Parts)> {
        let aspects = keys::aspects(rules.iter().filter_map(|rule| self.rules.get(*rule as usize)));
        let best = aspects
            .into_iter()
            .map(|aspect| (self.parts(&aspect, rules), aspect))
            .filter(|(parts, _)| parts.filed() <= self.filed_left)
            .min_by_key(|(parts, _)| (parts.cost(), parts.filed()))?;
        // A split that leaves most rules together isn't worth its lookups.
        (best.0.cost() * 4 <= rules.len() * 3).then_some((best.1, best.0))
    }

    fn parts(&self, aspect: &Aspect, rules: &[u32]) -> Parts {
        let mut parts = Parts { keyed: HashMap::new(), rest: Vec::new() };
        for rule in rules {
            match self.rules.get(*rule as usize).and_then(|rule| aspect.keys_for(rule)) {
                None => parts.rest.push(*rule),
                Some(mut keys) => {
                    keys.sort_unstable();
                    keys.dedup();
                    for key in keys {
                        parts.keyed.entry(key).or_default().push(*rule);
                    }
                }
            }
        }
        parts
    }
}

/// The keys are already hashes.
#[derive(Debug, Clone, Copy, Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
