//! What a confined program sees: an ordered list of parts, from which the child builds the root file system and
//! `explain` the text, so that the two can't disagree.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use crate::error::{SandboxError, SetupStep};
use crate::grants::PathAccess;
use crate::spec::{Cover, HOME, Spec, WorkspaceMount};
use crate::survey::Survey;

/// The only user inside; stands for the user who runs Regent.
pub(crate) const BOX_UID: u32 = 1000;
/// The host name inside.
pub(crate) const HOSTNAME: &[u8] = b"regent";
/// Bound paths.
pub(crate) const PATHS_MAX: usize = 1024;

/// One step of building the root file system. Paths of `at` are relative to the new root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ViewPart {
    /// A directory of the (sealed) root.
    Directory { at: CString },
    /// A small file of our making.
    File { at: CString, content: &'static [u8] },
    /// A symbolic link.
    Link { at: CString, to: CString },
    /// A host path, with everything mounted below it.
    Bind { from: CString, at: CString, kind: BindKind, identity: Option<FileIdentity> },
    /// A writable directory on the private temporary file system.
    Private { at: CString },
    /// The process file system of the new pid namespace.
    Proc,
    /// Emptiness over a path. `tree`: the mount that it lies in, and the path below that. `optional`: may be missing.
    Blank { tree: CString, below: CString, directory: bool, optional: bool, identity: Option<FileIdentity> },
    /// A path of the workspace made a mount point of its own, so that it can't be renamed or removed.
    Pin { tree: CString, below: CString, read_only: bool, identity: Option<FileIdentity> },
    /// The root itself becomes read-only.
    Seal,
}

/// What a bind may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BindKind {
    ReadOnly,
    Writable,
    Device,
}

/// Which file it was when we looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    pub dev: u64,
    pub ino: u64,
}

/// A Landlock rule: a path as seen inside, and what it may be used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LandlockRule {
    pub path: CString,
    pub access: PathAccess,
    pub directory: bool,
    /// Missing is fine (e.g. `/proc` where it can't be mounted).
    pub optional: bool,
}

/// The whole view.
#[derive(Debug, Clone, Default)]
pub(crate) struct SandboxView {
    pub parts: Vec<ViewPart>,
    pub rules: Vec<LandlockRule>,
}

/// System directories, mounted read-only; links among them are copied as links.
pub(crate) const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// The few files of `/etc` that programs need to run at all. No directory with private keys among them.
pub(crate) const ETC: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/os-release",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
];

