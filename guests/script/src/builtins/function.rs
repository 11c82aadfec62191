//! Functions as values.

use std::rc::Rc;

use super::arg;
use crate::interp::{Eval, Interp};
use crate::native::NativeFn;
use crate::object::Body;
use crate::value::Value;

pub(crate) fn method(name: &str) -> Option<NativeFn> {
    Some(match name {
        "call" => |interp, this, args| {
            let rest = args.get(1..).unwrap_or_default();
            interp.call(this, &arg(args, 0), rest)
        },
        "apply" => |interp, this, args| {
            let list = match arg(args, 1) {
                Value::Undefined | Value::Null => Vec::new(),
                list => interp.iterate(&list)?,
            };
            interp.call(this, &arg(args, 0), &list)
        },
        "bind" => bind,
        "toString" => |interp, this, _| Ok(interp.to_str(this)?.into()),
        _other => return None,
    })
}

fn bind(interp: &mut Interp<'_>, this: &Value, args: &[Value]) -> Eval {
    let Some(target) = this.as_callable() else { return Ok(Value::Undefined) };
    let rest = args.get(1..).unwrap_or_default().to_vec();
    Ok(interp.object(Body::Bound { target: Rc::clone(target), this: arg(args, 0), args: rest }))
}
