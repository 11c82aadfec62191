//! Decodes text as a reader would: resolves escapes, collects the bytes of hex dumps, joins wrapped lines.
//!
//! A [`DecodedPart`] is a decoded part of the text, with the source position of each of its bytes. Most text gives no reading: each kind begins
//! at a pattern that is rare in ordinary text, and ends soon after.

use std::ops::Range;

/// Minimum size of a reading.
#[derive(Debug, Clone, Copy)]
pub(super) struct Least {
    /// Bytes in hex.
    bytes: usize,
    /// Groups of digits, and lines of a block.
    parts: usize,
}

impl Least {
    /// For a complete text: shorter runs contain no value, and the automaton finds a single part itself.
    pub(super) const WHOLE: Self = Self { bytes: 4, parts: 2 };
    /// For the end of a text that continues.
    pub(super) const AT_END: Self = Self { bytes: 1, parts: 1 };
}

/// Minimum prefix of a value at the end of joined lines.
const BLOCK_BEGINNING_MIN: usize = 8;
/// Maximum digits of a group that may be incomplete.
const GROUP_DIGITS_MAX: usize = 8;
/// Maximum length of an escape.
const ESCAPE_BYTES_MAX: usize = 18;
/// Minimum length of a line of encoded text, except the last one.
const LINE_MIN: usize = 4;
/// Number of digits of the offsets of a dump.
const OFFSET_DIGITS: std::ops::RangeInclusive<usize> = 4..=16;

/// A decoded part of a text.
#[derive(Debug, Default)]
pub(super) struct DecodedPart {
    pub(super) bytes: Vec<u8>,
    /// The source of each byte.
    from: ByteSources,
    /// Text columns of a dump: the range of bytes that each shows, and its range in the text.
    columns: Vec<(Range<usize>, Range<usize>)>,
    /// Whether it is joined lines.
    is_block: bool,
}

/// Sources of bytes, run-length encoded: 16 MiB of base64 or of a dump take one run per line, not one range per byte.
#[derive(Debug, Default)]
struct ByteSources {
    runs: Vec<SourceRun>,
    count: usize,
}

/// Bytes whose sources have equal length and distance.
#[derive(Debug)]
struct SourceRun {
    /// The first of these bytes, and its source.
    byte: usize,
    start: usize,
    step: usize,
    width: usize,
}

impl ByteSources {
    fn push(&mut self, from: Range<usize>) {
        let at = self.count;
        self.count += 1;
        if let Some(run) = self.runs.last_mut().filter(|run| run.width == from.len()) {
            // The second byte sets the distance.
            if at - run.byte == 1 && from.start >= run.start {
                run.step = from.start - run.start;
            }
            if run.source(at).start == from.start {
                return;
            }
        }
        self.runs.push(SourceRun { byte: at, start: from.start, step: 0, width: from.len() });
    }

    fn get(&self, byte: usize) -> Option<Range<usize>> {
        let run = self.runs.partition_point(|run| run.byte <= byte).checked_sub(1)?;
        self.runs.get(run).filter(|_| byte < self.count).map(|run| run.source(byte))
    }

    fn last(&self) -> Option<Range<usize>> {
        self.get(self.count.checked_sub(1)?)
    }
}

impl SourceRun {
    fn source(&self, byte: usize) -> Range<usize> {
        let start = self.start + self.step * (byte - self.byte);
        start..start + self.width
    }
}

impl DecodedPart {
    fn push(&mut self, byte: u8, from: Range<usize>) {
        self.bytes.push(byte);
        self.from.push(from);
    }

    /// The source ranges of these bytes.
    pub(super) fn places(&self, hit: &Range<usize>, places: &mut Vec<Range<usize>>) {
        let first = self.from.get(hit.start).map(|from| from.start);
        let last = hit.end.checked_sub(1).and_then(|last| self.from.get(last)).map(|from| from.end);
        if self.columns.is_empty() {
            places.extend(first.zip(last).map(|(start, end)| start..end));
            return;
        }
        // Between the lines of a dump are offsets and text columns.
        for (shown, column) in &self.columns {
            let (start, end) = (hit.start.max(shown.start), hit.end.min(shown.end));
            if start < end {
                let first = self.from.get(start).map(|from| from.start);
                let last = self.from.get(end - 1).map(|from| from.end);
                places.extend(first.zip(last).map(|(start, end)| start..end));
                places.push(column.clone());
            }
        }
    }

