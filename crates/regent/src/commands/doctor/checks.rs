//! The checks.

use std::os::unix::net::UnixStream;
use std::path::Path;

use regent_policy::{Level, Mode};
use regent_vault::{Vault, VaultError};
use rustix::process::{DumpableBehavior, Resource};

use super::fix::Fix;
use super::{Check, files, git};
use crate::bundles;
use crate::compose;
use crate::context::Context;
use crate::controls::Controls;
use crate::paths::{self, Project};
use crate::settings;
use crate::term;
use crate::trust::{Trust, TrustStanding};

const DISK_BYTES_LOW: u64 = 256 << 20;
/// 2024-01-01: a clock before that is wrong.
const CLOCK_MS_LOW: i64 = 1_704_067_200_000;

/// Everything, in the order in which a user would fix it.
pub(super) async fn all(context: &Context) -> Vec<Check> {
    let mut checks = folders(context);
    checks.extend([user(), environment(), umask(), clock(context), disk(context)]);
    checks.push(settings_files(context));
    checks.push(git::bare_repositories());
    checks.extend(policies(context));
    checks.extend(project(context));
    checks.extend([
        key(context),
        files::ledger(context),
        vault(context),
        closed(),
        files::state(context).await,
        sockets(context),
    ]);
    checks.extend(files::places(context));
    checks.extend(sandbox());
    checks.extend(other_tiers().await);
    checks.push(egress().await);
    checks.extend(escapes(context).await);
    checks
}

fn folders(context: &Context) -> Vec<Check> {
    let paths = &context.paths;
    let named = [
        ("folder.config", &paths.config),
        ("folder.data", &paths.data),
        ("folder.state", &paths.state),
        ("folder.runtime", &paths.runtime),
    ];
    named.into_iter().map(|(id, folder)| one_folder(id, folder)).collect()
}

