//! A conversation as the tokens that a model was taught to read, by the template in the weights' own metadata.
//!
//! The template never sees what anybody says. It is given marks, one letter each from beyond all scripts, and writes those; then each
//! mark is replaced by the tokens of what it stands for, which are plain letters whatever they spell. So neither a message, nor a
//! tool's description, nor an argument can end a turn or begin one.

use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value as Jinja};
use regent_kernel::{Inference, Message, Role};
use serde_json::{Value, json};

use super::vocab::Vocab;
use crate::names::Names;

/// The first mark and how many there may be: a plane that no script will ever have.
const MARK: u32 = 0x10_0000;
const MARKS_MAX: u32 = 0xFFFD;
/// What a template may take to run.
const FUEL: u64 = 10_000_000;
/// How a request for a tool begins and ends where a model's own vocabulary doesn't say.
pub(super) const CALL: (&str, &str) = ("<tool_call>", "</tool_call>");
const ANSWER: (&str, &str) = ("<tool_response>", "</tool_response>");
/// For weights without a template.
const USUAL: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}\
                     {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A template that has been read.
#[derive(Debug)]
pub(super) struct Chat {
    environment: Environment<'static>,
    /// It knows what to do with tools.
    knows_tools: bool,
}

impl Chat {
    /// Reads a template and tries it on a conversation.
    pub(super) fn new(template: Option<&str>) -> Result<Self, String> {
        let template = template.unwrap_or(USUAL);
        if template.chars().any(|c| u32::from(c) >= MARK) {
            return Err("the chat template has letters that are no text".to_owned());
        }
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", |why: String| -> Result<Jinja, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, why))
        });
        environment.add_template_owned("chat", template.to_owned()).map_err(|error| error.to_string())?;
        let chat = Self { environment, knows_tools: template.contains("tools") };
        let hello = Message { role: Role::User, text: "x".to_owned(), calls: Vec::new(), answers: None };
        chat.render(&mut Marks::default(), &[hello], &[], &Names::default())?;
        Ok(chat)
    }

    /// The tokens of a conversation, up to where the model speaks.
    pub(super) fn tokens(
        &self,
        vocab: &Vocab,
        inference: &Inference,
        names: &Names,
    ) -> Result<Vec<u32>, String> {
        let mut marks = Marks::default();
        let tools: Vec<String> = inference.tools.iter().map(|offer| {
            format!(
                "{{\"type\": \"function\", \"function\": {{\"name\": {}, \"description\": {}, \"parameters\": {}}}}}",
                spaced(&json!(names.wire(&offer.name))),
                spaced(&json!(offer.description)),
                spaced(&offer.input)
            )
        }).collect();
        let text = if self.knows_tools
            || tools.is_empty()
                && inference
                    .messages
                    .iter()
                    .all(|message| message.calls.is_empty() && message.role != Role::Tool)
        {
            self.render(&mut marks, &inference.messages, &tools, names)?
        } else {
            self.render(&mut marks, &folded(&inference.messages, &tools, names), &[], names)?
        };
        let mut tokens: Vec<u32> = vocab.begin.into_iter().collect();
        let mut rest = text.as_str();
        while let Some((at, mark)) = rest.char_indices().find(|(_, c)| u32::from(*c) >= MARK) {
            vocab.template(rest.get(..at).unwrap_or_default(), &mut tokens);
            vocab.plain(marks.text(mark), &mut tokens);
            rest = rest.get(at + mark.len_utf8()..).unwrap_or_default();
        }
        vocab.template(rest, &mut tokens);
        Ok(tokens)
    }

    fn render(
        &self,
        marks: &mut Marks,
        messages: &[Message],
        tools: &[String],
        names: &Names,
    ) -> Result<String, String> {
        let mut shown = Vec::with_capacity(messages.len());
        for message in messages {
            let mut calls = Vec::new();
            for call in &message.calls {
                let name = marks.add(names.wire(&call.tool))?;
                let args = marks.add(&spaced(&call.args))?;
                calls.push(json!({"type": "function", "function": {"name": name, "arguments": args}}));
            }
            let content = marks.add(&message.text)?;
            let mut one = json!({"role": word(message.role), "content": content});
            if !calls.is_empty()
                && let Some(fields) = one.as_object_mut()
            {
                fields.insert("tool_calls".to_owned(), Value::Array(calls));
            }
            shown.push(one);
        }
        let tools: Vec<String> = tools.iter().map(|tool| marks.add(tool)).collect::<Result<_, _>>()?;
        let tools = if tools.is_empty() { Value::Null } else { json!(tools) };
        let context = json!({"messages": shown, "tools": tools, "add_generation_prompt": true});
        let template = self.environment.get_template("chat").map_err(|error| error.to_string())?;
        template
            .render(Jinja::from_serialize(&context))
            .map_err(|error| format!("the chat template fails: {error}"))
    }
}

