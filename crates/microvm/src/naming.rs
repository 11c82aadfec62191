//! What the guest does with names: opening, describing, listing, making, removing, renaming. Whatever is in the workspace is one
//! governed call each; the rest is the guest's own.

use rustix::io::Errno;

use super::files::{FileDraft, GuestFiles, OpenKind, vacant};
use super::link::{About, GuestFileKind, GuestReply, GuestRequest, Outside, WriteMode};
use super::tree::{GuestPath, parent};

/// Files of the workspace that are being written at once.
const DRAFTS_MAX: usize = 1024;
const CREATE: u32 = libc::O_CREAT.cast_unsigned();
const EXCLUSIVE: u32 = libc::O_EXCL.cast_unsigned();
const TRUNCATE: u32 = libc::O_TRUNC.cast_unsigned();
const APPEND: u32 = libc::O_APPEND.cast_unsigned();
const DIRECTORY: u32 = libc::O_DIRECTORY.cast_unsigned();

fn writes(flags: u32) -> bool {
    flags & libc::O_ACCMODE.cast_unsigned() != libc::O_RDONLY.cast_unsigned()
}

impl GuestFiles {
    /// `open`.
    pub(super) fn open(
        &mut self,
        path: &str,
        flags: u32,
        mode: u32,
        outside: &dyn Outside,
    ) -> Result<u64, Errno> {
        let what = match self.tree.place(path) {
            GuestPath::Workspace(inside) => self.open_inside(&inside, path, flags, outside)?,
            GuestPath::Tmp(path) => self.open_tmp(&path, flags, mode)?,
            GuestPath::Folder(_) if writes(flags) => return Err(Errno::ISDIR),
            GuestPath::Folder(path) => OpenKind::Folder { path, names: None },
            GuestPath::Device(_) if flags & DIRECTORY != 0 => return Err(Errno::NOTDIR),
            GuestPath::Device(device) => OpenKind::Device(device),
            GuestPath::Program => return Err(Errno::ACCESS),
            GuestPath::Nowhere if flags & CREATE != 0 => return Err(Errno::ACCESS),
            GuestPath::Nowhere => return Err(Errno::NOENT),
        };
        let (draft, node) = what.draft_or_tmp();
        let number = self.install(what, flags)?;
        if let Some(draft) = draft.and_then(|id| self.drafts.get_mut(id)).and_then(Option::as_mut) {
            draft.opened = draft.opened.saturating_add(1);
        }
        if let Some(node) = node {
            self.tmp.opened(node);
        }
        Ok(number)
    }

    fn open_tmp(&mut self, path: &str, flags: u32, mode: u32) -> Result<OpenKind, Errno> {
        let found = self.tmp.find(path);
        let id = match found {
            Some(_) if flags & CREATE != 0 && flags & EXCLUSIVE != 0 => return Err(Errno::EXIST),
            Some(id) => id,
            None if flags & CREATE == 0 => return Err(Errno::NOENT),
            None => self.tmp.make(path, false, mode)?,
        };
        let node = self.tmp.node_mut(id).ok_or(Errno::NOENT)?;
        match &mut node.content {
            None if writes(flags) => return Err(Errno::ISDIR),
            None => return Ok(OpenKind::Folder { path: path.to_owned(), names: None }),
            Some(_) if flags & DIRECTORY != 0 => return Err(Errno::NOTDIR),
            Some(content) if flags & TRUNCATE != 0 && writes(flags) => {
                let bytes = std::mem::take(content).len();
                self.release(bytes as u64);
            }
            Some(_) => {}
        }
        Ok(OpenKind::Tmp(id))
    }

