//! Values and their JavaScript conversions.

use std::cell::RefCell;
use std::rc::Rc;

use crate::object::{Body, Object};
use crate::text::{Str, Text, str_of};

/// A value of the language, and two internal values of slots.
#[derive(Debug, Clone, Default)]
pub(crate) enum Value {
    #[default]
    Undefined,
    Null,
    Bool(bool),
    Num(f64),
    Str(Str),
    Obj(Rc<Object>),
    /// Declared but not initialized.
    Unset,
    /// A captured variable.
    Cell(Caught),
}

pub(crate) type Caught = Rc<RefCell<Value>>;

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Str(Rc::new(Text::from(text.into())))
    }

    pub(crate) fn str(text: &str) -> Self {
        Self::Str(str_of(text))
    }

    pub(crate) fn count(number: usize) -> Self {
        Self::Num(number as f64)
    }

    pub(crate) fn is_nullish(&self) -> bool {
        matches!(self, Self::Undefined | Self::Null)
    }

    pub(crate) fn truthy(&self) -> bool {
        match self {
            Self::Undefined | Self::Null | Self::Unset => false,
            Self::Bool(value) => *value,
            Self::Num(number) => *number != 0.0 && !number.is_nan(),
            Self::Str(text) => text.units() > 0,
            Self::Obj(_) => true,
            Self::Cell(cell) => cell.borrow().truthy(),
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined | Self::Unset => "undefined",
            Self::Null => "object",
            Self::Bool(_) => "boolean",
            Self::Num(_) => "number",
            Self::Str(_) => "string",
            Self::Obj(object) if object.is_callable() => "function",
            Self::Obj(_) => "object",
            Self::Cell(cell) => cell.borrow().type_name(),
        }
    }

    pub(crate) fn as_object(&self) -> Option<&Rc<Object>> {
        match self {
            Self::Obj(object) => Some(object),
            Self::Undefined
            | Self::Null
            | Self::Bool(_)
            | Self::Num(_)
            | Self::Str(_)
            | Self::Unset
            | Self::Cell(_) => None,
        }
    }

    /// The object, if it is callable.
    pub(crate) fn as_callable(&self) -> Option<&Rc<Object>> {
        self.as_object().filter(|object| object.is_callable())
    }

    /// A copy of the elements, if it is a list.
    pub(crate) fn elements(&self) -> Option<Vec<Value>> {
        match &*self.as_object()?.body.borrow() {
            Body::Array(items) => Some(items.clone()),
            _other => None,
        }
    }

    pub(crate) fn is_array(&self) -> bool {
        self.as_object().is_some_and(|object| matches!(&*object.body.borrow(), Body::Array(_)))
    }

    /// `===`
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Undefined, Self::Undefined) | (Self::Null, Self::Null) => true,
            (Self::Bool(left), Self::Bool(right)) => left == right,
            (Self::Num(left), Self::Num(right)) => left == right,
            (Self::Str(left), Self::Str(right)) => left.as_str() == right.as_str(),
            (Self::Obj(left), Self::Obj(right)) => Rc::ptr_eq(left, right),
            _other => false,
        }
    }

    /// Like `===`, but NaN equals itself: the comparison of maps, sets and `includes`.
    pub(crate) fn same_or_nan(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Num(left), Self::Num(right)) if left.is_nan() => right.is_nan(),
            _other => self.same(other),
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Num(number)
    }
}

impl From<Str> for Value {
    fn from(text: Str) -> Self {
        Self::Str(text)
    }
}
