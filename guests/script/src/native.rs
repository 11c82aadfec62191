//! Built-ins: predefined names, and the signature of native functions.

use crate::builtins;
use crate::interp::{Eval, Interp};
use crate::value::Value;

/// A native function: interpreter, `this`, arguments.
pub(crate) type NativeFn = fn(&mut Interp<'_>, &Value, &[Value]) -> Eval;

/// A namespace such as `Math` or `Array`.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) name: &'static str,
    /// `Number("1")`
    pub(crate) call: Option<NativeFn>,
    /// `new Date()`
    pub(crate) construct: Option<NativeFn>,
    pub(crate) member: fn(&str) -> Option<Member>,
    /// Methods of its values: `Array.prototype`.
    pub(crate) methods: Option<fn(&str) -> Option<NativeFn>>,
}

/// A member of a namespace.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Member {
    Num(f64),
    Fn(NativeFn),
}

/// A predefined name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Global {
    Namespace(&'static Namespace),
    Function(&'static str, NativeFn),
    Num(f64),
    /// One of [`ERRORS`].
    Error(usize),
}

impl Global {
    /// The host function that this name refers to, if any.
    pub(crate) fn host_function(self) -> Option<&'static str> {
        match self {
            Self::Function("fetch", _) => Some("fetch"),
            Self::Function(..) | Self::Namespace(_) | Self::Num(_) | Self::Error(_) => None,
        }
    }
}

/// The error classes; the first is the base of the others.
pub(crate) const ERRORS: &[&str] =
    &["Error", "TypeError", "RangeError", "SyntaxError", "ReferenceError", "EvalError", "URIError"];

pub(crate) fn global(name: &str) -> Option<Global> {
    if let Some(index) = ERRORS.iter().position(|error| *error == name) {
        return Some(Global::Error(index));
    }
    Some(match name {
        "NaN" => Global::Num(f64::NAN),
        "Infinity" => Global::Num(f64::INFINITY),
        "Math" => Global::Namespace(&builtins::math::MATH),
        "JSON" => Global::Namespace(&builtins::json::JSON),
        "Object" => Global::Namespace(&builtins::object::OBJECT),
        "Array" => Global::Namespace(&builtins::array::ARRAY),
        "String" => Global::Namespace(&builtins::string::STRING),
        "Number" => Global::Namespace(&builtins::number::NUMBER),
        "Boolean" => Global::Namespace(&builtins::number::BOOLEAN),
        "Map" => Global::Namespace(&builtins::collection::MAP),
        "Set" => Global::Namespace(&builtins::collection::SET),
        "Date" => Global::Namespace(&builtins::date::DATE),
        "RegExp" => Global::Namespace(&builtins::regex::REGEXP),
        "Promise" => Global::Namespace(&builtins::promise::PROMISE),
        "console" => Global::Namespace(&builtins::host::CONSOLE),
        "parseInt" => Global::Function("parseInt", builtins::number::parse_int),
        "parseFloat" => Global::Function("parseFloat", builtins::number::parse_float),
        "isNaN" => Global::Function("isNaN", builtins::number::is_nan),
        "isFinite" => Global::Function("isFinite", builtins::number::is_finite),
        "encodeURIComponent" => Global::Function("encodeURIComponent", builtins::uri::encode_component),
        "encodeURI" => Global::Function("encodeURI", builtins::uri::encode),
        "decodeURIComponent" => Global::Function("decodeURIComponent", builtins::uri::decode),
        "decodeURI" => Global::Function("decodeURI", builtins::uri::decode),
        "btoa" => Global::Function("btoa", builtins::uri::to_base64),
        "atob" => Global::Function("atob", builtins::uri::from_base64),
        "structuredClone" => Global::Function("structuredClone", builtins::object::structured_clone),
        "fetch" => Global::Function("fetch", builtins::host::fetch),
        _other => return None,
    })
}

/// A host function by its path below `regent`, and its capability word.
pub(crate) fn host_function(path: &str) -> Option<(Global, &'static str)> {
    let (word, run): (&'static str, NativeFn) = match path {
        "readFile" => ("readFile", builtins::host::read_file),
        "writeFile" => ("writeFile", builtins::host::write_file),
        "appendFile" => ("appendFile", builtins::host::append_file),
        "listDir" => ("listDir", builtins::host::list_dir),
        "stat" => ("stat", builtins::host::stat),
        "fetch" => ("fetch", builtins::host::fetch),
        "log" => ("log", builtins::host::log),
        "now" => ("now", builtins::host::now),
        "secret" => ("secret", builtins::host::secret),
        "callTool" => ("callTool", builtins::host::call_tool),
        "kv.get" => ("kv.get", builtins::host::kv_get),
        "kv.set" => ("kv.set", builtins::host::kv_set),
        _other => return None,
    };
    Some((Global::Function(word, run), word))
}
