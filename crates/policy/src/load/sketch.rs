//! A call described by a few keys, as in examples, test cases and `regent policy why`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::reader::{Fields, Reader};
use super::units;
use crate::facts::{ArgLabels, BudgetLeft, Caller, Facts, Rates, Resource, SessionFacts};
use crate::finding::LoadError;
use crate::handle::{SECRET_USE, each_secret};
use crate::history::Past;
use crate::tree::{Content, Node, parse_yaml};
use crate::verdict::Layer;
use crate::words::{Access, Class, Confidentiality, Integrity, Label, OPS, Tier};

const KEYS: &[&str] = &[
    "class",
    "agent",
    "roles",
    "trust",
    "op",
    "tool",
    "capabilities",
    "args",
    "path",
    "access",
    "url",
    "method",
    "argv",
    "command",
    "secret",
    "labels",
    "tier",
    "at",
    "utc_offset",
    "left",
    "session",
];
/// Monday, 5 January 2026, 12:00 UTC: the default time of a call.
const NOON_MS: i64 = 1_767_614_400_000;

/// A described call. Omitted parts get the defaults of the built-in tools: `{ tool: fs.write, path: a }` writes `a` inside the workspace,
/// for an agent of medium trust.
#[derive(Debug, Clone, PartialEq)]
pub struct CallSketch {
    class: Class,
    agent: String,
    roles: Vec<String>,
    trust: u16,
    op: String,
    tool: Option<String>,
    capabilities: Vec<String>,
    args: Value,
    labels: ArgLabels,
    paths: Vec<(String, Access)>,
    endpoint: Option<Endpoint>,
    argv: Option<Vec<String>>,
    secrets: Vec<String>,
    tier: Tier,
    now_ms: i64,
    utc_offset_min: i32,
    left: BudgetLeft,
    session: SessionFacts,
}

#[derive(Debug, Clone, PartialEq)]
struct Endpoint {
    scheme: String,
    host: String,
    port: u16,
    method: String,
    path: String,
}

impl CallSketch {
    /// Parses a sketch from YAML, e.g. `{ tool: fs.read, path: src/main.rs }`.
    pub fn parse(text: &str) -> Result<Self, LoadError> {
        let mut reader = Reader::new(text, Layer::User);
        let found = parse_yaml(text, &mut reader.findings).and_then(|node| sketch(&mut reader, &node));
        match found {
            Some(found) if reader.findings.is_empty() => Ok(found),
            Some(_) | None => Err(reader.findings.into_error("call")),
        }
    }

    /// Passes the call's facts to `ask`. All rates are unused.
    pub fn with_facts<R>(&self, ask: impl FnOnce(&Facts<'_>) -> R) -> R {
        let mut resources: Vec<Resource<'_>> =
            self.paths.iter().map(|(path, access)| Resource::Path { path, access: *access }).collect();
        if let Some(Endpoint { scheme, host, port, method, path }) = &self.endpoint {
            resources.push(Resource::Endpoint { scheme, host, port: *port, method, path });
        }
        if let Some(argv) = &self.argv {
            resources.push(Resource::Argv(argv));
        }
        resources.extend(self.secrets.iter().map(|name| Resource::Secret(name)));
        ask(&Facts {
            caller: Caller { class: self.class, agent: &self.agent, roles: &self.roles, trust: self.trust },
            op: &self.op,
            tool: self.tool.as_deref(),
            capabilities: &self.capabilities,
            args: &self.args,
            labels: &self.labels,
            resources: &resources,
            tier: self.tier,
            now_ms: self.now_ms,
            utc_offset_min: self.utc_offset_min,
            left: self.left,
            session: self.session,
            rates: Rates::All(0),
            past: Past::default(),
        })
    }
}

/// Defaults of the built-in tools.
fn habits(tool: &str) -> (Access, &'static [&'static str], Tier) {
    match tool {
        "fs.write" | "fs.edit" | "fs.append" | "fs.mkdir" => (Access::Write, &["file.write"], Tier::Host),
        "fs.copy" => (Access::Write, &["file.read", "file.write"], Tier::Host),
        "fs.move" => (Access::Write, &["file.delete", "file.read", "file.write"], Tier::Host),
        "fs.delete" => (Access::Delete, &["file.delete"], Tier::Host),
        "fs.list" => (Access::List, &["file.read"], Tier::Host),
        "fs.read" | "fs.search" | "fs.stat" => (Access::Read, &["file.read"], Tier::Host),
        "shell.exec" | "process.exec" => (Access::Execute, &["process.exec"], Tier::Process),
        "process.list" => (Access::Read, &["process.list"], Tier::Host),
        "process.kill" => (Access::Read, &["process.kill"], Tier::Host),
        "http.fetch" => (Access::Read, &["network.request"], Tier::Host),
        "vfs.write" | "vfs.mount" => (Access::Write, &[], Tier::Host),
        "vfs.list" => (Access::List, &[], Tier::Host),
        _ => (Access::Read, &[], Tier::Host),
    }
}

