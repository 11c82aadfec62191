//! The vault on disk: one age file, readable only by its owner, replaced atomically under a lock.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use age::secrecy::{ExposeSecret, SecretString};
use age::{DecryptError, Decryptor, Encryptor, Identity, Recipient, scrypt, x25519};
use regent_kernel::Secret;
use rustix::fs::FlockOperation;
use zeroize::Zeroizing;

use crate::error::VaultError;

const FILE_BYTES_MAX: u64 = 64 << 20;
const KEY_BYTES_MAX: u64 = 4 << 10;
pub(crate) const PASSPHRASE_CHARS_MIN: usize = 8;
/// Base-2 logarithm of scrypt's work factor; takes about half a second and 128 MiB.
const WORK_FACTOR: u8 = if cfg!(test) { 4 } else { 17 };
/// Maximum accepted work factor. This program never writes a higher one.
const WORK_FACTOR_MAX: u8 = 20;

/// Paths of a vault.
#[derive(Debug, Clone)]
pub(crate) struct VaultPaths {
    pub(crate) vault: PathBuf,
    pub(crate) key: PathBuf,
    /// The record of revealed values.
    pub(crate) revealed: PathBuf,
    lock: PathBuf,
}

/// How a vault is encrypted.
#[derive(Debug, Clone)]
pub(crate) enum VaultLock {
    /// With the key file beside it.
    Key,
    /// With a passphrase.
    Passphrase(Secret),
}

/// Identity of a file that was read: another inode, size or time means other content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// Decrypted content, its lock, and the identity of its file.
pub(crate) struct VaultContent {
    pub(crate) bytes: Zeroizing<Vec<u8>>,
    pub(crate) id: FileId,
    pub(crate) lock: VaultLock,
}

impl VaultPaths {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            vault: folder.join("vault.age"),
            key: folder.join("vault.key"),
            revealed: folder.join("vault.revealed"),
            lock: folder.join("vault.lock"),
        }
    }

    /// Takes the write lock, held until the returned file is dropped.
    pub(crate) fn hold(&self) -> Result<File, VaultError> {
        let failed = io_error(&self.lock);
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(no_follow())
            .open(&self.lock)
            .map_err(&failed)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
        Ok(file)
    }

    /// Identity of the current file, if it exists.
    pub(crate) fn id(&self) -> Result<Option<FileId>, VaultError> {
        id_of(&self.vault)
    }

    /// Identity of the current record of revealed values, if it exists.
    pub(crate) fn revealed_id(&self) -> Result<Option<FileId>, VaultError> {
        id_of(&self.revealed)
    }

    /// The record of revealed values, and the identity of its file.
    pub(crate) fn read_revealed(&self) -> Result<Option<(Vec<u8>, FileId)>, VaultError> {
        let Some(file) = open_private(&self.revealed)? else { return Ok(None) };
        let failed = io_error(&self.revealed);
        let id = FileId::from_metadata(&file.metadata().map_err(&failed)?);
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(&failed)?;
        Ok(Some((bytes, id)))
    }

    /// Replaces the record of revealed values.
    pub(crate) fn write_revealed(&self, content: &[u8]) -> Result<(), VaultError> {
        replace(&self.revealed, content)
    }

    /// The encrypted bytes, and the identity of their file.
    fn sealed(&self) -> Result<Option<(Vec<u8>, FileId)>, VaultError> {
        let Some(mut file) = open_private(&self.vault)? else { return Ok(None) };
        let failed = io_error(&self.vault);
        let id = FileId::from_metadata(&file.metadata().map_err(&failed)?);
        let mut sealed = Vec::new();
        (&mut file).take(FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut sealed).map_err(&failed)?;
        if sealed.len() as u64 > FILE_BYTES_MAX {
            return Err(VaultError::Corrupt(format!("it is larger than {FILE_BYTES_MAX} bytes")));
        }
        Ok(Some((sealed, id)))
    }

    /// Whether the vault is encrypted with a passphrase.
    pub(crate) fn has_passphrase(&self) -> Result<bool, VaultError> {
        match self.sealed()? {
            None => Ok(false),
            Some((sealed, _)) => Ok(Decryptor::new(sealed.as_slice()).map_err(corrupt)?.is_scrypt()),
        }
    }

    /// The content, and the identity of its file. `None` if the vault doesn't exist yet.
    pub(crate) fn read(&self, passphrase: Option<&Secret>) -> Result<Option<VaultContent>, VaultError> {
        let Some((sealed, id)) = self.sealed()? else { return Ok(None) };
        let decryptor = Decryptor::new(sealed.as_slice()).map_err(corrupt)?;
        let lock = match (decryptor.is_scrypt(), passphrase) {
            (true, None) => return Err(VaultError::PassphraseNeeded),
            (true, Some(passphrase)) => VaultLock::Passphrase(passphrase.clone()),
            (false, _) => VaultLock::Key,
        };
        let identity: Box<dyn Identity> = match &lock {
            VaultLock::Passphrase(passphrase) => {
                let mut identity = scrypt::Identity::new(text_of(passphrase)?);
                identity.set_max_work_factor(WORK_FACTOR_MAX);
                Box::new(identity)
            }
            VaultLock::Key => Box::new(self.key()?.ok_or_else(|| VaultError::KeyMissing(self.key.clone()))?),
        };
        let which = match &lock {
            VaultLock::Passphrase(_) => "passphrase",
            VaultLock::Key => "key",
        };
        let mut reader =
            decryptor.decrypt(std::iter::once(identity.as_ref())).map_err(|error| closed(error, which))?;
        // The content is shorter than its ciphertext, so the buffer never reallocates.
        let mut content = Zeroizing::new(Vec::with_capacity(sealed.len()));
        reader.read_to_end(&mut content).map_err(|_| VaultError::Corrupt("it was damaged".to_owned()))?;
        Ok(Some(VaultContent { bytes: content, id, lock }))
    }

    /// Replaces the content. Until the rename, the old file stays in place.
    pub(crate) fn write(&self, content: &[u8], lock: &VaultLock) -> Result<FileId, VaultError> {
        let recipient: Box<dyn Recipient> = match lock {
            VaultLock::Passphrase(passphrase) => {
                let mut recipient = scrypt::Recipient::new(text_of(passphrase)?);
                recipient.set_work_factor(WORK_FACTOR);
                Box::new(recipient)
            }
            VaultLock::Key => Box::new(self.key_or_new()?.to_public()),
        };
        let unsealed = |why: String| VaultError::Corrupt(format!("it can't be encrypted: {why}"));
        let encryptor = Encryptor::with_recipients(std::iter::once(recipient.as_ref()))
            .map_err(|error| unsealed(error.to_string()))?;
        let mut sealed = Vec::with_capacity(content.len().saturating_add(4096));
        let mut writer = encryptor.wrap_output(&mut sealed).map_err(|error| unsealed(error.to_string()))?;
        writer.write_all(content).map_err(|error| unsealed(error.to_string()))?;
        writer.finish().map_err(|error| unsealed(error.to_string()))?;
        replace(&self.vault, &sealed)?;
        let meta = std::fs::symlink_metadata(&self.vault).map_err(io_error(&self.vault))?;
        Ok(FileId::from_metadata(&meta))
    }

    fn key(&self) -> Result<Option<x25519::Identity>, VaultError> {
        let Some(file) = open_private(&self.key)? else { return Ok(None) };
        let mut text = Zeroizing::new(String::with_capacity(KEY_BYTES_MAX as usize));
        let malformed = || VaultError::KeyMalformed(self.key.clone());
        file.take(KEY_BYTES_MAX).read_to_string(&mut text).map_err(|_| malformed())?;
        identities(&text).next().ok_or_else(malformed).map(Some)
    }

    /// Loads the key, or creates one if the vault doesn't exist yet. An existing vault never gets a new key.
    fn key_or_new(&self) -> Result<x25519::Identity, VaultError> {
        if let Some(key) = self.key()? {
            return Ok(key);
        }
        let key = x25519::Identity::generate();
        let text = key.to_string();
        let public = key.to_public();
        let text = Zeroizing::new(format!(
            "# The key of Regent's vault. Anyone with this file and vault.age can read every secret.\n# public key: {public}\n{}\n",
            text.expose_secret()
        ));
        replace(&self.key, text.as_bytes())?;
        Ok(key)
    }
}

