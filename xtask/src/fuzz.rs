//! Every parser against hostile bytes: libFuzzer on the stable toolchain.
//!
//! The targets are in `fuzz/`, in cargo-fuzz's layout. Coverage comes from LLVM's own pass, as with `cargo fuzz --sanitizer none`;
//! a stable compiler has no address sanitizer, and safe Rust hardly needs one: what is looked for here is panics, hangs and hunger.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::machine::{capture, cargo_with, command, has, target};
use crate::{root, say};

const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-sanitizer-coverage-stack-depth \
    -Cdebug-assertions -Coverflow-checks";
const INPUT_BYTES_MAX: u32 = 65_536;
const MEMORY_MB_MAX: u32 = 1_024;
/// One input may take this long; beyond it a parser is not linear.
const INPUT_S_MAX: u32 = 10;

/// Inputs per target in a smoke run.
const SMOKE_RUNS: u32 = 4_000;

/// How hard to look.
#[derive(Clone, Copy)]
enum Effort {
    /// The same inputs every time, from the seeds alone: what passed once passes again.
    Smoke,
    /// For so long, from what earlier searches found as well.
    Search { seconds: u32 },
}

/// `cargo xtask fuzz [--seconds N] [TARGET…]`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut seconds = 30;
    let mut named = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--seconds" {
            seconds = arguments.next().context("`--seconds` wants a number")?.parse()?;
        } else {
            named.push(argument.as_str());
        }
    }
    fuzz(Effort::Search { seconds }, &named)
}

/// All targets, a few thousand inputs each.
pub(crate) fn smoke() -> Result<()> {
    fuzz(Effort::Smoke, &[])
}

fn fuzz(effort: Effort, named: &[&str]) -> Result<()> {
    if !has("g++") {
        bail!("libFuzzer is built with g++: install it first");
    }
    let targets: Vec<String> =
        targets()?.into_iter().filter(|name| named.is_empty() || named.contains(&name.as_str())).collect();
    if targets.is_empty() {
        bail!("there is no fuzz target `{}`", named.join("`, `"));
    }
    let host = host()?;
    let build_folder = target().join("fuzz");
    let folder = build_folder.to_string_lossy().into_owned();
    let arguments = [
        "build",
        "--quiet",
        "--release",
        "--bins",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target",
        &host,
        "--target-dir",
        &folder,
    ];
    cargo_with(&arguments, &[("RUSTFLAGS", FLAGS)])?;
    let mut failed = Vec::new();
    for name in &targets {
        let program = build_folder.join(&host).join("release").join(name);
        if let Err(error) = fuzz_one(&program, name, effort) {
            say(format!("fuzz {name:<16} {error:#}"));
            failed.push(name.as_str());
        }
    }
    say(format!("fuzz: {} targets, {} failed", targets.len(), failed.len()));
    if failed.is_empty() { Ok(()) } else { bail!("broken by fuzzing: {}", failed.join(", ")) }
}

fn fuzz_one(program: &std::path::Path, name: &str, effort: Effort) -> Result<()> {
    let found = target().join("fuzz-corpus").join(name);
    let seeds = root().join("fuzz/seeds").join(name);
    let broken = target().join("fuzz-artifacts");
    fs::create_dir_all(&found)?;
    fs::create_dir_all(&broken)?;
    let mut fuzzer = command(program.to_str().context("the target folder's name is not text")?);
    match effort {
        Effort::Smoke => fuzzer.args(["-seed=1".to_owned(), format!("-runs={SMOKE_RUNS}")]),
        Effort::Search { seconds } => fuzzer.arg(format!("-max_total_time={seconds}")),
    };
    fuzzer.arg(format!("-max_len={INPUT_BYTES_MAX}"));
    fuzzer.arg(format!("-rss_limit_mb={MEMORY_MB_MAX}"));
    fuzzer.arg(format!("-timeout={INPUT_S_MAX}"));
    fuzzer.arg(format!("-artifact_prefix={}/{name}-", broken.display()));
    // The first folder named is the one that finds are written to, and the seeds are not for that.
    match effort {
        Effort::Smoke => {
            let passing = target().join("fuzz-smoke").join(name);
            if passing.is_dir() {
                fs::remove_dir_all(&passing)?;
            }
            fs::create_dir_all(&passing)?;
            fuzzer.arg(passing)
        }
        Effort::Search { .. } => fuzzer.arg(&found),
    };
    if seeds.is_dir() {
        fuzzer.arg(seeds);
    }
    let output = capture(&mut fuzzer, name)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let telling =
            said.lines().skip_while(|line| !line.contains("panicked") && !line.contains("ERROR")).take(4);
        let artifact =
            said.lines().filter(|line| line.contains("Test unit written") || line.starts_with("Base64"));
        bail!("broke ({})\n{}", output.status, telling.chain(artifact).collect::<Vec<_>>().join("\n"));
    }
    let done = said.lines().rev().find(|line| line.contains("DONE")).unwrap_or("no inputs were run");
    say(format!("fuzz {name:<16} {done}"));
    Ok(())
}

fn targets() -> Result<Vec<String>> {
    let folder: PathBuf = root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("no `{}`", folder.display()))? {
        let path = entry?.path();
        if let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn host() -> Result<String> {
    let output = capture(command("rustc").arg("-vV"), "rustc -vV")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let host = said.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    Ok(host.to_owned())
}
