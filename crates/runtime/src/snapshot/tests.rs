//! What a snapshot shows is what comes back, to the bit, and nothing else is touched.

mod limits;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use proptest::prelude::*;
use regent_kernel::TaskId;

use super::*;
use crate::task::{TaskRecord, TaskSpec, TaskState, TaskView};

struct Site {
    folder: tempfile::TempDir,
    store: Snapshots,
    workspace: Workspace,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("workspace");
        fs::create_dir(&root).unwrap();
        let store = Snapshots::open(&folder.path().join("store"), SnapshotOptions::default()).unwrap();
        let workspace = Workspace::open(&root).unwrap();
        Self { folder, store, workspace }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("workspace").join(path)
    }

    fn write(&self, path: &str, content: &str) {
        let place = self.path(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, content).unwrap();
    }

    fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn added_files_go_changed_ones_come_back_and_modes_are_kept() {
    let site = Site::new();
    site.write("keep.txt", "keep");
    site.write("change.sh", "old");
    site.mode("change.sh", 0o750);
    site.write("folder/gone.txt", "gone");
    site.write("was-a-file", "file");
    symlink("keep.txt", site.path("link")).unwrap();
    fs::create_dir(site.path("empty")).unwrap();
    let id = site.store.take(&site.workspace).unwrap();
    let shown = site.store.get(&id).unwrap();

    site.write("change.sh", "new");
    site.mode("change.sh", 0o600);
    fs::remove_dir_all(site.path("folder")).unwrap();
    fs::remove_dir(site.path("empty")).unwrap();
    fs::remove_file(site.path("was-a-file")).unwrap();
    site.write("was-a-file/inside", "now a folder");
    fs::remove_file(site.path("link")).unwrap();
    symlink("elsewhere", site.path("link")).unwrap();
    site.write("new/deep/file", "new");

    let restored = site.store.restore(&site.workspace, &id).unwrap();
    assert!(restored.left.is_empty(), "{restored:?}");
    assert_eq!(site.store.get(&site.store.take(&site.workspace).unwrap()).unwrap(), shown);
    assert_eq!(fs::read_to_string(site.path("change.sh")).unwrap(), "old");
    assert_eq!(fs::metadata(site.path("change.sh")).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(fs::read_link(site.path("link")).unwrap().to_str(), Some("keep.txt"));
    assert!(!restored.written.contains(&"keep.txt".to_owned()) && !site.path("new").exists());
    // And back again.
    site.store.restore(&site.workspace, &restored.before).unwrap();
    assert_eq!(fs::read_to_string(site.path("new/deep/file")).unwrap(), "new");
}

#[test]
fn what_is_left_alone_is_neither_kept_nor_removed() {
    let site = Site::new();
    site.write(".git/HEAD", "ref: refs/heads/main");
    site.write("src/main.rs", "fn main() {}");
    let id = site.store.take(&site.workspace).unwrap();
    assert!(site.store.get(&id).unwrap().items.iter().all(|item| !item.path.contains(".git")));
    site.write(".git/HEAD", "ref: refs/heads/other");
    site.write(".regent/policy.yml", "version: 1");
    site.write("vendored/.git/HEAD", "x");
    let restored = site.store.restore(&site.workspace, &id).unwrap();
    assert_eq!(fs::read_to_string(site.path(".git/HEAD")).unwrap(), "ref: refs/heads/other");
    assert!(site.path(".regent/policy.yml").exists() && site.path("vendored/.git/HEAD").exists());
    assert_eq!(restored.left, ["vendored"]);
}

#[test]
fn a_link_out_of_the_workspace_is_not_followed() {
    let site = Site::new();
    let outside = site.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, site.path("door")).unwrap();
    let id = site.store.take(&site.workspace).unwrap();
    assert_eq!(site.store.get(&id).unwrap().items.len(), 1);
    fs::remove_file(site.path("door")).unwrap();
    site.write("door/secret", "mine");
    site.store.restore(&site.workspace, &id).unwrap();
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert!(fs::symlink_metadata(site.path("door")).unwrap().is_symlink());
}

