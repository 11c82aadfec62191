//! The guest's open files: descriptors, what they lead to, closing and saving. Opening is in `naming.rs`, reading and writing in
//! `transfer.rs`.

use std::collections::{BTreeSet, VecDeque};

use rustix::io::Errno;

use super::link::{About, GuestFileKind, GuestRequest, Outside, Save, WriteMode};
use super::tree::{Device, FixedTree, Tmp};

/// What one call moves at most; programs call again.
pub(super) const TRANSFER_BYTES_MAX: usize = 1 << 20;
/// What a pipe holds.
pub(super) const PIPE_BYTES_MAX: usize = 64 << 10;
const NOTES_MAX: usize = 64;

/// What a guest may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileLimits {
    /// Open at once.
    pub(super) open_max: usize,
    /// Any one file.
    pub(super) file_bytes_max: u64,
    /// All content that is kept for it: `/tmp`, what it reads, what it is about to write.
    pub(super) held_bytes_max: u64,
    /// What it may say.
    pub(super) output_bytes_max: u64,
}

/// All files of a guest.
#[derive(Debug)]
pub(super) struct GuestFiles {
    descriptors: Vec<Option<Descriptor>>,
    pub(super) open: Vec<Option<Open>>,
    pub(super) drafts: Vec<Option<FileDraft>>,
    pub(super) pipes: Vec<GuestPipe>,
    pub(super) tmp: Tmp,
    pub(super) tree: FixedTree,
    /// Folders that the guest made and that will be there once a file is.
    pub(super) made: BTreeSet<String>,
    pub(super) input: VecDeque<u8>,
    /// Standard output and error.
    pub(super) output: GuestStreams,
    pub(super) limits: FileLimits,
    held_bytes: u64,
    /// What was refused, for the receipt.
    pub(super) notes: Vec<String>,
    /// Something that was written is not in the workspace. The program got an error, but programs don't always check.
    pub(super) unsaved: bool,
}

/// The guest's output.
#[derive(Debug, Default)]
pub(super) struct GuestStreams {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// It wanted to say more than it may.
    pub(super) cut: bool,
}

#[derive(Debug, Clone, Copy)]
struct Descriptor {
    open: usize,
    close_on_exec: bool,
}

/// An open file; several descriptors may share it.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) what: OpenKind,
    /// Where it is at.
    pub(super) at: u64,
    /// As it was opened.
    pub(super) flags: u32,
    users: u32,
}

/// What an open file is.
#[derive(Debug)]
pub(super) enum OpenKind {
    Input,
    Stdout,
    Stderr,
    Device(Device),
    Folder {
        path: String,
        names: Option<Vec<(String, GuestFileKind)>>,
    },
    /// A file of the workspace as it was when it was opened.
    Read {
        path: String,
        content: Vec<u8>,
    },
    /// A file of the workspace that is being written.
    Draft(usize),
    Tmp(usize),
    PipeEnd {
        pipe: usize,
        write: bool,
    },
}

impl OpenKind {
    /// What it writes to, by index: a draft, or a temporary file.
    pub(super) fn draft_or_tmp(&self) -> (Option<usize>, Option<usize>) {
        match self {
            Self::Draft(id) => (Some(*id), None),
            Self::Tmp(id) => (None, Some(*id)),
            Self::Input
            | Self::Stdout
            | Self::Stderr
            | Self::Device(_)
            | Self::Folder { .. }
            | Self::Read { .. }
            | Self::PipeEnd { .. } => (None, None),
        }
    }
}

/// Content that will be a file of the workspace.
#[derive(Debug)]
pub(super) struct FileDraft {
    pub(super) path: String,
    /// What is in the file before the content, unknown to us: only appended to.
    pub(super) before_bytes: u64,
    pub(super) content: Vec<u8>,
    pub(super) how: WriteMode,
    /// There is something to save.
    pub(super) dirty: bool,
    /// Made to be renamed or removed: saved at the end if it still is there.
    pub(super) temporary: bool,
    pub(super) opened: u32,
}

