//! The forms in which programs print a value.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// Shorter encodings would mask too much ordinary text.
const PATTERN_BYTES_MIN: usize = 4;
/// Minimum length of one line of a multi-line value to be masked on its own.
const LINE_BYTES_MIN: usize = 16;
/// Minimum length of the last piece of a wrapped value.
const PIECE_BYTES_MIN: usize = 8;
/// Column widths at which `base64`, `openssl` and `xxd` wrap.
const BASE64_COLUMNS: [usize; 2] = [76, 64];
const HEX_COLUMNS: usize = 60;

type Pattern = Zeroizing<Vec<u8>>;

/// The prefix of a form that is enough to search for it.
pub(crate) const WINDOW_BYTES_MAX: usize = 48;
/// A form that determines fewer bytes of a value than this could be guessed without the rest.
const DETERMINED_BYTES_MIN: usize = 12;

/// One form of a value.
pub(crate) struct ValueForm {
    pub(crate) text: Pattern,
    /// Number of the value's bytes that determine the first [`WINDOW_BYTES_MAX`] bytes of the form.
    determined: usize,
}

impl ValueForm {
    fn new(text: Vec<u8>, determined: usize) -> Self {
        Self { text: Zeroizing::new(text), determined }
    }

    /// Whether a hash of it is as hard to guess as twelve bytes of the value, or as all of a shorter value.
    pub(crate) fn is_safe_to_hash(&self, value: &[u8]) -> bool {
        self.determined >= DETERMINED_BYTES_MIN.min(value.len())
    }
}

/// Every form of a value, including the plain one.
pub(super) fn all_forms(value: &[u8]) -> Vec<ValueForm> {
    let mut all: Vec<ValueForm> = Vec::new();
    plain(value, &mut all);
    let lines = value.split(|byte| matches!(byte, b'\n' | b'\r'));
    let is_own = |line: &&[u8]| {
        line.len() >= LINE_BYTES_MIN && line.len() < value.len() && !line.starts_with(b"-----")
    };
    for line in lines.filter(is_own) {
        plain(line, &mut all);
    }
    base64(value, &mut all);
    let (little, big) = wide(value);
    for other in [&little, &big] {
        cores(other, |bytes| bytes / 2, &mut all);
    }
    // Base64 of base64: the characters that depend only on the value, in each alphabet and shift.
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        for core in shifted_cores(value, &engine) {
            cores(&core, base64_bytes, &mut all);
        }
    }
    base32(value, &mut all);
    for digits in [HEX_LOWER, HEX_UPPER] {
        hex(value, digits, &mut all);
    }
    all.retain(|form| form.text.len() >= PATTERN_BYTES_MIN);
    all.sort_unstable_by(|one, other| one.text.cmp(&other.text).then(one.determined.cmp(&other.determined)));
    // If two forms have the same text, the smaller `determined` applies, because it is easier to guess.
    all.dedup_by(|later, first| later.text == first.text);
    all
}

/// Plain text and its escaped forms. Escapes at the beginning can fill the window with few bytes of the value.
fn plain(value: &[u8], all: &mut Vec<ValueForm>) {
    let text = std::str::from_utf8(value).ok();
    let first = text
        .map_or(DETERMINED_BYTES_MIN.min(value.len()), |text| text.ceil_char_boundary(DETERMINED_BYTES_MIN));
    let beginnings = escaped(value.get(..first).unwrap_or(value), text.is_some());
    for (form, beginning) in escaped(value, text.is_some()).into_iter().zip(beginnings) {
        let is_narrow = form.len() > WINDOW_BYTES_MAX && beginning.len() > WINDOW_BYTES_MAX;
        let determined = if is_narrow { 0 } else { value.len() };
        all.push(ValueForm { text: form, determined });
    }
}

