//! The control socket: lets another terminal list, signal and approve in a running kernel.
//!
//! **Authority.** A peer on this socket acts as the operator: it can answer questions, set budgets, kill agents. So it
//! is only for the user who runs the kernel. The socket has mode 0600, in a folder of mode 0700 that must belong to that user and not be a
//! link, and the kernel checks the peer's uid (`SO_PEERCRED`) before it reads a byte. Programs of
//! the same user *outside* a sandbox are not kept out; they could attach a debugger as well. Programs inside a sandbox
//! don't see the folder. Requests aren't trusted: each goes through [`Kernel::syscall`] as the operator, so policy
//! judges it and the ledger records it. Messages, connections and waiting times are bounded, and an invalid request
//! gets an error. A request may carry a token: its call is then that of the token's subject, as
//! [`Authenticator`](regent_kernel::Authenticator) decides.
//!
//! **Protocol.** One JSON object per line, one answer per request, in order:
//!
//! ```text
//! → {"v":1,"id":1,"hello":{}}              ← {"v":1,"id":1,"hello":{"pid":…,"session":…,"phase":…,"workspace":…,"started_at_ms":…}}
//! → {"v":1,"id":2,"token":"rgt_…","op":{"op":"agents"}}   the token is optional; `op` is a [`regent_wire::Op`]
//!                                          ← {"v":1,"id":2,"reply":{"done":{…}}}    a [`regent_wire::Reply`]
//!                                          ← {"v":1,"id":null,"error":{"code":"control.malformed","message":…}}
//! ```
//!
//! [`Kernel::syscall`]: regent_kernel::Kernel::syscall
#![forbid(unsafe_code)]

mod client;
mod listening;
mod server;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use regent_kernel::Phase;
use regent_wire::{Op, Reply};
use serde::{Deserialize, Serialize};

pub use client::{KernelProcesses, Peer, processes};
pub use listening::{Listening, bind_private};
pub use server::{Served, listen};

/// The version of what is spoken.
const VERSION: u32 = 1;
/// The longest request.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// The longest answer: the largest output that a call may have, encoded.
const REPLY_BYTES_MAX: usize = 32 << 20;

/// The request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    v: u32,
    id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    op: Option<Op>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hello: Option<Nothing>,
    /// Whom the call is made as, if not as the user at the other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<Bearer>,
}

/// A token on its way. It doesn't show itself, and is wiped when it is dropped.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct Bearer(String);

impl std::fmt::Debug for Bearer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bearer(…)")
    }
}

impl Drop for Bearer {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// What is answered. `id` is that of the request, if it could be read.
#[derive(Debug, Serialize, Deserialize)]
struct Response {
    v: u32,
    id: Option<u64>,
    #[serde(flatten)]
    body: Body,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Body {
    Hello(Hello),
    Reply(Reply),
    Error { code: String, message: String },
}

/// The identity of a kernel process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its process id.
    pub pid: u32,
    /// The word that its calls are recorded under.
    pub session: String,
    /// Its state: `running`, `degraded`, …
    pub phase: Phase,
    /// The folder that its agents work in.
    pub workspace: PathBuf,
    /// Since when it listens.
    pub started_at_ms: i64,
}

/// The control socket can't be offered or reached.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The folder can't be trusted with an operator's power.
    #[error("the folder `{}` can't hold control sockets: {why}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It can't be made, read or written.
    #[error("the control socket `{}`: {error}", path.display())]
    Socket {
        /// Which.
        path: PathBuf,
        /// What the operating system says.
        error: std::io::Error,
    },
    /// The server refused the connection before it looked at any call.
    #[error("the kernel refused the request: {message} ({code})")]
    Refused {
        /// Stable code.
        code: String,
        /// One sentence.
        message: String,
    },
    /// The server sent something that isn't an answer.
    #[error("the kernel's answer can't be understood: {0}")]
    Malformed(String),
}

impl ControlError {
    fn socket(path: &Path, error: std::io::Error) -> Self {
        Self::Socket { path: path.to_owned(), error }
    }
}
