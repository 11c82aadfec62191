//! What the backends on servers share: the address with its secrets, TLS, and how a connection is made.

mod connect;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod shared;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

#[cfg(any(feature = "redis", feature = "dynamodb"))]
use url::Host;
use url::Url;
use zeroize::Zeroizing;

use crate::StateError;
use crate::state::{CHANGE_WRITES_MAX, Change, Check, Committed, Partition, State, Version, Write};

#[cfg(all(test, any(feature = "postgres", feature = "redis")))]
pub(crate) use connect::ReconnectPause;
#[cfg(any(feature = "redis", feature = "dynamodb"))]
pub(crate) use connect::dial;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) use connect::keep_subscribed;
pub(crate) use connect::tls;
#[cfg(feature = "postgres")]
pub(crate) use connect::{KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES};
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) use shared::SharedConnection;

/// Where state on a server is, with the password if there is one. Neither appears in output: only the scheme appears.
#[derive(Clone)]
pub struct StateUrl {
    text: Zeroizing<String>,
    kind: ServerKind,
    may_lose: bool,
}

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerKind {
    Postgres,
    Redis,
    Dynamodb,
}

impl StateUrl {
    /// Reads an address: `postgres://`, `redis://`, `rediss://` or `dynamodb://`.
    pub fn parse(text: &str) -> Result<Self, StateError> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let kind = match scheme.as_deref() {
            Some("postgres" | "postgresql") => ServerKind::Postgres,
            Some("redis" | "rediss") => ServerKind::Redis,
            Some("dynamodb") => ServerKind::Dynamodb,
            _ => {
                return Err(StateError::Unusable(
                    "the address of the state must begin with `postgres://`, `redis://`, `rediss://` or `dynamodb://`"
                        .to_owned(),
                ));
            }
        };
        Ok(Self { text: Zeroizing::new(text.to_owned()), kind, may_lose: false })
    }

    /// Also accepts a server that may lose acknowledged commits. [`State::is_lossy`] says whether it is one.
    #[must_use]
    pub fn accept_loss(self) -> Self {
        Self { may_lose: true, ..self }
    }

    /// Opens the state. It belongs to the current runtime, and ends with it.
    pub async fn open(&self) -> Result<Arc<dyn State>, StateError> {
        match self.kind {
            #[cfg(feature = "postgres")]
            ServerKind::Postgres => Ok(Arc::new(crate::postgres::PostgresState::open(self).await?)),
            #[cfg(feature = "redis")]
            ServerKind::Redis => Ok(Arc::new(crate::redis::RedisState::open(self).await?)),
            #[cfg(feature = "dynamodb")]
            ServerKind::Dynamodb => Ok(Arc::new(crate::dynamodb::DynamodbState::open(self).await?)),
            #[cfg(not(all(feature = "postgres", feature = "redis", feature = "dynamodb")))]
            missing => Err(StateError::NotBuilt(missing.name())),
        }
    }

    pub(crate) fn parts(&self) -> Result<Parts, StateError> {
        let unusable = |why: &str| StateError::Unusable(format!("the address of the state is wrong: {why}"));
        // Errors of the parser don't quote what they were given.
        let mut url = Url::parse(&self.text).map_err(|error| unusable(&error.to_string()))?;
        let mut options =
            Options { namespace: "regent".to_owned(), may_lose: self.may_lose, ..Options::default() };
        let mut others = Vec::new();
        for (name, value) in url.query_pairs() {
            match &*name {
                "namespace" => options.namespace = value.into_owned(),
                "sslrootcert" => options.authorities = Some(PathBuf::from(&*value)),
                "endpoint" => options.endpoint = Some(value.into_owned()),
                _ => others.push((name.into_owned(), value.into_owned())),
            }
        }
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if options.namespace.is_empty()
            || options.namespace.len() > 32
            || !options.namespace.bytes().all(is_plain)
        {
            return Err(unusable("`namespace` must be 1 to 32 of a-z, 0-9 and `_`"));
        }
        url.set_query(None);
        if !others.is_empty() {
            url.query_pairs_mut().extend_pairs(others);
        }
        Ok(Parts { url, options })
    }
}

