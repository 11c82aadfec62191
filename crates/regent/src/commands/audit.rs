//! `regent audit`: what happened, and proof of it. Most of it only reads the disk. `erase` is a call to a kernel; `restore` and `begin-anew`
//! put another ledger in place, which no kernel can do from within.

mod anew;
mod find;
pub(crate) mod lines;
mod prove;
mod receipts;
mod verify;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use regent_kernel::{Op, ToolCall};
use regent_ledger::{Digest, Entry, EntryKind, LaneId, MissingPayload, ReadError, Reader};
use regent_wire::body::{BodyError, EntryBody};
use serde_json::{Value, json};

use crate::calls;
use crate::codes;
use crate::compose::{self, BootedKernel, error_chain};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, CommandResult, Done, StdoutContent};
use crate::paths::Project;
use crate::secrets;
use crate::term;

/// Query, verify and export the ledger
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Show the newest entries
    Tail {
        /// How many
        #[arg(short = 'n', long = "lines", default_value_t = 20, value_name = "N")]
        lines: u16,
        /// Wait for new ones
        #[arg(short, long)]
        follow: bool,
        /// Also show the ledger's own entries, such as checkpoints
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        at: At,
    },
    /// Find calls by caller, tool, verdict, status and time
    Find {
        #[command(flatten)]
        wanted: find::FindArgs,
        #[command(flatten)]
        at: At,
    },
    /// Verify the complete ledger on disk
    Verify {
        /// A signed checkpoint, kept elsewhere, that must be part of this history
        #[arg(long, value_name = "FILE")]
        expect: Vec<PathBuf>,
        /// The public key that must have signed it
        #[arg(long, value_name = "KEY")]
        key: Vec<String>,
        #[command(flatten)]
        at: At,
    },
    /// Prove that an entry is in the ledger, by its LANE/SEQ
    Prove {
        /// The entry, e.g. 0000/12, or 12 for the first lane
        entry: String,
        #[command(flatten)]
        at: At,
    },
    /// Export all entries of a session, with proofs, as one file that others can verify
    Export(Exported),
    /// Export a session's decisions as signed receipts, one JSON object per line
    Receipts(Exported),
    /// Show one call in full: intent, outcome, arguments and output
    Show {
        /// The entry, e.g. 0000/12, or 12 for the first lane
        entry: String,
        #[command(flatten)]
        at: At,
    },
    /// Copy the ledger to a new folder; other processes may keep writing
    Backup {
        /// Destination; the folder must be new or empty
        folder: PathBuf,
        #[command(flatten)]
        at: At,
    },
    /// Replace the ledger by a backup and continue from there; records what is lost
    Restore {
        /// The backup [default: accept the current ledger as it is]
        #[arg(value_hint = clap::ValueHint::DirPath)]
        folder: Option<PathBuf>,
        #[command(flatten)]
        decided: anew::Decided,
    },
    /// Start a new ledger; moves the old one aside and records what is lost
    BeginAnew {
        /// Also create a new signing key, because the old one is lost
        #[arg(long)]
        new_key: bool,
        #[command(flatten)]
        decided: anew::Decided,
    },
    /// Erase a payload (arguments or output of a call) permanently; the ledger keeps its digest and still verifies
    Erase {
        /// The payload's SHA-256, as `audit show` prints it
        digest: String,
        /// The reason, for the record
        #[arg(long, value_name = "REASON")]
        because: String,
    },
}

/// Which ledger.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// The ledger's folder [default: the current project's]
    #[arg(long, value_name = "DIR")]
    ledger: Option<PathBuf>,
}

/// What is written for others: one session, into one file.
#[derive(Debug, Args)]
pub(crate) struct Exported {
    /// The session; `regent audit tail --json` shows it
    #[arg(long, value_name = "ID")]
    session: String,
    /// Output file [default: stdout]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

impl AuditCommand {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Tail { .. } => "audit.tail",
            Self::Find { .. } => "audit.find",
            Self::Verify { .. } => "audit.verify",
            Self::Prove { .. } => "audit.prove",
            Self::Export(_) => "audit.export",
            Self::Receipts(_) => "audit.receipts",
            Self::Show { .. } => "audit.show",
            Self::Backup { .. } => "audit.backup",
            Self::Restore { .. } => "audit.restore",
            Self::BeginAnew { .. } => "audit.begin_anew",
            Self::Erase { .. } => "audit.erase",
        }
    }
}

