//! Example conversations for small models. A small model imitates what it has seen, so its prompt starts with a few short examples made of
//! the offered tools: a task, a call, its output, and the answer from that output. After each tool output, the task is repeated in a
//! separate turn, because by then it is far away.
//!
//! Larger models need neither and are billed per token, so the examples are here and not in the common prompt.

use regent_kernel::{Inference, Message, Offer, Role, ToolUse};
use serde_json::{Value, json};

use super::grammar::members_of;

/// The tool that ends a task, if offered. Without it, an example can't show how a task ends, so there are no examples.
pub(super) const FINISH: &str = "task.finish";
pub(super) const FINISH_ARGUMENT: &str = "answer";
/// Maximum characters of the repeated task.
const GOAL_CHARS_MAX: usize = 600;
/// Follows the repeated task.
const THEN: &str = "\nIf that is done, call task_finish with the answer. If not, call the next tool.";

/// A task, the calls that complete it, and the answer.
struct Example {
    goal: &'static str,
    steps: &'static [ExampleCall],
    answer: &'static str,
}

/// A call and its output.
struct ExampleCall {
    tool: &'static str,
    args: &'static [(&'static str, &'static str)],
    output: &'static str,
}

/// Maximum number of examples with two calls, used where both tools are offered.
const PAIRS_MAX: usize = 2;
const PAIRS: [Example; 4] = [
    Example {
        goal: "Look into the folder box and say what the note there is about.",
        steps: &[
            ExampleCall {
                tool: "fs.list",
                args: &[("path", "box")],
                output: r#"{"entries":[{"bytes":27,"kind":"file","path":"box/note.txt"}],"left_out":0,"more":false,"path":"box"}"#,
            },
            ExampleCall {
                tool: "fs.read",
                args: &[("path", "box/note.txt")],
                output: "Water the ferns on Friday.",
            },
        ],
        answer: "The note says to water the ferns on Friday.",
    },
    Example {
        goal: "Read menu.txt and put the soup into soup.md.",
        steps: &[
            ExampleCall { tool: "fs.read", args: &[("path", "menu.txt")], output: "soup: leek\ncake: plum" },
            ExampleCall {
                tool: "fs.write",
                args: &[("path", "soup.md"), ("content", "leek")],
                output: r#"{"bytes":4,"created":true,"path":"soup.md"}"#,
            },
        ],
        answer: "The soup is leek; I wrote leek into soup.md.",
    },
    Example {
        goal: "Somewhere it says that the garden opens at 8. Make that 9.",
        steps: &[
            ExampleCall {
                tool: "fs.search",
                args: &[("pattern", "garden opens"), ("path", ".")],
                output: r#"{"left_out":0,"matches":[{"line":2,"path":"info/garden.txt","text":"The garden opens at 8."}],"more":false,"path":".","skipped":0}"#,
            },
            ExampleCall {
                tool: "fs.edit",
                args: &[("path", "info/garden.txt"), ("old", "at 8"), ("new", "at 9")],
                output: r#"{"diff":"@@ line 2 @@\n-at 8\n+at 9\n","lines":[2],"path":"info/garden.txt","replaced":1}"#,
            },
        ],
        answer: "In info/garden.txt the garden opens at 9 now.",
    },
    Example {
        goal: "Write the name of this machine into host.md.",
        steps: &[
            ExampleCall { tool: "shell.exec", args: &[("command", "uname -n")], output: "heron" },
            ExampleCall {
                tool: "fs.write",
                args: &[("path", "host.md"), ("content", "heron")],
                output: r#"{"bytes":5,"created":true,"path":"host.md"}"#,
            },
        ],
        answer: "The machine is called heron; I wrote that into host.md.",
    },
];