    /// Minimum prefix of a value at the end to be held back. Encoded lines end in a short prefix of some value all the time.
    pub(super) fn beginning_bytes_min(&self) -> usize {
        if self.is_block { BLOCK_BEGINNING_MIN } else { 1 }
    }

    /// The position in the text where this byte starts.
    pub(super) fn start_of(&self, byte: usize) -> Option<usize> {
        self.from.get(byte).map(|from| from.start)
    }

    #[cfg(test)]
    pub(super) fn runs(&self) -> usize {
        self.from.runs.len()
    }

    /// Its end in the text.
    pub(super) fn end(&self) -> usize {
        self.from.last().map_or(0, |from| from.end)
    }
}

/// Every reading of a text. A reading includes `reach` bytes on either side of an escape.
pub(super) fn readings(text: &[u8], reach: usize, least: Least) -> Vec<DecodedPart> {
    let mut all = Vec::new();
    escaped(text, reach, &mut all);
    hex(text, least, &mut all);
    blocks(text, least, &mut all);
    all
}

/// The start of an escape or a digit group that the end of the text cuts.
pub(super) fn incomplete(text: &[u8]) -> Option<usize> {
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let before = text.len() - digits;
    let is_word = before.checked_sub(1).and_then(|at| text.get(at)).is_some_and(u8::is_ascii_alphanumeric);
    let group = (1..=GROUP_DIGITS_MAX).contains(&digits) && !is_word;
    let tail = text.len().saturating_sub(ESCAPE_BYTES_MAX);
    let goes_on = |at: usize| {
        let rest = text.get(at..).unwrap_or_default();
        let letters =
            |rest: &[u8]| rest.iter().all(|byte| byte.is_ascii_alphanumeric() || b"#{\\".contains(byte));
        match rest.split_first() {
            Some((b'%' | b'=', more)) => more.len() < 5 && letters(more),
            Some((b'\\' | b'&', more)) => letters(more) && decoded(text, at).is_none(),
            _ => false,
        }
    };
    let escape = (tail..text.len()).find(|at| goes_on(*at));
    group.then_some(before).into_iter().chain(escape).min()
}

/// Decodes escapes: `%41`, `%2541`, `\x41`, `\u0041`, `\101`, `&#65;`, `&#x41;`, `=41`.
fn escaped(text: &[u8], reach: usize, all: &mut Vec<DecodedPart>) {
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| memchr::memchr3(b'%', b'\\', b'&', rest)) {
        let first = at.saturating_add(found);
        if decoded(text, first).is_none() {
            at = first.saturating_add(1);
            continue;
        }
        let reading = around(text, first.saturating_sub(reach), first, reach);
        at = reading.end().max(first.saturating_add(1));
        all.push(reading);
    }
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| memchr::memchr(b'=', rest)) {
        let first = at.saturating_add(found);
        if !is_quoted_printable(text, first) {
            at = first.saturating_add(1);
            continue;
        }
        let reading = around(text, first.saturating_sub(reach), first, reach);
        at = reading.end().max(first.saturating_add(1));
        all.push(reading);
    }
}

/// Decodes from `start` to `reach` bytes after the last escape. The first escape is at `first`.
fn around(text: &[u8], start: usize, first: usize, reach: usize) -> DecodedPart {
    let mut reading = DecodedPart::default();
    let (mut at, mut last) = (start, first);
    while at < text.len() && at <= last.saturating_add(reach) {
        let escape = decoded(text, at).or_else(|| simple(text, at)).or_else(|| printable(text, at));
        match escape {
            Some((bytes, length)) => {
                let end = at.saturating_add(length);
                for byte in bytes.as_slice() {
                    reading.push(*byte, at..end);
                }
                (at, last) = (end, end);
            }
            None => {
                let byte = text.get(at).copied().unwrap_or_default();
                reading.push(byte, at..at.saturating_add(1));
                at = at.saturating_add(1);
            }
        }
    }
    reading
}

/// Up to four decoded bytes.
#[derive(Debug, Clone, Copy)]
struct Decoded([u8; 4], usize);