const SYNTHETIC: &[(&str, &[u8])] = &[
    (
        "etc/passwd",
        b"agent:x:1000:1000:agent:/home/agent:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("etc/group", b"agent:x:1000:\nnogroup:x:65534:\n"),
    ("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files\n"),
    ("etc/hosts", b"127.0.0.1 localhost regent\n::1 localhost regent\n"),
];

pub(crate) const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/urandom"];

/// A process that opens this gets its own controlling terminal.
pub(crate) const OWN_TERMINAL: &str = "/dev/tty";

/// `random` has been the same as `urandom` since Linux 5.6.
const LINKS: &[(&str, &str)] = &[
    ("dev/random", "urandom"),
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
];

/// Writable and private: gone with the run.
pub(crate) const PRIVATE: &[&str] = &["tmp", "var/tmp", "dev/shm", "home/agent"];

/// Files of `/proc` that tell about the host and that anybody could read. Nothing there can be written: the mount is read-only.
const PROC_BLANKS: &[&str] = &["cmdline", "keys"];
/// A further one for a caller who is root. Every file directly in `/proc` that only its owner may read is blanked, too: they belong to
/// root, capabilities or not.
const PROC_BLANKS_OF_ROOT: &[&str] = &["kallsyms"];
/// Not of these, which the kernel opens to capabilities only: a mount less for each launch.
const PROC_NEEDS_CAPABILITY: &[&str] = &["kcore", "kmsg"];

/// Places where a workspace or bind would take the view apart.
const RESERVED: &[&str] = &["/proc", "/sys", "/dev", "/etc"];

impl SandboxView {
    /// Looks at the host and lays out the view for `spec`. `terminal`: where the terminal that it is lent is.
    pub(crate) fn lay_out(
        spec: &Spec,
        survey: &Survey,
        terminal: Option<&Path>,
    ) -> Result<Self, SandboxError> {
        let mut view = Self::system()?;
        for path in terminal.into_iter().chain(terminal.map(|_| Path::new(OWN_TERMINAL))) {
            view.mount_point(path, false)?;
            let (from, at) = (c(path)?, relative(path)?);
            view.parts.push(ViewPart::Bind { from, at, kind: BindKind::Device, identity: None });
            view.rule_for(path, PathAccess::Terminal, false)?;
        }
        view.binds(spec)?;
        // Covers are copies of a part of the root: made after it is sealed, they are sealed as well.
        view.parts.extend([ViewPart::Proc, ViewPart::Seal]);
        view.process_covers()?;
        if let Some(workspace) = &spec.workspace {
            view.guards(workspace, survey)?;
        }
        for Cover { at, below, folder } in &spec.covers {
            beneath(below)?;
            let (tree, below) = (relative(at)?, c(below)?);
            let (directory, optional, identity) = (*folder, false, None);
            view.parts.push(ViewPart::Blank { tree, below, directory, optional, identity });
        }
        Ok(view)
    }

    /// What is the same for every run. Looked at once: a host's system folders stay what they are.
    fn system() -> Result<Self, SandboxError> {
        static FOUND: OnceLock<SandboxView> = OnceLock::new();
        if let Some(view) = FOUND.get() {
            return Ok(view.clone());
        }
        let mut view = Self::default();
        view.rule("/", PathAccess::List, true);
        view.programs()?;
        view.devices()?;
        for at in PRIVATE {
            view.directory(Path::new(at))?;
            view.parts.push(ViewPart::Private { at: c(at)? });
            view.rule(&format!("/{at}"), PathAccess::Scratch, true);
        }
        for at in ["run", "proc"] {
            view.directory(Path::new(at))?;
        }
        view.rules.push(LandlockRule {
            path: c("/proc")?,
            access: PathAccess::Read,
            directory: true,
            optional: true,
        });
        Ok(FOUND.get_or_init(|| view).clone())
    }

    /// The path that a failed step was about.
    pub(crate) fn place(&self, step: SetupStep, part: usize) -> Option<String> {
        if step == SetupStep::Landlock {
            return self.rules.get(part).map(|rule| rule.path.to_string_lossy().into_owned());
        }
        let path = match self.parts.get(part)? {
            ViewPart::Directory { at }
            | ViewPart::File { at, .. }
            | ViewPart::Link { at, .. }
            | ViewPart::Bind { at, .. }
            | ViewPart::Private { at } => at.to_string_lossy().into_owned(),
            ViewPart::Blank { tree, below, .. } | ViewPart::Pin { tree, below, .. } => {
                format!("{}/{}", tree.to_string_lossy(), below.to_string_lossy())
            }
            ViewPart::Proc => "proc".to_owned(),
            ViewPart::Seal => String::new(),
        };
        Some(format!("/{path}"))
    }

    fn programs(&mut self) -> Result<(), SandboxError> {
        self.directory(Path::new("etc"))?;
        for (at, content) in SYNTHETIC {
            self.parts.push(ViewPart::File { at: c(at)?, content });
        }
        for path in SYSTEM {
            self.show(Path::new(path), Path::new(path))?;
            self.rule_if_directory(path, PathAccess::Execute);
        }
        for path in ETC {
            self.show(Path::new(path), Path::new(path))?;
        }
        self.rule("/etc", PathAccess::Read, true);
        // Binds have their own inodes: a rule on `/etc` still covers them, since Landlock walks up through mounts.
        Ok(())
    }

    fn devices(&mut self) -> Result<(), SandboxError> {
        self.directory(Path::new("dev"))?;
        for path in DEVICES {
            let at = relative(Path::new(path))?;
            self.mount_point(Path::new(path), false)?;
            self.parts.push(ViewPart::Bind { from: c(path)?, at, kind: BindKind::Device, identity: None });
            self.rule(path, PathAccess::Device, false);
        }
        for (at, to) in LINKS {
            self.parts.push(ViewPart::Link { at: c(at)?, to: c(to)? });
        }
        Ok(())
    }

    fn process_covers(&mut self) -> Result<(), SandboxError> {
        for below in process_blanks()? {
            let (tree, below) = (c("proc")?, below.clone());
            let (directory, optional, identity) = (false, true, None);
            self.parts.push(ViewPart::Blank { tree, below, directory, optional, identity });
        }
        Ok(())
    }

    /// The workspace and the further binds, outer paths before the paths inside them.
    fn binds(&mut self, spec: &Spec) -> Result<(), SandboxError> {
        if spec.binds.len() > PATHS_MAX {
            return Err(SandboxError::Spec(format!("more than {PATHS_MAX} paths")));
        }
        let mut places: Vec<(PathBuf, PathBuf, Option<&WorkspaceMount>)> = Vec::new();
        for bind in &spec.binds {
            places.push((bind.host.clone(), bind.at.clone(), None));
        }
        if let Some(workspace) = &spec.workspace {
            places.push((workspace.host.clone(), workspace.host.clone(), Some(workspace)));
        }
        places.sort_by_key(|(_, at, _)| at.components().count());
        for (host, at, workspace) in places {
            usable(&at)?;
            let metadata = real(&host)?;
            let writable = workspace.is_some_and(|workspace| workspace.writable);
            self.mount_point(&at, metadata.is_dir())?;
            self.parts.push(ViewPart::Bind {
                from: c(&host)?,
                at: relative(&at)?,
                kind: if writable { BindKind::Writable } else { BindKind::ReadOnly },
                identity: Some(FileIdentity { dev: metadata.dev(), ino: metadata.ino() }),
            });
            let access = if writable { PathAccess::Write } else { PathAccess::Execute };
            self.rule_for(&at, access, metadata.is_dir())?;
            // Rules hold for everything below: no sockets around a workspace that lies among temporary files.
            let around = |rule: &&mut LandlockRule| at.starts_with(OsStr::from_bytes(rule.path.to_bytes()));
            let scratch = self.rules.iter_mut().filter(|rule| writable && rule.access == PathAccess::Scratch);
            scratch.filter(around).for_each(|rule| rule.access = PathAccess::Write);
        }
        Ok(())
    }

    /// Pins what is guarded and blanks what is hidden.
    fn guards(&mut self, workspace: &WorkspaceMount, survey: &Survey) -> Result<(), SandboxError> {
        let tree = relative(&workspace.host)?;
        for pin in &survey.pins {
            let (tree, below) = (tree.clone(), c(&pin.path)?);
            let (read_only, identity) = (pin.read_only, pin.identity);
            self.parts.push(ViewPart::Pin { tree, below, read_only, identity });
        }
        for blank in &survey.blanks {
            let (tree, below) = (tree.clone(), c(&blank.path)?);
            let (directory, optional, identity) = (blank.folder, false, blank.identity);
            self.parts.push(ViewPart::Blank { tree, below, directory, optional, identity });
        }
        Ok(())
    }

    /// Shows a host path, copying links as links. A path that the host lacks is left out.
    fn show(&mut self, host: &Path, at: &Path) -> Result<(), SandboxError> {
        let Ok(metadata) = std::fs::symlink_metadata(host) else { return Ok(()) };
        if metadata.is_symlink() {
            let Ok(to) = std::fs::read_link(host) else { return Ok(()) };
            self.parents(at)?;
            self.parts.push(ViewPart::Link { at: relative(at)?, to: c(&to)? });
            return Ok(());
        }
        self.mount_point(at, metadata.is_dir())?;
        let (from, at) = (c(host)?, relative(at)?);
        self.parts.push(ViewPart::Bind { from, at, kind: BindKind::ReadOnly, identity: None });
        Ok(())
    }

    fn mount_point(&mut self, at: &Path, directory: bool) -> Result<(), SandboxError> {
        self.parents(at)?;
        if directory {
            return self.directory(at);
        }
        self.parts.push(ViewPart::File { at: relative(at)?, content: b"" });
        Ok(())
    }

    fn parents(&mut self, at: &Path) -> Result<(), SandboxError> {
        let parents: Vec<&Path> = at.ancestors().skip(1).filter(|path| path.parent().is_some()).collect();
        for parent in parents.into_iter().rev() {
            self.push_directory(parent)?;
        }
        Ok(())
    }

    fn directory(&mut self, at: &Path) -> Result<(), SandboxError> {
        let at = Path::new("/").join(at);
        self.parents(&at)?;
        self.push_directory(&at)
    }

    fn push_directory(&mut self, at: &Path) -> Result<(), SandboxError> {
        let part = ViewPart::Directory { at: relative(at)? };
        if !self.parts.contains(&part) {
            self.parts.push(part);
        }
        Ok(())
    }

    fn rule(&mut self, path: &str, access: PathAccess, directory: bool) {
        if let Ok(path) = CString::new(path) {
            self.rules.push(LandlockRule { path, access, directory, optional: false });
        }
    }

    fn rule_for(&mut self, path: &Path, access: PathAccess, directory: bool) -> Result<(), SandboxError> {
        self.rules.push(LandlockRule { path: c(path)?, access, directory, optional: false });
        Ok(())
    }

    fn rule_if_directory(&mut self, path: &str, access: PathAccess) {
        if std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
            self.rule(path, access, true);
        }
    }
}

