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
const THEN: &str = "If that is done, call task_finish with the answer. If not, call the next tool.";

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
    led.extend(examples(&inference.tools));
    led.extend_from_slice(said);
    let goal = said.first().filter(|message| message.role == Role::User);
    if let (Some(goal), Some(Role::Tool)) = (goal, said.last().map(|message| message.role)) {
        led.push(again(&goal.text));
    }
    led
}

fn examples(tools: &[Offer]) -> Vec<Message> {
    let ends = |offer: &Offer| {
        offer.name == FINISH && matches!(members_of(&offer.input).as_slice(), [(FINISH_ARGUMENT, ..)])
    };
    if !tools.iter().any(ends) {
        return Vec::new();
    }
    let on_offer = |example: &&Example| tools.iter().any(|offer| example.fits(offer));
    EXAMPLES.iter().filter(on_offer).flat_map(Example::messages).collect()
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
            again(self.goal),
            call(FINISH, json!({FINISH_ARGUMENT: self.answer})),
        ]
    }
}

fn again(goal: &str) -> Message {
    let shown: String = goal.chars().take(GOAL_CHARS_MAX).collect();
    let cut = if shown.len() < goal.len() { "…" } else { "" };
    plain(Role::User, &format!("The task: {shown}{cut}\n{THEN}"))
}

fn plain(role: Role, text: &str) -> Message {
    Message { role, text: text.to_owned(), calls: Vec::new(), answers: None }
}