pub(crate) fn sketch(reader: &mut Reader<'_>, node: &Node) -> Option<CallSketch> {
    let fields = reader.fields(node, "a call", KEYS);
    let texts = |reader: &mut Reader<'_>, key: &str| -> Option<Vec<String>> {
        let node = fields.get(key)?;
        Some(reader.texts(node).into_iter().map(|(text, _)| text.to_owned()).collect())
    };
    let tool = fields.get("tool").and_then(|node| reader.text(node)).map(str::to_owned);
    let op = match (fields.get("op"), &tool) {
        (Some(node), _) => operation(reader, node)?,
        (None, Some(_)) => "tool.run".to_owned(),
        (None, None) => {
            reader.findings.error(node.at, "a call needs `tool` or `op`");
            return None;
        }
    };
    let (access, capabilities, tier) = habits(tool.as_deref().unwrap_or(&op));
    let given = fields.get("args").map(|node| reader.json(node));
    let touched = Touched::read(reader, fields, given.as_ref(), tool.as_deref());
    let access = fields.get("access").and_then(|node| reader.word(node, "access")).unwrap_or(access);
    let left = fields.get("left").map(|node| budget(reader, node)).unwrap_or_default();
    let session = fields.get("session").map(|node| session(reader, node)).unwrap_or_default();
    let args = given.unwrap_or_else(|| touched.as_args());
    let secrets = secrets(texts(reader, "secret").unwrap_or_default(), &args, tool.is_some());
    let mut capabilities = texts(reader, "capabilities")
        .unwrap_or_else(|| capabilities.iter().map(|name| (*name).to_owned()).collect());
    if !secrets.is_empty() && !capabilities.iter().any(|name| name == SECRET_USE) {
        capabilities.push(SECRET_USE.to_owned());
    }
    Some(CallSketch {
        class: fields.get("class").and_then(|node| reader.word(node, "class")).unwrap_or(Class::Agent),
        agent: fields.get("agent").and_then(|node| reader.text(node)).unwrap_or("agent").to_owned(),
        roles: texts(reader, "roles").unwrap_or_default(),
        trust: fields
            .get("trust")
            .and_then(|node| reader.whole(node, 0, 1000))
            .and_then(|trust| u16::try_from(trust).ok())
            .unwrap_or(500),
        op,
        capabilities,
        args,
        labels: fields.get("labels").map_or_else(|| ArgLabels::all(PLAIN), |node| labels(reader, node)),
        paths: touched.paths.into_iter().map(|path| (path, access)).collect(),
        endpoint: touched.endpoint,
        argv: touched.argv,
        secrets,
        tier: fields.get("tier").and_then(|node| reader.word(node, "tier")).unwrap_or(tier),
        now_ms: fields.get("at").and_then(|node| instant(reader, node)).unwrap_or(NOON_MS),
        utc_offset_min: fields
            .get("utc_offset")
            .and_then(|node| reader.text(node))
            .and_then(units::utc_offset_min)
            .unwrap_or(0),
        left,
        session,
        tool,
    })
}

/// The secrets of a call: the named ones, and those whose handles are in a tool's arguments.
fn secrets(mut named: Vec<String>, args: &Value, is_tool: bool) -> Vec<String> {
    if is_tool {
        each_secret(args, &mut |name| named.push(name.to_owned()));
    }
    named.sort_unstable();
    named.dedup();
    named
}

