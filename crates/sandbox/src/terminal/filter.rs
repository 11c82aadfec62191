//! What a program writes to a terminal, without what acts on more than the screen.
//!
//! Text, colours and cursor movement pass. Strings for the terminal itself do not (OSC: clipboard, titles, notifications, hyperlinks;
//! DCS, APC, PM and SOS: queries, graphics, pass-through to other terminals; titles of screen and tmux), nor window operations,
//! printing, the keyboard's lock, the status line, saved modes, the VT52 mode, 8-bit controls and the switches that turn them on.
//! Modes that a program sets are remembered and reset at the end; a mode that can't be remembered is not set.

/// A control sequence that is longer is none.
const SEQUENCE_BYTES_MAX: usize = 256;
/// A string that is longer is text from there on: without its beginning it does nothing.
const STRING_BYTES_MAX: usize = 1 << 20;
/// Modes that a program has set at once.
const MODES_MAX: usize = 64;
/// ANSI modes that may be set: inserting, and a new line with each line feed. Among the others is the keyboard's lock.
const ANSI_MODES: [&str; 2] = ["4", "20"];
/// Private modes that are set on a fresh terminal: wrapping, repeated keys, the cursor, and the wheel as arrow keys on the other screen.
const SET_AT_FIRST: [u32; 4] = [7, 8, 25, 1007];
/// The private mode whose reset makes the terminal a VT52: no sequence of the reset at the end is one there.
const VT52: u32 = 2;

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterState {
    Text,
    /// The first byte of a character whose second decides.
    AfterC2,
    /// So many bytes of a character are still to come.
    Character(u8),
    Escape,
    /// An escape with intermediate bytes.
    EscapeMore,
    Sequence,
    /// A sequence that is too long or not one: dropped up to its end.
    Broken,
    String,
    /// An escape within a string.
    StringEscape,
    /// The first byte of what may be the end of a string, as an 8-bit control.
    StringC2,
}

/// The filter of one terminal's output.
#[derive(Debug)]
pub(crate) struct Filter {
    state: FilterState,
    held: Vec<u8>,
    dropped: usize,
    /// Private modes that are other than at first.
    modes: Vec<u32>,
    /// Keys are reported in another way than at first.
    keys: bool,
    /// Tab stops are other than at first.
    tabs: bool,
    /// The cursor has another shape than at first.
    cursor: bool,
    /// Anything was written at all.
    wrote: bool,
}

impl Filter {
    pub(crate) fn new() -> Self {
        Self {
            state: FilterState::Text,
            held: Vec::new(),
            dropped: 0,
            modes: Vec::new(),
            keys: false,
            tabs: false,
            cursor: false,
            wrote: false,
        }
    }

