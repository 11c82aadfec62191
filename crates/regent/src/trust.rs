//! Which folders the user has trusted, and with which content: a control file that changed needs trusting again.
//!
//! The record is in the user's state folder, never in the project: what comes with a download can't vouch for itself.

mod offer;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::codes;
use crate::controls::Controls;
use crate::failure::Failure;
use crate::paths::{self, Paths, Project};

pub(crate) use offer::Offer;

/// What the user has agreed to.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trust {
    /// By the folder's real path.
    folders: BTreeMap<String, Trusted>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trusted {
    /// Of each control file, by its name in the folder.
    files: BTreeMap<String, String>,
    at_ms: i64,
}

/// How a folder stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TrustStanding {
    /// Trusted as it is.
    Trusted,
    /// Never trusted.
    Never,
    /// Trusted once, but this file is not what it was.
    Changed(String),
}

impl Trust {
    /// Reads the record. A damaged one trusts nothing and says so.
    pub(crate) fn load(paths: &Paths) -> Result<Self, Failure> {
        let path = paths.trust();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Failure::io("read", &path, &error)),
        };
        serde_json::from_str(&text).map_err(|error| {
            Failure::new(codes::STATE_FILE, format!("`{}` is damaged: {error}", path.display()))
                .help("`regent trust` moves it aside and trusts this folder; your other folders then need `regent trust` again")
        })
    }

    /// How a folder stands with these control files.
    pub(crate) fn standing(&self, controls: &Controls) -> TrustStanding {
        let Some(trusted) = self.folders.get(&key(controls.project())) else { return TrustStanding::Never };
        let now = controls.digests();
        if now == trusted.files {
            return TrustStanding::Trusted;
        }
        let differs = |name: &&String| now.get(*name) != trusted.files.get(*name);
        let changed = now.keys().chain(trusted.files.keys()).find(differs).cloned().unwrap_or_default();
        TrustStanding::Changed(changed)
    }

    /// Refuses a folder that isn't trusted as it is. What the caller puts in force are the files that were compared here.
    pub(crate) fn demand(paths: &Paths, project: &Project) -> Result<Controls, Failure> {
        let trust = Self::load(paths)?;
        let never = || format!("you have not trusted `{}` yet", project.root.display());
        // Nothing of a folder is read that was never trusted.
        if !trust.folders.contains_key(&key(project)) {
            return Err(untrusted(never()));
        }
        let controls = Controls::read(project)?;
        let why = match trust.standing(&controls) {
            TrustStanding::Trusted => return Ok(controls),
            TrustStanding::Never => never(),
            TrustStanding::Changed(file) => {
                format!("`{file}` has changed since you trusted `{}`", project.root.display())
            }
        };
        Err(untrusted(why))
    }

    /// The project whose policy binds calls that are made in this folder, if one was ever trusted. What changed since, what is gone, and
    /// a folder that stands between here and the trusted one are refusals: leaving the policy out would widen what may be done.
    pub(crate) fn of_judged(paths: &Paths, cwd: &Path) -> Result<Option<Controls>, Failure> {
        let trust = Self::load(paths)?;
        let real = cwd.canonicalize().map_err(|error| Failure::io("enter", cwd, &error))?;
        let known = real.ancestors().map(|root| Project { root: root.to_owned() });
        let Some(trusted) = known.into_iter().find(|one| trust.folders.contains_key(&key(one))) else {
            return Ok(None);
        };
        match Project::find(cwd) {
            Ok(nearest) if nearest.root.starts_with(&trusted.root) && nearest.root != trusted.root => {
                let message = format!(
                    "`{}` is inside `{}`, which you trust, but has control files of its own that you don't",
                    nearest.root.display(),
                    trusted.root.display()
                );
                return Err(Failure::new(codes::FOLDER_UNTRUSTED, message)
                    .help("review it, then run `regent trust` there, or remove its `.regent`"));
            }
            Ok(_) => {}
            // Its control files are gone, which the comparison finds.
            Err(failure) if failure.code == codes::FOLDER_NONE.id => {}
            Err(failure) => return Err(failure),
        }
        Self::demand(paths, &trusted).map(Some)
    }

    /// The folders that are trusted.
    pub(crate) fn roots(&self) -> Result<Vec<PathBuf>, Failure> {
        let root = |key: &String| {
            root_of(key).ok_or_else(|| {
                Failure::new(
                    codes::STATE_FILE,
                    format!("the list of trusted folders contains `{key}`, which is not a path"),
                )
                .help("remove it from the list, or run `regent trust` to create a new list")
            })
        };
        self.folders.keys().map(root).collect()
    }

    /// The digests that a folder was trusted with.
    fn files(&self, project: &Project) -> BTreeMap<String, String> {
        self.folders.get(&key(project)).map(|trusted| trusted.files.clone()).unwrap_or_default()
    }

    /// Trusts a folder with these digests of its control files.
    fn grant(
        paths: &Paths,
        project: &Project,
        files: BTreeMap<String, String>,
        now_ms: i64,
    ) -> Result<(), Failure> {
        Self::change(paths, |trust| {
            drop(trust.folders.insert(key(project), Trusted { files, at_ms: now_ms }));
            Ok(())
        })
    }

    /// Trusts one file as it is now, in a folder that is trusted: what the user has just changed by a command of ours. The others stay
    /// as they were agreed to.
    pub(crate) fn renew(paths: &Paths, project: &Project, file: &Path) -> Result<(), Failure> {
        Self::change(paths, |trust| {
            let name = project.short(file).into_owned();
            let now = Controls::read(project)?.digests().remove(&name);
            if let Some(trusted) = trust.folders.get_mut(&key(project)) {
                match now {
                    Some(digest) => drop(trusted.files.insert(name, digest)),
                    None => drop(trusted.files.remove(&name)),
                }
            }
            Ok(())
        })
    }

    /// Takes trust away again. Says whether there was any.
    pub(crate) fn revoke(paths: &Paths, project: &Project) -> Result<bool, Failure> {
        Self::change(paths, |trust| Ok(trust.folders.remove(&key(project)).is_some()))
    }

    /// Moves a damaged record away, so that folders can be trusted again. Says where it is now; nothing if it can be read.
    pub(crate) fn set_aside(paths: &Paths, now_ms: i64) -> Result<Option<PathBuf>, Failure> {
        let is_damaged = |failure: &Failure| failure.code == codes::STATE_FILE.id;
        match Self::load(paths) {
            Err(failure) if is_damaged(&failure) => {}
            Err(failure) => return Err(failure),
            Ok(_) => return Ok(None),
        }
        let (path, aside) = (paths.trust(), paths.state.join(format!("trust.damaged-{now_ms}.json")));
        std::fs::rename(&path, &aside).map_err(|error| Failure::io("move away", &path, &error))?;
        Ok(Some(aside))
    }

    /// Reads, changes and writes the record while no other process does: two at once must not lose what the other has agreed to.
    fn change<T>(paths: &Paths, change: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        paths::make_private(&paths.state)?;
        let lock = paths.state.join("trust.lock");
        let fail = |error: &std::io::Error| Failure::io("lock", &lock, error);
        let held = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&lock);
        let held = held.map_err(|error| fail(&error))?;
        held.lock().map_err(|error| fail(&error))?;
        let mut trust = Self::load(paths)?;
        let changed = change(&mut trust)?;
        trust.save(paths)?;
        Ok(changed)
    }

    fn save(&self, paths: &Paths) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Failure::new(codes::INTERNAL, format!("trust can't be written: {error}")))?;
        paths::write_private(&paths.trust(), &text)
    }
}