fn one_folder(id: &str, folder: &Path) -> Check {
    let shown = folder.display();
    match paths::is_open_to_others(folder) {
        Ok(false) => Check::good(id, format!("only you can access {shown}")),
        Ok(true) if id == "folder.config" => {
            Check::good(id, format!("others can read {shown}; it holds no secrets"))
        }
        Ok(true) => Check::bad(id, format!("others can access {shown}"), format!("chmod 700 {shown}"))
            .fixed_by(Fix::Close(folder.to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && id == "folder.runtime" => {
            Check::good(id, format!("{shown} doesn't exist yet; a kernel creates it"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Check::warning(id, format!("{shown} doesn't exist yet"), "`regent init` creates it")
                .fixed_by(Fix::Folders)
        }
        Err(error) => {
            Check::bad(id, format!("{shown} can't be used: {error}"), "check its owner and permissions")
        }
    }
}

fn user() -> Check {
    let name = compose::user_name();
    if rustix::process::geteuid().is_root() {
        return Check::warning(
            "user.root",
            "you are root: the sandbox works, but a mistake outside it does more damage",
            "run regent as an ordinary user",
        );
    }
    Check::good("user.root", format!("you are {name}, not root"))
}

/// Variables that make our own process load other code. Only names are shown.
fn environment() -> Check {
    let steering = ["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"];
    let set: Vec<&str> = steering.into_iter().filter(|name| std::env::var_os(name).is_some()).collect();
    if set.is_empty() {
        return Check::good("environment.loader", "no environment variable makes regent load other code");
    }
    Check::warning(
        "environment.loader",
        format!("{} is set and affects regent (not programs in the sandbox)", set.join(", ")),
        "unset it unless you need it",
    )
}

fn umask() -> Check {
    // Reading the mask means setting it; it is put back at once, and nothing else runs meanwhile that makes files.
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::process::umask(mask);
    if mask.as_raw_mode() & 0o002 == 0 {
        return Check::warning(
            "umask",
            format!("your umask is {:03o}: others can change files that you create", mask.as_raw_mode()),
            "umask 022, or 077",
        );
    }
    Check::good("umask", format!("your umask is {:03o}", mask.as_raw_mode()))
}

fn clock(context: &Context) -> Check {
    if context.clock.now_ms() < CLOCK_MS_LOW {
        return Check::bad(
            "clock",
            "the clock says it is before 2024",
            "set the clock: entries, expiry and certificates need it",
        );
    }
    Check::good("clock", "the clock is plausible")
}

fn disk(context: &Context) -> Check {
    let place = context.project().map_or_else(|_none| context.cwd.clone(), |project| project.root);
    match rustix::fs::statvfs(&place) {
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let text = format!("{} MiB are free at {}", free >> 20, place.display());
            if free < DISK_BYTES_LOW {
                return Check::warning(
                    "disk.space",
                    text,
                    "on a full disk Regent refuses calls; free some space",
                );
            }
            Check::good("disk.space", text)
        }
        Err(error) => {
            Check::warning("disk.space", format!("can't determine free space: {error}"), "check the disk")
        }
    }
}

fn settings_files(context: &Context) -> Check {
    let files = [Some(context.paths.settings()), context.project().ok().map(|project| project.settings())];
    let there: Vec<String> = files
        .into_iter()
        .flatten()
        .filter(|file| file.is_file())
        .map(|file| file.display().to_string())
        .collect();
    if let Some(mistake) = context.mistakes.first() {
        let help = mistake.help.clone().unwrap_or_else(|| {
            "correct the line, or remove it with `regent config unset KEY`; other commands refuse to run until then".to_owned()
        });
        return Check::bad("config.valid", &mistake.message, help);
    }
    let project = context.controls().ok().flatten();
    if let Some(Err(mistake)) = project.as_ref().map(settings::check_project) {
        return Check::warning("config.valid", mistake.message, mistake.help.unwrap_or_default());
    }
    if there.is_empty() {
        return Check::good("config.valid", "no settings files; defaults apply");
    }
    Check::good("config.valid", format!("{} can be read", there.join(", ")))
}

/// The signed bundle, where one is in force.
fn bundle(context: &Context) -> Option<Check> {
    let fix = "`regent policy apply FILE` activates a valid one, `--withdraw` deactivates it";
    let checked = match bundles::in_force(&context.paths).transpose()? {
        Ok(opened) => opened.policies().map(|_loads| opened),
        Err(failure) => Err(failure),
    };
    Some(match checked {
        Ok(opened) => Check::good(
            "policy.bundle",
            format!("a bundle of {} is active, signed by {}", opened.made(), opened.publisher),
        ),
        Err(failure) => Check::bad("policy.bundle", failure.message, fix),
    })
}

fn policies(context: &Context) -> Vec<Check> {
    let mut checks = own_policies(context);
    checks.extend(bundle(context));
    checks
}

fn own_policies(context: &Context) -> Vec<Check> {
    let path = context.paths.policy();
    let others = [context.paths.manifest(), context.paths.bundle()];
    if !paths::may_exist(&path) && !others.iter().any(|path| paths::may_exist(path)) {
        return vec![
            Check::bad(
                "policy.user",
                format!("{} doesn't exist, so everything is denied", path.display()),
                "run `regent init`",
            )
            .fixed_by(Fix::Policy),
        ];
    }
    let policy = match compose::own_policies(&context.paths) {
        Ok(policy) => policy,
        Err(failure) => {
            return vec![Check::bad(
                "policy.user",
                failure.message,
                "`regent policy check` shows the errors",
            )];
        }
    };
    let rules: usize = policy.outline().iter().map(|one| one.rules).sum();
    let mut checks = vec![Check::good("policy.user", format!("your policy has {rules} rules"))];
    let strict = policy.outline().iter().all(|one| one.mode == Mode::Strict);
    checks.push(if strict {
        Check::good("policy.mode", "strict: calls that no rule allows are denied")
    } else {
        Check::warning(
            "policy.mode",
            "not strict: some calls that no rule allows are let through",
            "set `mode: strict`",
        )
    });
    // The same tools as `regent policy lint` knows: those of skills and of agents are no mistakes.
    let tools = match compose::skills::tool_names(context) {
        Ok(tools) => tools,
        Err(failure) => {
            checks.push(Check::bad("policy.lint", failure.message, failure.help.unwrap_or_default()));
            return checks;
        }
    };
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let warned = regent_policy::lint(&policy, &tools)
        .into_iter()
        .filter(|finding| finding.level != Level::Note)
        .count();
    checks.push(if warned == 0 {
        Check::good("policy.lint", "no warnings in your policy")
    } else {
        Check::warning(
            "policy.lint",
            format!("{warned} warnings about your policy"),
            "`regent policy lint` shows them",
        )
    });
    checks
}

fn project(context: &Context) -> Vec<Check> {
    let Ok(project) = context.project() else {
        return vec![Check::warning(
            "project",
            "no Regent project in this folder or above",
            "run `regent init` in a project folder",
        )];
    };
    let mut checks = vec![Check::good("project", format!("{} is a project", project.root.display()))];
    checks.push(match context.paths.demand_apart(&project) {
        Ok(_) => Check::good("project.place", "it is separate from your home folder and Regent's own files"),
        Err(failure) => Check::bad("project.place", failure.message, failure.help.unwrap_or_default()),
    });
    checks.push(
        match Trust::load(&context.paths).and_then(|trust| Ok(trust.standing(&Controls::read(&project)?))) {
            Ok(TrustStanding::Trusted) => Check::good("project.trust", "you trust its current state"),
            Ok(TrustStanding::Never) => Check::warning(
                "project.trust",
                "you have not trusted it; nothing in it takes effect",
                "review it, then run `regent trust`",
            ),
            Ok(TrustStanding::Changed(file)) => Check::warning(
                "project.trust",
                format!("{file} changed since you trusted it"),
                "review it, then run `regent trust`",
            ),
            Err(failure) => Check::bad("project.trust", failure.message, failure.help.unwrap_or_default()),
        },
    );
    checks.push(match Controls::read(&project).and_then(|controls| compose::project_policies(&controls)) {
        Ok(Some(policy)) => Check::good(
            "policy.project",
            format!("{} narrowing your policy", term::count(policy.outline().len() as u64, "file")),
        ),
        Ok(None) => Check::good("policy.project", "the project has no policy of its own; yours applies"),
        Err(failure) => {
            Check::bad("policy.project", failure.message, "`regent policy check` shows the errors")
        }
    });
    checks.push(ignored(&project));
    checks
}

/// A ledger that is committed travels to others with everything that agents have read.
fn ignored(project: &Project) -> Check {
    let in_git = project.root.join(".git").exists();
    let ignored = std::fs::read_to_string(project.folder().join(".gitignore"))
        .is_ok_and(|text| text.lines().any(|line| line.trim() == paths::IGNORED.trim()));
    if in_git && !ignored {
        return Check::warning(
            "project.ignored",
            "git doesn't ignore .regent/audit*: the ledger could be committed",
            "add the line `audit*` to .regent/.gitignore",
        );
    }
    Check::good("project.ignored", "the ledger stays out of version control")
}

fn key(context: &Context) -> Check {
    let path = context.paths.ledger_key();
    match compose::ledger::existing_key(&context.paths) {
        Ok(Some(key)) => Check::good("ledger.key", format!("{} signs as {}", path.display(), key.public())),
        Ok(None) => match compose::ledger::demand_first_use(&context.paths) {
            Ok(()) => {
                Check::warning("ledger.key", "there is no signing key yet", "it is created on first use")
                    .fixed_by(Fix::Key)
            }
            Err(failure) => Check::bad("ledger.key", failure.message, failure.help.unwrap_or_default()),
        },
        Err(failure) => {
            let check = Check::bad("ledger.key", failure.message, failure.help.unwrap_or_default());
            let exposed = path.is_file() && paths::is_open_to_others(&path).unwrap_or(false);
            if exposed { check.fixed_by(Fix::Close(path)) } else { check }
        }
    }
}

/// The vault is there or isn't, opens, and nobody else can read it or its key.
fn vault(context: &Context) -> Check {
    let vault = Vault::new(&context.paths.data, None);
    let shown = vault.path().display().to_string();
    let found = vault.exists().and_then(|exists| Ok((exists, vault.has_passphrase()?)));
    let said = match found {
        Ok((false, _)) => Ok("there is no vault yet; `regent vault add` creates one".to_owned()),
        Ok((true, true)) => Ok(format!("{shown} has a passphrase")),
        Ok((true, false)) => vault.list().map(|all| {
            format!("{shown} opens with its key and has {}", term::count(all.len() as u64, "secret"))
        }),
        Err(error) => Err(error),
    };
    match said {
        Ok(says) => Check::good("vault", says),
        Err(VaultError::Exposed(path)) => {
            let help = format!("chmod 600 {}", path.display());
            Check::bad("vault", format!("others can access {}, or it is a link", path.display()), help)
                .fixed_by(Fix::Close(path))
        }
        Err(error) => Check::bad("vault", error.to_string(), "restore the file or the key from a backup"),
    }
}

/// Whether other processes can look into ours.
fn closed() -> Check {
    let hidden = rustix::process::dumpable_behavior().is_ok_and(|how| how == DumpableBehavior::NotDumpable);
    let no_core = rustix::process::getrlimit(Resource::Core).current == Some(0);
    if !hidden || !no_core {
        let says = "your other processes can read regent's memory, or a crash would write it to disk";
        return Check::warning(
            "memory.closed",
            says,
            "a resource limit or security module of this process causes this",
        );
    }
    let swap = if rustix::process::getrlimit(Resource::Memlock).current.is_none() {
        ""
    } else {
        "; it may be swapped out (`ulimit -l unlimited` keeps it in memory)"
    };
    Check::good("memory.closed", format!("no core file, and no other process reads regent's memory{swap}"))
}

fn sockets(context: &Context) -> Check {
    let entries = std::fs::read_dir(&context.paths.runtime).into_iter().flatten().filter_map(Result::ok);
    let sockets: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "sock"))
        .collect();
    match sockets.iter().find(|path| UnixStream::connect(path).is_err()) {
        Some(stale) => Check::warning(
            "control.sockets",
            format!("no answer on {}", stale.display()),
            "the next kernel removes it",
        )
        .fixed_by(Fix::Socket(stale.clone())),
        None => Check::good("control.sockets", format!("{} kernels are running", sockets.len())),
    }
}

fn sandbox() -> Vec<Check> {
    let probe = regent_sandbox::probe();
    let nothing_works = probe.full.is_some() && probe.fallback.is_some();
    let one = |finding: &regent_sandbox::Finding| {
        let id = format!("sandbox.{}", finding.name.replace(' ', "-"));
        let help =
            finding.fix.clone().unwrap_or_else(|| "every receipt states the confinement obtained".to_owned());
        // Without a supervisor programs start, and can't write a file.
        match (finding.ok, nothing_works || finding.name == "supervisor") {
            (true, _) => Check::good(id, &finding.says),
            (false, false) => Check::warning(id, &finding.says, help),
            (false, true) => Check::bad(id, &finding.says, help),
        }
    };
    probe.findings.iter().map(one).collect()
}

/// The tiers besides the process tier. One that doesn't work is refused when it is asked for; the others continue.
async fn other_tiers() -> Vec<Check> {
    let one = |finding: regent_sandbox::Finding| {
        let id = format!("sandbox.{}", finding.name.replace(' ', "-"));
        let help = finding.fix.unwrap_or_else(|| "tools that need this tier are refused".to_owned());
        if finding.ok { Check::good(id, finding.says) } else { Check::warning(id, finding.says, help) }
    };
    compose::other_tiers().await.into_iter().map(one).collect()
}

/// Whether a program that asks for the network gets its egress proxy.
async fn egress() -> Check {
    let (sender, mut listeners) = tokio::sync::mpsc::channel(1);
    let spec = regent_sandbox::Spec { listener: Some(sender), ..regent_sandbox::Spec::new(["/bin/true"]) };
    let ended = regent_sandbox::run(spec, std::future::pending()).await;
    match (ended, listeners.recv().await) {
        (Ok(_), Some(_)) => {
            let says = "programs with network access reach only the egress proxy";
            Check::good("egress", says)
        }
        (Ok(_), None) => Check::bad(
            "egress",
            "a sandbox started, but its egress proxy didn't answer",
            "programs have no network access; `regent run --no-network` works",
        ),
        (Err(error), _) => Check::warning(
            "egress",
            format!("programs can't get network access: {error}"),
            "`regent run --no-network` works; see the sandbox checks above",
        ),
    }
}

/// Live attempts to get out, each in a sandbox of its own.
async fn escapes(context: &Context) -> Vec<Check> {
    match regent_sandbox::probes::try_all(compose::floor(context)).await {
        Ok(tried) => tried
            .into_iter()
            .map(|one| {
                let id = format!("escape.{}", one.name.replace(' ', "-"));
                if one.held {
                    return Check::good(id, format!("{}: {}", one.name, one.says));
                }
                Check::bad(
                    id,
                    format!("expected: {}, but {}", one.must, one.says),
                    "don't run programs until you know why",
                )
            })
            .collect(),
        Err(error) => vec![Check::bad(
            "escape",
            format!("no sandbox could be created: {error}"),
            "see the sandbox checks above",
        )],
    }
}
