//! Checks of what must be there, whole, writable and closed to others: the ledger, the state, the places that are written to.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use regent_ledger::{LedgerVerdict, VerifyOptions};
use regent_store::SqliteState;

use super::Check;
use super::fix::Fix;
use crate::compose::{self, error_chain};
use crate::context::Context;
use crate::paths;
use crate::state;

/// What is written to try a folder: more than fits into what a full file system still gives.
const TRIED_BYTES: usize = 256 << 10;
/// Folders in folders of a ledger.
const DEPTH_MAX: usize = 4;

pub(super) fn ledger(context: &Context) -> Check {
    let none = || Check::good("ledger.verifies", "there is no ledger here yet");
    let Ok(project) = context.project() else { return none() };
    if let Err(failure) = compose::ledger::demand_kept(&context.paths, &project) {
        return Check::bad("ledger.verifies", failure.message, failure.help.unwrap_or_default());
    }
    if !project.audit().is_dir() {
        return none();
    }
    let folder = project.audit();
    match open_below(&folder) {
        Ok(0) => {}
        Ok(count) => {
            let says = format!("others can access {count} files or folders of the ledger");
            let help = format!("chmod -R go= {}", folder.display());
            return Check::bad("ledger.verifies", says, help).fixed_by(Fix::CloseAll(folder));
        }
        Err(error) => {
            let says = format!("{} can't be read: {error}", folder.display());
            return Check::bad("ledger.verifies", says, "check the folder's owner and permissions");
        }
    }
    let keys = compose::ledger::existing_key(&context.paths).ok().flatten();
    let keys = keys.map(|key| vec![key.public()]).unwrap_or_default();
    let witness = Some(context.paths.witness(&project.root)).filter(|path| path.is_file());
    let options = VerifyOptions { keys, witness, ..VerifyOptions::default() };
    match regent_ledger::verify(&project.audit(), &options).map(|report| (report.entries, report.verdict)) {
        Ok((entries, LedgerVerdict::Ok)) => {
            Check::good("ledger.verifies", format!("all {entries} entries verified"))
        }
        Ok((_, LedgerVerdict::Unproven { .. })) => Check::warning(
            "ledger.verifies",
            "there are entries after the last signed checkpoint",
            "a crash causes this; the next kernel settles it",
        ),
        Ok((_, LedgerVerdict::Broken(broken))) if broken.is_witnessed() => {
            let failure = compose::ledger::replaced(broken.to_string());
            Check::bad("ledger.verifies", failure.message, failure.help.unwrap_or_default())
        }
        Ok((_, LedgerVerdict::Broken(broken))) => Check::bad(
            "ledger.verifies",
            format!("broken: {broken}"),
            "leave the folder as it is; for details run `regent audit verify`",
        ),
        Err(error) => {
            Check::bad("ledger.verifies", error_chain(&error), "check the folder's owner and permissions")
        }
    }
}

/// How many files and folders others can look into.
fn open_below(folder: &Path) -> std::io::Result<usize> {
    let mut count = 0_usize;
    each_below(folder, DEPTH_MAX, &mut |_, meta| {
        count = count.saturating_add(usize::from(meta.mode() & 0o077 != 0));
        Ok(())
    })?;
    Ok(count)
}

/// Looks at a folder and everything in it. Links are not followed.
pub(super) fn each_below(
    folder: &Path,
    depth: usize,
    look: &mut dyn FnMut(&Path, &std::fs::Metadata) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let meta = std::fs::symlink_metadata(folder)?;
    if meta.is_symlink() {
        return Ok(());
    }
    look(folder, &meta)?;
    if !meta.is_dir() || depth == 0 {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        each_below(&entry?.path(), depth.saturating_sub(1), look)?;
    }
    Ok(())
}

/// The database of approvals, rates and budgets, or the server that has them.
pub(super) async fn state(context: &Context) -> Check {
    let Some(file) = context.settings.state_url_file() else { return state_file(context) };
    match state::open(context).await {
        Ok(state) if state.is_lossy() => Check::warning(
            "state.database",
            "the server of approvals, rates and budgets may lose acknowledged commits in a crash; you accepted that",
            "set `appendonly yes`, `appendfsync always` and `no-appendfsync-on-rewrite no` on the server, then `regent config set state.accept_loss false`",
        ),
        Ok(_) => {
            Check::good("state.database", format!("the server that {} names can be used", file.display()))
        }
        Err(failure) => Check::bad("state.database", failure.message, failure.help.unwrap_or_default()),
    }
}

fn state_file(context: &Context) -> Check {
    let path = context.paths.state_db();
    if let Err(failure) = state::demand_kept(&context.paths) {
        return Check::bad("state.database", failure.message, failure.help.unwrap_or_default())
            .fixed_by(Fix::State);
    }
    if !paths::may_exist(&path) {
        return Check::good("state.database", "approvals and budgets: nothing stored yet");
    }
    let open =
        state::database_files(&path).into_iter().find(|path| paths::is_open_to_others(path).unwrap_or(false));
    if let Some(path) = open {
        let help = format!("chmod 600 {}", path.display());
        return Check::bad("state.database", format!("others can access {}", path.display()), help)
            .fixed_by(Fix::Close(path));
    }
    match SqliteState::open(&path) {
        Ok(_) => Check::good("state.database", format!("{} can be used", path.display())),
        Err(error) => {
            let failure = state::file_failed(&context.paths, &error);
            let check = Check::bad("state.database", failure.message, failure.help.unwrap_or_default());
            if matches!(error, regent_store::StateError::Corrupt(_)) || path.is_dir() {
                check.fixed_by(Fix::State)
            } else {
                check
            }
        }
    }
}

/// The folders that calls write to, tried: a read-only disk or a full one refuses every call.
pub(super) fn places(context: &Context) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Ok(project) = context.project() {
        checks.push(writable(
            "project.writable",
            &project.folder(),
            "every call is refused, because none can be recorded",
        ));
    }
    checks.push(writable("state.writable", &context.paths.state, "every call is refused"));
    checks.push(writable("runtime.writable", &context.paths.runtime, "no program can be run"));
    checks
}

fn writable(id: &str, folder: &Path, costs: &str) -> Check {
    let there = folder.ancestors().find(|one| one.is_dir()).unwrap_or(folder);
    let tried = tempfile::NamedTempFile::new_in(there).and_then(|mut file| {
        file.write_all(&vec![0_u8; TRIED_BYTES])?;
        file.as_file().sync_all()
    });
    match tried {
        Ok(()) => Check::good(id, format!("{} is writable", there.display())),
        Err(error) => Check::bad(
            id,
            format!("{} is not writable: {error}; {costs}", there.display()),
            "free some space, or check the mount options, the owner and the permissions",
        ),
    }
}
