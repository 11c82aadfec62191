//! What is shared, and what is not.

use std::sync::atomic::{AtomicUsize, Ordering};

use regent_policy::{Layer, Source};
use regent_store::{SqliteState, change, load};

use super::*;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const PLAIN: &str = "{ id: all, effect: allow }";
const LASTING: &str = "{ id: once, effect: deny, match: { tool: pay }, at_most: 1, scope: lasting }";
const SESSION: &str = "{ id: once, effect: deny, match: { tool: pay }, at_most: 1 }";
const TWO: &str = "{ id: two, effect: ask, match: { tool: pay }, approvers: 2 }";

fn policy(rule: &str) -> Policy {
    let text = format!("version: 1\nrules:\n  - {rule}\n");
    regent_policy::load(&text, &Source::new("policy.yml", Layer::User)).unwrap()
}

/// Counts commits.
#[derive(Debug)]
struct Counting(SqliteState, AtomicUsize);

impl State for Counting {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>> {
        self.0.read(partition, keys)
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>> {
        self.0.scan(partition, prefix)
    }

    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        change: Change,
    ) -> BoxFuture<'s, Result<Committed, StateError>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.commit(partition, change)
    }

    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>> {
        self.0.sweep(now_ms, max)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }
}

async fn put(state: &dyn State, key: &str, value: u8, keep_until_ms: i64) {
    let keys = [key.to_owned()];
    change(state, &Partition::containing(key), &keys, |records| {
        let _before: Option<u8> = records.load(key)?;
        records.save(key, &value, keep_until_ms)
    })
    .await
    .unwrap();
}

async fn get(state: &dyn State, key: &str) -> Option<u8> {
    load(state, key, &Partition::containing(key)).await.unwrap()
}

const QUOTA: &str = "rate/ffffffffffffffff/~0";
const ALL: [&str; 8] = [
    "examined/a/0",
    "rate/1/ada",
    "budget/day",
    "token/1",
    "history/lasting/ada",
    "question/1",
    "attention/asked",
    QUOTA,
];

#[tokio::test]
async fn only_questions_and_sessions_are_apart_and_those_only_if_no_rule_needs_others() {
    let cases = [
        (PLAIN, &["history/lasting/ada", "question/1", "attention/asked", QUOTA][..]),
        (SESSION, &["history/lasting/ada", "question/1", "attention/asked", QUOTA]),
        (LASTING, &["question/1", "attention/asked", QUOTA]),
        (TWO, &["history/lasting/ada", QUOTA]),
    ];
    for (rule, apart) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let open = || Apart::new(Arc::new(SqliteState::open(&path).unwrap()), &policy(rule));
        let (first, next) = (open(), open());
        for key in ALL {
            put(&first, key, 1, i64::MAX).await;
            assert_eq!(get(&first, key).await, Some(1), "{rule}: {key}");
            let expected = (!apart.contains(&key)).then_some(1);
            assert_eq!(get(&next, key).await, expected, "{rule}: {key}");
        }
    }
}

#[tokio::test]
async fn a_history_that_stays_the_same_is_committed_once_a_day() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteState::open(&folder.path().join("state.db")).unwrap();
    let shared = Arc::new(Counting(sqlite, AtomicUsize::new(0)));
    let state = Apart::new(Arc::clone(&shared) as Arc<dyn State>, &policy(LASTING));
    let commits = || shared.1.load(Ordering::Relaxed);
    let key = "history/lasting/ada";
    put(&state, key, 1, DAY_MS).await;
    for ms in 1..100 {
        put(&state, key, 1, DAY_MS + ms).await;
    }
    assert_eq!(commits(), 1, "nothing has changed");
    put(&state, key, 1, 2 * DAY_MS).await;
    put(&state, key, 2, 2 * DAY_MS).await;
    assert_eq!((commits(), get(&state, key).await), (3, Some(2)), "kept for longer, and changed");
}
