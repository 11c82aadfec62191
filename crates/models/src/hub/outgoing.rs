//! What leaves for a remote model: without any value that was revealed in this process, and without what looks like credentials or
//! personal details. What was taken out can be put back into what the model asks for, by the runtime that makes the call. The same conversation is redacted to the same text, so that the provider's cache of prompts holds.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use regent_kernel::{Completion, Inference, Message, Part, Permit, Reasoning, tier};
use regent_vault::redact::{Numbers, redact_with};
use serde_json::Value;

/// Fewer letters hold nothing that is found by its looks.
const ENCODED_CHARS_MIN: usize = 16;
/// Without its padding, and with whatever bits the last letter has to spare.
const ENCODING: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// A conversation as it may leave.
pub(super) struct Outgoing {
    pub(super) inference: Inference,
    /// How many places were taken out.
    pub(super) places: usize,
    numbers: Numbers,
}

impl Outgoing {
    /// What the placeholders that an answer names stand for. Values of the vault are not among them: they were scrubbed before.
    pub(super) fn named_in(&self, completion: &Completion) -> BTreeMap<String, String> {
        let mut said = completion.message.text().into_owned();
        for call in completion.message.calls() {
            said.push_str(&call.args.to_string());
        }
        let text = |(placeholder, value): (String, &[u8])| {
            let value = std::str::from_utf8(value).ok()?;
            said.contains(&placeholder).then(|| (placeholder, value.to_owned()))
        };
        self.numbers.placeholders().filter_map(text).collect()
    }
}

/// A conversation as one model takes it: without the thoughts of others, who alone can read what they are proven by.
pub(super) fn fitting<'i>(inference: &'i Inference, provider: &str, model: &str) -> Cow<'i, Inference> {
    let is_foreign = |part: &Part| matches!(part, Part::Reasoning(thought) if thought.provider != provider || thought.model != model);
    if !inference.messages.iter().any(|message| message.parts.iter().any(is_foreign)) {
        return Cow::Borrowed(inference);
    }
    let mut fitting = inference.clone();
    fitting.messages.iter_mut().for_each(|message| message.parts.retain(|part| !is_foreign(part)));
    Cow::Owned(fitting)
}

