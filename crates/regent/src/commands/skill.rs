//! `regent skill`: packages of instructions and programs, looked at, granted, installed, checked.

mod add;
mod shown;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use regent_kernel::{Op, ToolCall};
use regent_ledger::LedgerKey;
use regent_skills::{Package, Plan, SIGNATURE_FILE, Skills};
use serde_json::{Value, json};

use crate::calls;
use crate::codes;
use crate::compose::{self, BootedKernel};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::paths::Project;
use crate::term;
use crate::trust::Trust;

/// Install, check and remove skills
#[derive(Debug, Subcommand)]
pub(crate) enum SkillCommand {
    /// Install a skill from a folder, an archive or a git repository
    Add {
        /// A folder, a .tar.gz, .zip or .skill file, or a repository (file://…, https://….git)
        source: String,
        #[command(flatten)]
        agreed: Agreement,
    },
    /// List and verify installed skills
    List,
    /// Show a skill: its description, permissions and files
    Show {
        /// Its name
        #[arg(add = ArgValueCandidates::new(skill_names))]
        name: String,
    },
    /// Verify every file against what was installed
    Verify {
        /// Its name [default: all]
        #[arg(add = ArgValueCandidates::new(skill_names))]
        name: Option<String>,
    },
    /// Scan for secrets, prompt injection, hidden characters and dangerous scripts
    Scan {
        /// A folder or an archive
        #[arg(value_hint = clap::ValueHint::AnyPath)]
        path: PathBuf,
    },
    /// Sign your skill: writes SKILL.sig and prints the public key
    Sign {
        /// The folder of the skill
        #[arg(value_hint = clap::ValueHint::DirPath)]
        path: PathBuf,
        /// The signer's name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Update a skill from its source; new permissions must be granted
    Update {
        /// Its name
        #[arg(add = ArgValueCandidates::new(skill_names))]
        name: String,
        #[command(flatten)]
        agreed: Agreement,
    },
    /// Remove a skill
    Remove {
        /// Its name
        #[arg(add = ArgValueCandidates::new(skill_names))]
        name: String,
    },
}

/// What the user agrees to beforehand.
#[derive(Debug, Args)]
pub(crate) struct Agreement {
    /// Grant a requested permission, e.g. read:docs, write:out, network:example.com, shell
    #[arg(long, value_name = "PERMISSION")]
    grant: Vec<String>,
    /// Install despite high-severity findings
    #[arg(long)]
    accept_findings: bool,
}

impl SkillCommand {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Add { .. } => "skill.add",
            Self::List => "skill.list",
            Self::Show { .. } => "skill.show",
            Self::Verify { .. } => "skill.verify",
            Self::Scan { .. } => "skill.scan",
            Self::Sign { .. } => "skill.sign",
            Self::Update { .. } => "skill.update",
            Self::Remove { .. } => "skill.remove",
        }
    }
}

pub(crate) async fn run(context: &Context, command: SkillCommand) -> CommandResult {
    match command {
        SkillCommand::Add { source, agreed } => add::run(context, add::From::Source(source), &agreed).await,
        SkillCommand::Update { name, agreed } => add::run(context, add::From::Installed(name), &agreed).await,
        SkillCommand::Remove { name } => remove(context, &name).await,
        SkillCommand::List => list(context),
        SkillCommand::Show { name } => show(context, &name),
        SkillCommand::Verify { name } => verify(context, name.as_deref()),
        SkillCommand::Scan { path } => scan(context, &path),
        SkillCommand::Sign { path, name } => sign(context, &path, name),
    }
}

/// The skills of the project, if it is trusted: looking at them is looking at what somebody wrote, but what they are worth stands in a
/// file of the project.
fn installed(context: &Context) -> Result<(Project, Skills), Failure> {
    let project = context.project()?;
    Trust::demand(&context.paths, &project)?;
    let skills = compose::skills::open(context, &project)?;
    Ok((project, skills))
}

fn list(context: &Context) -> CommandResult {
    let (_, skills) = installed(context)?;
    let mut text = String::new();
    let mut rows = Vec::new();
    for (name, checked) in skills.check_all() {
        let locked = skills.locked(&name);
        let row = match &checked {
            Ok(checked) => json!({
                "name": name, "version": checked.skill.version, "description": checked.skill.description,
                "trust": checked.trust, "runtime": checked.skill.runtime, "granted": checked.granted,
                "tool": checked.spec().map(|spec| spec.name), "source": checked.locked.source, "usable": true,
            }),
            Err(error) => json!({
                "name": name, "usable": false, "why": error.to_string(), "code": error.code(),
                "source": locked.map(|locked| locked.source),
            }),
        };
        text.push_str(&shown::row(&context.screen, &name, &checked));
        rows.push(row);
    }
    if rows.is_empty() {
        text.push_str("no skills here; `regent skill add` installs one\n");
    }
    Ok(Done::new(json!({"skills": rows}), text))
}

