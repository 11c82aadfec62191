//! Connections to Postgres: how they are made, what is prepared on them, and what their errors mean.

use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Statement};

use super::tls::MakeTls;
use crate::StateError;
use crate::remote::{
    KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES, Options, Parts, StateUrl, is_here_by_name,
    keep_subscribed, tls, unreachable, unusable, wake,
};

/// The newest tables that we understand.
const SCHEMA: i64 = 1;
/// How long a server may take to accept a connection, and how long one may be silent.
const CONNECT: Duration = Duration::from_secs(5);
/// How long it may take to subscribe.
const SUBSCRIBE: Duration = Duration::from_secs(10);
/// How long a server may take to answer: longer than a statement may run there.
const ANSWER: Duration = Duration::from_secs(40);

/// A server, and how to reach it.
pub(super) struct Server {
    pub(super) config: Config,
    tls: MakeTls,
    options: Options,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("namespace", &self.options.namespace).finish_non_exhaustive()
    }
}

/// A connection with its statements.
pub(super) struct Session {
    pub(super) client: Client,
    namespace: String,
    pub(super) read: Statement,
    pub(super) scan: Statement,
    pub(super) due: Statement,
    pub(super) lock: Statement,
    pub(super) held: Statement,
    pub(super) prefix: Statement,
    pub(super) put: Statement,
    pub(super) remove: Statement,
    pub(super) notify: Statement,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Server {
    pub(super) fn new(url: &StateUrl) -> Result<Self, StateError> {
        let Parts { url, options } = url.parts()?;
        let has_mode = url.query_pairs().any(|(name, _)| name == "sslmode");
        // The client's errors about an address can quote it.
        let mut config: Config =
            url.as_str().parse().map_err(|_| unusable("Postgres", "its address is not understood"))?;
        if !has_mode && !stays_here(&config) {
            config.ssl_mode(SslMode::Require);
        }
        config.connect_timeout(CONNECT).tcp_user_timeout(CONNECT * 4).application_name("regent");
        config.keepalives(true).keepalives_idle(KEEPALIVE_IDLE);
        config.keepalives_interval(KEEPALIVE_INTERVAL).keepalives_retries(KEEPALIVE_PROBES);
        Ok(Self { config, tls: MakeTls(tls(options.authorities.as_deref())?), options })
    }

    pub(super) fn channel(&self) -> String {
        format!("{}_state", self.options.namespace)
    }

    /// A connection whose tables are there.
    pub(super) async fn connect(&self) -> Result<Session, StateError> {
        in_time(async {
            let (client, connection) =
                self.config.connect(self.tls.clone()).await.map_err(|error| failed(&error))?;
            tokio::spawn(connection);
            make_tables(&client, &self.options.namespace).await?;
            Session::prepare(client, &self.options.namespace).await.map_err(|error| failed(&error))
        })
        .await
    }

    /// Turns notifications into wake-ups for as long as the state is open. Connects again when the connection is lost.
    pub(super) async fn listen(
        &self,
        changed: &watch::Sender<u64>,
        ready: oneshot::Sender<Result<(), StateError>>,
    ) {
        let follow = |(client, mut driver): (Client, JoinSet<()>)| async move {
            drop(driver.join_next().await);
            drop(client);
        };
        keep_subscribed(changed, ready, || self.subscribe(changed), follow).await;
    }

    /// A connection that listens, and the task that reads from it. The task ends when the connection does, or when it is dropped. The
    /// server has to answer in time.
    pub(super) async fn subscribe(
        &self,
        changed: &watch::Sender<u64>,
    ) -> Result<(Client, JoinSet<()>), StateError> {
        let subscribed = tokio::time::timeout(SUBSCRIBE, async {
            let (client, mut connection) =
                self.config.connect(self.tls.clone()).await.map_err(|error| failed(&error))?;
            let (changed, mut driver) = (changed.clone(), JoinSet::new());
            driver.spawn(async move {
                while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                    if matches!(message, AsyncMessage::Notification(_)) {
                        wake(&changed);
                    }
                }
            });
            let listen = format!("LISTEN {}", self.channel());
            client.batch_execute(&listen).await.map_err(|error| failed(&error))?;
            Ok((client, driver))
        });
        subscribed.await.unwrap_or_else(|_| Err(unreachable("Postgres", "it doesn't answer")))
    }
}