    fn open_inside(
        &mut self,
        inside: &str,
        path: &str,
        flags: u32,
        outside: &dyn Outside,
    ) -> Result<OpenKind, Errno> {
        let folder = || OpenKind::Folder { path: path.to_owned(), names: None };
        if let Some(id) = self.draft_at(inside) {
            return self.open_draft(id, flags);
        }
        if inside == "." || flags & DIRECTORY != 0 || self.made.contains(inside) {
            return match self.about_inside(inside, outside)?.kind {
                GuestFileKind::Folder if writes(flags) => Err(Errno::ISDIR),
                GuestFileKind::Folder => Ok(folder()),
                GuestFileKind::File | GuestFileKind::Link | GuestFileKind::Device | GuestFileKind::Pipe => {
                    Err(Errno::NOTDIR)
                }
            };
        }
        if !writes(flags) {
            return match self.content_of(inside, outside) {
                Ok(content) => Ok(OpenKind::Read { path: path.to_owned(), content }),
                Err(Errno::ISDIR) => Ok(folder()),
                Err(errno) => Err(errno),
            };
        }
        let draft = |content, how, before_bytes, dirty, temporary| FileDraft {
            path: inside.to_owned(),
            before_bytes,
            content,
            how,
            dirty,
            temporary,
            opened: 0,
        };
        let exclusive = flags & CREATE != 0 && flags & EXCLUSIVE != 0;
        let draft = if exclusive {
            match self.about_inside(inside, outside) {
                Ok(_) => return Err(Errno::EXIST),
                Err(Errno::NOENT) => draft(Vec::new(), WriteMode::Create, 0, true, true),
                Err(errno) => return Err(errno),
            }
        } else if flags & TRUNCATE != 0 {
            if flags & CREATE == 0 {
                self.about_inside(inside, outside)?;
            }
            draft(Vec::new(), WriteMode::Replace, 0, true, false)
        } else if flags & APPEND != 0
            && flags & libc::O_ACCMODE.cast_unsigned() == libc::O_WRONLY.cast_unsigned()
        {
            match self.about_inside(inside, outside) {
                Ok(About { kind: GuestFileKind::Folder, .. }) => return Err(Errno::ISDIR),
                Ok(about) => draft(Vec::new(), WriteMode::Append, about.bytes, false, false),
                Err(Errno::NOENT) if flags & CREATE != 0 => {
                    draft(Vec::new(), WriteMode::Append, 0, true, false)
                }
                Err(errno) => return Err(errno),
            }
        } else {
            match self.content_of(inside, outside) {
                Ok(content) => draft(content, WriteMode::Replace, 0, false, false),
                Err(Errno::NOENT) if flags & CREATE != 0 => {
                    draft(Vec::new(), WriteMode::Replace, 0, true, false)
                }
                Err(errno) => return Err(errno),
            }
        };
        if self.drafts.iter().flatten().count() >= DRAFTS_MAX {
            return Err(Errno::NFILE);
        }
        let id = vacant(&mut self.drafts);
        if let Some(slot) = self.drafts.get_mut(id) {
            *slot = Some(draft);
        }
        Ok(OpenKind::Draft(id))
    }

    fn open_draft(&mut self, id: usize, flags: u32) -> Result<OpenKind, Errno> {
        if flags & DIRECTORY != 0 {
            return Err(Errno::NOTDIR);
        }
        if flags & CREATE != 0 && flags & EXCLUSIVE != 0 {
            return Err(Errno::EXIST);
        }
        let draft = self.drafts.get_mut(id).and_then(Option::as_mut).ok_or(Errno::NOENT)?;
        if draft.how == WriteMode::Append && flags & TRUNCATE == 0 && !(writes(flags) && flags & APPEND != 0)
        {
            // We don't hold what is before; it has to be closed first.
            return Err(Errno::TXTBSY);
        }
        if flags & TRUNCATE != 0 && writes(flags) {
            let bytes = std::mem::take(&mut draft.content).len() as u64;
            (draft.dirty, draft.before_bytes) = (true, 0);
            if draft.how == WriteMode::Append {
                draft.how = WriteMode::Replace;
            }
            self.release(bytes);
        }
        Ok(OpenKind::Draft(id))
    }

    fn draft_at(&self, inside: &str) -> Option<usize> {
        self.drafts.iter().position(|draft| draft.as_ref().is_some_and(|draft| draft.path == inside))
    }

