//! Parses tokens to a program: statements. Expressions are in [`expression`], functions and classes in [`function`].
//!
//! Unsupported syntax is an error here, by name, with line and column.

mod each;
mod expression;
mod function;
mod pattern;

use std::rc::Rc;

use crate::ast::*;
use crate::error::ScriptError;
use crate::lexer::{Kind, Token};

pub(crate) type Parsed<T> = Result<T, ScriptError>;

/// Maximum nesting of a program.
const NEST_MAX: u32 = 96;
/// Maximum operators in a row, and calls in a chain.
pub(crate) const CHAIN_MAX: u32 = 400;

/// Words that can't be names.
const RESERVED: &[&str] = &[
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "import",
    "in",
    "instanceof",
    "new",
    "null",
    "return",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "with",
    "yield",
    "let",
    "static",
    "implements",
    "interface",
    "package",
    "private",
    "protected",
    "public",
    "eval",
    "arguments",
    "await",
];

/// The name of the `export default` value; no source can spell it.
pub(crate) const DEFAULT: &str = "*default*";

/// Parses a program: one function without parameters that returns the entry.
pub(crate) fn parse(tokens: Vec<Token>) -> Parsed<Function> {
    let mut parser = Parser::new(&tokens, 0);
    let mut block = Block::default();
    while !parser.at_end() {
        parser.top_level(&mut block)?;
    }
    let entry = parser.entry(&block)?;
    let at = 0;
    let value = Expr { kind: ExprKind::Var(Var { name: entry, place: Place::Nowhere }), at };
    block.statements.push(Statement { kind: StatementKind::Return(Some(value)), at });
    Ok(Function {
        name: "".into(),
        params: Vec::new(),
        rest: None,
        body: Body::Block(block),
        kind: FunctionKind::Arrow,
        is_async: false,
        knows_itself: false,
        at,
        frame: Frame::default(),
    })
}

struct Parser<'t> {
    tokens: &'t [Token],
    next: usize,
    nest: u32,
    /// `run` if it was exported under that name.
    exported: Option<Rc<str>>,
}

impl<'t> Parser<'t> {
    fn new(tokens: &'t [Token], nest: u32) -> Self {
        Self { tokens, next: 0, nest, exported: None }
    }

