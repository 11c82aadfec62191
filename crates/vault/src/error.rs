//! What can be wrong with a vault. No message quotes a value.

use std::io;
use std::path::PathBuf;

/// Why a vault operation failed. The vault is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// A file can't be read or written.
    #[error("`{}`: {source}", path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Someone else could read or change it.
    #[error("`{}` must be your own file that nobody else can read (mode 0600)", .0.display())]
    Exposed(PathBuf),
    /// The vault is there and its key isn't.
    #[error("the vault's key `{}` is missing", .0.display())]
    KeyMissing(PathBuf),
    /// The key file holds something else.
    #[error("`{}` is not an age key", .0.display())]
    KeyMalformed(PathBuf),
    /// It needs a passphrase, and none was given.
    #[error("the vault is locked with a passphrase")]
    PassphraseNeeded,
    /// The passphrase, or the key, is another one's.
    #[error("this {0} doesn't open the vault")]
    WrongKey(&'static str),
    /// A passphrase that would be found by trying.
    #[error("a passphrase needs at least {0} characters")]
    PassphraseShort(usize),
    /// It was damaged, or made by something else.
    #[error("the vault can't be read: {0}")]
    Corrupt(String),
    /// No secret can have this name.
    #[error(
        "`{0}` is not a valid name: use at most 128 lower case letters, digits, and `.` `_` `/` `-` between them"
    )]
    Name(String),
    /// There is one already.
    #[error("the secret `{0}` already exists")]
    Exists(String),
    /// There is none.
    #[error("there is no secret `{0}`")]
    NotFound(String),
    /// A rotation to the value that it has.
    #[error("the secret `{0}` already has this value")]
    SameValue(String),
    /// Masking it would destroy ordinary output.
    #[error("a value of {bytes} bytes is too short to be masked; the minimum is {least}")]
    TooShort {
        /// How long it is.
        bytes: usize,
        /// How long it has to be.
        least: usize,
    },
    /// More than is looked for in everything that comes back.
    #[error("a value of {bytes} bytes is too long; the maximum is {most}")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// A scope that can't be meant.
    #[error("invalid scope: {0}")]
    Scope(String),
    /// It holds as many as it can.
    #[error("the vault is full: it holds at most {0} secrets")]
    Full(usize),
    /// A file of secrets that can't be taken in.
    #[error("{0}")]
    Import(String),
    /// The system gives no random numbers.
    #[error("no random numbers: {0}")]
    Random(String),
}
