//! A home of its own with a project in it, and the real program run there as a person would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, ensure};
use regent_ledger::{Digest, Ledger, LedgerKey, Options};
use regent_store::SqliteState;
use regent_testkit::TestKernel;

/// The project's folder. A test kernel has its workspace under the same name, so that one can run in the project.
const PROJECT: &str = "workspace";

/// A home, or where one is.
#[derive(Debug)]
pub struct Home(PathBuf);

impl Home {
    /// Sets up a home in a folder: `regent init --quick` was run.
    pub fn create(folder: &Path) -> Result<Self> {
        let home = Self(folder.canonicalize()?);
        std::fs::create_dir_all(home.project())?;
        std::fs::create_dir_all(home.0.join("run"))?;
        home.run(&["init", "--quick"])?;
        Ok(home)
    }

    /// The home in a folder.
    pub fn at(folder: &Path) -> Self {
        Self(folder.to_path_buf())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn project(&self) -> PathBuf {
        self.0.join(PROJECT)
    }

    pub fn audit(&self) -> PathBuf {
        self.project().join(".regent/audit")
    }

    /// Has the program use a model that plays a script.
    pub fn play(&self, turns: &serde_json::Value) -> Result<()> {
        let file = self.0.join("script.json");
        std::fs::write(&file, serde_json::json!({"turns": turns}).to_string())?;
        let settings =
            format!("[models.play]\nkind = 'scripted'\nfile = '{}'\nmodels = ['m']\n", file.display());
        Ok(std::fs::write(self.0.join(".config/regent/config.toml"), settings)?)
    }

    /// The program in the project, with nothing in its environment but what it needs.
    pub fn command(&self, words: &[&str]) -> Result<Command> {
        let program = std::env::var_os("REGENT_PROGRAM")
            .context("`cargo xtask bench` builds the program and says where it is")?;
        let mut command = Command::new(program);
        command.args(words).env_clear().current_dir(self.project());
        command.env("HOME", &self.0).env("PATH", "/usr/bin:/bin").env("XDG_RUNTIME_DIR", self.0.join("run"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// Runs the program, which has to end well.
    pub fn run(&self, words: &[&str]) -> Result<Output> {
        let output = self.command(words)?.output()?;
        ensure!(
            output.status.success(),
            "`regent {}` ended with {}: {}",
            words.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(output)
    }

    /// A kernel of this process in the project, with the program's own ledger, key, witness and state.
    pub async fn kernel(&self) -> Result<TestKernel> {
        let state = self.0.join(".local/state/regent");
        let root = self.project();
        let witness = state.join("witness").join(Digest::compute(root.as_os_str().as_encoded_bytes()).to_string());
        let key = LedgerKey::load_or_create(&self.0.join(".local/share/regent/ledger.key"))?;
        let ledger =
            Ledger::open(&self.audit(), key, Options { witness: Some(witness), ..Options::default() })?;
        let state = SqliteState::open(&state.join("state.db"))?;
        let builder = TestKernel::builder().folder(&self.0).ledger(ledger).state(Arc::new(state));
        builder.boot().await.map_err(|error| anyhow!(error))
    }
}

/// How much all files below a folder hold.
pub fn bytes_below(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes +=
            if entry.file_type()?.is_dir() { bytes_below(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}
