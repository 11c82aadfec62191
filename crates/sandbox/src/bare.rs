//! The fallback's view: the host's own file tree, of which Landlock lets only some places be used.
//!
//! Landlock rules only ever add, and hold for everything below a place. So where a workspace has paths that must not
//! be written or read, its folders on the way to them get no rule; what is in those folders gets rules one by one.
//! The price: no new entries directly in such a folder.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::SandboxError;
use crate::grants::PathAccess;
use crate::spec::{Spec, WorkspaceMount};
use crate::survey::Survey;
use crate::view::{DEVICES, ETC, LandlockRule, OWN_TERMINAL, PATHS_MAX, SYSTEM, SandboxView, c};

/// Rules of one run; each is a few system calls of a launch.
const RULES_MAX: usize = 8192;

/// What programs read of the host to run at all. `/proc` as a whole would show other processes.
const HOST_FILES: &[&str] = &[
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/version",
    "/proc/sys/kernel/ngroups_max",
    "/proc/sys/vm/overcommit_memory",
];

impl SandboxView {
    /// Rules over the host's own tree; no parts, since nothing is mounted.
    pub(crate) fn bare(spec: &Spec, survey: &Survey, terminal: Option<&Path>) -> Result<Self, SandboxError> {
        let mut view = Self::default();
        for path in terminal.into_iter().chain(terminal.map(|_| Path::new(OWN_TERMINAL))) {
            view.allow(path, PathAccess::Terminal)?;
        }
        for path in SYSTEM {
            view.allow(Path::new(path), PathAccess::Execute)?;
        }
        for path in ETC.iter().chain(HOST_FILES) {
            view.allow(Path::new(path), PathAccess::Read)?;
        }
        for path in DEVICES {
            view.allow(Path::new(path), PathAccess::Device)?;
        }
        if spec.binds.len() > PATHS_MAX {
            return Err(SandboxError::Spec(format!("more than {PATHS_MAX} paths")));
        }
        for bind in &spec.binds {
            if bind.at != bind.host {
                let at = bind.at.display();
                let why = format!("`{at}` can't be mounted elsewhere without a mount namespace");
                return Err(SandboxError::Spec(why));
            }
            let hidden = spec.covers.iter().filter(|cover| cover.at == bind.at);
            let hidden = hidden.map(|cover| bind.host.join(&cover.below)).collect();
            view.allow_except(
                &bind.host,
                PathAccess::Execute,
                &ExceptedPaths { read_only: Vec::new(), hidden },
            )?;
        }
        if let Some(workspace) = &spec.workspace {
            view.workspace(workspace, survey)?;
        }
        Ok(view)
    }

    fn workspace(&mut self, workspace: &WorkspaceMount, survey: &Survey) -> Result<(), SandboxError> {
        let real = |path: &PathBuf| workspace.host.join(path);
        let hidden = survey.blanks.iter().map(|blank| real(&blank.path)).collect();
        let read_only = survey.pins.iter().filter(|pin| pin.read_only).map(|pin| real(&pin.path)).collect();
        let access = if workspace.writable { PathAccess::Write } else { PathAccess::Execute };
        self.allow_except(&workspace.host, access, &ExceptedPaths { read_only, hidden })
    }

    fn allow_except(
        &mut self,
        path: &Path,
        access: PathAccess,
        apart: &ExceptedPaths,
    ) -> Result<(), SandboxError> {
        if apart.hidden.iter().any(|hidden| hidden == path) {
            return Ok(());
        }
        if access == PathAccess::Write && apart.read_only.iter().any(|fixed| fixed == path) {
            return self.allow_except(path, PathAccess::Execute, apart);
        }
        if !apart.lies_below(path, access) {
            return self.allow(path, access);
        }
        self.allow(path, PathAccess::List)?;
        let entries = fs::read_dir(path)
            .map_err(|cause| SandboxError::Spec(format!("`{}`: {cause}", path.display())))?;
        for entry in entries {
            let entry =
                entry.map_err(|cause| SandboxError::Unreadable { path: path.to_path_buf(), cause })?;
            // A link has no rule of its own: what it leads to has one, or not.
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                self.allow_except(&entry.path(), access, apart)?;
            }
        }
        Ok(())
    }

    /// A rule for what the host has; what it lacks is left out.
    fn allow(&mut self, path: &Path, access: PathAccess) -> Result<(), SandboxError> {
        let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
        if self.rules.len() >= RULES_MAX {
            return Err(SandboxError::Spec(format!("more than {RULES_MAX} Landlock rules are needed")));
        }
        let (path, directory) = (c(path)?, metadata.is_dir());
        self.rules.push(LandlockRule { path, access, directory, optional: true });
        Ok(())
    }
}

/// Paths of a workspace that are treated apart.
struct ExceptedPaths {
    read_only: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
}

impl ExceptedPaths {
    fn lies_below(&self, path: &Path, access: PathAccess) -> bool {
        let read_only = self.read_only.iter().filter(|_| access == PathAccess::Write);
        self.hidden.iter().chain(read_only).any(|apart| apart.starts_with(path) && apart != path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::{Blank, Pin};

    #[test]
    fn what_is_apart_gets_no_more_than_it_should() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        fs::create_dir_all(root.join("x")).unwrap();
        for file in ["a/one", "a/b/two", "a/b/c/three", "x/four", "secret"] {
            fs::write(root.join(file), "").unwrap();
        }
        let workspace = WorkspaceMount::new(&root, true);
        let survey = Survey {
            pins: vec![Pin::new("a/b", true)],
            blanks: vec![Blank::new("secret", false), Blank::new("a/b/c", true)],
            ..Survey::default()
        };
        let mut view = SandboxView::default();
        view.workspace(&workspace, &survey).unwrap();
        // What the rules together give a path: the union over everything above it.
        let access = |file: &str| -> Vec<PathAccess> {
            let path = root.join(file);
            let over = |rule: &&LandlockRule| path.starts_with(Path::new(&*rule.path.to_string_lossy()));
            let mut list: Vec<PathAccess> = view.rules.iter().filter(over).map(|rule| rule.access).collect();
            list.dedup();
            list
        };
        let (write, fixed, names) = (PathAccess::Write, PathAccess::Execute, PathAccess::List);
        assert_eq!(access("x/four"), [names, write]);
        assert_eq!(access("a/one"), [names, write]);
        assert_eq!(access("a/b/two"), [names, fixed]);
        assert_eq!(access("a/b/c/three"), [names]);
        assert_eq!(access("secret"), [names]);
        assert_eq!(access("absent"), [names], "so it can't be made");
    }
}