#[test]
fn damage_is_found_and_ids_are_checked() {
    let site = Site::new();
    site.write("a", "content");
    let id = site.store.take(&site.workspace).unwrap();
    site.write("a", "other");
    let blob = Digest::compute(b"content").to_string();
    fs::write(site.folder.path().join("store/blobs").join(blob), "damaged").unwrap();
    let restored = site.store.restore(&site.workspace, &id).unwrap();
    assert_eq!(restored.failed.len(), 1, "{restored:?}");
    assert!(restored.failed[0].path == "a" && restored.failed[0].why.contains("damaged"), "{restored:?}");
    assert_eq!(fs::read_to_string(site.path("a")).unwrap(), "other", "what can't be put back stays");
    for wrong in ["", "../../etc/passwd", "0123456789abcdef", "0123"] {
        assert!(matches!(site.store.get(wrong), Err(SnapshotError::Unknown(_))), "{wrong}");
    }
}

#[test]
fn limits_hold_and_what_nobody_needs_goes() {
    let site = Site::new();
    site.write("a", "12345678901");
    let small = SnapshotOptions { bytes_max: 10, ..SnapshotOptions::default() };
    let few = SnapshotOptions { items_max: 0, ..SnapshotOptions::default() };
    for (options, named) in [(small, "a"), (few, ".")] {
        let store = Snapshots::open(&site.folder.path().join("limited"), options).unwrap();
        let shown = store.get(&store.take(&site.workspace).unwrap()).unwrap();
        assert_eq!(shown.skipped, [Skipped { path: named.to_owned(), why: SnapshotSkipReason::TooLarge }]);
        assert!(shown.items.is_empty(), "{shown:?}");
    }
    let first = site.store.take(&site.workspace).unwrap();
    site.write("a", "other");
    let second = site.store.take(&site.workspace).unwrap();
    let (keep, later_ms) = (BTreeSet::from([second.clone()]), i64::MAX);
    // The content of the one file, and the list of the one folder.
    let pruned = site.store.keep_only(&keep, later_ms).unwrap();
    assert_eq!((pruned.snapshots, pruned.pieces), (1, 2));
    assert!(site.store.get(&first).is_err());
    site.store.restore(&site.workspace, &second).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_state_comes_back(before in files(), after in files()) {
        let site = Site::new();
        lay_out(&site, &before);
        let id = site.store.take(&site.workspace).unwrap();
        let shown = site.store.get(&id).unwrap();
        for entry in fs::read_dir(site.path("")).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
        lay_out(&site, &after);
        site.store.restore(&site.workspace, &id).unwrap();
        prop_assert_eq!(site.store.get(&site.store.take(&site.workspace).unwrap()).unwrap(), shown);
    }
}

fn files() -> impl Strategy<Value = BTreeMap<String, (String, bool)>> {
    prop::collection::btree_map("[ab](/[ab]){0,2}", ("[xy]{0,3}", any::<bool>()), 0..8)
}

fn lay_out(site: &Site, files: &BTreeMap<String, (String, bool)>) {
    for (path, (content, runs)) in files {
        let place = site.path(path);
        // A name can be a file or a folder, not both: the first wins.
        if place.exists() || fs::create_dir_all(place.parent().unwrap()).is_err() {
            continue;
        }
        fs::write(&place, content).unwrap();
        site.mode(path, if *runs { 0o755 } else { 0o644 });
    }
}

fn now_ms() -> i64 {
    let place = tempfile::NamedTempFile::new().unwrap();
    place.path().metadata().unwrap().mtime() * 1_000
}

