//! Parses YAML into a tree with positions, from the events of a streaming parser.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, ScalarStyle, options};

use super::{Content, DEPTH_MAX, Entry, NODES_MAX, Node, TEXT_BYTES_MAX};
use crate::finding::{Findings, SourceSpan, Span};

/// Parses one document. `None` if that fails; the findings state why.
pub(crate) fn parse(text: &str, findings: &mut Findings) -> Option<Node> {
    if text.len() > TEXT_BYTES_MAX {
        findings.error(
            SourceSpan { line: 1, column: 1, ..SourceSpan::default() },
            format!("the file is larger than {TEXT_BYTES_MAX} bytes"),
        );
        return None;
    }
    let options =
        options! { emit_comments: false, flow_nesting_limit: DEPTH_MAX, block_nesting_limit: DEPTH_MAX };
    let mut builder =
        Builder { findings, open: Vec::new(), anchors: HashMap::new(), root: None, documents: 0, nodes: 0 };
    for event in Parser::new_from_str_with_options(text, options) {
        match event {
            Ok((event, span)) => builder.event(event, place(&span))?,
            Err(error) => {
                let mark = error.marker();
                let at = mark.byte_offset().unwrap_or(text.len());
                let place = SourceSpan {
                    line: narrow(mark.line()),
                    column: narrow(mark.col() + 1),
                    span: Span { start: at, end: at },
                };
                builder.findings.error(place, format!("this is not YAML: {}", error.info()));
                return None;
            }
        }
    }
    match builder.root {
        Some(root) => Some(root),
        None => {
            findings.error(SourceSpan { line: 1, column: 1, ..SourceSpan::default() }, "the file is empty");
            None
        }
    }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn place(span: &granit_parser::Span) -> SourceSpan {
    // A node with a tag starts at its tag.
    let mark = span.tag_start().unwrap_or(span.start);
    let start = mark.byte_offset().unwrap_or(0);
    SourceSpan {
        line: narrow(mark.line()),
        column: narrow(mark.col() + 1),
        span: Span { start, end: span.end.byte_offset().unwrap_or(start) },
    }
}

struct Builder<'f> {
    findings: &'f mut Findings,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    root: Option<Node>,
    documents: u32,
    nodes: usize,
}

/// An open list or mapping.
struct Open {
    at: SourceSpan,
    anchor: usize,
    content: Unclosed,
}

enum Unclosed {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, keys: HashSet<String>, key: Option<(String, SourceSpan)> },
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, at: SourceSpan) -> Option<()> {
        if event.tag().is_some() {
            return self.stop(at, "tags (`!…`) are not used here");
        }
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return self.stop(at, "only one document is allowed in a file");
                }
                Some(())
            }
            Event::Scalar(text, style, anchor, _) => {
                let content = Content::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain };
                self.add(Node { content, at }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.start(at, anchor, Unclosed::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                self.start(at, anchor, Unclosed::Map { entries: Vec::new(), keys: HashSet::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(at),
            Event::Alias(id) => match self.anchors.get(&id).cloned() {
                // Errors in the copy are reported where the alias is.
                Some(copy) if self.open.len() + copy.depth() <= DEPTH_MAX => {
                    self.nodes += copy.size();
                    self.add(Node { at, ..copy }, 0)
                }
                Some(_) => self.stop(at, format!("the file is nested deeper than {DEPTH_MAX}")),
                None => self.stop(at, "this alias refers to something that contains it"),
            },
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Anchor(..) => Some(()),
            Event::UnresolvedAlias(_) => self.stop(at, "this alias is undefined"),
            // A future parser may emit new kinds of events; a policy that contains one is an error.
            _ => self.stop(at, "this kind of YAML is not supported"),
        }
    }

    fn stop(&mut self, at: SourceSpan, message: impl Into<String>) -> Option<()> {
        self.findings.error(at, message);
        None
    }

    fn start(&mut self, at: SourceSpan, anchor: usize, content: Unclosed) -> Option<()> {
        if self.open.len() >= DEPTH_MAX {
            return self.stop(at, format!("the file is nested deeper than {DEPTH_MAX}"));
        }
        if let Some(Open { content: Unclosed::Map { key: None, .. }, .. }) = self.open.last() {
            return self.stop(at, "a key must be plain text");
        }
        self.open.push(Open { at, anchor, content });
        Some(())
    }

    fn end(&mut self, end: SourceSpan) -> Option<()> {
        let Open { mut at, anchor, content } = self.open.pop()?;
        at.span.end = end.span.end.max(at.span.end);
        let content = match content {
            Unclosed::List(items) => Content::List(items),
            Unclosed::Map { entries, .. } => Content::Map(entries),
        };
        self.add(Node { content, at }, anchor)
    }

    /// Adds a finished node to its parent.
    fn add(&mut self, node: Node, anchor: usize) -> Option<()> {
        // Anchored nodes count twice, because a copy is kept.
        self.nodes += if anchor == 0 { 1 } else { node.size() };
        if self.nodes > NODES_MAX {
            return self.stop(
                node.at,
                format!("the file has more than {NODES_MAX} values, including those repeated by alias"),
            );
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Some(());
        };
        match &mut open.content {
            Unclosed::List(items) => items.push(node),
            Unclosed::Map { entries, keys, key } => match key.take() {
                Some((key, key_at)) => entries.push(Entry { key, key_at, value: node }),
                None => {
                    let Content::Scalar { text, .. } = node.content else {
                        return self.stop(node.at, "a key must be plain text");
                    };
                    if !keys.insert(text.clone()) {
                        self.findings.error(node.at, format!("duplicate key `{text}`"));
                    }
                    *key = Some((text, node.at));
                }
            },
        }
        Some(())
    }
}