impl Decoded {
    fn as_slice(&self) -> &[u8] {
        self.0.get(..self.1).unwrap_or_default()
    }

    fn byte(byte: u8) -> Self {
        Self([byte, 0, 0, 0], 1)
    }

    fn letter(code: u32) -> Option<Self> {
        let mut buffer = [0; 4];
        let length = char::from_u32(code)?.encode_utf8(&mut buffer).len();
        Some(Self(buffer, length))
    }
}

/// An escape that is rare in ordinary text, and its length.
fn decoded(text: &[u8], at: usize) -> Option<(Decoded, usize)> {
    let rest = text.get(at..)?;
    match rest.first()? {
        b'%' => {
            // Percent-encoded twice.
            let once = rest.strip_prefix(b"%25").filter(|more| number(more, 2, 16).is_some());
            let (digits, skipped) = once.map_or((rest.get(1..)?, 1), |digits| (digits, 3));
            let byte = u8::try_from(number(digits, 2, 16)?).ok()?;
            Some((Decoded::byte(byte), skipped + 2))
        }
        b'\\' => {
            // Quoted twice: several backslashes.
            let slashes = rest.iter().take(8).take_while(|byte| **byte == b'\\').count();
            let (kind, digits) = rest.get(slashes..)?.split_first()?;
            let prefix = slashes + 1;
            match kind {
                b'x' | b'X' => Some((Decoded::byte(u8::try_from(number(digits, 2, 16)?).ok()?), prefix + 2)),
                b'u' if digits.first() == Some(&b'{') => {
                    let end = digits.iter().take(10).position(|byte| *byte == b'}')?;
                    let code = number(digits.get(1..end)?, end.checked_sub(1)?, 16)?;
                    Some((Decoded::letter(code)?, prefix + end + 1))
                }
                b'u' => Some((Decoded::letter(number(digits, 4, 16)?)?, prefix + 4)),
                b'U' => Some((Decoded::letter(number(digits, 8, 16)?)?, prefix + 8)),
                b'0'..=b'3' => {
                    let code = number(rest.get(slashes..)?, 3, 8)?;
                    Some((Decoded::byte(u8::try_from(code).ok()?), slashes + 3))
                }
                _ => None,
            }
        }
        b'&' => {
            let digits = rest.strip_prefix(b"&#")?;
            let end = digits.iter().take(10).position(|byte| *byte == b';')?;
            let digits = digits.get(..end)?;
            let code = match digits.split_first()? {
                (b'x' | b'X', hex) => number(hex, hex.len(), 16)?,
                _ => number(digits, digits.len(), 10)?,
            };
            Some((Decoded::letter(code)?, 2 + end + 1))
        }
        _ => None,
    }
}

/// Escapes that are common in ordinary text. They count only near rare ones.
fn simple(text: &[u8], at: usize) -> Option<(Decoded, usize)> {
    let rest = text.get(at..)?;
    let named: [(&[u8], u8); 5] =
        [(b"&amp;", b'&'), (b"&lt;", b'<'), (b"&gt;", b'>'), (b"&quot;", b'"'), (b"&apos;", b'\'')];
    if let Some((name, byte)) = named.iter().find(|(name, _)| rest.starts_with(name)) {
        return Some((Decoded::byte(*byte), name.len()));
    }
    let byte = match rest.strip_prefix(b"\\")?.first()? {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        quoted @ (b'"' | b'\'' | b'\\' | b'/') => *quoted,
        _ => return None,
    };
    Some((Decoded::byte(byte), 2))
}

/// Quoted-printable: a byte or a soft line break.
fn printable(text: &[u8], at: usize) -> Option<(Decoded, usize)> {
    let rest = text.get(at..)?.strip_prefix(b"=")?;
    if rest.starts_with(b"\r\n") {
        return Some((Decoded([0; 4], 0), 3));
    }
    if rest.starts_with(b"\n") {
        return Some((Decoded([0; 4], 0), 2));
    }
    Some((Decoded::byte(u8::try_from(number(rest, 2, 16)?).ok()?), 3))
}

