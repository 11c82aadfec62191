//! The interpreter: slots, calls, errors. Expressions are in `eval`, statements in `exec`, properties in `member`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::ast::{Body as FunctionBody, Catch, Function, Place, Scope, Var};
use crate::host::Host;
use crate::native::{ERRORS, Global, NativeFn};
use crate::object::{Body, ClassBody, Closure, Heap, Object, Props, Record};
use crate::text::str_of;
use crate::value::{Caught, Value};

/// The result of an evaluation: a value, or the reason why it stopped.
pub(crate) type Eval<T = Value> = Result<T, Stop>;

/// Why evaluation stopped. Boxed, so that successful results stay small.
#[derive(Debug)]
pub(crate) struct Stop(pub(crate) Box<Why>);

#[derive(Debug)]
pub(crate) enum Why {
    Throw(Value),
    /// A `?.` on null or undefined.
    Short,
    /// A limit that a program can't catch.
    Limit(&'static str),
}

/// Limits of a run. The host limits time.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Calls and loop iterations.
    pub steps_max: u64,
    /// Nested evaluations, which bounds the native stack.
    pub depth_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps_max: u64::MAX, depth_max: 1_000 }
    }
}

/// Maximum length of a string, in UTF-16 units.
pub(crate) const STRING_UNITS_MAX: usize = 1 << 25;
/// Maximum length of a list.
pub(crate) const ARRAY_ITEMS_MAX: usize = 1 << 23;
/// Maximum slots of all running calls.
const SLOTS_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Interp<'h> {
    pub(crate) host: &'h mut dyn Host,
    pub(crate) heap: Heap,
    /// The current position, for messages.
    pub(crate) at: u32,
    pub(crate) depth: u32,
    pub(crate) depth_max: u32,
    steps_left: u64,
    stack: Vec<Value>,
    base: usize,
    caught: Rc<[Caught]>,
    /// The class of the running method.
    pub(crate) home: Option<Rc<Object>>,
    errors: Vec<Rc<Object>>,
    globals: HashMap<&'static str, Rc<Object>>,
}

/// A function's captured environment.
#[derive(Debug, Default)]
struct Around {
    caught: Rc<[Caught]>,
    home: Option<Rc<Object>>,
}

impl<'h> Interp<'h> {
    pub(crate) fn new(host: &'h mut dyn Host, limits: Limits) -> Self {
        let mut interp = Self {
            host,
            heap: Heap::default(),
            at: 0,
            depth: 0,
            depth_max: limits.depth_max,
            steps_left: limits.steps_max,
            stack: Vec::new(),
            base: 0,
            caught: Rc::new([]),
            home: None,
            errors: Vec::new(),
            globals: HashMap::new(),
        };
        for name in ERRORS {
            let class = ClassBody {
                name: (*name).into(),
                parent: interp.errors.first().cloned(),
                constructor: None,
                fields: None,
                methods: Props::default(),
                statics: Props::default(),
                is_error: true,
            };
            let class = interp.heap.make(Body::Class(Box::new(class)));
            interp.errors.push(class);
        }
        interp
    }

    /// Runs a program and returns its entry.
    pub(crate) fn program(&mut self, program: &Rc<Function>) -> Eval {
        self.call_function(program, Around::default(), Value::Undefined, &[], None)
    }

    pub(crate) fn step(&mut self) -> Eval<()> {
        match self.steps_left.checked_sub(1) {
            Some(left) => {
                self.steps_left = left;
                Ok(())
            }
            None => Err(Stop(Box::new(Why::Limit("the program takes too many steps")))),
        }
    }

