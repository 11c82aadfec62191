//! Resolves every variable: to a slot of its call, a cell captured from the enclosing function, or a built-in.
//!
//! An undeclared name is an error with its line, before anything runs.

use std::rc::Rc;

use crate::ast::*;
use crate::error::ScriptError;
use crate::native;

type Resolved = Result<(), ScriptError>;

/// Maximum variables of one call.
const SLOTS_MAX: u32 = 10_000;

/// Resolves a program, and returns the host functions that it names.
pub(crate) fn resolve(program: &mut Function) -> Result<Vec<&'static str>, ScriptError> {
    let mut resolver = Resolver { functions: Vec::new(), uses: Vec::new() };
    resolver.function(program)?;
    resolver.uses.sort_unstable();
    resolver.uses.dedup();
    Ok(resolver.uses)
}

struct Resolver {
    functions: Vec<Open>,
    uses: Vec<&'static str>,
}

/// A function being resolved.
#[derive(Default)]
struct Open {
    scopes: Vec<Vec<Known>>,
    next_slot: u32,
    slots: u32,
    caught: Vec<(Rc<str>, Catch, bool)>,
}

struct Known {
    name: Rc<str>,
    slot: u32,
    caught: bool,
    constant: bool,
}

impl Resolver {
    fn open(&mut self) {
        if let Some(function) = self.functions.last_mut() {
            function.scopes.push(Vec::new());
        }
    }

    /// Ends a scope and releases its slots.
    fn close(&mut self) -> Scope {
        let Some(function) = self.functions.last_mut() else { return Scope::new() };
        let known = function.scopes.pop().unwrap_or_default();
        let count = u32::try_from(known.len()).unwrap_or(0);
        function.next_slot = function.next_slot.saturating_sub(count);
        known.iter().map(|one| Declared { slot: one.slot, caught: one.caught }).collect()
    }

    fn declare(&mut self, name: &Rc<str>, constant: bool, at: u32) -> Result<u32, ScriptError> {
        let Some(function) = self.functions.last_mut() else {
            return Err(ScriptError::new(at, "no function is open"));
        };
        let slot = function.next_slot;
        if slot >= SLOTS_MAX {
            return Err(ScriptError::new(at, "too many variables in one function"));
        }
        let Some(scope) = function.scopes.last_mut() else {
            return Err(ScriptError::new(at, "no scope is open"));
        };
        if scope.iter().any(|known| known.name == *name) {
            return Err(ScriptError::new(at, format!("`{name}` is declared twice")));
        }
        if &**name == "regent" {
            return Err(ScriptError::new(at, "`regent` is the host and can't be given another meaning"));
        }
        scope.push(Known { name: Rc::clone(name), slot, caught: false, constant });
        function.next_slot = slot.saturating_add(1);
        function.slots = function.slots.max(function.next_slot);
        Ok(slot)
    }

    fn declare_pattern(&mut self, pattern: &Pattern, constant: bool) -> Resolved {
        match pattern {
            Pattern::Var(var, at) => self.declare(&var.name, constant, *at).map(|_| ()),
            Pattern::Target(_) => Ok(()),
            Pattern::Array(slots, rest, _) => {
                for slot in slots.iter().flatten() {
                    self.declare_pattern(&slot.pattern, constant)?;
                }
                rest.as_ref().map_or(Ok(()), |rest| self.declare_pattern(rest, constant))
            }
            Pattern::Object(slots, rest, _) => {
                for (_, slot) in slots {
                    self.declare_pattern(&slot.pattern, constant)?;
                }
                rest.as_ref().map_or(Ok(()), |rest| self.declare_pattern(rest, constant))
            }
        }
    }

    /// Looks up a name from the innermost scope outwards. A variable of an outer function is captured, level by level.
    fn find(&mut self, level: usize, name: &str) -> Option<(Place, bool)> {
        let function = self.functions.get_mut(level)?;
        for scope in function.scopes.iter_mut().rev() {
            if let Some(known) = scope.iter_mut().find(|known| &*known.name == name) {
                return Some((Place::Local(known.slot), known.constant));
            }
        }
        let caught = |index: usize| Place::Caught(u32::try_from(index).unwrap_or(u32::MAX));
        if let Some(index) = function.caught.iter().position(|(known, ..)| &**known == name) {
            let constant = function.caught.get(index).is_some_and(|(.., constant)| *constant);
            return Some((caught(index), constant));
        }
        let outside = level.checked_sub(1)?;
        let (place, constant) = self.find(outside, name)?;
        let from = match place {
            Place::Local(slot) => {
                self.mark_caught(outside, slot, name);
                Catch::Local(slot)
            }
            Place::Caught(index) => Catch::Caught(index),
            Place::Nowhere | Place::Global(_) => return None,
        };
        let function = self.functions.get_mut(level)?;
        function.caught.push((name.into(), from, constant));
        Some((caught(function.caught.len().saturating_sub(1)), constant))
    }