impl ServerKind {
    #[cfg_attr(
        all(feature = "postgres", feature = "redis", feature = "dynamodb"),
        expect(dead_code, reason = "only a build that lacks a backend names it")
    )]
    fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::Dynamodb => "dynamodb",
        }
    }
}

impl std::fmt::Debug for StateUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StateUrl({:?})", self.kind)
    }
}

/// An address, taken apart.
pub(crate) struct Parts {
    /// Without the options that are ours.
    pub(crate) url: Url,
    pub(crate) options: Options,
}

/// What an address says to us and not to the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// Keeps the states of several installations on one server apart.
    pub(crate) namespace: String,
    /// A file with the certificates that sign the server's; none for the usual ones.
    pub(crate) authorities: Option<PathBuf>,
    /// Whether a server that may lose acknowledged commits is accepted.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only Redis loses commits by its settings")
    )]
    pub(crate) may_lose: bool,
    /// Another address of the service.
    #[cfg_attr(not(feature = "dynamodb"), expect(dead_code, reason = "only DynamoDB has a service address"))]
    pub(crate) endpoint: Option<String>,
}

/// Whether nothing leaves the machine on the way to the host of an address. The client of Postgres takes hosts from elsewhere too.
#[cfg(any(feature = "redis", feature = "dynamodb"))]
pub(crate) fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        // Schemes that the parser doesn't know keep an address as a name.
        Some(Host::Domain(name)) => is_here_by_name(name),
        None => true,
    }
}

/// The same for the name or the number of a host.
pub(crate) fn is_here_by_name(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Wakes all who wait for a change.
pub(crate) fn wake(changed: &tokio::sync::watch::Sender<u64>) {
    changed.send_modify(|count| *count = count.wrapping_add(1));
}

/// The server can't be reached now.
pub(crate) fn unreachable(server: &str, why: impl std::fmt::Display) -> StateError {
    StateError::Unreachable(format!("the {server} server of the shared state can't be reached: {why}"))
}

/// The server, or its address, isn't what we need.
pub(crate) fn unusable(server: &str, why: impl std::fmt::Display) -> StateError {
    StateError::Unusable(format!("the {server} server of the shared state can't be used: {why}"))
}

/// A name that is larger than all keys with this prefix and smaller than all keys after them: no text has the byte 0xff.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) fn upper_bound(prefix: &str) -> Vec<u8> {
    [prefix.as_bytes(), &[0xff]].concat()
}

/// Removes records that were due when they were looked for, unless they have been written since. Says how many.
pub(crate) async fn remove_due(
    state: &dyn State,
    mut due: Vec<(Partition, String, Version)>,
) -> Result<usize, StateError> {
    due.sort();
    let mut gone = 0_usize;
    for group in due.chunk_by(|one, two| one.0 == two.0).flat_map(|group| group.chunks(CHANGE_WRITES_MAX)) {
        let Some((partition, ..)) = group.first() else { continue };
        if remove_all(state, partition, group).await? == Committed::Done {
            gone = gone.saturating_add(group.len());
            continue;
        }
        // One of them was renewed. The others may still go.
        for one in group {
            if remove_all(state, partition, std::slice::from_ref(one)).await? == Committed::Done {
                gone = gone.saturating_add(1);
            }
        }
    }
    Ok(gone)
}

async fn remove_all(
    state: &dyn State,
    partition: &Partition,
    records: &[(Partition, String, Version)],
) -> Result<Committed, StateError> {
    let checks =
        records.iter().map(|(_, key, version)| Check::Key { key: key.clone(), version: Some(*version) });
    let writes = records.iter().map(|(_, key, _)| Write::Remove { key: key.clone() });
    state.commit(partition, Change { checks: checks.collect(), writes: writes.collect() }).await
}