/// Examples with one call, for tools that no two-call example shows. Reading is always shown alone as well, so that it doesn't seem to be
/// only a first step. The answers match the outputs and can't be mistaken for answers to other tasks.
const ALWAYS: &str = "fs.read";
const SINGLES: [Example; 9] = [
    Example {
        goal: "How large is the folder art?",
        steps: &[ExampleCall { tool: "shell.exec", args: &[("command", "du -sh art")], output: "48K\tart" }],
        answer: "The folder art has 48K.",
    },
    Example {
        goal: "What is in the folder album?",
        steps: &[ExampleCall {
            tool: "fs.list",
            args: &[("path", "album")],
            output: r#"{"entries":[{"bytes":812,"kind":"file","path":"album/cat.png"},{"bytes":77,"kind":"file","path":"album/dog.png"}],"left_out":0,"more":false,"path":"album"}"#,
        }],
        answer: "There are 2 files: album/cat.png and album/dog.png.",
    },
    Example {
        goal: "Which file mentions the lantern?",
        steps: &[ExampleCall {
            tool: "fs.search",
            args: &[("pattern", "lantern"), ("path", ".")],
            output: r#"{"left_out":0,"matches":[{"line":3,"path":"cellar.txt","text":"an old lantern"}],"more":false,"path":".","skipped":0}"#,
        }],
        answer: "The file cellar.txt mentions it: an old lantern.",
    },
    Example {
        goal: "Put the words good day into note.md.",
        steps: &[ExampleCall {
            tool: "fs.write",
            args: &[("path", "note.md"), ("content", "good day")],
            output: r#"{"bytes":8,"created":true,"path":"note.md"}"#,
        }],
        answer: "I wrote good day into note.md.",
    },
    Example {
        goal: "Change closed to open in shop.txt.",
        steps: &[ExampleCall {
            tool: "fs.edit",
            args: &[("path", "shop.txt"), ("old", "closed"), ("new", "open")],
            output: r#"{"diff":"@@ line 1 @@\n-closed\n+open\n","lines":[1],"path":"shop.txt","replaced":1}"#,
        }],
        answer: "I replaced closed by open in shop.txt.",
    },
    Example {
        goal: "Add swan at the end of birds.txt.",
        steps: &[ExampleCall {
            tool: "fs.append",
            args: &[("path", "birds.txt"), ("text", "swan")],
            output: r#"{"bytes":15,"created":false,"path":"birds.txt"}"#,
        }],
        answer: "I added swan to birds.txt.",
    },
    Example {
        goal: "Rename draft.md to final.md.",
        steps: &[ExampleCall {
            tool: "fs.move",
            args: &[("from", "draft.md"), ("to", "final.md")],
            output: r#"{"from":"draft.md","moved":1,"to":"final.md"}"#,
        }],
        answer: "I renamed draft.md to final.md.",
    },
    Example {
        goal: "Remove junk.bin.",
        steps: &[ExampleCall {
            tool: "fs.delete",
            args: &[("path", "junk.bin")],
            output: r#"{"deleted":1,"path":"junk.bin"}"#,
        }],
        answer: "I deleted junk.bin.",
    },
    Example {
        goal: "Which colour does paint.txt name?",
        steps: &[ExampleCall {
            tool: "fs.read",
            args: &[("path", "paint.txt")],
            output: "The shed is painted teal.",
        }],
        answer: "The colour is teal.",
    },
];

/// Adds the examples after the system message, and repeats the task after tool output.
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
    if let (Some(goal), Some(Role::Tool)) = (goal_of(messages), said.last().map(|message| message.role)) {
        led.push(again(&goal.text(), ends));
    }
    led
}

/// The task: the user's first message.
pub(super) fn goal_of(messages: &[Message]) -> Option<&Message> {
    let said = messages.iter().find(|message| message.role != Role::System);
    said.filter(|message| message.role == Role::User)
}

pub(super) fn is_finish(offer: &Offer) -> bool {
    offer.name == FINISH && matches!(members_of(&offer.input).as_slice(), [(FINISH_ARGUMENT, ..)])
}

fn examples(tools: &[Offer]) -> impl Iterator<Item = Message> {
    let on_offer = |example: &&Example| example.steps.iter().all(|step| step.is_on(tools));
    let mut chosen: Vec<&Example> = PAIRS.iter().filter(on_offer).take(PAIRS_MAX).collect();
    let shown: Vec<&str> = chosen.iter().flat_map(|pair| pair.steps).map(|step| step.tool).collect();
    let is_new = |example: &&Example| {
        example.steps.iter().any(|step| step.tool == ALWAYS || !shown.contains(&step.tool))
    };
    chosen.extend(SINGLES.iter().filter(on_offer).filter(is_new));
    chosen.into_iter().flat_map(Example::messages)
}

