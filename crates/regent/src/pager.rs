//! Long text on a terminal, through the reader's own pager.

use std::io::Write as _;
use std::process::Stdio;

/// Shows a text in `$PAGER`. Says whether it did; if not, the text is to be printed.
pub(crate) fn page(text: &str) -> bool {
    let Some(pager) = std::env::var_os("PAGER").filter(|pager| !pager.is_empty()) else { return false };
    // It may be a command with arguments, as every program that calls it takes it.
    let Ok(mut child) = shell().arg("-c").arg(pager).stdin(Stdio::piped()).spawn() else { return false };
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
    // A reader who leaves early closes the pipe, and has still seen the text.
    let left_early = written.is_some_and(|written| written.is_err());
    child.wait().is_ok_and(|status| status.success() || left_early)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the pager is the person's own program, and gets nothing but inert text"
)]
fn shell() -> std::process::Command {
    std::process::Command::new("/bin/sh")
}
