//! Records as rows: read with their checksums verified, written with the totals kept.

use rusqlite::{Connection, OptionalExtension as _, params};
use sha2::{Digest as _, Sha256};

use super::failed;
use crate::StateError;
use crate::state::{Check, Record, Version, Versioned, Write};

/// What the one row of the table `total` says about all records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) records: i64,
    pub(super) checksum: i64,
    /// The largest version that was ever given.
    pub(super) version: u64,
}

impl Total {
    pub(super) fn advance(&mut self) -> Version {
        self.version = self.version.saturating_add(1);
        Version(self.version)
    }
}

pub(super) fn get(
    connection: &Connection,
    partition: &str,
    key: &str,
) -> Result<Option<Versioned>, StateError> {
    let sql = "SELECT partition, key, value, version, keep_until_ms, checksum FROM record \
               WHERE partition = ?1 AND key = ?2";
    let mut query = connection.prepare_cached(sql).map_err(failed)?;
    let row = query.query_row([partition, key], Row::read).optional().map_err(failed)?;
    let Some(row) = row else { return Ok(None) };
    let Record { value, version, keep_until_ms, .. } = row.checked()?;
    Ok(Some(Versioned { value, version, keep_until_ms }))
}

pub(super) fn scan(
    connection: &Connection,
    partition: &str,
    prefix: &str,
) -> Result<Vec<Record>, StateError> {
    // Keys are compared as bytes; the prefix is checked here, so that no upper bound has to be spelt.
    let sql = "SELECT partition, key, value, version, keep_until_ms, checksum FROM record \
               WHERE partition = ?1 AND key >= ?2 ORDER BY key";
    let mut query = connection.prepare_cached(sql).map_err(failed)?;
    let mut found = Vec::new();
    for row in query.query_map([partition, prefix], Row::read).map_err(failed)? {
        let record = row.map_err(failed)?.checked()?;
        if !record.key.starts_with(prefix) {
            break;
        }
        found.push(record);
    }
    Ok(found)
}

/// Whether a check holds, read within the transaction that would write.
pub(super) fn holds(connection: &Connection, partition: &str, check: &Check) -> Result<bool, StateError> {
    match check {
        Check::Key { key, version } => Ok(version_of(connection, partition, key)? == *version),
        Check::Prefix { prefix, count, newest } => {
            let sql = "SELECT key, version FROM record WHERE partition = ?1 AND key >= ?2 ORDER BY key";
            let mut query = connection.prepare_cached(sql).map_err(failed)?;
            let mut rows = query.query([partition, prefix.as_str()]).map_err(failed)?;
            let (mut found, mut largest) = (0_u64, None);
            while let Some(row) = rows.next().map_err(failed)? {
                let key: String = row.get(0).map_err(failed)?;
                if !key.starts_with(prefix.as_str()) {
                    break;
                }
                found = found.saturating_add(1);
                largest = largest.max(Some(number(row.get(1).map_err(failed)?)?));
            }
            Ok((found, largest) == (*count, *newest))
        }
    }
}

fn version_of(connection: &Connection, partition: &str, key: &str) -> Result<Option<Version>, StateError> {
    let sql = "SELECT version FROM record WHERE partition = ?1 AND key = ?2";
    let mut query = connection.prepare_cached(sql).map_err(failed)?;
    let found: Option<i64> =
        query.query_row([partition, key], |row| row.get(0)).optional().map_err(failed)?;
    found.map(number).transpose()
}

/// Writes a record and keeps the totals.
pub(super) fn write(
    connection: &Connection,
    total: &mut Total,
    partition: &str,
    write: &Write,
    version: Version,
) -> Result<(), StateError> {
    forget(connection, total, partition, write.key())?;
    match write {
        Write::Put { key, value, keep_until_ms } => {
            put(connection, total, Row::new(partition, key, value, version, *keep_until_ms))
        }
        Write::Remove { key } => {
            let sql = "DELETE FROM record WHERE partition = ?1 AND key = ?2";
            let mut delete = connection.prepare_cached(sql).map_err(failed)?;
            delete.execute([partition, key.as_str()]).map_err(failed)?;
            Ok(())
        }
    }
}

/// Adds a row, or puts it in place of what [`forget`] took out of the totals.
pub(super) fn put(connection: &Connection, total: &mut Total, row: Row) -> Result<(), StateError> {
    total.records = total.records.wrapping_add(1);
    total.checksum = total.checksum.wrapping_add(row.checksum);
    let sql = "INSERT OR REPLACE INTO record (partition, key, value, version, keep_until_ms, checksum) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut insert = connection.prepare_cached(sql).map_err(failed)?;
    let Row { partition, record, checksum } = row;
    let Record { key, value, version, keep_until_ms } = record;
    insert
        .execute(params![partition, key, value, version.0.cast_signed(), keep_until_ms, checksum])
        .map_err(failed)?;
    Ok(())
}

