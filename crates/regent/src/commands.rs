//! One file per command.

pub(crate) mod agent;
pub(crate) mod approve;
pub(crate) mod audit;
pub(crate) mod budget;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cost;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod gc;
pub(crate) mod init;
pub(crate) mod judge;
pub(crate) mod man;
pub(crate) mod model;
pub(crate) mod next;
pub(crate) mod policy;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod skill;
pub(crate) mod task;
pub(crate) mod token;
pub(crate) mod tool;
pub(crate) mod trust;
pub(crate) mod vault;
pub(crate) mod whoami;

use crate::cli::Command;
use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::CommandResult;

/// Runs the command that was given; without one, says what to do next.
pub(crate) async fn run(context: &Context, command: Option<Command>) -> CommandResult {
    let Some(command) = command else {
        return match chat::alone(context).await {
            Some(result) => result,
            None => next::run(context),
        };
    };
    if context.token.is_some() && !command.takes_token() {
        let message = "this command works on your own files, so it takes no token";
        return Err(Failure::new(codes::USAGE, message).help("run it without --token-file and --token-fd"));
    }
    match command {
        Command::Demo(args) => demo::run(context, &args).await,
        Command::Init(args) => init::run(context, &args).await,
        Command::Trust(args) => trust::run(context, &args).await,
        Command::Run(args) => run::run(context, args).await,
        Command::Chat(args) => chat::run(context, args).await,
        Command::Task(command) => task::run(context, command).await,
        Command::Tool(command) => tool::run(context, command).await,
        Command::Skill(command) => skill::run(context, command).await,
        Command::Model(command) => model::run(context, command).await,
        Command::Policy(command) => policy::run(context, command).await,
        Command::Audit(command) => audit::run(context, command).await,
        Command::Agent(command) => agent::run(context, command).await,
        Command::Approve(args) => approve::approve(context, args).await,
        Command::Deny(args) => approve::deny(context, args).await,
        Command::Cost(command) => cost::run(context, &command),
        Command::Budget(command) => budget::run(context, command).await,
        Command::Config(command) => config::run(context, &command),
        Command::Token(command) => token::run(context, command).await,
        Command::Whoami(_) => whoami::run(context).await,
        Command::Judge(args) => judge::run(context, args).await,
        Command::Doctor(args) => doctor::run(context, &args).await,
        Command::Gc(args) => gc::run(context, &args).await,
        Command::Sandbox(command) => sandbox::run(context, &command).await,
        Command::Completions(args) => completions::run(&args),
        Command::Explain(args) => explain::run(context, &args),
        Command::Vault(command) => vault::run(context, command),
        Command::Man(args) => man::run(&args),
    }
}