/// The answer of a server, which must come in time: one that is stopped keeps its connections, and answers nothing.
pub(super) async fn in_time<T>(asked: impl Future<Output = Result<T, StateError>>) -> Result<T, StateError> {
    let answer = tokio::time::timeout(ANSWER, asked).await;
    answer.unwrap_or_else(|_| Err(unreachable("Postgres", "it doesn't answer")))
}

/// Whether nothing leaves the machine on the way to any server that may be connected to. The client takes them from the address and
/// from its parameters `host` and `hostaddr`, so only it knows which they are.
fn stays_here(config: &Config) -> bool {
    let is_here = |host: &Host| match host {
        Host::Tcp(name) => is_here_by_name(name),
        Host::Unix(_) => true,
    };
    config.get_hosts().iter().all(is_here) && config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback)
}

/// Makes the tables where there are none. Refuses those of a newer program, and a server that may lose commits.
async fn make_tables(client: &Client, namespace: &str) -> Result<(), StateError> {
    let said = |row: &tokio_postgres::Row| row.try_get::<_, String>(0).map_err(|error| failed(&error));
    let fsync = client.query_one("SHOW fsync", &[]).await.map_err(|error| failed(&error))?;
    if said(&fsync)? != "on" {
        return Err(unusable("Postgres", "it runs with `fsync = off`, which loses commits; set it to `on`"));
    }
    let synchronous =
        client.query_one("SHOW synchronous_commit", &[]).await.map_err(|error| failed(&error))?;
    let durable = if said(&synchronous)? == "off" { "SET synchronous_commit = on;" } else { "" };
    let known = client
        .query_opt("SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'meta'", &[&namespace])
        .await
        .map_err(|error| failed(&error))?;
    // Two that make them at once would fail one of them, so one waits for the other.
    let tables = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtext('regent.{namespace}'));
         CREATE SCHEMA IF NOT EXISTS {namespace};
         CREATE TABLE IF NOT EXISTS {namespace}.partition (name BYTEA PRIMARY KEY, version BIGINT NOT NULL);
         CREATE TABLE IF NOT EXISTS {namespace}.record (partition BYTEA NOT NULL, key BYTEA NOT NULL, value BYTEA NOT NULL,
             version BIGINT NOT NULL, keep_until_ms BIGINT NOT NULL, PRIMARY KEY (partition, key));
         CREATE INDEX IF NOT EXISTS record_by_age ON {namespace}.record (keep_until_ms)
             WHERE keep_until_ms < 9223372036854775807;
         CREATE TABLE IF NOT EXISTS {namespace}.meta (one BOOLEAN PRIMARY KEY CHECK (one), version BIGINT NOT NULL);
         INSERT INTO {namespace}.meta VALUES (true, {SCHEMA}) ON CONFLICT DO NOTHING;
         COMMIT;"
    );
    if known.is_none() {
        client.batch_execute(&tables).await.map_err(|error| failed(&error))?;
    }
    // A lock or a statement that hangs must not hold up all callers.
    let limits =
        format!("{durable} SET lock_timeout = '5s'; SET statement_timeout = '30s'; SET TIME ZONE 'UTC'");
    client.batch_execute(&limits).await.map_err(|error| failed(&error))?;
    let version = format!("SELECT version FROM {namespace}.meta");
    let row = client.query_one(&version, &[]).await.map_err(|error| failed(&error))?;
    let found: i64 = row.try_get(0).map_err(|error| failed(&error))?;
    if found > SCHEMA {
        return Err(StateError::Newer { found, known: SCHEMA });
    }
    Ok(())
}

