//! Parameters that some models refuse and every question can do without: dropped or spelt differently once a provider has named them.
//!
//! Which model takes what changes faster than any list, and a compatible server may be anything, so the provider's own answer decides.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// A parameter, the words that name it in an error, and whether only the error's own field for it counts: the word is a common one.
struct Optional {
    name: &'static str,
    words: &'static [&'static str],
    is_common: bool,
}

const OPTIONAL: [Optional; 10] = [
    Optional { name: "temperature", words: &["temperature"], is_common: false },
    Optional { name: "tool_choice", words: &["tool_choice", "forced tool use"], is_common: false },
    Optional {
        name: "toolConfig",
        words: &["tool_config", "toolconfig", "function_calling_config"],
        is_common: false,
    },
    Optional { name: "stream_options", words: &["stream_options"], is_common: false },
    Optional { name: "seed", words: &["seed"], is_common: true },
    Optional { name: "stop", words: &["stop"], is_common: true },
    Optional { name: "stop_sequences", words: &["stop_sequences"], is_common: false },
    // A model that doesn't reason has no thoughts to encrypt.
    Optional { name: "include", words: &["encrypted content", "encrypted_content"], is_common: false },
    Optional { name: MAX_TOKENS, words: &[MAX_TOKENS], is_common: false },
    Optional { name: EFFORT, words: &[EFFORT], is_common: false },
];

/// Newer models want another name for it.
const MAX_TOKENS: &str = "max_tokens";
const MAX_COMPLETION_TOKENS: &str = "max_completion_tokens";
/// Some models take tools in this protocol only if they don't reason.
const EFFORT: &str = "reasoning_effort";
/// Where parameters stand, beside the question itself.
const PLACES: [&str; 3] = ["", "/generationConfig", "/options"];

/// The parameter of a question that an answer refuses by name.
pub(crate) fn refused(
    status: u16,
    named: Option<&str>,
    error: &str,
    request: &Value,
) -> Option<&'static str> {
    if !matches!(status, 400 | 422) {
        return None;
    }
    let error = error.to_ascii_lowercase();
    let is_refused = |one: &&Optional| {
        let is_named = named == Some(one.name);
        is_sent(one.name, request)
            && (is_named || (!one.is_common && one.words.iter().any(|word| has_word(&error, word))))
    };
    OPTIONAL.iter().find(is_refused).map(|one| one.name)
}

/// Takes them out of a question, or says them otherwise.
pub(crate) fn adapt(request: &mut Value, refused: &BTreeSet<&'static str>) {
    for name in refused {
        if *name == EFFORT && !takes_tools_in_chat(request) {
            continue;
        }
        for place in PLACES {
            let Some(fields) = request.pointer_mut(place).and_then(Value::as_object_mut) else { continue };
            let value = fields.remove(*name);
            if *name == MAX_TOKENS
                && let Some(value) = value
            {
                fields.insert(MAX_COMPLETION_TOKENS.to_owned(), value);
            }
        }
        if *name == EFFORT
            && let Some(fields) = request.as_object_mut()
        {
            fields.insert(EFFORT.to_owned(), json!("none"));
        }
    }
}

/// The name that we use for a parameter, if it is one of these.
pub(crate) fn known(name: &str) -> Option<&'static str> {
    names().find(|known| *known == name)
}

fn takes_tools_in_chat(request: &Value) -> bool {
    request.get("messages").is_some() && request.get("tools").is_some()
}

/// All of these names.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    OPTIONAL.iter().map(|one| one.name)
}

fn is_sent(name: &str, request: &Value) -> bool {
    if name == EFFORT {
        // Tools on chat completions: the parameter exists, and the request didn't set it.
        return takes_tools_in_chat(request) && request.get(EFFORT).and_then(Value::as_str) != Some("none");
    }
    PLACES.iter().any(|place| request.pointer(place).is_some_and(|fields| fields.get(name).is_some()))
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) =
            (text.get(..at).unwrap_or_default(), text.get(at + word.len()..).unwrap_or_default());
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d1_refusals_of_real_servers_name_their_parameter() {
        let chat = json!({"model": "m", "messages": [], "tools": [{}], "temperature": 0.0, "tool_choice": "required", "max_tokens": 9, "stop": ["x"], "include": []});
        let cases = [
            (
                r#"{"error":{"message":"litellm.UnsupportedParamsError: gpt-5 models don't support temperature=0.0. Only temperature=1 is supported.","type":null,"param":null,"code":"400"}}"#,
                Some("temperature"),
            ),
            (
                r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported.","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}"#,
                Some("temperature"),
            ),
            (
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"tool_choice: forced tool use is not supported on this model"}}"#,
                Some("tool_choice"),
            ),
            (
                r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens"}}"#,
                Some("max_tokens"),
            ),
            (
                r#"{"error":{"message":"Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. Please use /v1/responses or set reasoning_effort to 'none'.","param":"reasoning_effort"}}"#,
                Some("reasoning_effort"),
            ),
            (
                r#"{"error":{"message":"Encrypted content is not supported with this model.","type":"invalid_request_error","param":"include","code":null}}"#,
                Some("include"),
            ),
            (r#"{"error":{"message":"please stop asking","param":null}}"#, None),
            (r#"{"error":{"message":"This model's maximum context length is 8192 tokens"}}"#, None),
            (r#"{"error":{"message":"the temperatures differ"}}"#, None),
            ("<html>temperature</html>", Some("temperature")),
        ];
        for (error, expected) in cases {
            let value: Value = serde_json::from_str(error).unwrap_or_default();
            let named = value.pointer("/error/param").and_then(Value::as_str);
            assert_eq!(refused(400, named, error, &chat), expected, "{error}");
            assert_eq!(refused(500, named, error, &chat), None, "{error}");
            assert_eq!(
                refused(400, named, error, &json!({"model": "m"})),
                None,
                "what wasn't sent isn't dropped: {error}"
            );
        }
    }

    #[test]
    fn d1_a_question_goes_without_what_was_refused() {
        let refused = BTreeSet::from(["temperature", "max_tokens", "seed", "reasoning_effort"]);
        let mut chat =
            json!({"messages": [], "tools": [], "temperature": 0.0, "max_tokens": 9, "options": {"seed": 1}});
        adapt(&mut chat, &refused);
        let expected = json!({
            "messages": [], "tools": [], "max_completion_tokens": 9, "options": {}, "reasoning_effort": "none"
        });
        assert_eq!(chat, expected);
        for other in [json!({"messages": []}), json!({"input": [], "tools": []})] {
            let mut same = other.clone();
            adapt(&mut same, &refused);
            assert_eq!(same, other, "only tools on chat completions need it");
        }
        assert_eq!((known("temperature"), known("messages")), (Some("temperature"), None));
    }
}
