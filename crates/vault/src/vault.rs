//! The vault: its operations for the operator and for the kernel.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use regent_kernel::{Scrubbed, Secret, SecretError, Secrets, Usage, is_secret_name};
use zeroize::Zeroizing;

use crate::error::VaultError;
use crate::file::{FileId, PASSPHRASE_CHARS_MIN, VaultContent, VaultLock, VaultPaths};
use crate::redact;
use crate::revealed::Revealed;
use crate::scope::Scope;
use crate::scrub::Scrubber;
use crate::store::{OpenVault, Value};
use crate::tokens;

/// Maximum length of a value: the scrubber searches all output for about thirty forms of each used value.
pub const VALUE_BYTES_MAX: usize = regent_kernel::SECRET_BYTES_MAX;
/// Minimum length without `--force`: shorter values occur in ordinary text.
pub const VALUE_BYTES_MIN: usize = 8;
/// Minimum length with `--force`: masking such values also masks other text.
pub const VALUE_BYTES_FORCED_MIN: usize = 4;

/// A vault in a folder. It opens on first use and reloads when its file changes.
pub struct Vault {
    files: VaultPaths,
    passphrase: Mutex<Option<Secret>>,
    open: Mutex<Open>,
    scrubber: RwLock<Arc<Scrubber>>,
    /// Set once a value was revealed, so that the common case costs one atomic load.
    armed: AtomicBool,
    /// Values that other processes revealed, as marks, and the identity of the last record read. There are several records if the file was
    /// removed and recreated.
    others: RwLock<(Option<FileId>, Vec<Arc<Revealed>>)>,
}

/// The decrypted vault, and the values revealed so far.
#[derive(Default)]
struct Open {
    read: Option<(FileId, OpenVault)>,
    revealed: Vec<(String, Secret)>,
}

/// How short a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Short {
    /// At least [`VALUE_BYTES_MIN`].
    Refused,
    /// At least [`VALUE_BYTES_FORCED_MIN`].
    Allowed,
}

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its scope.
    pub scope: Scope,
    /// Number of kept values.
    pub versions: usize,
    /// When the current value was set.
    pub added_ms: i64,
}

impl Vault {
    /// The vault in this folder. Reads nothing yet.
    pub fn new(folder: &Path, passphrase: Option<Secret>) -> Self {
        Self {
            files: VaultPaths::new(folder),
            passphrase: Mutex::new(passphrase),
            open: Mutex::default(),
            scrubber: RwLock::default(),
            armed: AtomicBool::new(false),
            others: RwLock::default(),
        }
    }

    /// Loads every recorded value into the scrubber. An unreadable record is an error, because its values would pass unmasked.
    pub fn recognise(&self) -> Result<(), VaultError> {
        let id = self.files.revealed_id()?;
        if self.others.read().unwrap_or_else(PoisonError::into_inner).0 == id {
            return Ok(());
        }
        // A removed file changes nothing: known values stay known.
        let Some((bytes, id)) = self.files.read_revealed()? else { return Ok(()) };
        let record = Arc::new(Revealed::read(&bytes)?);
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        others.1.retain(|known| !record.replaces(known));
        others.1.push(record);
        others.0 = Some(id);
        Ok(())
    }

    /// Path of the encrypted file.
    pub fn path(&self) -> &Path {
        &self.files.vault
    }

    /// Path of its key, used without a passphrase.
    pub fn key_path(&self) -> &Path {
        &self.files.key
    }

    /// Whether the vault exists.
    pub fn exists(&self) -> Result<bool, VaultError> {
        Ok(self.files.id()?.is_some())
    }

    /// Whether the vault needs a passphrase.
    pub fn has_passphrase(&self) -> Result<bool, VaultError> {
        self.files.has_passphrase()
    }

    /// Sets the passphrase.
    pub fn unlock(&self, passphrase: Secret) {
        *self.passphrase.lock().unwrap_or_else(PoisonError::into_inner) = Some(passphrase);
    }

    /// All secrets, without their values.
    pub fn list(&self) -> Result<Vec<Listed>, VaultError> {
        let (store, ..) = self.read()?;
        let listed = store.secrets.iter().map(|(name, kept)| Listed {
            name: name.clone(),
            scope: kept.scope.clone(),
            versions: kept.versions.len(),
            added_ms: kept.versions.first().map_or(0, |newest| newest.added_ms),
        });
        Ok(listed.collect())
    }

    /// Adds a new secret. From now on every process masks its value.
    pub fn add(
        &self,
        name: &str,
        value: Secret,
        scope: Scope,
        short: Short,
        now_ms: i64,
    ) -> Result<(), VaultError> {
        check(name, &value, short)?;
        scope.check()?;
        self.change_values(&[name], |store| store.add(name, value, scope, now_ms))
    }

    /// Sets a new value, and returns the number of kept ones. Old values are still scrubbed.
    pub fn rotate(&self, name: &str, value: Secret, short: Short, now_ms: i64) -> Result<usize, VaultError> {
        check(name, &value, short)?;
        self.change_values(&[name], |store| store.rotate(name, value, now_ms))
    }

