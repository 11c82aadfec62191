//! What every command works with: the user's folders, the settings in force, the screen, the clock.

use std::path::PathBuf;
use std::sync::Arc;

use regent_kernel::{Clock, SystemClock};

use crate::cli::Global;
use crate::codes;
use crate::failure::Failure;
use crate::output::Screen;
use crate::paths::{Paths, Project};
use crate::settings::Settings;
use crate::trust::{Standing, Trust};

/// What every command works with.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The user's folders.
    pub(crate) paths: Paths,
    /// The settings in force; the project's among them only if it is trusted.
    pub(crate) settings: Settings,
    /// Where output goes.
    pub(crate) screen: Screen,
    /// The folder that the command was given in.
    pub(crate) cwd: PathBuf,
    /// Where time comes from.
    pub(crate) clock: Arc<dyn Clock>,
    /// The word that results are marked with: `regent.<command>`.
    pub(crate) schema: String,
    /// Where the vault's passphrase can be read, if it is given so.
    pub(crate) passphrase_fd: Option<u32>,
}

impl Context {
    /// Looks around. Nothing of the project is read unless it is trusted.
    pub(crate) fn new(global: &Global, schema: &str) -> Result<Self, Failure> {
        let paths = Paths::from_env()?;
        let cwd = match &global.dir {
            Some(dir) => dir.canonicalize().map_err(|error| Failure::io("enter", dir, &error))?,
            None => std::env::current_dir().map_err(|error| {
                Failure::new(codes::IO, format!("the current folder can't be used: {error}"))
            })?,
        };
        let project = Project::find(&cwd).ok().filter(|project| {
            // A damaged record trusts nothing here; the command that needs trust reports it.
            Trust::load(&paths)
                .and_then(|trust| trust.standing(project))
                .is_ok_and(|standing| standing == Standing::Trusted)
        });
        let settings = Settings::load(&paths, project.as_ref(), global.no_color)?;
        let screen = Screen::new(global.json, settings.color());
        Ok(Self {
            paths,
            settings,
            screen,
            cwd,
            clock: Arc::new(SystemClock::default()),
            schema: schema.to_owned(),
            passphrase_fd: global.passphrase_fd,
        })
    }

    /// The project that the current folder is in.
    pub(crate) fn project(&self) -> Result<Project, Failure> {
        Project::find(&self.cwd)
    }
}
