//! Promises. Host functions return immediately, so every promise is settled from the start.

use super::arg;
use crate::interp::{Eval, Interp, Stop, Why, throw};
use crate::native::{Member, Namespace, NativeFn};
use crate::object::{Body, Props};
use crate::text::str_of;
use crate::value::Value;

pub(crate) static PROMISE: Namespace =
    Namespace { name: "Promise", call: None, construct: Some(construct), member, methods: Some(method) };

fn member(name: &str) -> Option<Member> {
    Some(Member::Fn(match name {
        "resolve" => |interp, _, args| Ok(promise(interp, Ok(arg(args, 0)))),
        "reject" => |interp, _, args| Ok(promise(interp, Err(arg(args, 0)))),
        "all" => all,
        "allSettled" => all_settled,
        "race" => |interp, _, args| {
            let first = interp.iterate(&arg(args, 0))?.into_iter().next().unwrap_or_default();
            Ok(promise(interp, Ok(first)))
        },
        "any" => any,
        _other => return None,
    }))
}

pub(crate) fn method(name: &str) -> Option<NativeFn> {
    Some(match name {
        "then" => |interp, this, args| chained(interp, this, &arg(args, 0), &arg(args, 1)),
        "catch" => |interp, this, args| chained(interp, this, &Value::Undefined, &arg(args, 0)),
        "finally" => finally,
        _other => return None,
    })
}

/// A promise's result; `None` for other values.
pub(crate) fn settled_as(value: &Value) -> Option<Result<Value, Value>> {
    match &*value.as_object()?.body.borrow() {
        Body::Promise(settled) => Some(settled.clone()),
        _other => None,
    }
}

/// A promise of a promise is flattened.
fn promise(interp: &mut Interp<'_>, settled: Result<Value, Value>) -> Value {
    let settled = match settled {
        Ok(value) => settled_as(&value).unwrap_or(Ok(value)),
        Err(thrown) => Err(thrown),
    };
    interp.object(Body::Promise(settled))
}

/// The result of a function as a promise.
fn of_result(interp: &mut Interp<'_>, result: Eval) -> Eval {
    match result {
        Ok(value) => Ok(promise(interp, Ok(value))),
        Err(Stop(why)) => match *why {
            Why::Throw(thrown) => Ok(promise(interp, Err(thrown))),
            other @ (Why::Short | Why::Limit(_)) => Err(Stop(Box::new(other))),
        },
    }
}

/// `new Promise((resolve, reject) => …)`: the function must settle it before it returns.
fn construct(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let run = super::callback(interp, args, 0)?;
    let state = interp.array(Vec::new());
    let settle = |interp: &mut Interp<'_>, run: NativeFn| {
        let function = interp.native("settle", run);
        let target = function.as_object().cloned();
        target.map(|target| interp.object(Body::Bound { target, this: state.clone(), args: Vec::new() }))
    };
    let resolve =
        settle(interp, |interp, this, args| note(interp, this, true, arg(args, 0))).unwrap_or_default();
    let reject =
        settle(interp, |interp, this, args| note(interp, this, false, arg(args, 0))).unwrap_or_default();
    let result = interp.call(&run, &Value::Undefined, &[resolve, reject]);
    let noted = state.elements().unwrap_or_default();
    match noted.as_slice() {
        [fine, value] => {
            let settled = if fine.truthy() { Ok(value.clone()) } else { Err(value.clone()) };
            Ok(promise(interp, settled))
        }
        _nothing => {
            if let thrown @ Err(_) = result {
                return of_result(interp, thrown);
            }
            Err(interp.type_error("this promise is never settled: nothing here happens later"))
        }
    }
}

/// The first call settles the promise; later ones have no effect.
fn note(interp: &mut Interp<'_>, state: &Value, fine: bool, value: Value) -> Eval {
    interp.change_array(state, |items| {
        if items.is_empty() {
            items.extend([fine.into(), value]);
        }
    })?;
    Ok(Value::Undefined)
}

fn chained(interp: &mut Interp<'_>, this: &Value, fine: &Value, failed: &Value) -> Eval {
    let settled = settled_as(this).unwrap_or(Ok(Value::Undefined));
    let (run, value) = match &settled {
        Ok(value) => (fine, value),
        Err(thrown) => (failed, thrown),
    };
    if run.as_callable().is_none() {
        return Ok(this.clone());
    }
    let result = interp.call(run, &Value::Undefined, std::slice::from_ref(value));
    of_result(interp, result)
}

fn finally(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let run = super::callback(interp, args, 0)?;
    match interp.call(&run, &Value::Undefined, &[]) {
        Ok(_) => Ok(this.clone()),
        failed @ Err(_) => of_result(interp, failed),
    }
}

fn all(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let mut out = Vec::new();
    for item in interp.iterate(&arg(args, 0))? {
        match interp.awaited(item) {
            Ok(value) => out.push(value),
            failed @ Err(_) => return of_result(interp, failed),
        }
    }
    let list = interp.array(out);
    Ok(promise(interp, Ok(list)))
}

fn any(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    for item in interp.iterate(&arg(args, 0))? {
        if let Ok(value) = interp.awaited(item) {
            return Ok(promise(interp, Ok(value)));
        }
    }
    let failed = Err(interp.error("All promises were rejected"));
    of_result(interp, failed)
}

fn all_settled(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let mut out = Vec::new();
    for item in interp.iterate(&arg(args, 0))? {
        let mut props = Props::default();
        match interp.awaited(item) {
            Ok(value) => {
                props.set(&str_of("status"), Value::str("fulfilled"));
                props.set(&str_of("value"), value);
            }
            Err(Stop(why)) => match *why {
                Why::Throw(thrown) => {
                    props.set(&str_of("status"), Value::str("rejected"));
                    props.set(&str_of("reason"), thrown);
                }
                other @ (Why::Short | Why::Limit(_)) => return Err(Stop(Box::new(other))),
            },
        }
        out.push(interp.record(props));
    }
    let list = interp.array(out);
    Ok(promise(interp, Ok(list)))
}

/// Throws the reason of a rejected promise; for the host.
pub(crate) fn unwrapped(value: Value) -> Eval {
    match settled_as(&value) {
        Some(Ok(inner)) => Ok(inner),
        Some(Err(thrown)) => Err(throw(thrown)),
        None => Ok(value),
    }
}
