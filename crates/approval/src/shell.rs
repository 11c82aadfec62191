//! One reading of a shell line: its words with every quote taken out, and whether the shell makes further words at run time.
//!
//! POSIX quoting and that of bash (`$'…'`, `$"…"`). A reading that is wrong by a word too many costs a failed look-up. What this can't
//! resolve (expansions, here-documents, quotes without an end) is reported, never guessed.

use std::iter::Peekable;
use std::str::Chars;

/// What a line holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ShellLine {
    pub(crate) words: Vec<String>,
    /// Words of it are made at run time: variables, substitutions, globs, braces, `~`, a here-document.
    pub(crate) expands: bool,
    /// A command reads what another one writes.
    pub(crate) pipes: bool,
}

impl ShellLine {
    pub(crate) fn read(text: &str) -> Self {
        let mut reader = LineReader {
            letters: text.chars().peekable(),
            line: Self::default(),
            word: String::new(),
            bracket: None,
        };
        while let Some(letter) = reader.letters.next() {
            reader.unquoted(letter);
        }
        reader.end_word();
        reader.line
    }
}

struct LineReader<'t> {
    letters: Peekable<Chars<'t>>,
    line: ShellLine,
    word: String,
    /// What would close a glob's `[` or a brace expansion's `{` that this word has opened.
    bracket: Option<char>,
}

