//! `regent vault`: secrets that agents can use and not see. A value is typed or comes on stdin, never on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use regent_vault::{
    Listed, Scope, Short, VALUE_BYTES_FORCED_MIN, VALUE_BYTES_MAX, VALUE_BYTES_MIN, Vault, import,
};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::secrets::{self, failed};
use crate::term;

/// Store secrets that agents can use but not see
#[derive(Debug, Subcommand)]
pub(crate) enum VaultCommand {
    /// Add a secret; prompts for the value, or reads it from stdin
    Add {
        /// Its name; tools get the handle secret://NAME
        name: String,
        #[command(flatten)]
        scope: ScopeArgs,
        #[command(flatten)]
        short: ShortArg,
    },
    /// List secrets without their values
    List,
    /// Remove a secret with all its values
    Remove {
        /// Its name
        name: String,
    },
    /// Give a secret a new value; old values stay masked
    Rotate {
        /// Its name
        name: String,
        #[command(flatten)]
        short: ShortArg,
    },
    /// Import a .env file, or a SOPS file encrypted for an age key
    Import {
        /// The file
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
        /// Prefix of every name, e.g. myproject/
        #[arg(long, default_value = "")]
        prefix: String,
        /// The age keys for a SOPS file [default: ~/.config/sops/age/keys.txt]
        #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        identity: Option<PathBuf>,
        #[command(flatten)]
        scope: ScopeArgs,
        #[command(flatten)]
        short: ShortArg,
    },
    /// Lock the vault with a passphrase instead of the key beside it
    Passphrase {
        /// Use the key beside it again
        #[arg(long)]
        remove: bool,
    },
}

/// Where a secret may be used. Policy alone decides about the rest.
#[derive(Debug, Args)]
pub(crate) struct ScopeArgs {
    /// A tool that may use it, with `*` as a wildcard; repeatable
    #[arg(long = "tool", value_name = "PATTERN")]
    tools: Vec<String>,
    /// An agent that may use it; name its ancestors as well
    #[arg(long = "agent", value_name = "PATTERN")]
    agents: Vec<String>,
    /// A host that it may be sent to: example.com, *.example.com
    #[arg(long = "host", value_name = "PATTERN")]
    hosts: Vec<String>,
}

/// Whether short values are taken.
#[derive(Debug, Args)]
pub(crate) struct ShortArg {
    /// Accept secrets shorter than 8 bytes (other text may be masked too)
    #[arg(long)]
    force: bool,
}

impl ShortArg {
    fn short(&self) -> Short {
        if self.force { Short::Allowed } else { Short::Refused }
    }
}

impl VaultCommand {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Add { .. } => "vault.add",
            Self::List => "vault.list",
            Self::Remove { .. } => "vault.remove",
            Self::Rotate { .. } => "vault.rotate",
            Self::Import { .. } => "vault.import",
            Self::Passphrase { .. } => "vault.passphrase",
        }
    }
}

pub(crate) fn run(context: &Context, command: VaultCommand) -> CommandResult {
    context.paths.make()?;
    let vault = secrets::vault(context)?;
    let now_ms = context.clock.now_ms();
    match command {
        VaultCommand::Add { name, scope, short } => {
            let scope = scope_of(scope);
            let value =
                secrets::value(context, &format!("Value of {}: ", term::inline(&name)), VALUE_BYTES_MAX)?;
            vault.add(&name, value, scope.clone(), short.short(), now_ms).map_err(failed)?;
            let text =
                format!("added {name}; give tools the handle secret://{name}{}\n", render_scope(&scope));
            Ok(Done::new(json!({"name": name, "handle": handle(&name), "scope": scope}), text))
        }
        VaultCommand::List => list(&vault),
        VaultCommand::Remove { name } => {
            vault.remove(&name).map_err(failed)?;
            Ok(Done::new(json!({"name": name}), format!("removed {name}\n")))
        }
        VaultCommand::Rotate { name, short } => {
            let value =
                secrets::value(context, &format!("New value of {}: ", term::inline(&name)), VALUE_BYTES_MAX)?;
            let versions = vault.rotate(&name, value, short.short(), now_ms).map_err(failed)?;
            Ok(Done::new(json!({"name": name, "versions": versions}), format!("{name} has a new value\n")))
        }
        VaultCommand::Import { file, prefix, identity, scope, short } => {
            let (text, keys) = files(context, &file, identity)?;
            let least = if short.force { VALUE_BYTES_FORCED_MIN } else { VALUE_BYTES_MIN };
            let found = import::read(&text, &keys, &prefix, least).map_err(failed)?;
            take_in(&vault, found, &scope_of(scope), short.short(), now_ms)
        }
        VaultCommand::Passphrase { remove } => {
            let passphrase = if remove { None } else { Some(secrets::new_passphrase(context)?) };
            vault.relock(passphrase).map_err(failed)?;
            let text = if remove {
                "the vault opens with the key beside it\n"
            } else {
                "the vault opens only with the passphrase\n"
            };
            Ok(Done::new(json!({"passphrase": !remove}), text))
        }
    }
}

