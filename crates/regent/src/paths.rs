//! Where things are: the user's folders by XDG, and the project by walking up to its `.regent/`.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use regent_kernel::{Overlap, OwnFolders};
use regent_ledger::Digest;

use crate::codes;
use crate::controls;
use crate::failure::Failure;

/// A socket's path has 107 bytes at most; `/regent/`, a process id and an ending have to fit behind this.
const RUNTIME_BYTES_MAX: usize = 107 - 32;

/// The user's folders.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// Policy and settings.
    pub(crate) config: PathBuf,
    /// Keys.
    pub(crate) data: PathBuf,
    /// What is remembered between runs: trust, approvals, witnesses.
    pub(crate) state: PathBuf,
    /// Where each kernel process has its control socket.
    pub(crate) runtime: PathBuf,
}

impl Paths {
    /// As the environment says. Relative values are ignored, as the XDG standard demands.
    pub(crate) fn from_env() -> Result<Self, Failure> {
        let home = absolute("HOME");
        let folder = |name: &str, below: &str| {
            absolute(name).or_else(|| home.as_ref().map(|home| home.join(below))).ok_or_else(|| {
                Failure::new(codes::HOME_NONE, format!("neither {name} nor HOME is set to an absolute path"))
            })
        };
        let state = folder("XDG_STATE_HOME", ".local/state")?.join("regent");
        Ok(Self {
            config: folder("XDG_CONFIG_HOME", ".config")?.join("regent"),
            data: folder("XDG_DATA_HOME", ".local/share")?.join("regent"),
            // The variable outlives the folder it names, after `su` for one; and a socket's path has a limit.
            runtime: absolute("XDG_RUNTIME_DIR")
                .filter(|folder| folder.is_dir() && folder.as_os_str().len() <= RUNTIME_BYTES_MAX)
                .map_or_else(|| state.join("run"), |folder| folder.join("regent")),
            state,
        })
    }

    /// All folders below one: for the demonstration, which touches nothing of the user's.
    pub(crate) fn below(home: &Path) -> Self {
        Self {
            config: home.join("config/regent"),
            data: home.join("data/regent"),
            state: home.join("state/regent"),
            runtime: home.join("run"),
        }
    }

    /// Refuses a folder that contains or is the home folder, or that contains, is, or lies in a folder of Regent's own: its keys, its
    /// policy and its control socket would be within an agent's reach. The same goes for a folder of Regent's own inside it that is a link.
    /// Checked at every start, because folders and links move.
    pub(crate) fn demand_apart(&self, project: &Project) -> Result<OwnFolders, Failure> {
        controls::demand_folders(project)?;
        let refused = |overlap: Overlap| {
            let message = format!("`{}` can't be a workspace: {overlap}", project.root.display());
            let help = match overlap {
                Overlap::Unknown { .. } => "check the owner and the permissions of that folder",
                Overlap::Root | Overlap::AroundHome(_) | Overlap::AroundOwn(_) | Overlap::InOwn(_) => {
                    "create a folder for your work, below your home or elsewhere, and run `regent init` there"
                }
            };
            Failure::new(codes::FOLDER_WIDE, message).help(help)
        };
        let own = [&self.config, &self.data, &self.state, &self.runtime].map(PathBuf::clone);
        // The environment can name any home; the system's own record names the one that has the user's files.
        if let Some(home) = recorded_home()?.filter(|home| may_exist(home)) {
            OwnFolders::resolve([], Some(home))
                .and_then(|homes| homes.check(&project.root))
                .map_err(refused)?;
        }
        let own = OwnFolders::resolve(own, absolute("HOME")).map_err(refused)?;
        // What belongs to no project is recorded in a folder of our own, where there is nothing but that ledger.
        let is_own_ledger = self.own_ledger().canonicalize().is_ok_and(|ledger| ledger == project.root);
        if !is_own_ledger {
            own.check(&project.root).map_err(refused)?;
        }
        Ok(own)
    }

    /// The workspace of a judge in a folder that isn't trusted as a project. Paths that a host names are relative to where it runs, not to where
    /// our ledger lies. A folder that can't be a workspace, such as `/` or the home folder, has Regent's keys and policy below it:
    /// there the root is the folder of the judge's own ledger, where nothing but that ledger is.
    pub(crate) fn root_outside_projects(&self, cwd: &Path, own: &Project) -> PathBuf {
        let here = Project::open(cwd).and_then(|here| self.demand_apart(&here).map(|_| here));
        here.map_or_else(|_refused| own.root.clone(), |here| here.root)
    }

    /// The user's own policy.
    pub(crate) fn policy(&self) -> PathBuf {
        self.config.join("policy.yml")
    }

    /// A policy that is asked beside the one in force.
    pub(crate) fn candidate(&self) -> PathBuf {
        self.config.join("policy.candidate.yml")
    }

