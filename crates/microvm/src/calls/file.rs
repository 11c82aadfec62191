//! Files: moving bytes through descriptors, and everything that takes a path.

use rustix::io::Errno;

use super::super::files::{OpenKind, TRANSFER_BYTES_MAX, held_by};
use super::super::layout;
use super::super::link::{About, GuestFileKind, Outside};
use super::super::tree::{GuestPath, absolute};
use super::{GuestProcess, SyscallResult};

/// Parts of one `readv` or `writev`.
const PARTS_MAX: u64 = 1024;
const CURRENT: u64 = libc::AT_FDCWD as u32 as u64;

impl GuestProcess {
    /// Calls on descriptors.
    pub(super) fn transfer_call(
        &mut self,
        number: i64,
        arguments: [u64; 6],
        outside: &dyn Outside,
    ) -> Option<SyscallResult> {
        let [fd, second, third, fourth, ..] = arguments;
        let fd = fd & u64::from(u32::MAX);
        Some(match number {
            libc::SYS_read => self.read(fd, second, third, None),
            libc::SYS_pread64 => self.read(fd, second, third, Some(fourth)),
            libc::SYS_write => self.write(fd, second, third, None),
            libc::SYS_pwrite64 => self.write(fd, second, third, Some(fourth)),
            libc::SYS_readv => {
                self.each_part(second, third, |program, at, len| program.read(fd, at, len, None))
            }
            libc::SYS_writev => {
                self.each_part(second, third, |program, at, len| program.write(fd, at, len, None))
            }
            libc::SYS_close => self.files.close(fd, outside).map(|()| 0),
            libc::SYS_close_range => self.close_range(fd, second, third, outside),
            libc::SYS_lseek => self.lseek(fd, second, third),
            libc::SYS_fstat => self.stat_open(fd, second),
            libc::SYS_getdents64 => self.getdents(fd, second, third, outside),
            libc::SYS_dup => self.files.dup(fd, 0, false),
            libc::SYS_dup2 if fd == second => self.files.get(fd).map(|_| fd),
            libc::SYS_dup2 => self.files.dup_to(fd, second, false, outside),
            libc::SYS_dup3 if fd == second => Err(Errno::INVAL),
            libc::SYS_dup3 => self.files.dup_to(fd, second, third & libc::O_CLOEXEC as u64 != 0, outside),
            libc::SYS_fcntl => self.fcntl(fd, second, third),
            libc::SYS_pipe => self.pipe(arguments, 0),
            libc::SYS_pipe2 => self.pipe(arguments, second),
            libc::SYS_fsync | libc::SYS_fdatasync => self.files.sync(fd, outside).map(|()| 0),
            libc::SYS_ftruncate => self.files.truncate(fd, second).map(|()| 0),
            libc::SYS_fallocate | libc::SYS_sendfile | libc::SYS_copy_file_range => Err(Errno::NOSYS),
            libc::SYS_fadvise64 => self.files.get(fd).map(|_| 0),
            libc::SYS_flock => self.files.get(fd).map(|_| 0),
            // Owner and mode of what will be a file are not the guest's to choose; programs that set them don't insist.
            libc::SYS_fchmod => self.files.get(fd).map(|_| 0),
            // There are no terminals and no devices.
            libc::SYS_ioctl => self.files.get(fd).and(Err(Errno::NOTTY)),
            _ => return None,
        })
    }

    fn read(&mut self, fd: u64, at: u64, len: u64, from: Option<u64>) -> SyscallResult {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(TRANSFER_BYTES_MAX);
        // The place is looked at before anything is taken out of a pipe or moved.
        self.space.check(at, len, |protection| protection.write)?;
        let part = self.files.read(fd, len, from)?;
        self.space.write(at, &part)?;
        Ok(part.len() as u64)
    }

    fn write(&mut self, fd: u64, at: u64, len: u64, to: Option<u64>) -> SyscallResult {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(TRANSFER_BYTES_MAX);
        let mut bytes = vec![0; len];
        self.space.read(at, &mut bytes)?;
        Ok(self.files.write(fd, &bytes, to)? as u64)
    }

