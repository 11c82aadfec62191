//! Writes canonical JSON directly from a `Serialize` value.
//!
//! Members go to the output in the order they arrive. The writer sorts an object when it closes, and only if its keys arrived unsorted.
//! Structs with sorted fields therefore cost nothing extra.

use std::cmp::Ordering;

use serde::Serialize;
use serde::ser::{self, Serializer};

use super::number::write_f64;
use super::{CanonicalError, DEPTH_MAX, INTEGER_MAX};

/// The canonical bytes of a value.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    let mut writer = Writer { out: Vec::with_capacity(256), members: Vec::new(), depth: 0 };
    value.serialize(&mut writer)?;
    Ok(writer.out)
}

struct Writer {
    out: Vec<u8>,
    /// Members of all open objects, innermost last.
    members: Vec<Member>,
    depth: usize,
}

/// The byte range of one member of an object in the output: `"key":value`.
#[derive(Clone, Copy)]
struct Member {
    start: usize,
    key_end: usize,
    end: usize,
}

impl Writer {
    fn enter(&mut self, bracket: u8) -> Result<(), CanonicalError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(CanonicalError::TooDeep);
        }
        self.out.push(bracket);
        Ok(())
    }

    fn leave(&mut self, bracket: u8) {
        self.depth -= 1;
        self.out.push(bracket);
    }

    fn object(&mut self) -> Result<Object<'_>, CanonicalError> {
        self.enter(b'{')?;
        let first_member = self.members.len();
        Ok(Object { writer: self, first_member, sorted: true, wraps: 0 })
    }

    fn variant(&mut self, name: &str) -> Result<(), CanonicalError> {
        self.enter(b'{')?;
        write_string(name, &mut self.out);
        self.out.push(b':');
        Ok(())
    }

    fn slice(&self, from: usize, to: usize) -> &[u8] {
        self.out.get(from..to).unwrap_or_default()
    }

    fn key(&self, member: Member) -> &[u8] {
        // Without the quotes, which would sort before some characters and after others.
        self.slice(member.start + 1, member.key_end.saturating_sub(1))
    }

    fn sort_members(&mut self, first_member: usize) -> Result<(), CanonicalError> {
        let mut members = self.members.split_off(first_member);
        members.sort_by(|a, b| compare_keys(self.key(*a), self.key(*b)));
        for pair in members.windows(2) {
            if let [a, b] = pair
                && compare_keys(self.key(*a), self.key(*b)) == Ordering::Equal
            {
                return Err(duplicate(self.key(*a)));
            }
        }
        let start = members.iter().map(|member| member.start).min().unwrap_or(self.out.len());
        let mut sorted = Vec::with_capacity(self.out.len() - start);
        for member in &members {
            if !sorted.is_empty() {
                sorted.push(b',');
            }
            sorted.extend_from_slice(self.slice(member.start, member.end));
        }
        self.out.truncate(start);
        self.out.append(&mut sorted);
        Ok(())
    }
}

/// Orders two keys by UTF-16 code units. Both are given as spelled between their quotes.
pub(super) fn compare_keys(a: &[u8], b: &[u8]) -> Ordering {
    let plain = |key: &[u8]| key.iter().all(|byte| byte.is_ascii() && *byte != b'\\');
    if plain(a) && plain(b) {
        return a.cmp(b);
    }
    key_text(a).encode_utf16().cmp(key_text(b).encode_utf16())
}

fn key_text(key: &[u8]) -> String {
    let quoted: Vec<u8> = [b"\"", key, b"\""].concat();
    serde_json::from_slice(&quoted).unwrap_or_default()
}

pub(super) fn duplicate(key: &[u8]) -> CanonicalError {
    CanonicalError::DuplicateKey(key_text(key).chars().take(80).collect())
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte < 0x20 || *byte == b'"' || *byte == b'\\') {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((special, tail)) = tail.split_first() else { break };
        match special {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x09 => out.extend_from_slice(b"\\t"),
            0x0a => out.extend_from_slice(b"\\n"),
            0x0c => out.extend_from_slice(b"\\f"),
            0x0d => out.extend_from_slice(b"\\r"),
            other => out.extend_from_slice(format!("\\u{other:04x}").as_bytes()),
        }
        rest = tail;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn write_integer(negative: bool, magnitude: u64, out: &mut Vec<u8>) -> Result<(), CanonicalError> {
    if magnitude > INTEGER_MAX {
        return Err(CanonicalError::IntegerRange);
    }
    if negative && magnitude > 0 {
        out.push(b'-');
    }
    push_decimal(magnitude, out);
    Ok(())
}

/// Appends a decimal number without allocating a `String`.
pub(crate) fn push_decimal(mut value: u64, out: &mut Vec<u8>) {
    let start = out.len();
    loop {
        out.push(b'0' + u8::try_from(value % 10).unwrap_or(0));
        value /= 10;
        if value == 0 {
            break;
        }
    }
    if let Some(digits) = out.get_mut(start..) {
        digits.reverse();
    }
}

struct Seq<'a> {
    writer: &'a mut Writer,
    first: bool,
    /// Enclosing objects that close with it: one for an enum variant, else none.
    wraps: usize,
}

