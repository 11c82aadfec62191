//! What a person is shown before they agree: the exact call, what it would change, and the smallest rule that would have covered it.

use std::io::Read as _;

use regent_kernel::{Digest, Kernel, Reader, Ticket};
use serde_json::{Map, Value, json};

use crate::diff::{self, Line};
use crate::output::Screen;
use crate::term;

/// Lines of a difference, or of a command, that are shown.
const SHOWN_LINES_MAX: usize = 40;
const SHOWN_CHARS_MAX: usize = 4_000;
/// Files that a difference is made of.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The question, as far as the ledger has it; else what the kernel says in a line.
pub(super) fn text(screen: &Screen, kernel: &Kernel, ticket: &Ticket) -> String {
    let asked = Asked::read(kernel, ticket);
    let mut text = String::from("\n");
    let call = asked.as_ref().and_then(|asked| asked.call(screen, kernel));
    // One about a call that may have happened already says so in its line.
    match call {
        Some(call) if !ticket.summary.starts_with("repeat") => text.push_str(&call),
        Some(_) | None => text.push_str(&indented(&term::block(&ticket.summary))),
    }
    let (rule, reason) = (term::inline(&ticket.rule), term::inline(&ticket.reason));
    text.push_str(&format!("  asked by rule {}: {reason}\n", screen.strong(&rule)));
    if let Some(cover) = asked.as_ref().and_then(Asked::cover) {
        text.push_str(
            &screen.faint(&format!("  not asked again with this in rule {rule}: {}\n", term::inline(&cover))),
        );
    }
    text.push_str("  Allow? y once · s as often as wanted in this session · N no: ");
    text
}

/// What the ledger has of the call.
struct Asked {
    tool: String,
    agent: String,
    args: Value,
    targets: Vec<Value>,
}

impl Asked {
    fn read(kernel: &Kernel, ticket: &Ticket) -> Option<Self> {
        let reader = Reader::on(kernel.ledger().storage());
        let body = reader.get(ticket.intent.lane, ticket.intent.seq).ok()??.body;
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
        let digest: Digest = text("/args/sha256")?.parse().ok()?;
        let args = kernel.ledger().payload(&digest).ok()??;
        Some(Self {
            tool: text("/tool/name")?.to_owned(),
            agent: text("/caller/name")?.to_owned(),
            args: serde_json::from_slice(&args).ok()?,
            targets: body.get("targets").and_then(Value::as_array).cloned().unwrap_or_default(),
        })
    }

    fn arg(&self, name: &str) -> &str {
        self.args.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The call as a person knows it: a difference for writes, the command for programs. None where there is no better form than a line.
    fn call(&self, screen: &Screen, kernel: &Kernel) -> Option<String> {
        let head =
            |what: &str| format!("  {} {}\n", screen.strong(&term::inline(&self.tool)), term::inline(what));
        match self.tool.as_str() {
            // What isn't given as text is no difference to look at.
            "fs.write" if self.arg("encoding") == "base64" => None,
            "fs.write" => {
                let path = self.arg("path");
                let append = self.arg("mode") == "append";
                let old = if append { String::new() } else { present(kernel, path)? };
                Some(head(path) + &difference(screen, &old, self.arg("content")))
            }
            "fs.edit" => Some(head(self.arg("path")) + &difference(screen, self.arg("old"), self.arg("new"))),
            "shell.exec" => Some(head("") + &indented(&term::block(&cut(self.arg("command"))))),
            "process.exec" => {
                let argv = self.args.get("argv").and_then(Value::as_array)?;
                let words: Vec<String> = argv.iter().filter_map(Value::as_str).map(quoted).collect();
                Some(head("") + &indented(&term::block(&cut(&words.join(" ")))))
            }
            "http.fetch" => {
                let method = if self.arg("method").is_empty() { "GET" } else { self.arg("method") };
                let body = indented(&term::block(&cut(self.arg("body"))));
                let body = if self.arg("body").is_empty() { String::new() } else { body };
                Some(head(&format!("{method} {}", self.arg("url"))) + &body)
            }
            _other => None,
        }
    }

    /// The least that has to be said for this call not to be asked about: who, what, and on which exact things.
    fn cover(&self) -> Option<String> {
        let mut when = Map::new();
        when.insert("agent".to_owned(), json!(self.agent));
        when.insert("tool".to_owned(), json!(self.tool));
        for (key, place) in
            [("path", "/path/path"), ("host", "/endpoint/host"), ("argv", "/argv"), ("secret", "/secret")]
        {
            let mut values: Vec<&Value> =
                self.targets.iter().filter_map(|target| target.pointer(place)).collect();
            values.dedup();
            // What would be read as a pattern can't be said exactly in a line; it is a person's to write.
            if !values.iter().all(|value| is_plain(value)) {
                return None;
            }
            match values.as_slice() {
                [] => {}
                [one] => drop(when.insert(key.to_owned(), (*one).clone())),
                _many if key == "argv" => return None,
                many => drop(when.insert(key.to_owned(), json!(many))),
            }
        }
        Some(format!("unless: {}", Value::Object(when)))
    }
}

/// Whether a policy would read it as itself.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.contains(['*', '?', '{', '[', '\\']) && text != "...",
        Value::Array(items) => items.iter().all(is_plain),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// What a file has now; nothing if there is none, and no difference if it can't be shown.
fn present(kernel: &Kernel, path: &str) -> Option<String> {
    let Ok(file) = kernel.workspace().open_read(path) else { return Some(String::new()) };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= FILE_BYTES_MAX).then_some(text)
}

