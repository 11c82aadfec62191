//! Tests of the provider, with generated weights and with real ones where they were downloaded.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use regent_kernel::{Completion, Message, Offer, Priority, Role, Sampling, ToolUse};
use serde_json::json;

use super::*;
use regent_models::Gathered;
use regent_models::scheduler::{Room, Scheduler};

pub(super) mod made_up;
#[path = "../../testkit/src/skip.rs"]
mod skip;

pub(super) fn message(role: Role, text: &str) -> Message {
    Message::new(role, text)
}

fn only_call(completion: &Completion) -> Option<&ToolUse> {
    let mut calls = completion.message.calls();
    calls.next().filter(|_| calls.next().is_none())
}

pub(super) fn inference(messages: Vec<Message>, tools: Vec<Offer>, tokens_max: u64) -> Inference {
    Inference { model: "local/any".to_owned(), messages, tools, tokens_max, sampling: Sampling::default() }
}

pub(super) fn offer(name: &str, description: &str, input: Value) -> Offer {
    Offer { name: name.to_owned(), description: description.to_owned(), input }
}

fn scheduler(running_max: usize) -> Scheduler {
    Scheduler::new(Room { running_max, waiting_max: 64 }, HashMap::new())
}

/// Sends a request as the hub does.
async fn answer(
    local: &Local,
    model: &str,
    scheduler: &Scheduler,
    priority: Priority,
    inference: &Inference,
) -> Result<Completion, ProviderError> {
    let names = Names::from_inference(inference);
    let turn = scheduler.turn("agent", priority, 1).await.unwrap();
    let bytes_out = AtomicU64::new(0);
    let ask = ProviderRequest {
        model,
        inference,
        names: &names,
        secret: None,
        turn: &turn,
        bytes_out: &bytes_out,
        capability: &Default::default(),
        refused: &Default::default(),
    };
    let (events, mut coming) = Events::channel();
    let mut gathered = Gathered::default();
    let gather = async {
        while let Some(event) = coming.recv().await {
            gathered.take(event).unwrap();
        }
    };
    let (ended, ()) = tokio::join!(local.ask(ask, events), gather);
    ended?;
    let usage = gathered.reported().unwrap().tokens;
    gathered.finish(model, &names, usage)
}

async fn ask(local: &Local, model: &str, inference: &Inference) -> Completion {
    answer(local, model, &scheduler(4), Priority::Normal, inference).await.unwrap()
}

fn tools() -> Vec<Offer> {
    let path = json!({"type": "object", "properties": {"path": {"type": "string", "maxLength": 12}}, "required": ["path"], "additionalProperties": false});
    let add = json!({"type": "object", "properties": {
        "a": {"type": "integer"}, "how": {"enum": ["plus", "minus"]}, "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    }, "required": ["a", "how"]});
    vec![offer("fs.read", "Read a file", path), offer("calc.add", "Add", add)]
}

/// The path of downloaded weights; `None`, with a printed notice, if they are missing.
pub(super) fn pulled(name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".local/share")))?;
    let folder = home.join("regent/models");
    let is_there = regent_models::pull::is_pulled(&folder, name);
    if !is_there {
        skip::skipped("weights", &format!("the weights `{name}` have not been downloaded"));
    }
    is_there.then_some(folder)
}

#[tokio::test]
async fn even_a_network_of_chance_asks_for_tools_as_their_schemas_say() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..4 {
        made_up::write(&folder.path().join(format!("m{seed}.gguf")), seed);
        let local = Local::with_threads(folder.path(), 1);
        for temperature in [None, Some(1.5)] {
            let mut asked = inference(vec![message(Role::User, "Read a.txt, and add 3.")], tools(), 120);
            asked.sampling.temperature = temperature;
            asked.sampling.seed = Some(seed);
            let completion = ask(&local, &format!("m{seed}"), &asked).await;
            if completion.stop == StopReason::Length {
                continue;
            }
            let Some(call) = only_call(&completion) else { panic!("{completion:?}") };
            let schema = &tools().into_iter().find(|tool| tool.name == call.tool).unwrap().input;
            assert!(jsonschema::is_valid(schema, &call.args), "{call:?}");
            assert!(completion.usage.output > 0 && completion.usage.input > 0);
        }
    }
}

