//! The commands, gathered. Each command's own arguments and help are in its file under `commands/`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    agent, approve, audit, budget, completions, config, cost, demo, doctor, explain, gc, init, judge, man,
    model, policy, run, sandbox, skill, task, tool, trust, vault,
};

/// Govern what agents do: every act is judged by policy, run in a sandbox, and written to a ledger that anyone can verify.
#[derive(Debug, Parser)]
#[command(name = "regent", version, max_term_width = 100)]
#[command(after_help = "Start with `regent demo`, then `regent init` in a folder of yours.")]
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
    /// Act as if started in this folder
    #[arg(short = 'C', long = "dir", global = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
    /// Read the vault's passphrase from this open descriptor
    #[arg(long, global = true, value_name = "N")]
    pub(crate) passphrase_fd: Option<u32>,
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::DemoArgs),
    Init(init::InitArgs),
    Trust(trust::TrustArgs),
    Run(run::RunArgs),
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

impl Cli {
    /// The word that this command's JSON is marked with.
    pub(crate) fn schema(&self) -> String {
        let word = match &self.command {
            None => "next",
            Some(Command::Demo(_)) => "demo",
            Some(Command::Init(_)) => "init",
            Some(Command::Trust(_)) => "trust",
            Some(Command::Run(_)) => "run",
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
