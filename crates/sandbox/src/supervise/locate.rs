//! Where a path leads, in the program's own root: the folder, opened, and the last name.

use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use super::Desk;
use super::request::Named;
use crate::ended::Confinement;
use crate::grants::PathAccess;
use crate::sys::notify::{self, Notice};

/// As often as the kernel follows links in one path.
pub(super) const LINKS_MAX: usize = 40;
/// Lookups that a rename elsewhere disturbs are begun again.
const LOOKUPS_MAX: usize = 8;

/// A name in a folder.
#[derive(Debug)]
pub(super) struct NamedEntry {
    pub folder: OwnedFd,
    /// The last name, with the slashes behind it, if there were any.
    pub name: CString,
    /// The folder's real path, as the program sees it.
    pub path: PathBuf,
    /// The folder relative to the workspace, if it lies in there.
    pub inside: Option<PathBuf>,
    /// The folder's mount; nothing in the fallback, which has none of its own.
    mount: Option<u64>,
}

/// What a path names.
#[derive(Debug)]
pub(super) enum Spot {
    Entry(NamedEntry),
    /// A descriptor of the caller's own, by a path such as `/dev/fd/3`.
    Descriptor(i32),
}

/// Where a lookup begins.
#[derive(Debug, Clone, Copy)]
enum LookupStart<'a> {
    Root,
    Working,
    Descriptor(i32),
    Folder(BorrowedFd<'a>),
}

impl NamedEntry {
    /// The last name without slashes.
    pub(super) fn plain_name(&self) -> &OsStr {
        let bytes = self.name.to_bytes();
        let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        OsStr::from_bytes(bytes.get(..end).unwrap_or_default())
    }

    /// The whole path.
    pub(super) fn full(&self) -> PathBuf {
        self.path.join(self.plain_name())
    }

    /// Whether the last name is `.` or `..`, which can't be made.
    pub(super) fn is_dots(&self) -> bool {
        matches!(self.plain_name().as_bytes(), b"." | b"..")
    }

