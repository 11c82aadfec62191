//! Connections to Redis: how they are made, the scripts on them, and what the server must promise.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream as _;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisError};
use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsConnector;

use crate::StateError;
use crate::remote::{
    Options, Parts, StateUrl, dial, is_here, keep_subscribed, tls, unreachable, unusable, wake,
};
use crate::state::Partition;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);
/// What a server must be set to, or it may lose commits that it has acknowledged.
const DURABLE: &[(&str, &str)] =
    &[("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
/// What a server with a limit on memory may do when it is full: refuse writes. The `volatile-…` policies evict only keys that have an
/// expiry, and no script here sets one; for our keys they are `noeviction`.
const KEEPING: &[&str] = &["noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"];

/// Checks, then writes. KEYS: values, versions, names, ages, counter, partitions by age.
const COMMIT: &str = r"
local at = 0
local function arg() at = at + 1; return ARGV[at] end
local function version(key)
  local held = redis.call('HGET', KEYS[2], key)
  return held and string.match(held, '^(%d+) ') or '-'
end
local channel, partition = arg(), arg()
for _ = 1, tonumber(arg()) do
  local key, expected = arg(), arg()
  if version(key) ~= expected then return 0 end
end
for _ = 1, tonumber(arg()) do
  local from, to, count, newest = arg(), arg(), arg(), arg()
  local keys = redis.call('ZRANGEBYLEX', KEYS[3], from, to)
  if #keys ~= tonumber(count) then return 0 end
  local largest = -1
  for _, key in ipairs(keys) do largest = math.max(largest, tonumber(version(key))) end
  if largest ~= (newest == '-' and -1 or tonumber(newest)) then return 0 end
end
local writes = tonumber(arg())
if writes == 0 then return 1 end
local number = string.format('%.0f', redis.call('INCR', KEYS[5]))
for _ = 1, writes do
  local kind, key = arg(), arg()
  if kind == 'put' then
    local till, age, value = arg(), arg(), arg()
    redis.call('HSET', KEYS[1], key, value)
    redis.call('HSET', KEYS[2], key, number .. ' ' .. till)
    redis.call('ZADD', KEYS[3], 0, key)
    if age == '-' then redis.call('ZREM', KEYS[4], key) else redis.call('ZADD', KEYS[4], age, key) end
  else
    redis.call('HDEL', KEYS[1], key)
    redis.call('HDEL', KEYS[2], key)
    redis.call('ZREM', KEYS[3], key)
    redis.call('ZREM', KEYS[4], key)
  end
end
local first = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
if first[2] then redis.call('ZADD', KEYS[6], first[2], partition) else redis.call('ZREM', KEYS[6], partition) end
redis.call('PUBLISH', channel, number)
return 1";

const READ: &str = r"
local found = {}
for at, key in ipairs(ARGV) do
  found[at] = { redis.call('HGET', KEYS[2], key), redis.call('HGET', KEYS[1], key) }
end
return found";

const SCAN: &str = r"
local found = {}
for at, key in ipairs(redis.call('ZRANGEBYLEX', KEYS[3], ARGV[1], ARGV[2])) do
  found[at] = { key, redis.call('HGET', KEYS[2], key), redis.call('HGET', KEYS[1], key) }
end
return found";

const DUE: &str = r"
local found = {}
for at, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])) do
  found[at] = { key, redis.call('HGET', KEYS[2], key) }
end
return found";

/// A server, and how to reach it.
pub(super) struct Server {
    host: String,
    port: u16,
    login: RedisConnectionInfo,
    tls: Option<TlsConnector>,
    options: Options,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("namespace", &self.options.namespace).finish_non_exhaustive()
    }
}

/// A connection with its scripts.
pub(super) struct Session {
    pub(super) connection: MultiplexedConnection,
    pub(super) commit: String,
    pub(super) read: String,
    pub(super) scan: String,
    pub(super) due: String,
    pub(super) is_lossy: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("is_lossy", &self.is_lossy).finish_non_exhaustive()
    }
}

