//! What installing a package would mean, before anything is done.

use regent_kernel::{Confidentiality, Integrity, Label, Origin};
use regent_ledger::Digest;
use serde::{Deserialize, Serialize};

use crate::error::SkillError;
use crate::lock::Locked;
use crate::manifest::{Difference, Manifest};
use crate::package::Package;
use crate::permission::{Permission, Permissions, missing};
use crate::scan::{Finding, Severity, scan};
use crate::signature::{TrustedKey, signer};
use crate::skill::Skill;

/// The origin of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Somebody whose key the user trusts has signed it.
    Verified,
    /// Nobody that we know.
    Community,
    /// An agent brought it.
    Generated,
}

impl Trust {
    /// The label of its text: text of an unknown author is like any web page.
    pub fn label(self) -> Label {
        let integrity = match self {
            Self::Verified => Integrity::SignedSkill,
            Self::Community => Integrity::Web,
            Self::Generated => Integrity::Tool,
        };
        Label { integrity, confidentiality: Confidentiality::Internal }
    }

    /// As the catalogue's origin.
    pub fn origin(self) -> Origin {
        match self {
            Self::Verified => Origin::Verified,
            Self::Community => Origin::Community,
            Self::Generated => Origin::Generated,
        }
    }

    /// The capability that rules of the policy know it by.
    pub fn capability(self) -> &'static str {
        match self {
            Self::Verified => "skill.verified",
            Self::Community => "skill.community",
            Self::Generated => "skill.generated",
        }
    }
}

/// The effect of installing a package.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// What it says of itself.
    pub skill: Skill,
    /// Of all its files.
    pub digest: Digest,
    /// Who vouches for it.
    pub trust: Trust,
    /// The name of the trusted key that signed it.
    pub signer: Option<String>,
    /// What the scan found, the worst first.
    pub findings: Vec<Finding>,
    /// The version that is installed now.
    pub installed: Option<String>,
    /// What it wants that the installed one was not granted.
    pub new_permissions: Permissions,
    /// What the installed one was granted and this one no longer wants.
    pub dropped_permissions: Permissions,
    /// How its files differ from those that are installed.
    pub changes: Vec<Difference>,
    #[serde(skip)]
    pub(crate) manifest: Manifest,
    #[serde(skip)]
    pub(crate) granted_before: Permissions,
}

impl Plan {
    /// Compares a package with what is installed under its name and with its granted permissions.
    pub fn of(
        package: &Package,
        trusted: &[TrustedKey],
        installed: impl FnOnce(&str) -> Option<(Locked, Permissions)>,
    ) -> Result<Self, SkillError> {
        let skill = Skill::of(package)?;
        let manifest = Manifest::of(package);
        let signer = signer(package, &skill, trusted)?;
        let (before, granted_before) = installed(&skill.name).unzip();
        let granted_before = granted_before.unwrap_or_default();
        Ok(Self {
            digest: manifest.digest()?,
            trust: if signer.is_some() { Trust::Verified } else { Trust::Community },
            signer,
            findings: scan(package, &skill),
            new_permissions: missing(&skill.permissions, &granted_before),
            dropped_permissions: missing(&granted_before, &skill.permissions),
            changes: before.as_ref().map(|locked| locked.files.differences(&manifest)).unwrap_or_default(),
            installed: before.map(|locked| locked.version),
            skill,
            manifest,
            granted_before,
        })
    }

    /// What would be granted: what was granted before and is still wanted, and what is granted now. Says what is still missing, or what
    /// was granted without being wanted.
    pub fn granted(&self, now: &Permissions) -> Result<Permissions, SkillError> {
        let all: Permissions = self.granted_before.union(now).cloned().collect();
        let still_missing = missing(&self.skill.permissions, &all);
        if !still_missing.is_empty() {
            let wanted = still_missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(SkillError::NotGranted { name: self.skill.name.clone(), wanted });
        }
        // Exactly what it asks for: a wide grant isn't an invitation.
        Ok(self.skill.permissions.clone())
    }

    /// Offered permissions that the skill doesn't request. They aren't granted.
    pub fn unwanted(&self, offered: &Permissions) -> Permissions {
        let is_for_nothing =
            |one: &&Permission| !self.skill.permissions.iter().any(|wanted| one.covers(wanted));
        offered.iter().filter(is_for_nothing).cloned().collect()
    }

    /// Findings that are not to be installed unseen.
    pub fn blocking(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity >= Severity::High)
    }
}