#[test]
fn m5_rollback_replaces_and_removes_names_whatever_they_are() {
    let site = Site::new();
    for name in ["README.md", "sock", "linked", "src/main.rs", "turned"] {
        site.write(name, "before");
    }
    let id = site.store.take(&site.workspace).unwrap();
    let shown = site.store.get(&id).unwrap();
    let fifo = |name: &str| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, site.path(name), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    for name in ["README.md", "sock", "linked", "turned"] {
        fs::remove_file(site.path(name)).unwrap();
    }
    fifo("README.md");
    fifo("new-fifo");
    let _socket = std::os::unix::net::UnixListener::bind(site.path("sock")).unwrap();
    fs::hard_link(site.path("src/main.rs"), site.path(".x")).unwrap();
    fs::write(site.path(".x"), "after").unwrap();
    // A second name of a file outside.
    let outside = site.folder.path().join("outside.txt");
    fs::write(&outside, "outside").unwrap();
    fs::hard_link(&outside, site.path("linked")).unwrap();
    symlink(&outside, site.path("turned")).unwrap();

    let ahead = site.store.foresee(&site.workspace, &id).unwrap();
    let restored = site.store.restore(&site.workspace, &id).unwrap();
    assert!(restored.failed.is_empty() && restored.left.is_empty(), "{restored:?}");
    assert_eq!(site.store.get(&site.store.take(&site.workspace).unwrap()).unwrap(), shown);
    for name in ["README.md", "sock", "linked", "src/main.rs", "turned"] {
        assert_eq!(fs::read_to_string(site.path(name)).unwrap(), "before", "{name}");
    }
    assert!(!site.path("new-fifo").exists() && !site.path(".x").exists());
    assert_eq!(fs::read_to_string(&outside).unwrap(), "outside");
    let not_kept: Vec<&str> = restored.not_kept.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(not_kept, ["README.md", "linked", "new-fifo", "sock"]);
    assert_eq!(ahead.not_kept, restored.not_kept, "the preview reports it");
}

#[test]
fn m5_rollback_goes_on_after_an_item_that_fails_and_lists_it() {
    let site = Site::new();
    site.write("a", "before");
    site.write("b", "before too");
    let id = site.store.take(&site.workspace).unwrap();
    site.write("a", "after");
    site.write("b", "after");
    fs::remove_file(site.folder.path().join("store/blobs").join(Digest::compute(b"before").to_string()))
        .unwrap();
    let restored = site.store.restore(&site.workspace, &id).unwrap();
    let failed: Vec<&str> = restored.failed.iter().map(|missed| missed.path.as_str()).collect();
    assert_eq!((failed, restored.left), (vec!["a"], Vec::<String>::new()));
    assert_eq!(fs::read_to_string(site.path("b")).unwrap(), "before too");
}

#[test]
fn m5_permission_bits_are_not_set_through_a_link() {
    let site = Site::new();
    let outside = site.folder.path().join("outside.txt");
    fs::write(&outside, "outside").unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o600)).unwrap();
    site.write("a", "a");
    site.mode("a", 0o777);
    let (folder, name) = files::parent(&site.workspace, "a").unwrap();
    let id = site.store.take(&site.workspace).unwrap();
    let item = site.store.get(&id).unwrap().items.remove(0);
    fs::remove_file(site.path("a")).unwrap();
    symlink(&outside, site.path("a")).unwrap();
    assert!(restore::chmod(&folder, name, &item, 0o777).is_err());
    assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn d11_files_with_several_names_come_back_with_content_and_links() {
    let site = Site::new();
    site.write("one", "shared");
    fs::create_dir(site.path("deep")).unwrap();
    fs::hard_link(site.path("one"), site.path("deep/two")).unwrap();
    site.write("alone", "alone");
    let id = site.store.take(&site.workspace).unwrap();
    let shown = site.store.get(&id).unwrap();
    assert!(shown.skipped.is_empty(), "{shown:?}");
    let is_one = |site: &Site| {
        fs::metadata(site.path("one")).unwrap().ino() == fs::metadata(site.path("deep/two")).unwrap().ino()
    };
    // Removed, parted, and changed in place.
    for change in 0..3 {
        match change {
            0 => {
                fs::remove_file(site.path("one")).unwrap();
                fs::remove_file(site.path("deep/two")).unwrap();
            }
            1 => {
                fs::remove_file(site.path("deep/two")).unwrap();
                site.write("deep/two", "shared");
            }
            _last => {
                site.write("one", "changed");
                fs::hard_link(site.path("alone"), site.path("other")).unwrap();
            }
        }
        let restored = site.store.restore(&site.workspace, &id).unwrap();
        assert!(restored.failed.is_empty() && restored.left_out.is_empty(), "{change}: {restored:?}");
        assert_eq!(site.store.get(&site.store.take(&site.workspace).unwrap()).unwrap(), shown, "{change}");
        assert!(is_one(&site), "{change}");
        assert_eq!(fs::read_to_string(site.path("deep/two")).unwrap(), "shared", "{change}");
        assert_eq!(fs::metadata(site.path("alone")).unwrap().nlink(), 1, "{change}");
    }
}

