//! The ledger of a project, and the keys that it is signed and encrypted with.

use std::path::Path;

use regent_ledger::{KeyError, Ledger, LedgerKey, OpenError, Options, PayloadKey, Witnessed};
use regent_vault::Vault;

use super::error_chain;
use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::paths::{self, Paths, Project};
use crate::secrets;

/// The key that signs ledgers, made on first use. Where something was signed before, a key that is gone is an error: a new one in its
/// place would make every ledger of the user look like somebody else's.
pub(crate) fn ledger_key(paths: &Paths) -> Result<LedgerKey, Failure> {
    if let Some(key) = existing_key(paths)? {
        return Ok(key);
    }
    demand_first_use(paths)?;
    LedgerKey::load_or_create(&paths.ledger_key()).map_err(unusable)
}

/// Refuses if something was signed before.
pub(crate) fn demand_first_use(paths: &Paths) -> Result<(), Failure> {
    match signed_before(paths)? {
        0 => Ok(()),
        ledgers => Err(missing(paths, ledgers)),
    }
}

/// The key if there is one; every error but "does not exist" is one.
pub(crate) fn existing_key(paths: &Paths) -> Result<Option<LedgerKey>, Failure> {
    let path = paths.ledger_key();
    match LedgerKey::load(&path) {
        Ok(key) => Ok(Some(key)),
        Err(KeyError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(KeyError::Exposed { .. }) if !path.is_file() => {
            let message =
                format!("`{}` is not a regular file, so it can't be the signing key", path.display());
            Err(Failure::new(codes::LEDGER_KEY, message)
                .help("move it aside and restore the key from a backup; it is one line that begins with `regent-ledger-key-v1`"))
        }
        Err(error) => Err(unusable(error)),
    }
}

fn unusable(error: KeyError) -> Failure {
    let failure = Failure::new(codes::LEDGER_KEY, error_chain(&error));
    match error {
        KeyError::Exposed { path } => {
            failure.help(format!("chmod 600 {}, or `regent doctor --fix`", path.display()))
        }
        KeyError::Random(_) | KeyError::Io { .. } | KeyError::Malformed { .. } | KeyError::NotAKey(_) => {
            failure
        }
    }
}

/// How many ledgers of this user have a witness. Each was signed with the user's key.
fn signed_before(paths: &Paths) -> Result<usize, Failure> {
    let folder = paths.state.join("witness");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(Failure::io("read", &folder, &error)),
    };
    let mut count = 0_usize;
    for entry in entries {
        let entry = entry.map_err(|error| Failure::io("read", &folder, &error))?;
        // Drafts that a crash left behind witness nothing.
        if entry.path().extension().is_none() {
            count = count.saturating_add(1);
        }
    }
    Ok(count)
}

/// Nothing is signed with another key before the user has agreed.
fn missing(paths: &Paths, ledgers: usize) -> Failure {
    let path = paths.ledger_key();
    let message = format!(
        "the signing key `{}` is missing, but {} signed with it; no new key was created",
        path.display(),
        if ledgers == 1 {
            "one of your ledgers is".to_owned()
        } else {
            format!("{ledgers} of your ledgers are")
        }
    );
    Failure::new(codes::LEDGER_KEY_MISSING, message).help(
        "restore the key from a backup; if it is lost, `regent audit begin-anew --new-key --because REASON` starts a new ledger with a new key",
    )
}

/// A segment spans so much at least: each has files of its own.
const SPAN_MS_MIN: i64 = 60_000;

/// Where the first entry of an opened ledger goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LedgerStart {
    /// Behind the last one.
    Behind,
    /// Into a segment of its own, so that the payloads before it can be removed.
    Apart,
}

/// Opens the ledger of a project.
pub(crate) fn ledger(
    context: &Context,
    project: &Project,
    vault: &Vault,
    start: LedgerStart,
) -> Result<Ledger, Failure> {
    let root = project.audit();
    let options = Options { fresh_segment: start == LedgerStart::Apart, ..options(context, project, vault)? };
    let key = ledger_key(&context.paths)?;
    Ledger::open(&root, key, options).map_err(|error| refused(&root, &error))
}

