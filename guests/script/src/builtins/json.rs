//! `JSON`, also used for input and output.

use std::rc::Rc;

use super::arg;
use crate::interp::{Eval, Interp, STRING_UNITS_MAX};
use crate::native::{Member, Namespace};
use crate::number::to_text;
use crate::object::{Body, Props};
use crate::text::{Str, Text};
use crate::value::Value;

pub(crate) static JSON: Namespace =
    Namespace { name: "JSON", call: None, construct: None, member, methods: None };

/// Maximum nesting.
const NEST_MAX: u32 = 128;

fn member(name: &str) -> Option<Member> {
    Some(Member::Fn(match name {
        "parse" => parse,
        "stringify" => stringify,
        _other => return None,
    }))
}

pub(crate) fn parse(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let text = interp.to_str(&arg(args, 0))?;
    let value = match read(interp, text.as_str()) {
        Ok(value) => value,
        Err(why) => return Err(interp.syntax_error(why)),
    };
    let reviver = arg(args, 1);
    if reviver.as_callable().is_none() {
        return Ok(value);
    }
    revived(interp, &reviver, "", value)
}

fn revived(interp: &mut Interp<'_>, reviver: &Value, name: &str, value: Value) -> Eval {
    interp.deeper(|interp| {
        if value.as_object().is_some() {
            for (key, part) in interp.entries_of(&value)? {
                match revived(interp, reviver, key.as_str(), part)? {
                    Value::Undefined => {
                        interp.delete(&value, &key)?;
                    }
                    part => interp.set_str(&value, &key, part)?,
                }
            }
        }
        interp.call(reviver, &Value::Undefined, &[Value::str(name), value])
    })
}

/// Parses JSON; the error says what is wrong and where.
pub(crate) fn read(interp: &mut Interp<'_>, text: &str) -> Result<Value, String> {
    let mut reader = Reader { text, at: 0, nest: 0 };
    let value = reader.value(interp)?;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.unexpected());
    }
    Ok(value)
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    nest: u32,
}

