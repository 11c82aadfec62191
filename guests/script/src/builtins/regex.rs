//! Regular expressions and their string methods.

use std::rc::Rc;

use regex::Captures;

use super::arg;
use crate::interp::{Eval, Interp, STRING_UNITS_MAX};
use crate::native::{Namespace, NativeFn};
use crate::object::{Body, Props};
use crate::regex::{Pattern, Regex};
use crate::text::{Str, str_of};
use crate::value::Value;

pub(crate) static REGEXP: Namespace = Namespace {
    name: "RegExp",
    call: Some(construct),
    construct: Some(construct),
    member: |_| None,
    methods: Some(method),
};

pub(crate) fn method(name: &str) -> Option<NativeFn> {
    Some(match name {
        "test" => |interp, this, args| Ok((!matches!(exec(interp, this, args)?, Value::Null)).into()),
        "exec" => exec,
        "toString" => |interp, this, _| Ok(interp.to_str(this)?.into()),
        _other => return None,
    })
}

pub(crate) fn property(regex: &Regex, name: &str) -> Option<Value> {
    Some(match name {
        "source" => Value::str(&regex.pattern.source),
        "flags" => Value::str(&regex.pattern.flags),
        "lastIndex" => Value::count(regex.last_index),
        "global" => regex.pattern.has('g').into(),
        "ignoreCase" => regex.pattern.has('i').into(),
        "multiline" => regex.pattern.has('m').into(),
        "sticky" => regex.pattern.has('y').into(),
        "unicode" => regex.pattern.has('u').into(),
        "dotAll" => regex.pattern.has('s').into(),
        _other => return None,
    })
}

pub(crate) fn pattern_of(value: &Value) -> Option<Rc<Pattern>> {
    match &*value.as_object()?.body.borrow() {
        Body::Regex(regex) => Some(Rc::clone(&regex.pattern)),
        _other => None,
    }
}

fn construct(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let flags = arg(args, 1);
    let (source, old_flags) = match pattern_of(&arg(args, 0)) {
        Some(pattern) => (str_of(&pattern.source), str_of(&pattern.flags)),
        None if matches!(arg(args, 0), Value::Undefined) => (str_of(""), str_of("")),
        None => (interp.to_str(&arg(args, 0))?, str_of("")),
    };
    let flags = if flags.is_nullish() { old_flags } else { interp.to_str(&flags)? };
    match Pattern::new(source.as_str(), flags.as_str()) {
        Ok(pattern) => Ok(interp.object(Body::Regex(Regex { pattern: Rc::new(pattern), last_index: 0 }))),
        Err(why) => Err(interp.syntax_error(why)),
    }
}

fn exec(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = interp.to_str(&arg(args, 0))?;
    let Some(pattern) = pattern_of(this) else {
        return Err(interp.type_error("this is not a regular expression"));
    };
    let goes_on = pattern.has('g') || pattern.has('y');
    let from = if goes_on { last_index(this) } else { 0 };
    let found = if from > text.units() { None } else { pattern.find(text.as_str(), text.byte_at(from)) };
    if goes_on {
        let next = found.as_ref().and_then(|found| found.get(0)).map_or(0, |whole| text.unit_at(whole.end()));
        set_last_index(this, next);
    }
    match found {
        Some(found) => match_object(interp, &text, &pattern, &found),
        None => Ok(Value::Null),
    }
}

fn last_index(regex: &Value) -> usize {
    regex.as_object().map_or(0, |object| match &*object.body.borrow() {
        Body::Regex(regex) => regex.last_index,
        _other => 0,
    })
}

fn set_last_index(regex: &Value, index: usize) {
    if let Some(object) = regex.as_object()
        && let Body::Regex(regex) = &mut *object.body.borrow_mut()
    {
        regex.last_index = index;
    }
}

fn groups(found: &Captures<'_>) -> Vec<Value> {
    found.iter().map(|part| part.map_or(Value::Undefined, |part| Value::str(part.as_str()))).collect()
}

