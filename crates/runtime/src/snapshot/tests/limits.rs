//! What is too large, too deep or too much is named and left alone; nobody makes a rollback impossible with it.

use super::*;

/// Rolls back and demands that the user's files are as they were.
fn rolled_back(site: &Site, id: &str) -> Restored {
    let foreseen = site.store.foresee(&site.workspace, id).unwrap();
    let restored = site.store.restore(&site.workspace, id).unwrap();
    assert_eq!(fs::read_to_string(site.path("notes.txt")).unwrap(), "the user's");
    assert_eq!(fs::read_to_string(site.path("src/main.rs")).unwrap(), "fn main() {}");
    assert!(restored.failed.is_empty(), "{restored:?}");
    assert!(foreseen.left.iter().all(|path| restored.left.contains(path)), "{foreseen:?} {restored:?}");
    restored
}

fn users() -> (Site, String) {
    let site = Site::new();
    site.write("notes.txt", "the user's");
    site.write("src/main.rs", "fn main() {}");
    let id = site.store.take(&site.workspace).unwrap();
    site.write("notes.txt", "the agent's");
    fs::remove_dir_all(site.path("src")).unwrap();
    (site, id)
}

#[test]
fn m5_folders_that_are_too_deep_do_not_stop_a_rollback() {
    let (site, id) = users();
    let mut deep = site.path("deep");
    fs::create_dir(&deep).unwrap();
    for _ in 0..300 {
        deep.push("d");
        fs::create_dir(&deep).unwrap();
    }
    let after = site.store.get(&site.store.take(&site.workspace).unwrap()).unwrap();
    assert_eq!(after.skipped.len(), 1);
    let restored = rolled_back(&site, &id);
    assert!(restored.left.iter().any(|path| path.len() > 256 && path.starts_with("deep/d")), "{restored:?}");
}

#[test]
fn m5_too_many_files_do_not_stop_a_rollback() {
    let folder = tempfile::tempdir().unwrap();
    let options = SnapshotOptions { items_max: 20, ..SnapshotOptions::default() };
    let (site, _) = users();
    let site = Site { store: Snapshots::open(folder.path(), options).unwrap(), ..site };
    site.write("notes.txt", "the user's");
    site.write("src/main.rs", "fn main() {}");
    let id = site.store.take(&site.workspace).unwrap();
    site.write("notes.txt", "the agent's");
    (0..50).for_each(|number| site.write(&format!("aaa/{number:02}"), "x"));
    let restored = rolled_back(&site, &id);
    assert!(restored.not_kept.iter().any(|one| one.why == SnapshotSkipReason::TooLarge), "{restored:?}");
}

#[test]
fn m5_a_sparse_file_does_not_stop_a_rollback_and_is_not_read() {
    let (site, id) = users();
    fs::File::create(site.path("big")).unwrap().set_len(5 << 30).unwrap();
    (0..5).for_each(|number| {
        fs::File::create(site.path(&format!("big{number}"))).unwrap().set_len(1000 << 20).unwrap();
    });
    fs::File::create(site.path("notes.txt")).unwrap().set_len(5 << 30).unwrap();
    let began = std::time::Instant::now();
    let restored = rolled_back(&site, &id);
    assert!(began.elapsed().as_secs() < 10, "they were read");
    assert!(
        restored.left.contains(&"big".to_owned()) && restored.left.contains(&"big3".to_owned()),
        "{restored:?}"
    );
    assert!(restored.not_kept.iter().any(|one| one.path == "notes.txt"), "{restored:?}");
    assert!(site.path("big").exists(), "what no snapshot has isn't removed");
}

#[test]
fn m5_a_folder_in_the_place_of_a_file_is_moved_aside_if_it_cannot_be_removed() {
    let (site, id) = users();
    fs::remove_file(site.path("notes.txt")).unwrap();
    fs::create_dir(site.path("notes.txt")).unwrap();
    fs::File::create(site.path("notes.txt/big")).unwrap().set_len(5 << 30).unwrap();
    let restored = rolled_back(&site, &id);
    let aside = restored.left.iter().find(|path| path.starts_with("notes.txt.aside-")).unwrap();
    assert!(site.path(aside).join("big").exists());
    assert!(!restored.left.contains(&"notes.txt".to_owned()), "{restored:?}");
}

#[test]
fn what_a_snapshot_could_not_look_into_is_not_removed() {
    let site = Site::new();
    site.write("a", "1");
    site.write("b/c", "2");
    let folder = tempfile::tempdir().unwrap();
    let few = SnapshotOptions { items_max: 1, ..SnapshotOptions::default() };
    let id = Snapshots::open(folder.path(), few).unwrap().take(&site.workspace).unwrap();
    let store = Snapshots::open(folder.path(), SnapshotOptions::default()).unwrap();
    let restored = store.restore(&site.workspace, &id).unwrap();
    assert!(restored.removed.is_empty(), "{restored:?}");
    assert_eq!(fs::read_to_string(site.path("b/c")).unwrap(), "2");
}
