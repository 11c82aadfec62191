//! What people and programs see: the result on stdout, everything else on stderr, and one JSON object with `--json`.

use std::fmt;
use std::io::{IsTerminal, Write};

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource};
use serde_json::{Value, json};

use crate::codes::exit;
use crate::failure::{Excerpt, Failure};
use crate::term;

/// How long a reader may take for the result of a command that was interrupted.
const TAKEN_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);

/// What a command gives back.
pub(crate) type CommandResult = Result<Done, Failure>;

/// A command that did what was asked.
#[derive(Debug)]
pub(crate) struct Done {
    /// For `--json`.
    pub(crate) data: Value,
    /// For people and pipes.
    pub(crate) shown: StdoutContent,
    /// How the program ends; other than 0 where a program's own exit code is passed on.
    pub(crate) exit: u8,
}

/// What goes to stdout.
#[derive(Debug)]
pub(crate) enum StdoutContent {
    /// Text that is ours, or has been made inert.
    Text(String),
    /// Bytes from outside: as they are into a pipe, made inert on a terminal.
    Bytes(Vec<u8>),
    /// It was printed as it came.
    Already,
}

impl Done {
    /// A result with its text.
    pub(crate) fn new(data: Value, text: impl Into<String>) -> Self {
        Self { data, shown: StdoutContent::Text(text.into()), exit: exit::OK }
    }
}

/// Where the output goes and what can be shown there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    /// One JSON object instead of text.
    pub(crate) json: bool,
    /// Colours on stdout.
    pub(crate) color: bool,
    /// Colours on stderr.
    color_stderr: bool,
    /// Columns.
    pub(crate) width: usize,
    /// A line on stderr can be drawn again.
    pub(crate) draws: bool,
    /// The terminal can't do more than plain letters.
    dumb: bool,
    /// Somebody can answer.
    pub(crate) can_ask: bool,
    /// Stdin and stdout are terminals: a program can be run on them.
    pub(crate) interactive: bool,
}

/// Whether colours are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Color {
    /// On a terminal that can, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

const WIDTH_DEFAULT: usize = 100;
const WIDTH_MIN: usize = 40;