fn key(project: &Project) -> String {
    // Two folders whose names differ only in bytes that aren't text must not share trust.
    project.root.as_os_str().as_encoded_bytes().escape_ascii().to_string()
}

fn untrusted(why: String) -> Failure {
    Failure::new(codes::FOLDER_UNTRUSTED, why).help("review it, then run `regent trust`")
}

/// The path that a key stands for.
fn root_of(key: &str) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next()? {
            b't' => b'\t',
            b'r' => b'\r',
            b'n' => b'\n',
            quoted @ (b'\'' | b'"' | b'\\') => quoted,
            b'x' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            _unknown => return None,
        });
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_comes_back_from_its_key() {
        for name in ["/home/ana/M\u{fa}sica/p", "/srv/it's", "/a\"b\\c", "/tab\there\nand", "/plain"] {
            let project = Project { root: PathBuf::from(name) };
            assert_eq!(root_of(&key(&project)), Some(project.root), "{name}");
        }
        let bytes: Vec<u8> = (1..=255).collect();
        let project = Project { root: PathBuf::from(OsString::from_vec(bytes)) };
        assert_eq!(root_of(&key(&project)), Some(project.root));
        for wrong in ["/a\\", "/a\\q", "/a\\xg0", "/a\\x"] {
            assert_eq!(root_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_changed_control_file_needs_trusting_again() {
        let home = tempfile::tempdir().unwrap();
        let (paths, root) = (Paths::below(home.path()), home.path().join("project"));
        std::fs::create_dir_all(root.join(".regent")).unwrap();
        std::fs::write(root.join(".regent/policy.yml"), "version: 1").unwrap();
        let project = Project::open(&root).unwrap();
        let standing = || Trust::load(&paths).unwrap().standing(&Controls::read(&project).unwrap());

        assert_eq!(standing(), TrustStanding::Never);
        let digests = || Controls::read(&project).unwrap().digests();
        let grant = |now_ms| Trust::grant(&paths, &project, digests(), now_ms).unwrap();
        grant(1);
        assert_eq!(standing(), TrustStanding::Trusted);
        std::fs::write(root.join(".regent/policy.yml"), "version: 2").unwrap();
        assert_eq!(standing(), TrustStanding::Changed(".regent/policy.yml".to_owned()));
        grant(2);
        std::fs::write(root.join(".regent/config.toml"), "").unwrap();
        assert_eq!(standing(), TrustStanding::Changed(".regent/config.toml".to_owned()));
        std::fs::remove_file(root.join(".regent/config.toml")).unwrap();
        assert_eq!(standing(), TrustStanding::Trusted);
        assert!(Trust::revoke(&paths, &project).unwrap());
        assert_eq!(standing(), TrustStanding::Never);
    }

    #[test]
    fn a_damaged_record_trusts_nothing() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        paths::write_private(&paths.trust(), b"{\"folders\": [").unwrap();
        assert_eq!(Trust::load(&paths).unwrap_err().code, "state.file");
    }
}