    /// The parts of a vector, until one is not done in full.
    fn each_part(
        &mut self,
        at: u64,
        count: u64,
        mut one: impl FnMut(&mut Self, u64, u64) -> SyscallResult,
    ) -> SyscallResult {
        if count > PARTS_MAX {
            return Err(Errno::INVAL);
        }
        let mut total: u64 = 0;
        for index in 0..count {
            let place = at.checked_add(index * 16).ok_or(Errno::FAULT)?;
            let (base, len) = (self.word(place)?, self.word(place.saturating_add(8))?);
            if len == 0 {
                continue;
            }
            match one(self, base, len) {
                Ok(done) => {
                    total = total.saturating_add(done);
                    if done < len {
                        break;
                    }
                }
                Err(_) if total > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(total)
    }

    fn close_range(&mut self, first: u64, last: u64, flags: u64, outside: &dyn Outside) -> SyscallResult {
        if flags != 0 || last < first {
            return Err(Errno::INVAL);
        }
        for fd in first..=last.min(self.open_max) {
            if self.files.get(fd).is_ok() {
                self.files.close(fd, outside).ok();
            }
        }
        Ok(0)
    }

    fn lseek(&mut self, fd: u64, offset: u64, whence: u64) -> SyscallResult {
        let open = self.files.get(fd)?;
        let end = match &open.what {
            OpenKind::Input | OpenKind::Stdout | OpenKind::Stderr | OpenKind::PipeEnd { .. } => {
                return Err(Errno::SPIPE);
            }
            what @ (OpenKind::Device(_)
            | OpenKind::Folder { .. }
            | OpenKind::Read { .. }
            | OpenKind::Draft(_)
            | OpenKind::Tmp(_)) => self.files.about(what)?.bytes,
        };
        let from = match i32::try_from(whence) {
            Ok(libc::SEEK_SET) => 0,
            Ok(libc::SEEK_CUR) => open.at,
            Ok(libc::SEEK_END) => end,
            _ => return Err(Errno::INVAL),
        };
        let to = from.checked_add_signed(offset.cast_signed()).filter(|to| i64::try_from(*to).is_ok());
        let to = to.ok_or(Errno::INVAL)?;
        self.files.get_mut(fd)?.at = to;
        Ok(to)
    }

    fn stat_open(&mut self, fd: u64, at: u64) -> SyscallResult {
        let (about, inode) = self.about_open(fd)?;
        self.space.write(at, &layout::stat(&about, inode))?;
        Ok(0)
    }

    fn about_open(&self, fd: u64) -> Result<(About, u64), Errno> {
        let open = self.files.get(fd)?;
        let inode = match &open.what {
            OpenKind::Folder { path, .. } | OpenKind::Read { path, .. } => layout::inode(path),
            OpenKind::Draft(id) => layout::inode(&format!("draft {id}")),
            OpenKind::Tmp(id) => layout::inode(&format!("tmp {id}")),
            OpenKind::Device(device) => layout::inode(&format!("{device:?}")),
            OpenKind::Input | OpenKind::Stdout | OpenKind::Stderr | OpenKind::PipeEnd { .. } => {
                layout::inode(&format!("fd {fd}"))
            }
        };
        Ok((self.files.about(&open.what)?, inode))
    }

    fn getdents(&mut self, fd: u64, at: u64, len: u64, outside: &dyn Outside) -> SyscallResult {
        let OpenKind::Folder { path, names } = &self.files.get(fd)?.what else { return Err(Errno::NOTDIR) };
        if names.is_none() {
            let path = path.clone();
            let found = self.files.list(&path, outside)?;
            self.files.hold(held_by(&found))?;
            if let OpenKind::Folder { names, .. } = &mut self.files.get_mut(fd)?.what {
                *names = Some(found);
            }
        }
        let open = self.files.get(fd)?;
        let OpenKind::Folder { names: Some(names), .. } = &open.what else { return Err(Errno::NOTDIR) };
        let (mut bytes, mut next) = (Vec::new(), open.at);
        let room = usize::try_from(len).unwrap_or(usize::MAX).min(TRANSFER_BYTES_MAX);
        for (name, kind) in names.iter().skip(usize::try_from(open.at).unwrap_or(usize::MAX)) {
            let record = layout::dirent(name, *kind, next.saturating_add(1));
            if bytes.len().saturating_add(record.len()) > room {
                break;
            }
            bytes.extend(record);
            next = next.saturating_add(1);
        }
        let left = usize::try_from(open.at).is_ok_and(|at| at < names.len());
        if bytes.is_empty() && left {
            return Err(Errno::INVAL);
        }
        self.space.write(at, &bytes)?;
        self.files.get_mut(fd)?.at = next;
        Ok(bytes.len() as u64)
    }

    fn fcntl(&mut self, fd: u64, command: u64, argument: u64) -> SyscallResult {
        let changeable = (libc::O_APPEND | libc::O_NONBLOCK).cast_unsigned();
        match i32::try_from(command).unwrap_or(-1) {
            libc::F_DUPFD => self.files.dup(fd, argument, false),
            libc::F_DUPFD_CLOEXEC => self.files.dup(fd, argument, true),
            libc::F_GETFD => self.files.close_on_exec(fd, None).map(u64::from),
            libc::F_SETFD => self.files.close_on_exec(fd, Some(argument & 1 != 0)).map(|_| 0),
            libc::F_GETFL => {
                self.files.get(fd).map(|open| u64::from(open.flags & !libc::O_CLOEXEC.cast_unsigned()))
            }
            libc::F_SETFL => {
                let open = self.files.get_mut(fd)?;
                open.flags = open.flags & !changeable | argument as u32 & changeable;
                Ok(0)
            }
            // Nobody else is there to hold a lock.
            libc::F_SETLK | libc::F_SETLKW => self.files.get(fd).map(|_| 0),
            _ => Err(Errno::INVAL),
        }
    }

    fn pipe(&mut self, [at, ..]: [u64; 6], flags: u64) -> SyscallResult {
        self.space.check(at, 8, |protection| protection.write)?;
        let (read, write) = self.files.pipe(flags as u32)?;
        let mut both = (read as u32).to_le_bytes().to_vec();
        both.extend((write as u32).to_le_bytes());
        self.fill(at, &both)
    }

    /// Calls on paths.
    pub(super) fn name_call(
        &mut self,
        number: i64,
        arguments: [u64; 6],
        outside: &dyn Outside,
    ) -> Option<SyscallResult> {
        let [first, second, third, fourth, fifth, _] = arguments;
        Some(match number {
            libc::SYS_open => self.open(CURRENT, first, second, third, outside),
            libc::SYS_creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                self.open(CURRENT, first, flags as u64, second, outside)
            }
            libc::SYS_openat => self.open(first, second, third, fourth, outside),
            libc::SYS_stat | libc::SYS_lstat => self.stat_at(CURRENT, first, second, 0, outside),
            libc::SYS_newfstatat => self.stat_at(first, second, third, fourth, outside),
            libc::SYS_statx => self.statx(arguments, outside),
            libc::SYS_access => self.access(CURRENT, first, second, outside),
            libc::SYS_faccessat | libc::SYS_faccessat2 => self.access(first, second, third, outside),
            libc::SYS_readlink => self.readlink(CURRENT, first, (second, third), outside),
            libc::SYS_readlinkat => self.readlink(first, second, (third, fourth), outside),
            libc::SYS_getcwd => self.getcwd(first, second),
            libc::SYS_chdir => self.chdir(first, outside),
            libc::SYS_fchdir => self.fchdir(first),
            libc::SYS_mkdir => self.mkdir(CURRENT, first, second, outside),
            libc::SYS_mkdirat => self.mkdir(first, second, third, outside),
            libc::SYS_unlink => self.remove(CURRENT, first, false, outside),
            libc::SYS_rmdir => self.remove(CURRENT, first, true, outside),
            libc::SYS_unlinkat => self.remove(first, second, third & libc::AT_REMOVEDIR as u64 != 0, outside),
            libc::SYS_rename => self.rename((CURRENT, first), (CURRENT, second), outside),
            libc::SYS_renameat => self.rename((first, second), (third, fourth), outside),
            libc::SYS_renameat2 if fifth == 0 => self.rename((first, second), (third, fourth), outside),
            libc::SYS_renameat2 => Err(Errno::INVAL),
            libc::SYS_chmod => self.unchangeable(CURRENT, first, outside),
            libc::SYS_fchmodat | libc::SYS_utimensat if second != 0 => {
                self.unchangeable(first, second, outside)
            }
            libc::SYS_utimensat => self.files.get(first).map(|_| 0),
            libc::SYS_utimes | libc::SYS_utime => self.unchangeable(CURRENT, first, outside),
            libc::SYS_truncate => self.unchangeable(CURRENT, first, outside),
            _ => return None,
        })
    }

    /// The one spelling of a path argument.
    fn path(&mut self, folder: u64, at: u64) -> Result<String, Errno> {
        let text = self.text(at)?;
        let folder = folder & u64::from(u32::MAX);
        if text.starts_with(b"/") || folder == CURRENT {
            return absolute(&self.cwd, &text);
        }
        let OpenKind::Folder { path, .. } = &self.files.get(folder)?.what else { return Err(Errno::NOTDIR) };
        absolute(path, &text)
    }

    fn open(&mut self, folder: u64, at: u64, flags: u64, mode: u64, outside: &dyn Outside) -> SyscallResult {
        let path = self.path(folder, at)?;
        let (flags, mode) = (flags as u32, mode as u32 & !self.state.umask);
        const TEMPORARY: u32 = libc::O_TMPFILE.cast_unsigned() & !libc::O_DIRECTORY.cast_unsigned();
        if flags & TEMPORARY != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        self.files.open(&path, flags, mode, outside)
    }

    /// Whether a path argument is empty and the descriptor itself is meant.
    fn means_itself(&mut self, at: u64, flags: u64) -> Result<bool, Errno> {
        Ok(flags & libc::AT_EMPTY_PATH as u64 != 0 && (at == 0 || self.text(at)?.is_empty()))
    }

    fn about_at(
        &mut self,
        folder: u64,
        at: u64,
        flags: u64,
        outside: &dyn Outside,
    ) -> Result<(About, u64), Errno> {
        if self.means_itself(at, flags)? {
            if folder & u64::from(u32::MAX) != CURRENT {
                return self.about_open(folder);
            }
            let cwd = self.cwd.clone();
            return Ok((self.files.stat(&cwd, outside)?, layout::inode(&cwd)));
        }
        let path = self.path(folder, at)?;
        Ok((self.files.stat(&path, outside)?, layout::inode(&path)))
    }

    fn stat_at(
        &mut self,
        folder: u64,
        at: u64,
        into: u64,
        flags: u64,
        outside: &dyn Outside,
    ) -> SyscallResult {
        let (about, inode) = self.about_at(folder, at, flags, outside)?;
        self.space.write(into, &layout::stat(&about, inode))?;
        Ok(0)
    }

    fn statx(&mut self, [folder, at, flags, _, into, _]: [u64; 6], outside: &dyn Outside) -> SyscallResult {
        let (about, inode) = self.about_at(folder, at, flags, outside)?;
        self.space.write(into, &layout::statx(&about, inode))?;
        Ok(0)
    }

    /// Whether something is there. What may be done with it only trying tells: policy judges the attempt.
    fn access(&mut self, folder: u64, at: u64, wanted: u64, outside: &dyn Outside) -> SyscallResult {
        let path = self.path(folder, at)?;
        let about = self.files.stat(&path, outside)?;
        let runs = wanted & libc::X_OK as u64 != 0;
        if runs && about.kind != GuestFileKind::Folder && about.mode & 0o111 == 0 {
            return Err(Errno::ACCESS);
        }
        Ok(0)
    }

    fn readlink(
        &mut self,
        folder: u64,
        at: u64,
        (into, len): (u64, u64),
        outside: &dyn Outside,
    ) -> SyscallResult {
        let path = self.path(folder, at)?;
        if self.files.tree.place(&path) != GuestPath::Program {
            self.files.stat(&path, outside)?;
            return Err(Errno::INVAL);
        }
        let target = self.path.clone();
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(target.len());
        let bytes = target.as_bytes().get(..len).ok_or(Errno::INVAL)?;
        self.space.write(into, bytes)?;
        Ok(len as u64)
    }

    fn getcwd(&mut self, at: u64, len: u64) -> SyscallResult {
        let mut text = self.cwd.clone().into_bytes();
        text.push(0);
        if (text.len() as u64) > len {
            return Err(Errno::RANGE);
        }
        self.space.write(at, &text)?;
        Ok(text.len() as u64)
    }

    fn chdir(&mut self, at: u64, outside: &dyn Outside) -> SyscallResult {
        let path = self.path(CURRENT, at)?;
        if self.files.stat(&path, outside)?.kind != GuestFileKind::Folder {
            return Err(Errno::NOTDIR);
        }
        self.cwd = path;
        Ok(0)
    }

    fn fchdir(&mut self, fd: u64) -> SyscallResult {
        let OpenKind::Folder { path, .. } = &self.files.get(fd)?.what else { return Err(Errno::NOTDIR) };
        self.cwd = path.clone();
        Ok(0)
    }

    fn mkdir(&mut self, folder: u64, at: u64, mode: u64, outside: &dyn Outside) -> SyscallResult {
        let path = self.path(folder, at)?;
        let mode = mode as u32 & 0o777 & !self.state.umask;
        self.files.mkdir(&path, mode, outside).map(|()| 0)
    }

    fn remove(&mut self, folder: u64, at: u64, whole: bool, outside: &dyn Outside) -> SyscallResult {
        let path = self.path(folder, at)?;
        self.files.remove(&path, whole, outside).map(|()| 0)
    }

    fn rename(&mut self, from: (u64, u64), to: (u64, u64), outside: &dyn Outside) -> SyscallResult {
        let (from, to) = (self.path(from.0, from.1)?, self.path(to.0, to.1)?);
        self.files.rename(&from, &to, outside).map(|()| 0)
    }

    /// Modes and times: `/tmp` doesn't mind, the workspace has no tool for it.
    fn unchangeable(&mut self, folder: u64, at: u64, outside: &dyn Outside) -> SyscallResult {
        let path = self.path(folder, at)?;
        self.files.stat(&path, outside)?;
        match self.files.tree.place(&path) {
            GuestPath::Tmp(_) => Ok(0),
            GuestPath::Workspace(_)
            | GuestPath::Device(_)
            | GuestPath::Folder(_)
            | GuestPath::Program
            | GuestPath::Nowhere => Err(Errno::PERM),
        }
    }
}
