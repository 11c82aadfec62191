//! Questions in the shared state, encrypted where payloads are: a question shows the call, and the call is what is encrypted.
//!
//! The state is shared by all projects of a user. A process that doesn't encrypt still reads what others encrypted, if the vault gives it the
//! key. Without the vault's passphrase it doesn't see them. Any other reason is an error: a denial that can't be read must not be absent.

use std::sync::Arc;

use regent_store::{Record, Records, State, StateError, Step};
use regent_vault::{Vault, VaultError, seal, unseal};

/// Begins an encrypted value; JSON never does.
const MAGIC: &[u8] = b"\0sealed1";
const SEALED_PREFIX: &str = "question/";
const KEY: &str = "state.questions";

/// A state whose questions are encrypted.
#[derive(Debug)]
pub(crate) struct Sealed {
    inner: Arc<dyn State>,
    vault: Arc<Vault>,
    encrypts: bool,
}

impl Sealed {
    /// Before a state.
    pub(crate) fn new(inner: Arc<dyn State>, vault: Arc<Vault>, encrypts: bool) -> Self {
        Self { inner, vault, encrypts }
    }

    fn close(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, StateError> {
        if !self.encrypts || !key.starts_with(SEALED_PREFIX) {
            return Ok(value.to_vec());
        }
        let unusable = |error: regent_vault::VaultError| StateError::Unusable(error.to_string());
        let secret = self.vault.key(KEY).map_err(unusable)?;
        Ok([MAGIC, &seal(&secret, key, value).map_err(unusable)?].concat())
    }

    /// What a value holds; nothing if the vault is locked.
    fn open(&self, key: &str, value: Vec<u8>) -> Result<Option<Vec<u8>>, StateError> {
        let Some(sealed) = value.strip_prefix(MAGIC) else { return Ok(Some(value)) };
        let secret = match self.vault.key(KEY) {
            Ok(secret) => secret,
            Err(VaultError::PassphraseNeeded) => return Ok(None),
            Err(error) => return Err(StateError::Unusable(error.to_string())),
        };
        let opened = unseal(&secret, key, sealed);
        opened.map(Some).ok_or_else(|| {
            StateError::Corrupt(format!("`{key}` was changed, or encrypted with the key of another vault"))
        })
    }

    fn open_all(&self, records: Vec<Record>) -> Result<Vec<Record>, StateError> {
        let mut opened = Vec::with_capacity(records.len());
        for record in records {
            let Record { key, value, keep_until_ms } = record;
            if let Some(value) = self.open(&key, value)? {
                opened.push(Record { key, value, keep_until_ms });
            }
        }
        Ok(opened)
    }
}

impl State for Sealed {
    fn stale(&self, now_ms: i64) -> Result<Vec<String>, StateError> {
        self.inner.stale(now_ms)
    }

    fn change(&self, step: Step<'_>) -> Result<(), StateError> {
        self.inner.change(&mut |records| step(&mut Within { sealed: self, records }))
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError> {
        self.inner.get(key)?.map_or(Ok(None), |value| self.open(key, value))
    }

    fn scan(&self, prefix: &str) -> Result<Vec<Record>, StateError> {
        self.open_all(self.inner.scan(prefix)?)
    }
}

/// The same within a step.
struct Within<'a> {
    sealed: &'a Sealed,
    records: &'a mut dyn Records,
}

impl Records for Within<'_> {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError> {
        self.records.get(key)?.map_or(Ok(None), |value| self.sealed.open(key, value))
    }

    fn scan(&self, prefix: &str) -> Result<Vec<Record>, StateError> {
        self.sealed.open_all(self.records.scan(prefix)?)
    }

    fn put(&mut self, key: &str, value: &[u8], keep_until_ms: i64) -> Result<(), StateError> {
        self.records.put(key, &self.sealed.close(key, value)?, keep_until_ms)
    }

    fn remove(&mut self, key: &str) -> Result<(), StateError> {
        self.records.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use regent_store::MemoryState;

    use super::*;

    #[test]
    fn questions_are_encrypted_and_read_by_those_who_have_the_key() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let inner: Arc<dyn State> = Arc::new(MemoryState::default());
        let with = |folder: &tempfile::TempDir, encrypts| {
            Sealed::new(Arc::clone(&inner), Arc::new(Vault::new(folder.path(), None)), encrypts)
        };
        let sealed = with(&folder, true);
        let put = |state: &Sealed, key: &str| {
            state.change(&mut |records| records.put(key, b"{\"summary\":\"PATIENT-4711\"}", 1)).unwrap();
        };
        put(&sealed, "question/a");
        put(&sealed, "rate/a");
        assert!(!String::from_utf8_lossy(&inner.get("question/a").unwrap().unwrap()).contains("PATIENT"));
        assert!(inner.get("rate/a").unwrap().unwrap().starts_with(b"{"), "counters stay as they are");
        for encrypts in [true, false] {
            let state = with(&folder, encrypts);
            assert_eq!(state.get("question/a").unwrap(), sealed.get("rate/a").unwrap());
            assert_eq!(state.scan("question/").unwrap().len(), 1);
        }
        // Another vault, or a value that somebody changed: a recorded denial would be gone.
        let other = with(&elsewhere, false);
        assert!(matches!(other.get("question/a"), Err(StateError::Corrupt(_))));
        assert!(matches!(other.scan("question/"), Err(StateError::Corrupt(_))));
        let mut changed = inner.get("question/a").unwrap().unwrap();
        *changed.last_mut().unwrap() ^= 1;
        inner.change(&mut |records| records.put("question/a", &changed, 1)).unwrap();
        assert!(matches!(sealed.get("question/a"), Err(StateError::Corrupt(_))));
    }
}
