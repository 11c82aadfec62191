//! Case 107 and its like: whatever the other side does ends in an answer or in a clear failure, and is charged once.

use std::sync::Arc;

use regent_kernel::{ModelUsage, Status};
use regent_models::{Patience, ProviderKind, ProviderSettings, Remote, Script, Scripted, wire::OpenAiChat};

use crate::protocols::CHAT;
use crate::server::{Act, Server};
use crate::world::*;

fn served(server: &Server, patience: Patience, fallback: &[&str]) -> (Arc<Remote>, ProviderSettings) {
    let wire = Box::new(OpenAiChat { compatible: true });
    let remote = Remote::new(wire, &server.url(), None, patience).unwrap();
    let own = ProviderSettings {
        patience,
        fallback: fallback.iter().map(|one| (*one).to_owned()).collect(),
        capabilities: [("m".to_owned(), priced(2000000))].into(),
        ..ProviderSettings::new(ProviderKind::Compatible, &["m"])
    };
    (Arc::new(remote), own)
}

fn status_of(outcome: &regent_kernel::Outcome) -> String {
    match &outcome.status {
        Status::Ok => "ok".to_owned(),
        Status::Failed(failure) => failure.code.clone(),
        other @ (Status::TimedOut | Status::Cancelled | Status::Faulted(_)) => format!("{other:?}"),
    }
}

fn ok() -> Act {
    Act::Answer("200 OK", CHAT.to_owned())
}

fn answer(status: &'static str, body: &str) -> Act {
    Act::Answer(status, body.to_owned())
}

