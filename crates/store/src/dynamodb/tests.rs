//! Signatures, by the examples that AWS publishes, and answers that no emulator gives.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use zeroize::Zeroizing;

use super::sign::*;
use super::*;
use crate::tests::beds::{partition, put_write};

#[test]
fn a_signature_is_what_the_published_examples_say() {
    let credentials = Credentials {
        id: "AKIDEXAMPLE".to_owned(),
        secret: Zeroizing::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned()),
        session: None,
    };
    let headers = [("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z")];
    for (method, expected) in [
        ("GET", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    ] {
        let request = Request { method, headers: &headers, body: b"" };
        let signed = authorization(&credentials, ("us-east-1", "service"), "20150830T123600Z", &request);
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, Signature={expected}"
        );
        assert_eq!(signed, expected, "{method}");
    }
    assert_eq!(format!("{credentials:?}"), "Credentials");
}

#[test]
fn a_time_is_a_date() {
    for (seconds, expected) in [
        (0, "19700101T000000Z"),
        (951_782_399, "20000228T235959Z"),
        (951_782_400, "20000229T000000Z"),
        (1_440_938_160, "20150830T123600Z"),
        (1_709_251_199, "20240229T235959Z"),
        (4_107_542_400, "21000301T000000Z"),
    ] {
        assert_eq!(timestamp(seconds), expected);
    }
}

/// How the service answers a request: with a status and a body, or by closing the connection.
type Answer = Option<(u16, String)>;
/// Which answer an operation gets, given how often it was asked before.
type Script = dyn Fn(&str, usize) -> Answer + Send + Sync;

/// An endpoint of this test: it plays a script, and notes the requests.
struct ScriptedEndpoint {
    url: String,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl ScriptedEndpoint {
    async fn start(script: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (noted, script): (_, Arc<Script>) = (Arc::clone(&requests), Arc::new(script));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&noted), Arc::clone(&script)));
            }
        });
        Self {
            url: format!("dynamodb://key:secret@us-east-1/regent?endpoint=http://127.0.0.1:{port}"),
            requests,
        }
    }

    async fn open(&self) -> DynamodbState {
        DynamodbState::open(&StateUrl::parse(&self.url).unwrap()).await.unwrap()
    }

    /// The tokens of the transactions that were sent.
    fn tokens(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let tokens = requests.iter().filter_map(|(_, body)| body["ClientRequestToken"].as_str());
        tokens.map(str::to_owned).collect()
    }
}

async fn serve(stream: TcpStream, noted: Arc<Mutex<Vec<(String, Value)>>>, script: Arc<Script>) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut operation, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end().split_once(": ") {
                Some(("x-amz-target", target)) => operation = target.rsplit('.').next().unwrap().to_owned(),
                Some(("content-length", bytes)) => length = bytes.parse().unwrap(),
                Some(_) => {}
                None if line.trim_end().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let count = {
            let mut noted = noted.lock().unwrap();
            noted.push((operation.clone(), serde_json::from_slice(&body).unwrap()));
            noted.iter().filter(|(known, _)| *known == operation).count() - 1
        };
        let Some((status, body)) = script(&operation, count) else { return };
        let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

fn exception(kind: &str) -> Answer {
    Some((400, json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{kind}")}).to_string()))
}

/// What a service with an empty table answers.
fn empty(operation: &str) -> Answer {
    let answer = match operation {
        "DescribeTable" => json!({"Table": {"TableStatus": "ACTIVE"}}),
        "TransactGetItems" => json!({"Responses": [{}]}),
        "BatchGetItem" => json!({"Responses": {"regent": []}, "UnprocessedKeys": {}}),
        "Query" => json!({"Items": [], "Count": 0}),
        _ => json!({}),
    };
    Some((200, answer.to_string()))
}

fn one_write() -> Change {
    Change { checks: Vec::new(), writes: vec![put_write("k", b"1")] }
}

#[tokio::test]
async fn a_transaction_in_progress_is_sent_again_with_its_token_until_it_has_ended() {
    let service = ScriptedEndpoint::start(|operation, count| match (operation, count) {
        ("TransactWriteItems", 0) => None,
        ("TransactWriteItems", 1 | 2) => exception("TransactionInProgressException"),
        _ => empty(operation),
    });
    let service = service.await;
    assert_eq!(service.open().await.commit(&partition("p"), one_write()).await, Ok(Committed::Done));
    let tokens = service.tokens();
    assert_eq!(tokens.len(), 4);
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
}

#[tokio::test]
async fn a_transaction_that_never_ends_has_an_unknown_result_and_is_no_conflict() {
    let service = ScriptedEndpoint::start(|operation, _| match operation {
        "TransactWriteItems" => exception("TransactionInProgressException"),
        _ => empty(operation),
    });
    let service = service.await;
    let committed = service.open().await.commit(&partition("p"), one_write()).await;
    assert!(matches!(committed, Err(StateError::Unreachable(_))), "{committed:?}");
    let tokens = service.tokens();
    assert!(tokens.iter().all(|token| *token == tokens[0]), "one transaction: {tokens:?}");
}

#[tokio::test]
async fn an_answer_without_its_parts_is_lost_and_nothing_is_absent() {
    let cases = [
        ("BatchGetItem", "<html>please log in</html>"),
        ("BatchGetItem", "[]"),
        ("BatchGetItem", "{}"),
        ("Query", ""),
        ("Query", "{}"),
        ("TransactGetItems", "{\"Responses\": [{}]"),
        ("TransactGetItems", "{}"),
        ("TransactGetItems", r#"{"Responses": []}"#),
        ("GetItem", "null"),
    ];
    for (broken, body) in cases {
        let script = move |operation: &str, _| match operation == broken {
            true => Some((200, body.to_owned())),
            false => empty(operation),
        };
        let state = ScriptedEndpoint::start(script).await.open().await;
        let p = partition("p");
        let answers = [
            state.read(&p, &["k".to_owned()]).await.map(drop),
            state.read(&p, &["k".to_owned(), "l".to_owned()]).await.map(drop),
            state.scan(&p, "").await.map(drop),
            state.sweep(1, 1).await.map(drop),
        ];
        let failed: Vec<bool> = answers.iter().map(Result::is_err).collect();
        let expected = match broken {
            "BatchGetItem" => [true, true, false, false],
            "Query" => [false, false, true, true],
            _ => [false, true, true, false],
        };
        assert_eq!(failed, expected, "{broken}: `{body}`");
        for error in answers.into_iter().filter_map(Result::err) {
            assert!(matches!(error, StateError::Unreachable(_)), "{broken}: `{body}`: {error}");
        }
    }
}

#[tokio::test]
async fn what_is_not_there_is_absent() {
    let state = ScriptedEndpoint::start(|operation, _| empty(operation)).await.open().await;
    let p = partition("p");
    assert_eq!(state.read(&p, &["k".to_owned(), "l".to_owned()]).await, Ok(vec![None, None]));
    assert_eq!(state.scan(&p, "").await, Ok(vec![]));
}
