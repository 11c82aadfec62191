//! State in a SQLite file: what the kernel processes of one machine share.
//!
//! Every step is one `BEGIN IMMEDIATE` transaction in WAL mode with full sync: a step that returned survives a power cut.
//! Every record carries a checksum, and one row carries the sum over all of them, so that a damaged file is an error and not
//! other data. These find accidents, not attackers: whoever can write the file is the user, and the ledger is the evidence.
//! What they can't find: a damaged write-ahead log that hasn't been merged yet ends, for SQLite, before the damage, which
//! gives an older but whole state.

#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior, params,
};
use sha2::{Digest as _, Sha256};

use crate::{Record, Records, State, StateError, Step, check_size};

/// Marks the file as ours (`RGNT`).
const APPLICATION_ID: i64 = 0x5247_4e54;
/// The newest schema that we understand.
const SCHEMA: i64 = 2;
/// How long a step waits for another process.
const BUSY_MS_MAX: u64 = 5_000;
/// How often we ask for WAL mode while another process is just making the file.
const WAL_TRIES_MAX: u32 = 50;

/// What leads from each version of the schema to the next. All of it runs in one transaction: a kill leaves the old or the new.
const MIGRATIONS: &[&[&str]] = &[
    &[
        "CREATE TABLE record (key TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL, keep_until_ms INTEGER NOT NULL, \
     checksum INTEGER NOT NULL) WITHOUT ROWID, STRICT",
        "CREATE TABLE total (one INTEGER PRIMARY KEY CHECK (one = 1), records INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT",
        "INSERT INTO total (one, records, checksum) VALUES (1, 0, 0)",
        "PRAGMA application_id = 0x52474e54",
    ],
    &[
        // So that a sweep finds what may go without reading the rest.
        "CREATE INDEX record_by_age ON record (keep_until_ms)",
    ],
];

/// State in a SQLite file.
#[derive(Debug)]
pub struct SqliteState(Mutex<Connection>);

impl SqliteState {
    /// Opens the file, or makes it, readable for its owner alone. Refuses a damaged file and one of a newer program.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        guard_file(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NOFOLLOW
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let mut connection = Connection::open_with_flags(path, flags).map_err(told)?;
        connection.busy_timeout(Duration::from_millis(BUSY_MS_MAX)).map_err(told)?;
        let version = version_of(&connection)?;
        if version > SCHEMA {
            return Err(StateError::Newer { found: version, known: SCHEMA });
        }
        // Before anything is added to it.
        if version > 0 {
            check_owner(&connection)?;
        }
        write_ahead(&connection)?;
        connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF;").map_err(told)?;
        migrate(&mut connection, &mut |_| Ok(()))?;
        examine(&mut connection)?;
        Ok(Self(Mutex::new(connection)))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // A step that panicked dropped its transaction, which rolls it back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State for SqliteState {
    fn change(&self, step: Step<'_>) -> Result<(), StateError> {
        let mut connection = self.connection();
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(told)?;
        let mut draft = Draft { transaction, records: 0, checksum: 0, touched: false };
        step(&mut draft)?;
        draft.commit()
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError> {
        get(&self.connection(), key)
    }

    fn scan(&self, prefix: &str) -> Result<Vec<Record>, StateError> {
        scan(&self.connection(), prefix)
    }

    fn stale(&self, now_ms: i64) -> Result<Vec<String>, StateError> {
        let connection = self.connection();
        let sql = "SELECT key FROM record INDEXED BY record_by_age WHERE keep_until_ms < ?1";
        let mut query = connection.prepare_cached(sql).map_err(told)?;
        let keys = query.query_map([now_ms], |row| row.get(0)).map_err(told)?;
        keys.map(|key| key.map_err(told)).collect()
    }
}

/// A step that isn't committed yet, with what it adds to the totals.
struct Draft<'c> {
    transaction: Transaction<'c>,
    records: i64,
    checksum: i64,
    touched: bool,
}

