//! What a reviewer sees before they approve: the final call with every argument, the files that an approval is bound to, what the call would
//! change, and the smallest rule that would have covered it.

mod batch;

use std::io::Read as _;

use regent_kernel::{
    Access, ArgumentKind, Attention, Digest, Host, LedgerPlace, OpenQuestion, PathError, Reader, TaskId,
    Ticket, TicketId, Tool, Traced,
};
use regent_wire::body::{EntryBody, IntentBody};
use serde_json::Value;

use crate::covered::{self, Covered};
use crate::diff::{self, DiffLine};
use crate::output::Screen;
use crate::term;
pub(crate) use batch::{Batch, batches};

/// Lines of a difference, or of a value, that are shown of a cut question.
const SHOWN_LINES_MAX: usize = 40;
const SHOWN_CHARS_MAX: usize = 4_000;
/// Files that a cut question lists.
const SHOWN_FILES_MAX: usize = 20;
/// Files that a difference is made of.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How much of a question is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// What fits on a screen or two.
    Cut,
    /// All of it.
    Whole,
}

/// A question as text.
#[derive(Debug)]
pub(crate) struct QuestionText {
    /// Everything but the prompt.
    pub(crate) text: String,
    /// A part of the call is left out of it.
    pub(crate) cut: bool,
}

/// The call, where its values come from, what an approval is bound to, the rule, the exception, and how much attention there is left.
pub(crate) fn view(
    screen: &Screen,
    kernel: &Host,
    question: &OpenQuestion,
    covered: Option<&Covered>,
    length: Length,
) -> QuestionText {
    let mut page = Page { screen, length, text: String::new(), cut: false };
    page.call(kernel, question);
    page.cause(question);
    if let Some(cover) = &question.cover {
        let lines: String = cover.lines.lines().map(|line| format!("    {}\n", term::inline(line))).collect();
        page.text.push_str(&screen.faint(&format!("  To allow this without asking, add one of:\n{lines}")));
        if let Some(covered) = covered {
            page.text.push_str(&screen.faint(&format!("    {}\n", covered.line())));
        }
    }
    page.digest(question);
    if let Some(attention) = &question.attention {
        page.text.push_str(&meter(screen, attention, question.read_ms));
    }
    QuestionText { text: page.text, cut: page.cut }
}

/// A question that has just been put to this person.
pub(crate) fn inline(screen: &Screen, kernel: &Host, ticket: &Ticket, length: Length) -> QuestionText {
    Batch::alone(placed(ticket)).view(screen, kernel, length)
}

/// What a call changes in a file, as a difference: for edits and writes of text, with what the file held `before`. None for other calls.
pub(crate) fn change(
    screen: &Screen,
    kernel: &Host,
    asked: &AskedCall,
    before: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let tool = kernel.tool(&asked.tool);
    let path = asked.declared(tool.as_deref(), |kind| kind == ArgumentKind::Path(Access::Write))?;
    let mut page = Page { screen, length: Length::Cut, text: String::new(), cut: false };
    let text = |name: &str| asked.args.get(name).and_then(Value::as_str);
    match (text("old"), text("new"), text("content")) {
        (Some(old), Some(new), _) => page.difference(old, new),
        (_, _, Some(content)) if asked.arg("encoding") != "base64" => {
            let is_added = asked.arg("mode") == "append";
            let old = if is_added { String::new() } else { before(asked.arg(&path))? };
            page.difference(&old, content);
        }
        _other => return None,
    }
    Some(page.text)
}

/// A file that is another now, as a difference.
pub(crate) fn difference(screen: &Screen, old: &str, new: &str) -> String {
    let mut page = Page { screen, length: Length::Cut, text: String::new(), cut: false };
    page.difference(old, new);
    page.text
}

/// The question of a ticket, with the place of its call in the ledger.
pub(crate) fn placed(ticket: &Ticket) -> OpenQuestion {
    let place = LedgerPlace { lane: ticket.intent.lane, seq: ticket.intent.seq };
    // The first attempt is the one that the question was put for.
    let question = (*ticket.question).clone();
    OpenQuestion { intent: question.intent.or(Some(place)), ..question }
}

/// Why an approval isn't taken yet.
pub(crate) fn unseen_help(id: &TicketId) -> String {
    let id = term::inline(&id.0);
    format!("parts of the call were left out above; `regent approve {id} --unseen` approves it anyway")
}

