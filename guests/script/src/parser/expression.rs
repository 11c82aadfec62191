//! Expressions, by precedence.

use std::rc::Rc;

use super::function::key_name;
use super::{CHAIN_MAX, Parsed, Parser, give_name};
use crate::ast::*;
use crate::error::ScriptError;
use crate::lexer::{Kind, Part};
use crate::regex::Pattern as RegexPattern;
use crate::text::str_of;

impl Parser<'_> {
    /// With commas.
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        let at = self.at();
        let first = self.assignment()?;
        if !self.is(",") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.take(",") {
            all.push(self.assignment()?);
        }
        Ok(Expr { kind: ExprKind::Sequence(all), at })
    }

    /// Without commas.
    pub(super) fn assignment(&mut self) -> Parsed<Expr> {
        self.nested(|parser| {
            if parser.arrow_follows() {
                return parser.arrow();
            }
            if parser.is_word("yield") {
                return parser.refuse("`yield` is", "build a list and return it");
            }
            let left = parser.choice()?;
            match parser.kind() {
                Kind::Mark(mark) => parser.assigned(left, mark),
                _other => Ok(left),
            }
        })
    }

    fn assigned(&mut self, left: Expr, mark: &str) -> Parsed<Expr> {
        let at = left.at;
        let logical = match mark {
            "&&=" => Some(Logical::And),
            "||=" => Some(Logical::Or),
            "??=" => Some(Logical::Else),
            _other => None,
        };
        let op = mark.strip_suffix('=').and_then(|op| binary_of(op).filter(|_| assigns(mark)));
        if mark != "=" && op.is_none() && logical.is_none() {
            return Ok(left);
        }
        let is_pattern = mark == "=" && matches!(left.kind, ExprKind::Array(_) | ExprKind::Object(_));
        if !is_pattern && !is_target(&left) {
            return Err(ScriptError::new(at, "nothing can be assigned to this"));
        }
        self.step();
        let mut value = self.assignment()?;
        if let ExprKind::Var(var) = &left.kind {
            give_name(&mut value, &var.name);
        }
        let value = Box::new(value);
        let kind = match (op, logical) {
            _ if is_pattern => ExprKind::AssignPattern { pattern: Box::new(self.as_pattern(left)?), value },
            (_, Some(op)) => ExprKind::AssignIf { target: Box::new(left), op, value },
            (op, None) => ExprKind::Assign { target: Box::new(left), op, value },
        };
        Ok(Expr { kind, at })
    }

    fn choice(&mut self) -> Parsed<Expr> {
        let at = self.at();
        let test = self.binary(0)?;
        if !self.take("?") {
            return Ok(test);
        }
        let yes = self.assignment()?;
        self.expect(":")?;
        let no = self.assignment()?;
        Ok(Expr { kind: ExprKind::Choice(Box::new(test), Box::new(yes), Box::new(no)), at })
    }

    fn binary(&mut self, floor: u8) -> Parsed<Expr> {
        let signed = matches!(self.kind(), Kind::Mark("-" | "+" | "!" | "~"));
        let mut left = self.unary()?;
        let mut count: u32 = 0;
        while let Some((op, strength)) = self.operator().filter(|(_, strength)| *strength >= floor) {
            count = count.saturating_add(1);
            if count > CHAIN_MAX {
                return self.wrong("too many operators in a row");
            }
            if op == Infix::Binary(Binary::Pow) && signed && count == 1 {
                return self.wrong("put the left side of `**` in parentheses");
            }
            let at = self.at();
            self.step();
            // `**` binds to the right, the others to the left.
            let next = if op == Infix::Binary(Binary::Pow) { strength } else { strength.saturating_add(1) };
            let right = Box::new(self.nested(|parser| parser.binary(next))?);
            let first = Box::new(left);
            let kind = match op {
                Infix::Binary(op) => ExprKind::Binary(op, first, right),
                Infix::Logical(op) => ExprKind::Logical(op, first, right),
            };
            left = Expr { kind, at };
        }
        Ok(left)
    }

    fn operator(&self) -> Option<(Infix, u8)> {
        let mark = match self.kind() {
            Kind::Mark(mark) => *mark,
            Kind::Word(word) if &**word == "in" => "in",
            Kind::Word(word) if &**word == "instanceof" => "instanceof",
            _other => return None,
        };
        let strength = match mark {
            "??" => 1,
            "||" => 2,
            "&&" => 3,
            "|" => 4,
            "^" => 5,
            "&" => 6,
            "==" | "!=" | "===" | "!==" => 7,
            "<" | ">" | "<=" | ">=" | "in" | "instanceof" => 8,
            "<<" | ">>" | ">>>" => 9,
            "+" | "-" => 10,
            "*" | "/" | "%" => 11,
            "**" => 12,
            _other => return None,
        };
        let op = match mark {
            "??" => Infix::Logical(Logical::Else),
            "||" => Infix::Logical(Logical::Or),
            "&&" => Infix::Logical(Logical::And),
            other => Infix::Binary(binary_of(other)?),
        };
        Some((op, strength))
    }

    pub(super) fn unary(&mut self) -> Parsed<Expr> {
        let at = self.at();
        let op = match self.kind() {
            Kind::Mark("!") => Unary::Not,
            Kind::Mark("-") => Unary::Minus,
            Kind::Mark("+") => Unary::Plus,
            Kind::Mark("~") => Unary::BitNot,
            Kind::Mark(mark @ ("++" | "--")) => {
                self.step();
                let by = if *mark == "++" { 1.0 } else { -1.0 };
                let target = self.nested(Self::unary)?;
                return update(target, by, true, at);
            }
            Kind::Word(word) => match &**word {
                "typeof" => Unary::Typeof,
                "void" => Unary::Void,
                "delete" => Unary::Delete,
                "await" => {
                    self.step();
                    let value = self.nested(Self::unary)?;
                    return Ok(Expr { kind: ExprKind::Await(Box::new(value)), at });
                }
                _other => return self.postfix_update(),
            },
            _other => return self.postfix_update(),
        };
        self.step();
        let value = self.nested(Self::unary)?;
        if op == Unary::Delete && !matches!(value.kind, ExprKind::Member { .. } | ExprKind::Index { .. }) {
            return Err(ScriptError::new(at, "only a property can be deleted"));
        }
        Ok(Expr { kind: ExprKind::Unary(op, Box::new(value)), at })
    }

    fn postfix_update(&mut self) -> Parsed<Expr> {
        let at = self.at();
        let target = self.postfix()?;
        match self.kind() {
            Kind::Mark(mark @ ("++" | "--")) if !self.token().is_some_and(|token| token.fresh) => {
                self.step();
                let by = if *mark == "++" { 1.0 } else { -1.0 };
                update(target, by, false, at)
            }
            _other => Ok(target),
        }
    }

    /// Calls, members and indexes after a value.
    pub(super) fn postfix(&mut self) -> Parsed<Expr> {
        let mut value = if self.is_word("new") { self.new_expression()? } else { self.primary()? };
        let (mut chained, mut count) = (false, 0_u32);
        loop {
            count = count.saturating_add(1);
            if count > CHAIN_MAX {
                return self.wrong("too many calls in one chain");
            }
            let at = self.at();
            let maybe = self.take("?.");
            chained |= maybe;
            let object = Box::new(value);
            value = if self.is("(") {
                let args = self.arguments()?;
                Expr { kind: ExprKind::Call { callee: object, args, maybe }, at }
            } else if self.take("[") {
                let index = Box::new(self.expression()?);
                self.expect("]")?;
                Expr { kind: ExprKind::Index { object, index, maybe }, at }
            } else if maybe || self.take(".") {
                let at = self.at();
                let name = self.member_name()?;
                Expr { kind: ExprKind::Member { object, name, maybe }, at }
            } else if matches!(self.kind(), Kind::Template(_)) && !self.token().is_some_and(|t| t.fresh) {
                return self.refuse("tagged templates are", "call the function with parentheses");
            } else {
                value = *object;
                break;
            };
        }
        if chained {
            let at = value.at;
            value = Expr { kind: ExprKind::Chain(Box::new(value)), at };
        }
        Ok(value)
    }

    fn arguments(&mut self) -> Parsed<Vec<Item>> {
        self.expect("(")?;
        self.items(")")
    }

    /// Values up to a bracket; a missing one is undefined.
    fn items(&mut self, close: &str) -> Parsed<Vec<Item>> {
        let mut items = Vec::new();
        while !self.take(close) {
            let at = self.at();
            if close == "]" && self.take(",") {
                items.push(Item { value: Expr { kind: ExprKind::Undefined, at }, spread: false });
                continue;
            }
            let spread = self.take("...");
            items.push(Item { value: self.assignment()?, spread });
            if !self.is(close) {
                self.expect(",")?;
            }
        }
        Ok(items)
    }

    fn new_expression(&mut self) -> Parsed<Expr> {
        let at = self.at();
        self.step();
        if self.is(".") {
            return self.refuse("`new.target` is", "pass what you need as an argument");
        }
        let mut callee = self.nested(Self::primary)?;
        while self.take(".") {
            let name = self.member_name()?;
            callee = Expr { kind: ExprKind::Member { object: Box::new(callee), name, maybe: false }, at };
        }
        let args = if self.is("(") { self.arguments()? } else { Vec::new() };
        Ok(Expr { kind: ExprKind::New { callee: Box::new(callee), args }, at })
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let at = self.at();
        let kind = match self.kind() {
            Kind::Num(number) => ExprKind::Num(*number),
            Kind::Str(text) => ExprKind::Str(str_of(text)),
            Kind::Regex { body, flags } => match RegexPattern::new(body, flags) {
                Ok(pattern) => ExprKind::Regex(Rc::new(pattern)),
                Err(why) => return self.wrong(why),
            },
            Kind::Template(parts) => {
                let template = self.template(parts)?;
                self.step();
                return Ok(Expr { kind: template, at });
            }
            Kind::Mark("(") => {
                self.step();
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Kind::Mark("[") => {
                self.step();
                return Ok(Expr { kind: ExprKind::Array(self.items("]")?), at });
            }
            Kind::Mark("{") => return self.object(),
            Kind::Mark("@") => return self.refuse("decorators are", "call the function yourself"),
            Kind::Word(word) => return self.word(&Rc::clone(word)),
            Kind::Mark(_) | Kind::Private(_) | Kind::End => {
                return self.wrong(format!("expected a value, found {}", self.shown()));
            }
        };
        self.step();
        Ok(Expr { kind, at })
    }

    fn word(&mut self, word: &Rc<str>) -> Parsed<Expr> {
        let at = self.at();
        let kind = match &**word {
            "true" => ExprKind::Bool(true),
            "false" => ExprKind::Bool(false),
            "null" => ExprKind::Null,
            "undefined" => ExprKind::Undefined,
            "function" => return self.function_expression(),
            "async" if matches!(self.ahead(1), Kind::Word(next) if &**next == "function") => {
                return self.function_expression();
            }
            "class" => return Ok(Expr { kind: ExprKind::Class(Box::new(self.class()?)), at }),
            "super" => return self.super_use(),
            "import" => return self.refuse("`import` is", "everything that a tool can use is built in"),
            "eval" | "Function" => return self.wrong(format!("`{word}` is not there: no code from text")),
            "arguments" => return self.refuse("`arguments` is", "use a rest parameter: `(...args)`"),
            "this" => ExprKind::Var(Var { name: Rc::clone(word), place: Place::Nowhere }),
            _name => {
                let name = self.binding()?;
                return Ok(Expr { kind: ExprKind::Var(Var { name, place: Place::Nowhere }), at });
            }
        };
        self.step();
        Ok(Expr { kind, at })
    }

    fn super_use(&mut self) -> Parsed<Expr> {
        let at = self.at();
        self.step();
        let this = Var { name: "this".into(), place: Place::Nowhere };
        if self.is("(") {
            return Ok(Expr { kind: ExprKind::SuperCall(self.arguments()?, this), at });
        }
        self.expect(".")?;
        Ok(Expr { kind: ExprKind::SuperMember(self.member_name()?, this), at })
    }

    fn template(&mut self, parts: &[Part]) -> Parsed<ExprKind> {
        let (mut texts, mut codes) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Part::Text(text) => texts.push(str_of(text)),
                Part::Code(tokens) => {
                    let mut inner = Parser::new(tokens, self.nest.saturating_add(1));
                    codes.push(inner.expression()?);
                    if !inner.at_end() {
                        return inner.wrong(format!("expected `}}`, found {}", inner.shown()));
                    }
                }
            }
        }
        Ok(ExprKind::Template(texts, codes))
    }

    fn object(&mut self) -> Parsed<Expr> {
        let at = self.at();
        self.step();
        let mut fields = Vec::new();
        while !self.take("}") {
            fields.push(self.field()?);
            if !self.is("}") {
                self.expect(",")?;
            }
        }
        Ok(Expr { kind: ExprKind::Object(fields), at })
    }

    fn field(&mut self) -> Parsed<Field> {
        let at = self.at();
        if self.take("...") {
            return Ok(Field::Spread(self.assignment()?));
        }
        let is_async = self.method_prefix()?;
        if let (Kind::Word(word), Kind::Mark("," | "}" | "=")) = (self.kind(), self.ahead(1))
            && !is_async
        {
            let key = Key::Name(str_of(word));
            let value = self.word(&Rc::clone(word))?;
            if !self.take("=") {
                return Ok(Field::Named(key, value));
            }
            // `{a = 1}` is only valid on the left of `=`, where it is a default.
            let default = Box::new(self.assignment()?);
            let kind = ExprKind::Assign { target: Box::new(value), op: None, value: default };
            return Ok(Field::Named(key, Expr { kind, at }));
        }
        let key = self.key()?;
        let name = key_name(&key);
        if self.is("(") {
            let function = self.function_rest(name, FunctionKind::Method, is_async, at)?;
            return Ok(Field::Named(key, Expr { kind: ExprKind::Function(Rc::new(function)), at }));
        }
        self.expect(":")?;
        let mut value = self.assignment()?;
        give_name(&mut value, &name);
        Ok(Field::Named(key, value))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Infix {
    Binary(Binary),
    Logical(Logical),
}

fn is_target(target: &Expr) -> bool {
    matches!(
        target.kind,
        ExprKind::Var(_) | ExprKind::Member { maybe: false, .. } | ExprKind::Index { maybe: false, .. }
    )
}

fn update(target: Expr, by: f64, prefix: bool, at: u32) -> Parsed<Expr> {
    if !is_target(&target) {
        return Err(ScriptError::new(at, "this can't be counted up or down"));
    }
    Ok(Expr { kind: ExprKind::Update { target: Box::new(target), by, prefix }, at })
}

/// Whether an operator that ends in `=` is an assignment and not a comparison.
fn assigns(mark: &str) -> bool {
    !matches!(mark, "==" | "===" | "!=" | "!==" | "<=" | ">=")
}

fn binary_of(mark: &str) -> Option<Binary> {
    Some(match mark {
        "+" => Binary::Add,
        "-" => Binary::Sub,
        "*" => Binary::Mul,
        "/" => Binary::Div,
        "%" => Binary::Rem,
        "**" => Binary::Pow,
        "&" => Binary::BitAnd,
        "|" => Binary::BitOr,
        "^" => Binary::BitXor,
        "<<" => Binary::Shl,
        ">>" => Binary::Shr,
        ">>>" => Binary::UShr,
        "==" => Binary::Eq,
        "!=" => Binary::NotEq,
        "===" => Binary::Same,
        "!==" => Binary::NotSame,
        "<" => Binary::Less,
        "<=" => Binary::LessEq,
        ">" => Binary::More,
        ">=" => Binary::MoreEq,
        "in" => Binary::In,
        "instanceof" => Binary::InstanceOf,
        _other => return None,
    })
}
