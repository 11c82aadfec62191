//! `regent approve` and `regent deny`: questions that wait for an answer.

mod list;
mod receipt;

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use regent_kernel::{Answered, ApprovalAnswer, Op, OpenQuestion, Reader, Scope, TicketId};
use regent_ledger::{Entry, EntryKind};
use regent_wire::body::EntryBody;
use regent_wire::result::AnswerTaken;
use regent_wire::{AnswerCall, Status};
use serde_json::{Value, json};

use crate::calls;
use crate::codes;
use crate::commands::{agent, audit};
use crate::compose::BootedKernel;
use crate::context::Context;
use crate::covered::{self, Covered};
use crate::failure::{Failure, did_you_mean};
use crate::output::{CommandResult, Done, StdoutContent};
use crate::pager;
use crate::question::{self, Batch, Length, QuestionText};
use crate::settings;
use crate::term;

/// Letters of an id, and of a digest, that have to be typed.
const ID_LETTERS_MIN: usize = 4;
const DIGEST_LETTERS_MIN: usize = 8;
/// Calls and their outcomes in which an earlier answer is looked for.
const ENTRIES_LOOKED_AT_MAX: usize = 2_000;
/// The kernel's word for a question that is no longer open.
const GONE: &str = "approval.gone";
/// How often, and how long, an approval waits that came before its question can have been read.
const TOO_SOON_TRIES_MAX: u32 = 8;
const TOO_SOON_WAIT: Duration = Duration::from_millis(250);

/// Approve a pending call; without an id, list pending questions
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ApproveArgs {
    #[command(subcommand)]
    look: Option<ApproveCommand>,
    /// The question's id, or at least four letters of it
    #[arg(add = ArgValueCandidates::new(open_ids))]
    id: Option<String>,
    /// The digest below the question, or at least eight letters of it; needed if the short form left out parts of the call
    /// (`regent approve show ID --all` shows it in full, with the digest)
    #[arg(long, value_name = "SHA256", requires = "id")]
    digest: Option<String>,
    /// Approve although you haven't seen the call in full
    #[arg(long, requires = "id", conflicts_with = "digest")]
    unseen: bool,
    /// Approve only this call, not the others of the same question
    #[arg(long, requires = "id")]
    only: bool,
    /// Scope of the approval (only for this exact call)
    #[arg(long, value_enum, default_value = "once")]
    scope: ScopeWord,
    /// How long the approval is valid, e.g. 90s, 10m, 2h
    #[arg(long = "for", value_name = "TIME")]
    valid_for: Option<String>,
}

