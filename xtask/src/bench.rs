//! Builds and runs the bench program, which lies outside the workspace so that nothing else ever builds the peers it compares with.

use anyhow::Result;

use crate::machine::{cargo, cargo_with, python_with, target};
use crate::{say, with_rest};

/// Peers that are Python packages. llama.cpp is compared with where it is installed there, or where `REGENT_BENCH_PYTHON` says: it has to be compiled.
const PEERS: &[&str] = &["langgraph", "langgraph-checkpoint-sqlite"];

/// `cargo xtask bench [TOPIC] [--json]`
pub(crate) fn run(rest: &[String]) -> Result<()> {
    cargo(&["build", "--quiet", "--profile", "dist", "-p", "regent"])?;
    let folder = target().join("bench").display().to_string();
    let program = target().join("dist/regent").display().to_string();
    let run =
        ["run", "--quiet", "--release", "--manifest-path", "benches/Cargo.toml", "--target-dir", &folder];
    let features = features(rest);
    let run = [run.as_slice(), &["--no-default-features", "--features", &features, "--"]].concat();
    let python = match std::env::var("REGENT_BENCH_PYTHON") {
        Ok(python) => python,
        Err(_unset) => peers(),
    };
    cargo_with(&with_rest(&run, rest), &[("REGENT_PROGRAM", &program), ("REGENT_BENCH_PYTHON", &python)])
}

/// What the bench program is built with: everything, or what the named topics measure. Compilers of guests, a network and other
/// engines for policies take minutes to build.
fn features(rest: &[String]) -> String {
    const OF_TOPICS: &[(&str, &str)] = &[("models", "models"), ("sandbox", "tiers"), ("policy", "peers")];
    let topics: Vec<&String> = rest.iter().filter(|word| !word.starts_with("--")).collect();
    let wanted = |topic: &str| topics.is_empty() || topics.iter().any(|named| *named == topic);
    let features = OF_TOPICS.iter().filter(|(topic, _)| wanted(topic)).map(|(_, feature)| *feature);
    features.collect::<Vec<_>>().join(",")
}

/// A Python that has the peers. Without them the figures are still worth having; the bench says what it skips.
fn peers() -> String {
    match python_with("peers", &["langgraph.checkpoint.sqlite"], PEERS) {
        Ok(python) => python.display().to_string(),
        Err(error) => {
            say(format!("no peers in Python: {error:#}"));
            "python3".to_owned()
        }
    }
}

/// Sees to it that the bench program can be built, without the peers.
pub(crate) fn check() -> Result<()> {
    let folder = target().join("bench").display().to_string();
    cargo(&["check", "--quiet", "--manifest-path", "benches/Cargo.toml", "--target-dir", &folder])
}