/// A match: a list of its groups, with `index`, `input` and `groups`.
fn match_object(interp: &mut Interp<'_>, text: &Str, pattern: &Pattern, found: &Captures<'_>) -> Eval {
    let index = found.get(0).map_or(0, |whole| text.unit_at(whole.start()));
    let list = interp.array(groups(found));
    let named = named_groups(interp, pattern, found);
    let mut notes = Props::default();
    notes.set(&str_of("index"), Value::count(index));
    notes.set(&str_of("input"), text.clone().into());
    notes.set(&str_of("groups"), named);
    if let Some(object) = list.as_object() {
        *object.notes.borrow_mut() = Some(Box::new(notes));
    }
    Ok(list)
}

fn named_groups(interp: &mut Interp<'_>, pattern: &Pattern, found: &Captures<'_>) -> Value {
    let mut props = Props::default();
    for name in pattern.matcher.capture_names().flatten() {
        let value = found.name(name).map_or(Value::Undefined, |part| Value::str(part.as_str()));
        props.set(&str_of(name), value);
    }
    if props.len() == 0 { Value::Undefined } else { interp.record(props) }
}

fn pattern_from(interp: &mut Interp<'_>, value: &Value, flags: &str) -> Eval<Rc<Pattern>> {
    if let Some(pattern) = pattern_of(value) {
        return Ok(pattern);
    }
    let source = if matches!(value, Value::Undefined) { str_of("") } else { interp.to_str(value)? };
    match Pattern::new(source.as_str(), flags) {
        Ok(pattern) => Ok(Rc::new(pattern)),
        Err(why) => Err(interp.syntax_error(why)),
    }
}

/// `text.match(regex)`
pub(crate) fn match_text(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = super::string::text(interp, this)?;
    let pattern = pattern_from(interp, &arg(args, 0), "")?;
    if !pattern.has('g') {
        return match pattern.find(text.as_str(), 0) {
            Some(found) => match_object(interp, &text, &pattern, &found),
            None => Ok(Value::Null),
        };
    }
    let all: Vec<Value> =
        pattern.matcher.find_iter(text.as_str()).map(|found| Value::str(found.as_str())).collect();
    Ok(if all.is_empty() { Value::Null } else { interp.array(all) })
}

/// `text.matchAll(regex)`
pub(crate) fn match_all(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = super::string::text(interp, this)?;
    let pattern = pattern_from(interp, &arg(args, 0), "g")?;
    if !pattern.has('g') {
        return Err(interp.type_error("String.prototype.matchAll called with a non-global RegExp"));
    }
    let mut items = Vec::new();
    for found in pattern.matcher.captures_iter(text.as_str()) {
        interp.step()?;
        items.push(match_object(interp, &text, &pattern, &found)?);
    }
    Ok(interp.object(Body::Iterator { items, next: 0 }))
}

/// `text.search(regex)`
pub(crate) fn search(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = super::string::text(interp, this)?;
    let pattern = pattern_from(interp, &arg(args, 0), "")?;
    let found = pattern.find(text.as_str(), 0).and_then(|found| found.get(0).map(|whole| whole.start()));
    Ok(found.map_or(Value::Num(-1.0), |at| Value::count(text.unit_at(at))))
}

/// `text.split(regex)`: includes the groups.
pub(crate) fn split(text: &Str, pattern: &Pattern) -> Vec<Value> {
    let whole = text.as_str();
    if whole.is_empty() {
        return if pattern.matcher.is_match("") { Vec::new() } else { vec![Value::str("")] };
    }
    let (mut out, mut done) = (Vec::new(), 0_usize);
    for found in pattern.matcher.captures_iter(whole) {
        let Some(part) = found.get(0) else { continue };
        // An empty match at the ends splits nothing.
        if part.is_empty() && (part.start() == done || part.start() >= whole.len()) {
            continue;
        }
        out.push(Value::str(whole.get(done..part.start()).unwrap_or("")));
        out.extend(groups(&found).into_iter().skip(1));
        done = part.end();
    }
    out.push(Value::str(whole.get(done..).unwrap_or("")));
    out
}