/// The text as it grows, and whether anything of the call was left out.
struct Page<'s> {
    screen: &'s Screen,
    length: Length,
    text: String,
    cut: bool,
}

impl Page<'_> {
    /// The call, where its values come from, and the files that an approval is bound to.
    fn call(&mut self, kernel: &Host, question: &OpenQuestion) {
        // One about a call that may have happened already says so in its line.
        match AskedCall::read(kernel, question) {
            Some(asked) if !question.summary.starts_with("repeat") => asked.show(self, kernel),
            Some(_) | None => {
                self.block(&question.summary);
                self.cut |= question.summary_cut;
            }
        }
        self.text.push_str(&origins(self.screen, &question.origins));
        self.files(question);
    }

    /// Why it is asked: the rule, the reason, and the text of others behind it.
    fn cause(&mut self, question: &OpenQuestion) {
        let place = question.rule_at.as_ref().map(|at| format!(" ({} policy, line {})", at.layer, at.line));
        self.text.push_str(&format!(
            "  asked by rule {}{}: {}\n",
            self.screen.strong(&term::inline(&question.rule)),
            place.unwrap_or_default(),
            term::inline(&question.reason)
        ));
        if let Some(quote) = &question.quote {
            self.text.push_str(&self.screen.warn(&format!("  {}\n", term::inline(quote))));
        }
        if question.approvers > 1 {
            let agreed = term::inline(&question.agreed.join(", ")).into_owned();
            let so_far = if agreed.is_empty() { String::new() } else { format!("; so far: {agreed}") };
            let many = format!("  needs {} approvers{so_far}\n", question.approvers);
            self.text.push_str(&many);
        }
    }

    fn head(&mut self, tool: &str, what: &str) {
        let line = format!("  {} {}\n", self.screen.strong(&term::inline(tool)), term::inline(what));
        self.text.push_str(&line);
    }

    /// Text of several lines.
    fn block(&mut self, text: &str) {
        let shown = self.shortened(text);
        let shown = term::block(&shown);
        let lines_max = if self.length == Length::Whole { usize::MAX } else { SHOWN_LINES_MAX };
        for line in shown.lines().take(lines_max) {
            self.text.push_str(&format!("    {line}\n"));
        }
        let more = shown.lines().count().saturating_sub(lines_max);
        if more > 0 {
            self.cut = true;
            let digest = Digest::compute(text.as_bytes());
            self.text.push_str(&format!("    … {more} more lines (in full: sha256 {digest})\n"));
        }
    }

    /// An argument that is shown nowhere else, with the names on the way to it.
    fn argument(&mut self, name: &str, value: &Value) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (field, value) in fields {
                    self.argument(&format!("{name}.{field}"), value);
                }
            }
            Value::String(text) if text.contains('\n') => {
                self.text.push_str(&format!("    {}:\n", term::inline(name)));
                self.block(text);
            }
            Value::String(text) => self.line(name, text),
            other
            @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                self.line(name, &other.to_string());
            }
        }
    }

    fn line(&mut self, name: &str, value: &str) {
        let value = self.shortened(value);
        self.text.push_str(&format!("    {}: {}\n", term::inline(name), term::inline(&value)));
    }

    /// So much of a text as is shown; what was left out is named by the digest of the whole.
    fn shortened(&mut self, text: &str) -> String {
        if self.length == Length::Whole {
            return text.to_owned();
        }
        let mut short: String = text.chars().take(SHOWN_CHARS_MAX).collect();
        if short.len() < text.len() {
            self.cut = true;
            let more = text.len().saturating_sub(short.len());
            short.push_str(&format!(
                "… ({more} bytes more; in full: sha256 {})",
                Digest::compute(text.as_bytes())
            ));
        }
        short
    }

    fn difference(&mut self, old: &str, new: &str) {
        let lines = diff::lines(old, new);
        let (lines_max, width) = match self.length {
            Length::Cut => (SHOWN_LINES_MAX, self.screen.width.saturating_sub(8)),
            Length::Whole => (usize::MAX, usize::MAX),
        };
        for line in lines.iter().take(lines_max) {
            let (mark, text) = match line {
                DiffLine::Same(text) => ("  ", *text),
                DiffLine::Old(text) => ("- ", *text),
                DiffLine::New(text) => ("+ ", *text),
                DiffLine::Skipped(count) => {
                    let skipped = self.screen.faint(&format!("… {count} unchanged lines"));
                    self.text.push_str(&format!("    {skipped}\n"));
                    continue;
                }
            };
            // A line that stays is context; it isn't part of the call.
            self.cut |= mark != "  " && text.chars().count() > width;
            let shown = format!("{mark}{}", term::short(text, width));
            let shown = match mark {
                "- " => self.screen.bad(&shown),
                "+ " => self.screen.good(&shown),
                _same => shown,
            };
            self.text.push_str(&format!("    {shown}\n"));
        }
        let more = lines.len().saturating_sub(lines_max);
        if more > 0 {
            self.cut = true;
            self.text.push_str(&format!("    … {more} more lines of this\n"));
        }
        if lines.is_empty() {
            let what = if old == new { "no change" } else { "only the line end of the last line changes" };
            self.text.push_str(&format!("    {what}\n"));
        }
    }

    /// What an approval is bound to besides the arguments.
    fn files(&mut self, question: &OpenQuestion) {
        let files_max = if self.length == Length::Whole { usize::MAX } else { SHOWN_FILES_MAX };
        if !question.files.is_empty() {
            self.text.push_str("  an approval is bound to the current content of these files\n");
        }
        for file in question.files.iter().take(files_max) {
            let digest = file.sha256.to_string();
            let digest =
                if self.length == Length::Whole { digest } else { digest.chars().take(16).collect() };
            self.text.push_str(&format!("    {}  sha256 {digest}\n", term::inline(&file.path)));
        }
        let more = question.files.len().saturating_sub(files_max);
        if more > 0 {
            self.cut = true;
            self.text.push_str(&format!("    … {more} more files\n"));
        }
        if question.open_names {
            let why = question.open_why.as_deref().unwrap_or("it builds file names at run time");
            let open = format!(
                "  what the call covers can't be listed as files: {};\n  an approval covers one run, and any change of that before the run asks again\n",
                term::inline(why)
            );
            self.text.push_str(&self.screen.warn(&open));
        }
    }

    /// The digest stands below a question that was shown whole, and only there: who can type it has come to the end of it.
    fn digest(&mut self, question: &OpenQuestion) {
        let line = match (&question.digest, self.cut) {
            (_, true) => {
                let id = term::inline(&question.id.0);
                self.screen.warn(&format!(
                    "  parts of the call are left out; `regent approve show {id} --all` shows it in full\n"
                ))
            }
            (Some(digest), false) => self.screen.faint(&format!("  digest {digest}\n")),
            (None, false) => String::new(),
        };
        self.text.push_str(&line);
    }
}

