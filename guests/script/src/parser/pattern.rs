//! Destructuring patterns of declarations, parameters and assignments.

use std::rc::Rc;

use super::{Parsed, Parser};
use crate::ast::*;
use crate::error::ScriptError;
use crate::lexer::Kind;
use crate::text::str_of;

impl Parser<'_> {
    pub(super) fn binding_pattern(&mut self) -> Parsed<Pattern> {
        self.nested(|parser| match parser.kind() {
            Kind::Mark("[") => parser.array_pattern(),
            Kind::Mark("{") => parser.object_pattern(),
            _other => {
                let at = parser.at();
                Ok(Pattern::Var(Var { name: parser.binding()?, place: Place::Nowhere }, at))
            }
        })
    }

    pub(super) fn binding_slot(&mut self) -> Parsed<Slot> {
        let pattern = self.binding_pattern()?;
        let default = if self.take("=") { Some(self.assignment()?) } else { None };
        Ok(Slot { pattern, default })
    }

    fn array_pattern(&mut self) -> Parsed<Pattern> {
        let at = self.at();
        self.expect("[")?;
        let (mut slots, mut rest) = (Vec::new(), None);
        while !self.take("]") {
            if self.take(",") {
                slots.push(None);
                continue;
            }
            if self.take("...") {
                rest = Some(Box::new(self.binding_pattern()?));
                self.expect("]")?;
                break;
            }
            slots.push(Some(self.binding_slot()?));
            if !self.is("]") {
                self.expect(",")?;
            }
        }
        Ok(Pattern::Array(slots, rest, at))
    }

    fn object_pattern(&mut self) -> Parsed<Pattern> {
        let at = self.at();
        self.expect("{")?;
        let (mut slots, mut rest) = (Vec::new(), None);
        while !self.take("}") {
            if self.take("...") {
                rest = Some(Box::new(self.binding_pattern()?));
                self.expect("}")?;
                break;
            }
            let shorthand = matches!(self.kind(), Kind::Word(_)) && !matches!(self.ahead(1), Kind::Mark(":"));
            if shorthand {
                let at = self.at();
                let name = self.binding()?;
                let key = Key::Name(str_of(&name));
                let default = if self.take("=") { Some(self.assignment()?) } else { None };
                let pattern = Pattern::Var(Var { name, place: Place::Nowhere }, at);
                slots.push((key, Slot { pattern, default }));
            } else {
                let key = self.key()?;
                self.expect(":")?;
                slots.push((key, self.binding_slot()?));
            }
            if !self.is("}") {
                self.expect(",")?;
            }
        }
        Ok(Pattern::Object(slots, rest, at))
    }

    /// Converts an expression on the left of `=` to a pattern.
    pub(super) fn as_pattern(&mut self, target: Expr) -> Parsed<Pattern> {
        let at = target.at;
        match target.kind {
            ExprKind::Var(var) => Ok(Pattern::Var(var, at)),
            kind @ (ExprKind::Member { maybe: false, .. } | ExprKind::Index { maybe: false, .. }) => {
                Ok(Pattern::Target(Expr { kind, at }))
            }
            ExprKind::Array(items) => {
                let (mut slots, mut rest) = (Vec::new(), None);
                for item in items {
                    if rest.is_some() {
                        return Err(ScriptError::new(at, "nothing can follow `...rest`"));
                    }
                    if item.spread {
                        rest = Some(Box::new(self.as_pattern(item.value)?));
                    } else if matches!(item.value.kind, ExprKind::Undefined) {
                        slots.push(None);
                    } else {
                        slots.push(Some(self.as_slot(item.value)?));
                    }
                }
                Ok(Pattern::Array(slots, rest, at))
            }
            ExprKind::Object(fields) => {
                let (mut slots, mut rest) = (Vec::new(), None);
                for field in fields {
                    match field {
                        Field::Named(key, value) => slots.push((key, self.as_slot(value)?)),
                        Field::Spread(value) => rest = Some(Box::new(self.as_pattern(value)?)),
                    }
                }
                Ok(Pattern::Object(slots, rest, at))
            }
            _other => Err(ScriptError::new(at, "nothing can be assigned to this")),
        }
    }

    fn as_slot(&mut self, value: Expr) -> Parsed<Slot> {
        let at = value.at;
        match value.kind {
            ExprKind::Assign { target, op: None, value } => {
                Ok(Slot { pattern: self.as_pattern(*target)?, default: Some(*value) })
            }
            ExprKind::AssignPattern { pattern, value } => {
                Ok(Slot { pattern: *pattern, default: Some(*value) })
            }
            kind => Ok(Slot { pattern: self.as_pattern(Expr { kind, at })?, default: None }),
        }
    }

    /// The name of a property: a word, a string, a number, or `[…]`.
    pub(super) fn key(&mut self) -> Parsed<Key> {
        let key = match self.kind() {
            Kind::Word(word) => Key::Name(str_of(word)),
            Kind::Str(text) => Key::Name(str_of(text)),
            Kind::Num(number) => Key::Name(str_of(&crate::number::to_text(*number))),
            Kind::Private(name) => Key::Name(str_of(&private(name))),
            Kind::Mark("[") => {
                self.step();
                let value = self.assignment()?;
                self.expect("]")?;
                return Ok(Key::Computed(value));
            }
            Kind::Mark(_) | Kind::Template(_) | Kind::Regex { .. } | Kind::End => {
                return self.wrong(format!("expected the name of a property, found {}", self.shown()));
            }
        };
        self.step();
        Ok(key)
    }
}

/// Private names are properties that no other syntax can spell and that are never listed.
pub(super) fn private(name: &str) -> Rc<str> {
    format!("{}{name}", crate::object::PRIVATE).into()
}
