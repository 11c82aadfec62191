//! `regent init`: a working default policy, a ledger with a key, and what is already here that agents could use.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use regent_policy::DEFAULT_POLICY;
use rustix::fs::{Access, AtFlags, CWD};
use serde_json::{Value, json};

use crate::codes;
use crate::compose;
use crate::context::Context;
use crate::controls::{self, Controls, Links};
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::paths::{self, Project};
use crate::term;
use crate::trust::Offer;

/// Set up Regent in this folder: write a default policy, create the ledger's key, and trust the folder
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Don't ask: list existing control files, and don't trust them
    #[arg(long)]
    quick: bool,
}

/// What stands above the default rules in the user's own file.
const USERS_HEAD: &str = "\
# Your own policy: the outer bound of what agents may do on this machine, in every project.
# A project's .regent/policy.yml can only narrow it; a call happens if both agree.
#
";

/// Names of variables that hold keys of model providers. Only whether they are set is looked at, never what they hold.
const KEY_NAMES: [&str; 10] = [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "MISTRAL_API_KEY",
    "DEEPSEEK_API_KEY",
    "GROQ_API_KEY",
    "OPENROUTER_API_KEY",
    "TOGETHER_API_KEY",
    "XAI_API_KEY",
];

/// Where model servers listen on a machine of one's own.
const LOCAL_SERVERS: [(&str, u16); 4] =
    [("Ollama", 11434), ("LM Studio", 1234), ("llama.cpp", 8080), ("vLLM", 8000)];
const CONNECT_MS_MAX: u64 = 120;
/// Bits of a folder's mode.
const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o0002;
const MCP_FILE_BYTES_MAX: u64 = 1 << 20;

pub(crate) async fn run(context: &Context, args: &InitArgs) -> CommandResult {
    let project = Project::open(&context.cwd)?;
    let (paths, screen) = (&context.paths, &context.screen);
    paths.demand_apart(&project)?;
    demand_unshared(context, &project)?;
    let above = project.root.parent().and_then(|folder| Project::find(folder).ok());
    paths.make()?;
    if !args.quick {
        agree(context, &project).await?;
    }
    let users = write_if_absent(&paths.policy(), &format!("{USERS_HEAD}{DEFAULT_POLICY}"))?;
    if args.quick {
        compose::ledger_key(paths)?;
        own(context, &project)?;
    }
    paths::make_private(&project.folder())?;
    let projects = match project.policies().is_empty() {
        true => write_if_absent(&project.root.join(paths::POLICY_FILES[0]), DEFAULT_POLICY)?,
        false => false,
    };
    // The ledger is this machine's; it doesn't travel with the project.
    write_if_absent(&project.folder().join(".gitignore"), paths::IGNORED)?;
    demand_writable(&project)?;
    let policy = compose::policy(paths, Some(&Controls::read(&project)?))?;
    let key = compose::ledger_key(paths)?.public().to_string();
    own(context, &project)?.accept(context, &project)?;
    // Everything else is set up by now: the ledger that was here before is the user's decision.
    compose::ledger::demand_kept(paths, &project)?;

    let found = look_around(&project.root).await;
    let sandbox = sandbox_word();
    let names: Vec<String> = project.policies().iter().map(|path| project.short(path).into_owned()).collect();
    let mut text = format!("Regent is set up in {}.\n\n", term::inline(&project.root.display().to_string()));
    let mut row = |name: &str, value: &str| {
        text.push_str(&format!("  {}  {value}\n", screen.faint(&format!("{name:<8}"))))
    };
    for outline in policy.outline() {
        let name = term::inline(&outline.name).into_owned();
        row(
            "policy",
            &format!("{name}: {}, {} rules ({} policy)", outline.mode, outline.rules, outline.layer),
        );
    }
    row("ledger", &format!(".regent/audit, signed with {key}"));
    row("sandbox", &sandbox);
    for line in &found.lines {
        row("found", line);
    }
    if let Some(above) = &above {
        let above = term::inline(&above.root.display().to_string()).into_owned();
        row("above", &format!("{above} is a project too; in this folder its policy and ledger don't apply"));
    }
    text.push_str(&format!(
        "\nNext: {}, {}, {}, or read {}.\n",
        screen.strong("regent task run \"GOAL\""),
        screen.strong("regent run -- CMD…"),
        screen.strong("regent tool list"),
        names.join(", ")
    ));
    let data = json!({
        "folder": project.root.display().to_string(), "policies": policy.outline().iter().map(|one| json!({
            "name": one.name, "layer": one.layer, "mode": one.mode, "rules": one.rules})).collect::<Vec<_>>(),
        "wrote": {"user_policy": users, "project_policy": projects}, "ledger_key": key, "sandbox": sandbox, "found": found.data, "trusted": true,
        "above": above.map(|above| above.root.display().to_string()),
    });
    Ok(Done::new(data, text))
}

/// Everything may be there already, but without a ledger nothing runs.
fn demand_writable(project: &Project) -> Result<(), Failure> {
    let (folder, audit) = (project.folder(), project.audit());
    let folder = if audit.is_dir() { audit } else { folder };
    rustix::fs::accessat(CWD, &folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).map_err(
        |error| {
            Failure::io("write to", &folder, &error.into())
                .help("the ledger is kept there; make the folder writable")
        },
    )
}

