//! Addresses: what they may say, and that nothing of them is repeated.

use super::*;

#[test]
fn an_address_is_shown_by_its_kind_alone() {
    let url = StateUrl::parse("postgres://ann:hunter2@db.example:5432/x").unwrap();
    assert_eq!(format!("{url:?}"), "StateUrl(Postgres)");
    for wrong in ["", "hunter2", "mysql://ann:hunter2@db", "postgres:hunter2", "://hunter2"] {
        assert!(!StateUrl::parse(wrong).unwrap_err().to_string().contains("hunter2"), "{wrong}");
    }
    for wrong in
        ["postgres://ann:hunter2@[::/x", "redis://:hunter2@h:99999", "redis://:hunter2@h?namespace=a.b"]
    {
        let error = StateUrl::parse(wrong).unwrap().parts().err().unwrap().to_string();
        assert!(!error.contains("hunter2") && error.contains("address of the state"), "{error}");
    }
}

#[test]
fn our_options_are_taken_out_and_the_others_stay() {
    let url = "postgres://h/db?application_name=a%20b&namespace=n_1&sslrootcert=%2Fca.pem&connect_timeout=3";
    let Parts { url, options } = StateUrl::parse(url).unwrap().parts().unwrap();
    assert_eq!(url.query(), Some("application_name=a+b&connect_timeout=3"));
    assert_eq!((options.namespace.as_str(), options.authorities), ("n_1", Some(PathBuf::from("/ca.pem"))));
    let Parts { url, options } = StateUrl::parse("redis://h").unwrap().accept_loss().parts().unwrap();
    assert_eq!((url.query(), options.namespace.as_str(), options.may_lose), (None, "regent", true));
}

#[cfg(any(feature = "redis", feature = "dynamodb"))]
#[test]
fn only_this_machine_is_reached_without_tls() {
    for (url, expected) in [
        ("redis://localhost", true),
        ("redis://127.0.0.1:1", true),
        ("redis://[::1]:1", true),
        ("redis://127.0.0.1.example.com", false),
        ("redis://10.0.0.1", false),
        ("redis://db", false),
    ] {
        assert_eq!(is_here(&Url::parse(url).unwrap()), expected, "{url}");
    }
}

#[cfg(any(feature = "redis", feature = "dynamodb"))]
#[tokio::test]
async fn a_connection_asks_whether_its_server_is_still_there() {
    use rustix::net::sockopt;
    use std::time::Duration;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stream = connect::connect_tcp(("127.0.0.1", port)).await.unwrap();
    assert!(sockopt::socket_keepalive(&stream).unwrap());
    let times = (sockopt::tcp_keepidle(&stream).unwrap(), sockopt::tcp_keepintvl(&stream).unwrap());
    assert_eq!(times, (Duration::from_secs(15), Duration::from_secs(5)));
    assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), 3);
}

#[cfg(any(feature = "postgres", feature = "redis"))]
#[test]
fn there_is_a_pause_after_every_subscription_also_after_one_that_succeeded() {
    use std::time::Duration;
    let mut pause = ReconnectPause::new();
    let ended_at_once = [0, 1, 0, 10, 0, 0, 1_999, 0];
    let pauses: Vec<u128> =
        ended_at_once.iter().map(|ms| pause.after(Duration::from_millis(*ms)).as_millis()).collect();
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1_600, 2_000, 2_000]);
    assert_eq!(pause.after(Duration::from_secs(2)).as_millis(), 50, "after one that lasted");
    assert_eq!(pause.after(Duration::ZERO).as_millis(), 100);
}
