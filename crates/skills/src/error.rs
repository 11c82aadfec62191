//! Why a skill can't be read, installed or used.

use regent_tools::{PinError, PinFile};

use crate::manifest::Difference;

/// Why a skill can't be read, installed or used.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    /// A file or folder can't be read or written.
    #[error("`{place}`: {cause}")]
    Io {
        /// Where.
        place: String,
        /// Why.
        cause: std::io::Error,
    },
    /// Not a package that is taken: a path that leads out, a link, a device, more than fits.
    #[error("the package was rejected: {0}")]
    Package(String),
    /// `SKILL.md` doesn't say what it has to.
    #[error("`SKILL.md` is invalid: {0}")]
    Skill(String),
    /// The lock can't be read.
    #[error("`skills.lock` is damaged: {0}")]
    Lock(String),
    /// The record of what the user has agreed to can't be read.
    #[error("`{place}`, the list of your approved skills, is damaged: {why}")]
    Pins {
        /// Where it is.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// The project has it, and nobody has agreed to it on this machine.
    #[error("the skill `{0}` came with the project and isn't approved on this machine")]
    Unagreed(String),
    /// What the project has under this name isn't what was agreed to.
    #[error("the skill `{name}` is not the one that you approved: its digest is {found}, not {agreed}")]
    NotAgreed {
        /// Which skill.
        name: String,
        /// What was agreed to.
        agreed: String,
        /// What is there.
        found: String,
    },
    /// There is no such skill.
    #[error("unknown skill `{0}`")]
    Unknown(String),
    /// What is there is not what was installed.
    #[error("the skill `{name}` differs from what was installed: {}", told(differences))]
    Changed {
        /// Which skill.
        name: String,
        /// What differs.
        differences: Vec<Difference>,
    },
    /// A signature that doesn't hold is worse than none.
    #[error("the signature is invalid: {0}")]
    Signature(String),
    /// It isn't what was looked at before.
    #[error("the package has changed since it was reviewed: its digest is {found}, not {expected}")]
    Swapped {
        /// What was agreed to.
        expected: String,
        /// What is there.
        found: String,
    },
    /// It wants something that nobody has granted.
    #[error("`{name}` requests permissions that were not granted: {wanted}")]
    NotGranted {
        /// Which skill.
        name: String,
        /// What it wants, separated by commas.
        wanted: String,
    },
    /// The scanner found something that nobody has accepted.
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

/// The first few by name; more would help nobody.
fn told(differences: &[Difference]) -> String {
    const TOLD_MAX: usize = 5;
    let mut told: Vec<String> = differences.iter().take(TOLD_MAX).map(ToString::to_string).collect();
    if differences.len() > TOLD_MAX {
        told.push(format!("and {} more", differences.len() - TOLD_MAX));
    }
    told.join(", ")
}
