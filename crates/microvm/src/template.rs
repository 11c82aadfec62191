//! Programs that are loaded already: an image of guest memory for each, mapped copy-on-write by every run.
//!
//! An image holds what doesn't depend on a run: page tables, the machine's own pages, the program's parts. Arguments, environment,
//! stack and everything random come later, into the run's own memory.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::Digest;

use super::areas::page_up;
use super::elf::{self, ElfError};
use super::machine::{Foundation, lay_foundation};
use super::memory::Image;
use super::space::{Layout, OutOfMemory, Space};

/// Images that are kept.
const KEPT_MAX: usize = 8;
/// What they may take together.
const KEPT_BYTES_MAX: u64 = 128 << 20;
/// Room for page tables and the machine's own pages.
const OVERHEAD_BYTES: u64 = 4 << 20;
/// What one part may bring in beyond its own pages.
const AROUND_BYTES: u64 = 512 << 10;

/// A program that is ready to run.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) image: Image,
    pub(super) layout: Layout,
    pub(super) foundation: Foundation,
    /// Where it begins.
    pub(super) entry: u64,
    /// Its program headers: where, how many.
    pub(super) headers: (u64, u64),
    /// The first page behind it, where its heap grows.
    pub(super) end: u64,
    /// Of its file.
    pub(super) digest: Digest,
}

/// Why a program can't be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgramLoadError {
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error("the host has no memory for it: {0}")]
    Host(#[from] io::Error),
    #[error("it doesn't fit into its memory limit")]
    TooLarge,
}

impl From<OutOfMemory> for ProgramLoadError {
    fn from(_: OutOfMemory) -> Self {
        Self::TooLarge
    }
}

impl From<rustix::io::Errno> for ProgramLoadError {
    fn from(_: rustix::io::Errno) -> Self {
        Self::TooLarge
    }
}

impl Template {
    /// Loads a program.
    pub(super) fn load(file: &[u8]) -> Result<Self, ProgramLoadError> {
        let elf = elf::parse(file)?;
        // Pages of zeros that the file doesn't have come when they are touched.
        let content: u64 = elf.segments.iter().map(|segment| segment.content.len() as u64).sum();
        let pages = page_up(content).ok_or(ProgramLoadError::TooLarge)?;
        let around = AROUND_BYTES.saturating_mul(elf.segments.len() as u64).saturating_add(OVERHEAD_BYTES);
        let (image, (layout, foundation)) = Image::make(pages.saturating_add(around), |memory| {
            let mut space = Space::new(memory);
            let foundation = lay_foundation(&mut space)?;
            for segment in &elf.segments {
                space.map(segment.pages.0, segment.pages.1, segment.protection);
                space.copy(segment.at, segment.content)?;
            }
            let layout = space.layout();
            Ok::<_, ProgramLoadError>((layout.frames.used_bytes(), (layout, foundation)))
        })?;
        let digest = Digest::compute(file);
        let (entry, headers, end) = (elf.entry, elf.headers, elf.end);
        Ok(Self { image, layout, foundation, entry, headers, end, digest })
    }
}

/// What tells one program's file from another without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TemplateKey {
    /// A file of the host that only its administrator can change: device, inode, size, and when it was changed.
    Host { device: u64, inode: u64, bytes: u64, changed_ns: i128 },
    /// Any other: its content.
    Content(Digest),
}

/// The templates of the programs that ran last.
#[derive(Debug, Default)]
pub(super) struct Templates(Mutex<VecDeque<(TemplateKey, Arc<Template>)>>);

impl Templates {
    /// The one that is kept, if it is.
    pub(super) fn get(&self, key: &TemplateKey) -> Option<Arc<Template>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| known == key)?;
        let found = kept.remove(at)?;
        let template = Arc::clone(&found.1);
        kept.push_back(found);
        Some(template)
    }

    /// Forgets them all.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Keeps one more, in place of the one that was used least lately.
    pub(super) fn keep(&self, key: TemplateKey, template: &Arc<Template>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((key, Arc::clone(template)));
        let bytes = |kept: &VecDeque<(TemplateKey, Arc<Template>)>| {
            kept.iter().map(|(_, one)| one.image.bytes()).sum::<u64>()
        };
        while kept.len() > KEPT_MAX || bytes(&kept) > KEPT_BYTES_MAX {
            kept.pop_front();
        }
    }
}