/// Plain, and escaped for JSON, URLs, HTML and wide characters, always in this order.
fn escaped(value: &[u8], is_text: bool) -> Vec<Pattern> {
    let mut all = vec![Zeroizing::new(value.to_vec())];
    let (little, big) = wide(value);
    all.extend([little, big]);
    for digits in [HEX_LOWER, HEX_UPPER] {
        // The unescaped characters: none, the unreserved ones, and those of `encodeURIComponent`, `quote` and `encodeURI`.
        let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        all.push(percent(value, digits, |_| false));
        all.push(percent(value, digits, unreserved));
        all.push(percent(value, digits, |byte| unreserved(byte) || b"!'()*".contains(&byte)));
        all.push(percent(value, digits, |byte| unreserved(byte) || byte == b'/'));
        all.push(percent(value, digits, |byte| unreserved(byte) || b"!'()*;,/?:@&=+$#".contains(&byte)));
        all.push(form(percent(value, digits, |byte| unreserved(byte) || byte == b' ')));
        all.push(form(percent(value, digits, |byte| {
            byte.is_ascii_alphanumeric() || b"*-._ ".contains(&byte)
        })));
    }
    if let Some(text) = std::str::from_utf8(value).ok().filter(|_| is_text) {
        for once in json(text) {
            if let Ok(text) = std::str::from_utf8(&once) {
                // JSON within JSON, as in a body that a tool quotes.
                all.extend(json(text));
            }
            all.push(once);
        }
    }
    for quote in ["&#39;", "&#x27;", "&apos;"] {
        for double in ["&quot;", "&#34;"] {
            all.push(html(value, quote, double));
        }
    }
    all
}

fn percent(value: &[u8], digits: &[u8; 16], keeps: impl Fn(u8) -> bool) -> Pattern {
    let mut out = Vec::with_capacity(value.len().saturating_mul(3));
    for byte in value {
        if keeps(*byte) {
            out.push(*byte);
        } else {
            out.push(b'%');
            out.extend(hex_of(*byte, digits));
        }
    }
    Zeroizing::new(out)
}

/// Form encoding: spaces become plus signs.
fn form(mut pattern: Pattern) -> Pattern {
    pattern.iter_mut().filter(|byte| **byte == b' ').for_each(|byte| *byte = b'+');
    pattern
}