#[tokio::test]
async fn a_call_that_was_just_answered_is_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let tools = || vec![offer("a", "A", none.clone()), offer("b", "B", none.clone())];
    let mut made = Vec::new();
    for seed in 0..6 {
        made_up::write(&folder.path().join(format!("m{seed}.gguf")), seed);
        let local = Local::with_threads(folder.path(), 1);
        let mut asked = inference(vec![message(Role::User, "Go.")], tools(), 40);
        let first = ask(&local, &format!("m{seed}"), &asked).await;
        let Some(call) = first.message.calls().next() else { panic!("{first:?}") };
        made.push(call.tool.clone());
        for tool in ["a", "b"] {
            let calls = vec![ToolUse { id: "1".to_owned(), tool: tool.to_owned(), args: json!({}) }];
            asked.messages.truncate(1);
            asked.messages.push(Message::asking("", calls));
            asked.messages.push(Message::answer("1", "Done."));
            let next = ask(&local, &format!("m{seed}"), &asked).await;
            assert!(next.message.calls().all(|call| call.tool != tool), "{seed}: {next:?}");
            assert!(next.usage.output > 0 && next.usage.input > 0, "{:?}", next.usage);
        }
        // With no other tool on offer, it stays allowed.
        asked.tools.truncate(1);
        asked.messages[1].calls_mut().next().unwrap().tool = "a".to_owned();
        assert_eq!(only_call(&ask(&local, &format!("m{seed}"), &asked).await).unwrap().tool, "a");
    }
    assert!(made.contains(&"a".to_owned()) || made.contains(&"b".to_owned()));
}