pub(super) fn redacted(permit: &Permit<'_, tier::Host>, inference: &Inference) -> Outgoing {
    let mut outgoing = inference.clone();
    let mut numbers = Numbers::default();
    for message in &outgoing.messages {
        numbers.avoid(&message.text());
        message.calls().for_each(|call| numbers.avoid(&call.args.to_string()));
    }
    let mut places = 0;
    let mut clean = |text: &mut String| {
        let mut bytes = std::mem::take(text).into_bytes();
        places += usize::from(permit.scrub(&mut bytes));
        let redacted = redact_with(&bytes, &mut numbers);
        places += redacted.findings.len();
        *text = String::from_utf8(redacted.bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        places += without_encoded(text, |decoded| {
            let mut numbers = Numbers::default();
            usize::from(permit.scrub(decoded)) + redact_with(decoded, &mut numbers).findings.len()
        });
    };
    let mut dropped = 0;
    for message in &mut outgoing.messages {
        dropped += without_revealed_thoughts(permit, message);
        message.parts.iter_mut().for_each(|part| each_part(part, &mut clean));
    }
    places += dropped;
    Outgoing { inference: outgoing, places, numbers }
}

/// A thought goes back as it came, or its provider refuses it. It was thought about a redacted prompt, so its placeholders stand for what they
/// stand for now. One that has a value of the vault all the same doesn't go. Says how many those were.
fn without_revealed_thoughts(permit: &Permit<'_, tier::Host>, message: &mut Message) -> usize {
    let before = message.parts.len();
    message.parts.retain(|part| {
        let Part::Reasoning(Reasoning { text, opaque, .. }) = part else { return true };
        let mut bytes = text.clone().into_bytes();
        bytes.extend(opaque.iter().flat_map(|opaque| opaque.to_string().into_bytes()));
        !permit.scrub(&mut bytes)
    });
    before - message.parts.len()
}

fn each_part(part: &mut Part, clean: &mut impl FnMut(&mut String)) {
    match part {
        Part::Text { text } => clean(text),
        Part::ToolUse(call) => each_text(&mut call.args, clean),
        Part::ToolResult { parts, .. } => parts.iter_mut().for_each(|part| each_part(part, clean)),
        Part::Image { payload, .. } => in_payload(payload, clean),
        Part::File { name, payload, .. } => {
            clean(name);
            in_payload(payload, clean);
        }
        Part::Reasoning(_) => {}
    }
}

/// Redacts a payload that is text. The bytes of an image aren't searched.
fn in_payload(payload: &mut String, clean: &mut impl FnMut(&mut String)) {
    let Ok(text) = String::from_utf8(ENCODING.decode(&*payload).unwrap_or_default()) else { return };
    let mut cleaned = text.clone();
    clean(&mut cleaned);
    if cleaned != text {
        *payload = base64::engine::general_purpose::STANDARD.encode(cleaned);
    }
}

/// Takes out base64 whose content would be redacted: `fs.read` gives any file in that form on demand. Says how many places that were.
fn without_encoded(text: &mut String, findings: impl Fn(&mut Vec<u8>) -> usize) -> usize {
    let (mut kept, mut places) = (String::new(), 0);
    let mut rest = text.as_str();
    while let Some(start) = rest.find(is_letter) {
        // The letter of `\n` within JSON belongs to the break.
        let is_escape = rest.get(..start).is_some_and(|before| before.ends_with('\\'))
            && rest.get(start..).is_some_and(|from| from.starts_with(['n', 'r', 't']));
        let (before, from) = rest.split_at(start + usize::from(is_escape));
        kept.push_str(before);
        if !from.starts_with(is_letter) {
            rest = from;
            continue;
        }
        let block = LetterBlock::first(from);
        let is_long = block.letters.len() >= ENCODED_CHARS_MIN;
        let found = if is_long { findings(&mut decoded(&block.letters)) } else { 0 };
        let (word, after) = from.split_at(block.bytes);
        rest = after;
        if found == 0 {
            kept.push_str(word);
        } else {
            places += found;
            kept.push_str(&format!("[left out: base64 of text with {found} values that are redacted]"));
            rest = rest.trim_start_matches('=');
        }
    }
    if places > 0 {
        kept.push_str(rest);
        *text = kept;
    }
    places
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || "+/-_".contains(c)
}

/// What breaks a line, as it is and within JSON.
const BREAKS: &[&str] = &["\r\n", "\n", "\\r\\n", "\\n"];

/// Lines of letters of the same length, one after the other; the last one may be shorter. A value may go across the end of a line.
#[derive(Debug, Default)]
struct LetterBlock {
    /// How much of the text it takes.
    bytes: usize,
    letters: String,
}

impl LetterBlock {
    /// The block that a text begins with.
    fn first(text: &str) -> Self {
        let mut block = Self::default();
        let (mut from, mut line_bytes) = (text, usize::MAX);
        loop {
            let word = from.split(|c| !is_letter(c)).next().unwrap_or_default();
            if word.is_empty() || word.len() > line_bytes {
                return block;
            }
            block.bytes = text.len() - from.len() + word.len();
            block.letters.push_str(word);
            // Four letters are three bytes: lines of another length aren't parts of one text.
            let goes_on = word.len() >= ENCODED_CHARS_MIN
                && word.len().is_multiple_of(4)
                && (line_bytes == usize::MAX || word.len() == line_bytes);
            line_bytes = word.len();
            let after = from.get(word.len()..).unwrap_or_default();
            let next = BREAKS.iter().find_map(|line_break| after.strip_prefix(line_break));
            match next.filter(|_| goes_on) {
                Some(next) => from = next,
                None => return block,
            }
        }
    }
}

fn decoded(word: &str) -> Vec<u8> {
    let standard: String = word
        .chars()
        .map(|c| {
            if c == '-' {
                '+'
            } else if c == '_' {
                '/'
            } else {
                c
            }
        })
        .collect();
    // A last letter alone carries no whole byte.
    let whole = if standard.len() % 4 == 1 { standard.len() - 1 } else { standard.len() };
    ENCODING.decode(standard.get(..whole).unwrap_or_default()).unwrap_or_default()
}

/// The parser bounds the depth.
fn each_text(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| each_text(field, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"AKIA-a-key-that-is-known";

    fn left(text: &str) -> (String, usize) {
        let mut text = text.to_owned();
        let holds = |decoded: &mut Vec<u8>| {
            assert!(decoded.len() >= ENCODED_CHARS_MIN * 3 / 4, "too short to look at");
            decoded.windows(KEY.len()).filter(|part| *part == KEY).count()
        };
        let places = without_encoded(&mut text, holds);
        (text, places)
    }

    #[test]
    fn a_value_across_two_lines_of_base64_is_left_out() {
        let file = [&[b'x'; 50], KEY, &[b'y'; 100]].concat();
        let letters = ENCODING.encode(&file);
        for line_break in BREAKS {
            let lines: Vec<_> = letters.as_bytes().chunks(76).map(String::from_utf8_lossy).collect();
            let text = format!("a word{line_break}{}==, and more", lines.join(line_break));
            let (text, places) = left(&text);
            assert_eq!(places, 1, "{text}");
            assert!(text.starts_with("a word") && text.ends_with("redacted], and more"), "{text}");
        }
    }

    #[test]
    fn other_lines_are_left_as_they_are() {
        let text = "short words\nand-a-line-of-letters-as-long\nand-a-line-of-letters-too-xx\nend\n";
        assert_eq!(left(text), (text.to_owned(), 0));
        let one = ENCODING.encode(KEY);
        let (text, places) = left(&format!("odd-word-of-some-length\n{one}\nlast"));
        assert_eq!((text.starts_with("odd-word-of-some-length\n[left out"), places), (true, 1), "{text}");
    }
}
