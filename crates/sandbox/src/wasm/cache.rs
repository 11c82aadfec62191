//! Compiled code, kept between runs.
//!
//! Wasmtime doesn't validate compiled code: a changed file would run code in our process. So every file carries a tag
//! made with a key that only this user can read, over the code, what it was compiled from, and by which compiler with which
//! settings. A file without the right tag isn't loaded; it is compiled again. Files are read whole and then judged, so that what
//! was judged is what is loaded.

#![expect(unsafe_code, reason = "compiled code can't be validated when loaded; its HMAC is checked here")]

use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{Hash as _, Hasher};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit as _, Mac as _};
use regent_kernel::{Digest, hex_string};
use sha2::{Digest as _, Sha256};
use wasmtime::component::Component;
use wasmtime::{Engine as Vm, Module};

const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 32;
/// Compiled code is some times larger than what it comes from.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// More than this many files, and the oldest go.
const FILES_MAX: usize = 256;

/// What WASM bytes are, by their first eight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WasmKind {
    Component,
    Module,
}

impl WasmKind {
    pub(super) fn detect(wasm: &[u8]) -> Option<Self> {
        match wasm.get(..8)? {
            b"\0asm\x01\0\0\0" => Some(Self::Module),
            b"\0asm\x0d\0\x01\0" => Some(Self::Component),
            _something_else => None,
        }
    }

    fn word(self) -> &'static [u8] {
        match self {
            Self::Component => b"component",
            Self::Module => b"module",
        }
    }
}

/// A folder of compiled code.
pub(super) struct CodeCache {
    folder: PathBuf,
    key: [u8; KEY_BYTES],
    /// Which compiler, with which settings, for which processor.
    compiler: [u8; 32],
}

impl std::fmt::Debug for CodeCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl CodeCache {
    /// Opens the folder, or makes it. One that others could write to isn't used.
    pub(super) fn open(folder: &Path, vm: &Vm) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let own = std::fs::symlink_metadata(folder)?;
        if !own.is_dir() || !is_private(&own) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "others can access the folder"));
        }
        let mut compiler = Fingerprint(Sha256::new());
        vm.precompile_compatibility_hash().hash(&mut compiler);
        Ok(Self { folder: folder.to_path_buf(), key: key(folder)?, compiler: compiler.0.finalize().into() })
    }

    pub(super) fn component(&self, vm: &Vm, digest: &Digest) -> Option<Component> {
        let code = self.load(WasmKind::Component, digest)?;
        // SAFETY: `load` gives only bytes whose tag was made with this user's key, over these very bytes, their kind and the hash
        // of this compiler and its settings; tags are made in `keep` alone, over what `Component::serialize` returned. So these
        // are the unchanged bytes of a component that this version of wasmtime, set up like this, compiled.
        unsafe { Component::deserialize(vm, code) }.ok()
    }

    pub(super) fn module(&self, vm: &Vm, digest: &Digest) -> Option<Module> {
        let code = self.load(WasmKind::Module, digest)?;
        // SAFETY: as for components; the kind is under the tag, so a component's code can't be taken for a module's.
        unsafe { Module::deserialize(vm, code) }.ok()
    }

    /// Keeps compiled code. That it can't be kept is no harm.
    pub(super) fn keep(&self, kind: WasmKind, digest: &Digest, code: &[u8]) {
        // Nothing depends on it: what isn't kept is compiled again.
        drop(self.try_keep(kind, digest, code));
    }

    fn try_keep(&self, kind: WasmKind, digest: &Digest, code: &[u8]) -> io::Result<()> {
        self.make_room()?;
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let new = self.folder.join(format!(".new-{}", hex_string(&random)));
        let tag = self.tag(kind, digest, code)?.finalize().into_bytes();
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let written = file.write_all(&tag).and_then(|()| file.write_all(code));
        // Not synced: a torn file has no valid tag.
        let kept = written.and_then(|()| std::fs::rename(&new, self.path(kind, digest)));
        if kept.is_err() {
            std::fs::remove_file(&new)?;
        }
        kept
    }

    fn load(&self, kind: WasmKind, digest: &Digest) -> Option<Vec<u8>> {
        let mut file = open_private(&self.path(kind, digest)).ok()?;
        let mut tag = [0_u8; TAG_BYTES];
        file.read_exact(&mut tag).ok()?;
        let mut code = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut code).ok()?;
        self.tag(kind, digest, &code).ok()?.verify_slice(&tag).ok()?;
        Some(code)
    }

    fn tag(&self, kind: WasmKind, digest: &Digest, code: &[u8]) -> io::Result<Hmac<Sha256>> {
        let mut tag = Hmac::<Sha256>::new_from_slice(&self.key).map_err(io::Error::other)?;
        // All before the code has a fixed length, or ends in a zero.
        tag.update(b"regent wasm cache 1\0");
        tag.update(kind.word());
        tag.update(b"\0");
        tag.update(digest.as_bytes());
        tag.update(&self.compiler);
        tag.update(code);
        Ok(tag)
    }

    fn path(&self, kind: WasmKind, digest: &Digest) -> PathBuf {
        let kind = match kind {
            WasmKind::Component => "component",
            WasmKind::Module => "module",
        };
        let compiler: String = hex_string(self.compiler.get(..8).unwrap_or_default());
        self.folder.join(format!("{digest}-{compiler}.{kind}"))
    }

    fn make_room(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name() != KEY_NAME {
                files.push((entry.metadata()?.modified()?, entry.path()));
            }
        }
        files.sort();
        let many = (files.len() + 1).saturating_sub(FILES_MAX);
        files.iter().take(many).try_for_each(|(_, path)| std::fs::remove_file(path))
    }
}

const KEY_NAME: &str = "key";

/// The user's key, made on first use. Two that start at once agree: the first to put a whole key there wins.
fn key(folder: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let path = folder.join(KEY_NAME);
    if let Err(error) = std::fs::symlink_metadata(&path)
        && error.kind() == io::ErrorKind::NotFound
    {
        let (mut fresh, mut name) = ([0_u8; KEY_BYTES], [0_u8; 8]);
        getrandom::fill(&mut fresh).map_err(io::Error::other)?;
        getrandom::fill(&mut name).map_err(io::Error::other)?;
        let new = folder.join(format!(".new-{}", hex_string(&name)));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&fresh)?;
        file.sync_all()?;
        let linked = std::fs::hard_link(&new, &path);
        std::fs::remove_file(&new)?;
        if let Err(error) = linked
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
    }
    let mut key = [0_u8; KEY_BYTES];
    open_private(&path)?.read_exact(&mut key)?;
    Ok(key)
}

/// Opens a file that is ours alone, and no link.
fn open_private(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path)?;
    let own = file.metadata()?;
    if own.is_file() && is_private(&own) {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "others can access the file"))
    }
}

fn is_private(own: &std::fs::Metadata) -> bool {
    own.uid() == rustix::process::geteuid().as_raw() && own.mode() & 0o077 == 0
}

/// Feeds what is hashed into SHA-256: 64 bits would be too few to tell compilers apart for sure.
struct Fingerprint(Sha256);

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}
