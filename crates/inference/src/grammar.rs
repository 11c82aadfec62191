//! Constrains an answer to JSON of a given shape: a state machine over bytes, compiled from a JSON Schema.
//!
//! The machine keeps every possible parse of the bytes so far, each as a stack of pending items. Spacing is fixed, and members come in the
//! schema's order. Constraints beyond shape (patterns, sums, dependencies) are ignored, because the kernel checks arguments against the
//! full schema. Unsupported schemas allow any JSON.

mod schema;

use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) use schema::{Member, SchemaShape, Shapes, members_of};

/// Maximum number of parallel parses; further ones are dropped.
const WAYS_MAX: usize = 4_096;
/// Maximum expansion steps. A schema that refers only to itself would never end.
const STEPS_MAX: usize = 16_384;
/// Maximum depth of unconstrained JSON.
const ANY_DEPTH_MAX: u8 = 6;
/// Maximum items of a list.
const ITEMS_MAX: u32 = 256;
/// Maximum digits of a number.
const DIGITS_MAX: u8 = 15;

/// A pending item.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PendingItem {
    /// These bytes, from this offset on.
    Bytes(Arc<[u8]>, usize),
    /// A value of this shape, at this depth of unconstrained JSON.
    Value(usize, u8),
    /// Members of an object, from this index on; whether any member was written.
    Members(usize, usize, bool, u8),
    /// Items of a list, and the number written so far.
    Items(usize, u32, u8),
    /// The rest of a string.
    Text(Text),
    /// The rest of a number.
    Number(Number),
    /// Members of an unconstrained object.
    AnyMembers(bool, u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Text {
    /// Remaining characters allowed.
    left: u32,
    /// Remaining characters required.
    needed: u32,
    state: TextState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TextState {
    Plain,
    /// Within a multi-byte character: the number of bytes left, and the range of the next one.
    Inside(u8, u8, u8),
    Escape,
    /// Remaining hex digits, and whether the next one is the first.
    Hex(u8, bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Number {
    is_whole: bool,
    state: NumberState,
    digits: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NumberState {
    Begin,
    Sign,
    Zero,
    Digits,
    Point,
    Fraction,
}

type Way = Vec<PendingItem>;

/// The possible continuations of an answer.
#[derive(Debug, Clone)]
pub(super) struct Grammar {
    shapes: Arc<Shapes>,
    ways: BTreeSet<Way>,
}

impl Grammar {
    /// An answer of this shape: `before`, a value, `after`.
    pub(super) fn new(shapes: Shapes, root: usize, before: &str, after: &str) -> Self {
        let way = vec![literal(after), PendingItem::Value(root, 0), literal(before)];
        let mut grammar = Self { shapes: Arc::new(shapes), ways: BTreeSet::new() };
        grammar.ways = grammar.open(vec![way]);
        grammar
    }

    /// Whether the answer may end here.
    pub(super) fn may_end(&self) -> bool {
        self.ways.contains(&Vec::new())
    }

    /// Whether the answer is complete.
    pub(super) fn is_over(&self) -> bool {
        self.ways.iter().all(Vec::is_empty)
    }

    /// Advances by these bytes, if they are allowed; otherwise stays unchanged.
    pub(super) fn take(&mut self, bytes: &[u8]) -> bool {
        match self.ahead(bytes) {
            Some(ways) => {
                self.ways = ways;
                true
            }
            None => bytes.is_empty(),
        }
    }

    /// Whether these bytes are allowed.
    pub(super) fn allows(&self, bytes: &[u8]) -> bool {
        self.ahead(bytes).is_some()
    }

    /// The parses after these bytes, if any.
    fn ahead(&self, bytes: &[u8]) -> Option<BTreeSet<Way>> {
        let mut ways = None;
        for byte in bytes {
            let next = self.after(ways.as_ref().unwrap_or(&self.ways), *byte);
            ways = Some(next).filter(|next| !next.is_empty());
            ways.as_ref()?;
        }
        ways
    }

    /// The only possible continuation, at most `bytes_max` bytes of it.
    pub(super) fn forced(&self, bytes_max: usize) -> Vec<u8> {
        let mut forced = Vec::new();
        let mut grammar = self.clone();
        while forced.len() < bytes_max
            && !grammar.may_end()
            && let Some(byte) = grammar.only()
            && grammar.take(&[byte])
        {
            forced.push(byte);
        }
        forced
    }

    /// The next byte, if only one is possible.
    fn only(&self) -> Option<u8> {
        let mut only = None;
        for way in &self.ways {
            let Some(PendingItem::Bytes(bytes, at)) = way.last() else { return None };
            let byte = *bytes.get(*at)?;
            if only.is_some_and(|only| only != byte) {
                return None;
            }
            only = Some(byte);
        }
        only
    }

    fn after(&self, ways: &BTreeSet<Way>, byte: u8) -> BTreeSet<Way> {
        let mut next = Vec::new();
        for way in ways {
            let Some((item, rest)) = way.split_last() else { continue };
            let stay = |item: PendingItem| rest.iter().cloned().chain([item]).collect::<Way>();
            match item {
                PendingItem::Bytes(bytes, at) if bytes.get(*at) == Some(&byte) => {
                    let at = at + 1;
                    next.push(if at < bytes.len() {
                        stay(PendingItem::Bytes(Arc::clone(bytes), at))
                    } else {
                        rest.to_vec()
                    });
                }
                PendingItem::Text(text) => match text.after(byte) {
                    Some(Some(text)) => next.push(stay(PendingItem::Text(text))),
                    Some(None) => next.push(rest.to_vec()),
                    None => {}
                },
                PendingItem::Number(number) => {
                    next.extend(number.after(byte).map(|number| stay(PendingItem::Number(number))))
                }
                // `open` has expanded all other items.
                PendingItem::Bytes(..)
                | PendingItem::Value(..)
                | PendingItem::Members(..)
                | PendingItem::Items(..)
                | PendingItem::AnyMembers(..) => {}
            }
        }
        self.open(next)
    }

    /// Expands the first item of each parse until it is bytes.
    fn open(&self, mut ways: Vec<Way>) -> BTreeSet<Way> {
        let mut open = BTreeSet::new();
        for _ in 0..STEPS_MAX {
            let Some(mut way) = ways.pop() else { break };
            let Some(item) = way.pop() else {
                open.insert(way);
                continue;
            };
            let mut with = |items: &[PendingItem]| {
                if ways.len() + open.len() >= WAYS_MAX {
                    return;
                }
                ways.push(way.iter().cloned().chain(items.iter().rev().cloned()).collect());
            };
            match item {
                PendingItem::Bytes(bytes, at) if at >= bytes.len() => with(&[]),
                PendingItem::Value(shape, depth) => self.open_value(shape, depth, &mut with),
                PendingItem::Members(shape, at, has_one, depth) => {
                    self.open_members((shape, at, has_one, depth), &mut with)
                }
                PendingItem::Items(shape, count, depth) => self.open_items((shape, count, depth), &mut with),
                PendingItem::AnyMembers(has_one, depth) => {
                    with(&[literal("}")]);
                    let before = literal(if has_one { ", \"" } else { "\"" });
                    let text = PendingItem::Text(Text::new(0, 64));
                    with(&[
                        before,
                        text,
                        literal(": "),
                        PendingItem::Value(schema::ANY, depth + 1),
                        PendingItem::AnyMembers(true, depth),
                    ]);
                }
                PendingItem::Number(number) => {
                    if number.may_end() {
                        with(&[]);
                    }
                    if number.may_go_on() {
                        way.push(PendingItem::Number(number));
                        open.insert(way);
                    }
                }
                PendingItem::Bytes(..) | PendingItem::Text(_) => {
                    way.push(item);
                    open.insert(way);
                }
            }
        }
        open
    }

    fn open_value(&self, shape: usize, depth: u8, with: &mut dyn FnMut(&[PendingItem])) {
        let number =
            |is_whole| PendingItem::Number(Number { is_whole, state: NumberState::Begin, digits: 0 });
        match self.shapes.get(shape) {
            SchemaShape::Any => {
                with(&[literal("\""), PendingItem::Text(Text::new(0, u32::MAX))]);
                with(&[number(false)]);
                ["true", "false", "null"].into_iter().for_each(|word| with(&[literal(word)]));
                if depth < ANY_DEPTH_MAX {
                    with(&[literal("{"), PendingItem::AnyMembers(false, depth)]);
                    with(&[literal("["), PendingItem::Items(schema::ANY_LIST, 0, depth)]);
                }
            }
            SchemaShape::Text { least, most } => {
                with(&[literal("\""), PendingItem::Text(Text::new(*least, *most))])
            }
            SchemaShape::Number { is_whole } => with(&[number(*is_whole)]),
            SchemaShape::Bool => ["true", "false"].into_iter().for_each(|word| with(&[literal(word)])),
            SchemaShape::Null => with(&[literal("null")]),
            SchemaShape::OneOf(literals) => literals.iter().for_each(|one| with(&[literal(one)])),
            SchemaShape::Either(shapes) => {
                shapes.iter().for_each(|one| with(&[PendingItem::Value(*one, depth)]))
            }
            SchemaShape::Object(_) => with(&[literal("{"), PendingItem::Members(shape, 0, false, depth)]),
            SchemaShape::AnyObject => with(&[literal("{"), PendingItem::AnyMembers(false, depth)]),
            SchemaShape::List { .. } => with(&[literal("["), PendingItem::Items(shape, 0, depth)]),
        }
    }

    fn open_members(
        &self,
        (shape, at, has_one, depth): (usize, usize, bool, u8),
        with: &mut dyn FnMut(&[PendingItem]),
    ) {
        let SchemaShape::Object(members) = self.shapes.get(shape) else { return };
        let Some(member) = members.get(at) else {
            return with(&[literal("}")]);
        };
        let before = if has_one { ", " } else { "" };
        let name = literal(&format!("{before}{}: ", member.name));
        with(&[
            name,
            PendingItem::Value(member.shape, depth),
            PendingItem::Members(shape, at + 1, true, depth),
        ]);
        if !member.is_required {
            with(&[PendingItem::Members(shape, at + 1, has_one, depth)]);
        }
    }

    fn open_items(&self, (shape, count, depth): (usize, u32, u8), with: &mut dyn FnMut(&[PendingItem])) {
        let SchemaShape::List { of, least, most } = self.shapes.get(shape) else { return };
        if count >= *least {
            with(&[literal("]")]);
        }
        if count < (*most).min(ITEMS_MAX) {
            let before = literal(if count > 0 { ", " } else { "" });
            let deeper = if *of == schema::ANY { depth + 1 } else { depth };
            with(&[before, PendingItem::Value(*of, deeper), PendingItem::Items(shape, count + 1, depth)]);
        }
    }
}

fn literal(text: &str) -> PendingItem {
    PendingItem::Bytes(text.as_bytes().into(), 0)
}

impl Text {
    fn new(least: u32, most: u32) -> Self {
        Self { left: most, needed: least, state: TextState::Plain }
    }

    /// The state after a byte: more text, the end after the closing quote, or no parse.
    fn after(self, byte: u8) -> Option<Option<Self>> {
        let at = |state| Some(Some(Self { state, ..self }));
        let begun = |state| {
            let left = self.left.checked_sub(1)?;
            Some(Some(Self { left, needed: self.needed.saturating_sub(1), state }))
        };
        match (self.state, byte) {
            (TextState::Plain, b'"') => (self.needed == 0).then_some(None),
            (TextState::Plain, b'\\') => at(TextState::Escape),
            (TextState::Plain, 0x20..=0x7E) => begun(TextState::Plain),
            // Strict UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF.
            (TextState::Plain, 0xC2..=0xDF) => begun(TextState::Inside(1, 0x80, 0xBF)),
            (TextState::Plain, 0xE0) => begun(TextState::Inside(2, 0xA0, 0xBF)),
            (TextState::Plain, 0xED) => begun(TextState::Inside(2, 0x80, 0x9F)),
            (TextState::Plain, 0xE1..=0xEF) => begun(TextState::Inside(2, 0x80, 0xBF)),
            (TextState::Plain, 0xF0) => begun(TextState::Inside(3, 0x90, 0xBF)),
            (TextState::Plain, 0xF1..=0xF3) => begun(TextState::Inside(3, 0x80, 0xBF)),
            (TextState::Plain, 0xF4) => begun(TextState::Inside(3, 0x80, 0x8F)),
            (TextState::Inside(left, least, most), byte) if (least..=most).contains(&byte) => match left {
                1 => at(TextState::Plain),
                _ => at(TextState::Inside(left - 1, 0x80, 0xBF)),
            },
            (TextState::Escape, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                begun(TextState::Plain)
            }
            (TextState::Escape, b'u') => at(TextState::Hex(4, true)),
            // Surrogates begin with D.
            (TextState::Hex(_, true), b'd' | b'D') => None,
            (TextState::Hex(left, _), byte) if byte.is_ascii_hexdigit() => match left {
                1 => begun(TextState::Plain),
                _ => at(TextState::Hex(left - 1, false)),
            },
            (TextState::Plain | TextState::Inside(..) | TextState::Escape | TextState::Hex(..), _) => None,
        }
    }
}

impl Number {
    fn may_end(self) -> bool {
        matches!(self.state, NumberState::Zero | NumberState::Digits | NumberState::Fraction)
    }

    fn may_go_on(self) -> bool {
        self.digits < DIGITS_MAX && !(self.is_whole && self.state == NumberState::Zero)
    }

    fn after(self, byte: u8) -> Option<Self> {
        let to = |state, digits: u8| Some(Self { state, digits: self.digits + digits, ..self });
        match (self.state, byte) {
            (NumberState::Begin, b'-') => to(NumberState::Sign, 0),
            (NumberState::Begin | NumberState::Sign, b'0') => to(NumberState::Zero, 1),
            (NumberState::Begin | NumberState::Sign, b'1'..=b'9') => to(NumberState::Digits, 1),
            (NumberState::Digits, b'0'..=b'9') => to(NumberState::Digits, 1),
            (NumberState::Zero | NumberState::Digits, b'.') if !self.is_whole => to(NumberState::Point, 0),
            (NumberState::Point | NumberState::Fraction, b'0'..=b'9') => to(NumberState::Fraction, 1),
            (
                NumberState::Begin
                | NumberState::Sign
                | NumberState::Zero
                | NumberState::Digits
                | NumberState::Point
                | NumberState::Fraction,
                _,
            ) => None,
        }
    }
}

#[cfg(test)]
mod tests;
