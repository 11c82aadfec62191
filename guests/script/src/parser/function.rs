//! Functions, arrows, methods and classes.

use std::rc::Rc;

use super::pattern::private;
use super::{Parsed, Parser};
use crate::ast::*;
use crate::lexer::Kind;
use crate::text::{Str, str_of};

impl Parser<'_> {
    pub(super) fn function_declaration(&mut self) -> Parsed<Function> {
        let at = self.at();
        let is_async = self.take_word("async");
        self.step();
        self.no_generator()?;
        let name = self.binding()?;
        self.function_rest(name, FunctionKind::Plain, is_async, at)
    }

    pub(super) fn function_expression(&mut self) -> Parsed<Expr> {
        let at = self.at();
        let is_async = self.take_word("async");
        self.step();
        self.no_generator()?;
        let name = if self.is("(") { "".into() } else { self.binding()? };
        let knows_itself = !name.is_empty();
        let mut function = self.function_rest(name, FunctionKind::Plain, is_async, at)?;
        function.knows_itself = knows_itself;
        Ok(Expr { kind: ExprKind::Function(Rc::new(function)), at })
    }

    fn no_generator(&self) -> Parsed<()> {
        if self.is("*") {
            return self.refuse("generators (`function*`) are", "build a list and return it");
        }
        Ok(())
    }

    /// Parameters and body.
    pub(super) fn function_rest(
        &mut self,
        name: Rc<str>,
        kind: FunctionKind,
        is_async: bool,
        at: u32,
    ) -> Parsed<Function> {
        let (params, rest) = self.params()?;
        let body = Body::Block(self.nested(Self::block)?);
        Ok(Function {
            name,
            params,
            rest,
            body,
            kind,
            is_async,
            knows_itself: false,
            at,
            frame: Frame::default(),
        })
    }

    fn params(&mut self) -> Parsed<(Vec<Slot>, Option<Pattern>)> {
        self.expect("(")?;
        let mut params = Vec::new();
        while !self.take(")") {
            if self.take("...") {
                let rest = self.binding_pattern()?;
                self.expect(")")?;
                return Ok((params, Some(rest)));
            }
            params.push(self.binding_slot()?);
            if !self.is(")") {
                self.expect(",")?;
            }
        }
        Ok((params, None))
    }

    /// Whether an arrow function begins here: `x =>`, `(…) =>`, `async x =>`, `async (…) =>`.
    pub(super) fn arrow_follows(&self) -> bool {
        let skip = usize::from(
            self.is_word("async")
                && !self.tokens.get(self.next.saturating_add(1)).is_some_and(|token| token.fresh)
                && matches!(self.ahead(1), Kind::Word(_) | Kind::Mark("(")),
        );
        let first = self.next.saturating_add(skip);
        let Some(token) = self.tokens.get(first) else { return false };
        let after = match &token.kind {
            Kind::Word(_) => first.saturating_add(1),
            Kind::Mark("(") => usize::try_from(token.mate).unwrap_or(usize::MAX).saturating_add(1),
            _other => return false,
        };
        self.tokens.get(after).is_some_and(|token| token.kind == Kind::Mark("=>") && !token.fresh)
    }

    pub(super) fn arrow(&mut self) -> Parsed<Expr> {
        let at = self.at();
        let is_async = self.is_word("async") && !matches!(self.ahead(1), Kind::Mark("=>"));
        if is_async {
            self.step();
        }
        let (params, rest) = if self.is("(") {
            self.params()?
        } else {
            let at = self.at();
            let pattern = Pattern::Var(Var { name: self.binding()?, place: Place::Nowhere }, at);
            (vec![Slot { pattern, default: None }], None)
        };
        self.expect("=>")?;
        let body = self.nested(|parser| {
            Ok(if parser.is("{") {
                Body::Block(parser.block()?)
            } else {
                Body::Expr(Box::new(parser.assignment()?))
            })
        })?;
        let (kind, frame) = (FunctionKind::Arrow, Frame::default());
        let function =
            Function { name: "".into(), params, rest, body, kind, is_async, knows_itself: false, at, frame };
        Ok(Expr { kind: ExprKind::Function(Rc::new(function)), at })
    }

    /// The prefix of a method's name: `async`; getters, setters and generators are errors.
    pub(super) fn method_prefix(&mut self) -> Parsed<bool> {
        if self.is("*") {
            return self.refuse("generator methods are", "build a list and return it");
        }
        let Kind::Word(word) = self.kind() else { return Ok(false) };
        let names_it = matches!(self.ahead(1), Kind::Mark("(" | "," | "}" | ":" | "=" | ";"));
        if names_it || self.tokens.get(self.next.saturating_add(1)).is_some_and(|token| token.fresh) {
            return Ok(false);
        }
        match &**word {
            "get" | "set" => self.refuse("getters and setters are", "write an ordinary method"),
            "async" => {
                self.step();
                if self.is("*") {
                    return self.refuse("generator methods are", "build a list and return it");
                }
                Ok(true)
            }
            _other => Ok(false),
        }
    }

    pub(super) fn class_declaration(&mut self) -> Parsed<StatementKind> {
        let class = self.class()?;
        if class.name.is_empty() {
            return self.wrong("the class needs a name");
        }
        let var = Var { name: Rc::clone(&class.name), place: Place::Nowhere };
        Ok(StatementKind::Class(var, Box::new(class)))
    }

    pub(super) fn class(&mut self) -> Parsed<Class> {
        self.nested(|parser| {
            parser.step();
            let unnamed = parser.is("{") || parser.is_word("extends");
            let name: Rc<str> = if unnamed { "".into() } else { parser.binding()? };
            let parent = if parser.take_word("extends") { Some(parser.postfix()?) } else { None };
            let mut class = Class {
                name,
                parent,
                constructor: None,
                fields: None,
                methods: Vec::new(),
                statics: Vec::new(),
            };
            let mut fields = Vec::new();
            parser.expect("{")?;
            while !parser.take("}") {
                if !parser.take(";") {
                    parser.class_member(&mut class, &mut fields)?;
                }
            }
            class.fields = setter(fields);
            Ok(class)
        })
    }

    fn class_member(&mut self, class: &mut Class, fields: &mut Vec<Statement>) -> Parsed<()> {
        let at = self.at();
        let is_static = self.is_word("static") && !matches!(self.ahead(1), Kind::Mark("(" | "=" | ";"));
        if is_static {
            self.step();
            if self.is("{") {
                return self.refuse("static blocks are", "assign after the class");
            }
        }
        let is_async = self.method_prefix()?;
        let is_constructor = self.is_word("constructor") && !is_static;
        let key = self.key()?;
        let name = key_name(&key);
        if self.is("(") {
            let function = Rc::new(self.function_rest(name, FunctionKind::Method, is_async, at)?);
            if is_constructor {
                class.constructor = Some(function);
            } else if is_static {
                class.statics.push((key, Expr { kind: ExprKind::Function(function), at }));
            } else {
                class.methods.push((key, function));
            }
            return Ok(());
        }
        let mut value =
            if self.take("=") { self.assignment()? } else { Expr { kind: ExprKind::Undefined, at } };
        super::give_name(&mut value, &name);
        self.statement_end()?;
        if is_static {
            class.statics.push((key, value));
        } else {
            fields.push(field(key, value, at));
        }
        Ok(())
    }

    /// The name after a dot, `#name` too.
    pub(super) fn member_name(&mut self) -> Parsed<Str> {
        let name = match self.kind() {
            Kind::Word(word) => str_of(word),
            Kind::Private(word) => str_of(&private(word)),
            _other => return self.wrong(format!("expected the name of a property, found {}", self.shown())),
        };
        self.step();
        Ok(name)
    }
}