/// `text.replace(regex, …)`
pub(crate) fn replace(interp: &mut Interp<'_>, text: &Str, pattern: &Pattern, with: &Value) -> Eval {
    let with_text = if with.as_callable().is_some() { None } else { Some(interp.to_str(with)?) };
    let whole = text.as_str();
    let (mut out, mut done) = (String::new(), 0_usize);
    let limit = if pattern.has('g') { usize::MAX } else { 1 };
    for found in pattern.matcher.captures_iter(whole).take(limit) {
        interp.step()?;
        let Some(part) = found.get(0) else { continue };
        out.push_str(whole.get(done..part.start()).unwrap_or(""));
        match &with_text {
            Some(with) => {
                let around = Around {
                    before: whole.get(..part.start()).unwrap_or(""),
                    after: whole.get(part.end()..).unwrap_or(""),
                };
                expand(&mut out, with.as_str(), part.as_str(), &around, Some(&found));
            }
            None => {
                let mut args = groups(&found);
                args.extend([Value::count(text.unit_at(part.start())), text.clone().into()]);
                let named = named_groups(interp, pattern, &found);
                if !matches!(named, Value::Undefined) {
                    args.push(named);
                }
                let given = interp.call(with, &Value::Undefined, &args)?;
                out.push_str(interp.to_str(&given)?.as_str());
            }
        }
        if out.len() > STRING_UNITS_MAX {
            return Err(interp.range_error("Invalid string length"));
        }
        done = part.end();
    }
    out.push_str(whole.get(done..).unwrap_or(""));
    Ok(Value::text(out))
}

/// The text before and after a match.
pub(crate) struct Around<'t> {
    pub(crate) before: &'t str,
    pub(crate) after: &'t str,
}

/// Fills `$1`, `$&`, `$<name>` and the like into a replacement.
pub(crate) fn expand(
    out: &mut String,
    with: &str,
    found: &str,
    around: &Around<'_>,
    groups: Option<&Captures<'_>>,
) {
    let mut rest = with;
    while let Some(at) = rest.find('$') {
        out.push_str(rest.get(..at).unwrap_or(""));
        rest = rest.get(at.saturating_add(1)..).unwrap_or("");
        let count = groups.map_or(0, Captures::len);
        let (text, used): (Option<&str>, usize) = match rest.as_bytes() {
            [b'$', ..] => (Some("$"), 1),
            [b'&', ..] => (Some(found), 1),
            [b'`', ..] => (Some(around.before), 1),
            [b'\'', ..] => (Some(around.after), 1),
            [b'<', ..] if groups.is_some() => match rest.find('>') {
                Some(end) => {
                    let name = rest.get(1..end).unwrap_or("");
                    let part = groups.and_then(|groups| groups.name(name)).map_or("", |part| part.as_str());
                    (Some(part), end.saturating_add(1))
                }
                None => (None, 0),
            },
            [first @ b'0'..=b'9', next @ ..] => {
                let one = usize::from(first.saturating_sub(b'0'));
                let two = match next.first() {
                    Some(digit @ b'0'..=b'9') => {
                        Some(one.saturating_mul(10).saturating_add(usize::from(digit.saturating_sub(b'0'))))
                    }
                    Some(_) | None => None,
                };
                let fits = |number: usize| (1..count).contains(&number);
                let picked = two.filter(|number| fits(*number)).map(|number| (number, 2));
                match picked.or_else(|| fits(one).then_some((one, 1))) {
                    Some((number, used)) => {
                        let part =
                            groups.and_then(|groups| groups.get(number)).map_or("", |part| part.as_str());
                        (Some(part), used)
                    }
                    None => (None, 0),
                }
            }
            _other => (None, 0),
        };
        match text {
            Some(text) => out.push_str(text),
            None => out.push('$'),
        }
        rest = rest.get(used..).unwrap_or("");
    }
    out.push_str(rest);
}
