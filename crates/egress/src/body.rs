//! An HTTP body that a driver produces piece by piece.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::mpsc;

/// Maximum number of buffered pieces.
const PIECES_MAX: usize = 4;

/// The exchange was aborted, so the body is incomplete.
#[derive(Debug, thiserror::Error)]
#[error("the connection was cut")]
pub(crate) struct Cut;

/// A complete or a streamed body.
#[derive(Debug)]
pub(crate) enum Piped {
    Whole(Option<Bytes>),
    Coming { pieces: mpsc::Receiver<Bytes>, ended: BodyEnd, bytes: Option<u64> },
}

/// Whether the end of the pieces is the end of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    No,
    Yes,
}

/// The sending side of a body. Without [`finish`](Pieces::finish), the body is cut.
#[derive(Debug)]
pub(crate) struct Pieces(mpsc::Sender<Bytes>);

impl Piped {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }

    /// A streamed body, with its size if known.
    pub(crate) fn coming(bytes: Option<u64>) -> (Pieces, Self) {
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        (Pieces(sender), Self::Coming { pieces, ended: BodyEnd::No, bytes })
    }
}

impl Pieces {
    /// Sends a piece; `Err` if the receiver is gone.
    pub(crate) async fn send(&self, piece: impl Into<Bytes>) -> Result<(), Cut> {
        let piece = piece.into();
        // An empty piece would end the body, so it is skipped.
        if piece.is_empty() {
            return Ok(());
        }
        self.0.send(piece).await.map_err(|_| Cut)
    }

    /// Ends the body.
    pub(crate) async fn finish(self) {
        // A receiver that is gone doesn't need the end.
        self.0.send(Bytes::new()).await.ok();
    }
}

impl Body for Piped {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(
                bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))),
            ),
            Self::Coming { ended: BodyEnd::Yes, .. } => Poll::Ready(None),
            Self::Coming { pieces, ended, .. } => pieces.poll_recv(context).map(|piece| match piece {
                Some(piece) if piece.is_empty() => {
                    *ended = BodyEnd::Yes;
                    None
                }
                Some(piece) => Some(Ok(Frame::data(piece))),
                None => {
                    *ended = BodyEnd::Yes;
                    Some(Err(Cut))
                }
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Coming { ended, bytes, .. } => *ended == BodyEnd::Yes || *bytes == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Coming { bytes: Some(bytes), .. } => SizeHint::with_exact(*bytes),
            Self::Coming { bytes: None, .. } => SizeHint::default(),
        }
    }
}