    pub(crate) fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> Eval<T>) -> Eval<T> {
        if self.depth >= self.depth_max {
            return Err(self.range_error("Maximum call stack size exceeded"));
        }
        self.depth = self.depth.saturating_add(1);
        let result = run(self);
        self.depth = self.depth.saturating_sub(1);
        result
    }

    // Errors.

    fn error_of(&mut self, class: usize, message: String) -> Stop {
        let class = self.errors.get(class).cloned();
        let error = self.make_error(class, Value::text(message));
        throw(error)
    }

    pub(crate) fn make_error(&mut self, class: Option<Rc<Object>>, message: Value) -> Value {
        let mut record = Record { class, error_at: Some(self.at), ..Record::default() };
        record.props.set(&str_of("message"), message);
        self.object(Body::Record(record))
    }

    pub(crate) fn error(&mut self, message: impl Into<String>) -> Stop {
        self.error_of(0, message.into())
    }

    pub(crate) fn type_error(&mut self, message: impl Into<String>) -> Stop {
        self.error_of(1, message.into())
    }

    pub(crate) fn range_error(&mut self, message: impl Into<String>) -> Stop {
        self.error_of(2, message.into())
    }

    pub(crate) fn syntax_error(&mut self, message: impl Into<String>) -> Stop {
        self.error_of(3, message.into())
    }

    pub(crate) fn error_class(&self, index: usize) -> Option<Rc<Object>> {
        self.errors.get(index).cloned()
    }

    // Object creation.

    pub(crate) fn object(&mut self, body: Body) -> Value {
        Value::Obj(self.heap.make(body))
    }

    pub(crate) fn array(&mut self, items: Vec<Value>) -> Value {
        self.object(Body::Array(items))
    }

    pub(crate) fn record(&mut self, props: Props) -> Value {
        self.object(Body::Record(Record { props, ..Record::default() }))
    }

    pub(crate) fn native(&mut self, name: &str, run: NativeFn) -> Value {
        self.object(Body::Native { name: str_of(name), run })
    }

    pub(crate) fn global(&mut self, global: Global) -> Eval {
        let (name, body) = match global {
            Global::Num(number) => return Ok(Value::Num(number)),
            Global::Error(index) => return Ok(self.error_class(index).map_or(Value::Undefined, Value::Obj)),
            Global::Namespace(namespace) => (namespace.name, Body::Namespace(namespace)),
            Global::Function(name, run) => (name, Body::Native { name: str_of(name), run }),
        };
        if let Some(known) = self.globals.get(name) {
            return Ok(Value::Obj(Rc::clone(known)));
        }
        let object = self.heap.make(body);
        self.globals.insert(name, Rc::clone(&object));
        Ok(Value::Obj(object))
    }

    pub(crate) fn closure(&mut self, function: &Rc<Function>, home: Option<Rc<Object>>) -> Value {
        let caught = function.frame.caught.iter().map(|from| self.cell(*from)).collect();
        self.object(Body::Closure(Closure { function: Rc::clone(function), caught, home }))
    }

    fn cell(&self, from: Catch) -> Caught {
        let cell = match from {
            Catch::Local(slot) => match self.local(slot) {
                Some(Value::Cell(cell)) => Some(cell),
                Some(_) | None => None,
            },
            Catch::Caught(index) => self.caught.get(index as usize),
        };
        cell.cloned().unwrap_or_default()
    }

    // Variables.

    fn local(&self, slot: u32) -> Option<&Value> {
        self.stack.get(self.base.saturating_add(slot as usize))
    }

    fn local_mut(&mut self, slot: u32) -> Option<&mut Value> {
        self.stack.get_mut(self.base.saturating_add(slot as usize))
    }

    /// Creates the variables of a scope.
    pub(crate) fn enter(&mut self, scope: &Scope) {
        for declared in scope {
            if let Some(slot) = self.local_mut(declared.slot) {
                *slot = if declared.caught {
                    Value::Cell(Rc::new(RefCell::new(Value::Unset)))
                } else {
                    Value::Unset
                };
            }
        }
    }

    /// Each loop iteration has its own variables, initialized from the previous iteration's.
    pub(crate) fn next_turn(&mut self, scope: &Scope) {
        for declared in scope.iter().filter(|declared| declared.caught) {
            if let Some(slot) = self.local_mut(declared.slot) {
                let value = match &*slot {
                    Value::Cell(cell) => cell.borrow().clone(),
                    other => other.clone(),
                };
                *slot = Value::Cell(Rc::new(RefCell::new(value)));
            }
        }
    }

    pub(crate) fn get_var(&mut self, var: &Var, at: u32) -> Eval {
        let value = match var.place {
            Place::Local(slot) => match self.local(slot) {
                Some(Value::Cell(cell)) => cell.borrow().clone(),
                Some(value) => value.clone(),
                None => Value::Unset,
            },
            Place::Caught(index) => {
                self.caught.get(index as usize).map_or(Value::Unset, |cell| cell.borrow().clone())
            }
            Place::Global(global) => return self.global(global),
            Place::Nowhere => Value::Unset,
        };
        if matches!(value, Value::Unset) {
            return Err(self.too_early(var, at));
        }
        Ok(value)
    }

    fn too_early(&mut self, var: &Var, at: u32) -> Stop {
        self.at = at;
        self.error_of(4, format!("Cannot access '{}' before initialization", var.name))
    }

    /// Sets a variable; `begins` for its first value.
    pub(crate) fn set_var(&mut self, var: &Var, value: Value, begins: bool, at: u32) -> Eval<()> {
        let slot = match var.place {
            Place::Local(slot) => match self.local_mut(slot) {
                Some(Value::Cell(cell)) => Rc::clone(cell),
                Some(Value::Unset) if !begins => return Err(self.too_early(var, at)),
                Some(other) => {
                    *other = value;
                    return Ok(());
                }
                None => return Ok(()),
            },
            Place::Caught(index) => match self.caught.get(index as usize) {
                Some(cell) => Rc::clone(cell),
                None => return Ok(()),
            },
            Place::Global(_) | Place::Nowhere => return Ok(()),
        };
        if !begins && matches!(&*slot.borrow(), Value::Unset) {
            return Err(self.too_early(var, at));
        }
        *slot.borrow_mut() = value;
        Ok(())
    }

    fn put_local(&mut self, slot: u32, value: Value) {
        match self.local_mut(slot) {
            Some(Value::Cell(cell)) => *cell.borrow_mut() = value,
            Some(other) => *other = value,
            None => {}
        }
    }

    // Calls.

    pub(crate) fn call(&mut self, callee: &Value, this: &Value, args: &[Value]) -> Eval {
        match callee {
            Value::Obj(object) => self.call_object(object, this, args),
            Value::Undefined
            | Value::Null
            | Value::Bool(_)
            | Value::Num(_)
            | Value::Str(_)
            | Value::Unset
            | Value::Cell(_) => Err(self.type_error(format!("{} is not a function", shown(callee)))),
        }
    }

    fn call_object(&mut self, callee: &Rc<Object>, this: &Value, args: &[Value]) -> Eval {
        let body = callee.body.borrow();
        match &*body {
            Body::Closure(closure) => {
                let (function, caught) = (Rc::clone(&closure.function), Rc::clone(&closure.caught));
                let around = Around { caught, home: closure.home.clone() };
                drop(body);
                self.call_function(&function, around, this.clone(), args, Some(callee))
            }
            Body::Native { run, .. } => {
                let run = *run;
                drop(body);
                self.deeper(|interp| run(interp, this, args))
            }
            Body::Bound { target, this, args: first } => {
                let (target, this) = (Rc::clone(target), this.clone());
                let all: Vec<Value> = first.iter().chain(args).cloned().collect();
                drop(body);
                self.deeper(|interp| interp.call_object(&target, &this, &all))
            }
            Body::Namespace(namespace) if namespace.call.is_some() => {
                let run = namespace.call;
                drop(body);
                self.deeper(|interp| run.map_or(Ok(Value::Undefined), |run| run(interp, this, args)))
            }
            Body::Class(class) if class.is_error && class.constructor.is_none() => {
                drop(body);
                self.construct(callee, args)
            }
            Body::Class(class) => {
                let message = format!("Class constructor {} cannot be invoked without 'new'", class.name);
                drop(body);
                Err(self.type_error(message))
            }
            Body::Namespace(_)
            | Body::Record(_)
            | Body::Array(_)
            | Body::Map(_)
            | Body::Set(_)
            | Body::Date(_)
            | Body::Regex(_)
            | Body::Promise(_)
            | Body::Iterator { .. } => {
                drop(body);
                Err(self.type_error(format!("{} is not a function", shown(&Value::Obj(Rc::clone(callee))))))
            }
        }
    }

    fn call_function(
        &mut self,
        function: &Rc<Function>,
        around: Around,
        this: Value,
        args: &[Value],
        itself: Option<&Rc<Object>>,
    ) -> Eval {
        self.step()?;
        let (base, frame) = (self.stack.len(), &function.frame);
        let top = base.saturating_add(frame.slots as usize);
        if top > SLOTS_MAX {
            return Err(self.range_error("Maximum call stack size exceeded"));
        }
        self.stack.resize(top, Value::Unset);
        let outer_base = std::mem::replace(&mut self.base, base);
        let outer_caught = std::mem::replace(&mut self.caught, around.caught);
        let outer_home = std::mem::replace(&mut self.home, around.home);
        let at = self.at;
        self.enter(&frame.declared);
        if let Some(slot) = frame.this {
            self.put_local(slot, this);
        }
        if let (Some(slot), Some(itself)) = (frame.itself, itself) {
            self.put_local(slot, Value::Obj(Rc::clone(itself)));
        }
        let result = self.deeper(|interp| interp.run_body(function, args));
        self.stack.truncate(base);
        self.base = outer_base;
        self.caught = outer_caught;
        self.home = outer_home;
        if result.is_ok() {
            self.at = at;
        }
        if function.is_async { self.settled(result) } else { result }
    }

    fn run_body(&mut self, function: &Function, args: &[Value]) -> Eval {
        match &function.frame.plain {
            Some(slots) => {
                for (index, slot) in slots.iter().enumerate() {
                    self.put_local(*slot, args.get(index).cloned().unwrap_or_default());
                }
            }
            None => self.bind_params(function, args)?,
        }
        match &function.body {
            FunctionBody::Expr(value) => self.eval(value),
            FunctionBody::Block(block) => self.body_block(block),
        }
    }

    /// The result of an async function: a settled promise.
    fn settled(&mut self, result: Eval) -> Eval {
        let settled = match result {
            Ok(value) => match crate::builtins::promise::settled_as(&value) {
                Some(_) => return Ok(value),
                None => Ok(value),
            },
            Err(Stop(why)) => match *why {
                Why::Throw(thrown) => Err(thrown),
                other @ (Why::Short | Why::Limit(_)) => return Err(Stop(Box::new(other))),
            },
        };
        Ok(self.object(Body::Promise(settled)))
    }

    /// `new callee(…)`
    pub(crate) fn construct(&mut self, callee: &Rc<Object>, args: &[Value]) -> Eval {
        let body = callee.body.borrow();
        match &*body {
            Body::Class(class) => {
                let is_error = class.is_error;
                drop(body);
                let error_at = is_error.then_some(self.at);
                let record = Record { class: Some(Rc::clone(callee)), error_at, ..Record::default() };
                let this = self.object(Body::Record(record));
                let given = self.deeper(|interp| interp.initialize(callee, &this, args))?;
                Ok(if given.as_object().is_some() { given } else { this })
            }
            Body::Namespace(namespace) if namespace.construct.is_some() => {
                let run = namespace.construct;
                drop(body);
                run.map_or(Ok(Value::Undefined), |run| run(self, &Value::Undefined, args))
            }
            Body::Closure(_) => {
                drop(body);
                Err(self.type_error(
                    "only a class can be made with `new`; write `class … { constructor() { … } }`",
                ))
            }
            _other => {
                drop(body);
                Err(self
                    .type_error(format!("{} is not a constructor", shown(&Value::Obj(Rc::clone(callee))))))
            }
        }
    }

    /// Runs the constructor of a class, or of its base class, on an instance.
    pub(crate) fn initialize(&mut self, class: &Rc<Object>, this: &Value, args: &[Value]) -> Eval {
        let (constructor, fields, parent, is_error) = match &*class.body.borrow() {
            Body::Class(body) => {
                (body.constructor.clone(), body.fields.clone(), body.parent.clone(), body.is_error)
            }
            _other => return Ok(Value::Undefined),
        };
        let Some(constructor) = constructor else {
            match &parent {
                Some(parent) if !(is_error && self.errors.iter().any(|known| Rc::ptr_eq(known, class))) => {
                    self.deeper(|interp| interp.initialize(parent, this, args))?;
                }
                Some(_) | None if is_error => self.initialize_error(this, args)?,
                Some(_) | None => {}
            }
            return self.set_fields(fields.as_ref(), this);
        };
        if parent.is_none() {
            self.set_fields(fields.as_ref(), this)?;
        }
        self.call_object(&constructor, this, args)
    }

    pub(crate) fn set_fields(&mut self, fields: Option<&Rc<Object>>, this: &Value) -> Eval {
        match fields {
            Some(fields) => self.call_object(fields, this, &[]).map(|_| Value::Undefined),
            None => Ok(Value::Undefined),
        }
    }

    fn initialize_error(&mut self, this: &Value, args: &[Value]) -> Eval<()> {
        let message = match args.first() {
            None | Some(Value::Undefined) => Value::str(""),
            Some(given) => Value::Str(self.to_str(given)?),
        };
        let cause = match args.get(1) {
            Some(options) if options.as_object().is_some() => self.get(options, "cause")?,
            Some(_) | None => Value::Undefined,
        };
        if let Some(object) = this.as_object()
            && let Body::Record(record) = &mut *object.body.borrow_mut()
        {
            record.props.set(&str_of("message"), message);
            if !matches!(cause, Value::Undefined) {
                record.props.set(&str_of("cause"), cause);
            }
        }
        Ok(())
    }
}

pub(crate) fn throw(value: Value) -> Stop {
    Stop(Box::new(Why::Throw(value)))
}

/// A short form of a value for messages, without running code.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Undefined | Value::Unset => "undefined".to_owned(),
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Num(number) => crate::number::to_text(*number),
        Value::Str(text) => format!("\"{}\"", text.as_str().chars().take(40).collect::<String>()),
        Value::Obj(object) => match &*object.body.borrow() {
            Body::Array(_) => "a list".to_owned(),
            Body::Closure(closure) => format!("function `{}`", closure.function.name),
            Body::Native { name, .. } => format!("function `{}`", name.as_str()),
            Body::Namespace(namespace) => format!("`{}`", namespace.name),
            Body::Class(class) => format!("class `{}`", class.name),
            _other => "an object".to_owned(),
        },
        Value::Cell(cell) => shown(&cell.borrow()),
    }
}
