//! Pipes on their own, and through a whole kernel.

use proptest::prelude::*;

use super::*;
use crate::tests::alone::{KernelFixture, named, run};
use crate::{Op, Principal, Signal, Status};

const OWN: Label = Label { integrity: Integrity::OwnModel, confidentiality: Confidentiality::Internal };

fn spec(reader: &str) -> PipeSpec {
    let schema = json!({"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}});
    PipeSpec { reader: reader.into(), schema, messages_max: 2, message_bytes_max: 64 }
}

fn code(result: Result<impl std::fmt::Debug, PipeError>) -> &'static str {
    result.unwrap_err().code()
}

#[test]
fn what_can_not_be_a_pipe_is_refused() {
    let pipes = Pipes::default();
    let nested = |depth| (0..depth).fold(json!({}), |inner, _| json!({"not": inner}));
    let cases = [
        PipeSpec { messages_max: 0, ..spec("b") },
        PipeSpec { messages_max: MESSAGES_MAX + 1, ..spec("b") },
        PipeSpec { message_bytes_max: 0, ..spec("b") },
        PipeSpec { message_bytes_max: u32::MAX, ..spec("b") },
        PipeSpec { schema: json!({"type": "sausage"}), ..spec("b") },
        PipeSpec { schema: json!({"$ref": "https://example.com/schema.json"}), ..spec("b") },
        PipeSpec { schema: json!({"$ref": "file:///etc/passwd"}), ..spec("b") },
        // Look-around needs backtracking, which has no bound.
        PipeSpec { schema: json!({"pattern": "^(?=a)(a+)+$"}), ..spec("b") },
        PipeSpec {
            schema: json!({"pattern": "(((((a{1,99}){1,99}){1,99}){1,99}){1,99}){1,99}"}),
            ..spec("b")
        },
        PipeSpec { schema: json!({"const": "x".repeat(SCHEMA_BYTES_MAX)}), ..spec("b") },
    ];
    for case in cases {
        let shown: String = format!("{:?}", case.schema).chars().take(100).collect();
        assert_eq!(code(pipes.make("a".into(), case)), "pipe.invalid", "{shown}");
    }
    assert!(pipes.make("a".into(), PipeSpec { schema: nested(30), ..spec("b") }).is_ok());
}

#[test]
fn one_agent_makes_so_many_pipes() {
    let pipes = Pipes::default();
    for _ in 0..PIPES_OF_ONE_MAX {
        let id = pipes.make("a".into(), spec("b")).unwrap();
        assert!(id.0 < 1 << 53);
    }
    assert_eq!(code(pipes.make("a".into(), spec("b"))), "pipe.too_many");
    assert!(pipes.make("b".into(), spec("a")).is_ok());
    pipes.forsake(&"b".into());
    assert!(pipes.make("a".into(), spec("c")).is_ok());
}

#[tokio::test]
async fn messages_fit_the_schema_and_the_room_there_is() {
    let pipes = Pipes::default();
    let id = pipes.make("a".into(), spec("b")).unwrap();
    assert_eq!(code(pipes.send(id, &json!({"text": 1}), OWN)), "pipe.mismatch");
    assert_eq!(code(pipes.send(id, &json!({}), OWN)), "pipe.mismatch");
    assert_eq!(code(pipes.send(id, &json!({"text": "x".repeat(64)}), OWN)), "pipe.too_large");
    assert_eq!(pipes.send(id, &json!({"text": "1"}), OWN).unwrap(), 1);
    assert_eq!(pipes.send(id, &json!({"text": "2"}), OWN).unwrap(), 2);
    assert_eq!(code(pipes.send(id, &json!({"text": "3"}), OWN)), "pipe.full");
    assert_eq!(pipes.recv(id, 0).await.unwrap().bytes, br#"{"text":"1"}"#);
    assert_eq!(pipes.send(id, &json!({"text": "3"}), OWN).unwrap(), 2);
    assert_eq!(pipes.recv(id, 0).await.unwrap().bytes, br#"{"text":"2"}"#);
    assert_eq!(pipes.recv(id, 0).await.unwrap().bytes, br#"{"text":"3"}"#);
    assert_eq!(code(pipes.recv(id, 0).await), "pipe.empty");
}

#[tokio::test]
async fn a_reader_gets_what_is_left_of_a_writer_that_has_ended() {
    let pipes = Pipes::default();
    let id = pipes.make("a".into(), spec("b")).unwrap();
    pipes.send(id, &json!({"text": "last words"}), OWN).unwrap();
    pipes.forsake(&"a".into());
    assert_eq!(code(pipes.send(id, &json!({"text": "more"}), OWN)), "pipe.closed");
    assert_eq!(pipes.recv(id, 0).await.unwrap().bytes, br#"{"text":"last words"}"#);
    assert_eq!(code(pipes.recv(id, 60_000).await), "pipe.closed");
    assert_eq!(code(pipes.recv(id, 0).await), "pipe.unknown");
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_a_message_and_no_longer_than_it_says() {
    let pipes = Arc::new(Pipes::default());
    let id = pipes.make("a".into(), spec("b")).unwrap();
    let (early, writer) = (pipes.recv(id, 1_000), Arc::clone(&pipes));
    assert_eq!(code(early.await), "pipe.empty");
    let sent = async {
        tokio::task::yield_now().await;
        writer.send(id, &json!({"text": "hello"}), OWN)
    };
    let (received, sent) = tokio::join!(pipes.recv(id, u64::MAX), sent);
    assert!(sent.is_ok() && received.is_ok());
    let closed = async {
        tokio::task::yield_now().await;
        writer.forsake(&"a".into());
    };
    assert_eq!(code(tokio::join!(pipes.recv(id, u64::MAX), closed).0), "pipe.closed");
}

async fn pair(world: &KernelFixture) -> (Principal, Principal, PipeId) {
    let (a, b) =
        (world.spawn(&world.person(), named("a")).await, world.spawn(&world.person(), named("b")).await);
    let made = world.done(&a, Op::Pipe(spec(b.agent_id().unwrap().as_str()))).await;
    (a, b, PipeId(made["pipe"].as_u64().unwrap()))
}

fn send(pipe: PipeId, text: &str) -> Op {
    Op::Send { pipe, message: json!({"text": text}) }
}

#[tokio::test]
async fn each_end_is_its_holders_alone() {
    let world = KernelFixture::new().await;
    let (a, b, pipe) = pair(&world).await;
    let recv = Op::Recv { pipe, wait_ms_max: 0 };
    for (who, op) in [
        (&a, recv.clone()),
        (&b, send(pipe, "x")),
        (&world.person(), recv.clone()),
        (&a, send(PipeId(pipe.0 ^ 1), "x")),
    ] {
        assert_eq!(world.denied(who, op).await, "pipe.not_yours");
    }
    world.done(&a, send(pipe, "hello")).await;
    let inbox = Op::List { path: "/self/ipc".into() };
    assert_eq!(world.done(&b, inbox).await["names"], json!(["inbox", "outbox"]));
    assert_eq!(world.done(&b, recv).await, json!({"text": "hello"}));
    assert_eq!(world.failed(&a, Op::Pipe(spec("nobody-there"))).await, "agent.unknown");
}

#[tokio::test]
async fn a_signal_reaches_an_agent_that_waits_for_a_message() {
    let world = KernelFixture::new().await;
    let (_a, b, pipe) = pair(&world).await;
    let waiting = world.outcome(&b, Op::Recv { pipe, wait_ms_max: 60_000 });
    let agent = b.agent_id().unwrap().clone();
    let interrupt = async {
        while world.kernel.0.society.calls.running(&agent) == 0 {
            tokio::task::yield_now().await;
        }
        world
            .done(&world.person(), Op::Signal { agent: agent.clone(), signal: Signal::Int, group: false })
            .await
    };
    assert_eq!(tokio::join!(waiting, interrupt).0.status, Status::Cancelled);
}

/// One agent may read secrets and not send, the other may send and not read. Together they must not be able to do both.
#[tokio::test]
async fn adv_068_what_was_seen_travels_with_the_message() {
    let policy = r#"
version: 1
rules:
  - { id: all, effect: allow, match: { op: "*" } }
  - id: no-secrets-out
    effect: deny
    match: { tool: test.send, labels: { "*": { min_confidentiality: secret } } }
"#;
    let world = KernelFixture::with(policy).await;
    let (a, b, pipe) = pair(&world).await;
    assert_eq!(world.outcome(&b, run("test.send")).await.status, Status::Ok);
    world.outcome(&a, run("test.secret")).await;
    world.done(&a, send(pipe, "a secret, in other words")).await;
    assert_eq!(world.outcome(&b, run("test.send")).await.status, Status::Ok, "nothing was received yet");
    let received = world.outcome(&b, Op::Recv { pipe, wait_ms_max: 0 }).await;
    let label = Label { integrity: Integrity::Peer, confidentiality: Confidentiality::Secret };
    assert_eq!(received.output.label(), label);
    assert_eq!(world.denied(&b, run("test.send")).await, "policy.denied");
}

proptest! {
    #[test]
    fn a_pipe_never_holds_more_than_it_may(messages in proptest::collection::vec("[a-z]{0,80}", 0..64)) {
        let pipes = Pipes::default();
        let id = pipes.make("a".into(), PipeSpec { messages_max: 5, ..spec("b") }).unwrap();
        let pipe = pipes.get(id).unwrap();
        for (at, text) in messages.iter().enumerate() {
            if at % 3 == 2 {
                let _message = pipe.take();
            }
            let _sent = pipes.send(id, &json!({"text": text}), OWN);
            let waiting = pipe.waiting();
            prop_assert!(waiting.messages.len() <= 5);
            prop_assert_eq!(waiting.bytes, waiting.messages.iter().map(|message| message.bytes.len()).sum::<usize>());
        }
    }
}