pub(crate) async fn run(context: &Context, command: AuditCommand) -> CommandResult {
    match command {
        AuditCommand::Tail { lines, follow, all, at } => {
            let wanted = LogFilter { count: usize::from(lines), all };
            tail(context, &at.folder(context)?, wanted, follow).await
        }
        AuditCommand::Find { wanted, at } => find::run(context, &at.folder(context)?, wanted),
        AuditCommand::Verify { expect, key, at } => verify::run(context, &at.place(context)?, &expect, &key),
        AuditCommand::Prove { entry, at } => prove::prove(context, &at.folder(context)?, &entry),
        AuditCommand::Export(Exported { session, out, at }) => {
            prove::export(context, &at.folder(context)?, &session, out.as_deref())
        }
        AuditCommand::Receipts(Exported { session, out, at }) => {
            receipts::run(context, &at.folder(context)?, &session, out.as_deref())
        }
        AuditCommand::Show { entry, at } => show(context, &at.folder(context)?, &entry),
        AuditCommand::Backup { folder, at } => backup(context, &at.folder(context)?, &folder),
        AuditCommand::Restore { folder, decided } => {
            anew::restore(context, folder.as_deref(), &decided).await
        }
        AuditCommand::BeginAnew { new_key, decided } => anew::begin_anew(context, new_key, &decided).await,
        AuditCommand::Erase { digest, because } => erase(context, &digest, &because).await,
    }
}

impl At {
    /// Where the ledger is, or should be.
    fn place(&self, context: &Context) -> Result<PathBuf, Failure> {
        Ok(match &self.ledger {
            Some(folder) => context.cwd.join(folder),
            None => context.project().map_err(|failure| with_own_ledger(context, failure))?.audit(),
        })
    }

    fn folder(&self, context: &Context) -> Result<PathBuf, Failure> {
        let folder = self.place(context)?;
        if folder.is_dir() {
            return Ok(folder);
        }
        if let Ok(project) = context.project()
            && folder == project.audit()
        {
            compose::ledger::demand_kept(&context.paths, &project)?;
        }
        Err(Failure::new(codes::AUDIT_NONE, format!("there is no ledger at `{}`", folder.display()))
            .help("Regent has recorded nothing here yet"))
    }
}

/// Outside of projects there is one ledger that can be meant.
fn with_own_ledger(context: &Context, failure: Failure) -> Failure {
    let own = context.paths.own_ledger();
    let Ok(own) = Project::open(&own).map(|own| own.audit()) else { return failure };
    if failure.code != codes::FOLDER_NONE.id || !own.is_dir() {
        return failure;
    }
    failure.help(format!(
        "change to a project folder, or pass `--ledger '{}'`, the ledger of `regent judge` outside projects",
        own.display()
    ))
}

/// What of the ledger can't be read.
pub(crate) fn unreadable(error: &ReadError) -> Failure {
    let message = error_chain(error);
    match error {
        ReadError::Broken { .. } | ReadError::Payload(_) => {
            Failure::new(codes::AUDIT_BROKEN, message).help("`regent audit verify` names the first bad entry")
        }
        ReadError::NoEntry { .. } => Failure::new(codes::AUDIT_NO_ENTRY, message),
        ReadError::NoLedger(_) => Failure::new(codes::AUDIT_NONE, message),
        ReadError::NotEmpty(_) => Failure { exit: codes::exit::CONFLICT, ..Failure::new(codes::IO, message) },
        ReadError::Io(_) => Failure::new(codes::AUDIT_UNREADABLE, message),
    }
}

/// A newer Regent wrote an entry, or it isn't what its kind says.
pub(crate) fn unreadable_body(error: &BodyError) -> Failure {
    Failure::new(codes::AUDIT_UNREADABLE, error.to_string())
}

/// `LANE/SEQ`, or `SEQ` in the first lane.
pub(super) fn place(text: &str) -> Result<(LaneId, u64), Failure> {
    let parsed = match text.split_once('/') {
        Some((lane, seq)) => lane.parse::<u16>().ok().and_then(LaneId::new).zip(seq.parse().ok()),
        None => text.parse().ok().map(|seq| (LaneId::FIRST, seq)),
    };
    parsed.ok_or_else(|| {
        Failure::new(codes::USAGE, format!("`{text}` is not an entry number"))
            .help("give LANE/SEQ as `regent audit tail` shows it, e.g. 0000/12")
    })
}

#[derive(Debug, Clone, Copy)]
struct LogFilter {
    count: usize,
    all: bool,
}

const FOLLOW_PAUSE_MS: u64 = 250;
/// How many entries may come between two looks without one being missed.
const FOLLOW_ENTRIES_MAX: usize = 1000;

