//! Shared state on a server. The address can hold a password, so it is in a file that only the user can read: the command line, the environment
//! and the settings name the file. Nothing that is shown repeats the address.

use std::path::Path;
use std::sync::Arc;

use regent_kernel::Secret;
use regent_store::{State, StateError};

use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::secrets;

/// An address is shorter.
const URL_BYTES_MAX: usize = 4096;
/// What a server that may lose commits is accepted with.
const ACCEPT: &str = "`regent config set state.accept_loss true` accepts the loss of approvals, rates and budgets in a crash of the server";

/// Connects to the server that the file names.
pub(super) async fn open(context: &Context, file: &Path) -> Result<Arc<dyn State>, Failure> {
    let address = secrets::from_private_file(file, codes::STATE_URL, URL_BYTES_MAX)?;
    connect(&address, context.settings.accepts_loss()).await.map_err(|error| failed(&error))
}

#[cfg(any(feature = "postgres", feature = "redis", feature = "dynamodb"))]
async fn connect(address: &Secret, accepts_loss: bool) -> Result<Arc<dyn State>, StateError> {
    let text = std::str::from_utf8(address.expose()).unwrap_or_default().trim();
    let url = regent_store::StateUrl::parse(text)?;
    let url = if accepts_loss { url.accept_loss() } else { url };
    url.open().await
}

#[cfg(not(any(feature = "postgres", feature = "redis", feature = "dynamodb")))]
async fn connect(address: &Secret, _accepts_loss: bool) -> Result<Arc<dyn State>, StateError> {
    const KNOWN: [(&str, &str); 5] = [
        ("postgres://", "postgres"),
        ("postgresql://", "postgres"),
        ("redis://", "redis"),
        ("rediss://", "redis"),
        ("dynamodb://", "dynamodb"),
    ];
    let address = address.expose().trim_ascii_start();
    let wanted = KNOWN.iter().find(|(scheme, _)| address.starts_with(scheme.as_bytes()));
    let unknown = "the address of the state begins with none of `postgres://`, `redis://`, `rediss://` and `dynamodb://`";
    let missing = wanted.map_or_else(
        || StateError::Unusable(unknown.to_owned()),
        |(_, feature)| StateError::NotBuilt(feature),
    );
    std::future::ready(Err(missing)).await
}

/// Why it can't be used.
pub(super) fn failed(error: &StateError) -> Failure {
    let message = error.to_string();
    match error {
        StateError::Unreachable(_) => super::unreachable(message),
        StateError::Busy => {
            Failure { exit: codes::exit::TEMPORARY, ..Failure::new(codes::STATE_UNUSABLE, message) }
                .help("try again")
        }
        StateError::Full => {
            Failure::new(codes::STATE_FULL, message).help("make room on the server, then try again")
        }
        StateError::Lossy(_) => Failure::new(codes::STATE_UNUSABLE, message).help(ACCEPT),
        StateError::NotBuilt(_) => Failure::new(codes::STATE_FEATURE, message)
            .help("or `regent config set state.url_file \"\"` returns to the file of this machine"),
        StateError::Newer { .. } => Failure::new(codes::STATE_UNUSABLE, message)
            .help("a newer version of regent wrote it; use that version"),
        StateError::Corrupt(_) | StateError::TooLarge(_) | StateError::Unusable(_) => {
            Failure::new(codes::STATE_UNUSABLE, message).help("`regent doctor` checks it")
        }
    }
}
