//! What the arguments of a tool that a host performs may reach for. Nobody has declared which of them are paths or addresses, so every text
//! that could be one is shown to policy as one: rules that deny or ask about paths and hosts hold for these tools too.

use regent_policy::Access;
use regent_workspace::Workspace;
use serde_json::Value;
use url::Host;

use super::{Sheet, Target};
use crate::catalogue::{ArgumentKind, SideEffect, Tool};
use crate::{endpoint, rules};

/// Linux takes no longer path.
const PATH_BYTES_MAX: usize = 4_095;
/// Texts of one call that are looked at. A call with more is refused.
const TEXTS_MAX: usize = 4_096;

impl Sheet {
    pub(super) fn mention(&mut self, workspace: &Workspace, tool: &Tool) {
        let method = self.args.get("method").and_then(Value::as_str).unwrap_or("GET").to_ascii_uppercase();
        // What it does to a file isn't declared either, unless it only reads.
        let accesses: &[Access] = match tool.spec().effect {
            SideEffect::None | SideEffect::Read => &[Access::Read],
            SideEffect::Write | SideEffect::Delete | SideEffect::Network => &[Access::Read, Access::Write],
        };
        for (name, value) in self.args.as_object().into_iter().flatten() {
            let programs = [ArgumentKind::Argv, ArgumentKind::Shell].map(|kind| Target::program(kind, value));
            self.mentioned.extend(programs.into_iter().flatten().filter(|_| names_program(name)));
        }
        let texts = texts_of(&self.args);
        if texts.len() > TEXTS_MAX {
            let message = format!("the arguments have more than {TEXTS_MAX} texts, too many to judge");
            self.refuse("args.too_large", message, "split it into several calls");
            return;
        }
        for (name, text) in texts {
            if let Some((path, is_file_url)) = path_of(&text) {
                self.mention_path(workspace, path, accesses);
                if is_file_url {
                    continue;
                }
            }
            if let Some(endpoint) = endpoint_of(&name, &text, &method) {
                self.mentioned.push(endpoint);
            }
        }
    }

    fn mention_path(&mut self, workspace: &Workspace, text: &str, accesses: &[Access]) {
        // A name that we can't follow is judged as it is written.
        let (path, passed) = workspace.resolve_all(text).unwrap_or_else(|_| (text.to_owned(), Vec::new()));
        for (path, access) in
            passed.iter().chain([&path]).flat_map(|path| accesses.iter().map(move |access| (path, access)))
        {
            if let Some(reason) = rules::guarded_path(workspace, path, *access) {
                self.refusal = Some(reason);
            }
            self.mentioned.push(Target::Path { path: path.clone(), access: *access });
        }
    }
}

/// All texts, each with the name of the argument or field that it is in.
fn texts_of(args: &Value) -> Vec<(String, String)> {
    let (mut left, mut texts) = (vec![(String::new(), args)], Vec::new());
    while let Some((name, value)) = left.pop() {
        match value {
            Value::String(text) => texts.push((name, text.trim().to_owned())),
            Value::Array(items) => left.extend(items.iter().map(|item| (name.clone(), item))),
            Value::Object(fields) => left.extend(fields.iter().map(|(name, value)| (name.clone(), value))),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    texts
}

/// A text of one line may be a path; whether it was a `file:` URL.
fn path_of(text: &str) -> Option<(&str, bool)> {
    let file = text.strip_prefix("file://").map(|rest| rest.strip_prefix("localhost").unwrap_or(rest));
    let path = file.unwrap_or(text);
    let can_be = !path.is_empty() && path.len() <= PATH_BYTES_MAX && !path.contains(char::is_control);
    let is_url = file.is_none() && path.contains("://");
    (can_be && !is_url).then_some((path, file.is_some()))
}

/// A text may be an address: a URL of any scheme, an IP address or `localhost`, a host with a port, or whatever an argument holds whose
/// name says so. Other names with dots are taken for files.
fn endpoint_of(name: &str, text: &str, method: &str) -> Option<Target> {
    let url = match text.split_once("://") {
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") => {
            endpoint::parse(text)
        }
        // Rules about hosts hold for every scheme.
        Some((_, rest)) => endpoint::parse(&format!("http://{rest}")),
        None => endpoint::parse(&format!("http://{}", text.trim_start_matches('/'))).and_then(|url| {
            let is_meant = names_host(name) || text.starts_with("//") || has_port(text);
            let is_address = matches!(url.host(), Some(Host::Ipv4(_) | Host::Ipv6(_)));
            let is_one = is_meant || is_address || endpoint::host_of(&url) == "localhost";
            if is_one { Ok(url) } else { Err("a file".to_owned()) }
        }),
    };
    let url = url.ok()?;
    Some(Target::Endpoint {
        scheme: url.scheme().to_owned(),
        host: endpoint::host_of(&url),
        port: url.port_or_known_default().unwrap_or(0),
        method: method.to_owned(),
        path: url.path().to_owned(),
    })
}

fn has_port(text: &str) -> bool {
    let authority = text.split(['/', '?', '#']).next().unwrap_or_default();
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

fn names_program(argument: &str) -> bool {
    matches!(argument, "argv" | "args" | "cmd" | "command" | "line" | "script" | "shell")
}

fn names_host(argument: &str) -> bool {
    let argument = argument.to_ascii_lowercase();
    ["url", "uri", "host", "address", "endpoint", "server", "domain", "site", "link"]
        .iter()
        .any(|word| argument.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b9_texts_that_may_be_addresses_are_found() {
        let host = |name: &str, text: &str| match endpoint_of(name, text, "GET") {
            Some(Target::Endpoint { host, .. }) => host,
            Some(_) | None => String::new(),
        };
        for (name, text, found) in [
            ("x", "http://169.254.169.254/latest", "169.254.169.254"),
            ("x", "HTTP://0xa9fea9fe/", "169.254.169.254"),
            ("x", "gopher://169.254.169.254/x", "169.254.169.254"),
            ("x", "169.254.169.254", "169.254.169.254"),
            ("x", "[fd00:ec2::254]/x", "fd00:ec2::254"),
            ("x", "//metadata.google.internal/x", "metadata.google.internal"),
            ("x", "metadata.google.internal:80", "metadata.google.internal"),
            ("url", "metadata.google.internal", "metadata.google.internal"),
            ("x", "notes.txt", ""),
            ("x", "hello, world", ""),
        ] {
            assert_eq!(host(name, text), found, "{text}");
        }
        assert_eq!(path_of("file:///etc/shadow"), Some(("/etc/shadow", true)));
        assert_eq!(path_of("https://example.org/.env"), None);
    }
}
