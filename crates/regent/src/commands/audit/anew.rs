//! `regent audit restore` and `regent audit begin-anew`: what leads on when the ledger in place isn't the one that the witness knows. Both
//! are the user's decision, and the first entry of the new lane records it with what is lost.

use std::path::{Path, PathBuf};

use clap::Args;
use regent_ledger::{Ledger, LedgerKey, OpenError, Options, Replaced, Witnessed};
use regent_store::{self as store, Partition, key_part};
use serde_json::json;

use crate::codes;
use crate::compose;
use crate::context::Context;
use crate::controls;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::paths::{self, Project};
use crate::prompt;
use crate::secrets;
use crate::state;
use crate::term;
use crate::trust::Trust;

/// Why, and whether it has to be asked.
#[derive(Debug, Args)]
pub(crate) struct Decided {
    /// Why; it is recorded
    #[arg(long, value_name = "REASON")]
    because: String,
    /// Don't ask: you know what is lost
    #[arg(long)]
    yes: bool,
}

/// Puts a backup in the place of the ledger, or accepts the one in place, and continues from there.
pub(super) async fn restore(context: &Context, from: Option<&Path>, decided: &Decided) -> CommandResult {
    let project = trusted(context)?;
    let from = from.map(|from| context.cwd.join(from));
    let key = compose::ledger_key(&context.paths)?;
    let what = match &from {
        Some(from) => format!("`{}` replaces the ledger", from.display()),
        None => "the current ledger is accepted as it is".to_owned(),
    };
    agree(context, &project, decided, &what).await?;
    replace(context, &project, key, &decided.because, |root, key, options, reason| {
        Ledger::restore(root, from.as_deref(), key, options, reason)
    })
    .await
}

/// Starts a new ledger where there was one.
pub(super) async fn begin_anew(context: &Context, new_key: bool, decided: &Decided) -> CommandResult {
    let project = trusted(context)?;
    let key = match compose::ledger::existing_key(&context.paths)? {
        Some(key) => key,
        None if new_key => {
            agree(
                context,
                &project,
                decided,
                "a new key and a new ledger are created; all your other ledgers are then signed by another key",
            )
            .await?;
            let key = compose::ledger::new_key(&context.paths)?;
            return anew(context, &project, key, &decided.because).await;
        }
        None => compose::ledger_key(&context.paths)?,
    };
    agree(context, &project, decided, "a new ledger is created").await?;
    anew(context, &project, key, &decided.because).await
}

async fn anew(context: &Context, project: &Project, key: LedgerKey, because: &str) -> CommandResult {
    replace(context, project, key, because, Ledger::begin_anew).await
}

fn trusted(context: &Context) -> Result<Project, Failure> {
    let project = context.project()?;
    Trust::demand(&context.paths, &project)?;
    Ok(project)
}

/// What the witness remembers of the project's ledger. One that can't be read is set aside, and the reason says so.
fn witnessed(context: &Context, project: &Project) -> Result<Option<Witnessed>, PathBuf> {
    let path = context.paths.witness(&project.root);
    Witnessed::read(&path).map_err(|_unreadable| path)
}

/// Asks, with what is known and would be left behind.
async fn agree(context: &Context, project: &Project, decided: &Decided, what: &str) -> Result<(), Failure> {
    if decided.yes {
        return Ok(());
    }
    let known = match witnessed(context, project) {
        Ok(Some(known)) => {
            format!("the witness knows {} entries of ledger {}", known.entries(), known.ledger)
        }
        Ok(None) => "there is no witness of an earlier ledger".to_owned(),
        Err(path) => format!("the witness `{}` can't be read", path.display()),
    };
    let unasked = || {
        let message =
            format!("{what}: {known}; this needs your confirmation, and there is no terminal to ask on");
        Failure::new(codes::TERMINAL_NEEDED, message).help("pass --yes to confirm")
    };
    let question =
        format!("{what}.\n  {known}.\n  The current files are moved aside, not removed.\nContinue? [y/N] ");
    if prompt::confirm(&context.screen, &question, unasked).await? {
        return Ok(());
    }
    Err(Failure::new(codes::APPROVAL_REFUSED, "nothing was changed"))
}

async fn replace(
    context: &Context,
    project: &Project,
    key: LedgerKey,
    because: &str,
    replacing: impl FnOnce(&Path, LedgerKey, Options, &str) -> Result<Replaced, OpenError>,
) -> CommandResult {
    let vault = secrets::vault(context)?;
    let options = compose::ledger::options(context, project, &vault)?;
    let mut reason = format!("{because} ({})", compose::person_name());
    if let Err(path) = witnessed(context, project) {
        let aside = path.with_extension(format!("unreadable-{}", context.clock.now_ms()));
        std::fs::rename(&path, &aside).map_err(|error| Failure::io("move away", &path, &error))?;
        reason.push_str("; the witness could not be read");
    }
    // First: without its marks a ledger is examined again, with another's it would be examined too little.
    forget(context, project).await?;
    ignore(project)?;
    let root = project.audit();
    let replaced =
        replacing(&root, key, options, &reason).map_err(|error| compose::ledger::refused(&root, &error))?;
    let Replaced { ledger, aside, witnessed } = replaced;
    let closed = ledger.close().map_err(|error| Failure::new(codes::LEDGER_UNWRITABLE, error.to_string()));
    closed?;
    let lost = witnessed.as_ref().map_or(0, Witnessed::entries);
    let mut text = format!(
        "the ledger continues; its first entry records the reason and that the witness knew {lost} entries\n"
    );
    if let Some(aside) = &aside {
        text.push_str(&format!(
            "the previous files are now in {}\n",
            term::inline(&aside.display().to_string())
        ));
    }
    let data = json!({
        "folder": root.display().to_string(), "aside": aside.map(|aside| aside.display().to_string()),
        "witnessed": witnessed.map(|known| json!({"ledger": known.ledger, "counter": known.counter, "entries": known.entries()})),
    });
    Ok(Done::new(data, text))
}

/// What is moved aside lies beside the ledger, and holds payloads: git must leave it out as well.
fn ignore(project: &Project) -> Result<(), Failure> {
    let path = project.folder().join(".gitignore");
    let text = controls::read_if_there(&path)?.unwrap_or_default();
    if text.lines().any(|line| line.trim() == paths::IGNORED.trim()) {
        return Ok(());
    }
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    paths::write_private(&path, format!("{text}{newline}{}", paths::IGNORED).as_bytes())
}

/// Removes what was derived from the ledger that was here: marks of what recovery has examined, and the lookup index. They would say of the
/// new one what was true of the old.
async fn forget(context: &Context, project: &Project) -> Result<(), Failure> {
    let state = state::open(context).await?;
    let prefix = format!("{MARK}/{}/", key_part(&project.root.to_string_lossy()));
    let cleared = store::change(&*state, &Partition::containing(&prefix), &[], |records| {
        for (key, _) in records.scan(&prefix)? {
            records.remove(&key);
        }
        Ok(())
    })
    .await;
    cleared.map_err(|error| state::failed(context, &error))?;
    let index = context.paths.lookup(&project.audit());
    for name in state::database_files(&index) {
        match std::fs::remove_file(&name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::io("remove", &name, &error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Records of recovery, by lane: `examined/<project>/<lane>`.
const MARK: &str = "examined";
