//! SHA-256 digests of payloads, of entries as tree leaves, and of tree nodes.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// Computes a digest incrementally.
#[derive(Debug, Clone, Default)]
pub struct DigestWriter(Sha256);

impl DigestWriter {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes so far.
    pub fn digest(&self) -> Digest {
        Digest::finish(self.0.clone())
    }
}

/// A SHA-256 digest, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of some bytes.
    pub fn compute(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// The RFC 6962 leaf hash: one pass gives the chain link and the tree leaf of an entry.
    pub fn of_leaf(line: &[u8]) -> Digest {
        let mut hasher = leaf_hasher();
        hasher.update(line);
        Digest(hasher.finalize().into())
    }

    /// The RFC 6962 hash of an inner node.
    pub fn of_node(left: &Digest, right: &Digest) -> Digest {
        let mut buffer = [1u8; 65];
        for (to, from) in buffer.iter_mut().skip(1).zip(left.0.iter().chain(right.0.iter())) {
            *to = *from;
        }
        Digest::compute(&buffer)
    }

    /// Wraps a known digest.
    pub const fn from_bytes(bytes: [u8; 32]) -> Digest {
        Digest(bytes)
    }

    /// The raw 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn finish(hasher: Sha256) -> Digest {
        Digest(hasher.finalize().into())
    }

    pub(crate) fn hex(&self) -> [u8; 64] {
        let mut out = [0u8; 64];
        for (pair, byte) in out.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
        out
    }

    pub(crate) fn from_hex(hex: &[u8]) -> Option<Digest> {
        if hex.len() != 64 {
            return None;
        }
        let mut out = [0u8; 32];
        for (byte, pair) in out.iter_mut().zip(hex.chunks_exact(2)) {
            let [high, low] = pair else { return None };
            *byte = (hex_value(*high)? << 4) | hex_value(*low)?;
        }
        Some(Digest(out))
    }
}

/// A hasher with the leaf prefix already applied. A caller can hash most of a line before the line's position in the chain is known.
pub(crate) fn leaf_hasher() -> Sha256 {
    let mut hasher = Sha256::new();
    hasher.update([0u8]);
    hasher
}

/// Bytes as lower-case hex digits.
pub fn hex_string(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [hex_digit(byte >> 4), hex_digit(byte & 15)]).map(char::from).collect()
}

fn hex_digit(nibble: u8) -> u8 {
    if nibble < 10 { b'0' + nibble } else { b'a' + (nibble - 10) }
}

fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// Text that is not 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a digest of 64 lower-case hex digits")]
pub struct DigestError(String);

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Digest, DigestError> {
        Digest::from_hex(text.as_bytes()).ok_or_else(|| DigestError(text.chars().take(80).collect()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex_string(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hex = self.hex();
        serializer.serialize_str(std::str::from_utf8(&hex).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_is_strict() {
        let digest = Digest::compute(b"abc");
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), hex);
        assert_eq!(hex.parse::<Digest>().unwrap(), digest);
        for bad in ["", "ba", &hex.to_uppercase(), &format!("{hex}00"), &hex.replace('b', "g")] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
