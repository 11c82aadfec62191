//! Why a name is refused: the list of guarded places has it, policy asks about or denies writing it, or a folder can't be searched.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use regent_guard::{Creation, GuardKind, Kinds, creation, kinds_of};

use crate::survey::Guards;
use crate::writes::{WriteRule, is_in_git};

/// A name that the program may not make, write or move.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The list of guarded places has it.
    Guarded(PathBuf),
    /// `fs.write` would be asked about or denied it. The path is relative to the workspace.
    Policy(PathBuf),
    /// A folder that is too large to be searched before it is moved.
    Unsearched(PathBuf),
}

/// What policy says to writing during a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct WritePolicy<'a> {
    pub rule: &'a WriteRule,
    pub guards: &'a Guards,
}

impl WritePolicy<'_> {
    /// Whether a path must not be written, under any name that a link gives it. What is in a `.git` folder git writes in ordinary work;
    /// the list knows which of it steers git.
    pub(super) fn refuses(self, path: &Path) -> bool {
        let refuses = |path: &Path| !is_in_git(path) && !self.rule.allows(path);
        refuses(path) || self.guards.by_links(path).any(|path| refuses(&path))
    }

    /// Whether a link at this path would stand for a folder in which policy refuses something: by its own patterns, or by the table.
    pub(super) fn is_refused_below(self, path: &Path) -> bool {
        if self.rule.examples_below(path).iter().any(|example| self.refuses(Path::new(example))) {
            return true;
        }
        let parent = path.parent().map(Path::to_string_lossy).unwrap_or_default();
        let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
        GuardKind::ALL.into_iter().any(|kind| {
            let Creation::OnTheWay(place) = creation(&parent, &name, Kinds::from(kind)) else { return false };
            let pattern = place.pattern.trim_start_matches("**/").replace("**", "x").replace('*', "x");
            let names: Vec<&str> = pattern.split('/').collect();
            (1..names.len()).any(|at| {
                let example = path.join(names.get(at..).unwrap_or_default().join("/"));
                kinds_of(&example.to_string_lossy()).contains(kind) && self.refuses(&example)
            })
        })
    }
}
