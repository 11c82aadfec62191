//! Parses names, numbers, patterns and lists from a document tree, and reports errors at their position.

use regex::{Regex, RegexBuilder};
use serde_json::{Number, Value};

use crate::condition::Names;
use crate::finding::{Findings, SourceSpan, choices};
use crate::glob::{GlobError, Guarded, NameGlob, PathGlob, PathSet, expand};
use crate::tree::{Content, Entry, Node};
use crate::verdict::Layer;
use crate::words::Word;

/// Maximum length of a regular expression.
const REGEX_BYTES_MAX: usize = 2048;
/// Memory limits of one compiled regular expression, tried in ascending order. Every try is charged.
const REGEX_COMPILED_BYTES: [usize; 3] = [16 << 10, 64 << 10, 512 << 10];
/// Maximum memory of all tries of a file, which bounds its size and compile time.
const REGEX_TOTAL_BYTES_MAX: usize = 32 << 20;
/// Maximum length of a list.
const LIST_ITEMS_MAX: usize = 4096;

/// The state of parsing one file.
#[derive(Debug)]
pub(crate) struct Reader<'t> {
    pub text: &'t str,
    pub layer: Layer,
    pub findings: Findings,
    regex_bytes_left: usize,
}

/// The entries of a mapping with known keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'n> {
    entries: &'n [Entry],
    /// The mapping's position.
    pub at: SourceSpan,
}

impl<'n> Fields<'n> {
    pub(crate) fn get(&self, key: &str) -> Option<&'n Node> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    pub(crate) fn key_at(&self, key: &str) -> SourceSpan {
        self.entries.iter().find(|entry| entry.key == key).map_or(self.at, |entry| entry.key_at)
    }

    pub(crate) fn entries(&self) -> &'n [Entry] {
        self.entries
    }
}

impl<'t> Reader<'t> {
    pub(crate) fn new(text: &'t str, layer: Layer) -> Self {
        Self { text, layer, findings: Findings::default(), regex_bytes_left: REGEX_TOTAL_BYTES_MAX }
    }

