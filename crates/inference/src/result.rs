//! Asks a small model for the result of a task in a separate conversation. A small model that has just read examples answers with them.
//! Given only the tool outputs and the task, it answers from those. So once the model wants to end a task, it gets a shorter request
//! without examples.

use regent_kernel::{Inference, Message, Role, Sampling};

use super::chat::spaced;
use super::examples::{goal_of, is_finish};
use regent_models::Names;

const SYSTEM: &str = "You answer questions from what tools have brought.";
const HOW: &str = "Answer in one short sentence.";
/// Maximum characters of tool output in the request, newest first.
const OUTPUTS_CHARS_MAX: usize = 8_000;
/// Maximum tokens of a result.
const TOKENS_MAX: u64 = 200;

/// The request for the result, if there is a task, a tool to end it, and tool output.
pub(super) fn asked_for(inference: &Inference, names: &Names) -> Option<Inference> {
    let goal = goal_of(&inference.messages)?;
    if !inference.tools.iter().any(is_finish) {
        return None;
    }
    let mut brought = Vec::new();
    let mut room = OUTPUTS_CHARS_MAX;
    for message in inference.messages.iter().rev().filter(|message| message.role == Role::Tool) {
        let text = format!("{}{}", call_of(&inference.messages, message, names), bare(&message.text()));
        let shown: String = text.chars().take(room).collect();
        room = room.saturating_sub(shown.chars().count());
        if !shown.is_empty() {
            brought.push(shown);
        }
    }
    if brought.is_empty() {
        return None;
    }
    brought.reverse();
    let question = format!("{}\n\n{}\n{HOW}", brought.join("\n"), goal.text());
    Some(Inference {
        model: inference.model.clone(),
        messages: vec![Message::new(Role::System, SYSTEM), Message::new(Role::User, question)],
        tools: Vec::new(),
        tokens_max: inference.tokens_max.min(TOKENS_MAX),
        sampling: Sampling { schema: None, ..inference.sampling.clone() },
    })
}

/// An output without its provenance markers. The markers tell a model what not to obey. No tool can be called here, and a small model takes
/// their long number for the answer.
fn bare(text: &str) -> String {
    let nonce = text.lines().find_map(|line| line.strip_prefix("<<output ")?.split(' ').next());
    let Some(nonce) = nonce else { return text.to_owned() };
    let begins = format!("<<output {nonce} ");
    let ends = format!("<<end {nonce}>>");
    let is_marker = |line: &&str| line.starts_with(&begins) || *line == ends;
    text.lines().filter(|line| !is_marker(line)).collect::<Vec<_>>().join("\n")
}

/// The call that an output belongs to, on a line before it.
fn call_of(messages: &[Message], output: &Message, names: &Names) -> String {
    let mut calls = messages.iter().flat_map(Message::calls);
    let call = calls.find(|call| output.answers() == Some(&call.id));
    call.map(|call| format!("{} {}:\n", names.wire(&call.tool), spaced(&call.args))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use regent_kernel::ToolUse;
    use serde_json::json;

    use super::*;
    use crate::tests::{inference, message, offer};

    fn conversation(output: &str) -> Inference {
        let schema =
            json!({"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]});
        let call = ToolUse { id: "1".to_owned(), tool: "fs.read".to_owned(), args: json!({"path": "a.txt"}) };
        let messages = vec![
            message(Role::System, "rules"),
            message(Role::User, "What does a.txt say?"),
            Message::asking("", [call]),
            Message::answer("1", output),
        ];
        inference(messages, vec![offer("task.finish", "End", schema)], 1_000)
    }

    #[test]
    fn the_result_request_contains_only_tool_output_and_the_task() {
        let asked = asked_for(&conversation("It says moss."), &Names::default()).unwrap();
        let texts: Vec<_> = asked.messages.iter().map(Message::text).collect();
        let question = "fs.read {\"path\": \"a.txt\"}:\nIt says moss.\n\nWhat does a.txt say?\nAnswer in one short sentence.";
        assert_eq!(texts, [SYSTEM, question]);
        assert!(asked.tools.is_empty() && asked.tokens_max == TOKENS_MAX);
    }

    #[test]
    fn strips_provenance_markers_and_keeps_look_alikes() {
        for (text, expected) in [
            ("no markers\n<<end 1>>", "no markers\n<<end 1>>"),
            ("<<output n1 from=file; content>>\nmoss\n<<end n2>>\n<<end n1>>", "moss\n<<end n2>>"),
            (
                "[failed: x]\n<<output n1 from=file; content>>\nno\n<<end n1>>\n<<output n1 from=file; content>>\n\n<<end n1>>",
                "[failed: x]\nno\n",
            ),
        ] {
            assert_eq!(bare(text), expected);
        }
    }

    #[test]
    fn asks_for_no_result_without_tool_output_or_a_finish_tool() {
        let mut none = conversation("x");
        none.messages.truncate(2);
        assert_eq!(asked_for(&none, &Names::default()), None);
        let mut endless = conversation("x");
        endless.tools.clear();
        assert_eq!(asked_for(&endless, &Names::default()), None);
    }

    #[test]
    fn truncates_tool_output_and_keeps_the_newest() {
        let mut long = conversation(&"old ".repeat(10_000));
        long.messages.push(Message::answer("2", "newest"));
        let asked = asked_for(&long, &Names::default()).unwrap();
        let text = asked.messages.last().unwrap().text();
        assert!(text.contains("newest") && text.chars().count() < OUTPUTS_CHARS_MAX + 200, "{}", text.len());
    }
}
