//! The control files of a project, each read once. What was compared with the user's agreement is what is put in force, whatever happens to
//! the files in between.
//!
//! Only regular files count, and of a project no link does: a link that comes with a clone could lead to a device, or to a file that agents
//! may write.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use regent_ledger::Digest;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::codes;
use crate::failure::Failure;
use crate::manifests;
use crate::paths::{self, Project};

/// A policy file larger than this isn't one.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Folders of a project that Regent keeps its own things in. Parents come first.
const OWN_FOLDERS: [&str; 6] =
    [".regent", ".regent/audit", ".regent/audit/lanes", ".regent/prompts", ".regent/skills", ".regent/tools"];
/// Templates that a project may have.
const TEMPLATES_MAX: usize = 256;

/// What a project's control files held when they were read.
#[derive(Debug, Clone)]
pub(crate) struct Controls {
    project: Project,
    policies: Vec<PathBuf>,
    texts: BTreeMap<PathBuf, String>,
}

impl Controls {
    /// Reads the files of a project that act: its policies with what they refer to, its settings, its labels of
    /// tools, and the lock of its skills.
    pub(crate) fn read(project: &Project) -> Result<Self, Failure> {
        demand_folders(project)?;
        let policies = project.policies();
        let mut texts = BTreeMap::new();
        for path in &policies {
            let text = read_own(path)?;
            // A manifest that can't be read refers to nothing here; loading it reports its mistakes.
            for (_, file) in manifests::referred(path, &text).unwrap_or_default() {
                texts.insert(file.clone(), read_own(&file)?);
            }
            texts.insert(path.clone(), text);
        }
        for path in templates(&project.prompts())? {
            let text = read_own(&path)?;
            texts.insert(path, text);
        }
        for path in [project.settings(), project.labels(), project.skills_lock()] {
            if paths::may_exist(&path) {
                let text = read_own(&path)?;
                texts.insert(path, text);
            }
        }
        Ok(Self { project: project.clone(), policies, texts })
    }

    /// The project that they are of.
    pub(crate) fn project(&self) -> &Project {
        &self.project
    }

    /// The policy files that are there.
    pub(crate) fn policies(&self) -> &[PathBuf] {
        &self.policies
    }

    /// What the settings file holds, if there is one.
    pub(crate) fn settings(&self) -> Option<&str> {
        self.texts.get(&self.project.settings()).map(String::as_str)
    }

    /// What the file with labels of tools holds, if there is one.
    pub(crate) fn labels(&self) -> Option<&str> {
        self.texts.get(&self.project.labels()).map(String::as_str)
    }

    /// What one of the files holds. A file that wasn't read with the others came later.
    pub(crate) fn text(&self, path: &Path) -> Result<String, Failure> {
        self.texts.get(path).cloned().ok_or_else(|| {
            let message = format!("`{}` appeared while the project's files were read", path.display());
            Failure::new(codes::FOLDER_UNTRUSTED, message).help("try again")
        })
    }

    /// The templates of prompts for a kind of task, by path.
    pub(crate) fn prompts<'a>(&'a self, kind: &str) -> impl Iterator<Item = (&'a Path, &'a str)> {
        let folder = self.project.prompts().join(kind);
        let texts = self.texts.iter().filter(move |(path, _)| path.parent() == Some(folder.as_path()));
        texts.map(|(path, text)| (path.as_path(), text.as_str()))
    }

    /// The digest of each, by its name in the project.
    pub(crate) fn digests(&self) -> BTreeMap<String, String> {
        let one = |(path, text): (&PathBuf, &String)| {
            (self.project.short(path).into_owned(), Digest::compute(text.as_bytes()).to_string())
        };
        self.texts.iter().map(one).collect()
    }
}

