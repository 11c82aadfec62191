//! Following a path name by name, so that its real spelling is known whatever links it goes through.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};

use super::{NO_LINKS, OpenWorkspace, PATH_BYTES_MAX, PathError, ROOT, check_text, identity_of, openat2};

/// As many links as Linux follows.
const LINKS_MAX: u8 = 40;
/// Names still to go, links included; 40 links of 4 KiB can't make more sense than this.
const NAMES_MAX: usize = 4096;
/// `/proc`, whose links may not be what they say.
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Links below a process's folder that lead past all names, and folders of such links.
const MAGIC_NAMES: &[&[u8]] = &[b"cwd", b"root", b"fd", b"exe", b"map_files", b"task", b"ns"];

/// Where the walk is.
struct Walk<'a> {
    held: &'a OpenWorkspace,
    /// Names that aren't plain text end the walk.
    text_only: bool,
    /// Relative to the workspace's root, which is held, or to `/`.
    inside: bool,
    /// The names down to here; none of them is a link.
    names: Vec<Vec<u8>>,
    /// The folder there.
    dir: OwnedFd,
    links: u8,
    /// The spelling of the whole path at each link in the workspace, as if that were no link.
    passed: Vec<Vec<u8>>,
    /// Names that may still be looked at.
    steps_left: usize,
}

/// What a name turned out to be.
enum PathComponent {
    Folder(OwnedFd),
    Link(Vec<u8>),
    Other,
    Missing,
}

/// The spelling of a path, with every link followed, and what it was called before each of them was. Text without control characters.
pub(super) fn resolve(held: &OpenWorkspace, text: &str) -> Result<(String, Vec<String>), PathError> {
    let mut walk = Walk::new(held, true, usize::MAX)?;
    walk.follow(text.as_bytes())?;
    let text_of = |bytes: Vec<u8>| {
        let spelling = String::from_utf8(bytes).map_err(|_| PathError::NotText)?;
        check_text(&spelling).map(|()| spelling)
    };
    let passed = std::mem::take(&mut walk.passed);
    Ok((text_of(walk.spelling())?, passed.into_iter().map(text_of).collect::<Result<_, _>>()?))
}

/// What a name leads to.
pub(super) enum Located {
    /// Something inside the workspace, or nothing there: its spelling, byte for byte.
    Inside(Vec<u8>),
    /// Something outside: its spelling.
    Outside(Vec<u8>),
    /// Nothing.
    Absent,
}

/// Where a name leads, whatever bytes it and the links on its way are made of. What can't be followed is an error, unless it lies
/// outside: programs in the sandbox can neither follow it nor change it there. Each name on the way takes one of the steps.
pub(super) fn locate(
    held: &OpenWorkspace,
    name: &[u8],
    steps_left: &mut usize,
) -> Result<Located, PathError> {
    let mut walk = Walk::new(held, false, *steps_left)?;
    let followed = walk.follow(name);
    *steps_left = walk.steps_left;
    match followed {
        Ok(()) => {}
        // A name that Linux itself calls too long can't be opened by any program.
        Err(PathError::NotFound | PathError::NotFolder | PathError::TooLong) => return Ok(Located::Absent),
        Err(PathError::NotPermitted) if !walk.inside => {}
        Err(error) => return Err(error),
    }
    if walk.inside {
        return Ok(Located::Inside(walk.spelling()));
    }
    // Which process this is depends on who looks, so not even its absence says anything.
    if let [first, process, rest @ ..] = walk.names.as_slice()
        && first == b"proc"
        && (process.iter().all(u8::is_ascii_digit) || matches!(process.as_slice(), b"self" | b"thread-self"))
        && (rest.is_empty() || rest.iter().any(|name| MAGIC_NAMES.contains(&name.as_slice())))
    {
        return Err(PathError::MagicLink);
    }
    Ok(Located::Outside(walk.spelling()))
}

impl<'a> Walk<'a> {
    fn new(held: &'a OpenWorkspace, text_only: bool, steps_left: usize) -> Result<Self, PathError> {
        let dir = held.dir.try_clone().map_err(|error| PathError::of_io(&error))?;
        let (names, passed) = (Vec::new(), Vec::new());
        Ok(Self { held, text_only, inside: true, names, dir, links: 0, passed, steps_left })
    }

