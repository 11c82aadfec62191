//! Operators, and conversions to numbers, strings and keys.

use std::rc::Rc;

use crate::ast::Binary;
use crate::interp::{Eval, Interp, STRING_UNITS_MAX, shown};
use crate::number::{from_text, to_i32, to_text, to_u32};
use crate::object::{Body, Object};
use crate::text::{Str, Text, str_of};
use crate::value::Value;

/// Maximum nesting of lists to join.
const JOIN_DEPTH_MAX: u32 = 40;

impl Interp<'_> {
    pub(crate) fn binary(&mut self, op: Binary, left: Value, right: Value) -> Eval {
        if let (Value::Num(left), Value::Num(right)) = (&left, &right)
            && let Some(value) = of_numbers(op, *left, *right)
        {
            return Ok(value);
        }
        match op {
            Binary::Add => self.add(left, right),
            Binary::Same => Ok(left.same(&right).into()),
            Binary::NotSame => Ok((!left.same(&right)).into()),
            Binary::Eq => Ok(self.loosely_equal(&left, &right)?.into()),
            Binary::NotEq => Ok((!self.loosely_equal(&left, &right)?).into()),
            Binary::Less | Binary::LessEq | Binary::More | Binary::MoreEq => self.compare(op, &left, &right),
            Binary::In => self.is_in(&left, &right).map(Value::Bool),
            Binary::InstanceOf => self.is_instance(&left, &right).map(Value::Bool),
            Binary::Sub
            | Binary::Mul
            | Binary::Div
            | Binary::Rem
            | Binary::Pow
            | Binary::BitAnd
            | Binary::BitOr
            | Binary::BitXor
            | Binary::Shl
            | Binary::Shr
            | Binary::UShr => {
                let (left, right) = (self.to_num(&left)?, self.to_num(&right)?);
                Ok(of_numbers(op, left, right).unwrap_or(Value::Num(f64::NAN)))
            }
        }
    }

    fn add(&mut self, left: Value, right: Value) -> Eval {
        let (left, right) = (self.to_primitive(left, false)?, self.to_primitive(right, false)?);
        match (left, right) {
            (Value::Str(left), right) => {
                let right = self.to_str(&right)?;
                self.joined(left, &right)
            }
            (left, Value::Str(right)) => {
                let left = self.to_str(&left)?;
                self.joined(left, &right)
            }
            (left, right) => Ok(Value::Num(self.to_num(&left)? + self.to_num(&right)?)),
        }
    }

    /// Grows the left text in place if it isn't shared.
    fn joined(&mut self, mut left: Str, right: &Text) -> Eval {
        if left.units().saturating_add(right.units()) > STRING_UNITS_MAX {
            return Err(self.range_error("Invalid string length"));
        }
        match Rc::get_mut(&mut left) {
            Some(text) => text.push(right),
            None => {
                let mut text = Text::from(String::with_capacity(
                    left.as_str().len().saturating_add(right.as_str().len()),
                ));
                text.push(&left);
                text.push(right);
                left = Rc::new(text);
            }
        }
        Ok(Value::Str(left))
    }

    fn compare(&mut self, op: Binary, left: &Value, right: &Value) -> Eval {
        let left = self.to_primitive(left.clone(), true)?;
        let right = self.to_primitive(right.clone(), true)?;
        if let (Value::Str(left), Value::Str(right)) = (&left, &right) {
            let order = compare_units(left, right);
            return Ok(Value::Bool(match op {
                Binary::Less => order.is_lt(),
                Binary::LessEq => order.is_le(),
                Binary::More => order.is_gt(),
                _other => order.is_ge(),
            }));
        }
        let (left, right) = (self.to_num(&left)?, self.to_num(&right)?);
        Ok(of_numbers(op, left, right).unwrap_or(Value::Bool(false)))
    }

    pub(crate) fn loosely_equal(&mut self, left: &Value, right: &Value) -> Eval<bool> {
        Ok(match (left, right) {
            (Value::Undefined | Value::Null, other) | (other, Value::Undefined | Value::Null) => {
                other.is_nullish() && left.is_nullish()
            }
            (Value::Obj(_), Value::Obj(_)) | (Value::Str(_), Value::Str(_)) => left.same(right),
            (Value::Obj(_), _) => {
                let left = self.to_primitive(left.clone(), false)?;
                left.as_object().is_none() && self.loosely_equal(&left, right)?
            }
            (_, Value::Obj(_)) => self.loosely_equal(right, left)?,
            _other => self.to_num(left)? == self.to_num(right)?,
        })
    }

    fn is_in(&mut self, name: &Value, object: &Value) -> Eval<bool> {
        let name = self.to_key(name)?;
        match object {
            Value::Obj(_) => self.has(object, &name),
            _other => Err(self.type_error(format!("Cannot use 'in' to search in {}", shown(object)))),
        }
    }

    fn is_instance(&mut self, value: &Value, class: &Value) -> Eval<bool> {
        let Some(class) = class.as_object() else {
            return Err(self.type_error("the right side of 'instanceof' is not a class"));
        };
        let namespace = match &*class.body.borrow() {
            Body::Class(_) => None,
            Body::Namespace(namespace) => Some(namespace.name),
            _other => Some(""),
        };
        let Some(object) = value.as_object() else { return Ok(false) };
        let Some(namespace) = namespace else {
            return Ok(object.class().is_some_and(|own| own.is_below(class)));
        };
        Ok(match &*object.body.borrow() {
            Body::Array(_) => matches!(namespace, "Array" | "Object"),
            Body::Map(_) => matches!(namespace, "Map" | "Object"),
            Body::Set(_) => matches!(namespace, "Set" | "Object"),
            Body::Date(_) => matches!(namespace, "Date" | "Object"),
            Body::Regex(_) => matches!(namespace, "RegExp" | "Object"),
            Body::Promise(_) => matches!(namespace, "Promise" | "Object"),
            Body::Record(_)
            | Body::Closure(_)
            | Body::Native { .. }
            | Body::Bound { .. }
            | Body::Class(_)
            | Body::Namespace(_)
            | Body::Iterator { .. } => namespace == "Object",
        })
    }

    /// Converts to a primitive with `valueOf` or `toString`; the hint decides which is tried first.
    pub(crate) fn to_primitive(&mut self, value: Value, number: bool) -> Eval {
        let Value::Obj(object) = &value else { return Ok(value) };
        if let Body::Date(ms) = &*object.body.borrow()
            && number
        {
            return Ok(Value::Num(*ms));
        }
        if let Some(method) = object.record_get("valueOf").filter(|method| method.as_callable().is_some()) {
            let given = self.deeper(|interp| interp.call(&method, &value, &[]))?;
            if given.as_object().is_none() {
                return Ok(given);
            }
        }
        self.to_str(&value).map(Value::Str)
    }

    pub(crate) fn to_num(&mut self, value: &Value) -> Eval<f64> {
        Ok(match value {
            Value::Num(number) => *number,
            Value::Undefined | Value::Unset | Value::Cell(_) => f64::NAN,
            Value::Null => 0.0,
            Value::Bool(value) => f64::from(u8::from(*value)),
            Value::Str(text) => from_text(text.as_str()),
            Value::Obj(_) => {
                let value = self.to_primitive(value.clone(), true)?;
                return if value.as_object().is_some() { Ok(f64::NAN) } else { self.to_num(&value) };
            }
        })
    }

    /// An integer for positions and counts; NaN becomes 0.
    pub(crate) fn to_whole(&mut self, value: &Value) -> Eval<f64> {
        let number = self.to_num(value)?;
        Ok(if number.is_nan() { 0.0 } else { number.trunc() })
    }

    pub(crate) fn to_str(&mut self, value: &Value) -> Eval<Str> {
        Ok(match value {
            Value::Str(text) => Rc::clone(text),
            Value::Undefined | Value::Unset | Value::Cell(_) => str_of("undefined"),
            Value::Null => str_of("null"),
            Value::Bool(true) => str_of("true"),
            Value::Bool(false) => str_of("false"),
            Value::Num(number) => Rc::new(Text::from(to_text(*number))),
            Value::Obj(object) => return self.object_to_str(object, value),
        })
    }

    fn object_to_str(&mut self, object: &Rc<Object>, value: &Value) -> Eval<Str> {
        if let Some(method) = object.record_get("toString").filter(|method| method.as_callable().is_some()) {
            let given = self.deeper(|interp| interp.call(&method, value, &[]))?;
            if given.as_object().is_none() {
                return self.to_str(&given);
            }
        }
        if object.is_error() {
            let text = self.error_text(value)?;
            return Ok(str_of(&text));
        }
        let text = match &*object.body.borrow() {
            Body::Array(_) => None,
            Body::Record(_) => Some("[object Object]".to_owned()),
            Body::Closure(closure) => Some(format!("function {}() {{ [code] }}", closure.function.name)),
            Body::Native { name, .. } => Some(format!("function {}() {{ [native code] }}", name.as_str())),
            Body::Bound { .. } => Some("function () { [native code] }".to_owned()),
            Body::Class(class) => Some(format!("class {} {{ [code] }}", class.name)),
            Body::Namespace(namespace) => Some(format!("[object {}]", namespace.name)),
            Body::Map(_) => Some("[object Map]".to_owned()),
            Body::Set(_) => Some("[object Set]".to_owned()),
            Body::Date(ms) => Some(crate::date::text(*ms)),
            Body::Regex(regex) => Some(format!("/{}/{}", regex.pattern.source, regex.pattern.flags)),
            Body::Promise(_) => Some("[object Promise]".to_owned()),
            Body::Iterator { .. } => Some("[object Iterator]".to_owned()),
        };
        match text {
            Some(text) => Ok(Rc::new(Text::from(text))),
            None => self.join(value, ","),
        }
    }

    /// `Name: message`.
    pub(crate) fn error_text(&mut self, value: &Value) -> Eval<String> {
        let name = self.get(value, "name")?;
        let message = self.get(value, "message")?;
        let (name, message) = (self.to_str(&name)?, self.to_str(&message)?);
        Ok(match (name.as_str(), message.as_str()) {
            (name, "") => name.to_owned(),
            ("", message) => message.to_owned(),
            (name, message) => format!("{name}: {message}"),
        })
    }

    /// The elements of a list as one text.
    pub(crate) fn join(&mut self, list: &Value, between: &str) -> Eval<Str> {
        let items = list.elements().unwrap_or_default();
        let mut out = String::new();
        self.deeper(|interp| {
            if interp.depth > interp.depth_max.saturating_sub(JOIN_DEPTH_MAX) {
                return Err(interp.range_error("Maximum call stack size exceeded"));
            }
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(between);
                }
                if !item.is_nullish() {
                    out.push_str(interp.to_str(item)?.as_str());
                }
                if out.len() > STRING_UNITS_MAX {
                    return Err(interp.range_error("Invalid string length"));
                }
            }
            Ok(())
        })?;
        Ok(Rc::new(Text::from(out)))
    }

    pub(crate) fn to_key(&mut self, value: &Value) -> Eval<Str> {
        self.to_str(value)
    }
}

