//! Limits on a run as a whole: cgroup v2 or v1 where one can be made, else resource limits.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::ended::LimitedBy;
use crate::plan::above_stdio;
use crate::spec::Limits;

/// Folders of ours: prefix, our pid, a counter.
const PREFIX: &str = "regent-box-";

/// Where cgroups for runs can be made, found by making one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hierarchy {
    /// Below this folder of the unified hierarchy.
    V2(PathBuf),
    /// Below these folders, one for each controller.
    V1 {
        /// For the memory limit.
        memory: Option<PathBuf>,
        /// For the limit on processes.
        pids: Option<PathBuf>,
    },
    /// Nowhere.
    None,
}

/// What this process may use; looked for once.
pub(crate) fn hierarchy() -> &'static Hierarchy {
    static FOUND: OnceLock<Hierarchy> = OnceLock::new();
    FOUND.get_or_init(|| {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let found = find(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
        match &found {
            Hierarchy::V2(parent) => sweep(parent),
            Hierarchy::V1 { memory, pids } => memory.iter().chain(pids).for_each(|parent| sweep(parent)),
            Hierarchy::None => {}
        }
        found
    })
}

fn find(mountinfo: &str, memberships: &str) -> Hierarchy {
    if let Some(own) = own_folder(mountinfo, memberships, None) {
        // A cgroup with members can't have children with controllers: the one above may be ours as well.
        for parent in own.ancestors().take(2) {
            let enabled = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
            let has = |name| enabled.split_whitespace().any(|controller| controller == name);
            if has("memory") && has("pids") && can_make(parent) {
                return Hierarchy::V2(parent.to_path_buf());
            }
        }
    }
    let v1 = |name| own_folder(mountinfo, memberships, Some(name)).filter(|folder| can_make(folder));
    match (v1("memory"), v1("pids")) {
        (None, None) => Hierarchy::None,
        (memory, pids) => Hierarchy::V1 { memory, pids },
    }
}

/// The folder of the cgroup we are in; `controller` names a v1 hierarchy, `None` the unified one.
fn own_folder(mountinfo: &str, memberships: &str, controller: Option<&str>) -> Option<PathBuf> {
    let path = memberships.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let ours = match controller {
            Some(name) => controllers.split(',').any(|controller| controller == name),
            None => controllers.is_empty(),
        };
        ours.then_some(path)
    })?;
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut fields = after.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1)?);
        let ours = match controller {
            Some(name) => kind == "cgroup" && options.split(',').any(|option| option == name),
            None => kind == "cgroup2",
        };
        let below = Path::new(path).strip_prefix(root).ok()?;
        ours.then(|| Path::new(point).join(below).components().collect())
    })
}

fn can_make(parent: &Path) -> bool {
    let trial = parent.join(fresh_name());
    fs::create_dir(&trial).is_ok() && fs::remove_dir(&trial).is_ok()
}

fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Removes what a killed Regent left behind. Only empty cgroups can be removed, so nothing living is touched.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            fs::remove_dir(entry.path()).ok();
        }
    }
}

/// The cgroups of one run.
#[derive(Debug)]
pub(crate) struct Group {
    folders: Vec<PathBuf>,
    v2: Option<OwnedFd>,
    /// Where the kernel counts processes that it killed for memory.
    events: Option<PathBuf>,
    /// What holds each limit.
    pub memory: LimitedBy,
    pub pids: LimitedBy,
}

impl Group {
    /// Makes the cgroups and sets their limits. Whatever does not work is left to resource limits. Also returns the
    /// `cgroup.procs` files that the child has to join by itself.
    pub(crate) fn new(limits: &Limits) -> (Self, Vec<OwnedFd>) {
        let pids = if exempt_from_process_limit() { LimitedBy::Nothing } else { LimitedBy::Rlimit };
        let mut group = Self { folders: Vec::new(), v2: None, events: None, memory: LimitedBy::Rlimit, pids };
        let mut join = Vec::new();
        match hierarchy() {
            Hierarchy::V2(parent) => group.unified(parent, limits),
            Hierarchy::V1 { memory, pids } => {
                let bytes = limits.memory_bytes_max.to_string();
                let files: &[(&str, &str)] = &[("memory.limit_in_bytes", &bytes)];
                if let Some((folder, procs)) = group.legacy(memory.as_deref(), files) {
                    // Absent without swap accounting.
                    fs::write(folder.join("memory.memsw.limit_in_bytes"), &bytes).ok();
                    group.events = Some(folder.join("memory.oom_control"));
                    group.memory = LimitedBy::CgroupV1;
                    join.push(procs);
                }
                let count = processes(limits);
                if let Some((_, procs)) = group.legacy(pids.as_deref(), &[("pids.max", &count)]) {
                    group.pids = LimitedBy::CgroupV1;
                    join.push(procs);
                }
            }
            Hierarchy::None => {}
        }
        (group, join)
    }

