//! What an address means for the connection.

use tokio_postgres::config::SslMode;

use super::*;

fn server(url: &str) -> Server {
    Server::new(&StateUrl::parse(url).unwrap()).unwrap()
}

#[test]
fn only_servers_that_are_all_on_this_machine_are_reached_without_tls() {
    let cases = [
        ("postgres://u@localhost/x", SslMode::Prefer),
        ("postgres://u@127.0.0.1:1/x", SslMode::Prefer),
        ("postgres://u@[::1]/x", SslMode::Prefer),
        ("postgres://u@%2Frun%2Fpostgresql/x", SslMode::Prefer),
        ("postgres:///x?host=/run/postgresql", SslMode::Prefer),
        ("postgres:///x?hostaddr=127.0.0.1", SslMode::Prefer),
        ("postgres://u@db.example/x", SslMode::Require),
        ("postgres://u@127.0.0.1.example.com/x", SslMode::Require),
        ("postgres:///x?host=db.example", SslMode::Require),
        ("postgres://u@localhost/x?host=db.example", SslMode::Require),
        ("postgres://u@localhost/x?hostaddr=10.0.0.1", SslMode::Require),
        ("postgres:///x?hostaddr=10.0.0.1", SslMode::Require),
        ("postgres:///x?host=localhost,db.example", SslMode::Require),
        ("postgres://u@db.example/x?hostaddr=127.0.0.1", SslMode::Require),
        ("postgres://u@db.example/x?sslmode=disable", SslMode::Disable),
    ];
    for (url, expected) in cases {
        assert_eq!(server(url).config.get_ssl_mode(), expected, "{url}");
    }
}

#[test]
fn a_connection_asks_whether_its_server_is_still_there() {
    let config = server("postgres://u@localhost/x?keepalives=0").config;
    assert!(config.get_keepalives());
    let seconds =
        (config.get_keepalives_idle().as_secs(), config.get_keepalives_interval().unwrap().as_secs());
    assert_eq!((seconds, config.get_keepalives_retries()), ((15, 5), Some(3)));
}

#[tokio::test]
async fn a_server_that_never_answers_holds_up_no_subscription() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let subscribing = tokio::spawn(async move {
        let changed = watch::Sender::new(0);
        server(&format!("postgres://u@127.0.0.1:{port}/x")).subscribe(&changed).await.map(drop)
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap();
    // Connected and asked: from here on nothing but time passes.
    tokio::time::pause();
    assert!(matches!(subscribing.await.unwrap(), Err(StateError::Unreachable(_))));
}