impl LineReader<'_> {
    fn unquoted(&mut self, letter: char) {
        match letter {
            '\\' => match self.letters.next() {
                Some('\n') => {}
                Some(letter) => self.word.push(letter),
                None => self.line.expands = true,
            },
            '\'' => self.single_quoted(),
            '"' => self.double_quoted(),
            '$' => self.dollar(),
            '#' if self.word.is_empty() => while self.letters.next_if(|letter| *letter != '\n').is_some() {},
            '`' => {
                self.line.expands = true;
                self.end_word();
            }
            '(' => {
                // `f()` and bash's `@(a|b)`.
                self.line.expands |= !self.word.is_empty();
                self.end_word();
            }
            '|' => {
                self.end_word();
                self.line.pipes |= self.letters.next_if_eq(&'|').is_none();
            }
            '<' => {
                self.end_word();
                if self.letters.next_if_eq(&'<').is_some() {
                    // `<<<` is followed by an ordinary word.
                    self.line.expands |= self.letters.next_if_eq(&'<').is_none();
                }
            }
            letter if letter.is_whitespace() || ";&>)".contains(letter) => self.end_word(),
            letter => self.plain(letter),
        }
    }

    /// A letter that ends no word. Some make a pattern of it.
    fn plain(&mut self, letter: char) {
        match letter {
            '*' | '?' => self.line.expands = true,
            '~' => self.line.expands |= self.word.is_empty() || self.word.ends_with(['=', ':']),
            '[' => self.bracket = Some(']'),
            '{' => self.bracket = Some('}'),
            letter => self.line.expands |= self.bracket == Some(letter),
        }
        self.word.push(letter);
    }

    fn single_quoted(&mut self) {
        loop {
            match self.letters.next() {
                Some('\'') => return,
                Some(letter) => self.word.push(letter),
                None => return self.line.expands = true,
            }
        }
    }

    fn double_quoted(&mut self) {
        loop {
            match self.letters.next() {
                Some('"') => return,
                Some('\\') => match self.letters.next() {
                    Some('\n') => {}
                    Some(letter @ ('$' | '`' | '"' | '\\')) => self.word.push(letter),
                    Some(letter) => self.word.extend(['\\', letter]),
                    None => return self.line.expands = true,
                },
                Some(letter) => {
                    self.line.expands |= matches!(letter, '$' | '`');
                    self.word.push(letter);
                }
                None => return self.line.expands = true,
            }
        }
    }

    fn dollar(&mut self) {
        match self.letters.peek() {
            Some('\'') => {
                self.letters.next();
                self.ansi_quoted();
            }
            Some('"') => {
                self.letters.next();
                self.double_quoted();
            }
            Some(_) | None => {
                self.line.expands = true;
                self.word.push('$');
            }
        }
    }

    /// `$'…'`. A shell that doesn't know it takes the `$` for itself, so this reading is only one of two.
    fn ansi_quoted(&mut self) {
        self.line.expands = true;
        loop {
            match self.letters.next() {
                Some('\'') | None => return,
                Some('\\') => self.ansi_escape(),
                Some(letter) => self.word.push(letter),
            }
        }
    }

    fn ansi_escape(&mut self) {
        let Some(letter) = self.letters.next() else { return };
        let (digits_max, radix) = match letter {
            'n' => return self.word.push('\n'),
            't' => return self.word.push('\t'),
            'r' => return self.word.push('\r'),
            '\\' | '\'' | '"' | '?' => return self.word.push(letter),
            'x' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            '0'..='7' => (2, 8),
            // Control characters, which end no path.
            _other => return,
        };
        let mut number = if radix == 8 { letter.to_digit(8).unwrap_or(0) } else { 0 };
        for _ in 0..digits_max {
            let Some(digit) = self.letters.next_if(|letter| letter.is_digit(radix)) else { break };
            number = number.saturating_mul(radix).saturating_add(digit.to_digit(radix).unwrap_or(0));
        }
        self.word.extend(char::from_u32(number));
    }

    fn end_word(&mut self) {
        self.bracket = None;
        if !self.word.is_empty() {
            self.line.words.push(std::mem::take(&mut self.word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h3_every_quoting_form_is_taken_out() {
        for (text, word) in [
            ("sh dep''loy.sh", "deploy.sh"),
            ("sh \"dep\"'loy'.sh", "deploy.sh"),
            ("sh dep\\loy.sh", "deploy.sh"),
            ("sh dep\\\nloy.sh", "deploy.sh"),
            ("sh \"dep\\\nloy.sh\"", "deploy.sh"),
            ("sh 'my script.sh'", "my script.sh"),
            ("sh my\\ script.sh", "my script.sh"),
            ("sh $\"deploy.sh\"", "deploy.sh"),
            ("sh \"a\\b.sh\"", "a\\b.sh"),
            ("# don't\nsh dep''loy.sh", "deploy.sh"),
            ("a||sh deploy.sh", "deploy.sh"),
        ] {
            let line = ShellLine::read(text);
            assert!(line.words.iter().any(|one| one == word), "{text}: {:?}", line.words);
            assert!(!line.expands && !line.pipes, "{text}");
        }
        for text in ["sh $'\\x64eploy.sh'", "sh $'d\\145ploy.sh'", "sh $'d\\u0065ploy.sh'", "sh de$'ploy'.sh"]
        {
            let line = ShellLine::read(text);
            assert!(line.words.iter().any(|one| one == "deploy.sh"), "{text}: {:?}", line.words);
        }
    }

    #[test]
    fn h3_expansions_and_open_ends_are_reported() {
        for text in [
            "sh $X",
            "sh \"$X\"",
            "sh `cat name`",
            "sh $(cat name)",
            "sh *.sh",
            "sh d?ploy.sh",
            "sh [d]eploy.sh",
            "sh {a,b}.sh",
            "sh ~/x",
            "X=~/x",
            "cat <<END",
            "sh 'deploy.sh",
            "sh \"deploy.sh",
            "sh $'x'",
            "sh @(deploy).sh",
        ] {
            assert!(ShellLine::read(text).expands, "{text}");
        }
        for text in ["[ -f x ] && { sh deploy.sh; }", "sh 'a*b'", "git commit -m 'what? $5'", "a=b sh x~"] {
            assert!(!ShellLine::read(text).expands, "{text}");
        }
        assert!(ShellLine::read("a | sh").pipes && ShellLine::read("a |& sh").pipes);
    }
}
