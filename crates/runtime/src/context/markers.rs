//! The words in the markers around what tools bring: a new one for each turn, made of a secret that is in no prompt.
//!
//! Someone who gets one prompt out of a task learns the words of the turns in it. They don't help with the next turn, so content can't
//! forge the end of its own quotation. The same secret and step give the same word, so that a replay has the same prompts to the byte.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::Nonce;

/// Makes the words of one task. Cloning shares it.
#[derive(Clone)]
pub struct Markers {
    secret: Arc<str>,
    issued: Arc<Mutex<BTreeSet<String>>>,
}

impl Markers {
    /// From a task's secret.
    pub fn new(secret: &str) -> Self {
        Self { secret: secret.into(), issued: Arc::default() }
    }

    /// The word of a step.
    pub fn issue(&self, step: &str) -> Nonce {
        let nonce = Nonce::of_secret(format!("{}\n{step}", self.secret).as_bytes());
        self.issued.lock().unwrap_or_else(PoisonError::into_inner).insert(nonce.as_str().to_owned());
        nonce
    }

    /// Whether a word is one of these.
    pub fn is_issued(&self, word: &str) -> bool {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner).contains(word)
    }
}

impl fmt::Debug for Markers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret stays out of logs.
        f.debug_struct("Markers").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k3_each_step_has_its_own_word_and_a_replay_has_the_same() {
        let (one, again, other) = (Markers::new("secret"), Markers::new("secret"), Markers::new("another"));
        assert_eq!(one.issue("1").as_str(), again.issue("1").as_str());
        assert_ne!(one.issue("1").as_str(), one.issue("2").as_str());
        assert_ne!(one.issue("1").as_str(), other.issue("1").as_str());
        assert!(one.is_issued(one.issue("2").as_str()) && !one.is_issued(other.issue("2").as_str()));
        assert!(!format!("{one:?}").contains("secret"));
    }
}