/// A path below the workspace: relative, and only forwards.
pub(crate) fn beneath(path: &Path) -> Result<(), SandboxError> {
    let forwards = path.components().all(|part| matches!(part, Component::Normal(_)));
    if forwards && path.components().next().is_some() {
        return Ok(());
    }
    Err(SandboxError::Spec(format!("`{}` is not a path below the workspace", path.display())))
}

/// Refuses a folder that can't be mounted at its own path.
pub(crate) fn mountable(host: &Path) -> Result<(), SandboxError> {
    usable(host)?;
    real(host).map(drop)
}

/// What a path is that must not be a link.
fn real(host: &Path) -> Result<std::fs::Metadata, SandboxError> {
    let metadata = std::fs::symlink_metadata(host)
        .map_err(|cause| SandboxError::Spec(format!("`{}`: {cause}", host.display())))?;
    if metadata.is_symlink() {
        return Err(SandboxError::Spec(format!("`{}` is a symbolic link", host.display())));
    }
    Ok(metadata)
}

/// Refuses places that would replace part of the view itself.
fn usable(at: &Path) -> Result<(), SandboxError> {
    let refuse = |why: &str| Err(SandboxError::Spec(format!("`{}` {why}", at.display())));
    let plain = at.is_absolute()
        && at.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !plain {
        return refuse("is not a plain absolute path");
    }
    let own = SYSTEM.iter().chain(RESERVED).copied().chain(["/tmp", "/var/tmp", HOME]);
    if own.into_iter().any(|path| Path::new(path).starts_with(at)) {
        return refuse("would replace a part of the system's own view");
    }
    if RESERVED.iter().any(|path| at.starts_with(path)) {
        return refuse("is in a part of the view that can't be replaced");
    }
    Ok(())
}

