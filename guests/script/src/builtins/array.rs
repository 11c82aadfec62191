//! Lists.

use std::cmp::Ordering;

use super::{arg, callback, position};
use crate::interp::{ARRAY_ITEMS_MAX, Eval, Interp};
use crate::native::{Member, Namespace, NativeFn};
use crate::object::Body;
use crate::value::Value;

pub(crate) static ARRAY: Namespace = Namespace {
    name: "Array",
    call: Some(construct),
    construct: Some(construct),
    member,
    methods: Some(method),
};

fn member(name: &str) -> Option<Member> {
    Some(Member::Fn(match name {
        "isArray" => |_, _, args| Ok(arg(args, 0).is_array().into()),
        "of" => |interp, _, args| Ok(interp.array(args.to_vec())),
        "from" => from,
        _other => return None,
    }))
}

pub(crate) fn method(name: &str) -> Option<NativeFn> {
    Some(match name {
        "push" => push,
        "pop" => |interp, this, _| Ok(interp.change_array(this, Vec::pop)?.unwrap_or_default()),
        "shift" => shift,
        "unshift" => unshift,
        "map" => map,
        "filter" => filter,
        "forEach" => for_each,
        "find" => |interp, this, args| Ok(search(interp, this, args, false)?.1),
        "findIndex" => |interp, this, args| Ok(Value::Num(search(interp, this, args, false)?.0)),
        "findLast" => |interp, this, args| Ok(search(interp, this, args, true)?.1),
        "findLastIndex" => |interp, this, args| Ok(Value::Num(search(interp, this, args, true)?.0)),
        "some" => |interp, this, args| Ok((search(interp, this, args, false)?.0 >= 0.0).into()),
        "every" => every,
        "reduce" => |interp, this, args| reduce(interp, this, args, false),
        "reduceRight" => |interp, this, args| reduce(interp, this, args, true),
        "includes" => includes,
        "indexOf" => index_of,
        "lastIndexOf" => last_index_of,
        "join" => join,
        "slice" => slice,
        "splice" => splice,
        "concat" => concat,
        "reverse" => reverse,
        "sort" => sort,
        "toSorted" => to_sorted,
        "toReversed" => to_reversed,
        "toSpliced" => to_spliced,
        "with" => with,
        "flat" => flat,
        "flatMap" => flat_map,
        "fill" => fill,
        "at" => at,
        "keys" => keys,
        "values" => |interp, this, _| {
            let items = items(interp, this)?;
            Ok(interp.object(Body::Iterator { items, next: 0 }))
        },
        "entries" => entries,
        "toString" | "toLocaleString" => |interp, this, _| Ok(interp.join(this, ",")?.into()),
        _other => return None,
    })
}

fn items(interp: &mut Interp<'_>, this: &Value) -> Eval<Vec<Value>> {
    match this.elements() {
        Some(items) => Ok(items),
        None => interp.iterate(this),
    }
}

/// The current element at an index.
fn item(this: &Value, index: usize) -> Value {
    this.as_object().map_or(Value::Undefined, |object| match &*object.body.borrow() {
        Body::Array(items) => items.get(index).cloned().unwrap_or_default(),
        _other => Value::Undefined,
    })
}

fn length(interp: &mut Interp<'_>, this: &Value) -> Eval<usize> {
    let length = this.as_object().and_then(|object| match &*object.body.borrow() {
        Body::Array(items) => Some(items.len()),
        _other => None,
    });
    match length {
        Some(length) => Ok(length),
        None => Err(interp.type_error(format!("{} is not a list", crate::interp::shown(this)))),
    }
}

fn room(interp: &mut Interp<'_>, length: usize) -> Eval<()> {
    if length > ARRAY_ITEMS_MAX { Err(interp.range_error("Invalid array length")) } else { Ok(()) }
}

fn construct(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    if let [Value::Num(length)] = args {
        if !(0.0..=ARRAY_ITEMS_MAX as f64).contains(length) || length.trunc() != *length {
            return Err(interp.range_error("Invalid array length"));
        }
        return Ok(interp.array(vec![Value::Undefined; *length as usize]));
    }
    Ok(interp.array(args.to_vec()))
}

