//! The protocols of providers, without any input or output: a question becomes path, headers and JSON; the bytes of an answer, in
//! pieces of any size, become [`Event`]s.

mod anthropic;
mod gemini;
mod hosted;
mod ollama;
mod openai_chat;
mod openai_responses;
pub(crate) mod parameters;
mod question;
pub mod schema;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::{Message, Part, Reasoning};
use serde_json::Value;

use crate::event::Event;
use crate::lines::{Framing, Lines};
use crate::patience::Wait;
use crate::provider::ProviderError;
pub use anthropic::Anthropic;
pub use gemini::Gemini;
pub use hosted::Hosted;
pub use ollama::Ollama;
pub use openai_chat::OpenAiChat;
pub use openai_responses::OpenAiResponses;
pub use question::{CacheTtl, Question};

/// How some streams say that they are over; the reason has come before.
const DONE: &str = "[DONE]";
/// How much of a provider's words is passed on.
const MESSAGE_CHARS_MAX: usize = 400;
/// An answer that comes in one piece although a stream was asked for.
const WHOLE_BYTES_MAX: usize = 8 << 20;

/// One provider's protocol.
pub trait Wire: Send + Sync + std::fmt::Debug {
    /// Where a question goes, after the provider's own URL.
    fn path(&self, model: &str) -> String;

    /// The header that a key goes into, and what stands before it there.
    fn key_header(&self) -> (&'static str, &'static str);

    /// Headers that every question has.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The question. The same conversation gives the same bytes, and a longer one begins with the same, so that the provider's cache
    /// of prompts holds.
    fn body(&self, question: &Question<'_>) -> Value;

    /// Whether the protocol has a place for an image or a file. What it has none for is refused before anything is sent.
    fn takes(&self, _part: &Part) -> bool {
        false
    }

    /// How the answer is cut into messages.
    fn framing(&self) -> Framing {
        Framing::Events
    }

    /// Something that understands one answer.
    fn decoder(&self) -> Box<dyn Decoder>;
}

/// Decodes the messages of one answer.
pub trait Decoder: Send + std::fmt::Debug {
    /// Adds what a message says.
    fn message(&mut self, message: Value, events: &mut Vec<Event>) -> Result<(), ProviderError>;
}

/// Reads one answer with a good status.
#[derive(Debug)]
pub struct Reading {
    decoder: Box<dyn Decoder>,
    form: WireForm,
    is_done: bool,
}

#[derive(Debug)]
enum WireForm {
    /// Nothing but space has come.
    Unknown(Framing),
    Stream(Lines),
    /// One JSON value: a server that doesn't stream, or an error under a good status.
    Whole(Vec<u8>),
}

impl Reading {
    /// Of an answer in this protocol.
    pub fn new(wire: &dyn Wire) -> Self {
        Self { decoder: wire.decoder(), form: WireForm::Unknown(wire.framing()), is_done: false }
    }

    /// Whether the provider has ended the stream.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes a piece in and adds the events that are whole by then; also those that came before what can't be understood.
    pub fn push(&mut self, piece: &[u8], events: &mut Vec<Event>) -> Result<(), ProviderError> {
        if let WireForm::Unknown(framing) = self.form {
            match piece.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return Ok(()),
                Some(b'{' | b'[') if framing == Framing::Events => self.form = WireForm::Whole(Vec::new()),
                Some(_) => self.form = WireForm::Stream(Lines::new(framing)),
            }
        }
        let Self { decoder, form, is_done } = self;
        match form {
            WireForm::Stream(lines) => lines.push(piece, |message| {
                *is_done |= message.trim() == DONE;
                understand(&mut **decoder, message, events)
            })?,
            WireForm::Whole(bytes) if bytes.len().saturating_add(piece.len()) > WHOLE_BYTES_MAX => {
                return Err(ProviderError::TooLarge("the answer"));
            }
            WireForm::Whole(bytes) => bytes.extend_from_slice(piece),
            WireForm::Unknown(_) => {}
        }
        Ok(())
    }

    /// The answer is over.
    pub fn finish(self, events: &mut Vec<Event>) -> Result<(), ProviderError> {
        let mut decoder = self.decoder;
        match self.form {
            WireForm::Unknown(_) => {}
            WireForm::Stream(lines) => {
                lines.finish(|message| understand(&mut *decoder, message, events))?;
            }
            WireForm::Whole(bytes) => {
                let text = std::str::from_utf8(&bytes)
                    .map_err(|_| ProviderError::Malformed("the answer is not UTF-8".to_owned()))?;
                understand(&mut *decoder, text, events)?;
            }
        }
        Ok(())
    }
}

