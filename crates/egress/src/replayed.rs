//! A stream that first replays bytes that were already read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Yields the replayed bytes, then the rest of the stream.
#[derive(Debug)]
pub(crate) struct Replayed<S> {
    head: Vec<u8>,
    given: usize,
    rest: S,
}

impl<S> Replayed<S> {
    pub(crate) fn new(head: Vec<u8>, rest: S) -> Self {
        Self { head, given: 0, rest }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Replayed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(left) = this.head.get(this.given..).filter(|left| !left.is_empty()) {
            let (now, _) = left.split_at(left.len().min(buffer.remaining()));
            buffer.put_slice(now);
            this.given = this.given.saturating_add(now.len());
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.rest).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Replayed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn nothing_is_lost_or_doubled() {
        let (mut far, near) = tokio::io::duplex(4);
        let writing = tokio::spawn(async move {
            far.write_all(b" and the rest").await.unwrap();
        });
        let mut text = String::new();
        Replayed::new(b"the head".to_vec(), near).read_to_string(&mut text).await.unwrap();
        writing.await.unwrap();
        assert_eq!(text, "the head and the rest");
    }
}
