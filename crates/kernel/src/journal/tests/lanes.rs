//! Resuming a task reads the lanes that were noted for it. A note that is lost, or of another ledger, costs reads and repeats nothing.

use std::io;
use std::path::Path;

use regent_ledger::storage::{Appender, Existing, Files, Lock, Stat, Storage};
use regent_store::{Partition, change};

use super::*;

/// Files, with what is read of them counted.
#[derive(Debug)]
struct Counting {
    inner: Files,
    bytes: std::sync::atomic::AtomicU64,
}

impl Counting {
    fn on(root: &Path) -> Arc<Self> {
        std::fs::create_dir_all(root).unwrap();
        Arc::new(Self { inner: Files::new(root), bytes: std::sync::atomic::AtomicU64::new(0) })
    }

    fn take(&self) -> u64 {
        self.bytes.swap(0, std::sync::atomic::Ordering::Relaxed)
    }
}

impl Storage for Counting {
    fn read(&self, path: &str, from: u64, bytes_max: u64, into: &mut Vec<u8>) -> io::Result<()> {
        self.inner.read(path, from, bytes_max, into)?;
        self.bytes.fetch_add(into.len() as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    fn stat(&self, path: &str) -> io::Result<Option<Stat>> {
        self.inner.stat(path)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.inner.list(folder)
    }

    fn create_folder(&self, path: &str) -> io::Result<bool> {
        self.inner.create_folder(path)
    }

    fn appender(&self, path: &str, existing: Existing) -> io::Result<Box<dyn Appender>> {
        self.inner.appender(path, existing)
    }

    fn sync_folder(&self, path: &str) -> io::Result<()> {
        self.inner.sync_folder(path)
    }

    fn replace(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.inner.replace(path, bytes)
    }

    fn overwrite(&self, path: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.overwrite(path, at, bytes)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn lock(&self, path: &str) -> io::Result<Option<Box<dyn Lock>>> {
        self.inner.lock(path)
    }

    fn is_locked(&self, path: &str) -> io::Result<bool> {
        self.inner.is_locked(path)
    }
}

impl Site {
    /// A kernel that has not read the task.
    async fn stranger(&self, session: &str) -> ProjectFixture {
        ProjectFixture::boot(OPEN, self.place.clone(), (session, "ada"), self.ledger()).await
    }

    /// What is noted of the task is as if it had never been.
    async fn forget(&self, world: &ProjectFixture) {
        let key = world.kernel.kernel().0.key_of(&self.task);
        let partition = Partition::containing(&key);
        change(&*self.place.state, &partition, &[], |records| {
            records.remove(&key);
            Ok(())
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn resuming_reads_the_lanes_of_the_task_and_no_others() {
    let site = Site::new();
    let first = site.boot(OPEN, "one").await;
    done(site.call(&first, "0", "a").await);
    // Each kernel that is up has a lane of its own.
    let mut others = Vec::new();
    for number in 0..6 {
        let other = site.stranger(&format!("other-{number}")).await;
        for _ in 0..40 {
            done(
                other.kernel.syscall(&other.kernel.operator(), work(json!({"text": "x".repeat(200)}))).await,
            );
        }
        others.push(other);
    }
    let storage = Counting::on(&site.place.folder.path().join("audit"));
    let key = LedgerKey::load_or_create(&site.place.folder.path().join("key")).unwrap();
    let ledger = Ledger::open_on(storage.clone(), key, Options::default()).unwrap();
    let world = ProjectFixture::boot(OPEN, site.place.clone(), ("two", "ada"), ledger).await;
    let tasks = std::slice::from_ref(&site.task);
    storage.take();
    assert_eq!(world.kernel.adopt(tasks).await.unwrap()[&site.task], 1);
    let noted = storage.take();
    site.forget(&world).await;
    assert_eq!(world.kernel.adopt(tasks).await.unwrap()[&site.task], 1);
    let all = storage.take();
    assert!(noted > 0 && noted * 3 < all, "{noted} of {all} bytes");
    done(site.call(&world, "0", "a").await);
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn a_note_is_complete_or_says_that_nobody_knows() {
    let site = Site::new();
    let first = site.boot(OPEN, "one").await;
    done(site.call(&first, "0", "a").await);
    site.forget(&first).await;
    // It has a lane of its own, and calls at a step of a task of which it has read nothing.
    let second = site.stranger("two").await;
    done(site.call(&second, "1", "b").await);
    // Both lanes have a step; a note of the second lane alone would repeat the first step.
    let third = site.boot(OPEN, "three").await;
    for (step, text) in [("0", "a"), ("1", "b")] {
        done(site.call(&third, step, text).await);
    }
    assert_eq!(third.runs(), 0);
    done(site.call(&third, "2", "c").await);
    let fourth = site.boot(OPEN, "four").await;
    for (step, text) in [("0", "a"), ("1", "b"), ("2", "c")] {
        done(site.call(&fourth, step, text).await);
    }
    assert_eq!(fourth.runs(), 0);
}

#[tokio::test]
async fn a_note_of_another_ledger_is_not_believed() {
    let site = Site::new();
    let first = site.boot(OPEN, "one").await;
    done(site.call(&first, "0", "a").await);
    let key = first.kernel.kernel().0.key_of(&site.task);
    let elsewhere = BTreeSet::from([LaneId::MAX]);
    let partition = Partition::containing(&key);
    change(&*site.place.state, &partition, &[], |records| records.save(&key, &elsewhere, i64::MAX))
        .await
        .unwrap();
    let second = site.boot(OPEN, "two").await;
    done(site.call(&second, "0", "a").await);
    assert_eq!(second.runs(), 0);
}
