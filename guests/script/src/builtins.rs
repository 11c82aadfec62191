//! The standard library: one file per kind of value.

pub(crate) mod array;
pub(crate) mod collection;
pub(crate) mod date;
pub(crate) mod function;
pub(crate) mod host;
pub(crate) mod json;
pub(crate) mod math;
pub(crate) mod number;
pub(crate) mod object;
pub(crate) mod promise;
pub(crate) mod regex;
pub(crate) mod string;
pub(crate) mod uri;

use crate::interp::{Eval, Interp, shown};
use crate::value::Value;

/// An argument, or undefined.
pub(crate) fn arg(args: &[Value], index: usize) -> Value {
    args.get(index).cloned().unwrap_or_default()
}

/// An argument that must be a function.
pub(crate) fn callback(interp: &mut Interp<'_>, args: &[Value], index: usize) -> Eval {
    let given = arg(args, index);
    if given.as_callable().is_some() {
        return Ok(given);
    }
    Err(interp.type_error(format!("{} is not a function", shown(&given))))
}

/// A position in something of a length; negative ones count from the end.
pub(crate) fn position(
    interp: &mut Interp<'_>,
    args: &[Value],
    index: usize,
    length: usize,
    missing: usize,
) -> Eval<usize> {
    match args.get(index) {
        None | Some(Value::Undefined) => Ok(missing),
        Some(value) => {
            let at = interp.to_whole(value)?;
            let length = length as f64;
            let at = if at < 0.0 { (length + at).max(0.0) } else { at.min(length) };
            Ok(at as usize)
        }
    }
}
