//! Trees that change between the survey and what follows from it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::FlockOperation;

use super::{WorkspaceFixture, symlink};
use crate::{PathError, Placement, TreeEntry, TreeError, TreeLimits, Workspace};

const LIMITS: TreeLimits = TreeLimits { entries_max: 100, bytes_max: 1 << 20 };

type Change = fn(&Path);

/// Every path in the workspace with what it is, unfinished copies included.
fn everything(workspace: &Workspace) -> Vec<String> {
    fn add(folder: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => {
                    found.push(format!("{name}/"));
                    add(&path, root, found);
                }
                kind if kind.is_symlink() => {
                    found.push(format!("{name} -> {}", fs::read_link(&path).unwrap().display()));
                }
                _ => found.push(format!("{name}={}", fs::read_to_string(&path).unwrap())),
            }
        }
    }
    let mut found = Vec::new();
    add(workspace.root(), workspace.root(), &mut found);
    found.sort();
    found
}

/// `tree` holds a file, a folder with a file, and a link; `file` is a file.
fn planted() -> WorkspaceFixture {
    let place = WorkspaceFixture::new();
    let root = place.workspace.root();
    fs::create_dir_all(root.join("tree/deep")).unwrap();
    fs::write(root.join("tree/one"), "1").unwrap();
    fs::write(root.join("tree/deep/two"), "2").unwrap();
    symlink("one", root.join("tree/link")).unwrap();
    place
}

fn surveyed(place: &WorkspaceFixture, path: &str) -> Vec<TreeEntry> {
    place.workspace.survey(path, LIMITS).unwrap()
}

/// Another file of the same size and content under the same name.
fn swap(path: &Path) {
    let other = path.with_extension("other");
    fs::copy(path, &other).unwrap();
    fs::rename(&other, path).unwrap();
}

fn changed(name: &str) -> TreeError {
    TreeError { name: name.to_owned(), why: PathError::Changed }
}

#[test]
fn a_removal_leaves_what_was_swapped_in() {
    let cases: [(&str, &str, Change); 3] = [
        ("file", "file", |root| swap(&root.join("file"))),
        ("tree", "tree/one", |root| swap(&root.join("tree/one"))),
        ("tree", "tree/one", |root| {
            fs::remove_file(root.join("tree/one")).unwrap();
            symlink("deep/two", root.join("tree/one")).unwrap();
        }),
    ];
    for (tree, at, change) in cases {
        let place = planted();
        let entries = surveyed(&place, tree);
        change(place.workspace.root());
        let before = everything(&place.workspace);
        let error = place.workspace.remove_tree(&entries).unwrap_err();
        assert_eq!((error.removed, error.cause), (0, changed(at)), "{tree}");
        assert_eq!(everything(&place.workspace), before, "{tree}");
    }
}

#[test]
fn a_removal_that_ends_early_says_how_many_entries_are_gone() {
    let place = planted();
    let entries = surveyed(&place, "tree");
    fs::write(place.workspace.root().join("tree/deep/new"), "new").unwrap();
    let error = place.workspace.remove_tree(&entries).unwrap_err();
    assert_eq!((error.removed, error.cause), (3, changed("tree/deep")));
    let left: Vec<_> =
        everything(&place.workspace).into_iter().filter(|line| line.starts_with("tree")).collect();
    assert_eq!(left, ["tree/", "tree/deep/", "tree/deep/new=new"]);
}

#[test]
fn a_move_puts_back_what_changed_since_the_survey() {
    let cases: [(&str, &str, Change); 5] = [
        ("added", "tree", |root| fs::write(root.join("tree/deep/new"), "new").unwrap()),
        ("removed", "tree", |root| fs::remove_file(root.join("tree/deep/two")).unwrap()),
        ("swapped below", "tree", |root| swap(&root.join("tree/deep/two"))),
        ("swapped itself", "file", |root| swap(&root.join("file"))),
        ("another name", "file", |root| fs::hard_link(root.join("file"), root.join("twin")).unwrap()),
    ];
    for (what, tree, change) in cases {
        for how in [Placement::Create, Placement::Replace] {
            let place = planted();
            let entries = surveyed(&place, tree);
            change(place.workspace.root());
            let before = everything(&place.workspace);
            let moved = place.workspace.rename_to(&entries, "moved", how);
            assert_eq!(moved, Err(changed(tree)), "{what}, {how:?}");
            assert_eq!(everything(&place.workspace), before, "{what}, {how:?}");
        }
    }
}