    /// Appends to `out` what may pass.
    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.wrote |= !bytes.is_empty();
        for byte in bytes {
            self.step(*byte, out);
        }
    }

    /// What puts the terminal back to what it was, as far as the program changed it.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.wrote {
            return out;
        }
        for mode in core::mem::take(&mut self.modes) {
            let to = if SET_AT_FIRST.contains(&mode) { 'h' } else { 'l' };
            out.extend(format!("\x1b[?{mode}{to}").into_bytes());
        }
        if self.keys {
            out.extend(b"\x1b[<99u\x1b[=0u\x1b[>4m");
        }
        if self.tabs {
            out.extend(b"\x1b[?5W");
        }
        if self.cursor {
            out.extend(b"\x1b[0 q");
        }
        // The soft reset, and for terminals that don't know it: the scroll region, which moves the cursor, inserting, new lines, colours,
        // the line drawing set, the keypad.
        out.extend(b"\x1b[!p\x1b7\x1b[r\x1b8\x1b[4l\x1b[20l\x1b[0m\x1b(B\x0f\x1b>");
        out
    }

    fn step(&mut self, byte: u8, out: &mut Vec<u8>) {
        // These end whatever is open.
        if byte == CAN || byte == SUB {
            self.state = FilterState::Text;
            self.held.clear();
            return;
        }
        match self.state {
            FilterState::Text => self.text(byte, out),
            FilterState::AfterC2 => self.after_c2(byte, out),
            FilterState::Character(left) => self.character(byte, left, out),
            FilterState::Escape => self.escape(byte, out),
            FilterState::EscapeMore => self.escape_more(byte, out),
            FilterState::Sequence => self.sequence(byte, out),
            FilterState::Broken => match byte {
                0x40..=0x7e => self.state = FilterState::Text,
                ESC => self.state = FilterState::Escape,
                _ => {}
            },
            FilterState::String | FilterState::StringEscape | FilterState::StringC2 => self.string(byte, out),
        }
    }

    fn text(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            ESC => self.state = FilterState::Escape,
            // The terminal would answer with its own text.
            0x05 => {}
            0x00..=0x7f => out.push(byte),
            0xc2 => self.state = FilterState::AfterC2,
            0xc3..=0xdf => self.begin(byte, 1, out),
            0xe0..=0xef => self.begin(byte, 2, out),
            0xf0..=0xf4 => self.begin(byte, 3, out),
            // Nothing in UTF-8; elsewhere an 8-bit control.
            0x80..=0xc1 | 0xf5..=0xff => out.push(b'?'),
        }
    }

    fn begin(&mut self, byte: u8, more: u8, out: &mut Vec<u8>) {
        out.push(byte);
        self.state = FilterState::Character(more);
    }

    fn character(&mut self, byte: u8, left: u8, out: &mut Vec<u8>) {
        if (0x80..=0xbf).contains(&byte) {
            out.push(byte);
            self.state = if left > 1 { FilterState::Character(left - 1) } else { FilterState::Text };
        } else {
            self.state = FilterState::Text;
            self.text(byte, out);
        }
    }

    /// U+0080 to U+009F are 8-bit controls, also in UTF-8.
    fn after_c2(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.state = FilterState::Text;
        match byte {
            0x90 | 0x98 | 0x9d | 0x9e | 0x9f => self.begin_string(),
            0x9b => {
                self.held.clear();
                self.state = FilterState::Sequence;
            }
            0x80..=0x9f => {}
            0xa0..=0xbf => out.extend([0xc2, byte]),
            _ => self.text(byte, out),
        }
    }

    fn begin_string(&mut self) {
        self.dropped = 0;
        self.state = FilterState::String;
    }

    fn escape(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.held.clear();
        self.state = FilterState::Text;
        match byte {
            b'[' => self.state = FilterState::Sequence,
            // `k` is a title in screen and tmux.
            b']' | b'P' | b'_' | b'^' | b'X' | b'k' => self.begin_string(),
            ESC => self.state = FilterState::Escape,
            0x20..=0x2f => {
                self.held.push(byte);
                self.state = FilterState::EscapeMore;
            }
            // The end of a string that there is none of; and what asks who the terminal is.
            b'\\' | b'Z' => {}
            0x30..=0x7e => {
                self.tabs |= byte == b'H';
                out.extend([ESC, byte]);
            }
            _ => self.text(byte, out),
        }
    }

    fn escape_more(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            0x20..=0x2f if self.held.len() < SEQUENCE_BYTES_MAX => self.held.push(byte),
            ESC => self.state = FilterState::Escape,
            0x30..=0x7e => {
                self.state = FilterState::Text;
                // Character sets and line sizes; not those that leave UTF-8 or turn 8-bit controls on.
                if matches!(self.held.first(), Some(b'(' | b')' | b'*' | b'+' | b'#')) {
                    out.push(ESC);
                    out.append(&mut self.held);
                    out.push(byte);
                }
            }
            _ => self.state = FilterState::Text,
        }
    }

    fn sequence(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            0x20..=0x3f if self.held.len() < SEQUENCE_BYTES_MAX => self.held.push(byte),
            0x40..=0x7e => {
                self.state = FilterState::Text;
                if self.may_pass(byte) {
                    out.extend([ESC, b'[']);
                    out.extend_from_slice(&self.held);
                    out.push(byte);
                }
            }
            ESC => self.state = FilterState::Escape,
            // Controls within a sequence are carried out where they stand.
            0x08..=0x0d => out.push(byte),
            _ => self.state = FilterState::Broken,
        }
    }

    /// Notes what a sequence changes for good, and says whether it may pass.
    fn may_pass(&mut self, last: u8) -> bool {
        if !draws(&self.held, last) {
            return false;
        }
        let private = self.held.first() == Some(&b'?');
        match last {
            b'h' | b'l' if private => return self.note_modes(last == b'h'),
            b'h' => {
                let modes = String::from_utf8_lossy(&self.held);
                return modes.split(';').all(|mode| ANSI_MODES.contains(&mode));
            }
            b'u' if matches!(self.held.first(), Some(b'>' | b'=')) => self.keys = true,
            b'm' if self.held.first() == Some(&b'>') => self.keys = true,
            b'g' | b'W' => self.tabs = true,
            b'q' if self.held.last() == Some(&b' ') => self.cursor = true,
            _ => {}
        }
        true
    }

    /// Remembers private modes, all of a sequence or none. False: there are too many to remember, or one that is never changed.
    fn note_modes(&mut self, set: bool) -> bool {
        let text = String::from_utf8_lossy(self.held.get(1..).unwrap_or_default()).into_owned();
        let mut modes = self.modes.clone();
        for word in text.split(';').filter(|word| !word.is_empty()) {
            // What isn't a number here may be one to the terminal.
            let Ok(mode) = word.parse::<u32>() else { return false };
            if mode == VT52 {
                return false;
            }
            modes.retain(|known| *known != mode);
            if set != SET_AT_FIRST.contains(&mode) {
                modes.push(mode);
            }
        }
        if modes.len() > MODES_MAX {
            return false;
        }
        self.modes = modes;
        true
    }

    fn string(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.dropped = self.dropped.saturating_add(1);
        match (self.state, byte) {
            (_, BEL) | (FilterState::StringEscape, b'\\') | (FilterState::StringC2, 0x9c) => {
                self.state = FilterState::Text
            }
            (FilterState::StringEscape, _) => {
                self.state = FilterState::Escape;
                self.escape(byte, out);
            }
            (_, ESC) => self.state = FilterState::StringEscape,
            (_, 0xc2) => self.state = FilterState::StringC2,
            _ if self.dropped > STRING_BYTES_MAX => self.state = FilterState::Text,
            _ => self.state = FilterState::String,
        }
    }
}

