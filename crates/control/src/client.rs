//! The other terminal's end of the control socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use regent_wire::{Op, Reply};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use zeroize::Zeroizing;

use super::server::{guard_folder, is_ours, own_uid};
use super::{Bearer, Body, ControlError, Hello, Nothing, REPLY_BYTES_MAX, Request, Response, VERSION};

/// How long a kernel may take to say who it is.
const HELLO_MS_MAX: u64 = 2_000;
/// How many sockets of a folder are looked at.
const SOCKETS_MAX: usize = 1_024;

/// A kernel process that can be spoken to.
#[derive(Debug, Clone)]
pub struct Peer {
    path: PathBuf,
    hello: Hello,
    token: Option<Bearer>,
}

/// The kernel processes of this user.
#[derive(Debug, Default)]
pub struct KernelProcesses {
    /// Those that answer, in the order in which they were started.
    pub peers: Vec<Peer>,
    /// Process ids of those that accept a connection and say nothing: they are stopped, or hang.
    pub silent: Vec<u32>,
}

/// Greets every kernel process of this user.
pub async fn processes(folder: &Path) -> Result<KernelProcesses, ControlError> {
    let mut found = KernelProcesses::default();
    if !folder.exists() {
        return Ok(found);
    }
    guard_folder(folder)?;
    // All at once: one that is just ending, or hangs, must neither hide the others nor hold them up.
    let mut greetings = tokio::task::JoinSet::new();
    for path in sockets_in(folder) {
        greetings.spawn(async move {
            let hello = tokio::time::timeout(Duration::from_millis(HELLO_MS_MAX), hello(&path)).await;
            (path, hello)
        });
    }
    while let Some(greeted) = greetings.join_next().await {
        match greeted {
            Ok((path, Ok(Ok(hello)))) => found.peers.push(Peer { path, hello, token: None }),
            Ok((path, Err(_silent))) => found.silent.extend(pid_of(&path)),
            // It is just ending.
            Ok((_, Ok(Err(_)))) | Err(_) => {}
        }
    }
    found.silent.sort_unstable();
    found.peers.sort_by_key(|peer| (peer.hello.started_at_ms, peer.hello.pid));
    Ok(found)
}

/// The process that a socket is named after, `PID.sock` or `PID-N.sock`.
fn pid_of(socket: &Path) -> Option<u32> {
    socket.file_stem()?.to_str()?.split('-').next()?.parse().ok()
}

pub(super) fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let sockets = paths.filter(|path| path.extension().is_some_and(|ending| ending == "sock"));
    sockets.take(SOCKETS_MAX).collect()
}

impl Peer {
    /// The peer's identity.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The same, authenticated with this token.
    #[must_use]
    pub fn presenting(self, token: Option<&str>) -> Self {
        Self { token: token.map(|text| Bearer(text.to_owned())), ..self }
    }

    /// Makes a call there. It is judged and recorded there; it may take as long as the call takes.
    pub async fn call(&self, op: Op) -> Result<Reply, ControlError> {
        let request = Request { v: VERSION, id: 1, op: Some(op), hello: None, token: self.token.clone() };
        match exchange(&self.path, &request).await? {
            Body::Reply(reply) => Ok(reply),
            Body::Error { code, message } => Err(ControlError::Refused { code, message }),
            Body::Hello(_) => Err(ControlError::Malformed("a greeting to a call".to_owned())),
        }
    }
}

async fn hello(path: &Path) -> Result<Hello, ControlError> {
    let request = Request { v: VERSION, id: 1, op: None, hello: Some(Nothing {}), token: None };
    match exchange(path, &request).await? {
        Body::Hello(hello) => Ok(hello),
        Body::Error { code, message } => Err(ControlError::Refused { code, message }),
        Body::Reply(_) => Err(ControlError::Malformed("a reply to a greeting".to_owned())),
    }
}

async fn exchange(path: &Path, request: &Request) -> Result<Body, ControlError> {
    let failed = |error| ControlError::socket(path, error);
    let malformed = |error: serde_json::Error| ControlError::Malformed(error.to_string());
    let mut stream = UnixStream::connect(path).await.map_err(failed)?;
    let peer = stream.peer_cred().map_err(failed)?;
    if !is_ours(peer.uid(), own_uid()) {
        let (code, message) = ("control.forbidden".to_owned(), "the socket is another user's".to_owned());
        return Err(ControlError::Refused { code, message });
    }
    let mut line = Zeroizing::new(serde_json::to_vec(request).map_err(malformed)?);
    line.push(b'\n');
    // A kernel that turns us away may have closed already; its first answer can still be read.
    let written = stream.write_all(&line).await;
    let most = u64::try_from(REPLY_BYTES_MAX).unwrap_or(u64::MAX);
    let mut answer = Vec::new();
    let read = BufReader::new(&mut stream).take(most).read_until(b'\n', &mut answer).await;
    if answer.is_empty() {
        written.map_err(failed)?;
        read.map_err(failed)?;
        return Err(ControlError::Malformed("it closed the connection".to_owned()));
    }
    let response: Response = serde_json::from_slice(&answer).map_err(malformed)?;
    Ok(response.body)
}
