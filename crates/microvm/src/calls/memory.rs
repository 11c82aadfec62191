//! Memory: `mmap` and its kind, and the heap.

use rustix::io::Errno;

use super::super::areas::{Protection, USER_END, USER_START, page_down, page_up};
use super::super::files::TRANSFER_BYTES_MAX;
use super::super::space::whole_pages;
use super::{GuestProcess, SyscallResult};

impl GuestProcess {
    pub(super) fn memory_call(&mut self, number: i64, arguments: [u64; 6]) -> Option<SyscallResult> {
        let [first, second, third, fourth, fifth, _] = arguments;
        Some(match number {
            libc::SYS_brk => Ok(self.brk(first)),
            libc::SYS_mmap => self.mmap(arguments),
            libc::SYS_munmap => self.munmap(first, second),
            libc::SYS_mprotect => self.mprotect(first, second, third),
            libc::SYS_mremap => self.mremap(first, second, third, (fourth, fifth)),
            libc::SYS_madvise => self.madvise(first, second, third),
            libc::SYS_msync | libc::SYS_mlock | libc::SYS_munlock => {
                whole_pages(page_down(first), second.max(1)).map(|_| 0)
            }
            _ => return None,
        })
    }

    /// Moves the end of the heap; where it can't, says where it is.
    fn brk(&mut self, wanted: u64) -> u64 {
        let heap = self.heap;
        let (Some(old), Some(new)) = (page_up(heap.end), page_up(wanted)) else { return heap.end };
        if wanted < heap.start
            || wanted.saturating_sub(heap.start) > self.space.total_bytes()
            || new > USER_END
        {
            return heap.end;
        }
        if new > old {
            if self.space.areas().any(old, new) || !self.space.areas().has_room() {
                return heap.end;
            }
            self.space.map(old, new, Protection::READ_WRITE);
        } else if new < old {
            self.space.unmap(new, old);
        }
        self.heap.end = wanted;
        wanted
    }

    fn mmap(&mut self, [hint, bytes, protection, flags, fd, offset]: [u64; 6]) -> SyscallResult {
        let bit = |flag: i32| flags & u64::from(flag.unsigned_abs()) != 0;
        let (shared, anonymous) = (bit(libc::MAP_SHARED), bit(libc::MAP_ANONYMOUS));
        let protection = Protection::from_bits(protection);
        if bytes == 0 || offset % 4096 != 0 || !(shared || bit(libc::MAP_PRIVATE)) {
            return Err(Errno::INVAL);
        }
        // Writing back through a mapping would be a write that nobody judged.
        if shared && !anonymous && protection.write {
            return Err(Errno::NODEV);
        }
        let bytes = page_up(bytes).ok_or(Errno::NOMEM)?;
        let promised = protection.read && !bit(libc::MAP_NORESERVE);
        if bytes > USER_END
            || (promised && bytes > self.space.total_bytes())
            || !self.space.areas().has_room()
        {
            return Err(Errno::NOMEM);
        }
        if !anonymous {
            // Before anything changes: the file must be one that can be read.
            self.files.read(fd, 0, Some(offset))?;
        }
        let start = if bit(libc::MAP_FIXED) || bit(libc::MAP_FIXED_NOREPLACE) {
            let (start, end) = whole_pages(hint, bytes)?;
            if start < USER_START {
                return Err(Errno::PERM);
            }
            if bit(libc::MAP_FIXED_NOREPLACE) && self.space.areas().any(start, end) {
                return Err(Errno::EXIST);
            }
            self.space.unmap(start, end);
            start
        } else {
            self.space.areas().free_below(self.mappings_top, bytes).ok_or(Errno::NOMEM)?
        };
        self.space.map(start, start.saturating_add(bytes), protection);
        if !anonymous && let Err(errno) = self.copy_file(fd, offset, start, bytes) {
            self.space.unmap(start, start.saturating_add(bytes));
            return Err(errno);
        }
        Ok(start)
    }

    /// A private mapping of a file is a copy of what it holds.
    fn copy_file(&mut self, fd: u64, offset: u64, start: u64, bytes: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes {
            let want =
                usize::try_from(bytes.saturating_sub(done)).unwrap_or(usize::MAX).min(TRANSFER_BYTES_MAX);
            let part = self.files.read(fd, want, Some(offset.saturating_add(done)))?;
            if part.is_empty() {
                break;
            }
            self.space.copy(start.saturating_add(done), &part)?;
            done = done.saturating_add(part.len() as u64);
        }
        Ok(())
    }

    fn munmap(&mut self, at: u64, bytes: u64) -> SyscallResult {
        let (start, end) = whole_pages(at, bytes)?;
        if !self.space.areas().has_room() {
            return Err(Errno::NOMEM);
        }
        self.space.unmap(start, end);
        Ok(0)
    }

    fn mprotect(&mut self, at: u64, bytes: u64, protection: u64) -> SyscallResult {
        if bytes == 0 && at.is_multiple_of(4096) {
            return Ok(0);
        }
        let (start, end) = whole_pages(at, bytes)?;
        if !self.space.areas().has_room() {
            return Err(Errno::NOMEM);
        }
        self.space.protect(start, end, Protection::from_bits(protection))?;
        Ok(0)
    }

    fn mremap(&mut self, at: u64, old: u64, new: u64, (flags, target): (u64, u64)) -> SyscallResult {
        let (start, old_end) = whole_pages(at, old)?;
        let new = page_up(new).filter(|new| *new > 0).ok_or(Errno::INVAL)?;
        let may_move = flags & u64::from(libc::MREMAP_MAYMOVE.unsigned_abs()) != 0;
        let fixed = flags & u64::from(libc::MREMAP_FIXED.unsigned_abs()) != 0;
        let (_, area_end, protection) = self.space.areas().around(start).ok_or(Errno::FAULT)?;
        if area_end < old_end || new > self.space.total_bytes() || !self.space.areas().has_room() {
            return Err(if area_end < old_end { Errno::FAULT } else { Errno::NOMEM });
        }
        let old = old_end - start;
        if new <= old && !fixed {
            self.space.unmap(start.saturating_add(new), old_end);
            return Ok(start);
        }
        let new_end = start.checked_add(new).filter(|end| *end <= USER_END);
        if !fixed
            && let Some(new_end) = new_end
            && !self.space.areas().any(old_end, new_end)
        {
            self.space.map(old_end, new_end, protection);
            return Ok(start);
        }
        if !may_move {
            return Err(Errno::NOMEM);
        }
        let to = if fixed {
            let (to, to_end) = whole_pages(target, new)?;
            if to < USER_START || (to < old_end && start < to_end) {
                return Err(Errno::INVAL);
            }
            self.space.unmap(to, to_end);
            to
        } else {
            self.space.areas().free_below(self.mappings_top, new).ok_or(Errno::NOMEM)?
        };
        self.space.map(to, to.saturating_add(new), protection);
        self.space.move_pages(start, to, old.min(new))?;
        self.space.unmap(start, old_end);
        Ok(to)
    }

    fn madvise(&mut self, at: u64, bytes: u64, advice: u64) -> SyscallResult {
        if bytes == 0 {
            return Ok(0);
        }
        let (start, end) = whole_pages(at, bytes)?;
        if !self.space.areas().all(start, end, |_| true) {
            return Err(Errno::NOMEM);
        }
        if advice == u64::from(libc::MADV_DONTNEED.unsigned_abs()) {
            self.space.discard(start, end);
        }
        Ok(0)
    }
}
