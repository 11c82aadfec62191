//! What redaction took out of a prompt is put back into calls that stay on this machine, and only into those.
//!
//! The table comes with the model's answer, so it is in the ledger, and a resumed task restores the same. The model's turn is kept with
//! the values put back: what leaves next is redacted again, with numbers of its own.

use std::collections::BTreeMap;

use regent_kernel::{Message, SideEffect, ToolCall, ToolSpec};
use serde_json::Value;

use super::FINISH;

/// Placeholders and what they stand for.
pub(crate) type PlaceholderTable = BTreeMap<String, String>;

/// The longest placeholder, such as `[private-key:4294967295]`.
const PLACEHOLDER_BYTES_MAX: usize = 32;
/// Kinds that let their bearer in somewhere.
const CREDENTIALS: [&str; 4] = ["[key:", "[token:", "[private-key:", "[password:"];

/// Where the arguments of a call go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArgumentReach {
    /// Into files of this machine, or nowhere.
    Files,
    /// To a program without a network. Command lines are shown and recorded, so no credential is put there.
    Program,
    /// Maybe off this machine.
    Leaves,
}

/// A text with the values in it.
pub(crate) fn restored_text(text: &str, table: &PlaceholderTable) -> String {
    let mut out = String::with_capacity(text.len());
    each_part(text, table, |part| match part {
        Part::Plain(plain) => out.push_str(plain),
        Part::Placeholder(_, value) => out.push_str(value),
    });
    out
}

/// A value with the values in all its texts.
pub(crate) fn restored(value: &Value, table: &PlaceholderTable) -> Value {
    match value {
        Value::String(text) => Value::String(restored_text(text, table)),
        Value::Array(items) => items.iter().map(|item| restored(item, table)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (name.clone(), restored(field, table))).collect()
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other.clone(),
    }
}

/// A model's turn as it would have been without redaction.
///
/// What it thought stays as it came: the model gets it back, and a signature covers it.
pub(super) fn restored_message(mut message: Message, table: &PlaceholderTable) -> Message {
    if table.is_empty() {
        return message;
    }
    message.texts_mut().for_each(|text| *text = restored_text(text, table));
    message.calls_mut().for_each(|call| call.args = restored(&call.args, table));
    message
}

/// The call to make, or why none is made. `asked` is what the model wrote.
pub(crate) fn final_call(
    asked: &ToolCall,
    spec: Option<&ToolSpec>,
    table: &PlaceholderTable,
) -> Result<ToolCall, &'static str> {
    let mut named = Vec::new();
    placeholders_in(&asked.args, table, &mut named);
    let is_credential =
        |placeholder: &&str| CREDENTIALS.iter().any(|credential| placeholder.starts_with(credential));
    match reach_of(asked, spec) {
        _ if named.is_empty() => Ok(asked.clone()),
        ArgumentReach::Leaves => Err(
            "[refused: this call names a placeholder for a value that was taken out of your prompt. This tool can \
            send data off this machine, so the value is not put back. Only file tools, and programs without a network, get it]",
        ),
        ArgumentReach::Program if named.iter().any(is_credential) => {
            Err("[refused: this call names a placeholder for a credential that was \
            taken out of your prompt. Command lines are shown and recorded, so it is not put back. Use a file tool]")
        }
        ArgumentReach::Files | ArgumentReach::Program => {
            Ok(ToolCall { tool: asked.tool.clone(), args: restored(&asked.args, table) })
        }
    }
}

fn reach_of(call: &ToolCall, spec: Option<&ToolSpec>) -> ArgumentReach {
    if call.tool == FINISH {
        return ArgumentReach::Files;
    }
    // What isn't known to stay leaves.
    let Some(spec) = spec.filter(|spec| spec.effect != SideEffect::Network) else {
        return ArgumentReach::Leaves;
    };
    let has_network = call.args.get("network").is_some_and(|network| *network != Value::Bool(false));
    let is_file =
        |capability: &String| matches!(capability.as_str(), "file.read" | "file.write" | "file.delete");
    let stays = |capability: &String| is_file(capability) || capability == "process.exec";
    if spec.capabilities.is_empty() || has_network || !spec.capabilities.iter().all(stays) {
        ArgumentReach::Leaves
    } else if spec.capabilities.iter().all(is_file) {
        ArgumentReach::Files
    } else {
        ArgumentReach::Program
    }
}

