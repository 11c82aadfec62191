//! What only the file can get wrong.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

use rusqlite::Connection;

use super::*;
use crate::tests::contract::{keys, put};

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
        checksum("budget/session/a", b"{}", 7),
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
    let before = SqliteState::open(&path).unwrap().scan("").unwrap();
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
        match SqliteState::open(&copy).and_then(|state| state.scan("")) {
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
    let mut states = vec![state.scan("").unwrap()];
    for number in 0..6 {
        put(&state, "a", format!("{number}").as_bytes());
        states.push(state.scan("").unwrap());
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
        if let Ok(after) = SqliteState::open(&file).and_then(|state| state.scan("")) {
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

#[test]
fn adv_105_a_migration_killed_at_any_step_is_done_anew_or_not_at_all() {
    let mut kill_points = 0;
    for kill_at in (0..6).chain([usize::MAX]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let copy = folder.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        let mut connection = Connection::open(&path).unwrap();
        write_ahead(&connection).unwrap();
        let migrated = migrate(&mut connection, &mut |number| {
            if number != kill_at {
                return Ok(());
            }
            // What a kill at this point would leave on the disk.
            for entry in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_file()
                    && !entry.file_name().to_string_lossy().ends_with("-shm")
                {
                    std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
                }
            }
            Err(StateError::Unusable("killed".to_owned()))
        });
        if migrated.is_err() {
            kill_points += 1;
        } else {
            continue;
        }
        drop(connection);
        for killed in [path, copy.join("state.db")] {
            std::fs::set_permissions(&killed, std::fs::Permissions::from_mode(0o600)).unwrap();
            let state = SqliteState::open(&killed).unwrap();
            put(&state, "works", b"yes");
        }
    }
    assert_eq!(kill_points, 6, "five statements and the version");
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
        assert_eq!(keys(&SqliteState::open(&path).unwrap(), "").len(), 4);
    }
}
