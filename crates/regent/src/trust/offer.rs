//! What trusting a folder would put in force: every control file, and every skill with what it may do. Shown before anyone agrees.

use std::collections::BTreeMap;

use regent_policy::DEFAULT_POLICY;
use regent_skills::{Offered, SkillError, Skills};
use serde_json::{Value, json};

use super::Trust;
use crate::codes;
use crate::compose;
use crate::context::Context;
use crate::controls::Controls;
use crate::failure::Failure;
use crate::paths::{POLICY_FILES, Project};
use crate::prompt;
use crate::settings;
use crate::term;

/// What a folder brings.
#[derive(Debug)]
pub(crate) struct Offer {
    /// The digest of each control file, by its name in the folder.
    files: BTreeMap<String, String>,
    /// Those that somebody else wrote: neither trusted as they are, nor what `regent init` writes.
    foreign: Vec<String>,
    skills: Skills,
    offered: Vec<Offered>,
    refused: Vec<(String, SkillError)>,
}

impl Offer {
    /// Looks at a folder. A policy that can't be loaded is an error: its mistakes are shown instead of a question.
    pub(crate) fn read(context: &Context, project: &Project) -> Result<Self, Failure> {
        let controls = Controls::read(project)?;
        compose::project_policies(&controls)?;
        settings::check_project(&controls)?;
        let files = controls.digests();
        let trusted = Trust::load(&context.paths)?.files(project);
        let own = BTreeMap::from([(
            POLICY_FILES[0].to_owned(),
            regent_ledger::Digest::compute(DEFAULT_POLICY.as_bytes()).to_string(),
        )]);
        let is_foreign = |(name, digest): &(&String, &String)| {
            trusted.get(*name) != Some(*digest) && own.get(*name) != Some(*digest)
        };
        let foreign = files.iter().filter(is_foreign).map(|(name, _)| name.clone()).collect();
        let skills = compose::skills::open(context, project)?;
        let (mut offered, mut refused) = (Vec::new(), Vec::new());
        for (name, one) in skills.offered() {
            match one {
                Ok(one) => offered.push(one),
                Err(error) => refused.push((name, error)),
            }
        }
        Ok(Self { files, foreign, skills, offered, refused })
    }

    /// Whether trusting the folder needs somebody's agreement.
    pub(crate) fn is_foreign(&self) -> bool {
        !self.foreign.is_empty() || self.grants_more()
    }

    /// Whether a skill would be granted something that it hasn't been granted here before.
    pub(crate) fn grants_more(&self) -> bool {
        self.offered.iter().any(|one| !one.is_agreed)
    }

    /// The files that somebody else wrote.
    pub(crate) fn names(&self) -> String {
        let mut names = self.foreign.clone();
        names.extend(
            self.offered.iter().filter(|one| !one.is_agreed).map(|one| format!("the skill {}", one.name)),
        );
        term::inline(&names.join(", ")).into_owned()
    }

    /// Every file and every skill, a line each.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for name in &self.foreign {
            text.push_str(&format!("  {:<24} {}\n", term::inline(name), kind(name)));
        }
        for one in self.offered.iter().filter(|one| !one.is_agreed) {
            let wants: Vec<String> = one.wants.iter().map(ToString::to_string).collect();
            let wants = if wants.is_empty() {
                "nothing besides reading its own files".to_owned()
            } else {
                wants.join(", ")
            };
            let signer = one.signer.as_deref().unwrap_or("no trusted key");
            text.push_str(&format!(
                "  skill {:<18} {}, signed by {}; it may {}\n",
                term::inline(&one.name),
                term::inline(&one.version),
                term::inline(signer),
                term::inline(&wants)
            ));
            if one.blocking > 0 {
                let name = term::inline(&one.name).into_owned();
                text.push_str(&format!(
                    "        {:<18} {} of high severity: `regent skill scan .regent/skills/{name}` shows them\n",
                    "", term::count(one.blocking as u64, "finding")
                ));
            }
        }
        for (name, error) in &self.refused {
            text.push_str(&format!(
                "  skill {:<18} left out: {}\n",
                term::inline(name),
                term::inline(&error.to_string())
            ));
        }
        text
    }

    /// The same for `--json`.
    pub(crate) fn to_json(&self) -> Value {
        let skills: Vec<Value> = self
            .offered
            .iter()
            .map(|one| {
                json!({"name": one.name, "version": one.version, "signer": one.signer, "wants": one.wants,
                    "findings_of_high_severity": one.blocking, "agreed_before": one.is_agreed})
            })
            .collect();
        let refused: Vec<Value> = self
            .refused
            .iter()
            .map(|(name, error)| json!({"name": name, "code": error.code(), "why": error.to_string()}))
            .collect();
        json!({"files": self.foreign, "skills": skills, "skills_refused": refused})
    }

    /// Asks at the terminal. The answer covers what is shown, not what the files hold by the time it is given.
    pub(crate) async fn ask(
        &self,
        context: &Context,
        project: &Project,
        unasked: impl FnOnce() -> Failure,
    ) -> Result<(), Failure> {
        let root = project.root.display().to_string();
        let question = format!(
            "{} has these control files, which you have not trusted in their current state. A policy can only narrow your own;\na skill gets the permissions listed beside it:\n{}Trust them? [y/N] ",
            term::inline(&root),
            self.text()
        );
        if prompt::confirm(&context.screen, &question, unasked).await? {
            return Ok(());
        }
        Err(Failure::new(codes::FOLDER_UNTRUSTED, "you did not trust the folder; nothing was changed"))
    }

    /// Trusts what was looked at: the pins of the skills first, so that a lock is never in force without them.
    pub(crate) fn accept(&self, context: &Context, project: &Project) -> Result<Vec<String>, Failure> {
        self.skills.agree(&self.offered)?;
        Trust::grant(&context.paths, project, self.files.clone(), context.clock.now_ms())?;
        Ok(self.files.keys().cloned().collect())
    }
}

fn kind(name: &str) -> &'static str {
    match name {
        ".regent/config.toml" => "settings",
        ".regent/skills.lock" => "skills that are installed",
        ".regent/acs.yml" => "ACS manifest: it can only narrow your policy",
        name if POLICY_FILES.contains(&name) => "policy: it can only narrow yours",
        _referred => "rules of the manifest",
    }
}
