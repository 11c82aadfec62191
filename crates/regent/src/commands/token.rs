//! `regent token`: access tokens of people, services, peers and agents.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use regent_kernel::{
    AgentId, Host, Op, PersonRole, Subject, Token, TokenId, TokenSpec, TokenState, TokenSummary,
};
use regent_wire::result::Identity;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::caller;
use crate::calls;
use crate::codes;
use crate::commands::agent;
use crate::compose::{self, LedgerStart};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::paths;
use crate::settings;
use crate::term;

/// Digits of an id that have to be typed.
const ID_DIGITS_MIN: usize = 4;

/// Manage access tokens
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it, once
    #[command(
        after_help = "Examples:\n  regent token create --person bob --role approver --out ~/bob.token\n  regent token create --service ci --expires 30d\n\nWhoever has the token acts as its subject: `regent --token-file ~/bob.token approve ID`. Keep the file\noutside of projects, where no agent reads it. Roles: a viewer only reads, an operator runs tools and\nagents, an approver answers questions, an admin does all of this, sets budgets and manages tokens."
    )]
    Create(CreateArgs),
    /// List the tokens: for whom, with which role, until when, last used
    List,
    /// Revoke a token; takes effect with the next call
    Revoke {
        /// The token's id, or at least four digits of it
        #[arg(add = ArgValueCandidates::new(token_ids))]
        id: String,
    },
    /// Replace a token by a new one for the same subject, and print it, once; the old one stops working with the next call
    Rotate {
        /// The token's id, or at least four digits of it; without it, the token that was given with `--token-file`
        #[arg(add = ArgValueCandidates::new(token_ids))]
        id: Option<String>,
        #[command(flatten)]
        out: OutArgs,
    },
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("subject").required(true).args(["person", "service", "peer", "agent"]))]
pub(crate) struct CreateArgs {
    /// For a user of this name
    #[arg(long, value_name = "NAME", requires = "role")]
    person: Option<String>,
    /// The user's role
    #[arg(long, value_enum, requires = "person")]
    role: Option<RoleWord>,
    /// For a program of yours; rules match `service:NAME`
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// For an agent system of somebody else; rules match `peer:NAME`
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// For a running agent whose program runs elsewhere
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// How long it is valid, e.g. 12h or 90d; `never` lets it last until it is revoked
    #[arg(long, value_name = "TIME", default_value = "90d")]
    expires: String,
    #[command(flatten)]
    out: OutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OutArgs {
    /// Write the token to this new file (mode 0600) outside of projects instead of printing it
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleWord {
    /// Read-only
    Viewer,
    /// Runs tools and agents
    Operator,
    /// Answers questions
    Approver,
    /// All rights, budgets and tokens
    Admin,
}

impl From<RoleWord> for PersonRole {
    fn from(word: RoleWord) -> Self {
        match word {
            RoleWord::Viewer => Self::Viewer,
            RoleWord::Operator => Self::Operator,
            RoleWord::Approver => Self::Approver,
            RoleWord::Admin => Self::Admin,
        }
    }
}

impl TokenCommand {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Create(_) => "token.create",
            Self::List => "token.list",
            Self::Revoke { .. } => "token.revoke",
            Self::Rotate { .. } => "token.rotate",
        }
    }
}

pub(crate) async fn run(context: &Context, command: TokenCommand) -> CommandResult {
    let host = compose::for_chores(context, Vec::new(), LedgerStart::Behind).await?;
    let result = match command {
        TokenCommand::Create(args) => create(context, &host, args).await,
        TokenCommand::List => list(context, &host).await,
        TokenCommand::Revoke { id } => revoke(context, &host, &id).await,
        TokenCommand::Rotate { id, out } => rotate(context, &host, id.as_deref(), &out).await,
    };
    calls::settled(result, host.shutdown().await)
}

/// Makes a call as the caller of the command, and reads its result.
pub(super) async fn ask<T: DeserializeOwned>(context: &Context, host: &Host, op: Op) -> Result<T, Failure> {
    let caller = caller::authenticate(context, host).await?;
    let outcome = calls::call_on(context, host, &caller, op).await?;
    calls::result(&outcome)
}