/// Whether a sequence is one that draws, moves the cursor, or sets or asks for what concerns the program's own screen and keys. All others are
/// dropped: window operations, titles, printing, the console's bell, blanking and switching, checksums of the screen, other colours and
/// sizes, macros, and whatever terminals will know.
fn draws(held: &[u8], last: u8) -> bool {
    let prefix = held.first().copied().filter(|byte| matches!(byte, b'<'..=b'?'));
    let rest = held.get(usize::from(prefix.is_some())..).unwrap_or_default();
    let numbers = rest.iter().take_while(|byte| matches!(byte, b'0'..=b';')).count();
    match (prefix, rest.get(numbers..).unwrap_or_default()) {
        (None, b"") => matches!(
            last,
            b'@'..=b'M' | b'P' | b'S' | b'T' | b'W' | b'X' | b'Z' | b'`'..=b'h' | b'l'..=b'n' | b'r' | b's' | b'u'
        ),
        (Some(b'?'), b"") => {
            matches!(last, b'h' | b'l' | b'J' | b'K' | b'W' | b'S' | b'c' | b'm' | b'n' | b'u')
        }
        (Some(b'>'), b"") => matches!(last, b'c' | b'm' | b'n' | b'q' | b'u'),
        (Some(b'='), b"") => matches!(last, b'c' | b'u'),
        (Some(b'<'), b"") => last == b'u',
        // The cursor's shape and scrolling to the side, a soft reset, whether a mode is set, columns, a stack of colours, protected text.
        (None, b" ") => matches!(last, b'q' | b'@' | b'A'),
        (None, b"!") => last == b'p',
        (None | Some(b'?'), b"$") => last == b'p',
        (None, b"'") => matches!(last, b'}' | b'~'),
        (None, b"#") => matches!(last, b'{' | b'}' | b'p' | b'q'),
        (None, b"\"") => last == b'q',
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filtered(text: &[u8]) -> Vec<u8> {
        let (mut filter, mut out) = (Filter::new(), Vec::new());
        filter.feed(text, &mut out);
        out
    }

    #[test]
    fn l9_text_colours_and_movement_pass() {
        for text in [
            "plain\r\n\ttext with ümläuts, 漢字 and 🦀\x07\x08",
            "\x1b[31;1mred\x1b[0m\x1b[2J\x1b[H\x1b[10;20H\x1b[K",
            "\x1b[?1049h\x1b[?25l\x1b[6n\x1b[c\x1b(0lqk\x1b(B\x1b7\x1b8\x1bM",
            "\x1b[38;2;1;2;3mx\x1b[38:5:1my",
        ] {
            assert_eq!(String::from_utf8_lossy(&filtered(text.as_bytes())), text);
        }
    }

    #[test]
    fn only_sequences_that_concern_the_programs_own_screen_pass() {
        // Switches the console, sets its blanking and bell, asks for checksums of the screen, resizes, sets lamps, reassigns colours.
        let acts =
            "A\x1b[12;2]B\x1b[14;1]C\x1b[1;1;1;1;24;80*yE\x1b[40*|G\x1b[3qH\x1b[1;2;3,|J\x1b[4$|K\x1b[1;2?hL";
        assert_eq!(String::from_utf8_lossy(&filtered(acts.as_bytes())), "ABCEGHJKL");
        let draws = "\x1b[2 q\x1b[!p\x1b[?2026$p\x1b[>4;2m\x1b[>1u\x1b[<u\x1b[?u\x1b[>c\x1b[=c\x1b[>q\x1b[5n\x1b[3b\x1b[?5W\x1b[1;5r";
        assert_eq!(String::from_utf8_lossy(&filtered(draws.as_bytes())), draws);
    }

    #[test]
    fn l9_the_clipboard_titles_and_queries_do_not() {
        for sequence in [
            "\x1b]52;c;aGVsbG8=\x07",
            "\x1b]52;c;aGVsbG8=\x1b\\",
            "\x1b]52;c;aGVsbG8=\u{9c}",
            "\u{9d}52;c;aGVsbG8=\x07",
            "\x1b]0;title\x07",
            "\x1b]2;title\x1b\\",
            "\x1b]9;notice\x07",
            "\x1b]8;;http://example.com\x1b\\",
            "\x1bP$qm\x1b\\",
            "\x1bP+q544e\x1b\\",
            "\u{90}$qm\x1b\\",
            "\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\",
            "\x1b_Gf=100;AAAA\x1b\\",
            "\x1b^x\x1b\\",
            "\x1bXx\x1b\\",
            "\x1b[21t",
            "\u{9b}21t",
            "\x1b[5i",
            "\x1b[62;1\"p",
            "\x1b G",
            "\x1b%@",
            "\x1bZ",
            "\x05",
            "\x1b[2h",
            "\x1b[4;2h",
            "\x1b[?1003s",
            "\x1b[?1003r",
            "\x1b[1$}",
            "\x1b[?2l",
            "\x1b[?2h",
            "\x1b[?25;02l",
            "\x1b[?2:1l",
            "\x1b[?2 l",
            "\x1b[?99999999999l",
            "\x1bktitle\x1b\\",
            "\x1bktitle\x07",
        ] {
            let got = filtered(format!("a{sequence}b").as_bytes());
            assert_eq!(String::from_utf8_lossy(&got), "ab", "{sequence:?}");
        }
        assert_eq!(filtered(b"a\x9d52;c;eA==\x07b"), b"a?52;c;eA==\x07b", "no UTF-8, so no control");
    }

    #[test]
    fn l9_what_was_set_is_reset_at_the_end() {
        let mut filter = Filter::new();
        filter.feed(b"\x1b[?1049;2004h\x1b[?25l\x1b[?1000h\x1b[?1000l\x1b[>1u", &mut Vec::new());
        let reset = String::from_utf8(filter.finish()).unwrap();
        for part in ["\x1b[?1049l", "\x1b[?2004l", "\x1b[?25h", "\x1b[<99u", "\x1b[0m"] {
            assert!(reset.contains(part), "{reset:?}");
        }
        assert!(!reset.contains("1000"), "{reset:?}");
        assert_eq!(Filter::new().finish(), b"");
        let mut filter = Filter::new();
        filter.feed(b"\x1b[?8;1007l\x1b[?7l\x1b[?7h\x1b[?25h", &mut Vec::new());
        let reset = String::from_utf8(filter.finish()).unwrap();
        assert!(reset.starts_with("\x1b[?8h\x1b[?1007h\x1b[!p"), "{reset:?}");
    }

    #[test]
    fn l9_a_mode_that_could_not_be_reset_is_not_set() {
        let (mut filter, mut out) = (Filter::new(), Vec::new());
        for mode in 3000..3064 {
            filter.feed(format!("\x1b[?{mode}h").as_bytes(), &mut out);
        }
        out.clear();
        filter.feed(b"\x1b[?1003h\x1b[?1049h\x1b[?3000l", &mut out);
        assert_eq!(out, b"\x1b[?3000l");
        filter.feed(b"\x1b[?1049h\x1b[3;10r\x1b[4h\x1b[20h\x1b[5 q\x1b[3g", &mut out);
        let reset = String::from_utf8(filter.finish()).unwrap();
        for part in [
            "\x1b[?1049l",
            "\x1b[?3063l",
            "\x1b[!p",
            "\x1b7\x1b[r\x1b8",
            "\x1b[4l",
            "\x1b[20l",
            "\x1b[0 q",
            "\x1b[?5W",
        ] {
            assert!(reset.contains(part), "{reset:?}");
        }
        assert!(!reset.contains("1003"), "{reset:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn l9_no_way_to_cut_a_stream_lets_a_string_through(
            bytes in prop::collection::vec(prop_oneof![Just(0x1b_u8), Just(b']'), Just(b'P'), Just(b'k'), Just(b'['), Just(0xc2), Just(0x9d), Just(0x07), Just(b'\\'), Just(b't'), any::<u8>()], 0..60),
            cut in 0_usize..60,
        ) {
            let (mut filter, mut out) = (Filter::new(), Vec::new());
            let (one, two) = bytes.split_at(cut.min(bytes.len()));
            filter.feed(one, &mut out);
            filter.feed(two, &mut out);
            prop_assert_eq!(&out, &filtered(&bytes));
            for pair in out.windows(2) {
                prop_assert!(!(pair[0] == 0x1b && b"]P_^Xk%".contains(&pair[1])), "{:?}", out);
                prop_assert!(!(pair[0] == 0xc2 && (0x80..0xa0).contains(&pair[1])), "{:?}", out);
            }
            // Passing twice changes nothing.
            prop_assert_eq!(filtered(&out), out);
        }
    }
}