#[test]
fn allowed_tools_depend_on_earlier_calls() {
    let finish =
        json!({"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]});
    let any = json!({"type": "object"});
    let tools = vec![offer("a", "A", any.clone()), offer("b", "B", any), offer("task.finish", "End", finish)];
    let asked = |made: &[(&str, u32)]| {
        let call = |(tool, id): &(&str, u32)| {
            let calls =
                vec![ToolUse { id: String::new(), tool: (*tool).to_owned(), args: json!({"id": id}) }];
            Message::asking("", calls)
        };
        inference(made.iter().map(call).collect(), tools.clone(), 1)
    };
    let names = |asked: &Inference, repeated: &[&str]| -> Vec<String> {
        let repeated: Vec<String> = repeated.iter().map(|one| (*one).to_owned()).collect();
        allowed(asked, &repeated).into_iter().map(|offer| offer.name.clone()).collect()
    };
    // The first call can't end the task, unless no other tool is offered.
    assert_eq!(names(&asked(&[]), &[]), ["a", "b"]);
    assert_eq!(names(&asked(&[("a", 1)]), &[]), ["a", "b", "task.finish"]);
    assert_eq!(names(&asked(&[("a", 1)]), &["a"]), ["b", "task.finish"]);
    assert_eq!(names(&asked(&[("a", 1)]), &["a", "b"]), ["task.finish"]);
    let mut last = asked(&[]);
    last.tools.drain(..2);
    assert_eq!(names(&last, &[]), ["task.finish"]);
    let mut endless = asked(&[("a", 1)]);
    endless.tools.pop();
    assert_eq!(names(&endless, &["a"]), ["b"]);
    // Repeating a call after a new one is not a repetition; repeating a cycle of calls is.
    for (made, is_so) in [
        (&[][..], false),
        (&[("a", 1)], true),
        (&[("a", 2)], false),
        (&[("b", 1)], false),
        (&[("a", 1), ("b", 1)], false),
        (&[("a", 1), ("b", 1), ("a", 1)], true),
        (&[("b", 1), ("a", 1), ("b", 1)], true),
        (&[("b", 1), ("a", 1), ("b", 2)], false),
    ] {
        assert_eq!(is_repeated(&asked(made), "a", &json!({"id": 1})), is_so, "{made:?}");
    }
}

#[tokio::test]
async fn the_same_question_has_the_same_answer_alone_in_company_and_from_memory() {
    let folder = tempfile::tempdir().unwrap();
    made_up::write(&folder.path().join("m.gguf"), 7);
    let mut questions: Vec<Inference> = (0..5)
        .map(|number| {
            inference(vec![message(Role::User, &format!("Question {number}, please."))], vec![], 24)
        })
        .collect();
    for question in &mut questions {
        question.sampling.temperature = Some(0.8);
    }
    let mut alone = Vec::new();
    for question in &questions {
        // A new provider each time, so nothing is cached.
        let local = Local::with_threads(folder.path(), 1);
        alone.push(ask(&local, "m", question).await.message.text().into_owned());
    }
    let letters: std::collections::BTreeSet<char> = alone.concat().chars().collect();
    assert!(letters.len() > 3, "a network that says one thing shows nothing: {alone:?}");
    let local = Local::with_threads(folder.path(), 2);
    let scheduler = scheduler(5);
    let together =
        async |at: usize| answer(&local, "m", &scheduler, Priority::Normal, &questions[at]).await.unwrap();
    let (a, b, c, d, e) = tokio::join!(together(0), together(1), together(2), together(3), together(4));
    assert_eq!([a, b, c, d, e].map(|one| one.message.text().into_owned()).to_vec(), alone);
    for (question, alone) in questions.iter().zip(&alone) {
        let again = ask(&local, "m", question).await;
        assert_eq!(again.message.text(), *alone);
        assert!(again.usage.cached > again.usage.input, "{:?}", again.usage);
    }
}

#[tokio::test]
async fn a_paused_conversation_continues_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    made_up::write(&folder.path().join("m.gguf"), 9);
    let local = Local::with_threads(folder.path(), 1);
    let long = inference(vec![message(Role::User, "Tell me a long story.")], vec![], 100);
    let undisturbed = ask(&local, "m", &long).await;
    let scheduler = scheduler(1);
    let short = inference(vec![message(Role::User, "Short?")], vec![], 3);
    let disturbed = answer(&local, "m", &scheduler, Priority::Low, &long);
    let urgent = async {
        let mut times = 0;
        for _ in 0..3 {
            tokio::time::sleep(std::time::Duration::from_millis(3)).await;
            answer(&local, "m", &scheduler, Priority::High, &short).await.unwrap();
            times += 1;
        }
        times
    };
    let (disturbed, times) = tokio::join!(disturbed, urgent);
    assert_eq!(disturbed.unwrap().message, undisturbed.message);
    assert_eq!((times, scheduler.load()), (3, (0, 0)));
}

#[tokio::test]
async fn an_answer_that_nobody_wants_ends() {
    let folder = tempfile::tempdir().unwrap();
    made_up::write(&folder.path().join("m.gguf"), 3);
    let local = Local::with_threads(folder.path(), 1);
    let long = inference(vec![message(Role::User, "For ever.")], vec![], 200);
    let scheduler = scheduler(1);
    {
        let asking = answer(&local, "m", &scheduler, Priority::Normal, &long);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(5), asking).await.is_err());
    }
    assert_eq!(scheduler.load(), (0, 0));
    // The thread is free for the next request.
    let next = inference(vec![message(Role::User, "Next.")], vec![], 2);
    ask(&local, "m", &next).await;
}

#[tokio::test]
async fn reports_impossible_requests_clearly() {
    let folder = tempfile::tempdir().unwrap();
    let local = Local::new(folder.path());
    let question = inference(vec![message(Role::User, "x")], vec![], 1);
    let none = answer(&local, "none", &scheduler(1), Priority::Normal, &question).await.unwrap_err();
    assert!(none.to_string().contains("regent model pull none"), "{none}");
    for name in ["../x", "", ".hidden", "a/b", "a\0b"] {
        assert!(local.path(name).is_none(), "{name}");
        assert!(!local.is_ready(name));
    }
    std::fs::write(folder.path().join("bad.gguf"), b"GGUF\x03\0\0\0nonsense").unwrap();
    let bad = answer(&local, "bad", &scheduler(1), Priority::Normal, &question).await.unwrap_err();
    assert!(matches!(bad, ProviderError::Absent(_)), "{bad}");
    made_up::write(&folder.path().join("m.gguf"), 1);
    let long = inference(vec![message(Role::User, &"word ".repeat(2_000))], vec![], 1);
    let long = answer(&local, "m", &scheduler(1), Priority::Normal, &long).await.unwrap_err();
    assert!(matches!(long, ProviderError::Unfit(_)), "{long}");
}

