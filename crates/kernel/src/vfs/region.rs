//! Files in memory, every byte range with the label of what was written there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use regent_policy::{Confidentiality, Integrity, Label};

use super::{Content, Folder, Mount, Recalled, Stat, VfsError};

/// Label ranges of one file; more are joined into one. Coarser, never laxer.
const RANGES_MAX: usize = 64;

/// How much a region holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) file_bytes_max: usize,
    pub(crate) files_max: usize,
    pub(crate) bytes_max: usize,
}

/// Files in memory under a fixed set of folders. Further folders come into being with the files in them.
#[derive(Debug)]
pub(crate) struct Region {
    folders: &'static [&'static str],
    room: Room,
    files: Mutex<BTreeMap<String, File>>,
}

#[derive(Debug)]
struct File {
    /// The label of the agent that chose the name.
    name: Label,
    bytes: Vec<u8>,
    /// Without gaps, in order.
    labels: Vec<(Range<usize>, Label)>,
}

/// What nothing was written to yet.
pub(crate) const BLANK: Label =
    Label { integrity: Integrity::System, confidentiality: Confidentiality::Public };

impl Region {
    pub(crate) fn new(folders: &'static [&'static str], room: Room) -> Self {
        Self { folders, room, files: Mutex::default() }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Files live below the folders, nowhere else.
    fn check(&self, path: &str) -> Result<(), VfsError> {
        let below = path.split_once('/').is_some_and(|(folder, _)| self.folders.contains(&folder));
        if below { Ok(()) } else { Err(VfsError::NotAFile(path.to_owned())) }
    }

    fn is_folder(&self, path: &str, files: &BTreeMap<String, File>) -> bool {
        path.is_empty() || self.folders.contains(&path) || below(files, path).next().is_some()
    }

    /// Everything below a folder, joined.
    pub(crate) fn all(&self, folder: &str) -> (BTreeMap<String, String>, Label) {
        let files = self.files();
        let label = below(&files, folder).fold(BLANK, |label, (_, file)| label.join(file.label()));
        let text =
            |(path, file): (&String, &File)| (path.clone(), String::from_utf8_lossy(&file.bytes).into());
        (below(&files, folder).map(text).collect(), label)
    }

    /// Removes the file of a folder that was written first, where names are numbers. False if there is none.
    pub(crate) fn drop_oldest(&self, folder: &str) -> bool {
        let mut files = self.files();
        let number = |path: &&String| path.rsplit('/').next().and_then(|name| name.parse::<u32>().ok());
        let oldest = below(&files, folder).map(|(path, _)| path).min_by_key(number).cloned();
        oldest.is_some_and(|path| files.remove(&path).is_some())
    }

    /// Changes a file, or makes it. `plan` says how long it will be, so that nothing is touched that has no room.
    fn change(
        &self,
        path: &str,
        label: Label,
        plan: impl FnOnce(&File) -> Result<usize, VfsError>,
        apply: impl FnOnce(&mut File),
    ) -> Result<u64, VfsError> {
        self.check(path)?;
        let mut files = self.files();
        if below(&files, path).next().is_some() {
            return Err(VfsError::NotAFile(path.to_owned()));
        }
        // A file can't have files below it either.
        if path
            .match_indices('/')
            .any(|(at, _)| path.get(..at).is_some_and(|above| files.contains_key(above)))
        {
            return Err(VfsError::NotFound(path.to_owned()));
        }
        let Room { file_bytes_max, files_max, bytes_max } = self.room;
        let new = File { name: label, bytes: Vec::new(), labels: Vec::new() };
        let size = plan(files.get(path).unwrap_or(&new))?;
        let others = files.iter().filter(|(name, _)| *name != path).map(|(_, file)| file.bytes.len());
        let full = if size > file_bytes_max {
            Some(format!("{file_bytes_max} bytes in one file"))
        } else if others.sum::<usize>().saturating_add(size) > bytes_max {
            Some(format!("{bytes_max} bytes in all"))
        } else if !files.contains_key(path) && files.len() >= files_max {
            Some(format!("{files_max} files"))
        } else {
            None
        };
        if let Some(limit) = full {
            return Err(VfsError::Full(limit));
        }
        apply(files.entry(path.to_owned()).or_insert(new));
        Ok(size as u64)
    }
}

impl Mount for Region {
    fn stat(&self, path: &str) -> Result<Stat, VfsError> {
        let files = self.files();
        match files.get(path) {
            Some(file) => Ok(Stat { folder: false, bytes: file.bytes.len() as u64, label: file.label() }),
            None if self.is_folder(path, &files) => Ok(Stat { folder: true, bytes: 0, label: BLANK }),
            None => Err(VfsError::NotFound(path.to_owned())),
        }
    }