    /// Removes a secret with all its values.
    pub fn remove(&self, name: &str) -> Result<(), VaultError> {
        let missing = || VaultError::NotFound(name.to_owned());
        self.change(|store| store.secrets.remove(name).map(drop).ok_or_else(missing))
    }

    /// Adds all given secrets, or none; returns the names that exist already, which stay unchanged.
    pub fn import(
        &self,
        found: Vec<(String, Secret)>,
        scope: &Scope,
        short: Short,
        now_ms: i64,
    ) -> Result<Vec<String>, VaultError> {
        scope.check()?;
        for (name, value) in &found {
            check(name, value, short)?;
        }
        let names: Vec<String> = found.iter().map(|(name, _)| name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.change_values(&names, |store| {
            let mut left = Vec::new();
            for (name, value) in found {
                match store.add(&name, value, scope.clone(), now_ms) {
                    Ok(()) => {}
                    Err(VaultError::Exists(name)) => left.push(name),
                    Err(error) => return Err(error),
                }
            }
            Ok(left)
        })
    }

    /// Re-encrypts the vault with a passphrase, or with the key beside it if none is given.
    pub fn relock(&self, passphrase: Option<Secret>) -> Result<(), VaultError> {
        let lock = match &passphrase {
            None => VaultLock::Key,
            Some(passphrase) => {
                let text = std::str::from_utf8(passphrase.expose());
                if text.is_ok_and(|text| text.chars().count() < PASSPHRASE_CHARS_MIN) {
                    return Err(VaultError::PassphraseShort(PASSPHRASE_CHARS_MIN));
                }
                VaultLock::Passphrase(passphrase.clone())
            }
        };
        let _only_writer = self.files.hold()?;
        let (store, ..) = self.read()?;
        self.files.write(&store.write()?, &lock)?;
        *self.passphrase.lock().unwrap_or_else(PoisonError::into_inner) = passphrase;
        Ok(())
    }

    /// An internal key, created on first use. It has no handle, so no call can use it.
    pub fn key(&self, purpose: &str) -> Result<Zeroizing<[u8; 32]>, VaultError> {
        let known = |store: &OpenVault| {
            let value = store.keys.get(purpose)?;
            <[u8; 32]>::try_from(value.0.expose()).ok().map(Zeroizing::new)
        };
        if let Some(key) = known(&self.read()?.0) {
            return Ok(key);
        }
        self.change(|store| {
            if let Some(key) = known(store) {
                return Ok(key);
            }
            let mut key = Zeroizing::new([0_u8; 32]);
            getrandom::fill(key.as_mut_slice()).map_err(|error| VaultError::Random(error.to_string()))?;
            store.keys.insert(purpose.to_owned(), Value(Secret::new(key.to_vec())));
            Ok(key)
        })
    }

    fn read(&self) -> Result<(OpenVault, Option<FileId>, VaultLock), VaultError> {
        let passphrase = self.passphrase.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(match self.files.read(passphrase.as_ref())? {
            Some(VaultContent { bytes, id, lock }) => (OpenVault::read(&bytes)?, Some(id), lock),
            None => (OpenVault::empty(), None, VaultLock::Key),
        })
    }

    /// Reads, changes and writes under the write lock. A failed change leaves the file as it was.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut OpenVault) -> Result<T, VaultError>,
    ) -> Result<T, VaultError> {
        self.change_values(&[], change)
    }

