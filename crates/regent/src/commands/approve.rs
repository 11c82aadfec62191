//! `regent approve` and `regent deny`: questions that wait for a person.

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use regent_kernel::{Answer, Op, OpenQuestion, Reader, Scope, TicketId};
use serde_json::{Value, json};

use crate::calls;
use crate::codes;
use crate::compose::Running;
use crate::context::Context;
use crate::covered::{self, Covered};
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::question;
use crate::settings;
use crate::term;

/// Answer a question with yes, or list the questions that wait
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(crate) struct ApproveArgs {
    #[command(subcommand)]
    look: Option<ApproveCommand>,
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
    /// Show a question whole: the call and what it would change, where its values come from, the rule, and the smallest exception to it
    Show {
        /// The question's id
        #[arg(add = ArgValueCandidates::new(open_ids))]
        id: String,
    },
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
        match self.look {
            Some(ApproveCommand::List) => "approve.list",
            Some(ApproveCommand::Show { .. }) => "approve.show",
            None => "approve",
        }
    }
}

pub(crate) async fn approve(context: &Context, args: ApproveArgs) -> CommandResult {
    let id = match (args.look, args.id) {
        (None, Some(id)) => id,
        (Some(ApproveCommand::Show { id }), _) => return show(context, &id).await,
        (Some(ApproveCommand::List), _) | (None, None) => return list(context).await,
    };
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
    let reader = Reader::on(running.host.ledger().storage());
    let questions = running.close(context, questions).await?;
    let covered = covered::count(&reader, &questions.iter().collect::<Vec<_>>());
    let mut text = String::new();
    for (one, covered) in questions.iter().zip(&covered) {
        let left_s = one.expires_at_ms.saturating_sub(context.clock.now_ms()).max(0) / 1000;
        let line = one.rule_at.as_ref().map(|at| format!(", line {}", at.line)).unwrap_or_default();
        text.push_str(&format!(
            "{}  {}  by {}, rule {}{line}: {}\n      {}\n",
            context.screen.strong(&term::inline(&one.id.0)),
            context.screen.faint(&format!("{left_s}s left")),
            term::short(&one.caller, 40),
            term::inline(&one.rule),
            term::inline(&one.reason),
            term::block(&one.summary).replace('\n', "\n      "),
        ));
        for traced in one.origins.iter().filter(|traced| traced.sink) {
            let from = format!("{} is from {}", traced.argument, traced.from);
            text.push_str(&format!("      {}\n", term::inline(&from)));
        }
        if let Some(covered) = covered {
            let line = format!("      the smallest exception: {}\n", covered.line());
            text.push_str(&context.screen.faint(&line));
        }
    }
    match questions.first().and_then(|one| Some((one.attention.as_ref()?, one.read_ms))) {
        Some((attention, read_ms)) => text.push_str(&question::meter(&context.screen, attention, read_ms)),
        None => text.push_str("nothing waits for you\n"),
    }
    let listed: Vec<Value> =
        questions.iter().zip(&covered).map(|(one, covered)| told(one, covered)).collect();
    Ok(Done::new(json!({"questions": listed}), text))
}

/// A question as JSON, with what its exception would have covered.
fn told(question: &OpenQuestion, covered: &Option<Covered>) -> Value {
    let mut told = json!(question);
    if let Some(fields) = told.as_object_mut() {
        fields.insert("covered".to_owned(), json!(covered));
    }
    told
}

async fn show(context: &Context, id: &str) -> CommandResult {
    let running = Running::boot(context).await?;
    let shown = look(context, &running, id).await;
    running.close(context, shown).await
}

async fn look(context: &Context, running: &Running, id: &str) -> CommandResult {
    let one = meant(open(context, running).await?, id)?;
    let covered = covered::count(&Reader::on(running.host.ledger().storage()), &[&one]);
    let covered = covered.into_iter().next().flatten();
    let whole = question::text(&context.screen, &running.host, &one, covered.as_ref());
    let text = format!("{}\n{whole}", context.screen.strong(&term::inline(&one.id.0)));
    let call = question::Asked::read(&running.host, &one);
    let call = call.map(|call| json!({"tool": call.tool, "args": call.args}));
    Ok(Done::new(json!({"question": told(&one, &covered), "call": call}), text))
}

/// The one question whose id begins like this: a prefix will do if it is nobody else's.
fn meant(questions: Vec<OpenQuestion>, id: &str) -> Result<OpenQuestion, Failure> {
    let mut meant = questions.into_iter().filter(|one| one.id.0.starts_with(id));
    match (meant.next(), meant.next()) {
        (Some(question), None) => Ok(question),
        (Some(_) | None, _) => {
            Err(Failure::new(codes::APPROVAL_UNKNOWN, format!("there is no one open question `{id}`"))
                .help("`regent approve list` shows those that wait"))
        }
    }
}

async fn open(context: &Context, running: &Running) -> Result<Vec<OpenQuestion>, Failure> {
    let outcome = calls::call(context, running, &running.host.operator(), Op::Questions).await?;
    serde_json::from_value(calls::result_json(&outcome)?)
        .map_err(|error| Failure::new(codes::INTERNAL, format!("the questions can't be read: {error}")))
}

async fn answer(context: &Context, id: String, answer: Answer) -> CommandResult {
    let running = Running::boot(context).await?;
    let result = give(context, &running, &id, answer).await;
    running.close(context, result).await
}

async fn give(context: &Context, running: &Running, id: &str, answer: Answer) -> CommandResult {
    let question = meant(open(context, running).await?, id)?;
    let word = if matches!(answer, Answer::Approve { .. }) {
        context.screen.good("approved")
    } else {
        context.screen.bad("denied")
    };
    let ticket = TicketId(question.id.0.clone());
    let op = Op::Answer { ticket, answer: answer.clone() };
    let outcome = calls::call(context, running, &running.host.operator(), op).await?;
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
