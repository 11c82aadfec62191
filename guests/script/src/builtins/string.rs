//! Texts.

use std::rc::Rc;

use super::{arg, position};
use crate::builtins::regex as by_regex;
use crate::interp::{Eval, Interp, STRING_UNITS_MAX};
use crate::native::{Member, Namespace, NativeFn};
use crate::text::{Str, Text, is_space, str_of};
use crate::value::Value;

pub(crate) static STRING: Namespace =
    Namespace { name: "String", call: Some(convert), construct: None, member, methods: Some(method) };

fn member(name: &str) -> Option<Member> {
    Some(Member::Fn(match name {
        "fromCharCode" => from_char_code,
        "fromCodePoint" => from_code_point,
        "raw" => |interp, _, _| Err(interp.type_error("String.raw is not supported")),
        _other => return None,
    }))
}

pub(crate) fn method(name: &str) -> Option<NativeFn> {
    Some(match name {
        "charAt" => char_at,
        "charCodeAt" => char_code_at,
        "codePointAt" => code_point_at,
        "at" => at,
        "concat" => concat,
        "includes" => |interp, this, args| Ok((find(interp, this, args)? >= 0.0).into()),
        "indexOf" => |interp, this, args| Ok(Value::Num(find(interp, this, args)?)),
        "lastIndexOf" => last_index_of,
        "startsWith" => starts_with,
        "endsWith" => ends_with,
        "slice" => slice,
        "substring" => substring,
        "substr" => substr,
        "toUpperCase" | "toLocaleUpperCase" => {
            |interp, this, _| Ok(Value::text(text(interp, this)?.as_str().to_uppercase()))
        }
        "toLowerCase" | "toLocaleLowerCase" => {
            |interp, this, _| Ok(Value::text(text(interp, this)?.as_str().to_lowercase()))
        }
        "trim" => |interp, this, _| Ok(Value::str(text(interp, this)?.as_str().trim_matches(is_space))),
        "trimStart" => {
            |interp, this, _| Ok(Value::str(text(interp, this)?.as_str().trim_start_matches(is_space)))
        }
        "trimEnd" => {
            |interp, this, _| Ok(Value::str(text(interp, this)?.as_str().trim_end_matches(is_space)))
        }
        "padStart" => |interp, this, args| pad(interp, this, args, true),
        "padEnd" => |interp, this, args| pad(interp, this, args, false),
        "repeat" => repeat,
        "split" => split,
        "replace" => |interp, this, args| replace(interp, this, args, false),
        "replaceAll" => |interp, this, args| replace(interp, this, args, true),
        "match" => by_regex::match_text,
        "matchAll" => by_regex::match_all,
        "search" => by_regex::search,
        "localeCompare" => locale_compare,
        "toString" | "valueOf" | "toWellFormed" => |interp, this, _| Ok(text(interp, this)?.into()),
        "normalize" => normalize,
        "hasOwnProperty" => |interp, this, args| {
            let name = interp.to_key(&arg(args, 0))?;
            Ok(interp.has_own(this, &name).into())
        },
        _other => return None,
    })
}

/// ASCII is the same in every normal form. Other text is an error, because the tables aren't included and a wrong result would be worse.
fn normalize(interp: &mut Interp<'_>, this: &Value, _args: &[Value]) -> Eval {
    let text = text(interp, this)?;
    if text.as_str().is_ascii() {
        return Ok(text.into());
    }
    Err(interp.type_error("`normalize` is only supported for ASCII texts"))
}

pub(crate) fn text(interp: &mut Interp<'_>, this: &Value) -> Eval<Str> {
    if this.is_nullish() {
        return Err(interp.type_error("a text method was called on nothing"));
    }
    interp.to_str(this)
}

fn convert(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    match args.first() {
        None => Ok(Value::str("")),
        Some(value) => Ok(interp.to_str(value)?.into()),
    }
}

fn from_char_code(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let mut units = Vec::with_capacity(args.len());
    for value in args {
        let number = interp.to_num(value)?;
        units.push((crate::number::to_u32(number) & 0xffff) as u16);
    }
    Ok(Value::text(String::from_utf16_lossy(&units)))
}

fn from_code_point(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let mut out = String::new();
    for value in args {
        let number = interp.to_num(value)?;
        if !(0.0..=1_114_111.0).contains(&number) || number.trunc() != number {
            return Err(interp.range_error(format!("Invalid code point {}", crate::number::to_text(number))));
        }
        out.push(char::from_u32(number as u32).unwrap_or('\u{fffd}'));
    }
    Ok(Value::text(out))
}

/// An index, or `None` if it is out of range.
fn place(interp: &mut Interp<'_>, args: &[Value], units: usize) -> Eval<Option<usize>> {
    let at = interp.to_whole(&arg(args, 0))?;
    Ok((at >= 0.0 && at < units as f64).then_some(at as usize))
}

fn char_at(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = text(interp, this)?;
    let at = place(interp, args, text.units())?;
    Ok(at.map_or(Value::str(""), |at| text.slice(at, at.saturating_add(1)).into()))
}