    fn token(&self) -> Option<&'t Token> {
        self.tokens.get(self.next)
    }

    fn kind(&self) -> &'t Kind {
        self.token().map_or(&Kind::End, |token| &token.kind)
    }

    fn ahead(&self, count: usize) -> &'t Kind {
        self.tokens.get(self.next.saturating_add(count)).map_or(&Kind::End, |token| &token.kind)
    }

    fn at(&self) -> u32 {
        self.token().or(self.tokens.last()).map_or(0, |token| token.at)
    }

    fn at_end(&self) -> bool {
        matches!(self.kind(), Kind::End)
    }

    fn step(&mut self) {
        self.next = self.next.saturating_add(1);
    }

    fn is(&self, mark: &str) -> bool {
        matches!(self.kind(), Kind::Mark(found) if *found == mark)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.kind(), Kind::Word(found) if &**found == word)
    }

    fn take(&mut self, mark: &str) -> bool {
        let found = self.is(mark);
        if found {
            self.step();
        }
        found
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.step();
        }
        found
    }

    fn expect(&mut self, mark: &str) -> Parsed<()> {
        if self.take(mark) {
            return Ok(());
        }
        self.wrong(format!("expected `{mark}`, found {}", self.shown()))
    }

    fn wrong<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(ScriptError::new(self.at(), message))
    }

    fn refuse<T>(&self, what: &str, instead: &str) -> Parsed<T> {
        self.wrong(format!("{what} not supported; {instead}"))
    }

    /// The token here, for messages.
    fn shown(&self) -> String {
        match self.kind() {
            Kind::Word(word) => format!("`{word}`"),
            Kind::Private(word) => format!("`#{word}`"),
            Kind::Mark(mark) => format!("`{mark}`"),
            Kind::Num(_) => "a number".to_owned(),
            Kind::Str(_) => "a string".to_owned(),
            Kind::Template(_) => "a template string".to_owned(),
            Kind::Regex { .. } => "a regular expression".to_owned(),
            Kind::End => "the end".to_owned(),
        }
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nest >= NEST_MAX {
            return self.wrong("the program is nested too deeply");
        }
        self.nest = self.nest.saturating_add(1);
        let result = read(self);
        self.nest = self.nest.saturating_sub(1);
        result
    }

    /// A name that can be declared.
    fn binding(&mut self) -> Parsed<Rc<str>> {
        match self.kind() {
            Kind::Word(word) if RESERVED.contains(&&**word) => {
                self.wrong(format!("`{word}` can't be a name here"))
            }
            Kind::Word(word) => {
                self.step();
                Ok(Rc::clone(word))
            }
            Kind::Private(_)
            | Kind::Num(_)
            | Kind::Str(_)
            | Kind::Template(_)
            | Kind::Regex { .. }
            | Kind::Mark(_)
            | Kind::End => self.wrong(format!("expected a name, found {}", self.shown())),
        }
    }

    /// A statement ends at `;`, before `}`, at a line end, or at the end.
    fn statement_end(&mut self) -> Parsed<()> {
        let fresh = self.token().is_some_and(|token| token.fresh);
        if self.take(";") || self.is("}") || self.at_end() || fresh {
            return Ok(());
        }
        self.wrong(format!("expected the end of the statement, found {}", self.shown()))
    }

    fn top_level(&mut self, block: &mut Block) -> Parsed<()> {
        let at = self.at();
        if self.is_word("import") {
            return self.refuse("`import` is", "everything that a tool can use is built in");
        }
        if !self.take_word("export") {
            return self.statement_into(block);
        }
        if self.take_word("default") {
            let value = self.assignment()?;
            self.statement_end()?;
            let pattern = Pattern::Var(Var { name: DEFAULT.into(), place: Place::Nowhere }, at);
            block
                .statements
                .push(Statement { kind: StatementKind::Let(vec![(pattern, Some(value))], true), at });
            self.exported = Some(DEFAULT.into());
            return Ok(());
        }
        if !self.take("{") {
            return self.statement_into(block);
        }
        while !self.take("}") {
            let name = self.binding()?;
            let outside = if self.take_word("as") { self.property_word()? } else { Rc::clone(&name) };
            if matches!(&*outside, "run" | "default") {
                self.exported = Some(name);
            }
            if !self.is("}") {
                self.expect(",")?;
            }
        }
        self.statement_end()
    }

    fn property_word(&mut self) -> Parsed<Rc<str>> {
        let Kind::Word(word) = self.kind() else {
            return self.wrong(format!("expected a name, found {}", self.shown()));
        };
        self.step();
        Ok(Rc::clone(word))
    }

    /// The entry: the default export, or the export `run`, or the function `run`.
    fn entry(&self, block: &Block) -> Parsed<Rc<str>> {
        if let Some(name) = &self.exported {
            return Ok(Rc::clone(name));
        }
        let declared = |statement: &Statement| {
            matches!(&statement.kind, StatementKind::Let(all, _)
                if all.iter().any(|(pattern, _)| matches!(pattern, Pattern::Var(var, _) if &*var.name == "run")))
        };
        if block.functions.iter().any(|(var, _)| &*var.name == "run") || block.statements.iter().any(declared)
        {
            return Ok("run".into());
        }
        Err(ScriptError::anywhere("there is no entry: write `export function run(input) { … }`"))
    }

    /// Moves function declarations to the front of their block.
    fn statement_into(&mut self, block: &mut Block) -> Parsed<()> {
        let is_async =
            self.is_word("async") && matches!(self.ahead(1), Kind::Word(word) if &**word == "function");
        if self.is_word("function") || is_async {
            let function = self.function_declaration()?;
            let var = Var { name: Rc::clone(&function.name), place: Place::Nowhere };
            block.functions.push((var, Rc::new(function)));
            return Ok(());
        }
        if let Some(statement) = self.nested(|parser| parser.statement(None))? {
            block.statements.push(statement);
        }
        Ok(())
    }

    fn block(&mut self) -> Parsed<Block> {
        self.expect("{")?;
        let mut block = Block::default();
        while !self.take("}") {
            if self.at_end() {
                return self.wrong("the block doesn't end");
            }
            self.statement_into(&mut block)?;
        }
        Ok(block)
    }

    /// The body of `if`, `for`, …: a block, or one statement.
    fn body(&mut self) -> Parsed<Block> {
        if self.is("{") {
            return self.nested(Self::block);
        }
        let mut block = Block::default();
        self.statement_into(&mut block)?;
        Ok(block)
    }

    fn statement(&mut self, label: Option<Rc<str>>) -> Parsed<Option<Statement>> {
        let at = self.at();
        let kind = match self.kind() {
            Kind::Mark(";") => {
                self.step();
                return Ok(None);
            }
            Kind::Mark("{") => StatementKind::Block(self.block()?),
            Kind::Word(word) => match &**word {
                "let" | "const" | "var" => self.declaration()?,
                "class" => self.class_declaration()?,
                "if" => self.if_statement()?,
                "for" => self.for_statement(label)?,
                "while" => {
                    self.step();
                    let test = self.condition()?;
                    StatementKind::While { test, body: self.body()?, label }
                }
                "do" => self.do_statement(label)?,
                "switch" => self.switch_statement(label)?,
                "try" => self.try_statement()?,
                "throw" => {
                    self.step();
                    let value = self.expression()?;
                    self.statement_end()?;
                    StatementKind::Throw(value)
                }
                "return" => self.return_statement()?,
                "break" => StatementKind::Break(self.jump()?),
                "continue" => StatementKind::Continue(self.jump()?),
                "with" => return self.refuse("`with` is", "name the object each time"),
                "debugger" => return self.refuse("`debugger` is", "use `regent.log`"),
                "import" | "export" => return self.wrong(format!("`{word}` belongs at the top level")),
                _other if matches!(self.ahead(1), Kind::Mark(":")) => return self.labelled(),
                _other => self.expression_statement()?,
            },
            Kind::Private(_)
            | Kind::Num(_)
            | Kind::Str(_)
            | Kind::Template(_)
            | Kind::Regex { .. }
            | Kind::Mark(_)
            | Kind::End => self.expression_statement()?,
        };
        Ok(Some(Statement { kind, at }))
    }

    fn expression_statement(&mut self) -> Parsed<StatementKind> {
        let value = self.expression()?;
        self.statement_end()?;
        Ok(StatementKind::Expr(value))
    }

    fn condition(&mut self) -> Parsed<Expr> {
        self.expect("(")?;
        let test = self.expression()?;
        self.expect(")")?;
        Ok(test)
    }

    /// `var` is parsed as `let`. Where that would differ, the name isn't in scope, and the resolver reports it.
    fn declaration(&mut self) -> Parsed<StatementKind> {
        let constant = self.is_word("const");
        self.step();
        let mut all = Vec::new();
        loop {
            let pattern = self.binding_pattern()?;
            let value = if self.take("=") { Some(self.assignment()?) } else { None };
            if value.is_none() && (constant || !matches!(pattern, Pattern::Var(..))) {
                return self.wrong("this needs a value: `= …`");
            }
            all.push((pattern, value));
            if !self.take(",") {
                break;
            }
        }
        for (pattern, value) in &mut all {
            if let (Pattern::Var(var, _), Some(value)) = (pattern, value) {
                give_name(value, &var.name);
            }
        }
        self.statement_end()?;
        Ok(StatementKind::Let(all, constant))
    }

    fn if_statement(&mut self) -> Parsed<StatementKind> {
        let mut branches = Vec::new();
        loop {
            self.step();
            let test = self.condition()?;
            branches.push((test, self.body()?));
            if !self.take_word("else") {
                return Ok(StatementKind::If(branches, None));
            }
            if !self.is_word("if") {
                let otherwise = self.body()?;
                return Ok(StatementKind::If(branches, Some(otherwise)));
            }
        }
    }

    fn do_statement(&mut self, label: Option<Rc<str>>) -> Parsed<StatementKind> {
        self.step();
        let body = self.body()?;
        if !self.take_word("while") {
            return self.wrong("expected `while` after the body of `do`");
        }
        let test = self.condition()?;
        self.take(";");
        Ok(StatementKind::DoWhile { test, body, label })
    }

    fn switch_statement(&mut self, label: Option<Rc<str>>) -> Parsed<StatementKind> {
        self.step();
        let subject = self.condition()?;
        self.expect("{")?;
        let (mut cases, mut body) = (Vec::new(), Block::default());
        while !self.take("}") {
            if self.take_word("default") {
                cases.push((None, body.statements.len()));
                self.expect(":")?;
            } else if self.take_word("case") {
                let value = self.expression()?;
                cases.push((Some(value), body.statements.len()));
                self.expect(":")?;
            } else if cases.is_empty() || self.at_end() {
                return self.wrong(format!("expected `case`, found {}", self.shown()));
            } else {
                self.statement_into(&mut body)?;
            }
        }
        Ok(StatementKind::Switch(Box::new(Switch { subject, cases, body, label })))
    }

    fn try_statement(&mut self) -> Parsed<StatementKind> {
        self.step();
        let body = self.block()?;
        let catch = if self.take_word("catch") {
            let pattern = if self.take("(") {
                let pattern = self.binding_pattern()?;
                self.expect(")")?;
                Some(pattern)
            } else {
                None
            };
            Some((pattern, self.block()?, Scope::new()))
        } else {
            None
        };
        let finally = if self.take_word("finally") { Some(self.block()?) } else { None };
        if catch.is_none() && finally.is_none() {
            return self.wrong("`try` needs `catch` or `finally`");
        }
        Ok(StatementKind::Try(Box::new(Try { body, catch, finally })))
    }

    fn return_statement(&mut self) -> Parsed<StatementKind> {
        self.step();
        let fresh = self.token().is_some_and(|token| token.fresh);
        if fresh || self.is(";") || self.is("}") || self.at_end() {
            self.take(";");
            return Ok(StatementKind::Return(None));
        }
        let value = self.expression()?;
        self.statement_end()?;
        Ok(StatementKind::Return(Some(value)))
    }

    fn jump(&mut self) -> Parsed<Option<Rc<str>>> {
        self.step();
        let fresh = self.token().is_some_and(|token| token.fresh);
        let label = match self.kind() {
            Kind::Word(_) if !fresh => Some(self.binding()?),
            _other => None,
        };
        self.statement_end()?;
        Ok(label)
    }

    fn labelled(&mut self) -> Parsed<Option<Statement>> {
        let at = self.at();
        let label = self.binding()?;
        self.expect(":")?;
        let mut block = Block::default();
        if let Some(statement) = self.nested(|parser| parser.statement(Some(Rc::clone(&label))))? {
            block.statements.push(statement);
        }
        Ok(Some(Statement { kind: StatementKind::Labelled(label, block), at }))
    }
}

/// An anonymous function takes the name of its variable.
pub(crate) fn give_name(value: &mut Expr, name: &Rc<str>) {
    match &mut value.kind {
        ExprKind::Function(function) => {
            if let Some(function) = Rc::get_mut(function).filter(|function| function.name.is_empty()) {
                function.name = Rc::clone(name);
            }
        }
        ExprKind::Class(class) if class.name.is_empty() => class.name = Rc::clone(name),
        _other => {}
    }
}