impl Seq<'_> {
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        if !std::mem::take(&mut self.first) {
            self.writer.out.push(b',');
        }
        value.serialize(&mut *self.writer)
    }

    fn close(self) {
        self.writer.leave(b']');
        (0..self.wraps).for_each(|_| self.writer.leave(b'}'));
    }
}

struct Object<'a> {
    writer: &'a mut Writer,
    first_member: usize,
    sorted: bool,
    wraps: usize,
}

impl Object<'_> {
    fn begin(&mut self, key: &str) -> Result<(), CanonicalError> {
        self.begin_with(|writer| {
            write_string(key, &mut writer.out);
            Ok(())
        })
    }

    /// Starts a member. `write` spells the key with its quotes.
    fn begin_with(
        &mut self,
        write: impl FnOnce(&mut Writer) -> Result<(), CanonicalError>,
    ) -> Result<(), CanonicalError> {
        if self.writer.members.len() > self.first_member {
            self.writer.out.push(b',');
        }
        let start = self.writer.out.len();
        write(self.writer)?;
        let member = Member { start, key_end: self.writer.out.len(), end: 0 };
        if self.sorted
            && self.writer.members.len() > self.first_member
            && let Some(before) = self.writer.members.last()
        {
            match compare_keys(self.writer.key(*before), self.writer.key(member)) {
                Ordering::Less => {}
                Ordering::Equal => return Err(duplicate(self.writer.key(member))),
                Ordering::Greater => self.sorted = false,
            }
        }
        self.writer.out.push(b':');
        self.writer.members.push(member);
        Ok(())
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        value.serialize(&mut *self.writer)?;
        let end = self.writer.out.len();
        if let Some(member) = self.writer.members.last_mut() {
            member.end = end;
        }
        Ok(())
    }

    fn close(self) -> Result<(), CanonicalError> {
        if !self.sorted {
            self.writer.sort_members(self.first_member)?;
        }
        self.writer.members.truncate(self.first_member);
        self.writer.leave(b'}');
        (0..self.wraps).for_each(|_| self.writer.leave(b'}'));
        Ok(())
    }
}

impl<'a> Serializer for &'a mut Writer {
    type Ok = ();
    type Error = CanonicalError;
    type SerializeSeq = Seq<'a>;
    type SerializeTuple = Seq<'a>;
    type SerializeTupleStruct = Seq<'a>;
    type SerializeTupleVariant = Seq<'a>;
    type SerializeMap = Object<'a>;
    type SerializeStruct = Object<'a>;
    type SerializeStructVariant = Object<'a>;

