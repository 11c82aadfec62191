//! What a program may write, by policy: what `fs.write` would be asked about or denied is refused to a program too.
//!
//! Files that are there are pinned before the launch, so that nothing changes, replaces or removes them. Names that aren't are
//! refused by the supervisor when they are made.

use core::fmt;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use regent_guard::is_git_folder;
use regent_kernel::FileJudge;

use crate::survey::{Pin, Survey};

/// From so many files on, a folder that holds no file that may be written is pinned as a whole.
const PINS_MAX: usize = 1024;

/// Says of a path, relative to the workspace, whether the program may write it.
#[derive(Clone)]
pub struct WriteRule(Arc<Mutex<Option<PrefixedJudge>>>);

struct PrefixedJudge {
    judge: FileJudge,
    /// The path from the root that policy uses to the folder that the program works in.
    prefix: String,
}

impl WriteRule {
    /// The rule of policy. `prefix` is the way from the workspace to the folder that the program works in.
    pub(crate) fn new(judge: FileJudge, prefix: String) -> Self {
        Self(Arc::new(Mutex::new(Some(PrefixedJudge { judge, prefix }))))
    }

    /// Whether the program may write this. Never, once the rule is revoked.
    pub(crate) fn allows(&self, path: &Path) -> bool {
        let mut rule = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(PrefixedJudge { judge, prefix }) = rule.as_mut() else { return false };
        judge.allows(&format!("{prefix}{}", path.to_string_lossy()))
    }

    /// Whether there is anything that the program may not write.
    pub(crate) fn may_refuse(&self) -> bool {
        let rule = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rule.as_ref().is_none_or(|rule| rule.judge.may_refuse())
    }

    /// Paths below this one that a rule may be about because of where this one lies.
    pub(crate) fn examples_below(&self, path: &Path) -> Vec<PathBuf> {
        let rule = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(PrefixedJudge { judge, prefix }) = rule.as_ref() else { return Vec::new() };
        let whole = judge.examples_below(&format!("{prefix}{}", path.to_string_lossy()));
        whole.iter().filter_map(|path| path.strip_prefix(prefix.as_str())).map(PathBuf::from).collect()
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
    path.components().any(|part| is_git_folder(&part.as_os_str().to_string_lossy()))
}

/// The files of a workspace by what policy says to writing them.
#[derive(Debug, Default)]
pub(crate) struct JudgedFiles {
    refused: Vec<PathBuf>,
    /// Folders that hold a file, at whatever depth, that may be written.
    open: HashSet<PathBuf>,
}

impl JudgedFiles {
    pub(crate) fn add(&mut self, path: &Path, may_write: bool) {
        if !may_write {
            self.refused.push(path.to_path_buf());
            return;
        }
        for above in path.ancestors().skip(1) {
            if self.open.contains(above) {
                break;
            }
            self.open.insert(above.to_path_buf());
        }
    }

    /// Pins what must not be written, and keeps it where it is. `false`: nothing in the workspace may be written.
    pub(crate) fn pin(self, survey: &mut Survey) -> bool {
        let fold = self.refused.len() > PINS_MAX;
        let blank: HashSet<&Path> = survey.blanks.iter().map(|blank| blank.path.as_path()).collect();
        let known: HashSet<&Path> =
            survey.pins.iter().filter(|pin| pin.read_only).map(|pin| pin.path.as_path()).collect();
        let covered =
            |path: &Path| path.ancestors().any(|above| blank.contains(above) || known.contains(above));
        let mut found = HashSet::new();
        for path in &self.refused {
            survey.guards.keep_for_policy(path);
            if covered(path) {
                continue;
            }
            let closed = path.ancestors().take_while(|above| !self.open.contains(*above)).last();
            let pin = if fold { closed.unwrap_or(path) } else { path };
            if pin.as_os_str().is_empty() {
                return false;
            }
            found.insert(pin.to_path_buf());
        }
        survey.pins.extend(found.into_iter().map(|path| Pin::new(path, true)));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned(refused: &[&str], allowed: &[&str]) -> Option<Vec<String>> {
        let mut judged = JudgedFiles::default();
        refused.iter().for_each(|path| judged.add(Path::new(path), false));
        allowed.iter().for_each(|path| judged.add(Path::new(path), true));
        let mut survey = Survey::default();
        let writable = judged.pin(&mut survey);
        survey.tidy();
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
        let revoked = WriteRule(Arc::new(Mutex::new(None)));
        assert!(!revoked.allows(Path::new("a")) && revoked.may_refuse());
    }
}