async fn create(context: &Context, host: &Host, args: CreateArgs) -> CommandResult {
    let subject = match (args.person, args.role, args.service, args.peer, args.agent) {
        (Some(name), Some(role), ..) => Subject::Person { name, role: role.into() },
        (_, _, Some(name), ..) => Subject::Service { name },
        (_, _, _, Some(name), _) => Subject::Peer { name },
        (_, _, _, _, Some(id)) => Subject::Agent { agent: AgentId::from(id.as_str()) },
        _nobody => {
            return Err(Failure::new(codes::USAGE, "say for whom: --person, --service, --peer or --agent"));
        }
    };
    let valid_ms = match args.expires.as_str() {
        "never" => None,
        text => Some(settings::duration_ms(text).filter(|ms| *ms > 0).ok_or_else(|| {
            Failure::new(codes::USAGE, format!("`{text}` is not a time"))
                .help("give a time such as 12h or 90d, or `never`")
        })?),
    };
    let out = Out::open(&args.out)?;
    let token = fresh(Token::generate())?;
    let (id, sha256) = (token.id().clone(), token.digest());
    let op = Op::CreateToken(TokenSpec { id, sha256, subject: subject.clone(), valid_ms });
    let made: TokenSummary = match &subject {
        // An agent is known to the kernel that it runs in.
        Subject::Agent { agent } => agent::call_beside(context, agent.as_str(), op).await?,
        Subject::Person { .. } | Subject::Service { .. } | Subject::Peer { .. } => {
            ask(context, host, op).await?
        }
    };
    out.deliver(context, &token, &made, "created")
}

async fn tokens(context: &Context, host: &Host) -> Result<Vec<TokenSummary>, Failure> {
    ask(context, host, Op::Tokens).await
}

async fn list(context: &Context, host: &Host) -> CommandResult {
    let tokens = tokens(context, host).await?;
    let now_ms = context.clock.now_ms();
    let mut text = String::new();
    if tokens.is_empty() {
        text.push_str("no tokens; `regent token create` makes one\n");
    } else {
        text.push_str(&context.screen.strong(&format!(
            "{:<16} {:<28} {:<10} {:<12} {:<14} {}\n",
            "ID", "FOR", "STATE", "EXPIRES", "LAST USED", "CREATED BY"
        )));
    }
    let span = |ms: i64| term::span(u64::try_from(ms).unwrap_or(0));
    for token in &tokens {
        let expires = token.expires_at_ms.map_or_else(
            || "never".to_owned(),
            |at_ms| if at_ms > now_ms { format!("in {}", span(at_ms - now_ms)) } else { "over".to_owned() },
        );
        let used = token.last_used_at_ms.map_or_else(
            || "never".to_owned(),
            // It is known to the hour.
            |at_ms| {
                if now_ms - at_ms < 3_600_000 {
                    "within 1 h".to_owned()
                } else {
                    format!("{} ago", span(now_ms - at_ms))
                }
            },
        );
        let state = match token.state {
            TokenState::Active => "active",
            TokenState::Expired => "expired",
            TokenState::Revoked => "revoked",
        };
        text.push_str(&format!(
            "{:<16} {:<28} {state:<10} {expires:<12} {used:<14} {}\n",
            term::inline(&token.id.0),
            term::short(&subject_line(&token.subject), 40),
            term::short(&token.created_by, 40),
        ));
    }
    Ok(Done::new(json!({"tokens": tokens}), text))
}

fn subject_line(subject: &Subject) -> String {
    match subject {
        Subject::Person { name, role } => format!("{name} ({role})"),
        Subject::Service { name } => format!("service:{name}"),
        Subject::Peer { name } => format!("peer:{name}"),
        Subject::Agent { agent } => format!("agent {agent}"),
    }
}

async fn revoke(context: &Context, host: &Host, id: &str) -> CommandResult {
    let id = meant(&tokens(context, host).await?, id)?;
    let revoked: TokenSummary = ask(context, host, Op::RevokeToken { id }).await?;
    let text = format!("revoked {} for {}\n", revoked.id, term::inline(&subject_line(&revoked.subject)));
    Ok(Done::new(json!({"token": revoked}), text))
}

async fn rotate(context: &Context, host: &Host, id: Option<&str>, out: &OutArgs) -> CommandResult {
    let id = match id {
        Some(id) => meant(&tokens(context, host).await?, id)?,
        None => own(context, host).await?,
    };
    let out = Out::open(out)?;
    let token = fresh(Token::renew(&id))?;
    let op = Op::RotateToken { id, sha256: token.digest() };
    let made: TokenSummary = ask(context, host, op).await?;
    out.deliver(context, &token, &made, "rotated")
}