impl Screen {
    /// Looks at the terminal and the environment.
    pub(crate) fn new(json: bool, color: Color) -> Self {
        let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
        let wanted = |terminal: bool| match color {
            Color::Auto => terminal && !dumb && !unwanted,
            Color::Always => true,
            Color::Never => false,
        };
        let columns = rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| usize::from(size.ws_col));
        Self {
            json,
            color: !json && wanted(stdout.is_terminal()),
            color_stderr: wanted(stderr.is_terminal()),
            width: if columns == 0 { WIDTH_DEFAULT } else { columns.max(WIDTH_MIN) },
            draws: stderr.is_terminal() && !dumb && !json,
            dumb,
            can_ask: stdin.is_terminal() && stderr.is_terminal() && !json,
            interactive: stdin.is_terminal() && stdout.is_terminal() && !json,
        }
    }

    /// The same for what goes to stderr.
    pub(crate) fn aside(self) -> Self {
        Self { color: self.color_stderr && !self.json, ..self }
    }

    /// Green: allowed, well.
    pub(crate) fn good(&self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Red: denied, broken.
    pub(crate) fn bad(&self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Yellow: asked, less than it could be.
    pub(crate) fn warn(&self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Bold.
    pub(crate) fn strong(&self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Dim.
    pub(crate) fn faint(&self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(&self, style: &str, text: &str) -> String {
        if self.color { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Prints how a command ended, and says how the program ends. After an interrupt, a reader that has stopped reading is left alone.
    pub(crate) fn finish(&self, schema: &str, result: CommandResult) -> u8 {
        let is_interrupted = result.as_ref().is_err_and(|failure| failure.exit == exit::INTERRUPTED);
        if !is_interrupted {
            return self.write_result(schema, result);
        }
        let (screen, schema) = (*self, schema.to_owned());
        let (done, written) = std::sync::mpsc::channel();
        let write = move || {
            let _nobody_waits = done.send(screen.write_result(&schema, result)).is_err();
        };
        // Where there is no thread for it, there is no result either: the exit code still tells.
        let _unwritten = std::thread::Builder::new().spawn(write).is_err();
        written.recv_timeout(TAKEN_WITHIN).unwrap_or(exit::INTERRUPTED)
    }

    fn write_result(&self, schema: &str, result: CommandResult) -> u8 {
        let (out, exit) = match result {
            Ok(done) if self.json => match done.shown {
                StdoutContent::Already => (Vec::new(), done.exit),
                StdoutContent::Text(_) | StdoutContent::Bytes(_) => {
                    (line(&envelope(schema, done.data, None)), done.exit)
                }
            },
            Ok(done) => (stdout_bytes(done.shown), done.exit),
            Err(mut failure) if self.json => {
                let data = failure.data.take();
                (line(&envelope(schema, data, Some(failure.to_json()))), failure.exit)
            }
            Err(failure) => {
                self.say(&self.report(&failure));
                (Vec::new(), failure.exit)
            }
        };
        match write_all(&out) {
            Ok(()) => exit,
            // A reader that has seen enough (`| head`) is not an error of ours.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => exit,
            Err(error) => {
                self.say(&format!("can't write the result: {error}\n"));
                if exit == exit::OK { exit::ERROR } else { exit }
            }
        }
    }

    /// Prints a result before a failure that comes with it; with `--json` the failure has it in its data.
    pub(crate) fn show(&self, done: Done) {
        if !self.json {
            // If nobody reads, the exit code still tells.
            let _unread = write_all(&stdout_bytes(done.shown));
        }
    }

    /// Says something that is not the result.
    pub(crate) fn say(&self, text: &str) {
        // If stderr is gone there is nobody left to tell.
        let _nobody = std::io::stderr().lock().write_all(text.as_bytes());
    }

    /// A failure as people read it.
    pub(crate) fn report(&self, failure: &Failure) -> String {
        let theme = match (self.color_stderr, self.dumb) {
            (true, _) => GraphicalTheme::unicode(),
            (false, false) => GraphicalTheme::unicode_nocolor(),
            (false, true) => GraphicalTheme {
                characters: miette::ThemeCharacters::ascii(),
                styles: miette::ThemeStyles::none(),
            },
        };
        let handler = GraphicalReportHandler::new_themed(theme).with_width(self.width).with_links(false);
        let shown = FailureReport::from_failure(failure);
        let mut text = String::new();
        match handler.render_report(&mut text, &shown) {
            Ok(()) => text,
            Err(fmt::Error) => format!("error: {}: {}\n", failure.code, term::inline(&failure.message)),
        }
    }
}

/// What a result is on stdout.
fn stdout_bytes(shown: StdoutContent) -> Vec<u8> {
    match shown {
        StdoutContent::Text(text) if text.is_empty() || text.ends_with('\n') => text.into_bytes(),
        StdoutContent::Text(text) => (text + "\n").into_bytes(),
        StdoutContent::Bytes(bytes) if std::io::stdout().is_terminal() => {
            stdout_bytes(StdoutContent::Text(term::block_of_bytes(&bytes)))
        }
        StdoutContent::Bytes(bytes) => bytes,
        StdoutContent::Already => Vec::new(),
    }
}

/// Prints bytes on stdout at once.
pub(crate) fn write_all(bytes: &[u8]) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// The object that `--json` prints.
pub(crate) fn envelope(schema: &str, data: Value, error: Option<Value>) -> Value {
    json!({"schema": format!("{schema}/v1"), "ok": error.is_none(), "data": data, "error": error})
}

/// One line of JSON.
pub(crate) fn line(value: &Value) -> Vec<u8> {
    let mut bytes = term::inert_json(value.to_string()).into_bytes();
    bytes.push(b'\n');
    bytes
}

/// A failure in the form that the renderer takes, made inert.
#[derive(Debug)]
struct FailureReport {
    code: String,
    message: String,
    help: Option<String>,
    source: Option<NamedSource<String>>,
    labels: Vec<LabeledSpan>,
}

impl FailureReport {
    fn from_failure(failure: &Failure) -> Self {
        let more = format!("more: `regent explain {}`", failure.code);
        let mut help: Vec<String> = failure.help.iter().map(|help| term::block(help).into_owned()).collect();
        let (mut source, mut labels) = (None, Vec::new());
        if let Some(excerpt) = &failure.excerpt {
            let Excerpt { name, text, marks } = excerpt.as_ref();
            source = Some(NamedSource::new(term::inline(name), term::same_length(text)));
            for mark in marks {
                // A mark shows where to look; drawn over many lines it would hide the others.
                let rest = text.get(mark.offset..).unwrap_or_default();
                let length = mark.length.min(rest.lines().next().map_or(0, str::len));
                let message = term::inline(&mark.message).into_owned();
                labels.push(LabeledSpan::new(Some(message), mark.offset.min(text.len()), length));
                help.extend(
                    mark.help.iter().map(|help| format!("line {}: {}", mark.line, term::inline(help))),
                );
            }
        }
        help.push(more);
        Self {
            code: term::inline(&failure.code).into_owned(),
            message: term::block(&failure.message).into_owned(),
            help: Some(help.join("\n")),
            source,
            labels,
        }
    }
}

impl fmt::Display for FailureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for FailureReport {}

impl miette::Diagnostic for FailureReport {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.code))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        self.source.as_ref().map(|source| source as &dyn miette::SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}
