//! `regent approve` and `regent deny`: questions that wait for a person.

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use regent_kernel::{Answer, Op, OpenQuestion, Scope, TicketId};
use serde_json::{Value, json};

use crate::calls;
use crate::codes;
use crate::compose::Running;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::settings;
use crate::term;

/// Answer a question with yes, or list the questions that wait
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(crate) struct ApproveArgs {
    #[command(subcommand)]
    list: Option<ApproveCommand>,
    /// The question's id
    #[arg(add = ArgValueCandidates::new(open_ids))]
    id: Option<String>,
    /// How far the yes goes; always for exactly the same call
    #[arg(long, value_enum, default_value = "once")]
    scope: ScopeWord,
    /// How long it holds, e.g. 90s, 10m, 2h
    #[arg(long = "for", value_name = "TIME")]
    valid_for: Option<String>,
}

#[derive(Debug, Subcommand)]
enum ApproveCommand {
    /// List the questions that wait for a person
    List,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ScopeWord {
    /// For one call
    Once,
    /// As often as wanted in the session that asked
    Session,
    /// As often as wanted in this project
    Project,
}

/// Answer a question with no
#[derive(Debug, Args)]
pub(crate) struct DenyArgs {
    /// The question's id
    #[arg(add = ArgValueCandidates::new(open_ids))]
    id: String,
    /// What the agent should do instead
    #[arg(long, value_name = "ADVICE")]
    because: Option<String>,
}

impl ApproveArgs {
    pub(crate) fn word(&self) -> &'static str {
        if self.list.is_some() { "approve.list" } else { "approve" }
    }
}

pub(crate) async fn approve(context: &Context, args: ApproveArgs) -> CommandResult {
    let (Some(id), None) = (args.id, args.list) else { return list(context).await };
    let valid_ms = match &args.valid_for {
        None => context.settings.approve_valid_ms(),
        Some(text) => settings::duration_ms(text).filter(|ms| *ms > 0).ok_or_else(|| {
            Failure::new(codes::USAGE, format!("`{text}` is not a time"))
                .help("give a time such as 90s, 10m, 2h or 1d")
        })?,
    };
    let scope = match args.scope {
        ScopeWord::Once => Scope::Once,
        ScopeWord::Session => Scope::Session,
        ScopeWord::Project => Scope::Project,
    };
    answer(context, id, Answer::Approve { scope, valid_ms }).await
}

pub(crate) async fn deny(context: &Context, args: DenyArgs) -> CommandResult {
    answer(context, args.id, Answer::Deny { because: args.because }).await
}

async fn list(context: &Context) -> CommandResult {
    let running = Running::boot(context).await?;
    let questions = open(context, &running).await;
    let questions = running.close(context, questions).await?;
    let mut text = String::new();
    for one in &questions {
        let left_s = one.expires_at_ms.saturating_sub(context.clock.now_ms()).max(0) / 1000;
        text.push_str(&format!(
            "{}  {}  by {}, rule {}: {}\n      {}\n",
            context.screen.strong(&term::inline(&one.id.0)),
            context.screen.faint(&format!("{left_s}s left")),
            term::short(&one.caller, 40),
            term::inline(&one.rule),
            term::inline(&one.reason),
            term::block(&one.summary).replace('\n', "\n      "),
        ));
    }
    if questions.is_empty() {
        text.push_str("nothing waits for you\n");
    }
    Ok(Done::new(json!({"questions": questions}), text))
}

async fn open(context: &Context, running: &Running) -> Result<Vec<OpenQuestion>, Failure> {
    let outcome = calls::call(context, running, &running.kernel.operator(), Op::Questions).await?;
    serde_json::from_value(calls::result_json(&outcome)?)
        .map_err(|error| Failure::new(codes::INTERNAL, format!("the questions can't be read: {error}")))
}

async fn answer(context: &Context, id: String, answer: Answer) -> CommandResult {
    let running = Running::boot(context).await?;
    let result = give(context, &running, &id, answer).await;
    running.close(context, result).await
}

async fn give(context: &Context, running: &Running, id: &str, answer: Answer) -> CommandResult {
    // A prefix will do if it is nobody else's.
    let questions = open(context, running).await?;
    let mut meant = questions.iter().filter(|one| one.id.0.starts_with(id));
    let (Some(question), None) = (meant.next(), meant.next()) else {
        return Err(Failure::new(codes::APPROVAL_UNKNOWN, format!("there is no one open question `{id}`"))
            .help("`regent approve list` shows those that wait"));
    };
    let word = if matches!(answer, Answer::Approve { .. }) {
        context.screen.good("approved")
    } else {
        context.screen.bad("denied")
    };
    let ticket = TicketId(question.id.0.clone());
    let op = Op::Answer { ticket, answer: answer.clone() };
    let outcome = calls::call(context, running, &running.kernel.operator(), op).await?;
    let told: Value = calls::result_json(&outcome)?;
    let summary = term::block(&question.summary).replace('\n', "\n  ");
    let text = format!("{word} {}\n  {summary}\n", term::inline(&question.id.0));
    Ok(Done::new(json!({"question": question, "answer": answer, "result": told}), text))
}

/// Ids of open questions, for completion. What can't be read completes nothing.
fn open_ids() -> Vec<CompletionCandidate> {
    let asked = || -> Option<Vec<OpenQuestion>> {
        let global = crate::cli::Global { json: true, no_color: true, dir: None, passphrase_fd: None };
        let context = Context::new(&global, "regent.complete").ok()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(async {
            let running = Running::boot(&context).await.ok()?;
            let questions = open(&context, &running).await;
            running.close(&context, questions).await.ok()
        })
    };
    let questions = asked().unwrap_or_default().into_iter();
    questions
        .map(|one| CompletionCandidate::new(one.id.0).help(Some(term::short(&one.summary, 60).into())))
        .collect()
}
