//! Maps, sets, and their iterators.

use super::{arg, callback};
use crate::interp::{Eval, Interp};
use crate::native::{Member, Namespace, NativeFn};
use crate::object::{Body, Props, Table};
use crate::text::str_of;
use crate::value::Value;

pub(crate) static MAP: Namespace = Namespace {
    name: "Map",
    call: None,
    construct: Some(new_map),
    member: map_static,
    methods: Some(map_method),
};

pub(crate) static SET: Namespace = Namespace {
    name: "Set",
    call: None,
    construct: Some(new_set),
    member: |_| None,
    methods: Some(set_method),
};

fn map_static(name: &str) -> Option<Member> {
    (name == "groupBy").then_some(Member::Fn(group_by))
}

pub(crate) fn map_method(name: &str) -> Option<NativeFn> {
    Some(match name {
        "get" => |interp, this, args| {
            table(interp, this, |table| table.get(&arg(args, 0)).cloned().unwrap_or_default())
        },
        "set" => |interp, this, args| {
            table(interp, this, |table| table.set(arg(args, 0), arg(args, 1)))?;
            Ok(this.clone())
        },
        "entries" => |interp, this, _| {
            let items = interp.iterate(this)?;
            Ok(interp.object(Body::Iterator { items, next: 0 }))
        },
        "keys" => |interp, this, _| listed(interp, this, |(key, _)| key),
        "values" => |interp, this, _| listed(interp, this, |(_, value)| value),
        _other => return shared_method(name),
    })
}

pub(crate) fn set_method(name: &str) -> Option<NativeFn> {
    Some(match name {
        "add" => |interp, this, args| {
            table(interp, this, |table| table.set(arg(args, 0), arg(args, 0)))?;
            Ok(this.clone())
        },
        "keys" | "values" => |interp, this, _| listed(interp, this, |(key, _)| key),
        "entries" => |interp, this, _| {
            let all = table(interp, this, |table| table.entries())?;
            let items = all.into_iter().map(|(key, value)| interp.array(vec![key, value])).collect();
            Ok(interp.object(Body::Iterator { items, next: 0 }))
        },
        "union" => |interp, this, args| combined(interp, this, args, |_, _| true, true),
        "intersection" => {
            |interp, this, args| combined(interp, this, args, |key, other| other.get(key).is_some(), false)
        }
        "difference" => {
            |interp, this, args| combined(interp, this, args, |key, other| other.get(key).is_none(), false)
        }
        "isSubsetOf" => |interp, this, args| {
            let other = table_of(interp, &arg(args, 0))?;
            table(interp, this, |own| own.entries().iter().all(|(key, _)| other.get(key).is_some()).into())
        },
        _other => return shared_method(name),
    })
}

fn shared_method(name: &str) -> Option<NativeFn> {
    Some(match name {
        "has" => |interp, this, args| table(interp, this, |table| table.get(&arg(args, 0)).is_some().into()),
        "delete" => |interp, this, args| table(interp, this, |table| table.remove(&arg(args, 0)).into()),
        "clear" => |interp, this, _| {
            table(interp, this, |table| {
                table.clear();
                Value::Undefined
            })
        },
        "forEach" => for_each,
        _other => return None,
    })
}

/// Methods of iterators such as those of `keys()`.
pub(crate) fn iterator_method(name: &str) -> Option<NativeFn> {
    Some(match name {
        "next" => next,
        "toArray" => |interp, this, _| {
            let items = interp.iterate(this)?;
            Ok(interp.array(items))
        },
        "map" | "filter" | "forEach" | "some" | "every" | "find" | "reduce" | "flatMap" => via_list(name)?,
        _other => return None,
    })
}

macro_rules! as_list {
    ($name:literal) => {
        |interp, this, args| {
            let items = interp.iterate(this)?;
            let list = interp.array(items);
            match super::array::method($name) {
                Some(run) => run(interp, &list, args),
                None => Ok(Value::Undefined),
            }
        }
    };
}

