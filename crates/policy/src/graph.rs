//! The constraint graph: who may reach what. In a file with a graph, only its edges lead to resources.
//!
//! Every path, endpoint, program and secret of a call needs an edge from the caller. Of the matching edges, the one with the highest
//! priority decides; in a tie, a deny. Edges may pass through named places: `ada → vault → secret aws`. An edge allows nothing by itself: a
//! rule must still allow the call.

use std::collections::BTreeMap;

use crate::facts::{Facts, Resource};
use crate::index::Index;
use crate::rule::{Effect, Rule};
use crate::verdict::{Reason, RuleRef, codes};

/// Maximum total edges over all paths.
pub(crate) const WAYS_MAX: usize = 20_000;
/// Maximum places on one path.
const PLACES_MAX: usize = 16;

/// One edge as written.
#[derive(Debug)]
pub(crate) struct Edge {
    /// Its start: callers, or a named place.
    pub from: EdgeStart,
    /// Its end: resources, or a named place.
    pub to: EdgeEnd,
    /// Whether it allows or denies, its further conditions, its priority and its source line.
    pub rule: Rule,
}

#[derive(Debug)]
pub(crate) enum EdgeStart {
    /// The rule's conditions select the callers.
    Callers,
    Place(Box<str>),
}

#[derive(Debug)]
pub(crate) enum EdgeEnd {
    /// The rule's conditions select the resources.
    Things,
    Place(Box<str>),
}

/// Why a graph is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GraphError {
    #[error("the edges form a cycle at `{0}`")]
    Circle(Box<str>),
    #[error("the edges form more than {WAYS_MAX} paths")]
    TooMany,
    #[error("a path has more than {PLACES_MAX} places")]
    TooLong,
    #[error("no edge leads to `{0}`")]
    Unreached(Box<str>),
    #[error("no edge leads from `{0}`")]
    DeadEnd(Box<str>),
}

/// The compiled graph: every path from a caller to a resource, as a rule.
#[derive(Debug)]
pub(crate) struct Graph {
    ways: Box<[Rule]>,
    index: Index,
    /// Its position in the file.
    at: RuleRef,
}

impl Graph {
    pub(crate) fn new(edges: Vec<Edge>, at: RuleRef) -> Result<Self, GraphError> {
        let mut onward: BTreeMap<&str, Vec<&Edge>> = BTreeMap::new();
        for edge in &edges {
            if let EdgeStart::Place(place) = &edge.from {
                onward.entry(place).or_default().push(edge);
            }
        }
        let ends =
            |place: &str| edges.iter().any(|edge| matches!(&edge.to, EdgeEnd::Place(to) if **to == *place));
        if let Some(place) = onward.keys().find(|place| !ends(place)) {
            return Err(GraphError::Unreached((*place).into()));
        }
        no_circle(&edges)?;
        let mut ways = Vec::new();
        for edge in edges.iter().filter(|edge| matches!(edge.from, EdgeStart::Callers)) {
            follow(edge, &onward, None, 0, &mut ways)?;
        }
        Ok(Self { index: Index::new(&ways), ways: ways.into(), at })
    }

    /// Why the caller can't reach one of the resources, if so.
    pub(crate) fn refusal(&self, facts: &Facts<'_>) -> Option<Reason> {
        facts.resources.iter().find_map(|resource| {
            let one = Facts { resources: std::slice::from_ref(resource), ..*facts };
            let mut best: Option<&Rule> = None;
            self.index.candidates(&one, &mut |at| {
                let Some(way) = self.ways.get(at as usize).filter(|way| way.matches(&one)) else { return };
                let rank = |way: &Rule| (way.priority, way.effect == Effect::Deny);
                if best.is_none_or(|best| rank(way) > rank(best)) {
                    best = Some(way);
                }
            });
            match best {
                Some(way) if way.effect != Effect::Deny => None,
                Some(way) => Some(self.reason(facts, resource, Some(way))),
                None => Some(self.reason(facts, resource, None)),
            }
        })
    }

    fn reason(&self, facts: &Facts<'_>, resource: &Resource<'_>, way: Option<&Rule>) -> Reason {
        let who = facts.caller.agent.escape_debug();
        let what = render_resource(resource);
        let message = match way {
            Some(way) => match &way.reason {
                Some(reason) => reason.to_string(),
                None => format!("the graph denies `{who}` access to {what}"),
            },
            None => format!("the graph has no edge from `{who}` to {what}"),
        };
        let rule = Some(way.map_or(&self.at, |way| &way.at).clone());
        Reason { code: codes::NO_EDGE.into(), message, rule, help: None }
    }
}

fn render_resource(resource: &Resource<'_>) -> String {
    match resource {
        Resource::Path { path, access } => format!("{access} `{}`", path.escape_debug()),
        Resource::Endpoint { scheme, host, port, .. } => {
            format!("`{scheme}://{}:{port}`", host.escape_debug())
        }
        Resource::Argv(argv) => {
            format!("the program `{}`", argv.first().map_or("", String::as_str).escape_debug())
        }
        Resource::Secret(name) => format!("the secret `{name}`"),
    }
}

/// Repeatedly removes places without incoming edges. Any rest is a cycle.
fn no_circle(edges: &[Edge]) -> Result<(), GraphError> {
    let mut incoming: BTreeMap<&str, usize> = BTreeMap::new();
    let mut onward: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for edge in edges {
        if let (EdgeStart::Place(from), EdgeEnd::Place(to)) = (&edge.from, &edge.to) {
            incoming.entry(from).or_default();
            *incoming.entry(to).or_default() += 1;
            onward.entry(from).or_default().push(to);
        }
    }
    let mut free: Vec<&str> =
        incoming.iter().filter(|(_, count)| **count == 0).map(|(place, _)| *place).collect();
    while let Some(place) = free.pop() {
        incoming.remove(place);
        for next in onward.get(place).into_iter().flatten() {
            if let Some(count) = incoming.get_mut(next) {
                *count -= 1;
                if *count == 0 {
                    free.push(next);
                }
            }
        }
    }
    incoming.into_keys().next().map_or(Ok(()), |place| Err(GraphError::Circle(place.into())))
}

/// Adds every path that begins with this edge. All its edges must hold, and its priority is their minimum.
fn follow(
    edge: &Edge,
    onward: &BTreeMap<&str, Vec<&Edge>>,
    so_far: Option<&Rule>,
    places: usize,
    ways: &mut Vec<Rule>,
) -> Result<(), GraphError> {
    let mut way = edge.rule.clone();
    if let Some(before) = so_far {
        way.when = before.when.iter().chain(&way.when).cloned().collect();
        way.priority = way.priority.min(before.priority);
        if before.effect == Effect::Deny {
            way.effect = Effect::Deny;
        }
    }
    match &edge.to {
        EdgeEnd::Things if ways.len() >= WAYS_MAX => Err(GraphError::TooMany),
        EdgeEnd::Things => {
            ways.push(way);
            Ok(())
        }
        EdgeEnd::Place(_) if places >= PLACES_MAX => Err(GraphError::TooLong),
        EdgeEnd::Place(place) => {
            let next = onward.get(&**place).ok_or_else(|| GraphError::DeadEnd(place.clone()))?;
            next.iter().try_for_each(|edge| follow(edge, onward, Some(&way), places + 1, ways))
        }
    }
}
