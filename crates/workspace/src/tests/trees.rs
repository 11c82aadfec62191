//! Trees that change between the survey and what follows from it.

use std::fs;
use std::path::Path;

use super::{WorkspaceFixture, symlink};
use crate::{PathError, TreeEntry, TreeError, TreeLimits, Workspace};

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
