//! Globs for names and paths, matched in bounded time without allocation.
//!
//! In a name (`fs.*`, `research-??`), `*` matches any characters. In a path, `*`, `?` and `[…]` stay within one component, and `**`, alone
//! between slashes, matches any number of components, including none: `src/**` matches `src` too, so that a rule about a folder's content
//! also covers the folder. A relative pattern never matches an absolute path, and neither matches the agents' own file system (`vfs:/…`).
//! The component `${agent}` stands for the caller's name.
//!
//! In path patterns, `@name` stands for a set of guarded files (`regent_guard`), and `/@name` for the same set outside the workspace. Sets
//! match folded names: `@control-files` matches `.GIT/hooks/x` too.

mod braces;
mod pattern;
mod set;

use std::fmt;

pub(crate) use braces::expand;
pub use pattern::PathPattern;
pub(crate) use set::{Guarded, PathSet};

/// Maximum length of a pattern.
pub(crate) const PATTERN_BYTES_MAX: usize = 1024;
/// Maximum patterns from expanding `{a,b}` groups.
const ALTERNATIVES_MAX: usize = 64;
/// The scheme of the agents' own file system.
const VFS: &str = "vfs:";
/// The caller's name in a path pattern.
const SELF: &str = "${agent}";

/// Why a pattern is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum GlobError {
    #[error("the pattern is empty")]
    Empty,
    #[error("the pattern is longer than {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    #[error("`[` is never closed")]
    OpenClass,
    #[error("the range `{0}-{1}` is reversed")]
    Range(char, char),
    #[error("`{{` is never closed, or `}}` never opened")]
    OpenBrace,
    #[error("the braces expand to more than {ALTERNATIVES_MAX} patterns")]
    TooMany,
    #[error("a path pattern can't contain `.` or `..` components, empty ones or a trailing `/`")]
    Dots,
    #[error("`**` must stand alone between slashes")]
    Stars,
    #[error("`~` is not expanded: policy sees resolved paths")]
    Home,
    #[error("`\\` at the end escapes nothing")]
    Escape,
}

/// A glob over unstructured text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameGlob(Box<[Token]>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// Exactly this text.
    Literal(Box<str>),
    /// Any run of characters.
    Run,
    /// Any one character.
    One,
    /// One character in, or not in, these ranges.
    Class { negated: bool, ranges: Box<[(char, char)]> },
}

