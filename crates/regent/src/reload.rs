//! Hot reload: a policy file that changes is put in force while the kernel runs. A bad one leaves the old one active.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use regent_kernel::Host;
use tokio::task::JoinHandle;

use crate::compose;
use crate::context::Context;
use crate::failure::Failure;
use crate::manifests;
use crate::paths::{Paths, Project};
use crate::trust::Trust;

/// How often the files are looked at. Only their attributes are; they are read when those change.
const LOOK_MS: u64 = 500;

/// What the policy files looked like: a change of any of these is worth reading them again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyStamps(Vec<(PathBuf, Option<FileStamp>)>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl PolicyStamps {
    /// What they look like now.
    pub(crate) fn capture(paths: &Paths, project: &Project) -> Self {
        let look = |path: PathBuf| {
            let found = std::fs::metadata(&path).ok().map(|meta| FileStamp {
                inode: meta.ino(),
                bytes: meta.size(),
                modified: (meta.mtime(), meta.mtime_nsec()),
            });
            (path, found)
        };
        let own = [paths.policy(), paths.candidate(), paths.manifest()];
        // A folder that can't be read any more is a change, and loading the policies reports it.
        let policies: Vec<PathBuf> =
            own.into_iter().chain(paths.tenants().unwrap_or_default()).chain(project.policies()).collect();
        let referred: Vec<PathBuf> = policies.iter().flat_map(|policy| manifests::files(policy)).collect();
        // A bundle is believed by the keys in the settings.
        let others = [paths.bundle(), paths.bundle_record(), paths.settings()];
        Self(policies.into_iter().chain(referred).chain(others).map(look).collect())
    }
}

/// The task that looks. It ends when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Reloading(Option<JoinHandle<()>>);

impl Reloading {
    /// Starts looking for changes since `seen`.
    pub(crate) fn start(context: &Context, project: &Project, kernel: &Host, seen: PolicyStamps) -> Self {
        let task = follow(context.clone(), project.clone(), kernel.clone(), seen);
        Self(Some(tokio::spawn(task)))
    }
}

impl Drop for Reloading {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

async fn follow(context: Context, project: Project, kernel: Host, mut seen: PolicyStamps) {
    loop {
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        let now = PolicyStamps::capture(&context.paths, &project);
        if now == seen {
            continue;
        }
        seen = now;
        let said = match replace(&context, &project, &kernel).await {
            Ok(()) => "regent: the policy changed; the new one is active\n".to_owned(),
            Err(failure) => {
                format!("regent: the policy changed, but the old one stays active: {}\n", failure.message)
            }
        };
        context.screen.say(&said);
    }
}

/// The same way in as at the start: the folder must be trusted as it is now, and every file must load.
async fn replace(context: &Context, project: &Project, kernel: &Host) -> Result<(), Failure> {
    let controls = Trust::demand(&context.paths, project)?;
    let policy = compose::policy(&context.paths, Some(&controls))?;
    Ok(kernel.replace_policy(policy).await?)
}