fn char_code_at(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = text(interp, this)?;
    let unit = place(interp, args, text.units())?.and_then(|at| text.unit(at));
    Ok(Value::Num(unit.map_or(f64::NAN, f64::from)))
}

fn code_point_at(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = text(interp, this)?;
    let point = place(interp, args, text.units())?.and_then(|at| text.code_point(at));
    Ok(point.map_or(Value::Undefined, |point| Value::Num(f64::from(point))))
}

fn at(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = text(interp, this)?;
    let at = interp.to_whole(&arg(args, 0))?;
    let at = if at < 0.0 { at + text.units() as f64 } else { at };
    Ok(if at < 0.0 { Value::Undefined } else { crate::member::unit_of(&text, at as usize) })
}

fn concat(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let mut out = Text::clone(&*text(interp, this)?);
    for value in args {
        out.push(&*interp.to_str(value)?);
        if out.units() > STRING_UNITS_MAX {
            return Err(interp.range_error("Invalid string length"));
        }
    }
    Ok(Value::Str(Rc::new(out)))
}

/// A text to search for; a regular expression is an error here.
fn needle(interp: &mut Interp<'_>, value: &Value) -> Eval<Str> {
    if by_regex::pattern_of(value).is_some() {
        return Err(interp.type_error("a text is needed here, not a regular expression"));
    }
    interp.to_str(value)
}

