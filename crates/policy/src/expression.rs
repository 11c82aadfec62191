//! Conditions in the syntax of `governance.toolkit/v1`: `tool_name == 'send' and args.amount > 100`.
//!
//! The language is small and total: no calls, no arithmetic, bounded depth. Names are resolved when the file loads. An unknown name is a
//! load error, because a condition on it would never hold.

use serde_json::{Number, Value};

use crate::condition::{Quantifier, Test, argvs, paths};
use crate::facts::{Facts, Resource};

const DEPTH_MAX: u8 = 16;
const EXPRESSION_BYTES_MAX: usize = 4096;

/// A condition.
#[derive(Debug, Clone)]
pub(crate) enum Expression {
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Not(Box<Expression>),
    Is(Field, Vec<Test>),
    Always(bool),
}

/// A field that a condition tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Field {
    Tool,
    Agent,
    Role,
    Trust,
    Path,
    Host,
    Command,
    Tokens,
    ToolCalls,
    /// An argument, by JSON pointer.
    Arg(String),
}

/// Why a condition is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExpressionError {
    #[error("the condition is longer than {EXPRESSION_BYTES_MAX} bytes")]
    TooLong,
    #[error("the condition is nested deeper than {DEPTH_MAX}")]
    TooDeep,
    #[error("`{0}` is not a field of a call")]
    Unknown(String),
    #[error("unexpected `{0}`")]
    Unexpected(String),
    #[error("the condition ends too early")]
    End,
    #[error("{0}")]
    Test(String),
}

impl Field {
    /// Resolves a name.
    pub(crate) fn new(word: &str) -> Result<Self, ExpressionError> {
        const ARGUMENTS: &[&str] = &[
            "args.",
            "params.",
            "parameters.",
            "arguments.",
            "tool_args.",
            "action.params.",
            "action.parameters.",
            "action.args.",
        ];
        let plain = |text: &str| {
            !text.is_empty() && text.chars().all(|next| next.is_alphanumeric() || matches!(next, '_' | '-'))
        };
        Ok(match word {
            "tool_name" | "tool" | "tool.name" | "action" | "action.type" | "action.name" => Self::Tool,
            "agent" | "agent_id" | "agent.id" | "agent.name" | "agent_did" => Self::Agent,
            "role" | "roles" | "agent.role" | "user.role" => Self::Role,
            "trust_score" | "agent.trust_score" | "trust" => Self::Trust,
            "path" | "file_path" | "resource.path" => Self::Path,
            "host" | "domain" | "resource.host" => Self::Host,
            "command" => Self::Command,
            "token_count" | "tokens" => Self::Tokens,
            "tool_call_count" | "tool_calls" => Self::ToolCalls,
            other => {
                let rest = ARGUMENTS.iter().find_map(|start| other.strip_prefix(start));
                let parts: Vec<&str> = rest.unwrap_or(other).split('.').collect();
                // A plain word is an argument of that name; a dotted path needs an explicit root.
                if !parts.iter().all(|part| plain(part)) || (rest.is_none() && parts.len() > 1) {
                    return Err(ExpressionError::Unknown(other.to_owned()));
                }
                Self::Arg(parts.iter().map(|part| format!("/{part}")).collect())
            }
        })
    }

    fn values(&self, facts: &Facts<'_>) -> Vec<Value> {
        match self {
            Self::Tool => vec![facts.tool.unwrap_or(facts.op).into()],
            Self::Agent => vec![facts.caller.agent.into()],
            Self::Role => facts.caller.roles.iter().map(|role| role.as_str().into()).collect(),
            Self::Trust => vec![facts.caller.trust.into()],
            Self::Path => paths(facts).map(|(path, _)| path.into()).collect(),
            Self::Host => facts
                .resources
                .iter()
                .filter_map(|resource| match resource {
                    Resource::Endpoint { host, .. } => Some((*host).into()),
                    Resource::Path { .. } | Resource::Argv(_) | Resource::Secret(_) => None,
                })
                .collect(),
            Self::Command => argvs(facts).map(|argv| argv.join(" ").into()).collect(),
            Self::Tokens => vec![facts.session.request_tokens.into()],
            Self::ToolCalls => vec![facts.session.tool_calls.into()],
            Self::Arg(pointer) => facts.args.pointer(pointer).cloned().into_iter().collect(),
        }
    }
}

