//! A descriptor sent from one side of the sandbox's wall to the other, over a socket pair.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::error::SandboxError;
use crate::plan::above_stdio;

/// The two ends that a descriptor travels between: ours, the sandbox's.
pub(crate) fn channel() -> Result<(UnixStream, OwnedFd), SandboxError> {
    let (ours, theirs) =
        UnixStream::pair().map_err(|cause| SandboxError::Host { doing: "making a socket pair", cause })?;
    Ok((ours, above_stdio(theirs.into())?))
}

/// Sends a descriptor. Neither allocates nor locks: it runs between `clone` and `execve`.
pub(crate) fn send(channel: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::NOBUFS);
    }
    rustix::net::sendmsg(channel, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes a descriptor; `None` when the other side is gone.
pub(crate) fn receive(channel: BorrowedFd<'_>, flags: RecvFlags) -> Result<Option<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC | flags;
    rustix::net::recvmsg(channel, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    Ok(ancillary.drain().find_map(|message| {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message { descriptors.next() } else { None }
    }))
}
