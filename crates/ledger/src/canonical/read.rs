//! Parses JSON strictly: input that two readers could interpret differently is an error.
//!
//! Rejected: duplicate keys, lone surrogates, integers outside ±(2^53 − 1), numbers that overflow, byte-order marks, control characters in
//! strings, trailing bytes, nesting beyond [`DEPTH_MAX`].

use serde_json::{Map, Number, Value};

use super::{CanonicalError, DEPTH_MAX, INTEGER_MAX};

/// Parses one JSON value.
pub fn parse(bytes: &[u8]) -> Result<Value, CanonicalError> {
    let text = std::str::from_utf8(bytes).map_err(|_| CanonicalError::NotUtf8)?;
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.space();
    if reader.at == text.len() { Ok(value) } else { reader.fail("bytes after the value") }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn fail<T>(&self, what: &'static str) -> Result<T, CanonicalError> {
        Err(CanonicalError::Syntax { at: self.at, what })
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, CanonicalError> {
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) => self.fail("a value was expected"),
            None => self.fail("input ended"),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, CanonicalError> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return self.fail("a value was expected");
        }
        self.at += word.len();
        Ok(value)
    }

    fn object(&mut self, depth: usize) -> Result<Value, CanonicalError> {
        if depth > DEPTH_MAX {
            return Err(CanonicalError::TooDeep);
        }
        self.at += 1;
        let mut map = Map::new();
        self.space();
        if self.take(b'}') {
            return Ok(Value::Object(map));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return self.fail("a key was expected");
            }
            let key = self.string()?;
            self.space();
            if !self.take(b':') {
                return self.fail("`:` was expected");
            }
            let value = self.value(depth)?;
            if map.contains_key(&key) {
                return Err(CanonicalError::DuplicateKey(key.chars().take(80).collect()));
            }
            map.insert(key, value);
            self.space();
            if self.take(b'}') {
                return Ok(Value::Object(map));
            }
            if !self.take(b',') {
                return self.fail("`,` or `}` was expected");
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, CanonicalError> {
        if depth > DEPTH_MAX {
            return Err(CanonicalError::TooDeep);
        }
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.take(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.space();
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            if !self.take(b',') {
                return self.fail("`,` or `]` was expected");
            }
        }
    }

    fn string(&mut self) -> Result<String, CanonicalError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let plain = rest
                .bytes()
                .position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\')
                .unwrap_or(rest.len());
            out.push_str(rest.get(..plain).unwrap_or_default());
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                Some(_) => return self.fail("control character in a string"),
                None => return self.fail("input ended in a string"),
            }
        }
    }

    fn escape(&mut self) -> Result<char, CanonicalError> {
        let Some(kind) = self.peek() else { return self.fail("input ended in a string") };
        self.at += 1;
        Ok(match kind {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return self.fail("unknown escape"),
        })
    }

    fn unicode(&mut self) -> Result<char, CanonicalError> {
        let at = self.at;
        let first = self.unit()?;
        let code = if (0xd800..0xdc00).contains(&first) {
            if !(self.take(b'\\') && self.take(b'u')) {
                return Err(CanonicalError::LoneSurrogate { at });
            }
            let second = self.unit()?;
            if !(0xdc00..0xe000).contains(&second) {
                return Err(CanonicalError::LoneSurrogate { at });
            }
            0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        char::from_u32(code).ok_or(CanonicalError::LoneSurrogate { at })
    }

    fn unit(&mut self) -> Result<u32, CanonicalError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).unwrap_or_default();
        if digits.len() != 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return self.fail("four hex digits were expected");
        }
        self.at += 4;
        let text = std::str::from_utf8(digits).unwrap_or_default();
        u32::from_str_radix(text, 16).or_else(|_| self.fail("four hex digits were expected"))
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Value, CanonicalError> {
        let start = self.at;
        let negative = self.take(b'-');
        let leading_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        if whole == 0 || (leading_zero && whole > 1) {
            return self.fail("bad number");
        }
        let mut integer = true;
        if self.take(b'.') {
            integer = false;
            if self.digits() == 0 {
                return self.fail("bad number");
            }
        }
        if self.take(b'e') || self.take(b'E') {
            integer = false;
            if !self.take(b'+') {
                self.take(b'-');
            }
            if self.digits() == 0 {
                return self.fail("bad number");
            }
        }
        let token = self.text.get(start..self.at).unwrap_or_default();
        if integer {
            let magnitude: u64 =
                token.trim_start_matches('-').parse().map_err(|_| CanonicalError::IntegerRange)?;
            if magnitude > INTEGER_MAX {
                return Err(CanonicalError::IntegerRange);
            }
            let value = magnitude.cast_signed();
            return Ok(Value::from(if negative { -value } else { value }));
        }
        let value: f64 = token.parse().or_else(|_| self.fail("bad number"))?;
        // A number that has no canonical spelling can't be recorded, so parsing rejects it early.
        super::number::check_f64(value)?;
        Number::from_f64(value).map(Value::Number).ok_or(CanonicalError::NotFinite)
    }
}
