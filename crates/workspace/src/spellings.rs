//! All names that a file goes by: a rule about one of them is a rule about the file.
//!
//! Git, editors and shells open `.envrc` whether it is a file or a link. So a path is judged by its real spelling, by the links that were
//! passed on the way to it, and by links elsewhere that lead to it: those in the folders above it, in the workspace's root and among the
//! hooks of its repository. `core.hooksPath` is such a link in all but name.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::{NO_LINKS, PathError, ROOT, Workspace, check_text, identity_of, is_inside, openat2, walk};

/// Where git looks for hooks, and the file that can say otherwise.
const HOOKS: &str = ".git/hooks";
const GIT_CONFIG: &str = ".git/config";
const GIT_CONFIG_BYTES_MAX: u64 = 1 << 20;

/// A path, by its real name and by others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spellings {
    /// What [`Workspace::resolve`] gives.
    pub real: String,
    /// Other names of it, none of them twice.
    pub others: Vec<String>,
}

/// A folder on the way to a file, or the file: what it is on disk, and what is left of the path from there.
struct Stage {
    spelling: String,
    identity: Option<(u64, u64)>,
    rest: String,
}

impl Workspace {
    /// The real spelling of a path, and all other names of it that rules may know.
    pub fn spellings(&self, text: &str) -> Result<Spellings, PathError> {
        let (real, others) = self.resolved(text)?;
        self.with_links_to(real, others)
    }