/// Takes what a key held out of the totals.
fn forget(connection: &Connection, total: &mut Total, partition: &str, key: &str) -> Result<(), StateError> {
    let sql = "SELECT checksum FROM record WHERE partition = ?1 AND key = ?2";
    let mut query = connection.prepare_cached(sql).map_err(failed)?;
    let old: Option<i64> = query.query_row([partition, key], |row| row.get(0)).optional().map_err(failed)?;
    if let Some(old) = old {
        total.records = total.records.wrapping_sub(1);
        total.checksum = total.checksum.wrapping_sub(old);
    }
    Ok(())
}

/// Partition and key of records that may go, those that are due for longest first.
pub(super) fn due(
    connection: &Connection,
    now_ms: i64,
    max: usize,
) -> Result<Vec<(String, String)>, StateError> {
    let sql = "SELECT partition, key FROM record INDEXED BY record_by_age WHERE keep_until_ms < ?1 \
               ORDER BY keep_until_ms LIMIT ?2";
    let mut query = connection.prepare_cached(sql).map_err(failed)?;
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let rows = query.query_map([now_ms, max], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
    rows.map(|row| row.map_err(failed)).collect()
}

pub(super) fn total(connection: &Connection) -> Result<Total, StateError> {
    let sql = "SELECT records, checksum, version FROM total WHERE one = 1";
    let mut query = connection.prepare_cached(sql).map_err(failed)?;
    let (records, checksum, version) =
        query.query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).map_err(failed)?;
    Ok(Total { records, checksum, version: number(version)?.0 })
}

pub(super) fn set_total(connection: &Connection, total: Total) -> Result<(), StateError> {
    let sql = "UPDATE total SET records = ?1, checksum = ?2, version = ?3 WHERE one = 1";
    let mut update = connection.prepare_cached(sql).map_err(failed)?;
    update.execute(params![total.records, total.checksum, total.version.cast_signed()]).map_err(failed)?;
    Ok(())
}

/// Reads every record. The totals must be those of what is there.
pub(super) fn examine(connection: &Connection) -> Result<(), StateError> {
    let sql = "SELECT partition, key, value, version, keep_until_ms, checksum FROM record";
    let mut query = connection.prepare_cached(sql).map_err(failed)?;
    let noted = total(connection)?;
    let mut found = Total { records: 0, checksum: 0, version: noted.version };
    for row in query.query_map([], Row::read).map_err(failed)? {
        let row = row.map_err(failed)?;
        found.records = found.records.wrapping_add(1);
        found.checksum = found.checksum.wrapping_add(row.checksum);
        if row.checked()?.version.0 > noted.version {
            return Err(StateError::Corrupt("a record is newer than the newest".to_owned()));
        }
    }
    if found != noted {
        return Err(StateError::Corrupt("records are missing".to_owned()));
    }
    Ok(())
}

/// A row of the table `record`.
pub(super) struct Row {
    partition: String,
    record: Record,
    checksum: i64,
}

impl Row {
    pub(super) fn new(
        partition: &str,
        key: &str,
        value: &[u8],
        version: Version,
        keep_until_ms: i64,
    ) -> Self {
        let record = Record { key: key.to_owned(), value: value.to_vec(), version, keep_until_ms };
        let checksum = checksum(partition, &record);
        Self { partition: partition.to_owned(), record, checksum }
    }

    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let version = Version(row.get::<_, i64>(3)?.cast_unsigned());
        let record = Record { key: row.get(1)?, value: row.get(2)?, version, keep_until_ms: row.get(4)? };
        Ok(Self { partition: row.get(0)?, record, checksum: row.get(5)? })
    }

    pub(super) fn checked(self) -> Result<Record, StateError> {
        let Self { partition, record, checksum: sum } = self;
        if checksum(&partition, &record) == sum {
            return Ok(record);
        }
        let key = record.key.escape_debug();
        Err(StateError::Corrupt(format!("record `{key}` doesn't fit its checksum")))
    }
}

fn checksum(partition: &str, record: &Record) -> i64 {
    let mut hasher = Sha256::new();
    for name in [partition, &record.key] {
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
    }
    hasher.update(record.version.0.to_le_bytes());
    hasher.update(record.keep_until_ms.to_le_bytes());
    hasher.update(&record.value);
    first_eight(hasher)
}

/// The checksum of a record in schema 2, for files that are brought up to date.
pub(super) fn checksum_2(key: &str, value: &[u8], keep_until_ms: i64) -> i64 {
    let mut hasher = Sha256::new();
    hasher.update((key.len() as u64).to_le_bytes());
    hasher.update(key.as_bytes());
    hasher.update(keep_until_ms.to_le_bytes());
    hasher.update(value);
    first_eight(hasher)
}

fn first_eight(hasher: Sha256) -> i64 {
    let digest: [u8; 32] = hasher.finalize().into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

fn number(stored: i64) -> Result<Version, StateError> {
    u64::try_from(stored).map(Version).map_err(|_| StateError::Corrupt("a version is negative".to_owned()))
}
