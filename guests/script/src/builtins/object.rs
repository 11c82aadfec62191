//! Objects.

use std::rc::Rc;

use super::{arg, callback};
use crate::interp::{Eval, Interp, shown};
use crate::native::{Member, Namespace, NativeFn};
use crate::object::{Body, Props, Record, Table};
use crate::text::str_of;
use crate::value::Value;

pub(crate) static OBJECT: Namespace = Namespace {
    name: "Object",
    call: Some(construct),
    construct: Some(construct),
    member,
    methods: Some(method),
};

fn member(name: &str) -> Option<Member> {
    Some(Member::Fn(match name {
        "keys" | "getOwnPropertyNames" => keys,
        "values" => values,
        "entries" => entries,
        "fromEntries" => from_entries,
        "assign" => assign,
        "freeze" | "seal" | "preventExtensions" => freeze,
        "isFrozen" | "isSealed" => {
            |_, _, args| Ok(arg(args, 0).as_object().is_none_or(|object| object.frozen.get()).into())
        }
        "is" => is,
        "hasOwn" => |interp, _, args| {
            let name = interp.to_key(&arg(args, 1))?;
            Ok(interp.has_own(&arg(args, 0), &name).into())
        },
        "create" => create,
        "groupBy" => group_by,
        "getPrototypeOf" => |_, _, args| {
            Ok(arg(args, 0).as_object().and_then(|object| object.class()).map_or(Value::Null, Value::Obj))
        },
        "setPrototypeOf" | "defineProperty" | "defineProperties" => {
            |interp, _, _| Err(interp.type_error("prototypes and property descriptors are not supported"))
        }
        _other => return None,
    }))
}

pub(crate) fn method(name: &str) -> Option<NativeFn> {
    Some(match name {
        "hasOwnProperty" | "propertyIsEnumerable" => |interp, this, args| {
            let name = interp.to_key(&arg(args, 0))?;
            Ok(interp.has_own(this, &name).into())
        },
        "toString" | "toLocaleString" => to_string,
        "valueOf" => |_, this, _| Ok(this.clone()),
        _other => return None,
    })
}

fn to_string(interp: &mut Interp<'_>, this: &Value, _args: &[Value]) -> Eval {
    // `Object.prototype.toString.call(x)` names the kind; otherwise the value is converted.
    let kind = match this {
        Value::Undefined => "Undefined",
        Value::Null => "Null",
        Value::Obj(object) => match &*object.body.borrow() {
            Body::Array(_) => "Array",
            Body::Date(_) => "Date",
            Body::Regex(_) => "RegExp",
            Body::Closure(_) | Body::Native { .. } | Body::Bound { .. } | Body::Class(_) => "Function",
            Body::Record(record) if record.error_at.is_none() => "Object",
            Body::Record(_)
            | Body::Namespace(_)
            | Body::Map(_)
            | Body::Set(_)
            | Body::Promise(_)
            | Body::Iterator { .. } => "",
        },
        Value::Bool(_) | Value::Num(_) | Value::Str(_) | Value::Unset | Value::Cell(_) => "",
    };
    if kind.is_empty() {
        return Ok(interp.to_str(this)?.into());
    }
    Ok(Value::text(format!("[object {kind}]")))
}

fn construct(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    match args.first() {
        Some(value) if !value.is_nullish() => Ok(value.clone()),
        Some(_) | None => Ok(interp.record(Props::default())),
    }
}

fn demanded(interp: &mut Interp<'_>, args: &[Value]) -> Eval {
    let value = arg(args, 0);
    if value.is_nullish() {
        return Err(interp.type_error(format!("Cannot convert {} to object", shown(&value))));
    }
    Ok(value)
}

fn keys(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let value = demanded(interp, args)?;
    let keys = interp.keys_of(&value)?.into_iter().map(Value::Str).collect();
    Ok(interp.array(keys))
}

fn values(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let value = demanded(interp, args)?;
    let values = interp.entries_of(&value)?.into_iter().map(|(_, value)| value).collect();
    Ok(interp.array(values))
}