    fn follow(&mut self, path: &[u8]) -> Result<(), PathError> {
        // The names still to go, the next one last.
        let mut left: Vec<Vec<u8>> = Vec::new();
        self.queue(&mut left, path)?;
        while let Some(name) = left.pop() {
            self.steps_left = self.steps_left.checked_sub(1).ok_or(PathError::TooManyNames)?;
            match name.as_slice() {
                b"." => continue,
                b".." => {
                    self.up()?;
                    continue;
                }
                _name => {}
            }
            match self.look(&name)? {
                PathComponent::Folder(dir) => self.down(name, dir)?,
                PathComponent::Link(target) => {
                    self.links += 1;
                    if self.links > LINKS_MAX {
                        return Err(PathError::Links);
                    }
                    // Outside, links are the machine's own and no rule's.
                    if self.inside {
                        self.passed.push(self.spelling_through(name, &left));
                    }
                    self.queue(&mut left, &target)?;
                }
                PathComponent::Other if left.is_empty() => {
                    self.names.push(name);
                    break;
                }
                PathComponent::Other => return Err(PathError::NotFolder),
                PathComponent::Missing => {
                    self.names.push(name);
                    self.missing(left)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Puts a path in front of what is left to go.
    fn queue(&mut self, left: &mut Vec<Vec<u8>>, path: &[u8]) -> Result<(), PathError> {
        if path.starts_with(b"/") {
            self.inside = false;
            self.names.clear();
            self.dir = self.held.slash.try_clone().map_err(|error| PathError::of_io(&error))?;
            // A workspace at `/` holds everything.
            self.enter_if_root()?;
        }
        // Linux follows any number of `/.`, so they don't count. At the end one says that the name before it is a folder.
        let names = path.rsplit(|byte| *byte == b'/').enumerate();
        let counts = |(place, name): &(usize, &[u8])| match *name {
            b"" => false,
            b"." => *place == 0,
            _name => true,
        };
        left.extend(names.filter(counts).map(|(_, name)| name.to_vec()));
        // Linux has no such limit: a program may get there, so this isn't `TooLong`.
        if left.len() > NAMES_MAX { Err(PathError::TooManyNames) } else { Ok(()) }
    }

    fn look(&self, name: &[u8]) -> Result<PathComponent, PathError> {
        let fd = match openat2(self.dir.as_fd(), name, LOOK, Mode::empty(), ResolveFlags::BENEATH) {
            Ok(fd) => fd,
            Err(PathError::NotFound) => return Ok(PathComponent::Missing),
            Err(error) => return Err(error),
        };
        let stat = rustix::fs::fstat(&fd)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Ok(PathComponent::Folder(fd)),
            FileType::Symlink => {
                self.refuse_magic(name, &fd)?;
                let target = rustix::fs::readlinkat(&fd, "", Vec::with_capacity(PATH_BYTES_MAX))?;
                if self.text_only {
                    check_text(target.to_str().map_err(|_| PathError::NotText)?)?;
                }
                Ok(PathComponent::Link(target.into_bytes()))
            }
            FileType::RegularFile
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Ok(PathComponent::Other),
        }
    }

    /// A magic link leads somewhere by itself; its text is only a description. The kernel refuses to follow one when asked to. A link of
    /// `/proc` that can't be followed may be a magic one whose descriptor was closed just now, so every error refuses.
    fn refuse_magic(&self, name: &[u8], link: &OwnedFd) -> Result<(), PathError> {
        if u64::try_from(rustix::fs::fstatfs(link)?.f_type).ok() != Some(PROC_SUPER_MAGIC) {
            return Ok(());
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match rustix::fs::openat2(&self.dir, name, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
            Ok(_) => Ok(()),
            Err(_) => Err(PathError::MagicLink),
        }
    }

    fn down(&mut self, name: Vec<u8>, dir: OwnedFd) -> Result<(), PathError> {
        self.names.push(name);
        self.dir = dir;
        self.enter_if_root()
    }

    /// From outside onto the workspace's own folder: from here on names are relative to it.
    fn enter_if_root(&mut self) -> Result<(), PathError> {
        let is_root =
            || self.names.iter().map(Vec::as_slice).eq(self.held.names.iter().map(String::as_bytes));
        if !self.inside && is_root() {
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
            self.names = self.held.names.iter().map(|name| name.as_bytes().to_vec()).collect();
        }
        self.names.pop();
        let base = if self.inside { &self.held.dir } else { &self.held.slash };
        let below = if self.names.is_empty() { ROOT.into() } else { self.names.join(&b'/') };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.dir = openat2(base.as_fd(), below.as_slice(), flags, Mode::empty(), NO_LINKS)?;
        self.enter_if_root()
    }

    /// Below a name that doesn't exist there is nothing to follow; going up again from there can't be meant.
    fn missing(&mut self, left: Vec<Vec<u8>>) -> Result<(), PathError> {
        for name in left.into_iter().rev() {
            match name.as_slice() {
                b"." => {}
                b".." => return Err(PathError::NotFound),
                _name => self.names.push(name),
            }
        }
        Ok(())
    }

    /// The spelling of the path if this name, with the rest still to go, were no link.
    fn spelling_through(&self, name: Vec<u8>, left: &[Vec<u8>]) -> Vec<u8> {
        let mut names = self.names.clone();
        names.push(name);
        for next in left.iter().rev() {
            match next.as_slice() {
                b"." => {}
                b".." => drop(names.pop()),
                _name => names.push(next.clone()),
            }
        }
        self.spelling_of(&names)
    }

    fn spelling(&self) -> Vec<u8> {
        self.spelling_of(&self.names)
    }

    fn spelling_of(&self, names: &[Vec<u8>]) -> Vec<u8> {
        let joined = names.join(&b'/');
        match (self.inside, joined.is_empty()) {
            (true, true) => ROOT.into(),
            (true, false) => joined,
            (false, _) => [b"/", joined.as_slice()].concat(),
        }
    }
}
