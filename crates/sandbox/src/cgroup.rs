//! Limits on a run as a whole: cgroup v2 or v1 where one can be made, else a watch on its memory and resource limits.

mod scope;

use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use serde::Serialize;

use crate::ended::LimitedBy;
use crate::memory;
use crate::plan::above_stdio;
use crate::spec::Limits;

/// Folders of ours: prefix, our pid, a counter.
const PREFIX: &str = "regent-sandbox-";

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
    /// Below this folder of the unified hierarchy, a scope that the user's service manager made for this process.
    Scope(PathBuf),
    /// Nowhere.
    None,
}

/// What this process may use; looked for once.
pub(crate) fn hierarchy() -> &'static Hierarchy {
    static FOUND: OnceLock<Hierarchy> = OnceLock::new();
    FOUND.get_or_init(|| {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let found = find(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
        let found = if found == Hierarchy::None { scope::of_our_own().unwrap_or(found) } else { found };
        match &found {
            Hierarchy::V2(parent) | Hierarchy::Scope(parent) => sweep(parent),
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
///
/// Making and removing cgroups costs more than anything else that the parent does for a launch, so a process that launches
/// again and again keeps a few for the next run. One that launches once leaves nothing behind; what a longer-lived one
/// leaves when it ends is swept by the next.
#[derive(Debug)]
pub(crate) struct RunCgroup {
    folders: Vec<PathBuf>,
    /// The unified hierarchy's folder, to be born in.
    v2: Option<OwnedFd>,
    /// Where the kernel counts processes that it killed for memory, and the count before this run.
    events: Option<PathBuf>,
    killed_before: u64,
    /// Which limits are set.
    bounds: Bounds,
    /// What holds each limit.
    pub memory: LimitedBy,
    pub pids: LimitedBy,
}

/// The limits that a cgroup holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    memory_bytes_max: u64,
    processes_max: u32,
}

impl From<&Limits> for Bounds {
    fn from(limits: &Limits) -> Self {
        // The first process of the sandbox counts too.
        let processes_max = limits.pids_max.saturating_add(1);
        Self { memory_bytes_max: limits.memory_bytes_max, processes_max }
    }
}

/// Idle cgroups, each empty.
static IDLE: Mutex<Vec<RunCgroup>> = Mutex::new(Vec::new());
/// How many are kept.
const IDLE_MAX: usize = 4;
/// Runs so far.
static RUNS: AtomicU64 = AtomicU64::new(0);

impl RunCgroup {
    /// Takes idle cgroups or makes new ones. Whatever does not work is left to resource limits. Also returns the
    /// files of cgroups that the child has to write itself into.
    pub(crate) fn new(limits: &Limits) -> (Self, Vec<OwnedFd>) {
        RUNS.fetch_add(1, Ordering::Relaxed);
        let bounds = Bounds::from(limits);
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(mut group) = idle
            && (group.bounds == bounds || group.bound(bounds))
            && let Some(join) = group.entrances()
        {
            group.killed_before = group.killed_for_memory();
            return (group, join);
        }
        let group = Self::make(bounds);
        match group.entrances() {
            Some(join) => (group, join),
            None => (Self::none(bounds), Vec::new()),
        }
    }

    /// No cgroups: resource limits have to do.
    fn none(bounds: Bounds) -> Self {
        let pids = if exempt_from_process_limit() { LimitedBy::Nothing } else { LimitedBy::Rlimit };
        let memory = if memory::can_watch() { LimitedBy::Watch } else { LimitedBy::Rlimit };
        let folders = Vec::new();
        Self { folders, v2: None, events: None, killed_before: 0, bounds, memory, pids }
    }

    fn make(bounds: Bounds) -> Self {
        let mut group = Self::none(bounds);
        let mut add = |parent: &Path| {
            let folder = parent.join(fresh_name());
            fs::create_dir(&folder).is_ok().then(|| group.folders.push(folder)).is_some()
        };
        let (memory, pids) = match hierarchy() {
            Hierarchy::V2(parent) => {
                let by = add(parent).then_some(LimitedBy::CgroupV2);
                (by, by)
            }
            Hierarchy::Scope(parent) => {
                let by = add(parent).then_some(LimitedBy::Scope);
                (by, by)
            }
            Hierarchy::V1 { memory, pids } => {
                let mut v1 = |parent: &Option<PathBuf>| {
                    parent.as_deref().is_some_and(&mut add).then_some(LimitedBy::CgroupV1)
                };
                (v1(memory), v1(pids))
            }
            Hierarchy::None => (None, None),
        };
        group.memory = memory.unwrap_or(group.memory);
        group.pids = pids.unwrap_or(group.pids);
        if matches!(memory, Some(LimitedBy::CgroupV2 | LimitedBy::Scope)) {
            let folder = group.folders.first().and_then(|folder| fs::File::open(folder).ok());
            group.v2 = folder.and_then(|folder| above_stdio(folder.into()).ok());
        }
        let counters =
            group.folders.iter().flat_map(|f| [f.join("memory.events"), f.join("memory.oom_control")]);
        group.events = counters.into_iter().find(|path| path.exists());
        if group.bound(bounds) { group } else { Self::none(bounds) }
    }

    /// Sets the limits; false if one that has to hold does not.
    fn bound(&mut self, bounds: Bounds) -> bool {
        let (bytes, count) = (bounds.memory_bytes_max.to_string(), bounds.processes_max.to_string());
        let set = |file: &str, value: &str| {
            self.folders.iter().any(|folder| {
                let file = folder.join(file);
                // Opened without creating: the file is there if the controller is.
                fs::OpenOptions::new()
                    .write(true)
                    .open(file)
                    .and_then(|mut f| f.write_all(value.as_bytes()))
                    .is_ok()
            })
        };
        let memory = match self.memory {
            LimitedBy::CgroupV2 | LimitedBy::Scope => {
                // Without swap, and all members at once: absent where the kernel lacks them.
                set("memory.swap.max", "0");
                set("memory.oom.group", "1");
                set("memory.max", &bytes)
            }
            LimitedBy::CgroupV1 => {
                // Memory with swap may not be below memory alone: raised first and lowered last. Absent without accounting.
                set("memory.memsw.limit_in_bytes", "-1");
                let held = set("memory.limit_in_bytes", &bytes);
                set("memory.memsw.limit_in_bytes", &bytes);
                held
            }
            LimitedBy::Watch | LimitedBy::Rlimit | LimitedBy::Nothing => true,
        };
        let pids = match self.pids {
            LimitedBy::CgroupV2 | LimitedBy::CgroupV1 | LimitedBy::Scope => set("pids.max", &count),
            LimitedBy::Watch | LimitedBy::Rlimit | LimitedBy::Nothing => true,
        };
        self.bounds = bounds;
        memory && pids
    }

    /// The `tasks` of each v1 cgroup; none for v2, which one is born into. Through `tasks` a process of one thread moves itself alone. With
    /// `cgroup.procs` the kernel would make sure that no process of the machine forks meanwhile, for which it waits 10 ms and more.
    fn entrances(&self) -> Option<Vec<OwnedFd>> {
        if self.v2.is_some() {
            return Some(Vec::new());
        }
        let open = |folder: &PathBuf| {
            let tasks = fs::OpenOptions::new().write(true).open(folder.join("tasks")).ok()?;
            above_stdio(tasks.into()).ok()
        };
        self.folders.iter().map(open).collect()
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

    /// Whether the kernel killed a member of this run for want of memory.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        self.killed_for_memory() > self.killed_before
    }

    fn killed_for_memory(&self) -> u64 {
        let text = self.events.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
    }

    /// Keeps the cgroups for the next run, or removes them; true when that is done. Not while a member is still leaving.
    pub(crate) fn retire(&mut self) -> bool {
        let empty =
            |folder: &PathBuf| fs::read(folder.join("cgroup.procs")).is_ok_and(|members| members.is_empty());
        if RUNS.load(Ordering::Relaxed) > 1 && !self.folders.is_empty() && self.folders.iter().all(empty) {
            let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < IDLE_MAX {
                let bare = Self::none(self.bounds);
                idle.push(core::mem::replace(self, bare));
                return true;
            }
        }
        self.remove()
    }

    fn remove(&mut self) -> bool {
        self.folders.retain(|folder| fs::remove_dir(folder).is_err() && folder.exists());
        self.folders.is_empty()
    }
}

impl Drop for RunCgroup {
    fn drop(&mut self) {
        // What is not empty yet is swept by the next Regent.
        self.remove();
    }
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