/// A C string of a path or a text; a NUL inside is refused.
pub(crate) fn c(text: impl AsRef<OsStr>) -> Result<CString, SandboxError> {
    let text = text.as_ref();
    CString::new(text.as_bytes())
        .map_err(|_| SandboxError::Spec(format!("`{}` contains a NUL byte", text.to_string_lossy())))
}

fn relative(path: &Path) -> Result<CString, SandboxError> {
    c(path.strip_prefix("/").unwrap_or(path))
}

/// The files of `/proc` to blank. Looked for once: a kernel's files stay what they are.
fn process_blanks() -> Result<&'static [CString], SandboxError> {
    static FOUND: OnceLock<Vec<CString>> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let mut names: Vec<String> = PROC_BLANKS.iter().map(|name| (*name).to_owned()).collect();
    if rustix::process::geteuid().is_root() {
        names.extend(PROC_BLANKS_OF_ROOT.iter().map(|name| (*name).to_owned()));
        let fail = |cause| SandboxError::Host { doing: "looking for what to hide in `/proc`", cause };
        let closed = owners_only(Path::new("/proc")).map_err(fail)?.into_iter();
        names.extend(closed.filter(|name| !PROC_NEEDS_CAPABILITY.contains(&name.as_str())));
    }
    names.sort_unstable();
    names.dedup();
    let found = names.into_iter().filter_map(|name| CString::new(name).ok()).collect();
    Ok(FOUND.get_or_init(|| found))
}

/// Files directly in a folder that others than their owner may not read. Only what is gone by now is left out.
fn owners_only(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut closed = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        // Processes, which come and go.
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        match entry.metadata() {
            Ok(found) if found.is_file() && found.mode() & 0o004 == 0 => closed.push(name),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(closed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_path_below_the_workspace_stays_there(text in "[a./\\x00]{0,12}") {
            let path = Path::new(&text);
            if beneath(path).is_ok() {
                let joined = Path::new("/w").join(path);
                prop_assert!(joined.starts_with("/w") && joined != Path::new("/w"));
                prop_assert!(!joined.components().any(|part| part == Component::ParentDir));
            }
        }

        #[test]
        fn no_usable_place_replaces_a_part_of_the_view(
            text in "/{0,2}(usr|etc|proc|dev|tmp|home|work|var|\\.\\.|\\.)?(/(agent|ssl|tmp|bin|\\.\\.|a)){0,3}/?",
        ) {
            let at = Path::new(&text);
            if usable(at).is_ok() {
                let own = SYSTEM.iter().chain(RESERVED).chain(&["/tmp", "/var/tmp", HOME, "/"]);
                for path in own {
                    prop_assert!(!Path::new(path).starts_with(at), "{text} would cover {path}");
                }
                prop_assert!(at.is_absolute() && !text.contains(".."));
            }
        }
    }
}