    fn mark_caught(&mut self, level: usize, slot: u32, name: &str) {
        let scopes =
            self.functions.get_mut(level).into_iter().flat_map(|function| function.scopes.iter_mut());
        for known in scopes.flatten().filter(|known| known.slot == slot && &*known.name == name) {
            known.caught = true;
        }
    }

    fn var(&mut self, var: &mut Var, assigns: bool, at: u32) -> Resolved {
        let level = self.functions.len().saturating_sub(1);
        match self.find(level, &var.name) {
            Some((_, true)) if assigns => {
                Err(ScriptError::new(at, format!("`{}` is a constant and can't be assigned to", var.name)))
            }
            Some((place, _)) => {
                var.place = place;
                Ok(())
            }
            None => self.global(var, assigns, at),
        }
    }

    fn global(&mut self, var: &mut Var, assigns: bool, at: u32) -> Resolved {
        if &*var.name == "this" {
            return Err(ScriptError::new(at, "`this` only means something inside a method or a function"));
        }
        if &*var.name == "regent" {
            return Err(ScriptError::new(at, "name the host function: `regent.readFile(…)`"));
        }
        let Some(global) = native::global(&var.name) else {
            let message = match &*var.name {
                "require" | "module" | "process" | "exports" | "globalThis" | "window" => {
                    format!("`{}` is not there: a tool has its input, the language and `regent`", var.name)
                }
                "setTimeout" | "setInterval" => format!("`{}` is not there: nothing waits", var.name),
                "Symbol" | "Proxy" | "Reflect" | "WeakMap" | "WeakSet" | "BigInt" => {
                    format!("`{}` is not supported", var.name)
                }
                _other => format!("`{}` is not defined", var.name),
            };
            return Err(ScriptError::new(at, message));
        };
        if assigns {
            return Err(ScriptError::new(at, format!("`{}` can't be assigned to", var.name)));
        }
        if let Some(used) = global.host_function() {
            self.uses.push(used);
        }
        var.place = Place::Global(global);
        Ok(())
    }

    /// `regent.readFile`, `regent.kv.get`: resolved by name before the program runs, so that the tool's host functions are known.
    fn host_member(&mut self, expr: &mut Expr) -> Result<bool, ScriptError> {
        let ExprKind::Member { object, name, .. } = &expr.kind else { return Ok(false) };
        let path = match &object.kind {
            ExprKind::Var(var) if &*var.name == "regent" => name.as_str().to_owned(),
            ExprKind::Member { object: outer, name: group, .. } => match &outer.kind {
                ExprKind::Var(var) if &*var.name == "regent" => {
                    format!("{}.{}", group.as_str(), name.as_str())
                }
                _other => return Ok(false),
            },
            _other => return Ok(false),
        };
        let Some((global, used)) = native::host_function(&path) else {
            return Err(ScriptError::new(expr.at, format!("there is no host function `regent.{path}`")));
        };
        self.uses.push(used);
        expr.kind =
            ExprKind::Var(Var { name: format!("regent.{path}").into(), place: Place::Global(global) });
        Ok(true)
    }

    fn function(&mut self, function: &mut Function) -> Resolved {
        self.functions.push(Open::default());
        self.open();
        let mut frame = Frame::default();
        if function.kind != FunctionKind::Arrow {
            frame.this = Some(self.declare(&"this".into(), true, function.at)?);
        }
        for slot in &function.params {
            self.declare_pattern(&slot.pattern, false)?;
        }
        if let Some(rest) = &function.rest {
            self.declare_pattern(rest, false)?;
        }
        let named = |slot: &Slot| matches!(&slot.pattern, Pattern::Var(var, _) if var.name == function.name);
        if function.knows_itself && !function.params.iter().any(named) {
            frame.itself = Some(self.declare(&function.name, true, function.at)?);
        }
        for slot in &mut function.params {
            self.slot(slot)?;
        }
        if let Some(rest) = &mut function.rest {
            self.pattern(rest, false)?;
        }
        match &mut function.body {
            Body::Block(block) => self.block(block)?,
            Body::Expr(value) => self.expr(value)?,
        }
        frame.declared = self.close();
        if let Some(open) = self.functions.pop() {
            frame.slots = open.slots;
            frame.caught = open.caught.iter().map(|(_, from, _)| *from).collect();
        }
        frame.plain = plain_params(function);
        function.frame = frame;
        Ok(())
    }

    fn shared_function(&mut self, function: &mut Rc<Function>) -> Resolved {
        let at = function.at;
        match Rc::get_mut(function) {
            Some(function) => self.function(function),
            None => Err(ScriptError::new(at, "the function is in use")),
        }
    }

