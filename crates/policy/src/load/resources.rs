//! Parses conditions on a call's resources: paths, endpoints, programs.

use super::reader::{Fields, Reader};
use super::units;
use super::when::clause;
use crate::condition::{ArgvPart, ArgvPattern, Clause, Condition, EndpointTest, HostPattern, PathTest};
use crate::finding::SourceSpan;
use crate::glob::{NameGlob, PathSet};
use crate::tree::{Content, Node};

/// Adds the conditions on resources.
pub(super) fn read(reader: &mut Reader<'_>, fields: Fields<'_>, out: &mut Vec<Clause>) {
    if let Some(node) = fields.get("path").or(fields.get("access")) {
        let test = PathTest {
            globs: fields.get("path").map(|node| reader.path_globs(node)),
            access: fields.get("access").map(|node| reader.words(node, "access")),
        };
        let key = if fields.get("path").is_some() { "path" } else { "access" };
        out.push(clause(reader, key, node, Condition::Path(test)));
    }
    let endpoint = ["host", "scheme", "port", "method", "url_path"];
    if let Some((key, node)) = endpoint.into_iter().find_map(|key| Some((key, fields.get(key)?))) {
        let test = EndpointTest {
            schemes: fields.get("scheme").map(|node| plain_words(reader, node)),
            hosts: fields.get("host").map(|node| hosts(reader, node)),
            ports: fields.get("port").map(|node| ports(reader, node)),
            methods: fields.get("method").map(|node| plain_words(reader, node)),
            paths: fields.get("url_path").map(|node| url_paths(reader, node)),
        };
        out.push(clause(reader, key, node, Condition::Endpoint(test)));
    }
    if let Some(node) = fields.get("argv") {
        let patterns = argv_patterns(reader, node);
        out.push(clause(reader, "argv", node, Condition::Argv(patterns)));
    }
    if let Some(node) = fields.get("program") {
        let mut patterns = Vec::new();
        for (text, at) in reader.texts(node) {
            let programs = reader.expanded(text, at, NameGlob::new).into();
            patterns.push(ArgvPattern {
                is_path: text.contains('/'),
                programs,
                rest: Box::new([ArgvPart::Gap]),
            });
        }
        out.push(clause(reader, "program", node, Condition::Argv(patterns.into())));
    }
}

/// A condition on hosts, on methods, or on both.
pub(super) fn endpoint(reader: &mut Reader<'_>, host: Option<&Node>, method: Option<&Node>) -> Condition {
    Condition::Endpoint(EndpointTest {
        hosts: host.map(|node| hosts(reader, node)),
        methods: method.map(|node| plain_words(reader, node)),
        ..EndpointTest::default()
    })
}

fn plain_words(reader: &mut Reader<'_>, node: &Node) -> Box<[Box<str>]> {
    let mut words = Vec::new();
    for (text, at) in reader.texts(node) {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        {
            reader.findings.error(at, format!("`{text}` is not a plain word; patterns don't work here"));
        }
        words.push(Box::from(text));
    }
    words.into()
}

fn hosts(reader: &mut Reader<'_>, node: &Node) -> Box<[HostPattern]> {
    let mut hosts = Vec::new();
    for (text, at) in reader.texts(node) {
        let host = text.to_ascii_lowercase();
        let bare = host.strip_prefix("*.").unwrap_or(&host).trim_end_matches('.');
        let odd =
            |next: char| !(next.is_ascii_alphanumeric() || matches!(next, '.' | '-' | '_' | ':' | '[' | ']'));
        if host == "*" {
            hosts.push(HostPattern::Any);
        } else if bare.is_empty() || bare.contains(odd) || bare.starts_with('.') {
            let help = "use `example.com`, `*.example.com` or `*`; scheme, port and path have their own keys";
            reader.findings.error_with_help(at, format!("`{text}` is not a host pattern"), help);
        } else if host.starts_with("*.") {
            hosts.push(HostPattern::Below(bare.into()));
        } else {
            hosts.push(HostPattern::Exact(bare.into()));
        }
    }
    hosts.into()
}

fn ports(reader: &mut Reader<'_>, node: &Node) -> Box<[(u16, u16)]> {
    let mut ports = Vec::new();
    for item in reader.items(node) {
        let found = match &item.content {
            Content::Scalar { text, .. } => units::ports(text),
            Content::List(_) | Content::Map(_) => None,
        };
        match found {
            Some(range) => ports.push(range),
            None => reader.findings.error(item.at, "expected a port, such as `443` or `8000-8999`"),
        }
    }
    ports.into()
}

fn url_paths(reader: &mut Reader<'_>, node: &Node) -> PathSet {
    for (text, at) in reader.texts(node) {
        if !text.starts_with('/') {
            reader.findings.error(at, format!("`{text}`: a URL path starts with `/`"));
        }
    }
    reader.plain_path_globs(node)
}

/// One pattern (a list of texts) or several (a list of lists).
fn argv_patterns(reader: &mut Reader<'_>, node: &Node) -> Box<[ArgvPattern]> {
    let Content::List(items) = &node.content else {
        let help = "for example `[git, status, \"...\"]`";
        reader.findings.error_with_help(node.at, "expected a list: the program, then its arguments", help);
        return Box::default();
    };
    let nested = items.iter().any(|item| matches!(item.content, Content::List(_)));
    let patterns = if nested { items.as_slice() } else { std::slice::from_ref(node) };
    patterns.iter().filter_map(|pattern| argv_pattern(reader, pattern)).collect()
}

fn argv_pattern(reader: &mut Reader<'_>, node: &Node) -> Option<ArgvPattern> {
    let texts = reader.texts(node);
    let (&(program, at), rest) = texts.split_first()?;
    if program == "..." {
        reader.findings.error(at, "the first element must be the program");
        return None;
    }
    let programs = reader.expanded(program, at, NameGlob::new).into();
    let part = |(text, at): &(&str, SourceSpan)| match *text {
        "..." => ArgvPart::Gap,
        text => ArgvPart::One(reader.expanded(text, *at, NameGlob::new).into()),
    };
    Some(ArgvPattern { programs, is_path: program.contains('/'), rest: rest.iter().map(part).collect() })
}