fn find(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval<f64> {
    let text = text(interp, this)?;
    let wanted = needle(interp, &arg(args, 0))?;
    let from = position(interp, args, 1, text.units(), 0)?;
    let start = text.byte_at(from);
    let found = text.as_str().get(start..).and_then(|rest| rest.find(wanted.as_str()));
    Ok(found.map_or(-1.0, |at| text.unit_at(start.saturating_add(at)) as f64))
}

fn last_index_of(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = text(interp, this)?;
    let wanted = needle(interp, &arg(args, 0))?;
    let from = position(interp, args, 1, text.units(), text.units())?;
    let end = text.byte_at(from).saturating_add(wanted.as_str().len()).min(text.as_str().len());
    let end = text.as_str().floor_char_boundary(end);
    let found = text.as_str().get(..end).and_then(|before| before.rfind(wanted.as_str()));
    Ok(found.map_or(Value::Num(-1.0), |at| Value::count(text.unit_at(at))))
}

fn starts_with(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = text(interp, this)?;
    let wanted = needle(interp, &arg(args, 0))?;
    let from = position(interp, args, 1, text.units(), 0)?;
    Ok(text.as_str().get(text.byte_at(from)..).is_some_and(|rest| rest.starts_with(wanted.as_str())).into())
}

fn ends_with(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = text(interp, this)?;
    let wanted = needle(interp, &arg(args, 0))?;
    let to = position(interp, args, 1, text.units(), text.units())?;
    Ok(text.as_str().get(..text.byte_at(to)).is_some_and(|rest| rest.ends_with(wanted.as_str())).into())
}

fn slice(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = text(interp, this)?;
    let from = position(interp, args, 0, text.units(), 0)?;
    let to = position(interp, args, 1, text.units(), text.units())?;
    Ok(text.slice(from, to).into())
}

fn substring(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = text(interp, this)?;
    let clamp = |number: f64| number.clamp(0.0, text.units() as f64) as usize;
    let from = clamp(interp.to_whole(&arg(args, 0))?);
    let to = match args.get(1) {
        None | Some(Value::Undefined) => text.units(),
        Some(value) => clamp(interp.to_whole(value)?),
    };
    Ok(text.slice(from.min(to), from.max(to)).into())
}

fn substr(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = text(interp, this)?;
    let from = position(interp, args, 0, text.units(), 0)?;
    let count = match args.get(1) {
        None | Some(Value::Undefined) => text.units(),
        Some(value) => interp.to_whole(value)?.max(0.0) as usize,
    };
    Ok(text.slice(from, from.saturating_add(count)).into())
}

fn pad(interp: &mut Interp<'_>, this: &Value, args: &[Value], before: bool) -> Eval {
    let text = text(interp, this)?;
    let wanted = interp.to_whole(&arg(args, 0))?.max(0.0) as usize;
    let filler = match args.get(1) {
        None | Some(Value::Undefined) => str_of(" "),
        Some(value) => interp.to_str(value)?,
    };
    let missing = wanted.saturating_sub(text.units());
    if missing == 0 || filler.units() == 0 {
        return Ok(text.into());
    }
    if wanted > STRING_UNITS_MAX {
        return Err(interp.range_error("Invalid string length"));
    }
    let times = missing.div_ceil(filler.units());
    let filling = Rc::new(Text::from(filler.as_str().repeat(times))).slice(0, missing);
    let (first, second) = if before { (&filling, &text) } else { (&text, &filling) };
    let mut out = Text::clone(first);
    out.push(second);
    Ok(Value::Str(Rc::new(out)))
}

fn repeat(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = text(interp, this)?;
    let count = interp.to_whole(&arg(args, 0))?;
    if count < 0.0 || count * text.units() as f64 > STRING_UNITS_MAX as f64 || count.is_infinite() {
        return Err(interp.range_error(format!("Invalid count value: {}", crate::number::to_text(count))));
    }
    // Repeating an empty text gives an empty text, whatever the count.
    let count = if text.units() == 0 { 0 } else { count as usize };
    Ok(Value::text(text.as_str().repeat(count)))
}

fn split(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let text = text(interp, this)?;
    let limit = match args.get(1) {
        None | Some(Value::Undefined) => usize::MAX,
        Some(value) => interp.to_whole(value)?.max(0.0) as usize,
    };
    let separator = arg(args, 0);
    let mut parts: Vec<Value> = if let Some(pattern) = by_regex::pattern_of(&separator) {
        by_regex::split(&text, &pattern)
    } else if matches!(separator, Value::Undefined) {
        vec![text.into()]
    } else {
        let separator = interp.to_str(&separator)?;
        if separator.units() == 0 {
            (0..text.units()).map(|index| crate::member::unit_of(&text, index)).collect()
        } else {
            text.as_str().split(separator.as_str()).map(Value::str).collect()
        }
    };
    parts.truncate(limit);
    Ok(interp.array(parts))
}

fn replace(interp: &mut Interp<'_>, this: &Value, args: &[Value], all: bool) -> Eval {
    let text = text(interp, this)?;
    if let Some(pattern) = by_regex::pattern_of(&arg(args, 0)) {
        if all && !pattern.has('g') {
            return Err(interp.type_error("replaceAll must be called with a global RegExp"));
        }
        return by_regex::replace(interp, &text, &pattern, &arg(args, 1));
    }
    let wanted = interp.to_str(&arg(args, 0))?;
    let with = arg(args, 1);
    let with_text = if with.as_callable().is_some() { None } else { Some(interp.to_str(&with)?) };
    let mut places: Vec<usize> = Vec::new();
    for (at, _) in text.as_str().match_indices(wanted.as_str()) {
        places.push(at);
        if !all {
            break;
        }
    }
    let (mut out, mut done) = (String::new(), 0_usize);
    for at in places {
        out.push_str(text.as_str().get(done..at).unwrap_or(""));
        let end = at.saturating_add(wanted.as_str().len());
        match &with_text {
            Some(with) => {
                let (before, after) = (text.as_str().get(..at), text.as_str().get(end..));
                let around = by_regex::Around { before: before.unwrap_or(""), after: after.unwrap_or("") };
                by_regex::expand(&mut out, with.as_str(), wanted.as_str(), &around, None);
            }
            None => {
                let found =
                    [Value::Str(Rc::clone(&wanted)), Value::count(text.unit_at(at)), text.clone().into()];
                let given = interp.call(&with, &Value::Undefined, &found)?;
                out.push_str(interp.to_str(&given)?.as_str());
            }
        }
        if out.len() > STRING_UNITS_MAX {
            return Err(interp.range_error("Invalid string length"));
        }
        done = end;
    }
    out.push_str(text.as_str().get(done..).unwrap_or(""));
    Ok(Value::text(out))
}

/// Case-insensitive order first, then lower case before upper case: close to the usual locale order.
fn locale_compare(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let (left, right) = (text(interp, this)?, interp.to_str(&arg(args, 0))?);
    let numeric = match args.get(2) {
        Some(options) if options.as_object().is_some() => interp.get(options, "numeric")?.truthy(),
        Some(_) | None => false,
    };
    let order = folded(left.as_str(), numeric).cmp(&folded(right.as_str(), numeric));
    let order = order
        .then_with(|| left.as_str().to_lowercase().cmp(&right.as_str().to_lowercase()))
        .then_with(|| right.as_str().cmp(left.as_str()));
    Ok(Value::Num(f64::from(order as i8)))
}

fn folded(text: &str, numeric: bool) -> Vec<(u8, u64, char)> {
    let mut out = Vec::new();
    let mut chars = text.chars().flat_map(char::to_lowercase).peekable();
    while let Some(c) = chars.next() {
        if numeric && let Some(first) = c.to_digit(10) {
            let mut value = u64::from(first);
            while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                value = value.saturating_mul(10).saturating_add(u64::from(digit));
                chars.next();
            }
            out.push((1, value, '0'));
        } else {
            let class = if c.is_alphabetic() { 2 } else { u8::from(c.is_numeric()) };
            out.push((class, 0, plain(c)));
        }
    }
    out
}

/// A letter without diacritics that don't affect the order.
fn plain(c: char) -> char {
    match c {
        'à'..='å' => 'a',
        'ç' => 'c',
        'è'..='ë' => 'e',
        'ì'..='ï' => 'i',
        'ñ' => 'n',
        'ò'..='ö' | 'ø' => 'o',
        'ù'..='ü' => 'u',
        'ý' | 'ÿ' => 'y',
        other => other,
    }
}