impl NameGlob {
    /// Compiles a pattern whose `{a,b}` groups are already expanded.
    pub(crate) fn new(pattern: &str) -> Result<Self, GlobError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(GlobError::TooLong);
        }
        let mut tokens = Vec::new();
        let mut literal = String::new();
        let mut rest = pattern.chars();
        while let Some(next) = rest.next() {
            let token = match next {
                '*' => Token::Run,
                '?' => Token::One,
                '[' => class(&mut rest)?,
                '\\' => {
                    literal.push(rest.next().ok_or(GlobError::Escape)?);
                    continue;
                }
                other => {
                    literal.push(other);
                    continue;
                }
            };
            if !literal.is_empty() {
                tokens.push(Token::Literal(std::mem::take(&mut literal).into()));
            }
            if token != Token::Run || tokens.last() != Some(&Token::Run) {
                tokens.push(token);
            }
        }
        if !literal.is_empty() {
            tokens.push(Token::Literal(literal.into()));
        }
        Ok(Self(tokens.into()))
    }

    /// The text, if the pattern matches only one.
    pub(crate) fn exact(&self) -> Option<&str> {
        match &*self.0 {
            [] => Some(""),
            [Token::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// The common prefix of all matches.
    pub(crate) fn prefix(&self) -> &str {
        match self.0.first() {
            Some(Token::Literal(text)) => text,
            Some(Token::Run | Token::One | Token::Class { .. }) | None => "",
        }
    }

    /// The common suffix of all matches, if the pattern is `*` and a literal.
    pub(crate) fn suffix(&self) -> Option<&str> {
        match &*self.0 {
            [Token::Run, Token::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether every text matches.
    pub(crate) fn matches_all(&self) -> bool {
        matches!(&*self.0, [Token::Run])
    }

    /// A text that matches.
    pub(crate) fn sample(&self) -> String {
        self.0
            .iter()
            .map(|token| match token {
                Token::Literal(literal) => literal.to_string(),
                Token::Run | Token::One => "x".to_owned(),
                Token::Class { negated: false, ranges } => {
                    ranges.first().map_or_else(String::new, |(from, _)| from.to_string())
                }
                Token::Class { negated: true, ranges } => {
                    let fits = |next: &char| !ranges.iter().any(|(from, to)| (*from..=*to).contains(next));
                    ('a'..='z').chain('0'..='9').find(fits).map_or_else(String::new, String::from)
                }
            })
            .collect()
    }

    /// Backtracks only to the last run, so time is at most the product of both lengths.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let (mut tokens, mut rest) = (&*self.0, text);
        let mut retry: Option<(&[Token], &str)> = None;
        loop {
            match tokens.split_first() {
                Some((Token::Run, after)) => {
                    if after.is_empty() {
                        return true;
                    }
                    retry = Some((after, rest));
                    tokens = after;
                    continue;
                }
                Some((token, after)) => {
                    if let Some(left) = token.take(rest) {
                        (tokens, rest) = (after, left);
                        continue;
                    }
                }
                None if rest.is_empty() => return true,
                None => {}
            }
            // On a mismatch, the last run takes one more character.
            let Some((after, from)) = retry else { return false };
            let mut shorter = from.chars();
            if shorter.next().is_none() {
                return false;
            }
            retry = Some((after, shorter.as_str()));
            (tokens, rest) = (after, shorter.as_str());
        }
    }
}

impl Token {
    /// The rest of the text after this token's part.
    fn take<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Self::Literal(literal) => text.strip_prefix(&**literal),
            Self::Run => Some(text),
            Self::One => {
                let mut chars = text.chars();
                chars.next()?;
                Some(chars.as_str())
            }
            Self::Class { negated, ranges } => {
                let mut chars = text.chars();
                let first = chars.next()?;
                let inside = ranges.iter().any(|(from, to)| (*from..=*to).contains(&first));
                (inside != *negated).then_some(chars.as_str())
            }
        }
    }
}

/// Parses a character class after its `[`.
fn class(rest: &mut std::str::Chars<'_>) -> Result<Token, GlobError> {
    let mut ranges = Vec::new();
    let mut negated = false;
    let mut first = true;
    loop {
        let mut from = rest.next().ok_or(GlobError::OpenClass)?;
        if first && (from == '!' || from == '^') && !negated {
            negated = true;
            continue;
        }
        // As in shells, a leading `]` is a member of the class.
        if from == ']' && !first {
            return Ok(Token::Class { negated, ranges: ranges.into() });
        }
        first = false;
        if from == '\\' {
            from = rest.next().ok_or(GlobError::Escape)?;
        }
        let mut ahead = rest.clone();
        let to = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(to)) if to != ']' => {
                *rest = ahead;
                to
            }
            _ => from,
        };
        if to < from {
            return Err(GlobError::Range(from, to));
        }
        ranges.push((from, to));
    }
}

/// A glob over `/`-separated paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathGlob {
    root: Root,
    parts: Box<[Part]>,
}

/// The tree of a path. Patterns match only within their own tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    /// Inside the workspace.
    Relative,
    /// Outside the workspace.
    Absolute,
    /// The agents' own file system.
    Vfs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Any number of components.
    Depth,
    /// The caller's name.
    Caller,
    /// One component.
    One(NameGlob),
}

/// Splits a path into its tree and the part below the root.
pub(crate) fn rooted(path: &str) -> (Root, &str) {
    if let Some(rest) = path.strip_prefix(VFS) {
        return (Root::Vfs, rest.strip_prefix('/').unwrap_or(rest));
    }
    match path.strip_prefix('/') {
        Some(rest) => (Root::Absolute, rest),
        None => (Root::Relative, if path == "." { "" } else { path }),
    }
}

