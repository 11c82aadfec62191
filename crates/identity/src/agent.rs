//! Agent ids.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// An agent's id, unique across all kernel processes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Three words of five letters: 48 random bits that can be read aloud.
    pub fn random() -> Result<Self, getrandom::Error> {
        const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
        const VOWELS: &[u8; 4] = b"aiou";
        let mut bytes = [0_u8; 6];
        getrandom::fill(&mut bytes)?;
        let letter = |alphabet: &[u8], word: u16, shift: u32, bits: u32| {
            let at = usize::from((word >> shift) & ((1 << bits) - 1));
            char::from(alphabet.get(at).copied().unwrap_or(b'x'))
        };
        let words = bytes.chunks_exact(2).map(|pair| {
            let word = pair.iter().fold(0_u16, |word, byte| word << 8 | u16::from(*byte));
            [(12, 4), (10, 2), (6, 4), (4, 2), (0, 4)]
                .iter()
                .map(|(shift, bits)| match bits {
                    4 => letter(CONSONANTS, word, *shift, 4),
                    _two => letter(VOWELS, word, *shift, 2),
                })
                .collect::<String>()
        });
        Ok(Self(words.collect::<Vec<_>>().join("-").into()))
    }
}

impl From<&str> for AgentId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Display for AgentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_pronounceable_and_differ() {
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|_| AgentId::random().unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            let words: Vec<&str> = id.as_str().split('-').collect();
            assert!(words.len() == 3 && words.iter().all(|word| word.len() == 5), "{id}");
        }
    }
}
