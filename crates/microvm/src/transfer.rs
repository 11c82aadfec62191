//! Moving bytes through open files: reading, writing, pipes, truncating.

use rustix::io::Errno;

use super::files::{GuestFiles, GuestPipe, OpenKind, PIPE_BYTES_MAX, TRANSFER_BYTES_MAX};
use super::link::WriteMode;
use super::tree::Device;

/// The largest file that can be put into the workspace: one governed call has to carry it.
const DRAFT_BYTES_MAX: u64 = 5 << 20;
/// Pipes of one guest, ever.
const PIPES_MAX: usize = 256;

impl GuestFiles {
    /// `pipe`: the reading end, then the writing end.
    pub(super) fn pipe(&mut self, flags: u32) -> Result<(u64, u64), Errno> {
        if self.pipes.len() >= PIPES_MAX {
            return Err(Errno::NFILE);
        }
        let pipe = self.pipes.len();
        self.pipes.push(GuestPipe { readers: 1, writers: 1, ..GuestPipe::default() });
        let flags = flags & (libc::O_CLOEXEC | libc::O_NONBLOCK).cast_unsigned();
        let read = self.install(OpenKind::PipeEnd { pipe, write: false }, flags)?;
        let write =
            self.install(OpenKind::PipeEnd { pipe, write: true }, flags | libc::O_WRONLY.cast_unsigned())?;
        Ok((read, write))
    }

    /// `read` and `pread`: up to `len` bytes. `EDEADLK`: it would wait for ever, because only the guest itself could write.
    pub(super) fn read(&mut self, fd: u64, len: usize, from: Option<u64>) -> Result<Vec<u8>, Errno> {
        let len = len.min(TRANSFER_BYTES_MAX);
        let (id, open) = (self.id(fd)?, self.get(fd)?);
        if open.flags & libc::O_ACCMODE.cast_unsigned() == libc::O_WRONLY.cast_unsigned() {
            return Err(Errno::BADF);
        }
        let at = from.unwrap_or(open.at);
        let part = match &open.what {
            OpenKind::Read { content, .. } => slice(content, at, len),
            OpenKind::Draft(draft) => match self.drafts.get(*draft).and_then(Option::as_ref) {
                Some(draft) => slice(&draft.content, at, len),
                None => return Err(Errno::BADF),
            },
            OpenKind::Tmp(node) => match self.tmp.node(*node).and_then(|node| node.content.as_ref()) {
                Some(content) => slice(content, at, len),
                None => return Err(Errno::ISDIR),
            },
            OpenKind::Folder { .. } => return Err(Errno::ISDIR),
            OpenKind::Device(device) => return from_device(*device, len),
            OpenKind::Stdout | OpenKind::Stderr => return Err(Errno::BADF),
            OpenKind::Input | OpenKind::PipeEnd { .. } if from.is_some() => return Err(Errno::SPIPE),
            OpenKind::Input => return Ok(self.input.drain(..len.min(self.input.len())).collect()),
            OpenKind::PipeEnd { pipe, write: false } => return self.read_pipe(*pipe, len, open.flags),
            OpenKind::PipeEnd { write: true, .. } => return Err(Errno::BADF),
        };
        if from.is_none()
            && let Some(open) = self.open.get_mut(id).and_then(Option::as_mut)
        {
            open.at = at.saturating_add(part.len() as u64);
        }
        Ok(part)
    }

    fn read_pipe(&mut self, pipe: usize, len: usize, flags: u32) -> Result<Vec<u8>, Errno> {
        let pipe = self.pipes.get_mut(pipe).ok_or(Errno::BADF)?;
        if pipe.content.is_empty() && pipe.writers > 0 && len > 0 {
            let waits = flags & libc::O_NONBLOCK.cast_unsigned() == 0;
            return Err(if waits { Errno::DEADLK } else { Errno::AGAIN });
        }
        let part: Vec<u8> = pipe.content.drain(..len.min(pipe.content.len())).collect();
        self.release(part.len() as u64);
        Ok(part)
    }

    /// `write` and `pwrite`: how much was taken.
    pub(super) fn write(&mut self, fd: u64, bytes: &[u8], to: Option<u64>) -> Result<usize, Errno> {
        let (id, open) = (self.id(fd)?, self.get(fd)?);
        if open.flags & libc::O_ACCMODE.cast_unsigned() == libc::O_RDONLY.cast_unsigned() {
            return Err(Errno::BADF);
        }
        let append = open.flags & libc::O_APPEND.cast_unsigned() != 0;
        let (at, flags) = (to.unwrap_or(open.at), open.flags);
        let end = match open.what {
            OpenKind::Stdout => return Ok(self.say(bytes, false)),
            OpenKind::Stderr => return Ok(self.say(bytes, true)),
            OpenKind::Device(_) => return Ok(bytes.len()),
            OpenKind::PipeEnd { .. } if to.is_some() => return Err(Errno::SPIPE),
            OpenKind::PipeEnd { pipe, write: true } => return self.write_pipe(pipe, bytes, flags),
            OpenKind::Draft(draft) => self.write_draft(draft, at, bytes, append)?,
            OpenKind::Tmp(node) => self.write_tmp(node, at, bytes, append)?,
            OpenKind::Folder { .. } => return Err(Errno::ISDIR),
            OpenKind::Input | OpenKind::Read { .. } | OpenKind::PipeEnd { write: false, .. } => {
                return Err(Errno::BADF);
            }
        };
        if to.is_none()
            && let Some(open) = self.open.get_mut(id).and_then(Option::as_mut)
        {
            open.at = end;
        }
        Ok(bytes.len())
    }