fn from(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let source = arg(args, 0);
    let is_record =
        source.as_object().is_some_and(|object| matches!(&*object.body.borrow(), Body::Record(_)));
    let items = if is_record {
        // An array-like object such as `{ length: 3 }`.
        let length = interp.get(&source, "length")?;
        let length = interp.to_whole(&length)?.max(0.0) as usize;
        room(interp, length)?;
        let mut items = Vec::new();
        for index in 0..length {
            items.push(interp.get_index(&source, &Value::count(index))?);
        }
        items
    } else {
        interp.iterate(&source)?
    };
    if arg(args, 1).as_callable().is_none() {
        return Ok(interp.array(items));
    }
    let run = arg(args, 1);
    let mut out = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        out.push(interp.call(&run, &Value::Undefined, &[item, Value::count(index)])?);
    }
    Ok(interp.array(out))
}

fn push(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let before = length(interp, this)?;
    room(interp, before.saturating_add(args.len()))?;
    let now = interp.change_array(this, |items| {
        items.extend_from_slice(args);
        items.len()
    })?;
    Ok(Value::count(now))
}

fn shift(interp: &mut Interp<'_>, this: &Value, _args: &[Value]) -> Eval {
    interp.change_array(this, |items| if items.is_empty() { Value::Undefined } else { items.remove(0) })
}

fn unshift(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let before = length(interp, this)?;
    room(interp, before.saturating_add(args.len()))?;
    let now = interp.change_array(this, |items| {
        items.splice(0..0, args.iter().cloned());
        items.len()
    })?;
    Ok(Value::count(now))
}