fn id_of(path: &Path) -> Result<Option<FileId>, VaultError> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(FileId::from_metadata(&meta))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(io_error(path)(source)),
    }
}

/// The age keys in a text, one per line; other lines are comments.
pub(crate) fn identities(text: &str) -> impl Iterator<Item = x25519::Identity> {
    text.lines().filter_map(|line| line.trim().parse().ok())
}

/// Opens a private file of the vault.
fn open_private(path: &Path) -> Result<Option<File>, VaultError> {
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(no_follow()).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(VaultError::Exposed(path.to_owned()));
        }
        Err(source) => return Err(io_error(path)(source)),
    };
    let meta = file.metadata().map_err(io_error(path))?;
    if !meta.is_file() || meta.mode() & 0o077 != 0 {
        return Err(VaultError::Exposed(path.to_owned()));
    }
    Ok(Some(file))
}

/// Writes a temporary file beside the old one, syncs it, and renames it.
fn replace(path: &Path, content: &[u8]) -> Result<(), VaultError> {
    let failed = io_error(path);
    let mut suffix = [0_u8; 8];
    getrandom::fill(&mut suffix).map_err(|error| VaultError::Random(error.to_string()))?;
    let suffix: String = suffix.iter().map(|byte| format!("{byte:02x}")).collect();
    let draft = path.with_extension(format!("{suffix}.tmp"));
    let write = || -> io::Result<()> {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&draft, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| {
        // Removes the temporary file of a failed attempt. The old file is unchanged.
        std::fs::remove_file(&draft).ok();
        failed(error)
    })
}

impl FileId {
    fn from_metadata(meta: &std::fs::Metadata) -> Self {
        Self { inode: meta.ino(), bytes: meta.size(), modified: (meta.mtime(), meta.mtime_nsec()) }
    }
}

fn text_of(passphrase: &Secret) -> Result<SecretString, VaultError> {
    let text = std::str::from_utf8(passphrase.expose()).map_err(|_| VaultError::WrongKey("passphrase"))?;
    Ok(SecretString::from(text))
}

fn corrupt(error: DecryptError) -> VaultError {
    VaultError::Corrupt(error.to_string())
}

fn closed(error: DecryptError, which: &'static str) -> VaultError {
    let is_key = matches!(
        error,
        DecryptError::NoMatchingKeys | DecryptError::DecryptionFailed | DecryptError::KeyDecryptionFailed
    );
    if is_key { VaultError::WrongKey(which) } else { corrupt(error) }
}

fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> VaultError {
    let path = path.to_owned();
    move |source| VaultError::Io { path: path.clone(), source }
}
