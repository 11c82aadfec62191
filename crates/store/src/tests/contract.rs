//! One contract for every backend.

use std::sync::Arc;

use proptest::prelude::*;

use super::beds::*;
use crate::*;
use crate::{FOR_GOOD, KEY_BYTES_MAX, StateError, VALUE_BYTES_MAX};

fn key_check(key: &str, held: Option<&Versioned>) -> Check {
    Check::Key { key: key.to_owned(), version: held.map(|held| held.version) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_what_was_last_put_and_gone_when_removed() {
    each(async |bed: Bed| {
        let (p, other) = (partition("a"), partition("b"));
        assert_eq!(get(&*bed.one, &p, "k").await, None);
        put(&*bed.one, &p, "k", b"1").await;
        put(&*bed.two, &p, "k", &[0, 255, 10]).await;
        let held = get(&*bed.one, &p, "k").await.unwrap();
        assert_eq!((held.value.as_slice(), held.keep_until_ms), (&[0, 255, 10][..], FOR_GOOD));
        assert_eq!(get(&*bed.one, &other, "k").await, None, "a key is in its partition alone");
        let writes = ["k", "never was"].map(|key| Write::Remove { key: key.to_owned() }).to_vec();
        assert_eq!(bed.one.commit(&p, Change { checks: vec![], writes }).await, Ok(Committed::Done));
        assert_eq!(get(&*bed.two, &p, "k").await, None);
        assert_eq!(bed.two.read(&p, &[]).await, Ok(vec![]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_keeps_the_order_of_keys_and_takes_odd_ones() {
    each(async |bed: Bed| {
        let p = partition("odd {name}/\"'é");
        let names = ["z", "a", "%", "_", "\u{0}", "\u{10ffff}", "a b", "{x}", "é", "a\nb"];
        for name in names {
            put(&*bed.one, &p, name, name.as_bytes()).await;
        }
        let keys: Vec<String> = names.iter().chain(&["gone", "z"]).map(|&name| name.to_owned()).collect();
        let found = bed.two.read(&p, &keys).await.unwrap();
        let values: Vec<_> = found.into_iter().map(|held| held.map(|held| held.value)).collect();
        let expected: Vec<_> = names
            .iter()
            .map(|name| Some(name.as_bytes().to_vec()))
            .chain([None, Some(b"z".to_vec())])
            .collect();
        assert_eq!(values, expected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_gives_exactly_the_prefix_in_order_of_bytes() {
    each(async |bed: Bed| {
        let p = partition("scan");
        for key in ["b/2", "a", "b/10", "b", "b0", "c", "b/é", "b/%", "b/_", "B/1", "b/\u{10ffff}"] {
            put(&*bed.one, &p, key, key.as_bytes()).await;
            put(&*bed.one, &partition("scan2"), key, b"other").await;
        }
        let expected = ["b/%", "b/10", "b/2", "b/_", "b/é", "b/\u{10ffff}"];
        assert_eq!(keys(&*bed.two, &p, "b/").await, expected);
        assert_eq!(keys(&*bed.two, &p, "").await.len(), 11);
        assert_eq!(keys(&*bed.two, &p, "d").await, [""; 0]);
        assert_eq!(keys(&*bed.two, &partition("empty"), "").await, [""; 0]);
        let records = bed.two.scan(&p, "b/1").await.unwrap();
        let held = get(&*bed.one, &p, "b/10").await.unwrap();
        assert_eq!((records[0].version, &records[0].value), (held.version, &held.value));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_check_fails_changes_nothing() {
    each(async |bed: Bed| {
        let p = partition("checks");
        put(&*bed.one, &p, "a", b"1").await;
        let (a, none) = (get(&*bed.one, &p, "a").await.unwrap(), None);
        put(&*bed.one, &p, "b", b"1").await;
        let b = get(&*bed.one, &p, "b").await.unwrap();
        put(&*bed.two, &p, "b", b"1").await;
        let stale = key_check("b", Some(&b));
        let cases = [
            ("replaced", vec![key_check("a", Some(&a)), stale.clone()]),
            ("there, expected absent", vec![key_check("a", none)]),
            ("absent, expected there", vec![key_check("c", Some(&a))]),
            ("last of many", (0..40).map(|_| key_check("a", Some(&a))).chain([stale]).collect()),
        ];
        for (case, checks) in cases {
            let writes =
                vec![put_write("a", b"2"), put_write("new", b"2"), Write::Remove { key: "b".to_owned() }];
            let done = bed.one.commit(&p, Change { checks, writes }).await;
            assert_eq!(done, Ok(Committed::Conflict), "{case}");
        }
        assert_eq!(get(&*bed.two, &p, "a").await, Some(a.clone()));
        assert_eq!(keys(&*bed.two, &p, "").await, ["a", "b"]);
        let checks = vec![key_check("a", Some(&a)), key_check("c", none)];
        let writes = vec![put_write("a", b"2"), put_write("c", b"2")];
        assert_eq!(bed.two.commit(&p, Change { checks, writes }).await, Ok(Committed::Done));
        assert_ne!(get(&*bed.one, &p, "a").await.unwrap().version, a.version);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_without_writes_are_still_checked() {
    each(async |bed: Bed| {
        let p = partition("looks");
        put(&*bed.one, &p, "a", b"1").await;
        let a = get(&*bed.one, &p, "a").await;
        let look = || Change { checks: vec![key_check("a", a.as_ref())], writes: vec![] };
        assert_eq!(bed.two.commit(&p, look()).await, Ok(Committed::Done));
        put(&*bed.one, &p, "a", b"1").await;
        assert_eq!(bed.two.commit(&p, look()).await, Ok(Committed::Conflict));
        assert_eq!(bed.two.commit(&p, Change::default()).await, Ok(Committed::Done));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_check_finds_phantoms_replacements_and_removals() {
    each(async |bed: Bed| {
        for case in
            ["added", "replaced", "removed", "newest removed", "removed and added", "outside", "nothing"]
        {
            let p = partition(&format!("phantom {case}"));
            for key in ["x/1", "x/2", "x/3", "y"] {
                put(&*bed.one, &p, key, b"").await;
            }
            let check = Check::prefix("x/", &bed.one.scan(&p, "x/").await.unwrap());
            let remove = |key: &str| vec![Write::Remove { key: key.to_owned() }];
            let writes = match case {
                "added" => vec![put_write("x/0", b"")],
                "replaced" => vec![put_write("x/2", b"")],
                "removed" => remove("x/1"),
                "newest removed" => remove("x/3"),
                "removed and added" => [remove("x/3"), vec![put_write("x/3b", b"")]].concat(),
                "outside" => vec![put_write("y", b"2"), put_write("x", b""), put_write("x0", b"")],
                _ => vec![],
            };
            assert_eq!(bed.two.commit(&p, Change { checks: vec![], writes }).await, Ok(Committed::Done));
            let change = Change { checks: vec![check], writes: vec![put_write("seen", b"")] };
            let expected =
                if ["outside", "nothing"].contains(&case) { Committed::Done } else { Committed::Conflict };
            assert_eq!(bed.one.commit(&p, change).await, Ok(expected), "{} {case}", bed.name);
        }
        let p = partition("phantom in nothing");
        let check = Check::prefix("x/", &[]);
        put(&*bed.two, &p, "x/1", b"").await;
        let change = Change { checks: vec![check], writes: vec![put_write("seen", b"")] };
        assert_eq!(bed.one.commit(&p, change).await, Ok(Committed::Conflict));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_never_comes_back() {
    each(async |bed: Bed| {
        let p = partition("versions");
        let mut last = None;
        for round in 0..4 {
            put(&*bed.one, &p, "a", b"same").await;
            let version = get(&*bed.two, &p, "a").await.map(|held| held.version);
            assert!(version > last, "{}", bed.name);
            last = version;
            if round % 2 == 0 {
                let writes = vec![Write::Remove { key: "a".to_owned() }];
                assert_eq!(bed.two.commit(&p, Change { checks: vec![], writes }).await, Ok(Committed::Done));
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_enforced_and_the_largest_change_is_taken() {
    each(async |bed: Bed| {
        let p = partition(&"p".repeat(256));
        let large = vec![7; VALUE_BYTES_MAX];
        let long = "k".repeat(KEY_BYTES_MAX);
        let refused = [
            vec![put_write("k", &[large.as_slice(), b"x"].concat())],
            vec![put_write(&format!("{long}k"), b"")],
            vec![put_write("", b"")],
            (0..=CHANGE_WRITES_MAX).map(|number| put_write(&format!("{number}"), b"")).collect(),
            (0..13).map(|number| put_write(&format!("{number}"), &large)).collect(),
        ];
        for writes in refused {
            let done = bed.one.commit(&p, Change { checks: vec![], writes }).await;
            assert!(matches!(done, Err(StateError::TooLarge(_) | StateError::Unusable(_))), "{done:?}");
        }
        assert_eq!(keys(&*bed.two, &p, "").await, [""; 0]);
        put(&*bed.one, &p, &long, &large).await;
        assert_eq!(get(&*bed.two, &p, &long).await.unwrap().value, large);
        let checks = (0..200).map(|number| key_check(&format!("absent {number}"), None)).collect();
        let writes = (0..CHANGE_WRITES_MAX).map(|number| put_write(&format!("n{number:03}"), b"")).collect();
        assert_eq!(bed.one.commit(&p, Change { checks, writes }).await, Ok(Committed::Done));
        assert_eq!(keys(&*bed.two, &p, "n").await.len(), CHANGE_WRITES_MAX);
        let writes = (0..11).map(|number| put_write(&format!("v{number:03}"), &large)).collect();
        assert_eq!(bed.one.commit(&p, Change { checks: vec![], writes }).await, Ok(Committed::Done));
        let back = bed.two.scan(&p, "v").await.unwrap();
        assert!(back.len() == 11 && back.iter().all(|record| record.value == large));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_takes_what_may_go_and_nothing_that_was_renewed() {
    each(async |bed: Bed| {
        let until =
            |key: &str, keep_until_ms: i64| Write::Put { key: key.to_owned(), value: vec![], keep_until_ms };
        for (name, writes) in [
            ("a", vec![until("old", 99), until("now", 100), until("later", 101), until("ever", FOR_GOOD)]),
            ("a", vec![until("renewed", 5)]),
            ("a", vec![until("renewed", 500)]),
            ("b", vec![until("shortened", 500), until("one", 1), until("two", 2)]),
            ("b", vec![until("shortened", 5), until("past", -5)]),
        ] {
            assert_eq!(
                bed.one.commit(&partition(name), Change { checks: vec![], writes }).await,
                Ok(Committed::Done)
            );
        }
        assert_eq!(bed.two.sweep(100, 2).await, Ok(2), "at most so many");
        assert_eq!(bed.two.sweep(100, 100).await, Ok(3));
        assert_eq!(bed.two.sweep(100, 100).await, Ok(0));
        assert_eq!(keys(&*bed.one, &partition("a"), "").await, ["ever", "later", "now", "renewed"]);
        assert_eq!(keys(&*bed.one, &partition("b"), "").await, [""; 0]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_103_many_tasks_and_two_handles_lose_no_step() {
    const TASKS: u64 = 8;
    each(async |bed: Bed| {
        let mut tasks = Vec::new();
        for number in 0..TASKS {
            let state = Arc::clone(if number % 2 == 0 { &bed.one } else { &bed.two });
            let steps = bed.steps;
            tasks.push(tokio::spawn(async move {
                let (p, keys) = (partition("count"), ["count".to_owned()]);
                for step in 0..steps {
                    // Each step counts and leaves a mark of its own: both or neither.
                    let mark = format!("mark/{number}/{step}");
                    let counted = change(&*state, &p, &keys, |draft| {
                        let count = count_of(draft.get("count")?)?;
                        draft.put(&mark, b"", FOR_GOOD)?;
                        draft.save("count", &(count + 1), FOR_GOOD)
                    });
                    counted.await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let held = get(&*bed.one, &partition("count"), "count").await.unwrap();
        assert_eq!(count_of(Some(&held.value)), Ok(TASKS * bed.steps), "{}", bed.name);
        let marks = keys(&*bed.two, &partition("count"), "mark/").await;
        assert_eq!(marks.len() as u64, TASKS * bed.steps, "{}", bed.name);
    })
    .await;
}

/// Money that moves between two keys is never more or less than it was, for any reader at any time.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_never_sees_half_a_commit() {
    each(async |bed: Bed| {
        let p = partition("transfer");
        let accounts: [String; 2] = ["acc/a".to_owned(), "acc/b".to_owned()];
        let writes = vec![put_write("acc/a", b"100"), put_write("acc/b", b"100")];
        assert_eq!(bed.one.commit(&p, Change { checks: vec![], writes }).await, Ok(Committed::Done));
        let (state, steps) = (Arc::clone(&bed.one), bed.steps);
        let keys = accounts.clone();
        let mover = tokio::spawn(async move {
            let p = partition("transfer");
            for step in 0..steps {
                let moved = change(&*state, &p, &keys, |draft| {
                    let (a, b) = (count_of(draft.get("acc/a")?)?, count_of(draft.get("acc/b")?)?);
                    let (a, b) = if step % 3 == 0 { (a + 7, b - 7) } else { (a - 3, b + 3) };
                    draft.save("acc/a", &a, FOR_GOOD)?;
                    draft.save("acc/b", &b, FOR_GOOD)
                });
                moved.await.unwrap();
            }
        });
        let mut looks = 0;
        while !mover.is_finished() || looks < 3 {
            let read = bed.two.read(&p, &accounts).await.unwrap();
            let sum: u64 =
                read.iter().map(|held| count_of(held.as_ref().map(|held| &*held.value)).unwrap()).sum();
            assert_eq!(sum, 200, "{} read", bed.name);
            let scanned = bed.two.scan(&p, "acc/").await.unwrap();
            let sum: u64 = scanned.iter().map(|record| count_of(Some(&record.value)).unwrap()).sum();
            assert_eq!(sum, 200, "{} scan", bed.name);
            looks += 1;
        }
        mover.await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_is_there_after_all_handles_are_closed() {
    each(async |bed: Bed| {
        let Bed { name, one, two, open, _folder, .. } = bed;
        let Some(open) = open else { return };
        let p = partition("kept");
        put(&*one, &p, "a", b"1").await;
        put(&*two, &p, "b", b"2").await;
        let before = one.scan(&p, "").await.unwrap();
        drop((one, two));
        let again = open().await;
        assert_eq!(again.scan(&p, "").await.unwrap(), before, "{name}");
        put(&*again, &p, "a", b"3").await;
        assert!(get(&*again, &p, "a").await.unwrap().version > before[1].version, "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_woken_by_a_commit_of_this_and_of_another_process() {
    each(async |bed: Bed| {
        let (p, mut changes) = (partition("wake"), bed.two.changes());
        for (round, state) in [&bed.one, &bed.two, &bed.one].into_iter().enumerate() {
            changes.borrow_and_update();
            let value = format!("{round}");
            put(&**state, &p, "a", value.as_bytes()).await;
            let seen = async {
                while get(&*bed.two, &p, "a").await.is_none_or(|held| held.value != value.as_bytes()) {
                    changes.changed().await.unwrap();
                }
                // The one that is woken reads what it was woken for.
                changes.changed().await.unwrap();
            };
            let woken = tokio::time::timeout(std::time::Duration::from_secs(20), seen).await;
            assert!(woken.is_ok(), "{} round {round}", bed.name);
        }
    })
    .await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn all_backends_do_the_same(
        steps in proptest::collection::vec(
            (proptest::collection::vec(("[a-c]/?[a-c]?", proptest::option::of(any::<u8>())), 0..4), any::<bool>()),
            0..8,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let seen = std::sync::Mutex::new(Vec::new());
        runtime.block_on(each(async |bed: Bed| {
            let p = partition("same");
            let mut done = Vec::new();
            for (changes, fails) in &steps {
                let writes = changes.iter().map(|(key, value)| match value {
                    Some(value) => Write::Put { key: key.clone(), value: vec![*value], keep_until_ms: i64::from(*value) },
                    None => Write::Remove { key: key.clone() },
                });
                let checks = if *fails { vec![key_check("c/c", None), Check::prefix("a", &[])] } else { vec![] };
                done.push(bed.one.commit(&p, Change { checks, writes: writes.collect() }).await.unwrap());
            }
            let mut left = Vec::new();
            for prefix in ["", "a", "b/", "c/a"] {
                let records = bed.two.scan(&p, prefix).await.unwrap();
                left.extend(records.into_iter().map(|record| (record.key, record.value, record.keep_until_ms)));
            }
            seen.lock().unwrap().push((done, left));
        }));
        let seen = seen.into_inner().unwrap();
        prop_assert!(seen.windows(2).all(|two| two[0] == two[1]), "{:?}", seen);
    }
}
