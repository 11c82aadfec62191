//! Values with identity: objects, lists, functions, maps, dates. And the heap that frees all of them at the end of a run.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::rc::{Rc, Weak};

use crate::ast::Function;
use crate::native::{Namespace, NativeFn};
use crate::regex::Regex;
use crate::text::Str;
use crate::value::{Caught, Value};

/// The internal prefix of private names. No source can spell it.
pub(crate) const PRIVATE: char = '\u{0}';

#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) body: RefCell<Body>,
    pub(crate) frozen: Cell<bool>,
    /// Properties of a regex match besides its groups.
    pub(crate) notes: RefCell<Option<Box<Props>>>,
}

#[derive(Debug)]
pub(crate) enum Body {
    Record(Record),
    Array(Vec<Value>),
    Closure(Closure),
    Native {
        name: Str,
        run: NativeFn,
    },
    Bound {
        target: Rc<Object>,
        this: Value,
        args: Vec<Value>,
    },
    Class(Box<ClassBody>),
    Namespace(&'static Namespace),
    Map(Table),
    Set(Table),
    /// Milliseconds since 1970, or NaN.
    Date(f64),
    Regex(Regex),
    Promise(Result<Value, Value>),
    Iterator {
        items: Vec<Value>,
        next: usize,
    },
}

/// An ordinary object, an instance of a class, or an error.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) props: Props,
    pub(crate) class: Option<Rc<Object>>,
    /// For an error, where it was created.
    pub(crate) error_at: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Closure {
    pub(crate) function: Rc<Function>,
    pub(crate) caught: Rc<[Caught]>,
    /// The class that a method belongs to, for `super`.
    pub(crate) home: Option<Rc<Object>>,
}

#[derive(Debug)]
pub(crate) struct ClassBody {
    pub(crate) name: Rc<str>,
    pub(crate) parent: Option<Rc<Object>>,
    pub(crate) constructor: Option<Rc<Object>>,
    pub(crate) fields: Option<Rc<Object>>,
    pub(crate) methods: Props,
    pub(crate) statics: Props,
    pub(crate) is_error: bool,
}

impl Object {
    pub(crate) fn is_callable(&self) -> bool {
        match &*self.body.borrow() {
            Body::Closure(_) | Body::Native { .. } | Body::Bound { .. } | Body::Class(_) => true,
            Body::Namespace(namespace) => namespace.call.is_some(),
            Body::Record(_)
            | Body::Array(_)
            | Body::Map(_)
            | Body::Set(_)
            | Body::Date(_)
            | Body::Regex(_)
            | Body::Promise(_)
            | Body::Iterator { .. } => false,
        }
    }

    /// An own property, or a method of the class or a base class.
    pub(crate) fn record_get(&self, name: &str) -> Option<Value> {
        let class = match &*self.body.borrow() {
            Body::Record(record) => match record.props.get(name) {
                Some(value) => return Some(value.clone()),
                None => record.class.clone()?,
            },
            _other => return None,
        };
        class.find_method(name)
    }

    /// A method of a class or a base class.
    pub(crate) fn find_method(&self, name: &str) -> Option<Value> {
        let parent = match &*self.body.borrow() {
            Body::Class(class) => match class.methods.get(name) {
                Some(value) => return Some(value.clone()),
                None => class.parent.clone()?,
            },
            _other => return None,
        };
        parent.find_method(name)
    }

    pub(crate) fn find_static(&self, name: &str) -> Option<Value> {
        let parent = match &*self.body.borrow() {
            Body::Class(class) => match class.statics.get(name) {
                Some(value) => return Some(value.clone()),
                None => class.parent.clone()?,
            },
            _other => return None,
        };
        parent.find_static(name)
    }

    /// Whether a class equals another or derives from it.
    pub(crate) fn is_below(self: &Rc<Self>, other: &Rc<Object>) -> bool {
        let mut class = Some(Rc::clone(self));
        while let Some(one) = class {
            if Rc::ptr_eq(&one, other) {
                return true;
            }
            class = match &*one.body.borrow() {
                Body::Class(body) => body.parent.clone(),
                _other => None,
            };
        }
        false
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(&*self.body.borrow(), Body::Record(record) if record.error_at.is_some())
    }

