//! Why a skill can't be read, installed or used.

use regent_tools::{PinError, PinFile};

use crate::manifest::Difference;

/// Why a skill can't be read, installed or used.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    /// A file or folder can't be read or written.
    #[error("`{place}`: {cause}")]
    Io {
        /// The path.
        place: String,
        /// The I/O error.
        cause: std::io::Error,
    },
    /// An invalid package: path traversal, a link, a device, or too large.
    #[error("the package was rejected: {0}")]
    Package(String),
    /// `SKILL.md` is malformed.
    #[error("`SKILL.md` is invalid: {0}")]
    Skill(String),
    /// The lock can't be read.
    #[error("`skills.lock` is damaged: {0}")]
    Lock(String),
    /// The record of approved skills can't be read.
    #[error("`{place}`, the list of your approved skills, is damaged: {why}")]
    Pins {
        /// Its path.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// The project contains the skill, but the user hasn't approved it on this machine.
    #[error("the skill `{0}` came with the project and isn't approved on this machine")]
    Unagreed(String),
    /// The project's skill of this name isn't the approved one.
    #[error("the skill `{name}` is not the one that you approved: its digest is {found}, not {agreed}")]
    NotAgreed {
        /// The skill's name.
        name: String,
        /// The approved digest.
        agreed: String,
        /// The digest found.
        found: String,
    },
    /// There is no such skill.
    #[error("unknown skill `{0}`")]
    Unknown(String),
    /// The files differ from the installed ones.
    #[error("the skill `{name}` differs from what was installed: {}", listing(differences))]
    Changed {
        /// The skill's name.
        name: String,
        /// The differences.
        differences: Vec<Difference>,
    },
    /// An invalid signature is an error; a missing one is not.
    #[error("the signature is invalid: {0}")]
    Signature(String),
    /// The package changed after the review.
    #[error("the package has changed since it was reviewed: its digest is {found}, not {expected}")]
    Swapped {
        /// The reviewed digest.
        expected: String,
        /// The digest found.
        found: String,
    },
    /// The skill requests a permission that was not granted.
    #[error("`{name}` requests permissions that were not granted: {wanted}")]
    NotGranted {
        /// The skill's name.
        name: String,
        /// The missing permissions, separated by commas.
        wanted: String,
    },
    /// The scan has findings that nobody accepted.
    #[error("the scan found {0}; review before installing")]
    Blocked(String),
}

impl SkillError {
    /// The stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "skill.unreadable",
            Self::Package(_) => "skill.package",
            Self::Skill(_) => "skill.invalid",
            Self::Lock(_) => "skill.lock",
            Self::Pins { .. } => "skill.pins",
            Self::Unagreed(_) => "skill.unagreed",
            Self::NotAgreed { .. } => "skill.changed",
            Self::Unknown(_) => "skill.unknown",
            Self::Changed { .. } => "skill.changed",
            Self::Signature(_) => "skill.signature",
            Self::Swapped { .. } => "skill.swapped",
            Self::NotGranted { .. } => "skill.not_granted",
            Self::Blocked(_) => "skill.blocked",
        }
    }

    pub(crate) fn pins(file: &PinFile, error: PinError) -> Self {
        match error {
            PinError::Io { path, error } => Self::io(&path, error),
            PinError::Damaged { why, .. } => Self::Pins { place: file.path().display().to_string(), why },
        }
    }

    pub(crate) fn io(place: &std::path::Path, cause: std::io::Error) -> Self {
        Self::Io { place: place.display().to_string(), cause }
    }
}

/// Names the first few differences.
fn listing(differences: &[Difference]) -> String {
    const LISTED_MAX: usize = 5;
    let mut listed: Vec<String> = differences.iter().take(LISTED_MAX).map(ToString::to_string).collect();
    if differences.len() > LISTED_MAX {
        listed.push(format!("and {} more", differences.len() - LISTED_MAX));
    }
    listed.join(", ")
}
