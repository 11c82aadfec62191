//! Errors of the vault. No message quotes a value.

use std::io;
use std::path::PathBuf;

/// Why a vault operation failed. The vault is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// A file can't be read or written.
    #[error("`{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// Other users can read or change the file.
    #[error("`{}` must be your own file that nobody else can read (mode 0600)", .0.display())]
    Exposed(PathBuf),
    /// The vault exists, but its key doesn't.
    #[error("the vault's key `{}` is missing", .0.display())]
    KeyMissing(PathBuf),
    /// The key file contains something else.
    #[error("`{}` is not an age key", .0.display())]
    KeyMalformed(PathBuf),
    /// The vault needs a passphrase, and none was given.
    #[error("the vault is locked with a passphrase")]
    PassphraseNeeded,
    /// The passphrase or key belongs to another vault.
    #[error("this {0} doesn't open the vault")]
    WrongKey(&'static str),
    /// The passphrase is short enough to be guessed.
    #[error("a passphrase needs at least {0} characters")]
    PassphraseShort(usize),
    /// The file is damaged, or another program wrote it.
    #[error("the vault can't be read: {0}")]
    Corrupt(String),
    /// Invalid name for a secret.
    #[error(
        "`{0}` is not a valid name: use at most 128 lower case letters, digits, and `.` `_` `/` `-` between them"
    )]
    Name(String),
    /// A secret of this name exists.
    #[error("the secret `{0}` already exists")]
    Exists(String),
    /// No secret of this name exists.
    #[error("there is no secret `{0}`")]
    NotFound(String),
    /// The rotation sets the current value again.
    #[error("the secret `{0}` already has this value")]
    SameValue(String),
    /// Masking it would destroy ordinary output.
    #[error("{}", too_short(*bytes, *least))]
    TooShort {
        /// Its length.
        bytes: usize,
        /// The minimum length.
        least: usize,
    },
    /// The scrubber searches all output for every value, so values have a maximum length.
    #[error("a value of {bytes} bytes is too long; the maximum is {most}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The maximum length.
        most: usize,
    },
    /// A malformed scope.
    #[error("invalid scope: {0}")]
    Scope(String),
    /// The vault holds the maximum number of secrets.
    #[error("the vault is full: it holds at most {0} secrets")]
    Full(usize),
    /// A file of secrets that can't be imported.
    #[error("{0}")]
    Import(String),
    /// The operating system returned no random bytes.
    #[error("no random numbers: {0}")]
    Random(String),
}

fn too_short(bytes: usize, least: usize) -> String {
    match bytes {
        0 => "no value given".to_owned(),
        _ => format!("a value of {bytes} bytes is too short to be masked; the minimum is {least}"),
    }
}
