//! The kernel's end of the control socket.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use regent_kernel::{Authenticator, Credential, Kernel, Principal};
use regent_wire::Reply;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use super::listening::{Listening, bind_private};
use super::{Body, ControlError, Hello, REQUEST_BYTES_MAX, Request, Response, VERSION};

/// How many may be connected at once.
const CONNECTIONS_MAX: usize = 32;
/// How long a connection may say nothing, or take to say one thing.
const IDLE_MS_MAX: u64 = 60_000;
/// How long an answer may take to be taken.
const WRITE_MS_MAX: u64 = 30_000;
/// How long we wait after the system has refused us a connection (out of descriptors).
const PAUSE_MS: u64 = 100;

/// What the socket serves. The composition root hands this over.
#[derive(Debug, Clone)]
pub struct Served {
    /// What makes the calls.
    pub kernel: Kernel,
    /// Says whose calls they are.
    pub authenticator: Authenticator,
    /// The folder that the kernel works in, for those who look for a kernel.
    pub workspace: PathBuf,
}

/// Offers the control socket of this process in `folder` (`<runtime folder>/regent`), which is made if it isn't there.
pub async fn listen(served: Served, folder: &Path) -> Result<Listening, ControlError> {
    guard_folder(folder)?;
    sweep(folder).await;
    let (listener, path) = bind(folder)?;
    let hello = Arc::new(Greeter { started_at_ms: served.kernel.now_ms(), served });
    let task = tokio::spawn(accept(listener, hello)).abort_handle();
    Ok(Listening::new(path, task))
}

/// The folder must be our own, closed to others, and no link to somewhere else.
pub(super) fn guard_folder(folder: &Path) -> Result<(), ControlError> {
    let wrong = |why: String| ControlError::Folder { path: folder.to_owned(), why };
    match DirBuilder::new().recursive(false).mode(0o700).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(wrong(error.to_string())),
    }
    let meta = std::fs::symlink_metadata(folder).map_err(|error| wrong(error.to_string()))?;
    if !meta.is_dir() {
        return Err(wrong("it is not a folder, or a link to one".to_owned()));
    }
    if meta.uid() != own_uid() {
        return Err(wrong("it belongs to another user".to_owned()));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(wrong(format!("others can access it (mode {:o}); it must be 700", meta.mode() & 0o777)));
    }
    Ok(())
}

pub(super) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Binds the socket of one kernel. It has its name only when it is ready, so a sweep can't take a live one for dead.
fn bind(folder: &Path) -> Result<(UnixListener, PathBuf), ControlError> {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let (pid, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let path = match count {
        1 => folder.join(format!("{pid}.sock")),
        // A second kernel in the same process.
        more => folder.join(format!("{pid}-{more}.sock")),
    };
    let unready = folder.join(format!(".{pid}-{count}"));
    let listener = bind_private(&path, &unready).map_err(|error| ControlError::socket(&path, error))?;
    Ok((listener, path))
}

/// Removes sockets without a listener. Those it can't check stay.
async fn sweep(folder: &Path) {
    for path in super::client::sockets_in(folder) {
        if let Err(error) = UnixStream::connect(&path).await
            && error.kind() == std::io::ErrorKind::ConnectionRefused
        {
            drop(std::fs::remove_file(&path));
        }
    }
}

/// What a connection needs of the kernel.
#[derive(Debug)]
struct Greeter {
    served: Served,
    started_at_ms: i64,
}

async fn accept(listener: UnixListener, greeter: Arc<Greeter>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
            continue;
        };
        let authenticator = &greeter.served.authenticator;
        let peer = match stream.peer_cred() {
            Ok(peer) => authenticator.authenticate(Credential::PeerUid(peer.uid())).await.ok(),
            Err(_unknown) => None,
        };
        let Some(user) = peer else {
            turn_away(stream, "control.forbidden", "this kernel belongs to another user");
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            turn_away(stream, "control.busy", "too many connections");
            continue;
        };
        let greeter = Arc::clone(&greeter);
        tokio::spawn(async move {
            serve(stream, &greeter, &user).await;
            drop(place);
        });
    }
}

