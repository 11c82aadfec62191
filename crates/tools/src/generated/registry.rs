//! Generated tools on disk: `<name>/v1/{tool.js,manifest.json}`, `v2/` … and `<name>/active.json`.
//!
//! What was agreed to is pinned in a file of the user's own, outside of the project: the digest of each version's manifest, and which
//! version is active. The manifest has the digest of the source. What isn't as pinned is refused, never repaired.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use regent_kernel::{Digest, ToolSpec};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::manifest::check_name;
use super::{GeneratedError, Manifest};
use crate::pins::PinFile;

const SOURCE: &str = "tool.js";
const MANIFEST: &str = "manifest.json";
const ACTIVE: &str = "active.json";
const FILE_BYTES_MAX: u64 = 4 << 20;
const VERSIONS_MAX: u32 = 10_000;

/// The folder, and the pins.
#[derive(Debug, Clone)]
pub struct Registry {
    folder: PathBuf,
    pins: PinFile,
}

/// A version as it lies on disk, compared with its pin.
#[derive(Debug, Clone)]
pub struct Kept {
    /// What is written down about it.
    pub manifest: Manifest,
    /// Its source.
    pub source: String,
    /// The digest of the manifest.
    pub digest: Digest,
}

impl Kept {
    /// As the catalogue has it.
    pub fn spec(&self) -> ToolSpec {
        self.manifest.spec(self.digest)
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct ToolPins {
    tools: BTreeMap<String, Pinned>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Pinned {
    active: u32,
    versions: BTreeMap<u32, Digest>,
}

impl Registry {
    pub(super) fn new(folder: PathBuf, pins: PathBuf) -> Self {
        Self { folder, pins: PinFile::new(pins) }
    }

    /// The tools that there are, usable or not.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let name = |entry: std::fs::DirEntry| entry.file_name().to_str().map(str::to_owned);
        let mut names: Vec<String> =
            entries.flatten().filter_map(name).filter(|name| check_name(name).is_ok()).collect();
        names.sort();
        names
    }

    /// The versions that were made here, and which one is active.
    pub fn versions(&self, name: &str) -> Result<(u32, Vec<u32>), GeneratedError> {
        let pins = self.read_pins()?;
        let pinned = pins.tools.get(name).ok_or_else(|| GeneratedError::Unknown(name.to_owned()))?;
        Ok((pinned.active, pinned.versions.keys().copied().collect()))
    }

    /// The active version, if everything about it is as it was agreed to.
    pub fn active(&self, name: &str) -> Result<Kept, GeneratedError> {
        check_name(name)?;
        let pins = self.read_pins()?;
        let Some(pinned) = pins.tools.get(name) else {
            let there = self.folder.join(name).is_dir();
            let name = name.to_owned();
            return Err(if there { GeneratedError::Unpinned(name) } else { GeneratedError::Unknown(name) });
        };
        let pointer: Value = self.json(name, &self.folder.join(name).join(ACTIVE))?;
        if pointer != json!({"active": pinned.active}) {
            return Err(changed(name, "it points to another version"));
        }
        self.kept(name, pinned.active, pinned)
    }

    /// One version, compared with its pin.
    pub fn version(&self, name: &str, version: u32) -> Result<Kept, GeneratedError> {
        check_name(name)?;
        let pins = self.read_pins()?;
        let pinned = pins.tools.get(name).ok_or_else(|| GeneratedError::Unknown(name.to_owned()))?;
        self.kept(name, version, pinned)
    }

    fn kept(&self, name: &str, version: u32, pinned: &Pinned) -> Result<Kept, GeneratedError> {
        let unknown = || GeneratedError::Unknown(format!("{name} v{version}"));
        let digest = *pinned.versions.get(&version).ok_or_else(unknown)?;
        let (manifest_bytes, source) = self.bytes(name, version)?;
        if Digest::compute(&manifest_bytes) != digest {
            return Err(changed(name, "its manifest differs from the approved version"));
        }
        let manifest: Manifest =
            serde_json::from_slice(&manifest_bytes).map_err(|error| changed(name, &error.to_string()))?;
        if manifest.name != name || manifest.version != version {
            return Err(changed(name, "its manifest is another tool's"));
        }
        if Digest::compute(&source) != manifest.source_sha256 {
            return Err(changed(name, "its source differs from the approved version"));
        }
        let source = String::from_utf8(source).map_err(|_| changed(name, "its source is not text"))?;
        Ok(Kept { manifest, source, digest })
    }

    /// Whether what lies on disk still is this version. Nothing that was changed since it was agreed to is run.
    pub(super) fn compare(&self, kept: &Kept) -> Result<(), GeneratedError> {
        let name = &kept.manifest.name;
        let (manifest, source) = self.bytes(name, kept.manifest.version)?;
        if Digest::compute(&manifest) != kept.digest {
            return Err(changed(name, "its manifest differs from the approved version"));
        }
        if Digest::compute(&source) != kept.manifest.source_sha256 {
            return Err(changed(name, "its source differs from the approved version"));
        }
        Ok(())
    }

    fn bytes(&self, name: &str, version: u32) -> Result<(Vec<u8>, Vec<u8>), GeneratedError> {
        let folder = self.folder.join(name).join(format!("v{version}"));
        let gone = |error| {
            let is_gone = matches!(&error, GeneratedError::Io { error, .. } if error.kind() == std::io::ErrorKind::NotFound);
            if is_gone { changed(name, "a file of it is gone") } else { error }
        };
        Ok((read(&folder.join(MANIFEST)).map_err(gone)?, read(&folder.join(SOURCE)).map_err(gone)?))
    }

    /// Writes a new version and makes it the active one. All or nothing: a version without a pin doesn't count.
    pub(super) fn add(&self, mut manifest: Manifest, source: &str) -> Result<Kept, GeneratedError> {
        check_name(&manifest.name)?;
        let _lock = self.lock()?;
        let mut pins = self.read_pins()?;
        let home = self.folder.join(&manifest.name);
        make_folder(&home)?;
        let pinned = pins.tools.entry(manifest.name.clone()).or_default();
        let last = pinned.versions.keys().next_back().copied().unwrap_or(0);
        // What a crash left without a pin keeps its number: nothing is written over.
        let free =
            (last.saturating_add(1)..VERSIONS_MAX).find(|version| !home.join(format!("v{version}")).exists());
        manifest.version = free.ok_or_else(|| GeneratedError::Refused("too many versions".to_owned()))?;
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|error| GeneratedError::Refused(format!("the manifest can't be written: {error}")))?;
        let digest = Digest::compute(&text);
        let staged = home.join(format!(".v{}.new", manifest.version));
        std::fs::remove_dir_all(&staged).or_else(|error| missing_is_fine(&staged, error))?;
        make_folder(&staged)?;
        write_new(&staged.join(SOURCE), source.as_bytes())?;
        write_new(&staged.join(MANIFEST), &text)?;
        let place = home.join(format!("v{}", manifest.version));
        std::fs::rename(&staged, &place).map_err(|error| io(&place, error))?;
        sync(&home)?;
        pinned.versions.insert(manifest.version, digest);
        pinned.active = manifest.version;
        self.point(&manifest.name, manifest.version)?;
        self.write_pins(&pins)?;
        Ok(Kept { manifest, source: source.to_owned(), digest })
    }

    /// Makes an earlier version active; the one before the active one if none is named.
    pub(super) fn roll_back(
        &self,
        name: &str,
        to: Option<u32>,
        interpreter: Digest,
    ) -> Result<Kept, GeneratedError> {
        check_name(name)?;
        let _lock = self.lock()?;
        let mut pins = self.read_pins()?;
        let pinned = pins.tools.get_mut(name).ok_or_else(|| GeneratedError::Unknown(name.to_owned()))?;
        let before = || pinned.versions.range(..pinned.active).next_back().map(|(version, _)| *version);
        let Some(version) = to.or_else(before) else {
            return Err(GeneratedError::Refused(format!(
                "`{name}` has no version before v{}",
                pinned.active
            )));
        };
        let kept = self.kept(name, version, pinned)?;
        if kept.manifest.interpreter_sha256 != interpreter {
            return Err(GeneratedError::Interpreter(name.to_owned()));
        }
        pinned.active = version;
        self.point(name, version)?;
        self.write_pins(&pins)?;
        Ok(kept)
    }

    /// Takes a tool away, all its versions.
    pub(super) fn remove(&self, name: &str) -> Result<(), GeneratedError> {
        check_name(name)?;
        let _lock = self.lock()?;
        let mut pins = self.read_pins()?;
        let home = self.folder.join(name);
        let pinned = pins.tools.remove(name).is_some();
        if !pinned && !home.exists() {
            return Err(GeneratedError::Unknown(name.to_owned()));
        }
        self.write_pins(&pins)?;
        std::fs::remove_dir_all(&home).or_else(|error| missing_is_fine(&home, error))
    }

    fn point(&self, name: &str, version: u32) -> Result<(), GeneratedError> {
        replace(&self.folder.join(name).join(ACTIVE), json!({"active": version}).to_string().as_bytes())
    }

    fn json(&self, name: &str, path: &Path) -> Result<Value, GeneratedError> {
        serde_json::from_slice(&read(path)?).map_err(|error| changed(name, &error.to_string()))
    }

    fn read_pins(&self) -> Result<ToolPins, GeneratedError> {
        Ok(self.pins.read()?)
    }

    fn write_pins(&self, pins: &ToolPins) -> Result<(), GeneratedError> {
        Ok(self.pins.write(pins)?)
    }

    /// One process at a time changes the pins.
    fn lock(&self) -> Result<File, GeneratedError> {
        Ok(self.pins.lock()?)
    }
}

fn changed(name: &str, what: &str) -> GeneratedError {
    GeneratedError::Changed { name: name.to_owned(), what: what.to_owned() }
}

fn io(path: &Path, error: std::io::Error) -> GeneratedError {
    GeneratedError::Io { path: path.to_owned(), error }
}

fn missing_is_fine(path: &Path, error: std::io::Error) -> Result<(), GeneratedError> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(io(path, error)) }
}