fn understand(decoder: &mut dyn Decoder, text: &str, events: &mut Vec<Event>) -> Result<(), ProviderError> {
    if text.trim() == DONE {
        return Ok(());
    }
    let value: Value =
        serde_json::from_str(text).map_err(|error| ProviderError::Malformed(format!("not JSON: {error}")))?;
    if let Some(error) = reported(&value) {
        return Err(error);
    }
    decoder.message(value, events)
}

/// The error that a message under a good status carries.
fn reported(value: &Value) -> Option<ProviderError> {
    let error = value.get("error").filter(|error| !error.is_null())?;
    let word = |field: &str| match error.get(field) {
        Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(_) | None => None,
    };
    let code = word("status").or_else(|| word("type")).or_else(|| word("code"));
    Some(ProviderError::Reported {
        code: code.unwrap_or_else(|| "error".to_owned()),
        message: words_of(value),
    })
}

/// The error that an answer with a bad status is. `request` is what was asked.
pub fn refused(status: u16, wait: Option<Wait>, body: &[u8], request: &Value) -> ProviderError {
    let said = serde_json::from_slice::<Value>(body);
    let message = match &said {
        Ok(value) => words_of(value),
        Err(_) => clipped(&String::from_utf8_lossy(body)),
    };
    let named = said.as_ref().ok().and_then(|value| text_at(value, "/error/param"));
    let parameter = parameters::refused(status, named, &String::from_utf8_lossy(body), request);
    ProviderError::Status { status, message, wait, parameter }
}

/// What an error says in words, wherever its provider puts them.
fn words_of(value: &Value) -> String {
    let places = ["/error/message", "/0/error/message", "/message", "/error", "/detail"];
    let found = places.iter().find_map(|place| value.pointer(place).and_then(Value::as_str));
    clipped(found.unwrap_or_default())
}

fn clipped(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None if line.is_empty() => "no reason given".to_owned(),
        None => line,
    }
}

/// A field's text, or nothing.
fn text_at<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer).and_then(Value::as_str)
}

/// A field's number, or nothing.
fn count_at(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer).and_then(Value::as_u64)
}

/// A field's list, or an empty one.
fn list_at<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// What a tool's turn answers, by call. A text that names no call answers one without an id.
fn results(message: &Message) -> Vec<(&str, &[Part])> {
    let results: Vec<_> = message.results().collect();
    if results.is_empty() { vec![("", &message.parts)] } else { results }
}

/// The words of parts that have nothing else.
fn only_text(parts: &[Part]) -> Option<Cow<'_, str>> {
    match parts {
        [] => Some(Cow::Borrowed("")),
        [one] => one.as_text().map(Cow::Borrowed),
        many => many.iter().map(Part::as_text).collect::<Option<String>>().map(Cow::Owned),
    }
}

/// The words among parts.
fn text_in(parts: &[Part]) -> String {
    parts.iter().filter_map(Part::as_text).collect()
}

/// A turn of the model without the thoughts at its end: what they led to was cut off, and providers refuse a thought that led to nothing.
fn without_last_thoughts(parts: &[Part]) -> &[Part] {
    let ends = parts.iter().rposition(|part| !matches!(part, Part::Reasoning(_)));
    ends.and_then(|last| parts.get(..=last)).unwrap_or_default()
}

/// A word that a provider wanted back with a thought.
fn opaque_at<'r>(thought: &'r Reasoning, field: &str) -> Option<&'r str> {
    thought.opaque.as_ref()?.get(field)?.as_str()
}

/// Bytes as a URL that holds them.
fn data_url(media_type: &str, payload: &str) -> String {
    format!("data:{media_type};base64,{payload}")
}

/// The text that a payload is, if it is one.
fn text_of_payload(payload: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(payload).ok()?).ok()
}

/// Puts a field into an object if there is something to put.
fn put(body: &mut Value, field: &str, value: Option<Value>) {
    if let (Some(fields), Some(value)) = (body.as_object_mut(), value) {
        fields.insert(field.to_owned(), value);
    }
}

/// A list that is left out where it would be empty.
fn some_list(items: Vec<Value>) -> Option<Value> {
    (!items.is_empty()).then_some(Value::Array(items))
}