/// A pipe, both of whose ends are the guest's own.
#[derive(Debug, Default)]
pub(super) struct GuestPipe {
    pub(super) content: VecDeque<u8>,
    pub(super) readers: u32,
    pub(super) writers: u32,
}

impl GuestFiles {
    pub(super) fn new(tree: FixedTree, input: Vec<u8>, limits: FileLimits) -> Self {
        let mut files = Self {
            descriptors: Vec::new(),
            open: Vec::new(),
            drafts: Vec::new(),
            pipes: Vec::new(),
            tmp: Tmp::new(),
            tree,
            made: BTreeSet::new(),
            input: input.into(),
            output: GuestStreams::default(),
            limits,
            held_bytes: 0,
            notes: Vec::new(),
            unsaved: false,
        };
        for (what, flags) in [
            (OpenKind::Input, libc::O_RDONLY),
            (OpenKind::Stdout, libc::O_WRONLY),
            (OpenKind::Stderr, libc::O_WRONLY),
        ] {
            // There is room for three.
            files.install(what, flags.cast_unsigned()).ok();
        }
        files
    }

    /// Notes a refusal for the receipt.
    pub(super) fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Takes room for content that is kept.
    pub(super) fn hold(&mut self, bytes: u64) -> Result<(), Errno> {
        let held = self.held_bytes.saturating_add(bytes);
        if held > self.limits.held_bytes_max {
            return Err(Errno::NOSPC);
        }
        self.held_bytes = held;
        Ok(())
    }

    /// Gives room back.
    pub(super) fn release(&mut self, bytes: u64) {
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
    }

    /// Gives an open file the lowest free number.
    pub(super) fn install(&mut self, what: OpenKind, flags: u32) -> Result<u64, Errno> {
        let open = Open { what, at: 0, flags, users: 0 };
        let id = vacant(&mut self.open);
        if let Some(slot) = self.open.get_mut(id) {
            *slot = Some(open);
        }
        let close_on_exec = flags & libc::O_CLOEXEC.cast_unsigned() != 0;
        self.number(id, 0, close_on_exec)
    }

    fn number(&mut self, id: usize, least: usize, close_on_exec: bool) -> Result<u64, Errno> {
        let free = self.descriptors.iter().skip(least).position(Option::is_none);
        let number = free.map_or(self.descriptors.len().max(least), |at| at.saturating_add(least));
        self.place(id, number, close_on_exec)
    }

    fn place(&mut self, id: usize, number: usize, close_on_exec: bool) -> Result<u64, Errno> {
        if number >= self.limits.open_max {
            return Err(Errno::MFILE);
        }
        if self.descriptors.len() <= number {
            self.descriptors.resize(number.saturating_add(1), None);
        }
        let open = self.open.get_mut(id).and_then(Option::as_mut).ok_or(Errno::BADF)?;
        open.users = open.users.saturating_add(1);
        if let Some(slot) = self.descriptors.get_mut(number) {
            *slot = Some(Descriptor { open: id, close_on_exec });
        }
        Ok(number as u64)
    }

    /// The place of the open file behind a number.
    pub(super) fn id(&self, fd: u64) -> Result<usize, Errno> {
        let number = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        self.descriptors.get(number).copied().flatten().map(|found| found.open).ok_or(Errno::BADF)
    }

    /// The open file behind a number.
    pub(super) fn get(&self, fd: u64) -> Result<&Open, Errno> {
        self.open.get(self.id(fd)?).and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, fd: u64) -> Result<&mut Open, Errno> {
        let id = self.id(fd)?;
        self.open.get_mut(id).and_then(Option::as_mut).ok_or(Errno::BADF)
    }

    /// `dup`, and `fcntl(F_DUPFD)`.
    pub(super) fn dup(&mut self, fd: u64, least: u64, close_on_exec: bool) -> Result<u64, Errno> {
        let (id, least) = (self.id(fd)?, usize::try_from(least).map_err(|_| Errno::INVAL)?);
        if least >= self.limits.open_max {
            return Err(Errno::INVAL);
        }
        self.number(id, least, close_on_exec)
    }

