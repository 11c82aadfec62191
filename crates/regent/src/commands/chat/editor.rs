//! The line that is being typed: keys change it and say what is to be done. It knows no terminal.

use super::keys::Key;
use super::text::{Draft, is_joined};

/// Messages are shorter.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// What a key asks for beyond a change of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    /// This is to be sent.
    Send(String),
    /// Stop what runs: Escape.
    Stop,
    /// Stop what runs, or leave: Ctrl-C.
    Interrupt,
    /// Leave: Ctrl-D on an empty line.
    Leave,
    /// Draw the screen again.
    Redraw,
    /// Stop this process: Ctrl-Z.
    Suspend,
    /// Complete the word before the cursor.
    Complete,
}

/// A text with a cursor, and the messages before it.
#[derive(Debug, Default)]
pub(super) struct Editor {
    text: String,
    /// In bytes, always between two characters.
    cursor: usize,
    killed: String,
    history: Vec<String>,
    /// Which message of the history is shown; none while a new one is typed.
    recalled: Option<usize>,
    /// What was typed before the history was shown.
    begun: String,
}

impl Editor {
    pub(super) fn new(history: Vec<String>) -> Self {
        Self { history, ..Self::default() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn draft(&self) -> Draft<'_> {
        Draft { text: &self.text, cursor: self.cursor }
    }

    pub(super) fn clear(&mut self) {
        self.set(String::new());
        self.recalled = None;
    }

    /// Replaces the text before the cursor.
    pub(super) fn complete(&mut self, head: &str) {
        let tail = self.text.split_off(self.cursor);
        self.text = format!("{head}{tail}");
        self.cursor = head.len();
    }

    /// Notes a message that was sent.
    pub(super) fn remember(&mut self, text: &str) {
        if self.history.last().is_none_or(|last| last != text) {
            self.history.push(text.to_owned());
        }
    }

    /// Changes the text by a key.
    pub(super) fn press(&mut self, key: Key) -> Wish {
        match key {
            Key::Char(c) => self.insert(c.encode_utf8(&mut [0; 4])),
            Key::Paste(text) => self.insert(&text),
            Key::Newline => self.insert("\n"),
            Key::Enter => return self.enter(),
            Key::Tab => return Wish::Complete,
            Key::Escape => return Wish::Stop,
            Key::Backspace | Key::Ctrl('h') => self.remove(self.before(self.cursor)..self.cursor),
            Key::Delete => self.remove(self.cursor..self.after(self.cursor)),
            Key::Left | Key::Ctrl('b') => self.cursor = self.before(self.cursor),
            Key::Right | Key::Ctrl('f') => self.cursor = self.after(self.cursor),
            Key::WordLeft => self.cursor = self.word_before(),
            Key::WordRight => self.cursor = self.word_after(),
            Key::Home | Key::Ctrl('a') => self.cursor = self.line_start(),
            Key::End | Key::Ctrl('e') => self.cursor = self.line_end(),
            Key::Up | Key::Ctrl('p') => self.up(),
            Key::Down | Key::Ctrl('n') => self.down(),
            Key::Ctrl(letter) => return self.control(letter),
        }
        Wish::Nothing
    }

    fn control(&mut self, letter: char) -> Wish {
        match letter {
            'c' => return Wish::Interrupt,
            'd' if self.text.is_empty() => return Wish::Leave,
            'd' => self.remove(self.cursor..self.after(self.cursor)),
            'k' => {
                let end = self.line_end();
                // At the end of a line, the line break goes.
                let end = if end == self.cursor { self.after(end) } else { end };
                self.kill(self.cursor..end);
            }
            'l' => return Wish::Redraw,
            'u' => self.kill(self.line_start()..self.cursor),
            'w' => self.kill(self.word_before()..self.cursor),
            'y' => {
                let killed = self.killed.clone();
                self.insert(&killed);
            }
            'z' => return Wish::Suspend,
            _other => {}
        }
        Wish::Nothing
    }

    fn enter(&mut self) -> Wish {
        if self.cursor == self.text.len() && self.text.ends_with('\\') {
            self.text.pop();
            self.cursor = self.text.len();
            self.insert("\n");
            return Wish::Nothing;
        }
        self.recalled = None;
        self.cursor = 0;
        Wish::Send(std::mem::take(&mut self.text))
    }

    fn set(&mut self, text: String) {
        self.cursor = text.len();
        self.text = text;
    }

    fn insert(&mut self, text: &str) {
        let plain: String = text
            .replace("\r\n", "\n")
            .chars()
            .filter_map(|c| match c {
                '\r' => Some('\n'),
                '\n' | '\t' => Some(c),
                c => (!c.is_control()).then_some(c),
            })
            .collect();
        if self.text.len().saturating_add(plain.len()) <= TEXT_BYTES_MAX {
            self.text.insert_str(self.cursor, &plain);
            self.cursor += plain.len();
        }
    }

    fn remove(&mut self, range: std::ops::Range<usize>) {
        self.cursor = range.start;
        self.text.replace_range(range, "");
    }

    fn kill(&mut self, range: std::ops::Range<usize>) {
        if !range.is_empty() {
            self.killed = self.text.get(range.clone()).unwrap_or_default().to_owned();
            self.remove(range);
        }
    }

    fn head(&self) -> &str {
        self.text.get(..self.cursor).unwrap_or_default()
    }

    fn tail(&self) -> &str {
        self.text.get(self.cursor..).unwrap_or_default()
    }

    /// Where the character before this place begins, with what is joined to it.
    fn before(&self, at: usize) -> usize {
        let head = self.text.get(..at).unwrap_or_default();
        let mut places = head.char_indices().rev();
        places.find(|(_, c)| !is_joined(*c)).map_or(0, |(place, _)| place)
    }

    fn after(&self, at: usize) -> usize {
        let tail = self.text.get(at..).unwrap_or_default();
        let mut rest = tail.char_indices().skip(1).skip_while(|(_, c)| is_joined(*c));
        rest.next().map_or(self.text.len(), |(place, _)| at + place)
    }

    fn word_before(&self) -> usize {
        let head = self.head().trim_end_matches(|c: char| !c.is_alphanumeric());
        head.trim_end_matches(char::is_alphanumeric).len()
    }

    fn word_after(&self) -> usize {
        let tail = self.tail();
        let rest = tail.trim_start_matches(|c: char| !c.is_alphanumeric());
        let rest = rest.trim_start_matches(char::is_alphanumeric);
        self.text.len() - rest.len()
    }

    fn line_start(&self) -> usize {
        self.head().rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.tail().find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    /// To the line above, or to an earlier message from the first.
    fn up(&mut self) {
        let start = self.line_start();
        match start.checked_sub(1) {
            Some(above_end) => {
                let above = self.text.get(..above_end).unwrap_or_default();
                let above_start = above.rfind('\n').map_or(0, |at| at + 1);
                self.cursor = self.place_in(above_start..above_end, start);
            }
            None => {
                let last = self.recalled.unwrap_or(self.history.len());
                if let Some(index) = last.checked_sub(1) {
                    if self.recalled.is_none() {
                        self.begun.clone_from(&self.text);
                    }
                    self.recall(Some(index));
                }
            }
        }
    }

    fn down(&mut self) {
        let end = self.line_end();
        if end < self.text.len() {
            let below = self.text.get(end + 1..).unwrap_or_default();
            let below_end = below.find('\n').map_or(self.text.len(), |at| end + 1 + at);
            self.cursor = self.place_in(end + 1..below_end, self.line_start());
        } else if let Some(index) = self.recalled {
            let next = index + 1;
            self.recall((next < self.history.len()).then_some(next));
        }
    }

    fn recall(&mut self, index: Option<usize>) {
        self.recalled = index;
        let text = index.and_then(|index| self.history.get(index)).unwrap_or(&self.begun);
        self.set(text.clone());
    }

    /// The place in a line that is as many characters from its start as the cursor is from `start`.
    fn place_in(&self, line: std::ops::Range<usize>, start: usize) -> usize {
        let chars = self.text.get(start..self.cursor).unwrap_or_default().chars().count();
        let text = self.text.get(line.clone()).unwrap_or_default();
        text.char_indices().nth(chars).map_or(line.end, |(place, _)| line.start + place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::keys::KeyReader;
    use super::super::text::{Draft, width};
    use super::*;

    /// The text after these bytes were typed, with `|` at the cursor.
    fn typed(editor: &mut Editor, bytes: &str) -> String {
        for key in KeyReader::default().feed(bytes.as_bytes()) {
            let wish = editor.press(key);
            if let Wish::Send(text) = wish {
                editor.remember(&text);
                return format!("sent {text}");
            }
        }
        format!("{}|{}", editor.head(), editor.tail())
    }

    #[test]
    fn keys_edit_the_text() {
        for (bytes, shown) in [
            ("hello", "hello|"),
            ("hello\x01x", "x|hello"),
            ("hello\x1b[D\x1b[D\x7f", "he|lo"),
            ("one two\x17", "one |"),
            ("one two\x15", "|"),
            ("one two\x01\x0b", "|"),
            ("one two\x17\x19\x19", "one twotwo|"),
            ("one two\x1b[1;5D\x1b[1;5D", "|one two"),
            ("one two\x01\x1bf", "one| two"),
            ("ab\x1b[H\x1b[3~", "|b"),
            ("世界\x7f", "世|"),
            ("e\u{301}x\x7f\x7f", "|"),
            ("e\u{301}x\x1b[D\x1b[Dy", "y|e\u{301}x"),
            ("a\\\rb", "a\nb|"),
            ("a\nb\x1b\rc", "a\nb\nc|"),
            ("a\nbcd\x1b[Ax", "ax|\nbcd"),
            ("abc\nd\x1b[A\x1b[Bx", "abc\ndx|"),
            ("a\nb\x01\x7f", "a|b"),
            ("a\nb\x1b[A\x05\x0b", "a|b"),
            ("\x1b[200~one\r\ntwo\x1b[201~", "one\ntwo|"),
            ("\x1b[200~a\x1b[31m\x07b\x1b[201~", "a[31mb|"),
            ("say\r", "sent say"),
            ("a\nb\r", "sent a\nb"),
        ] {
            assert_eq!(typed(&mut Editor::default(), bytes), shown, "{bytes:?}");
        }
    }

    #[test]
    fn earlier_messages_come_back_and_the_draft_is_kept() {
        let mut editor = Editor::new(vec!["one".to_owned()]);
        assert_eq!(typed(&mut editor, "two\r"), "sent two");
        assert_eq!(typed(&mut editor, "dra\x1b[A"), "two|");
        assert_eq!(typed(&mut editor, "\x1b[A\x1b[A"), "one|");
        assert_eq!(typed(&mut editor, "\x1b[B\x1b[B"), "dra|");
        assert_eq!(typed(&mut editor, "\x1b[B"), "dra|");
        assert_eq!(typed(&mut editor, "\x15\x1b[A\r"), "sent two");
    }

    #[test]
    fn keys_that_are_no_text_are_wishes() {
        for (key, wish) in [
            (Key::Ctrl('c'), Wish::Interrupt),
            (Key::Ctrl('d'), Wish::Leave),
            (Key::Ctrl('l'), Wish::Redraw),
            (Key::Ctrl('z'), Wish::Suspend),
            (Key::Escape, Wish::Stop),
            (Key::Tab, Wish::Complete),
            (Key::Enter, Wish::Send(String::new())),
        ] {
            assert_eq!(Editor::default().press(key), wish);
        }
        let mut editor = Editor::default();
        assert_eq!(typed(&mut editor, "ab\x1b[D\x04"), "a|", "with text, Ctrl-D deletes");
    }

    proptest! {
        #[test]
        fn any_bytes_leave_a_cursor_between_characters_and_rows_that_fit(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..0x20, Just(0x1b), Just(b'[')], 0..120),
            columns in 4_usize..60,
        ) {
            let mut editor = Editor::new(vec!["earlier\nmessage".to_owned()]);
            for key in KeyReader::default().feed(&bytes) {
                editor.press(key);
                prop_assert!(editor.text.is_char_boundary(editor.cursor));
            }
            let drawn = editor.draft().rows("> ", columns);
            prop_assert!(drawn.rows.iter().all(|row| width(row) < columns), "{:?}", drawn.rows);
            prop_assert!(drawn.row < drawn.rows.len() && drawn.column < columns);
            prop_assert!(!drawn.rows.concat().chars().any(char::is_control));
        }

        #[test]
        fn text_that_is_typed_is_text_that_is_shown(text in "[a-zA-Z0-9é世界 ]{0,60}", columns in 6_usize..80) {
            let rows = Draft { text: &text, cursor: text.len() }.rows("> ", columns).rows;
            let shown: String = rows.iter().map(|row| row.get(2..).unwrap_or_default()).collect();
            prop_assert_eq!(shown, text);
        }
    }
}
