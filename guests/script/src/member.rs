//! Properties: reading, setting and listing; and iteration.

use std::rc::Rc;

use crate::builtins;
use crate::interp::{ARRAY_ITEMS_MAX, Eval, Interp, shown};
use crate::native::{Member, NativeFn};
use crate::object::{Body, PRIVATE, array_index};
use crate::text::{Str, str_of};
use crate::value::Value;

impl Interp<'_> {
    pub(crate) fn get(&mut self, object: &Value, name: &str) -> Eval {
        self.get_str(object, &str_of(name))
    }

    pub(crate) fn get_str(&mut self, value: &Value, name: &Str) -> Eval {
        let found = match value {
            Value::Undefined | Value::Null | Value::Unset | Value::Cell(_) => {
                let name = name.as_str().trim_start_matches(PRIVATE);
                let message = format!("Cannot read properties of {} (reading '{name}')", shown(value));
                return Err(self.type_error(message));
            }
            Value::Str(text) => match name.as_str() {
                "length" => Some(Value::count(text.units())),
                index => array_index(index).map(|index| unit_of(text, index as usize)),
            },
            Value::Bool(_) | Value::Num(_) => None,
            Value::Obj(_) => self.own(value, name.as_str())?,
        };
        if let Some(found) = found {
            return Ok(found);
        }
        match self.method_of(value, name.as_str()) {
            Some(run) => Ok(self.native(name.as_str(), run)),
            None => Ok(Value::Undefined),
        }
    }

    /// An own property of an object, without built-in methods.
    fn own(&mut self, value: &Value, name: &str) -> Eval<Option<Value>> {
        let Some(object) = value.as_object() else { return Ok(None) };
        let found = match &*object.body.borrow() {
            Body::Record(record) => record.props.get(name).cloned(),
            Body::Array(items) => match name {
                "length" => Some(Value::count(items.len())),
                index => match array_index(index) {
                    Some(index) => Some(items.get(index as usize).cloned().unwrap_or_default()),
                    None => object.notes.borrow().as_ref().and_then(|notes| notes.get(name)).cloned(),
                },
            },
            Body::Closure(closure) => match name {
                "name" => Some(Value::str(&closure.function.name)),
                "length" => Some(Value::count(closure.function.params.len())),
                _other => None,
            },
            Body::Native { name: own, .. } if name == "name" => Some(Value::Str(Rc::clone(own))),
            Body::Namespace(namespace) if name == "name" => Some(Value::str(namespace.name)),
            Body::Class(class) if name == "name" && class.statics.get("name").is_none() => {
                Some(Value::str(&class.name))
            }
            Body::Map(table) | Body::Set(table) if name == "size" => Some(Value::count(table.len())),
            Body::Regex(regex) => builtins::regex::property(regex, name),
            Body::Native { .. }
            | Body::Bound { .. }
            | Body::Class(_)
            | Body::Namespace(_)
            | Body::Map(_)
            | Body::Set(_)
            | Body::Date(_)
            | Body::Promise(_)
            | Body::Iterator { .. } => None,
        };
        if found.is_some() {
            return Ok(found);
        }
        let namespace = match &*object.body.borrow() {
            Body::Namespace(namespace) => Some(*namespace),
            _other => None,
        };
        if let Some(namespace) = namespace {
            return Ok(match ((namespace.member)(name), name) {
                (Some(Member::Num(number)), _) => Some(Value::Num(number)),
                (Some(Member::Fn(run)), _) => Some(self.native(name, run)),
                // `Array.prototype.slice.call(…)`: the namespace stands for its prototype.
                (None, "prototype") => Some(value.clone()),
                (None, _) => namespace.methods.and_then(|find| find(name)).map(|run| self.native(name, run)),
            });
        }
        if let Some(found) = object.record_get(name).or_else(|| object.find_static(name)) {
            return Ok(Some(found));
        }
        Ok(match (name, object.class()) {
            ("constructor", Some(class)) => Some(Value::Obj(class)),
            ("name", Some(class)) if object.is_error() => Some(self.get(&Value::Obj(class), "name")?),
            ("stack", _) if object.is_error() => Some(Value::text(self.error_text(value)?)),
            _other => None,
        })
    }

    /// The built-in method for a kind of value.
    pub(crate) fn method_of(&self, value: &Value, name: &str) -> Option<NativeFn> {
        match value {
            Value::Str(_) => builtins::string::method(name),
            Value::Num(_) => builtins::number::method(name),
            Value::Bool(_) => builtins::object::method(name),
            Value::Undefined | Value::Null | Value::Unset | Value::Cell(_) => None,
            Value::Obj(object) => match &*object.body.borrow() {
                Body::Array(_) => builtins::array::method(name).or_else(|| builtins::object::method(name)),
                Body::Record(record) => {
                    let method = builtins::object::method(name)?;
                    let class = record.class.as_ref();
                    let own = record.props.get(name).is_some()
                        || class.is_some_and(|class| class.find_method(name).is_some());
                    if own { None } else { Some(method) }
                }
                Body::Map(_) => builtins::collection::map_method(name),
                Body::Set(_) => builtins::collection::set_method(name),
                Body::Iterator { .. } => builtins::collection::iterator_method(name),
                Body::Date(_) => builtins::date::method(name),
                Body::Regex(_) => builtins::regex::method(name),
                Body::Promise(_) => builtins::promise::method(name),
                Body::Closure(_) | Body::Native { .. } | Body::Bound { .. } => {
                    builtins::function::method(name)
                }
                Body::Namespace(namespace) => match (namespace.member)(name) {
                    Some(Member::Fn(run)) => Some(run),
                    Some(Member::Num(_)) => None,
                    None => builtins::function::method(name),
                },
                Body::Class(_) => None,
            },
        }
    }

    pub(crate) fn get_index(&mut self, object: &Value, index: &Value) -> Eval {
        if let Value::Num(number) = index
            && *number >= 0.0
            && number.trunc() == *number
        {
            let at = *number as usize;
            match object {
                Value::Obj(list) => {
                    if let Body::Array(items) = &*list.body.borrow() {
                        return Ok(items.get(at).cloned().unwrap_or_default());
                    }
                }
                Value::Str(text) => return Ok(unit_of(text, at)),
                _other => {}
            }
        }
        if object.is_nullish() {
            return self.get_str(object, &str_of(&shown(index)));
        }
        let name = self.to_key(index)?;
        self.get_str(object, &name)
    }

    pub(crate) fn set_index(&mut self, object: &Value, index: &Value, value: Value) -> Eval<()> {
        if let (Value::Obj(list), Value::Num(number)) = (object, index)
            && *number >= 0.0
            && number.trunc() == *number
            && matches!(&*list.body.borrow(), Body::Array(_))
        {
            return self.set_item(object, *number, value);
        }
        let name = self.to_key(index)?;
        self.set_str(object, &name, value)
    }

    fn set_item(&mut self, list: &Value, index: f64, value: Value) -> Eval<()> {
        if index >= ARRAY_ITEMS_MAX as f64 {
            return Err(self.range_error("Invalid array length"));
        }
        let at = index as usize;
        self.change_array(list, |items| {
            if items.len() <= at {
                items.resize(at.saturating_add(1), Value::Undefined);
            }
            if let Some(slot) = items.get_mut(at) {
                *slot = value;
            }
        })
    }

    /// Changes a list, unless it is frozen.
    pub(crate) fn change_array<T>(
        &mut self,
        list: &Value,
        change: impl FnOnce(&mut Vec<Value>) -> T,
    ) -> Eval<T> {
        let Some(object) = list.as_object() else {
            return Err(self.type_error(format!("{} is not a list", shown(list))));
        };
        if object.frozen.get() {
            return Err(self.type_error("Cannot change a frozen list"));
        }
        match &mut *object.body.borrow_mut() {
            Body::Array(items) => return Ok(change(items)),
            _other => {}
        }
        Err(self.type_error(format!("{} is not a list", shown(list))))
    }

    pub(crate) fn set_str(&mut self, object: &Value, name: &Str, value: Value) -> Eval<()> {
        let Some(target) = object.as_object() else {
            let name = name.as_str().trim_start_matches(PRIVATE);
            return Err(
                self.type_error(format!("Cannot set properties of {} (setting '{name}')", shown(object)))
            );
        };
        if target.frozen.get() {
            return Err(self.type_error(format!("Cannot assign to '{}' of a frozen object", name.as_str())));
        }
        if matches!(&*target.body.borrow(), Body::Array(_)) {
            return self.set_array_property(object, name, value);
        }
        let number = match &value {
            Value::Num(number) => *number,
            _other => f64::NAN,
        };
        let done = match &mut *target.body.borrow_mut() {
            Body::Record(record) => {
                record.props.set(name, value);
                true
            }
            Body::Class(class) => {
                class.statics.set(name, value);
                true
            }
            Body::Regex(regex) if name.as_str() == "lastIndex" => {
                regex.last_index = number as usize;
                true
            }
            _other => false,
        };
        if done {
            return Ok(());
        }
        Err(self.type_error(format!("'{}' can't be set on {}", name.as_str(), shown(object))))
    }

    fn set_array_property(&mut self, list: &Value, name: &Str, value: Value) -> Eval<()> {
        if let Some(index) = array_index(name.as_str()) {
            return self.set_item(list, f64::from(index), value);
        }
        if name.as_str() != "length" {
            return Err(self.type_error(format!("'{}' can't be set on a list", name.as_str())));
        }
        let length = self.to_num(&value)?;
        if !(0.0..=ARRAY_ITEMS_MAX as f64).contains(&length) || length.trunc() != length {
            return Err(self.range_error("Invalid array length"));
        }
        self.change_array(list, |items| items.resize(length as usize, Value::Undefined))
    }

    pub(crate) fn delete(&mut self, object: &Value, name: &Str) -> Eval<bool> {
        let Some(target) = object.as_object() else {
            return Err(self.type_error(format!("nothing can be deleted from {}", shown(object))));
        };
        if target.frozen.get() {
            return Err(self.type_error(format!("Cannot delete '{}' of a frozen object", name.as_str())));
        }
        match &mut *target.body.borrow_mut() {
            Body::Record(record) => {
                record.props.remove(name.as_str());
            }
            Body::Class(class) => {
                class.statics.remove(name.as_str());
            }
            Body::Array(items) => {
                let slot = array_index(name.as_str()).and_then(|index| items.get_mut(index as usize));
                if let Some(slot) = slot {
                    *slot = Value::Undefined;
                }
            }
            _other => {}
        }
        Ok(true)
    }

    /// `name in object`
    pub(crate) fn has(&mut self, object: &Value, name: &Str) -> Eval<bool> {
        if self.has_own(object, name) {
            return Ok(true);
        }
        let class_has = object.as_object().is_some_and(|object| object.record_get(name.as_str()).is_some());
        Ok(class_has || self.method_of(object, name.as_str()).is_some())
    }

    pub(crate) fn has_own(&self, value: &Value, name: &Str) -> bool {
        match value {
            Value::Obj(object) => match &*object.body.borrow() {
                Body::Record(record) => record.props.get(name.as_str()).is_some(),
                Body::Array(items) => {
                    name.as_str() == "length"
                        || array_index(name.as_str()).is_some_and(|index| (index as usize) < items.len())
                }
                Body::Class(class) => class.statics.get(name.as_str()).is_some(),
                Body::Namespace(namespace) => (namespace.member)(name.as_str()).is_some(),
                _other => false,
            },
            Value::Str(text) => {
                name.as_str() == "length"
                    || array_index(name.as_str()).is_some_and(|index| (index as usize) < text.units())
            }
            _other => false,
        }
    }

    /// Enumerable names and values.
    pub(crate) fn entries_of(&mut self, value: &Value) -> Eval<Vec<(Str, Value)>> {
        let numbered = |items: Vec<Value>| {
            let named = |(index, item): (usize, Value)| (str_of(&index.to_string()), item);
            items.into_iter().enumerate().map(named).collect::<Vec<_>>()
        };
        Ok(match value {
            Value::Str(_) => {
                let units: Vec<Value> = match value {
                    Value::Str(text) => (0..text.units()).map(|index| unit_of(text, index)).collect(),
                    _other => Vec::new(),
                };
                numbered(units)
            }
            Value::Obj(object) => match &*object.body.borrow() {
                Body::Record(record) => {
                    let mut all = record.props.listed();
                    if record.error_at.is_some() {
                        all.retain(|(name, _)| !matches!(name.as_str(), "message" | "cause" | "stack"));
                    }
                    all
                }
                Body::Array(items) => numbered(items.clone()),
                Body::Class(class) => class.statics.listed(),
                _other => Vec::new(),
            },
            _other => Vec::new(),
        })
    }

    pub(crate) fn keys_of(&mut self, value: &Value) -> Eval<Vec<Str>> {
        Ok(self.entries_of(value)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Any iterable as a list.
    pub(crate) fn iterate(&mut self, value: &Value) -> Eval<Vec<Value>> {
        let pairs = match value {
            Value::Str(text) => {
                return Ok(text.as_str().chars().map(|c| Value::text(c.to_string())).collect());
            }
            Value::Obj(object) => match &mut *object.body.borrow_mut() {
                Body::Array(items) => return Ok(items.clone()),
                Body::Set(table) => return Ok(table.entries().into_iter().map(|(key, _)| key).collect()),
                Body::Iterator { items, next } => {
                    let left = items.split_off((*next).min(items.len()));
                    return Ok(left);
                }
                Body::Map(table) => Some(table.entries()),
                _other => None,
            },
            _other => None,
        };
        match pairs {
            Some(pairs) => Ok(pairs.into_iter().map(|(key, value)| self.array(vec![key, value])).collect()),
            None => Err(self.type_error(format!("{} can't be gone through: it is not a list", shown(value)))),
        }
    }
}

/// One UTF-16 unit as a text; undefined beyond the end.
pub(crate) fn unit_of(text: &Str, index: usize) -> Value {
    if index >= text.units() {
        Value::Undefined
    } else {
        Value::Str(text.slice(index, index.saturating_add(1)))
    }
}
