//! Numbers and booleans.

use super::arg;
use crate::interp::{Eval, Interp};
use crate::native::{Member, Namespace, NativeFn};
use crate::number;
use crate::value::Value;

pub(crate) static NUMBER: Namespace =
    Namespace { name: "Number", call: Some(convert), construct: None, member, methods: Some(method) };

pub(crate) static BOOLEAN: Namespace = Namespace {
    name: "Boolean",
    call: Some(|_, _, args| Ok(arg(args, 0).truthy().into())),
    construct: None,
    member: |_| None,
    methods: None,
};

/// The largest safe integer.
const SAFE_MAX: f64 = 9_007_199_254_740_991.0;

fn member(name: &str) -> Option<Member> {
    Some(match name {
        "MAX_SAFE_INTEGER" => Member::Num(SAFE_MAX),
        "MIN_SAFE_INTEGER" => Member::Num(-SAFE_MAX),
        "MAX_VALUE" => Member::Num(f64::MAX),
        "MIN_VALUE" => Member::Num(5e-324),
        "EPSILON" => Member::Num(f64::EPSILON),
        "POSITIVE_INFINITY" => Member::Num(f64::INFINITY),
        "NEGATIVE_INFINITY" => Member::Num(f64::NEG_INFINITY),
        "NaN" => Member::Num(f64::NAN),
        "isInteger" => Member::Fn(|_, _, args| Ok(own(args, |x| x.is_finite() && x.trunc() == x))),
        "isSafeInteger" => Member::Fn(|_, _, args| Ok(own(args, |x| x.trunc() == x && x.abs() <= SAFE_MAX))),
        "isFinite" => Member::Fn(|_, _, args| Ok(own(args, f64::is_finite))),
        "isNaN" => Member::Fn(|_, _, args| Ok(own(args, f64::is_nan))),
        "parseInt" => Member::Fn(parse_int),
        "parseFloat" => Member::Fn(parse_float),
        _other => return None,
    })
}

pub(crate) fn method(name: &str) -> Option<NativeFn> {
    Some(match name {
        "toFixed" => to_fixed,
        "toPrecision" => to_precision,
        "toExponential" => to_exponential,
        "toString" => to_string,
        "toLocaleString" => to_locale_string,
        "valueOf" => |_, this, _| Ok(this.clone()),
        _other => return None,
    })
}

/// A test of a number, without conversion.
fn own(args: &[Value], holds: fn(f64) -> bool) -> Value {
    match args.first() {
        Some(Value::Num(number)) => holds(*number).into(),
        Some(_) | None => false.into(),
    }
}

fn convert(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    match args.first() {
        None => Ok(Value::Num(0.0)),
        Some(value) => Ok(Value::Num(interp.to_num(value)?)),
    }
}

pub(crate) fn parse_int(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let text = interp.to_str(&arg(args, 0))?;
    let radix = interp.to_num(&arg(args, 1))?;
    Ok(Value::Num(number::whole(text.as_str(), number::to_u32(radix))))
}

pub(crate) fn parse_float(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    Ok(Value::Num(number::leading(interp.to_str(&arg(args, 0))?.as_str())))
}

pub(crate) fn is_nan(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    Ok(interp.to_num(&arg(args, 0))?.is_nan().into())
}

pub(crate) fn is_finite(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    Ok(interp.to_num(&arg(args, 0))?.is_finite().into())
}

fn digits(interp: &mut Interp<'_>, args: &[Value], least: f64, most: f64) -> Eval<usize> {
    let digits = interp.to_whole(&arg(args, 0))?;
    if !(least..=most).contains(&digits) {
        return Err(interp.range_error(format!("digits must be between {least} and {most}")));
    }
    Ok(digits as usize)
}

fn to_fixed(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let places = digits(interp, args, 0.0, 100.0)?;
    Ok(Value::text(number::to_fixed(interp.to_num(this)?, places)))
}

fn to_precision(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let number = interp.to_num(this)?;
    if matches!(arg(args, 0), Value::Undefined) {
        return Ok(Value::text(number::to_text(number)));
    }
    let digits = digits(interp, args, 1.0, 100.0)?;
    Ok(Value::text(number::to_precision(number, digits)))
}

fn to_exponential(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let number = interp.to_num(this)?;
    let places = match arg(args, 0) {
        Value::Undefined => None,
        _given => Some(digits(interp, args, 0.0, 100.0)?),
    };
    Ok(Value::text(number::to_exponential(number, places)))
}

fn to_string(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let number = interp.to_num(this)?;
    let radix = match arg(args, 0) {
        Value::Undefined => 10.0,
        given => interp.to_whole(&given)?,
    };
    if !(2.0..=36.0).contains(&radix) {
        return Err(interp.range_error("toString() radix must be between 2 and 36"));
    }
    Ok(Value::text(if radix == 10.0 {
        number::to_text(number)
    } else {
        number::in_other_radix(number, radix as u32)
    }))
}

/// English format: `1,234.5`. Supports only the options for fraction digits.
fn to_locale_string(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let number = interp.to_num(this)?;
    let options = arg(args, 1);
    let (mut least, mut most) = (0.0, 3.0);
    if options.as_object().is_some() {
        let given = interp.get(&options, "minimumFractionDigits")?;
        if !given.is_nullish() {
            least = interp.to_whole(&given)?.clamp(0.0, 100.0);
            most = least.max(most);
        }
        let given = interp.get(&options, "maximumFractionDigits")?;
        if !given.is_nullish() {
            most = interp.to_whole(&given)?.clamp(0.0, 100.0);
        }
    }
    Ok(Value::text(number::grouped(number, least as usize, most as usize)))
}