/// The resources of a call.
#[derive(Default)]
struct Touched {
    paths: Vec<String>,
    url: Option<String>,
    method: String,
    endpoint: Option<Endpoint>,
    argv: Option<Vec<String>>,
    command: Option<String>,
}

impl Touched {
    /// From the keys, or else from the arguments under the names of the built-in tools.
    fn read(reader: &mut Reader<'_>, fields: Fields<'_>, args: Option<&Value>, tool: Option<&str>) -> Self {
        let texts = |reader: &mut Reader<'_>, key: &str| -> Vec<String> {
            fields.get(key).map_or_else(Vec::new, |node| {
                reader.texts(node).into_iter().map(|(text, _)| text.to_owned()).collect()
            })
        };
        let argument =
            |name: &str| args.and_then(|args| args.get(name)).and_then(Value::as_str).map(str::to_owned);
        let mut paths = texts(reader, "path");
        if paths.is_empty() && tool.is_some_and(|tool| tool.starts_with("fs.")) {
            paths.extend(argument("path"));
        }
        let url = texts(reader, "url").pop().or_else(|| argument("url"));
        let method =
            texts(reader, "method").pop().or_else(|| argument("method")).unwrap_or_else(|| "GET".to_owned());
        let endpoint = url.as_deref().and_then(|url| {
            let found = endpoint(url, &method);
            if found.is_none() {
                reader.findings.error(fields.at, format!("`{url}` is not a URL with scheme and host"));
            }
            found
        });
        let command = texts(reader, "command").pop().or_else(|| argument("command"));
        let listed = args.and_then(|args| args.get("argv")).and_then(Value::as_array);
        let argv = match (fields.get("argv"), listed, &command) {
            (Some(_), _, _) => Some(texts(reader, "argv")),
            (None, Some(listed), _) => {
                Some(listed.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            }
            (None, None, Some(command)) => Some(vec!["/bin/sh".to_owned(), "-c".to_owned(), command.clone()]),
            (None, None, None) => None,
        };
        Self { paths, url, method, endpoint, argv, command }
    }

    fn as_args(&self) -> Value {
        if let Some(command) = &self.command {
            return json!({ "command": command });
        }
        if let Some(argv) = &self.argv {
            return json!({ "argv": argv });
        }
        if let Some(url) = &self.url {
            return json!({ "url": url, "method": self.method });
        }
        self.paths.first().map_or_else(|| json!({}), |path| json!({ "path": path }))
    }
}

fn operation(reader: &mut Reader<'_>, node: &Node) -> Option<String> {
    let text = reader.text(node)?;
    if !OPS.contains(&text) {
        let help = crate::finding::choices(text, OPS);
        reader.findings.error_with_help(node.at, format!("unknown operation `{text}`"), help);
    }
    Some(text.to_owned())
}

fn endpoint(url: &str, method: &str) -> Option<Endpoint> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    let default_port = match scheme {
        "https" => 443,
        "http" => 80,
        _ => 0,
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        Some(_) | None => (authority, default_port),
    };
    if host.is_empty() || host.contains('@') {
        return None;
    }
    let path = path.split(['?', '#']).next().unwrap_or_default();
    Some(Endpoint {
        scheme: scheme.to_owned(),
        host: host.to_ascii_lowercase(),
        port,
        method: method.to_owned(),
        path: if path.is_empty() { "/".to_owned() } else { path.to_owned() },
    })
}

/// Typed by a user, and public.
const PLAIN: Label = Label { integrity: Integrity::User, confidentiality: Confidentiality::Public };

