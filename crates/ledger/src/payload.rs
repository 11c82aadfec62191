//! Payloads: bytes that entries name by digest, kept in packs beside the segments.
//!
//! A pack is a sequence of records: a self-describing header, then the stored bytes. The digest covers the
//! plain bytes, even if they are stored encrypted. Erasing overwrites a record in place and marks it. The
//! ledger keeps the digest and records the erasure.
//!
//! ```text
//! "RGP2" · flags · 3 zeros · plain length u64 · digest 32 · bytes
//! "RGP2" · flags · 3 zeros · plain length u64 · digest 32 · nonce 12 · check 32 · bytes       encrypted
//! "RGPK" · flags · 3 zeros · plain length u64 · stored length u64 · digest 32 · nonce 12 · check 32 · bytes   format 1
//! ```

use std::fmt;
use std::sync::Arc;

use chacha20poly1305::aead::{Aead, KeyInit, Payload as Sealed};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::Digest;

/// Longest payload.
pub const PAYLOAD_BYTES_MAX: usize = 256 << 20;
/// The shortest header, and the longest.
pub(crate) const HEADER_BYTES_MIN: usize = 48;
pub(crate) const HEADER_BYTES_MAX: usize = FIRST_HEADER_BYTES;
const SEALED_HEADER_BYTES: usize = 92;
const FIRST_HEADER_BYTES: usize = 100;
const MAGIC: &[u8; 4] = b"RGP2";
/// Magic bytes of format 1.
const FIRST_MAGIC: &[u8; 4] = b"RGPK";
const ENCRYPTED: u8 = 1;
const ERASED: u8 = 2;
const SEAL_BYTES: u64 = 16;

/// Bytes to store with an entry.
#[derive(Debug, Clone)]
pub struct Payload {
    digest: Digest,
    /// Shared, because callers may keep a draft until it is written.
    bytes: Arc<Vec<u8>>,
}

impl Payload {
    /// Takes the bytes and computes their digest.
    pub fn new(bytes: Vec<u8>) -> Payload {
        Payload::shared(Arc::new(bytes))
    }

    /// A payload from shared bytes, without a copy.
    pub fn shared(bytes: Arc<Vec<u8>>) -> Payload {
        Payload { digest: Digest::compute(&bytes), bytes }
    }

    /// The digest of the bytes.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The reference that an entry's body contains instead of the bytes.
    pub fn reference(&self) -> PayloadRef {
        PayloadRef { bytes: self.bytes.len() as u64, sha256: self.digest }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A payload reference in an entry's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PayloadRef {
    /// Length.
    pub bytes: u64,
    /// Digest.
    pub sha256: Digest,
}

/// The key that encrypts payloads, wiped from memory on drop.
#[derive(Clone)]
pub struct PayloadKey(Zeroizing<[u8; 32]>);

impl PayloadKey {
    /// A key of 32 secret bytes.
    pub fn new(bytes: [u8; 32]) -> PayloadKey {
        PayloadKey(Zeroizing::new(bytes))
    }

    fn cipher(&self) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new(&Key::from(*self.0))
    }
}

impl fmt::Debug for PayloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PayloadKey(…)")
    }
}

/// The header of a record, before its stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Written in format 1.
    first_format: bool,
    flags: u8,
    plain_bytes: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) digest: Digest,
    nonce: [u8; 12],
    /// If encrypted, a digest over everything that the plain digest doesn't cover. It detects damage without the key.
    check: [u8; 32],
}

