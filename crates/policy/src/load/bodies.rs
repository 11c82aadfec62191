//! Policy files in another language. Every Cedar statement becomes a rule, filed by its scope; a Rego module becomes one rule for each of
//! `allow`, `ask` and `deny`. The mode is strict: a call that no rule allows is denied. Neither language can grant a secret.

use super::Loaded;
use super::reader::Reader;
use crate::body::BodyError;
use crate::finding::SourceSpan;

fn refused(reader: &mut Reader<'_>, error: &BodyError) -> Option<Loaded> {
    let at = SourceSpan { line: 1, column: 1, ..SourceSpan::default() };
    reader.findings.error(at, error.to_string());
    None
}

#[cfg(not(feature = "cedar"))]
pub(super) fn cedar(reader: &mut Reader<'_>) -> Option<Loaded> {
    refused(reader, &BodyError::LeftOut("Cedar"))
}

#[cfg(not(feature = "rego"))]
pub(super) fn rego(reader: &mut Reader<'_>) -> Option<Loaded> {
    refused(reader, &BodyError::LeftOut("Rego"))
}

#[cfg(feature = "cedar")]
pub(super) fn cedar(reader: &mut Reader<'_>) -> Option<Loaded> {
    use crate::body::cedar::Statement;
    use crate::rule::{Effect, Rule};

    let statements = match Statement::each(reader.text) {
        Ok(statements) => statements,
        Err(error) => return refused(reader, &error),
    };
    if statements.len() > super::native::RULES_MAX {
        return refused(reader, &BodyError::Invalid("there are too many statements".to_owned()));
    }
    let begins = |line: &str| {
        let line = line.trim_start();
        ["permit", "forbid"].iter().any(|word| line.starts_with(word))
    };
    let lines = (1..).zip(reader.text.lines()).filter(|(_, line)| begins(line)).map(|(number, _)| number);
    let mut lines = lines.collect::<Vec<u32>>().into_iter();
    let mut rules = Vec::new();
    for (id, is_forbid, scope, statement) in statements {
        let effect = if is_forbid { Effect::Deny } else { Effect::Allow };
        let line = lines.next().unwrap_or(1);
        let mut rule = Rule::new(&id, reader.layer, line, effect);
        rule.when = in_scope(scope, statement, line);
        rules.push(rule);
    }
    Some(Loaded { rules, ..Loaded::default() })
}

/// Repeats the statement's scope as conditions, so that the index can file it, and adds the statement itself.
#[cfg(feature = "cedar")]
fn in_scope(
    scope: crate::body::cedar::ScopeOf,
    statement: crate::body::cedar::Statement,
    line: u32,
) -> Box<[crate::condition::Clause]> {
    use crate::body::Body;
    use crate::condition::{Clause, Condition, Names};
    use crate::glob::NameGlob;

    let plain = |name: &str| !name.is_empty() && !name.contains(['*', '?', '[', '{', '\\']);
    let named =
        |names: &[String]| Names::new(names.iter().filter_map(|name| NameGlob::new(name).ok()).collect());
    let clause = |condition, text: String| Clause { condition, text: text.into(), line };
    let mut when = Vec::new();
    if let Some(agent) = scope.agent.filter(|agent| plain(agent)) {
        when.push(clause(
            Condition::Agent(named(std::slice::from_ref(&agent))),
            format!("principal: {agent}"),
        ));
    }
    if let Some(actions) = scope.actions.filter(|actions| actions.iter().all(|action| plain(action))) {
        let text = format!("action: {}", actions.join(", "));
        let is_op = |action: &String| crate::words::OPS.contains(&action.as_str());
        if actions.iter().all(is_op) {
            when.push(clause(Condition::Op(named(&actions)), text));
        } else if !actions.iter().any(is_op) {
            when.push(clause(Condition::Tool(named(&actions)), text));
        }
    }
    when.push(clause(
        Condition::Body(std::sync::Arc::new(Body::Cedar(Box::new(statement)))),
        "cedar: …".to_owned(),
    ));
    when.into()
}

#[cfg(feature = "rego")]
pub(super) fn rego(reader: &mut Reader<'_>) -> Option<Loaded> {
    use crate::body::{BODY_BYTES_MAX, Body, rego::Module};
    use crate::condition::{Clause, Condition};
    use crate::rule::{Effect, Rule};

    if reader.text.len() > BODY_BYTES_MAX {
        return refused(reader, &BodyError::TooLong);
    }
    let (mut rules, mut last) = (Vec::new(), None);
    for (name, effect) in [("deny", Effect::Deny), ("ask", Effect::Ask), ("allow", Effect::Allow)] {
        match Module::asking(reader.text, name) {
            Ok(module) => {
                let declared = (1..).zip(reader.text.lines()).find(|(_, line)| line.starts_with(name));
                let line = declared.map_or(1, |(number, _)| number);
                let mut rule = Rule::new(&format!("rego.{name}"), reader.layer, line, effect);
                let condition = Condition::Body(std::sync::Arc::new(Body::Rego(Box::new(module))));
                rule.when = Box::new([Clause { condition, text: format!("rego: {name}").into(), line }]);
                rules.push(rule);
            }
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) if rules.is_empty() => refused(reader, &error),
        Some(_) | None => Some(Loaded { rules, ..Loaded::default() }),
    }
}
