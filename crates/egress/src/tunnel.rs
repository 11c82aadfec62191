//! The driver of `net.connect`: a program's TLS tunnel, opaque or inspected as policy says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hyper::Response;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use regent_kernel::{Permit, ToolFailure, endpoint, tier};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use url::{Host, Url};

use crate::body::Piped;
use crate::broker::Broker;
use crate::front::{self, Front};
use crate::hello::{Greeting, HELLO_BYTES_MAX, greeting};
use crate::outgoing;
use crate::replayed::Replayed;
use crate::table::Gone;
use crate::tally::{ExchangeTally, failure, unreached};

/// Maximum concurrent requests in one inspected tunnel. They are sequential, but one may begin while the previous one is being recorded.
const REQUESTS_MAX: usize = 8;
const CHUNK_BYTES: usize = 32 << 10;

/// A requested tunnel.
#[derive(Debug)]
pub(crate) struct TunnelRequest {
    pub(crate) upgrade: OnUpgrade,
    pub(crate) answer: oneshot::Sender<Response<Piped>>,
    pub(crate) gone: Gone,
}

/// Performs the call.
pub(crate) async fn run(
    permit: &Permit<'_, tier::Host>,
    broker: &Broker,
    wanted: TunnelRequest,
    tally: &ExchangeTally<'_>,
) -> Result<(), ToolFailure> {
    let text = permit.args().get("url").and_then(Value::as_str).unwrap_or_default();
    let url = endpoint::parse(text).map_err(|why| failure("net.url", why))?;
    outgoing::check(permit, "host", url.as_str().as_bytes())?;
    if permit.args().get("inspect") == Some(&Value::Bool(true)) {
        return opened(permit, broker, wanted, &url, tally).await;
    }
    // Connects before it answers, so that the program receives the reason of a failure.
    let far = broker.reach().open_tunnel(&url).await.map_err(|error| unreached(&error))?;
    tally.connected(far.address, far.private);
    let mut near = begin(broker, wanted.upgrade, wanted.answer).await?;
    let greeting = greeted(broker, &mut near, &url, tally).await?;
    tally.leave(greeting.len() as u64).await?;
    let mut stream = far.stream;
    stream.write_all(&greeting).await.map_err(broken)?;
    carry(broker, near, stream, tally).await
}

async fn begin(
    broker: &Broker,
    upgrade: OnUpgrade,
    answer: oneshot::Sender<Response<Piped>>,
) -> Result<TokioIo<Upgraded>, ToolFailure> {
    let gone = || failure("net.gone", "the program no longer waits for it");
    answer.send(Response::new(Piped::Whole(None))).map_err(|_| gone())?;
    let stream = broker.reach().in_time(upgrade).await.map_err(|error| unreached(&error))?;
    stream.map(TokioIo::new).map_err(|_| gone())
}

/// Reads the ClientHello, and cuts the tunnel unless it names the judged host.
async fn greeted(
    broker: &Broker,
    near: &mut TokioIo<Upgraded>,
    url: &Url,
    tally: &ExchangeTally<'_>,
) -> Result<Vec<u8>, ToolFailure> {
    let mut bytes = Vec::new();
    let refused = |why: &str| failure("net.tls_refused", format!("the tunnel was cut: {why}"));
    loop {
        match greeting(&bytes) {
            Greeting::More => {}
            Greeting::Refused(why) => return Err(refused(why)),
            Greeting::Hello(name) => {
                if let Some(name) = &name {
                    tally.record("sni", name.as_str());
                }
                return if is_for(url, name.as_deref()) {
                    Ok(bytes)
                } else {
                    Err(refused("the server name in its greeting is not the requested host"))
                };
            }
        }
        let mut chunk = [0; 4096];
        let read = broker.reach().in_time(near.read(&mut chunk)).await.map_err(|error| unreached(&error))?;
        match read {
            Ok(0) | Err(_) => return Err(refused("it ended within its greeting")),
            Ok(count) => bytes.extend_from_slice(chunk.get(..count).unwrap_or_default()),
        }
        if bytes.len() > HELLO_BYTES_MAX.saturating_add(chunk.len()) {
            return Err(refused("its greeting is too long"));
        }
    }
}

/// A server name must match the host; an IP address has no server name.
fn is_for(url: &Url, name: Option<&str>) -> bool {
    match (url.host(), name) {
        (Some(Host::Domain(_)), Some(name)) => {
            name.strip_suffix('.').unwrap_or(name) == endpoint::host_of(url)
        }
        (Some(Host::Ipv4(_) | Host::Ipv6(_)), None) => true,
        (Some(Host::Domain(_)), None) | (Some(Host::Ipv4(_) | Host::Ipv6(_)), Some(_)) | (None, _) => false,
    }
}