    fn content_of(&mut self, inside: &str, outside: &dyn Outside) -> Result<Vec<u8>, Errno> {
        match outside.ask(GuestRequest::Read(inside.to_owned()))? {
            GuestReply::Content(content) => {
                self.hold(content.len() as u64)?;
                Ok(content)
            }
            GuestReply::About(_) | GuestReply::Names(_) | GuestReply::Saved => Err(Errno::IO),
        }
    }

    fn about_inside(&self, inside: &str, outside: &dyn Outside) -> Result<About, Errno> {
        if let Some(id) = self.draft_at(inside) {
            return self.about(&OpenKind::Draft(id));
        }
        match outside.ask(GuestRequest::Stat(inside.to_owned())) {
            Ok(GuestReply::About(about)) => Ok(about),
            Ok(GuestReply::Content(_) | GuestReply::Names(_) | GuestReply::Saved) => Err(Errno::IO),
            Err(Errno::NOENT) if self.made.contains(inside) => {
                Ok(About { kind: GuestFileKind::Folder, bytes: 4096, mode: 0o755, modified_ms: 0 })
            }
            Err(errno) => Err(errno),
        }
    }

    /// `stat`, by path.
    pub(super) fn stat(&mut self, path: &str, outside: &dyn Outside) -> Result<About, Errno> {
        match self.tree.place(path) {
            GuestPath::Workspace(inside) => self.about_inside(&inside, outside),
            GuestPath::Tmp(path) => self.about(&OpenKind::Tmp(self.tmp.find(&path).ok_or(Errno::NOENT)?)),
            GuestPath::Folder(path) => self.about(&OpenKind::Folder { path, names: None }),
            GuestPath::Device(device) => self.about(&OpenKind::Device(device)),
            GuestPath::Program => {
                Ok(About { kind: GuestFileKind::Link, bytes: 0, mode: 0o777, modified_ms: 0 })
            }
            GuestPath::Nowhere => Err(Errno::NOENT),
        }
    }

    /// What is in a folder, dots included.
    pub(super) fn list(
        &mut self,
        path: &str,
        outside: &dyn Outside,
    ) -> Result<Vec<(String, GuestFileKind)>, Errno> {
        let mut names =
            vec![(".".to_owned(), GuestFileKind::Folder), ("..".to_owned(), GuestFileKind::Folder)];
        let place = self.tree.place(path);
        match &place {
            GuestPath::Workspace(inside) => {
                match outside.ask(GuestRequest::List(inside.clone())) {
                    Ok(GuestReply::Names(found)) => names.extend(found),
                    Ok(GuestReply::About(_) | GuestReply::Content(_) | GuestReply::Saved) => {
                        return Err(Errno::IO);
                    }
                    Err(Errno::NOENT) if self.made.contains(inside) => {}
                    Err(errno) => return Err(errno),
                }
                let own = self.made.iter().map(|path| (path, GuestFileKind::Folder));
                let drafts = self.drafts.iter().flatten().map(|draft| (&draft.path, GuestFileKind::File));
                let prefix = if inside == "." { String::new() } else { format!("{inside}/") };
                for (path, kind) in own.chain(drafts) {
                    let name = path.strip_prefix(prefix.as_str()).filter(|name| !name.contains('/'));
                    if let Some(name) = name.filter(|name| !names.iter().any(|(known, _)| known == name)) {
                        names.push((name.to_owned(), kind));
                    }
                }
            }
            GuestPath::Tmp(path) => {
                names.extend(self.tmp.list(path).map(|(name, kind)| (name.to_owned(), kind)));
                names.extend(self.tree.fixed(path));
            }
            GuestPath::Folder(path) => names.extend(self.tree.fixed(path)),
            GuestPath::Device(_) | GuestPath::Program => return Err(Errno::NOTDIR),
            GuestPath::Nowhere => return Err(Errno::NOENT),
        }
        Ok(names)
    }

