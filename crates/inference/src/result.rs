//! The result of a task, asked for in a conversation of its own. A small model that has just read examples answers with them; one that
//! reads only what its tools brought and what the task was answers from that. So once it wants to end a task, the words are asked for
//! again: shorter to read than the conversation it wanted to end, and without a single example.

use regent_kernel::{Inference, Message, Role, Sampling};

use super::chat::spaced;
use super::examples::{goal_of, is_finish};
use regent_models::Names;

const SYSTEM: &str = "You answer questions from what tools have brought.";
const HOW: &str = "Answer in one short sentence.";
/// Of what the tools brought so much is read, the newest first.
const OUTPUTS_CHARS_MAX: usize = 8_000;
/// The longest result, in tokens.
const TOKENS_MAX: u64 = 200;

/// The question for the result, if there is a task, a way to end it, and something that a tool brought.
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

/// An output without the markers around it. They say what must not be obeyed; here nothing can be called, so there is nothing to obey with,
/// and a small model takes a long number for the answer.
fn bare(text: &str) -> String {
    let nonce = text.lines().find_map(|line| line.strip_prefix("<<output ")?.split(' ').next());
    let Some(nonce) = nonce else { return text.to_owned() };
    let begins = format!("<<output {nonce} ");
    let ends = format!("<<end {nonce}>>");
    let is_marker = |line: &&str| line.starts_with(&begins) || *line == ends;
    text.lines().filter(|line| !is_marker(line)).collect::<Vec<_>>().join("\n")
}

/// The call that an output answers, in a line before it.
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
    fn the_result_is_asked_for_with_what_was_brought_and_the_task_and_nothing_else() {
        let asked = asked_for(&conversation("It says moss."), &Names::default()).unwrap();
        let texts: Vec<_> = asked.messages.iter().map(Message::text).collect();
        let question = "fs.read {\"path\": \"a.txt\"}:\nIt says moss.\n\nWhat does a.txt say?\nAnswer in one short sentence.";
        assert_eq!(texts, [SYSTEM, question]);
        assert!(asked.tools.is_empty() && asked.tokens_max == TOKENS_MAX);
    }

    #[test]
    fn markers_are_left_out_and_what_only_looks_like_one_is_not() {
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
    fn where_nothing_was_brought_or_nothing_can_be_ended_there_is_no_such_question() {
        let mut none = conversation("x");
        none.messages.truncate(2);
        assert_eq!(asked_for(&none, &Names::default()), None);
        let mut endless = conversation("x");
        endless.tools.clear();
        assert_eq!(asked_for(&endless, &Names::default()), None);
    }

    #[test]
    fn what_was_brought_is_cut_and_the_newest_stays() {
        let mut long = conversation(&"old ".repeat(10_000));
        long.messages.push(Message::answer("2", "newest"));
        let asked = asked_for(&long, &Names::default()).unwrap();
        let text = asked.messages.last().unwrap().text();
        assert!(text.contains("newest") && text.chars().count() < OUTPUTS_CHARS_MAX + 200, "{}", text.len());
    }
}
