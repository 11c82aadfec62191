//! Classifies the entries of a git directory: those that run code or redirect git, and those that git writes in ordinary work.
//!
//! The list of writable entries is closed: an entry that a future git adds counts as control until it is listed here. Writable names must
//! match exactly. Control names match folded.

use crate::fold::fold_name;

/// The class of an entry of a git directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitEntry {
    /// Git writes it in ordinary work (commit, fetch, merge). It runs nothing.
    Writable,
    /// It names programs to run, or tells git where to find them. This includes the state of a rebase, of `git am` and of a cherry-pick
    /// series: `git rebase --continue` runs the `exec` lines of its to-do list.
    Control,
}

/// Folders whose content stays writable.
pub const WRITABLE_FOLDERS: &[&str] = &["objects", "refs", "logs", "rr-cache", "reftable"];

/// Files that stay writable, by exact name.
pub const WRITABLE_FILES: &[&str] = &[
    "HEAD",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "AUTO_MERGE",
    "COMMIT_EDITMSG",
    "TAG_EDITMSG",
    "SQUASH_MSG",
    "ADD_EDIT.patch",
    "addp-hunk-edit.diff",
    "index",
    "packed-refs",
    "packed-refs.new",
    "shallow",
    "gc.log",
    "gc.pid",
];

/// Files that stay writable, by name prefix.
pub const WRITABLE_PREFIXES: &[&str] = &["index.", "sharedindex.", "MERGE_", "BISECT_", "NOTES_"];

/// Control files inside writable folders: object stores that git would read in addition to its own.
const OBJECTS_CONTROL: &[&str] = &["alternates", "http-alternates"];

/// Classifies an entry of a git directory; `below` is its path relative to that directory (`hooks/pre-commit`, `worktrees/a/HEAD`).
pub fn git_entry(below: &str) -> GitEntry {
    let parts: Vec<&str> = below.split('/').filter(|part| !part.is_empty()).collect();
    entry(&parts)
}

pub(crate) fn entry(parts: &[&str]) -> GitEntry {
    let Some((&first, rest)) = parts.split_first() else { return GitEntry::Control };
    let writable = match (first, rest) {
        ("objects", [next, name, ..]) if *fold_name(next) == *"info" => {
            let name = fold_name(name);
            !OBJECTS_CONTROL.contains(&name.strip_suffix(".lock").unwrap_or(&name))
        }
        ("lfs", [next, ..]) => ["objects", "tmp", "incomplete", "cache", "logs"].contains(next),
        ("info", [name]) => unlocked(name) == "refs" || name.starts_with("refs_"),
        // A linked worktree's own folder follows the rules of a repository. The links themselves are control.
        ("worktrees", [_, inner @ ..]) => entry(inner) == GitEntry::Writable,
        (folder, _) if WRITABLE_FOLDERS.contains(&folder) => true,
        (file, []) => {
            let file = unlocked(file);
            WRITABLE_FILES.contains(&file) || WRITABLE_PREFIXES.iter().any(|prefix| file.starts_with(prefix))
        }
        _ => false,
    };
    if writable { GitEntry::Writable } else { GitEntry::Control }
}

/// Git writes `NAME.lock` and renames it to `NAME`.
fn unlocked(name: &str) -> &str {
    name.strip_suffix(".lock").unwrap_or(name)
}

/// Control entries of a folder that has a repository's layout but isn't called `.git`. The closed list doesn't apply there, because any
/// other entry may be a project's own file.
pub const LAYOUT_CONTROL: &[&str] = &[
    "config",
    "config.worktree",
    "hooks",
    "info",
    "modules",
    "worktrees",
    "gitdir",
    "commondir",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
];

/// Whether git takes a folder with these entries for a git directory. File types don't matter: git only checks that `objects` and `refs`
/// are reachable.
pub fn is_repository(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

/// Whether adding `name` makes a folder a bare repository, or gives a bare repository a control file. `sibling` says whether the folder has
/// an entry of that name; it must return `true` if the folder can't be read.
///
/// Git takes any folder with `HEAD`, `objects` and `refs` for a repository, or with `HEAD` and a `commondir` that names where the other two
/// are. It then trusts its `config` (`core.fsmonitor` runs at `git status`) and its `hooks`.
pub fn completes_repository(name: &str, sibling: impl Fn(&str) -> bool) -> bool {
    let folded = fold_name(name);
    let folded = folded.strip_suffix(".lock").unwrap_or(&folded);
    let has = |wanted: &str| wanted.eq_ignore_ascii_case(folded) || sibling(wanted);
    let is_part = ["head", "objects", "refs"].contains(&folded) || LAYOUT_CONTROL.contains(&folded);
    is_part && is_repository(has)
}