/// `a=12` alone is not an escape. Two in a row are, and so is a byte that must be escaped.
fn is_quoted_printable(text: &[u8], at: usize) -> bool {
    let Some((byte, length)) = printable(text, at) else { return false };
    let is_odd = byte.as_slice().first().is_none_or(|byte| !(b' '..=b'~').contains(byte) || *byte == b'=');
    is_odd || printable(text, at.saturating_add(length)).is_some()
}

/// Parses exactly `count` digits.
fn number(digits: &[u8], count: usize, radix: u32) -> Option<u32> {
    if count == 0 {
        return None;
    }
    digits.get(..count)?.iter().try_fold(0_u32, |number, digit| {
        let digit = char::from(*digit).to_digit(radix)?;
        number.checked_mul(radix)?.checked_add(digit)
    })
}

/// Hex bytes with separators: `68 75`, `68:75`, `0x68, 0x75`, and the dumps of `xxd`, `hexdump` and `od -tx1`.
fn hex(text: &[u8], least: Least, all: &mut Vec<DecodedPart>) {
    let mut open: Option<Dump> = None;
    let mut start = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let end = start + line.len();
        match dump_line(text, start..end) {
            Some(row) => open.get_or_insert_with(Dump::default).add(text, row),
            None => {
                if let Some(dump) = open.take() {
                    dump.close(least, all);
                }
                separated(text, start..end, least, all);
            }
        }
        start = end;
    }
    if let Some(dump) = open.take() {
        dump.close(least, all);
    }
}

/// One line of a dump: its groups of digits, and the text after them.
struct DumpRow {
    groups: Vec<Range<usize>>,
    column: Range<usize>,
}

fn dump_line(text: &[u8], line: Range<usize>) -> Option<DumpRow> {
    let (offset, mut at) = group(text, line.start, line.end)?;
    if offset.start != line.start || !OFFSET_DIGITS.contains(&offset.len()) {
        return None;
    }
    if text.get(at) == Some(&b':') {
        at += 1;
    }
    let mut groups: Vec<Range<usize>> = Vec::new();
    loop {
        let spaces = text.get(at..line.end)?.iter().take_while(|byte| **byte == b' ').count();
        // `hexdump -C` has a wider gap in the middle, `xxd` one before the text column, where the digits end.
        if spaces == 0 || (spaces > 2 && groups.is_empty()) || spaces > 3 {
            break;
        }
        let Some((digits, end)) = group(text, at + spaces, line.end).filter(|(digits, _)| {
            digits.len() % 2 == 0
                && digits.len() <= 8
                && groups.first().is_none_or(|first| digits.len() <= first.len())
        }) else {
            break;
        };
        groups.push(digits);
        at = end;
    }
    (!groups.is_empty()).then_some(DumpRow { groups, column: at..line.end })
}

/// The hex digits at this position, unless they are part of a word.
fn group(text: &[u8], at: usize, end: usize) -> Option<(Range<usize>, usize)> {
    let digits = text.get(at..end)?.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let after = at + digits;
    let is_word = text.get(after..end)?.first().is_some_and(|byte| byte.is_ascii_alphanumeric());
    (digits >= 2 && !is_word).then_some((at..after, after))
}

/// Consecutive lines of a dump: in the order of the digits, and with the two bytes of each group swapped.
#[derive(Default)]
struct Dump {
    plain: DecodedPart,
    swapped: DecodedPart,
}

impl Dump {
    fn add(&mut self, text: &[u8], row: DumpRow) {
        let begun = self.plain.bytes.len();
        for group in &row.groups {
            let pairs: Vec<Range<usize>> = group.clone().step_by(2).map(|at| at..at + 2).collect();
            for pair in &pairs {
                self.plain.push(byte_at(text, pair), pair.clone());
            }
            for pair in pairs.iter().rev() {
                // Both bytes map to the full group, because their order differs from the text.
                self.swapped.push(byte_at(text, pair), group.clone());
            }
        }
        let shown = begun..self.plain.bytes.len();
        let column = trimmed(text, row.column);
        self.plain.columns.push((shown.clone(), column.clone()));
        self.swapped.columns.push((shown, column));
    }

    fn close(self, least: Least, all: &mut Vec<DecodedPart>) {
        if self.plain.bytes.len() >= least.bytes {
            all.extend([self.plain, self.swapped]);
        }
    }
}