    /// `mkdir`. In the workspace the folder comes into being with its first file.
    pub(super) fn mkdir(&mut self, path: &str, mode: u32, outside: &dyn Outside) -> Result<(), Errno> {
        match self.tree.place(path) {
            GuestPath::Tmp(path) => self.tmp.make(&path, true, mode).map(drop),
            GuestPath::Workspace(inside) => {
                match self.about_inside(&inside, outside) {
                    Ok(_) => return Err(Errno::EXIST),
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                }
                self.hold(inside.len() as u64)?;
                self.made.insert(inside);
                Ok(())
            }
            GuestPath::Folder(_) | GuestPath::Device(_) | GuestPath::Program => Err(Errno::EXIST),
            GuestPath::Nowhere => Err(Errno::ACCESS),
        }
    }

    /// `unlink` and `rmdir`. What is in the workspace already can't be removed: no tool does.
    pub(super) fn remove(&mut self, path: &str, folder: bool, outside: &dyn Outside) -> Result<(), Errno> {
        match self.tree.place(path) {
            GuestPath::Tmp(path) => {
                let freed = self.tmp.remove(&path, folder)?;
                self.release(freed as u64);
                Ok(())
            }
            GuestPath::Workspace(inside) => {
                if folder && self.made.remove(&inside) {
                    return Ok(());
                }
                let unsaved = |draft: &FileDraft| draft.temporary && draft.how == WriteMode::Create;
                match self.draft_at(&inside) {
                    Some(id) if self.drafts.get(id).and_then(Option::as_ref).is_some_and(unsaved) => {
                        self.forget_name(id);
                        Ok(())
                    }
                    _ => {
                        self.about_inside(&inside, outside)?;
                        self.note(format!(
                            "removing `{inside}`: a microVM can't remove files from the workspace"
                        ));
                        Err(Errno::PERM)
                    }
                }
            }
            GuestPath::Folder(_) | GuestPath::Device(_) | GuestPath::Program => Err(Errno::PERM),
            GuestPath::Nowhere => Err(Errno::NOENT),
        }
    }

    /// An open file without a name lives until it is closed, and is never saved.
    fn forget_name(&mut self, id: usize) {
        if let Some(draft) = self.drafts.get_mut(id).and_then(Option::as_mut)
            && draft.opened > 0
        {
            // No path leads here: names never begin with a slash.
            (draft.path, draft.dirty, draft.temporary) = (format!("/{id}"), false, true);
            return;
        }
        self.drop_draft(id);
    }

    /// `rename`. In the workspace only what this program made and has not saved yet: then the file is saved under its new name.
    pub(super) fn rename(&mut self, from: &str, to: &str, outside: &dyn Outside) -> Result<(), Errno> {
        match (self.tree.place(from), self.tree.place(to)) {
            (GuestPath::Tmp(from), GuestPath::Tmp(to)) => {
                let freed = self.tmp.rename(&from, &to)?;
                self.release(freed as u64);
                Ok(())
            }
            (GuestPath::Workspace(from), GuestPath::Workspace(to)) => {
                let Some(id) = self.draft_at(&from) else {
                    self.about_inside(&from, outside)?;
                    self.note(format!("renaming `{from}`: a microVM can't remove files from the workspace"));
                    return Err(Errno::PERM);
                };
                let draft = self.drafts.get_mut(id).and_then(Option::as_mut).ok_or(Errno::NOENT)?;
                if !draft.temporary || draft.how != WriteMode::Create {
                    return Err(Errno::PERM);
                }
                (draft.path, draft.how, draft.temporary, draft.dirty) = (to, WriteMode::Replace, false, true);
                if draft.opened > 0 {
                    return Ok(());
                }
                let saved = self.save(id, outside);
                self.drop_draft(id);
                saved
            }
            (GuestPath::Nowhere, _) => Err(Errno::NOENT),
            (_, GuestPath::Nowhere) if parent(to) == "/" => Err(Errno::ACCESS),
            (_, GuestPath::Nowhere) => Err(Errno::NOENT),
            (GuestPath::Tmp(_) | GuestPath::Workspace(_), GuestPath::Tmp(_) | GuestPath::Workspace(_)) => {
                Err(Errno::XDEV)
            }
            (
                GuestPath::Tmp(_)
                | GuestPath::Workspace(_)
                | GuestPath::Folder(_)
                | GuestPath::Device(_)
                | GuestPath::Program,
                _,
            ) => Err(Errno::PERM),
        }
    }
}