fn entries(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let value = demanded(interp, args)?;
    let entries = interp.entries_of(&value)?;
    let pairs =
        entries.into_iter().map(|(name, value)| interp.array(vec![Value::Str(name), value])).collect();
    Ok(interp.array(pairs))
}

fn from_entries(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let mut props = Props::default();
    for pair in interp.iterate(&arg(args, 0))? {
        let key = interp.get_index(&pair, &Value::Num(0.0))?;
        let value = interp.get_index(&pair, &Value::Num(1.0))?;
        props.set(&interp.to_key(&key)?, value);
    }
    Ok(interp.record(props))
}

fn assign(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let target = demanded(interp, args)?;
    for source in args.iter().skip(1) {
        for (name, value) in interp.entries_of(source)? {
            interp.set_str(&target, &name, value)?;
        }
    }
    Ok(target)
}

fn freeze(_interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let value = arg(args, 0);
    if let Some(object) = value.as_object() {
        object.frozen.set(true);
    }
    Ok(value)
}

fn is(_interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let (left, right) = (arg(args, 0), arg(args, 1));
    Ok(match (&left, &right) {
        (Value::Num(left), Value::Num(right)) if *left == 0.0 && *right == 0.0 => {
            (left.is_sign_negative() == right.is_sign_negative()).into()
        }
        _other => left.same_or_nan(&right).into(),
    })
}

fn create(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    if !matches!(arg(args, 0), Value::Null) {
        return Err(interp.type_error("Object.create only takes null: write a class"));
    }
    Ok(interp.record(Props::default()))
}

fn group_by(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let run = callback(interp, args, 1)?;
    let items = interp.iterate(&arg(args, 0))?;
    let groups = interp.record(Props::default());
    for (index, item) in items.into_iter().enumerate() {
        let key = interp.call(&run, &Value::Undefined, &[item.clone(), Value::count(index)])?;
        let name = interp.to_key(&key)?;
        if !interp.has_own(&groups, &name) {
            let list = interp.array(Vec::new());
            interp.set_str(&groups, &name, list)?;
        }
        let group = interp.get_str(&groups, &name)?;
        interp.change_array(&group, |items| items.push(item))?;
    }
    Ok(groups)
}

pub(crate) fn structured_clone(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    copy(interp, &arg(args, 0))
}

/// A deep copy. Cycles exceed the depth limit.
fn copy(interp: &mut Interp<'_>, value: &Value) -> Eval {
    let Some(object) = value.as_object() else { return Ok(value.clone()) };
    interp.deeper(|interp| {
        if object.is_callable() {
            return Err(interp.type_error("a function can't be cloned"));
        }
        let pairs = match &*object.body.borrow() {
            Body::Map(table) | Body::Set(table) => Some(table.entries()),
            _other => None,
        };
        if let Some(pairs) = pairs {
            let mut table = Table::default();
            for (key, value) in pairs {
                table.set(copy(interp, &key)?, copy(interp, &value)?);
            }
            let is_map = matches!(&*object.body.borrow(), Body::Map(_));
            return Ok(interp.object(if is_map { Body::Map(table) } else { Body::Set(table) }));
        }
        if let Some(items) = value.elements() {
            let mut out = Vec::with_capacity(items.len());
            for item in &items {
                out.push(copy(interp, item)?);
            }
            return Ok(interp.array(out));
        }
        let date = match &*object.body.borrow() {
            Body::Date(ms) => Some(*ms),
            _other => None,
        };
        if let Some(ms) = date {
            return Ok(interp.object(Body::Date(ms)));
        }
        let mut record = Record::default();
        if let Body::Record(own) = &*object.body.borrow() {
            record.error_at = own.error_at;
            record.class = own.class.clone().filter(|_| own.error_at.is_some());
        }
        if record.error_at.is_some() {
            let message = interp.get(value, "message")?;
            record.props.set(&str_of("message"), message);
        }
        for (name, part) in interp.entries_of(value)? {
            let part = copy(interp, &part)?;
            record.props.set(&Rc::clone(&name), part);
        }
        Ok(interp.object(Body::Record(record)))
    })
}
