//! The files of a skill, in memory. Every file passes the same checks, whatever its source; one invalid file rejects the package.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use crate::archive;
use crate::error::SkillError;

/// Maximum files of a package.
pub(crate) const FILES_MAX: usize = 2_000;
/// Maximum size of a file.
pub(crate) const FILE_BYTES_MAX: u64 = 32 << 20;
/// Maximum size of all files together.
pub(crate) const PACKAGE_BYTES_MAX: u64 = 64 << 20;
/// Maximum size of an archive.
pub(crate) const ARCHIVE_BYTES_MAX: u64 = 64 << 20;
const PATH_BYTES_MAX: usize = 512;
const NAME_BYTES_MAX: usize = 255;
const DEPTH_MAX: usize = 16;

/// The files of a skill by path, separated by `/`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Package {
    files: BTreeMap<String, PackageFile>,
    /// Every path and folder folded to lower case, with its original spelling: some file systems ignore case.
    folded: BTreeMap<String, String>,
    bytes: u64,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackageFile {
    pub(crate) bytes: Vec<u8>,
    pub(crate) executable: bool,
}

impl Package {
    /// Reads a folder or an archive. A link as the path is not followed.
    pub fn read(path: &Path) -> Result<Self, SkillError> {
        let meta = std::fs::symlink_metadata(path).map_err(|cause| SkillError::io(path, cause))?;
        if meta.is_symlink() {
            return Err(SkillError::Package(format!("`{}` is a link", path.display())));
        }
        if meta.is_dir() {
            Self::from_folder(path)
        } else {
            Self::from_archive(&read_file(path, ARCHIVE_BYTES_MAX)?)
        }
    }

    /// Reads a folder. Its own `.git` is left out; everything else must be a file or a folder.
    pub fn from_folder(root: &Path) -> Result<Self, SkillError> {
        let mut package = Self::default();
        package.folder(root, "")?;
        Ok(package)
    }

    /// Reads a `.tar.gz`, `.tar` or `.zip` archive (`.skill` files are such archives). A single top-level folder is stripped.
    pub fn from_archive(bytes: &[u8]) -> Result<Self, SkillError> {
        archive::read(bytes).map(Self::without_top)
    }