/// How this project's ledger is opened.
pub(crate) fn options(context: &Context, project: &Project, vault: &Vault) -> Result<Options, Failure> {
    let payload_key = if context.settings.encrypts_payloads() { Some(payload_key(vault)?) } else { None };
    let mut options = Options::default();
    // What is kept for less than a day must not wait for the day's last payload.
    if let Some(kept_ms) = context.settings.kept_ms("gc.payloads").and_then(|ms| i64::try_from(ms).ok()) {
        options.segment_span_ms = kept_ms.clamp(SPAN_MS_MIN, options.segment_span_ms);
    }
    Ok(Options {
        opened_at_ms: context.clock.now_ms(),
        witness: Some(context.paths.witness(&project.root)),
        payload_key,
        ..options
    })
}

/// Why a ledger can't be opened.
pub(crate) fn refused(root: &Path, error: &OpenError) -> Failure {
    let message = format!("`{}`: {}", root.display(), error_chain(error));
    match error {
        OpenError::Gone { .. } | OpenError::Older { .. } | OpenError::Another { .. } => replaced(message),
        OpenError::Broken(broken) if broken.is_witnessed() => replaced(broken.to_string()),
        OpenError::Broken(broken) => {
            Failure::new(codes::AUDIT_BROKEN, format!("the ledger is sealed: {broken}"))
                .help("nothing was changed; for details run `regent audit verify`")
        }
        OpenError::WrongKey => other_key(message),
        OpenError::Busy => Failure::new(codes::LEDGER_UNWRITABLE, message).help("try again"),
        OpenError::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => replaced(message),
        OpenError::Io(_) => {
            Failure::new(codes::LEDGER_UNWRITABLE, message).help("nothing was done; fix this and try again")
        }
    }
}

/// The ledger in place isn't the one that the witness knows: only a decision leads on.
pub(crate) fn replaced(message: impl Into<String>) -> Failure {
    Failure::new(codes::AUDIT_REPLACED, message).help(
        "nothing was changed. `regent audit restore DIR --because REASON` puts a backup in place (without DIR: accepts the current ledger); \
         `regent audit begin-anew --because REASON` starts a new ledger. Both record what is lost",
    )
}

/// Refuses where the witness remembers a ledger and there is none: after `git clean`, a new clone, or a recreated folder.
pub(crate) fn demand_kept(paths: &Paths, project: &Project) -> Result<(), Failure> {
    let witness = paths.witness(&project.root);
    let known = Witnessed::read(&witness).map_err(|error| Failure::io("read", &witness, &error))?;
    let Some(known) = known else { return Ok(()) };
    let root = project.audit();
    // Locks and empty folders may be left; without its index there is no ledger.
    if paths::may_exist(&root.join("index")) {
        return Ok(());
    }
    Err(replaced(format!(
        "the ledger `{}` is missing: the witness knows ledger {} with {} entries",
        root.display(),
        known.ledger,
        known.entries()
    )))
}

/// A ledger that somebody else signed, or that was signed before the key was replaced, is not a broken one.
pub(crate) fn other_key(message: String) -> Failure {
    Failure::new(codes::AUDIT_OTHER_KEY, message).help(
        "if you replaced your key, restore the old one; if the ledger came with a download, `regent audit begin-anew --because REASON` moves it aside",
    )
}

/// The key that payloads are encrypted with. It lives in the vault and has no handle.
pub(crate) fn payload_key(vault: &Vault) -> Result<PayloadKey, Failure> {
    let key = vault.key("ledger.payloads").map_err(secrets::failed)?;
    Ok(PayloadKey::new(*key))
}

/// Makes a new signing key where the old one is lost. The user has agreed.
pub(crate) fn new_key(paths: &Paths) -> Result<LedgerKey, Failure> {
    paths::make_private(&paths.data)?;
    LedgerKey::load_or_create(&paths.ledger_key()).map_err(unusable)
}
