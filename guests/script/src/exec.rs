//! Statements and destructuring.

use std::rc::Rc;

use crate::ast::*;
use crate::interp::{Eval, Interp, Stop, Why, throw};
use crate::object::{Body as ObjectBody, ClassBody, Props};
use crate::value::Value;

/// How a statement ended.
#[derive(Debug)]
pub(crate) enum Flow {
    On,
    Break(Option<Rc<str>>),
    Continue(Option<Rc<str>>),
    Return(Value),
}

/// What a loop does after its body.
enum Turn {
    Next,
    Done,
    Leave(Flow),
}

fn turn(flow: Flow, label: Option<&Rc<str>>) -> Turn {
    match flow {
        Flow::On => Turn::Next,
        Flow::Continue(to) if to.is_none() || to.as_ref() == label => Turn::Next,
        Flow::Break(to) if to.is_none() || to.as_ref() == label => Turn::Done,
        other @ (Flow::Break(_) | Flow::Continue(_) | Flow::Return(_)) => Turn::Leave(other),
    }
}

impl Interp<'_> {
    /// The body of a function: what it returns.
    pub(crate) fn body_block(&mut self, block: &Block) -> Eval {
        match self.block(block)? {
            Flow::Return(value) => Ok(value),
            Flow::On | Flow::Break(_) | Flow::Continue(_) => Ok(Value::Undefined),
        }
    }

    pub(crate) fn block(&mut self, block: &Block) -> Eval<Flow> {
        self.enter(&block.scope);
        self.statements(block, 0)
    }

    fn statements(&mut self, block: &Block, from: usize) -> Eval<Flow> {
        for (var, function) in &block.functions {
            let home = self.home.clone();
            let closure = self.closure(function, home);
            self.set_var(var, closure, true, function.at)?;
        }
        for statement in block.statements.iter().skip(from) {
            match self.statement(statement)? {
                Flow::On => {}
                other @ (Flow::Break(_) | Flow::Continue(_) | Flow::Return(_)) => return Ok(other),
            }
        }
        Ok(Flow::On)
    }

    fn statement(&mut self, statement: &Statement) -> Eval<Flow> {
        match &statement.kind {
            StatementKind::Expr(value) => {
                self.eval(value)?;
                Ok(Flow::On)
            }
            StatementKind::Let(all, _) => {
                for (pattern, value) in all {
                    let value = value.as_ref().map_or(Ok(Value::Undefined), |value| self.eval(value))?;
                    self.bind(pattern, value, true)?;
                }
                Ok(Flow::On)
            }
            StatementKind::Return(Some(value)) => Ok(Flow::Return(self.eval(value)?)),
            StatementKind::Return(None) => Ok(Flow::Return(Value::Undefined)),
            StatementKind::Break(label) => Ok(Flow::Break(label.clone())),
            StatementKind::Continue(label) => Ok(Flow::Continue(label.clone())),
            StatementKind::Throw(value) => {
                let value = self.eval(value)?;
                self.at = statement.at;
                Err(throw(value))
            }
            StatementKind::Class(var, class) => {
                let value = self.class(class)?;
                self.set_var(var, value, true, statement.at)?;
                Ok(Flow::On)
            }
            StatementKind::Block(_)
            | StatementKind::If(..)
            | StatementKind::For(_)
            | StatementKind::Each(_)
            | StatementKind::While { .. }
            | StatementKind::DoWhile { .. }
            | StatementKind::Switch(_)
            | StatementKind::Try(_)
            | StatementKind::Labelled(..) => self.deeper(|interp| interp.nested(statement)),
        }
    }

    /// Statements that contain others.
    fn nested(&mut self, statement: &Statement) -> Eval<Flow> {
        match &statement.kind {
            StatementKind::Block(block) => self.block(block),
            StatementKind::If(branches, otherwise) => {
                for (test, block) in branches {
                    if self.eval(test)?.truthy() {
                        return self.block(block);
                    }
                }
                otherwise.as_ref().map_or(Ok(Flow::On), |block| self.block(block))
            }
            StatementKind::For(each) => self.for_loop(each),
            StatementKind::Each(each) => self.each(each),
            StatementKind::While { test, body, label } => self.while_loop(test, body, label.as_ref(), false),
            StatementKind::DoWhile { test, body, label } => self.while_loop(test, body, label.as_ref(), true),
            StatementKind::Switch(switch) => self.switch(switch),
            StatementKind::Try(attempt) => self.attempt(attempt),
            StatementKind::Labelled(label, block) => match self.block(block)? {
                Flow::Break(Some(to)) if to == *label => Ok(Flow::On),
                other => Ok(other),
            },
            StatementKind::Expr(_)
            | StatementKind::Let(..)
            | StatementKind::Class(..)
            | StatementKind::Throw(_)
            | StatementKind::Return(_)
            | StatementKind::Break(_)
            | StatementKind::Continue(_) => Ok(Flow::On),
        }
    }

    fn for_loop(&mut self, each: &For) -> Eval<Flow> {
        self.enter(&each.scope);
        if let Some(init) = &each.init {
            self.statement(init)?;
        }
        loop {
            self.step()?;
            if let Some(test) = &each.test
                && !self.eval(test)?.truthy()
            {
                return Ok(Flow::On);
            }
            match turn(self.block(&each.body)?, each.label.as_ref()) {
                Turn::Next => {}
                Turn::Done => return Ok(Flow::On),
                Turn::Leave(flow) => return Ok(flow),
            }
            self.next_turn(&each.scope);
            if let Some(update) = &each.update {
                self.eval(update)?;
            }
        }
    }

    fn while_loop(&mut self, test: &Expr, body: &Block, label: Option<&Rc<str>>, first: bool) -> Eval<Flow> {
        let mut untested = first;
        loop {
            self.step()?;
            if !std::mem::take(&mut untested) && !self.eval(test)?.truthy() {
                return Ok(Flow::On);
            }
            match turn(self.block(body)?, label) {
                Turn::Next => {}
                Turn::Done => return Ok(Flow::On),
                Turn::Leave(flow) => return Ok(flow),
            }
        }
    }

    fn each(&mut self, each: &Each) -> Eval<Flow> {
        let subject = self.eval(&each.subject)?;
        if each.keys {
            let keys = self.keys_of(&subject)?.into_iter().map(Value::Str).collect::<Vec<_>>();
            return self.each_of(each, |_, index| Ok(keys.get(index).cloned()));
        }
        self.at = each.subject.at;
        if subject.is_array() {
            // A list is re-read in each iteration: it may grow.
            return self.each_of(each, |_, index| {
                let object = subject.as_object();
                Ok(object.and_then(|object| match &*object.body.borrow() {
                    ObjectBody::Array(items) => items.get(index).cloned(),
                    _other => None,
                }))
            });
        }
        let items = self.iterate(&subject)?;
        self.each_of(each, |_, index| Ok(items.get(index).cloned()))
    }

    fn each_of(&mut self, each: &Each, item: impl Fn(&mut Self, usize) -> Eval<Option<Value>>) -> Eval<Flow> {
        let mut index = 0_usize;
        while let Some(value) = item(self, index)? {
            self.step()?;
            let value = if each.awaits { self.awaited(value)? } else { value };
            self.enter(&each.scope);
            self.bind(&each.pattern, value, each.declares.is_some())?;
            match turn(self.block(&each.body)?, each.label.as_ref()) {
                Turn::Next => {}
                Turn::Done => return Ok(Flow::On),
                Turn::Leave(flow) => return Ok(flow),
            }
            index = index.saturating_add(1);
        }
        Ok(Flow::On)
    }

    fn switch(&mut self, switch: &Switch) -> Eval<Flow> {
        let subject = self.eval(&switch.subject)?;
        self.enter(&switch.body.scope);
        let mut start = None;
        for (value, at) in &switch.cases {
            if let Some(value) = value
                && self.eval(value)?.same(&subject)
            {
                start = Some(*at);
                break;
            }
        }
        let default = || switch.cases.iter().find(|(value, _)| value.is_none()).map(|(_, at)| *at);
        let Some(start) = start.or_else(default) else { return Ok(Flow::On) };
        match self.statements(&switch.body, start)? {
            Flow::Break(to) if to.is_none() || to == switch.label => Ok(Flow::On),
            other => Ok(other),
        }
    }

    fn attempt(&mut self, attempt: &Try) -> Eval<Flow> {
        let mut result = self.block(&attempt.body);
        if let (Err(Stop(why)), Some((pattern, block, scope))) = (&mut result, &attempt.catch)
            && let Why::Throw(thrown) = &mut **why
        {
            let thrown = std::mem::take(thrown);
            self.enter(scope);
            let bound = pattern.as_ref().map_or(Ok(()), |pattern| self.bind(pattern, thrown, true));
            result = bound.and_then(|()| self.block(block));
        }
        // A program can't catch a limit.
        let caught_limit = matches!(&result, Err(Stop(why)) if matches!(**why, Why::Limit(_)));
        match &attempt.finally {
            Some(finally) if !caught_limit => match self.block(finally)? {
                Flow::On => result,
                other @ (Flow::Break(_) | Flow::Continue(_) | Flow::Return(_)) => Ok(other),
            },
            Some(_) | None => result,
        }
    }

    // Destructuring.

    pub(crate) fn bind_params(&mut self, function: &Function, args: &[Value]) -> Eval<()> {
        for (index, slot) in function.params.iter().enumerate() {
            let value = args.get(index).cloned().unwrap_or_default();
            self.bind_slot(slot, value, true)?;
        }
        if let Some(rest) = &function.rest {
            let left = args.get(function.params.len()..).unwrap_or_default().to_vec();
            let left = self.array(left);
            self.bind(rest, left, true)?;
        }
        Ok(())
    }

    fn bind_slot(&mut self, slot: &Slot, value: Value, begins: bool) -> Eval<()> {
        let value = match (&slot.default, value) {
            (Some(default), Value::Undefined) => self.eval(default)?,
            (_, value) => value,
        };
        self.bind(&slot.pattern, value, begins)
    }

    pub(crate) fn bind(&mut self, pattern: &Pattern, value: Value, begins: bool) -> Eval<()> {
        match pattern {
            Pattern::Var(var, at) => self.set_var(var, value, begins, *at),
            Pattern::Target(target) => self.assign(target, value),
            Pattern::Array(slots, rest, at) => {
                self.at = *at;
                let items = self.deeper(|interp| interp.iterate(&value))?;
                for (index, slot) in slots.iter().enumerate() {
                    if let Some(slot) = slot {
                        self.bind_slot(slot, items.get(index).cloned().unwrap_or_default(), begins)?;
                    }
                }
                if let Some(rest) = rest {
                    let left = items.get(slots.len()..).unwrap_or_default().to_vec();
                    let left = self.array(left);
                    self.bind(rest, left, begins)?;
                }
                Ok(())
            }
            Pattern::Object(slots, rest, at) => {
                self.at = *at;
                if value.is_nullish() {
                    let what = crate::interp::shown(&value);
                    return Err(
                        self.type_error(format!("Cannot destructure {what}, as it has no properties"))
                    );
                }
                let mut taken = Vec::new();
                for (key, slot) in slots {
                    let name = self.key(key)?;
                    let part = self.get_str(&value, &name)?;
                    taken.push(name);
                    self.bind_slot(slot, part, begins)?;
                }
                if let Some(rest) = rest {
                    let mut props = Props::default();
                    for (name, part) in self.entries_of(&value)? {
                        if !taken.iter().any(|known| known.as_str() == name.as_str()) {
                            props.set(&name, part);
                        }
                    }
                    let left = self.record(props);
                    self.bind(rest, left, begins)?;
                }
                Ok(())
            }
        }
    }

    // Classes.

    pub(crate) fn class(&mut self, class: &Class) -> Eval {
        let parent = match &class.parent {
            None => None,
            Some(parent) => {
                let at = parent.at;
                let value = self.eval(parent)?;
                self.at = at;
                let is_class = |object: &&Rc<crate::object::Object>| {
                    matches!(&*object.body.borrow(), ObjectBody::Class(_))
                };
                match value.as_object().filter(is_class) {
                    Some(object) => Some(Rc::clone(object)),
                    None => return Err(self.type_error("a class can only extend a class or an error")),
                }
            }
        };
        let is_error = parent
            .as_ref()
            .is_some_and(|parent| matches!(&*parent.body.borrow(), ObjectBody::Class(body) if body.is_error));
        let body = ClassBody {
            name: Rc::clone(&class.name),
            parent,
            constructor: None,
            fields: None,
            methods: Props::default(),
            statics: Props::default(),
            is_error,
        };
        let object = self.heap.make(ObjectBody::Class(Box::new(body)));
        let make =
            |interp: &mut Self, function: &Rc<Function>| interp.closure(function, Some(Rc::clone(&object)));
        let constructor = class.constructor.as_ref().map(|function| make(self, function));
        let fields = class.fields.as_ref().map(|function| make(self, function));
        let mut methods = Props::default();
        for (key, function) in &class.methods {
            let closure = make(self, function);
            methods.set(&self.key(key)?, closure);
        }
        if let ObjectBody::Class(body) = &mut *object.body.borrow_mut() {
            body.constructor = constructor.and_then(|value| value.as_object().cloned());
            body.fields = fields.and_then(|value| value.as_object().cloned());
            body.methods = methods;
        }
        for (key, value) in &class.statics {
            let name = self.key(key)?;
            let value = match &value.kind {
                ExprKind::Function(function) => make(self, function),
                _other => {
                    let outer = self.home.replace(Rc::clone(&object));
                    let value = self.eval(value);
                    self.home = outer;
                    value?
                }
            };
            if let ObjectBody::Class(body) = &mut *object.body.borrow_mut() {
                body.statics.set(&name, value);
            }
        }
        Ok(Value::Obj(object))
    }
}