    /// Whether something is mounted on the name. The kernel keeps a name with a mount from being moved or replaced, but only where
    /// the caller shares the mount: this thread doesn't, so it has to ask.
    pub(super) fn is_mount_point(&self) -> Result<bool, Errno> {
        let Some(mount) = self.mount else { return Ok(false) };
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        match rustix::fs::statx(&self.folder, self.plain_name(), flags, StatxFlags::MNT_ID) {
            Ok(found) => Ok(found.stx_mnt_id != mount),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn has_slash(&self) -> bool {
        self.name.to_bytes().ends_with(b"/")
    }
}

impl Desk {
    /// The place that an argument names. A link at the end is not followed.
    pub(super) fn locate(&mut self, notice: &Notice, named: &Named) -> Result<Spot, Errno> {
        let start = if named.folder == libc::AT_FDCWD {
            LookupStart::Working
        } else {
            LookupStart::Descriptor(named.folder)
        };
        self.find(notice, start, &named.path)
    }

    /// The place that a link at `place` leads to.
    pub(super) fn follow(&mut self, notice: &Notice, place: &NamedEntry) -> Result<Spot, Errno> {
        let to = rustix::fs::readlinkat(&place.folder, place.plain_name(), Vec::new())?;
        self.find(notice, LookupStart::Folder(place.folder.as_fd()), to.to_bytes())
    }

    /// The place that an absolute path names.
    pub(super) fn locate_path(&mut self, notice: &Notice, path: &Path) -> Result<Spot, Errno> {
        self.find(notice, LookupStart::Root, path.as_os_str().as_bytes())
    }

    fn find(&mut self, notice: &Notice, start: LookupStart<'_>, path: &[u8]) -> Result<Spot, Errno> {
        let (start, rest) = match path.strip_prefix(b"/") {
            None => (start, path),
            Some(rest) => own(rest).unwrap_or((LookupStart::Root, rest)),
        };
        if let (LookupStart::Descriptor(number), true) = (start, rest.is_empty()) {
            return Ok(Spot::Descriptor(number));
        }
        let (folder, name) = split(rest);
        let name = CString::new(if name.is_empty() { b"." } else { name }).map_err(|_| Errno::INVAL)?;
        let folder = self.folder(notice, start, folder)?;
        let path = real_path(folder.as_fd())?;
        let inside = path.strip_prefix(&self.ground.workspace).map(Path::to_path_buf).ok();
        let mount = self.is_in_view(notice, folder.as_fd(), inside.is_some())?;
        Ok(Spot::Entry(NamedEntry { folder, name, path, inside, mount }))
    }

    fn folder(&mut self, notice: &Notice, start: LookupStart<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
        let base = match start {
            LookupStart::Root => return self.below_root(notice, path),
            LookupStart::Working => self.open_of(notice, "cwd", OFlags::DIRECTORY)?,
            LookupStart::Descriptor(number) => {
                self.open_of(notice, &format!("fd/{number}"), OFlags::DIRECTORY)?
            }
            LookupStart::Folder(folder) => rustix::io::fcntl_dupfd_cloexec(folder, 3)?,
        };
        if path.is_empty() {
            return Ok(base);
        }
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match lookup(base.as_fd(), path, resolve) {
            // A link on the way: an absolute one begins at the program's root, not at ours.
            Err(Errno::LOOP) => {
                let mut whole = real_path(base.as_fd())?.into_os_string().into_vec();
                whole.push(b'/');
                whole.extend_from_slice(path);
                self.below_root(notice, whole.strip_prefix(b"/").unwrap_or(&whole))
            }
            found => found,
        }
    }

    fn below_root(&mut self, notice: &Notice, path: &[u8]) -> Result<OwnedFd, Errno> {
        if self.root.is_none() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            self.root = Some(match self.ground.confinement {
                Confinement::Full => self.open_of(notice, "root", OFlags::DIRECTORY)?,
                Confinement::LandlockSeccomp => rustix::fs::open(c"/", flags, Mode::empty())?,
            });
        }
        let root = self.root.as_ref().ok_or(Errno::NOENT)?;
        let path = if path.is_empty() { b".".as_slice() } else { path };
        lookup(root.as_fd(), path, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
    }

    /// Opens something that the caller has, by its entry in `/proc`.
    pub(super) fn open_of(&self, notice: &Notice, what: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = format!("/proc/{}/{what}", notice.thread);
        let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty());
        // The number may be another thread's by now.
        self.still_waits(notice)?;
        opened.map_err(|errno| match errno {
            Errno::NOENT if what.starts_with("fd/") => Errno::BADF,
            other => other,
        })
    }

    /// Whether what we have just opened by the caller's number is the caller's.
    pub(super) fn still_waits(&self, notice: &Notice) -> Result<(), Errno> {
        if notify::is_waiting(self.listener.as_fd(), notice.id) { Ok(()) } else { Err(Errno::SRCH) }
    }

    /// A descriptor that the program was given may lead to a folder that isn't in its view.
    fn is_in_view(
        &mut self,
        notice: &Notice,
        folder: BorrowedFd<'_>,
        inside: bool,
    ) -> Result<Option<u64>, Errno> {
        if self.ground.confinement == Confinement::LandlockSeccomp {
            return Ok(None);
        }
        if self.mounts.is_empty() {
            let list = std::fs::read(format!("/proc/{}/mountinfo", notice.thread));
            self.still_waits(notice)?;
            self.mounts = mounts(&list.map_err(|_| Errno::ACCESS)?, &self.ground.workspace);
        }
        let found = rustix::fs::statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        match self.mounts.get(&found.stx_mnt_id) {
            // A folder of the workspace whose path doesn't say so could not be judged.
            Some(of_workspace) if inside || !of_workspace => Ok(Some(found.stx_mnt_id)),
            Some(_) | None => Err(Errno::ACCESS),
        }
    }

    /// What the fallback's rules give for a path: reading, writing.
    pub(super) fn rights(&self, path: &Path) -> (bool, bool) {
        if self.ground.confinement == Confinement::Full {
            return (true, true);
        }
        let over = self.ground.rules.iter().filter(|(place, _)| path.starts_with(place));
        over.fold((false, false), |(read, write), (_, access)| match access {
            PathAccess::List => (read, write),
            PathAccess::Read | PathAccess::Execute => (true, write),
            PathAccess::Device | PathAccess::Terminal | PathAccess::Write | PathAccess::Scratch => {
                (true, true)
            }
        })
    }
}

/// The mounts of a `mountinfo`, and whether each is the workspace's.
fn mounts(list: &[u8], workspace: &Path) -> HashMap<u64, bool> {
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let at = PathBuf::from(OsString::from_vec(unescaped(fields.nth(3)?)));
        Some((id, at.starts_with(workspace)))
    };
    list.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// White space and backslashes are written as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) if byte == b'\\' => {
                bytes.push(value);
                rest = after.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    bytes
}