impl ExampleCall {
    /// Whether exactly this tool is offered, not another one of the same name.
    fn is_on(&self, tools: &[Offer]) -> bool {
        let own = || self.args.iter().map(|(name, _)| *name);
        let is_it = |offer: &Offer| {
            let members = members_of(&offer.input).into_iter();
            let demanded = members.filter(|(.., is_required)| *is_required).map(|(name, ..)| name);
            offer.name == self.tool && demanded.eq(own())
        };
        tools.iter().any(is_it)
    }

    fn call(&self) -> Message {
        let args = self.args.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        call(self.tool, Value::Object(args.collect()))
    }
}

impl Example {
    fn messages(&self) -> Vec<Message> {
        let mut messages = vec![Message::new(Role::User, self.goal)];
        for step in self.steps {
            let output = Message::answer(step.tool, step.output);
            messages.extend([step.call(), output, again(self.goal, true)]);
        }
        messages.push(call(FINISH, json!({FINISH_ARGUMENT: self.answer})));
        messages
    }
}

fn call(tool: &str, args: Value) -> Message {
    Message::asking("", [ToolUse { id: tool.to_owned(), tool: tool.to_owned(), args }])
}

/// Repeats the task, and states the next step if a task can be ended.
fn again(goal: &str, ends: bool) -> Message {
    let shown: String = goal.chars().take(GOAL_CHARS_MAX).collect();
    let cut = if shown.len() < goal.len() { "…" } else { "" };
    let then = if ends { THEN } else { "" };
    Message::new(Role::User, format!("The task: {shown}{cut}{then}"))
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::tests::{inference, message, offer};

    fn schema(names: &[&str]) -> Value {
        let properties: Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        json!({"type": "object", "properties": properties, "required": names})
    }

    fn finish() -> Offer {
        offer(FINISH, "End", schema(&[FINISH_ARGUMENT]))
    }

    #[test]
    fn examples_use_only_offered_tools() {
        let read = offer("fs.read", "Read", schema(&["path"]));
        let other = offer("fs.read", "Another of that name", schema(&["url"]));
        let write = offer("fs.write", "Write", schema(&["path", "content"]));
        for (tools, count) in [
            (vec![], 0),
            (vec![read.clone()], 0),
            (vec![finish()], 0),
            (vec![other, finish()], 0),
            (vec![read.clone(), finish()], 5),
            (vec![write.clone(), finish()], 5),
            // One after the other, and reading alone.
            (vec![write, read, finish()], 8 + 5),
        ] {
            let led = led(&inference(Vec::new(), tools.clone(), 1));
            assert_eq!(led.len(), count, "{tools:?}");
            for call in led.iter().flat_map(Message::calls) {
                assert!(tools.iter().any(|tool| tool.name == call.tool), "{call:?}");
            }
        }
    }

    #[test]
    fn the_system_message_is_first_and_the_task_repeats_after_tool_output() {
        let tools = vec![offer("fs.read", "Read", schema(&["path"])), finish()];
        let mut asked =
            inference(vec![message(Role::System, "Rules."), message(Role::User, "Do it.")], tools, 1);
        let first = led(&asked);
        assert_eq!((&*first[0].text(), first.len()), ("Rules.", 7));
        assert_eq!(first[6].text(), "Do it.");
        asked.messages.push(message(Role::Tool, "It."));
        let second = led(&asked);
        assert_eq!(second[..7], first[..], "what was read is read no second time");
        assert_eq!(second[7].text(), "It.", "what a tool brought stays as it is");
        assert!(second[8].role == Role::User && second[8].text().starts_with("The task: Do it.\n"));
        asked.messages[1] = message(Role::User, &"é".repeat(5_000));
        assert!(led(&asked)[8].text().chars().count() < 1_000);
    }

    #[test]
    fn every_example_is_reachable() {
        for example in PAIRS.iter().chain(&SINGLES) {
            for step in example.steps {
                let names: Vec<&str> = step.args.iter().map(|(name, _)| *name).collect();
                assert!(step.is_on(&[offer(step.tool, "", schema(&names))]), "{}", step.tool);
            }
        }
    }
}