fn newest(reader: &Reader, wanted: LogFilter) -> Result<Vec<Entry>, Failure> {
    // What was erased is an auditor's business, although the ledger writes it itself.
    let is_shown = |kind: EntryKind| wanted.all || !kind.is_internal() || kind == EntryKind::Erase;
    reader.tail_of(wanted.count, is_shown).map_err(|error| unreadable(&error))
}

async fn tail(context: &Context, folder: &std::path::Path, wanted: LogFilter, follow: bool) -> CommandResult {
    let reader = Reader::new(folder);
    let entries = newest(&reader, wanted)?;
    if !follow {
        let text: String = entries.iter().map(|entry| lines::one(&context.screen, entry)).collect();
        return Ok(Done::new(json!({"entries": entries.iter().map(entry_json).collect::<Vec<_>>()}), text));
    }
    follow_on(context, &reader, entries, wanted.all).await
}

/// Prints entries as they come, until nobody reads any more.
async fn follow_on(context: &Context, reader: &Reader, first: Vec<Entry>, all: bool) -> CommandResult {
    let window = LogFilter { count: FOLLOW_ENTRIES_MAX, all };
    let key = |entry: &Entry| (entry.lane, entry.seq);
    // What stands before the first entries that were asked for is not news.
    let asked_for: BTreeSet<_> = first.iter().map(key).collect();
    let mut known: BTreeSet<_> =
        newest(reader, window)?.iter().map(key).filter(|key| !asked_for.contains(key)).collect();
    loop {
        let entries = newest(reader, window)?;
        if !known.is_empty()
            && entries.len() == FOLLOW_ENTRIES_MAX
            && !entries.iter().any(|entry| known.contains(&key(entry)))
        {
            context.screen.say("regent: entries arrive faster than they can be shown; some were skipped\n");
        }
        for entry in entries.iter().filter(|entry| !known.contains(&key(entry))) {
            let line = match context.screen.json {
                true => output::line(&output::envelope(&context.schema, entry_json(entry), None)),
                false => lines::one(&context.screen, entry).into_bytes(),
            };
            if output::write_all(&line).is_err() {
                return Ok(Done { data: Value::Null, shown: StdoutContent::Already, exit: 0 });
            }
        }
        known = entries.iter().map(key).collect();
        tokio::time::sleep(Duration::from_millis(FOLLOW_PAUSE_MS)).await;
    }
}

pub(super) fn entry_json(entry: &Entry) -> Value {
    json!({
        "lane": entry.lane, "seq": entry.seq, "at_ms": entry.at_ms, "kind": entry.kind, "hash": entry.hash, "prev": entry.prev,
        "proven": entry.proven, "body": entry.body,
    })
}

fn show(context: &Context, folder: &std::path::Path, text: &str) -> CommandResult {
    let (lane, seq) = place(text)?;
    let reader = Reader::new(folder);
    let entry = found(&reader, lane, seq)?;
    // An outcome is shown with its intent, and an intent with its outcome.
    let body = EntryBody::read_known(&entry).map_err(|error| unreadable_body(&error))?;
    let (intent, outcome) = match body.and_then(|body| body.intent_place(&entry)) {
        Some((lane, intent)) => (reader.get(lane, intent).map_err(|error| unreadable(&error))?, Some(entry)),
        None => {
            let outcome = match find::outcome_of(context, folder, lane, seq)? {
                Some((lane, seq)) => reader.get(lane, seq).map_err(|error| unreadable(&error))?,
                None => None,
            };
            (Some(entry), outcome)
        }
    };
    let mut out = String::new();
    let mut data = serde_json::Map::new();
    for (name, entry, payload) in [("intent", intent, "args"), ("outcome", outcome, "output")] {
        let Some(entry) = entry else { continue };
        out.push_str(&lines::one(&context.screen, &entry));
        out.push_str(&lines::body(&context.screen, &entry));
        let content = payload_of(context, &reader, &entry)?;
        match &content {
            Some(content) => {
                out.push_str(&lines::payload(&context.screen, payload, content, context.screen.width));
            }
            None => {
                if let Some(gone) = gone(&reader, &entry)? {
                    out.push_str(&lines::gone(&context.screen, payload, &gone));
                    data.insert(format!("{payload}_gone"), gone_json(&gone));
                }
            }
        }
        data.insert(name.to_owned(), entry_json(&entry));
        let content = content.map(|bytes| match String::from_utf8(bytes) {
            Ok(text) => json!(text),
            Err(error) => json!(term::block_of_bytes(error.as_bytes())),
        });
        data.insert(payload.to_owned(), content.unwrap_or(Value::Null));
    }
    Ok(Done::new(Value::Object(data), out))
}

