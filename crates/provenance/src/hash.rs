//! Hashes words and word indices. An index looks up each word of a text several times, and the standard hash would take most of that time.
//! The hash is keyed with random numbers, so that the author of a text can't cause collisions.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The key of one index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keyed {
    key: u64,
    multiplier: u64,
}

impl Default for Keyed {
    fn default() -> Self {
        // Each instance gets its own random keys from the system.
        let random = || RandomState::new().hash_one(0_u8);
        // An odd multiplier is invertible.
        Self { key: random(), multiplier: random() | 1 }
    }
}

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { state: self.key, multiplier: self.multiplier }
    }
}

/// Multiplies and folds, so that every input bit affects every output bit.
#[derive(Debug)]
pub(crate) struct KeyedHasher {
    state: u64,
    multiplier: u64,
}

impl KeyedHasher {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.state ^ word).wrapping_mul(u128::from(self.multiplier));
        let (high, low) = ((product >> 64) as u64, product as u64);
        // A product is zero if a factor is, so the old state is added.
        self.state = (high ^ low).wrapping_add(self.state.rotate_left(23));
    }
}

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            self.fold(u64::from_le_bytes(*chunk));
        }
        let mut last = [0_u8; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        self.fold(u64::from_le_bytes(last) ^ (bytes.len() as u64).rotate_left(56));
    }

    fn write_u8(&mut self, byte: u8) {
        self.fold(u64::from(byte));
    }

    fn write_u32(&mut self, number: u32) {
        self.fold(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.fold(number);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn tells_words_apart_and_differs_by_key() {
        let (one, other) = (Keyed::default(), Keyed::default());
        let words: Vec<String> = (0..50_000).map(|number| format!("w{number}")).collect();
        let all: HashSet<u64> = words.iter().map(|word| one.hash_one(word.as_str())).collect();
        assert_eq!(all.len(), words.len(), "no two collide");
        let low: HashSet<u64> = all.iter().map(|hash| hash & 0xffff).collect();
        assert!(low.len() > 30_000, "the low bits are used: {}", low.len());
        let top: HashSet<u64> = all.iter().map(|hash| hash >> 57).collect();
        assert_eq!(top.len(), 128, "and the high ones");
        assert_ne!(one.hash_one("ann"), other.hash_one("ann"));
        assert_ne!(one.hash_one("a"), one.hash_one("a\0"));
        let pairs: HashSet<u64> =
            (0..300_u32).flat_map(|from| (0..300_u32).map(move |word| one.hash_one((from, word)))).collect();
        assert_eq!(pairs.len(), 90_000);
    }
}