impl Session {
    async fn prepare(client: Client, namespace: &str) -> Result<Self, tokio_postgres::Error> {
        let sql = |text: &str| text.replace("ns.", &format!("{namespace}."));
        let columns = "key, value, version, keep_until_ms";
        let read =
            sql(&format!("SELECT {columns} FROM ns.record WHERE partition = $1 AND key = ANY($2::bytea[])"));
        let scan = sql(&format!(
            "SELECT {columns} FROM ns.record WHERE partition = $1 AND key >= $2 AND key < $3 ORDER BY key"
        ));
        let due = sql("SELECT partition, key, version FROM ns.record \
             WHERE keep_until_ms < $1 AND keep_until_ms < 9223372036854775807 ORDER BY keep_until_ms LIMIT $2");
        // Rows are locked in order of names, so that two batches can't wait for each other.
        let lock = sql("INSERT INTO ns.partition AS p (name, version) \
             SELECT name, count FROM unnest($1::bytea[], $2::bigint[]) AS t(name, count) ORDER BY name \
             ON CONFLICT (name) DO UPDATE SET version = p.version + EXCLUDED.version RETURNING name, version");
        let held =
            sql("SELECT r.partition, r.key, r.version FROM unnest($1::bytea[], $2::bytea[]) AS t(p, k) \
             JOIN ns.record r ON r.partition = t.p AND r.key = t.k");
        let prefix = sql(
            "SELECT count(*), max(version) FROM ns.record WHERE partition = $1 AND key >= $2 AND key < $3",
        );
        let put = sql("INSERT INTO ns.record AS r (partition, key, value, version, keep_until_ms) \
             SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[]) \
             ON CONFLICT (partition, key) DO UPDATE SET value = EXCLUDED.value, version = EXCLUDED.version, \
             keep_until_ms = EXCLUDED.keep_until_ms");
        let remove = sql("DELETE FROM ns.record r USING unnest($1::bytea[], $2::bytea[]) AS t(p, k) \
             WHERE r.partition = t.p AND r.key = t.k");
        Ok(Self {
            namespace: namespace.to_owned(),
            read: client.prepare(&read).await?,
            scan: client.prepare(&scan).await?,
            due: client.prepare(&due).await?,
            lock: client.prepare(&lock).await?,
            held: client.prepare(&held).await?,
            prefix: client.prepare(&prefix).await?,
            put: client.prepare(&put).await?,
            remove: client.prepare(&remove).await?,
            notify: client.prepare("SELECT pg_notify($1, '')").await?,
            client,
        })
    }
}

/// What an error means. Nothing of the address is repeated.
pub(super) fn failed(error: &tokio_postgres::Error) -> StateError {
    let Some(database) = error.as_db_error() else {
        if error.is_closed() {
            return unreachable("Postgres", "the connection was lost");
        }
        let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
        return match cause {
            Some(cause) => unreachable("Postgres", cause.kind()),
            None => unusable("Postgres", error),
        };
    };
    let code = database.code();
    let busy = [
        &SqlState::T_R_SERIALIZATION_FAILURE,
        &SqlState::T_R_DEADLOCK_DETECTED,
        &SqlState::LOCK_NOT_AVAILABLE,
        &SqlState::QUERY_CANCELED,
        &SqlState::TOO_MANY_CONNECTIONS,
    ];
    if busy.contains(&code) {
        return StateError::Busy;
    }
    let away = [&SqlState::ADMIN_SHUTDOWN, &SqlState::CRASH_SHUTDOWN, &SqlState::CANNOT_CONNECT_NOW];
    if away.contains(&code) {
        return unreachable("Postgres", database.message());
    }
    if *code == SqlState::DISK_FULL {
        return StateError::Full;
    }
    if code.code().starts_with("28") {
        return unusable("Postgres", "it refused the user or the password");
    }
    unusable("Postgres", database.message())
}
