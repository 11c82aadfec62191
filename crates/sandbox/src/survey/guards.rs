//! What the supervisor has to know about a workspace: which paths stand for guarded ones, and what must stay where it is.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use regent_guard::{Creation, fold_path};

use super::git_dirs::GitDirs;

/// A path that counts as another, because a guarded link leads to it, or because a repository's configuration names it: writing it is
/// writing what the link stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alias {
    pub target: PathBuf,
    pub link: PathBuf,
}

/// What the survey found that judges names during the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Guards {
    pub git_dirs: GitDirs,
    pub aliases: Vec<Alias>,
    /// Folders that something depends on by path: what is hidden in them, or where a guarded link leads. Folded.
    held: HashSet<String>,
    /// What policy doesn't let be written, and every folder above it. Folded.
    kept_by_policy: HashSet<String>,
    /// Links on the way to something guarded or hidden. Folded.
    links: HashSet<String>,
    /// Guarded entries that are pinned, and every folder above one.
    pins: Vec<PathBuf>,
    above_pins: HashSet<PathBuf>,
}

impl Guards {
    /// Keeps every folder above a path where it is.
    pub(super) fn hold_above(&mut self, path: &Path) {
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            if !self.held.insert(folded(above)) {
                // What lies above it is held already.
                break;
            }
        }
    }

    /// Keeps what policy refuses, and every folder above it, where it is: elsewhere another rule would hold, or none.
    pub(crate) fn keep_for_policy(&mut self, path: &Path) {
        for above in path.ancestors().filter(|above| !above.as_os_str().is_empty()) {
            if !self.kept_by_policy.insert(folded(above)) {
                break;
            }
        }
    }

    /// Keeps a link, and every folder above it, as it is.
    pub(super) fn hold_link(&mut self, path: &Path) {
        self.links.insert(folded(path));
        self.hold_above(path);
    }

    pub(super) fn add_pin(&mut self, path: &Path) {
        self.above_pins.extend(path.ancestors().skip(1).map(Path::to_path_buf));
        self.pins.push(path.to_path_buf());
    }

    /// Whether the name is that of a link which must not be replaced by anything.
    pub(crate) fn is_link(&self, path: &Path) -> bool {
        !self.links.is_empty() && self.links.contains(&folded(path))
    }

    /// Whether a folder at this path must not be moved away, nor anything be moved or linked to its place.
    pub(crate) fn is_held(&self, path: &Path) -> bool {
        !self.held.is_empty() && self.held.contains(&folded(path))
    }

    /// Whether policy refuses to write what is at this path, or something below it.
    pub(crate) fn is_kept_by_policy(&self, path: &Path) -> bool {
        !self.kept_by_policy.is_empty() && self.kept_by_policy.contains(&folded(path))
    }

    /// Whether moving a folder would take a guarded entry to a place where it is no longer guarded.
    pub(crate) fn unguards(&self, from: &Path, to: &Path) -> bool {
        if !self.above_pins.contains(from) {
            return false;
        }
        let is_guarded = |path: PathBuf| matches!(self.git_dirs.judged(&path), Creation::Guarded(_));
        self.pins
            .iter()
            .filter_map(|pin| pin.strip_prefix(from).ok())
            .any(|below| !is_guarded(to.join(below)))
    }

    /// A path of the workspace, and every path by which a guarded link leads there.
    pub(crate) fn spellings(&self, path: PathBuf) -> Vec<PathBuf> {
        self.by_links(&path).chain([path.clone()]).collect()
    }

    /// Every path by which a guarded link leads to a path of the workspace.
    pub(crate) fn by_links(&self, path: &Path) -> impl Iterator<Item = PathBuf> {
        self.aliases.iter().filter_map(move |alias| {
            let rest = path.strip_prefix(&alias.target).ok()?;
            Some(if rest.as_os_str().is_empty() { alias.link.clone() } else { alias.link.join(rest) })
        })
    }
}

/// File systems that fold case take other spellings for the same path.
fn folded(path: &Path) -> String {
    fold_path(&path.to_string_lossy()).into_owned()
}