    /// Policies that bind some agents only, one file for each tenant, in the order of their names.
    pub(crate) fn tenants(&self) -> Result<Vec<PathBuf>, Failure> {
        let folder = self.config.join("tenants");
        let fail = |error: &std::io::Error| Failure::io("read", &folder, error);
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(_) if !may_exist(&folder) => return Ok(Vec::new()),
            Err(error) => return Err(fail(&error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| fail(&error))?.path();
            if path.extension().is_some_and(|ending| ending == "yml" || ending == "yaml") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// An ACS manifest of the user's, beside their policy.
    pub(crate) fn manifest(&self) -> PathBuf {
        self.config.join("acs.yml")
    }

    /// The signed bundle that is in force.
    pub(crate) fn bundle(&self) -> PathBuf {
        self.config.join("policy.bundle")
    }

    /// Which bundle was put in force last. Not beside it: who swaps the one doesn't swap the other by the way.
    pub(crate) fn bundle_record(&self) -> PathBuf {
        self.state.join("bundle.json")
    }

    /// The folder of the ledger for what belongs to no project.
    pub(crate) fn own_ledger(&self) -> PathBuf {
        self.state.join("judge")
    }

    /// The user's own settings.
    pub(crate) fn settings(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// The user's own table of what models can do and cost.
    pub(crate) fn capabilities(&self) -> PathBuf {
        self.config.join("capabilities.toml")
    }

    /// The user's templates of prompts, a folder for each kind of task.
    pub(crate) fn prompts(&self) -> PathBuf {
        self.config.join("prompts")
    }

    /// The user's corrections of tools' labels.
    pub(crate) fn labels(&self) -> PathBuf {
        self.config.join("labels.toml")
    }

    /// The key that signs ledgers.
    pub(crate) fn ledger_key(&self) -> PathBuf {
        self.data.join("ledger.key")
    }

    /// The key that signs skills.
    pub(crate) fn skill_key(&self) -> PathBuf {
        self.data.join("skill.key")
    }

    /// Which folders are trusted.
    pub(crate) fn trust(&self) -> PathBuf {
        self.state.join("trust.json")
    }

    /// The lookup index of a ledger. Derived, but not kept in the project: what comes with a download must not say what happened.
    pub(crate) fn lookup(&self, ledger: &Path) -> PathBuf {
        let name = Digest::compute(ledger.as_os_str().as_encoded_bytes()).to_string();
        self.state.join("lookup").join(format!("{name}.db"))
    }

    /// Approvals, rates and budgets. Not in the project: what comes with a download must not bring its own approvals.
    pub(crate) fn state_db(&self) -> PathBuf {
        self.state.join("state.db")
    }

    /// Weights of models that run in this process.
    pub(crate) fn weights(&self) -> PathBuf {
        self.data.join("models")
    }

    /// Compiled WASM, for the next run.
    #[cfg(feature = "wasm")]
    pub(crate) fn wasm_cache(&self) -> PathBuf {
        self.state.join("wasm")
    }

    /// The heads of a project's ledger, which tell when it was rolled back to an older copy.
    pub(crate) fn witness(&self, root: &Path) -> PathBuf {
        let name = Digest::compute(root.as_os_str().as_encoded_bytes()).to_string();
        self.state.join("witness").join(name)
    }

    /// What the tasks of a project have besides the ledger: locks, and snapshots of the workspace.
    pub(crate) fn tasks(&self, root: &Path) -> PathBuf {
        let name = Digest::compute(root.as_os_str().as_encoded_bytes()).to_string();
        self.state.join("tasks").join(name)
    }

    /// What was agreed to of a project's generated tools.
    pub(crate) fn generated_pins(&self, root: &Path) -> PathBuf {
        let name = Digest::compute(root.as_os_str().as_encoded_bytes()).to_string();
        self.state.join("generated").join(name).with_extension("json")
    }

    /// What was agreed to of a project's skills: digests and grants.
    pub(crate) fn skill_pins(&self, root: &Path) -> PathBuf {
        let name = Digest::compute(root.as_os_str().as_encoded_bytes()).to_string();
        self.state.join("skills").join(name).with_extension("json")
    }

    /// The folders that are ours alone.
    pub(crate) fn private(&self) -> [&Path; 3] {
        [&self.config, &self.data, &self.state]
    }

    /// Makes the folders that are ours alone, mode 0700 where they are new.
    pub(crate) fn make(&self) -> Result<(), Failure> {
        for folder in self.private() {
            make_private(folder)?;
        }
        make_private(&self.state.join("witness"))
    }
}

/// Makes a folder that only its owner can enter, if it isn't there.
pub(crate) fn make_private(folder: &Path) -> Result<(), Failure> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| Failure::io("make the folder", folder, &error))
}

/// Writes a file at once or not at all, readable by its owner alone.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let fail = |error: &std::io::Error| Failure::io("write", path, error);
    let folder = path.parent().unwrap_or(Path::new("."));
    make_private(folder)?;
    let mut draft = tempfile::NamedTempFile::new_in(folder).map_err(|error| fail(&error))?;
    std::io::Write::write_all(&mut draft, content).map_err(|error| fail(&error))?;
    draft.as_file().sync_all().map_err(|error| fail(&error))?;
    draft.persist(path).map_err(|error| fail(&error.error))?;
    Ok(())
}

