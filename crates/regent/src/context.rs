//! What every command works with: the user's folders, the settings in force, the screen, the clock.

use std::path::PathBuf;
use std::sync::Arc;

use regent_kernel::{Clock, SystemClock};

use crate::caller::PresentedToken;
use crate::cli::Global;
use crate::codes;
use crate::controls::Controls;
use crate::failure::Failure;
use crate::output::Screen;
use crate::paths::{Paths, Project};
use crate::settings::Settings;
use crate::trust::Trust;

/// What every command works with.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The user's folders.
    pub(crate) paths: Paths,
    /// The settings in force; the project's among them only if it is trusted.
    pub(crate) settings: Settings,
    /// The mistakes in the settings. Only commands that help to correct them run where there are any.
    pub(crate) mistakes: Vec<Failure>,
    /// The project's settings file that is among them.
    pub(crate) project_settings: Option<String>,
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
    /// The caller's token, if the caller isn't the user at this terminal.
    pub(crate) token: Option<PresentedToken>,
}

impl Context {
    /// Looks around. Nothing of the project is read unless it is trusted. A mistake in the settings is an error.
    pub(crate) fn new(global: &Global, schema: &str) -> Result<Self, Failure> {
        let mut context = Self::with_mistakes(global, schema)?;
        if context.mistakes.is_empty() { Ok(context) } else { Err(context.mistakes.swap_remove(0)) }
    }

    /// The same for commands that help to correct the settings: what is invalid there has no effect.
    pub(crate) fn with_mistakes(global: &Global, schema: &str) -> Result<Self, Failure> {
        let paths = Paths::from_env()?;
        let cwd = match &global.dir {
            Some(dir) => dir.canonicalize().map_err(|error| Failure::io("enter", dir, &error))?,
            None => std::env::current_dir().map_err(|error| {
                Failure::new(codes::IO, format!("the current folder can't be used: {error}"))
            })?,
        };
        // A project that can't be read or isn't trusted has no say here; the command that needs trust reports it.
        let controls = Project::find(&cwd).and_then(|project| Trust::demand(&paths, &project)).ok();
        let (settings, mistakes) = Settings::read(&paths, controls.as_ref(), global.no_color);
        let project_settings = controls.and_then(|controls| controls.settings().map(str::to_owned));
        let screen = Screen::new(global.json, settings.color());
        Ok(Self {
            paths,
            settings,
            mistakes,
            project_settings,
            screen,
            cwd,
            clock: Arc::new(SystemClock::default()),
            schema: schema.to_owned(),
            passphrase_fd: global.passphrase_fd,
            token: PresentedToken::read(global)?,
        })
    }

    /// Refuses if the project's settings in force are not those that were agreed to: they were read before its policy.
    pub(crate) fn demand_settings(&self, controls: &Controls) -> Result<(), Failure> {
        if controls.settings() == self.project_settings.as_deref() {
            return Ok(());
        }
        let file = controls.project().settings();
        let message = format!("`{}` changed while the command started", file.display());
        Err(Failure::new(codes::FOLDER_UNTRUSTED, message).help("try again"))
    }

    /// The control files of that project, trusted or not; none where there is no project.
    pub(crate) fn controls(&self) -> Result<Option<Controls>, Failure> {
        match self.project() {
            Ok(project) => Controls::read(&project).map(Some),
            Err(failure) if failure.code == codes::FOLDER_NONE.id => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The project that the current folder is in.
    pub(crate) fn project(&self) -> Result<Project, Failure> {
        Project::find(&self.cwd)
    }
}
