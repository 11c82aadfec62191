//! Text in columns: how wide it is on a terminal, and which rows it takes there.

use unicode_width::UnicodeWidthChar as _;

use crate::term;

/// How many spaces a tab is shown as.
const TAB: &str = "    ";

/// A text that is being typed, with its cursor as a place in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draft<'t> {
    pub(super) text: &'t str,
    pub(super) cursor: usize,
}

/// Rows on a terminal, and where the cursor stands among them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) rows: Vec<String>,
    pub(super) row: usize,
    pub(super) column: usize,
}

/// Whether a character belongs to the one before it: an accent, say.
pub(super) fn is_joined(c: char) -> bool {
    c != '\n' && c.width() == Some(0) && shown(c).chars().eq([c])
}

/// A character as it is shown: what could drive the terminal or hide is escaped.
fn shown(c: char) -> String {
    match c {
        '\t' => TAB.to_owned(),
        c => term::inline(c.encode_utf8(&mut [0; 4])).into_owned(),
    }
}

/// Columns of a text without control characters; colours of ours take none.
pub(super) fn width(text: &str) -> usize {
    let (mut columns, mut in_color) = (0_usize, false);
    for c in text.chars() {
        match c {
            '\u{1b}' => in_color = true,
            'm' if in_color => in_color = false,
            _inside if in_color => {}
            c => columns = columns.saturating_add(c.width().unwrap_or(0)),
        }
    }
    columns
}

/// A text without colours of ours.
pub(super) fn plain(text: &str) -> String {
    let mut in_color = false;
    let mut is_text = |c: &char| match c {
        '\u{1b}' => {
            in_color = true;
            false
        }
        'm' if in_color => {
            in_color = false;
            false
        }
        _c => !in_color,
    };
    text.chars().filter(|c| is_text(c)).collect()
}

/// So much of a line as fits, with a mark where something was cut. The line has no colours.
pub(super) fn fitted(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let mut out = String::new();
    let mut left = columns.saturating_sub(1);
    for c in line.chars() {
        let wide = c.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        out.push(c);
    }
    out.push('…');
    out
}

/// The rows of a line of prose, broken between words. The last column stays empty.
pub(super) fn folded(line: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(2);
    let (mut rows, mut row, mut taken) = (Vec::new(), String::new(), 0_usize);
    for word in line.split_inclusive(' ') {
        let room = width(word.trim_end());
        if taken > 0 && taken + room >= columns {
            rows.push(std::mem::take(&mut row).trim_end().to_owned());
            taken = 0;
        }
        if room < columns {
            row.push_str(word);
            taken += width(word);
            continue;
        }
        // A word that is wider than a row is cut; one with colours is left to the terminal.
        if word.contains('\u{1b}') {
            row.push_str(word);
            taken += width(word);
            continue;
        }
        let mut pieces = wrapped(word, columns);
        row = pieces.pop().unwrap_or_default();
        taken = width(&row);
        rows.extend(pieces);
    }
    rows.push(row);
    rows
}

/// The same for text of several lines, each with its indentation.
pub(super) fn folded_block(text: &str, columns: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split('\n') {
        let head = line.len() - line.trim_start_matches(' ').len();
        let (indent, words) = line.split_at(head);
        // Where it would take most of the columns, there is none.
        let room = if head > columns / 2 { columns } else { columns - head };
        if width(words) < room {
            out.push_str(line);
        } else {
            let rows = folded(words, room);
            let rows: Vec<String> = rows
                .iter()
                .map(|row| if room == columns { row.clone() } else { format!("{indent}{row}") })
                .collect();
            out.push_str(&rows.join("\n"));
        }
        out.push('\n');
    }
    out.pop();
    out
}

/// The rows that a line takes when it is cut wherever the columns end. The last column stays empty: a terminal that wraps there would
/// count a row more.
pub(super) fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let draft = Draft { text: line, cursor: 0 };
    draft.rows("", columns).rows
}

impl Draft<'_> {
    /// Its rows behind a prompt; rows after the first are indented as far.
    pub(super) fn rows(&self, prompt: &str, columns: usize) -> Rows {
        let columns = columns.max(2);
        // A prompt that leaves no room is left out.
        let prompt = if width(prompt) + 4 > columns { "" } else { prompt };
        let indent = " ".repeat(width(prompt));
        let mut out = Rows::default();
        let (mut row, mut column) = (prompt.to_owned(), width(prompt));
        for (place, c) in self.text.char_indices() {
            if c == '\n' {
                if place == self.cursor {
                    (out.row, out.column) = (out.rows.len(), column);
                }
                out.rows.push(std::mem::replace(&mut row, indent.clone()));
                column = indent.len();
                continue;
            }
            for (part, piece) in shown(c).chars().enumerate() {
                let wide = piece.width().unwrap_or(0);
                if column + wide >= columns && column > indent.len() {
                    out.rows.push(std::mem::replace(&mut row, indent.clone()));
                    column = indent.len();
                }
                if place == self.cursor && part == 0 {
                    (out.row, out.column) = (out.rows.len(), column);
                }
                // What is wider than all columns is no row that fits.
                if column + wide < columns {
                    row.push(piece);
                    column += wide;
                }
            }
        }
        if self.cursor >= self.text.len() {
            (out.row, out.column) = (out.rows.len(), column);
        }
        out.rows.push(row);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_takes_the_rows_that_its_characters_need() {
        for (text, cursor, columns, rows, place) in [
            ("", 0, 20, vec!["> "], (0, 2)),
            ("abc", 1, 20, vec!["> abc"], (0, 3)),
            ("abcdef", 6, 6, vec!["> abc", "  def"], (1, 5)),
            ("abc", 3, 6, vec!["> abc"], (0, 5)),
            ("ab\nc", 3, 20, vec!["> ab", "  c"], (1, 2)),
            ("ab\nc", 2, 20, vec!["> ab", "  c"], (0, 4)),
            ("世界人", 9, 7, vec!["> 世界", "  人"], (1, 4)),
            ("a\tb", 3, 20, vec!["> a    b"], (0, 8)),
            ("a\u{202e}b", 4, 20, vec!["> a\\u{202e}b"], (0, 11)),
            ("e\u{301}x", 3, 20, vec!["> e\u{301}x"], (0, 3)),
        ] {
            let drawn = Draft { text, cursor }.rows("> ", columns);
            assert_eq!(
                (drawn.rows, (drawn.row, drawn.column)),
                (rows_of(&rows), place),
                "{text:?} at {cursor}"
            );
        }
    }

    fn rows_of(rows: &[&str]) -> Vec<String> {
        rows.iter().map(|row| (*row).to_owned()).collect()
    }

    #[test]
    fn colours_take_no_columns_and_long_lines_are_cut() {
        assert_eq!(plain("\x1b[2mab\x1b[0m世m"), "ab世m");
        assert_eq!(width("\x1b[2mab\x1b[0m世"), 4);
        assert_eq!((fitted("abcdef", 6).as_str(), fitted("abcdef", 4).as_str()), ("abcdef", "abc…"));
        assert_eq!(fitted("世界人", 5), "世界…");
        assert_eq!(wrapped("abcdef", 4), ["abc", "def"]);
        for (line, rows) in [
            ("one two three", &["one two", "three"][..]),
            ("  one two", &["  one two"]),
            ("one  two-and-more", &["one", "two-and-m", "ore"]),
            ("世界世界 人", &["世界世界", "人"]),
            ("", &[""]),
            ("a ", &["a "]),
        ] {
            assert_eq!(folded(line, 10), rows, "{line:?}");
        }
    }
}
