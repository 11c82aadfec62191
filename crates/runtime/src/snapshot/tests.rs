//! What a picture shows is what comes back, to the bit, and nothing else is touched.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use proptest::prelude::*;

use super::*;

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

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("workspace").join(path)
    }

    fn write(&self, path: &str, content: &str) {
        let place = self.at(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, content).unwrap();
    }

    fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode)).unwrap();
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
    symlink("keep.txt", site.at("link")).unwrap();
    fs::create_dir(site.at("empty")).unwrap();
    let id = site.store.take(&site.workspace).unwrap();
    let shown = site.store.get(&id).unwrap();

    site.write("change.sh", "new");
    site.mode("change.sh", 0o600);
    fs::remove_dir_all(site.at("folder")).unwrap();
    fs::remove_dir(site.at("empty")).unwrap();
    fs::remove_file(site.at("was-a-file")).unwrap();
    site.write("was-a-file/inside", "now a folder");
    fs::remove_file(site.at("link")).unwrap();
    symlink("elsewhere", site.at("link")).unwrap();
    site.write("new/deep/file", "new");

    let restored = site.store.restore(&site.workspace, &id).unwrap();
    assert!(restored.left.is_empty(), "{restored:?}");
    assert_eq!(site.store.get(&site.store.take(&site.workspace).unwrap()).unwrap(), shown);
    assert_eq!(fs::read_to_string(site.at("change.sh")).unwrap(), "old");
    assert_eq!(fs::metadata(site.at("change.sh")).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(fs::read_link(site.at("link")).unwrap().to_str(), Some("keep.txt"));
    assert!(!restored.written.contains(&"keep.txt".to_owned()) && !site.at("new").exists());
    // And back again.
    site.store.restore(&site.workspace, &restored.before).unwrap();
    assert_eq!(fs::read_to_string(site.at("new/deep/file")).unwrap(), "new");
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
    assert_eq!(fs::read_to_string(site.at(".git/HEAD")).unwrap(), "ref: refs/heads/other");
    assert!(site.at(".regent/policy.yml").exists() && site.at("vendored/.git/HEAD").exists());
    assert_eq!(restored.left, ["vendored"]);
}

#[test]
fn a_link_out_of_the_workspace_is_not_followed() {
    let site = Site::new();
    let outside = site.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, site.at("door")).unwrap();
    let id = site.store.take(&site.workspace).unwrap();
    assert_eq!(site.store.get(&id).unwrap().items.len(), 1);
    fs::remove_file(site.at("door")).unwrap();
    site.write("door/secret", "mine");
    site.store.restore(&site.workspace, &id).unwrap();
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert!(fs::symlink_metadata(site.at("door")).unwrap().is_symlink());
}

#[test]
fn damage_is_found_and_ids_are_checked() {
    let site = Site::new();
    site.write("a", "content");
    let id = site.store.take(&site.workspace).unwrap();
    site.write("a", "other");
    let blob = fs::read_dir(site.folder.path().join("store/blobs")).unwrap().next().unwrap().unwrap().path();
    fs::write(blob, "damaged").unwrap();
    assert!(matches!(site.store.restore(&site.workspace, &id), Err(SnapshotError::Damaged(_))));
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
    for options in [small, few] {
        let store = Snapshots::open(&site.folder.path().join("limited"), options).unwrap();
        assert!(matches!(store.take(&site.workspace), Err(SnapshotError::TooLarge(_))));
    }
    let first = site.store.take(&site.workspace).unwrap();
    site.write("a", "other");
    let second = site.store.take(&site.workspace).unwrap();
    assert_eq!(site.store.keep_only(&BTreeSet::from([second.clone()])).unwrap(), 1);
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
        for entry in fs::read_dir(site.at("")).unwrap() {
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
        let place = site.at(path);
        // A name can be a file or a folder, not both: the first wins.
        if place.exists() || fs::create_dir_all(place.parent().unwrap()).is_err() {
            continue;
        }
        fs::write(&place, content).unwrap();
        site.mode(path, if *runs { 0o755 } else { 0o644 });
    }
}