/// The templates of prompts in a folder: `KIND/NAME.txt`.
pub(crate) fn templates(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for kind in entries(folder)?.into_iter().filter(|kind| kind.is_dir()) {
        let is_template = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "txt");
        found.extend(entries(&kind)?.into_iter().filter(is_template));
    }
    if found.len() > TEMPLATES_MAX {
        let message = format!("`{}` has more than {TEMPLATES_MAX} templates", folder.display());
        return Err(Failure::new(codes::INPUT_SIZE, message));
    }
    found.sort();
    Ok(found)
}

/// What lies in a folder, if it exists.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let broken = |error: io::Error| Failure::io("list", folder, &error);
    match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(broken(error)),
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path()).map_err(broken)).collect(),
    }
}

/// Refuses a project in which a folder of Regent's own is a link: tools are kept out of `.regent` by its name, so what lies
/// behind a link would be in their reach. A clone can bring such a link.
pub(crate) fn demand_folders(project: &Project) -> Result<(), Failure> {
    for name in OWN_FOLDERS {
        let path = project.root.join(name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(_) | Err(Errno::NOENT) => {}
            // A regular file leads nowhere; code that needs the folder reports it.
            Err(Errno::NOTDIR) if !path.is_symlink() => {}
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let message = format!("`{}` is a link, but Regent keeps its own files there", path.display());
                return Err(Failure::new(codes::FOLDER_LINKED, message).help(format!(
                    "check where it leads (`ls -l {name}`), then remove it (`rm {name}`) and run `regent init`"
                )));
            }
            Err(error) => return Err(Failure::io("look at", &path, &error.into())),
        }
    }
    Ok(())
}

/// Reads a policy or settings file of the user's own: text, in a regular file, and of a size that such files have. A link is followed.
pub(crate) fn read_file(path: &Path) -> Result<String, Failure> {
    read_text(path, Links::Followed)
}

/// The same, if there is one. Only "does not exist" means absent.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>, Failure> {
    if paths::may_exist(path) { read_file(path).map(Some) } else { Ok(None) }
}

/// The same of a project, where no link is followed, neither the file's own name nor a folder above it.
fn read_own(path: &Path) -> Result<String, Failure> {
    match read_text(path, Links::Refused) {
        Err(failure) if failure.code == codes::FOLDER_LINKED.id => {
            let message = format!(
                "`{}` is a link or behind one; a project's control files must be regular files",
                path.display()
            );
            Err(Failure::new(codes::FOLDER_LINKED, message)
                .help("replace the link by a copy of its target, or remove it"))
        }
        read => read,
    }
}

/// What becomes of links on the way to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// The user's own files may be anywhere.
    Followed,
    /// A project's may not: a clone brings its links along.
    Refused,
}

fn read_text(path: &Path, links: Links) -> Result<String, Failure> {
    let bytes = read_bounded(path, links, FILE_BYTES_MAX).map_err(|error| {
        if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
            Failure::new(codes::FOLDER_LINKED, format!("`{}`: {error}", path.display()))
        } else if matches!(error.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput) {
            Failure::new(codes::POLICY_INVALID, format!("`{}` {error}", path.display()))
        } else {
            Failure::io("read", path, &error)
        }
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(
            codes::POLICY_INVALID,
            format!("`{}` is not text: byte {at} is not UTF-8", path.display()),
        )
    })
}

fn open(path: &Path, links: Links) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if links == Links::Followed {
        return Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?));
    }
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Where the system call is closed, as in a sandbox, the folders are compared instead.
        Err(Errno::NOSYS) => {
            let folder = path.parent().unwrap_or(Path::new("/"));
            if folder.canonicalize()? != folder {
                return Err(Errno::LOOP.into());
            }
            Ok(File::from(rustix::fs::open(path, flags | OFlags::NOFOLLOW, Mode::empty())?))
        }
        opened => Ok(File::from(opened?)),
    }
}

/// Reads a regular file up to a size. Devices and pipes have no size, and reading them may never end.
pub(crate) fn read_bounded(path: &Path, links: Links, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open(path, links)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > bytes_max {
        let message = format!("is larger than the limit of {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}