fn trimmed(text: &[u8], range: Range<usize>) -> Range<usize> {
    let part = text.get(range.clone()).unwrap_or_default();
    let before = part.len() - part.trim_ascii_start().len();
    let after = part.len() - part.trim_ascii_end().len();
    range.start + before..(range.end - after).max(range.start + before)
}

fn byte_at(text: &[u8], pair: &Range<usize>) -> u8 {
    let digits = text.get(pair.clone()).unwrap_or_default();
    number(digits, 2, 16).and_then(|byte| u8::try_from(byte).ok()).unwrap_or_default()
}

/// Groups of digits in a line, with only separators between them.
fn separated(text: &[u8], line: Range<usize>, least: Least, all: &mut Vec<DecodedPart>) {
    let mut reading = DecodedPart::default();
    // Whether digits may begin here: no word precedes.
    let (mut at, mut groups, mut fresh) = (line.start, 0_usize, true);
    while at < line.end {
        let found = group(text, at, line.end)
            .filter(|(digits, _)| fresh && digits.len() % 2 == 0 && digits.len() <= 16);
        if let Some((digits, end)) = found {
            for pair in digits.step_by(2) {
                reading.push(byte_at(text, &(pair..pair + 2)), pair..pair + 2);
            }
            groups += 1;
            (at, fresh) = (end, false);
        } else if let Some(length) = prefix(text, at, line.end).filter(|_| fresh) {
            at += length;
        } else if let Some(length) = separator(text, at, line.end).filter(|_| groups > 0) {
            (at, fresh) = (at + length, true);
        } else {
            close(&mut reading, &mut groups, least, all);
            // To the next position where digits may begin.
            let rest = text.get(at..line.end).unwrap_or_default();
            let word = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
            let gap = rest.iter().skip(word).take_while(|byte| !byte.is_ascii_alphanumeric()).count();
            (at, fresh) = (at + (word + gap).max(1), gap > 0);
        }
    }
    close(&mut reading, &mut groups, least, all);
}

fn close(reading: &mut DecodedPart, groups: &mut usize, least: Least, all: &mut Vec<DecodedPart>) {
    let done = std::mem::take(reading);
    if *groups >= least.parts && done.bytes.len() >= least.bytes {
        all.push(done);
    }
    *groups = 0;
}

/// The prefix of a hex byte.
fn prefix(text: &[u8], at: usize, end: usize) -> Option<usize> {
    let rest = text.get(at..end)?;
    (rest.starts_with(b"0x") || rest.starts_with(b"0X")).then_some(2)
}

/// The separator between two hex bytes.
fn separator(text: &[u8], at: usize, end: usize) -> Option<usize> {
    let rest = text.get(at..end)?;
    rest.first().is_some_and(|byte| b" \t:,;-_.|\r\n".contains(byte)).then_some(1)
}

/// Lines that consist only of encoded characters, joined: base64, base32 and hex at any width.
fn blocks(text: &[u8], least: Least, all: &mut Vec<DecodedPart>) {
    let empty = || DecodedPart { is_block: true, ..DecodedPart::default() };
    let mut reading = empty();
    let (mut start, mut lines) = (0, 0_usize);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let body = encoded(line);
        match body.filter(|body| body.len() >= LINE_MIN || (lines > 0 && !body.is_empty())) {
            Some(body) => {
                for at in body {
                    let byte = line.get(at).copied().unwrap_or_default();
                    reading.push(byte, start + at..start + at + 1);
                }
                lines += 1;
            }
            None => {
                let done = std::mem::replace(&mut reading, empty());
                if lines >= least.parts {
                    all.push(done);
                }
                lines = 0;
            }
        }
        start += line.len();
    }
    if lines >= least.parts {
        all.push(reading);
    }
}

/// The encoded characters of a line, if the line has only those and a margin.
fn encoded(line: &[u8]) -> Option<Range<usize>> {
    let margin = line.iter().take_while(|byte| b" \t>|#*\"'".contains(byte)).count();
    let rest = line.get(margin..)?;
    let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/=_-".contains(byte);
    let letters = rest.iter().take_while(is_letter).count();
    let after = rest.get(letters..)?;
    after.iter().all(|byte| b" \t\r\n\"',\\|".contains(byte)).then_some(margin..margin + letters)
}
