//! The file: made for its owner alone, brought up to the newest schema in one transaction, examined in full before it is used.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::failed;
use super::rows::{self, Row, Total};
use crate::StateError;
use crate::state::Partition;

/// Marks the file as ours (`RGNT`).
const APPLICATION_ID: i64 = 0x5247_4e54;
/// The newest schema that we understand.
pub(super) const SCHEMA: i64 = 3;
/// How long a transaction waits for another process.
const BUSY_MS_MAX: u64 = 5_000;
/// How often we ask for WAL mode while another process is just making the file.
const WAL_TRIES_MAX: u32 = 50;

/// One step of a migration.
#[derive(Clone, Copy)]
enum MigrationStep {
    Sql(&'static str),
    Run(fn(&Transaction<'_>) -> Result<(), StateError>),
}

/// What leads from each version of the schema to the next. All of it runs in one transaction: a kill leaves the old or the new.
const MIGRATIONS: &[&[MigrationStep]] = &[
    &[
        MigrationStep::Sql(
            "CREATE TABLE record (key TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL, keep_until_ms INTEGER NOT NULL, \
             checksum INTEGER NOT NULL) WITHOUT ROWID, STRICT",
        ),
        MigrationStep::Sql(
            "CREATE TABLE total (one INTEGER PRIMARY KEY CHECK (one = 1), records INTEGER NOT NULL, \
             checksum INTEGER NOT NULL) STRICT",
        ),
        MigrationStep::Sql("INSERT INTO total (one, records, checksum) VALUES (1, 0, 0)"),
        MigrationStep::Sql("PRAGMA application_id = 0x52474e54"),
    ],
    // So that a sweep finds what may go without reading the rest.
    &[MigrationStep::Sql("CREATE INDEX record_by_age ON record (keep_until_ms)")],
    &[
        MigrationStep::Sql("DROP INDEX record_by_age"),
        MigrationStep::Sql("ALTER TABLE record RENAME TO record_2"),
        MigrationStep::Sql(
            "CREATE TABLE record (partition TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL, \
             keep_until_ms INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (partition, key)) WITHOUT ROWID, STRICT",
        ),
        MigrationStep::Sql("ALTER TABLE total ADD COLUMN version INTEGER NOT NULL DEFAULT 1"),
        MigrationStep::Run(into_partitions),
        MigrationStep::Sql("DROP TABLE record_2"),
        MigrationStep::Sql("CREATE INDEX record_by_age ON record (keep_until_ms)"),
    ],
];

/// Opens the file, or makes it, and looks at all of it.
pub(super) fn open(path: &Path) -> Result<Connection, StateError> {
    guard_file(path)?;
    let mut connection = connect(path)?;
    let version = version_of(&connection)?;
    if version > SCHEMA {
        return Err(StateError::Newer { found: version, known: SCHEMA });
    }
    // Before anything is added to it.
    if version > 0 {
        check_owner(&connection)?;
    }
    write_ahead(&connection)?;
    migrate(&mut connection, &mut |_| Ok(()))?;
    examine(&mut connection)?;
    Ok(connection)
}

/// One more connection to a file that [`open`] has accepted.
pub(super) fn connect(path: &Path) -> Result<Connection, StateError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(Duration::from_millis(BUSY_MS_MAX)).map_err(failed)?;
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF;").map_err(failed)?;
    Ok(connection)
}

/// Makes the file with its final mode, before SQLite sees it, and refuses one that others could have written.
fn guard_file(path: &Path) -> Result<(), StateError> {
    let unusable = |why: String| StateError::Unusable(format!("`{}`: {why}", path.display()));
    let nofollow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(nofollow)
        .open(path)
        .map_err(|error| unusable(error.to_string()))?;
    let meta = file.metadata().map_err(|error| unusable(error.to_string()))?;
    if !meta.is_file() {
        return Err(unusable("it is not a file".to_owned()));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(unusable("it belongs to another user".to_owned()));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(unusable("other users can write it".to_owned()));
    }
    if meta.mode() & 0o077 != 0 {
        file.set_permissions(std::fs::Permissions::from_mode(0o600))
            .map_err(|error| unusable(error.to_string()))?;
    }
    Ok(())
}

/// Two processes that make the file at once can get in each other's way here without SQLite waiting, so we do.
pub(super) fn write_ahead(connection: &Connection) -> Result<(), StateError> {
    let mut tries = 0;
    loop {
        let mode: Result<String, _> =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed);
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                return Err(StateError::Unusable(format!("no write-ahead log here, only `{mode}`")));
            }
            Err(StateError::Busy) if tries < WAL_TRIES_MAX => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Brings the schema up to date in one transaction. `before` sees the number of each step before it runs.
pub(super) fn migrate(
    connection: &mut Connection,
    before: &mut dyn FnMut(usize) -> Result<(), StateError>,
) -> Result<(), StateError> {
    if version_of(connection)? == SCHEMA {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    // Asked again: another process may have done it while we waited for the lock.
    let from = version_of(&transaction)?;
    let done =
        usize::try_from(from).map_err(|_| StateError::Corrupt("its version is negative".to_owned()))?;
    // A file without a version that has tables is no file that we began.
    let tables: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if done == 0 && tables > 0 {
        return Err(StateError::Corrupt("it has no version, and tables that Regent did not make".to_owned()));
    }
    for (number, step) in MIGRATIONS.iter().skip(done).copied().flatten().enumerate() {
        before(number)?;
        match step {
            MigrationStep::Sql(sql) => transaction.execute_batch(sql).map_err(failed)?,
            MigrationStep::Run(step) => step(&transaction)?,
        }
    }
    before(usize::MAX)?;
    transaction.pragma_update(None, "user_version", SCHEMA).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// Moves the records of schema 2 into partitions. What they were must be whole: a copy of damaged records would look like good ones.
fn into_partitions(transaction: &Transaction<'_>) -> Result<(), StateError> {
    let noted: (i64, i64) = transaction
        .query_row("SELECT records, checksum FROM total WHERE one = 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .map_err(failed)?;
    let mut found = (0_i64, 0_i64);
    let mut total = Total { records: 0, checksum: 0, version: 0 };
    let version = total.advance();
    let mut query = transaction
        .prepare("SELECT key, value, keep_until_ms, checksum FROM record_2 ORDER BY key")
        .map_err(failed)?;
    let mut rows = query.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let (key, value): (String, Vec<u8>) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
        let (keep_until_ms, sum): (i64, i64) = (row.get(2).map_err(failed)?, row.get(3).map_err(failed)?);
        if rows::checksum_2(&key, &value, keep_until_ms) != sum {
            let key = key.escape_debug();
            return Err(StateError::Corrupt(format!("record `{key}` doesn't fit its checksum")));
        }
        found = (found.0.wrapping_add(1), found.1.wrapping_add(sum));
        let partition = Partition::containing(&key);
        rows::put(
            transaction,
            &mut total,
            Row::new(partition.as_str(), &key, &value, version, keep_until_ms),
        )?;
    }
    if found != noted {
        return Err(StateError::Corrupt("records are missing".to_owned()));
    }
    rows::set_total(transaction, total)
}

fn version_of(connection: &Connection) -> Result<i64, StateError> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)
}

fn check_owner(connection: &Connection) -> Result<(), StateError> {
    let ours: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(failed)?;
    if ours != APPLICATION_ID {
        return Err(StateError::Corrupt("it is the database of another program".to_owned()));
    }
    Ok(())
}

/// Looks at the whole file once: its structure, every record, and that none is missing.
fn examine(connection: &mut Connection) -> Result<(), StateError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Deferred).map_err(failed)?;
    check_owner(&transaction)?;
    let check: String =
        transaction.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
    if check != "ok" {
        return Err(StateError::Corrupt(check.lines().next().unwrap_or_default().to_owned()));
    }
    rows::examine(&transaction)
}
