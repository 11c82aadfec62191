//! Questions in the shared state, encrypted where payloads are: a question shows the call, and the call is what is encrypted.
//!
//! The state is shared by all projects of a user. A process that doesn't encrypt still reads what others encrypted, if the vault gives it the
//! key. Without the vault's passphrase it doesn't see them. Any other reason is an error: a denial that can't be read must not be absent.

use std::sync::Arc;

use regent_store::{BoxFuture, Change, Committed, Partition, Record, State, StateError, Versioned, Write};
use regent_vault::{Vault, VaultError, seal, unseal};
use tokio::sync::watch;

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

    /// What a value holds; `null` if the vault is locked. The record is still there, so a commit can check it.
    fn open(&self, key: &str, value: Vec<u8>) -> Result<Vec<u8>, StateError> {
        let Some(sealed) = value.strip_prefix(MAGIC) else { return Ok(value) };
        let secret = match self.vault.key(KEY) {
            Ok(secret) => secret,
            Err(VaultError::PassphraseNeeded) => return Ok(b"null".to_vec()),
            Err(error) => return Err(StateError::Unusable(error.to_string())),
        };
        unseal(&secret, key, sealed).ok_or_else(|| {
            StateError::Corrupt(format!("`{key}` was changed, or encrypted with the key of another vault"))
        })
    }
}

impl State for Sealed {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>> {
        Box::pin(async move {
            let mut found = self.inner.read(partition, keys).await?;
            for (key, found) in keys.iter().zip(&mut found) {
                if let Some(found) = found {
                    found.value = self.open(key, std::mem::take(&mut found.value))?;
                }
            }
            Ok(found)
        })
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>> {
        Box::pin(async move {
            let mut records = self.inner.scan(partition, prefix).await?;
            for record in &mut records {
                record.value = self.open(&record.key, std::mem::take(&mut record.value))?;
            }
            Ok(records)
        })
    }

    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        mut change: Change,
    ) -> BoxFuture<'s, Result<Committed, StateError>> {
        Box::pin(async move {
            for write in &mut change.writes {
                if let Write::Put { key, value, .. } = write {
                    *value = self.close(key, value)?;
                }
            }
            self.inner.commit(partition, change).await
        })
    }

    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>> {
        self.inner.sweep(now_ms, max)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }

    fn is_lossy(&self) -> bool {
        self.inner.is_lossy()
    }
}

#[cfg(test)]
mod tests {
    use regent_store::{MemoryState, change};

    use super::*;

    async fn get(state: &dyn State, key: &str) -> Result<Option<Vec<u8>>, StateError> {
        let found = state.read(&Partition::containing(key), &[key.to_owned()]).await?;
        Ok(found.into_iter().next().flatten().map(|found| found.value))
    }

    async fn put(state: &dyn State, key: &str, value: &[u8]) {
        let partition = Partition::containing(key);
        change(state, &partition, &[], |records| records.put(key, value, 1)).await.unwrap();
    }

    #[tokio::test]
    async fn questions_are_encrypted_and_read_by_those_who_have_the_key() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let inner: Arc<dyn State> = Arc::new(MemoryState::default());
        let with = |folder: &tempfile::TempDir, encrypts| {
            Sealed::new(Arc::clone(&inner), Arc::new(Vault::new(folder.path(), None)), encrypts)
        };
        let sealed = with(&folder, true);
        let partition = Partition::containing("question/");
        for key in ["question/a", "attention/a"] {
            put(&sealed, key, b"{\"summary\":\"PATIENT-4711\"}").await;
        }
        let raw = get(&*inner, "question/a").await.unwrap().unwrap();
        assert!(!String::from_utf8_lossy(&raw).contains("PATIENT"));
        let plain = get(&*inner, "attention/a").await.unwrap().unwrap();
        assert!(plain.starts_with(b"{"), "counters stay as they are");
        for encrypts in [true, false] {
            let state = with(&folder, encrypts);
            assert_eq!(get(&state, "question/a").await.unwrap(), get(&sealed, "attention/a").await.unwrap());
            assert_eq!(state.scan(&partition, "question/").await.unwrap().len(), 1);
        }
        // Another vault, or a value that somebody changed: a recorded denial would be gone.
        let other = with(&elsewhere, false);
        assert!(matches!(get(&other, "question/a").await, Err(StateError::Corrupt(_))));
        assert!(matches!(other.scan(&partition, "question/").await, Err(StateError::Corrupt(_))));
        let mut changed = raw;
        *changed.last_mut().unwrap() ^= 1;
        put(&*inner, "question/a", &changed).await;
        assert!(matches!(get(&sealed, "question/a").await, Err(StateError::Corrupt(_))));
    }
}
