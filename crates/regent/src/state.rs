//! The database of approvals, rates and budgets: opened, or refused in words that lead on. It is a file of this user, or on a server.

mod apart;
mod sealed;
mod server;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use regent_store::{SqliteState, State, StateError};

use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::paths::{self, Paths};

pub(crate) use apart::Apart;
pub(crate) use sealed::Sealed;

/// A file system with less room than this is full: SQLite needs a page of each of its files.
const ROOM_BYTES_MIN: u64 = 128 << 10;

/// Opens it, or makes it where there never was one.
pub(crate) async fn open(context: &Context) -> Result<Arc<dyn State>, Failure> {
    match context.settings.state_url_file() {
        Some(file) => server::open(context, file).await,
        None => Ok(Arc::new(open_file(&context.paths)?)),
    }
}

/// Whether nothing was ever stored. What a server has is not known before it is asked.
pub(crate) fn is_unused(context: &Context) -> bool {
    context.settings.state_url_file().is_none() && !paths::may_exist(&context.paths.state_db())
}

fn open_file(paths: &Paths) -> Result<SqliteState, Failure> {
    demand_kept(paths)?;
    let state = SqliteState::open(&paths.state_db()).map_err(|error| file_failed(paths, &error))?;
    if !was_used(paths)? {
        paths::write_private(&mark(paths), b"state.db is in use: it must not be missing\n")?;
    }
    Ok(state)
}

/// Refuses where the database was used before and is gone or empty: budgets, rates and approvals must not begin again unnoticed.
pub(crate) fn demand_kept(paths: &Paths) -> Result<(), Failure> {
    let path = paths.state_db();
    let is_there = match std::fs::symlink_metadata(&path) {
        Ok(meta) => !meta.is_file() || meta.len() > 0,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(Failure::io("look at", &path, &error)),
    };
    if is_there || !was_used(paths)? {
        return Ok(());
    }
    let message = format!(
        "`{}` is missing or empty, but was used before: its budgets, rates and approvals are lost",
        path.display()
    );
    Err(Failure::new(codes::STATE_GONE, message).help(
        "restore it from a backup, or let `regent doctor --fix` create a new one with all counters at zero",
    ))
}

/// Whether a database was ever opened here: a mark beside it says so.
fn was_used(paths: &Paths) -> Result<bool, Failure> {
    let mark = mark(paths);
    match std::fs::symlink_metadata(&mark) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::io("look at", &mark, &error)),
    }
}

fn mark(paths: &Paths) -> PathBuf {
    paths.state.join("state.used")
}

/// Why it can't be used.
pub(crate) fn failed(context: &Context, error: &StateError) -> Failure {
    match context.settings.state_url_file() {
        Some(_) => server::failed(error),
        None => file_failed(&context.paths, error),
    }
}

/// The same of the file. The path is named once.
pub(crate) fn file_failed(paths: &Paths, error: &StateError) -> Failure {
    let (path, text) = (paths.state_db().display().to_string(), error.to_string());
    let message = if text.contains(&path) { text } else { format!("`{path}`: {text}") };
    match error {
        StateError::Full => full(message),
        StateError::Unusable(_) if is_full(&paths.state) => {
            full(format!("`{path}`: no space left on its disk"))
        }
        StateError::Busy => Failure { exit: codes::exit::TEMPORARY, ..Failure::new(codes::STATE_UNUSABLE, message) }
            .help("try again; `regent agent ps` shows running kernels"),
        StateError::Corrupt(_) => Failure::new(codes::STATE_UNUSABLE, message)
            .help("`regent doctor --fix` moves it aside and creates a new one; its budgets, rates and approvals are lost"),
        StateError::Newer { .. } => {
            Failure::new(codes::STATE_UNUSABLE, message).help("a newer version of regent wrote it; use that version")
        }
        StateError::Unreachable(_) => unreachable(message),
        StateError::TooLarge(_) | StateError::Lossy(_) | StateError::NotBuilt(_) | StateError::Unusable(_) => {
            Failure::new(codes::STATE_UNUSABLE, message).help("`regent doctor` checks it")
        }
    }
}

/// The same for a failure that has no path.
pub(crate) fn full(message: String) -> Failure {
    Failure::new(codes::STATE_FULL, message)
        .help("make room (`df`), or check the disk (`dmesg`), then try again; nothing was done")
}

/// The server can't be reached.
pub(crate) fn unreachable(message: String) -> Failure {
    Failure::new(codes::STATE_UNREACHABLE, message)
        .help("start the server or check the network, then try again; `regent doctor` checks it")
}

/// Whether nothing more can be written in a folder.
pub(crate) fn is_full(folder: &Path) -> bool {
    let free = rustix::fs::statvfs(folder).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    free.is_ok_and(|free| free < ROOM_BYTES_MIN)
}

/// A database and what SQLite keeps beside it.
pub(crate) fn database_files(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|end| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    })
}

/// Moves a database that can't be used away and starts a new one. Says where the old one is; nothing if there was none.
pub(crate) fn start_anew(paths: &Paths, now_ms: i64) -> Result<Option<PathBuf>, Failure> {
    let path = paths.state_db();
    let aside = paths.state.join(format!("state.damaged-{now_ms}.db"));
    let mut moved = None;
    for (from, to) in database_files(&path).into_iter().zip(database_files(&aside)) {
        if !paths::may_exist(&from) {
            continue;
        }
        std::fs::rename(&from, &to).map_err(|error| Failure::io("move away", &from, &error))?;
        moved = moved.or(Some(to));
    }
    SqliteState::open(&path).map_err(|error| file_failed(paths, &error))?;
    Ok(moved)
}