pub(super) fn key_name(key: &Key) -> Rc<str> {
    match key {
        Key::Name(name) => name.as_str().into(),
        Key::Computed(_) => "".into(),
    }
}

/// `this.key = value`.
fn field(key: Key, value: Expr, at: u32) -> Statement {
    let this = Expr { kind: ExprKind::Var(Var { name: "this".into(), place: Place::Nowhere }), at };
    let object = Box::new(this);
    let kind = match key {
        Key::Name(name) => ExprKind::Member { object, name, maybe: false },
        Key::Computed(index) => ExprKind::Index { object, index: Box::new(index), maybe: false },
    };
    let target = Box::new(Expr { kind, at });
    let assign = ExprKind::Assign { target, op: None, value: Box::new(value) };
    Statement { kind: StatementKind::Expr(Expr { kind: assign, at }), at }
}

/// The fields of a class are set by a generated method.
fn setter(statements: Vec<Statement>) -> Option<Rc<Function>> {
    let at = statements.first()?.at;
    Some(Rc::new(Function {
        name: "fields".into(),
        params: Vec::new(),
        rest: None,
        body: Body::Block(Block { statements, ..Block::default() }),
        kind: FunctionKind::Method,
        is_async: false,
        knows_itself: false,
        at,
        frame: Frame::default(),
    }))
}
