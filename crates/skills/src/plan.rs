//! What installing a package would change, computed in advance.

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
    /// Signed by a key that the user trusts.
    Verified,
    /// Of unknown origin.
    Community,
    /// Installed by an agent.
    Generated,
}

impl Trust {
    /// The label of its text. Text of an unknown author is labelled like a web page.
    pub fn label(self) -> Label {
        let integrity = match self {
            Self::Verified => Integrity::SignedSkill,
            Self::Community => Integrity::Web,
            Self::Generated => Integrity::Tool,
        };
        Label { integrity, confidentiality: Confidentiality::Internal }
    }

    /// The origin in the catalogue.
    pub fn origin(self) -> Origin {
        match self {
            Self::Verified => Origin::Verified,
            Self::Community => Origin::Community,
            Self::Generated => Origin::Generated,
        }
    }

    /// The capability's name in policy rules.
    pub fn capability(self) -> &'static str {
        match self {
            Self::Verified => "skill.verified",
            Self::Community => "skill.community",
            Self::Generated => "skill.generated",
        }
    }
}

/// The changes that an installation would make.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// The parsed `SKILL.md`.
    pub skill: Skill,
    /// The digest over all its files.
    pub digest: Digest,
    /// Its origin.
    pub trust: Trust,
    /// The name of the trusted key that signed it.
    pub signer: Option<String>,
    /// The scan's findings, worst first.
    pub findings: Vec<Finding>,
    /// The currently installed version.
    pub installed: Option<String>,
    /// Requested permissions that the installed version doesn't have.
    pub new_permissions: Permissions,
    /// Permissions of the installed version that this one no longer requests.
    pub dropped_permissions: Permissions,
    /// Differences to the installed files.
    pub changes: Vec<Difference>,
    #[serde(skip)]
    pub(crate) manifest: Manifest,
    #[serde(skip)]
    pub(crate) granted_before: Permissions,
}

impl Plan {
    /// Compares a package with the installed skill of the same name and its grants.
    pub fn compare(
        package: &Package,
        trusted: &[TrustedKey],
        installed: impl FnOnce(&str) -> Option<(Locked, Permissions)>,
    ) -> Result<Self, SkillError> {
        let skill = Skill::from_package(package)?;
        let manifest = Manifest::from_package(package);
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

    /// The resulting grants: earlier grants that are still requested, and the new ones. An error names missing permissions.
    pub fn granted(&self, now: &Permissions) -> Result<Permissions, SkillError> {
        let all: Permissions = self.granted_before.union(now).cloned().collect();
        let still_missing = missing(&self.skill.permissions, &all);
        if !still_missing.is_empty() {
            let wanted = still_missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(SkillError::NotGranted { name: self.skill.name.clone(), wanted });
        }
        // Exactly the requested permissions, even if the offered grants are wider.
        Ok(self.skill.permissions.clone())
    }

    /// Offered permissions that the skill doesn't request. They aren't granted.
    pub fn unwanted(&self, offered: &Permissions) -> Permissions {
        let is_for_nothing =
            |one: &&Permission| !self.skill.permissions.iter().any(|wanted| one.covers(wanted));
        offered.iter().filter(is_for_nothing).cloned().collect()
    }

    /// Findings that block an unreviewed installation.
    pub fn blocking(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity >= Severity::High)
    }
}
