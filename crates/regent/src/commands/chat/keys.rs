//! Bytes from a terminal as keys. Any bytes are read; what means nothing is dropped.

/// A sequence that is longer means nothing.
const SEQUENCE_BYTES_MAX: usize = 32;
/// So much can be pasted at once; the rest is dropped.
const PASTE_BYTES_MAX: usize = 256 << 10;
const PASTE_END: &[u8] = b"\x1b[201~";
const ESC: u8 = 0x1b;

/// A key that was pressed, or a text that was pasted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    /// Sends.
    Enter,
    /// Begins a new line.
    Newline,
    Tab,
    Backspace,
    Delete,
    Left,
    Right,
    WordLeft,
    WordRight,
    Up,
    Down,
    Home,
    End,
    Escape,
    /// With a letter, in lower case.
    Ctrl(char),
    Paste(String),
}

/// Makes keys of bytes, however they are cut into pieces.
#[derive(Debug, Default)]
pub(super) struct KeyReader {
    held: Vec<u8>,
    /// Within a paste: what has come of it.
    pasted: Option<Vec<u8>>,
}

impl KeyReader {
    /// The keys that are whole now.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.held.extend_from_slice(bytes);
        let mut keys = Vec::new();
        while !self.held.is_empty() {
            if self.pasted.is_some() {
                match self.paste() {
                    Some(key) => keys.push(key),
                    None => break,
                }
                continue;
            }
            let Some((length, key)) = first(&self.held) else { break };
            self.held.drain(..length.min(self.held.len()));
            match key {
                Found::Key(key) => keys.push(key),
                Found::PasteBegins => self.pasted = Some(Vec::new()),
                Found::Nothing => {}
            }
        }
        keys
    }

    /// Whether an Escape has come that may be a key, or the beginning of one.
    pub(super) fn waits(&self) -> bool {
        self.pasted.is_none() && self.held.first() == Some(&ESC)
    }

    /// Nothing came after an Escape, so it was the key.
    pub(super) fn escape(&mut self) -> Vec<Key> {
        if !self.waits() {
            return Vec::new();
        }
        self.held.remove(0);
        let mut keys = vec![Key::Escape];
        keys.extend(self.feed(&[]));
        keys
    }

    /// The paste, once its end has come.
    fn paste(&mut self) -> Option<Key> {
        let pasted = self.pasted.as_mut()?;
        let end = self.held.windows(PASTE_END.len()).position(|bytes| bytes == PASTE_END);
        // The end may have come in part.
        let text = end.unwrap_or_else(|| self.held.len().saturating_sub(PASTE_END.len() - 1));
        let room = PASTE_BYTES_MAX.saturating_sub(pasted.len());
        pasted.extend(self.held.drain(..text).take(room));
        end?;
        self.held.drain(..PASTE_END.len().min(self.held.len()));
        let pasted = self.pasted.take().unwrap_or_default();
        Some(Key::Paste(String::from_utf8_lossy(&pasted).into_owned()))
    }
}

enum Found {
    Key(Key),
    PasteBegins,
    Nothing,
}

/// The first key and its length; none if it isn't whole.
fn first(bytes: &[u8]) -> Option<(usize, Found)> {
    let (byte, rest) = bytes.split_first()?;
    let key = match byte {
        &ESC => return escaped(rest).map(|(length, key)| (length + 1, key)),
        b'\r' => Key::Enter,
        b'\n' => Key::Newline,
        b'\t' => Key::Tab,
        0x08 | 0x7f => Key::Backspace,
        1..=26 => Key::Ctrl(char::from(byte + b'a' - 1)),
        0..0x20 => return Some((1, Found::Nothing)),
        _text => return character(bytes),
    };
    Some((1, Found::Key(key)))
}

fn character(bytes: &[u8]) -> Option<(usize, Found)> {
    let head = bytes.get(..bytes.len().min(4)).unwrap_or_default();
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => {
            std::str::from_utf8(head.get(..error.valid_up_to()).unwrap_or_default()).unwrap_or_default()
        }
        // The rest of the character hasn't come.
        Err(error) if error.error_len().is_none() => return None,
        Err(error) => return Some((error.error_len().unwrap_or(1), Found::Nothing)),
    };
    let c = valid.chars().next()?;
    let found = if c.is_control() { Found::Nothing } else { Found::Key(Key::Char(c)) };
    Some((c.len_utf8(), found))
}

/// What follows an Escape, and its length.
fn escaped(rest: &[u8]) -> Option<(usize, Found)> {
    let key = match rest.first()? {
        b'[' => return control_sequence(rest),
        b'O' => {
            let key = rest.get(1).map(|byte| cursor(*byte, false))?;
            return Some((2, key.map_or(Found::Nothing, Found::Key)));
        }
        b'\r' | b'\n' => Key::Newline,
        0x08 | 0x7f => Key::Ctrl('w'),
        b'b' => Key::WordLeft,
        b'f' => Key::WordRight,
        // It was a key of its own, and so is what follows.
        0..0x20 => return Some((0, Found::Key(Key::Escape))),
        _other => return Some((1, Found::Nothing)),
    };
    Some((1, Found::Key(key)))
}

