//! Cedar: each statement becomes one rule, evaluated alone. Its scope gives the index the calls that it applies to.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::LazyLock;

use cedar_policy::{
    ActionConstraint, Authorizer, Context, Decision, Effect as CedarEffect, Entities, EntityId,
    EntityTypeName, EntityUid, Policy as CedarPolicy, PolicySet, PrincipalConstraint, Request,
};
use serde_json::Value;

use super::{BodyError, input};
use crate::condition::Quantifier;
use crate::facts::{Facts, Resource};

/// One statement as a policy set that permits where the statement is satisfied.
#[derive(Debug)]
pub(crate) struct Statement {
    set: PolicySet,
    /// Whether it is a `forbid`, which is satisfied where the set doesn't permit.
    is_forbid: bool,
    /// The context fields that it uses.
    looked_at: Vec<&'static str>,
}

/// A statement's scope, for the index.
#[derive(Debug, Default)]
pub(crate) struct ScopeOf {
    pub agent: Option<String>,
    /// Tools or operations.
    pub actions: Option<Vec<String>>,
}

impl Statement {
    /// A body: one statement, or several of which a permit and no forbid must be satisfied.
    pub(crate) fn new(text: &str) -> Result<Self, BodyError> {
        let set = parsed(text)?;
        let looked_at = looked_at(set.policies());
        Ok(Self { set, is_forbid: false, looked_at })
    }

    /// Every statement of a file: id, whether it forbids, scope, and statement.
    pub(crate) fn each(text: &str) -> Result<Vec<(String, bool, ScopeOf, Self)>, BodyError> {
        let whole = parsed(text)?;
        let mut all: Vec<&CedarPolicy> = whole.policies().collect();
        // Ids count from zero in text order.
        all.sort_by_key(|policy| {
            let id = policy.id().to_string();
            (id.trim_start_matches("policy").parse::<usize>().unwrap_or(usize::MAX), id)
        });
        all.into_iter().map(Self::one).collect()
    }

    fn one(policy: &CedarPolicy) -> Result<(String, bool, ScopeOf, Self), BodyError> {
        let named = policy.annotation("id").map_or_else(|| policy.id().to_string(), str::to_owned);
        let is_forbid = policy.effect() == CedarEffect::Forbid;
        let mut set = PolicySet::new();
        set.add(policy.clone()).map_err(|error| invalid(&error))?;
        if is_forbid {
            // With a permit for everything, the result is deny exactly where the forbid is satisfied.
            let id = cedar_policy::PolicyId::new("regent-everything");
            let all = CedarPolicy::parse(Some(id), "permit(principal, action, resource);");
            set.add(all.map_err(|error| invalid(&error))?).map_err(|error| invalid(&error))?;
        }
        let looked_at = looked_at(std::iter::once(policy));
        Ok((named, is_forbid, scope(policy), Self { set, is_forbid, looked_at }))
    }

    /// Whether it is satisfied, for all resources of the call or for any; `None` on an evaluation error.
    pub(crate) fn says(&self, facts: &Facts<'_>, quantifier: Quantifier) -> Option<bool> {
        let context = Value::Object(input::only(facts, self.looked_at.iter().copied()));
        let context = Context::from_json_value(plain(context)?, None).ok()?;
        let (authorizer, entities) = (Authorizer::new(), Entities::empty());
        let mut things: Vec<Option<EntityUid>> = facts.resources.iter().map(thing).collect();
        if things.is_empty() {
            things.push(uid("Tool", facts.tool.unwrap_or(facts.op)));
        }
        let mut said = quantifier == Quantifier::Every;
        for thing in things {
            let (principal, action) = (uid("Agent", facts.caller.agent)?, facts.tool.unwrap_or(facts.op));
            let request =
                Request::new(principal, uid("Action", action)?, thing?, context.clone(), None).ok()?;
            let response = authorizer.is_authorized(&request, &self.set, &entities);
            if response.diagnostics().errors().next().is_some() {
                return None;
            }
            let is_satisfied = (response.decision() == Decision::Allow) != self.is_forbid;
            said = match quantifier {
                Quantifier::Every => said && is_satisfied,
                Quantifier::Any => said || is_satisfied,
            };
        }
        Some(said)
    }
}

