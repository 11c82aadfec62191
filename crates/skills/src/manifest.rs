//! The digests of all files of a package, and their differences.

use std::collections::BTreeMap;

use regent_ledger::{CanonicalJson, Digest};
use serde::{Deserialize, Serialize};

use crate::error::SkillError;
use crate::package::Package;
use crate::signature::SIGNATURE_FILE;

/// The files of a package with their digests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Manifest(BTreeMap<String, FileMark>);

/// The digest and mode of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileMark {
    /// The digest of its content.
    pub sha256: Digest,
    /// Its length.
    pub bytes: u64,
    /// Whether it is executable.
    pub executable: bool,
}

/// How a package differs from its manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// The content or the mode changed.
    Changed(String),
    /// The file was added.
    Added(String),
    /// The file is missing.
    Missing(String),
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, what) = match self {
            Self::Changed(path) => (path, "has changed"),
            Self::Added(path) => (path, "was added"),
            Self::Missing(path) => (path, "is missing"),
        };
        write!(f, "`{}` {what}", path.escape_debug())
    }
}

impl Manifest {
    /// The manifest of a package.
    pub fn from_package(package: &Package) -> Self {
        let mark = |content: &crate::package::PackageFile| FileMark {
            sha256: Digest::compute(&content.bytes),
            bytes: content.bytes.len() as u64,
            executable: content.executable,
        };
        Self(package.files().map(|(path, content)| (path.to_owned(), mark(content))).collect())
    }

    /// The digest of the package, which authors sign: all files except the signature itself, in path order.
    pub fn digest(&self) -> Result<Digest, SkillError> {
        let signed: BTreeMap<&String, &FileMark> =
            self.0.iter().filter(|(path, _)| path.as_str() != SIGNATURE_FILE).collect();
        let text = CanonicalJson::encode(&signed).map_err(|error| SkillError::Package(error.to_string()))?;
        Ok(Digest::compute(text.as_str().as_bytes()))
    }

    /// The files, by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &FileMark)> {
        self.0.iter().map(|(path, mark)| (path.as_str(), mark))
    }

    /// The differences to another manifest.
    pub fn differences(&self, now: &Self) -> Vec<Difference> {
        let mut found = Vec::new();
        for (path, mark) in &self.0 {
            match now.0.get(path) {
                None => found.push(Difference::Missing(path.clone())),
                Some(other) if other != mark => found.push(Difference::Changed(path.clone())),
                Some(_) => {}
            }
        }
        found.extend(now.0.keys().filter(|path| !self.0.contains_key(*path)).cloned().map(Difference::Added));
        found
    }
}
