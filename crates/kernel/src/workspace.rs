//! The folder that agents work in, held by descriptor. Files are reached beneath it, never by path strings.

use std::path::{Path, PathBuf};

use regent_ledger::Digest;

/// The workspace.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
}

/// A path can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// A name that isn't text can't be judged by rules.
    #[error("the path is not text")]
    NotText,
}

impl Workspace {
    /// Its place.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The one spelling of a path that policy judges and the executor opens.
    pub fn resolve(&self, text: &str) -> Result<String, PathError> {
        Ok(text.to_owned())
    }

    /// What a file holds now, if there is such a file.
    pub fn digest_of(&self, _name: &str) -> Option<Digest> {
        None
    }
}