    fn slot(&mut self, slot: &mut Slot) -> Resolved {
        if let Some(default) = &mut slot.default {
            self.expr(default)?;
        }
        self.pattern(&mut slot.pattern, false)
    }

    fn assigned_slot(&mut self, slot: &mut Slot) -> Resolved {
        if let Some(default) = &mut slot.default {
            self.expr(default)?;
        }
        self.pattern(&mut slot.pattern, true)
    }

    fn pattern(&mut self, pattern: &mut Pattern, assigns: bool) -> Resolved {
        let slot = if assigns { Self::assigned_slot } else { Self::slot };
        match pattern {
            Pattern::Var(var, at) => self.var(var, assigns, *at),
            Pattern::Target(target) => self.expr(target),
            Pattern::Array(slots, rest, _) => {
                for one in slots.iter_mut().flatten() {
                    slot(self, one)?;
                }
                rest.as_mut().map_or(Ok(()), |rest| self.pattern(rest, assigns))
            }
            Pattern::Object(slots, rest, _) => {
                for (key, one) in slots {
                    self.key(key)?;
                    slot(self, one)?;
                }
                rest.as_mut().map_or(Ok(()), |rest| self.pattern(rest, assigns))
            }
        }
    }

    fn key(&mut self, key: &mut Key) -> Resolved {
        match key {
            Key::Name(_) => Ok(()),
            Key::Computed(value) => self.expr(value),
        }
    }

    fn block(&mut self, block: &mut Block) -> Resolved {
        self.open();
        self.block_inside(block)?;
        block.scope = self.close();
        Ok(())
    }

    /// All names of a block are in scope throughout the block.
    fn block_inside(&mut self, block: &mut Block) -> Resolved {
        for (var, function) in &block.functions {
            self.declare(&var.name, false, function.at)?;
        }
        for statement in &block.statements {
            match &statement.kind {
                StatementKind::Let(all, constant) => {
                    for (pattern, _) in all {
                        self.declare_pattern(pattern, *constant)?;
                    }
                }
                StatementKind::Class(var, _) => {
                    self.declare(&var.name, false, statement.at)?;
                }
                _other => {}
            }
        }
        for (var, function) in &mut block.functions {
            self.var(var, false, function.at)?;
            self.shared_function(function)?;
        }
        block.statements.iter_mut().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &mut Statement) -> Resolved {
        let at = statement.at;
        match &mut statement.kind {
            StatementKind::Expr(value) | StatementKind::Throw(value) => self.expr(value),
            StatementKind::Let(all, _) => {
                for (pattern, value) in all {
                    value.as_mut().map_or(Ok(()), |value| self.expr(value))?;
                    self.pattern(pattern, false)?;
                }
                Ok(())
            }
            StatementKind::Class(var, class) => {
                self.var(var, false, at)?;
                self.class(class)
            }
            StatementKind::Block(block) | StatementKind::Labelled(_, block) => self.block(block),
            StatementKind::If(branches, otherwise) => {
                for (test, block) in branches {
                    self.expr(test)?;
                    self.block(block)?;
                }
                otherwise.as_mut().map_or(Ok(()), |block| self.block(block))
            }
            StatementKind::For(each) => self.for_loop(each),
            StatementKind::Each(each) => self.each(each),
            StatementKind::While { test, body, .. } | StatementKind::DoWhile { test, body, .. } => {
                self.expr(test)?;
                self.block(body)
            }
            StatementKind::Switch(switch) => {
                self.expr(&mut switch.subject)?;
                self.open();
                self.block_inside(&mut switch.body)?;
                for (value, _) in &mut switch.cases {
                    value.as_mut().map_or(Ok(()), |value| self.expr(value))?;
                }
                switch.body.scope = self.close();
                Ok(())
            }
            StatementKind::Try(attempt) => self.attempt(attempt),
            StatementKind::Return(value) => value.as_mut().map_or(Ok(()), |value| self.expr(value)),
            StatementKind::Break(_) | StatementKind::Continue(_) => Ok(()),
        }
    }

    fn for_loop(&mut self, each: &mut For) -> Resolved {
        self.open();
        if let Some(init) = &mut each.init {
            if let StatementKind::Let(all, constant) = &init.kind {
                for (pattern, _) in all {
                    self.declare_pattern(pattern, *constant)?;
                }
            }
            self.statement(init)?;
        }
        for part in [&mut each.test, &mut each.update].into_iter().flatten() {
            self.expr(part)?;
        }
        self.block(&mut each.body)?;
        each.scope = self.close();
        Ok(())
    }

    fn each(&mut self, each: &mut Each) -> Resolved {
        self.expr(&mut each.subject)?;
        self.open();
        if let Some(constant) = each.declares {
            self.declare_pattern(&each.pattern, constant)?;
        }
        self.pattern(&mut each.pattern, each.declares.is_none())?;
        self.block(&mut each.body)?;
        each.scope = self.close();
        Ok(())
    }

