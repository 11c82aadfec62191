//! Builds and runs the bench program, which lives outside the workspace so that nothing else ever builds the peers it compares with.

use anyhow::Result;

use crate::machine::cargo;
use crate::with_rest;

pub(crate) fn run(rest: &[String]) -> Result<()> {
    cargo(&["build", "--quiet", "--release", "-p", "regent", "-p", "regent-ledger", "--bins"])?;
    let program =
        ["run", "--quiet", "--release", "--manifest-path", "benches/Cargo.toml", "--features", "peers", "--"];
    cargo(&with_rest(&program, rest))
}
