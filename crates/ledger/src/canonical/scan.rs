//! Checks without allocating whether bytes are canonical JSON.
//!
//! Verification runs this scan over every byte of the ledger. The scan distinguishes input that *ends* too soon, which a crash can cause,
//! from input that is *wrong*, which only tampering or a bug can cause.

use super::write::compare_keys;
use super::{CanonicalError, DEPTH_MAX, INTEGER_MAX, number};

/// Checks that `bytes` are exactly one value in canonical spelling.
pub fn check(bytes: &[u8]) -> Result<(), CanonicalError> {
    std::str::from_utf8(bytes).map_err(|_| CanonicalError::NotUtf8)?;
    let mut cursor = Cursor::new(bytes);
    // Only a top-level number can end at the end of the input.
    if bytes.first().is_some_and(|byte| *byte == b'-' || byte.is_ascii_digit()) {
        return if is_canonical_number(bytes) { Ok(()) } else { Err(CanonicalError::NotCanonical { at: 0 }) };
    }
    match cursor.value(0) {
        Ok(()) if cursor.at == bytes.len() => Ok(()),
        Ok(()) => Err(CanonicalError::NotCanonical { at: cursor.at }),
        Err(Flaw::Incomplete) => Err(CanonicalError::NotCanonical { at: bytes.len() }),
        Err(Flaw::Invalid { at }) => Err(CanonicalError::NotCanonical { at }),
    }
}

/// Why a scan failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// All bytes are valid, but the input ends too soon.
    Incomplete,
    /// The byte at this offset is invalid.
    Invalid { at: usize },
}

/// A read position in bytes that are valid UTF-8.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    fn invalid<T>(&self) -> Result<T, Flaw> {
        Err(Flaw::Invalid { at: self.at })
    }

    pub(crate) fn peek(&self) -> Result<u8, Flaw> {
        self.bytes.get(self.at).copied().ok_or(Flaw::Incomplete)
    }

    pub(crate) fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.at).unwrap_or_default()
    }

    /// Consumes exactly these bytes.
    pub(crate) fn literal(&mut self, expected: &[u8]) -> Result<(), Flaw> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.starts_with(expected) {
            self.at += expected.len();
            return Ok(());
        }
        let same = rest.iter().zip(expected).take_while(|(a, b)| a == b).count();
        self.at += same;
        if same == rest.len() { Err(Flaw::Incomplete) } else { self.invalid() }
    }

    /// Consumes `count` bytes that all satisfy `test`, and returns them.
    pub(crate) fn exactly(&mut self, count: usize, test: fn(u8) -> bool) -> Result<&'a [u8], Flaw> {
        let start = self.at;
        while self.at < start + count {
            if !test(self.peek()?) {
                return self.invalid();
            }
            self.at += 1;
        }
        Ok(self.since(start))
    }

    /// Consumes an integer in canonical spelling.
    pub(crate) fn integer(&mut self) -> Result<i64, Flaw> {
        let start = self.at;
        let negative = self.peek()? == b'-';
        if negative {
            self.at += 1;
        }
        let first = self.at;
        let mut value: u64 = 0;
        while let digit @ b'0'..=b'9' = self.peek()? {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.at += 1;
            let leading_zero = value < 10 && self.at - first > 1;
            if leading_zero || value > INTEGER_MAX || self.at - first > 16 {
                self.at = start;
                return self.invalid();
            }
        }
        if self.at == first || (negative && value == 0) {
            self.at = start;
            return self.invalid();
        }
        let value = value.cast_signed();
        Ok(if negative { -value } else { value })
    }

    /// Consumes one value.
    pub(crate) fn value(&mut self, depth: usize) -> Result<(), Flaw> {
        match self.peek()? {
            b'"' => self.string(),
            b'{' => self.object(depth + 1),
            b'[' => self.array(depth + 1),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            b'-' | b'0'..=b'9' => self.number(),
            _ => self.invalid(),
        }
    }

    /// Consumes one object.
    pub(crate) fn object(&mut self, depth: usize) -> Result<(), Flaw> {
        if depth > DEPTH_MAX {
            return self.invalid();
        }
        self.literal(b"{")?;
        if self.peek()? == b'}' {
            self.at += 1;
            return Ok(());
        }
        let mut before: Option<&[u8]> = None;
        loop {
            let start = self.at;
            self.string()?;
            let key = self.bytes.get(start + 1..self.at.saturating_sub(1)).unwrap_or_default();
            if before.is_some_and(|before| compare_keys(before, key).is_ge()) {
                self.at = start;
                return self.invalid();
            }
            before = Some(key);
            self.literal(b":")?;
            self.value(depth)?;
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return self.invalid(),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), Flaw> {
        if depth > DEPTH_MAX {
            return self.invalid();
        }
        self.literal(b"[")?;
        if self.peek()? == b']' {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth)?;
            match self.peek()? {
                b',' => self.at += 1,
                b']' => break,
                _ => return self.invalid(),
            }
        }
        self.at += 1;
        Ok(())
    }

    pub(crate) fn string(&mut self) -> Result<(), Flaw> {
        self.literal(b"\"")?;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let plain = rest.iter().take_while(|byte| **byte >= 0x20 && **byte != b'"' && **byte != b'\\');
            self.at += plain.count();
            match self.peek()? {
                b'"' => break,
                b'\\' => self.escape()?,
                _ => return self.invalid(),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Flaw> {
        self.at += 1;
        match self.peek()? {
            b'"' | b'\\' | b'b' | b't' | b'n' | b'f' | b'r' => {
                self.at += 1;
                Ok(())
            }
            b'u' => {
                self.literal(b"u00")?;
                let high = self.exactly(1, |byte| matches!(byte, b'0' | b'1'))?;
                let low_at = self.at;
                let low = self.exactly(1, |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))?;
                // Characters with a short escape must use it.
                if high == b"0" && matches!(low, b"8" | b"9" | b"a" | b"c" | b"d") {
                    return Err(Flaw::Invalid { at: low_at });
                }
                Ok(())
            }
            _ => self.invalid(),
        }
    }

    fn number(&mut self) -> Result<(), Flaw> {
        let start = self.at;
        while matches!(self.peek()?, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') {
            self.at += 1;
        }
        let token = self.since(start);
        if is_canonical_number(token) {
            return Ok(());
        }
        self.at = start;
        self.invalid()
    }
}

fn is_canonical_number(token: &[u8]) -> bool {
    if token.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-') {
        let digits = token.strip_prefix(b"-").unwrap_or(token);
        let Some(first) = digits.first() else { return false };
        let only_zero = digits.len() == 1 && token.len() == 1;
        let in_range = digits.len() <= 15
            || std::str::from_utf8(digits)
                .ok()
                .and_then(|text| text.parse::<u64>().ok())
                .is_some_and(|value| value <= INTEGER_MAX);
        return (*first != b'0' || only_zero) && digits.iter().all(u8::is_ascii_digit) && in_range;
    }
    let Some(value) = std::str::from_utf8(token).ok().and_then(|text| text.parse::<f64>().ok()) else {
        return false;
    };
    let mut spelled = Vec::with_capacity(24);
    number::write_f64(value, &mut spelled).is_ok() && spelled == token
}
