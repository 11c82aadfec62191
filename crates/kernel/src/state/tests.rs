//! One contract for every backend, and what only the file can get wrong.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

use proptest::prelude::*;
use rusqlite::Connection;

use super::sqlite::{self, SCHEMA};
use super::*;

/// Every backend twice: two handles that must see one state. The folder lives as long as the pair.
struct Pair {
    name: &'static str,
    one: Arc<dyn State>,
    two: Arc<dyn State>,
    _folder: Option<tempfile::TempDir>,
}

fn backends() -> Vec<Pair> {
    let memory: Arc<dyn State> = Arc::new(MemoryState::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let open = || Arc::new(SqliteState::open(&path).unwrap()) as Arc<dyn State>;
    vec![
        Pair { name: "memory", one: Arc::clone(&memory), two: memory, _folder: None },
        Pair { name: "sqlite", one: open(), two: open(), _folder: Some(folder) },
    ]
}

fn put(state: &dyn State, key: &str, value: &[u8]) {
    change(state, |records| records.put(key, value, FOR_GOOD)).unwrap();
}

fn keys(state: &dyn State, prefix: &str) -> Vec<String> {
    state.scan(prefix).unwrap().into_iter().map(|record| record.key).collect()
}

#[test]
fn a_record_is_what_was_last_put_and_gone_when_removed() {
    for Pair { name, one, two, .. } in backends() {
        assert_eq!(one.get("a").unwrap(), None, "{name}");
        put(&*one, "a", b"1");
        put(&*two, "a", &[0, 255, 10]);
        assert_eq!(one.get("a").unwrap().as_deref(), Some(&[0, 255, 10][..]), "{name}");
        change(&*one, |records| records.remove("a")).unwrap();
        change(&*one, |records| records.remove("never was")).unwrap();
        assert_eq!(two.get("a").unwrap(), None, "{name}");
    }
}

#[test]
fn a_scan_gives_exactly_the_prefix_in_order() {
    for Pair { name, one, two, .. } in backends() {
        for key in ["b/2", "a", "b/10", "b", "b0", "c", "b/é", "b/%", "b/_"] {
            put(&*one, key, key.as_bytes());
        }
        assert_eq!(keys(&*two, "b/"), ["b/%", "b/10", "b/2", "b/_", "b/é"], "{name}");
        assert_eq!(keys(&*two, "").len(), 9, "{name}");
        assert_eq!(keys(&*two, "d"), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn a_step_sees_its_own_changes_and_leaves_none_when_it_fails() {
    for Pair { name, one, two, .. } in backends() {
        put(&*one, "kept", b"before");
        let failed: Result<(), _> = change(&*one, |records| {
            records.put("kept", b"after", FOR_GOOD)?;
            records.put("new", b"x", FOR_GOOD)?;
            records.remove("kept")?;
            assert_eq!(records.get("kept")?, None);
            assert_eq!(records.scan("")?.len(), 1);
            Err(StateError::Unusable("on purpose".to_owned()))
        });
        assert_eq!(failed, Err(StateError::Unusable("on purpose".to_owned())), "{name}");
        assert_eq!(two.get("kept").unwrap().as_deref(), Some(&b"before"[..]), "{name}");
        assert_eq!(two.get("new").unwrap(), None, "{name}");
    }
}

#[test]
fn a_step_that_panics_leaves_nothing_and_the_state_usable() {
    for Pair { name, one, two, .. } in backends() {
        let state = Arc::clone(&one);
        let panicked = std::thread::spawn(move || {
            change(&*state, |records| -> Result<(), StateError> {
                records.put("half", b"x", FOR_GOOD)?;
                panic!("on purpose")
            })
        });
        assert!(panicked.join().is_err(), "{name}");
        assert_eq!(one.get("half").unwrap(), None, "{name}");
        put(&*two, "half", b"whole");
        assert_eq!(one.get("half").unwrap().as_deref(), Some(&b"whole"[..]), "{name}");
    }
}

#[test]
fn adv_103_many_threads_and_two_handles_lose_no_step() {
    const THREADS: u64 = 8;
    const STEPS: u64 = 25;
    for Pair { name, one, two, _folder } in backends() {
        let barrier = Arc::new(Barrier::new(usize::try_from(THREADS).unwrap()));
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let state = Arc::clone(if number % 2 == 0 { &one } else { &two });
                let barrier = Arc::clone(&barrier);
                std::thread::spawn(move || {
                    barrier.wait();
                    for _ in 0..STEPS {
                        change(&*state, |records| {
                            let count: u64 = load(records, "count")?.unwrap_or(0);
                            store(records, "count", &(count + 1), FOR_GOOD)
                        })
                        .unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let count: u64 = parse("count", &one.get("count").unwrap().unwrap()).unwrap();
        assert_eq!(count, THREADS * STEPS, "{name}");
    }
}

#[test]
fn limits_hold_and_sweeping_takes_only_what_may_go() {
    for Pair { name, one, .. } in backends() {
        let large = vec![0; VALUE_BYTES_MAX + 1];
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        assert!(matches!(change(&*one, |records| records.put("k", &large, 0)), Err(StateError::TooLarge(_))));
        assert!(matches!(change(&*one, |records| records.put(&long, b"", 0)), Err(StateError::TooLarge(_))));
        for (key, until) in [("old", 99), ("now", 100), ("later", 101), ("ever", FOR_GOOD)] {
            change(&*one, |records| records.put(key, b"", until)).unwrap();
        }
        assert_eq!(sweep(&*one, 100).unwrap(), 1, "{name}");
        assert_eq!(keys(&*one, ""), ["ever", "later", "now"], "{name}");
        assert_eq!(sweep(&*one, 100).unwrap(), 0, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn both_backends_do_the_same(
        steps in proptest::collection::vec(
            (proptest::collection::vec(("[a-c]/?[a-c]?", proptest::option::of(any::<u8>())), 0..4), any::<bool>()),
            0..12,
        ),
    ) {
        let pairs = backends();
        for (changes, fails) in &steps {
            for pair in &pairs {
                let result = change(&*pair.one, |records| {
                    for (key, value) in changes {
                        match value {
                            Some(value) => records.put(key, &[*value], i64::from(*value))?,
                            None => records.remove(key)?,
                        }
                    }
                    if *fails { Err(StateError::Busy) } else { Ok(()) }
                });
                prop_assert_eq!(result.is_err(), *fails);
            }
        }
        for prefix in ["", "a", "b/", "c/a"] {
            prop_assert_eq!(pairs[0].two.scan(prefix).unwrap(), pairs[1].two.scan(prefix).unwrap());
        }
    }

    #[test]
    fn odd_names_stay_one_part_of_a_key(text in any::<String>(), other in any::<String>()) {
        let part = key_part(&text);
        prop_assert!(!part.is_empty() && part.len() <= 66 && !part.contains('/'));
        prop_assert_eq!(text == other, part == key_part(&other));
    }
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
        sqlite::write_ahead(&connection).unwrap();
        let migrated = sqlite::migrate(&mut connection, &mut |number| {
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
    assert_eq!(kill_points, 5, "four statements and the version");
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
