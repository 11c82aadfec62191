//! Bounds the chat templates that come with weights, which are untrusted.
//!
//! The template engine counts instructions, not bytes, and sixty doublings of a value exhaust memory. Every expression that builds a larger
//! value is therefore found in the syntax tree and measured at run time. Filters that multiply text are removed or bounded, and so is the
//! output.

use std::collections::BTreeSet;
use std::io;

use minijinja::machinery::{WhitespaceConfig, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value as Jinja, escape_formatter};
use serde_json::Value;

/// Maximum size of a template.
const TEMPLATE_BYTES_MAX: usize = 256 << 10;
/// Instruction budget of one rendering.
const FUEL: u64 = 2_000_000;
/// Maximum size of one value: bytes of text, and items.
const VALUE_MAX: usize = 256 << 10;
/// Maximum nesting of values.
const DEPTH_MAX: usize = 32;
/// Maximum output. It contains marks instead of message text.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// Filters that can multiply the size of their input.
const LEFT_OUT: [&str; 11] =
    ["batch", "chain", "escape", "e", "format", "groupby", "indent", "pprint", "slice", "urlencode", "zip"];
/// The name of the measuring filter.
const BOUNDED: &str = "bounded_by_regent";

/// An environment with this template under the name `chat`.
pub(super) fn environment(template: &str) -> Result<Environment<'static>, String> {
    if template.len() > TEMPLATE_BYTES_MAX {
        return Err(format!("the chat template has more than {TEMPLATE_BYTES_MAX} bytes"));
    }
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(FUEL));
    LEFT_OUT.iter().for_each(|filter| environment.remove_filter(filter));
    environment.add_filter(BOUNDED, bounded);
    environment.add_filter("replace", replace);
    environment.add_filter("join", join);
    environment.add_filter("string", |value: Jinja| bounded(value).map(|value| value.to_string()));
    environment.set_formatter(|out, state, value| {
        bounded(value.clone())?;
        escape_formatter(out, state, value)
    });
    let source = guarded(template)?;
    environment.add_template_owned("chat", source).map_err(|error| error.to_string())?;
    Ok(environment)
}

/// Renders the template.
pub(super) fn render(environment: &Environment<'_>, context: Jinja) -> Result<String, String> {
    let template = environment.get_template("chat").map_err(|error| error.to_string())?;
    let mut written = TemplateOutput(Vec::new());
    template
        .render_captured_to(context, &mut written)
        .map_err(|error| format!("the chat template fails: {error}"))?;
    String::from_utf8(written.0).map_err(|error| format!("the chat template fails: {error}"))
}

/// Returns a value unless it is too large.
pub(super) fn bounded(value: Jinja) -> Result<Jinja, Error> {
    let mut left = VALUE_MAX;
    measure(&value, 0, &mut left)?;
    Ok(value)
}

fn measure(value: &Jinja, depth: usize, left: &mut usize) -> Result<(), Error> {
    let bytes = value.as_str().map_or(0, str::len);
    *left = left.checked_sub(bytes.saturating_add(1)).ok_or_else(too_large)?;
    if depth > DEPTH_MAX {
        return Err(too_large());
    }
    if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        let is_map = value.kind() == ValueKind::Map;
        for item in value.try_iter()? {
            if is_map {
                measure(&value.get_item(&item)?, depth + 1, left)?;
            }
            measure(&item, depth + 1, left)?;
        }
    }
    Ok(())
}

fn too_large() -> Error {
    Error::new(ErrorKind::InvalidOperation, "a value of the template is too large")
}

fn replace(text: String, from: String, to: String) -> Result<Jinja, Error> {
    let added = text.matches(from.as_str()).count().saturating_mul(to.len());
    if text.len().saturating_add(added) > VALUE_MAX {
        return Err(too_large());
    }
    Ok(Jinja::from(text.replace(from.as_str(), &to)))
}

fn join(items: Jinja, between: Option<String>, _others: Rest<Jinja>, _named: Kwargs) -> Result<Jinja, Error> {
    let (items, between) = (bounded(items)?, between.unwrap_or_default());
    let mut text = String::new();
    for (at, item) in items.try_iter()?.enumerate() {
        if at > 0 {
            text.push_str(&between);
        }
        text.push_str(&item.to_string());
        if text.len() > VALUE_MAX {
            return Err(too_large());
        }
    }
    Ok(Jinja::from(text))
}

