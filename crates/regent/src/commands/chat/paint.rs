//! The screen of a conversation: text that stays and scrolls with the terminal, and below it a few rows that are drawn again. There is no
//! alternate screen: what was said is in the terminal's own scrollback.

use std::io::Write as _;

use super::text::{Rows, folded, folded_block, width, wrapped};

/// Marked pastes on, and off.
const BEGIN: &str = "\x1b[?2004h";
const END: &str = "\x1b[?2004l\x1b[?25h";

/// What is on the screen now.
#[derive(Debug, Default)]
pub(super) struct Painter {
    /// Rows can be drawn again here.
    draws: bool,
    drawn: Rows,
    /// Text that stays and isn't written yet.
    kept: String,
    /// The line that a model is writing: it isn't whole.
    open: String,
    /// How much of it is written already, where rows can't be drawn again.
    written: usize,
    /// It is within a block of code, which isn't broken between words.
    is_code: bool,
    columns: usize,
    lines: usize,
}

impl Painter {
    pub(super) fn begin(draws: bool) -> Self {
        let mut painter = Self { draws, ..Self::default() };
        painter.measure();
        if draws {
            write(BEGIN);
        }
        painter
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn draws(&self) -> bool {
        self.draws
    }

    /// The terminal may have another size now.
    pub(super) fn measure(&mut self) {
        let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok();
        let of = |value: Option<u16>, usual: usize| {
            value.map(usize::from).filter(|value| *value > 0).unwrap_or(usual)
        };
        self.columns = of(size.map(|size| size.ws_col), 80);
        self.lines = of(size.map(|size| size.ws_row), 24);
    }

    /// Text that stays. It is inert, but for colours of ours.
    pub(super) fn line(&mut self, text: &str) {
        self.end_stream();
        match self.draws {
            true => self.kept.push_str(&folded_block(text, self.columns)),
            false => self.kept.push_str(text),
        }
        self.kept.push('\n');
    }

    /// The next piece of a text that is still being written. It is inert.
    pub(super) fn stream(&mut self, text: &str) {
        self.open.push_str(text);
        if let Some(end) = self.open.rfind('\n') {
            let rest = self.open.split_off(end + 1);
            let whole = std::mem::replace(&mut self.open, rest);
            self.keep(&whole);
        }
    }

    /// Whole lines of the text.
    fn keep(&mut self, lines: &str) {
        if !self.draws {
            self.kept.push_str(lines.get(self.written..).unwrap_or_default());
            self.written = 0;
            return;
        }
        for line in lines.lines() {
            let is_fence = line.trim_start().starts_with("```");
            let rows = match self.is_code || is_fence {
                true => vec![line.to_owned()],
                false => folded(line, self.columns),
            };
            rows.iter().for_each(|row| self.kept.extend([row.as_str(), "\n"]));
            self.is_code ^= is_fence;
        }
    }

    /// The text that was being written is whole.
    pub(super) fn end_stream(&mut self) {
        self.finish_line();
        self.is_code = false;
    }

    fn finish_line(&mut self) {
        if !self.open.is_empty() {
            let open = std::mem::take(&mut self.open);
            self.keep(&format!("{open}\n"));
        }
    }

    /// What was written of the line isn't true any more.
    pub(super) fn drop_stream(&mut self) {
        if self.written > 0 {
            return self.end_stream();
        }
        self.open.clear();
    }

    /// A prompt was written; an answer is typed behind it, which ends the line.
    pub(super) fn drop_prompt(&mut self) {
        self.open.clear();
        self.written = 0;
    }

    /// Writes what is new, and these rows below it.
    pub(super) fn draw(&mut self, below: Rows) {
        let kept = std::mem::take(&mut self.kept);
        if !self.draws {
            let open = self.open.get(self.written..).unwrap_or_default();
            write(&format!("{kept}{open}"));
            self.written = self.open.len();
            return;
        }
        let (kept, rows) = self.compose(kept, below);
        if kept.is_empty() && rows == self.drawn {
            return;
        }
        write(&frame(&self.drawn, self.columns, &kept, &rows));
        self.drawn = rows;
    }

    /// The open line above the rows, as far as the screen has room for it.
    fn compose(&mut self, mut kept: String, below: Rows) -> (String, Rows) {
        let mut open = match (self.open.is_empty(), self.is_code) {
            (true, _) => Vec::new(),
            (false, true) => wrapped(&self.open, self.columns),
            (false, false) => folded(&self.open, self.columns),
        };
        // What doesn't fit is cut into lines, which stay.
        if open.len() > (self.lines / 2).max(1) {
            let last = open.pop().unwrap_or_default();
            open.drain(..).for_each(|row| kept.extend([row.as_str(), "\n"]));
            self.open.clone_from(&last);
            open.push(last);
        }
        let above = open.len();
        let mut rows = Rows { row: below.row + above, column: below.column, rows: open };
        rows.rows.extend(below.rows);
        let most = self.lines.saturating_sub(1).max(1);
        // The row of the cursor is among those that are shown.
        let skipped = rows.rows.len().saturating_sub(most).min(rows.row);
        rows.rows.drain(..skipped);
        rows.rows.truncate(most);
        rows.row -= skipped;
        (kept, rows)
    }

    /// Draws everything again, at the top of an empty screen.
    pub(super) fn clear(&mut self) {
        if self.draws {
            write("\x1b[2J\x1b[H");
            self.drawn = Rows::default();
        }
    }

    /// Takes the rows away.
    pub(super) fn end(&mut self) {
        self.end_stream();
        self.draw(Rows::default());
        if self.draws {
            write(END);
        }
    }

    /// After another program had the terminal.
    pub(super) fn again(&mut self) {
        self.drawn = Rows::default();
        if self.draws {
            write(BEGIN);
        }
    }
}

/// From one set of rows to the next, with text that stays between. The terminal wraps rows itself that are wider than it is by now.
fn frame(old: &Rows, columns: usize, kept: &str, new: &Rows) -> String {
    let columns = columns.max(1);
    let height = |row: &String| width(row).saturating_sub(1) / columns + 1;
    let above: usize = old.rows.iter().take(old.row).map(height).sum::<usize>() + old.column / columns;
    let mut out = String::from("\x1b[?25l");
    if above > 0 {
        out.push_str(&format!("\x1b[{above}A"));
    }
    out.push_str("\r\x1b[J");
    out.push_str(kept);
    out.push_str(&new.rows.join("\n"));
    let below = new.rows.len().saturating_sub(new.row + 1);
    if below > 0 {
        out.push_str(&format!("\x1b[{below}A"));
    }
    out.push('\r');
    if new.column > 0 {
        out.push_str(&format!("\x1b[{}C", new.column));
    }
    out.push_str("\x1b[?25h");
    out
}

fn write(text: &str) {
    if text.is_empty() {
        return;
    }
    let mut stdout = std::io::stdout().lock();
    // If the terminal is gone, the keyboard's end says so.
    let _gone = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::text::Draft;
    use super::*;

    /// A terminal that knows what frames need.
    #[derive(Default)]
    struct Emulator {
        cells: Vec<Vec<char>>,
        row: usize,
        column: usize,
    }

    impl Emulator {
        fn write(&mut self, text: &str) {
            let mut chars = text.chars();
            while let Some(c) = chars.next() {
                match c {
                    '\u{1b}' => self.sequence(&mut chars),
                    '\r' => self.column = 0,
                    '\n' => (self.row, self.column) = (self.row + 1, 0),
                    c => {
                        self.cells.resize_with(self.cells.len().max(self.row + 1), Vec::new);
                        let cells = &mut self.cells[self.row];
                        cells.resize(cells.len().max(self.column + 1), ' ');
                        cells[self.column] = c;
                        self.column += 1;
                    }
                }
            }
        }

        fn sequence(&mut self, chars: &mut std::str::Chars<'_>) {
            let sequence: String = {
                let mut seen = String::new();
                for c in chars.by_ref() {
                    seen.push(c);
                    if c.is_ascii_alphabetic() {
                        break;
                    }
                }
                seen
            };
            let number =
                || sequence.trim_matches(|c: char| !c.is_ascii_digit()).parse::<usize>().unwrap_or(1);
            match sequence.chars().last() {
                Some('A') => self.row -= number(),
                Some('C') => self.column += number(),
                Some('J') => {
                    self.cells.truncate(self.row + 1);
                    if let Some(cells) = self.cells.get_mut(self.row) {
                        cells.truncate(self.column);
                    }
                }
                Some('h' | 'l') => {}
                other => panic!("{other:?} in {sequence:?}"),
            }
        }

        fn text(&self) -> String {
            let rows: Vec<String> =
                self.cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect();
            rows.join("\n").trim_end().to_owned()
        }
    }

    proptest! {
        #[test]
        fn what_is_kept_stays_and_the_rows_stand_below_it(
            steps in prop::collection::vec(("[a-z]{0,8}", "[a-z\n]{0,20}", any::<prop::sample::Index>()), 1..12),
        ) {
            let (mut emulator, mut old, mut all) = (Emulator::default(), Rows::default(), String::new());
            for (kept, draft, place) in steps {
                let kept = if kept.is_empty() { kept } else { format!("{kept}\n") };
                let cursor = place.index(draft.len() + 1);
                let new = Draft { text: &draft, cursor }.rows("> ", 12);
                emulator.write(&frame(&old, 12, &kept, &new));
                all.push_str(&kept);
                let rows: Vec<&str> = new.rows.iter().map(|row| row.trim_end()).collect();
                let expected = format!("{all}{}", rows.join("\n")).trim_end().to_owned();
                prop_assert_eq!(emulator.text(), expected);
                let row = all.lines().count() + new.row;
                prop_assert_eq!((emulator.row, emulator.column), (row, new.column));
                old = new;
            }
        }
    }

    #[test]
    fn a_line_that_is_being_written_is_shown_once() {
        let mut painter = Painter { draws: true, columns: 20, lines: 10, ..Painter::default() };
        painter.stream("one ");
        painter.stream("line\nand ");
        painter.stream("more");
        assert_eq!((painter.kept.as_str(), painter.open.as_str()), ("one line\n", "and more"));
        painter.line("  tool");
        assert_eq!(painter.kept, "one line\nand more\n  tool\n");
    }

    #[test]
    fn a_line_that_is_too_long_for_the_screen_is_cut_into_lines() {
        let mut painter = Painter { draws: true, columns: 11, lines: 6, ..Painter::default() };
        painter.stream(&"x".repeat(45));
        let (kept, rows) =
            painter.compose(String::new(), Rows { rows: vec!["> ".to_owned()], row: 0, column: 2 });
        assert_eq!(kept, format!("{0}\n{0}\n{0}\n{0}\n", "x".repeat(10)));
        assert_eq!((rows.rows, rows.row), (vec!["xxxxx".to_owned(), "> ".to_owned()], 1));
    }

    #[test]
    fn more_rows_than_the_screen_has_are_shown_around_the_cursor() {
        let mut painter = Painter { draws: true, columns: 20, lines: 5, ..Painter::default() };
        let text = "1\n2\n3\n4\n5\n6";
        for (cursor, shown, row) in [(text.len(), "  3|  4|  5|  6", 3), (0, "> 1|  2|  3|  4", 0)] {
            let below = Draft { text, cursor }.rows("> ", 20);
            let (_, rows) = painter.compose(String::new(), below);
            assert_eq!((rows.rows.join("|").as_str(), rows.row), (shown, row));
        }
    }
}
