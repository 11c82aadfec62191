//! One reading of a shell line: its words with every quote taken out, and whether the shell makes further words at run time.
//!
//! POSIX quoting and that of bash (`$'…'`, `$"…"`). A reading that is wrong by a word too many costs a failed lookup. What this can't
//! resolve (expansions, process substitutions, here-documents, quotes without an end, a file that one command writes and another may
//! run) is reported, never guessed.

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
    /// The words of each command, without what they redirect.
    pub(crate) commands: Vec<Vec<String>>,
    /// A command has variables or a keyword before it.
    pub(crate) is_prefixed: bool,
    /// The output of a command goes to a file.
    pub(crate) writes: bool,
}

/// Words that a command can follow.
const KEYWORDS: &[&str] =
    &["!", "{", "coproc", "do", "elif", "else", "exec", "if", "then", "time", "until", "while"];

impl ShellLine {
    pub(crate) fn read(text: &str) -> Self {
        let mut reader = LineReader {
            letters: text.chars().peekable(),
            line: Self::default(),
            word: String::new(),
            in_word: false,
            in_bracket: false,
            in_brace: false,
            redirects: None,
            in_command: false,
        };
        while let Some(letter) = reader.letters.next() {
            reader.unquoted(letter);
        }
        reader.end_word();
        reader.line
    }

    /// Whether it can run files whose names aren't among its words: the shell makes names, or one command can write what another runs.
    pub(crate) fn is_open(&self) -> bool {
        self.expands || (self.writes && self.commands.len() > 1)
    }
}

/// What the next word is the target of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Redirect {
    Input,
    Output,
    /// `>&1`
    Descriptor,
}

struct LineReader<'t> {
    letters: Peekable<Chars<'t>>,
    line: ShellLine,
    word: String,
    /// A word has begun. It may be empty so far (`''`).
    in_word: bool,
    /// The word has a `[` or a `{` that its other half makes a pattern. Either may stand within the other.
    in_bracket: bool,
    in_brace: bool,
    redirects: Option<Redirect>,
    /// The command's first word is over.
    in_command: bool,
}

