//! `Date`. The clock is the host's; the calendar is UTC.

use super::arg;
use crate::date::{self, Parts};
use crate::interp::{Eval, Interp};
use crate::native::{Member, Namespace, NativeFn};
use crate::object::Body;
use crate::value::Value;

pub(crate) static DATE: Namespace = Namespace {
    name: "Date",
    call: Some(as_text),
    construct: Some(construct),
    member,
    methods: Some(method),
};

fn member(name: &str) -> Option<Member> {
    Some(Member::Fn(match name {
        "now" => super::host::now,
        "parse" => |interp, _, args| Ok(Value::Num(date::parse(interp.to_str(&arg(args, 0))?.as_str()))),
        "UTC" => |interp, _, args| Ok(Value::Num(date::to_ms(&from_fields(interp, args)?))),
        _other => return None,
    }))
}

macro_rules! getter {
    ($pick:expr) => {
        |interp, this, _| {
            let ms = ms_of(interp, this)?;
            let pick: fn(f64) -> f64 = $pick;
            Ok(Value::Num(if ms.is_nan() { f64::NAN } else { pick(ms) }))
        }
    };
}

macro_rules! setter {
    ($($field:ident),+) => {
        |interp, this, args| {
            let ms = ms_of(interp, this)?;
            let mut parts = date::parts(if ms.is_nan() { 0.0 } else { ms });
            let mut given = args.iter();
            $(if let Some(value) = given.next() {
                parts.$field = interp.to_num(value)?;
            })+
            set(this, date::to_ms(&parts))
        }
    };
}

macro_rules! shower {
    ($show:expr) => {
        |interp, this, _| {
            let ms = ms_of(interp, this)?;
            let show: fn(f64) -> String = $show;
            Ok(Value::text(if ms.is_nan() { "Invalid Date".to_owned() } else { show(ms) }))
        }
    };
}

pub(crate) fn method(name: &str) -> Option<NativeFn> {
    Some(match name {
        "getTime" | "valueOf" => getter!(|ms| ms),
        "getFullYear" | "getUTCFullYear" => getter!(|ms| date::parts(ms).year),
        "getMonth" | "getUTCMonth" => getter!(|ms| date::parts(ms).month),
        "getDate" | "getUTCDate" => getter!(|ms| date::parts(ms).day),
        "getDay" | "getUTCDay" => getter!(date::weekday),
        "getHours" | "getUTCHours" => getter!(|ms| date::parts(ms).hour),
        "getMinutes" | "getUTCMinutes" => getter!(|ms| date::parts(ms).minute),
        "getSeconds" | "getUTCSeconds" => getter!(|ms| date::parts(ms).second),
        "getMilliseconds" | "getUTCMilliseconds" => getter!(|ms| date::parts(ms).ms),
        "getTimezoneOffset" => getter!(|_| 0.0),
        "setTime" => |interp, this, args| {
            let ms = interp.to_num(&arg(args, 0))?;
            set(this, date::clipped(ms))
        },
        "setFullYear" | "setUTCFullYear" => setter!(year, month, day),
        "setMonth" | "setUTCMonth" => setter!(month, day),
        "setDate" | "setUTCDate" => setter!(day),
        "setHours" | "setUTCHours" => setter!(hour, minute, second, ms),
        "setMinutes" | "setUTCMinutes" => setter!(minute, second, ms),
        "setSeconds" | "setUTCSeconds" => setter!(second, ms),
        "setMilliseconds" | "setUTCMilliseconds" => setter!(ms),
        "toISOString" => to_iso,
        "toJSON" => |interp, this, _| {
            let ms = ms_of(interp, this)?;
            Ok(date::iso(ms).map_or(Value::Null, Value::text))
        },
        "toString" => shower!(date::text),
        "toDateString" => shower!(date::date_text),
        "toTimeString" => {
            shower!(|ms| format!("{} GMT+0000 (Coordinated Universal Time)", date::time_text(ms)))
        }
        "toUTCString" | "toGMTString" => shower!(date::utc_text),
        "toLocaleDateString" => shower!(date::locale_date),
        "toLocaleTimeString" => shower!(date::locale_time),
        "toLocaleString" => shower!(|ms| format!("{}, {}", date::locale_date(ms), date::locale_time(ms))),
        _other => return None,
    })
}

fn ms_of(interp: &mut Interp<'_>, this: &Value) -> Eval<f64> {
    let ms = this.as_object().and_then(|object| match &*object.body.borrow() {
        Body::Date(ms) => Some(*ms),
        _other => None,
    });
    match ms {
        Some(ms) => Ok(ms),
        None => Err(interp.type_error("this is not a Date")),
    }
}

fn set(this: &Value, ms: f64) -> Eval {
    if let Some(object) = this.as_object()
        && let Body::Date(own) = &mut *object.body.borrow_mut()
    {
        *own = ms;
    }
    Ok(Value::Num(ms))
}

fn to_iso(interp: &mut Interp<'_>, this: &Value, _args: &[Value]) -> Eval {
    let ms = ms_of(interp, this)?;
    match date::iso(ms) {
        Some(text) => Ok(Value::text(text)),
        None => Err(interp.range_error("Invalid time value")),
    }
}

fn as_text(interp: &mut Interp<'_>, _this: &Value, _args: &[Value]) -> Eval {
    Ok(Value::text(date::text(interp.host.now_ms() as f64)))
}

/// Year, month, day and so on, as `new Date` takes them.
fn from_fields(interp: &mut Interp<'_>, args: &[Value]) -> Eval<Parts> {
    let mut parts =
        Parts { year: f64::NAN, month: 0.0, day: 1.0, hour: 0.0, minute: 0.0, second: 0.0, ms: 0.0 };
    let fields = [
        &mut parts.year,
        &mut parts.month,
        &mut parts.day,
        &mut parts.hour,
        &mut parts.minute,
        &mut parts.second,
        &mut parts.ms,
    ];
    for (field, value) in fields.into_iter().zip(args) {
        *field = interp.to_num(value)?;
    }
    if (0.0..100.0).contains(&parts.year) {
        parts.year += 1900.0;
    }
    Ok(parts)
}

fn construct(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let ms = match args {
        [] => interp.host.now_ms() as f64,
        [one] => match interp.to_primitive(one.clone(), true)? {
            Value::Str(text) => date::parse(text.as_str()),
            other => date::clipped(interp.to_num(&other)?),
        },
        _fields => date::to_ms(&from_fields(interp, args)?),
    };
    Ok(interp.object(Body::Date(ms)))
}
