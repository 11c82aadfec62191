//! A call in one line, so that a reviewer knows what an approval would cover.
//!
//! An agent's text is escaped: it can't move the cursor, forge a second line or reverse text.

use serde_json::Value;

use super::Traced;
use regent_guard::invisible::is_invisible;
use regent_wire::{Inference, Message};

use crate::call::{Call, Op};
use crate::facts::{Sheet, Target};
use crate::recovery::InDoubt;

/// The longest line.
const CHARS_MAX: usize = 600;
/// The longest argument in it.
const ARGUMENT_CHARS_MAX: usize = 120;
/// The longest part of a message in it.
const LAST_CHARS_MAX: usize = 300;
/// Maximum arguments whose origin is listed.
const ORIGINS_MAX: usize = 32;

/// The line, and whether it leaves out a part of the call.
pub(super) fn summarize(call: &Call, sheet: &Sheet) -> (String, bool) {
    if let Op::Infer(inference) = &call.op {
        // Earlier messages are never in it.
        return (shorten(&summarize_inference(inference), CHARS_MAX).0, true);
    }
    let mut cut = false;
    let mut line = match &sheet.tool {
        Some(tool) => plain(&tool.spec().name, ARGUMENT_CHARS_MAX),
        None => call.op.name().to_owned(),
    };
    line.push_str(&arguments(&sheet.args, &mut cut));
    for target in &sheet.resources {
        let text = match target {
            Target::Path { path, access } => format!("{access} {path}"),
            Target::Endpoint { scheme, host, port, method, .. } => {
                format!("{method} {scheme}://{host}:{port}")
            }
            Target::Argv(argv) => argv.join(" "),
            Target::Secret(name) => format!("secret {name}"),
        };
        let (text, text_cut) = escape_within(&text, ARGUMENT_CHARS_MAX);
        cut |= text_cut;
        line.push_str(&format!(" → {text}"));
    }
    let (line, shortened) = shorten(&line, CHARS_MAX);
    (line, cut | shortened)
}

/// Where each argument comes from, those that choose who is affected first. The tool that made the output names the fields.
pub(super) fn origins(sheet: &Sheet) -> Vec<Traced> {
    let found = sheet.ruling.as_ref().map_or(&[][..], |ruling| &ruling.found);
    let mut all: Vec<_> = found.iter().collect();
    all.sort_by_key(|one| !one.sink);
    let traced = all.into_iter().take(ORIGINS_MAX).map(|one| Traced {
        argument: plain(&one.argument, 40),
        sink: one.sink,
        origin: one.origin.word().to_owned(),
        from: plain(&one.origin.to_string(), ARGUMENT_CHARS_MAX),
    });
    traced.collect()
}

/// A conversation is long and the reviewer knows most of it. The last message is the new part.
fn summarize_inference(inference: &Inference) -> String {
    let Inference { model, messages, .. } = inference;
    let last = messages.last().map(Message::text).unwrap_or_default();
    let (model, last) = (plain(model, ARGUMENT_CHARS_MAX), plain(&last, LAST_CHARS_MAX));
    format!("model.infer model=`{model}`, {} messages, the last: `{last}`", messages.len())
}

/// A call that may or may not have happened.
pub(super) fn summarize_doubt(what: &str, args: &Value, call: &InDoubt) -> (String, bool) {
    let mut cut = false;
    let what = plain(what, ARGUMENT_CHARS_MAX);
    let line =
        format!("repeat `{what}`{} (entry {} of lane {})", arguments(args, &mut cut), call.seq, call.lane);
    let (line, shortened) = shorten(&line, CHARS_MAX);
    (line, cut | shortened)
}

fn arguments(args: &Value, cut: &mut bool) -> String {
    let Value::Object(fields) = args else { return String::new() };
    let all = fields.iter().map(|(name, value)| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                value.to_string()
            }
        };
        let ((name, name_cut), (text, text_cut)) =
            (escape_within(name, 40), escape_within(&text, ARGUMENT_CHARS_MAX));
        *cut |= name_cut | text_cut;
        format!(" {name}=`{text}`")
    });
    all.collect()
}

fn plain(text: &str, chars_max: usize) -> String {
    escape_within(text, chars_max).0
}

/// The text with invisible characters escaped, and whether its end is cut. An escape is never cut in two.
fn escape_within(text: &str, chars_max: usize) -> (String, bool) {
    let (mut short, mut chars) = (String::new(), 0_usize);
    for (at, letter) in text.char_indices() {
        let escaped = escape(letter);
        chars = chars.saturating_add(escaped.len());
        if chars > chars_max {
            short.push_str(&format!("… ({} bytes more)", text.len().saturating_sub(at)));
            return (short, true);
        }
        short.extend(escaped);
    }
    (short, false)
}

fn escape(letter: char) -> Vec<char> {
    if letter.is_control() || is_invisible(letter) { letter.escape_unicode().collect() } else { vec![letter] }
}

fn shorten(line: &str, chars_max: usize) -> (String, bool) {
    if line.chars().count() <= chars_max {
        return (line.to_owned(), false);
    }
    (line.chars().take(chars_max).chain(['…']).collect(), true)
}
