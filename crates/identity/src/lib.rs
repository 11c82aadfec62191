//! Agent identity: a pronounceable name ([`AgentId`]) and an Ed25519 key, identified by `did:key`.
#![forbid(unsafe_code)]

mod agent;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use zeroize::Zeroizing;

pub use agent::AgentId;

/// The prefix that marks an Ed25519 public key in `did:key`: the multicodec 0xed as a varint.
const ED25519_PUB: [u8; 2] = [0xed, 0x01];
/// `did:key:z` and about 48 digits for 34 bytes. Longer text is not an Ed25519 `did:key`.
const DID_CHARS_MAX: usize = 64;
const BASE58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// A `did:key` identifier: the public key itself, as text. It is enough to verify the agent's signatures.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Did(String);

/// A text is not the identifier of an Ed25519 key.
#[derive(Debug, thiserror::Error)]
#[error("`{}` is not a did:key of an Ed25519 key", .0.escape_debug())]
pub struct DidError(String);

impl Did {
    /// Parses an identifier and checks that it names a usable key.
    pub fn parse(text: &str) -> Result<Self, DidError> {
        match key_of(text) {
            Some(_) => Ok(Self(text.to_owned())),
            None => Err(DidError(text.chars().take(DID_CHARS_MAX).collect())),
        }
    }

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this key signed the message.
    pub fn verify(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        key_of(&self.0)
            .is_some_and(|key| key.verify_strict(message, &Signature::from_bytes(signature)).is_ok())
    }

    fn from_key(key: &VerifyingKey) -> Self {
        let mut bytes = ED25519_PUB.to_vec();
        bytes.extend_from_slice(key.as_bytes());
        Self(format!("did:key:z{}", base58(&bytes)))
    }
}

impl std::fmt::Display for Did {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// An agent's key pair. The private key never leaves this type and is wiped on drop.
pub struct Identity {
    key: SigningKey,
    did: Did,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Identity").field(&self.did).finish()
    }
}

impl Identity {
    /// Generates a random key pair.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut seed = Zeroizing::new([0_u8; 32]);
        getrandom::fill(&mut *seed)?;
        let key = SigningKey::from_bytes(&seed);
        let did = Did::from_key(&key.verifying_key());
        Ok(Self { key, did })
    }

    /// The public key as a `did:key`.
    pub fn did(&self) -> &Did {
        &self.did
    }

    /// Signs with the private key.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }
}

fn key_of(did: &str) -> Option<VerifyingKey> {
    if did.len() > DID_CHARS_MAX {
        return None;
    }
    let bytes = from_base58(did.strip_prefix("did:key:z")?)?;
    let key = VerifyingKey::from_bytes(bytes.strip_prefix(&ED25519_PUB)?.try_into().ok()?).ok()?;
    // A weak key would accept forged signatures.
    (!key.is_weak()).then_some(key)
}

/// Base58 in Bitcoin's alphabet, which multibase marks with `z`.
fn base58(bytes: &[u8]) -> String {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    // Least significant digit first: each byte multiplies the number by 256 and adds itself.
    let mut digits: Vec<u8> = Vec::with_capacity(bytes.len() * 2);
    for byte in bytes.iter().skip(zeros) {
        let mut carry = u32::from(*byte);
        for digit in &mut digits {
            carry += u32::from(*digit) << 8;
            *digit = low(carry % 58);
            carry /= 58;
        }
        while carry > 0 {
            digits.push(low(carry % 58));
            carry /= 58;
        }
    }
    let text = digits.iter().rev().filter_map(|digit| BASE58.get(usize::from(*digit)));
    std::iter::repeat_n(&b'1', zeros).chain(text).map(|byte| char::from(*byte)).collect()
}

fn from_base58(text: &str) -> Option<Vec<u8>> {
    let zeros = text.bytes().take_while(|byte| *byte == b'1').count();
    let mut bytes: Vec<u8> = Vec::with_capacity(text.len());
    for character in text.bytes().skip(zeros) {
        let mut carry = u32::try_from(BASE58.iter().position(|known| *known == character)?).ok()?;
        for byte in &mut bytes {
            carry += u32::from(*byte) * 58;
            *byte = low(carry & 0xff);
            carry >>= 8;
        }
        while carry > 0 {
            bytes.push(low(carry & 0xff));
            carry >>= 8;
        }
    }
    bytes.extend(std::iter::repeat_n(0, zeros));
    bytes.reverse();
    Some(bytes)
}

/// The lowest byte; callers have reduced the number below 256.
fn low(number: u32) -> u8 {
    number.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn identifiers_of_the_specification_round_trip() {
        let known = [
            "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK",
            "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp",
            "did:key:z6MkjchhfUsD6mmvni8mCdXHw216Xrm9bQe2mBH1P5RDjVJG",
        ];
        for text in known {
            let key = key_of(text).expect(text);
            assert_eq!(Did::from_key(&key).as_str(), text);
            assert_eq!(Did::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn rejects_text_that_is_not_an_ed25519_key() {
        let cases = [
            "",
            "did:key:z",
            "did:web:example.com",
            // An X25519 key, a key with a digit that base58 lacks, a truncated key, and a key with a suffix.
            "did:key:z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc",
            "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2do0",
            "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2do",
            "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK#key",
        ];
        for text in cases {
            assert!(Did::parse(text).is_err(), "{text}");
        }
        assert!(Did::parse(&"did:key:z6Mk".repeat(10_000)).is_err());
    }

    #[test]
    fn verifies_only_signatures_of_its_own_key() {
        let (one, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let mut signature = one.sign(b"hello");
        assert!(one.did().verify(b"hello", &signature));
        assert!(!one.did().verify(b"hullo", &signature));
        assert!(!other.did().verify(b"hello", &signature));
        signature[3] ^= 1;
        assert!(!one.did().verify(b"hello", &signature));
    }

    #[test]
    fn debug_output_hides_the_private_key() {
        let identity = Identity::generate().unwrap();
        let shown = format!("{identity:?}");
        assert_eq!(shown, format!("Identity({:?})", identity.did()));
    }

    proptest! {
        #[test]
        fn base58_round_trips(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(from_base58(&base58(&bytes)), Some(bytes));
        }

        #[test]
        fn no_text_panics(text in ".{0,80}") {
            let _outcome = Did::parse(&text);
            let _outcome = Did::parse(&format!("did:key:z{text}"));
        }
    }
}