#[derive(Debug, Subcommand)]
enum ApproveCommand {
    /// List pending questions
    List,
    /// Show a question in full: the call with every argument, its diff, where its values come from, the files that an approval is
    /// bound to, the rule, and the smallest exception
    Show {
        /// The question's id, or at least four letters of it
        #[arg(add = ArgValueCandidates::new(open_ids))]
        id: String,
        /// Leave nothing out; on a terminal through `$PAGER`
        #[arg(long)]
        all: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ScopeWord {
    /// For one call
    Once,
    /// Any number of times in the session that asked
    Session,
    /// Any number of times in this project
    Project,
}

/// Deny a pending call
#[derive(Debug, Args)]
pub(crate) struct DenyArgs {
    /// The question's id
    #[arg(add = ArgValueCandidates::new(open_ids))]
    id: String,
    /// What the agent should do instead
    #[arg(long, value_name = "ADVICE")]
    because: Option<String>,
    /// Deny only this call, not the others of the same question
    #[arg(long)]
    only: bool,
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
        (Some(ApproveCommand::Show { id, all }), _) => {
            return show(context, &id, if all { Length::Whole } else { Length::Cut }).await;
        }
        (Some(ApproveCommand::List), _) | (None, None) => return list::list(context).await,
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
    let seen = match (args.digest, args.unseen) {
        (Some(digest), _) => ReadingProof::Digest(digest),
        (None, true) => ReadingProof::Unneeded,
        (None, false) => ReadingProof::AsShown,
    };
    let which = Which { id, only: args.only };
    answer(context, which, ApprovalAnswer::Approve { scope, valid_ms }, seen).await
}

/// Which questions are answered.
struct Which {
    id: String,
    /// Only the one, without those that are listed with it.
    only: bool,
}

/// What shows that the call was looked at.
enum ReadingProof {
    /// Nothing beyond the short form.
    AsShown,
    /// The digest below the whole of it was typed.
    Digest(String),
    /// The reviewer does without, or it is a denial.
    Unneeded,
}

pub(crate) async fn deny(context: &Context, args: DenyArgs) -> CommandResult {
    let which = Which { id: args.id, only: args.only };
    answer(context, which, ApprovalAnswer::Deny { because: args.because }, ReadingProof::Unneeded).await
}

/// A question as JSON, with what its exception would have covered.
fn question_json(question: &OpenQuestion, covered: &Option<Covered>) -> Value {
    let mut told = json!(question);
    if let Some(fields) = told.as_object_mut() {
        fields.insert("covered".to_owned(), json!(covered));
    }
    told
}

async fn show(context: &Context, id: &str, length: Length) -> CommandResult {
    let running = BootedKernel::boot(context).await?;
    let shown = look(context, &running, id, length).await;
    let mut shown = running.close(context, shown).await?;
    if length == Length::Whole
        && context.screen.interactive
        && let StdoutContent::Text(text) = &shown.shown
        && pager::page(text)
    {
        shown.shown = StdoutContent::Already;
    }
    Ok(shown)
}

async fn look(context: &Context, running: &BootedKernel, id: &str, length: Length) -> CommandResult {
    let open = open(context, running).await?;
    let one = meant(&open, id)?;
    let batch = Batch::up_to(&one, &open);
    let covered = covered::count(&Reader::on(running.host.ledger().storage()), &[&one]);
    let covered = covered.into_iter().next().flatten();
    let QuestionText { text, cut } = batch.view(&context.screen, &running.host, length);
    let elsewhere = match one.project == project_of(running) {
        true => String::new(),
        false => format!("  in another project: {}\n", term::inline(&one.project)),
    };
    let text = format!("{}\n{elsewhere}{text}", context.screen.strong(&term::inline(&one.id.0)));
    let call = question::AskedCall::read(&running.host, &one);
    let call = call.map(|call| json!({"tool": call.tool, "args": call.args}));
    let data = json!({
        "question": question_json(&one, &covered), "call": call, "cut": cut, "batch": ids(&batch), "digest": batch.digest(),
    });
    Ok(Done::new(data, text))
}

fn ids(batch: &Batch) -> Vec<&TicketId> {
    batch.questions().iter().map(|one| &one.id).collect()
}

/// The one question whose id begins like this. Four letters at least: fewer are a slip of the finger, not a choice.
fn meant(questions: &[OpenQuestion], id: &str) -> Result<OpenQuestion, Failure> {
    if id.chars().filter(char::is_ascii_alphanumeric).count() < ID_LETTERS_MIN {
        let message = format!("`{}` is too short for a question's id", term::inline(id));
        return Err(Failure::new(codes::USAGE, message)
            .help("give at least four letters of it; `regent approve list` shows pending questions"));
    }
    let mut meant = questions.iter().filter(|one| one.id.0.starts_with(id));
    match (meant.next(), meant.next()) {
        (Some(question), None) => Ok(question.clone()),
        (found, _) => {
            let id = term::inline(id);
            let message = match found {
                None => format!("no open question matches `{id}`"),
                Some(_) => format!("several open questions match `{id}`"),
            };
            let known = questions.iter().filter_map(|one| one.id.0.get(..id.len()));
            let help = did_you_mean(&id, known, "`regent approve list` shows pending questions");
            Err(Failure::new(codes::APPROVAL_UNKNOWN, message).help(help))
        }
    }
}

/// What became of a question that is no longer open, as the newest entries tell. What can't be read there tells nothing.
fn answered_before(context: &Context, running: &BootedKernel, id: &str) -> Option<Failure> {
    let reader = Reader::on(running.host.ledger().storage());
    let is_call = |kind: EntryKind| matches!(kind, EntryKind::Intent | EntryKind::Outcome);
    let newest = reader.tail_of(ENTRIES_LOOKED_AT_MAX, is_call).ok()?;
    let counted = |intent: &Entry, ticket: &str| {
        let is_its = |entry: &&Entry| match EntryBody::read(entry) {
            Ok(EntryBody::Outcome(outcome)) => {
                (entry.lane, outcome.intent, &*outcome.status) == (intent.lane, intent.seq, &Status::Ok)
            }
            Ok(_) | Err(_) => false,
        };
        let Some(outcome) = newest.iter().find(is_its) else { return false };
        // An answer to several may have skipped this one.
        let output = audit::payload_of(context, &reader, outcome).ok().flatten();
        let taken: Option<AnswerTaken> = serde_json::from_slice(&output.unwrap_or_default()).ok();
        let skipped = taken.and_then(|taken| taken.skipped).unwrap_or_default();
        !skipped.iter().any(|one| one.id.0 == ticket)
    };
    for intent in newest.iter().rev() {
        let Ok(EntryBody::Intent(body)) = EntryBody::read(intent) else { continue };
        if body.op != "approval.answer" {
            continue;
        }
        let Ok(Some(args)) = audit::payload_of(context, &reader, intent) else { continue };
        let Ok(args) = serde_json::from_slice::<AnswerCall>(&args) else { continue };
        let mut tickets = std::iter::once(&args.ticket).chain(&args.with).map(|ticket| ticket.0.as_str());
        let ticket = tickets.find(|ticket| ticket.starts_with(id));
        let Some(ticket) = ticket.filter(|ticket| counted(intent, ticket)) else { continue };
        let word = match args.answer {
            ApprovalAnswer::Approve { .. } => "approved",
            ApprovalAnswer::Deny { .. } | ApprovalAnswer::HostSays { .. } => "denied",
        };
        let by = body.caller.person().unwrap_or("somebody");
        let ago_ms = context.clock.now_ms().saturating_sub(intent.at_ms);
        let ago = term::span(u64::try_from(ago_ms).unwrap_or(0));
        let message =
            format!("question {} was {word} by {} {ago} ago", term::inline(ticket), term::inline(by));
        return Some(
            Failure::named(GONE, codes::exit_of(GONE), message)
                .help("a question can be answered once; `regent approve list` shows pending questions"),
        );
    }
    None
}

/// The project that this process works in, as questions name theirs.
fn project_of(running: &BootedKernel) -> String {
    running.host.workspace().root().to_string_lossy().into_owned()
}

/// A question of another project is answered there: only there are its call and its ledger to be seen.
fn is_here(running: &BootedKernel, question: &OpenQuestion) -> Result<(), Failure> {
    if question.project == project_of(running) {
        return Ok(());
    }
    let (id, project) = (term::inline(&question.id.0), term::inline(&question.project));
    let message = format!("question {id} belongs to another project: {project}");
    Err(Failure::new(codes::APPROVAL_ELSEWHERE, message)
        .help(format!("review and answer it there: `regent -C '{project}' approve show {id}`")))
}

/// Whether the reviewer can have seen all of what they approve.
fn is_seen(
    context: &Context,
    running: &BootedKernel,
    batch: &Batch,
    seen: &ReadingProof,
) -> Result<(), Failure> {
    let id = batch.last().map(|last| term::inline(&last.id.0)).unwrap_or_default();
    match seen {
        ReadingProof::Unneeded => Ok(()),
        ReadingProof::Digest(typed) => {
            let digest = batch.digest().map(|digest| digest.to_string()).unwrap_or_default();
            if typed.len() >= DIGEST_LETTERS_MIN && digest.starts_with(typed.as_str()) {
                return Ok(());
            }
            let message = format!("`{}` is not the digest of question {id}", term::inline(typed));
            Err(Failure::new(codes::APPROVAL_UNSEEN, message).help(format!(
                "`regent approve show {id} --all` shows it at the end; give at least {DIGEST_LETTERS_MIN} letters"
            )))
        }
        ReadingProof::AsShown => {
            if !batch.view(&context.screen, &running.host, Length::Cut).cut {
                return Ok(());
            }
            let message = format!("the short form of question {id} left out parts of the call");
            Err(Failure::new(codes::APPROVAL_UNSEEN, message).help(format!(
                "`regent approve show {id} --all` shows it in full; then pass the digest below it with `--digest`, or pass `--unseen`"
            )))
        }
    }
}

/// Refuses an approval for sessions that have ended: nothing would ever use it. A session lasts as long as its kernel.
async fn session_lasts(context: &Context, batch: &Batch) -> Result<(), Failure> {
    let found = agent::processes(&context.paths).await?;
    let lasts = |session: &str| found.peers.iter().any(|peer| peer.hello().session == session);
    // A kernel that doesn't answer may be the one that asked.
    if !found.silent.is_empty() || batch.questions().iter().any(|one| lasts(&one.session)) {
        return Ok(());
    }
    let id = batch.last().map(|last| term::inline(&last.id.0)).unwrap_or_default();
    Err(Failure::new(codes::APPROVAL_SESSION, format!("the session that asked question {id} has ended"))
        .help(format!("use `--scope project`, or approve the one call: `regent approve {id}`")))
}

async fn open(context: &Context, running: &BootedKernel) -> Result<Vec<OpenQuestion>, Failure> {
    let outcome = calls::call(context, running, &running.caller(), Op::Questions).await?;
    calls::result(&outcome)
}

async fn answer(
    context: &Context,
    which: Which,
    answer: ApprovalAnswer,
    seen: ReadingProof,
) -> CommandResult {
    let running = BootedKernel::boot(context).await?;
    let result = give(context, &running, &which, answer, &seen).await;
    running.close(context, result).await
}

async fn give(
    context: &Context,
    running: &BootedKernel,
    which: &Which,
    answer: ApprovalAnswer,
    seen: &ReadingProof,
) -> CommandResult {
    let open = open(context, running).await?;
    let question = match meant(&open, &which.id) {
        Err(unknown) if unknown.code == codes::APPROVAL_UNKNOWN.id => {
            return Err(answered_before(context, running, &which.id).unwrap_or(unknown));
        }
        meant => meant?,
    };
    is_here(running, &question)?;
    let batch = if which.only { Batch::alone(question.clone()) } else { Batch::up_to(&question, &open) };
    is_seen(context, running, &batch, seen)?;
    if let ApprovalAnswer::Approve { scope: Scope::Session, .. } = answer {
        session_lasts(context, &batch).await?;
    }
    let told = taken(context, running, &batch, &answer).await?;
    let id = term::inline(&question.id.0);
    let by = running.caller().display_name().to_owned();
    let data =
        json!({"question": question, "batch": ids(&batch), "answer": answer, "by": by, "result": told});
    let word = match told.standing {
        Answered::Approved => context.screen.good("approved"),
        Answered::Denied { .. } => context.screen.bad("denied"),
        // Not a success: nothing can be done with it yet.
        Answered::Waiting { agreed, needed } => {
            let message = format!(
                "waiting, {agreed} of {needed}: your approval of {id} is recorded, others must approve too"
            );
            return Err(Failure::new(codes::APPROVAL_WAITING, message)
                .help(format!("another person can approve with `regent approve {id}`"))
                .data(data));
        }
        Answered::Gone => {
            return Err(Failure::new(codes::APPROVAL_UNKNOWN, format!("question {id} is closed")).data(data));
        }
    };
    Ok(Done::new(data, receipt::text(&word, &by, &batch, &told.skipped.unwrap_or_default())))
}

/// Gives the answer. A command is typed after its question by nature; where it still comes too soon (a script), it waits.
async fn taken(
    context: &Context,
    running: &BootedKernel,
    batch: &Batch,
    answer: &ApprovalAnswer,
) -> Result<AnswerTaken, Failure> {
    let calls = u32::try_from(batch.questions().len()).unwrap_or(u32::MAX);
    let mut tries_left = TOO_SOON_TRIES_MAX.saturating_mul(calls);
    loop {
        let op = batch.answered_by(answer.clone());
        let outcome = calls::call(context, running, &running.caller(), op).await?;
        match calls::result(&outcome) {
            Err(failure) if failure.code == calls::TOO_SOON && tries_left > 0 => tries_left -= 1,
            told => return told,
        }
        tokio::time::sleep(TOO_SOON_WAIT).await;
    }
}

/// Ids of open questions, for completion. What can't be read completes nothing.
fn open_ids() -> Vec<CompletionCandidate> {
    let asked = || -> Option<Vec<OpenQuestion>> {
        let global = crate::cli::Global::for_completion();
        let context = Context::new(&global, "regent.complete").ok()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(async {
            let running = BootedKernel::boot(&context).await.ok()?;
            let questions = open(&context, &running).await;
            running.close(&context, questions).await.ok()
        })
    };
    let questions = asked().unwrap_or_default().into_iter();
    questions
        .map(|one| CompletionCandidate::new(one.id.0).help(Some(term::short(&one.summary, 60).into())))
        .collect()
}
