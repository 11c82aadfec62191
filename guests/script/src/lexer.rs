//! Converts source text to tokens.
//!
//! The previous token decides whether `/` begins a regular expression. Template strings contain their own tokens.

use std::rc::Rc;

use crate::error::ScriptError;
use crate::text::{is_line_end, is_space};

/// Maximum size of a source.
pub(crate) const SOURCE_BYTES_MAX: usize = 1 << 20;
/// Maximum nesting of templates.
const TEMPLATE_DEPTH_MAX: u32 = 16;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    /// A name or a keyword; the parser knows which.
    Word(Rc<str>),
    /// `#name`.
    Private(Rc<str>),
    Num(f64),
    Str(Rc<str>),
    Template(Vec<Part>),
    Regex {
        body: Rc<str>,
        flags: Rc<str>,
    },
    Mark(&'static str),
    End,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    Text(Rc<str>),
    Code(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    /// Start offset in bytes.
    pub(crate) at: u32,
    /// Whether a line break precedes it.
    pub(crate) fresh: bool,
    /// For an opening bracket, the token that closes it.
    pub(crate) mate: u32,
}

/// Longest first.
const MARKS: &[&str] = &[
    ">>>=", "...", "===", "!==", "**=", "<<=", ">>=", ">>>", "&&=", "||=", "??=", "=>", "==", "!=", "<=",
    ">=", "&&", "||", "??", "?.", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<", ">>",
    "**", "{", "}", "(", ")", "[", "]", ";", ",", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "!", "~",
    "?", ":", "=", ".", "@",
];

/// An expression begins after these words, so `/` begins a regular expression.
const BEFORE_EXPRESSION: &[&str] = &[
    "return",
    "typeof",
    "case",
    "in",
    "of",
    "instanceof",
    "new",
    "delete",
    "void",
    "throw",
    "else",
    "do",
    "await",
];

pub(crate) fn lex(source: &str) -> Result<Vec<Token>, ScriptError> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(ScriptError::new(0, format!("the source has more than {SOURCE_BYTES_MAX} bytes")));
    }
    let mut lexer = Lexer { source, at: 0, fresh: true, depth: 0 };
    if source.starts_with("#!") {
        lexer.skip_line();
    }
    let tokens = lexer.tokens(false)?;
    Ok(tokens)
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    fresh: bool,
    depth: u32,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        self.source.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at = self.at.saturating_add(c.len_utf8());
        Some(c)
    }

    fn here(&self) -> u32 {
        u32::try_from(self.at).unwrap_or(u32::MAX)
    }

    fn wrong<T>(&self, at: u32, message: impl Into<String>) -> Result<T, ScriptError> {
        Err(ScriptError::new(at, message))
    }

    /// Tokens up to the end, or up to the `}` that closes a template's code.
    fn tokens(&mut self, in_template: bool) -> Result<Vec<Token>, ScriptError> {
        let mut tokens: Vec<Token> = Vec::new();
        let mut open: Vec<(usize, &'static str)> = Vec::new();
        loop {
            self.skip_space()?;
            let (at, fresh) = (self.here(), std::mem::take(&mut self.fresh));
            if in_template && open.is_empty() && self.rest().starts_with('}') {
                self.next();
                tokens.push(Token { kind: Kind::End, at, fresh, mate: 0 });
                return Ok(tokens);
            }
            let Some(first) = self.peek() else {
                if in_template {
                    return self.wrong(at, "the template string doesn't end");
                }
                if let Some((index, mark)) = open.last() {
                    let at = tokens.get(*index).map_or(at, |token| token.at);
                    return self.wrong(at, format!("this `{mark}` is never closed"));
                }
                tokens.push(Token { kind: Kind::End, at, fresh, mate: 0 });
                return Ok(tokens);
            };
            let kind = self.token(first, expression_may_begin(tokens.last()))?;
            if let Kind::Mark(mark) = kind {
                match mark {
                    "(" | "[" | "{" => open.push((tokens.len(), mark)),
                    ")" | "]" | "}" => {
                        let pair = matches!(
                            (open.last().map(|(_, mark)| *mark), mark),
                            (Some("("), ")") | (Some("["), "]") | (Some("{"), "}")
                        );
                        let Some((opener, _)) = open.pop().filter(|_| pair) else {
                            return self.wrong(at, format!("nothing is open that this `{mark}` could close"));
                        };
                        let mate = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
                        if let Some(token) = tokens.get_mut(opener) {
                            token.mate = mate;
                        }
                    }
                    _other => {}
                }
            }
            tokens.push(Token { kind, at, fresh, mate: 0 });
        }
    }

    fn skip_line(&mut self) {
        while let Some(c) = self.peek()
            && !is_line_end(c)
        {
            self.next();
        }
    }

    fn skip_space(&mut self) -> Result<(), ScriptError> {
        loop {
            match self.peek() {
                Some(c) if is_space(c) => {
                    self.fresh |= is_line_end(c);
                    self.next();
                }
                Some('/') if self.rest().starts_with("//") => self.skip_line(),
                Some('/') if self.rest().starts_with("/*") => {
                    let at = self.here();
                    let Some(length) = self.rest().find("*/") else {
                        return self.wrong(at, "the comment doesn't end");
                    };
                    let comment = self.rest().get(..length).unwrap_or("");
                    self.fresh |= comment.chars().any(is_line_end);
                    self.at = self.at.saturating_add(length).saturating_add(2);
                }
                Some(_) | None => return Ok(()),
            }
        }
    }

    fn token(&mut self, first: char, expression_may_begin: bool) -> Result<Kind, ScriptError> {
        let at = self.here();
        if is_name_start(first) || first == '\\' {
            return self.word().map(Kind::Word);
        }
        let second = self.rest().chars().nth(1);
        if first.is_ascii_digit() || (first == '.' && second.is_some_and(|c| c.is_ascii_digit())) {
            return self.number();
        }
        match first {
            '"' | '\'' => return self.string(first),
            '`' => return self.template(),
            '/' if expression_may_begin => return self.regex(),
            '#' if second.is_some_and(is_name_start) => {
                self.next();
                return self.word().map(Kind::Private);
            }
            _other => {}
        }
        // `a?.5:b` is a condition, not a chain.
        let chain_is_not =
            self.rest().starts_with("?.") && self.rest().chars().nth(2).is_some_and(|c| c.is_ascii_digit());
        let found =
            MARKS.iter().find(|mark| self.rest().starts_with(**mark) && !(chain_is_not && **mark == "?."));
        let Some(mark) = found else {
            return self.wrong(at, format!("`{}` means nothing here", first.escape_debug()));
        };
        self.at = self.at.saturating_add(mark.len());
        Ok(Kind::Mark(mark))
    }

    fn word(&mut self) -> Result<Rc<str>, ScriptError> {
        let (at, from) = (self.here(), self.at);
        while let Some(c) = self.peek() {
            if c == '\\' {
                return self.wrong(at, "escapes in names are not supported");
            }
            if !is_name_start(c) && !c.is_alphanumeric() && !matches!(c, '\u{200c}' | '\u{200d}') {
                break;
            }
            self.next();
        }
        Ok(self.source.get(from..self.at).unwrap_or("").into())
    }

    fn number(&mut self) -> Result<Kind, ScriptError> {
        let (at, from) = (self.here(), self.at);
        let radix = match self.rest().as_bytes() {
            [b'0', b'x' | b'X', ..] => 16,
            [b'0', b'o' | b'O', ..] => 8,
            [b'0', b'b' | b'B', ..] => 2,
            _other => 10,
        };
        if radix != 10 {
            self.at = self.at.saturating_add(2);
        }
        while let Some(c) = self.peek() {
            let exponent = radix == 10 && matches!(c, 'e' | 'E');
            if exponent {
                self.next();
                if matches!(self.peek(), Some('+' | '-')) {
                    self.next();
                }
            } else if c.is_ascii_alphanumeric() || c == '_' || (c == '.' && radix == 10) {
                self.next();
            } else {
                break;
            }
        }
        let text = self.source.get(from..self.at).unwrap_or("");
        let digits = text.replace('_', "");
        let value = if text.ends_with('n') && radix == 10 {
            return self.wrong(at, "big integers (`10n`) are not supported");
        } else if radix == 10 {
            let old_octal = digits.len() > 1 && digits.starts_with('0') && !digits.contains(['.', 'e', 'E']);
            if old_octal { None } else { digits.parse::<f64>().ok() }
        } else {
            digits.get(2..).filter(|digits| !digits.is_empty()).and_then(|digits| in_radix(digits, radix))
        };
        match value {
            Some(value) => Ok(Kind::Num(value)),
            None => self.wrong(at, format!("`{text}` is not a number")),
        }
    }

    fn string(&mut self, quote: char) -> Result<Kind, ScriptError> {
        let at = self.here();
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                Some(c) if c == quote => return Ok(Kind::Str(text.into())),
                Some('\\') => self.escape(&mut text)?,
                Some('\n' | '\r') | None => return self.wrong(at, "the string doesn't end on its line"),
                Some(c) => text.push(c),
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), ScriptError> {
        let at = self.here();
        match self.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('b') => text.push('\u{8}'),
            Some('f') => text.push('\u{c}'),
            Some('v') => text.push('\u{b}'),
            Some('0') if !self.peek().is_some_and(|c| c.is_ascii_digit()) => text.push('\0'),
            Some('\r') => {
                if self.peek() == Some('\n') {
                    self.next();
                }
            }
            Some('\n' | '\u{2028}' | '\u{2029}') => {}
            Some('x') => text.push(self.hex(2).and_then(char::from_u32).unwrap_or('\u{fffd}')),
            Some('u') => {
                let Some(first) = self.code_unit() else {
                    return self.wrong(at, "`\\u` needs four hex digits, or some in braces");
                };
                text.push(self.joined(first));
            }
            Some(c) if c.is_ascii_digit() => return self.wrong(at, "octal escapes are not supported"),
            Some(c) => text.push(c),
            None => return self.wrong(at, "the string doesn't end"),
        }
        Ok(())
    }

    /// Two escapes of a surrogate pair form one character.
    fn joined(&mut self, first: u32) -> char {
        if (0xd800..0xdc00).contains(&first) && self.rest().starts_with("\\u") {
            let before = self.at;
            self.at = self.at.saturating_add(2);
            if let Some(second @ 0xdc00..0xe000) = self.code_unit() {
                let pair = [first, second].map(|unit| u16::try_from(unit).unwrap_or(0xfffd));
                return char::decode_utf16(pair).next().and_then(Result::ok).unwrap_or('\u{fffd}');
            }
            self.at = before;
        }
        char::from_u32(first).unwrap_or('\u{fffd}')
    }

    fn code_unit(&mut self) -> Option<u32> {
        if self.peek() != Some('{') {
            return self.hex(4);
        }
        let length = self.rest().find('}')?;
        let digits = self.rest().get(1..length)?;
        let value = u32::from_str_radix(digits, 16).ok()?;
        self.at = self.at.saturating_add(length).saturating_add(1);
        Some(value)
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        let text = self.rest().get(..digits)?;
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let value = u32::from_str_radix(text, 16).ok()?;
        self.at = self.at.saturating_add(digits);
        Some(value)
    }

    fn template(&mut self) -> Result<Kind, ScriptError> {
        let at = self.here();
        self.depth = self.depth.saturating_add(1);
        if self.depth > TEMPLATE_DEPTH_MAX {
            return self.wrong(at, "template strings are nested too deeply");
        }
        self.next();
        let (mut parts, mut text) = (Vec::new(), String::new());
        loop {
            match self.next() {
                Some('`') => break,
                Some('\\') => self.escape(&mut text)?,
                Some('$') if self.peek() == Some('{') => {
                    self.next();
                    parts.push(Part::Text(std::mem::take(&mut text).into()));
                    parts.push(Part::Code(self.tokens(true)?));
                }
                Some('\r') => {
                    if self.peek() == Some('\n') {
                        self.next();
                    }
                    text.push('\n');
                }
                Some(c) => text.push(c),
                None => return self.wrong(at, "the template string doesn't end"),
            }
        }
        parts.push(Part::Text(text.into()));
        self.depth = self.depth.saturating_sub(1);
        Ok(Kind::Template(parts))
    }

    fn regex(&mut self) -> Result<Kind, ScriptError> {
        let at = self.here();
        self.next();
        let from = self.at;
        let mut in_class = false;
        let to = loop {
            let end = self.at;
            match self.next() {
                Some('\\') => {
                    self.next();
                }
                Some('[') => in_class = true,
                Some(']') => in_class = false,
                Some('/') if !in_class => break end,
                Some(c) if is_line_end(c) => {
                    return self.wrong(at, "the regular expression doesn't end on its line");
                }
                Some(_) => {}
                None => return self.wrong(at, "the regular expression doesn't end"),
            }
        };
        let flags_from = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric()) {
            self.next();
        }
        let body = self.source.get(from..to).unwrap_or("").into();
        let flags = self.source.get(flags_from..self.at).unwrap_or("").into();
        Ok(Kind::Regex { body, flags })
    }
}

fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_' || c == '$'
}

fn expression_may_begin(before: Option<&Token>) -> bool {
    match before.map(|token| &token.kind) {
        None => true,
        Some(Kind::Mark(mark)) => !matches!(*mark, ")" | "]" | "}" | "++" | "--"),
        Some(Kind::Word(word)) => BEFORE_EXPRESSION.contains(&word.as_ref()),
        Some(
            Kind::Private(_)
            | Kind::Num(_)
            | Kind::Str(_)
            | Kind::Template(_)
            | Kind::Regex { .. }
            | Kind::End,
        ) => false,
    }
}

/// A number in a radix up to 36; `None` if a digit is invalid.
pub(crate) fn in_radix(digits: &str, radix: u32) -> Option<f64> {
    digits.chars().try_fold(0.0_f64, |value, c| {
        c.to_digit(radix).map(|digit| value * f64::from(radix) + f64::from(digit))
    })
}
