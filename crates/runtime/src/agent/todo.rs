//! The list of what an agent still has to do, which it keeps itself. The loop handles it: it reaches no tool and changes nothing, but the person
//! sees it, and it survives compaction. It is part of what the model said, so a replay has it too.

use regent_kernel::Offer;
use regent_wire::event::{TodoItem, TodoState};
use serde::Deserialize;
use serde_json::{Value, json};

/// The tool with which an agent writes its list.
pub(crate) const LIST_TOOL: &str = "task.todo";
const ITEMS_MAX: usize = 50;
const TEXT_CHARS_MAX: usize = 200;

/// The list of one agent.
#[derive(Debug, Clone, Default)]
pub(super) struct TodoList(Vec<TodoItem>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    items: Vec<TodoItem>,
}

impl TodoList {
    /// Replaces the list by the one in these arguments. Gives back what the model hears.
    pub(super) fn write(&mut self, args: &Value) -> String {
        let given = match Given::deserialize(args) {
            Ok(given) => given.items,
            Err(error) => return format!("[args.invalid: {}]", super::observe::plain(&error.to_string())),
        };
        if given.len() > ITEMS_MAX {
            return format!("[args.invalid: at most {ITEMS_MAX} items]");
        }
        let short = |item: TodoItem| TodoItem {
            text: item
                .text
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .chars()
                .take(TEXT_CHARS_MAX)
                .collect(),
            ..item
        };
        self.0 = given.into_iter().map(short).collect();
        let left = self.0.iter().filter(|item| item.state != TodoState::Done).count();
        format!("[noted; {left} of {} left]", self.0.len())
    }

    pub(super) fn items(&self) -> &[TodoItem] {
        &self.0
    }

    /// A line for each item; nothing without one.
    pub(super) fn as_text(&self) -> String {
        let line = |item: &TodoItem| format!("- [{}] {}", item.state.as_str(), item.text);
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

pub(super) fn todo_offer() -> Offer {
    let states: Vec<&str> = TodoState::ALL.iter().map(|state| state.as_str()).collect();
    Offer {
        name: LIST_TOOL.to_owned(),
        description: "Write your to-do list for work of several steps: the whole list each time, one item being done at a time. The person sees it."
            .to_owned(),
        input: json!({
            "type": "object",
            "properties": {"items": {"type": "array", "maxItems": ITEMS_MAX, "items": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "state": {"type": "string", "enum": states}},
                "required": ["text", "state"],
                "additionalProperties": false,
            }}},
            "required": ["items"],
            "additionalProperties": false,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_replaced_as_a_whole_and_a_broken_one_changes_nothing() {
        let mut list = TodoList::default();
        let two = json!({"items": [{"text": "read  it\nall", "state": "done"}, {"text": "fix it", "state": "doing"}]});
        assert_eq!(list.write(&two), "[noted; 1 of 2 left]");
        assert_eq!(list.as_text(), "- [done] read it all\n- [doing] fix it");
        for broken in [
            json!({}),
            json!({"items": [{"text": "x"}]}),
            json!({"items": [{"text": "x", "state": "later"}]}),
            json!({"items": "x"}),
            json!({"items": vec![json!({"text": "x", "state": "open"}); ITEMS_MAX + 1]}),
        ] {
            assert!(list.write(&broken).starts_with("[args.invalid"), "{broken}");
        }
        assert_eq!(list.items().len(), 2);
        assert_eq!(list.write(&json!({"items": []})), "[noted; 0 of 0 left]");
        assert_eq!(list.as_text(), "");
    }
}
