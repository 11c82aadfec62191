//! Canonical JSON (RFC 8785): one value, one spelling, so that a digest means something.
//!
//! Three doors: [`to_vec`] writes it, [`parse`] reads any JSON strictly, and [`check`] tells without
//! allocating whether bytes are canonical. Integers outside ±(2^53 − 1) are refused at all three:
//! beyond it two JSON readers may see two different numbers.

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

/// Objects and arrays nest at most this deep.
pub const DEPTH_MAX: usize = 64;

/// The largest integer that every JSON reader sees alike.
pub(crate) const INTEGER_MAX: u64 = (1 << 53) - 1;

/// A value in its one canonical spelling.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CanonicalJson(String);

impl CanonicalJson {
    /// Writes a value canonically.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<CanonicalJson, CanonicalError> {
        let bytes = to_vec(value)?;
        String::from_utf8(bytes).map(CanonicalJson).map_err(|_| CanonicalError::NotUtf8)
    }

    /// Text that is known to be canonical because of how it was put together.
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
        crate::Digest::of(self.0.as_bytes())
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

/// Why a value has no canonical spelling, or bytes are not JSON as we read it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// An integer that not every JSON reader sees alike.
    #[error("integer is outside ±(2^53 − 1)")]
    IntegerRange,
    /// NaN or an infinity.
    #[error("number is not finite")]
    NotFinite,
    /// The same key twice in one object.
    #[error("key `{0}` appears twice")]
    DuplicateKey(String),
    /// A map key that is neither text nor a plain number.
    #[error("object key is not text")]
    KeyNotText,
    /// Objects and arrays nest too deep.
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
        /// What was found or missed there.
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
