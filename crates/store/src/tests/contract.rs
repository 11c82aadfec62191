//! One contract for every backend.

use std::sync::{Arc, Barrier};

use proptest::prelude::*;

use crate::*;

/// Every backend twice: two handles that must see one state. The folder lives as long as the pair.
struct Pair {
    name: &'static str,
    one: Arc<dyn State>,
    two: Arc<dyn State>,
    _folder: Option<tempfile::TempDir>,
}

fn backends() -> Vec<Pair> {
    vec![
        memory(),
        #[cfg(feature = "sqlite")]
        sqlite(),
    ]
}

fn memory() -> Pair {
    let state: Arc<dyn State> = Arc::new(MemoryState::default());
    Pair { name: "memory", one: Arc::clone(&state), two: state, _folder: None }
}

#[cfg(feature = "sqlite")]
fn sqlite() -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let open = || Arc::new(SqliteState::open(&path).unwrap()) as Arc<dyn State>;
    Pair { name: "sqlite", one: open(), two: open(), _folder: Some(folder) }
}

pub(crate) fn put(state: &dyn State, key: &str, value: &[u8]) {
    change(state, |records| records.put(key, value, FOR_GOOD)).unwrap();
}

pub(crate) fn keys(state: &dyn State, prefix: &str) -> Vec<String> {
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
                            save(records, "count", &(count + 1), FOR_GOOD)
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

/// Notes what is scanned for outside of steps.
#[derive(Debug, Default)]
struct Watched(MemoryState, std::sync::Mutex<Vec<String>>);

impl State for Watched {
    fn change(&self, step: crate::Step<'_>) -> Result<(), StateError> {
        self.0.change(step)
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError> {
        self.0.get(key)
    }

    fn scan(&self, prefix: &str) -> Result<Vec<Record>, StateError> {
        self.1.lock().unwrap().push(prefix.to_owned());
        self.0.scan(prefix)
    }

    fn stale(&self, now_ms: i64) -> Result<Vec<String>, StateError> {
        self.0.stale(now_ms)
    }
}

#[test]
fn k5_a_sweep_looks_only_at_what_may_go() {
    let state = Watched::default();
    for number in 0..100 {
        change(&state, |records| records.put(&format!("kept/{number}"), b"", FOR_GOOD)).unwrap();
    }
    change(&state, |records| records.put("gone", b"", 5)).unwrap();
    assert_eq!((sweep(&state, 4).unwrap(), sweep(&state, 6).unwrap(), sweep(&state, 6).unwrap()), (0, 1, 0));
    assert_eq!(*state.1.lock().unwrap(), [""; 0], "no record was read that stays");
}

#[test]
fn k5_stale_follows_what_a_record_says_last() {
    for Pair { name, one, .. } in backends() {
        change(&*one, |records| records.put("a", b"1", 10)).unwrap();
        change(&*one, |records| records.put("b", b"1", 10)).unwrap();
        change(&*one, |records| records.put("a", b"2", 30)).unwrap();
        change(&*one, |records| records.put("c", b"1", 10)).unwrap();
        change(&*one, |records| records.remove("c")).unwrap();
        assert_eq!(one.stale(20).unwrap(), ["b"], "{name}");
        assert_eq!(one.stale(31).unwrap().len(), 2, "{name}");
        assert_eq!((sweep(&*one, 20).unwrap(), keys(&*one, "")), (1, vec!["a".to_owned()]), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn all_backends_do_the_same(
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
            for Pair { name, two, .. } in &pairs {
                prop_assert_eq!(two.scan(prefix).unwrap(), pairs[0].two.scan(prefix).unwrap(), "{}", name);
            }
        }
    }
}