fn list(vault: &Vault) -> CommandResult {
    let all = vault.list().map_err(failed)?;
    let mut text = String::new();
    for Listed { name, scope, versions, .. } in &all {
        let versions = if *versions > 1 { format!("  {versions} versions") } else { String::new() };
        text.push_str(&format!("secret://{name}{}{versions}\n", render_scope(scope)));
    }
    if all.is_empty() {
        text.push_str("the vault is empty; `regent vault add NAME` adds a secret\n");
    }
    let rows: Vec<Value> = all
        .iter()
        .map(|one| json!({"name": one.name, "handle": handle(&one.name), "scope": one.scope, "versions": one.versions, "added_ms": one.added_ms}))
        .collect();
    Ok(Done::new(json!({"secrets": rows}), text))
}

fn take_in(
    vault: &Vault,
    found: import::Imported,
    scope: &Scope,
    short: Short,
    now_ms: i64,
) -> CommandResult {
    let import::Imported { values, left_out } = found;
    let names: Vec<String> = values.iter().map(|(name, _)| name.clone()).collect();
    let there = vault.import(values, scope, short, now_ms).map_err(failed)?;
    let new: Vec<&String> = names.iter().filter(|name| !there.contains(name)).collect();
    let mut text = String::new();
    for name in &new {
        text.push_str(&format!("secret://{name}\n"));
    }
    for name in &there {
        text.push_str(&format!("{name} already exists and is unchanged\n"));
    }
    for name in &left_out {
        text.push_str(&format!("skipped {name}: its value is missing or too short\n"));
    }
    if !new.is_empty() {
        text.push_str("the file still contains the values; remove it when nothing else needs it\n");
    }
    Ok(Done::new(json!({"added": new, "there": there, "left_out": left_out}), text))
}

/// The file of secrets, and the age keys that may open it.
fn files(
    context: &Context,
    file: &std::path::Path,
    identity: Option<PathBuf>,
) -> Result<(Zeroizing<String>, Zeroizing<String>), Failure> {
    let read = |path: &std::path::Path| -> Result<Zeroizing<String>, Failure> {
        let path = context.cwd.join(path);
        let failed = |error: &std::io::Error| Failure::io("read", &path, error);
        let size = std::fs::metadata(&path).map_err(|error| failed(&error))?.len();
        if size > import::FILE_BYTES_MAX {
            return Err(Failure::new(codes::INPUT_SIZE, format!("`{}` is too large", path.display())));
        }
        std::fs::read_to_string(&path).map(Zeroizing::new).map_err(|error| failed(&error))
    };
    let text = read(file)?;
    let usual = context.paths.config.parent().map(|config| config.join("sops/age/keys.txt"));
    let keys = match (identity, usual) {
        (Some(named), _) => read(&named)?,
        (None, Some(usual)) if usual.is_file() => read(&usual)?,
        (None, _) => Zeroizing::default(),
    };
    Ok((text, keys))
}

fn scope_of(args: ScopeArgs) -> Scope {
    Scope { tools: args.tools, agents: args.agents, hosts: args.hosts }
}

fn handle(name: &str) -> String {
    format!("secret://{name}")
}

fn render_scope(scope: &Scope) -> String {
    let part = |word: &str, list: &[String]| {
        if list.is_empty() { String::new() } else { format!("  {word}: {}", list.join(" ")) }
    };
    format!("{}{}{}", part("tools", &scope.tools), part("agents", &scope.agents), part("hosts", &scope.hosts))
}
