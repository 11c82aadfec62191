//! Regular expressions: JavaScript's syntax, translated for a linear-time matcher. Lookaround and backreferences, which such a matcher
//! can't support, are errors.

use std::rc::Rc;

use regex::{Captures, Regex as Matcher, RegexBuilder};

/// Maximum size of a compiled pattern.
const SIZE_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a pattern.
const PATTERN_BYTES_MAX: usize = 4096;

/// A pattern with its flags.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) source: Rc<str>,
    pub(crate) flags: Rc<str>,
    pub(crate) matcher: Matcher,
}

/// A pattern with its `lastIndex`.
#[derive(Debug)]
pub(crate) struct Regex {
    pub(crate) pattern: Rc<Pattern>,
    pub(crate) last_index: usize,
}

impl Pattern {
    pub(crate) fn new(source: &str, flags: &str) -> Result<Self, String> {
        if source.len() > PATTERN_BYTES_MAX {
            return Err(format!("the regular expression has more than {PATTERN_BYTES_MAX} bytes"));
        }
        let mut seen = String::new();
        for flag in flags.chars() {
            if !"dgimsuy".contains(flag) || seen.contains(flag) {
                return Err(format!("`{flag}` is not a flag of regular expressions, or is there twice"));
            }
            seen.push(flag);
        }
        let translated = Translation::of(source, flags)?;
        let matcher = RegexBuilder::new(&translated)
            .case_insensitive(flags.contains('i'))
            .multi_line(flags.contains('m'))
            .size_limit(SIZE_BYTES_MAX)
            .nest_limit(64)
            .build()
            .map_err(|error| told(&error.to_string()))?;
        let source = if source.is_empty() { "(?:)" } else { source };
        Ok(Self { source: source.into(), flags: flags.into(), matcher })
    }

    pub(crate) fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }

    /// The match at or after a byte; with the flag `y`, exactly there.
    pub(crate) fn find<'t>(&self, text: &'t str, from: usize) -> Option<Captures<'t>> {
        if from > text.len() {
            return None;
        }
        let found = self.matcher.captures_at(text, from)?;
        let elsewhere = found.get(0).is_none_or(|whole| whole.start() != from);
        if self.has('y') && elsewhere { None } else { Some(found) }
    }
}

/// The last line of the matcher's error describes the problem.
fn told(report: &str) -> String {
    let why = report.lines().last().unwrap_or(report);
    format!("the regular expression can't be used: {}", why.trim_start_matches("error: "))
}

struct Translation<'s> {
    rest: std::iter::Peekable<std::str::Chars<'s>>,
    out: String,
    ignores_case: bool,
    dot_all: bool,
}

const DIGIT: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str =
    r"\t\n\x0B\x0C\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}";

impl<'s> Translation<'s> {
    fn of(source: &'s str, flags: &str) -> Result<String, String> {
        let (ignores_case, dot_all) = (flags.contains('i'), flags.contains('s'));
        let mut translation =
            Self { rest: source.chars().peekable(), out: String::new(), ignores_case, dot_all };
        translation.pattern()?;
        Ok(translation.out)
    }

