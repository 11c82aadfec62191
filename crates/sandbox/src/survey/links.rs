//! Where links of the workspace lead.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::unreadable;
use crate::error::SandboxError;

const LINKS_MAX: usize = 40;

/// Where a path leads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Landing {
    /// `None`: it leads out of the workspace, or nowhere.
    pub end: Option<LinkTarget>,
    /// The links of the workspace that it leads through.
    pub links: Vec<PathBuf>,
}

/// What is at the end of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LinkTarget {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// Whether it is a folder; `None` if nothing is there.
    pub folder: Option<bool>,
}

/// Follows every link of a path, which is absolute or relative to the workspace.
pub(super) fn landing(host: &Path, path: &Path) -> Result<Landing, SandboxError> {
    let fail = |at: &Path, cause: io::Error| unreadable(host, at.strip_prefix(host).unwrap_or(at), cause);
    let mut at = if path.is_absolute() { PathBuf::from("/") } else { host.to_path_buf() };
    let mut left: Vec<OsString> = names(path);
    let (mut landing, mut followed, mut found) = (Landing::default(), 0, Some(true));
    while let Some(name) = left.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        at.push(&name);
        let metadata = match std::fs::symlink_metadata(&at) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                found = None;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(landing),
            // Longer than any path can be: nobody gets there.
            Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => return Ok(landing),
            // Outside the workspace, where the user can't go either.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !at.starts_with(host) => {
                return Ok(landing);
            }
            Err(error) => return Err(fail(&at, error)),
        };
        found = Some(metadata.is_dir());
        if metadata.is_symlink() {
            followed += 1;
            if followed > LINKS_MAX {
                return Ok(landing);
            }
            landing.links.extend(at.strip_prefix(host).map(Path::to_path_buf));
            let to = std::fs::read_link(&at).map_err(|error| fail(&at, error))?;
            at.pop();
            if to.is_absolute() {
                at = PathBuf::from("/");
            }
            left.extend(names(&to));
        }
    }
    landing.end =
        at.strip_prefix(host).ok().map(|path| LinkTarget { path: path.to_path_buf(), folder: found });
    Ok(landing)
}

/// The names of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// Refuses to hide or pin the workspace itself.
pub(super) fn not_the_workspace(path: &Path) -> Result<(), SandboxError> {
    if path.as_os_str().is_empty() {
        return Err(SandboxError::Spec("the workspace itself can't be hidden or guarded".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_to_their_end_inside_the_workspace_only() {
        let folder = tempfile::tempdir().unwrap();
        let host = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(host.join("conf/deep")).unwrap();
        std::fs::write(host.join("conf/real"), "").unwrap();
        symlink("conf/real", host.join("one")).unwrap();
        symlink("one", host.join("two")).unwrap();
        symlink(host.join("conf"), host.join("absolute")).unwrap();
        symlink("conf/missing/file", host.join("dangling")).unwrap();
        symlink("/etc/passwd", host.join("out")).unwrap();
        symlink("loop", host.join("loop")).unwrap();
        symlink("../../conf/real", host.join("conf/deep/up")).unwrap();
        let at = |path: &str| landing(&host, Path::new(path)).unwrap().end;
        let is = |path: &str, folder| Some(LinkTarget { path: path.into(), folder });
        assert_eq!(at("two"), is("conf/real", Some(false)));
        assert_eq!(at("absolute/deep"), is("conf/deep", Some(true)));
        assert_eq!(at("absolute/deep/up"), is("conf/real", Some(false)));
        assert_eq!(at("dangling"), is("conf/missing/file", None));
        assert_eq!((at("out"), at("loop"), at("one/x")), (None, None, None));
        assert_eq!(at(host.join("two").to_str().unwrap()), is("conf/real", Some(false)));
        let links = |path: &str| landing(&host, Path::new(path)).unwrap().links;
        assert_eq!(links("two"), [Path::new("two"), Path::new("one")]);
        assert_eq!(links("absolute/deep/up"), [Path::new("absolute"), Path::new("conf/deep/up")]);
        assert_eq!(links("out"), [Path::new("out")], "the link to outside is known");
    }
}
