//! Secrets at the edge: read without echo from a terminal, from stdin or from a descriptor; never from the command line or the
//! environment.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use regent_kernel::{Secret, Secrets as _};
use regent_vault::{Vault, VaultError};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::codes::{self, Code};
use crate::context::Context;
use crate::failure::Failure;

/// A passphrase is shorter.
const PASSPHRASE_BYTES_MAX: usize = 4 << 10;

/// The vaults that are open, of all kernels in this process: the panic hook is the process's, and masks what any of them revealed.
static OPENED: Mutex<Vec<Weak<Vault>>> = Mutex::new(Vec::new());

/// The user's vault. A passphrase is asked for if the vault has one and somebody is there to answer; without it the vault stays
/// locked, and calls that need a secret fail and say so.
pub(crate) fn vault(context: &Context) -> Result<Arc<Vault>, Failure> {
    let vault = Arc::new(Vault::new(&context.paths.data, None));
    // Before anything is read: what an earlier process revealed is masked in whatever this one reads, locked vault or not.
    vault.recognise().map_err(failed)?;
    if let Some(number) = context.passphrase_fd {
        vault.unlock(from_descriptor("--passphrase-fd", number, PASSPHRASE_BYTES_MAX)?);
    } else if vault.has_passphrase().unwrap_or(false) && context.screen.can_ask {
        vault.unlock(ask("Passphrase of the vault: ")?);
    }
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.retain(|one| one.strong_count() > 0);
    opened.push(Arc::downgrade(&vault));
    Ok(vault)
}