impl Draft<'_> {
    fn commit(self) -> Result<(), StateError> {
        if self.touched {
            let (records, checksum) = total(&self.transaction)?;
            let sums = params![records.wrapping_add(self.records), checksum.wrapping_add(self.checksum)];
            let mut update = self
                .transaction
                .prepare_cached("UPDATE total SET records = ?1, checksum = ?2 WHERE one = 1")
                .map_err(told)?;
            update.execute(sums).map_err(told)?;
        }
        self.transaction.commit().map_err(told)
    }

    /// Takes the old record out of the totals.
    fn forget(&mut self, key: &str) -> Result<(), StateError> {
        self.touched = true;
        let sql = "SELECT checksum FROM record WHERE key = ?1";
        let mut query = self.transaction.prepare_cached(sql).map_err(told)?;
        let old: Option<i64> = query.query_row([key], |row| row.get(0)).optional().map_err(told)?;
        if let Some(old) = old {
            self.records = self.records.wrapping_sub(1);
            self.checksum = self.checksum.wrapping_sub(old);
        }
        Ok(())
    }
}

impl Records for Draft<'_> {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError> {
        get(&self.transaction, key)
    }

    fn scan(&self, prefix: &str) -> Result<Vec<Record>, StateError> {
        scan(&self.transaction, prefix)
    }

    fn put(&mut self, key: &str, value: &[u8], keep_until_ms: i64) -> Result<(), StateError> {
        check_size(key, value)?;
        self.forget(key)?;
        let sum = checksum(key, value, keep_until_ms);
        self.records = self.records.wrapping_add(1);
        self.checksum = self.checksum.wrapping_add(sum);
        let sql =
            "INSERT OR REPLACE INTO record (key, value, keep_until_ms, checksum) VALUES (?1, ?2, ?3, ?4)";
        let mut insert = self.transaction.prepare_cached(sql).map_err(told)?;
        insert.execute(params![key, value, keep_until_ms, sum]).map_err(told)?;
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), StateError> {
        self.forget(key)?;
        let mut delete =
            self.transaction.prepare_cached("DELETE FROM record WHERE key = ?1").map_err(told)?;
        delete.execute([key]).map_err(told)?;
        Ok(())
    }
}

fn get(connection: &Connection, key: &str) -> Result<Option<Vec<u8>>, StateError> {
    let sql = "SELECT key, value, keep_until_ms, checksum FROM record WHERE key = ?1";
    let mut query = connection.prepare_cached(sql).map_err(told)?;
    let row = query.query_row([key], row_of).optional().map_err(told)?;
    Ok(row.map(checked).transpose()?.map(|record| record.value))
}

fn scan(connection: &Connection, prefix: &str) -> Result<Vec<Record>, StateError> {
    // Keys are compared as bytes; the prefix is checked here, so that no upper bound has to be spelt.
    let sql = "SELECT key, value, keep_until_ms, checksum FROM record WHERE key >= ?1 ORDER BY key";
    let mut query = connection.prepare_cached(sql).map_err(told)?;
    let mut found = Vec::new();
    for row in query.query_map([prefix], row_of).map_err(told)? {
        let record = checked(row.map_err(told)?)?;
        if !record.key.starts_with(prefix) {
            break;
        }
        found.push(record);
    }
    Ok(found)
}

fn row_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<(Record, i64)> {
    Ok((Record { key: row.get(0)?, value: row.get(1)?, keep_until_ms: row.get(2)? }, row.get(3)?))
}

fn checked((record, sum): (Record, i64)) -> Result<Record, StateError> {
    if checksum(&record.key, &record.value, record.keep_until_ms) == sum {
        return Ok(record);
    }
    Err(StateError::Corrupt(format!("record `{}` doesn't fit its checksum", record.key.escape_debug())))
}