/// `[`, parameters, and a final byte.
fn control_sequence(bytes: &[u8]) -> Option<(usize, Found)> {
    let inside = bytes.get(1..).unwrap_or_default();
    let Some(end) = inside.iter().position(|byte| !(0x20..0x40).contains(byte)) else {
        let is_long = inside.len() > SEQUENCE_BYTES_MAX;
        return is_long.then_some((bytes.len(), Found::Nothing));
    };
    let (parameters, last) = (inside.get(..end).unwrap_or_default(), inside.get(end).copied()?);
    if !(0x40..0x7f).contains(&last) {
        // What breaks the sequence off is a key of its own.
        return Some((end + 1, Found::Nothing));
    }
    let numbers: Vec<&[u8]> = parameters.split(|byte| *byte == b';').collect();
    let has_modifier = numbers.len() > 1;
    let found = match (last, numbers.as_slice()) {
        (b'~', [b"200"]) => Found::PasteBegins,
        (b'~', [b"1" | b"7", ..]) => Found::Key(Key::Home),
        (b'~', [b"4" | b"8", ..]) => Found::Key(Key::End),
        (b'~', [b"3", ..]) => Found::Key(Key::Delete),
        // Shift-Enter and Alt-Enter, of terminals that tell them apart.
        (b'~', [b"27", _, b"13"]) | (b'u', [b"13", _]) => Found::Key(Key::Newline),
        (b'u', [b"27", ..]) => Found::Key(Key::Escape),
        (last, _) => cursor(last, has_modifier).map_or(Found::Nothing, Found::Key),
    };
    Some((end + 2, found))
}

fn cursor(last: u8, has_modifier: bool) -> Option<Key> {
    Some(match (last, has_modifier) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', false) => Key::Right,
        (b'D', false) => Key::Left,
        (b'C', true) => Key::WordRight,
        (b'D', true) => Key::WordLeft,
        (b'H', _) => Key::Home,
        (b'F', _) => Key::End,
        _other => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sequences_are_keys_in_whatever_pieces_they_come() {
        let paste = |text: &str| Key::Paste(text.to_owned());
        for (bytes, keys) in [
            (&b"ab"[..], vec![Key::Char('a'), Key::Char('b')]),
            ("é世".as_bytes(), vec![Key::Char('é'), Key::Char('世')]),
            (b"\r\n\t\x7f", vec![Key::Enter, Key::Newline, Key::Tab, Key::Backspace]),
            (b"\x1b\r\x01\x03", vec![Key::Newline, Key::Ctrl('a'), Key::Ctrl('c')]),
            (b"\x1b[A\x1bOB\x1b[1;5C\x1b[D", vec![Key::Up, Key::Down, Key::WordRight, Key::Left]),
            (b"\x1b[3~\x1b[H\x1b[4~\x1b[13;2u", vec![Key::Delete, Key::Home, Key::End, Key::Newline]),
            (b"\x1b[200~a\r\nb\x1b[A\x1b[201~c", vec![paste("a\r\nb\x1b[A"), Key::Char('c')]),
            (b"\x1b\x1b[A\x1b\x03", vec![Key::Escape, Key::Up, Key::Escape, Key::Ctrl('c')]),
            (b"\xffa\xc3(\x1b[99zx", vec![Key::Char('a'), Key::Char('('), Key::Char('x')]),
        ] {
            assert_eq!(KeyReader::default().feed(bytes), keys, "{bytes:?}");
            let mut reader = KeyReader::default();
            let single: Vec<Key> = bytes.iter().flat_map(|byte| reader.feed(&[*byte])).collect();
            assert_eq!(single, keys, "byte by byte: {bytes:?}");
        }
    }

    #[test]
    fn an_escape_alone_is_a_key_when_nothing_follows() {
        let mut reader = KeyReader::default();
        assert!(reader.feed(b"\x1b").is_empty() && reader.waits());
        assert_eq!((reader.escape(), reader.waits()), (vec![Key::Escape], false));
        assert!(reader.escape().is_empty());
        reader.feed(b"\x1b[");
        assert_eq!(reader.escape(), [Key::Escape, Key::Char('[')]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_and_nothing_is_held_for_ever(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = KeyReader::default();
            reader.feed(&bytes);
            reader.escape();
            reader.feed(&[0; SEQUENCE_BYTES_MAX + 2]);
            let paste_is_open = reader.pasted.is_some();
            prop_assert!(paste_is_open || reader.feed(b"x").contains(&Key::Char('x')));
        }
    }
}
