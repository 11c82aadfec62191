//! Conversations that outgrow the model's window.

use std::sync::atomic::{AtomicU32, Ordering};

use regent_kernel::SideEffect;
use regent_testkit::spec;

use super::*;
use crate::context::tokens_about;
use crate::event::Event;

const WINDOW: u64 = 32_768;

/// A model that reads `turns` times and then answers; it writes summaries where it is asked for one.
fn reader(turns: u32, summary: Says) -> Puppet {
    let turn = AtomicU32::new(0);
    Puppet::new(move |inference| {
        if inference.tools.is_empty() {
            return summary.clone();
        }
        match turn.fetch_add(1, Ordering::AcqRel) {
            // Once for each request.
            turn if turn % (turns + 1) < turns => Says::call("look", json!({"at": turn})),
            _last => finish("all was read"),
        }
    })
}

async fn world(puppet: &Puppet, bytes: usize) -> TestKernel {
    let mut reads = spec("look");
    (reads.effect, reads.idempotent) = (SideEffect::Read, true);
    TestKernel::builder()
        .tool_as(reads, Behaviour::Floods(bytes))
        .models(Arc::new(puppet.clone()))
        .ledger(on_disk())
        .boot()
        .await
        .unwrap()
}

fn long(turns: u32) -> TaskSpec {
    let mut spec = quick("read it all");
    (spec.limits.turns_max, spec.limits.window_tokens_max) = (turns + 1, WINDOW);
    spec
}

fn tokens_of(inference: &Inference) -> u64 {
    inference.messages.iter().map(|message| tokens_about(&message.text())).sum()
}

#[tokio::test]
async fn d4_three_megabytes_in_300_turns_fit_a_window_of_32k_and_replay_to_the_byte() {
    let puppet = reader(300, Says::Text("found so far: x".to_owned()));
    let test = world(&puppet, 10_240).await;
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), Options::default());
    let mut handle = runtime.run(long(300)).await.unwrap();
    let mut news = handle.events.resubscribe();
    let events = tokio::spawn(async move {
        let mut compacted = Vec::new();
        loop {
            match news.recv().await {
                Ok(Event::Compacted { tokens_before, tokens_after, no_summary, .. }) => {
                    compacted.push((tokens_before, tokens_after, no_summary));
                }
                Ok(_) | Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                Err(tokio::sync::broadcast::error::RecvError::Closed) => break compacted,
            }
        }
    });
    let end = handle.ended().await.unwrap();
    let task = end.task;
    assert_eq!(end.answer.unwrap().text, "all was read");
    let view = runtime.task(&task).unwrap();
    let asked = puppet.requests();
    assert!(asked.iter().all(|asked| tokens_of(asked) + asked.tokens_max <= WINDOW));
    let summaries = asked.iter().filter(|asked| asked.tools.is_empty()).count();
    assert!((3..=30).contains(&summaries), "in large steps: {summaries} summaries of 300 turns");
    let last = asked.last().unwrap();
    let notes = last.messages.iter().position(|message| message.text().contains("found so far: x")).unwrap();
    assert!(last.messages[notes].text().contains("<<output "), "what a model made of content is content");
    assert!(last.messages[1].text().contains("read it all"), "the goal stays");
    // The beginning stays the same between two summaries, so that providers can cache it.
    let pairs = asked.windows(2).filter(|pair| pair.iter().all(|asked| !asked.tools.is_empty()));
    assert!(pairs.into_iter().all(|pair| pair[1].messages.starts_with(&pair[0].messages)));
    assert_eq!(view.used.calls as usize, 300 + 301 + summaries, "summaries are charged like any call");

    let replayed = runtime.replay(&task).await.unwrap();
    assert!(replayed.same && replayed.answer.text == "all was read");
    assert_eq!(puppet.asked(), asked.len(), "a replay asks no model");
    let compacted = events.await.unwrap();
    assert!(!compacted.is_empty());
    for (before, after, no_summary) in &compacted {
        assert!(after * 2 < *before && no_summary.is_none(), "{compacted:?}");
    }
}

#[tokio::test]
async fn a_summary_that_fails_leaves_the_turns_out_and_says_so() {
    let failing = [
        Says::FailsFor("context_length_exceeded".to_owned(), json!("never")),
        Says::Fails("overloaded".to_owned()),
        Says::Text("  ".to_owned()),
    ];
    for summary in failing {
        let puppet = reader(60, summary.clone());
        let test = world(&puppet, 10_240).await;
        let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), Options::default());
        let end = runtime.run(long(60)).await.unwrap().ended().await.unwrap();
        assert_eq!(end.answer.unwrap().text, "all was read", "{summary:?}");
        let asked = puppet.requests();
        let said = asked.last().unwrap().messages.iter().any(|message| {
            message
                .text()
                .contains("earlier turns were left out to save room, and there is no summary of them")
        });
        assert!(said, "{summary:?}");
        let summaries = asked.iter().filter(|asked| asked.tools.is_empty()).count();
        assert!(summaries <= 3, "one try each: {summaries}");
        assert!(runtime.replay(&end.task).await.unwrap().same, "{summary:?}");
    }
}