    /// The paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// One file.
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(|content| content.bytes.as_slice())
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &PackageFile)> {
        self.files.iter().map(|(path, content)| (path.as_str(), content))
    }

    /// Remaining bytes.
    pub(crate) fn bytes_left(&self) -> u64 {
        PACKAGE_BYTES_MAX.saturating_sub(self.bytes)
    }

    /// Adds a file if it is valid.
    pub(crate) fn add(&mut self, path: &[u8], bytes: Vec<u8>, executable: bool) -> Result<(), SkillError> {
        let path = checked_path(path)?;
        let refused = |why: &str| Err(SkillError::Package(format!("`{}` {why}", path.escape_debug())));
        if self.files.len() >= FILES_MAX {
            return Err(SkillError::Package(format!("it has more than {FILES_MAX} files")));
        }
        let length = bytes.len() as u64;
        if length > FILE_BYTES_MAX || length > self.bytes_left() {
            return refused("exceeds the limit");
        }
        if self.files.contains_key(&path) {
            return refused("occurs twice");
        }
        // The path itself and each of its parent folders.
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends.collect::<Vec<_>>() {
            let spelling = path.get(..end).unwrap_or_default();
            let folded = spelling.chars().flat_map(char::to_lowercase).collect::<String>();
            let known = self.folded.entry(folded).or_insert_with(|| spelling.to_owned());
            if known != spelling {
                return refused(&format!("differs from `{known}` only in case"));
            }
            let is_file = end == path.len();
            if !is_file && self.files.contains_key(spelling) {
                return refused(&format!("is below `{spelling}`, which is a file"));
            }
        }
        let below = format!("{path}/");
        if self.files.range(below.clone()..).next().is_some_and(|(other, _)| other.starts_with(&below)) {
            return refused("is a file and a folder");
        }
        self.bytes += length;
        self.files.insert(path, PackageFile { bytes, executable });
        Ok(())
    }

    /// Adds or replaces a generated file.
    #[must_use]
    pub fn with_file(mut self, path: &str, bytes: Vec<u8>) -> Self {
        self.files.insert(path.to_owned(), PackageFile { bytes, executable: false });
        self
    }

    /// Writes all files below a new private folder.
    pub(crate) fn write_to(&self, root: &Path) -> Result<(), SkillError> {
        for (path, content) in &self.files {
            let place = root.join(path);
            let parent = place.parent().unwrap_or(root);
            std::fs::create_dir_all(parent).map_err(|cause| SkillError::io(parent, cause))?;
            let mode = if content.executable { 0o755 } else { 0o644 };
            let written = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&place);
            let written = written.and_then(|mut file| {
                std::io::Write::write_all(&mut file, &content.bytes)?;
                // The umask reduces the mode of a new file, so it is set again.
                file.set_permissions(std::fs::Permissions::from_mode(mode))?;
                file.sync_all()
            });
            written.map_err(|cause| SkillError::io(&place, cause))?;
        }
        Ok(())
    }

    fn folder(&mut self, folder: &Path, below: &str) -> Result<(), SkillError> {
        let entries = std::fs::read_dir(folder).map_err(|cause| SkillError::io(folder, cause))?;
        let mut all =
            entries.collect::<Result<Vec<_>, _>>().map_err(|cause| SkillError::io(folder, cause))?;
        all.sort_by_key(std::fs::DirEntry::file_name);
        for entry in all {
            let (place, name) = (entry.path(), entry.file_name());
            let Some(name) = name.to_str() else {
                return Err(SkillError::Package(format!("`{}` is not a name in UTF-8", place.display())));
            };
            let path = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            let kind = entry.file_type().map_err(|cause| SkillError::io(&place, cause))?;
            if kind.is_dir() {
                if path == ".git" {
                    continue;
                }
                if path.split('/').count() > DEPTH_MAX {
                    return Err(SkillError::Package(format!("`{path}` is nested too deeply")));
                }
                self.folder(&place, &path)?;
            } else if kind.is_file() {
                let executable = entry.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o100 != 0);
                let bytes = read_file(&place, FILE_BYTES_MAX)?;
                self.add(path.as_bytes(), bytes, executable)?;
            } else {
                let why = format!("`{}` is neither a file nor a folder", path.escape_debug());
                return Err(SkillError::Package(why));
            }
        }
        Ok(())
    }

    /// Strips a single top-level folder: `name/SKILL.md` becomes `SKILL.md`.
    fn without_top(self) -> Self {
        if self.files.contains_key(crate::skill::SKILL_FILE) {
            return self;
        }
        let top =
            self.files.keys().next().and_then(|path| path.split_once('/')).map(|(top, _)| format!("{top}/"));
        let Some(top) = top.filter(|top| self.files.keys().all(|path| path.starts_with(top))) else {
            return self;
        };
        let shorter = |path: String| path.strip_prefix(&top).map(str::to_owned).unwrap_or(path);
        let files = self.files.into_iter().map(|(path, content)| (shorter(path), content)).collect();
        Self { files, ..self }
    }
}

/// Reads a regular file of limited size; a FIFO or device neither blocks nor is read.
fn read_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, SkillError> {
    let fail = |cause| SkillError::io(path, cause);
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(fail)?;
    if !file.metadata().map_err(fail)?.is_file() {
        return Err(SkillError::Package(format!("`{}` is not a regular file", path.display())));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > bytes_max {
        return Err(SkillError::Package(format!("`{}` has more than {bytes_max} bytes", path.display())));
    }
    Ok(bytes)
}

/// The canonical spelling of a path inside a package, if it stays inside and is printable.
pub(crate) fn checked_path(path: &[u8]) -> Result<String, SkillError> {
    let shown = || String::from_utf8_lossy(path).escape_debug().to_string();
    let refused = |why: &str| SkillError::Package(format!("the path `{}` {why}", shown()));
    let text = std::str::from_utf8(path).map_err(|_| refused("is not UTF-8"))?;
    let text = text.trim_start_matches("./");
    if text.is_empty() || text.len() > PATH_BYTES_MAX {
        return Err(refused("is empty or too long"));
    }
    if text.starts_with('/') || text.contains(['\\', ':']) {
        return Err(refused("is not relative"));
    }
    if text.chars().any(|c| c.is_control() || regent_guard::invisible::is_invisible(c)) {
        return Err(refused("has hidden characters"));
    }
    let mut names = 0;
    for name in text.split('/') {
        names += 1;
        if matches!(name, "" | "." | "..") {
            return Err(refused("leads outside"));
        }
        if name.len() > NAME_BYTES_MAX || name.ends_with([' ', '.']) {
            return Err(refused("has a name that not every file system supports"));
        }
        if name.eq_ignore_ascii_case(".git") {
            return Err(refused("reaches into a repository"));
        }
    }
    if names > DEPTH_MAX {
        return Err(refused("is nested too deeply"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