#[test]
fn d11_what_no_snapshot_has_is_named_before_and_after() {
    let site = Site::new();
    let outside = site.folder.path().join("outside.txt");
    fs::write(&outside, "outside").unwrap();
    fs::hard_link(&outside, site.path("foreign")).unwrap();
    site.write("a", "before");
    let id = site.store.take(&site.workspace).unwrap();
    let content = Digest::compute(b"outside").to_string();
    assert!(
        !site.folder.path().join("store/blobs").join(content).exists(),
        "a file of elsewhere isn't copied"
    );
    site.write("a", "after");
    fs::remove_file(site.path("foreign")).unwrap();
    for restored in
        [site.store.foresee(&site.workspace, &id).unwrap(), site.store.restore(&site.workspace, &id).unwrap()]
    {
        assert_eq!(
            restored.left_out,
            [Skipped { path: "foreign".to_owned(), why: SnapshotSkipReason::HardLink }]
        );
    }
}

#[test]
fn f5_a_snapshot_reads_what_changed_and_nothing_else() {
    let site = Site::new();
    for number in 0..20 {
        site.write(&format!("folder{}/{number}", number % 4), &format!("content {number}"));
    }
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let mut read = 0_usize;
    let mut cache = SnapshotCache::default();
    let mut scan = |cache: &SnapshotCache| {
        read = 0;
        // Long after: nothing looks as if it had just changed.
        let later_ns = (i128::from(now_ms()) + 3_600_000) * 1_000_000;
        let mut keep = |_: &[u8]| {
            read += 1;
            Ok(())
        };
        let found =
            files::scan(&site.workspace, &SnapshotOptions::default(), (cache, later_ns), &mut keep).unwrap();
        (found.0, found.1, read)
    };
    let (first, known, all) = scan(&cache);
    cache.clone_from(&known);
    assert_eq!(all, 20);
    let (second, _, none) = scan(&cache);
    assert_eq!((none, &second), (0, &first));
    // The same size, and times put back: the inode's change time tells.
    site.write("folder1/1", "CONTENT 1");
    File::options().write(true).open(site.path("folder1/1")).unwrap().set_modified(old).unwrap();
    site.write("folder2/2", "content 2 and more");
    let (third, _, two) = scan(&cache);
    assert_eq!(two, 2);
    assert_ne!(third, first);
}

#[test]
fn f5_what_changed_just_now_is_read_again() {
    let site = Site::new();
    site.write("a", "one");
    let first = site.store.take(&site.workspace).unwrap();
    // The same size, within one step of the file system's clock.
    site.write("a", "two");
    assert_ne!(site.store.take(&site.workspace).unwrap(), first);
}

#[test]
fn f5_a_change_costs_the_lists_on_its_path() {
    let site = Site::new();
    for number in 0..50 {
        site.write(&format!("folder{number}/file"), &format!("content {number}"));
    }
    site.store.take(&site.workspace).unwrap();
    let pieces = || fs::read_dir(site.folder.path().join("store/blobs")).unwrap().count();
    let before = pieces();
    site.write("folder7/file", "changed");
    site.store.take(&site.workspace).unwrap();
    assert_eq!(pieces() - before, 2, "the content, and the list of its folder");
}