/// The answer's first half.
fn half() -> String {
    CHAT.split_inclusive("\n\n").take(1).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_107_every_fault_before_an_answer_begins_is_tried_again_and_charged_once() {
    let error = r#"{"error":{"message":"overloaded","type":"server_error"}}"#;
    let cases = [
        ("429", answer("429 Too Many Requests", error)),
        ("500", answer("500 Internal Server Error", error)),
        ("503 without a body", answer("503 Service Unavailable", "")),
        ("closed", Act::Close),
        ("no head", Act::Hang),
        ("a head and nothing", Act::Stall("200 OK", String::new())),
        ("empty", answer("200 OK", "")),
        ("a good status with an error", answer("200 OK", error)),
        ("malformed JSON", answer("200 OK", "data: {\"choices\":[\n\n")),
        ("truncated JSON", Act::Break("200 OK", "data: {\"choices\":[".to_owned())),
    ];
    for (name, fault) in cases {
        let server = Server::new(vec![fault.clone(), fault, ok()]);
        let (remote, own) = served(&server, hasty(), &[]);
        let world = ModelsFixture::new(ALLOW_ALL, hub(vec![("one", remote, own)])).await;
        let outcome = world.ask(asking("one", "Hi")).await;
        assert_eq!(status_of(&outcome), "ok", "{name}: {:?}", outcome.status);
        assert_eq!(completion(&outcome).message.text(), "Hello there", "{name}");
        let obtained = outcome.obtained.clone().unwrap();
        assert_eq!((obtained["tries"].as_u64(), server.requests().len()), (Some(3), 3), "{name}");
        assert_eq!((outcome.spent.tokens, outcome.spent.money_microusd), (24, 20 + 8), "{name}");
        assert_eq!(world.charged(), (24, 28), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_107_a_cut_answer_is_asked_for_anew_as_a_call_of_its_own() {
    for (name, cut) in [
        ("broken off", Act::Break("200 OK", half())),
        ("ended too early", Act::Answer("200 OK", half())),
        ("silent", Act::Stall("200 OK", half())),
        ("garbled", Act::Answer("200 OK", format!("{}data: {{]\n\n", half()))),
    ] {
        let server = Server::new(vec![cut, ok()]);
        let (remote, own) = served(&server, hasty(), &[]);
        let world = ModelsFixture::new(ALLOW_ALL, hub(vec![("one", remote, own)])).await;
        let operator = world.kernel.operator();
        let mut stream = world.kernel.stream(&operator, regent_kernel::Op::Infer(asking("one", "Hi")));
        let mut flowed = String::new();
        while let Some(chunk) = stream.next().await {
            flowed.push_str(&chunk.output.text());
        }
        let regent_kernel::Reply::Done(outcome) = stream.reply().await.unwrap() else { panic!("{name}") };
        assert_eq!(
            (status_of(&outcome).as_str(), flowed.as_str()),
            ("ok", "Hello \u{1e}Hello there"),
            "{name}"
        );
        assert_eq!(completion(&outcome).message.text(), "Hello there", "{name}");
        // The part that came is charged to the call that got it, by our own count; the rest to the other.
        assert!(
            outcome.obtained.clone().unwrap()["usage"]["source"].as_str().unwrap().starts_with("counted"),
            "{name}"
        );
        let (tokens, money) = world.charged();
        assert_eq!((tokens, money), (outcome.spent.tokens + 24, outcome.spent.money_microusd + 28), "{name}");
        assert_eq!(server.requests().len(), 2, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_107_what_does_not_get_better_falls_back_or_fails_clearly() {
    let dead = |status| Server::new(vec![answer(status, "{\"error\":\"no\"}")]);
    let cases = [
        ("500 Oh", 3, "model.refused"),
        ("429 Oh", 3, "model.rate_limited"),
        ("401 Oh", 1, "model.unauthorised"),
        ("302 Oh", 1, "model.refused"),
        ("400 Oh", 1, "model.refused"),
    ];
    for (status, tries, code) in cases {
        let server = dead(status);
        let (remote, own) = served(&server, hasty(), &[]);
        let world = ModelsFixture::new(ALLOW_ALL, hub(vec![("one", remote, own)])).await;
        let outcome = world.ask(asking("one", "Hi")).await;
        assert_eq!((status_of(&outcome).as_str(), server.requests().len()), (code, tries), "{status}");
        assert_eq!(world.charged(), (0, 0), "{status}");
        // The same with someone else to ask. A question that is wrong is wrong for everybody.
        let (bad, good) = (dead(status), Server::new(vec![ok()]));
        let ((bad, bad_own), (good_remote, good_own)) =
            (served(&bad, hasty(), &["two/m"]), served(&good, hasty(), &[]));
        let world =
            ModelsFixture::new(ALLOW_ALL, hub(vec![("one", bad, bad_own), ("two", good_remote, good_own)]))
                .await;
        let outcome = world.ask(asking("one", "Hi")).await;
        let expected = if matches!(status, "400 Oh" | "302 Oh") { code } else { "ok" };
        assert_eq!(status_of(&outcome), expected, "{status}");
        if expected == "ok" {
            assert_eq!(
                (completion(&outcome).model.as_str(), world.charged()),
                ("two/m", (24, 28)),
                "{status}"
            );
            assert_eq!(outcome.spent.tokens, 0, "charged where it was used");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_005_an_answer_that_never_ends_is_ended_and_what_came_is_charged() {
    let server = Server::new(vec![Act::Stall("200 OK", half())]);
    let patience = Patience { idle_ms_max: 60_000, total_ms_max: 700, ..hasty() };
    let (remote, own) = served(&server, patience, &[]);
    let world = ModelsFixture::new(ALLOW_ALL, hub(vec![("one", remote, own)])).await;
    let outcome = world.ask(asking("one", "Hi")).await;
    assert_eq!(status_of(&outcome), "model.late");
    assert!(outcome.spent.tokens > 0 && outcome.spent.money_microusd > 0, "{:?}", outcome.spent);
    assert_eq!(outcome.output.text(), "Hello ", "what came is the output");
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_107_wrong_and_missing_usage_is_counted_and_flagged() {
    let answer_with = |usage: &str| {
        let usage = if usage.is_empty() {
            String::new()
        } else {
            format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n")
        };
        let said: String = CHAT.split_inclusive("\n\n").take(3).collect();
        Act::Answer("200 OK", format!("{said}{usage}data: [DONE]\n\n"))
    };
    let cases = [
        (r#"{"prompt_tokens":20,"completion_tokens":4}"#, "reported"),
        ("", "counted: the provider reported none"),
        (r#"{"prompt_tokens":20,"completion_tokens":0}"#, "counted: the provider's report is impossible"),
        (r#"{"prompt_tokens":0,"completion_tokens":4}"#, "counted: the provider's report is impossible"),
        (
            r#"{"prompt_tokens":20,"completion_tokens":99999999}"#,
            "counted: the provider's report is impossible",
        ),
        (
            r#"{"prompt_tokens":18446744073709551615,"completion_tokens":4}"#,
            "counted: the provider's report is impossible",
        ),
        (
            r#"{"prompt_tokens":-5,"completion_tokens":"many"}"#,
            "counted: the provider's report is impossible",
        ),
    ];
    for (usage, source) in cases {
        let server = Server::new(vec![answer_with(usage)]);
        let (remote, own) = served(&server, hasty(), &[]);
        let world = ModelsFixture::new(ALLOW_ALL, hub(vec![("one", remote, own)])).await;
        let outcome = world.ask(asking("one", "Hi")).await;
        let obtained = outcome.obtained.clone().unwrap();
        assert_eq!(obtained["usage"]["source"], source, "{usage}");
        assert!((5..200).contains(&outcome.spent.tokens), "{usage}: {:?}", outcome.spent);
        let ModelUsage { input, output, .. } = completion(&outcome).usage;
        assert_eq!(outcome.spent.tokens, input + output, "{usage}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_down_is_not_asked_for_a_while() {
    let server = Server::new(vec![answer("500 Oh", "")]);
    let (remote, own) = served(&server, hasty(), &["spare/m"]);
    let script: Script = serde_json::from_str(r#"{"turns":[{"text":"Here."}]}"#).unwrap();
    let spare = Arc::new(Scripted::new(script));
    let world = ModelsFixture::new(
        ALLOW_ALL,
        hub(vec![("one", remote, own), ("spare", spare, quick(ProviderKind::Scripted))]),
    )
    .await;
    for _ in 0..6 {
        assert_eq!(completion(&world.ask(asking("one", "Hi")).await).message.text(), "Here.");
    }
    assert_eq!(server.requests().len(), 5, "five failures in a row, and then none");
    let listed = world.hub.list();
    assert_eq!(
        listed.iter().map(|one| (one.model.as_str(), one.is_up)).collect::<Vec<_>>(),
        [("one/m", false), ("spare/m", true)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_stopped_half_way_is_charged_for_what_came() {
    let server = Server::new(vec![Act::Stall("200 OK", half())]);
    let patience = Patience { idle_ms_max: 60_000, total_ms_max: 60_000, ..hasty() };
    let (remote, own) = served(&server, patience, &[]);
    let world = ModelsFixture::new(ALLOW_ALL, hub(vec![("one", remote, own)])).await;
    let agent = world.agent().await;
    let mut stream = world.kernel.stream(&agent, regent_kernel::Op::Infer(asking("one", "Hi")));
    assert_eq!(stream.next().await.unwrap().output.text(), "Hello ");
    world.kernel.raise(agent.agent_id().unwrap(), regent_kernel::Signal::Kill, "test").await.unwrap();
    let regent_kernel::Reply::Done(outcome) = stream.reply().await.unwrap() else { panic!("not done") };
    assert_eq!((outcome.status, outcome.output.text().as_ref()), (Status::Cancelled, "Hello "));
    assert!(outcome.spent.tokens > 0 && outcome.spent.money_microusd > 0, "{:?}", outcome.spent);
    assert_eq!(server.requests().len(), 1, "and nobody asks again");
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_008_a_tool_that_a_model_makes_up_stays_as_it_was_made_up() {
    let call = |name: &str| {
        format!("{{\"index\":0,\"id\":\"a\",\"function\":{{\"name\":\"{name}\",\"arguments\":\"{{}}\"}}}}")
    };
    for name in ["__proto__", "fs.reаd", "rm -rf", "constructor"] {
        let body = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{}]}},\"finish_reason\":\"tool_calls\"}}]}}\n\ndata: [DONE]\n\n",
            call(name)
        );
        let server = Server::new(vec![answer("200 OK", &body)]);
        let (remote, own) = served(&server, hasty(), &[]);
        let world = ModelsFixture::new(ALLOW_ALL, hub(vec![("one", remote, own)])).await;
        let message = completion(&world.ask(asking("one", "Hi")).await).message;
        let asked: Vec<_> = message.calls().collect();
        assert_eq!(asked[0].tool, name);
        // And calling it is refused by the kernel: there is no such tool.
        let run = regent_kernel::ToolCall { tool: asked[0].tool.clone(), args: asked[0].args.clone() };
        let reply =
            world.kernel.syscall(&world.kernel.operator(), regent_kernel::Op::RunTool(run)).await.unwrap();
        let regent_kernel::Reply::Denied(denial) = reply else { panic!("{name}") };
        assert_eq!(denial.reason.code, "tool.unknown");
    }
}
