//! Notes of an agent, through the tools and the kernel's own memory.

use serde_json::{Value, json};

use crate::world::{ALLOW_ALL, ToolsFixture};

const WITH_MEMORY: &str = "
version: 1
rules:
  - { id: all, effect: allow, match: { op: [tool.run, memory.remember, memory.recall] } }
";

#[tokio::test]
async fn what_was_remembered_is_recalled_by_its_name_or_its_content() {
    let world = ToolsFixture::new(WITH_MEMORY).await;
    for (key, content) in [("plan", "first water"), ("fern", "needs shade"), ("plan", "water the fern")] {
        let kept = world.json("memory.remember", json!({"key": key, "content": content})).await;
        assert_eq!(kept["bytes"], content.len(), "{kept}");
    }
    let keys = |found: &Value| -> Vec<String> {
        let entries = found["entries"].as_array().unwrap().iter();
        entries.map(|entry| entry["key"].as_str().unwrap().to_owned()).collect()
    };
    let cases = [
        (json!({}), vec!["fern", "plan"]),
        (json!({"text": "fern"}), vec!["fern", "plan"]),
        (json!({"text": "first"}), vec![]),
        (json!({"text": "shade"}), vec!["fern"]),
        (json!({"entries_max": 1}), vec!["fern"]),
    ];
    for (args, expected) in cases {
        let found = world.json("memory.recall", args.clone()).await;
        assert_eq!(keys(&found), expected, "{args}");
    }
    let found = world.json("memory.recall", json!({"text": "plan"})).await;
    assert_eq!(found["entries"][0]["content"], "water the fern", "the newer note replaces the older");
}

#[tokio::test]
async fn the_memory_behind_the_tools_is_judged_on_its_own() {
    let world = ToolsFixture::new(ALLOW_ALL).await;
    for (tool, args) in
        [("memory.remember", json!({"key": "a", "content": "b"})), ("memory.recall", json!({}))]
    {
        assert_eq!(world.call(tool, args).await.how, "failed policy.no_rule", "{tool}");
    }
    let world = ToolsFixture::new(WITH_MEMORY).await;
    for key in ["../x", "a//b", "."] {
        let refused = world.call("memory.remember", json!({"key": key, "content": "b"})).await;
        assert_eq!(refused.how, "failed path.invalid", "{key}: {}", refused.message);
    }
}