impl Reader<'_> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn step(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    fn space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.step();
        }
    }

    fn unexpected(&self) -> String {
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(c) => format!("Unexpected token '{}' in JSON at position {}", c.escape_debug(), self.at),
            None => "Unexpected end of JSON input".to_owned(),
        }
    }

    fn take(&mut self, byte: u8) -> Result<(), String> {
        if self.byte() == Some(byte) {
            self.step();
            return Ok(());
        }
        Err(self.unexpected())
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, String> {
        if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            self.at = self.at.saturating_add(word.len());
            return Ok(value);
        }
        Err(self.unexpected())
    }

    fn value(&mut self, interp: &mut Interp<'_>) -> Result<Value, String> {
        self.space();
        match self.byte() {
            Some(b'{') => self.nested(interp, Self::object),
            Some(b'[') => self.nested(interp, Self::array),
            Some(b'"') => Ok(Value::Str(self.string()?)),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) | None => Err(self.unexpected()),
        }
    }

    fn nested(
        &mut self,
        interp: &mut Interp<'_>,
        read: fn(&mut Self, &mut Interp<'_>) -> Result<Value, String>,
    ) -> Result<Value, String> {
        if self.nest >= NEST_MAX {
            return Err("JSON is nested too deeply".to_owned());
        }
        self.nest = self.nest.saturating_add(1);
        self.step();
        self.space();
        let value = read(self, interp);
        self.nest = self.nest.saturating_sub(1);
        value
    }

    fn object(&mut self, interp: &mut Interp<'_>) -> Result<Value, String> {
        let mut props = Props::default();
        if self.byte() == Some(b'}') {
            self.step();
            return Ok(interp.record(props));
        }
        loop {
            self.space();
            let name = self.string()?;
            self.space();
            self.take(b':')?;
            let value = self.value(interp)?;
            props.set(&name, value);
            self.space();
            if self.byte() != Some(b',') {
                break;
            }
            self.step();
        }
        self.take(b'}')?;
        Ok(interp.record(props))
    }

    fn array(&mut self, interp: &mut Interp<'_>) -> Result<Value, String> {
        let mut items = Vec::new();
        if self.byte() == Some(b']') {
            self.step();
            return Ok(interp.array(items));
        }
        loop {
            items.push(self.value(interp)?);
            self.space();
            if self.byte() != Some(b',') {
                break;
            }
            self.step();
        }
        self.take(b']')?;
        Ok(interp.array(items))
    }

    fn number(&mut self) -> Result<Value, String> {
        let from = self.at;
        let digits = |reader: &mut Self| {
            let start = reader.at;
            while reader.byte().is_some_and(|byte| byte.is_ascii_digit()) {
                reader.step();
            }
            reader.at > start
        };
        if self.byte() == Some(b'-') {
            self.step();
        }
        let zero = self.byte() == Some(b'0');
        let start = self.at;
        if !digits(self) || (zero && self.at > start.saturating_add(1)) {
            return Err(self.unexpected());
        }
        if self.byte() == Some(b'.') {
            self.step();
            if !digits(self) {
                return Err(self.unexpected());
            }
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.step();
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.step();
            }
            if !digits(self) {
                return Err(self.unexpected());
            }
        }
        let text = self.text.get(from..self.at).unwrap_or("");
        text.parse().map(Value::Num).map_err(|_| self.unexpected())
    }

    fn string(&mut self) -> Result<Str, String> {
        self.take(b'"')?;
        let mut out = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or("");
            let plain = rest.bytes().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..=31)).count();
            out.push_str(rest.get(..plain).unwrap_or(""));
            self.at = self.at.saturating_add(plain);
            match self.byte() {
                Some(b'"') => {
                    self.step();
                    return Ok(Rc::new(Text::from(out)));
                }
                Some(b'\\') => {
                    self.step();
                    out.push(self.escape()?);
                }
                Some(_) | None => return Err(self.unexpected()),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let c = match self.byte() {
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'u') => {
                self.step();
                return self.unit();
            }
            Some(_) | None => return Err(self.unexpected()),
        };
        self.step();
        Ok(c)
    }

    fn unit(&mut self) -> Result<char, String> {
        let first = self.hex().ok_or_else(|| self.unexpected())?;
        if (0xd800..0xdc00).contains(&first)
            && self.text.get(self.at..).is_some_and(|rest| rest.starts_with("\\u"))
        {
            let before = self.at;
            self.at = self.at.saturating_add(2);
            if let Some(second) = self.hex()
                && let Some(Ok(c)) = char::decode_utf16([first, second]).next()
            {
                return Ok(c);
            }
            self.at = before;
        }
        Ok(char::from_u32(u32::from(first)).unwrap_or('\u{fffd}'))
    }

    fn hex(&mut self) -> Option<u16> {
        let digits = self.text.get(self.at..self.at.saturating_add(4))?;
        let digits = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        self.at = self.at.saturating_add(4);
        u16::from_str_radix(digits, 16).ok()
    }
}

fn stringify(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let indent = match arg(args, 2) {
        Value::Num(count) => " ".repeat(count.clamp(0.0, 10.0) as usize),
        Value::Str(text) => text.slice(0, 10).as_str().to_owned(),
        _other => String::new(),
    };
    let replacer = arg(args, 1);
    let only = match replacer.elements() {
        Some(names) => {
            let names: Eval<Vec<Str>> = names.iter().map(|name| interp.to_str(name)).collect();
            Some(names?)
        }
        None => None,
    };
    let replacer = replacer.as_callable().is_some().then_some(replacer);
    let mut writer = Writer { out: String::new(), indent, replacer, only, nest: 0 };
    let written = writer.value(interp, "", arg(args, 0))?;
    Ok(if written { Value::text(writer.out) } else { Value::Undefined })
}

