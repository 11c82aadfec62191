//! Conversations to go by. A small model does what it has seen done, so before its own conversation it reads a few short ones, made of
//! the tools on offer: a task, a call, what came of it, and the answer that was taken from that. After what a tool brought the task is
//! said once more, in a turn of its own, because by then it is far away.
//!
//! Larger models need neither, and pay for each word: that is why this is here and not in the prompt that all models get.

use regent_kernel::{Inference, Message, Offer, Role, ToolUse};
use serde_json::{Map, Value, json};

use super::grammar::members_of;

/// The tool that ends a task, if it is on offer. Without it there is no telling how a task ends, and no example.
const FINISH: &str = "task.finish";
const FINISH_ARGUMENT: &str = "answer";
/// Of a task so much is said once more.
const GOAL_CHARS_MAX: usize = 600;
/// What comes after the task that is said once more.
const THEN: &str = "\nIf that is done, call task_finish with the answer. If not, call the next tool.";

/// One call that was enough for a task.
struct Example {
    tool: &'static str,
    goal: &'static str,
    args: &'static [(&'static str, &'static str)],
    output: &'static str,
    answer: &'static str,
}

/// What the built-in tools are for. The answers say what the outputs do, and can't be mistaken for answers to anything else.
const EXAMPLES: [Example; 6] = [
    Example {
        tool: "fs.read",
        goal: "Which colour does paint.txt name?",
        args: &[("path", "paint.txt")],
        output: "The shed is painted teal.",
        answer: "The colour is teal.",
    },
    Example {
        tool: "fs.list",
        goal: "What is in the folder album?",
        args: &[("path", "album")],
        output: r#"{"entries":[{"bytes":812,"kind":"file","path":"album/cat.png"},{"bytes":77,"kind":"file","path":"album/dog.png"}],"left_out":0,"more":false,"path":"album"}"#,
        answer: "There are 2 files: album/cat.png and album/dog.png.",
    },
    Example {
        tool: "fs.search",
        goal: "Where is the lantern mentioned?",
        args: &[("pattern", "lantern"), ("path", ".")],
        output: r#"{"left_out":0,"matches":[{"line":3,"path":"cellar.txt","text":"an old lantern"}],"more":false,"path":".","skipped":0}"#,
        answer: "The lantern is mentioned in cellar.txt.",
    },
    Example {
        tool: "fs.write",
        goal: "Put the words good day into note.md.",
        args: &[("path", "note.md"), ("content", "good day")],
        output: r#"{"bytes":8,"created":true,"path":"note.md"}"#,
        answer: "I wrote good day into note.md.",
    },
    Example {
        tool: "fs.edit",
        goal: "Change closed to open in shop.txt.",
        args: &[("path", "shop.txt"), ("old", "closed"), ("new", "open")],
        output: r#"{"diff":"@@ line 1 @@\n-closed\n+open\n","lines":[1],"path":"shop.txt","replaced":1}"#,
        answer: "I replaced closed by open in shop.txt.",
    },
    Example {
        tool: "shell.exec",
        goal: "How large is the folder art?",
        args: &[("command", "du -sh art")],
        output: "48K\tart",
        answer: "The folder art has 48K.",
    },
];

/// A conversation as a small model should read it: examples after the system's words, and the task again after what a tool brought.
pub(super) fn led(inference: &Inference) -> Vec<Message> {
    let messages = &inference.messages;
    let begins = messages.iter().take_while(|message| message.role == Role::System).count();
    let (system, said) = messages.split_at(begins);
    let mut led = system.to_vec();
    let ends = inference.tools.iter().any(is_finish);
    if ends {
        led.extend(examples(&inference.tools));
    }
    led.extend_from_slice(said);
    let goal = said.first().filter(|message| message.role == Role::User);
    if let (Some(goal), Some(Role::Tool)) = (goal, said.last().map(|message| message.role)) {
        led.push(again(&goal.text, ends));
    }
    led
}

fn is_finish(offer: &Offer) -> bool {
    offer.name == FINISH && matches!(members_of(&offer.input).as_slice(), [(FINISH_ARGUMENT, ..)])
}

