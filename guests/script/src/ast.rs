//! The syntax tree of a program: expressions and statements with resolved variables.

use std::rc::Rc;

use crate::native::Global;
use crate::regex::Pattern as RegexPattern;
use crate::text::Str;

/// A use of a variable.
#[derive(Debug)]
pub(crate) struct Var {
    pub(crate) name: Rc<str>,
    pub(crate) place: Place,
}

/// The location of a variable.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// Not resolved yet.
    Nowhere,
    /// A slot of the running call.
    Local(u32),
    /// Captured from the enclosing function.
    Caught(u32),
    /// A built-in.
    Global(Global),
}

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) at: u32,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
    Undefined,
    Null,
    Bool(bool),
    Num(f64),
    Str(Str),
    /// Literal texts and the expressions between them.
    Template(Vec<Str>, Vec<Expr>),
    Regex(Rc<RegexPattern>),
    Var(Var),
    Array(Vec<Item>),
    Object(Vec<Field>),
    Function(Rc<Function>),
    Class(Box<Class>),
    Unary(Unary, Box<Expr>),
    /// `++x`, `x--`.
    Update {
        target: Box<Expr>,
        by: f64,
        prefix: bool,
    },
    Binary(Binary, Box<Expr>, Box<Expr>),
    Logical(Logical, Box<Expr>, Box<Expr>),
    /// `x = y`, `x += y`.
    Assign {
        target: Box<Expr>,
        op: Option<Binary>,
        value: Box<Expr>,
    },
    /// `x ??= y`.
    AssignIf {
        target: Box<Expr>,
        op: Logical,
        value: Box<Expr>,
    },
    /// `[a, b] = c`.
    AssignPattern {
        pattern: Box<Pattern>,
        value: Box<Expr>,
    },
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    Call {
        callee: Box<Expr>,
        args: Vec<Item>,
        maybe: bool,
    },
    New {
        callee: Box<Expr>,
        args: Vec<Item>,
    },
    Member {
        object: Box<Expr>,
        name: Str,
        maybe: bool,
    },
    Index {
        object: Box<Expr>,
        index: Box<Expr>,
        maybe: bool,
    },
    /// A chain with `?.`: undefined if the optional value is missing.
    Chain(Box<Expr>),
    Sequence(Vec<Expr>),
    Await(Box<Expr>),
    /// With `this`.
    SuperCall(Vec<Item>, Var),
    SuperMember(Str, Var),
}

/// An element of a list, or an argument.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) value: Expr,
    pub(crate) spread: bool,
}

#[derive(Debug)]
pub(crate) enum Field {
    Named(Key, Expr),
    Spread(Expr),
}

#[derive(Debug)]
pub(crate) enum Key {
    Name(Str),
    Computed(Expr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Not,
    Minus,
    Plus,
    BitNot,
    Typeof,
    Void,
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Pow,
    BitAnd,
    BitOr,
    BitXor,
    Shl,
    Shr,
    UShr,
    Eq,
    NotEq,
    Same,
    NotSame,
    Less,
    LessEq,
    More,
    MoreEq,
    In,
    InstanceOf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logical {
    And,
    Or,
    /// `??`
    Else,
}

/// A destructuring pattern.
#[derive(Debug)]
pub(crate) enum Pattern {
    Var(Var, u32),
    /// In assignments: `[a.b] = c`.
    Target(Expr),
    Array(Vec<Option<Slot>>, Option<Box<Pattern>>, u32),
    Object(Vec<(Key, Slot)>, Option<Box<Pattern>>, u32),
}

/// A position in a pattern, with its default.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) pattern: Pattern,
    pub(crate) default: Option<Expr>,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: Rc<str>,
    pub(crate) params: Vec<Slot>,
    pub(crate) rest: Option<Pattern>,
    pub(crate) body: Body,
    pub(crate) kind: FunctionKind,
    pub(crate) is_async: bool,
    /// A function expression can call itself by name.
    pub(crate) knows_itself: bool,
    pub(crate) at: u32,
    /// Set when variables are resolved.
    pub(crate) frame: Frame,
}

#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) slots: u32,
    /// Parameters, and other variables that exist from the start.
    pub(crate) declared: Vec<Declared>,
    pub(crate) caught: Vec<Catch>,
    pub(crate) this: Option<u32>,
    pub(crate) itself: Option<u32>,
    /// Parameter slots, if all are plain names without defaults.
    pub(crate) plain: Option<Vec<u32>>,
}