/// Whether the other end is the same user.
pub(super) fn is_ours(peer_uid: u32, own_uid: u32) -> bool {
    peer_uid == own_uid
}

/// Sends the reason without waiting: a peer that doesn't read it just sees the connection close.
fn turn_away(stream: UnixStream, code: &str, message: &str) {
    if let Ok(line) = line_of(&error(None, code, message)) {
        drop(stream.try_write(&line));
    }
}

async fn serve(stream: UnixStream, greeter: &Greeter, user: &Principal) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    loop {
        let next = tokio::time::timeout(Duration::from_millis(IDLE_MS_MAX), next_line(&mut read)).await;
        let (response, over) = match next {
            Ok(Line::Whole(line)) => (greeter.respond(user, &line).await, false),
            Ok(Line::TooLong) => {
                let message = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
                (error(None, "control.too_large", &message), true)
            }
            Ok(Line::Ended) => return,
            Err(_idle) => (error(None, "control.idle", "the connection was idle for too long"), true),
        };
        let Ok(line) = line_of(&response) else { return };
        let written = tokio::time::timeout(Duration::from_millis(WRITE_MS_MAX), write.write_all(&line)).await;
        if over || !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}

enum Line {
    /// It may hold a token.
    Whole(Zeroizing<Vec<u8>>),
    TooLong,
    Ended,
}

async fn next_line(read: &mut BufReader<OwnedReadHalf>) -> Line {
    let mut line = Zeroizing::new(Vec::new());
    let most = u64::try_from(REQUEST_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    match read.take(most).read_until(b'\n', &mut line).await {
        Ok(_) if line.last() == Some(&b'\n') => Line::Whole(line),
        Ok(_) if line.len() > REQUEST_BYTES_MAX => Line::TooLong,
        // What comes before the end without a line's end was cut off, and isn't guessed at.
        Ok(_) | Err(_) => Line::Ended,
    }
}

impl Greeter {
    async fn respond(&self, user: &Principal, line: &[u8]) -> Response {
        let request = match request_of(line) {
            Ok(request) => request,
            Err(why) => return error(None, "control.malformed", &why),
        };
        let id = Some(request.id);
        if request.v != VERSION {
            return error(id, "control.version", &format!("this kernel speaks version {VERSION}"));
        }
        match (request.op, request.hello) {
            (Some(op), None) => {
                // With each request: a token that was revoked since the last one opens nothing any more.
                let caller = match request.token {
                    Some(token) => self.served.authenticator.authenticate(Credential::Bearer(&token.0)).await,
                    None => Ok(user.clone()),
                };
                let caller = match caller {
                    Ok(caller) => caller,
                    Err(refused) => return error(id, refused.code(), &refused.to_string()),
                };
                let reply = match self.served.kernel.syscall(&caller, op).await {
                    Ok(reply) => reply.into(),
                    Err(fault) => Reply::Fault((&fault).into()),
                };
                Response { v: VERSION, id, body: Body::Reply(reply) }
            }
            (None, Some(_)) => Response { v: VERSION, id, body: Body::Hello(self.hello(user)) },
            (Some(_), Some(_)) | (None, None) => {
                error(id, "control.malformed", "a request has either `op` or `hello`")
            }
        }
    }

    fn hello(&self, user: &Principal) -> Hello {
        Hello {
            pid: std::process::id(),
            session: user.session().to_owned(),
            phase: self.served.kernel.phase(),
            workspace: self.served.workspace.clone(),
            started_at_ms: self.started_at_ms,
        }
    }
}

/// The strict parser first: it bounds the depth, and refuses what two readers could understand differently.
pub(super) fn request_of(line: &[u8]) -> Result<Request, String> {
    let value = regent_ledger::canonical::parse(line.trim_ascii_end()).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn error(id: Option<u64>, code: &str, message: &str) -> Response {
    let body = Body::Error { code: code.to_owned(), message: message.to_owned() };
    Response { v: VERSION, id, body }
}

fn line_of(response: &Response) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    Ok(line)
}