impl Session {
    /// A call of a script. The server has them all since the connection was made.
    #[expect(clippy::unused_self, reason = "a script's digest is one of this session's")]
    pub(super) fn script(&self, digest: &str, keys: &[String]) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(digest).arg(keys.len()).arg(keys);
        command
    }
}

impl Server {
    pub(super) fn new(url: &StateUrl) -> Result<Self, StateError> {
        let Parts { url, options } = url.parts()?;
        let is_secure = url.scheme() == "rediss";
        if !is_secure && !is_here(&url) {
            return Err(unusable(
                "Redis",
                "it is on another machine, so its address must begin with `rediss://`",
            ));
        }
        let mut login = RedisConnectionInfo::default();
        let decoded = |text: &str| {
            let pair = format!("x={}", text.replace('+', "%2B"));
            url::form_urlencoded::parse(pair.as_bytes())
                .next()
                .map(|(_, value)| value.into_owned())
                .unwrap_or_default()
        };
        if !url.username().is_empty() {
            login = login.set_username(decoded(url.username()));
        }
        if let Some(password) = url.password() {
            login = login.set_password(decoded(password));
        }
        let database = url.path().trim_start_matches('/');
        if !database.is_empty() {
            let number =
                database.parse().map_err(|_| unusable("Redis", "its address names no database number"))?;
            login = login.set_db(number);
        }
        let host = url.host_str().unwrap_or("localhost").trim_matches(['[', ']']).to_owned();
        let tls = is_secure.then(|| tls(options.authorities.as_deref())).transpose()?;
        Ok(Self { host, port: url.port().unwrap_or(6379), login, tls, options })
    }

    pub(super) fn channel(&self) -> String {
        format!("{}:changed", self.options.namespace)
    }

    /// The partitions that have records with an end, by the first of them.
    pub(super) fn due(&self) -> String {
        format!("{}:due", self.options.namespace)
    }

    /// The keys of a partition, in the order in which the scripts know them.
    pub(super) fn names(&self, partition: &Partition) -> Vec<String> {
        let tag = super::tag(partition);
        let name = |part: &str| format!("{}:{{{tag}}}:{part}", self.options.namespace);
        let mut names: Vec<String> = ["value", "version", "name", "age", "count"].map(name).to_vec();
        names.push(self.due());
        names
    }

    /// The first connection. Where a server that may lose commits is accepted, it may be one.
    pub(super) async fn connect(&self) -> Result<Session, StateError> {
        self.connect_to(self.options.may_lose).await
    }

    /// A further connection, to a server that promises no less than the first one did: what it promised is recorded, and callers rely on it.
    pub(super) async fn reconnect(&self, was_lossy: bool) -> Result<Session, StateError> {
        self.connect_to(was_lossy).await
    }

    /// A connection to a server that promises what we need, with the scripts loaded.
    async fn connect_to(&self, may_lose: bool) -> Result<Session, StateError> {
        let stream = dial((&self.host, self.port), self.tls.as_ref());
        let stream = stream.await.map_err(|error| unreachable("Redis", error.kind()))?;
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER));
        let (mut connection, driver) = MultiplexedConnection::new_with_config(&self.login, stream, config)
            .await
            .map_err(|error| failed(&error))?;
        tokio::spawn(driver);
        let is_lossy = examine(&mut connection, may_lose).await?;
        let mut load = async |script: &str| {
            let loaded: Result<String, RedisError> =
                redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection).await;
            loaded.map_err(|error| failed(&error))
        };
        let (commit, read, scan, due) =
            (load(COMMIT).await?, load(READ).await?, load(SCAN).await?, load(DUE).await?);
        Ok(Session { connection, commit, read, scan, due, is_lossy })
    }

    /// Turns messages into wake-ups for as long as the state is open. Connects again when the connection is lost.
    pub(super) async fn listen(
        &self,
        changed: &watch::Sender<u64>,
        ready: oneshot::Sender<Result<(), StateError>>,
    ) {
        let follow = |subscription: PubSub| async move {
            let mut messages = subscription.into_on_message();
            while poll_fn(|context| Pin::new(&mut messages).poll_next(context)).await.is_some() {
                wake(changed);
            }
        };
        keep_subscribed(changed, ready, || self.subscribe(), follow).await;
    }

    /// A connection that receives what is published. The server has to answer in time.
    pub(super) async fn subscribe(&self) -> Result<PubSub, StateError> {
        let subscribed = tokio::time::timeout(ANSWER, async {
            let stream = dial((&self.host, self.port), self.tls.as_ref());
            let stream = stream.await.map_err(|error| unreachable("Redis", error.kind()))?;
            let mut subscription = PubSub::new(&self.login, stream).await.map_err(|error| failed(&error))?;
            subscription.subscribe(self.channel()).await.map_err(|error| failed(&error))?;
            Ok(subscription)
        });
        subscribed.await.unwrap_or_else(|_| Err(unreachable("Redis", "it doesn't answer")))
    }
}