/// The order of texts by their UTF-16 units.
pub(crate) fn compare_units(left: &Text, right: &Text) -> std::cmp::Ordering {
    left.as_str().encode_utf16().cmp(right.as_str().encode_utf16())
}

/// The result of an operator on two numbers; `None` if it isn't numeric.
fn of_numbers(op: Binary, left: f64, right: f64) -> Option<Value> {
    Some(match op {
        Binary::Add => Value::Num(left + right),
        Binary::Sub => Value::Num(left - right),
        Binary::Mul => Value::Num(left * right),
        Binary::Div => Value::Num(left / right),
        Binary::Rem => Value::Num(left % right),
        Binary::Pow => Value::Num(power(left, right)),
        Binary::BitAnd => Value::Num(f64::from(to_i32(left) & to_i32(right))),
        Binary::BitOr => Value::Num(f64::from(to_i32(left) | to_i32(right))),
        Binary::BitXor => Value::Num(f64::from(to_i32(left) ^ to_i32(right))),
        Binary::Shl => Value::Num(f64::from(to_i32(left).wrapping_shl(to_u32(right) & 31))),
        Binary::Shr => Value::Num(f64::from(to_i32(left).wrapping_shr(to_u32(right) & 31))),
        Binary::UShr => Value::Num(f64::from(to_u32(left).wrapping_shr(to_u32(right) & 31))),
        Binary::Eq | Binary::Same => Value::Bool(left == right),
        Binary::NotEq | Binary::NotSame => Value::Bool(left != right),
        Binary::Less => Value::Bool(left < right),
        Binary::LessEq => Value::Bool(left <= right),
        Binary::More => Value::Bool(left > right),
        Binary::MoreEq => Value::Bool(left >= right),
        Binary::In | Binary::InstanceOf => return None,
    })
}

/// `**`, which differs from `powf` for NaN and infinity.
pub(crate) fn power(left: f64, right: f64) -> f64 {
    if right.is_nan() || (left.abs() == 1.0 && right.is_infinite()) { f64::NAN } else { left.powf(right) }
}
