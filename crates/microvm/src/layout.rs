//! The structures of Linux that calls fill in, byte by byte.

use super::link::{About, GuestFileKind};

/// Whom the guest takes itself for.
pub(super) const USER_ID: u32 = 1000;
const BLOCK_BYTES: u32 = 4096;

/// Writes numbers one behind the other.
#[derive(Debug, Default)]
pub(super) struct Packed(pub(super) Vec<u8>);

impl Packed {
    pub(super) fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Zeros up to a length.
    pub(super) fn zeros_to(mut self, bytes: usize) -> Self {
        self.0.resize(bytes, 0);
        self
    }
}

/// Type and permission bits.
fn mode(about: &About) -> u32 {
    let kind = match about.kind {
        GuestFileKind::File => libc::S_IFREG,
        GuestFileKind::Folder => libc::S_IFDIR,
        GuestFileKind::Link => libc::S_IFLNK,
        GuestFileKind::Device => libc::S_IFCHR,
        GuestFileKind::Pipe => libc::S_IFIFO,
    };
    kind | about.mode & 0o7777
}

/// A number that stays the same for the same name.
pub(super) fn inode(name: &str) -> u64 {
    // FNV-1a: short, and good enough to tell files apart.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash | 1
}

/// `struct stat`.
pub(super) fn stat(about: &About, inode: u64) -> Vec<u8> {
    let links = if about.kind == GuestFileKind::Folder { 2 } else { 1 };
    let (seconds, nanoseconds) = (about.modified_ms / 1000, about.modified_ms % 1000 * 1_000_000);
    let mut packed =
        Packed::default().u64(1).u64(inode).u64(links).u32(mode(about)).u32(USER_ID).u32(USER_ID).u32(0);
    packed = packed.u64(0).u64(about.bytes).u64(u64::from(BLOCK_BYTES)).u64(about.bytes.div_ceil(512));
    for _ in 0..3 {
        packed = packed.u64(seconds).u64(nanoseconds);
    }
    packed.zeros_to(144).0
}

/// `struct statx`.
pub(super) fn statx(about: &About, inode: u64) -> Vec<u8> {
    const BASIC_STATS: u32 = 0x7ff;
    let links = if about.kind == GuestFileKind::Folder { 2 } else { 1 };
    let (seconds, nanoseconds) = (about.modified_ms / 1000, (about.modified_ms % 1000 * 1_000_000) as u32);
    let mut packed =
        Packed::default().u32(BASIC_STATS).u32(BLOCK_BYTES).u64(0).u32(links).u32(USER_ID).u32(USER_ID);
    packed = packed
        .u16(mode(about) as u16)
        .u16(0)
        .u64(inode)
        .u64(about.bytes)
        .u64(about.bytes.div_ceil(512))
        .u64(0);
    for _ in 0..4 {
        packed = packed.u64(seconds).u32(nanoseconds).u32(0);
    }
    packed.u32(0).u32(0).u32(0).u32(1).zeros_to(256).0
}

/// `struct linux_dirent64`; `next` is the place of the one after.
pub(super) fn dirent(name: &str, kind: GuestFileKind, next: u64) -> Vec<u8> {
    let kind = match kind {
        GuestFileKind::File => libc::DT_REG,
        GuestFileKind::Folder => libc::DT_DIR,
        GuestFileKind::Link => libc::DT_LNK,
        GuestFileKind::Device => libc::DT_CHR,
        GuestFileKind::Pipe => libc::DT_FIFO,
    };
    let bytes = (19 + name.len() + 1).next_multiple_of(8);
    let mut packed = Packed::default().u64(inode(name)).u64(next).u16(bytes as u16);
    packed.0.push(kind);
    packed.0.extend(name.bytes());
    packed.zeros_to(bytes).0
}

/// `struct utsname`.
pub(super) fn utsname() -> Vec<u8> {
    let mut packed = Packed::default();
    for (at, word) in ["Linux", "microvm", "6.1.0", "#1 Regent", "x86_64", "(none)"].iter().enumerate() {
        packed.0.extend(word.bytes());
        packed = packed.zeros_to((at + 1) * 65);
    }
    packed.0
}

/// `struct sysinfo`.
pub(super) fn sysinfo(uptime_s: u64, total_bytes: u64, used_bytes: u64) -> Vec<u8> {
    let free = total_bytes.saturating_sub(used_bytes);
    let packed = Packed::default().u64(uptime_s).u64(0).u64(0).u64(0).u64(total_bytes).u64(free);
    packed.u64(0).u64(0).u64(0).u64(0).u16(1).zeros_to(104).u32(1).zeros_to(112).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_layout() {
        let about = About { kind: GuestFileKind::File, bytes: 1000, mode: 0o644, modified_ms: 5_500 };
        let (ours, mut theirs) = (stat(&about, 7), Vec::new());
        assert_eq!(ours.len(), size_of::<libc::stat>());
        let at = |offset: usize, len: usize| &ours[offset..offset + len];
        assert_eq!(at(core::mem::offset_of!(libc::stat, st_mode), 4), (libc::S_IFREG | 0o644).to_le_bytes());
        assert_eq!(at(core::mem::offset_of!(libc::stat, st_size), 8), 1000_u64.to_le_bytes());
        assert_eq!(at(core::mem::offset_of!(libc::stat, st_mtime), 8), 5_u64.to_le_bytes());
        theirs.extend(statx(&about, 7));
        assert_eq!(theirs.len(), size_of::<libc::statx>());
        let size = core::mem::offset_of!(libc::statx, stx_size);
        assert_eq!(theirs[size..size + 8], 1000_u64.to_le_bytes());
        let time = core::mem::offset_of!(libc::statx, stx_mtime);
        assert_eq!(theirs[time..time + 8], 5_u64.to_le_bytes());
        assert_eq!(sysinfo(1, 2, 1).len(), size_of::<libc::sysinfo>());
        assert_eq!(utsname().len(), size_of::<libc::utsname>());
        assert_eq!(dirent("abc", GuestFileKind::File, 1).len(), 24);
    }
}