#[tokio::test]
async fn d4_no_single_result_ends_a_task() {
    for bytes in [60 << 10, 3 << 20] {
        let puppet = Puppet::script(vec![
            Says::Calls((0..6).map(|at| ("look".to_owned(), json!({"at": at}))).collect()),
            finish("read"),
        ]);
        let test = world(&puppet, bytes).await;
        let end = run(&test.kernel, quick("read")).await;
        assert_eq!(end.answer.unwrap().text, "read", "{bytes}");
        let last = puppet.requests().pop().unwrap();
        let results = last.messages.iter().filter(|message| message.role == Role::Tool);
        assert_eq!(results.count(), 6);
    }
}

#[tokio::test]
async fn what_was_read_before_may_be_read_again_after_a_summary() {
    let turn = AtomicU32::new(0);
    let puppet = Puppet::new(move |inference| match () {
        () if inference.tools.is_empty() => Says::Text("notes".to_owned()),
        () if inference.messages.iter().any(|message| message.text().contains("you wrote about them")) => {
            match last_of(inference).contains("<<output") && turn.load(Ordering::Acquire) > 1_000 {
                true => finish("again"),
                false => {
                    turn.fetch_add(1_000, Ordering::AcqRel);
                    Says::call("look", json!({"at": 0}))
                }
            }
        }
        () => Says::call("look", json!({"at": turn.fetch_add(1, Ordering::AcqRel)})),
    });
    let test = world(&puppet, 10_240).await;
    let end = run(&test.kernel, long(200)).await;
    assert_eq!(end.answer.unwrap().text, "again");
    assert!(!last_of(&puppet.requests().pop().unwrap()).contains("[refused"));
}

#[tokio::test]
async fn what_was_asked_for_later_stays_in_the_persons_words_when_its_turns_leave() {
    let puppet = reader(60, Says::Text("found so far: x".to_owned()));
    let test = world(&puppet, 10_240).await;
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), Options::default());
    let mut first = runtime.run(long(60)).await.unwrap();
    let task = first.ended().await.unwrap().task;
    let message = FollowUp { text: "now look for the second thing".to_owned(), model: None, instead: false };
    let mut handle = runtime.say(&task, message).await.unwrap().unwrap();
    assert_eq!(handle.ended().await.unwrap().answer.unwrap().text, "all was read");
    let asked = puppet.requests();
    let last = asked.iter().rev().find(|asked| !asked.tools.is_empty()).unwrap();
    let texts: Vec<_> = last.messages.iter().map(|message| message.text().into_owned()).collect();
    assert!(texts.iter().any(|text| text.contains("- now look for the second thing")), "{texts:?}");
    assert!(runtime.replay(&task).await.unwrap().same);
}

#[tokio::test]
async fn an_agents_list_is_told_survives_compaction_and_replays() {
    let list = json!({"items": [{"text": "read it all", "state": "doing"}]});
    let turn = AtomicU32::new(0);
    let puppet = Puppet::new(move |inference| {
        if inference.tools.is_empty() {
            return Says::Text("found so far: x".to_owned());
        }
        match turn.fetch_add(1, Ordering::AcqRel) {
            0 => Says::call("task.todo", list.clone()),
            turn if turn < 120 => Says::call("look", json!({"at": turn})),
            _last => finish("all was read"),
        }
    });
    let test = world(&puppet, 10_240).await;
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), Options::default());
    let spec = TaskSpec { todo: true, ..long(120) };
    let mut handle = runtime.run(spec).await.unwrap();
    let mut news = handle.events.resubscribe();
    let told = tokio::spawn(async move {
        loop {
            if let Event::Todo { items } = news.recv().await.unwrap() {
                break items;
            }
        }
    });
    let end = handle.ended().await.unwrap();
    assert_eq!(told.await.unwrap()[0].text, "read it all");
    let asked = puppet.requests();
    assert!(asked.iter().any(|asked| asked.tools.is_empty()), "it was compacted");
    let last = asked.iter().rev().find(|asked| !asked.tools.is_empty()).unwrap();
    let texts: Vec<_> = last.messages.iter().map(|message| message.text().into_owned()).collect();
    assert!(texts.iter().any(|text| text.contains("- [doing] read it all")), "{texts:?}");
    assert!(runtime.replay(&end.task).await.unwrap().same);
}