    fn serialize_bool(self, v: bool) -> Result<(), CanonicalError> {
        self.out.extend_from_slice(if v { b"true" } else { b"false" });
        Ok(())
    }
    fn serialize_i8(self, v: i8) -> Result<(), CanonicalError> {
        self.serialize_i64(i64::from(v))
    }
    fn serialize_i16(self, v: i16) -> Result<(), CanonicalError> {
        self.serialize_i64(i64::from(v))
    }
    fn serialize_i32(self, v: i32) -> Result<(), CanonicalError> {
        self.serialize_i64(i64::from(v))
    }
    fn serialize_i64(self, v: i64) -> Result<(), CanonicalError> {
        write_integer(v < 0, v.unsigned_abs(), &mut self.out)
    }
    fn serialize_u8(self, v: u8) -> Result<(), CanonicalError> {
        self.serialize_u64(u64::from(v))
    }
    fn serialize_u16(self, v: u16) -> Result<(), CanonicalError> {
        self.serialize_u64(u64::from(v))
    }
    fn serialize_u32(self, v: u32) -> Result<(), CanonicalError> {
        self.serialize_u64(u64::from(v))
    }
    fn serialize_u64(self, v: u64) -> Result<(), CanonicalError> {
        write_integer(false, v, &mut self.out)
    }
    fn serialize_i128(self, v: i128) -> Result<(), CanonicalError> {
        let magnitude = u64::try_from(v.unsigned_abs()).map_err(|_| CanonicalError::IntegerRange)?;
        write_integer(v < 0, magnitude, &mut self.out)
    }
    fn serialize_u128(self, v: u128) -> Result<(), CanonicalError> {
        let magnitude = u64::try_from(v).map_err(|_| CanonicalError::IntegerRange)?;
        write_integer(false, magnitude, &mut self.out)
    }
    fn serialize_f32(self, v: f32) -> Result<(), CanonicalError> {
        write_f64(f64::from(v), &mut self.out)
    }
    fn serialize_f64(self, v: f64) -> Result<(), CanonicalError> {
        write_f64(v, &mut self.out)
    }
    fn serialize_char(self, v: char) -> Result<(), CanonicalError> {
        self.serialize_str(v.encode_utf8(&mut [0; 4]))
    }
    fn serialize_str(self, v: &str) -> Result<(), CanonicalError> {
        write_string(v, &mut self.out);
        Ok(())
    }
    fn serialize_bytes(self, v: &[u8]) -> Result<(), CanonicalError> {
        self.collect_seq(v)
    }
    fn serialize_none(self) -> Result<(), CanonicalError> {
        self.serialize_unit()
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), CanonicalError> {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<(), CanonicalError> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }
    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), CanonicalError> {
        self.serialize_unit()
    }
    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<(), CanonicalError> {
        self.serialize_str(variant)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        self.variant(variant)?;
        value.serialize(&mut *self)?;
        self.leave(b'}');
        Ok(())
    }
    fn serialize_seq(self, _len: Option<usize>) -> Result<Seq<'a>, CanonicalError> {
        self.enter(b'[')?;
        Ok(Seq { writer: self, first: true, wraps: 0 })
    }
    fn serialize_tuple(self, len: usize) -> Result<Seq<'a>, CanonicalError> {
        self.serialize_seq(Some(len))
    }
    fn serialize_tuple_struct(self, _name: &'static str, len: usize) -> Result<Seq<'a>, CanonicalError> {
        self.serialize_seq(Some(len))
    }
    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Seq<'a>, CanonicalError> {
        self.variant(variant)?;
        self.enter(b'[')?;
        Ok(Seq { writer: self, first: true, wraps: 1 })
    }
    fn serialize_map(self, _len: Option<usize>) -> Result<Object<'a>, CanonicalError> {
        self.object()
    }
    fn serialize_struct(self, _name: &'static str, _len: usize) -> Result<Object<'a>, CanonicalError> {
        self.object()
    }
    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Object<'a>, CanonicalError> {
        self.variant(variant)?;
        Ok(Object { wraps: 1, ..self.object()? })
    }
}

macro_rules! serialize_elements {
    ($($trait:ident $method:ident),*) => {$(
        impl ser::$trait for Seq<'_> {
            type Ok = ();
            type Error = CanonicalError;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
                self.element(value)
            }
            fn end(self) -> Result<(), CanonicalError> {
                self.close();
                Ok(())
            }
        }
    )*};
}
serialize_elements!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);

macro_rules! serialize_fields {
    ($($trait:ident),*) => {$(
        impl ser::$trait for Object<'_> {
            type Ok = ();
            type Error = CanonicalError;
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), CanonicalError> {
                self.begin(key)?;
                self.value(value)
            }
            fn end(self) -> Result<(), CanonicalError> {
                self.close()
            }
        }
    )*};
}
serialize_fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Object<'_> {
    type Ok = ();
    type Error = CanonicalError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), CanonicalError> {
        self.begin_with(|writer| {
            let start = writer.out.len();
            key.serialize(&mut *writer)?;
            // A key is text, or a plain scalar that is spelled as text, as in serde_json.
            match writer.out.get(start) {
                Some(b'"') => Ok(()),
                Some(b'-' | b'0'..=b'9' | b't' | b'f') => {
                    writer.out.insert(start, b'"');
                    writer.out.push(b'"');
                    Ok(())
                }
                Some(_) | None => Err(CanonicalError::KeyNotText),
            }
        })
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        self.value(value)
    }

    fn end(self) -> Result<(), CanonicalError> {
        self.close()
    }
}