/// Whether the server may lose commits; an error if it may, and isn't allowed to.
async fn examine(connection: &mut MultiplexedConnection, may_lose: bool) -> Result<bool, StateError> {
    let info: String =
        redis::cmd("INFO").arg("cluster").query_async(connection).await.map_err(|error| failed(&error))?;
    if info.contains("cluster_enabled:1") {
        return Err(unusable(
            "Redis",
            "a cluster can't change records of two slots at once; use a single server",
        ));
    }
    let names = DURABLE.iter().map(|(name, _)| *name).chain(["maxmemory", "maxmemory-policy"]);
    let mut settings = BTreeMap::new();
    for name in names {
        let asked: Result<Vec<String>, RedisError> =
            redis::cmd("CONFIG").arg("GET").arg(name).query_async(connection).await;
        let found = match asked {
            Ok(found) => found,
            Err(error) if is_over(&error) => return Err(failed(&error)),
            // A server that doesn't tell can't be relied upon.
            Err(_refused) => Vec::new(),
        };
        settings.extend(found.into_iter().nth(1).map(|value| (name, value)));
    }
    let wrong = lossy_settings(&settings);
    if !wrong.is_empty() && !may_lose {
        return Err(StateError::Lossy(wrong.join(", ")));
    }
    Ok(!wrong.is_empty())
}

/// The settings that a server lacks to keep all that it has acknowledged.
pub(super) fn lossy_settings(settings: &BTreeMap<&str, String>) -> Vec<String> {
    let found = |name: &str| settings.get(name).map(String::as_str);
    let mut wrong = Vec::new();
    for (name, expected) in DURABLE {
        if found(name) != Some(expected) {
            wrong.push(format!("`{name} {expected}`"));
        }
    }
    let keeps = found("maxmemory") == Some("0")
        || found("maxmemory-policy").is_some_and(|policy| KEEPING.contains(&policy));
    if !keeps {
        wrong.push("`maxmemory-policy noeviction`".to_owned());
    }
    wrong
}

/// Whether a connection can't be used any more, or its scripts are gone.
pub(super) fn is_over(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_connection_dropped()
        || error.is_timeout()
        || error.code() == Some("NOSCRIPT")
}

/// What an error means. Nothing of the address is repeated.
pub(super) fn failed(error: &RedisError) -> StateError {
    match error.code() {
        Some("OOM" | "MISCONF") => StateError::Full,
        Some("BUSY" | "LOADING" | "NOSCRIPT") => StateError::Busy,
        Some("NOAUTH" | "WRONGPASS") => unusable("Redis", "it refused the user or the password"),
        Some(code) => unusable("Redis", format_args!("it answered `{code}`")),
        None if error.is_timeout() => unreachable("Redis", "it doesn't answer"),
        None if error.is_io_error() || error.is_connection_dropped() => {
            unreachable("Redis", "the connection was lost")
        }
        None => unusable("Redis", format_args!("{:?}", error.kind())),
    }
}
