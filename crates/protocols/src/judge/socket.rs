//! The judge on a Unix socket. Its first line shows a token: `{"op":"authenticate","token":"rgt_…"}`. From then on the lines are the same as on
//! stdio, and every one of them is answered in the name of whom the token stands for. Sessions belong to the connection that began them.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use regent_control::{Listening, bind_private};
use regent_kernel::{AuthError, Authenticator, Credential};
use regent_wire::judge::{JudgeAnswer, JudgeCaller};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use super::lines::serve;
use super::{Judge, JudgeError, Parts};

/// How many may be connected at once.
const CONNECTIONS_MAX: usize = 64;
/// The longest first line.
const FIRST_BYTES_MAX: u64 = 1 << 10;
/// How long a host may take to show its token.
const FIRST_MS_MAX: u64 = 10_000;
/// How long a host may take to take an answer.
const WRITE_MS_MAX: u64 = 30_000;
/// How long we wait after the system has refused us a connection (out of descriptors).
const PAUSE_MS: u64 = 100;

/// Serves hosts on a socket at this path, which only our own user can connect to until its mode is changed.
pub fn listen(
    parts: Arc<Parts>,
    authenticator: Authenticator,
    path: &Path,
    render: fn(&Value) -> Vec<u8>,
) -> io::Result<Listening> {
    let listener = bind(path)?;
    let accepting = accept(listener, Accepting { parts, authenticator, render });
    Ok(Listening::new(path.to_owned(), tokio::spawn(accepting).abort_handle()))
}

/// A socket that nobody listens on is replaced; anything else stays.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match UnixStream::connect(path) {
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => {}
        Err(error) => return Err(error),
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    let unready = path.with_file_name(format!(".{name}-{}", std::process::id()));
    bind_private(path, &unready)
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

#[derive(Debug, Clone)]
struct Accepting {
    parts: Arc<Parts>,
    authenticator: Authenticator,
    render: fn(&Value) -> Vec<u8>,
}

async fn accept(listener: UnixListener, accepting: Accepting) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
            continue;
        };
        let (Ok(place), Ok(stream)) = (Arc::clone(&places).try_acquire_owned(), stream.into_std()) else {
            continue;
        };
        let (accepting, runtime) = (accepting.clone(), Handle::current());
        // A host that reads slowly holds up its own thread and nobody else's.
        let serving = std::thread::Builder::new().name("judge".to_owned()).spawn(move || {
            // What a connection fails of concerns that host, who sees it close.
            drop(accepting.connection(&runtime, &stream));
            drop(place);
        });
        if serving.is_err() {
            // The system has no thread for this host, whose connection closes. Others are accepted when it has.
            tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
        }
    }
}

impl Accepting {
    fn connection(&self, runtime: &Handle, stream: &UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_millis(FIRST_MS_MAX)))?;
        stream.set_write_timeout(Some(Duration::from_millis(WRITE_MS_MAX)))?;
        let mut input = BufReader::new(stream.try_clone()?);
        let mut output = stream;
        let judge = match self.authenticate(runtime, &mut input) {
            Ok(judge) => judge,
            Err(error) => {
                let refused = JudgeAnswer::Refused { error: error.to_string() };
                return output.write_all(&(self.render)(&json!(refused)));
            }
        };
        stream.set_read_timeout(None)?;
        let caller = &judge.caller;
        let authenticated = JudgeCaller { class: caller.class(), name: caller.display_name().to_owned() };
        output.write_all(&(self.render)(&json!(JudgeAnswer::Authenticated { authenticated })))?;
        let judge = Arc::new(judge);
        let served = runtime.block_on(serve(&judge, input, output, self.render));
        // The thread that reads must not outlive the connection.
        drop(stream.shutdown(std::net::Shutdown::Both));
        runtime.block_on(judge.close());
        served.map(drop)
    }

    fn authenticate(&self, runtime: &Handle, input: &mut BufReader<UnixStream>) -> Result<Judge, JudgeError> {
        let mut line = Zeroizing::new(Vec::with_capacity(usize::try_from(FIRST_BYTES_MAX).unwrap_or(0)));
        let read = input.take(FIRST_BYTES_MAX).read_until(b'\n', &mut line);
        let first: Option<First> = read.ok().and_then(|_| serde_json::from_slice(&line).ok());
        let Some(First::Authenticate { token }) = first else {
            let why = "the first line is {\"op\":\"authenticate\",\"token\":\"rgt_…\"}";
            return Err(JudgeError::Unreadable(why.to_owned()));
        };
        let connection =
            Connection { authenticator: self.authenticator.clone(), token: Zeroizing::new(token) };
        let caller =
            runtime.block_on(connection.authenticator.authenticate(Credential::Bearer(&connection.token)))?;
        Ok(Judge::connected(Arc::clone(&self.parts), caller, connection))
    }
}

/// What a connection begins with.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum First {
    Authenticate { token: String },
}

/// The token of a connection, asked about again with each message.
pub(super) struct Connection {
    authenticator: Authenticator,
    token: Zeroizing<String>,
}

impl Connection {
    pub(super) async fn check(&self) -> Result<(), JudgeError> {
        let known: Result<_, AuthError> =
            self.authenticator.authenticate(Credential::Bearer(&self.token)).await;
        known.map(drop).map_err(JudgeError::from)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection(…)")
    }
}
