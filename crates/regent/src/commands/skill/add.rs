//! Installing and updating: fetch, look, ask, install. Nothing is written to the project before the user has agreed.

use std::path::{Path, PathBuf};

use regent_kernel::{Op, Outcome, ToolCall};
use regent_skills::{Package, Permissions, Plan};
use serde_json::{Value, json};

use super::{Agreement, shown};
use crate::calls;
use crate::codes;
use crate::compose::BootedKernel;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::prompt;
use crate::term;
use crate::trust::Trust;

/// What is to be installed.
#[derive(Debug)]
pub(super) enum From {
    /// What the user named.
    Source(String),
    /// What is installed, from where it came.
    Installed(String),
}

/// Clones inside the sandbox and gives the tree as an archive, which is then read like any other: hooks, submodules, filters and other
/// protocols are off, and nothing of the repository's own configuration is used.
const CLONE: &str = r#"set -e
export GIT_TERMINAL_PROMPT=0 GIT_CONFIG_NOSYSTEM=1
git config --global --add safe.directory '*'
git config --global core.hooksPath /dev/null
git config --global core.fsmonitor false
git config --global submodule.recurse false
git config --global protocol.allow never
git config --global "protocol.$2.allow" always
git clone --quiet --depth 1 --no-tags --single-branch --no-recurse-submodules --no-checkout --template= -- "$1" /tmp/skill >&2
git -C /tmp/skill archive --format=tar HEAD
"#;

pub(super) async fn run(context: &Context, from: From, agreed: &Agreement) -> CommandResult {
    let grant = agreed
        .grant
        .iter()
        .flat_map(|text| text.split(','))
        .map(|text| text.trim().parse().map_err(|error| Failure::new(codes::USAGE, format!("{error}"))))
        .collect::<Result<Permissions, Failure>>()?;
    let project = context.project()?;
    let running = BootedKernel::boot(context).await?;
    let result = install(context, &running, from, &grant, agreed.accept_findings).await;
    let done = running.close(context, result).await?;
    Trust::renew(&context.paths, &project, &project.skills_lock())?;
    Ok(done)
}

async fn install(
    context: &Context,
    running: &BootedKernel,
    from: From,
    grant: &Permissions,
    accept_findings: bool,
) -> CommandResult {
    let (source, update) = match from {
        From::Source(text) => (text, None),
        From::Installed(name) => {
            let locked =
                running.skills.locked(&name).ok_or(regent_skills::SkillError::Unknown(name.clone()))?;
            (locked.source, Some(name))
        }
    };
    let fetched = fetch(context, running, &source).await?;
    let plan = running.skills.plan(&Package::read(&fetched.path())?)?;
    if let Some(name) = update.filter(|name| *name != plan.skill.name) {
        let message = format!("`{source}` now holds the skill `{}`, not `{name}`", plan.skill.name);
        return Err(
            Failure::new(codes::SKILL_RENAMED, message).help("remove the old one and add the new one")
        );
    }
    let granted = agree(context, &plan, grant, accept_findings).await?;
    let unwanted: Vec<String> = plan.unwanted(grant).iter().map(ToString::to_string).collect();
    if !unwanted.is_empty() {
        context.screen.say(&format!(
            "regent: {} doesn't request {}, so it isn't granted\n",
            term::inline(&plan.skill.name),
            term::inline(&unwanted.join(", "))
        ));
    }
    let args = json!({
        "path": fetched.path(), "grant": granted,
        "looked_at": {"digest": plan.digest, "source": fetched.source(&source), "accept_findings": accept_findings},
    });
    let op = Op::RunTool(ToolCall { tool: "skill.install".to_owned(), args });
    let outcome = calls::call(context, running, &running.caller(), op).await?;
    let told = calls::result::<Value>(&outcome)?;
    let text = shown::installed(&context.screen, &plan);
    Ok(Done::new(json!({"installed": told, "findings": plan.findings, "changes": plan.changes}), text))
}

/// What needs an approval: blocking findings, then missing permissions. Off a terminal the flags answer.
async fn agree(
    context: &Context,
    plan: &Plan,
    grant: &Permissions,
    accept_findings: bool,
) -> Result<Permissions, Failure> {
    let blocking = plan.blocking().count();
    if !context.screen.json && (blocking > 0 || plan.installed.is_some()) {
        context.screen.say(&shown::plan(&context.screen, plan));
    }
    let data = json!({"plan": plan});
    if blocking > 0 && !accept_findings {
        let error = regent_skills::SkillError::Blocked(format!("{blocking} of high severity"));
        return Err(Failure::from(error).data(data));
    }
    match plan.granted(grant) {
        Ok(granted) => Ok(granted),
        Err(error) => {
            if plan.installed.is_none() && context.screen.can_ask {
                context.screen.say(&shown::plan(&context.screen, plan));
            }
            let wanted: Vec<String> = plan.new_permissions.iter().map(ToString::to_string).collect();
            let name = &plan.skill.name;
            let question = format!("\n  Grant {name} {}? [y/N] ", term::inline(&wanted.join(", ")));
            // The skill's own refusal names the flags that grant.
            match prompt::confirm(&context.screen, &question, || Failure::from(error).data(data)).await? {
                true => Ok(plan.skill.permissions.clone()),
                false => Err(Failure::new(codes::APPROVAL_REFUSED, "cancelled; nothing was installed")),
            }
        }
    }
}

