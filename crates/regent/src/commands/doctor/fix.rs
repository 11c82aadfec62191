//! What `regent doctor --fix` repairs. Nothing is removed but sockets that nobody answers on; a damaged database is moved away.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use regent_policy::DEFAULT_POLICY;

use crate::compose;
use crate::context::Context;
use crate::failure::Failure;
use crate::paths;

/// One thing that can be fixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fix {
    /// Close a file or folder of ours to others.
    Close(PathBuf),
    /// Close a folder and everything in it to others.
    CloseAll(PathBuf),
    /// Move a damaged state database away, or replace one that is gone.
    State,
    /// Make the folders of ours that are missing.
    Folders,
    /// Write the user's policy.
    Policy,
    /// Make the ledger's key.
    Key,
    /// Remove a socket that nobody answers on.
    Socket(PathBuf),
}

/// Fixes it, and says what was done.
pub(super) fn apply(context: &Context, fix: &Fix) -> Result<String, Failure> {
    match fix {
        Fix::Close(path) => {
            let fail = |error: &std::io::Error| Failure::io("close to others", path, error);
            let folder = std::fs::metadata(path).map_err(|error| fail(&error))?.is_dir();
            let mode = if folder { 0o700 } else { 0o600 };
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
                .map_err(|error| fail(&error))?;
            Ok(format!("closed {} to others", path.display()))
        }
        Fix::CloseAll(folder) => {
            let closed = super::files::each_below(folder, usize::MAX, &mut |path, meta| {
                let mode = meta.permissions().mode() & 0o700;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            });
            closed.map_err(|error| Failure::io("close to others", folder, &error))?;
            Ok(format!("closed {} and everything in it to others", folder.display()))
        }
        Fix::State => {
            context.paths.make()?;
            let aside = crate::state::start_anew(&context.paths, context.clock.now_ms())?;
            let lost = "budgets, rates and approvals start again";
            Ok(match aside {
                Some(aside) => format!("the damaged state database is now {}; {lost}", aside.display()),
                None => format!("{} was gone; {lost}", context.paths.state_db().display()),
            })
        }
        Fix::Folders => {
            context.paths.make()?;
            Ok("your folders exist".to_owned())
        }
        Fix::Policy => {
            paths::write_private(&context.paths.policy(), DEFAULT_POLICY.as_bytes())?;
            Ok(format!("{} has the default policy", context.paths.policy().display()))
        }
        Fix::Key => {
            context.paths.make()?;
            compose::ledger_key(&context.paths)?;
            Ok(format!("{} is there", context.paths.ledger_key().display()))
        }
        Fix::Socket(path) => {
            std::fs::remove_file(path).map_err(|error| Failure::io("remove", path, &error))?;
            Ok(format!("{} is gone", path.display()))
        }
    }
}