#[test]
fn a_move_does_not_touch_a_file_that_was_swapped_in() {
    let place = planted();
    let root = place.workspace.root();
    let entries = surveyed(&place, "file");
    swap(&root.join("file"));
    // A rename would set this, also one that is undone.
    File::open(root).unwrap().set_modified(UNIX_EPOCH).unwrap();
    let moved = place.workspace.rename_to(&entries, "moved", Placement::Create);
    assert_eq!(moved, Err(changed("file")));
    assert_eq!(fs::metadata(root).unwrap().modified().unwrap(), UNIX_EPOCH);
}

#[test]
fn a_move_that_is_refused_keeps_the_file_at_its_target() {
    let place = planted();
    let root = place.workspace.root();
    let entries = surveyed(&place, "file");
    fs::hard_link(root.join("file"), root.join("twin")).unwrap();
    let before = everything(&place.workspace);
    let moved = place.workspace.rename_to(&entries, "tree/one", Placement::Replace);
    assert_eq!(moved, Err(changed("file")));
    assert_eq!(everything(&place.workspace), before);
}

#[test]
fn a_move_that_replaces_a_file_leaves_one_file() {
    let place = planted();
    let expected: Vec<_> = everything(&place.workspace)
        .into_iter()
        .filter(|line| !line.starts_with("file="))
        .map(|line| line.replace("tree/one=1", "tree/one=inside"))
        .collect();
    let entries = surveyed(&place, "file");
    place.workspace.rename_to(&entries, "tree/one", Placement::Replace).unwrap();
    assert_eq!(everything(&place.workspace), expected);
}

#[test]
fn a_copy_holds_no_content_that_was_not_surveyed() {
    let cases: [(&str, &str, Change); 4] = [
        ("file", "file", |root| fs::write(root.join("file"), "another").unwrap()),
        ("file", "file", |root| swap(&root.join("file"))),
        ("tree", "tree/deep/two", |root| fs::write(root.join("tree/deep/two"), "another").unwrap()),
        ("tree", "tree/deep/two", |root| swap(&root.join("tree/deep/two"))),
    ];
    for (tree, at, change) in cases {
        let place = planted();
        let entries = surveyed(&place, tree);
        change(place.workspace.root());
        let before = everything(&place.workspace);
        let copied = place.workspace.copy_tree(&entries, "copy", Placement::Create, LIMITS);
        assert_eq!(copied, Err(changed(at)), "{tree}");
        assert_eq!(everything(&place.workspace), before, "{tree}");
        let entries = surveyed(&place, tree);
        place.workspace.copy_tree(&entries, "copy", Placement::Create, LIMITS).unwrap();
    }
}

/// The folder that a copy is built in, once it is complete.
fn complete_draft(root: &Path) -> Option<PathBuf> {
    let mut drafts = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    // The entry that is copied last.
    drafts.find(|path| path.extension().is_some_and(|end| end == "tmp") && path.join("one").exists())
}

#[test]
fn a_copy_that_gains_an_entry_disappears() {
    let changes: [Change; 2] = [
        |draft| fs::write(draft.join("new"), "new").unwrap(),
        |draft| {
            fs::remove_file(draft.join("link")).unwrap();
            symlink("/etc/passwd", draft.join("link")).unwrap();
        },
    ];
    for change in changes {
        let place = planted();
        let (workspace, entries) = (&place.workspace, surveyed(&place, "tree"));
        let before = everything(workspace);
        // A copy appears under the lock of its folder: it can't before this is released.
        let folder = File::open(workspace.root()).unwrap();
        rustix::fs::flock(&folder, FlockOperation::LockExclusive).unwrap();
        let copied = std::thread::scope(|scope| {
            let copying = scope.spawn(|| workspace.copy_tree(&entries, "copy", Placement::Create, LIMITS));
            let draft = loop {
                assert!(!copying.is_finished(), "the copy ended before it could change");
                if let Some(draft) = complete_draft(workspace.root()) {
                    break draft;
                }
                std::thread::yield_now();
            };
            change(&draft);
            rustix::fs::flock(&folder, FlockOperation::Unlock).unwrap();
            copying.join().unwrap()
        });
        assert_eq!(copied, Err(changed("tree")));
        assert_eq!(everything(workspace), before);
    }
}
