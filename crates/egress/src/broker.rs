//! The broker: accepts connections of sandboxes, and drives the calls that they become.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use regent_kernel::{BoxFuture, Driver, ExecuteError, Executor, Permit, RawOutput, ToolSpec, tier};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::rustls::ServerConfig;

use crate::authority::Authority;
use crate::client::Client;
use crate::front::{self, Front};
use crate::reach::{Network, Reach};
use crate::request;
use crate::specs;
use crate::table::{Exchange, ExchangeKind, ExchangeTable};
use crate::tally::{ExchangeTally, failure};
use crate::tunnel::{self, TunnelRequest};

/// The path of the certificates inside a sandbox.
pub const CERTIFICATES: &str = "/run/regent/certificates.pem";

/// Variables that configure a proxy.
const PROXY_NAMES: &[&str] =
    &["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
/// Variables that configure certificates.
const CERTIFICATE_NAMES: &[&str] = &[
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "PIP_CERT",
];

/// A sandbox's only access to the network. Clones share one broker.
#[derive(Debug, Clone)]
pub struct Broker(Arc<BrokerState>);

#[derive(Debug)]
struct BrokerState {
    reach: Arc<Reach>,
    table: ExchangeTable,
    folder: PathBuf,
    authority: OnceLock<Result<Authority, String>>,
    revealed: AtomicBool,
}

/// What a program needs to use the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerParts {
    /// Variables to set.
    pub env: Vec<(String, String)>,
    /// The file to show at [`CERTIFICATES`], read-only.
    pub certificates: PathBuf,
}

impl Broker {
    /// A broker over this network. Its certificates are written to `folder`, which must be private.
    pub fn new(network: Network, folder: &Path) -> Self {
        Self(Arc::new(BrokerState {
            reach: Arc::new(Reach::new(network)),
            table: ExchangeTable::default(),
            folder: folder.to_owned(),
            authority: OnceLock::new(),
            revealed: AtomicBool::new(false),
        }))
    }

    /// A client for Regent's own requests, over the same network.
    pub fn client(&self) -> Client {
        Client::new(Arc::clone(&self.0.reach))
    }

    /// The settings for a program that sees the broker at this address.
    pub fn outfit(&self, proxy: std::net::SocketAddrV4) -> Result<BrokerParts, String> {
        let certificates = self.authority()?.file().to_owned();
        let proxy = format!("http://{proxy}");
        let set = |name: &&str, value: &str| ((*name).to_owned(), value.to_owned());
        let mut env: Vec<_> = PROXY_NAMES.iter().map(|name| set(name, &proxy)).collect();
        // No connection bypasses the proxy.
        env.extend(["NO_PROXY", "no_proxy"].iter().map(|name| set(name, "")));
        env.extend(CERTIFICATE_NAMES.iter().map(|name| set(name, CERTIFICATES)));
        Ok(BrokerParts { env, certificates })
    }

    /// The tools `net.connect` and `net.request`, which only programs call, through this broker.
    pub fn tools(&self) -> Vec<(ToolSpec, Driver)> {
        let driver = Driver::host(Arc::new(self.clone()));
        specs::specs().into_iter().map(|spec| (spec, driver.clone())).collect()
    }

    /// Serves a sandbox's connections until the future is dropped, which closes all of them.
    ///
    /// Every outgoing request is a call made with `permit`, so nothing leaves after the program's own call has ended.
    pub async fn serve<T: tier::Tier>(&self, listener: TcpListener, permit: &Permit<'_, T>) {
        let listener =
            match listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(listener)) {
                Ok(listener) => listener,
                // Without a listener, the program has no network.
                Err(_) => return,
            };
        let (_alive, gone) = watch::channel(());
        let (asks, asked) = front::asks();
        let front = Arc::new(Front {
            broker: self.clone(),
            asks,
            parent: permit.intent().seq,
            caller: permit.call().principal().clone(),
            gone,
            room: Arc::new(Semaphore::new(self.0.reach.network.connections_max)),
            inside: None,
        });
        tokio::select! {
            () = self.accept(&listener, front) => {}
            () = front::put(permit, asked) => {}
        }
    }

    /// Boxed, so that the proxy is compiled here and not in each crate that serves a sandbox.
    fn accept<'a>(&'a self, listener: &'a tokio::net::TcpListener, front: Arc<Front>) -> BoxFuture<'a, ()> {
        Box::pin(self.accepting(listener, front))
    }

    async fn accepting(&self, listener: &tokio::net::TcpListener, front: Arc<Front>) {
        let mut connections = JoinSet::new();
        let connections_max = self.0.reach.network.connections_max;
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < connections_max => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(answer(Arc::clone(&front), stream))),
                    // Most likely out of descriptors: wait for a connection to end, then retry.
                    Err(_) if !connections.is_empty() => drop(connections.join_next().await),
                    Err(_) => return,
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        }
    }

    async fn drive(&self, permit: &Permit<'_, tier::Host>) -> RawOutput {
        let Some(Exchange { kind, answer, mut gone, room: _room }) = self.0.table.take(permit.call()) else {
            let message = "no program waits for this connection; `http.fetch` makes requests";
            return RawOutput::failed("net.no_connection", message);
        };
        let tally = ExchangeTally::new(permit, &self.0.reach.network);
        let still_there = gone.clone();
        let driven = async {
            match kind {
                ExchangeKind::Tunnel(upgrade) => {
                    let wanted = TunnelRequest { upgrade, answer, gone: still_there };
                    tunnel::run(permit, self, wanted, &tally).await
                }
                ExchangeKind::Request(asked) => request::run(permit, self, *asked, answer, &tally).await,
            }
        };
        let result = tokio::select! {
            biased;
            () = permit.cancelled() => Err(failure("net.cancelled", "the call was stopped")),
            result = driven => result,
            // A program that closed its side before it ended got its response.
            _ = gone.changed() => match tally.near_has_ended() {
                true => Ok(()),
                false => Err(failure("net.gone", "the program has ended, or its broker has")),
            },
        };
        tally.output(result)
    }

    pub(crate) fn reach(&self) -> &Reach {
        &self.0.reach
    }

    pub(crate) fn table(&self) -> &ExchangeTable {
        &self.0.table
    }

    /// The TLS identity of this host, for a sandbox.
    pub(crate) fn config_for(&self, host: &str) -> Result<Arc<ServerConfig>, String> {
        self.authority()?.config_for(host).map_err(|error| error.to_string())
    }

    fn authority(&self) -> Result<&Authority, String> {
        let made = || Authority::new(&self.0.folder).map_err(|error| error.to_string());
        self.0.authority.get_or_init(made).as_ref().map_err(Clone::clone)
    }

    /// A secret left through this broker. Scrubbing may change the length of responses from now on.
    pub(crate) fn has_revealed(&self) {
        self.0.revealed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn revealed_any(&self) -> bool {
        self.0.revealed.load(Ordering::Relaxed)
    }
}

async fn answer(front: Arc<Front>, stream: TcpStream) {
    // Sends small pieces immediately. On failure, they are only delayed.
    stream.set_nodelay(true).ok();
    front::serve(front, stream).await;
}

impl Executor<tier::Host> for Broker {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move { Ok(self.drive(&permit).await) })
    }
}
