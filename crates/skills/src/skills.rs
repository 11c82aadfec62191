//! The skills of a project: installation, verification, removal.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use regent_kernel::{SideEffect, Tier, ToolSpec};
use regent_ledger::Digest;
use regent_tools::PinFile;
use serde_json::json;

use crate::error::SkillError;
use crate::lock::{Lock, Locked};
use crate::manifest::Manifest;
use crate::package::Package;
use crate::permission::{Permission, Permissions};
use crate::pins::{SkillPin, SkillPins};
use crate::plan::{Plan, Trust};
use crate::scan::{Severity, scan};
use crate::signature::{TrustedKey, signer};
use crate::skill::{Runtime, Skill};

/// The skills of a project.
#[derive(Debug)]
pub struct Skills {
    /// The project's `.regent` folder.
    folder: PathBuf,
    /// Folder for the copies of one call; private and outside the project.
    staging: PathBuf,
    /// The user's approvals; outside the project.
    pins: PinFile,
    trusted: Vec<TrustedKey>,
    /// The lock and approvals as loaded; files are compared with these.
    known: Mutex<KnownSkills>,
}

/// The lock, and the user's approvals.
#[derive(Debug)]
struct KnownSkills {
    lock: Lock,
    pins: SkillPins,
}

/// A skill whose files were just compared with the lock and with the approved digest.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The parsed `SKILL.md`.
    pub skill: Skill,
    /// Its entry in the lock.
    pub locked: Locked,
    /// The compared bytes.
    pub package: Package,
    /// Its origin, computed from its signature and the currently trusted keys.
    pub trust: Trust,
    /// The name of the trusted key that signed it.
    pub signer: Option<String>,
    /// Its granted permissions.
    pub granted: Permissions,
    /// The digest of the compared files.
    pub digest: Digest,
    /// The approved digest.
    pub(crate) agreed: Digest,
}

/// A skill in the project that the user may approve.
#[derive(Debug, Clone)]
pub struct Offered {
    /// Its name.
    pub name: String,
    /// The author's version.
    pub version: String,
    /// The name of the trusted key that signed it.
    pub signer: Option<String>,
    /// The requested permissions; approval grants all of them.
    pub wants: Permissions,
    /// Number of blocking findings.
    pub blocking: usize,
    /// Whether the user already approved exactly this content.
    pub is_agreed: bool,
    digest: Digest,
}

/// The approval of an installation.
#[derive(Debug, Clone)]
pub(crate) struct InstallApproval<'a> {
    /// The reviewed digest.
    pub(crate) digest: Digest,
    pub(crate) source: &'a str,
    pub(crate) granted: &'a Permissions,
    /// Whether blocking findings were reviewed and accepted.
    pub(crate) findings_accepted: bool,
    /// Whether an agent installs it.
    pub(crate) by_agent: bool,
}

impl Skills {
    /// The skills below a project's `.regent` folder.
    pub fn open(
        folder: &Path,
        staging: &Path,
        pins: &Path,
        trusted: Vec<TrustedKey>,
    ) -> Result<Self, SkillError> {
        let pins = PinFile::new(pins.to_owned());
        let known = KnownSkills { lock: Lock::read(&lock_file(folder))?, pins: SkillPins::read(&pins)? };
        Ok(Self {
            folder: folder.to_owned(),
            staging: staging.to_owned(),
            pins,
            trusted,
            known: Mutex::new(known),
        })
    }

    /// The lock's entries by name.
    pub fn all(&self) -> Vec<(String, Locked)> {
        self.known().lock.skills.iter().map(|(name, locked)| (name.clone(), locked.clone())).collect()
    }

    /// The lock's entry of one skill.
    pub fn locked(&self, name: &str) -> Option<Locked> {
        self.known().lock.skills.get(name).cloned()
    }

    /// What installing a package here would change.
    pub fn plan(&self, package: &Package) -> Result<Plan, SkillError> {
        Plan::compare(package, &self.trusted, |name| {
            let known = self.known();
            let locked = known.lock.skills.get(name).cloned()?;
            Some((locked, known.pins.skills.get(name).map(|pin| pin.granted.clone()).unwrap_or_default()))
        })
    }

    /// Reads every file of a skill and compares it with the lock and with the approved digest. There is no shortcut by time or size,
    /// because a program that can change a file can also set its time.
    pub fn check(&self, name: &str) -> Result<Checked, SkillError> {
        let (locked, skill, package) = self.compared(name)?;
        let pin = self.known().pins.skills.get(name).cloned();
        let pin = pin.ok_or_else(|| SkillError::Unagreed(name.to_owned()))?;
        // The digest of the actual files: the lock comes with the project and is untrusted.
        let found = Manifest::from_package(&package).digest()?;
        if pin.digest != found {
            let (agreed, found) = (pin.digest.to_string(), found.to_string());
            return Err(SkillError::NotAgreed { name: name.to_owned(), agreed, found });
        }
        let signer = signer(&package, &skill, &self.trusted)?;
        let trust = match (&signer, pin.by_agent) {
            (Some(_), _) => Trust::Verified,
            (None, true) => Trust::Generated,
            (None, false) => Trust::Community,
        };
        Ok(Checked {
            skill,
            locked,
            package,
            trust,
            signer,
            granted: pin.granted,
            digest: found,
            agreed: pin.digest,
        })
    }