impl Expression {
    pub(crate) fn holds(&self, facts: &Facts<'_>, quantifier: Quantifier) -> bool {
        match self {
            Self::And(all) => all.iter().all(|one| one.holds(facts, quantifier)),
            Self::Or(any) => any.iter().any(|one| one.holds(facts, quantifier)),
            Self::Not(inner) => !inner.holds(facts, quantifier.flipped()),
            Self::Always(holds) => *holds,
            Self::Is(field, tests) => {
                let values = field.values(facts);
                if values.is_empty() {
                    return tests.iter().all(|test| test.holds_for_nothing(quantifier));
                }
                quantifier.over(values.iter(), |value| tests.iter().all(|test| test.holds(value, quantifier)))
            }
        }
    }

    /// The tools that it can match, if it lists them; for the index.
    pub(crate) fn tools(&self) -> Option<Vec<&str>> {
        match self {
            Self::Is(Field::Tool, tests) => {
                let wanted = tests.iter().find_map(Test::wanted)?;
                wanted.iter().map(Value::as_str).collect()
            }
            Self::And(all) => all.iter().find_map(Self::tools),
            Self::Is(..) | Self::Or(_) | Self::Not(_) | Self::Always(_) => None,
        }
    }

    /// Parses a condition.
    pub(crate) fn parse(text: &str) -> Result<Self, ExpressionError> {
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(ExpressionError::TooLong);
        }
        let mut parser = Parser { tokens: tokens(text)?, at: 0 };
        let found = parser.any(0)?;
        match parser.next() {
            None => Ok(found),
            Some(extra) => Err(ExpressionError::Unexpected(extra.to_text())),
        }
    }

    /// Builds a condition from `{ field, operator, value }`.
    pub(crate) fn from_parts(field: &str, operator: &str, value: Value) -> Result<Self, ExpressionError> {
        Ok(Self::Is(Field::new(field)?, test(operator, value)?))
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Value(Value),
    Sign(&'static str),
}

impl Token {
    fn to_text(&self) -> String {
        match self {
            Self::Word(word) => word.clone(),
            Self::Value(value) => value.to_string(),
            Self::Sign(sign) => (*sign).to_owned(),
        }
    }
}

const SIGNS: [&str; 12] = ["==", "!=", "<=", ">=", "&&", "||", "<", ">", "(", ")", "[", "]"];

fn tokens(text: &str) -> Result<Vec<Token>, ExpressionError> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if let Some(sign) = SIGNS.iter().chain(&[",", "!"]).find(|sign| rest.starts_with(**sign)) {
            out.push(Token::Sign(sign));
            rest = rest.get(sign.len()..).unwrap_or_default();
        } else if first == '\'' || first == '"' {
            let body = rest.get(1..).unwrap_or_default();
            let end = body.find(first).ok_or(ExpressionError::End)?;
            out.push(Token::Value(body.get(..end).unwrap_or_default().into()));
            rest = body.get(end + 1..).unwrap_or_default();
        } else {
            let odd = |next: char| !(next.is_alphanumeric() || matches!(next, '_' | '.' | '-'));
            let end = rest.find(odd).unwrap_or(rest.len());
            let word = rest.get(..end).filter(|word| !word.is_empty());
            let word = word.ok_or_else(|| ExpressionError::Unexpected(first.to_string()))?;
            out.push(match word {
                "true" | "True" => Token::Value(true.into()),
                "false" | "False" => Token::Value(false.into()),
                number if number.starts_with(|next: char| next.is_ascii_digit() || next == '-') => {
                    let value: Number =
                        number.parse().map_err(|_| ExpressionError::Unexpected(number.to_owned()))?;
                    Token::Value(Value::Number(value))
                }
                word => Token::Word(word.to_owned()),
            });
            rest = rest.get(end..).unwrap_or_default();
        }
        rest = rest.trim_start();
    }
    Ok(out)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.at += 1;
        token
    }

    fn takes(&mut self, word: &str, sign: &str) -> bool {
        let fits = match self.peek() {
            Some(Token::Word(found)) => found.eq_ignore_ascii_case(word),
            Some(Token::Sign(found)) => *found == sign,
            Some(Token::Value(_)) | None => false,
        };
        self.at += usize::from(fits);
        fits
    }

    fn any(&mut self, depth: u8) -> Result<Expression, ExpressionError> {
        let mut parts = vec![self.all(depth)?];
        while self.takes("or", "||") {
            parts.push(self.all(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Or(parts) })
    }

    fn all(&mut self, depth: u8) -> Result<Expression, ExpressionError> {
        let mut parts = vec![self.one(depth)?];
        while self.takes("and", "&&") {
            parts.push(self.one(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::And(parts) })
    }

    fn one(&mut self, depth: u8) -> Result<Expression, ExpressionError> {
        if depth >= DEPTH_MAX {
            return Err(ExpressionError::TooDeep);
        }
        if self.takes("not", "!") {
            return Ok(Expression::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.takes("(", "(") {
            let inner = self.any(depth + 1)?;
            return if self.takes(")", ")") { Ok(inner) } else { Err(ExpressionError::End) };
        }
        match self.next().ok_or(ExpressionError::End)? {
            Token::Value(Value::Bool(holds)) => Ok(Expression::Always(holds)),
            Token::Word(word) => self.comparison(&word),
            other @ (Token::Value(_) | Token::Sign(_)) => Err(ExpressionError::Unexpected(other.to_text())),
        }
    }

    fn comparison(&mut self, word: &str) -> Result<Expression, ExpressionError> {
        let field = Field::new(word)?;
        let operator = match self.peek() {
            Some(Token::Sign(sign @ ("==" | "!=" | "<=" | ">=" | "<" | ">"))) => (*sign).to_owned(),
            Some(Token::Word(word)) if !["and", "or"].contains(&word.to_ascii_lowercase().as_str()) => {
                word.clone()
            }
            // A bare field must exist and not be false.
            Some(_) | None => {
                return Ok(Expression::Is(
                    field,
                    vec![Test::Exists(true), Test::NotIn(Box::new([false.into(), Value::Null]))],
                ));
            }
        };
        self.at += 1;
        let operator =
            if operator == "not" && self.takes("in", "in") { "not_in".to_owned() } else { operator };
        let value = self.value()?;
        Ok(Expression::Is(field, test(&operator, value)?))
    }

    fn value(&mut self) -> Result<Value, ExpressionError> {
        match self.next().ok_or(ExpressionError::End)? {
            Token::Value(value) => Ok(value),
            Token::Sign("[" | "(") => {
                let mut items = Vec::new();
                while !self.takes("]", "]") && !self.takes(")", ")") {
                    match self.next().ok_or(ExpressionError::End)? {
                        Token::Value(value) => items.push(value),
                        Token::Sign(",") => {}
                        other @ (Token::Word(_) | Token::Sign(_)) => {
                            return Err(ExpressionError::Unexpected(other.to_text()));
                        }
                    }
                }
                Ok(Value::Array(items))
            }
            other @ (Token::Word(_) | Token::Sign(_)) => Err(ExpressionError::Unexpected(other.to_text())),
        }
    }
}

fn test(operator: &str, value: Value) -> Result<Vec<Test>, ExpressionError> {
    let wrong = |what: &str| ExpressionError::Test(format!("`{operator}` wants {what}"));
    let number = |value: Value| {
        if let Value::Number(number) = value { Ok(number) } else { Err(wrong("a number")) }
    };
    let text = |value: &Value| value.as_str().map(Box::from).ok_or_else(|| wrong("a text"));
    let list = |value: Value| {
        if let Value::Array(items) = value { Ok(items.into_boxed_slice()) } else { Err(wrong("a list")) }
    };
    let regex = |value: &Value| {
        let text = value.as_str().ok_or_else(|| wrong("a text"))?;
        regex::RegexBuilder::new(text).size_limit(512 << 10).build().map_err(|_| {
            ExpressionError::Test(format!("`{text}` is not a regular expression that can be used"))
        })
    };
    Ok(vec![match operator {
        "==" | "eq" | "equals" | "is" => Test::Eq(value),
        "!=" | "ne" | "not_equals" => Test::Ne(value),
        "<" | "lt" => Test::Lt(number(value)?),
        ">" | "gt" => Test::Gt(number(value)?),
        "<=" | "lte" => Test::Lte(number(value)?),
        ">=" | "gte" => Test::Gte(number(value)?),
        "in" => Test::In(list(value)?),
        "not_in" => Test::NotIn(list(value)?),
        "contains" => Test::Contains(value),
        "not_contains" => Test::NotContains(value),
        "starts_with" | "startswith" => Test::StartsWith(text(&value)?),
        "ends_with" | "endswith" => Test::EndsWith(text(&value)?),
        "matches" | "regex" => Test::Matches(regex(&value)?),
        "exists" => Test::Exists(value.as_bool().ok_or_else(|| wrong("true or false"))?),
        other => return Err(ExpressionError::Unexpected(other.to_owned())),
    }])
}