/// The home folder that `/etc/passwd` has for this user, if it is one of their own.
fn recorded_home() -> Result<Option<PathBuf>, Failure> {
    let (uid, path) = (rustix::process::getuid().as_raw(), Path::new("/etc/passwd"));
    let passwd = match std::fs::read(path) {
        Ok(passwd) => passwd,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::io("read", path, &error)),
    };
    let home = String::from_utf8_lossy(&passwd).lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, id, _, _, home, ..] = fields.as_slice() else { return None };
        (id.parse() == Ok(uid)).then(|| PathBuf::from(home))
    });
    Ok(home.filter(|home| home.is_absolute() && home.parent().is_some()))
}

fn absolute(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// A folder with a `.regent/`, or with the policy file of another system that we read as it is.
#[derive(Debug, Clone)]
pub(crate) struct Project {
    /// Its real path.
    pub(crate) root: PathBuf,
}

/// What git leaves out of `.regent`: the ledger, and ledgers that were moved aside.
pub(crate) const IGNORED: &str = "audit*\n";

/// Files that make a folder a project. Each that exists narrows further what may be done there.
pub(crate) const POLICY_FILES: [&str; 4] =
    [".regent/policy.yml", ".regent/acs.yml", ".agentzero/policy.yml", ".agents/security.md"];

impl Project {
    /// The nearest folder upwards that is a project.
    pub(crate) fn find(from: &Path) -> Result<Self, Failure> {
        let real = from.canonicalize().map_err(|error| Failure::io("enter", from, &error))?;
        // What can't be looked at counts: leaving a project out would leave out its policy.
        let is_project = |folder: &&Path| {
            may_exist(&folder.join(".regent"))
                || POLICY_FILES.iter().any(|file| may_exist(&folder.join(file)))
        };
        match real.ancestors().find(is_project) {
            Some(root) => Ok(Self { root: root.to_owned() }),
            None => Err(Failure::new(
                codes::FOLDER_NONE,
                format!("no Regent project here (looked for .regent/ in {} and above)", real.display()),
            )
            .help("run `regent init` in your project folder")),
        }
    }

    /// A folder that is or becomes a project.
    pub(crate) fn open(folder: &Path) -> Result<Self, Failure> {
        let root = folder.canonicalize().map_err(|error| Failure::io("enter", folder, &error))?;
        if !root.is_dir() {
            return Err(Failure::new(codes::USAGE, format!("`{}` is not a folder", root.display())));
        }
        Ok(Self { root })
    }

    /// Our own folder in it.
    pub(crate) fn folder(&self) -> PathBuf {
        self.root.join(".regent")
    }

    /// The ledger.
    pub(crate) fn audit(&self) -> PathBuf {
        self.folder().join("audit")
    }

    /// The project's settings.
    pub(crate) fn settings(&self) -> PathBuf {
        self.folder().join("config.toml")
    }

    /// The project's templates of prompts, a folder for each kind of task.
    pub(crate) fn prompts(&self) -> PathBuf {
        self.folder().join("prompts")
    }

    /// The project's corrections of tools' labels.
    pub(crate) fn labels(&self) -> PathBuf {
        self.folder().join("labels.toml")
    }

    /// What skills are installed.
    pub(crate) fn skills_lock(&self) -> PathBuf {
        self.folder().join("skills.lock")
    }

    /// The policy files that are there.
    pub(crate) fn policies(&self) -> Vec<PathBuf> {
        POLICY_FILES.iter().map(|file| self.root.join(file)).filter(|file| may_exist(file)).collect()
    }

    /// A path as people know it: relative to the project where it is inside.
    pub(crate) fn short<'a>(&self, path: &'a Path) -> std::borrow::Cow<'a, str> {
        path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy()
    }
}

/// Whether a file may be there: only "does not exist" means absent. What can't be looked at is there, and reading it says why not.
pub(crate) fn may_exist(path: &Path) -> bool {
    match std::fs::symlink_metadata(path) {
        Ok(_) => true,
        Err(error) => {
            !matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
        }
    }
}

/// Whether others than the owner can read, write or enter.
pub(crate) fn is_open_to_others(path: &Path) -> std::io::Result<bool> {
    Ok(std::fs::metadata(path)?.mode() & 0o077 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_outside_projects_works_where_its_host_runs_unless_that_cannot_be_a_workspace() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        for folder in [&paths.own_ledger(), &home.path().join("work"), &home.path().join("odd")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::os::unix::fs::symlink("/etc", home.path().join("odd/.regent")).unwrap();
        let own = Project::open(&paths.own_ledger()).unwrap();
        let root = |cwd: &Path| paths.root_outside_projects(cwd, &own);
        let work = home.path().join("work").canonicalize().unwrap();
        assert_eq!(root(&work), work);
        let refused =
            [PathBuf::from("/"), home.path().to_owned(), paths.state.clone(), home.path().join("odd")];
        for cwd in refused.iter().chain(&[home.path().join("gone")]) {
            assert_eq!(root(cwd), own.root, "{}", cwd.display());
        }
    }
}