fn placeholders_in<'t>(value: &Value, table: &'t PlaceholderTable, found: &mut Vec<&'t str>) {
    match value {
        Value::String(text) => each_part(text, table, |part| {
            if let Part::Placeholder(placeholder, _) = part {
                found.push(placeholder);
            }
        }),
        Value::Array(items) => items.iter().for_each(|item| placeholders_in(item, table, found)),
        Value::Object(fields) => fields.values().for_each(|field| placeholders_in(field, table, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

enum Part<'a, 't> {
    Plain(&'a str),
    Placeholder(&'t str, &'t str),
}

/// One pass: what a value brings is not looked at again.
fn each_part<'a, 't>(text: &'a str, table: &'t PlaceholderTable, mut part: impl FnMut(Part<'a, 't>)) {
    let mut rest = text;
    while let Some(at) = rest.find('[') {
        let (before, from) = rest.split_at(at);
        part(Part::Plain(before));
        let near = from.get(..from.floor_char_boundary(PLACEHOLDER_BYTES_MAX)).unwrap_or(from);
        let found = near.find(']').and_then(|end| {
            let word = near.get(..=end)?;
            table.get_key_value(word)
        });
        match found {
            Some((placeholder, value)) => {
                part(Part::Placeholder(placeholder, value));
                rest = from.get(placeholder.len()..).unwrap_or_default();
            }
            None => {
                part(Part::Plain("["));
                rest = from.get(1..).unwrap_or_default();
            }
        }
    }
    part(Part::Plain(rest));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table() -> PlaceholderTable {
        let pairs = [("[email:1]", "a@b.example"), ("[email:11]", "[email:1]"), ("[key:1]", "AKIA")];
        pairs.map(|(placeholder, value)| (placeholder.to_owned(), value.to_owned())).into()
    }

    fn spec(capabilities: &[&str], effect: SideEffect) -> ToolSpec {
        let capabilities = capabilities.iter().map(|one| (*one).to_owned()).collect();
        ToolSpec { capabilities, effect, ..ToolSpec::default() }
    }

    #[test]
    fn d3_values_are_put_back_once_and_nothing_else_changes() {
        let text = "to [email:1], [email:11] and [email:2]; [[email:1]] é[ [x [email:1";
        assert_eq!(
            restored_text(text, &table()),
            "to a@b.example, [email:1] and [email:2]; [a@b.example] é[ [x [email:1"
        );
        let args = json!({"path": "[email:1]", "list": [1, "[key:1]", null]});
        assert_eq!(restored(&args, &table()), json!({"path": "a@b.example", "list": [1, "AKIA", null]}));
    }

    #[test]
    fn values_are_put_back_into_words_and_calls_and_not_into_thoughts() {
        let thought = json!({"type": "reasoning", "provider": "p", "model": "m", "text": "for [email:1]"});
        let call = json!({"type": "tool_use", "id": "c", "tool": "t", "args": {"to": "[email:1]"}});
        let said = json!({"type": "text", "text": "To [email:1]."});
        let message = json!({"role": "assistant", "parts": [thought, said, call]});
        let restored = restored_message(serde_json::from_value(message).unwrap(), &table());
        assert_eq!(restored.text(), "To a@b.example.");
        assert_eq!(restored.calls().next().unwrap().args, json!({"to": "a@b.example"}));
        assert_eq!(serde_json::to_value(&restored.parts[0]).unwrap(), thought);
    }

    #[test]
    fn d3_only_what_stays_on_this_machine_gets_a_value() {
        let call = |args: Value| ToolCall { tool: "t".to_owned(), args };
        let (mail, key) = (json!({"x": "[email:1]"}), json!({"x": "[key:1]"}));
        let files = spec(&["file.read", "file.write"], SideEffect::Write);
        let program = spec(&["process.exec"], SideEffect::Write);
        let elsewhere = [
            spec(&["network.request"], SideEffect::Network),
            spec(&["file.write"], SideEffect::Network),
            spec(&["file.write", "network.request"], SideEffect::Write),
            spec(&["skill.manage"], SideEffect::Write),
            spec(&[], SideEffect::None),
        ];
        let is_made =
            |args: &Value, spec: Option<&ToolSpec>| final_call(&call(args.clone()), spec, &table()).is_ok();
        assert!(is_made(&mail, Some(&files)) && is_made(&key, Some(&files)));
        assert!(is_made(&mail, Some(&program)) && !is_made(&key, Some(&program)));
        let with_network = json!({"x": "[email:1]", "network": true});
        assert!(!is_made(&with_network, Some(&program)));
        assert!(!is_made(&mail, None), "a tool that nobody knows");
        for spec in &elsewhere {
            assert!(!is_made(&mail, Some(spec)), "{:?}", spec.capabilities);
            let plain = json!({"x": "[email:9]"});
            assert_eq!(final_call(&call(plain.clone()), Some(spec), &table()).unwrap().args, plain);
        }
        let made = final_call(&call(mail), Some(&files), &table()).unwrap();
        assert_eq!(made.args, json!({"x": "a@b.example"}));
    }
}