impl Header {
    /// Parses a header strictly: unused bytes must be zero.
    pub(crate) fn read(bytes: &[u8]) -> Option<Header> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let first_format = magic == FIRST_MAGIC;
        let ([flags, zeros @ ..], rest) = rest.split_first_chunk::<4>()?;
        let seal = if flags & ENCRYPTED != 0 { SEAL_BYTES } else { 0 };
        let (plain_bytes, mut rest) = rest.split_first_chunk::<8>()?;
        let plain_bytes = u64::from_le_bytes(*plain_bytes);
        let mut stored_bytes = plain_bytes.checked_add(seal)?;
        if first_format {
            let (stored, after) = rest.split_first_chunk::<8>()?;
            (stored_bytes, rest) = (u64::from_le_bytes(*stored), after);
        }
        let (digest, rest) = rest.split_first_chunk::<32>()?;
        let (mut nonce, mut check) = ([0; 12], [0; 32]);
        if first_format || seal > 0 {
            let (own_nonce, rest) = rest.split_first_chunk::<12>()?;
            let (own_check, _) = rest.split_first_chunk::<32>()?;
            (nonce, check) = (*own_nonce, *own_check);
        }
        let digest = Digest::from_bytes(*digest);
        let header = Header { first_format, flags: *flags, plain_bytes, stored_bytes, digest, nonce, check };
        let blank = header.nonce == [0; 12] && header.check == [0; 32];
        let sound = (first_format || magic == MAGIC)
            && zeros == &[0; 3]
            && header.flags & !(ENCRYPTED | ERASED) == 0
            && (blank || (header.is_encrypted() && !header.is_erased()))
            && header.plain_bytes <= PAYLOAD_BYTES_MAX as u64
            && header.plain_bytes.checked_add(seal) == Some(header.stored_bytes);
        sound.then_some(header)
    }

    /// Length of this header.
    pub(crate) fn header_bytes(&self) -> usize {
        match (self.first_format, self.is_encrypted()) {
            (true, _) => FIRST_HEADER_BYTES,
            (false, true) => SEALED_HEADER_BYTES,
            (false, false) => HEADER_BYTES_MIN,
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.first_format { FIRST_MAGIC } else { MAGIC });
        out.extend_from_slice(&[self.flags, 0, 0, 0]);
        out.extend_from_slice(&self.plain_bytes.to_le_bytes());
        if self.first_format {
            out.extend_from_slice(&self.stored_bytes.to_le_bytes());
        }
        out.extend_from_slice(self.digest.as_bytes());
        if self.first_format || self.is_encrypted() {
            out.extend_from_slice(&self.nonce);
            out.extend_from_slice(&self.check);
        }
    }

    pub(crate) fn is_erased(&self) -> bool {
        self.flags & ERASED != 0
    }

    fn is_encrypted(&self) -> bool {
        self.flags & ENCRYPTED != 0
    }

    /// The header of the same record after erasure.
    pub(crate) fn erased(&self) -> Header {
        Header { flags: self.flags | ERASED, nonce: [0; 12], check: [0; 32], ..*self }
    }

    /// Whether the stored bytes match the header, as far as that can be checked without the key.
    pub(crate) fn fits(&self, stored: &[u8]) -> bool {
        if stored.len() as u64 != self.stored_bytes {
            return false;
        }
        if self.is_erased() {
            return stored.iter().all(|byte| *byte == 0);
        }
        if self.is_encrypted() {
            return self.seal_check(stored) == self.check;
        }
        Digest::compute(stored) == self.digest
    }

    fn seal_check(&self, stored: &[u8]) -> [u8; 32] {
        let bound = [self.digest.as_bytes().as_slice(), &self.nonce, stored].concat();
        *Digest::compute(&bound).as_bytes()
    }

    /// Decrypts and verifies the bytes; `None` if they don't match the digest or the key is missing or wrong.
    pub(crate) fn open(&self, stored: Vec<u8>, key: Option<&PayloadKey>) -> Option<Vec<u8>> {
        let plain = if self.is_encrypted() {
            let sealed = Sealed { msg: &stored, aad: self.digest.as_bytes() };
            key?.cipher().decrypt(&Nonce::from(self.nonce), sealed).ok()?
        } else {
            stored
        };
        (!self.is_erased() && Digest::compute(&plain) == self.digest).then_some(plain)
    }
}

/// Why a payload can't be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    #[error("no random bytes: {0}")]
    Random(String),
    #[error("encryption failed")]
    Cipher,
}

/// Appends the record of a payload to a pack.
pub(crate) fn write_record(
    payload: &Payload,
    key: Option<&PayloadKey>,
    out: &mut Vec<u8>,
) -> Result<(), SealError> {
    let mut header = Header {
        first_format: false,
        flags: 0,
        plain_bytes: payload.bytes.len() as u64,
        stored_bytes: payload.bytes.len() as u64,
        digest: payload.digest,
        nonce: [0; 12],
        check: [0; 32],
    };
    let Some(key) = key else {
        header.write(out);
        out.extend_from_slice(&payload.bytes);
        return Ok(());
    };
    getrandom::fill(&mut header.nonce).map_err(|error| SealError::Random(error.to_string()))?;
    let sealed = Sealed { msg: &payload.bytes, aad: payload.digest.as_bytes() };
    let stored = key.cipher().encrypt(&Nonce::from(header.nonce), sealed).map_err(|_| SealError::Cipher)?;
    header.flags = ENCRYPTED;
    header.stored_bytes = stored.len() as u64;
    header.check = header.seal_check(&stored);
    header.write(out);
    out.extend_from_slice(&stored);
    Ok(())
}

