//! The language of generated tools: an interpreted, strict subset of JavaScript.
//!
//! A [`Script`] is parsed and checked once; [`Script::run`] passes it a JSON input and a [`Host`], and returns JSON. There are no external
//! globals, no `eval`, no prototypes, and no clock or randomness except the host's. Unsupported syntax is an error at parse time, with line
//! and column.
#![forbid(unsafe_code)]
mod ast;
mod builtins;
mod date;
mod error;
mod eval;
mod exec;
mod host;
mod interp;
mod lexer;
mod member;
mod native;
mod number;
mod object;
mod operators;
mod parser;
mod regex;
mod resolve;
mod text;
mod value;

use std::rc::Rc;

pub use error::ScriptError;
pub use host::{Entry, Host, HostError, Level, NoHost, Request, Response, Status};
pub use interp::Limits;

use interp::{Eval, Interp, Stop, Why};
use value::Value;

/// A parsed and checked program.
#[derive(Debug)]
pub struct Script {
    program: Rc<ast::Function>,
    source: String,
    uses: Vec<&'static str>,
}

impl Script {
    /// Parses a source. It must have an entry: `export function run(input) { … }`.
    pub fn new(source: &str) -> Result<Self, ScriptError> {
        let read = || {
            let mut program = parser::parse(lexer::lex(source)?)?;
            let uses = resolve::resolve(&mut program)?;
            Ok((program, uses))
        };
        let (program, uses) = read().map_err(|error: ScriptError| error.in_source(source))?;
        Ok(Self { program: Rc::new(program), source: source.to_owned(), uses })
    }

    /// The host functions that the source names, which are all that it can call.
    pub fn uses(&self) -> &[&'static str] {
        &self.uses
    }

    /// Calls the entry with a JSON value and returns its result as JSON.
    pub fn run(&self, input: &str, host: &mut dyn Host, limits: Limits) -> Result<String, ScriptError> {
        let mut interp = Interp::new(host, limits);
        let result = self.called(&mut interp, input);
        result.map_err(|Stop(why)| match *why {
            Why::Throw(thrown) => self.uncaught(&mut interp, &thrown),
            Why::Limit(message) => ScriptError::anywhere(message),
            Why::Short => ScriptError::anywhere("a chain ended nowhere"),
        })
    }

    fn called(&self, interp: &mut Interp<'_>, input: &str) -> Eval<String> {
        let input = match builtins::json::read(interp, input) {
            Ok(value) => value,
            Err(why) => return Err(interp.syntax_error(format!("the input is not JSON: {why}"))),
        };
        let entry = interp.program(&self.program)?;
        let given = interp.call(&entry, &Value::Undefined, &[input])?;
        let given = builtins::promise::unwrapped(given)?;
        let json = builtins::json::compact(interp, &given)?;
        Ok(json.map_or_else(|| "null".to_owned(), |json| json.as_str().to_owned()))
    }

    /// An uncaught error, with its source line.
    fn uncaught(&self, interp: &mut Interp<'_>, thrown: &Value) -> ScriptError {
        let at = thrown.as_object().and_then(|object| match &*object.body.borrow() {
            object::Body::Record(record) => record.error_at,
            _other => None,
        });
        let at = at.unwrap_or(interp.at);
        interp.depth = 0;
        let message = match thrown.as_object() {
            Some(object) if object.is_error() => interp.error_text(thrown).ok(),
            Some(_) => {
                builtins::json::compact(interp, thrown).ok().flatten().map(|json| json.as_str().to_owned())
            }
            None => interp.to_str(thrown).ok().map(|text| text.as_str().to_owned()),
        };
        ScriptError::new(at, message.unwrap_or_else(|| "something was thrown".to_owned()))
            .in_source(&self.source)
    }
}