fn checksum(key: &str, value: &[u8], keep_until_ms: i64) -> i64 {
    let mut hasher = Sha256::new();
    hasher.update((key.len() as u64).to_le_bytes());
    hasher.update(key.as_bytes());
    hasher.update(keep_until_ms.to_le_bytes());
    hasher.update(value);
    let digest: [u8; 32] = hasher.finalize().into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

fn total(connection: &Connection) -> Result<(i64, i64), StateError> {
    let sql = "SELECT records, checksum FROM total WHERE one = 1";
    let mut query = connection.prepare_cached(sql).map_err(told)?;
    query.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(told)
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
fn write_ahead(connection: &Connection) -> Result<(), StateError> {
    let mut tries = 0;
    loop {
        let mode: Result<String, _> =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(told);
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

/// Brings the schema up to date in one transaction. `before` sees the number of each statement before it runs.
fn migrate(
    connection: &mut Connection,
    before: &mut dyn FnMut(usize) -> Result<(), StateError>,
) -> Result<(), StateError> {
    if version_of(connection)? == SCHEMA {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(told)?;
    // Asked again: another process may have done it while we waited for the lock.
    let from = version_of(&transaction)?;
    let done =
        usize::try_from(from).map_err(|_| StateError::Corrupt("its version is negative".to_owned()))?;
    // A file without a version that has tables is no file that we began.
    let tables: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(told)?;
    if done == 0 && tables > 0 {
        return Err(StateError::Corrupt("it has no version, and tables that Regent did not make".to_owned()));
    }
    for (number, sql) in MIGRATIONS.iter().skip(done).copied().flatten().enumerate() {
        before(number)?;
        transaction.execute_batch(sql).map_err(told)?;
    }
    before(usize::MAX)?;
    transaction.pragma_update(None, "user_version", SCHEMA).map_err(told)?;
    transaction.commit().map_err(told)
}

fn version_of(connection: &Connection) -> Result<i64, StateError> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(told)
}

fn check_owner(connection: &Connection) -> Result<(), StateError> {
    let ours: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(told)?;
    if ours != APPLICATION_ID {
        return Err(StateError::Corrupt("it is the database of another program".to_owned()));
    }
    Ok(())
}

/// Looks at the whole file once: its structure, every record, and that none is missing.
fn examine(connection: &mut Connection) -> Result<(), StateError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Deferred).map_err(told)?;
    check_owner(&transaction)?;
    let check: String = transaction.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(told)?;
    if check != "ok" {
        return Err(StateError::Corrupt(check.lines().next().unwrap_or_default().to_owned()));
    }
    let records = scan(&transaction, "")?;
    let sum = records.iter().fold(0_i64, |sum, record| {
        sum.wrapping_add(checksum(&record.key, &record.value, record.keep_until_ms))
    });
    if total(&transaction)? != (i64::try_from(records.len()).unwrap_or(i64::MAX), sum) {
        return Err(StateError::Corrupt("records are missing".to_owned()));
    }
    Ok(())
}

/// What SQLite says, without the statement that it says it about.
fn words(error: &rusqlite::Error) -> String {
    if let rusqlite::Error::SqlInputError { msg, .. } = error {
        return msg.clone();
    }
    error.to_string()
}

/// Whether a file could not be made longer: no room for the log's index, or a limit on the size of files.
fn is_write(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi;
    let code = error.sqlite_error().map_or(0, |error| error.extended_code);
    [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_SHMSIZE, ffi::SQLITE_IOERR_TRUNCATE].contains(&code)
}

fn told(error: rusqlite::Error) -> StateError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StateError::Busy,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StateError::Corrupt(words(&error)),
        Some(ErrorCode::DiskFull) => StateError::Full,
        Some(ErrorCode::SystemIoFailure) if is_write(&error) => StateError::Full,
        Some(_) => StateError::Unusable(words(&error)),
        // Not SQLite's own: a value of a type or form that we never write.
        None => StateError::Corrupt(error.to_string()),
    }
}