fn difference(screen: &Screen, old: &str, new: &str) -> String {
    let lines = diff::lines(old, new);
    let mut text = String::new();
    for line in lines.iter().take(SHOWN_LINES_MAX) {
        let line = match line {
            Line::Same(line) => format!("  {}", short(screen, line)),
            Line::Old(line) => screen.bad(&format!("- {}", short(screen, line))),
            Line::New(line) => screen.good(&format!("+ {}", short(screen, line))),
            Line::Skipped(count) => screen.faint(&format!("… {count} lines")),
        };
        text.push_str(&format!("    {line}\n"));
    }
    let more = lines.len().saturating_sub(SHOWN_LINES_MAX);
    if more > 0 {
        text.push_str(&format!("    … {more} more lines of this\n"));
    }
    if lines.is_empty() {
        text.push_str("    no change\n");
    }
    text
}

fn short(screen: &Screen, line: &str) -> String {
    term::short(line, screen.width.saturating_sub(8))
}

fn cut(text: &str) -> String {
    let mut cut: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if cut.len() < text.len() {
        cut.push_str(&format!("… ({} bytes more)", text.len().saturating_sub(cut.len())));
    }
    cut
}

fn indented(text: &str) -> String {
    let mut out: String = text.lines().take(SHOWN_LINES_MAX).map(|line| format!("    {line}\n")).collect();
    let more = text.lines().count().saturating_sub(SHOWN_LINES_MAX);
    if more > 0 {
        out.push_str(&format!("    … {more} more lines\n"));
    }
    out
}

/// A word as a shell would need it, so that borders between arguments are seen.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(tool: &str, targets: Value) -> Asked {
        let targets = targets.as_array().cloned().unwrap_or_default();
        Asked { tool: tool.to_owned(), agent: "worker".to_owned(), args: json!({}), targets }
    }

    #[test]
    fn the_exception_names_exactly_what_was_asked_about_or_nothing_is_offered() {
        let path = |path: &str| json!([{"path": {"path": path, "access": "write"}}]);
        let endpoint = json!([{"endpoint": {"scheme": "https", "host": "a.example", "port": 443, "method": "GET", "path": "/"}}]);
        for (tool, targets, cover) in [
            (
                "fs.write",
                path("a/b.txt"),
                Some(r#"unless: {"agent":"worker","path":"a/b.txt","tool":"fs.write"}"#),
            ),
            (
                "http.fetch",
                endpoint,
                Some(r#"unless: {"agent":"worker","host":"a.example","tool":"http.fetch"}"#),
            ),
            (
                "process.exec",
                json!([{"argv": ["git", "push"]}]),
                Some(r#"unless: {"agent":"worker","argv":["git","push"],"tool":"process.exec"}"#),
            ),
            // A name that is a pattern would cover more.
            ("fs.write", path("a/*.txt"), None),
            ("fs.write", path("{a,b}"), None),
            ("process.exec", json!([{"argv": ["git", "..."]}]), None),
            ("shell.exec", json!([{"argv": ["a"]}, {"argv": ["b"]}]), None),
        ] {
            assert_eq!(asked(tool, targets).cover().as_deref(), cover, "{tool}");
        }
    }

    #[test]
    fn borders_between_arguments_are_seen() {
        for (word, shown) in [
            ("ls", "ls"),
            ("-la", "-la"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
        ] {
            assert_eq!(quoted(word), shown);
        }
        let long = "x".repeat(SHOWN_CHARS_MAX + 5);
        assert!(cut(&long).ends_with("(5 bytes more)"));
    }
}
