//! The commands, gathered. Each command's own arguments and help are in its file under `commands/`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    agent, approve, audit, budget, chat, completions, config, cost, demo, doctor, explain, gc, init, judge,
    man, model, policy, run, sandbox, skill, task, token, tool, trust, vault, whoami,
};

/// Govern AI agents: policy judges every call, a sandbox runs it, and a verifiable ledger records it
#[derive(Debug, Parser)]
#[command(name = "regent", version, max_term_width = 100)]
#[command(after_help = "Start with `regent demo`, then run `regent init` in a project folder.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Flags of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print without colours
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Run as if started in this folder
    #[arg(short = 'C', long = "dir", global = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
    /// Read the vault passphrase from this file descriptor
    #[arg(long, global = true, value_name = "N")]
    pub(crate) passphrase_fd: Option<u32>,
    /// Act as the principal that the token in this file stands for; `-` reads it from stdin. The file must be yours alone (mode 0600)
    #[arg(long, global = true, value_name = "FILE", env = "REGENT_TOKEN_FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// The same, read from this file descriptor
    #[arg(long, global = true, value_name = "N", conflicts_with = "token_file")]
    pub(crate) token_fd: Option<u32>,
}

impl Global {
    /// The flags of a program that completes words.
    pub(crate) fn for_completion() -> Self {
        Self { json: true, no_color: true, dir: None, passphrase_fd: None, token_file: None, token_fd: None }
    }
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::DemoArgs),
    Init(init::InitArgs),
    Trust(trust::TrustArgs),
    Run(run::RunArgs),
    Chat(chat::ChatArgs),
    #[command(subcommand)]
    Task(task::TaskCommand),
    #[command(subcommand)]
    Tool(tool::ToolCommand),
    #[command(subcommand)]
    Skill(skill::SkillCommand),
    #[command(subcommand)]
    Model(model::ModelCommand),
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    #[command(subcommand)]
    Agent(agent::AgentCommand),
    Approve(approve::ApproveArgs),
    Deny(approve::DenyArgs),
    #[command(subcommand)]
    Cost(cost::CostCommand),
    #[command(subcommand)]
    Budget(budget::BudgetCommand),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    #[command(subcommand)]
    Vault(vault::VaultCommand),
    #[command(subcommand)]
    Token(token::TokenCommand),
    Whoami(whoami::WhoamiArgs),
    Judge(judge::JudgeArgs),
    Doctor(doctor::DoctorArgs),
    Gc(gc::GcArgs),
    #[command(subcommand)]
    Sandbox(sandbox::SandboxCommand),
    Completions(completions::CompletionsArgs),
    Explain(explain::ExplainArgs),
    #[command(hide = true)]
    Man(man::ManArgs),
}

impl Command {
    /// Whether all that it does goes through the kernel, so that a token can say who does it. The others work on the user's own files.
    pub(crate) fn takes_token(&self) -> bool {
        match self {
            Self::Run(_)
            | Self::Chat(_)
            | Self::Task(_)
            | Self::Tool(_)
            | Self::Agent(_)
            | Self::Approve(_)
            | Self::Deny(_)
            | Self::Budget(_)
            | Self::Token(_)
            | Self::Whoami(_)
            | Self::Judge(_)
            | Self::Gc(_) => true,
            Self::Policy(command) => command.takes_token(),
            Self::Demo(_)
            | Self::Init(_)
            | Self::Trust(_)
            | Self::Skill(_)
            | Self::Model(_)
            | Self::Audit(_)
            | Self::Cost(_)
            | Self::Config(_)
            | Self::Vault(_)
            | Self::Doctor(_)
            | Self::Sandbox(_)
            | Self::Completions(_)
            | Self::Explain(_)
            | Self::Man(_) => false,
        }
    }
}

impl Command {
    /// Whether it runs although the settings have a mistake: it finds the mistake, explains it or corrects it.
    pub(crate) fn helps_with_settings(&self) -> bool {
        matches!(
            self,
            Self::Doctor(_)
                | Self::Explain(_)
                | Self::Config(_)
                | Self::Completions(_)
                | Self::Man(_)
                | Self::Trust(_)
        )
    }
}

impl Cli {
    /// The word that this command's JSON is marked with.
    pub(crate) fn schema(&self) -> String {
        let word = match &self.command {
            None => "next",
            Some(Command::Demo(_)) => "demo",
            Some(Command::Init(_)) => "init",
            Some(Command::Trust(_)) => "trust",
            Some(Command::Run(_)) => "run",
            Some(Command::Chat(_)) => "chat",
            Some(Command::Task(command)) => command.word(),
            Some(Command::Tool(command)) => command.word(),
            Some(Command::Skill(command)) => command.word(),
            Some(Command::Model(command)) => command.word(),
            Some(Command::Policy(command)) => command.word(),
            Some(Command::Audit(command)) => command.word(),
            Some(Command::Agent(command)) => command.word(),
            Some(Command::Approve(args)) => args.word(),
            Some(Command::Deny(_)) => "deny",
            Some(Command::Cost(command)) => command.word(),
            Some(Command::Budget(command)) => command.word(),
            Some(Command::Config(command)) => command.word(),
            Some(Command::Vault(command)) => command.word(),
            Some(Command::Token(command)) => command.word(),
            Some(Command::Whoami(_)) => "whoami",
            Some(Command::Judge(_)) => "judge",
            Some(Command::Doctor(_)) => "doctor",
            Some(Command::Gc(_)) => "gc",
            Some(Command::Sandbox(command)) => command.word(),
            Some(Command::Completions(_)) => "completions",
            Some(Command::Explain(_)) => "explain",
            Some(Command::Man(_)) => "man",
        };
        format!("regent.{word}")
    }
}