    /// `dup2` and `dup3`: whatever had the number is closed.
    pub(super) fn dup_to(
        &mut self,
        from: u64,
        to: u64,
        close_on_exec: bool,
        outside: &dyn Outside,
    ) -> Result<u64, Errno> {
        let id = self.id(from)?;
        let number = usize::try_from(to).map_err(|_| Errno::BADF)?;
        if number >= self.limits.open_max {
            return Err(Errno::BADF);
        }
        if self.id(to).is_ok() {
            // As on Linux, an error of this close is lost; the note stays.
            self.close(to, outside).ok();
        }
        self.place(id, number, close_on_exec)
    }

    /// Whether a descriptor would be closed by `execve`.
    pub(super) fn close_on_exec(&mut self, fd: u64, set: Option<bool>) -> Result<bool, Errno> {
        let number = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        let found = self.descriptors.get_mut(number).and_then(Option::as_mut).ok_or(Errno::BADF)?;
        if let Some(set) = set {
            found.close_on_exec = set;
        }
        Ok(found.close_on_exec)
    }

    /// `close`. What was written into the workspace is saved now, and a refusal is this call's answer.
    pub(super) fn close(&mut self, fd: u64, outside: &dyn Outside) -> Result<(), Errno> {
        let id = self.id(fd)?;
        if let Some(slot) = usize::try_from(fd).ok().and_then(|number| self.descriptors.get_mut(number)) {
            *slot = None;
        }
        let Some(open) = self.open.get_mut(id).and_then(Option::as_mut) else { return Err(Errno::BADF) };
        open.users = open.users.saturating_sub(1);
        if open.users > 0 {
            return Ok(());
        }
        let Some(gone) = self.open.get_mut(id).and_then(Option::take) else { return Ok(()) };
        match gone.what {
            OpenKind::Draft(draft) => return self.leave_draft(draft, outside),
            OpenKind::Read { content, .. } => self.release(content.len() as u64),
            OpenKind::Tmp(node) => {
                let freed = self.tmp.closed(node);
                self.release(freed as u64);
            }
            OpenKind::PipeEnd { pipe, write } => self.leave_pipe(pipe, write),
            OpenKind::Folder { names, .. } => self.release(names.as_deref().map_or(0, held_by)),
            OpenKind::Input | OpenKind::Stdout | OpenKind::Stderr | OpenKind::Device(_) => {}
        }
        Ok(())
    }

    fn leave_pipe(&mut self, pipe: usize, write: bool) {
        let Some(pipe) = self.pipes.get_mut(pipe) else { return };
        let count = if write { &mut pipe.writers } else { &mut pipe.readers };
        *count = count.saturating_sub(1);
        if pipe.readers == 0 && pipe.writers == 0 {
            let bytes = std::mem::take(&mut pipe.content).len();
            self.release(bytes as u64);
        }
    }

    fn leave_draft(&mut self, id: usize, outside: &dyn Outside) -> Result<(), Errno> {
        let Some(draft) = self.drafts.get_mut(id).and_then(Option::as_mut) else { return Ok(()) };
        draft.opened = draft.opened.saturating_sub(1);
        if draft.opened > 0 || draft.temporary {
            return Ok(());
        }
        let saved = self.save(id, outside);
        self.drop_draft(id);
        saved
    }

    /// Forgets a draft.
    pub(super) fn drop_draft(&mut self, id: usize) {
        if let Some(draft) = self.drafts.get_mut(id).and_then(Option::take) {
            self.release(draft.content.len() as u64);
        }
    }

    /// Puts a draft into the workspace, if there is something to put: one governed call.
    pub(super) fn save(&mut self, id: usize, outside: &dyn Outside) -> Result<(), Errno> {
        let Some(draft) = self.drafts.get_mut(id).and_then(Option::as_mut) else { return Ok(()) };
        // A file without a name is nobody's.
        if !draft.dirty || draft.path.starts_with('/') {
            return Ok(());
        }
        draft.dirty = false;
        let save = Save { path: draft.path.clone(), content: draft.content.clone(), how: draft.how };
        let reply = outside.ask(GuestRequest::Write(save));
        if let (Ok(_), Some(draft)) = (&reply, self.drafts.get_mut(id).and_then(Option::as_mut)) {
            match draft.how {
                WriteMode::Create | WriteMode::Replace => draft.how = WriteMode::Replace,
                WriteMode::Append => {
                    let bytes = std::mem::take(&mut draft.content).len() as u64;
                    draft.before_bytes = draft.before_bytes.saturating_add(bytes);
                    self.release(bytes);
                }
            }
        }
        self.unsaved |= reply.is_err();
        reply.map(drop)
    }