/// A template without a place for tools: they are told in the system's turn, and asked for in words.
fn folded(messages: &[Message], tools: &[String], names: &Names) -> Vec<Message> {
    let plain = |role, text| Message { role, text, calls: Vec::new(), answers: None };
    let mut folded: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    if messages.first().is_none_or(|message| message.role != Role::System) {
        folded.push(plain(Role::System, "You are a helpful assistant.".to_owned()));
    }
    for message in messages {
        let text = match message.role {
            Role::Tool => format!("{}\n{}\n{}", ANSWER.0, message.text, ANSWER.1),
            Role::System | Role::User | Role::Assistant => {
                let one = |call: &regent_kernel::ToolUse| {
                    let name = json!(names.wire(&call.tool));
                    format!(
                        "{}\n{{\"name\": {name}, \"arguments\": {}}}\n{}",
                        CALL.0,
                        spaced(&call.args),
                        CALL.1
                    )
                };
                let said = (!message.text.is_empty()).then(|| message.text.clone());
                said.into_iter().chain(message.calls.iter().map(one)).collect::<Vec<_>>().join("\n")
            }
        };
        let role = if message.role == Role::Tool { Role::User } else { message.role };
        folded.push(plain(role, text));
    }
    if let (Some(system), false) = (folded.first_mut(), tools.is_empty()) {
        system.text.push_str(&format!(
            "\n\n# Tools\n\nYou may call one function. You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{}\n</tools>\n\n\
             For each function call, return a json object with function name and arguments within {}{} XML tags.",
            tools.join("\n"),
            CALL.0,
            CALL.1
        ));
    }
    folded
}

/// What the marks stand for.
#[derive(Debug, Default)]
struct Marks(Vec<String>);

impl Marks {
    /// A mark for a text; an empty one stays so, because templates ask.
    fn add(&mut self, text: &str) -> Result<String, String> {
        if text.is_empty() {
            return Ok(String::new());
        }
        let number = u32::try_from(self.0.len()).ok().filter(|number| *number < MARKS_MAX);
        let mark = number.and_then(|number| char::from_u32(MARK + number));
        let mark = mark.ok_or("the conversation has more parts than can be told apart")?;
        self.0.push(text.to_owned());
        Ok(mark.to_string())
    }

    fn text(&self, mark: char) -> &str {
        let at = usize::try_from(u32::from(mark).saturating_sub(MARK)).unwrap_or(usize::MAX);
        self.0.get(at).map_or("", String::as_str)
    }
}

/// Marks that templates turn to JSON stand for JSON already.
fn to_json(value: Jinja, _options: Kwargs) -> Result<Jinja, Error> {
    if let Some(text) = value.as_str()
        && text.chars().all(|c| u32::from(c) >= MARK)
        && !text.is_empty()
    {
        return Ok(value);
    }
    let plain = serde_json::to_value(&value)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))?;
    Ok(Jinja::from(spaced(&plain)))
}

fn word(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

/// JSON with a space after each comma and colon, as models have mostly seen it.
pub(super) fn spaced(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let one = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::String(key.clone()), spaced(value))
            };
            format!("{{{}}}", fields.iter().map(one).collect::<Vec<_>>().join(", "))
        }
    }
}