impl LineReader<'_> {
    fn unquoted(&mut self, letter: char) {
        match letter {
            '\\' => match self.letters.next() {
                Some('\n') => {}
                Some(letter) => self.push(letter),
                None => self.line.expands = true,
            },
            '\'' => self.single_quoted(),
            '"' => self.double_quoted(),
            '$' => self.dollar(),
            '#' if !self.in_word => while self.letters.next_if(|letter| *letter != '\n').is_some() {},
            '`' => {
                self.line.expands = true;
                self.end_command();
            }
            '(' => {
                // `f()` and bash's `@(a|b)`.
                self.line.expands |= self.in_word;
                self.end_command();
            }
            // `>|`
            '|' if self.redirects == Some(Redirect::Output) && !self.in_word => {}
            '|' => {
                self.end_command();
                self.line.pipes |= self.letters.next_if_eq(&'|').is_none();
            }
            '<' | '>' => self.redirect(letter),
            '&' if self.redirects.is_some() && !self.in_word => self.redirects = Some(Redirect::Descriptor),
            // `&>`
            '&' if self.letters.peek() == Some(&'>') => self.end_word(),
            ';' | '&' | ')' | '\n' => self.end_command(),
            // Shells split at no other blanks, so those are part of a name.
            ' ' | '\t' => self.end_word(),
            letter => self.plain(letter),
        }
    }

    fn redirect(&mut self, letter: char) {
        // `2>`: a descriptor, though with quotes it would be a word.
        if self.in_word && !self.word.is_empty() && self.word.bytes().all(|byte| byte.is_ascii_digit()) {
            self.in_word = false;
            self.line.words.push(std::mem::take(&mut self.word));
        }
        self.end_word();
        let is_twice = self.letters.next_if_eq(&letter).is_some();
        if letter == '<' && is_twice {
            // `<<<` is followed by an ordinary word.
            self.line.expands |= self.letters.next_if_eq(&'<').is_none();
        }
        let is_both = letter == '<' && self.letters.next_if_eq(&'>').is_some();
        // `<(…)` and `>(…)` become a name.
        self.line.expands |= self.letters.peek() == Some(&'(');
        let is_output = letter == '>' || is_both;
        self.redirects = Some(if is_output { Redirect::Output } else { Redirect::Input });
    }

    /// A letter that ends no word. Some make a pattern of it.
    fn plain(&mut self, letter: char) {
        match letter {
            '*' | '?' => self.line.expands = true,
            '~' => self.line.expands |= self.word.is_empty() || self.word.ends_with(['=', ':']),
            '[' => self.in_bracket = true,
            '{' => self.in_brace = true,
            ']' => self.line.expands |= self.in_bracket,
            '}' => self.line.expands |= self.in_brace,
            _letter => {}
        }
        self.push(letter);
    }

    fn push(&mut self, letter: char) {
        self.in_word = true;
        self.word.push(letter);
    }

    fn single_quoted(&mut self) {
        self.in_word = true;
        loop {
            match self.letters.next() {
                Some('\'') => return,
                Some(letter) => self.word.push(letter),
                None => return self.line.expands = true,
            }
        }
    }

    fn double_quoted(&mut self) {
        self.in_word = true;
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
        self.in_word = true;
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
        if !std::mem::take(&mut self.in_word) {
            return;
        }
        (self.in_bracket, self.in_brace) = (false, false);
        let word = std::mem::take(&mut self.word);
        match self.redirects.take() {
            Some(Redirect::Input) => {}
            Some(Redirect::Output) => self.line.writes |= word != "/dev/null",
            Some(Redirect::Descriptor) => {
                self.line.writes |= !word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
            }
            None if self.in_command => {
                if let Some(command) = self.line.commands.last_mut() {
                    command.push(word.clone());
                }
            }
            None if is_assignment(&word) || KEYWORDS.contains(&word.as_str()) => self.line.is_prefixed = true,
            None => {
                self.in_command = true;
                self.line.commands.push(vec![word.clone()]);
            }
        }
        if !word.is_empty() {
            self.line.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        (self.redirects, self.in_command) = (None, false);
    }
}

/// `NAME=…`
pub(crate) fn is_assignment(word: &str) -> bool {
    let is_name = |name: &str| {
        !name.starts_with(|letter: char| letter.is_ascii_digit())
            && !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    word.split_once('=').is_some_and(|(name, _)| is_name(name.trim_end_matches('+')))
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
            "bash <(printf x)",
            "printf x > >(bash)",
            "sh {deploy,x[}.sh",
            "sh [{d]eploy.sh",
            "true ''#; . ./dep*",
            "true \u{a0}#; . ./dep*",
        ] {
            assert!(ShellLine::read(text).expands, "{text}");
        }
        for text in ["[ -f x ] && { sh deploy.sh; }", "sh 'a*b'", "git commit -m 'what? $5'", "a=b sh x~"] {
            assert!(!ShellLine::read(text).expands, "{text}");
        }
        assert!(ShellLine::read("a | sh").pipes && ShellLine::read("a |& sh").pipes);
    }

    #[test]
    fn h3_a_file_that_a_line_writes_and_may_run_is_reported() {
        for text in
            ["printf x > f; sh f", "printf x >| f && sh f", "(printf x >> f); . ./f", "sh f & id &> f"]
        {
            assert!(ShellLine::read(text).is_open(), "{text}");
        }
        for text in ["make > log", "a > /dev/null 2>&1; sh b", "a < in; b 2>&1", "X=1 sh b > log"] {
            assert!(!ShellLine::read(text).is_open(), "{text}");
        }
        let line = ShellLine::read("A=1 sh x; if . ./y; then z 2>&1 | w; fi # v");
        let words: Vec<String> = line.commands.iter().map(|command| command.join(" ")).collect();
        assert_eq!(words, ["sh x", ". ./y", "z", "w", "fi"]);
    }

    #[test]
    fn h3_words_are_split_where_a_shell_splits_them() {
        let line = ShellLine::read("sh my\u{a0}script''.sh ''#x");
        assert_eq!(line.words, ["sh", "my\u{a0}script.sh", "#x"]);
    }
}