    /// Saves everything that isn't yet: the program has ended, and hears nothing of it any more.
    pub(super) fn save_all(&mut self, outside: &dyn Outside) {
        for id in 0..self.drafts.len() {
            self.save(id, outside).ok();
        }
    }

    /// `fsync`.
    pub(super) fn sync(&mut self, fd: u64, outside: &dyn Outside) -> Result<(), Errno> {
        match self.get(fd)?.what {
            OpenKind::Draft(id) => self.save(id, outside),
            OpenKind::Read { .. } | OpenKind::Tmp(_) | OpenKind::Folder { .. } => Ok(()),
            OpenKind::Input
            | OpenKind::Stdout
            | OpenKind::Stderr
            | OpenKind::Device(_)
            | OpenKind::PipeEnd { .. } => Err(Errno::INVAL),
        }
    }

    /// How much an open file holds, and what it is.
    pub(super) fn about(&self, what: &OpenKind) -> Result<About, Errno> {
        let about = |kind, bytes, mode| About { kind, bytes, mode, modified_ms: 0 };
        Ok(match what {
            OpenKind::Input | OpenKind::Stdout | OpenKind::Stderr | OpenKind::PipeEnd { .. } => {
                about(GuestFileKind::Pipe, 0, 0o600)
            }
            OpenKind::Device(_) => about(GuestFileKind::Device, 0, 0o666),
            OpenKind::Folder { .. } => about(GuestFileKind::Folder, 4096, 0o755),
            OpenKind::Read { content, .. } => about(GuestFileKind::File, content.len() as u64, 0o644),
            OpenKind::Draft(id) => {
                let draft = self.drafts.get(*id).and_then(Option::as_ref).ok_or(Errno::BADF)?;
                about(
                    GuestFileKind::File,
                    draft.before_bytes.saturating_add(draft.content.len() as u64),
                    0o644,
                )
            }
            OpenKind::Tmp(id) => {
                let node = self.tmp.node(*id).ok_or(Errno::BADF)?;
                let kind = if node.content.is_some() { GuestFileKind::File } else { GuestFileKind::Folder };
                let bytes = node.content.as_ref().map_or(4096, |content| content.len() as u64);
                About { kind, bytes, mode: node.mode, modified_ms: node.modified_ms }
            }
        })
    }

    /// Whether a `poll` would find something to do: reading, writing, hung up.
    pub(super) fn readiness(&self, fd: u64) -> Result<(bool, bool, bool), Errno> {
        Ok(match &self.get(fd)?.what {
            OpenKind::PipeEnd { pipe, write } => {
                let pipe = self.pipes.get(*pipe).ok_or(Errno::BADF)?;
                if *write {
                    (false, pipe.content.len() < PIPE_BYTES_MAX, pipe.readers == 0)
                } else {
                    (!pipe.content.is_empty(), false, pipe.writers == 0)
                }
            }
            OpenKind::Stdout | OpenKind::Stderr => (false, true, false),
            OpenKind::Input => (true, false, false),
            OpenKind::Device(_)
            | OpenKind::Folder { .. }
            | OpenKind::Read { .. }
            | OpenKind::Draft(_)
            | OpenKind::Tmp(_) => (true, true, false),
        })
    }
}

/// What the names of a folder take, about.
pub(super) fn held_by(names: &[(String, GuestFileKind)]) -> u64 {
    names.iter().map(|(name, _)| name.len().saturating_add(size_of::<(String, GuestFileKind)>()) as u64).sum()
}

/// The number of a free place in a list, made if there is none.
pub(super) fn vacant<T>(list: &mut Vec<Option<T>>) -> usize {
    match list.iter().position(Option::is_none) {
        Some(at) => at,
        None => {
            list.push(None);
            list.len() - 1
        }
    }
}
