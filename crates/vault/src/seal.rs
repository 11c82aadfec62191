//! Encrypts single records under a key of the vault: AES-256-GCM, with the record's name as associated data.

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};

use crate::error::VaultError;

const NONCE_BYTES: usize = 12;

/// Encrypts the content of a record.
pub fn seal(key: &[u8; 32], name: &str, content: &[u8]) -> Result<Vec<u8>, VaultError> {
    let mut nonce = [0_u8; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| VaultError::Random(error.to_string()))?;
    let payload = Payload { msg: content, aad: name.as_bytes() };
    let sealed = Aes256Gcm::new(key.into())
        .encrypt(Nonce::from_slice(&nonce), payload)
        .map_err(|_| VaultError::Corrupt("a record can't be encrypted".to_owned()))?;
    Ok([nonce.as_slice(), &sealed].concat())
}

/// Decrypts a record; `None` if it was changed, or belongs to another name or key.
pub fn unseal(key: &[u8; 32], name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, rest) = sealed.split_at_checked(NONCE_BYTES)?;
    let payload = Payload { msg: rest, aad: name.as_bytes() };
    Aes256Gcm::new(key.into()).decrypt(Nonce::from_slice(nonce), payload).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_opens_only_with_its_key_and_name() {
        let sealed = seal(&[1; 32], "question/a", b"echo PATIENT-4711").unwrap();
        assert!(memchr::memmem::find(&sealed, b"PATIENT").is_none());
        assert_eq!(unseal(&[1; 32], "question/a", &sealed).as_deref(), Some(&b"echo PATIENT-4711"[..]));
        assert_eq!(unseal(&[2; 32], "question/a", &sealed), None);
        assert_eq!(unseal(&[1; 32], "question/b", &sealed), None);
        assert_eq!(unseal(&[1; 32], "question/a", &sealed[..5]), None);
        let mut changed = sealed;
        changed[20] ^= 1;
        assert_eq!(unseal(&[1; 32], "question/a", &changed), None);
    }
}