    fn say(&mut self, bytes: &[u8], error: bool) -> usize {
        let said = self.output.stdout.len().saturating_add(self.output.stderr.len()) as u64;
        let left = usize::try_from(self.limits.output_bytes_max.saturating_sub(said)).unwrap_or(usize::MAX);
        self.output.cut |= bytes.len() > left;
        let stream = if error { &mut self.output.stderr } else { &mut self.output.stdout };
        stream.extend(bytes.iter().take(left));
        bytes.len()
    }

    fn write_pipe(&mut self, pipe: usize, bytes: &[u8], flags: u32) -> Result<usize, Errno> {
        let found = self.pipes.get(pipe).ok_or(Errno::BADF)?;
        if found.readers == 0 {
            return Err(Errno::PIPE);
        }
        let room = PIPE_BYTES_MAX.saturating_sub(found.content.len());
        if room == 0 && !bytes.is_empty() {
            let waits = flags & libc::O_NONBLOCK.cast_unsigned() == 0;
            return Err(if waits { Errno::DEADLK } else { Errno::AGAIN });
        }
        let count = room.min(bytes.len());
        self.hold(count as u64)?;
        if let Some(found) = self.pipes.get_mut(pipe) {
            found.content.extend(bytes.iter().take(count));
        }
        Ok(count)
    }

    fn write_draft(&mut self, id: usize, at: u64, bytes: &[u8], append: bool) -> Result<u64, Errno> {
        let draft = self.drafts.get(id).and_then(Option::as_ref).ok_or(Errno::BADF)?;
        let len = draft.content.len() as u64;
        // What is before is not ours to change; it was opened to be appended to.
        let start = if append || draft.how == WriteMode::Append { len } else { at };
        let (before, most) = (draft.before_bytes, self.limits.file_bytes_max.min(DRAFT_BYTES_MAX));
        let end = start.checked_add(bytes.len() as u64).filter(|end| *end <= most).ok_or(Errno::FBIG)?;
        self.hold(end.saturating_sub(len))?;
        let draft = self.drafts.get_mut(id).and_then(Option::as_mut).ok_or(Errno::BADF)?;
        splice(&mut draft.content, start, bytes);
        draft.dirty = true;
        Ok(before.saturating_add(end))
    }

    fn write_tmp(&mut self, id: usize, at: u64, bytes: &[u8], append: bool) -> Result<u64, Errno> {
        let content = self.tmp.node(id).and_then(|node| node.content.as_ref()).ok_or(Errno::ISDIR)?;
        let len = content.len() as u64;
        let start = if append { len } else { at };
        let most = self.limits.file_bytes_max;
        let end = start.checked_add(bytes.len() as u64).filter(|end| *end <= most).ok_or(Errno::FBIG)?;
        self.hold(end.saturating_sub(len))?;
        if let Some(content) = self.tmp.node_mut(id).and_then(|node| node.content.as_mut()) {
            splice(content, start, bytes);
        }
        Ok(end)
    }

    /// `ftruncate`.
    pub(super) fn truncate(&mut self, fd: u64, len: u64) -> Result<(), Errno> {
        let open = self.get(fd)?;
        if open.flags & libc::O_ACCMODE.cast_unsigned() == libc::O_RDONLY.cast_unsigned() {
            return Err(Errno::INVAL);
        }
        let (draft, tmp) = open.what.draft_or_tmp();
        if draft.is_none() && tmp.is_none() {
            return Err(Errno::INVAL);
        }
        let most = self.limits.file_bytes_max.min(if draft.is_some() { DRAFT_BYTES_MAX } else { u64::MAX });
        let bytes = usize::try_from(len).ok().filter(|_| len <= most).ok_or(Errno::FBIG)?;
        let content = self.content_mut(tmp, draft)?;
        let old = content.len() as u64;
        self.hold(len.saturating_sub(old))?;
        self.release(old.saturating_sub(len));
        self.content_mut(tmp, draft)?.resize(bytes, 0);
        if let Some(draft) = draft.and_then(|id| self.drafts.get_mut(id)).and_then(Option::as_mut) {
            draft.dirty = true;
        }
        Ok(())
    }

    fn content_mut(&mut self, tmp: Option<usize>, draft: Option<usize>) -> Result<&mut Vec<u8>, Errno> {
        if let Some(id) = tmp {
            return self.tmp.node_mut(id).and_then(|node| node.content.as_mut()).ok_or(Errno::ISDIR);
        }
        let draft =
            draft.and_then(|id| self.drafts.get_mut(id)).and_then(Option::as_mut).ok_or(Errno::BADF)?;
        if draft.how == WriteMode::Append { Err(Errno::INVAL) } else { Ok(&mut draft.content) }
    }
}

fn slice(content: &[u8], at: u64, len: usize) -> Vec<u8> {
    let start = usize::try_from(at).unwrap_or(usize::MAX).min(content.len());
    content.iter().skip(start).take(len).copied().collect()
}

/// Puts bytes at a place, with zeros before it if the content is shorter.
fn splice(content: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let Ok(start) = usize::try_from(at) else { return };
    let end = start.saturating_add(bytes.len());
    if content.len() < end {
        content.resize(end, 0);
    }
    if let Some(slot) = content.get_mut(start..end) {
        slot.copy_from_slice(bytes);
    }
}

fn from_device(device: Device, len: usize) -> Result<Vec<u8>, Errno> {
    match device {
        Device::Null => Ok(Vec::new()),
        Device::Zero => Ok(vec![0; len]),
        Device::Random => {
            let mut bytes = vec![0; len];
            getrandom::fill(&mut bytes).map_err(|_| Errno::IO)?;
            Ok(bytes)
        }
    }
}
