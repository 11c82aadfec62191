//! What the tests share: folders to work in, short runs, and looks at the host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use regent_sandbox::probes::{self, Tried};
use regent_sandbox::{Exit, FinishedRun, Floor, Spec, WorkspaceMount, run};

/// A workspace, and a folder beside it that the sandbox hides.
pub(crate) struct Work {
    folder: tempfile::TempDir,
}

impl Work {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        Self { folder }
    }

    /// With a repository whose hooks and configuration are control paths, beside paths that don't exist.
    pub(crate) fn with_git() -> Self {
        let work = Self::new();
        fs::create_dir_all(work.path().join(".git/hooks")).unwrap();
        fs::write(work.path().join(".git/hooks/keep"), "").unwrap();
        fs::write(work.path().join(".git/config"), "[core]\n").unwrap();
        work
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("work")
    }

    /// A file of the host that is not to be seen.
    pub(crate) fn outside(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().canonicalize().unwrap().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        path
    }

    pub(crate) fn spec<const N: usize>(&self, argv: [&str; N]) -> Spec {
        let workspace = Some(WorkspaceMount::new(self.path(), true));
        Spec { cwd: self.path(), workspace, ..Spec::new(argv) }
    }
}

pub(crate) async fn sh(script: &str) -> FinishedRun {
    run(Spec::new(["/bin/sh", "-c", script]), std::future::pending()).await.unwrap()
}

pub(crate) async fn sh_in(work: &Work, script: &str) -> FinishedRun {
    run(work.spec(["/bin/sh", "-c", script]), std::future::pending()).await.unwrap()
}

pub(crate) fn out(ended: &FinishedRun) -> String {
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

/// The output of a run that worked.
#[track_caller]
pub(crate) fn ok(ended: &FinishedRun) -> String {
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status, Exit::Code(0), "{stderr}");
    out(ended)
}

pub(crate) fn failed(ended: &FinishedRun) -> bool {
    ended.status != Exit::Code(0)
}

/// Whether any process of the host has this text in its command line.
pub(crate) fn host_has_process(mark: &str) -> bool {
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark) && !is_us(&entry.path())
    })
}

fn is_us(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == std::process::id().to_string().as_str())
}

/// Every live probe of a case held. They are run once for all.
#[track_caller]
pub(crate) fn probes_hold(case: u16) {
    static TRIED: OnceLock<Vec<Tried>> = OnceLock::new();
    let tried = TRIED.get_or_init(|| {
        let work = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(probes::try_all(Floor::Full)).unwrap()
        };
        std::thread::spawn(work).join().unwrap()
    });
    let of_case: Vec<_> = tried.iter().filter(|tried| tried.case == case).collect();
    assert!(!of_case.is_empty(), "no probe for case {case}");
    for tried in of_case {
        assert!(tried.held, "{tried:?}");
    }
}