    /// The project's skills, for the user to review. A skill that can't be read, or whose files differ from the lock, is returned as an
    /// error.
    pub fn offered(&self) -> Vec<(String, Result<Offered, SkillError>)> {
        let one = |name: &str| {
            let (_, skill, package) = self.compared(name)?;
            let digest = Manifest::from_package(&package).digest()?;
            let pin = self.known().pins.skills.get(name).cloned();
            let is_agreed = pin.is_some_and(|pin| pin.digest == digest && pin.granted == skill.permissions);
            Ok(Offered {
                name: name.to_owned(),
                version: skill.version.clone(),
                signer: signer(&package, &skill, &self.trusted)?,
                blocking: scan(&package, &skill)
                    .iter()
                    .filter(|found| found.severity >= Severity::High)
                    .count(),
                wants: skill.permissions,
                is_agreed,
                digest,
            })
        };
        self.names().into_iter().map(|name| (name.clone(), one(&name))).collect()
    }

    /// Pins exactly the skills that were shown, not the current state.
    pub fn agree(&self, offered: &[Offered]) -> Result<(), SkillError> {
        if offered.iter().all(|one| one.is_agreed) {
            return Ok(());
        }
        let mut held = self.exclusively()?;
        for one in offered.iter().filter(|one| !one.is_agreed) {
            let pin = SkillPin { digest: one.digest, granted: one.wants.clone(), by_agent: false };
            held.known.pins.skills.insert(one.name.clone(), pin);
        }
        held.known.pins.write(&self.pins)
    }

    /// A skill whose files all match the lock.
    fn compared(&self, name: &str) -> Result<(Locked, Skill, Package), SkillError> {
        let locked = self.locked(name).ok_or_else(|| SkillError::Unknown(name.chars().take(80).collect()))?;
        let place = self.place(name);
        let package = Package::read(&place)?;
        let differences = locked.files.differences(&Manifest::from_package(&package));
        if !differences.is_empty() {
            return Err(SkillError::Changed { name: name.to_owned(), differences });
        }
        let skill = Skill::from_package(&package)?;
        if skill.name != name {
            return Err(SkillError::Lock(format!("the skill under `{name}` is called `{}`", skill.name)));
        }
        Ok((locked, skill, package))
    }

    /// Installs a reviewed package. First the files are written and swapped in with one rename, then the lock, then the pin. A crash in
    /// between leaves files that don't match lock or pin, and such a skill is rejected.
    pub(crate) fn install(
        &self,
        package: &Package,
        agreed: &InstallApproval<'_>,
    ) -> Result<Plan, SkillError> {
        let plan = self.plan(package)?;
        if plan.digest != agreed.digest {
            return Err(SkillError::Swapped {
                expected: agreed.digest.to_string(),
                found: plan.digest.to_string(),
            });
        }
        let blocking = plan.blocking().count();
        if blocking > 0 && !agreed.findings_accepted {
            return Err(SkillError::Blocked(format!("{blocking} of high severity")));
        }
        let granted = plan.granted(agreed.granted)?;
        let trust =
            if agreed.by_agent && plan.trust == Trust::Community { Trust::Generated } else { plan.trust };
        let mut held = self.exclusively()?;
        self.put(&plan.skill.name, package)?;
        let (version, source) = (plan.skill.version.clone(), agreed.source.to_owned());
        let locked = Locked::new(version, source, plan.digest, plan.manifest.clone());
        held.known.lock.skills.insert(plan.skill.name.clone(), locked);
        held.known.lock.write(&lock_file(&self.folder))?;
        let pin = SkillPin { digest: plan.digest, granted, by_agent: agreed.by_agent };
        held.known.pins.skills.insert(plan.skill.name.clone(), pin);
        held.known.pins.write(&self.pins)?;
        Ok(Plan { trust, ..plan })
    }