fn via_list(name: &str) -> Option<NativeFn> {
    Some(match name {
        "map" => as_list!("map"),
        "filter" => as_list!("filter"),
        "forEach" => as_list!("forEach"),
        "some" => as_list!("some"),
        "every" => as_list!("every"),
        "find" => as_list!("find"),
        "reduce" => as_list!("reduce"),
        "flatMap" => as_list!("flatMap"),
        _other => return None,
    })
}

fn next(interp: &mut Interp<'_>, this: &Value, _args: &[Value]) -> Eval {
    let found = this.as_object().and_then(|object| match &mut *object.body.borrow_mut() {
        Body::Iterator { items, next } => {
            let found = items.get(*next).cloned();
            *next = next.saturating_add(1);
            found
        }
        _other => None,
    });
    let mut props = Props::default();
    props.set(&str_of("value"), found.clone().unwrap_or_default());
    props.set(&str_of("done"), found.is_none().into());
    Ok(interp.record(props))
}

fn table<T>(interp: &mut Interp<'_>, this: &Value, run: impl FnOnce(&mut Table) -> T) -> Eval<T> {
    if let Some(object) = this.as_object()
        && let Body::Map(table) | Body::Set(table) = &mut *object.body.borrow_mut()
    {
        return Ok(run(table));
    }
    Err(interp.type_error("this is neither a Map nor a Set"))
}

fn table_of(interp: &mut Interp<'_>, value: &Value) -> Eval<Table> {
    let mut table = Table::default();
    let is_map = value.as_object().is_some_and(|object| matches!(&*object.body.borrow(), Body::Map(_)));
    for item in interp.iterate(value)? {
        let key = if is_map { interp.get_index(&item, &Value::Num(0.0))? } else { item };
        table.set(key.clone(), key);
    }
    Ok(table)
}

fn listed(interp: &mut Interp<'_>, this: &Value, pick: fn((Value, Value)) -> Value) -> Eval {
    let items = table(interp, this, |table| table.entries())?.into_iter().map(pick).collect();
    Ok(interp.object(Body::Iterator { items, next: 0 }))
}

fn combined(
    interp: &mut Interp<'_>,
    this: &Value,
    args: &[Value],
    keep: fn(&Value, &Table) -> bool,
    with_other: bool,
) -> Eval {
    let other = table_of(interp, &arg(args, 0))?;
    let mut out = Table::default();
    for (key, _) in table(interp, this, |table| table.entries())? {
        if keep(&key, &other) {
            out.set(key.clone(), key);
        }
    }
    if with_other {
        for (key, _) in other.entries() {
            out.set(key.clone(), key);
        }
    }
    Ok(interp.object(Body::Set(out)))
}

fn new_map(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let mut table = Table::default();
    if !arg(args, 0).is_nullish() {
        for pair in interp.iterate(&arg(args, 0))? {
            let key = interp.get_index(&pair, &Value::Num(0.0))?;
            let value = interp.get_index(&pair, &Value::Num(1.0))?;
            table.set(key, value);
        }
    }
    Ok(interp.object(Body::Map(table)))
}

fn new_set(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let mut table = Table::default();
    if !arg(args, 0).is_nullish() {
        for item in interp.iterate(&arg(args, 0))? {
            table.set(item.clone(), item);
        }
    }
    Ok(interp.object(Body::Set(table)))
}

fn for_each(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let run = callback(interp, args, 0)?;
    for (key, value) in table(interp, this, |table| table.entries())? {
        interp.step()?;
        interp.call(&run, &Value::Undefined, &[value, key, this.clone()])?;
    }
    Ok(Value::Undefined)
}

fn group_by(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let run = callback(interp, args, 1)?;
    let mut groups = Table::default();
    for (index, item) in interp.iterate(&arg(args, 0))?.into_iter().enumerate() {
        let key = interp.call(&run, &Value::Undefined, &[item.clone(), Value::count(index)])?;
        match groups.get(&key).cloned() {
            Some(list) => interp.change_array(&list, |items| items.push(item))?,
            None => groups.set(key, interp.array(vec![item])),
        }
    }
    Ok(interp.object(Body::Map(groups)))
}
