//! The loop that users write against: what it reads, when it runs a step again, and when it gives up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use super::beds::*;
use crate::*;
use crate::{FOR_GOOD, MemoryState, StateError};

/// A state in which others commit before each commit of ours, so many times.
#[derive(Debug, Default)]
struct Contended {
    inner: MemoryState,
    others: AtomicUsize,
    reads: AtomicUsize,
    commits: AtomicUsize,
}

impl State for Contended {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        State::read(&self.inner, partition, keys)
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        State::scan(&self.inner, partition, prefix)
    }

    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        change: Change,
    ) -> BoxFuture<'s, Result<Committed, StateError>> {
        Box::pin(async move {
            self.commits.fetch_add(1, Ordering::SeqCst);
            let left =
                self.others.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if let Ok(left) = left {
                put(&self.inner, partition, "others/last", format!("{left}").as_bytes()).await;
            }
            self.inner.commit(partition, change).await
        })
    }

    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>> {
        State::sweep(&self.inner, now_ms, max)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }
}

fn contended(others: usize) -> Contended {
    Contended { others: AtomicUsize::new(others), ..Contended::default() }
}

#[tokio::test]
async fn a_step_runs_again_after_each_conflict_and_sees_what_the_other_wrote() {
    let (state, p) = (contended(3), partition("p"));
    let mut runs = 0;
    let seen = change(&state, &p, &[], |draft| {
        runs += 1;
        let others = draft.get("others/last")?.map(<[u8]>::to_vec);
        draft.put("mine", b"", FOR_GOOD)?;
        Ok(others)
    });
    assert_eq!(seen.await, Ok(Some(b"1".to_vec())));
    // Once to learn what it reads, then once an attempt.
    assert_eq!((runs, state.commits.load(Ordering::SeqCst)), (5, 4));
}

#[tokio::test]
async fn a_step_that_always_meets_others_ends_as_busy() {
    let (state, p) = (contended(usize::MAX), partition("p"));
    let blind =
        change(&state, &p, &["others/last".to_owned()], |draft| draft.put("mine", b"", FOR_GOOD)).await;
    assert_eq!(blind, Err(StateError::Busy));
    assert_eq!(get(&state.inner, &p, "mine").await, None);
}

#[tokio::test]
async fn a_step_without_writes_commits_nothing_if_it_read_at_once() {
    let (state, p) = (contended(0), partition("p"));
    let keys = ["a".to_owned(), "b".to_owned()];
    let read = transact(&state, &p, &keys, |snapshot| Ok((snapshot.get("a")?.is_none(), vec![]))).await;
    assert_eq!((read, state.commits.load(Ordering::SeqCst)), (Ok(true), 0));
    // Two reads are one snapshot only if a commit of their checks says so.
    let keys = ["a".to_owned()];
    let both = change(&state, &p, &keys, |draft| {
        Ok(draft.scan("x/")?.len() + draft.get("a")?.map_or(0, <[u8]>::len))
    });
    assert_eq!((both.await, state.commits.load(Ordering::SeqCst)), (Ok(0), 1));
}

#[tokio::test]
async fn an_error_of_a_step_that_saw_two_moments_is_not_believed() {
    let (state, p) = (contended(1), partition("p"));
    put(&state.inner, &p, "others/last", b"first").await;
    // It reads `x`, then `others/last`, which changes before the reads are confirmed.
    let mut errors = 0;
    let keys = ["x".to_owned()];
    let result = change(&state, &p, &keys, |draft| {
        draft.get("x")?;
        match draft.get("others/last")? {
            Some(b"first") => {
                errors += 1;
                Err(StateError::Corrupt("it looked wrong".to_owned()))
            }
            _ => Ok("right"),
        }
    });
    assert_eq!(result.await, Ok("right"));
    assert_eq!(errors, 1);
}

#[tokio::test]
async fn a_draft_sees_its_own_writes_and_an_unchanged_record_is_not_written() {
    let (state, p) = (contended(0), partition("p"));
    put(&state.inner, &p, "x/1", b"1").await;
    put(&state.inner, &p, "x/2", b"2").await;
    let version = get(&state.inner, &p, "x/2").await.unwrap().version;
    let seen = change(&state, &p, &[], |draft| {
        draft.scan("x/")?;
        draft.put("x/3", b"3", FOR_GOOD)?;
        draft.put("x/2", b"2", FOR_GOOD)?;
        draft.remove("x/1");
        assert_eq!((draft.get("x/1")?, draft.get("x/3")?), (None, Some(&b"3"[..])));
        Ok(draft.scan("x/")?.into_iter().map(|(key, _)| key).collect::<Vec<_>>())
    });
    assert_eq!(seen.await.unwrap(), ["x/2", "x/3"]);
    assert_eq!(keys(&state.inner, &p, "").await, ["x/2", "x/3"]);
    assert_eq!(get(&state.inner, &p, "x/2").await.unwrap().version, version);
}

#[tokio::test]
async fn phantoms_between_read_and_commit_are_found_by_the_loop() {
    let (state, p) = (contended(1), partition("p"));
    let counted = change(&state, &p, &[], |draft| {
        let count = draft.scan("others/")?.len();
        draft.put("sum", format!("{count}").as_bytes(), FOR_GOOD)?;
        Ok(count)
    });
    assert_eq!(counted.await, Ok(1), "the record that came in between was counted");
}

#[tokio::test]
async fn a_step_that_never_stops_reading_is_refused() {
    let (state, p) = (contended(0), partition("p"));
    let mut number = 0;
    let endless = change(&state, &p, &[], |draft| {
        number += 1;
        draft.get(&format!("{number}")).map(|_| ())
    });
    assert!(matches!(endless.await, Err(StateError::Unusable(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loop_can_be_spawned() {
    let state: Arc<dyn State> = Arc::new(MemoryState::default());
    let task = tokio::spawn(async move {
        change(&*state, &partition("p"), &[], |draft| draft.save("a", &1, FOR_GOOD)).await
    });
    assert_eq!(task.await.unwrap(), Ok(()));
}
