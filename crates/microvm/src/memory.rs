//! The guest's physical memory: one mapping of ours, reached by offset, every access checked against its size.
//!
//! There is one virtual processor, and its thread is the only one that holds a [`GuestRam`]: while we read or write here, the guest
//! stands still.
#![expect(
    unsafe_code,
    reason = "guest memory is a mapping that the hypervisor shares; each access is bounded here"
)]

use core::ffi::c_void;
use core::ptr::NonNull;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};

use rustix::fs::{SealFlags, fcntl_add_seals};

/// The machine's page.
pub(super) const PAGE_BYTES: u64 = 4096;

/// A guest's physical memory, given back when dropped.
#[derive(Debug)]
pub(super) struct GuestRam {
    at: NonNull<u8>,
    bytes: usize,
    /// So much from the bottom is a copy-on-write view of an image.
    image_bytes: usize,
    /// A part of it could not be opened again after it was closed: none of it is touched any more.
    closed: bool,
}

// SAFETY: the mapping belongs to this value alone, and no method hands out a pointer or reference into it.
unsafe impl Send for GuestRam {}

impl GuestRam {
    /// Takes address space for a guest. No page is used before it is written.
    pub(super) fn reserve(bytes: u64) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let memory = Self::map(bytes, flags, None)?;
        // A program of the process tier starts as a copy of us: without this it would carry every guest along.
        memory.advise(0, memory.bytes, libc::MADV_DONTFORK);
        memory.advise(0, memory.bytes, libc::MADV_DONTDUMP);
        Ok(memory)
    }

    /// Memory whose content is a file's, for making an image.
    fn of_file(file: &File, bytes: u64) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_SHARED, Some(file))
    }

    fn map(bytes: u64, flags: i32, file: Option<&File>) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        let fd = file.map_or(-1, AsRawFd::as_raw_fd);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), bytes, protection, flags, fd, 0) };
        match NonNull::new(at.cast::<u8>()) {
            Some(at) if at.as_ptr().cast::<c_void>() != libc::MAP_FAILED => {
                Ok(Self { at, bytes, image_bytes: 0, closed: false })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Puts a copy-on-write view of an image at the bottom. What the guest changes is its own; the image stays.
    pub(super) fn overlay(&mut self, image: &Image) -> io::Result<()> {
        let bytes = usize::try_from(image.bytes).map_err(io::Error::other)?;
        if bytes > self.bytes {
            return Err(io::Error::other("the program's image is larger than its memory limit"));
        }
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE);
        // SAFETY: `at..at + bytes` lies inside our own mapping (checked above), which nobody has a reference into.
        let at = unsafe {
            libc::mmap(self.at.as_ptr().cast(), bytes, protection, flags, image.file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        self.image_bytes = bytes;
        self.advise(0, bytes, libc::MADV_DONTFORK);
        self.advise(0, bytes, libc::MADV_DONTDUMP);
        Ok(())
    }

    /// How much there is.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Where it is in our own address space, for the hypervisor.
    pub(super) fn host_address(&self) -> u64 {
        self.at.as_ptr().addr() as u64
    }

    /// The offset of `len` bytes at `at`, if they are all inside.
    fn inside(&self, at: u64, len: usize) -> Option<usize> {
        let start = usize::try_from(at).ok()?;
        (start.checked_add(len)? <= self.bytes && !self.closed).then_some(start)
    }

    /// Copies out of the guest.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> Option<()> {
        let start = self.inside(at, into.len())?;
        // SAFETY: `start..start + len` is inside the mapping; `into` is ours and can't overlap it, because nobody has a reference
        // into the mapping.
        unsafe { core::ptr::copy_nonoverlapping(self.at.as_ptr().add(start), into.as_mut_ptr(), into.len()) };
        Some(())
    }

    /// Copies into the guest.
    pub(super) fn write(&mut self, at: u64, from: &[u8]) -> Option<()> {
        let start = self.inside(at, from.len())?;
        // SAFETY: as in `read`.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), self.at.as_ptr().add(start), from.len()) };
        Some(())
    }

    /// Writes zeros.
    pub(super) fn clear(&mut self, at: u64, len: usize) -> Option<()> {
        let start = self.inside(at, len)?;
        // SAFETY: as in `read`.
        unsafe { core::ptr::write_bytes(self.at.as_ptr().add(start), 0, len) };
        Some(())
    }

    /// A little-endian word.
    pub(super) fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Sets a little-endian word.
    pub(super) fn set_word(&mut self, at: u64, word: u64) -> Option<()> {
        self.write(at, &word.to_le_bytes())
    }

    /// Drops the content of whole pages: they read as zeros afterwards, their memory is the host's again, and the hypervisor
    /// forgets every translation that led to them.
    pub(super) fn forget(&mut self, at: u64, len: usize) -> Option<()> {
        let start = self.inside(at, len)?;
        self.advise(start, len, libc::MADV_DONTNEED);
        // Pages of the image show the image again.
        let imaged = self.image_bytes.saturating_sub(start).min(len);
        if imaged > 0 {
            self.clear(at, imaged)?;
        }
        Some(())
    }

    /// Makes the hypervisor forget every translation that leads to these pages, content kept.
    ///
    /// Where it shadows the guest's page tables it doesn't see us change them: it continues using what it translated before. Taking our
    /// own access away and giving it back is what it does notice.
    pub(super) fn retranslate(&mut self, at: u64, len: usize) -> Option<()> {
        let start = self.inside(at, len)?;
        for protection in [libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE] {
            // SAFETY: the range is inside our own mapping, which nobody has a reference into; access is back when this returns.
            let raw = unsafe { libc::mprotect(self.at.as_ptr().add(start).cast(), len, protection) };
            if raw != 0 {
                self.closed = true;
                return None;
            }
        }
        Some(())
    }

    fn advise(&self, start: usize, len: usize, advice: i32) {
        if start.checked_add(len).is_none_or(|end| end > self.bytes) {
            return;
        }
        // SAFETY: the range is inside our own mapping (checked above); of the advices used, only DONTNEED changes content, and
        // nobody has a reference into it. A refusal changes nothing.
        unsafe { libc::madvise(self.at.as_ptr().add(start).cast(), len, advice) };
    }
}

impl Drop for GuestRam {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses after this.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// What the bottom of a guest's memory holds when a program has been loaded and has not yet run. Never changes.
#[derive(Debug)]
pub(super) struct Image {
    file: File,
    bytes: u64,
}

impl Image {
    /// How much it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes an image: `fill` gets memory of `bytes_max` and says how much of it it has used.
    pub(super) fn make<T, E: From<io::Error>>(
        bytes_max: u64,
        fill: impl FnOnce(GuestRam) -> Result<(u64, T), E>,
    ) -> Result<(Self, T), E> {
        // SAFETY: a C string and flags; the result is checked, and owned by nobody else.
        let raw = unsafe {
            libc::memfd_create(c"regent-image".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if raw < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: a fresh descriptor.
        let file = unsafe { File::from_raw_fd(raw) };
        file.set_len(bytes_max)?;
        let (bytes, value) = fill(GuestRam::of_file(&file, bytes_max)?)?;
        file.set_len(bytes)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
        fcntl_add_seals(file.as_fd(), seals).map_err(io::Error::from)?;
        Ok((Self { file, bytes }, value))
    }
}