    fn unified(&mut self, parent: &Path, limits: &Limits) {
        let folder = parent.join(fresh_name());
        if fs::create_dir(&folder).is_err() {
            return;
        }
        let set = |file: &str, value: &str| fs::write(folder.join(file), value).is_ok();
        let memory = set("memory.max", &limits.memory_bytes_max.to_string());
        let pids = set("pids.max", &processes(limits));
        set("memory.swap.max", "0");
        set("memory.oom.group", "1");
        self.v2 = fs::File::open(&folder).ok().and_then(|file| above_stdio(file.into()).ok());
        if self.v2.is_some() {
            self.events = Some(folder.join("memory.events"));
            self.memory = if memory { LimitedBy::CgroupV2 } else { self.memory };
            self.pids = if pids { LimitedBy::CgroupV2 } else { self.pids };
        }
        self.folders.push(folder);
    }

    fn legacy(&mut self, parent: Option<&Path>, limits: &[(&str, &str)]) -> Option<(PathBuf, OwnedFd)> {
        let folder = parent?.join(fresh_name());
        fs::create_dir(&folder).ok()?;
        self.folders.push(folder.clone());
        for (file, value) in limits {
            fs::write(folder.join(file), value).ok()?;
        }
        let procs = fs::OpenOptions::new().write(true).open(folder.join("cgroup.procs")).ok()?;
        Some((folder, above_stdio(procs.into()).ok()?))
    }

    /// The folder to be born in, for v2.
    pub(crate) fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        self.v2.as_ref().map(AsFd::as_fd)
    }

    /// Kills every member at once, where the kernel can (v2).
    pub(crate) fn kill(&self) {
        if self.v2.is_some() {
            for folder in &self.folders {
                fs::write(folder.join("cgroup.kill"), "1").ok();
            }
        }
    }

    /// Whether the kernel killed a member for want of memory.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let text = self.events.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        text.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count.trim() != "0"))
    }

    /// Removes the cgroups that are empty; true when all are gone.
    pub(crate) fn remove(&mut self) -> bool {
        self.folders.retain(|folder| fs::remove_dir(folder).is_err() && folder.exists());
        self.folders.is_empty()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What is not empty yet is swept by the next Regent.
        self.remove();
    }
}

/// The first process of the box counts too.
fn processes(limits: &Limits) -> String {
    limits.pids_max.saturating_add(1).to_string()
}

/// The kernel does not hold the host's root to its process limit.
fn exempt_from_process_limit() -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut fields = map.split_whitespace();
    fields.next() == Some("0") && fields.next() == Some("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
31 23 0:27 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
32 23 0:28 /docker/abc /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
33 23 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
    const MEMBER: &str = "4:memory:/a/b\n8:pids:/docker/abc/d\n0::/user.slice/x.scope\n";

    #[test]
    fn own_folders_are_found_below_their_mounts() {
        let folder = |controller| own_folder(MOUNTS, MEMBER, controller);
        assert_eq!(folder(Some("memory")).unwrap(), Path::new("/sys/fs/cgroup/memory/a/b"));
        assert_eq!(folder(Some("pids")).unwrap(), Path::new("/sys/fs/cgroup/pids/d"));
        assert_eq!(folder(None).unwrap(), Path::new("/sys/fs/cgroup/unified/user.slice/x.scope"));
        assert_eq!(folder(Some("cpu")), None);
    }

    #[test]
    fn nonsense_finds_nothing() {
        for (mounts, member) in [("", ""), ("x - y", ":::"), ("1 2 3", "0::/"), (" - cgroup2", "0::")] {
            assert_eq!(find(mounts, member), Hierarchy::None);
        }
    }
}