    pub(crate) fn class(&self) -> Option<Rc<Object>> {
        match &*self.body.borrow() {
            Body::Record(record) => record.class.clone(),
            _other => None,
        }
    }
}

/// Properties in insertion order, as JavaScript lists them.
#[derive(Debug, Default)]
pub(crate) struct Props {
    entries: Vec<Option<(Str, Value)>>,
    /// The index of each name, once there are many.
    index: Option<HashMap<Rc<str>, usize, Hasher>>,
    gone: usize,
}

type Hasher = BuildHasherDefault<DefaultHasher>;

/// Up to this size, a linear search is faster than hashing.
const SCANNED_MAX: usize = 8;

impl Props {
    fn find(&self, name: &str) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(name).copied(),
            None => self
                .entries
                .iter()
                .position(|entry| entry.as_ref().is_some_and(|(key, _)| key.as_str() == name)),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        let at = self.find(name)?;
        self.entries.get(at)?.as_ref().map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let at = self.find(name)?;
        self.entries.get_mut(at)?.as_mut().map(|(_, value)| value)
    }

    pub(crate) fn set(&mut self, name: &Str, value: Value) {
        if let Some(slot) = self.get_mut(name.as_str()) {
            *slot = value;
            return;
        }
        if let Some(index) = &mut self.index {
            index.insert(name.as_str().into(), self.entries.len());
        }
        self.entries.push(Some((Rc::clone(name), value)));
        if self.index.is_none() && self.entries.len() > SCANNED_MAX {
            self.build_index();
        }
    }

    fn build_index(&mut self) {
        self.entries.retain(Option::is_some);
        self.gone = 0;
        let names = self.entries.iter().flatten().enumerate();
        self.index = Some(names.map(|(at, (name, _))| (name.as_str().into(), at)).collect());
    }

    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let Some(at) = self.find(name) else { return false };
        if let Some(index) = &mut self.index {
            index.remove(name);
        }
        if let Some(entry) = self.entries.get_mut(at) {
            *entry = None;
        }
        self.gone = self.gone.saturating_add(1);
        if self.gone > SCANNED_MAX && self.gone > self.entries.len() / 2 {
            self.build_index();
        }
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len().saturating_sub(self.gone)
    }

    /// All entries: integer keys first, in ascending order, then the others in insertion order. Private names are excluded.
    pub(crate) fn listed(&self) -> Vec<(Str, Value)> {
        let all = self.entries.iter().flatten().filter(|(name, _)| !name.as_str().starts_with(PRIVATE));
        let mut all: Vec<(Str, Value)> = all.cloned().collect();
        if all.iter().any(|(name, _)| array_index(name.as_str()).is_some()) {
            all.sort_by_key(|(name, _)| array_index(name.as_str()).unwrap_or(u32::MAX));
        }
        all
    }
}

/// The array index that a name spells, if any.
pub(crate) fn array_index(name: &str) -> Option<u32> {
    let first = name.bytes().next()?;
    if !first.is_ascii_digit() || (first == b'0' && name.len() > 1) {
        return None;
    }
    name.parse().ok().filter(|index| *index < u32::MAX)
}

/// The entries of a map or a set, in insertion order.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Option<(Value, Value)>>,
    index: HashMap<Hashed, usize, Hasher>,
    gone: usize,
}

/// The hash key of a value: equal for equal keys.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Hashed {
    Undefined,
    Null,
    Bool(bool),
    Num(u64),
    Str(Rc<str>),
    Obj(usize),
}

impl Hashed {
    fn of(value: &Value) -> Self {
        match value {
            Value::Undefined | Value::Unset | Value::Cell(_) => Self::Undefined,
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Num(number) if number.is_nan() => Self::Num(f64::NAN.to_bits()),
            // -0 and 0 are the same key.
            Value::Num(number) => Self::Num((number + 0.0).to_bits()),
            Value::Str(text) => Self::Str(text.as_str().into()),
            Value::Obj(object) => Self::Obj(Rc::as_ptr(object).addr()),
        }
    }
}

impl Table {
    pub(crate) fn get(&self, key: &Value) -> Option<&Value> {
        let at = *self.index.get(&Hashed::of(key))?;
        self.entries.get(at)?.as_ref().map(|(_, value)| value)
    }