    fn list(&self, path: &str) -> Result<Folder, VfsError> {
        let files = self.files();
        if files.contains_key(path) {
            return Err(VfsError::NotAFolder(path.to_owned()));
        }
        if !self.is_folder(path, &files) {
            return Err(VfsError::NotFound(path.to_owned()));
        }
        let mut listing = Folder { names: Vec::new(), label: BLANK };
        if path.is_empty() {
            listing.names.extend(self.folders.iter().map(|&folder| folder.to_owned()));
            return Ok(listing);
        }
        for (name, file) in below(&files, path) {
            listing.label = listing.label.join(file.label());
            let rest = name.get(path.len() + 1..).unwrap_or_default();
            let next = rest.split('/').next().unwrap_or_default();
            if listing.names.last().is_none_or(|last| last != next) {
                listing.names.push(next.to_owned());
            }
        }
        Ok(listing)
    }

    fn read(&self, path: &str, offset: u64, bytes_max: usize) -> Result<Content, VfsError> {
        let files = self.files();
        let Some(file) = files.get(path) else {
            let is_folder = self.is_folder(path, &files);
            return Err(if is_folder {
                VfsError::NotAFile(path.to_owned())
            } else {
                VfsError::NotFound(path.to_owned())
            });
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(file.bytes.len());
        let end = start.saturating_add(bytes_max).min(file.bytes.len());
        let bytes = file.bytes.get(start..end).unwrap_or_default().to_vec();
        // How long a file is says something about all of it; a read that finds its end has learnt that.
        let seen = if end == file.bytes.len() { file.label() } else { file.label_of(&(start..end)) };
        Ok(Content { bytes, label: seen })
    }

    fn write(&self, path: &str, offset: Option<u64>, content: &[u8], label: Label) -> Result<u64, VfsError> {
        let start = |file: &File| match offset {
            None => file.bytes.len(),
            Some(offset) => usize::try_from(offset).unwrap_or(usize::MAX),
        };
        let plan = |file: &File| match start(file) {
            start if start > file.bytes.len() => Err(VfsError::Gap(path.to_owned())),
            start => Ok(start.saturating_add(content.len()).max(file.bytes.len())),
        };
        self.change(path, label, plan, |file| {
            let start = start(file);
            file.splice(start, content, label);
        })
    }

    fn put(&self, path: &str, content: &[u8], label: Label) -> Result<u64, VfsError> {
        let plan = |_: &File| Ok(content.len());
        self.change(path, label, plan, |file| {
            file.bytes = content.to_vec();
            file.labels = vec![(0..content.len(), label)];
        })
    }

    fn search(&self, folder: &str, text: &str, entries_max: usize) -> Result<Vec<Recalled>, VfsError> {
        let files = self.files();
        let found = |(path, file): (&String, &File)| {
            let content = String::from_utf8_lossy(&file.bytes);
            let name = path.get(folder.len() + 1..).unwrap_or_default();
            (name.contains(text) || content.contains(text)).then(|| Recalled {
                name: name.to_owned(),
                content: content.into_owned(),
                label: file.label(),
            })
        };
        Ok(below(&files, folder).filter_map(found).take(entries_max).collect())
    }
}

impl File {
    fn label(&self) -> Label {
        self.labels.iter().fold(self.name, |all, (_, label)| all.join(*label))
    }

    fn label_of(&self, span: &Range<usize>) -> Label {
        let touched =
            self.labels.iter().filter(|(range, _)| range.start < span.end && span.start < range.end);
        touched.fold(BLANK, |all, (_, label)| all.join(*label))
    }

    /// Overwrites from `start` on, with the label of what is written; `start` is at most the length.
    fn splice(&mut self, start: usize, content: &[u8], label: Label) {
        let end = start.saturating_add(content.len());
        let until = end.min(self.bytes.len());
        self.bytes.splice(start..until, content.iter().copied());
        let mut labels = Vec::with_capacity(self.labels.len() + 2);
        for (range, old) in self.labels.drain(..) {
            labels.push((range.start..range.end.min(start), old));
            labels.push((range.start.max(end)..range.end, old));
        }
        labels.push((start..end, label));
        labels.retain(|(range, _)| range.start < range.end);
        labels.sort_by_key(|(range, _)| range.start);
        self.labels = labels;
        if self.labels.len() > RANGES_MAX {
            self.labels = vec![(0..self.bytes.len(), self.label())];
        }
    }
}

/// The files below a folder, by name.
fn below<'a>(
    files: &'a BTreeMap<String, File>,
    folder: &str,
) -> impl Iterator<Item = (&'a String, &'a File)> {
    let prefix = format!("{folder}/");
    let start = prefix.clone();
    files.range(start..).take_while(move |(path, _)| path.starts_with(&prefix))
}

#[cfg(test)]
mod tests;
