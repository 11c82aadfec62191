//! Connections that are kept for the next request to the same origin: few, and not for long.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use tokio::time::Instant;
use url::{Origin, Url};

use crate::client::{DrivenTask, handshake};
use crate::reach::{Reach, ReachError};

/// Idle connections of one client.
const IDLE_MAX: usize = 16;
/// How long one waits for a request. Servers close theirs after a minute or so.
const IDLE_MS_MAX: u64 = 30_000;
/// How old one may be: then the name is looked up again, and the address checked.
const AGE_MS_MAX: u64 = 300_000;

/// A connection on which requests follow each other.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<Full<Bytes>>,
    /// Whether it leads to a private network.
    pub(crate) private: bool,
    opened: Instant,
    _driven: DrivenTask,
}

impl Connection {
    /// A new one, to a checked address.
    pub(crate) async fn open(reach: &Reach, url: &Url) -> Result<Self, ReachError> {
        let opened = reach.open(url).await?;
        let private = opened.private;
        let (sender, driven) = handshake(opened.stream).await?;
        Ok(Self { sender, private, opened: Instant::now(), _driven: driven })
    }
}

/// Idle connections by origin, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Vec<(Origin, Instant, Connection)>>);

impl Pool {
    /// One that can be used, if there is one.
    pub(crate) fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, since, connection)| {
            let is_young = connection.opened.elapsed() < Duration::from_millis(AGE_MS_MAX);
            is_young && since.elapsed() < Duration::from_millis(IDLE_MS_MAX) && !connection.sender.is_closed()
        });
        let at =
            idle.iter().rposition(|(own, _, connection)| own == origin && connection.sender.is_ready())?;
        Some(idle.remove(at).2)
    }

    /// Keeps one whose last response was read to its end.
    pub(crate) fn keep(&self, origin: Origin, connection: Connection) {
        if connection.sender.is_closed() {
            return;
        }
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= IDLE_MAX {
            idle.remove(0);
        }
        idle.push((origin, Instant::now(), connection));
    }
}