fn show(context: &Context, name: &str) -> CommandResult {
    let (_, skills) = installed(context)?;
    let checked = skills.check(name)?;
    let files: Vec<Value> = checked
        .locked
        .files
        .files()
        .map(|(path, mark)| json!({"path": path, "bytes": mark.bytes, "sha256": mark.sha256, "executable": mark.executable}))
        .collect();
    let findings = regent_skills::scan(&checked.package, &checked.skill);
    let data = json!({
        "skill": checked.skill, "trust": checked.trust, "signer": checked.signer, "digest": checked.locked.digest,
        "source": checked.locked.source, "granted": checked.granted, "files": files, "findings": findings,
        "tool": checked.spec().map(|spec| spec.name),
    });
    Ok(Done::new(data, shown::whole(&context.screen, &checked, &findings)))
}

fn verify(context: &Context, name: Option<&str>) -> CommandResult {
    let (_, skills) = installed(context)?;
    let checked = match name {
        Some(name) => vec![(name.to_owned(), skills.check(name))],
        None => skills.check_all(),
    };
    let count = checked.len();
    let mut text = String::new();
    let mut broken = Vec::new();
    for (name, checked) in checked {
        match checked {
            Ok(checked) => text.push_str(&format!(
                "{} {name}: {} as installed\n",
                context.screen.good("ok"),
                term::count(checked.locked.files.files().count() as u64, "file")
            )),
            Err(error) => broken.push((name, error)),
        }
    }
    let Some((_, _)) = broken.first() else {
        return Ok(Done::new(json!({"checked": count, "broken": []}), text));
    };
    let told: Vec<Value> = broken
        .iter()
        .map(|(name, error)| json!({"name": name, "code": error.code(), "why": error.to_string()}))
        .collect();
    if !context.screen.json {
        context.screen.say(&text);
        for (_, error) in broken.iter().skip(1) {
            context.screen.say(&format!("{}\n", term::inline(&error.to_string())));
        }
    }
    let mut broken = broken.into_iter();
    let first = broken.next().map(|(_, error)| Failure::from(error));
    let failure = first.unwrap_or_else(|| Failure::new(codes::INTERNAL, "nothing is damaged"));
    Err(failure.data(json!({"checked": count, "broken": told})))
}

fn scan(context: &Context, path: &std::path::Path) -> CommandResult {
    let package = Package::read(&context.cwd.join(path))?;
    let plan = Plan::compare(&package, &context.settings.trusted_keys(), |_| None)?;
    let data = json!({"plan": plan, "blocked": plan.blocking().count() > 0});
    let text = shown::findings(&context.screen, &plan.findings);
    let blocking = plan.blocking().count();
    if blocking > 0 {
        if !context.screen.json {
            context.screen.say(&text);
        }
        let failure =
            Failure::from(regent_skills::SkillError::Blocked(format!("{blocking} of high severity")));
        return Err(failure.data(data));
    }
    Ok(Done::new(data, text))
}

fn sign(context: &Context, path: &std::path::Path, name: Option<String>) -> CommandResult {
    let folder = context.cwd.join(path);
    let package = Package::from_folder(&folder)?;
    context.paths.make()?;
    let key = LedgerKey::load_or_create(&context.paths.skill_key())
        .map_err(|error| Failure::new(codes::LEDGER_KEY, compose::error_chain(&error)))?;
    let name = name.unwrap_or_else(compose::user_name);
    let note = regent_skills::sign(&package, &name, &key)?;
    let place = folder.join(SIGNATURE_FILE);
    std::fs::write(&place, note).map_err(|error| Failure::io("write", &place, &error))?;
    let vkey = key.public().vkey(&name);
    let text = format!(
        "wrote {}\nto trust it, others run:\n  regent config set skills.trusted_keys {vkey}\n",
        term::inline(&place.display().to_string())
    );
    Ok(Done::new(json!({"file": place, "key": vkey, "name": name}), text))
}

async fn remove(context: &Context, name: &str) -> CommandResult {
    let project = context.project()?;
    let running = BootedKernel::boot(context).await?;
    let op = Op::RunTool(ToolCall { tool: "skill.remove".to_owned(), args: json!({"name": name}) });
    let caller = running.caller();
    let result = calls::call(context, &running, &caller, op).await;
    let result = result.and_then(|outcome| calls::result::<Value>(&outcome));
    let told = running.close(context, result).await?;
    Trust::renew(&context.paths, &project, &project.skills_lock())?;
    Ok(Done::new(told, format!("removed {}\n", term::inline(name))))
}

/// Names of skills, for completion.
fn skill_names() -> Vec<CompletionCandidate> {
    let Ok(cwd) = std::env::current_dir() else { return Vec::new() };
    let Ok(project) = Project::find(&cwd) else { return Vec::new() };
    let lock = regent_skills::Lock::read(&project.skills_lock()).unwrap_or_default();
    lock.skills.into_keys().map(CompletionCandidate::new).collect()
}
