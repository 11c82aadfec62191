//! Parses one line of a segment strictly and without allocation; the layout of a line is fixed.

use crate::canonical::{Cursor, Flaw};
use crate::entry::FORMAT;
use crate::{Digest, EntryKind};

/// Maximum line length: a body, plus the frame of a checkpoint.
pub(crate) const LINE_BYTES_MAX: usize = crate::entry::BODY_BYTES_MAX + 4096;

/// One entry as stored on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// The writer's clock.
    pub at_ms: i64,
    /// The body, canonical JSON.
    pub body: &'a [u8],
    /// What it is about.
    pub kind: EntryKind,
    /// Length of the segment's pack including this entry's payloads, if it has any.
    pub pack: Option<u64>,
    /// Hash of the previous line.
    pub prev: Digest,
    /// Its position in the lane.
    pub seq: u64,
    /// Version of the line format.
    pub version: u64,
    /// The whole line, without its newline.
    pub bytes: &'a [u8],
}

impl<'a> Line<'a> {
    /// Parses the first line of some bytes, which must include its newline.
    pub fn parse(bytes: &'a [u8]) -> Option<Line<'a>> {
        // No line contains a newline. The parser ignores the bytes after it, or reading a segment would take quadratic time.
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let line = std::str::from_utf8(bytes.get(..=end)?).ok()?;
        Line::scan(line.as_bytes()).ok()
    }

    /// Scans the first line of bytes that are valid UTF-8.
    ///
    /// `Incomplete` means that all bytes could be the start of a line; a crash leaves such bytes.
    pub(crate) fn scan(bytes: &'a [u8]) -> Result<Line<'a>, Flaw> {
        let mut cursor = Cursor::new(bytes);
        cursor.literal(b"{\"at\":")?;
        let at_ms = cursor.integer()?;
        cursor.literal(b",\"body\":")?;
        let body_start = cursor.at;
        cursor.object(1)?;
        let body = cursor.since(body_start);
        cursor.literal(b",\"kind\":\"")?;
        let kind_start = cursor.at;
        while cursor.peek()?.is_ascii_lowercase() {
            cursor.at += 1;
        }
        let kind = EntryKind::from_bytes(cursor.since(kind_start)).ok_or(Flaw::Invalid { at: kind_start })?;
        cursor.literal(b"\",\"p")?;
        let mut pack = None;
        if cursor.peek()? == b'a' {
            cursor.literal(b"ack\":")?;
            let pack_start = cursor.at;
            let bytes = u64::try_from(cursor.integer()?).map_err(|_| Flaw::Invalid { at: pack_start })?;
            pack = Some(bytes);
            cursor.literal(b",\"p")?;
        }
        cursor.literal(b"rev\":\"")?;
        let prev_start = cursor.at;
        let hex = cursor.exactly(64, |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))?;
        let prev = Digest::from_hex(hex).ok_or(Flaw::Invalid { at: prev_start })?;
        cursor.literal(b"\",\"seq\":")?;
        let seq_start = cursor.at;
        let seq = u64::try_from(cursor.integer()?).map_err(|_| Flaw::Invalid { at: seq_start })?;
        cursor.literal(b",\"v\":")?;
        let version_start = cursor.at;
        let version = u64::try_from(cursor.integer()?).unwrap_or(0);
        if !(1..=FORMAT).contains(&version) || (pack.is_some() && version == 1) {
            return Err(Flaw::Invalid { at: version_start });
        }
        cursor.literal(b"}")?;
        let whole = cursor.since(0);
        cursor.literal(b"\n")?;
        if whole.len() > LINE_BYTES_MAX {
            return Err(Flaw::Invalid { at: LINE_BYTES_MAX });
        }
        Ok(Line { at_ms, body, kind, pack, prev, seq, version, bytes: whole })
    }

    /// The hash of the line: chain link and tree leaf.
    pub fn hash(&self) -> Digest {
        Digest::of_leaf(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::canonical::{self, CanonicalJson};
    use crate::entry::Prepared;

    fn line(kind: EntryKind, at_ms: i64, body: &serde_json::Value) -> (Vec<u8>, Digest) {
        packed_line(kind, at_ms, body, None)
    }

    fn packed_line(
        kind: EntryKind,
        at_ms: i64,
        body: &serde_json::Value,
        pack: Option<u64>,
    ) -> (Vec<u8>, Digest) {
        let mut out = Vec::new();
        let prepared = Prepared::new(kind, at_ms, &CanonicalJson::encode(body).unwrap());
        let hash = prepared.finish(&Digest::compute(b"before"), 7, pack, &mut out);
        (out, hash)
    }

    #[test]
    fn prepared_lines_scan_back_and_are_canonical() {
        for kind in EntryKind::ALL {
            for at_ms in [0, 1, -5, crate::entry::AT_MS_MAX] {
                let pack = (at_ms > 0).then_some(900);
                let (bytes, hash) = packed_line(*kind, at_ms, &json!({"z": [1, 2.5], "a": "é\n\""}), pack);
                let read = Line::parse(&bytes).unwrap();
                assert_eq!((read.kind, read.at_ms, read.seq, read.pack), (*kind, at_ms, 7, pack));
                assert_eq!(read.prev, Digest::compute(b"before"));
                assert_eq!(read.hash(), hash);
                canonical::check(read.bytes).unwrap();
            }
        }
    }

    #[test]
    fn adv_093b_unknown_kinds_and_versions_are_errors() {
        let (bytes, _) = line(EntryKind::Intent, 1, &json!({}));
        let text = String::from_utf8(bytes).unwrap();
        for (from, to) in [("intent", "intend"), ("\"v\":2", "\"v\":3"), ("\"v\":2", "\"v\":2,\"w\":1")] {
            assert_eq!(Line::parse(text.replace(from, to).as_bytes()), None, "{to}");
        }
        assert_eq!(Line::parse(text.replace("\"v\":2", "\"v\":1").as_bytes()).unwrap().version, 1);
        let (packed, _) = packed_line(EntryKind::Intent, 1, &json!({}), Some(9));
        let old = String::from_utf8(packed).unwrap().replace("\"v\":2", "\"v\":1");
        assert_eq!(Line::parse(old.as_bytes()), None, "format 1 has no pack in its lines");
    }

    proptest! {
        #[test]
        fn every_prefix_is_incomplete_and_every_flip_changes_the_hash(cut in 0usize..200, bit in 0usize..8) {
            let (bytes, hash) = line(EntryKind::Outcome, 123, &json!({"session": "s", "n": 1}));
            let cut = cut % bytes.len();
            prop_assert_eq!(Line::scan(&bytes[..cut]), Err(Flaw::Incomplete));
            let mut flipped = bytes.clone();
            flipped[cut] ^= 1 << bit;
            if let Some(read) = Line::parse(&flipped) {
                prop_assert_ne!(read.hash(), hash);
            }
        }

        #[test]
        fn the_scanner_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _read = Line::parse(&bytes);
        }
    }
}