/// A value as JSON in one line; `None` if it has no JSON.
pub(crate) fn compact(interp: &mut Interp<'_>, value: &Value) -> Eval<Option<Str>> {
    let mut writer =
        Writer { out: String::new(), indent: String::new(), replacer: None, only: None, nest: 0 };
    let written = writer.value(interp, "", value.clone())?;
    Ok(written.then(|| Rc::new(Text::from(writer.out))))
}

struct Writer {
    out: String,
    indent: String,
    replacer: Option<Value>,
    only: Option<Vec<Str>>,
    nest: u32,
}

impl Writer {
    /// Writes a value; `false` if it has no JSON (undefined, functions).
    fn value(&mut self, interp: &mut Interp<'_>, name: &str, value: Value) -> Eval<bool> {
        let mut value = value;
        if let Some(object) = value.as_object() {
            let own = object.record_get("toJSON").filter(|method| method.as_callable().is_some());
            let is_date = matches!(&*object.body.borrow(), Body::Date(_));
            if let Some(method) = own {
                value = interp.call(&method, &value, &[Value::str(name)])?;
            } else if is_date {
                let method = interp.get(&value, "toJSON")?;
                value = interp.call(&method, &value, &[])?;
            }
        }
        if let Some(replacer) = self.replacer.clone() {
            value = interp.call(&replacer, &Value::Undefined, &[Value::str(name), value])?;
        }
        match &value {
            Value::Undefined | Value::Unset | Value::Cell(_) => return Ok(false),
            Value::Null => self.out.push_str("null"),
            Value::Bool(value) => self.out.push_str(if *value { "true" } else { "false" }),
            Value::Num(number) if number.is_finite() => self.out.push_str(&to_text(*number)),
            Value::Num(_) => self.out.push_str("null"),
            Value::Str(text) => quote(&mut self.out, text.as_str()),
            Value::Obj(object) if object.is_callable() => return Ok(false),
            Value::Obj(_) => self.nested(interp, &value)?,
        }
        if self.out.len() > STRING_UNITS_MAX {
            return Err(interp.range_error("Invalid string length"));
        }
        Ok(true)
    }

    fn nested(&mut self, interp: &mut Interp<'_>, value: &Value) -> Eval<()> {
        if self.nest >= NEST_MAX {
            return Err(interp.type_error("Converting circular structure to JSON, or one that is too deep"));
        }
        self.nest = self.nest.saturating_add(1);
        let result = interp.deeper(|interp| match value.elements() {
            Some(items) => self.array(interp, items),
            None => self.object(interp, value),
        });
        self.nest = self.nest.saturating_sub(1);
        result
    }

    fn line(&mut self, nest: u32) {
        if !self.indent.is_empty() {
            self.out.push('\n');
            for _ in 0..nest {
                self.out.push_str(&self.indent);
            }
        }
    }

    fn array(&mut self, interp: &mut Interp<'_>, items: Vec<Value>) -> Eval<()> {
        self.out.push('[');
        let any = !items.is_empty();
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.line(self.nest);
            if !self.value(interp, &index.to_string(), item)? {
                self.out.push_str("null");
            }
        }
        if any {
            self.line(self.nest.saturating_sub(1));
        }
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self, interp: &mut Interp<'_>, value: &Value) -> Eval<()> {
        self.out.push('{');
        let mut any = false;
        for (name, part) in interp.entries_of(value)? {
            if self
                .only
                .as_ref()
                .is_some_and(|only| !only.iter().any(|known| known.as_str() == name.as_str()))
            {
                continue;
            }
            let before = self.out.len();
            if any {
                self.out.push(',');
            }
            self.line(self.nest);
            quote(&mut self.out, name.as_str());
            self.out.push_str(if self.indent.is_empty() { ":" } else { ": " });
            if self.value(interp, name.as_str(), part)? {
                any = true;
            } else {
                self.out.truncate(before);
            }
        }
        if any {
            self.line(self.nest.saturating_sub(1));
        }
        self.out.push('}');
        Ok(())
    }
}

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if u32::from(control) < 32 => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
}
