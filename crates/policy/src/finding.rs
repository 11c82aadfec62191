//! What is wrong with a file, and exactly where.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::verdict::Layer;

/// Maximum number of findings.
const FINDINGS_MAX: usize = 100;

/// Where a text comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// What to call it in messages, usually the file's path.
    pub name: String,
    /// Whose it is.
    pub layer: Layer,
    /// What it refers to: the texts of files beside it, by the names that it has for them. Part of the policy like the text itself.
    pub files: BTreeMap<String, String>,
}

impl Source {
    /// A source by name and layer.
    pub fn new(name: impl Into<String>, layer: Layer) -> Self {
        Self { name: name.into(), layer, files: BTreeMap::new() }
    }

    /// The same with files beside it.
    #[must_use]
    pub fn beside(self, files: BTreeMap<String, String>) -> Self {
        Self { files, ..self }
    }
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The file can't be used.
    Error,
    /// A likely mistake.
    Warning,
    /// Worth knowing.
    Note,
}

/// A range of bytes in a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// Behind the last byte.
    pub end: usize,
}

/// One thing that is wrong, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad.
    pub level: Level,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The bytes it is about.
    pub span: Span,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// A text that can't be used, with everything that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{source_name}` is invalid: {}", summary(findings))]
pub struct LoadError {
    /// What the text is called.
    pub source_name: String,
    /// All findings, in the order of the text.
    pub findings: Vec<Finding>,
}

fn summary(findings: &[Finding]) -> String {
    match findings {
        [] => "it has no errors".to_owned(),
        [only] => only.to_string(),
        [first, rest @ ..] => format!("{first}; and {} more", rest.len()),
    }
}

/// A place in a text: where it starts, for people, and its bytes, for tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SourceSpan {
    pub line: u32,
    pub column: u32,
    pub span: Span,
}

/// Collects findings while a file is read, so that all are reported at once.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    pub(crate) fn error(&mut self, at: SourceSpan, message: impl Into<String>) {
        self.push(at, message.into(), None);
    }

    pub(crate) fn error_with_help(
        &mut self,
        at: SourceSpan,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(at, message.into(), Some(help.into()));
    }

    fn push(&mut self, at: SourceSpan, message: String, help: Option<String>) {
        if self.0.len() < FINDINGS_MAX {
            let SourceSpan { line, column, span } = at;
            self.0.push(Finding { level: Level::Error, line, column, span, message, help });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_error(mut self, source_name: &str) -> LoadError {
        self.0.sort_by_key(|finding| (finding.line, finding.column));
        LoadError { source_name: source_name.to_owned(), findings: self.0 }
    }
}

/// The most likely intended known word: one slip away if it is short, two if it is longer.
pub fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let letters = word.chars().count();
    if letters > 64 {
        return None;
    }
    let slips_max = if letters <= 4 { 1 } else { 2 };
    let word = word.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(slips, _)| *slips <= slips_max)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// `one of a, b, c`, and what was probably meant.
pub(crate) fn choices(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("one of {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood() {
        let known = ["effect", "match", "unless", "tool"];
        let cases = [
            ("efect", Some("effect")),
            ("Match", Some("match")),
            ("unles", Some("unless")),
            ("tolo", Some("tool")),
            ("xyz", None),
            ("", None),
        ];
        for (word, meant) in cases {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(65), [&*"x".repeat(64)]), None, "nobody slips in so long a word");
    }
}
