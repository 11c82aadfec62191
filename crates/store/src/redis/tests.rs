//! What a server of Redis must promise, also after its connection was lost.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};

use super::session::{Session, lossy_settings};
use super::*;
use crate::tests::beds::{get, partition, put};

const KEPT: [(&str, &str); 5] = [
    ("appendonly", "yes"),
    ("appendfsync", "always"),
    ("no-appendfsync-on-rewrite", "no"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
];

#[test]
fn a_server_that_may_lose_or_evict_records_lacks_a_setting() {
    let policy = &["`maxmemory-policy noeviction`"][..];
    let cases = [
        (&[][..], &[][..]),
        (&[("maxmemory", "100")], &[]),
        (&[("maxmemory", "100"), ("maxmemory-policy", "volatile-lru")], &[]),
        (&[("maxmemory", "100"), ("maxmemory-policy", "volatile-ttl")], &[]),
        (&[("maxmemory", "0"), ("maxmemory-policy", "allkeys-lru")], &[]),
        (&[("maxmemory", "100"), ("maxmemory-policy", "allkeys-lru")], policy),
        (&[("maxmemory", "100"), ("maxmemory-policy", "allkeys-random")], policy),
        (&[("maxmemory", "100"), ("maxmemory-policy", "one of tomorrow")], policy),
        (&[("maxmemory", "100"), ("maxmemory-policy", "")], policy),
        (&[("maxmemory", ""), ("maxmemory-policy", "")], policy),
        (&[("appendfsync", "everysec")], &["`appendfsync always`"]),
        (&[("appendonly", "")], &["`appendonly yes`"]),
    ];
    for (changed, expected) in cases {
        let mut settings: std::collections::BTreeMap<&str, String> =
            KEPT.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        settings.extend(changed.iter().map(|(name, value)| (*name, (*value).to_owned())));
        // A server that doesn't tell.
        settings.retain(|_, value| !value.is_empty());
        assert_eq!(lossy_settings(&settings), expected, "{changed:?}");
    }
}

/// A server of this test alone, whose settings it changes. It ends with it.
struct OwnServer {
    port: u16,
    child: Child,
    _folder: tempfile::TempDir,
}

impl OwnServer {
    /// Starts one; none where nobody has prepared servers.
    async fn start() -> Option<Self> {
        if std::env::var_os("REGENT_TEST_REDIS").is_none() {
            assert!(std::env::var_os("REGENT_STATE_SERVERS").is_none(), "REGENT_TEST_REDIS is not set");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        #[expect(clippy::disallowed_methods, reason = "a test starts the server")]
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { port, child: command.spawn().unwrap(), _folder: folder };
        while matches!(server.open(true).await, Err(StateError::Unreachable(_) | StateError::Busy)) {
            tokio::task::yield_now().await;
        }
        Some(server)
    }

    fn url(&self, accepts_loss: bool) -> StateUrl {
        let url = StateUrl::parse(&format!("redis://127.0.0.1:{}", self.port)).unwrap();
        if accepts_loss { url.accept_loss() } else { url }
    }

    async fn open(&self, accepts_loss: bool) -> Result<RedisState, StateError> {
        RedisState::open(&self.url(accepts_loss)).await
    }

    async fn operator(&self) -> Session {
        Server::new(&self.url(true)).unwrap().connect().await.unwrap()
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn ask(operator: &mut Session, words: &[&str]) {
    let (name, words) = words.split_first().unwrap();
    let _: redis::Value = redis::cmd(name).arg(words).query_async(&mut operator.connection).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_evicts_records_is_refused_or_marked_as_lossy() {
    let Some(server) = OwnServer::start().await else { return };
    let mut operator = server.operator().await;
    ask(&mut operator, &["CONFIG", "SET", "maxmemory", "100mb"]).await;
    for (policy, keeps) in [("allkeys-lru", false), ("volatile-lru", true), ("noeviction", true)] {
        ask(&mut operator, &["CONFIG", "SET", "maxmemory-policy", policy]).await;
        match server.open(false).await {
            Ok(state) => assert!(keeps && !state.is_lossy(), "{policy}"),
            Err(error) => {
                assert!(!keeps, "{policy}: {error}");
                assert!(error.to_string().contains("`maxmemory-policy noeviction`"), "{policy}: {error}");
            }
        }
        assert_eq!(server.open(true).await.unwrap().is_lossy(), !keeps, "{policy}");
    }
    // What makes `volatile-…` safe.
    let state = server.open(false).await.unwrap();
    let write = Write::Put { key: "k".to_owned(), value: vec![1], keep_until_ms: 1 };
    let change = Change { checks: Vec::new(), writes: vec![write] };
    assert_eq!(state.commit(&partition("p"), change).await, Ok(Committed::Done));
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut operator.connection).await.unwrap();
    assert!(!keys.is_empty());
    for key in keys {
        let expiry: i64 = redis::cmd("TTL").arg(&key).query_async(&mut operator.connection).await.unwrap();
        assert_eq!(expiry, -1, "{key} has no expiry");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_became_lossy_is_refused_when_the_connection_is_made_again() {
    let Some(server) = OwnServer::start().await else { return };
    let (state, p) = (server.open(true).await.unwrap(), partition("p"));
    assert!(!state.is_lossy());
    put(&state, &p, "k", b"1").await;
    let mut operator = server.operator().await;
    for (value, refused) in [("everysec", true), ("always", false)] {
        ask(&mut operator, &["CONFIG", "SET", "appendfsync", value]).await;
        ask(&mut operator, &["CLIENT", "KILL", "TYPE", "normal"]).await;
        // The first that notices has its answer lost.
        let mut answer = state.read(&p, &["k".to_owned()]).await;
        while matches!(answer, Err(StateError::Unreachable(_))) {
            answer = state.read(&p, &["k".to_owned()]).await;
        }
        match refused {
            true => assert_eq!(answer, Err(StateError::Lossy("`appendfsync always`".to_owned()))),
            false => assert_eq!(get(&state, &p, "k").await.unwrap().value, b"1"),
        }
    }
    assert!(!state.is_lossy(), "as it was recorded");
}

#[tokio::test]
async fn a_server_that_never_answers_holds_up_no_subscription() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let subscribing = tokio::spawn(async move {
        let server = Server::new(&StateUrl::parse(&url).unwrap()).unwrap();
        server.subscribe().await.map(drop)
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap();
    // Connected and asked: from here on nothing but time passes.
    tokio::time::pause();
    assert!(matches!(subscribing.await.unwrap(), Err(StateError::Unreachable(_))));
}