    /// The same for a change that sets values under these names. They are recorded first, so that no process gets one that others don't mask.
    fn change_values<T>(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut OpenVault) -> Result<T, VaultError>,
    ) -> Result<T, VaultError> {
        let _only_writer = self.files.hold()?;
        let (mut store, _, lock) = self.read()?;
        let result = change(&mut store)?;
        let values: Vec<(String, Secret)> = names.iter().flat_map(|name| store.values_of(name)).collect();
        if !values.is_empty() {
            self.note(&store, &values)?;
        }
        self.files.write(&store.write()?, &lock)?;
        Ok(result)
    }

    /// The open vault in its current state on disk.
    fn current<'o>(&self, open: &'o mut Open) -> Result<&'o OpenVault, VaultError> {
        let id = self.files.id()?;
        if open.read.as_ref().map(|(seen, _)| *seen) != id || id.is_none() {
            let (store, id, _) = self.read()?;
            open.read = id.map(|id| (id, store));
        }
        open.read.as_ref().map(|(_, store)| store).ok_or_else(|| VaultError::NotFound(String::new()))
    }

    /// Ensures that a value is scrubbed before it is released. Includes all its versions, because old ones may occur in output as well.
    fn arm(&self, open: &mut Open, name: &str) -> Result<(), VaultError> {
        let Some((_, store)) = &open.read else { return Ok(()) };
        let is_known = |value: &Secret| {
            open.revealed.iter().any(|(known, one)| known == name && one.expose() == value.expose())
        };
        let fresh: Vec<(String, Secret)> =
            store.values_of(name).filter(|(_, value)| !is_known(value)).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        // An earlier version of Regent didn't record values that were added: a later process recognises this one even if this process is
        // killed right after.
        let only_writer = self.files.hold()?;
        self.note(store, &fresh)?;
        drop(only_writer);
        let mut revealed = open.revealed.clone();
        revealed.extend(fresh);
        let scrubber = Scrubber::new(&revealed).map_err(|error| VaultError::Corrupt(error.to_string()))?;
        *self.scrubber.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(scrubber);
        self.armed.store(true, Ordering::Release);
        open.revealed = revealed;
        Ok(())
    }

    /// Adds values to the record of revealed values, under the write lock. The vault is open here, so a record of an earlier version is replaced.
    fn note(&self, store: &OpenVault, values: &[(String, Secret)]) -> Result<(), VaultError> {
        let mut known = match (self.files.read_revealed()?, self.others().last()) {
            (Some((bytes, _)), _) => Revealed::read(&bytes)?,
            // The file was removed: the new one starts with the known values, so that no process loses them.
            (None, Some(known)) => Revealed::clone(known),
            (None, None) => Revealed::empty()?,
        };
        let is_older = known.is_older();
        if is_older {
            known = known.renewed(|name| store.values_of(name).map(|(_, value)| value).collect());
        }
        let fresh: Vec<_> = values.iter().filter(|(name, value)| !known.knows(name, value)).collect();
        if fresh.is_empty() && !is_older {
            return Ok(());
        }
        for (name, value) in fresh {
            known.add(name, value);
        }
        self.files.write_revealed(&known.write()?)?;
        self.recognise()
    }

    /// Values that any process revealed, including this one. Another process may reveal a value at any time, so this checks the file on
    /// each call. If it can't be read now, the last state stays in force.
    fn others(&self) -> Vec<Arc<Revealed>> {
        // `recognise` reported errors at startup; a file that breaks later doesn't unload known values.
        self.recognise().ok();
        self.others.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    fn scrubber(&self) -> Option<Arc<Scrubber>> {
        self.armed
            .load(Ordering::Acquire)
            .then(|| Arc::clone(&self.scrubber.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Secrets for Vault {
    fn reveal(&self, name: &str, usage: &Usage<'_>) -> Result<Secret, SecretError> {
        let missing = || SecretError::NotFound(name.to_owned());
        let locked = |error: VaultError| {
            if matches!(error, VaultError::NotFound(_)) {
                missing()
            } else {
                SecretError::Locked(error.to_string())
            }
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let store = self.current(&mut open).map_err(locked)?;
        let kept = store.secrets.get(name).ok_or_else(missing)?;
        if let Some(why) = kept.scope.refuses(usage) {
            return Err(SecretError::OutOfScope { name: name.to_owned(), why });
        }
        let value = store.current(name).ok_or_else(missing)?.value.0.clone();
        self.arm(&mut open, name).map_err(locked)?;
        Ok(value)
    }

    fn scrub(&self, bytes: &mut Vec<u8>) -> bool {
        let masked = self.scrubber().is_some_and(|scrubber| scrubber.scrub(bytes));
        let masked = self.others().iter().fold(masked, |masked, record| record.scrub(bytes) | masked);
        tokens::scrub(bytes) | masked
    }

    fn scrub_part(&self, held: &mut Vec<u8>) -> Scrubbed {
        // The possible start of a token, or of a value from another process, waits; complete ones are masked.
        let others = self.others();
        let mut open = others
            .iter()
            .map(|record| record.open_at(held))
            .chain([tokens::open_at(held)])
            .min()
            .unwrap_or(0);
        // A value of one record may lie across the place from which another one has to wait.
        while let Some(earlier) = others
            .iter()
            .map(|record| record.beside_values(held, open))
            .chain([tokens::beside_tokens(held, open)])
            .min()
            .filter(|at| *at < open)
        {
            open = earlier;
        }
        let mut waits = held.split_off(open);
        let masked = others.iter().fold(false, |masked, record| record.scrub(held) | masked);
        let masked = tokens::scrub_complete(held) | masked;
        let mut part = match self.scrubber() {
            Some(scrubber) => scrubber.part(held),
            None => Scrubbed { bytes: std::mem::take(held), masked: false },
        };
        held.append(&mut waits);
        part.masked |= masked;
        part
    }

    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut bytes = text.as_bytes().to_vec();
        if !self.scrub(&mut bytes) {
            return redact::text(text);
        }
        let scrubbed = String::from_utf8_lossy(&bytes).into_owned();
        Cow::Owned(redact::text(&scrubbed).into_owned())
    }
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").field("file", &self.files.vault).finish_non_exhaustive()
    }
}

fn check(name: &str, value: &Secret, short: Short) -> Result<(), VaultError> {
    if !is_secret_name(name) {
        return Err(VaultError::Name(name.escape_debug().to_string()));
    }
    let least = match short {
        Short::Refused => VALUE_BYTES_MIN,
        Short::Allowed => VALUE_BYTES_FORCED_MIN,
    };
    match value.expose().len() {
        bytes if bytes < least => Err(VaultError::TooShort { bytes, least }),
        bytes if bytes > VALUE_BYTES_MAX => Err(VaultError::TooLong { bytes, most: VALUE_BYTES_MAX }),
        _fine => Ok(()),
    }
}

#[cfg(test)]
mod tests;