impl PathGlob {
    /// Compiles a pattern whose `{a,b}` groups are already expanded.
    pub(crate) fn new(pattern: &str) -> Result<Self, GlobError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(GlobError::TooLong);
        }
        if pattern.is_empty() {
            return Err(GlobError::Empty);
        }
        if pattern.starts_with('~') {
            return Err(GlobError::Home);
        }
        let (root, below) = rooted(pattern);
        let mut parts = Vec::new();
        for part in below.split('/').filter(|_| !below.is_empty()) {
            match part {
                "**" if parts.last() == Some(&Part::Depth) => {}
                "**" => parts.push(Part::Depth),
                SELF => parts.push(Part::Caller),
                "" | "." | ".." => return Err(GlobError::Dots),
                other if other.contains("**") => return Err(GlobError::Stars),
                other => parts.push(Part::One(NameGlob::new(other)?)),
            }
        }
        Ok(Self { root, parts: parts.into() })
    }

    /// Whether every path of its tree matches.
    pub(crate) fn matches_all(&self) -> bool {
        matches!(&*self.parts, [Part::Depth])
    }

    /// A path that matches.
    pub(crate) fn sample(&self) -> String {
        let below = sample_of(&self.parts);
        match self.root {
            Root::Relative => below,
            Root::Absolute => format!("/{below}"),
            Root::Vfs => format!("{VFS}/{below}"),
        }
    }

    /// Whether it matches only one path.
    pub(crate) fn is_plain(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::One(glob) if glob.exact().is_some()))
    }

    /// Its tree.
    pub(crate) fn root(&self) -> Root {
        self.root
    }

    /// The literal leading components.
    pub(crate) fn literal_parts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map_while(|part| match part {
            Part::One(glob) => glob.exact(),
            Part::Depth | Part::Caller => None,
        })
    }

    /// The last component, if it is a name glob.
    pub(crate) fn last_part(&self) -> Option<&NameGlob> {
        match self.parts.last()? {
            Part::One(glob) => Some(glob),
            Part::Depth | Part::Caller => None,
        }
    }

    /// Matches a resolved path; `caller` replaces `${agent}`.
    pub(crate) fn matches(&self, path: &str, caller: &str) -> bool {
        let (root, below) = rooted(path);
        root == self.root && parts_match(&self.parts, below, caller)
    }

    /// Paths below `path` that match because `path` matches the pattern's beginning. A leading `**` doesn't count.
    pub(crate) fn examples_below(&self, path: &str, caller: &str) -> Vec<String> {
        let (root, below) = rooted(path);
        let splits = (1..self.parts.len()).filter_map(|at| self.parts.split_at_checked(at));
        let on_the_way = splits.filter(|(before, _)| {
            root == self.root && !matches!(before, [Part::Depth]) && parts_match(before, below, caller)
        });
        on_the_way.map(|(_, after)| format!("{path}/{}", sample_of(after))).collect()
    }
}

fn parts_match(parts: &[Part], below: &str, caller: &str) -> bool {
    gapped(
        parts,
        below.split('/').filter(|part| !part.is_empty()),
        |part| matches!(part, Part::Depth),
        |part, component| match part {
            Part::Depth => false,
            // A caller with an empty name, or with a slash in it, owns nothing.
            Part::Caller => !caller.is_empty() && component == caller,
            Part::One(glob) => glob.matches(component),
        },
    )
}

/// A path that matches these parts.
fn sample_of(parts: &[Part]) -> String {
    let name = |part: &Part| match part {
        Part::One(glob) => glob.sample(),
        Part::Depth => "some".to_owned(),
        Part::Caller => "agent".to_owned(),
    };
    parts.iter().map(name).collect::<Vec<_>>().join("/")
}

/// Matches a sequence against patterns with gaps of any length; backtracks only to the last gap.
pub(crate) fn gapped<P, I: Iterator + Clone>(
    patterns: &[P],
    items: I,
    is_gap: impl Fn(&P) -> bool,
    fits: impl Fn(&P, I::Item) -> bool,
) -> bool {
    let (mut patterns, mut rest) = (patterns, items);
    let mut retry: Option<(&[P], I)> = None;
    loop {
        match patterns.split_first() {
            Some((gap, after)) if is_gap(gap) => {
                if after.is_empty() {
                    return true;
                }
                retry = Some((after, rest.clone()));
                patterns = after;
                continue;
            }
            Some((pattern, after)) if rest.next().is_some_and(|item| fits(pattern, item)) => {
                patterns = after;
                continue;
            }
            None if rest.next().is_none() => return true,
            Some(_) | None => {}
        }
        let Some((after, from)) = &mut retry else { return false };
        if from.next().is_none() {
            return false;
        }
        (patterns, rest) = (after, from.clone());
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relative => "inside the workspace",
            Self::Absolute => "outside the workspace",
            Self::Vfs => "in the virtual file system",
        })
    }
}

#[cfg(test)]
mod tests;