/// Where everybody may write, as in `/tmp`, everybody's files would be in the workspace, and anyone could make its `.regent`.
fn demand_unshared(context: &Context, project: &Project) -> Result<(), Failure> {
    let root = &project.root;
    let meta = root.metadata().map_err(|error| Failure::io("look at", root, &error))?;
    let shown = term::inline(&root.display().to_string()).into_owned();
    match meta.mode() {
        mode if mode & STICKY != 0 && mode & OTHERS_WRITE != 0 => {
            let message =
                format!("`{shown}` can't be a workspace: all users of this machine can write to it");
            Err(Failure::new(codes::FOLDER_WIDE, message)
                .help("create a folder for your work, and run `regent init` there"))
        }
        mode if mode & OTHERS_WRITE != 0 => {
            context.screen.say(&format!(
                "regent: every user of this machine can write to {shown}; `chmod o-w` prevents that\n"
            ));
            Ok(())
        }
        _own => Ok(()),
    }
}

/// Control files that are already here came from somewhere: trusting each of them is the user's decision.
async fn agree(context: &Context, project: &Project) -> Result<(), Failure> {
    let offer = Offer::read(context, project)?;
    if !offer.is_foreign() {
        return Ok(());
    }
    let unasked = || {
        let message = format!("this folder already has {}; they need your trust", offer.names());
        Failure::new(codes::TERMINAL_NEEDED, message)
            .help("review them, then run `regent trust --yes`; `regent init --quick` sets up everything else and trusts none of them")
            .data(offer.to_json())
    };
    offer.ask(context, project, unasked).await?;
    offer.accept(context, project).map(drop)
}

/// What can be trusted without asking: what `regent init` wrote, and what was agreed to before. Anything else is left to the user.
fn own(context: &Context, project: &Project) -> Result<Offer, Failure> {
    let offer = Offer::read(context, project)?;
    if !offer.is_foreign() {
        return Ok(offer);
    }
    let message = format!(
        "Regent is set up, but this folder is not trusted: it already had {}, which nobody has reviewed",
        offer.names()
    );
    Err(Failure::new(codes::FOLDER_UNTRUSTED, message)
        .help("review them, then run `regent trust`")
        .data(offer.to_json()))
}

/// Writes a file unless there is one. Says whether it did.
fn write_if_absent(path: &Path, text: &str) -> Result<bool, Failure> {
    if paths::may_exist(path) {
        return Ok(false);
    }
    paths::write_private(path, text.as_bytes()).map(|()| true)
}

fn sandbox_word() -> String {
    let probe = regent_sandbox::probe();
    let memory = probe.findings.iter().find(|finding| finding.name == "memory limit" && !finding.ok);
    match (&probe.full, &probe.fallback) {
        (None, _) => match memory {
            None => "namespaces, Landlock and seccomp".to_owned(),
            Some(less) => format!("namespaces, Landlock and seccomp; {}", less.says),
        },
        (Some(closed), None) => {
            format!("Landlock and seccomp only ({}); for details run `regent doctor`", closed.reason)
        }
        (Some(closed), Some(_)) => {
            format!("not available: {}; for details run `regent doctor`", closed.reason)
        }
    }
}

/// What is here that agents could use.
#[derive(Debug)]
struct InitFindings {
    lines: Vec<String>,
    data: Value,
}

async fn look_around(root: &Path) -> InitFindings {
    let keys: Vec<&str> = KEY_NAMES
        .into_iter()
        .filter(|name| std::env::var_os(name).is_some_and(|set| !set.is_empty()))
        .collect();
    let servers = tokio::task::spawn_blocking(local_servers).await.unwrap_or_default();
    let mcp = mcp_servers(&root.join(".mcp.json"));
    let mut lines = Vec::new();
    if !keys.is_empty() {
        lines.push(format!("{} in the environment (hidden from sandboxed programs)", keys.join(", ")));
    }
    lines.extend(servers.iter().map(|(name, port)| format!("a server on {name}'s port, 127.0.0.1:{port}")));
    if let Some(names) = &mcp {
        let names: Vec<String> = names.iter().map(|name| term::short(name, 40)).collect();
        lines.push(format!(".mcp.json with {} servers: {}", names.len(), names.join(", ")));
    }
    if root.join("AGENTS.md").is_file() {
        lines.push("AGENTS.md".to_owned());
    }
    let servers: Vec<_> = servers.iter().map(|(name, port)| json!({"usually": name, "port": port})).collect();
    InitFindings { lines, data: json!({"keys": keys, "local_servers": servers, "mcp_servers": mcp}) }
}

#[expect(clippy::disallowed_methods, reason = "it looks for model servers on this machine")]
fn local_servers() -> Vec<(&'static str, u16)> {
    let answers = |port: u16| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        TcpStream::connect_timeout(&address, Duration::from_millis(CONNECT_MS_MAX)).is_ok()
    };
    LOCAL_SERVERS.into_iter().filter(|(_, port)| answers(*port)).collect()
}

/// The names of servers in an `.mcp.json`; nothing of it is started.
fn mcp_servers(path: &Path) -> Option<Vec<String>> {
    let bytes = controls::read_bounded(path, Links::Refused, MCP_FILE_BYTES_MAX).ok()?;
    let value = regent_ledger::canonical::parse(&bytes).ok();
    let servers = value.as_ref().and_then(|value| value.get("mcpServers")).and_then(Value::as_object);
    Some(servers.map(|servers| servers.keys().cloned().collect()).unwrap_or_default())
}
