//! The caller of a command: the user at this terminal, or the principal that a token stands for. The kernel decides who that is; this only reads the token, and
//! never from the command line or the environment.

use std::path::Path;
use std::sync::Arc;

use regent_kernel::{AuthError, Credential, Host, Principal, Secret};

use crate::cli::Global;
use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::secrets;

/// A token is shorter.
const TOKEN_BYTES_MAX: usize = 256;

/// A token that was given with the command. It doesn't show itself, and is wiped when it is dropped.
#[derive(Debug, Clone)]
pub(crate) struct PresentedToken(Arc<Secret>);

impl PresentedToken {
    /// Reads the token that the command line points at, if it does.
    pub(crate) fn read(global: &Global) -> Result<Option<Self>, Failure> {
        let secret = match (&global.token_file, global.token_fd) {
            (None, None) => return Ok(None),
            (Some(path), _) if path == Path::new("-") => {
                secrets::read_all(rustix::stdio::stdin(), TOKEN_BYTES_MAX)?
            }
            // Who reads a file that everybody can read would not know whose token it is.
            (Some(path), _) => secrets::from_private_file(path, codes::AUTH_FILE, TOKEN_BYTES_MAX)?,
            (None, Some(number)) => secrets::from_descriptor("--token-fd", number, TOKEN_BYTES_MAX)?,
        };
        Ok(Some(Self(Arc::new(secret))))
    }

    /// The text. What isn't text is no token, and the kernel says so.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.0.expose()).unwrap_or_default()
    }
}

/// The caller, as this kernel authenticates them.
pub(crate) async fn authenticate(context: &Context, host: &Host) -> Result<Principal, Failure> {
    let credential = match &context.token {
        Some(token) => Credential::Bearer(token.text()),
        None => Credential::PeerUid(rustix::process::geteuid().as_raw()),
    };
    host.authenticator().authenticate(credential).await.map_err(refused)
}

fn refused(error: AuthError) -> Failure {
    let code = error.code();
    Failure::named(code, codes::exit_of(code), error.to_string()).help(
        "an admin makes a new one with `regent token create`; `regent token list` shows those that are valid",
    )
}
