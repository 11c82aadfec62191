//! The decrypted content of the vault: secrets with their scopes and versions, and internal keys.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::Secret;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

use crate::error::VaultError;
use crate::scope::Scope;

/// Version of the format below.
const FORM: u32 = 1;
/// Maximum number of secrets.
const SECRETS_MAX: usize = 4_096;
/// Maximum versions of each secret. Old values are kept so that they are scrubbed as well.
const VERSIONS_MAX: usize = 8;

/// The open vault.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenVault {
    form: u32,
    #[serde(default)]
    pub(crate) secrets: BTreeMap<String, SecretRecord>,
    /// Internal keys. They have no handle, so no call can use one.
    #[serde(default)]
    pub(crate) keys: BTreeMap<String, Value>,
}

/// A secret with its versions.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretRecord {
    #[serde(default, skip_serializing_if = "Scope::is_open")]
    pub(crate) scope: Scope,
    /// Newest first.
    pub(crate) versions: Vec<Version>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Version {
    pub(crate) added_ms: i64,
    pub(crate) value: Value,
}

/// Bytes that serialize as base64 and are wiped on drop.
#[derive(Debug, Clone)]
pub(crate) struct Value(pub(crate) Secret);

impl OpenVault {
    pub(crate) fn empty() -> Self {
        Self { form: FORM, secrets: BTreeMap::new(), keys: BTreeMap::new() }
    }

    pub(crate) fn read(json: &[u8]) -> Result<Self, VaultError> {
        // Without serde's error message, which can quote the input.
        let store: Self = serde_json::from_slice(json).map_err(|error| {
            VaultError::Corrupt(format!("its content is unreadable from byte {}", error.column()))
        })?;
        if store.form != FORM {
            return Err(VaultError::Corrupt(format!(
                "it has format {}; this version reads {FORM}",
                store.form
            )));
        }
        Ok(store)
    }

    /// All values under a name, the current one and those before.
    pub(crate) fn values_of<'s>(&'s self, name: &'s str) -> impl Iterator<Item = (String, Secret)> + 's {
        let versions = self.secrets.get(name).into_iter().flat_map(|kept| &kept.versions);
        versions.map(move |version| (name.to_owned(), version.value.0.clone()))
    }

    pub(crate) fn write(&self) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        // Allocates the full capacity up front: a growing buffer leaves copies behind that are never wiped.
        let sizes = self.secrets.iter().map(|(name, kept)| {
            let values: usize =
                kept.versions.iter().map(|one| one.value.0.expose().len().saturating_mul(2)).sum();
            name.len()
                .saturating_add(values)
                .saturating_add(kept.versions.len().saturating_mul(64))
                .saturating_add(kept.scope.bytes())
                .saturating_add(128)
        });
        let room =
            sizes.sum::<usize>().saturating_add(self.keys.len().saturating_mul(256)).saturating_add(256);
        let mut json = Zeroizing::new(Vec::with_capacity(room));
        serde_json::to_writer(&mut *json, self).map_err(|error| VaultError::Corrupt(error.to_string()))?;
        Ok(json)
    }

    /// The newest version.
    pub(crate) fn current(&self, name: &str) -> Option<&Version> {
        self.secrets.get(name)?.versions.first()
    }

    pub(crate) fn add(
        &mut self,
        name: &str,
        value: Secret,
        scope: Scope,
        now_ms: i64,
    ) -> Result<(), VaultError> {
        if self.secrets.contains_key(name) {
            return Err(VaultError::Exists(name.to_owned()));
        }
        if self.secrets.len() >= SECRETS_MAX {
            return Err(VaultError::Full(SECRETS_MAX));
        }
        let versions = vec![Version { added_ms: now_ms, value: Value(value) }];
        self.secrets.insert(name.to_owned(), SecretRecord { scope, versions });
        Ok(())
    }

    /// Adds a new value as the newest version. Setting the current value again is an error.
    pub(crate) fn rotate(&mut self, name: &str, value: Secret, now_ms: i64) -> Result<usize, VaultError> {
        let kept = self.secrets.get_mut(name).ok_or_else(|| VaultError::NotFound(name.to_owned()))?;
        if kept.versions.first().is_some_and(|newest| newest.value.0.expose() == value.expose()) {
            return Err(VaultError::SameValue(name.to_owned()));
        }
        kept.versions.insert(0, Version { added_ms: now_ms, value: Value(value) });
        kept.versions.truncate(VERSIONS_MAX);
        Ok(kept.versions.len())
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(STANDARD.encode(self.0.expose())))
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(InBase64)
    }
}

/// Decodes in place, without a copy of the text.
struct InBase64;

impl Visitor<'_> for InBase64 {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        let mut bytes = Vec::with_capacity(text.len());
        match STANDARD.decode_vec(text, &mut bytes) {
            Ok(()) => Ok(Value(Secret::new(bytes))),
            Err(_) => {
                drop(Zeroizing::new(bytes));
                Err(E::custom("not base64"))
            }
        }
    }
}