/// Where the enclosing function has a captured variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Catch {
    Local(u32),
    Caught(u32),
}

#[derive(Debug)]
pub(crate) enum Body {
    Block(Block),
    Expr(Box<Expr>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FunctionKind {
    Plain,
    Arrow,
    Method,
}

#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) name: Rc<str>,
    pub(crate) parent: Option<Expr>,
    pub(crate) constructor: Option<Rc<Function>>,
    /// Sets the fields of a new instance.
    pub(crate) fields: Option<Rc<Function>>,
    pub(crate) methods: Vec<(Key, Rc<Function>)>,
    pub(crate) statics: Vec<(Key, Expr)>,
}

/// A variable that a scope creates on entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declared {
    pub(crate) slot: u32,
    /// An inner function uses it, so it lives in its own cell.
    pub(crate) caught: bool,
}

pub(crate) type Scope = Vec<Declared>;

#[derive(Debug, Default)]
pub(crate) struct Block {
    /// Functions come first: they can be called before their line.
    pub(crate) functions: Vec<(Var, Rc<Function>)>,
    pub(crate) statements: Vec<Statement>,
    pub(crate) scope: Scope,
}

#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) at: u32,
}

#[derive(Debug)]
pub(crate) enum StatementKind {
    Expr(Expr),
    /// `let`, `const`: each pattern with its initial value.
    Let(Vec<(Pattern, Option<Expr>)>, bool),
    Class(Var, Box<Class>),
    Block(Block),
    /// Each condition with its block, then `else`.
    If(Vec<(Expr, Block)>, Option<Block>),
    For(Box<For>),
    /// `for … of`, `for … in`.
    Each(Box<Each>),
    While {
        test: Expr,
        body: Block,
        label: Option<Rc<str>>,
    },
    DoWhile {
        test: Expr,
        body: Block,
        label: Option<Rc<str>>,
    },
    Switch(Box<Switch>),
    Try(Box<Try>),
    Throw(Expr),
    Return(Option<Expr>),
    Break(Option<Rc<str>>),
    Continue(Option<Rc<str>>),
    Labelled(Rc<str>, Block),
}

#[derive(Debug)]
pub(crate) struct For {
    pub(crate) init: Option<Statement>,
    pub(crate) test: Option<Expr>,
    pub(crate) update: Option<Expr>,
    pub(crate) body: Block,
    pub(crate) scope: Scope,
    pub(crate) label: Option<Rc<str>>,
}

#[derive(Debug)]
pub(crate) struct Each {
    pub(crate) pattern: Pattern,
    /// `None` where an existing variable is used.
    pub(crate) declares: Option<bool>,
    pub(crate) keys: bool,
    /// `for await`: each item is awaited before it is bound.
    pub(crate) awaits: bool,
    pub(crate) subject: Expr,
    pub(crate) body: Block,
    pub(crate) scope: Scope,
    pub(crate) label: Option<Rc<str>>,
}

#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) subject: Expr,
    /// `None` is `default`.
    pub(crate) cases: Vec<(Option<Expr>, usize)>,
    /// All statements in order; a case is an index into them.
    pub(crate) body: Block,
    pub(crate) label: Option<Rc<str>>,
}

#[derive(Debug)]
pub(crate) struct Try {
    pub(crate) body: Block,
    pub(crate) catch: Option<(Option<Pattern>, Block, Scope)>,
    pub(crate) finally: Option<Block>,
}
