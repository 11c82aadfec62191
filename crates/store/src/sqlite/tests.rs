//! What only the file can get wrong.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

use rusqlite::Connection;

use super::file::{SCHEMA, migrate, write_ahead};
use super::*;
use crate::{FOR_GOOD, change};

/// What a record holds, whenever it was written.
type Held = (String, Vec<u8>, i64);

/// The keys of a file of schema 2.
const KEYS_2: [&str; 7] = [
    "rate/00ff/ann",
    "question/1",
    "question-of/d/1",
    "attention/asked",
    "budget/user/day",
    "examined/~r/3",
    "odd",
];

/// Waits for the threads of the state.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn put(state: &SqliteState, key: &str, value: &[u8]) {
    let partition = Partition::containing(key);
    wait(change(state, &partition, &[], |draft| draft.put(key, value, FOR_GOOD))).unwrap();
}

/// All records of the partitions that these keys are in.
fn held(state: &SqliteState, keys: &[&str]) -> Result<Vec<Held>, StateError> {
    let mut partitions: Vec<Partition> = keys.iter().map(|key| Partition::containing(key)).collect();
    partitions.sort();
    partitions.dedup();
    let mut all = Vec::new();
    for partition in &partitions {
        let records = wait(state.scan(partition, ""))?;
        all.extend(records.into_iter().map(|record| (record.key, record.value, record.keep_until_ms)));
    }
    all.sort();
    Ok(all)
}

fn made(folder: &Path) -> PathBuf {
    let path = folder.join("state.db");
    let state = SqliteState::open(&path).unwrap();
    for number in 0..40 {
        put(&state, &format!("record/{number}"), format!("value {number} {}", "x".repeat(50)).as_bytes());
    }
    path
}

#[test]
fn the_checksum_is_part_of_the_format() {
    assert_eq!(
        rows::checksum_2("budget/session/a", b"{}", 7),
        -4683580475004602884,
        "files that exist must stay readable"
    );
}

#[test]
fn the_file_is_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = made(folder.path());
    let state = SqliteState::open(&path).unwrap();
    put(&state, "a", b"b");
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    drop(state);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(SqliteState::open(&path).unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "tightened");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(SqliteState::open(&path).unwrap_err().to_string().contains("other users can write it"));
}

#[test]
fn a_link_or_a_folder_in_its_place_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = made(folder.path());
    let link = folder.path().join("link.db");
    symlink(&path, &link).unwrap();
    assert!(SqliteState::open(&link).is_err());
    assert!(SqliteState::open(folder.path()).is_err());
    assert!(SqliteState::open(&folder.path().join("no/such/folder.db")).is_err());
}

#[test]
fn adv_014_a_flipped_byte_is_an_error_or_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = made(folder.path());
    let whole = std::fs::read(&path).unwrap();
    let before = held(&SqliteState::open(&path).unwrap(), &["record/"]).unwrap();
    let (mut refused, mut unchanged) = (0, 0);
    // A prime stride visits every page and every kind of field; each place gets another bit.
    for (round, at) in (0..whole.len()).step_by(23).enumerate() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (round % 8);
        let copy = folder.path().join("flipped.db");
        for name in ["flipped.db", "flipped.db-wal", "flipped.db-shm"] {
            drop(std::fs::remove_file(folder.path().join(name)));
        }
        std::fs::write(&copy, &bytes).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600)).unwrap();
        match SqliteState::open(&copy).and_then(|state| held(&state, &["record/"])) {
            Ok(after) => {
                assert_eq!(after, before, "byte {at} was flipped and other data came back");
                unchanged += 1;
            }
            Err(_clean) => refused += 1,
        }
    }
    assert!(refused > 100 && unchanged > 0, "refused {refused}, unchanged {unchanged}");
}

#[test]
fn adv_014_a_flipped_byte_in_the_log_gives_an_earlier_whole_state_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let state = SqliteState::open(&path).unwrap();
    let mut states = vec![held(&state, &["a"]).unwrap()];
    for number in 0..6 {
        put(&state, "a", format!("{number}").as_bytes());
        states.push(held(&state, &["a"]).unwrap());
    }
    // Copied while open: what a kill would leave, with the log not merged yet.
    let (main, log) =
        (std::fs::read(&path).unwrap(), std::fs::read(folder.path().join("state.db-wal")).unwrap());
    for (round, at) in (0..log.len()).step_by(389).enumerate() {
        let mut bytes = log.clone();
        bytes[at] ^= 1 << (round % 8);
        let copy = tempfile::tempdir().unwrap();
        let file = copy.path().join("state.db");
        std::fs::write(&file, &main).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(copy.path().join("state.db-wal"), &bytes).unwrap();
        if let Ok(after) = SqliteState::open(&file).and_then(|state| held(&state, &["a"])) {
            assert!(states.contains(&after), "byte {at} of the log was flipped and new data came back");
        }
    }
}

#[test]
fn adv_014_garbage_and_other_databases_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("garbage.db");
    std::fs::write(&path, b"this is not a database at all, but it is long enough to be looked at".repeat(40))
        .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(SqliteState::open(&path), Err(StateError::Corrupt(_))));
    let path = folder.path().join("other.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x); PRAGMA user_version = 1;").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(SqliteState::open(&path), Err(StateError::Corrupt(_))));
}

#[test]
fn adv_014_a_record_that_vanished_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let path = made(folder.path());
    Connection::open(&path).unwrap().execute("DELETE FROM record WHERE key = 'record/7'", []).unwrap();
    assert_eq!(SqliteState::open(&path).unwrap_err(), StateError::Corrupt("records are missing".to_owned()));
}