    fn pattern(&mut self) -> Result<(), String> {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '.' if self.dot_all => self.out.push_str("(?s:.)"),
                '.' => self.out.push_str(r"[^\n\r\x{2028}\x{2029}]"),
                '(' => self.group()?,
                '{' => self.braces(),
                '}' => self.out.push_str(r"\}"),
                ']' => self.out.push_str(r"\]"),
                other => self.out.push(other),
            }
        }
        Ok(())
    }

    fn group(&mut self) -> Result<(), String> {
        if self.rest.peek() != Some(&'?') {
            self.out.push('(');
            return Ok(());
        }
        self.rest.next();
        match self.rest.next() {
            Some(':') => self.out.push_str("(?:"),
            Some('=' | '!') => {
                return Err("looking ahead (`(?=`, `(?!`) is not supported in regular expressions".to_owned());
            }
            Some('<') if matches!(self.rest.peek(), Some('=' | '!')) => {
                return Err(
                    "looking behind (`(?<=`, `(?<!`) is not supported in regular expressions".to_owned()
                );
            }
            Some('<') => self.out.push_str("(?P<"),
            Some(_) | None => return Err("this group is not supported in regular expressions".to_owned()),
        }
        Ok(())
    }

    /// `{2,3}` is a quantifier; any other brace is literal.
    fn braces(&mut self) {
        let rest: String = self.rest.clone().take_while(|c| *c != '}').collect();
        let closed = self.rest.clone().any(|c| c == '}');
        let mut parts = rest.split(',');
        let number =
            |part: Option<&str>| part.is_none_or(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        let first = parts.next().unwrap_or("");
        let counts = closed
            && !first.is_empty()
            && number(Some(first))
            && number(parts.next())
            && parts.next().is_none();
        if !counts {
            self.out.push_str(r"\{");
            return;
        }
        self.out.push('{');
        for c in self.rest.by_ref() {
            self.out.push(c);
            if c == '}' {
                break;
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        let Some(c) = self.rest.next() else {
            return Err("the regular expression ends in the middle of an escape".to_owned());
        };
        match c {
            'd' => self.set(DIGIT, false),
            'D' => self.set(DIGIT, true),
            'w' => self.set(WORD, false),
            'W' => self.set(WORD, true),
            's' => self.set(SPACE, false),
            'S' => self.set(SPACE, true),
            'b' => self.out.push_str(r"(?-u:\b)"),
            'B' => self.out.push_str(r"(?-u:\B)"),
            '1'..='9' | 'k' => {
                return Err(
                    "referring back (`\\1`, `\\k<name>`) is not supported in regular expressions".to_owned()
                );
            }
            'p' | 'P' => self.property(c)?,
            other => {
                let literal = self.literal(other)?;
                self.push_literal(literal);
            }
        }
        Ok(())
    }

    fn set(&mut self, set: &str, not: bool) {
        // Even in case-insensitive mode, `\w` must not match the long s.
        let (open, close) = if self.ignores_case { ("(?-i:", ")") } else { ("", "") };
        let not = if not { "^" } else { "" };
        self.out.push_str(&format!("{open}[{not}{set}]{close}"));
    }

    /// `\p{L}`, with the property names of the matcher.
    fn property(&mut self, kind: char) -> Result<(), String> {
        if self.rest.next() != Some('{') {
            return Err("`\\p` needs a name in braces".to_owned());
        }
        let name: String = self.rest.by_ref().take_while(|c| *c != '}').collect();
        let name = name.rsplit('=').next().unwrap_or("");
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err("`\\p` needs a name in braces".to_owned());
        }
        self.out.push_str(&format!("\\{kind}{{{name}}}"));
        Ok(())
    }

    /// The character that an escape stands for.
    fn literal(&mut self, c: char) -> Result<char, String> {
        Ok(match c {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'v' => '\u{b}',
            'f' => '\u{c}',
            '0' => '\0',
            'c' => match self.rest.next() {
                Some(letter) if letter.is_ascii_alphabetic() => char::from(letter as u8 & 31),
                Some(_) | None => return Err("`\\c` needs a letter".to_owned()),
            },
            'x' => self.code(2)?,
            'u' if self.rest.peek() == Some(&'{') => {
                self.rest.next();
                let digits: String = self.rest.by_ref().take_while(|c| *c != '}').collect();
                let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                code.ok_or("`\\u{…}` names no character")?
            }
            'u' => self.unit()?,
            other => other,
        })
    }

    fn code(&mut self, digits: usize) -> Result<char, String> {
        let text: String = self.rest.by_ref().take(digits).collect();
        let code = (text.len() == digits).then(|| u32::from_str_radix(&text, 16).ok()).flatten();
        code.and_then(char::from_u32).ok_or_else(|| format!("`{text}` is no character's number"))
    }

    /// Four hex digits, or two escapes for a surrogate pair.
    fn unit(&mut self) -> Result<char, String> {
        let text: String = self.rest.by_ref().take(4).collect();
        let first = (text.len() == 4).then(|| u16::from_str_radix(&text, 16).ok()).flatten();
        let first = first.ok_or("`\\u` needs four hex digits")?;
        if let Some(c) = char::from_u32(u32::from(first)) {
            return Ok(c);
        }
        let next: String = self.rest.clone().take(6).collect();
        let second = next.strip_prefix("\\u").and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let pair = second.and_then(|second| char::decode_utf16([first, second]).next()).and_then(Result::ok);
        let Some(pair) = pair else {
            return Err("half of a surrogate pair can't be matched".to_owned());
        };
        self.rest.by_ref().take(6).for_each(drop);
        Ok(pair)
    }

    fn push_literal(&mut self, c: char) {
        if c.is_ascii_alphanumeric() || !c.is_ascii() {
            self.out.push(c);
        } else {
            self.out.push_str(&format!("\\x{:02x}", u32::from(c)));
        }
    }

    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.rest.peek() == Some(&'^') {
            self.rest.next();
            self.out.push('^');
        }
        let start = self.out.len();
        while let Some(c) = self.rest.next() {
            match c {
                ']' if self.out.len() == start => {
                    // `[]` matches nothing, `[^]` anything.
                    let all = self.out.ends_with('^');
                    self.out.truncate(start.saturating_sub(if all { 2 } else { 1 }));
                    self.out.push_str(if all { "(?s:.)" } else { r"[^\x{0}-\x{10ffff}]" });
                    return Ok(());
                }
                ']' => {
                    self.out.push(']');
                    return Ok(());
                }
                '\\' => self.class_escape()?,
                '-' if self.out.len() == start || self.rest.peek() == Some(&']') => self.out.push_str(r"\-"),
                '-' => self.out.push('-'),
                other => self.push_literal(other),
            }
        }
        Err("the `[` of the regular expression is never closed".to_owned())
    }

    fn class_escape(&mut self) -> Result<(), String> {
        let Some(c) = self.rest.next() else {
            return Err("the regular expression ends in the middle of an escape".to_owned());
        };
        match c {
            'd' => self.out.push_str(DIGIT),
            'w' => self.out.push_str(WORD),
            's' => self.out.push_str(SPACE),
            'D' => self.out.push_str(&format!("[^{DIGIT}]")),
            'W' => self.out.push_str(&format!("[^{WORD}]")),
            'S' => self.out.push_str(&format!("[^{SPACE}]")),
            'b' => self.out.push_str(r"\x08"),
            'p' | 'P' => self.property(c)?,
            '-' => self.out.push_str(r"\-"),
            other => {
                let literal = self.literal(other)?;
                self.push_literal(literal);
            }
        }
        Ok(())
    }
}
