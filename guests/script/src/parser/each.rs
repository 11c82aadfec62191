//! `for` in its three forms.

use std::rc::Rc;

use super::{Parsed, Parser};
use crate::ast::*;
use crate::lexer::Kind;

impl Parser<'_> {
    pub(super) fn for_statement(&mut self, label: Option<Rc<str>>) -> Parsed<StatementKind> {
        self.step();
        let awaits = self.take_word("await");
        self.expect("(")?;
        let at = self.at();
        let declares = match self.kind() {
            Kind::Word(word) if matches!(&**word, "let" | "const" | "var") => Some(&**word == "const"),
            _other => None,
        };
        if self.each_follows(declares.is_some()) {
            return self.for_each(declares, awaits, label);
        }
        let init = match declares {
            Some(_) => Some(Statement { kind: self.declaration()?, at }),
            None if self.take(";") => None,
            None => {
                let value = self.expression()?;
                self.expect(";")?;
                Some(Statement { kind: StatementKind::Expr(value), at })
            }
        };
        let test = if self.is(";") { None } else { Some(self.expression()?) };
        self.expect(";")?;
        let update = if self.is(")") { None } else { Some(self.expression()?) };
        self.expect(")")?;
        let (body, scope) = (self.body()?, Scope::new());
        Ok(StatementKind::For(Box::new(For { init, test, update, body, scope, label })))
    }

    /// Whether `of` or `in` follows the pattern that begins here.
    fn each_follows(&self, declares: bool) -> bool {
        let first = self.next.saturating_add(usize::from(declares));
        let Some(token) = self.tokens.get(first) else { return false };
        let after = match &token.kind {
            Kind::Mark("[" | "{") => usize::try_from(token.mate).unwrap_or(usize::MAX).saturating_add(1),
            Kind::Word(_) => first.saturating_add(1),
            _other => return false,
        };
        matches!(self.tokens.get(after).map(|token| &token.kind),
            Some(Kind::Word(word)) if matches!(&**word, "of" | "in"))
    }

    fn for_each(
        &mut self,
        declares: Option<bool>,
        awaits: bool,
        label: Option<Rc<str>>,
    ) -> Parsed<StatementKind> {
        let pattern = if declares.is_some() {
            self.step();
            self.binding_pattern()?
        } else {
            let target = self.unary()?;
            self.as_pattern(target)?
        };
        let keys = self.is_word("in");
        self.step();
        let subject = if keys { self.expression()? } else { self.assignment()? };
        self.expect(")")?;
        let (body, scope) = (self.body()?, Scope::new());
        Ok(StatementKind::Each(Box::new(Each {
            pattern,
            declares,
            keys,
            awaits,
            subject,
            body,
            scope,
            label,
        })))
    }
}
