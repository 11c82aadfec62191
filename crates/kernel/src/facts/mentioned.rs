//! The targets that the arguments of a host's tool may name. No declaration says which of them are paths or addresses, so every text
//! that could be one goes to policy as one: rules that deny or ask about paths and hosts apply to these tools too.

use std::borrow::Cow;

use regent_policy::Access;
use regent_workspace::{Spellings, Workspace};
use serde_json::Value;
use url::{Host, Url};

use super::{Sheet, Target, program_target};
use crate::catalogue::{ArgumentKind, SideEffect, Tool};
use crate::{endpoint, rules};

/// Linux takes no longer path.
const PATH_BYTES_MAX: usize = 4_095;
/// Texts of one call that are looked at. A call with more is refused.
const TEXTS_MAX: usize = 4_096;
/// Lists of arguments that a program may belong to.
const LISTS_MAX: usize = 8;

/// All names that a path goes by, if it can be followed.
fn named(workspace: &Workspace, text: &str) -> Option<Vec<String>> {
    let Spellings { real, mut others } = workspace.spellings(text).ok()?;
    others.push(real);
    Some(others)
}

impl Sheet {
    pub(super) fn mention(&mut self, workspace: &Workspace, tool: &Tool) {
        let method = self.args.get("method").and_then(Value::as_str).unwrap_or("GET").to_ascii_uppercase();
        // What it does to a file isn't declared either, unless it only reads.
        let accesses: &[Access] = match tool.spec().effect {
            SideEffect::None | SideEffect::Read => &[Access::Read],
            SideEffect::Write | SideEffect::Delete | SideEffect::Network => &[Access::Read, Access::Write],
        };
        let texts = texts_of(&self.args);
        if texts.len() > TEXTS_MAX {
            let message = format!("the arguments have more than {TEXTS_MAX} texts, too many to judge");
            self.refuse("args.too_large", message, "split it into several calls");
            return;
        }
        self.mentioned.extend(programs_of(&self.args));
        for (name, text) in texts {
            if let Some((path, is_file_url)) = path_of(&text) {
                self.mention_path(workspace, &path, accesses);
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
        // A name that we can't follow is judged as it is written, and as a host spells it that takes `..` out before it looks.
        let paths = named(workspace, text).unwrap_or_else(|| {
            let plain = without_dots(workspace, text);
            let mut paths = named(workspace, &plain).unwrap_or_else(|| vec![plain]);
            paths.push(text.to_owned());
            paths
        });
        for path in paths {
            for access in accesses {
                if let Some(reason) = rules::guarded_path(workspace, &path, *access) {
                    self.refusal = Some(reason);
                }
                self.mentioned.push(Target::Path { path: path.clone(), access: *access });
            }
        }
    }
}

/// A path without `.` and `..`, whatever exists.
fn without_dots(workspace: &Workspace, text: &str) -> String {
    let root = workspace.root().to_string_lossy();
    let whole = if text.starts_with('/') { text.to_owned() } else { format!("{root}/{text}") };
    let mut names: Vec<&str> = Vec::new();
    for name in whole.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

/// The programs in the arguments, at any depth. A text may be a program, its arguments or a line, so it counts as each of these.
fn programs_of(args: &Value) -> Vec<Target> {
    let (mut left, mut programs) = (vec![args], Vec::new());
    while let Some(value) = left.pop() {
        match value {
            Value::Object(fields) => {
                let named: Vec<_> = fields.iter().filter(|(name, _)| names_program(name)).collect();
                for (name, value) in &named {
                    let kinds = [ArgumentKind::Argv, ArgumentKind::Shell];
                    programs.extend(kinds.into_iter().filter_map(|kind| program_target(kind, value)));
                    let Some(line) = value.as_str() else { continue };
                    let words = || line.split_whitespace().map(str::to_owned);
                    programs.push(Target::Argv(words().collect()));
                    // `{"program": "rm", "args": ["-rf", "x"]}`
                    let lists = named.iter().filter(|(other, _)| other != name).take(LISTS_MAX);
                    programs.extend(lists.filter_map(|(_, list)| {
                        let list = list.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned);
                        Some(Target::Argv(words().chain(list).collect()))
                    }));
                }
                left.extend(fields.values());
            }
            Value::Array(items) => left.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    programs.retain(|program| !matches!(program, Target::Argv(argv) if argv.is_empty()));
    programs
}

/// All texts, each with the name of the argument or field that it is in.
fn texts_of(args: &Value) -> Vec<(String, String)> {
    let (mut left, mut texts) = (vec![(String::new(), args)], Vec::new());
    while let Some((name, value)) = left.pop() {
        match value {
            Value::String(text) => texts.push((name, text.trim().to_owned())),
            Value::Array(items) => left.extend(items.iter().map(|item| (name.clone(), item))),
            Value::Object(fields) => {
                // `{"files": {"a/b": "…"}}`
                let paths = fields.keys().filter(|name| name.contains(['/', '.', '\\', '~']));
                texts.extend(paths.map(|path| (name.clone(), path.trim().to_owned())));
                left.extend(fields.iter().map(|(name, value)| (name.clone(), value)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    texts
}

/// A text of one line may be a path; whether it was a `file:` URL.
fn path_of(text: &str) -> Option<(Cow<'_, str>, bool)> {
    let is_file = text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"));
    let path = if is_file {
        let url = Url::parse(text).ok()?;
        let path = Url::parse(&format!("file://{}", url.path())).ok().and_then(|url| url.to_file_path().ok());
        Cow::Owned(path.map_or_else(|| url.path().to_owned(), |path| path.to_string_lossy().into_owned()))
    } else {
        Cow::Borrowed(text)
    };
    let can_be = !path.is_empty() && path.len() <= PATH_BYTES_MAX && !path.contains(char::is_control);
    let is_url = !is_file && path.contains("://");
    (can_be && !is_url).then_some((path, is_file))
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
        // `http:host` is the same to most.
        None if is_http(text) => endpoint::parse(text),
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

fn is_http(text: &str) -> bool {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// What is in the name of an argument that is a program, and such names as a whole.
const PROGRAM_PARTS: &[&str] = &["argv", "cmd", "command", "executable", "program"];
const PROGRAM_NAMES: &[&str] = &["args", "arguments", "binary", "exe", "exec", "line", "script", "shell"];

/// In whatever case and however its words are put together: `Command`, `shell_command`, `commandLine`.
fn names_program(argument: &str) -> bool {
    let name = argument.to_ascii_lowercase();
    PROGRAM_PARTS.iter().any(|part| name.contains(part)) || PROGRAM_NAMES.contains(&name.as_str())
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
            ("x", "http:169.254.169.254/", "169.254.169.254"),
            ("x", "notes.txt", ""),
            ("x", "hello, world", ""),
        ] {
            assert_eq!(host(name, text), found, "{text}");
        }
        for text in
            ["file:///etc/shadow", "file:/etc/shadow", "FILE:///etc/%73hadow", "file://127.0.0.1/etc/shadow"]
        {
            assert_eq!(path_of(text), Some(("/etc/shadow".into(), true)), "{text}");
        }
        assert_eq!(path_of("https://example.org/.env"), None);
    }

    #[test]
    fn b9_programs_are_found_at_any_depth_and_under_any_usual_name() {
        for args in [
            serde_json::json!({"command": ["rm", "-rf", "x"]}),
            serde_json::json!({"Command": ["rm", "-rf", "x"]}),
            serde_json::json!({"input": {"list": [{"ARGV": ["rm", "-rf", "x"]}]}}),
            serde_json::json!({"program": ["rm", "-rf", "x"]}),
            serde_json::json!({"shell_command": "rm  -rf x"}),
            serde_json::json!({"commandLine": "rm -rf x"}),
            serde_json::json!({"executable": "rm", "args": ["-rf", "x"]}),
        ] {
            let is_found =
                |target: &Target| matches!(target, Target::Argv(argv) if *argv == ["rm", "-rf", "x"]);
            assert!(programs_of(&args).iter().any(is_found), "{args}");
        }
        assert!(programs_of(&serde_json::json!({"description": "rm -rf x", "recommended": "x"})).is_empty());
        let texts = texts_of(&serde_json::json!({"files": {".git/hooks/pre-commit": "x"}, "plain": "y"}));
        assert!(texts.iter().any(|(_, text)| text == ".git/hooks/pre-commit"));
        assert!(!texts.iter().any(|(_, text)| text == "plain"));
    }

    #[test]
    fn d3_dots_are_taken_out_of_paths_that_cannot_be_followed() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        assert_eq!(without_dots(&workspace, "/nope/../etc/./shadow"), "/etc/shadow");
        let up = "../".repeat(20);
        assert_eq!(without_dots(&workspace, &format!("nope/{up}etc/shadow")), "/etc/shadow");
    }
}
