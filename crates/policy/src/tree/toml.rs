//! Parses TOML into the same tree.

use toml::de::{DeTable, DeValue};

use super::{Content, DEPTH_MAX, Entry, Node, TEXT_BYTES_MAX};
use crate::finding::{Findings, SourceSpan, Span};

/// Parses a document. `None` if that fails; the findings state why.
pub(crate) fn parse(text: &str, findings: &mut Findings) -> Option<Node> {
    let places = LineStarts::new(text);
    if text.len() > TEXT_BYTES_MAX {
        findings.error(places.span_of(0..0), format!("the file is larger than {TEXT_BYTES_MAX} bytes"));
        return None;
    }
    match DeTable::parse(text) {
        Ok(table) => {
            let at = places.span_of(table.span());
            places.table(table.get_ref(), at, 0, findings)
        }
        Err(error) => {
            let at = places.span_of(error.span().unwrap_or(0..0));
            findings
                .error(at, format!("this is not TOML: {}", error.message().trim_end().replace('\n', ", ")));
            None
        }
    }
}

/// Converts byte offsets to lines and columns.
struct LineStarts<'t> {
    text: &'t str,
    line_starts: Vec<usize>,
}

impl<'t> LineStarts<'t> {
    fn new(text: &'t str) -> Self {
        let starts = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { text, line_starts: std::iter::once(0).chain(starts).collect() }
    }

    fn span_of(&self, range: std::ops::Range<usize>) -> SourceSpan {
        let line = self.line_starts.partition_point(|start| *start <= range.start);
        let start = line.checked_sub(1).and_then(|at| self.line_starts.get(at)).copied().unwrap_or(0);
        let column = self.text.get(start..range.start).map_or(0, |before| before.chars().count()) + 1;
        SourceSpan {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
            span: Span { start: range.start, end: range.end },
        }
    }

    fn table(
        &self,
        table: &DeTable<'_>,
        at: SourceSpan,
        depth: usize,
        findings: &mut Findings,
    ) -> Option<Node> {
        let mut entries = Vec::new();
        for (key, value) in table {
            let key_at = self.span_of(key.span());
            let value = self.value(value.get_ref(), self.span_of(value.span()), depth + 1, findings)?;
            entries.push(Entry { key: key.get_ref().to_string(), key_at, value });
        }
        entries.sort_by_key(|entry| entry.key_at.span.start);
        Some(Node { content: Content::Map(entries), at })
    }

    fn value(
        &self,
        value: &DeValue<'_>,
        at: SourceSpan,
        depth: usize,
        findings: &mut Findings,
    ) -> Option<Node> {
        if depth > DEPTH_MAX {
            findings.error(at, format!("the file is nested deeper than {DEPTH_MAX}"));
            return None;
        }
        let scalar = |text: String, plain| Some(Node { content: Content::Scalar { text, plain }, at });
        match value {
            DeValue::String(text) => scalar(text.to_string(), false),
            DeValue::Integer(number) if number.radix() == 10 => scalar(number.as_str().to_owned(), true),
            DeValue::Integer(_) => {
                findings.error(at, "write the number in decimal");
                None
            }
            DeValue::Float(number) => scalar(number.as_str().to_owned(), true),
            DeValue::Boolean(value) => scalar(value.to_string(), true),
            DeValue::Datetime(_) => {
                findings.error(at, "a date has no meaning here");
                None
            }
            DeValue::Array(items) => {
                let items: Option<Vec<_>> = items
                    .iter()
                    .map(|item| self.value(item.get_ref(), self.span_of(item.span()), depth + 1, findings))
                    .collect();
                Some(Node { content: Content::List(items?), at })
            }
            DeValue::Table(table) => self.table(table, at, depth + 1, findings),
        }
    }
}