    fn attempt(&mut self, attempt: &mut Try) -> Resolved {
        self.block(&mut attempt.body)?;
        if let Some((pattern, block, scope)) = &mut attempt.catch {
            self.open();
            if let Some(pattern) = pattern {
                self.declare_pattern(pattern, false)?;
                self.pattern(pattern, false)?;
            }
            self.block(block)?;
            *scope = self.close();
        }
        attempt.finally.as_mut().map_or(Ok(()), |block| self.block(block))
    }

    fn class(&mut self, class: &mut Class) -> Resolved {
        if let Some(parent) = &mut class.parent {
            self.expr(parent)?;
        }
        for function in [&mut class.constructor, &mut class.fields].into_iter().flatten() {
            self.shared_function(function)?;
        }
        for (key, function) in &mut class.methods {
            self.key(key)?;
            self.shared_function(function)?;
        }
        for (key, value) in &mut class.statics {
            self.key(key)?;
            self.expr(value)?;
        }
        Ok(())
    }

    fn items(&mut self, items: &mut [Item]) -> Resolved {
        items.iter_mut().try_for_each(|item| self.expr(&mut item.value))
    }

    fn expr(&mut self, expr: &mut Expr) -> Resolved {
        if self.host_member(expr)? {
            return Ok(());
        }
        let at = expr.at;
        match &mut expr.kind {
            ExprKind::Undefined
            | ExprKind::Null
            | ExprKind::Bool(_)
            | ExprKind::Num(_)
            | ExprKind::Str(_)
            | ExprKind::Regex(_) => Ok(()),
            ExprKind::SuperMember(_, this) => self.var(this, false, at),
            ExprKind::SuperCall(items, this) => {
                self.var(this, false, at)?;
                self.items(items)
            }
            ExprKind::Template(_, all) | ExprKind::Sequence(all) => {
                all.iter_mut().try_for_each(|one| self.expr(one))
            }
            ExprKind::Var(var) => self.var(var, false, at),
            ExprKind::Array(items) => self.items(items),
            ExprKind::Object(fields) => fields.iter_mut().try_for_each(|field| match field {
                Field::Named(key, value) => {
                    self.key(key)?;
                    self.expr(value)
                }
                Field::Spread(value) => self.expr(value),
            }),
            ExprKind::Function(function) => self.shared_function(function),
            ExprKind::Class(class) => self.class(class),
            // `typeof` of an undeclared name is allowed and gives `undefined`.
            ExprKind::Unary(Unary::Typeof, value) => match &value.kind {
                ExprKind::Var(var) if !self.exists(&var.name) => {
                    value.kind = ExprKind::Undefined;
                    Ok(())
                }
                _other => self.expr(value),
            },
            ExprKind::Unary(_, value) | ExprKind::Chain(value) | ExprKind::Await(value) => self.expr(value),
            ExprKind::Update { target, .. } => self.target(target),
            ExprKind::Binary(_, left, right) | ExprKind::Logical(_, left, right) => {
                self.expr(left)?;
                self.expr(right)
            }
            ExprKind::Assign { target, value, .. } | ExprKind::AssignIf { target, value, .. } => {
                self.target(target)?;
                self.expr(value)
            }
            ExprKind::AssignPattern { pattern, value } => {
                self.expr(value)?;
                self.pattern(pattern, true)
            }
            ExprKind::Choice(test, yes, no) => {
                self.expr(test)?;
                self.expr(yes)?;
                self.expr(no)
            }
            ExprKind::Call { callee, args, .. } | ExprKind::New { callee, args } => {
                self.expr(callee)?;
                self.items(args)
            }
            ExprKind::Member { object, .. } => self.expr(object),
            ExprKind::Index { object, index, .. } => {
                self.expr(object)?;
                self.expr(index)
            }
        }
    }

    fn exists(&mut self, name: &str) -> bool {
        let level = self.functions.len().saturating_sub(1);
        self.find(level, name).is_some() || native::global(name).is_some() || name == "this"
    }

    fn target(&mut self, target: &mut Expr) -> Resolved {
        let at = target.at;
        match &mut target.kind {
            ExprKind::Var(var) => self.var(var, true, at),
            _other => self.expr(target),
        }
    }
}

/// The slots of parameters that need no destructuring or defaults.
fn plain_params(function: &Function) -> Option<Vec<u32>> {
    if function.rest.is_some() {
        return None;
    }
    let plain = |slot: &Slot| match (&slot.pattern, &slot.default) {
        (Pattern::Var(Var { place: Place::Local(index), .. }, _), None) => Some(*index),
        _other => None,
    };
    function.params.iter().map(plain).collect()
}