/// Where each value comes from. What chooses who is affected comes first.
/// Where an argument comes from, as the end of a sentence about it.
pub(crate) fn whence(traced: &Traced) -> String {
    match traced.origin.as_str() {
        "nowhere" => "was chosen by the model (it is in neither the request nor a tool result)".to_owned(),
        _known => format!("is from {}", traced.from),
    }
}

fn origins(screen: &Screen, origins: &[Traced]) -> String {
    let row = |one: &Traced| {
        let is_trusted = matches!(one.origin.as_str(), "request" | "trusted");
        let whence = term::inline(&whence(one)).into_owned();
        let whence = if is_trusted || !one.sink { whence } else { screen.warn(&whence) };
        let what = if one.sink { "decides who or what is affected; it " } else { "" };
        format!("    {} {what}{whence}\n", term::inline(&one.argument))
    };
    origins.iter().map(row).collect()
}

/// How often the reviewer was asked and how they answered; what follows from it, if anything.
pub(crate) fn meter(screen: &Screen, attention: &Attention, read_ms: u64) -> String {
    let Attention { asked_hour, asked_day, percent, hasty_hour, .. } = attention;
    let mut line =
        format!("  {} in the last hour, {asked_day} today", term::count(u64::from(*asked_hour), "question"));
    if let (Some(yes), Some(ms)) = (attention.yes_percent_day, attention.decide_ms_median) {
        line.push_str(&format!("; approved {yes} %, median {} s", seconds(ms)));
    }
    line.push_str(&format!("; attention limit {percent} % used"));
    if *hasty_hour > 0 {
        line.push_str(&format!(", {hasty_hour} approved too fast to have been read"));
    }
    if attention.is_worn() {
        let worn = format!("  an approval covers one call now, and counts after {} s\n", seconds(read_ms));
        return screen.faint(&format!("{line}\n")) + &screen.warn(&worn);
    }
    screen.faint(&format!("{line}\n"))
}

