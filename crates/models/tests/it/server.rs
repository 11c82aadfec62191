//! A scripted server: answers one request a connection, in order.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What the server does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// An answer, whole.
    Answer(&'static str, String),
    /// An answer with one more header.
    With(&'static str, &'static str, String),
    /// Whatever the request deserves.
    By(fn(&str) -> (&'static str, String)),
    /// Its head and a part of it, and then the connection breaks.
    Break(&'static str, String),
    /// Its head and this, and then nothing for ever.
    Stall(&'static str, String),
    /// Not even a head.
    Hang,
    /// The connection is closed at once.
    Close,
}

/// A server on this machine.
pub(crate) struct Server {
    at: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// One that does these things, and the last of them for ever.
    pub(crate) fn new(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (acts, seen) = (Arc::new(Mutex::new(VecDeque::from(acts))), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), acts, seen) = (stream, Arc::clone(&acts), Arc::clone(&seen)) else { return };
                thread::spawn(move || serve(stream, &acts, &seen));
            }
        });
        Self { at, requests }
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    /// What it was sent: heads and bodies.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, acts: &Mutex<VecDeque<Act>>, seen: &Mutex<Vec<String>>) {
    let Some(request) = read(&mut stream) else { return };
    let act = {
        let mut acts = acts.lock().unwrap();
        seen.lock().unwrap().push(request.clone());
        if acts.len() > 1 { acts.pop_front().unwrap() } else { acts.front().unwrap().clone() }
    };
    let (act, header) = match act {
        Act::With(status, header, body) => (Act::Answer(status, body), format!("{header}\r\n")),
        Act::By(decide) => {
            let (status, body) = decide(&request);
            (Act::Answer(status, body), String::new())
        }
        act @ (Act::Answer(..) | Act::Break(..) | Act::Stall(..) | Act::Hang | Act::Close) => {
            (act, String::new())
        }
    };
    let head = |status: &str| {
        format!("HTTP/1.1 {status}\r\n{header}connection: close\r\ntransfer-encoding: chunked\r\n\r\n")
    };
    // In two pieces with a pause between them, so that the border is somewhere in the middle.
    let mut send = |status: &str, body: &str| {
        let middle = body.len() / 2;
        let (left, right) = body.as_bytes().split_at(middle);
        let _gone = stream.write_all(head(status).as_bytes()).is_err();
        for piece in [left, right].into_iter().filter(|piece| !piece.is_empty()) {
            let _gone = write!(stream, "{:x}\r\n", piece.len()).is_err();
            let _gone = stream.write_all(piece).is_err() || stream.write_all(b"\r\n").is_err();
            let _gone = stream.flush().is_err();
        }
    };
    match act {
        Act::Answer(status, body) => {
            send(status, &body);
            let _gone = stream.write_all(b"0\r\n\r\n").is_err();
        }
        Act::Break(status, body) => send(status, &body),
        Act::Stall(status, body) => {
            send(status, &body);
            thread::sleep(Duration::from_secs(60));
        }
        Act::With(..) | Act::By(_) => unreachable!("they became answers above"),
        Act::Hang => thread::sleep(Duration::from_secs(60)),
        Act::Close => {}
    }
}

fn read(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if body.len() >= length.unwrap_or(0) {
            return Some(text.into_owned());
        }
    }
}