#[tokio::test]
async fn a_stop_text_ends_the_answer_and_is_not_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    made_up::write(&folder.path().join("m.gguf"), 11);
    let local = Local::with_threads(folder.path(), 1);
    let mut question = inference(vec![message(Role::User, "Speak.")], vec![], 40);
    question.sampling.temperature = Some(1.0);
    let whole = ask(&local, "m", &question).await.message.text().into_owned();
    let middle = whole.chars().skip(2).find(char::is_ascii).unwrap().to_string();
    question.sampling.stop = vec![middle.clone()];
    let cut = ask(&local, "m", &question).await;
    assert_eq!(cut.message.text(), whole.split(&middle).next().unwrap());
    assert_eq!(cut.stop, StopReason::End);
}

#[tokio::test]
async fn the_result_of_a_task_is_asked_for_in_a_conversation_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    made_up::write(&folder.path().join("m.gguf"), 5);
    let local = Local::with_threads(folder.path(), 1);
    let schema =
        json!({"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]});
    let call = ToolUse { id: "1".to_owned(), tool: "look".to_owned(), args: json!({}) };
    let messages =
        vec![message(Role::User, "Say it."), Message::asking("", [call]), Message::answer("1", "moss")];
    let mut task = inference(messages, vec![offer("task.finish", "End", schema)], 60);
    task.sampling.seed = Some(1);
    let question = result::asked_for(&task, &Names::default()).unwrap();
    let (done, plain) = (ask(&local, "m", &task).await, ask(&local, "m", &question).await);
    let Some(call) = only_call(&done) else { panic!("{done:?}") };
    assert_eq!(call.tool, "task.finish");
    // Generated weights never stop, and the yes/no step has used up part of the token limit, so the result may be cut.
    let said = call.args["answer"].as_str().unwrap().trim_end_matches('\u{fffd}');
    assert!(!said.is_empty() && plain.message.text().trim().starts_with(said), "{said:?}: {plain:?}");
    assert!(done.usage.input + done.usage.cached > plain.usage.input + plain.usage.cached);
}

#[tokio::test]
async fn real_weights_answer_and_call_tools() {
    for name in ["smollm2-135m", "qwen2.5-coder-0.5b"] {
        let Some(folder) = pulled(name) else { continue };
        let local = Local::new(folder);
        let question = inference(vec![message(Role::User, "What is the capital of France?")], vec![], 16);
        let text = ask(&local, name, &question).await.message.text().into_owned();
        // The output of llama.cpp with the same file.
        let expected =
            if name == "smollm2-135m" { "L'Étoile, la" } else { "The capital of France is Paris." };
        assert!(text.starts_with(expected), "{name}: {text}");
        if name == "smollm2-135m" {
            continue;
        }
        let asked = inference(
            vec![message(Role::User, "Read the file notes.txt and tell me what it says.")],
            tools(),
            64,
        );
        let first = ask(&local, name, &asked).await;
        let Some(call) = first.message.calls().next() else { panic!("{first:?}") };
        assert_eq!((call.tool.as_str(), &call.args), ("fs.read", &json!({"path": "notes.txt"})));
        // The next turn starts with the same text, and only the new part is evaluated.
        let mut next = asked.clone();
        next.messages.push(Message::asking("", [ToolUse { id: "1".to_owned(), ..call.clone() }]));
        next.messages.push(Message::answer("1", "The sky is blue."));
        let second = ask(&local, name, &next).await;
        assert!(second.usage.cached > 150 && second.usage.input < 100, "{:?}", second.usage);
    }
}