fn examples(tools: &[Offer]) -> impl Iterator<Item = Message> {
    let on_offer = |example: &&Example| tools.iter().any(|offer| example.fits(offer));
    EXAMPLES.iter().filter(on_offer).flat_map(Example::messages)
}

impl Example {
    /// Whether this is the tool that is meant, not another of its name.
    fn fits(&self, offer: &Offer) -> bool {
        let demanded = members_of(&offer.input).into_iter().filter(|(.., is_required)| *is_required);
        offer.name == self.tool && demanded.map(|(name, ..)| name).eq(self.args.iter().map(|(name, _)| *name))
    }

    fn messages(&self) -> [Message; 5] {
        let call = |tool: &str, args: Value| Message {
            calls: vec![ToolUse { id: tool.to_owned(), tool: tool.to_owned(), args }],
            ..plain(Role::Assistant, "")
        };
        let args: Map<String, Value> =
            self.args.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        [
            plain(Role::User, self.goal),
            call(self.tool, Value::Object(args)),
            Message { answers: Some(self.tool.to_owned()), ..plain(Role::Tool, self.output) },
            again(self.goal, true),
            call(FINISH, json!({FINISH_ARGUMENT: self.answer})),
        ]
    }
}

/// The task once more, and what is to come now if a task can be ended.
fn again(goal: &str, ends: bool) -> Message {
    let shown: String = goal.chars().take(GOAL_CHARS_MAX).collect();
    let cut = if shown.len() < goal.len() { "…" } else { "" };
    let then = if ends { THEN } else { "" };
    plain(Role::User, &format!("The task: {shown}{cut}{then}"))
}

fn plain(role: Role, text: &str) -> Message {
    Message { role, text: text.to_owned(), calls: Vec::new(), answers: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::tests::{inference, message, offer};

    fn schema(names: &[&str]) -> Value {
        let properties: Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        json!({"type": "object", "properties": properties, "required": names})
    }

    fn finish() -> Offer {
        offer(FINISH, "End", schema(&[FINISH_ARGUMENT]))
    }

    #[test]
    fn examples_are_of_the_tools_on_offer_and_of_no_others() {
        let read = offer("fs.read", "Read", schema(&["path"]));
        let other = offer("fs.read", "Another of that name", schema(&["url"]));
        let write = offer("fs.write", "Write", schema(&["path", "content"]));
        for (tools, count) in [
            (vec![], 0),
            (vec![read.clone()], 0),
            (vec![finish()], 0),
            (vec![other, finish()], 0),
            (vec![read.clone(), finish()], 1),
            (vec![write, read, finish()], 2),
        ] {
            let led = led(&inference(Vec::new(), tools.clone(), 1));
            assert_eq!(led.len(), count * 5, "{tools:?}");
            for call in led.iter().flat_map(|message| &message.calls) {
                assert!(tools.iter().any(|tool| tool.name == call.tool), "{call:?}");
            }
        }
    }

    #[test]
    fn the_system_comes_first_and_the_task_again_after_what_a_tool_brought() {
        let tools = vec![offer("fs.read", "Read", schema(&["path"])), finish()];
        let mut asked =
            inference(vec![message(Role::System, "Rules."), message(Role::User, "Do it.")], tools, 1);
        let first = led(&asked);
        assert_eq!((first[0].text.as_str(), first.len()), ("Rules.", 7));
        assert_eq!(first[6].text, "Do it.");
        asked.messages.push(message(Role::Tool, "It."));
        let second = led(&asked);
        assert_eq!(second[..7], first[..], "what was read is read no second time");
        assert_eq!(second[7].text, "It.", "what a tool brought stays as it is");
        assert!(second[8].role == Role::User && second[8].text.starts_with("The task: Do it.\n"));
        asked.messages[1].text = "é".repeat(5_000);
        assert!(led(&asked)[8].text.chars().count() < 1_000);
    }

    #[test]
    fn every_example_can_be_made() {
        for example in &EXAMPLES {
            let names: Vec<&str> = example.args.iter().map(|(name, _)| *name).collect();
            assert!(example.fits(&offer(example.tool, "", schema(&names))), "{}", example.tool);
            assert!(!example.answer.is_empty() && !example.output.is_empty());
        }
    }
}