/// A package where it can be read.
#[derive(Debug)]
enum Fetched {
    /// A folder or archive of the user's.
    Here(PathBuf),
    /// An archive of ours, gone afterwards.
    Archive(tempfile::TempDir),
}

impl Fetched {
    fn path(&self) -> PathBuf {
        match self {
            Self::Here(path) => path.clone(),
            Self::Archive(folder) => folder.path().join("fetched.tar"),
        }
    }

    /// Where to look for an update.
    fn source(&self, named: &str) -> String {
        match self {
            Self::Here(path) => path.display().to_string(),
            Self::Archive(_) => named.to_owned(),
        }
    }
}

async fn fetch(context: &Context, running: &BootedKernel, source: &str) -> Result<Fetched, Failure> {
    let Some(repository) = Repository::parse(source) else {
        let path = context.cwd.join(source);
        let real = path.canonicalize().map_err(|error| Failure::io("find", &path, &error))?;
        return Ok(Fetched::Here(real));
    };
    if !context.screen.json {
        context.screen.say(&format!("cloning {}\n", term::inline(source)));
    }
    let argv = ["/bin/sh", "-c", CLONE, "sh", &repository.url, repository.protocol];
    // A repository elsewhere is reached through the broker: policy judges each connection.
    let args = json!({"argv": argv, "network": repository.protocol != "file"});
    let op = Op::RunTool(ToolCall { tool: "process.exec".to_owned(), args });
    let outcome = calls::call(context, running, &running.caller(), op).await?;
    calls::succeeded(&outcome).map_err(|failure| cloning_failed(failure, &outcome))?;
    // Not in a folder of our own, which no tool reaches. A temporary folder is private, too.
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::io("make a folder in", &std::env::temp_dir(), &error))?;
    let fetched = Fetched::Archive(folder);
    let path = fetched.path();
    std::fs::write(&path, stdout_of(&outcome)).map_err(|error| Failure::io("write", &path, &error))?;
    Ok(fetched)
}

fn cloning_failed(failure: Failure, outcome: &Outcome) -> Failure {
    let said = String::from_utf8_lossy(outcome.output.bytes()).into_owned();
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let message = format!("the repository can't be cloned: {}", term::short(last, 200));
    Failure { message, ..failure }.help("git runs in the sandbox and sees only the project")
}

/// Output is what came on stdout, then what came on stderr.
fn stdout_of(outcome: &Outcome) -> &[u8] {
    let bytes = outcome.output.bytes();
    let cut = outcome
        .obtained
        .as_ref()
        .and_then(|obtained| obtained.pointer("/ended/stdout_bytes"))
        .and_then(Value::as_u64);
    let cut = cut.and_then(|cut| usize::try_from(cut).ok()).unwrap_or(bytes.len());
    bytes.get(..cut).unwrap_or(bytes)
}

/// A git repository, by a protocol that is taken.
#[derive(Debug, PartialEq, Eq)]
struct Repository {
    url: String,
    protocol: &'static str,
}

impl Repository {
    /// `file://…`, `https://….git`, `http://127.0.0.1…` and folders that are bare repositories. Everything else is a path.
    fn parse(source: &str) -> Option<Self> {
        let bare = source.strip_prefix("git+").unwrap_or(source);
        if bare.starts_with("https://") {
            return Some(Self { url: bare.to_owned(), protocol: "https" });
        }
        let loopback = ["http://127.0.0.1:", "http://localhost:", "http://[::1]:"];
        if loopback.iter().any(|start| bare.starts_with(start)) {
            return Some(Self { url: bare.to_owned(), protocol: "http" });
        }
        if bare.starts_with("file:///") {
            return Some(Self { url: bare.to_owned(), protocol: "file" });
        }
        let path = Path::new(bare);
        let is_repository = path.join("HEAD").is_file() && path.join("objects").is_dir();
        let real = is_repository.then(|| path.canonicalize().ok()).flatten()?;
        Some(Self { url: format!("file://{}", real.to_str()?), protocol: "file" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_protocols_are_repositories() {
        for (source, protocol) in [
            ("https://example.com/a.git", Some("https")),
            ("git+https://example.com/a", Some("https")),
            ("http://127.0.0.1:8000/a.git", Some("http")),
            ("file:///srv/a.git", Some("file")),
            ("http://example.com/a.git", None),
            ("ext::sh -c evil", None),
            ("ssh://example.com/a.git", None),
            ("git@example.com:a.git", None),
            ("--upload-pack=evil", None),
            ("./folder", None),
        ] {
            assert_eq!(Repository::parse(source).map(|found| found.protocol), protocol, "{source}");
        }
    }
}
