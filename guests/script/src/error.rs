//! Errors in a source, with their position.

use std::fmt;

/// A source that can't run, or a run that ended with an uncaught error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError {
    /// What is wrong.
    pub message: String,
    /// Line and column from 1; `None` without a position.
    pub place: Option<(u32, u32)>,
    /// The source line.
    pub line: String,
    at: u32,
}

/// Maximum characters of a displayed source line.
const LINE_CHARS_MAX: usize = 120;

impl ScriptError {
    pub(crate) fn new(at: u32, message: impl Into<String>) -> Self {
        Self { message: message.into(), place: None, line: String::new(), at }
    }

    /// An error without a position.
    pub(crate) fn anywhere(message: impl Into<String>) -> Self {
        Self::new(u32::MAX, message)
    }

    /// Finds the line and column.
    pub(crate) fn in_source(mut self, source: &str) -> Self {
        let Some(before) = usize::try_from(self.at).ok().and_then(|at| source.get(..at)) else { return self };
        let start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
        let line = before.bytes().filter(|byte| *byte == b'\n').count().saturating_add(1);
        let column = before.get(start..).unwrap_or("").chars().count().saturating_add(1);
        self.place =
            Some((u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX)));
        let text = source.get(start..).and_then(|rest| rest.lines().next()).unwrap_or("");
        self.line = text.trim_end().chars().take(LINE_CHARS_MAX).collect();
        self
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some((line, column)) = self.place {
            write!(f, " at {line}:{column}\n  {line} | {}", self.line)?;
        }
        Ok(())
    }
}

impl std::error::Error for ScriptError {}