/// The token that the command was given with.
async fn own(context: &Context, host: &Host) -> Result<TokenId, Failure> {
    let own: Identity = ask(context, host, Op::Whoami).await?;
    own.token.ok_or_else(|| {
        Failure::new(codes::USAGE, "say which token to rotate")
            .help("`regent token rotate ID`, or give the token itself with --token-file")
    })
}

fn meant(tokens: &[TokenSummary], id: &str) -> Result<TokenId, Failure> {
    let unknown = |message: String| {
        Failure::new(codes::TOKEN_UNKNOWN, message).help("`regent token list` shows the tokens")
    };
    let open = tokens.iter().filter(|one| one.state != TokenState::Revoked);
    let found: Vec<&TokenId> = open.map(|one| &one.id).filter(|one| one.0.starts_with(id)).collect();
    match found.as_slice() {
        [one] if id.len() >= ID_DIGITS_MIN => Ok((*one).clone()),
        [] => Err(unknown(format!("there is no token `{}`, or it was revoked", term::inline(id)))),
        _several => Err(unknown(format!("`{}` doesn't name one token: give more digits", term::inline(id)))),
    }
}

fn fresh<T>(made: Result<T, impl std::fmt::Display>) -> Result<T, Failure> {
    made.map_err(|error| Failure::new(codes::INTERNAL, format!("no random numbers: {error}")))
}

/// Where a new token goes: to a file that is made before the token is, or to stdout.
struct Out(Option<(std::fs::File, PathBuf)>);

impl Out {
    fn open(args: &OutArgs) -> Result<Self, Failure> {
        let Some(path) = &args.out else { return Ok(Self(None)) };
        demand_outside(path)?;
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path);
        file.map(|file| Self(Some((file, path.clone())))).map_err(|error| Failure::io("create", path, &error))
    }

    fn deliver(mut self, context: &Context, token: &Token, made: &TokenSummary, word: &str) -> CommandResult {
        let line = zeroize::Zeroizing::new(format!("{}\n", token.reveal()));
        let who = term::inline(&subject_line(&made.subject)).into_owned();
        let Some((file, path)) = &mut self.0 else {
            let note = format!("regent: {word} {} for {who}; the token is shown this once\n", made.id);
            context.screen.say(&note);
            let data = json!({"token": made, "secret": token.reveal()});
            return Ok(Done::new(data, line.as_str()));
        };
        file.write_all(line.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|error| Failure::io("write", path, &error))?;
        let text = format!("{word} {} for {who}: {}\n", made.id, path.display());
        Ok(Done::new(json!({"token": made, "file": path}), text))
    }
}

impl Drop for Out {
    /// A file that no token was written to is of no use.
    fn drop(&mut self) {
        let Some((file, path)) = &self.0 else { return };
        if file.metadata().is_ok_and(|meta| meta.len() == 0) {
            remove(path);
        }
    }
}

/// Refuses a path in a project: its agents would read the token.
fn demand_outside(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = std::fs::canonicalize(folder).map_err(|error| Failure::io("create", path, &error))?;
    let is_project = |folder: &&Path| paths::may_exist(&folder.join(".regent"));
    let Some(project) = folder.ancestors().find(is_project) else { return Ok(()) };
    let message = format!(
        "`{}` is in the project `{}`, whose agents could read the token",
        path.display(),
        project.display()
    );
    Err(Failure::new(codes::USAGE, message).help("name a file outside of projects, e.g. --out ~/NAME.token"))
}

fn remove(path: &Path) {
    drop(std::fs::remove_file(path));
}

/// Ids of tokens, for completion. What can't be read completes nothing.
fn token_ids() -> Vec<CompletionCandidate> {
    let listed = || -> Option<Vec<TokenSummary>> {
        let context = Context::new(&crate::cli::Global::for_completion(), "regent.complete").ok()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(async {
            let host = compose::for_chores(&context, Vec::new(), LedgerStart::Behind).await.ok()?;
            let tokens = tokens(&context, &host).await;
            calls::settled(tokens, host.shutdown().await).ok()
        })
    };
    let tokens = listed().unwrap_or_default().into_iter();
    tokens
        .filter(|one| one.state != TokenState::Revoked)
        .map(|one| CompletionCandidate::new(one.id.0).help(Some(subject_line(&one.subject).into())))
        .collect()
}
