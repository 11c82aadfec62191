//! Guarded files and invisible characters: one list for policy, kernel, process sandbox, skills, snapshots and scanner.
//!
//! The crate is pure: it classifies names and paths and never accesses a file system. Paths are relative to the workspace (or to any other
//! folder), separated by `/`. Names are compared folded ([`fold_name`]), because on a case-insensitive or normalising file system
//! `.GIT/hooks/x` *is* `.git/hooks/x`. Folding may guard too much, but never too little.
//!
//! - [`kinds_of`] classifies a path, for policy.
//! - [`creation`] decides whether a sandboxed program may create a name in a folder. Inside `.git` it allows the files that git itself
//!   writes.
//! - [`completes_repository`] finds bare layouts: `HEAD` beside `objects` and `refs` makes any folder a repository.
//! - [`invisible`] lists the characters that a reviewer can't see.
#![forbid(unsafe_code)]

mod fold;
pub mod git;
pub mod invisible;
mod kinds;
mod places;
mod table;

pub use fold::{fold_name, fold_path};
pub use git::completes_repository;
pub use kinds::{GuardKind, Kinds};
pub use places::{EXCEPTIONS, GuardedPlace, PLACES};
pub use table::{Creation, creation, is_git_folder, is_kind, kinds_of};

#[cfg(test)]
mod tests;
