//! Strings: UTF-8 internally, positions in UTF-16 units externally, as in JavaScript.
//!
//! UTF-8 can't represent half of a surrogate pair; a program that splits a pair gets U+FFFD.

use std::cell::Cell;
use std::rc::Rc;

/// A shared string.
pub(crate) type Str = Rc<Text>;

/// Text that knows its length in UTF-16 units.
#[derive(Debug, Clone, Default)]
pub(crate) struct Text {
    chars: String,
    units: usize,
    /// The last position looked up (unit, byte), so that iterating over a text isn't quadratic.
    seen: Cell<(usize, usize)>,
}

pub(crate) fn str_of(text: &str) -> Str {
    Rc::new(Text::from(text.to_owned()))
}

impl From<String> for Text {
    fn from(chars: String) -> Self {
        let units = units_of(&chars);
        Self { chars, units, seen: Cell::new((0, 0)) }
    }
}

fn units_of(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().map(char::len_utf16).sum() }
}

impl Text {
    pub(crate) fn as_str(&self) -> &str {
        &self.chars
    }

    /// Its length in UTF-16 units.
    pub(crate) fn units(&self) -> usize {
        self.units
    }

    fn is_ascii(&self) -> bool {
        self.units == self.chars.len()
    }

    pub(crate) fn push(&mut self, more: &Text) {
        self.chars.push_str(&more.chars);
        self.units = self.units.saturating_add(more.units);
    }

    /// The byte offset of a unit. Within a surrogate pair, the pair's offset, and `true`.
    fn byte_of(&self, unit: usize) -> (usize, bool) {
        if self.is_ascii() {
            return (unit.min(self.chars.len()), false);
        }
        let (mut at_unit, mut at_byte) = self.seen.get();
        if at_unit > unit {
            (at_unit, at_byte) = (0, 0);
        }
        let rest = self.chars.get(at_byte..).unwrap_or("");
        for c in rest.chars() {
            if at_unit >= unit {
                break;
            }
            if at_unit.saturating_add(c.len_utf16()) > unit {
                self.seen.set((at_unit, at_byte));
                return (at_byte, true);
            }
            at_unit = at_unit.saturating_add(c.len_utf16());
            at_byte = at_byte.saturating_add(c.len_utf8());
        }
        self.seen.set((at_unit, at_byte));
        (at_byte, false)
    }

    /// The byte at or before a unit.
    pub(crate) fn byte_at(&self, unit: usize) -> usize {
        self.byte_of(unit).0
    }

    /// The unit at a byte offset.
    pub(crate) fn unit_at(&self, byte: usize) -> usize {
        if self.is_ascii() {
            return byte.min(self.units);
        }
        let (at_unit, at_byte) = self.seen.get();
        match self.chars.get(at_byte..byte) {
            Some(between) => at_unit.saturating_add(units_of(between)),
            None => self.chars.get(..byte).map_or(self.units, units_of),
        }
    }

    /// One UTF-16 unit.
    pub(crate) fn unit(&self, index: usize) -> Option<u16> {
        if self.is_ascii() {
            return self.chars.as_bytes().get(index).map(|byte| u16::from(*byte));
        }
        if index >= self.units {
            return None;
        }
        let (byte, inside) = self.byte_of(index);
        let c = self.chars.get(byte..)?.chars().next()?;
        let mut pair = [0_u16; 2];
        c.encode_utf16(&mut pair);
        pair.get(usize::from(inside)).copied()
    }

    /// The code point at a unit.
    pub(crate) fn code_point(&self, index: usize) -> Option<u32> {
        if index >= self.units {
            return None;
        }
        let (byte, inside) = self.byte_of(index);
        if inside {
            return self.unit(index).map(u32::from);
        }
        self.chars.get(byte..)?.chars().next().map(u32::from)
    }

    /// The units in `from..to`.
    pub(crate) fn slice(&self, from: usize, to: usize) -> Str {
        let to = to.min(self.units);
        if from >= to {
            return Str::default();
        }
        let (start, cut_start) = self.byte_of(from);
        let (end, cut_end) = self.byte_of(to);
        let mut out = String::new();
        let mut start = start;
        if cut_start {
            out.push('\u{fffd}');
            start = start.saturating_add(4);
        }
        out.push_str(self.chars.get(start..end).unwrap_or(""));
        if cut_end {
            out.push('\u{fffd}');
        }
        Rc::new(Self::from(out))
    }
}

/// White space as JavaScript defines it.
pub(crate) fn is_space(c: char) -> bool {
    matches!(c, '\t' | '\u{b}' | '\u{c}' | ' ' | '\u{a0}' | '\u{feff}') || is_line_end(c) || is_other_space(c)
}

pub(crate) fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}

fn is_other_space(c: char) -> bool {
    matches!(c, '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}')
}