    /// Removes a skill, pin and lock first: files without an entry are ignored.
    pub(crate) fn remove(&self, name: &str) -> Result<(), SkillError> {
        let mut held = self.exclusively()?;
        if held.known.pins.skills.remove(name).is_some() {
            held.known.pins.write(&self.pins)?;
        }
        if held.known.lock.skills.remove(name).is_none() {
            return Err(SkillError::Unknown(name.chars().take(80).collect()));
        }
        held.known.lock.write(&lock_file(&self.folder))?;
        let place = self.place(name);
        match std::fs::remove_dir_all(&place) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(SkillError::io(&place, error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// All skills, each checked.
    pub fn check_all(&self) -> Vec<(String, Result<Checked, SkillError>)> {
        self.names().into_iter().map(|name| (name.clone(), self.check(&name))).collect()
    }

    fn names(&self) -> Vec<String> {
        self.known().lock.skills.keys().cloned().collect()
    }

    /// The manifests for the catalogue: a tool for each intact skill with a program.
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.check_all().into_iter().filter_map(|(_, checked)| checked.ok()?.spec()).collect()
    }

    /// Copies the compared bytes for one call.
    pub(crate) fn stage(&self, package: &Package) -> Result<tempfile::TempDir, SkillError> {
        std::fs::create_dir_all(&self.staging).map_err(|error| SkillError::io(&self.staging, error))?;
        let copy = tempfile::Builder::new().prefix("skill-").tempdir_in(&self.staging);
        let copy = copy.map_err(|error| SkillError::io(&self.staging, error))?;
        package.write_to(copy.path())?;
        Ok(copy)
    }

    fn known(&self) -> MutexGuard<'_, KnownSkills> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, name: &str) -> PathBuf {
        self.folder.join("skills").join(name)
    }

    /// Takes the lock across all processes, and reloads changes of other processes.
    fn exclusively(&self) -> Result<Exclusive<'_>, SkillError> {
        let folder = self.folder.join("skills");
        let fail = |error: std::io::Error| SkillError::io(&folder, error);
        std::fs::create_dir_all(&folder).map_err(fail)?;
        let file = std::fs::File::open(&folder).map_err(fail)?;
        file.lock().map_err(fail)?;
        let mut known = self.known();
        *known =
            KnownSkills { lock: Lock::read(&lock_file(&self.folder))?, pins: SkillPins::read(&self.pins)? };
        Ok(Exclusive { known, _file: file })
    }

    fn put(&self, name: &str, package: &Package) -> Result<(), SkillError> {
        let (folder, place) = (self.folder.join("skills"), self.place(name));
        let fail = |error: std::io::Error| SkillError::io(&place, error);
        let draft = tempfile::Builder::new().prefix(".new-").tempdir_in(&folder).map_err(fail)?;
        package.write_to(draft.path())?;
        let flags = if std::fs::symlink_metadata(&place).is_ok() {
            rustix::fs::RenameFlags::EXCHANGE
        } else {
            rustix::fs::RenameFlags::NOREPLACE
        };
        rustix::fs::renameat_with(rustix::fs::CWD, draft.path(), rustix::fs::CWD, &place, flags)
            .map_err(|errno| fail(errno.into()))?;
        // After the exchange, the draft's path holds the old version, if any, which is removed with it.
        match draft.close() {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(fail(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

struct Exclusive<'a> {
    known: MutexGuard<'a, KnownSkills>,
    /// Closing it releases the lock.
    _file: std::fs::File,
}

fn lock_file(folder: &Path) -> PathBuf {
    folder.join("skills.lock")
}

impl Checked {
    /// The tool's manifest, if the skill has a program.
    pub fn spec(&self) -> Option<ToolSpec> {
        spec_of(self)
    }
}

fn spec_of(checked: &Checked) -> Option<ToolSpec> {
    let Checked { skill, digest, trust, granted, .. } = checked;
    let input = match skill.runtime {
        Runtime::Instruction => return None,
        Runtime::Process | Runtime::Microvm => json!({
            "type": "object", "additionalProperties": false, "required": [],
            "properties": {
                "input": {"description": "input for its standard input, as JSON"},
                "args": {
                    "type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 8192},
                    "description": "arguments for its program",
                },
            },
        }),
        Runtime::Wasm => json!({"type": "object", "description": "its input, as JSON"}),
    };
    let mut capabilities: Vec<String> = vec!["skill.run".to_owned(), trust.capability().to_owned()];
    capabilities.extend(granted.iter().filter_map(Permission::capability).map(str::to_owned));
    capabilities.dedup();
    let has = |test: fn(&Permission) -> bool| granted.iter().any(test);
    let effect = if has(|one| matches!(one, Permission::Network(_))) {
        SideEffect::Network
    } else if has(|one| matches!(one, Permission::Write(_) | Permission::Shell | Permission::Tool(_))) {
        SideEffect::Write
    } else if has(|one| matches!(one, Permission::Read(_))) {
        SideEffect::Read
    } else {
        SideEffect::None
    };
    Some(ToolSpec {
        name: format!("skill.{}", skill.name),
        description: skill.description.clone(),
        input,
        capabilities,
        effect,
        driver: skill.runtime.driver(),
        tiers: vec![skill.runtime.tier()].into_iter().filter(|tier| *tier > Tier::Host).collect(),
        // Includes the digest, so that an approval of one content doesn't apply to another with the same version.
        version: format!("{}+{}", skill.version, digest.to_string().chars().take(12).collect::<String>()),
        origin: trust.origin(),
        may: Some(granted.iter().flat_map(Permission::may).collect()),
        ..ToolSpec::default()
    })
}

#[cfg(test)]
mod tests;