fn lookup(base: BorrowedFd<'_>, path: &[u8], resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for _ in 0..LOOKUPS_MAX {
        match rustix::fs::openat2(base, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            found => return found,
        }
    }
    Err(Errno::AGAIN)
}

/// Where a descriptor of ours leads, as the root of its mounts sees it.
pub(super) fn real_path(fd: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let path = rustix::fs::readlinkat(CWD, link, Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(path.to_bytes())))
}

/// Paths that mean something else for us than for the caller: its own entries in `/proc`.
fn own(absolute: &[u8]) -> Option<(LookupStart<'static>, &[u8])> {
    let (first, rest) = next(absolute)?;
    let (second, rest) = next(rest)?;
    let (what, rest) = match (first, second) {
        (b"proc", b"self" | b"thread-self") => next(rest)?,
        (b"dev", b"fd") => (b"fd".as_slice(), rest),
        _ => return None,
    };
    match what {
        b"cwd" => Some((LookupStart::Working, rest)),
        b"root" => Some((LookupStart::Root, rest)),
        b"fd" => {
            let (number, rest) = next(rest)?;
            let number = std::str::from_utf8(number).ok()?.parse().ok()?;
            Some((LookupStart::Descriptor(number), rest))
        }
        _ => None,
    }
}

/// The first name of a path, and what is behind it and its slashes.
fn next(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let begin = path.iter().position(|byte| *byte != b'/')?;
    let path = path.get(begin..)?;
    let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    let (name, rest) = path.split_at_checked(end)?;
    let skip = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
    Some((name, rest.get(skip..)?))
}

/// The folder part of a path, and its last name with the slashes behind it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let Some(last) = path.iter().rposition(|byte| *byte != b'/') else { return (b"", b"") };
    let before = path.get(..last).unwrap_or_default();
    match before.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default()),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_at_the_last_name() {
        let cases: [(&[u8], &[u8], &[u8]); 9] = [
            (b"a", b"", b"a"),
            (b"a/b", b"a", b"b"),
            (b"a//b", b"a/", b"b"),
            (b"a/b//", b"a", b"b//"),
            (b"a/", b"", b"a/"),
            (b"", b"", b""),
            (b"//", b"", b""),
            (b"a/..", b"a", b".."),
            (b"x/y/z", b"x/y", b"z"),
        ];
        for (path, folder, name) in cases {
            assert_eq!(split(path), (folder, name), "{path:?}");
        }
    }

    #[test]
    fn paths_of_the_callers_own_are_known() {
        let start = |path: &'static [u8]| own(path).map(|(start, rest)| (format!("{start:?}"), rest));
        let is = |what: &str, rest: &'static [u8]| Some((what.to_owned(), rest));
        assert_eq!(start(b"proc/self/fd/7"), is("Descriptor(7)", b""));
        assert_eq!(start(b"/proc//self/fd/7/a/b"), is("Descriptor(7)", b"a/b"));
        assert_eq!(start(b"dev/fd/0"), is("Descriptor(0)", b""));
        assert_eq!(start(b"proc/thread-self/cwd/x"), is("Working", b"x"));
        assert_eq!(start(b"proc/self/root/etc/x"), is("Root", b"etc/x"));
        for other in
            [b"proc/self/fd/x".as_slice(), b"proc/1/fd/1", b"dev/null", b"proc/self", b"", b"proc/self/fd"]
        {
            assert!(own(other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn distinguishes_mounts_of_the_workspace() {
        let list = b"21 1 0:5 / / ro - tmpfs x rw\n30 21 8:1 /p /a\\040b/work rw - ext4 x rw\n31 30 8:1 /p /a\\040b/work/.git rw - e x rw\nx\n";
        let found = mounts(list, Path::new("/a b/work"));
        assert_eq!(found, HashMap::from([(21, false), (30, true), (31, true)]));
    }
}