/// A plain file, not too large, and not somewhere else by a link.
fn read(path: &Path) -> Result<Vec<u8>, GeneratedError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
    let file = options.open(path).map_err(|error| io(path, error))?;
    let status = file.metadata().map_err(|error| io(path, error))?;
    if !status.is_file() || status.len() > FILE_BYTES_MAX {
        let odd = std::io::Error::new(std::io::ErrorKind::InvalidData, "not a plain file of a sensible size");
        return Err(io(path, odd));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| io(path, error))?;
    Ok(bytes)
}

fn make_folder(path: &Path) -> Result<(), GeneratedError> {
    std::fs::create_dir_all(path).map_err(|error| io(path, error))
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), GeneratedError> {
    let mut options = OpenOptions::new();
    options.create_new(true).write(true).mode(0o644);
    let mut file = options.open(path).map_err(|error| io(path, error))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|error| io(path, error))
}

/// All of the new content, or all of the old.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), GeneratedError> {
    let staged = path.with_extension("new");
    std::fs::remove_file(&staged).or_else(|error| missing_is_fine(&staged, error))?;
    write_new(&staged, bytes)?;
    std::fs::rename(&staged, path).map_err(|error| io(path, error))?;
    path.parent().map_or(Ok(()), sync)
}

fn sync(folder: &Path) -> Result<(), GeneratedError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| io(folder, error))
}
