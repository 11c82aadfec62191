//! Builds and runs the bench program, which lies outside the workspace so that nothing else ever builds the peers it compares with.

use anyhow::Result;

use crate::machine::{cargo, cargo_with, target};
use crate::with_rest;

/// `cargo xtask bench [TOPIC] [--json]`
pub(crate) fn run(rest: &[String]) -> Result<()> {
    cargo(&["build", "--quiet", "--release", "-p", "regent"])?;
    let folder = target().join("bench").display().to_string();
    let program = target().join("release/regent").display().to_string();
    let run =
        ["run", "--quiet", "--release", "--manifest-path", "benches/Cargo.toml", "--target-dir", &folder];
    let run = [run.as_slice(), &["--features", "peers", "--"]].concat();
    cargo_with(&with_rest(&run, rest), &[("REGENT_PROGRAM", &program)])
}

/// Sees to it that the bench program can be built, without the peers.
pub(crate) fn check() -> Result<()> {
    let folder = target().join("bench").display().to_string();
    cargo(&["check", "--quiet", "--manifest-path", "benches/Cargo.toml", "--target-dir", &folder])
}