#[test]
fn f5_no_snapshot_has_a_secret_and_rollback_says_so() {
    let site = Site::new();
    let store = &site.store;
    site.write(".env", "PASSWORD=hunter2");
    site.write("a", "before");
    let id = store.take(&site.workspace).unwrap();
    site.write(".env", "PASSWORD=changed");
    site.write("sub/.env", "PASSWORD=new");
    site.write("a", "after");
    let restored = store.restore(&site.workspace, &id).unwrap();
    assert_eq!(restored.left_out, [Skipped { path: ".env".to_owned(), why: SnapshotSkipReason::Secret }]);
    assert_eq!(restored.left, ["sub/.env", "sub"], "what came since and is in no snapshot stays");
    assert_eq!(fs::read_to_string(site.path(".env")).unwrap(), "PASSWORD=changed", "left alone both ways");
    assert_eq!(fs::read_to_string(site.path("a")).unwrap(), "before");
    for entry in fs::read_dir(site.folder.path().join("store/blobs")).unwrap() {
        let content = fs::read(entry.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&content).contains("PASSWORD"), "a secret in clear");
    }
}

#[test]
fn f5_young_snapshots_and_those_of_tasks_that_go_on_are_kept() {
    let site = Site::new();
    site.write("a", "one");
    let id = site.store.take(&site.workspace).unwrap();
    let pruned = site.store.keep_only(&BTreeSet::new(), now_ms()).unwrap();
    assert_eq!((pruned.snapshots, site.store.get(&id).is_ok()), (0, true), "it may not be in the ledger yet");
    let view = |task: &str, state: TaskState, changed_ms: i64| {
        let record = TaskRecord {
            task: TaskId::new(task).unwrap(),
            spec: TaskSpec::new("x"),
            seed: String::new(),
            tools: BTreeMap::new(),
            ancestors: Vec::new(),
            said: Vec::new(),
        };
        TaskView {
            record,
            state,
            why: None,
            stopped: false,
            until_ms: None,
            question: None,
            answer: None,
            unverified: None,
            exchanges: Vec::new(),
            agent: None,
            created_ms: 0,
            changed_ms,
            steps: 0,
            runs: 1,
            spent: regent_kernel::Spent::default(),
            used: crate::door::TaskUsage::default(),
            snapshots: vec![(task.to_owned(), "0".to_owned())],
        }
    };
    let day_ms = 86_400_000;
    let tasks = [
        view("waits", TaskState::Pending, 0),
        view("old", TaskState::Finalized, 1),
        view("older", TaskState::Finalized, 0),
        view("recent", TaskState::Finalized, 99 * day_ms),
    ];
    let kept = Retention { tasks_min: 2, days: 2 }.kept(&tasks, 100 * day_ms);
    assert_eq!(kept, BTreeSet::from(["waits".to_owned(), "old".to_owned(), "recent".to_owned()]));
    assert_eq!(
        Retention { tasks_min: 0, days: 0 }.kept(&tasks, 100 * day_ms),
        BTreeSet::from(["waits".to_owned()])
    );
}

#[test]
fn f5_a_restore_that_a_crash_interrupted_is_made_again_and_can_be_undone() {
    let site = Site::new();
    site.write("a", "one");
    site.write("b", "one");
    let id = site.store.take(&site.workspace).unwrap();
    site.write("a", "two");
    site.write("b", "two");
    let before = site.store.foresee(&site.workspace, &id).unwrap().before;
    // Half of it was done when the process died.
    site.write("a", "one");
    let restored = site.store.restore_from(&site.workspace, &id, &before).unwrap();
    assert_eq!((restored.written, restored.before.as_str()), (vec!["b".to_owned()], before.as_str()));
    site.store.restore(&site.workspace, &before).unwrap();
    let read = |name: &str| fs::read_to_string(site.path(name)).unwrap();
    assert_eq!((read("a"), read("b")), ("two".to_owned(), "two".to_owned()));
    assert!(matches!(
        site.store.restore_from(&site.workspace, &id, "0123456789abcdef"),
        Err(SnapshotError::Unknown(_))
    ));
}
