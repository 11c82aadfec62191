//! Why something can't be installed, or the tier can't be had.

use std::path::PathBuf;

use regent_kernel::Digest;

/// What stands between some bytes and a tool that can be called.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WasmError {
    /// This machine doesn't give what the tier needs, e.g. address space.
    #[error("the WASM tier can't be had here: {0}")]
    Unavailable(String),
    /// The bytes are not the ones that were agreed to.
    #[error("its SHA-256 is {found}, and {expected} was agreed to")]
    Changed {
        /// What was agreed to.
        expected: Digest,
        /// What is there.
        found: Digest,
    },
    /// The file that holds it can't be read.
    #[error("`{path}` can't be read: {error}")]
    Unreadable {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        error: String,
    },
    /// More than is taken.
    #[error("it has {bytes} bytes, and the most is {bytes_max}")]
    TooLarge {
        /// How much it is.
        bytes: usize,
        /// How much it may be.
        bytes_max: usize,
    },
    /// Not WASM, or not valid, or it needs what this tier has not.
    #[error("it can't be compiled: {0}")]
    Invalid(String),
    /// It asks for an import that nobody offers.
    #[error("it imports `{0}`, which is not offered here")]
    Import(String),
    /// It exports nothing that could be called.
    #[error("it is not of the world that was expected: {0}")]
    World(&'static str),
    /// We broke.
    #[error("the WASM tier broke: {0}")]
    Broken(String),
}

impl WasmError {
    /// The word that callers hear.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "wasm.unavailable",
            Self::Changed { .. } => "tool.changed",
            Self::Unreadable { .. } => "tool.unreadable",
            Self::TooLarge { .. } => "wasm.too_large",
            Self::Invalid(_) => "wasm.invalid",
            Self::Import(_) => "wasm.import",
            Self::World(_) => "wasm.world",
            Self::Broken(_) => "wasm.broken",
        }
    }
}