    /// The same for what is done to an entry of a folder, such as removing it: a link at the end is itself, and is not followed.
    pub fn entry_spellings(&self, text: &str) -> Result<Spellings, PathError> {
        check_text(text)?;
        let (above, name) = match text.rsplit_once('/') {
            None => (ROOT, text),
            Some(("", name)) => ("/", name),
            Some((above, name)) => (above, name),
        };
        if matches!(name, "" | "." | "..") {
            return self.spellings(text);
        }
        let (folder, passed) = self.resolved(above)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let opened = self.reach(&folder, flags, Mode::empty());
        let stat =
            opened.ok().and_then(|opened| rustix::fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW).ok());
        // What isn't seen to be a link is judged by where it leads, and nothing acts on a link in its place.
        if stat.is_none_or(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Symlink) {
            return self.spellings(text);
        }
        let entry = |folder: &str| match folder {
            ROOT => name.to_owned(),
            folder => format!("{}/{name}", folder.strip_suffix('/').unwrap_or(folder)),
        };
        self.with_links_to(entry(&folder), passed.iter().map(|folder| entry(folder)).collect())
    }

    fn with_links_to(&self, real: String, mut others: Vec<String>) -> Result<Spellings, PathError> {
        if is_inside(&real) {
            self.add_links_to(&real, &mut others)?;
        }
        others.retain(|other| *other != real);
        others.sort_unstable();
        others.dedup();
        Ok(Spellings { real, others })
    }

    fn add_links_to(&self, real: &str, others: &mut Vec<String>) -> Result<(), PathError> {
        let stages = self.stages(real)?;
        let mut folders: Vec<&str> = vec![ROOT, HOOKS];
        folders.extend(stages.iter().map(|stage| stage.spelling.as_str()).filter(|one| *one != real));
        for folder in folders {
            let Some(opened) = self.folder(folder)? else { continue };
            for entry in Dir::read_from(&opened)? {
                let entry = entry?;
                let kind = entry.file_type();
                let Ok(name) = entry.file_name().to_str() else { continue };
                if matches!(kind, FileType::Symlink | FileType::Unknown) && !matches!(name, "." | "..") {
                    let link = if folder == ROOT { name.to_owned() } else { format!("{folder}/{name}") };
                    others.extend(self.led_to(&opened, name, &link, &stages)?);
                }
            }
        }
        if let Some(hooks) = self.hooks_path()? {
            let leads = stages.iter().find(|stage| stage.spelling == hooks);
            others.extend(leads.map(|stage| format!("{HOOKS}{}", stage.rest)));
        }
        Ok(())
    }

    /// What the path is called by way of this link, if the link leads to a part of it.
    fn led_to(
        &self,
        folder: &OwnedFd,
        name: &str,
        link: &str,
        stages: &[Stage],
    ) -> Result<Option<String>, PathError> {
        let found = match rustix::fs::statat(folder, name, AtFlags::empty()) {
            Ok(stat) => {
                let identity = identity_of(&stat);
                stages.iter().find(|stage| stage.identity == Some(identity))
            }
            // It leads to something that isn't there yet, and may be what is about to be made.
            Err(rustix::io::Errno::NOENT) => match walk::resolve(&self.0, link) {
                Ok((target, _)) => stages.iter().find(|stage| stage.spelling == target),
                Err(_nowhere) => None,
            },
            // A cycle, or out of reach.
            Err(
                rustix::io::Errno::LOOP
                | rustix::io::Errno::NOTDIR
                | rustix::io::Errno::ACCESS
                | rustix::io::Errno::NAMETOOLONG,
            ) => None,
            Err(errno) => return Err(errno.into()),
        };
        Ok(found.map(|stage| format!("{link}{}", stage.rest)))
    }

    /// The folders down to a path, and the path.
    fn stages(&self, real: &str) -> Result<Vec<Stage>, PathError> {
        let ends = real.match_indices('/').map(|(at, _)| at).chain([real.len()]);
        let stage = |end: usize| {
            let (spelling, rest) = real.split_at_checked(end).unwrap_or((real, ""));
            let identity = match rustix::fs::statat(self.0.dir.as_fd(), spelling, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => Some(identity_of(&stat)),
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => None,
                Err(errno) => return Err(PathError::from(errno)),
            };
            Ok(Stage { spelling: spelling.to_owned(), identity, rest: rest.to_owned() })
        };
        ends.map(stage).collect()
    }

    fn folder(&self, spelling: &str) -> Result<Option<OwnedFd>, PathError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat2(self.0.dir.as_fd(), spelling, flags, Mode::empty(), NO_LINKS) {
            Ok(folder) => Ok(Some(folder)),
            // A link in its place is in the folder above. A folder that we can't list can't be followed through a link with our rights either.
            Err(PathError::NotFound | PathError::NotFolder | PathError::Links | PathError::NotPermitted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Where the repository in the root has its hooks, if its configuration names a folder in the workspace.
    fn hooks_path(&self) -> Result<Option<String>, PathError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match openat2(self.0.dir.as_fd(), GIT_CONFIG, flags, Mode::empty(), NO_LINKS) {
            Ok(opened) => opened,
            Err(PathError::NotFound | PathError::NotFolder | PathError::Links | PathError::NotPermitted) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        let mut bounded = std::io::Read::take(std::fs::File::from(opened), GIT_CONFIG_BYTES_MAX + 1);
        std::io::Read::read_to_end(&mut bounded, &mut bytes).map_err(|error| PathError::of_io(&error))?;
        // The last setting counts, so a part of the file isn't enough.
        if bytes.len() as u64 > GIT_CONFIG_BYTES_MAX {
            return Err(PathError::TooMany);
        }
        let text = String::from_utf8_lossy(&bytes);
        let named = text.lines().rev().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            name.trim().eq_ignore_ascii_case("hookspath").then(|| value.trim().trim_matches('"').to_owned())
        });
        // Git reads a relative name from the root of the work tree. One that leads nowhere has no hooks.
        Ok(named.and_then(|named| walk::resolve(&self.0, &named).ok()).map(|(folder, _)| folder))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use crate::Workspace;

    #[test]
    fn c1_a_path_is_known_by_the_links_that_lead_to_it() {
        let home = tempfile::tempdir().unwrap();
        for folder in ["config", "scripts", "data", "tools/hooks", ".git/hooks", "a/b"] {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        for file in ["config/envrc", "scripts/pre-commit", "data/x", "tools/hooks/post-commit", "a/real"] {
            std::fs::write(home.path().join(file), "x").unwrap();
        }
        std::fs::write(home.path().join(".git/config"), "[core]\n\thooksPath = tools/hooks\n").unwrap();
        for (target, link) in [
            ("config/envrc", ".envrc"),
            ("../../scripts/pre-commit", ".git/hooks/pre-commit"),
            ("data", "private"),
            ("config/later", ".npmrc"),
            ("../real", "a/b/AGENTS.md"),
            ("real", "a/CLAUDE.md"),
            ("circle", "circle"),
        ] {
            symlink(target, home.path().join(link)).unwrap();
        }
        let workspace = Workspace::open(home.path()).unwrap();
        for (text, real, others) in [
            (".envrc", "config/envrc", &[".envrc"][..]),
            ("config/envrc", "config/envrc", &[".envrc"]),
            ("scripts/../config/envrc", "config/envrc", &[".envrc"]),
            ("scripts/pre-commit", "scripts/pre-commit", &[".git/hooks/pre-commit"]),
            ("data/x", "data/x", &["private/x"]),
            ("private/new/file", "data/new/file", &["private/new/file"]),
            ("data/new", "data/new", &["private/new"]),
            ("config/later", "config/later", &[".npmrc"]),
            ("tools/hooks/post-commit", "tools/hooks/post-commit", &[".git/hooks/post-commit"]),
            ("tools/hooks/new", "tools/hooks/new", &[".git/hooks/new"]),
            ("a/real", "a/real", &["a/CLAUDE.md"]),
            ("a/b/AGENTS.md", "a/real", &["a/CLAUDE.md", "a/b/AGENTS.md"]),
            ("plain.txt", "plain.txt", &[]),
            ("/etc/hostname", "/etc/hostname", &[]),
        ] {
            let found = workspace.spellings(text).unwrap();
            assert_eq!(
                (found.real.as_str(), found.others),
                (real, others.iter().map(|one| (*one).to_owned()).collect()),
                "{text}"
            );
        }
        // As an entry of its folder, a link is itself; everything else is what it is elsewhere.
        for (text, real, others) in [
            (".envrc", ".envrc", &[][..]),
            ("private/x", "data/x", &["private/x"]),
            ("./private", "private", &[]),
            ("private/", "data", &["private"]),
            ("a/b/AGENTS.md", "a/b/AGENTS.md", &[]),
            (".git/hooks/pre-commit", ".git/hooks/pre-commit", &[]),
            ("config/envrc", "config/envrc", &[".envrc"]),
            ("circle", "circle", &[]),
            ("none", "none", &[]),
            (".", ".", &[]),
        ] {
            let found = workspace.entry_spellings(text).unwrap();
            assert_eq!(
                (found.real.as_str(), found.others),
                (real, others.iter().map(|one| (*one).to_owned()).collect()),
                "{text}"
            );
        }
    }
}
