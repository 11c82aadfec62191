//! What policy, labels and budgets make of calls to models.

use std::sync::Arc;

use regent_kernel::{Budget, BudgetScope, Op, Reply, Status};
use regent_ledger::EntryKind;
use regent_models::{ProviderKind, ProviderSettings, Script, Scripted};
use serde_json::json;

use crate::world::*;

fn scripted(script: serde_json::Value) -> Arc<Scripted> {
    Arc::new(Scripted::new(serde_json::from_value::<Script>(script).unwrap()))
}

fn far(text: &str) -> Arc<Scripted> {
    scripted(json!({"turns": [{"text": text}], "pretend_remote": "https://api.example.com/v1/chat"}))
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_and_unknown_conversations_never_leave_and_auto_keeps_them_here() {
    for (what, leaves) in [
        ("public", true),
        ("internal", true),
        ("private", true),
        ("pii", true),
        ("unknown", false),
        ("regulated", false),
        ("secret", false),
        ("credential", false),
    ] {
        let near = scripted(json!({"turns": [{"text": "near"}]}));
        let hub = hub(vec![
            ("far", far("far"), quick(ProviderKind::Scripted)),
            ("near", near, quick(ProviderKind::Scripted)),
        ]);
        let world = ModelsFixture::new(ALLOW_ALL, hub).await;
        let agent = world.agent().await;
        world.finds(&agent, what).await;
        let reply = world.kernel.syscall(&agent, Op::Infer(asking("far/m", "Hi"))).await.unwrap();
        match reply {
            Reply::Done(outcome) => assert!(leaves && outcome.status == Status::Ok, "{what}"),
            Reply::Denied(denial) => {
                assert_eq!((leaves, &*denial.reason.code), (false, "model.confidential"), "{what}");
            }
            Reply::Pending(_) => panic!("{what}"),
        }
        let Reply::Done(outcome) =
            world.kernel.syscall(&agent, Op::Infer(asking("auto:chat", "Hi"))).await.unwrap()
        else {
            panic!("{what}")
        };
        assert_eq!(completion(&outcome).message.text(), "near", "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_is_judged_recorded_and_never_goes_where_policy_does_not_let_it() {
    let policy = |effect: &str| {
        format!(
            "version: 1\nrules:\n  - {{ id: all, effect: allow }}\n  - id: far\n    effect: {effect}\n    match: {{ capability: model.remote }}\n    reason: no\n"
        )
    };
    for (effect, expected) in [("allow", "ok"), ("deny", "model.refused"), ("ask", "model.refused")] {
        let broken = scripted(json!({"turns": [{"text": "x", "fault": {"status": 500}}]}));
        let near = ProviderSettings { fallback: vec!["far/m".to_owned()], ..quick(ProviderKind::Scripted) };
        let hub = hub(vec![("near", broken, near), ("far", far("from afar"), quick(ProviderKind::Scripted))]);
        let world = ModelsFixture::new(&policy(effect), hub).await;
        let outcome = world.ask(asking("near/m", "Hi")).await;
        let said = match &outcome.status {
            Status::Ok => "ok",
            Status::Failed(failure) => failure.code.as_str(),
            other @ (Status::TimedOut | Status::Cancelled | Status::Faulted(_)) => panic!("{other:?}"),
        };
        assert_eq!(said, expected, "{effect}");
        let intents: Vec<_> =
            world.entries().into_iter().filter(|entry| entry.kind == EntryKind::Intent).collect();
        let nested = intents.iter().filter(|entry| entry.body["parent"].is_u64()).count();
        assert_eq!(nested, usize::from(effect == "allow"), "{effect}");
        if effect == "allow" {
            assert_eq!(completion(&outcome).message.text(), "from afar");
            assert!(intents.last().unwrap().body.to_string().contains("api.example.com"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fallbacks_do_not_go_round_in_circles() {
    let broken = || scripted(json!({"turns": [{"text": "x", "fault": {"status": 500}}]}));
    let to = |one: &str| ProviderSettings { fallback: vec![one.to_owned()], ..quick(ProviderKind::Scripted) };
    let hub = hub(vec![("a", broken(), to("b/m")), ("b", broken(), to("a/m"))]);
    let world = ModelsFixture::new(ALLOW_ALL, hub).await;
    assert!(matches!(world.ask(asking("a/m", "Hi")).await.status, Status::Failed(_)));
    let intents = world.entries().into_iter().filter(|entry| entry.kind == EntryKind::Intent).count();
    assert_eq!(intents, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_calls_at_once_never_spend_more_than_the_budget() {
    let own = ProviderSettings {
        capabilities: [("m".to_owned(), priced(1000000))].into(),
        running_max: Some(64),
        ..quick(ProviderKind::Scripted)
    };
    let talker = scripted(json!({"turns": [{"text": "word word word", "delay_ms": 20}]}));
    let world = Arc::new(ModelsFixture::new(ALLOW_ALL, hub(vec![("one", talker, own)])).await);
    let money = 2_000;
    let limits = Budget { money_microusd: Some(money), ..Budget::default() };
    let set = Op::SetBudget { scope: BudgetScope::Session, limits };
    assert!(matches!(world.kernel.syscall(&world.kernel.operator(), set).await.unwrap(), Reply::Done(_)));
    let calls: Vec<_> = (0..64)
        .map(|_| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                world.kernel.syscall(&world.kernel.operator(), Op::Infer(asking("one", "Hi"))).await.unwrap()
            })
        })
        .collect();
    let (mut done, mut spent) = (0, 0);
    for call in calls {
        match call.await.unwrap() {
            Reply::Done(outcome) => (done, spent) = (done + 1, spent + outcome.spent.money_microusd),
            Reply::Denied(denial) => assert!(denial.reason.code.starts_with("budget."), "{denial:?}"),
            Reply::Pending(_) => panic!("asked"),
        }
    }
    assert!(done > 0 && done < 64, "{done}");
    assert!(spent <= money, "{spent}");
    assert_eq!(world.charged().1, spent, "what is charged is the sum of the receipts");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_gives_the_same_conversation_the_same_answer() {
    let script = json!({"turns": [
        {"about": "count", "text": "", "calls": [{"tool": "find", "args": {"what": "public"}}]},
        {"about": "count", "text": "One."},
        {"when": "hello", "text": "Hello yourself."},
        {"text": "First."},
    ]});
    let world =
        ModelsFixture::new(ALLOW_ALL, hub(vec![("s", scripted(script), quick(ProviderKind::Scripted))]))
            .await;
    for _ in 0..2 {
        let mut inference = asking("s", "please count");
        let first = completion(&world.ask(inference.clone()).await).message;
        let tools: Vec<&str> = first.calls().map(|call| call.tool.as_str()).collect();
        assert_eq!(tools, ["find"]);
        inference.messages.push(first);
        assert_eq!(completion(&world.ask(inference).await).message.text(), "One.");
        assert_eq!(
            completion(&world.ask(asking("s", "well, hello")).await).message.text(),
            "Hello yourself."
        );
        assert_eq!(completion(&world.ask(asking("s", "what?")).await).message.text(), "First.");
    }
    let mut over = asking("s", "what?");
    over.messages.push(completion(&world.ask(over.clone()).await).message);
    let Status::Failed(failure) = world.ask(over).await.status else { panic!("the script goes on") };
    assert_eq!(failure.code, "model.unfit");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_larger_than_the_grant_is_a_failure_and_never_half_a_completion() {
    let policy = "version: 1\nlimits: { output: 150B }\nrules:\n  - { id: all, effect: allow }\n";
    for (words, code) in [(1, None), (20, Some("model.too_large")), (200, Some("model.too_large"))] {
        let talker = scripted(json!({"turns": [{"text": "word ".repeat(words)}]}));
        let world =
            ModelsFixture::new(policy, hub(vec![("one", talker, quick(ProviderKind::Scripted))])).await;
        let outcome = world.ask(asking("one", "Hi")).await;
        match code {
            None => assert_eq!(completion(&outcome).message.text(), "word "),
            Some(code) => {
                let Status::Failed(failure) = &outcome.status else { panic!("{:?}", outcome.status) };
                assert_eq!(failure.code, code, "{words}");
                assert!(outcome.spent.tokens > 0, "the text was sent, so it is charged");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_refused_before_anyone_is_asked() {
    let world =
        ModelsFixture::new(ALLOW_ALL, hub(vec![("far", far("x"), quick(ProviderKind::Scripted))])).await;
    let mut empty = asking("far", "");
    empty.messages.clear();
    let cases = [
        (asking("nobody/m", "Hi"), "model.unknown"),
        (asking("far/../../x", "Hi"), "model.unknown"),
        (asking("far/x?y", "Hi"), "model.unknown"),
        (empty, "args.invalid"),
        (regent_kernel::Inference { tokens_max: 0, ..asking("far", "Hi") }, "args.invalid"),
        (regent_kernel::Inference { tokens_max: u64::MAX, ..asking("far", "Hi") }, "args.invalid"),
    ];
    for (inference, code) in cases {
        let reply = world.kernel.syscall(&world.kernel.operator(), Op::Infer(inference)).await.unwrap();
        let Reply::Denied(denial) = reply else { panic!("{code}") };
        assert_eq!(denial.reason.code, code);
    }
}