/// Checks a pack and counts its records; the error is the offset of the first bad one.
///
/// Only the ledger's entries tell whether an erased record was erased on purpose.
pub fn check_pack(bytes: &[u8]) -> Result<u64, u64> {
    let mut count = 0;
    for record in Records::new(bytes) {
        let (at, header, stored) = record?;
        if !header.fits(stored) {
            return Err(at);
        }
        count += 1;
    }
    Ok(count)
}

/// Iterates over the records of a pack: offset, header and stored bytes of each.
///
/// Ends with an error at the first byte that doesn't belong to a complete record.
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Records<'a> {
        Records { bytes, at: 0 }
    }

    fn record(&self) -> Option<(Header, &'a [u8])> {
        let rest = self.bytes.get(self.at..)?;
        let header = Header::read(rest)?;
        let end = header.header_bytes().checked_add(usize::try_from(header.stored_bytes).ok()?)?;
        Some((header, rest.get(header.header_bytes()..end)?))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(u64, Header, &'a [u8]), u64>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let start = self.at as u64;
        let Some((header, stored)) = self.record() else {
            self.at = usize::MAX;
            return Some(Err(start));
        };
        self.at += header.header_bytes() + stored.len();
        Some(Ok((start, header, stored)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pack(key: Option<&PayloadKey>) -> Vec<u8> {
        let mut out = Vec::new();
        for bytes in [b"first".to_vec(), Vec::new(), vec![9; 1000]] {
            write_record(&Payload::new(bytes), key, &mut out).unwrap();
        }
        out
    }

    #[test]
    fn records_read_back_plain_and_encrypted() {
        let key = PayloadKey::new([3; 32]);
        for key in [None, Some(&key)] {
            let pack = pack(key);
            let records: Vec<_> = Records::new(&pack).map(Result::unwrap).collect();
            assert_eq!(records.len(), 3);
            assert!(records.iter().all(|(_, header, stored)| header.fits(stored)));
            let (_, header, stored) = records[0];
            assert_eq!(header.open(stored.to_vec(), key).unwrap(), b"first");
            let wrong = PayloadKey::new([4; 32]);
            assert_eq!(header.open(stored.to_vec(), Some(&wrong)).is_some(), key.is_none());
        }
    }

    /// The same records in format 1.
    fn first_format(pack: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for record in Records::new(pack) {
            let (_, header, stored) = record.unwrap();
            Header { first_format: true, ..header }.write(&mut out);
            out.extend_from_slice(stored);
        }
        out
    }

    #[test]
    fn reads_records_of_format_1() {
        let old = first_format(&pack(None));
        assert_eq!(check_pack(&old), Ok(3));
        assert_eq!(old.len(), 3 * FIRST_HEADER_BYTES + 1005);
        let (_, header, stored) = Records::new(&old).next().unwrap().unwrap();
        assert_eq!(header.open(stored.to_vec(), None).unwrap(), b"first");
    }

    #[test]
    fn detects_every_bit_flip_in_a_pack() {
        let key = PayloadKey::new([3; 32]);
        let plain = pack(None);
        for good in [plain.clone(), pack(Some(&key)), first_format(&plain)] {
            for at in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[at / 8] ^= 1 << (at % 8);
                // A record marked as erased counts only with an entry that records the erasure.
                let seen = Records::new(&bad).any(|record| match record {
                    Err(_) => true,
                    Ok((_, header, stored)) => !header.fits(stored) || header.is_erased(),
                });
                assert!(seen, "bit {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_pack_parser_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400), at in 0usize..2000) {
            let mut spliced = pack(None);
            let at = at % spliced.len();
            spliced.splice(at..at, bytes.iter().copied());
            prop_assert!(check_pack(&bytes).is_ok_and(|count| count == 0) == bytes.is_empty());
            prop_assert!(Records::new(&bytes).count() <= 5);
            prop_assert!(Records::new(&spliced).count() <= 10);
        }
    }
}