fn seconds(ms: u64) -> String {
    format!("{}.{}", ms / 1000, ms % 1000 / 100)
}

/// The call as the ledger has it.
pub(crate) struct AskedCall {
    pub(crate) tool: String,
    pub(crate) args: Value,
}

/// The intent that a question is about; none where it isn't in this kernel's ledger.
fn with_intent<T>(
    kernel: &Host,
    question: &OpenQuestion,
    read: impl FnOnce(IntentBody<'_>) -> Option<T>,
) -> Option<T> {
    let place = question.intent?;
    let entry = Reader::on(kernel.ledger().storage()).get(place.lane, place.seq).ok()??;
    let Ok(EntryBody::Intent(intent)) = EntryBody::read(&entry) else { return None };
    // Another project's ledger has other entries at the same place.
    let is_its = intent.ticket.as_ref().is_some_and(|ticket| ticket.id == question.id);
    if is_its { read(*intent) } else { None }
}

/// The task whose call is asked about, if it is one's.
pub(crate) fn task_of(kernel: &Host, question: &OpenQuestion) -> Option<TaskId> {
    with_intent(kernel, question, |intent| intent.step.map(|step| step.task.clone()))
}

impl AskedCall {
    /// The attempt that a question is about; none where it isn't in this kernel's ledger, or was erased.
    pub(crate) fn read(kernel: &Host, question: &OpenQuestion) -> Option<Self> {
        with_intent(kernel, question, |intent| {
            let args = kernel.ledger().payload(&intent.args.as_ref()?.sha256).ok()??;
            // An operation without a tool, such as `model.infer`, goes by its own name.
            Some(Self { tool: intent.what().to_owned(), args: serde_json::from_slice(&args).ok()? })
        })
    }

    fn arg(&self, name: &str) -> &str {
        self.args.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The argument of such a kind that the tool's manifest declares, if the call has it.
    fn declared(&self, tool: Option<&Tool>, is_wanted: impl Fn(ArgumentKind) -> bool) -> Option<String> {
        let all = tool.into_iter().flat_map(|tool| &tool.spec().arguments);
        let names =
            all.filter(|(_, kind)| is_wanted(**kind)).filter_map(|(pointer, _)| pointer.strip_prefix('/'));
        names.filter(|name| self.args.get(*name).is_some()).map(str::to_owned).next()
    }

    /// The call as a reviewer knows it: a difference for writes, the command for programs; then every argument that isn't in that. The
    /// manifest says which arguments these are.
    fn show(&self, page: &mut Page<'_>, kernel: &Host) {
        let tool = kernel.tool(&self.tool);
        let declared = |kind: ArgumentKind| self.declared(tool.as_deref(), |one| one == kind);
        let has =
            |names: &[&str]| names.iter().all(|name| self.args.get(*name).is_some_and(Value::is_string));
        let shown: Vec<String> = if let Some(line) = declared(ArgumentKind::Shell) {
            page.head(&self.tool, "");
            page.block(self.arg(&line));
            vec![line]
        } else if let Some(words) = declared(ArgumentKind::Argv) {
            page.head(&self.tool, "");
            let argv = self.args.get(&words).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let argv: Vec<String> = argv.iter().filter_map(Value::as_str).map(quoted).collect();
            page.block(&argv.join(" "));
            vec![words]
        } else if let Some(url) = declared(ArgumentKind::Url) {
            let method = if self.arg("method").is_empty() { "GET" } else { self.arg("method") };
            page.head(&self.tool, &format!("{method} {}", self.arg(&url)));
            vec!["method".to_owned(), url]
        } else if let Some(path) = declared(ArgumentKind::Path(Access::Write)) {
            if has(&["old", "new"]) {
                page.head(&self.tool, self.arg(&path));
                page.difference(self.arg("old"), self.arg("new"));
                vec![path, "old".to_owned(), "new".to_owned()]
            } else if has(&["content"]) && self.arg("encoding") != "base64" {
                self.show_content(page, kernel, path)
            } else {
                page.head(&self.tool, "");
                Vec::new()
            }
        } else {
            page.head(&self.tool, "");
            Vec::new()
        };
        let Value::Object(fields) = &self.args else { return page.argument("arguments", &self.args) };
        for (name, value) in fields.iter().filter(|(name, _)| !shown.contains(name)) {
            page.argument(name, value);
        }
    }
}

impl AskedCall {
    /// What a file will hold, against what it holds. What isn't given as text is no difference to look at.
    fn show_content(&self, page: &mut Page<'_>, kernel: &Host, path: String) -> Vec<String> {
        let file = self.arg(&path);
        let old = if self.arg("mode") == "append" { Some(String::new()) } else { present(kernel, file) };
        page.head(&self.tool, file);
        match old {
            Some(old) => {
                page.difference(&old, self.arg("content"));
                vec![path, "content".to_owned()]
            }
            None => vec![path],
        }
    }
}

/// What a file has now; nothing if there is none, and no difference if it can't be shown.
fn present(kernel: &Host, path: &str) -> Option<String> {
    let file = match kernel.workspace().open_read(path) {
        Ok(file) => file,
        Err(PathError::NotFound) => return Some(String::new()),
        // It is there, and a difference against nothing would show it as new.
        Err(_) => return None,
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= FILE_BYTES_MAX).then_some(text)
}

/// A word as a shell would need it, so that borders between arguments are seen.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    // A line break in a word would begin a line that looks like another argument.
    if word.chars().any(char::is_control) {
        return format!("$'{}'", word.escape_default().to_string().replace("\\\"", "\""));
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
    fn a_reviewer_sees_where_each_value_came_from_and_no_foreign_escapes() {
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
    fn b14_a_word_with_a_line_break_stays_on_its_line() {
        assert_eq!(quoted("\nnetwork: false\n"), "$'\\nnetwork: false\\n'");
        assert_eq!(quoted("it's\there"), "$'it\\'s\\there'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }

    #[test]
    fn the_meter_says_what_follows_from_it() {
        let rested = Attention { asked_hour: 2, asked_day: 9, percent: 40, ..Attention::default() };
        assert_eq!(
            meter(&screen(), &rested, 1_500),
            "  2 questions in the last hour, 9 today; attention limit 40 % used\n"
        );
        let worn = Attention {
            percent: 100,
            hasty_hour: 5,
            yes_percent_day: Some(98),
            decide_ms_median: Some(640),
            ..rested
        };
        let shown = meter(&screen(), &worn, 1_500);
        assert!(shown.contains("approved 98 %, median 0.6 s"), "{shown}");
        assert!(shown.contains("5 approved too fast to have been read"), "{shown}");
        assert!(shown.ends_with("an approval covers one call now, and counts after 1.5 s\n"), "{shown}");
    }

    fn page(screen: &Screen, length: Length) -> Page<'_> {
        Page { screen, length, text: String::new(), cut: false }
    }

    #[test]
    fn m2_a_question_lists_every_argument() {
        let (screen, args) = (
            screen(),
            serde_json::json!({
                "argv": ["./deploy", "--dry-run"], "cwd": "scripts", "network": true, "stdin": "secret://github/token\nmore",
                "env": {"DRY_RUN": "0", "AWS_ENDPOINT_URL": "https://evil.example"}, "empty": {}, "list": [1, "\u{202e}"],
            }),
        );
        let mut page = page(&screen, Length::Cut);
        for (name, value) in args.as_object().unwrap() {
            page.argument(name, value);
        }
        for line in [
            "    cwd: scripts\n",
            "    network: true\n",
            "    env.DRY_RUN: 0\n",
            "    env.AWS_ENDPOINT_URL: https://evil.example\n",
            "    stdin:\n    secret://github/token\n    more\n",
            "    empty: {}\n",
            "    list: [1,\"\\u{202e}\"]\n",
        ] {
            assert!(page.text.contains(line), "{line:?} is not in {}", page.text);
        }
        assert!(!page.cut);
    }

    #[test]
    fn m3_what_is_cut_says_so_and_is_there_in_the_whole_view() {
        let screen = screen();
        let long = format!("{}END", "x".repeat(SHOWN_CHARS_MAX));
        let many = format!("{}END", "line\n".repeat(SHOWN_LINES_MAX));
        let wide = format!("{}END", "y".repeat(1_000));
        for (length, has_end) in [(Length::Cut, false), (Length::Whole, true)] {
            let shows: [&dyn Fn(&mut Page<'_>); 4] = [
                &|page| page.line("body", &long),
                &|page| page.block(&many),
                &|page| page.difference("", &wide),
                &|page| page.difference("", &many),
            ];
            for show in shows {
                let mut page = page(&screen, length);
                show(&mut page);
                assert_eq!((page.text.contains("END"), page.cut), (has_end, !has_end), "{}", page.text);
            }
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
    }
}
