//! SOPS files for age keys: YAML, JSON and `.env` with values in `ENC[AES256_GCM,…]`. Verifies the MAC over all values before it returns
//! any of them.

use std::io::Read as _;

use aes_gcm::aead::consts::U32;
use aes_gcm::aead::generic_array::GenericArray;
use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::aes::Aes256;
use aes_gcm::{AesGcm, Nonce};
use age::Decryptor;
use age::armor::ArmoredReader;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::Secret;
use sha2::{Digest, Sha512};
use zeroize::Zeroizing;

use super::leaves::{self, ImportedValue};
use crate::error::VaultError;
use crate::file::identities;

const KEY_BYTES: usize = 32;

/// The SOPS metadata of a file.
#[derive(Debug, Default)]
struct Metadata {
    /// The file's data key, encrypted for each recipient.
    sealed_keys: Vec<String>,
    code: String,
    modified: String,
    /// A feature that this parser doesn't support.
    unsupported: Option<&'static str>,
}

/// The decrypted values of a file; `None` if it isn't a SOPS file.
pub(super) fn read(text: &str, keys: &str) -> Result<Option<Vec<(String, Secret)>>, VaultError> {
    let (metadata, leaves) = match parts(text)? {
        Some(parts) => parts,
        None => return Ok(None),
    };
    let failed = |why: &str| VaultError::Import(format!("the SOPS file {why}"));
    if let Some(why) = metadata.unsupported {
        return Err(failed(why));
    }
    let key = file_key(&metadata.sealed_keys, keys)?;
    let mut code = Sha512::new();
    let mut values = Vec::new();
    for leaf in leaves {
        let Some(text) = leaf.text else { continue };
        if !text.starts_with("ENC[") {
            code.update(text.as_bytes());
            continue;
        }
        let bound = format!("{}:", leaf.keys.join(":"));
        let value =
            opened(&text, &key, &bound).ok_or_else(|| failed("has a value that was changed or moved"))?;
        code.update(value.expose());
        values.push((leaf.place.join("/"), value));
    }
    let code: String = code.finalize().iter().map(|byte| format!("{byte:02X}")).collect();
    let theirs = opened(&metadata.code, &key, &metadata.modified);
    if theirs.is_none_or(|theirs| theirs.expose() != code.as_bytes()) {
        return Err(failed(
            "doesn't match its message authentication code: a value was added, removed or changed",
        ));
    }
    Ok(Some(values))
}

fn parts(text: &str) -> Result<Option<(Metadata, Vec<ImportedValue>)>, VaultError> {
    let is_lines = text.lines().any(|line| line.starts_with("sops_mac="));
    let is_tree = text.contains("sops") && text.contains("ENC[AES256_GCM,");
    if is_lines {
        return Ok(Some(from_lines(text)));
    }
    if !is_tree {
        return Ok(None);
    }
    let (about, values): (Vec<ImportedValue>, Vec<ImportedValue>) =
        leaves::parse(text)?.into_iter().partition(|leaf| leaf.keys.first().is_some_and(|key| key == "sops"));
    let mut metadata = Metadata::default();
    for leaf in about {
        let keys: Vec<&str> = leaf.keys.iter().skip(1).map(String::as_str).collect();
        metadata.take(&keys, leaf.text.unwrap_or_default());
    }
    Ok(Some((metadata, values)))
}

/// Parses `NAME=ENC[…]` lines. Metadata lines spell their path in a tree in their names.
fn from_lines(text: &str) -> (Metadata, Vec<ImportedValue>) {
    let (mut metadata, mut values) = (Metadata::default(), Vec::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.split_once('=') else { continue };
        let value = value.replace("\\n", "\n");
        match name.strip_prefix("sops_") {
            Some(about) => {
                let keys: Vec<&str> = about
                    .split("__")
                    .filter_map(|part| match part.split_once('_') {
                        Some(("list", _)) => None,
                        Some(("map", key)) => Some(key),
                        Some(_) | None => Some(part),
                    })
                    .collect();
                metadata.take(&keys, value);
            }
            None => values.push(ImportedValue {
                keys: vec![name.to_owned()],
                place: vec![name.to_owned()],
                text: Some(value),
            }),
        }
    }
    (metadata, values)
}

impl Metadata {
    fn take(&mut self, keys: &[&str], text: String) {
        match keys {
            ["age", "enc"] => self.sealed_keys.push(text),
            ["mac"] => self.code = text,
            ["lastmodified"] => self.modified = text,
            ["mac_only_encrypted"] if text.eq_ignore_ascii_case("true") => {
                self.unsupported = Some("uses `mac_only_encrypted`, which is not supported");
            }
            ["key_groups", ..] => {
                self.unsupported = Some("needs several keys at once, which is not supported")
            }
            _other => {}
        }
    }
}

/// Decrypts the data key of the values with one of the age keys.
fn file_key(sealed: &[String], keys: &str) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    if sealed.is_empty() {
        return Err(VaultError::Import("the SOPS file is not encrypted for an age key".to_owned()));
    }
    for identity in identities(keys) {
        for sealed in sealed {
            let Ok(decryptor) = Decryptor::new(ArmoredReader::new(sealed.as_bytes())) else { continue };
            let Ok(reader) = decryptor.decrypt(std::iter::once(&identity as &dyn age::Identity)) else {
                continue;
            };
            let mut key = Zeroizing::new(Vec::with_capacity(64));
            if reader.take(64).read_to_end(&mut key).is_ok() && key.len() == KEY_BYTES {
                return Ok(key);
            }
        }
    }
    Err(VaultError::Import("none of the age keys at hand opens the SOPS file".to_owned()))
}

/// Decrypts `ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]`, which is bound to its path.
fn opened(text: &str, key: &[u8], bound: &str) -> Option<Secret> {
    let fields = text.strip_prefix("ENC[AES256_GCM,")?.strip_suffix(']')?;
    let field = |name: &str| {
        let found = fields.split(',').find_map(|field| field.strip_prefix(name))?;
        STANDARD.decode(found).ok()
    };
    let (mut sealed, nonce, tag) = (field("data:")?, field("iv:")?, field("tag:")?);
    sealed.extend_from_slice(&tag);
    if nonce.len() != 32 || tag.len() != 16 || key.len() != KEY_BYTES {
        return None;
    }
    let cipher: AesGcm<Aes256, U32> = AesGcm::new(GenericArray::from_slice(key));
    let payload = Payload { msg: &sealed, aad: bound.as_bytes() };
    cipher.decrypt(Nonce::<U32>::from_slice(&nonce), payload).ok().map(Secret::new)
}