/// Impersonates the host towards the program, and has each request in the tunnel judged.
async fn opened(
    permit: &Permit<'_, tier::Host>,
    broker: &Broker,
    wanted: TunnelRequest,
    url: &Url,
    tally: &ExchangeTally<'_>,
) -> Result<(), ToolFailure> {
    tally.record("inspected", true);
    let host = endpoint::host_of(url);
    let config = broker.config_for(&host).map_err(|why| failure("net.inspect", why))?;
    let mut near = begin(broker, wanted.upgrade, wanted.answer).await?;
    let greeting = greeted(broker, &mut near, url, tally).await?;
    let stream = TlsAcceptor::from(config).accept(Replayed::new(greeting, near));
    let stream =
        broker.reach().in_time(stream).await.map_err(|error| unreached(&error))?.map_err(|error| {
            failure("net.inspect", format!("the program doesn't trust the proxy's certificate: {error}"))
        })?;
    let (asks, asked) = front::asks();
    let front = Arc::new(Front {
        broker: broker.clone(),
        asks,
        parent: permit.intent().seq,
        caller: permit.call().principal().clone(),
        gone: wanted.gone,
        room: Arc::new(Semaphore::new(REQUESTS_MAX)),
        inside: Some(url.clone()),
    });
    tokio::select! {
        biased;
        () = front::serve(front, stream) => Ok(()),
        () = front::put(permit, asked) => Ok(()),
    }
}

/// Copies bytes in both directions until both sides have ended, one fails, or both are idle for too long.
async fn carry(
    broker: &Broker,
    near: impl AsyncRead + AsyncWrite,
    far: impl AsyncRead + AsyncWrite,
    tally: &ExchangeTally<'_>,
) -> Result<(), ToolFailure> {
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    let alive = LastActivity::new(Duration::from_millis(broker.reach().network.quiet_ms_max));
    let is_half_over = AtomicBool::new(false);
    let out = async {
        one_way(near_read, far_write, (&alive, &is_half_over), (tally, Direction::Out)).await?;
        tally.near_ends();
        Ok(())
    };
    let back = one_way(far_read, near_write, (&alive, &is_half_over), (tally, Direction::Back));
    tokio::try_join!(out, back).map(|_| ())
}

/// The direction of bytes.
#[derive(Debug, Clone, Copy)]
enum Direction {
    /// From this machine.
    Out,
    /// To this machine.
    Back,
}

/// When any byte last moved, in either direction.
struct LastActivity {
    since: Instant,
    last_ms: AtomicU64,
    idle: Duration,
}

impl LastActivity {
    fn new(idle: Duration) -> Self {
        Self { since: Instant::now(), last_ms: AtomicU64::new(0), idle }
    }

    fn moved(&self) {
        let now_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now_ms, Ordering::Relaxed);
    }

    /// When the tunnel times out if nothing moves.
    fn until(&self) -> Instant {
        self.since + Duration::from_millis(self.last_ms.load(Ordering::Relaxed)) + self.idle
    }

    /// Waits for one direction, until the tunnel times out.
    async fn wait<T>(&self, next: impl Future<Output = std::io::Result<T>>) -> Result<T, ToolFailure> {
        let mut next = std::pin::pin!(next);
        loop {
            let until = self.until();
            match tokio::time::timeout_at(until, &mut next).await {
                Ok(done) => return done.map_err(broken),
                Err(_) if self.until() > until => {}
                Err(_) => {
                    return Err(failure("net.timeout", "the tunnel was idle for too long"));
                }
            }
        }
    }
}

async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    (alive, is_half_over): (&LastActivity, &AtomicBool),
    (tally, way): (&ExchangeTally<'_>, Direction),
) -> Result<(), ToolFailure> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = alive.wait(or_over(from.read(&mut chunk), is_half_over, 0)).await?;
        alive.moved();
        if read == 0 {
            is_half_over.store(true, Ordering::Relaxed);
            // The other side may have closed already.
            to.shutdown().await.ok();
            return Ok(());
        }
        match way {
            Direction::Out => tally.leave(read as u64).await?,
            Direction::Back => tally.come(read as u64)?,
        }
        alive.wait(or_over(to.write_all(chunk.get(..read).unwrap_or_default()), is_half_over, ())).await?;
        alive.moved();
    }
}

/// Many servers reset the connection after one side has ended. That is not an error.
async fn or_over<T>(
    doing: impl Future<Output = std::io::Result<T>>,
    is_half_over: &AtomicBool,
    over: T,
) -> std::io::Result<T> {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
    match doing.await {
        Err(error)
            if matches!(error.kind(), BrokenPipe | ConnectionReset)
                && is_half_over.load(Ordering::Relaxed) =>
        {
            Ok(over)
        }
        done => done,
    }
}

fn broken(error: std::io::Error) -> ToolFailure {
    failure("net.broken", format!("the tunnel failed: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[tokio::test]
    async fn a_reset_breaks_a_tunnel_unless_one_side_has_ended() {
        let is_half_over = AtomicBool::new(false);
        let reset = |kind: ErrorKind| or_over(std::future::ready(Err(Error::from(kind))), &is_half_over, 0);
        assert!(reset(ErrorKind::ConnectionReset).await.is_err());
        is_half_over.store(true, Ordering::Relaxed);
        assert_eq!(reset(ErrorKind::ConnectionReset).await.unwrap(), 0);
        assert_eq!(reset(ErrorKind::BrokenPipe).await.unwrap(), 0);
        assert!(reset(ErrorKind::TimedOut).await.is_err());
    }
}
