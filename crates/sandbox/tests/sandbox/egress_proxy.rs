//! The egress proxy: it leads to the holder of the listener, and nowhere else.

use std::io::{Read, Write};
use std::net::TcpListener;

use regent_sandbox::{EGRESS_PROXY, Spec, run};
use tokio::sync::mpsc;

use crate::kit::{failed, ok, out};

/// Runs a script in a sandbox whose listener comes here, and answers every connection with its number until `answers` are given.
async fn served(script: &str, answers: usize) -> regent_sandbox::FinishedRun {
    let (sender, mut listeners) = mpsc::channel(1);
    let spec = Spec { listener: Some(sender), ..Spec::new(["/bin/bash", "-c", script]) };
    let answering = async {
        let listener = listeners.recv().await.unwrap();
        tokio::task::spawn_blocking(move || answer(&listener, answers)).await.unwrap();
    };
    let (ended, ()) = tokio::join!(run(spec, std::future::pending()), answering);
    ended.unwrap()
}

fn answer(listener: &TcpListener, answers: usize) {
    listener.set_nonblocking(false).unwrap();
    for number in 1..=answers {
        let (mut stream, _) = listener.accept().unwrap();
        let mut said = [0; 2];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"hi");
        write!(stream, "hello {number}").unwrap();
    }
}

#[tokio::test]
async fn a_program_reaches_the_holder_of_its_listener() {
    let script = "for i in 1 2; do exec 3<>/dev/tcp/127.0.0.1/3128; printf hi >&3; cat <&3; exec 3>&-; done";
    let ended = served(script, 2).await;
    assert_eq!(ok(&ended), "hello 1hello 2");
    assert!(ended.obtained.egress_proxy && ended.obtained.net_ns);
    assert_eq!(EGRESS_PROXY.to_string(), "127.0.0.1:3128");
}

#[tokio::test]
async fn adv_046_the_egress_proxy_is_the_only_way_to_the_network() {
    // Another port of loopback, another address, the same in UDP, and the interfaces that there are.
    let script = "exec 3<>/dev/tcp/127.0.0.1/3128; printf hi >&3; cat <&3; exec 3>&-; echo; \
        for to in tcp/127.0.0.1/80 tcp/8.8.8.8/443 tcp/169.254.169.254/80 udp/8.8.8.8/53 udp/127.0.0.53/53; do \
        if (exec 4<>/dev/$to && printf x >&4 && printf x >&4) 2>/dev/null; then echo \"reached $to\"; fi; done; \
        cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '";
    let ended = served(script, 1).await;
    assert_eq!(out(&ended), "hello 1\nlo\n", "{}", String::from_utf8_lossy(&ended.stderr));
}

#[tokio::test]
async fn adv_055_a_listener_that_is_dropped_leaves_no_network() {
    let (sender, mut listeners) = mpsc::channel(1);
    let script = "sleep 0.3; printf x | cat 2>/dev/null >/dev/tcp/127.0.0.1/3128";
    let spec = Spec { listener: Some(sender), ..Spec::new(["/bin/bash", "-c", script]) };
    let (ended, listener) =
        tokio::join!(run(spec, std::future::pending()), async { listeners.recv().await.map(drop) });
    assert!(listener.is_some());
    assert!(failed(&ended.unwrap()));
    // Nobody even took it.
    let (sender, listeners) = mpsc::channel(1);
    drop(listeners);
    let spec = Spec { listener: Some(sender), ..Spec::new(["/bin/bash", "-c", script]) };
    assert!(failed(&run(spec, std::future::pending()).await.unwrap()));
}

#[tokio::test]
async fn without_being_asked_for_there_is_none() {
    let ended = crate::kit::sh("cat /proc/net/route; exec 2>/dev/null; : >/dev/tcp/127.0.0.1/3128").await;
    assert!(failed(&ended) && !ended.obtained.egress_proxy);
}
