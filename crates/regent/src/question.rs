//! What a person is shown before they agree: the exact call, what it would change, and the smallest rule that would have covered it.

use std::io::Read as _;

use regent_kernel::{Attention, Digest, Host, LedgerPlace, OpenQuestion, Reader, Ticket, Traced};
use serde_json::Value;

use crate::covered::{self, Covered};
use crate::diff::{self, Line};
use crate::output::Screen;
use crate::term;

/// Lines of a difference, or of a command, that are shown.
const SHOWN_LINES_MAX: usize = 40;
const SHOWN_CHARS_MAX: usize = 4_000;
/// Files that a difference is made of.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Everything but the prompt: the call, where its values come from, the rule, the exception, and how much attention there is left.
pub(crate) fn text(
    screen: &Screen,
    kernel: &Host,
    question: &OpenQuestion,
    covered: Option<&Covered>,
) -> String {
    let asked = Asked::read(kernel, question);
    let mut text = String::new();
    let call = asked.as_ref().and_then(|asked| asked.call(screen, kernel));
    // One about a call that may have happened already says so in its line.
    match call {
        Some(call) if !question.summary.starts_with("repeat") => text.push_str(&call),
        Some(_) | None => text.push_str(&indented(&term::block(&question.summary))),
    }
    text.push_str(&origins(screen, &question.origins));
    let place = question.rule_at.as_ref().map(|at| format!(" ({} policy, line {})", at.layer, at.line));
    text.push_str(&format!(
        "  asked by rule {}{}: {}\n",
        screen.strong(&term::inline(&question.rule)),
        place.unwrap_or_default(),
        term::inline(&question.reason)
    ));
    if question.approvers > 1 {
        let agreed = term::inline(&question.agreed.join(", ")).into_owned();
        let so_far = if agreed.is_empty() { String::new() } else { format!("; so far: {agreed}") };
        text.push_str(&format!("  {} different people have to agree{so_far}\n", question.approvers));
    }
    if let Some(cover) = &question.cover {
        let lines: String = cover.lines.lines().map(|line| format!("    {}\n", term::inline(line))).collect();
        text.push_str(&screen.faint(&format!("  not asked again with\n{lines}")));
        if let Some(covered) = covered {
            text.push_str(&screen.faint(&format!("    {}\n", covered.line())));
        }
    }
    if let Some(attention) = &question.attention {
        text.push_str(&meter(screen, attention, question.read_ms));
    }
    text
}

/// A question that has just been put to this person.
pub(crate) fn inline(screen: &Screen, kernel: &Host, ticket: &Ticket) -> String {
    let place = LedgerPlace { lane: ticket.intent.lane, seq: ticket.intent.seq };
    // The first attempt is the one that the question was put for.
    let question = (*ticket.question).clone();
    let question = OpenQuestion { intent: question.intent.or(Some(place)), ..question };
    let covered = covered::count(&Reader::on(kernel.ledger().storage()), &[&question]);
    text(screen, kernel, &question, covered.first().and_then(Option::as_ref))
}

/// Where each value comes from. What chooses who is affected comes first.
fn origins(screen: &Screen, origins: &[Traced]) -> String {
    let row = |one: &Traced| {
        let is_trusted = matches!(one.origin.as_str(), "request" | "trusted");
        let from = term::inline(&one.from).into_owned();
        let from = if is_trusted || !one.sink { from } else { screen.warn(&from) };
        let what = if one.sink { "decides who or what is affected; it is" } else { "is" };
        format!("    {} {what} from {from}\n", term::inline(&one.argument))
    };
    origins.iter().map(row).collect()
}

/// How often the person was asked and how they answered; what follows from it, if anything.
pub(crate) fn meter(screen: &Screen, attention: &Attention, read_ms: u64) -> String {
    let Attention { asked_hour, asked_day, percent, hasty_hour, .. } = attention;
    let mut line = format!("  {asked_hour} questions in the last hour, {asked_day} today");
    if let (Some(yes), Some(ms)) = (attention.yes_percent_day, attention.decide_ms_median) {
        line.push_str(&format!("; you say yes to {yes} %, after {} s", seconds(ms)));
    }
    line.push_str(&format!("; attention used: {percent} %"));
    if *hasty_hour > 0 {
        line.push_str(&format!(", {hasty_hour} yes faster than one can read"));
    }
    if attention.is_worn() {
        let worn = format!("  a yes is for one call now, and counts after {} s\n", seconds(read_ms));
        return screen.faint(&format!("{line}\n")) + &screen.warn(&worn);
    }
    screen.faint(&format!("{line}\n"))
}

fn seconds(ms: u64) -> String {
    format!("{}.{}", ms / 1000, ms % 1000 / 100)
}

/// What the ledger has of the call.
pub(crate) struct Asked {
    pub(crate) tool: String,
    pub(crate) args: Value,
}

impl Asked {
    /// The attempt that a question is about; none where it isn't in this kernel's ledger, or was erased.
    pub(crate) fn read(kernel: &Host, question: &OpenQuestion) -> Option<Self> {
        let place = question.intent?;
        let body = Reader::on(kernel.ledger().storage()).get(place.lane, place.seq).ok()??.body;
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
        // Another project's ledger has other entries at the same place.
        if text("/ticket/id") != Some(question.id.0.as_str()) {
            return None;
        }
        let digest: Digest = text("/args/sha256")?.parse().ok()?;
        let args = kernel.ledger().payload(&digest).ok()??;
        Some(Self { tool: text("/tool/name")?.to_owned(), args: serde_json::from_slice(&args).ok()? })
    }

    fn arg(&self, name: &str) -> &str {
        self.args.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The call as a person knows it: a difference for writes, the command for programs. None where there is no better form than a line.
    fn call(&self, screen: &Screen, kernel: &Host) -> Option<String> {
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
}

/// What a file has now; nothing if there is none, and no difference if it can't be shown.
fn present(kernel: &Host, path: &str) -> Option<String> {
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

    fn screen() -> Screen {
        Screen::new(true, crate::output::Color::Never)
    }

    fn traced(argument: &str, sink: bool, origin: &str, from: &str) -> Traced {
        let [argument, origin, from] = [argument, origin, from].map(str::to_owned);
        Traced { argument, sink, origin, from }
    }

    #[test]
    fn a_person_sees_where_each_value_came_from_and_no_escape_of_others() {
        let all = [
            traced("to", true, "untrusted", "what others can write in `mail` (call 7, `bo\u{1b}[2Jdy`)"),
            traced("text", false, "request", "the request"),
        ];
        let shown = origins(&screen(), &all);
        assert!(shown.starts_with(
            "    to decides who or what is affected; it is from what others can write in `mail`"
        ));
        assert!(shown.ends_with("    text is from the request\n") && !shown.contains('\u{1b}'), "{shown}");
    }

    #[test]
    fn the_meter_says_what_follows_from_it() {
        let rested = Attention { asked_hour: 2, asked_day: 9, percent: 40, ..Attention::default() };
        assert_eq!(
            meter(&screen(), &rested, 1_500),
            "  2 questions in the last hour, 9 today; attention used: 40 %\n"
        );
        let worn = Attention {
            percent: 100,
            hasty_hour: 5,
            yes_percent_day: Some(98),
            decide_ms_median: Some(640),
            ..rested
        };
        let shown = meter(&screen(), &worn, 1_500);
        assert!(shown.contains("you say yes to 98 %, after 0.6 s"), "{shown}");
        assert!(shown.contains("5 yes faster than one can read"), "{shown}");
        assert!(shown.ends_with("a yes is for one call now, and counts after 1.5 s\n"), "{shown}");
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