#[test]
fn adv_105_a_newer_schema_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = made(folder.path());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", SCHEMA + 1).unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = SqliteState::open(&path).unwrap_err();
    assert_eq!(error, StateError::Newer { found: SCHEMA + 1, known: SCHEMA });
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// A file of schema 2, as the program before this one wrote it.
fn made_by_schema_2(path: &Path) -> Vec<Held> {
    let connection = Connection::open(path).unwrap();
    write_ahead(&connection).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE record (key TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL, keep_until_ms INTEGER NOT NULL, \
             checksum INTEGER NOT NULL) WITHOUT ROWID, STRICT;
             CREATE TABLE total (one INTEGER PRIMARY KEY CHECK (one = 1), records INTEGER NOT NULL, \
             checksum INTEGER NOT NULL) STRICT;
             INSERT INTO total (one, records, checksum) VALUES (1, 0, 0);
             PRAGMA application_id = 0x52474e54;
             CREATE INDEX record_by_age ON record (keep_until_ms);
             PRAGMA user_version = 2;",
        )
        .unwrap();
    let mut records = Vec::new();
    for (number, key) in KEYS_2.into_iter().enumerate() {
        let (value, until) = (format!("value {number}").into_bytes(), 1000 + i64::try_from(number).unwrap());
        let sum = rows::checksum_2(key, &value, until);
        connection
            .execute("INSERT INTO record VALUES (?1, ?2, ?3, ?4)", rusqlite::params![key, value, until, sum])
            .unwrap();
        let added = "UPDATE total SET records = records + 1, checksum = ?1";
        let total: i64 = connection.query_row("SELECT checksum FROM total", [], |row| row.get(0)).unwrap();
        connection.execute(added, [total.wrapping_add(sum)]).unwrap();
        records.push((key.to_owned(), value, until));
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    records.sort();
    records
}

#[test]
fn a_file_of_schema_2_is_sorted_into_partitions_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let before = made_by_schema_2(&path);
    for _ in 0..2 {
        let state = SqliteState::open(&path).unwrap();
        assert_eq!(held(&state, &KEYS_2).unwrap(), before);
    }
    let connection = Connection::open(&path).unwrap();
    let mut query = connection.prepare("SELECT partition || ' ' || key FROM record ORDER BY 1").unwrap();
    let rows: Vec<String> = query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(
        rows,
        [
            "approval attention/asked",
            "approval question-of/d/1",
            "approval question/1",
            "budget/user/day budget/user/day",
            "examined/~r examined/~r/3",
            "odd odd",
            "rate/ann rate/00ff/ann",
        ]
    );
    assert_eq!(wait(SqliteState::open(&path).unwrap().sweep(1003, 100)).unwrap(), 3, "by age");
}

#[test]
fn adv_014_a_damaged_file_of_schema_2_is_refused_and_left_alone() {
    for damage in
        ["UPDATE record SET value = x'00' WHERE key = 'odd'", "DELETE FROM record WHERE key = 'odd'"]
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        made_by_schema_2(&path);
        Connection::open(&path).unwrap().execute_batch(damage).unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(matches!(SqliteState::open(&path), Err(StateError::Corrupt(_))), "{damage}");
        assert_eq!(std::fs::read(&path).unwrap(), before, "{damage}");
    }
}

/// Stops the migration of a file before the step of this number. Gives the folder with what a kill there would leave.
fn killed_at(kill_at: usize, path: &Path) -> Option<tempfile::TempDir> {
    let copy = tempfile::tempdir().unwrap();
    let mut connection = Connection::open(path).unwrap();
    write_ahead(&connection).unwrap();
    let migrated = migrate(&mut connection, &mut |number| {
        if number != kill_at {
            return Ok(());
        }
        for entry in std::fs::read_dir(path.parent().unwrap()).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() && !entry.file_name().to_string_lossy().ends_with("-shm")
            {
                std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
            }
        }
        Err(StateError::Unusable("killed".to_owned()))
    });
    migrated.is_err().then_some(copy)
}

#[test]
fn adv_105_a_migration_killed_at_any_step_is_done_anew_or_not_at_all() {
    for (from_2, steps) in [(false, 12), (true, 7)] {
        let mut kill_points = 0;
        for kill_at in (0..20).chain([usize::MAX]) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("state.db");
            let before = if from_2 { made_by_schema_2(&path) } else { Vec::new() };
            let Some(copy) = killed_at(kill_at, &path) else { continue };
            kill_points += 1;
            for killed in [path, copy.path().join("state.db")] {
                std::fs::set_permissions(&killed, std::fs::Permissions::from_mode(0o600)).unwrap();
                let state = SqliteState::open(&killed).unwrap();
                assert_eq!(held(&state, &KEYS_2).unwrap(), before);
                put(&state, "works", b"yes");
            }
        }
        assert_eq!(kill_points, steps + 1, "every step and the version");
    }
}

#[test]
fn two_that_make_the_file_at_once_both_get_it() {
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let barrier = Arc::new(Barrier::new(4));
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let (path, barrier) = (path.clone(), Arc::clone(&barrier));
                std::thread::spawn(move || {
                    barrier.wait();
                    put(&SqliteState::open(&path).unwrap(), &format!("{number}"), b"");
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(held(&SqliteState::open(&path).unwrap(), &["0", "1", "2", "3"]).unwrap().len(), 4);
    }
}
