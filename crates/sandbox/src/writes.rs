//! What a program may write, by policy: what `fs.write` would be asked about or denied is refused to a program too.
//!
//! Files that are there are pinned before the launch, so that nothing changes, replaces or removes them. Names that aren't are
//! refused by the supervisor when they are made.

use core::fmt;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use regent_guard::{Creation, Kinds, creation};

use crate::survey::{Pin, Survey};

/// From so many files on, a folder that holds no file that may be written is pinned as a whole.
const PINS_MAX: usize = 1024;

type Judge = dyn FnMut(&str) -> bool + Send;

/// Says of a path, relative to the workspace, whether the program may write it.
#[derive(Clone)]
pub struct WriteRule(Arc<Mutex<Option<Box<Judge>>>>);

impl WriteRule {
    /// A rule that asks `may_write`.
    pub fn new(may_write: impl FnMut(&str) -> bool + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(may_write)))))
    }

    /// Whether the program may write this. Never, once the rule is revoked.
    pub(crate) fn allows(&self, path: &Path) -> bool {
        let mut judge = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        judge.as_mut().is_some_and(|judge| judge(&path.to_string_lossy()))
    }

    /// The supervisor may live a little longer than its run, and must not keep the kernel alive by what the rule refers to.
    pub(crate) fn revoke_when_dropped(&self) -> Revoked {
        Revoked(self.clone())
    }
}

impl fmt::Debug for WriteRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteRule")
    }
}

/// Revokes a rule when it is dropped.
#[derive(Debug)]
pub(crate) struct Revoked(WriteRule);

impl Drop for Revoked {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Whether a path is, or lies in, a `.git` folder. There the list of guarded places decides what programs write, not policy: a rule that
/// denies the folder to `fs.write` must not keep git from working.
pub(crate) fn is_in_git(path: &Path) -> bool {
    path.components().any(|part| {
        matches!(creation("", &part.as_os_str().to_string_lossy(), Kinds::UNWRITABLE),
            Creation::Guarded(place) if place.pattern == "**/.git/**")
    })
}

/// The files of a workspace by what policy says to writing them.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    refused: Vec<PathBuf>,
    /// Folders that hold a file, at whatever depth, that may be written.
    open: HashSet<PathBuf>,
}

impl Judged {
    pub(crate) fn add(&mut self, path: &Path, may_write: bool) {
        if !may_write {
            self.refused.push(path.to_path_buf());
            return;
        }
        for above in path.ancestors().skip(1) {
            if !self.open.insert(above.to_path_buf()) {
                break;
            }
        }
    }

    /// Pins what must not be written. `false`: nothing in the workspace may be.
    pub(crate) fn pin(self, survey: &mut Survey, host: &Path) -> bool {
        let fold = self.refused.len() > PINS_MAX;
        let blank: HashSet<&Path> = survey.blanks.iter().map(|blank| blank.path.as_path()).collect();
        let known: HashSet<&Path> =
            survey.pins.iter().filter(|pin| pin.read_only).map(|pin| pin.path.as_path()).collect();
        let covered =
            |path: &Path| path.ancestors().any(|above| blank.contains(above) || known.contains(above));
        let mut found = HashSet::new();
        for path in self.refused.iter().filter(|path| !covered(path)) {
            let closed = path.ancestors().take_while(|above| !self.open.contains(*above)).last();
            let pin = if fold { closed.unwrap_or(path) } else { path };
            if pin.as_os_str().is_empty() {
                return false;
            }
            // A link is no mount point; the file that it leads to is judged by its own name.
            if !host.join(pin).is_symlink() {
                found.insert(pin.to_path_buf());
            }
        }
        survey.pins.extend(found.into_iter().map(|path| Pin::new(path, true)));
        // Outer ones first.
        survey.pins.sort_by_cached_key(|pin| (pin.path.components().count(), pin.path.clone()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned(refused: &[&str], allowed: &[&str]) -> Option<Vec<String>> {
        let mut judged = Judged::default();
        refused.iter().for_each(|path| judged.add(Path::new(path), false));
        allowed.iter().for_each(|path| judged.add(Path::new(path), true));
        let mut survey = Survey::default();
        let writable = judged.pin(&mut survey, Path::new("/nowhere"));
        writable.then(|| survey.pins.iter().map(|pin| pin.path.display().to_string()).collect())
    }

    #[test]
    fn few_files_are_pinned_one_by_one_and_many_by_their_folder() {
        assert_eq!(pinned(&["a/b/x", "y"], &["a/z"]).unwrap(), ["y", "a/b/x"]);
        let many: Vec<String> = (0..=PINS_MAX).map(|at| format!("a/b/{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(pinned(&many, &["a/z"]).unwrap(), ["a/b"]);
        assert_eq!(pinned(&many, &["z"]).unwrap(), ["a"]);
        assert_eq!(pinned(&many, &[]), None);
    }

    #[test]
    fn a_revoked_rule_allows_nothing() {
        let rule = WriteRule::new(|_| true);
        assert!(rule.allows(Path::new("a")));
        drop(rule.revoke_when_dropped());
        assert!(!rule.allows(Path::new("a")));
    }
}
