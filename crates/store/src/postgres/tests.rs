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
