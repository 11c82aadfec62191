//! Why something can't be a tool, or the tier isn't available.

use regent_kernel::Digest;

/// Why some bytes are not a callable tool.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WasmError {
    /// This machine doesn't give what the tier needs, e.g. address space.
    #[error("the WASM tier is not available here: {0}")]
    Unavailable(String),
    /// The bytes are not the ones that were agreed to.
    #[error("its SHA-256 is {found}, but {expected} was approved")]
    Changed {
        /// What was agreed to.
        expected: Digest,
        /// What is there.
        found: Digest,
    },
    /// More than is taken.
    #[error("it has {bytes} bytes; the limit is {bytes_max}")]
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
    #[error("it imports `{0}`, which Regent doesn't provide")]
    Import(String),
    /// It exports nothing that could be called.
    #[error("it doesn't implement the expected world: {0}")]
    World(&'static str),
    /// We broke.
    #[error("the WASM tier failed: {0}")]
    Broken(String),
}

impl WasmError {
    /// The error code for callers.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "wasm.unavailable",
            Self::Changed { .. } => "tool.changed",
            Self::TooLarge { .. } => "wasm.too_large",
            Self::Invalid(_) => "wasm.invalid",
            Self::Import(_) => "wasm.import",
            Self::World(_) => "wasm.world",
            Self::Broken(_) => "wasm.broken",
        }
    }
}