fn invalid(error: &dyn std::fmt::Display) -> BodyError {
    BodyError::Invalid(format!("invalid Cedar: {error}"))
}

fn parsed(text: &str) -> Result<PolicySet, BodyError> {
    let set = PolicySet::from_str(text).map_err(|error| invalid(&error))?;
    if set.templates().next().is_some() {
        return Err(invalid(&"templates are not supported"));
    }
    if set.policies().next().is_none() {
        return Err(invalid(&"it has no statement"));
    }
    Ok(set)
}

fn scope(policy: &CedarPolicy) -> ScopeOf {
    let text = |uid: &EntityUid| uid.id().unescaped().to_owned();
    let of_type = |uid: &EntityUid, name: &str| uid.type_name().to_string() == name;
    let agent = match policy.principal_constraint() {
        PrincipalConstraint::Eq(uid) if of_type(&uid, "Agent") => Some(text(&uid)),
        PrincipalConstraint::Eq(_)
        | PrincipalConstraint::Any
        | PrincipalConstraint::In(_)
        | PrincipalConstraint::Is(_)
        | PrincipalConstraint::IsIn(..) => None,
    };
    let actions = match policy.action_constraint() {
        ActionConstraint::Eq(uid) => Some(vec![text(&uid)]),
        ActionConstraint::In(uids) => Some(uids.iter().map(text).collect()),
        ActionConstraint::Any => None,
    };
    ScopeOf { agent, actions }
}

/// The context fields that statements use; all fields if they use the context other than by field access.
fn looked_at<'p>(policies: impl Iterator<Item = &'p CedarPolicy>) -> Vec<&'static str> {
    let texts: Option<Vec<String>> =
        policies.map(|policy| Some(policy.to_json().ok()?.to_string())).collect();
    let fields_only = |text: &String| {
        let uses = |what: &str| text.matches(what).count();
        uses("{\"Var\":\"context\"}") == uses("\"left\":{\"Var\":\"context\"}")
    };
    match texts {
        Some(texts) if texts.iter().all(fields_only) => {
            let named = |name: &&'static str| texts.iter().any(|text| text.contains(&format!("\"{name}\"")));
            input::names().filter(named).collect()
        }
        Some(_) | None => input::names().collect(),
    }
}

/// The entity types, parsed once, because parsing a name is slow.
static KINDS: LazyLock<BTreeMap<&'static str, EntityTypeName>> = LazyLock::new(|| {
    let names = ["Agent", "Action", "File", "Host", "Program", "Secret", "Tool"];
    names.into_iter().filter_map(|name| Some((name, EntityTypeName::from_str(name).ok()?))).collect()
});

fn uid(kind: &str, id: &str) -> Option<EntityUid> {
    Some(EntityUid::from_type_name_and_id(KINDS.get(kind)?.clone(), EntityId::new(id)))
}

/// `principal` is the agent, `action` the tool (or the operation), `resource` a touched resource; `context` contains everything.
fn thing(resource: &Resource<'_>) -> Option<EntityUid> {
    match resource {
        Resource::Path { path, .. } => uid("File", path),
        Resource::Endpoint { host, .. } => uid("Host", host),
        Resource::Argv(argv) => uid("Program", argv.first().map_or("", String::as_str)),
        Resource::Secret(name) => uid("Secret", name),
    }
}

/// Cedar has no null and no fractions: null values are dropped, and fractions become text. A call's arguments must not contain Cedar's
/// escapes for entities and extension calls: with them, the result is an error.
fn plain(value: Value) -> Option<Value> {
    Some(match value {
        Value::Object(fields) => {
            let mut out = serde_json::Map::new();
            for (name, field) in fields {
                if name.starts_with("__") {
                    return None;
                }
                if !field.is_null() {
                    out.insert(name, plain(field)?);
                }
            }
            Value::Object(out)
        }
        Value::Array(items) => {
            items.into_iter().filter(|item| !item.is_null()).map(plain).collect::<Option<Vec<_>>>()?.into()
        }
        Value::Number(number) if number.as_i64().is_none() => Value::String(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    })
}