/// Wraps each expression that builds a value in the measuring filter.
fn guarded(template: &str) -> Result<String, String> {
    let spaces = WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };
    let tree = parse(template, "chat", SyntaxConfig, spaces).map_err(|error| error.to_string())?;
    let tree = serde_json::to_value(&tree).map_err(|error| error.to_string())?;
    refuse_circles(&tree)?;
    let mut places = Vec::new();
    places_in(&tree, &mut places)?;
    let mut marks: Vec<(usize, &str)> = Vec::with_capacity(places.len() * 2);
    let end = format!(")|{BOUNDED}");
    for (from, to) in places {
        marks.push((from, "("));
        marks.push((to, &end));
    }
    marks.sort_by_key(|(at, _)| *at);
    let (mut source, mut done) = (String::with_capacity(template.len() * 2), 0);
    for (at, mark) in marks {
        let piece = template.get(done..at).ok_or("the chat template can't be bounded")?;
        source.push_str(piece);
        source.push_str(mark);
        done = at;
    }
    source.push_str(template.get(done..).unwrap_or_default());
    Ok(source)
}

/// Positions of expressions that build a value: additions, concatenations, lists and maps.
fn places_in(node: &Value, places: &mut Vec<(usize, usize)>) -> Result<(), String> {
    match node {
        Value::Array(items) => items.iter().try_for_each(|item| places_in(item, places)),
        Value::Object(fields) => {
            let what = node.pointer("/inner/0");
            match (fields.get("expr").and_then(Value::as_str), what.and_then(|what| what.get("op")?.as_str()))
            {
                (Some("BinOp"), Some("Mul" | "Pow")) => {
                    return Err("the chat template multiplies, which is not supported".to_owned());
                }
                (Some("BinOp"), Some("Add" | "Concat")) | (Some("List" | "Map"), _) => {
                    places.extend(span_of(node));
                }
                _other => {}
            }
            // An assignment's target is not a value.
            fields
                .iter()
                .filter(|(name, _)| *name != "target")
                .try_for_each(|(_, field)| places_in(field, places))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Rejects templates that store a namespace anywhere but in a variable. Namespaces are the only mutable values, so one could be made to
/// contain itself.
fn refuse_circles(tree: &Value) -> Result<(), String> {
    let mut names = BTreeSet::new();
    loop {
        let known = names.len();
        each_node(tree, &mut |node| {
            if let Some((target, value)) = assignment(node)
                && let Some(name) = variable(target)
                && (value.pointer("/inner/0/expr").and_then(variable) == Some("namespace")
                    || holds(value, &names))
            {
                names.insert(name.to_owned());
            }
        });
        if names.len() == known {
            break;
        }
    }
    let mut is_refused = false;
    each_node(tree, &mut |node| {
        let into_attribute = assignment(node).filter(|(target, _)| variable(target).is_none());
        is_refused |= into_attribute.is_some_and(|(_, value)| holds(value, &names));
        let is_collection = matches!(node.get("expr").and_then(Value::as_str), Some("List" | "Map"));
        is_refused |= is_collection && holds(node, &names);
    });
    if is_refused { Err("the chat template puts a namespace into another value".to_owned()) } else { Ok(()) }
}

fn each_node(node: &Value, visit: &mut impl FnMut(&Value)) {
    match node {
        Value::Array(items) => items.iter().for_each(|item| each_node(item, visit)),
        Value::Object(fields) => {
            visit(node);
            fields.values().for_each(|field| each_node(field, visit));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Target and value of an assignment.
fn assignment(node: &Value) -> Option<(&Value, &Value)> {
    let set = node.pointer("/inner/0").filter(|_| node.get("stmt").is_some_and(|stmt| stmt == "Set"))?;
    Some((set.get("target")?, set.get("expr")?))
}

/// The name, if the expression is a plain variable.
fn variable(node: &Value) -> Option<&str> {
    node.get("expr").filter(|expr| *expr == "Var")?;
    node.pointer("/inner/0/id")?.as_str()
}

/// Whether the expression uses one of these names as a value, and not only an attribute of it.
fn holds(node: &Value, names: &BTreeSet<String>) -> bool {
    if variable(node).is_some_and(|name| names.contains(name)) {
        return true;
    }
    match node {
        Value::Array(items) => items.iter().any(|item| holds(item, names)),
        Value::Object(fields) => {
            let is_attribute = fields.get("expr").is_some_and(|expr| expr == "GetAttr");
            !is_attribute && fields.values().any(|field| holds(field, names))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn span_of(node: &Value) -> Option<(usize, usize)> {
    let at = |name: &str| {
        let offset = node.pointer(&format!("/inner/1/{name}"))?.as_u64()?;
        usize::try_from(offset).ok()
    };
    Some((at("start_offset")?, at("end_offset")?))
}

/// A writer with a size limit.
struct TemplateOutput(Vec<u8>);

impl io::Write for TemplateOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len().saturating_add(bytes.len()) > OUTPUT_BYTES_MAX {
            return Err(io::Error::other("the chat template's output exceeds its limit"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(template: &str) -> Result<String, String> {
        let messages = serde_json::json!([{"role": "user", "content": "Hi"}]);
        let context = serde_json::json!({"messages": messages, "tools": null});
        render(&environment(template)?, Jinja::from_serialize(&context))
    }

    #[test]
    fn l7_rejects_templates_that_exhaust_memory() {
        let doubling = |first: &str, step: &str| {
            format!("{{% set ns = namespace(x={first}) %}}{}{{{{ ns.x }}}}", step.repeat(60))
        };
        let looped = |step: &str| {
            format!(
                "{{% set ns = namespace(x='aa', y='b') %}}{{% for i in range(60) %}}{step}{{% endfor %}}{{{{ ns.x }}}}"
            )
        };
        let hostile = [
            doubling("'aa'", "{% set ns.x = ns.x + ns.x %}"),
            doubling("[1]", "{% set ns.x = ns.x + ns.x %}"),
            doubling("'aa'", "{% set ns.x = ns.x ~ ns.x %}"),
            doubling("[1]", "{% set ns.x = [ns.x, ns.x] %}"),
            doubling("{'a': 1}", "{% set ns.x = {'a': ns.x, 'b': ns.x} %}"),
            looped("{% set ns.x = ns.x + ns.x %}"),
            looped("{% set ns.x = ns.x + ns.y %}{% set ns.y = ns.y ~ ns.x %}"),
            looped("{% set ns.x = ns.x|replace('a', ns.x) %}"),
            looped("{% set ns.x = [ns.x, ns.x]|join(ns.x) %}"),
            "{{ 'x' * 100000000 }}".to_owned(),
            "{{ ([0] * 1000000000000)|list|length }}".to_owned(),
            "{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns ~ '' }}".to_owned(),
            "{% set a = namespace(x=1) %}{% set b = a %}{% set c = b %}{% set a.x = [c] %}{{ a == b }}"
                .to_owned(),
            "{% for a in range(100000) %}{{ 'x'|center(100000) }}{% endfor %}".to_owned(),
            format!("{{% for a in range(100000) %}}{}{{% endfor %}}", "x".repeat(1_000)),
            "x".repeat(TEMPLATE_BYTES_MAX + 1),
        ];
        for template in hostile {
            let shown: String = template.chars().take(120).collect();
            assert!(rendered(&template).is_err(), "{shown}");
        }
    }

    #[test]
    fn l7_ordinary_templates_render_unchanged() {
        let cases = [
            ("{{ 'a' + 'b' ~ 1 }}", "ab1"),
            (
                "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + m['role'] + ': ' + m.content %}{% endfor %}{{ ns.t }}",
                "user: Hi",
            ),
            ("{{ (messages[0].role + '!')|upper }}", "USER!"),
            (
                "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = loop.index %}{% endfor %}{{ ns.n }}",
                "1",
            ),
            ("{% for k, v in [['a', 1], ['b', 2]] %}{{ k ~ v }}{% endfor %}", "a1b2"),
            ("{{ [1, 2, 3]|join(', ') }} {{ 'a-b'|replace('-', '+') }}", "1, 2, 3 a+b"),
            (
                "{% if messages[0]['role'] == 'user' and not tools %}{{ '<|x|>' + messages[0]['content']|trim + '\\n' }}{% endif %}",
                "<|x|>Hi\n",
            ),
        ];
        for (template, expected) in cases {
            assert_eq!(rendered(template).as_deref(), Ok(expected), "{template}");
        }
    }
}