    /// Parses a mapping with only these keys.
    pub(crate) fn fields<'n>(&mut self, node: &'n Node, what: &str, known: &[&str]) -> Fields<'n> {
        let fields = self.mapping(node, what);
        for entry in fields.entries {
            if !known.contains(&entry.key.as_str()) {
                let help = choices(&entry.key, known);
                self.findings.error_with_help(
                    entry.key_at,
                    format!("unknown key `{}` in {what}", entry.key),
                    help,
                );
            }
        }
        fields
    }

    /// Parses a mapping with any keys.
    pub(crate) fn mapping<'n>(&mut self, node: &'n Node, what: &str) -> Fields<'n> {
        let entries: &[Entry] = match &node.content {
            Content::Map(entries) => entries,
            Content::Scalar { .. } | Content::List(_) => {
                self.findings.error(node.at, format!("{what} must be a mapping, not {}", node.kind()));
                &[]
            }
        };
        Fields { entries, at: node.at }
    }

    /// A list, or a single value as a list of one.
    pub(crate) fn items<'n>(&mut self, node: &'n Node) -> &'n [Node] {
        match &node.content {
            Content::List(items) if items.is_empty() => {
                self.findings.error_with_help(
                    node.at,
                    "the list is empty",
                    "remove the key if it isn't needed",
                );
                &[]
            }
            Content::List(items) if items.len() > LIST_ITEMS_MAX => {
                self.findings.error(node.at, format!("the list has more than {LIST_ITEMS_MAX} items"));
                &[]
            }
            Content::List(items) => items,
            Content::Scalar { .. } | Content::Map(_) => std::slice::from_ref(node),
        }
    }

    pub(crate) fn text<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
        match &node.content {
            Content::Scalar { text, plain } if !plain || node.kind() == "a text" => Some(text),
            Content::Scalar { text, .. } if !text.is_empty() => {
                let message = format!("expected text, found {}", node.kind());
                self.findings.error_with_help(node.at, message, format!("quote it: \"{text}\""));
                None
            }
            Content::Scalar { .. } | Content::List(_) | Content::Map(_) => {
                self.findings.error(node.at, format!("expected text, found {}", node.kind()));
                None
            }
        }
    }

    /// Texts: one or a list.
    pub(crate) fn texts<'n>(&mut self, node: &'n Node) -> Vec<(&'n str, SourceSpan)> {
        self.items(node).iter().filter_map(|item| Some((self.text(item)?, item.at))).collect()
    }

    pub(crate) fn word<T: Word>(&mut self, node: &Node, what: &str) -> Option<T> {
        let text = self.text(node)?;
        let found = T::parse(text);
        if found.is_none() {
            let known: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
            self.findings.error_with_help(node.at, format!("unknown {what} `{text}`"), choices(text, &known));
        }
        found
    }

    pub(crate) fn words<T: Word>(&mut self, node: &Node, what: &str) -> Box<[T]> {
        self.items(node).iter().filter_map(|item| self.word(item, what)).collect()
    }

    pub(crate) fn boolean(&mut self, node: &Node) -> Option<bool> {
        match self.json(node) {
            Value::Bool(value) => Some(value),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.findings.error(node.at, format!("expected `true` or `false`, found {}", node.kind()));
                None
            }
        }
    }

    pub(crate) fn number(&mut self, node: &Node) -> Option<Number> {
        match self.json(node) {
            Value::Number(number) => Some(number),
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.findings.error(node.at, format!("expected a number, found {}", node.kind()));
                None
            }
        }
    }

    /// An integer within bounds.
    pub(crate) fn whole(&mut self, node: &Node, min: u64, max: u64) -> Option<u64> {
        let number = self.number(node)?;
        let found = number.as_u64().filter(|number| (min..=max).contains(number));
        if found.is_none() {
            self.findings.error(node.at, format!("expected a whole number from {min} to {max}"));
        }
        found
    }

    /// A number from 0 to 1.
    pub(crate) fn share(&mut self, node: &Node) -> Option<f64> {
        let number = self.number(node)?;
        let found = number.as_f64().filter(|number| (0.0..=1.0).contains(number));
        if found.is_none() {
            self.findings.error(node.at, "expected a number from 0 to 1");
        }
        found
    }

    pub(crate) fn json(&mut self, node: &Node) -> Value {
        node.to_json(&mut self.findings)
    }

    pub(crate) fn regex(&mut self, node: &Node) -> Option<Regex> {
        let text = self.text(node)?;
        self.compile(text, node.at, false)
    }

    /// Compiles within the file's remaining memory budget.
    pub(crate) fn compile(&mut self, pattern: &str, at: SourceSpan, ignore_case: bool) -> Option<Regex> {
        if pattern.len() > REGEX_BYTES_MAX {
            self.findings.error(at, format!("the regular expression is longer than {REGEX_BYTES_MAX} bytes"));
            return None;
        }
        for size in REGEX_COMPILED_BYTES {
            if size > self.regex_bytes_left {
                self.findings.error(at, "the regular expressions of this file are too large together");
                return None;
            }
            self.regex_bytes_left -= size;
            match RegexBuilder::new(pattern)
                .size_limit(size)
                .dfa_size_limit(size)
                .case_insensitive(ignore_case)
                .build()
            {
                Ok(regex) => return Some(regex),
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => {
                    let text = error.to_string();
                    let cause = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
                    self.findings.error(at, format!("`{pattern}` is not a regular expression: {cause}"));
                    return None;
                }
            }
        }
        self.findings.error(at, format!("the compiled `{pattern}` is too large"));
        None
    }

    /// Names and name globs.
    pub(crate) fn names(&mut self, node: &Node) -> Names {
        let mut globs = Vec::new();
        for (text, at) in self.texts(node) {
            if text.is_empty() {
                self.findings.error(at, "a name can't be empty");
            }
            globs.extend(self.expanded(text, at, NameGlob::new));
        }
        Names::new(globs)
    }

    /// Path globs, and named sets of guarded files.
    pub(crate) fn path_globs(&mut self, node: &Node) -> PathSet {
        let (mut globs, mut guards) = (Vec::new(), Vec::new());
        for (text, at) in self.texts(node) {
            match Guarded::parse(text) {
                Some(Ok(guard)) => guards.push(guard),
                Some(Err(name)) => {
                    let names: Vec<_> = regent_guard::GuardKind::ALL
                        .iter()
                        .map(|kind| format!("`@{}`", kind.name()))
                        .collect();
                    let help =
                        format!("the sets are {}; for a file of that name use `\\@{name}`", names.join(", "));
                    self.findings.error_with_help(at, format!("unknown set `@{name}`"), &help);
                }
                None => globs.extend(self.expanded(text, at, PathGlob::new)),
            }
        }
        PathSet::new(globs).with_guards(guards)
    }

    /// Path globs without named sets.
    pub(crate) fn plain_path_globs(&mut self, node: &Node) -> PathSet {
        let mut globs = Vec::new();
        for (text, at) in self.texts(node) {
            globs.extend(self.expanded(text, at, PathGlob::new));
        }
        PathSet::new(globs)
    }

    /// The expansion of a pattern with brace groups.
    pub(crate) fn expanded<G>(
        &mut self,
        text: &str,
        at: SourceSpan,
        make: fn(&str) -> Result<G, GlobError>,
    ) -> Vec<G> {
        let globs = expand(text).and_then(|patterns| patterns.iter().map(|pattern| make(pattern)).collect());
        globs.unwrap_or_else(|error| {
            let message = format!("`{text}` is not a pattern: {error}");
            match error {
                GlobError::Home => {
                    let help = "write the absolute path, e.g. `/home/*/.ssh/**`";
                    self.findings.error_with_help(at, message, help);
                }
                GlobError::Empty
                | GlobError::TooLong
                | GlobError::OpenClass
                | GlobError::Range(..)
                | GlobError::OpenBrace
                | GlobError::TooMany
                | GlobError::Dots
                | GlobError::Stars
                | GlobError::Escape => self.findings.error(at, message),
            }
            Vec::new()
        })
    }

    /// The source text of a node on one line, for explanations.
    pub(crate) fn source(&self, node: &Node) -> String {
        const SHOWN_CHARS_MAX: usize = 100;
        let slice = self.text.get(node.at.span.start..node.at.span.end).unwrap_or_default();
        let words: Vec<&str> =
            slice.lines().map(|line| line.split(" #").next().unwrap_or(line).trim()).collect();
        let line = words.join(" ");
        match line.trim_end().char_indices().nth(SHOWN_CHARS_MAX) {
            Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
            None => line.trim_end().to_owned(),
        }
    }
}
