//! Canonical JSON (RFC 8785): each value has exactly one spelling, so digests are comparable.
//!
//! [`to_vec`] writes canonical JSON, [`parse`] reads any JSON strictly, and [`check`] tests without allocating whether bytes are canonical.
//! All three reject integers outside ±(2^53 − 1), because two JSON readers may read such integers as different numbers.

mod number;
mod read;
mod scan;
mod write;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;

pub use read::parse;
pub use scan::check;
pub(crate) use scan::{Cursor, Flaw};
pub(crate) use write::push_decimal;
pub use write::to_vec;

/// Maximum nesting depth of objects and arrays.
pub const DEPTH_MAX: usize = 64;

/// The largest integer that every JSON reader represents exactly.
pub(crate) const INTEGER_MAX: u64 = (1 << 53) - 1;

/// A value in canonical spelling.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CanonicalJson(String);

impl CanonicalJson {
    /// Serializes a value canonically.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<CanonicalJson, CanonicalError> {
        let bytes = to_vec(value)?;
        String::from_utf8(bytes).map(CanonicalJson).map_err(|_| CanonicalError::NotUtf8)
    }

    /// Wraps text that is canonical by construction.
    pub(crate) fn spelled(text: String) -> CanonicalJson {
        debug_assert_eq!(check(text.as_bytes()), Ok(()));
        CanonicalJson(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digest of the text.
    pub fn digest(&self) -> crate::Digest {
        crate::Digest::compute(self.0.as_bytes())
    }
}

impl fmt::Debug for CanonicalJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for CanonicalJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a value has no canonical spelling, or why bytes are not acceptable JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// An integer that some JSON readers can't represent exactly.
    #[error("integer is outside ±(2^53 − 1)")]
    IntegerRange,
    /// NaN or an infinity.
    #[error("number is not finite")]
    NotFinite,
    /// The same key twice in one object.
    #[error("key `{0}` appears twice")]
    DuplicateKey(String),
    /// A map key that is neither text nor a plain scalar.
    #[error("object key is not text")]
    KeyNotText,
    /// Objects and arrays nest too deeply.
    #[error("nested deeper than {DEPTH_MAX}")]
    TooDeep,
    /// Half of a surrogate pair stands alone.
    #[error("lone surrogate at byte {at}")]
    LoneSurrogate {
        /// Offset in the input.
        at: usize,
    },
    /// The bytes are not UTF-8.
    #[error("not valid UTF-8")]
    NotUtf8,
    /// The bytes are not JSON.
    #[error("not JSON at byte {at}: {what}")]
    Syntax {
        /// Offset in the input.
        at: usize,
        /// What was found or expected there.
        what: &'static str,
    },
    /// JSON, but not in its canonical spelling.
    #[error("not canonical at byte {at}")]
    NotCanonical {
        /// Offset in the input.
        at: usize,
    },
    /// The value's own serializer failed.
    #[error("{0}")]
    Custom(String),
}

impl serde::ser::Error for CanonicalError {
    fn custom<T: fmt::Display>(message: T) -> CanonicalError {
        CanonicalError::Custom(message.to_string())
    }
}