/// As JSON serializers write it: non-ASCII literal or as `\u…`, slashes literal or escaped.
fn json(text: &str) -> Vec<Pattern> {
    let mut all = Vec::new();
    for slash in ["/", "\\/"] {
        for (ascii, digits) in [(false, HEX_LOWER), (true, HEX_LOWER), (true, HEX_UPPER)] {
            let mut out = Vec::with_capacity(text.len().saturating_mul(6));
            for letter in text.chars() {
                match letter {
                    '"' => out.extend(b"\\\""),
                    '\\' => out.extend(b"\\\\"),
                    '\n' => out.extend(b"\\n"),
                    '\r' => out.extend(b"\\r"),
                    '\t' => out.extend(b"\\t"),
                    '\u{8}' => out.extend(b"\\b"),
                    '\u{c}' => out.extend(b"\\f"),
                    '/' => out.extend(slash.as_bytes()),
                    letter if letter.is_ascii_control() || (ascii && !letter.is_ascii()) => {
                        let mut units = [0; 2];
                        for unit in letter.encode_utf16(&mut units) {
                            out.extend(b"\\u");
                            out.extend(unit.to_be_bytes().into_iter().flat_map(|byte| hex_of(byte, digits)));
                        }
                    }
                    letter => out.extend(letter.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
            all.push(Zeroizing::new(out));
        }
    }
    all
}

fn html(value: &[u8], quote: &str, double: &str) -> Pattern {
    let mut out = Vec::with_capacity(value.len().saturating_mul(6));
    for byte in value {
        match byte {
            b'&' => out.extend(b"&amp;"),
            b'<' => out.extend(b"&lt;"),
            b'>' => out.extend(b"&gt;"),
            b'"' => out.extend(double.as_bytes()),
            b'\'' => out.extend(quote.as_bytes()),
            other => out.push(*other),
        }
    }
    Zeroizing::new(out)
}

/// Base64 of any text that contains the value. Three bytes make four characters, so the preceding text shifts the value in one of three
/// ways. For each shift, the characters that depend only on the value.
fn base64(value: &[u8], all: &mut Vec<ValueForm>) {
    cores(value, |bytes| bytes, all);
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        // Without or with the newline that `echo` adds: the last character is known as well, and long values are wrapped.
        for ending in [&b""[..], b"\n"] {
            let whole = Zeroizing::new([value, ending].concat());
            let text = Zeroizing::new(engine.encode(whole.as_slice()));
            // The newline discloses nothing about the value.
            let determined = |letters: usize| base64_bytes(letters).saturating_sub(ending.len());
            for columns in BASE64_COLUMNS {
                pieces(text.as_bytes(), columns, determined, all);
            }
            all.push(ValueForm::new(text.as_bytes().to_vec(), value.len()));
        }
    }
}

/// The characters that depend only on the value, in both alphabets and each shift. `determined` maps a number of encoded bytes to the value's
/// bytes that they determine.
fn cores(value: &[u8], determined: impl Fn(usize) -> usize, all: &mut Vec<ValueForm>) {
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        all.extend(shifted_cores(value, &engine).into_iter().map(|text| {
            let determined = determined(base64_bytes(text.len().min(WINDOW_BYTES_MAX)));
            ValueForm { text, determined }
        }));
    }
}

/// Complete bytes in this many characters.
fn base64_bytes(letters: usize) -> usize {
    letters.saturating_mul(6) / 8
}

fn shifted_cores(value: &[u8], engine: &GeneralPurpose) -> Vec<Pattern> {
    let mut all = Vec::with_capacity(3);
    for shift in 0..3_usize {
        let mut shifted = Zeroizing::new(Vec::with_capacity(value.len().saturating_add(shift)));
        shifted.resize(shift, 0);
        shifted.extend_from_slice(value);
        let text = Zeroizing::new(engine.encode(shifted.as_slice()));
        let first = shift.saturating_mul(8).div_ceil(6);
        let end = shifted.len().saturating_mul(8) / 6;
        if let Some(core) = text.as_bytes().get(first..end) {
            all.push(Zeroizing::new(core.to_vec()));
        }
    }
    all
}

/// As 16-bit characters, little-endian and big-endian.
fn wide(value: &[u8]) -> (Pattern, Pattern) {
    let text = std::str::from_utf8(value).ok();
    let units: Zeroizing<Vec<u16>> = Zeroizing::new(match text {
        Some(text) => text.encode_utf16().collect(),
        None => value.iter().map(|byte| u16::from(*byte)).collect(),
    });
    let little = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let big = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
    (Zeroizing::new(little), Zeroizing::new(big))
}

/// Base32 of any text that contains the value: five bytes make eight characters, so there are five shifts.
fn base32(value: &[u8], all: &mut Vec<ValueForm>) {
    for letters in [b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"abcdefghijklmnopqrstuvwxyz234567"] {
        for shift in 0..5_usize {
            let before = std::iter::repeat_n(0_u8, shift);
            let bits = before
                .chain(value.iter().copied())
                .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
            let bits: Pattern = Zeroizing::new(bits.collect());
            let first = shift.saturating_mul(8).div_ceil(5);
            // An incomplete last character also depends on the following text.
            let whole = bits.chunks_exact(5).skip(first);
            let text = whole.filter_map(|five| {
                let index = five.iter().fold(0_usize, |index, bit| index << 1 | usize::from(*bit));
                letters.get(index).copied()
            });
            let text: Vec<u8> = text.collect();
            let determined = text.len().min(WINDOW_BYTES_MAX).saturating_mul(5) / 8;
            all.push(ValueForm::new(text, determined));
        }
    }
}

fn hex(value: &[u8], digits: &[u8; 16], all: &mut Vec<ValueForm>) {
    let text: Pattern = Zeroizing::new(value.iter().flat_map(|byte| hex_of(*byte, digits)).collect());
    pieces(&text, HEX_COLUMNS, |digits| digits / 2, all);
    all.push(ValueForm { text, determined: value.len() });
}

/// Splits text that is longer than a line. A last piece that is too short is left out.
fn pieces(text: &[u8], columns: usize, determined: impl Fn(usize) -> usize, all: &mut Vec<ValueForm>) {
    if text.len() > columns {
        let long = text.chunks(columns).filter(|piece| piece.len() >= PIECE_BYTES_MIN);
        all.extend(
            long.map(|piece| ValueForm::new(piece.to_vec(), determined(piece.len().min(WINDOW_BYTES_MAX)))),
        );
    }
}

const HEX_LOWER: &[u8; 16] = b"0123456789abcdef";
const HEX_UPPER: &[u8; 16] = b"0123456789ABCDEF";

fn hex_of(byte: u8, digits: &[u8; 16]) -> [u8; 2] {
    let digit = |nibble: u8| digits.get(usize::from(nibble & 15)).copied().unwrap_or(b'0');
    [digit(byte >> 4), digit(byte)]
}
