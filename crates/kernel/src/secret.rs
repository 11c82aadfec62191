//! Secrets: what a call may use without anyone seeing it.
//!
//! Agents and models hold handles (`secret://name`). A handle in a tool's arguments is judged like a path or a host; the value
//! comes out only against the permit of that call ([`Permit::secret`](crate::Permit::secret)), and whatever comes back is scrubbed
//! of every value that was ever revealed in this process before it is labelled, recorded or read.

use std::borrow::Cow;
use std::fmt;

use regent_policy::{SECRET_USE, each_secret, handles};
use zeroize::Zeroizing;

use crate::facts::{Sheet, Target};

/// Different secrets that one call may use.
const SECRETS_MAX: usize = 32;

/// The longest value of a secret. Code that cuts a text checks this many bytes around the cut for values.
pub const SECRET_BYTES_MAX: usize = 16 << 10;

/// Stores secrets, and scrubs them from output.
pub trait Secrets: Send + Sync + fmt::Debug {
    /// The value behind a name, if the use is within the secret's scope. From then on the value is scrubbed.
    fn reveal(&self, name: &str, usage: &Usage<'_>) -> Result<Secret, SecretError>;

    /// Masks every value that was revealed in this process, in any usual encoding; says whether something was masked.
    fn scrub(&self, bytes: &mut Vec<u8>) -> bool;

    /// The same for a stream: takes what can be passed on from the front of `held`, scrubbed, and leaves what may still turn out to be
    /// the beginning of a value. Add to `held` and call again; at the end [`scrub`](Self::scrub) the rest.
    fn scrub_part(&self, held: &mut Vec<u8>) -> Scrubbed {
        Scrubbed { bytes: std::mem::take(held), masked: false }
    }

    /// A text as the ledger's entries and logs show it: without what looks like a credential or like personal details.
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Cow::Borrowed(text)
    }
}

/// What can be passed on of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Without any value that was revealed.
    pub bytes: Vec<u8>,
    /// Something was masked.
    pub masked: bool,
}

/// The intended use of a secret, which scopes are checked against.
#[derive(Debug, Clone)]
pub struct Usage<'a> {
    /// The tool that is called.
    pub tool: &'a str,
    /// The calling agent and those above it, by name, the caller first. Empty where an operator calls.
    pub agents: Vec<&'a str>,
    /// The hosts that the call reaches, as policy judged them.
    pub hosts: Vec<&'a str>,
}

/// A value that is zeroed when dropped and never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes a value in.
    pub fn new(value: Vec<u8>) -> Self {
        Self(Zeroizing::new(value))
    }

    /// The value itself. The caller is responsible for where it goes.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why a secret isn't released.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The vault doesn't have it.
    #[error("there is no secret `{0}`")]
    NotFound(String),
    /// Its scope doesn't include this use.
    #[error("the scope of the secret `{name}` doesn't allow this: {why}")]
    OutOfScope {
        /// Which secret.
        name: String,
        /// What doesn't fit.
        why: String,
    },
    /// The vault can't be opened.
    #[error("the vault is locked: {0}")]
    Locked(String),
    /// The arguments that policy judged have no handle to it.
    #[error("the secret `{0}` was not in the judged arguments")]
    NotJudged(String),
}

impl SecretError {
    /// A stable word, for a tool's own report of failure.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "secret.not_found",
            Self::OutOfScope { .. } => "secret.out_of_scope",
            Self::Locked(_) => "secret.locked",
            Self::NotJudged(_) => "secret.not_judged",
        }
    }
}

/// No vault: nothing to reveal, so nothing to scrub.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecrets;

impl Secrets for NoSecrets {
    fn reveal(&self, name: &str, _usage: &Usage<'_>) -> Result<Secret, SecretError> {
        Err(SecretError::NotFound(name.to_owned()))
    }

    fn scrub(&self, _bytes: &mut Vec<u8>) -> bool {
        false
    }
}

/// A text with every handle replaced by its value.
pub(crate) fn filled(
    text: &str,
    mut reveal: impl FnMut(&str) -> Result<Secret, SecretError>,
) -> Result<Secret, SecretError> {
    let mut parts: Vec<(std::ops::Range<usize>, Secret)> = Vec::new();
    for handle in handles(text) {
        parts.push((handle.span, reveal(handle.name)?));
    }
    // Sized before it is filled: a buffer that grows leaves unwiped copies behind.
    let size = parts.iter().map(|(_, value)| value.expose().len()).sum::<usize>().saturating_add(text.len());
    let mut whole = Vec::with_capacity(size);
    let mut from = 0;
    for (span, value) in parts {
        whole.extend_from_slice(text.as_bytes().get(from..span.start).unwrap_or_default());
        whole.extend_from_slice(value.expose());
        from = span.end;
    }
    whole.extend_from_slice(text.as_bytes().get(from..).unwrap_or_default());
    Ok(Secret::new(whole))
}

impl Sheet {
    /// Makes the handles in the arguments into things that policy judges. Without a handle nothing is allocated.
    pub(crate) fn name_secrets(&mut self) {
        let mut found: Vec<Target> = Vec::new();
        each_secret(&self.args, &mut |name| {
            let is_new = |one: &Target| !matches!(one, Target::Secret(known) if known == name);
            if found.len() <= SECRETS_MAX && found.iter().all(is_new) {
                found.push(Target::Secret(name.to_owned()));
            }
        });
        if found.len() > SECRETS_MAX {
            let message = format!("the arguments have handles to more than {SECRETS_MAX} secrets");
            self.refuse("secret.too_many", message, "split it into several calls");
            return;
        }
        if !found.is_empty() {
            self.added.push(SECRET_USE.to_owned());
        }
        self.resources.extend(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_by_nothing() {
        let secret = Secret::new(b"hunter2-hunter2".to_vec());
        assert_eq!(format!("{secret:?} {:#?}", Some(&secret)), "Secret(…) Some(\n    Secret(…),\n)");
        assert_eq!(secret.expose(), b"hunter2-hunter2");
    }

    #[test]
    fn handles_are_filled_in_and_nothing_else_is() {
        let reveal = |name: &str| match name {
            "a" => Ok(Secret::new(b"AAAA".to_vec())),
            "b/c" => Ok(Secret::new(b"secret://a".to_vec())),
            other => Err(SecretError::NotFound(other.to_owned())),
        };
        let cases = [
            ("Bearer secret://a", "Bearer AAAA"),
            ("secret://a:secret://a.", "AAAA:AAAA."),
            // A value is never looked into for further handles.
            ("<secret://b/c>", "<secret://a>"),
            ("nothing", "nothing"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(filled(text, reveal).unwrap().expose(), expected.as_bytes(), "for {text}");
        }
        let missing = filled("secret://a secret://d", reveal).unwrap_err();
        assert_eq!(missing, SecretError::NotFound("d".to_owned()));
    }
}