pub(super) fn found(reader: &Reader, lane: LaneId, seq: u64) -> Result<Entry, Failure> {
    reader.get(lane, seq).map_err(|error| unreadable(&error))?.ok_or_else(|| {
        Failure::new(codes::AUDIT_NO_ENTRY, format!("there is no entry {lane}/{seq}"))
            .help("`regent audit tail` shows the newest ones")
    })
}

/// The digest of the payload that an entry names: the arguments of an intent, the output of an outcome.
fn reference(entry: &Entry) -> Result<Option<Digest>, Failure> {
    let payload = match EntryBody::read_known(entry).map_err(|error| unreadable_body(&error))? {
        Some(EntryBody::Intent(intent)) => intent.args,
        Some(EntryBody::Outcome(outcome)) => outcome.output,
        Some(
            EntryBody::InDoubt(_)
            | EntryBody::Agent(_)
            | EntryBody::Policy(_)
            | EntryBody::Kernel(_)
            | EntryBody::Internal,
        )
        | None => None,
    };
    Ok(payload.map(|payload| payload.sha256))
}

/// Why a payload that an entry names is missing.
fn gone(reader: &Reader, entry: &Entry) -> Result<Option<MissingPayload>, Failure> {
    let Some(digest) = reference(entry)? else { return Ok(None) };
    reader.gone(entry.lane, entry.seq, &digest).map_err(|error| unreadable(&error))
}

fn gone_json(gone: &MissingPayload) -> Value {
    json!({"how": if gone.erased { "erased" } else { "gc" }, "at_ms": gone.at_ms, "reason": gone.reason})
}

/// The arguments of an intent, or the output of an outcome; `None` if it has none, or they were erased.
pub(crate) fn payload_of(
    context: &Context,
    reader: &Reader,
    entry: &Entry,
) -> Result<Option<Vec<u8>>, Failure> {
    let Some(digest) = reference(entry)? else { return Ok(None) };
    match reader.payload(&digest, None) {
        // Spoilt, or encrypted: the vault's key tells.
        Err(ReadError::Payload(_)) => {
            let key = compose::payload_key(&*secrets::vault(context)?)?;
            reader.payload(&digest, Some(&key)).map_err(|error| unreadable(&error))
        }
        read => read.map_err(|error| unreadable(&error)),
    }
}

fn backup(context: &Context, folder: &std::path::Path, to: &std::path::Path) -> CommandResult {
    let to = context.cwd.join(to);
    // A backup inside of what it is a copy of would be taken for a part of it.
    let real = |path: &std::path::Path| path.ancestors().find_map(|one| one.canonicalize().ok());
    if let (Some(place), Some(ledger)) = (real(&to), real(folder))
        && place.starts_with(&ledger)
    {
        let message = format!("the destination `{}` is inside the ledger", to.display());
        return Err(Failure::new(codes::USAGE, message).help("choose a folder outside it"));
    }
    Reader::new(folder).backup(&to).map_err(|error| unreadable(&error))?;
    let shown = term::inline(&to.display().to_string()).into_owned();
    Ok(Done::new(
        json!({"folder": to.display().to_string()}),
        format!("copied to {shown}; `regent audit verify --ledger {shown}` verifies it\n"),
    ))
}

async fn erase(context: &Context, digest: &str, because: &str) -> CommandResult {
    let digest: Digest = digest.parse().map_err(|_| {
        Failure::new(codes::USAGE, format!("`{digest}` is not a SHA-256"))
            .help("`regent audit show LANE/SEQ` prints the digests")
    })?;
    let running = BootedKernel::boot(context).await?;
    let op = Op::RunTool(ToolCall {
        tool: "audit.erase".to_owned(),
        args: json!({"because": because, "digest": digest}),
    });
    let erased = calls::call(context, &running, &running.caller(), op).await;
    let erased = running.close(context, erased.and_then(|outcome| calls::result::<Value>(&outcome))).await?;
    let count = |name: &str| erased.get(name).and_then(Value::as_u64).unwrap_or(0);
    let text = match (count("records"), count("erased_before")) {
        (0, 0) => {
            return Err(Failure::new(codes::AUDIT_NO_ENTRY, format!("no payload has the digest {digest}"))
                .help(
                    "`regent audit show LANE/SEQ` prints the digests and says whether a payload was removed",
                ));
        }
        (0, before) => {
            format!("already erased: {digest} ({}); nothing was done\n", term::count(before, "record"))
        }
        (records, _) => format!(
            "erased {digest} ({}); the ledger keeps the digest\n  Other payloads may quote its text, such as the conversation of a model that read it. \
             Each has its own digest.\n",
            term::count(records, "record")
        ),
    };
    Ok(Done::new(erased, text))
}