    pub(crate) fn set(&mut self, key: Value, value: Value) {
        let hashed = Hashed::of(&key);
        match self.index.get(&hashed).and_then(|at| self.entries.get_mut(*at)) {
            Some(Some(entry)) => entry.1 = value,
            Some(None) | None => {
                self.index.insert(hashed, self.entries.len());
                self.entries.push(Some((key, value)));
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &Value) -> bool {
        let Some(at) = self.index.remove(&Hashed::of(key)) else { return false };
        if let Some(entry) = self.entries.get_mut(at) {
            *entry = None;
        }
        self.gone = self.gone.saturating_add(1);
        if self.gone > 32 && self.gone > self.entries.len() / 2 {
            self.entries.retain(Option::is_some);
            self.gone = 0;
            let keys = self.entries.iter().flatten().enumerate();
            self.index = keys.map(|(at, (key, _))| (Hashed::of(key), at)).collect();
        }
        true
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn entries(&self) -> Vec<(Value, Value)> {
        self.entries.iter().flatten().cloned().collect()
    }
}

thread_local! {
    /// Values to drop iteratively, so that a long chain of objects doesn't cause deep recursion.
    static DYING: RefCell<Option<Vec<Value>>> = const { RefCell::new(None) };
}

impl Drop for Object {
    fn drop(&mut self) {
        let mut inside = Vec::new();
        self.body.get_mut().empty(&mut inside);
        inside.retain(|value| matches!(value, Value::Obj(_) | Value::Cell(_)));
        if inside.is_empty() {
            return;
        }
        let first = DYING.try_with(|dying| match &mut *dying.borrow_mut() {
            Some(queue) => {
                queue.append(&mut inside);
                false
            }
            none @ None => {
                *none = Some(std::mem::take(&mut inside));
                true
            }
        });
        if first == Ok(true) {
            // One at a time: each may add more to the queue.
            while let Ok(Some(value)) = DYING.try_with(|dying| dying.borrow_mut().as_mut().and_then(Vec::pop))
            {
                drop(value);
            }
            DYING.try_with(|dying| *dying.borrow_mut() = None).unwrap_or_default();
        }
    }
}

impl Body {
    /// Takes out everything that may contain other objects.
    fn empty(&mut self, into: &mut Vec<Value>) {
        let mut props = |props: &mut Props| {
            into.extend(std::mem::take(&mut props.entries).into_iter().flatten().map(|(_, value)| value));
            props.index = None;
        };
        match self {
            Self::Record(record) => {
                props(&mut record.props);
                into.extend(record.class.take().map(Value::Obj));
            }
            Self::Class(class) => {
                props(&mut class.methods);
                props(&mut class.statics);
                let others = [&mut class.parent, &mut class.constructor, &mut class.fields];
                into.extend(others.into_iter().filter_map(Option::take).map(Value::Obj));
            }
            Self::Array(items) | Self::Iterator { items, .. } => into.append(items),
            Self::Closure(closure) => {
                into.extend(closure.caught.iter().cloned().map(Value::Cell));
                closure.caught = Rc::new([]);
                into.extend(closure.home.take().map(Value::Obj));
            }
            Self::Bound { this, args, .. } => {
                into.push(std::mem::take(this));
                into.append(args);
            }
            Self::Map(table) | Self::Set(table) => {
                for (key, value) in std::mem::take(table).entries.into_iter().flatten() {
                    into.extend([key, value]);
                }
            }
            Self::Promise(result) => {
                into.push(std::mem::replace(result, Ok(Value::Undefined)).unwrap_or_else(|thrown| thrown));
            }
            Self::Native { .. } | Self::Namespace(_) | Self::Date(_) | Self::Regex(_) => {}
        }
    }
}

/// Tracks every object, so that cycles are freed when a run ends.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    all: Vec<Weak<Object>>,
    /// Size at which the heap is swept again.
    next_sweep: usize,
}

impl Heap {
    pub(crate) fn make(&mut self, body: Body) -> Rc<Object> {
        if self.all.len() >= self.next_sweep {
            self.all.retain(|one| one.strong_count() > 0);
            self.next_sweep = self.all.len().saturating_mul(2).max(1024);
        }
        let object =
            Rc::new(Object { body: RefCell::new(body), frozen: Cell::new(false), notes: RefCell::new(None) });
        self.all.push(Rc::downgrade(&object));
        object
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        for object in self.all.iter().filter_map(Weak::upgrade) {
            let mut inside = Vec::new();
            if let Ok(mut body) = object.body.try_borrow_mut() {
                body.empty(&mut inside);
            }
        }
    }
}
