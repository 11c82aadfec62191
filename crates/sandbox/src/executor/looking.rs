//! The look at a workspace before a launch, with policy's eyes: what `fs.read` would ask about or deny is hidden from the program, and
//! what `fs.write` would ask about or deny can't be written by it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use regent_guard::{GuardKind, is_kind};
use regent_kernel::{Fault, FileJudge, Permit, tier};

use crate::error::SandboxError;
use crate::run::blocking;
use crate::spec::{Bind, Cover, Spec, WorkspaceMount};
use crate::survey::{FileUse, Survey};
use crate::writes::{Revoked, WriteRule};

/// Looks at all that the program would see, and puts what was found into the specification. The rule about writing holds as long as
/// what is returned.
pub(super) async fn survey(
    spec: &mut Spec,
    permit: &Permit<'_, tier::Process>,
) -> Result<Revoked, SandboxError> {
    let unjudged = |error: Fault| SandboxError::Host {
        doing: "asking policy what the program may read and write",
        cause: std::io::Error::other(error.to_string()),
    };
    let mut looking = Looking {
        root: permit.workspace().root().to_path_buf(),
        reads: permit.read_judge().await.map_err(unjudged)?,
        writes: permit.write_judge().await.map_err(unjudged)?,
    };
    let (mut workspace, binds) = (spec.workspace.clone(), spec.binds.clone());
    if let Some(mount) = workspace.as_mut() {
        mount.writable &= permit.may_change();
    }
    // A listing for each folder and two decisions for each file: not on a thread that drives other calls.
    let looked = blocking(move || {
        let found = workspace.map(|mount| looking.workspace(mount)).transpose()?;
        let (binds, covers) = looking.binds(binds)?;
        Ok::<_, SandboxError>((looking, found, binds, covers))
    });
    let (looking, workspace, binds, covers) = looked.await??;
    let rule = looking.into_rule(workspace.as_ref());
    let revoked = rule.revoke_when_dropped();
    spec.writes = Some(rule);
    (spec.workspace, spec.binds, spec.covers) = (workspace, binds, covers);
    Ok(revoked)
}

struct Looking {
    root: PathBuf,
    reads: FileJudge,
    writes: FileJudge,
}

impl Looking {
    fn workspace(&mut self, mount: WorkspaceMount) -> Result<WorkspaceMount, SandboxError> {
        if is_file(&mount.host)? {
            return Err(SandboxError::Spec(format!("`{}` is not a folder", mount.host.display())));
        }
        let prefix = prefix(&self.root, &mount.host);
        let survey = Survey::take(&mount, &mut |path| {
            let whole = format!("{prefix}{path}");
            let read = self.may_read(&whole);
            FileUse { read, write: !mount.writable || read && self.writes.allows(&whole) }
        })?;
        let writable = mount.writable && !survey.is_read_only;
        Ok(WorkspaceMount { writable, survey: Some(Arc::new(survey)), ..mount })
    }

    /// What is visible beside the workspace: files that the program may read, and what is hidden of the folders.
    fn binds(&mut self, binds: Vec<Bind>) -> Result<(Vec<Bind>, Vec<Cover>), SandboxError> {
        let (mut kept, mut covers) = (Vec::new(), Vec::new());
        for bind in binds {
            if bind.host.starts_with(&self.root) {
                let prefix = prefix(&self.root, &bind.host);
                if is_file(&bind.host)? {
                    if !self.may_read(prefix.trim_end_matches('/')) {
                        continue;
                    }
                } else {
                    let mount = WorkspaceMount::new(&bind.host, false);
                    let found = Survey::take(&mount, &mut |path| FileUse {
                        read: self.may_read(&format!("{prefix}{path}")),
                        write: true,
                    })?;
                    covers.extend(found.blanks.into_iter().map(|blank| Cover {
                        at: bind.at.clone(),
                        below: blank.path,
                        folder: blank.folder,
                    }));
                }
            }
            kept.push(bind);
        }
        Ok((kept, covers))
    }

    fn may_read(&mut self, path: &str) -> bool {
        self.reads.allows(path) && !is_kind(path, GuardKind::Regent)
    }

    fn into_rule(self, workspace: Option<&WorkspaceMount>) -> WriteRule {
        let prefix = workspace.map(|mount| prefix(&self.root, &mount.host)).unwrap_or_default();
        WriteRule::new(self.writes, prefix)
    }
}

/// The way from the root of the workspace to a mount, with a slash at its end if there is any.
fn prefix(root: &Path, host: &Path) -> String {
    let place = host.strip_prefix(root).unwrap_or(Path::new("")).to_string_lossy();
    if place.is_empty() { String::new() } else { format!("{place}/") }
}

/// What isn't there is for the launch to refuse.
fn is_file(path: &Path) -> Result<bool, SandboxError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) => Ok(!found.is_dir()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(SandboxError::Unreadable { path: path.to_path_buf(), cause }),
    }
}