/// Calls a function with each element, its index and the list, until it stops.
fn walk(
    interp: &mut Interp<'_>,
    this: &Value,
    args: &[Value],
    mut each: impl FnMut(&mut Interp<'_>, Value, Value) -> Eval<bool>,
) -> Eval<()> {
    let run = callback(interp, args, 0)?;
    let bound = arg(args, 1);
    for index in 0..length(interp, this)? {
        interp.step()?;
        let value = item(this, index);
        let result = interp.call(&run, &bound, &[value.clone(), Value::count(index), this.clone()])?;
        if !each(interp, value, result)? {
            break;
        }
    }
    Ok(())
}

fn map(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let mut out = Vec::new();
    walk(interp, this, args, |_, _, result| {
        out.push(result);
        Ok(true)
    })?;
    Ok(interp.array(out))
}

fn filter(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let mut out = Vec::new();
    walk(interp, this, args, |_, value, result| {
        if result.truthy() {
            out.push(value);
        }
        Ok(true)
    })?;
    Ok(interp.array(out))
}

fn for_each(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    walk(interp, this, args, |_, _, _| Ok(true))?;
    Ok(Value::Undefined)
}

fn every(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let mut all = true;
    walk(interp, this, args, |_, _, result| {
        all = result.truthy();
        Ok(all)
    })?;
    Ok(all.into())
}

fn search(interp: &mut Interp<'_>, this: &Value, args: &[Value], backwards: bool) -> Eval<(f64, Value)> {
    let run = callback(interp, args, 0)?;
    let length = length(interp, this)?;
    for step in 0..length {
        interp.step()?;
        let index = if backwards { length.saturating_sub(1).saturating_sub(step) } else { step };
        let value = item(this, index);
        if interp.call(&run, &arg(args, 1), &[value.clone(), Value::count(index), this.clone()])?.truthy() {
            return Ok((index as f64, value));
        }
    }
    Ok((-1.0, Value::Undefined))
}

fn reduce(interp: &mut Interp<'_>, this: &Value, args: &[Value], backwards: bool) -> Eval {
    let run = callback(interp, args, 0)?;
    let length = length(interp, this)?;
    let mut order: Vec<usize> = (0..length).collect();
    if backwards {
        order.reverse();
    }
    let mut order = order.into_iter();
    let mut so_far = match args.get(1) {
        Some(start) => start.clone(),
        None => match order.next() {
            Some(first) => item(this, first),
            None => return Err(interp.type_error("Reduce of empty array with no initial value")),
        },
    };
    for index in order {
        interp.step()?;
        let value = item(this, index);
        so_far = interp.call(&run, &Value::Undefined, &[so_far, value, Value::count(index), this.clone()])?;
    }
    Ok(so_far)
}

fn includes(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let wanted = arg(args, 0);
    Ok(items(interp, this)?.iter().any(|item| item.same_or_nan(&wanted)).into())
}

fn index_of(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let (wanted, items) = (arg(args, 0), items(interp, this)?);
    let from = position(interp, args, 1, items.len(), 0)?;
    let found = items.iter().enumerate().skip(from).find(|(_, item)| item.same(&wanted));
    Ok(found.map_or(Value::Num(-1.0), |(index, _)| Value::count(index)))
}

fn last_index_of(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let wanted = arg(args, 0);
    let found = items(interp, this)?.iter().rposition(|item| item.same(&wanted));
    Ok(found.map_or(Value::Num(-1.0), Value::count))
}

fn join(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let between = match args.first() {
        None | Some(Value::Undefined) => crate::text::str_of(","),
        Some(given) => interp.to_str(given)?,
    };
    Ok(interp.join(this, between.as_str())?.into())
}

fn slice(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let items = items(interp, this)?;
    let from = position(interp, args, 0, items.len(), 0)?;
    let to = position(interp, args, 1, items.len(), items.len())?;
    Ok(interp.array(items.get(from..to).unwrap_or_default().to_vec()))
}

fn splice(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let length = length(interp, this)?;
    let from = position(interp, args, 0, length, 0)?;
    let count = match args.len() {
        0 => 0,
        1 => length.saturating_sub(from),
        _more => interp.to_whole(&arg(args, 1))?.max(0.0) as usize,
    };
    let to = from.saturating_add(count).min(length);
    let new = args.get(2..).unwrap_or_default();
    room(interp, length.saturating_add(new.len()))?;
    let gone = interp.change_array(this, |items| {
        let (from, to) = (from.min(items.len()), to.min(items.len()));
        items.splice(from..to, new.iter().cloned()).collect::<Vec<_>>()
    })?;
    Ok(interp.array(gone))
}

fn to_spliced(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let items = items(interp, this)?;
    let copy = interp.array(items);
    splice(interp, &copy, args)?;
    Ok(copy)
}

fn with(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let mut items = items(interp, this)?;
    let place = interp.to_whole(&arg(args, 0))?;
    let place = if place < 0.0 { place + items.len() as f64 } else { place };
    match items.get_mut(place.max(-1.0) as usize).filter(|_| place >= 0.0) {
        Some(slot) => *slot = arg(args, 1),
        None => return Err(interp.range_error("Invalid index")),
    }
    Ok(interp.array(items))
}

fn concat(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let mut out = items(interp, this)?;
    for value in args {
        match value.elements() {
            Some(more) => out.extend(more),
            None => out.push(value.clone()),
        }
        room(interp, out.len())?;
    }
    Ok(interp.array(out))
}

fn reverse(interp: &mut Interp<'_>, this: &Value, _args: &[Value]) -> Eval {
    interp.change_array(this, |items| items.reverse())?;
    Ok(this.clone())
}

fn to_reversed(interp: &mut Interp<'_>, this: &Value, _args: &[Value]) -> Eval {
    let mut items = items(interp, this)?;
    items.reverse();
    Ok(interp.array(items))
}

fn sort(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let sorted = sorted(interp, this, args)?;
    interp.change_array(this, |items| *items = sorted)?;
    Ok(this.clone())
}

fn to_sorted(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let sorted = sorted(interp, this, args)?;
    Ok(interp.array(sorted))
}

/// Undefined comes last, whatever the comparator returns.
fn sorted(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval<Vec<Value>> {
    let items = items(interp, this)?;
    let total = items.len();
    let defined: Vec<Value> = items.into_iter().filter(|item| !matches!(item, Value::Undefined)).collect();
    let mut out = if arg(args, 0).as_callable().is_some() {
        let run = arg(args, 0);
        merge_sort(interp, defined, &mut |interp, left: &Value, right: &Value| {
            let order = interp.call(&run, &Value::Undefined, &[left.clone(), right.clone()])?;
            Ok(interp.to_num(&order)? > 0.0)
        })?
    } else {
        let mut keyed = Vec::with_capacity(defined.len());
        for item in defined {
            keyed.push((interp.to_str(&item)?, item));
        }
        let keyed = merge_sort(interp, keyed, &mut |_, left, right| {
            Ok(crate::operators::compare_units(&left.0, &right.0) == Ordering::Greater)
        })?;
        keyed.into_iter().map(|(_, item)| item).collect()
    };
    out.resize(total, Value::Undefined);
    Ok(out)
}

/// A stable sort that tolerates inconsistent comparators: `after` says whether the left element goes after the right.
fn merge_sort<T: Clone>(
    interp: &mut Interp<'_>,
    mut items: Vec<T>,
    after: &mut impl FnMut(&mut Interp<'_>, &T, &T) -> Eval<bool>,
) -> Eval<Vec<T>> {
    let mut width = 1_usize;
    while width < items.len() {
        let mut out = Vec::with_capacity(items.len());
        for pair in items.chunks(width.saturating_mul(2)) {
            let (mut left, mut right) = pair.split_at_checked(width).unwrap_or((pair, &[]));
            while let (Some(first), Some(second)) = (left.first(), right.first()) {
                interp.step()?;
                if after(interp, first, second)? {
                    out.push(second.clone());
                    right = right.get(1..).unwrap_or_default();
                } else {
                    out.push(first.clone());
                    left = left.get(1..).unwrap_or_default();
                }
            }
            out.extend_from_slice(left);
            out.extend_from_slice(right);
        }
        items = out;
        width = width.saturating_mul(2);
    }
    Ok(items)
}

fn flat(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let depth = match args.first() {
        None | Some(Value::Undefined) => 1.0,
        Some(depth) => interp.to_whole(depth)?,
    };
    let mut out = Vec::new();
    flatten(interp, this, depth, &mut out)?;
    Ok(interp.array(out))
}

fn flatten(interp: &mut Interp<'_>, list: &Value, depth: f64, out: &mut Vec<Value>) -> Eval<()> {
    for item in items(interp, list)? {
        if depth >= 1.0 && item.is_array() {
            interp.deeper(|interp| flatten(interp, &item, depth - 1.0, out))?;
        } else {
            out.push(item);
        }
        room(interp, out.len())?;
    }
    Ok(())
}

fn flat_map(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let mut out = Vec::new();
    walk(interp, this, args, |interp, _, result| {
        match result.elements() {
            Some(items) => out.extend(items),
            None => out.push(result),
        }
        room(interp, out.len())?;
        Ok(true)
    })?;
    Ok(interp.array(out))
}

fn fill(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let (value, length) = (arg(args, 0), length(interp, this)?);
    let from = position(interp, args, 1, length, 0)?;
    let to = position(interp, args, 2, length, length)?;
    interp.change_array(this, |items| {
        for slot in items.iter_mut().take(to).skip(from) {
            *slot = value.clone();
        }
    })?;
    Ok(this.clone())
}

fn at(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let place = interp.to_whole(&arg(args, 0))?;
    let place = if place < 0.0 { place + length(interp, this)? as f64 } else { place };
    Ok(if place < 0.0 { Value::Undefined } else { item(this, place as usize) })
}

fn keys(interp: &mut Interp<'_>, this: &Value, _args: &[Value]) -> Eval {
    let items = (0..length(interp, this)?).map(Value::count).collect();
    Ok(interp.object(Body::Iterator { items, next: 0 }))
}

fn entries(interp: &mut Interp<'_>, this: &Value, _args: &[Value]) -> Eval {
    let all = items(interp, this)?;
    let pair = |(index, item)| interp.array(vec![Value::count(index), item]);
    let items = all.into_iter().enumerate().map(pair).collect();
    Ok(interp.object(Body::Iterator { items, next: 0 }))
}
