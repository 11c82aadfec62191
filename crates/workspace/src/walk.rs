//! Following a path name by name, so that its real spelling is known whatever links it goes through.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};

use super::{Held, NO_LINKS, PATH_BYTES_MAX, PathError, ROOT, check_text, identity_of, openat2};

/// As many links as Linux follows.
const LINKS_MAX: u8 = 40;
/// Names still to go, links included; 40 links of 4 KiB can't make more sense than this.
const NAMES_MAX: usize = 4096;
/// `/proc`, whose links may not be what they say.
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Where the walk is.
struct Walk<'a> {
    held: &'a Held,
    /// Relative to the workspace's root, which is held, or to `/`.
    inside: bool,
    /// The names down to here; none of them is a link.
    names: Vec<String>,
    /// The folder there.
    dir: OwnedFd,
    links: u8,
}

/// What a name turned out to be.
enum Step {
    Folder(OwnedFd),
    Link(String),
    Other,
    Missing,
}

pub(super) fn resolve(held: &Held, text: &str) -> Result<String, PathError> {
    let mut walk = Walk {
        held,
        inside: true,
        names: Vec::new(),
        dir: held.dir.try_clone().map_err(|e| PathError::of_io(&e))?,
        links: 0,
    };
    // The names still to go, the next one last.
    let mut left: Vec<String> = Vec::new();
    walk.queue(&mut left, text)?;
    while let Some(name) = left.pop() {
        match name.as_str() {
            "" | "." => continue,
            ".." => {
                walk.up()?;
                continue;
            }
            _name => {}
        }
        match walk.look(&name)? {
            Step::Folder(dir) => walk.down(name, dir)?,
            Step::Link(target) => {
                walk.links += 1;
                if walk.links > LINKS_MAX {
                    return Err(PathError::Links);
                }
                walk.queue(&mut left, &target)?;
            }
            Step::Other if left.iter().all(String::is_empty) => {
                walk.names.push(name);
                break;
            }
            Step::Other => return Err(PathError::NotFolder),
            Step::Missing => {
                walk.names.push(name);
                walk.missing(left)?;
                break;
            }
        }
    }
    walk.spelling()
}

impl Walk<'_> {
    /// Puts a path in front of what is left to go.
    fn queue(&mut self, left: &mut Vec<String>, path: &str) -> Result<(), PathError> {
        if path.starts_with('/') {
            self.inside = false;
            self.names.clear();
            self.dir = self.held.slash.try_clone().map_err(|error| PathError::of_io(&error))?;
            // A workspace at `/` holds everything.
            self.enter_if_root()?;
        }
        left.extend(path.rsplit('/').map(str::to_owned));
        if left.len() > NAMES_MAX { Err(PathError::TooLong) } else { Ok(()) }
    }

    fn look(&self, name: &str) -> Result<Step, PathError> {
        let fd = match openat2(self.dir.as_fd(), name, LOOK, Mode::empty(), ResolveFlags::BENEATH) {
            Ok(fd) => fd,
            Err(PathError::NotFound) => return Ok(Step::Missing),
            Err(error) => return Err(error),
        };
        let stat = rustix::fs::fstat(&fd)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Ok(Step::Folder(fd)),
            FileType::Symlink => {
                self.refuse_magic(name, &fd)?;
                let target = rustix::fs::readlinkat(&fd, "", Vec::with_capacity(PATH_BYTES_MAX))?;
                let target = target.into_string().map_err(|_| PathError::NotText)?;
                check_text(&target)?;
                Ok(Step::Link(target))
            }
            FileType::RegularFile
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Ok(Step::Other),
        }
    }

    /// A magic link leads somewhere by itself; its text is only a description. The kernel refuses to follow one when asked to.
    fn refuse_magic(&self, name: &str, link: &OwnedFd) -> Result<(), PathError> {
        if u64::try_from(rustix::fs::fstatfs(link)?.f_type).ok() != Some(PROC_SUPER_MAGIC) {
            return Ok(());
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match rustix::fs::openat2(&self.dir, name, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
            Err(rustix::io::Errno::LOOP) => Err(PathError::MagicLink),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn down(&mut self, name: String, dir: OwnedFd) -> Result<(), PathError> {
        self.names.push(name);
        self.dir = dir;
        self.enter_if_root()
    }

    /// From outside onto the workspace's own folder: from here on names are relative to it.
    fn enter_if_root(&mut self) -> Result<(), PathError> {
        if !self.inside && self.names == self.held.names {
            let stat: Stat = rustix::fs::fstat(&self.dir)?;
            if identity_of(&stat) == self.held.identity {
                self.inside = true;
                self.names.clear();
            }
        }
        Ok(())
    }

    fn up(&mut self) -> Result<(), PathError> {
        if self.inside && self.names.is_empty() {
            self.inside = false;
            self.names.clone_from(&self.held.names);
        }
        self.names.pop();
        let base = if self.inside { &self.held.dir } else { &self.held.slash };
        let below = if self.names.is_empty() { ROOT.to_owned() } else { self.names.join("/") };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.dir = openat2(base.as_fd(), &below, flags, Mode::empty(), NO_LINKS)?;
        self.enter_if_root()
    }

    /// Below a name that doesn't exist there is nothing to follow; going up again from there can't be meant.
    fn missing(&mut self, left: Vec<String>) -> Result<(), PathError> {
        for name in left.into_iter().rev() {
            match name.as_str() {
                "" | "." => {}
                ".." => return Err(PathError::NotFound),
                _name => self.names.push(name),
            }
        }
        Ok(())
    }

    fn spelling(self) -> Result<String, PathError> {
        let joined = self.names.join("/");
        let spelling = match (self.inside, joined.is_empty()) {
            (true, true) => ROOT.to_owned(),
            (true, false) => joined,
            (false, _) => format!("/{joined}"),
        };
        check_text(&spelling).map(|()| spelling)
    }
}
