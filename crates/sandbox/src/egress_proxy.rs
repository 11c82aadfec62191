//! The egress proxy of a sandbox that gets one: a listening socket on the sandbox's loopback, whose other side is ours.
//!
//! The socket is opened inside, in the sandbox's own network namespace, before the program starts, and handed to us over a
//! socket pair. We accept on it from outside. So there is nothing in the sandbox to attack or to replace: no forwarder, no
//! socket file, no second interface; and when nobody accepts any more, nothing leaves.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use regent_kernel::{BoxFuture, Permit, tier};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use tokio::io::Interest;
use tokio::sync::mpsc;

use crate::handover;
use crate::spec::Bind;
use crate::sys;

/// Where the sandbox finds its egress proxy.
pub const EGRESS_PROXY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3128);

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// What is at the other end of a sandbox's egress proxy.
pub trait EgressProxy: std::fmt::Debug + Send + Sync {
    /// What the program needs to find it, or why there is none now.
    fn outfit(&self) -> Result<Outfit, String>;

    /// Accepts and answers until it is dropped, which is when the program has ended. Everything that leaves is a call made
    /// with the program's own permit.
    fn serve<'s>(&'s self, listener: TcpListener, permit: &'s Permit<'s, tier::Process>)
    -> BoxFuture<'s, ()>;
}

/// What a program gets besides the listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outfit {
    /// Further variables.
    pub env: Vec<(OsString, OsString)>,
    /// Further files, read-only.
    pub binds: Vec<Bind>,
}

/// In the sandbox, before it is closed: listens on loopback, and hands the listener out. Neither allocates nor locks.
pub(crate) fn open(channel: BorrowedFd<'_>) -> Result<(), Errno> {
    sys::loopback_up()?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&listener, &EGRESS_PROXY)?;
    rustix::net::listen(&listener, BACKLOG)?;
    handover::send(channel, listener.as_fd())
}

/// Waits for the listener and passes it on. Ends without one when the sandbox does.
pub(crate) async fn hand_over(channel: UnixStream, to: mpsc::Sender<TcpListener>) {
    let Ok(channel) = channel.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(channel))
    else {
        return;
    };
    while channel.readable().await.is_ok() {
        match channel
            .try_io(Interest::READABLE, || Ok(handover::receive(channel.as_fd(), RecvFlags::DONTWAIT)?))
        {
            Ok(Some(listener)) => {
                // If nobody waits for it any more it is closed, and the sandbox has no network.
                to.send(TcpListener::from(listener)).await.ok();
                return;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Ok(None) | Err(_) => return,
        }
    }
}