/// Masks in a text what this process has revealed.
pub(crate) fn scrubbed(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for vault in opened.iter().filter_map(Weak::upgrade) {
        vault.scrub(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A value: typed where somebody can, otherwise all of stdin without its last line end.
pub(crate) fn value(context: &Context, question: &str, bytes_max: usize) -> Result<Secret, Failure> {
    if context.screen.can_ask {
        return ask(question);
    }
    if std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        return Err(Failure::new(codes::TERMINAL_NEEDED, "there is no terminal to ask for the value")
            .help("pass it on stdin: regent vault add NAME < FILE"));
    }
    read_all(rustix::stdio::stdin(), bytes_max)
}

/// A new passphrase: typed twice, or from the descriptor.
pub(crate) fn new_passphrase(context: &Context) -> Result<Secret, Failure> {
    if !context.screen.can_ask {
        return value(context, "", PASSPHRASE_BYTES_MAX);
    }
    let (first, again) = (ask("New passphrase: ")?, ask("Once more: ")?);
    if first.expose() == again.expose() {
        return Ok(first);
    }
    Err(Failure::new(codes::USAGE, "the two passphrases differ; nothing was changed"))
}

/// What a vault says, as a failure of the command.
pub(crate) fn failed(error: VaultError) -> Failure {
    let message = error.to_string();
    match error {
        VaultError::NotFound(_) => {
            Failure::new(codes::VAULT_NONE, message).help("`regent vault list` shows existing secrets")
        }
        VaultError::Exists(name) => Failure::new(codes::VAULT_EXISTS, message)
            .help(format!("`regent vault rotate {name}` gives it a new value")),
        VaultError::SameValue(_) => Failure::new(codes::VAULT_EXISTS, message),
        VaultError::Exposed(path) => Failure::new(codes::VAULT_UNUSABLE, message)
            .help(format!("chmod 600 {}, or `regent doctor --fix`", path.display())),
        VaultError::PassphraseNeeded => Failure::new(codes::VAULT_LOCKED, message)
            .help("run it at a terminal, or pass the passphrase with --passphrase-fd N"),
        VaultError::WrongKey(_) => {
            Failure::new(codes::VAULT_LOCKED, message).help("nothing was changed; try again")
        }
        VaultError::TooShort { .. } => Failure::new(codes::VAULT_VALUE, message).help(
            "masking so short a value would damage ordinary output; --force accepts it from 4 bytes on",
        ),
        VaultError::Name(_)
        | VaultError::TooLong { .. }
        | VaultError::Scope(_)
        | VaultError::PassphraseShort(_) => Failure::new(codes::VAULT_VALUE, message),
        VaultError::Import(_) => Failure::new(codes::VAULT_IMPORT, message).help("nothing was imported"),
        VaultError::Io { .. }
        | VaultError::KeyMissing(_)
        | VaultError::KeyMalformed(_)
        | VaultError::Corrupt(_)
        | VaultError::Full(_)
        | VaultError::Random(_) => Failure::new(codes::VAULT_UNUSABLE, message)
            .help("nothing was changed; `regent doctor` checks the vault"),
    }
}

/// Reads a secret from a descriptor that a flag names.
pub(crate) fn from_descriptor(flag: &str, number: u32, bytes_max: usize) -> Result<Secret, Failure> {
    let file = File::open(format!("/proc/self/fd/{number}")).map_err(|error| {
        Failure::new(codes::USAGE, format!("{flag} {number}: it isn't open for reading: {error}"))
    })?;
    read_all(file.as_fd(), bytes_max)
}

/// Reads a secret from a file. One that others can read, or that is no plain file, is refused.
pub(crate) fn from_private_file(path: &Path, code: Code, bytes_max: usize) -> Result<Secret, Failure> {
    let file = File::open(path).map_err(|error| Failure::io("read", path, &error))?;
    let is_private = file.metadata().is_ok_and(|meta| meta.is_file() && meta.mode() & 0o077 == 0);
    if !is_private {
        let message =
            format!("`{}` can't hold a secret: others can read it, or it is no plain file", path.display());
        return Err(Failure::new(code, message).help(format!("chmod 600 {}", path.display())));
    }
    read_all(file.as_fd(), bytes_max)
}

/// Reads to the end into memory that is wiped, past the standard library's buffers.
pub(crate) fn read_all(from: std::os::fd::BorrowedFd<'_>, bytes_max: usize) -> Result<Secret, Failure> {
    // One byte more than allowed tells that there is more; the line end that is taken off gets room, too.
    let room = bytes_max.saturating_add(3);
    let mut whole = Zeroizing::new(vec![0_u8; room]);
    let mut length = 0;
    while let Some(free) = whole.get_mut(length..).filter(|free| !free.is_empty()) {
        match rustix::io::read(from, free) {
            Ok(0) => break,
            Ok(read) => length = length.saturating_add(read),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Failure::new(codes::IO, format!("can't read the value: {errno}"))),
        }
    }
    whole.truncate(length);
    let text =
        whole.strip_suffix(b"\n").map_or(whole.as_slice(), |text| text.strip_suffix(b"\r").unwrap_or(text));
    Ok(Secret::new(text.to_vec()))
}

/// Asks at the terminal without showing what is typed.
fn ask(question: &str) -> Result<Secret, Failure> {
    let fail = |error: &dyn std::fmt::Display| Failure::new(codes::IO, format!("can't ask: {error}"));
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question}").and_then(|()| stderr.flush()).map_err(|error| fail(&error))?;
    let quiet = Quiet::begin().map_err(|error| fail(&error))?;
    let mut line = Zeroizing::new(Vec::with_capacity(PASSPHRASE_BYTES_MAX));
    let mut byte = [0_u8; 1];
    while line.len() < PASSPHRASE_BYTES_MAX {
        match rustix::io::read(rustix::stdio::stdin(), &mut byte) {
            Ok(0) => break,
            Ok(_) if byte == *b"\n" => break,
            Ok(_) if byte == [3] => return Err(Failure::new(codes::INTERRUPTED, "interrupted")),
            Ok(_) => line.extend_from_slice(&byte),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(fail(&errno)),
        }
    }
    drop(quiet);
    writeln!(stderr).map_err(|error| fail(&error))?;
    Ok(Secret::new(line.to_vec()))
}

/// While this lives the terminal shows nothing, and an interrupt comes as a letter: it must not leave the terminal so.
struct Quiet(Termios);

impl Quiet {
    fn begin() -> rustix::io::Result<Self> {
        let usual = tcgetattr(rustix::stdio::stdin())?;
        let mut quiet = usual.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &quiet)?;
        Ok(Self(usual))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // If it can't be put back there is no terminal left to put it back on.
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.0).ok();
    }
}