fn labels(reader: &mut Reader<'_>, node: &Node) -> ArgLabels {
    let mut labels = ArgLabels { default: PLAIN, fields: BTreeMap::new() };
    for entry in reader.mapping(node, "`labels`").entries() {
        let fields = reader.fields(&entry.value, "a label", &["integrity", "confidentiality"]);
        let label = Label {
            integrity: fields
                .get("integrity")
                .and_then(|node| reader.word(node, "origin"))
                .unwrap_or(PLAIN.integrity),
            confidentiality: fields
                .get("confidentiality")
                .and_then(|node| reader.word(node, "confidentiality"))
                .unwrap_or(PLAIN.confidentiality),
        };
        match entry.key.as_str() {
            "*" => labels.default = label,
            pointer if pointer.starts_with('/') => {
                labels.fields.insert(pointer.to_owned(), label);
            }
            other => reader
                .findings
                .error(entry.key_at, format!("`{other}` is not an argument; use e.g. `/body` or `*`")),
        }
    }
    labels
}

fn budget(reader: &mut Reader<'_>, node: &Node) -> BudgetLeft {
    let keys = ["money_microusd", "tokens", "calls", "wall_ms", "bytes_out", "approvals"];
    let fields = reader.fields(node, "`left`", &keys);
    let mut amount = |key| fields.get(key).and_then(|node| reader.whole(node, 0, u64::MAX));
    BudgetLeft {
        money_microusd: amount("money_microusd"),
        tokens: amount("tokens"),
        calls: amount("calls"),
        wall_ms: amount("wall_ms"),
        bytes_out: amount("bytes_out"),
        approvals: amount("approvals"),
    }
}

fn session(reader: &mut Reader<'_>, node: &Node) -> SessionFacts {
    let keys = ["tool_calls", "tokens", "request_tokens", "confidence", "drift"];
    let fields = reader.fields(node, "`session`", &keys);
    let mut count = |key| fields.get(key).and_then(|node| reader.whole(node, 0, u64::MAX)).unwrap_or(0);
    let (tool_calls, tokens, request_tokens) =
        (count("tool_calls"), count("tokens"), count("request_tokens"));
    let mut share = |key| fields.get(key).and_then(|node| reader.share(node));
    SessionFacts {
        tool_calls: u32::try_from(tool_calls).unwrap_or(u32::MAX),
        tokens,
        request_tokens,
        confidence: share("confidence"),
        drift: share("drift"),
    }
}

/// `2026-01-05T10:00` in UTC, as milliseconds since the epoch.
fn instant(reader: &mut Reader<'_>, node: &Node) -> Option<i64> {
    let text = match &node.content {
        Content::Scalar { text, .. } => text.as_str(),
        Content::List(_) | Content::Map(_) => "",
    };
    let found = text.trim_end_matches('Z').split_once(['T', ' ']).and_then(|(date, time)| {
        let mut parts = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
        let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
        let minutes = i64::from(units::time_of_day_min(time)?);
        if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        // Days since the epoch, with years that start in March so that the leap day comes last.
        let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
        let days =
            365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
        Some((days * 1440 + minutes) * 60_000)
    });
    if found.is_none() {
        reader.findings.error(node.at, "expected a time in UTC, such as \"2026-01-05T10:00\"");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_parts_get_defaults() {
        let call = CallSketch::parse(
            "{ tool: http.fetch, url: 'https://API.example.com/v1?x=1', at: '2026-01-05T12:00' }",
        )
        .unwrap();
        call.with_facts(|facts| {
            assert_eq!(facts.op, "tool.run");
            assert_eq!(facts.now_ms, NOON_MS);
            assert_eq!(facts.capabilities, ["network.request"]);
            let endpoint = Resource::Endpoint {
                scheme: "https",
                host: "api.example.com",
                port: 443,
                method: "GET",
                path: "/v1",
            };
            assert_eq!(facts.resources, [endpoint]);
        });
        let call = CallSketch::parse("{ tool: fs.write, args: { path: a/b, content: x } }").unwrap();
        call.with_facts(|facts| {
            assert_eq!(facts.resources, [Resource::Path { path: "a/b", access: Access::Write }]);
        });
    }

    #[test]
    fn names_mistakes_in_a_sketch() {
        for text in [
            "{}",
            "{ tool: fs.read, paht: x }",
            "{ op: tool.rum }",
            "{ tool: x, url: 'nothing' }",
            "{ tool: x, at: never }",
        ] {
            assert!(CallSketch::parse(text).is_err(), "{text}");
        }
    }
}
