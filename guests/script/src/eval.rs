//! Expressions.

use std::rc::Rc;

use crate::ast::*;
use crate::interp::{Eval, Interp, STRING_UNITS_MAX, Stop, Why};
use crate::object::{Body, Object, Props};
use crate::regex::Regex;
use crate::text::{Str, Text};
use crate::value::Value;

impl Interp<'_> {
    pub(crate) fn eval(&mut self, expr: &Expr) -> Eval {
        match &expr.kind {
            ExprKind::Undefined => Ok(Value::Undefined),
            ExprKind::Null => Ok(Value::Null),
            ExprKind::Bool(value) => Ok(Value::Bool(*value)),
            ExprKind::Num(number) => Ok(Value::Num(*number)),
            ExprKind::Str(text) => Ok(Value::Str(Rc::clone(text))),
            ExprKind::Var(var) => self.get_var(var, expr.at),
            ExprKind::Template(..)
            | ExprKind::Regex(_)
            | ExprKind::Array(_)
            | ExprKind::Object(_)
            | ExprKind::Function(_)
            | ExprKind::Class(_)
            | ExprKind::Unary(..)
            | ExprKind::Update { .. }
            | ExprKind::Binary(..)
            | ExprKind::Logical(..)
            | ExprKind::Assign { .. }
            | ExprKind::AssignIf { .. }
            | ExprKind::AssignPattern { .. }
            | ExprKind::Choice(..)
            | ExprKind::Call { .. }
            | ExprKind::New { .. }
            | ExprKind::Member { .. }
            | ExprKind::Index { .. }
            | ExprKind::Chain(_)
            | ExprKind::Sequence(_)
            | ExprKind::Await(_)
            | ExprKind::SuperCall(..)
            | ExprKind::SuperMember(..) => {
                if self.depth >= self.depth_max {
                    self.at = expr.at;
                    return Err(self.range_error("Maximum call stack size exceeded"));
                }
                self.depth = self.depth.saturating_add(1);
                let result = self.eval_deep(expr);
                self.depth = self.depth.saturating_sub(1);
                result
            }
        }
    }

    fn eval_deep(&mut self, expr: &Expr) -> Eval {
        match &expr.kind {
            ExprKind::Binary(op, left, right) => {
                let left = self.eval(left)?;
                let right = self.eval(right)?;
                self.at = expr.at;
                self.binary(*op, left, right)
            }
            ExprKind::Logical(op, left, right) => {
                let left = self.eval(left)?;
                if enough(*op, &left) { Ok(left) } else { self.eval(right) }
            }
            ExprKind::Choice(test, yes, no) => {
                if self.eval(test)?.truthy() {
                    self.eval(yes)
                } else {
                    self.eval(no)
                }
            }
            ExprKind::Member { object, name, maybe } => {
                let object = self.eval(object)?;
                short(&object, *maybe)?;
                self.at = expr.at;
                self.get_str(&object, name)
            }
            ExprKind::Index { object, index, maybe } => {
                let object = self.eval(object)?;
                short(&object, *maybe)?;
                let index = self.eval(index)?;
                self.at = expr.at;
                self.get_index(&object, &index)
            }
            ExprKind::Call { callee, args, maybe } => self.call_expr(callee, args, *maybe, expr.at),
            ExprKind::Assign { target, op: None, value } => {
                let value = self.eval(value)?;
                self.assign(target, value.clone())?;
                Ok(value)
            }
            ExprKind::Assign { target, op: Some(op), value } => self.assign_op(target, *op, value, expr.at),
            ExprKind::Update { target, by, prefix } => self.update(target, *by, *prefix),
            ExprKind::Unary(op, value) => self.unary(*op, value, expr.at),
            ExprKind::Chain(inner) => match self.eval(inner) {
                Err(Stop(why)) if matches!(*why, Why::Short) => Ok(Value::Undefined),
                other => other,
            },
            ExprKind::Function(function) => {
                let home = if function.kind == FunctionKind::Arrow { self.home.clone() } else { None };
                Ok(self.closure(function, home))
            }
            _other => self.eval_rare(expr),
        }
    }

    /// Separate, so that the common cases use little of the native stack.
    #[inline(never)]
    fn eval_rare(&mut self, expr: &Expr) -> Eval {
        match &expr.kind {
            ExprKind::Template(texts, codes) => self.template(texts, codes),
            ExprKind::Regex(pattern) => {
                Ok(self.object(Body::Regex(Regex { pattern: Rc::clone(pattern), last_index: 0 })))
            }
            ExprKind::Array(items) => {
                let items = self.items(items)?;
                Ok(self.array(items))
            }
            ExprKind::Object(fields) => self.object_literal(fields),
            ExprKind::Class(class) => self.class(class),
            ExprKind::AssignIf { target, op, value } => {
                let old = self.eval(target)?;
                if enough(*op, &old) {
                    return Ok(old);
                }
                let value = self.eval(value)?;
                self.assign(target, value.clone())?;
                Ok(value)
            }
            ExprKind::AssignPattern { pattern, value } => {
                let value = self.eval(value)?;
                self.bind(pattern, value.clone(), false)?;
                Ok(value)
            }
            ExprKind::New { callee, args } => {
                let class = self.eval(callee)?;
                let args = self.items(args)?;
                self.at = expr.at;
                match class.as_object() {
                    Some(class) => self.construct(class, &args),
                    None => Err(self.type_error(format!("{} is not a constructor", named(callee)))),
                }
            }
            ExprKind::Sequence(all) => {
                let mut last = Value::Undefined;
                for one in all {
                    last = self.eval(one)?;
                }
                Ok(last)
            }
            ExprKind::Await(value) => {
                let value = self.eval(value)?;
                self.at = expr.at;
                self.awaited(value)
            }
            ExprKind::SuperCall(args, this) => {
                let this = self.get_var(this, expr.at)?;
                let args = self.items(args)?;
                self.at = expr.at;
                self.super_call(&this, &args)
            }
            ExprKind::SuperMember(name, _) => self.super_method(name),
            _other => Ok(Value::Undefined),
        }
    }

    fn template(&mut self, texts: &[Str], codes: &[Expr]) -> Eval {
        let mut out = Text::default();
        for (index, text) in texts.iter().enumerate() {
            out.push(text);
            if let Some(code) = codes.get(index) {
                let value = self.eval(code)?;
                self.at = code.at;
                out.push(&*self.to_str(&value)?);
            }
            if out.units() > STRING_UNITS_MAX {
                return Err(self.range_error("Invalid string length"));
            }
        }
        Ok(Value::Str(Rc::new(out)))
    }

    pub(crate) fn items(&mut self, items: &[Item]) -> Eval<Vec<Value>> {
        let mut all = Vec::with_capacity(items.len());
        for item in items {
            let value = self.eval(&item.value)?;
            if item.spread {
                self.at = item.value.at;
                all.extend(self.iterate(&value)?);
            } else {
                all.push(value);
            }
        }
        Ok(all)
    }

    pub(crate) fn key(&mut self, key: &Key) -> Eval<Str> {
        match key {
            Key::Name(name) => Ok(Rc::clone(name)),
            Key::Computed(value) => {
                let value = self.eval(value)?;
                self.to_key(&value)
            }
        }
    }

    fn object_literal(&mut self, fields: &[Field]) -> Eval {
        let mut props = Props::default();
        for field in fields {
            match field {
                Field::Named(key, value) => {
                    let name = self.key(key)?;
                    let value = self.eval(value)?;
                    props.set(&name, value);
                }
                Field::Spread(value) => {
                    let value = self.eval(value)?;
                    for (name, part) in self.entries_of(&value)? {
                        props.set(&name, part);
                    }
                }
            }
        }
        Ok(self.record(props))
    }

    fn call_expr(&mut self, callee: &Expr, args: &[Item], maybe: bool, at: u32) -> Eval {
        let (this, function) = match &callee.kind {
            ExprKind::Member { object, name, maybe: maybe_object } => {
                let this = self.eval(object)?;
                short(&this, *maybe_object)?;
                if let Some(run) = self.method_of(&this, name.as_str()) {
                    let args = self.items(args)?;
                    self.at = at;
                    return self.deeper(|interp| run(interp, &this, &args));
                }
                self.at = callee.at;
                let function = self.get_str(&this, name)?;
                (this, function)
            }
            ExprKind::Index { object, index, maybe: maybe_object } => {
                let this = self.eval(object)?;
                short(&this, *maybe_object)?;
                let index = self.eval(index)?;
                self.at = callee.at;
                let function = self.get_index(&this, &index)?;
                (this, function)
            }
            ExprKind::SuperMember(name, this) => {
                let this = self.get_var(this, callee.at)?;
                (this, self.super_method(name)?)
            }
            _other => (Value::Undefined, self.eval(callee)?),
        };
        short(&function, maybe)?;
        let args = self.items(args)?;
        self.at = at;
        if function.as_callable().is_none() {
            return Err(self.type_error(format!("{} is not a function", named(callee))));
        }
        self.call(&function, &this, &args)
    }

    fn home_parent(&mut self) -> Eval<Rc<Object>> {
        let parent = self.home.as_ref().and_then(|home| match &*home.body.borrow() {
            Body::Class(class) => class.parent.clone(),
            _other => None,
        });
        match parent {
            Some(parent) => Ok(parent),
            None => Err(self.type_error("`super` only means something in a class that extends another")),
        }
    }

    fn super_call(&mut self, this: &Value, args: &[Value]) -> Eval {
        let parent = self.home_parent()?;
        self.initialize(&parent, this, args)?;
        let fields = self.home.as_ref().and_then(|home| match &*home.body.borrow() {
            Body::Class(class) => class.fields.clone(),
            _other => None,
        });
        self.set_fields(fields.as_ref(), this)
    }

    fn super_method(&mut self, name: &Str) -> Eval {
        let parent = self.home_parent()?;
        Ok(parent
            .find_method(name.as_str())
            .or_else(|| parent.find_static(name.as_str()))
            .unwrap_or_default())
    }

    pub(crate) fn assign(&mut self, target: &Expr, value: Value) -> Eval<()> {
        match &target.kind {
            ExprKind::Var(var) => self.set_var(var, value, false, target.at),
            ExprKind::Member { object, name, .. } => {
                let object = self.eval(object)?;
                self.at = target.at;
                self.set_str(&object, name, value)
            }
            ExprKind::Index { object, index, .. } => {
                let object = self.eval(object)?;
                let index = self.eval(index)?;
                self.at = target.at;
                self.set_index(&object, &index, value)
            }
            _other => Err(self.syntax_error("nothing can be assigned to this")),
        }
    }

    /// `target op= value`, with the parts of the target evaluated once.
    fn assign_op(&mut self, target: &Expr, op: Binary, value: &Expr, at: u32) -> Eval {
        match &target.kind {
            ExprKind::Var(var) => {
                let old = self.get_var(var, target.at)?;
                let right = self.eval(value)?;
                self.at = at;
                // The variable releases its text, so that the text can grow in place.
                let grows = match (&old, &right) {
                    (Value::Str(old), Value::Str(more)) => {
                        op == Binary::Add && old.units().saturating_add(more.units()) <= STRING_UNITS_MAX
                    }
                    _other => false,
                };
                if grows {
                    self.set_var(var, Value::Undefined, false, target.at)?;
                }
                let result = self.binary(op, old, right)?;
                self.set_var(var, result.clone(), false, target.at)?;
                Ok(result)
            }
            ExprKind::Member { object, name, .. } => {
                let object = self.eval(object)?;
                let old = self.get_str(&object, name)?;
                let right = self.eval(value)?;
                self.at = at;
                let result = self.binary(op, old, right)?;
                self.set_str(&object, name, result.clone())?;
                Ok(result)
            }
            ExprKind::Index { object, index, .. } => {
                let object = self.eval(object)?;
                let index = self.eval(index)?;
                let old = self.get_index(&object, &index)?;
                let right = self.eval(value)?;
                self.at = at;
                let result = self.binary(op, old, right)?;
                self.set_index(&object, &index, result.clone())?;
                Ok(result)
            }
            _other => Err(self.syntax_error("nothing can be assigned to this")),
        }
    }

    fn update(&mut self, target: &Expr, by: f64, prefix: bool) -> Eval {
        let (object, index) = match &target.kind {
            ExprKind::Var(var) => {
                let old = self.get_var(var, target.at)?;
                let old = self.to_num(&old)?;
                self.set_var(var, Value::Num(old + by), false, target.at)?;
                return Ok(Value::Num(if prefix { old + by } else { old }));
            }
            ExprKind::Member { object, name, .. } => (self.eval(object)?, Value::Str(Rc::clone(name))),
            ExprKind::Index { object, index, .. } => (self.eval(object)?, self.eval(index)?),
            _other => return Err(self.syntax_error("this can't be counted up or down")),
        };
        self.at = target.at;
        let old = self.get_index(&object, &index)?;
        let old = self.to_num(&old)?;
        self.set_index(&object, &index, Value::Num(old + by))?;
        Ok(Value::Num(if prefix { old + by } else { old }))
    }

    fn unary(&mut self, op: Unary, value: &Expr, at: u32) -> Eval {
        if op == Unary::Delete {
            return self.delete_expr(value);
        }
        let value = self.eval(value)?;
        self.at = at;
        Ok(match op {
            Unary::Not => Value::Bool(!value.truthy()),
            Unary::Minus => Value::Num(-self.to_num(&value)?),
            Unary::Plus => Value::Num(self.to_num(&value)?),
            Unary::BitNot => Value::Num(f64::from(!crate::number::to_i32(self.to_num(&value)?))),
            Unary::Typeof => Value::str(value.type_name()),
            Unary::Void | Unary::Delete => Value::Undefined,
        })
    }

    fn delete_expr(&mut self, target: &Expr) -> Eval {
        match &target.kind {
            ExprKind::Member { object, name, .. } => {
                let object = self.eval(object)?;
                self.at = target.at;
                self.delete(&object, name).map(Value::Bool)
            }
            ExprKind::Index { object, index, .. } => {
                let object = self.eval(object)?;
                let index = self.eval(index)?;
                let name = self.to_key(&index)?;
                self.at = target.at;
                self.delete(&object, &name).map(Value::Bool)
            }
            _other => Ok(Value::Bool(true)),
        }
    }

    /// The result of `await`. All values are available immediately.
    pub(crate) fn awaited(&mut self, value: Value) -> Eval {
        match crate::builtins::promise::settled_as(&value) {
            Some(Ok(value)) => Ok(value),
            Some(Err(thrown)) => Err(crate::interp::throw(thrown)),
            None => Ok(value),
        }
    }
}

/// Whether the left operand decides a logical operator.
fn enough(op: Logical, left: &Value) -> bool {
    match op {
        Logical::And => !left.truthy(),
        Logical::Or => left.truthy(),
        Logical::Else => !left.is_nullish(),
    }
}

/// A `?.` on null or undefined ends the chain.
fn short(value: &Value, maybe: bool) -> Eval<()> {
    if maybe && value.is_nullish() { Err(Stop(Box::new(Why::Short))) } else { Ok(()) }
}

/// The source name of an expression, for messages.
fn named(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Var(var) => var.name.to_string(),
        ExprKind::Member { object, name, .. } => {
            let outer = match &object.kind {
                ExprKind::Var(_) | ExprKind::Member { .. } => named(object),
                ExprKind::Call { .. } => "(…)".to_owned(),
                _other => "…".to_owned(),
            };
            format!("{outer}.{}", name.as_str().trim_start_matches(crate::object::PRIVATE))
        }
        _other => "this".to_owned(),
    }
}
