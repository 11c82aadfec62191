//! The project's own chores. `cargo xtask ci` is what CI runs and what you run.
#![forbid(unsafe_code)]

mod backends;
mod bench;
mod ci;
mod difference;
mod eval;
mod fuzz;
mod guest;
mod injection;
mod machine;
mod ordinary;
mod peers;
mod schemas;
mod skips;
mod tidy;
mod tui;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

const USAGE: &str = "\
cargo xtask ci [STEP…]           everything that must hold: format, lints, tests, docs, smoke, simulator, torture, fuzz
cargo xtask tidy                 the rules of the house
cargo xtask crates               writes the crate graph of ARCHITECTURE.md from the manifests
cargo xtask bench [TOPIC] [--json]   figures, one `name value unit` a line, then the bars met and missed
cargo xtask eval [--model NAME] [--json] [TASK…]   small tasks for agents, on the local model
cargo xtask eval plain [--model NAME] [--all] [TASK…]   the same in plain words with default tools: passes, damage, false completions
cargo xtask torture [--quick] [PART…]   crashes at every point, I/O errors, kill -9, full disk, bit flips
cargo xtask backends [contract] [outage] [product] [figures]   the state's backends, and regent on them, against real servers; servers killed with SIGKILL
cargo xtask peers [--program PATH] [vendors] [aimock] [litellm] [misbehaving]   tasks against model servers of others, each request validated by the vendors' types
cargo xtask sim [--crowd] [--seed N] [--seeds K]   the seeded simulator, with one caller or several
cargo xtask difference [--pairs N] [--seed N]   the policy's index against a plain evaluator
cargo xtask guest [--check]      builds the interpreter of generated tools, which is checked in; or compares it
cargo xtask schemas [--check]    writes the JSON Schemas of what travels, docs/schemas; or compares them
cargo xtask fuzz [--seconds N] [TARGET…]   every parser against hostile bytes
cargo xtask eval injection [--dojo FOLDER]   prompt injection: what leaks, what is lost, what is asked; needs the harness and Python
cargo xtask eval adaptive [--why]   attackers who know the defence: what leaks, by class and track
cargo xtask eval forgiveness   plans with one honest mistake: which tasks are lost
cargo xtask eval task [--why]   our own agents, misled: which effects nobody was asked about, and what ordinary work is asked
cargo xtask eval undeclared [--why]   the same attacks on tools without labels
cargo xtask eval benign [--why]   ordinary work (tau2, BFCL): what is denied, how much is asked about";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let (command, rest) = arguments.split_first().context(USAGE)?;
    match command.as_str() {
        "ci" => ci::run(rest),
        "tidy" => tidy_up(),
        "crates" => tidy::graph::write(&root()),
        "backends" => backends::run(rest),
        "bench" => bench::run(rest),
        "peers" => peers::run(rest),
        "eval" if rest.first().is_some_and(|what| what == "injection") => injection::run(rest),
        "eval" if rest.first().is_some_and(|what| what == "benign") => injection::benign(rest),
        "eval"
            if rest
                .first()
                .is_some_and(|what| ["adaptive", "forgiveness", "undeclared"].contains(&what.as_str())) =>
        {
            injection::script(rest)
        }
        "eval" if rest.first().is_some_and(|what| what == "task") => eval::under_attack(rest),
        "eval" => eval::run(rest),
        "torture" => torture(rest),
        "sim" => machine::cargo(&with_rest(
            &["run", "--quiet", "--release", "-p", "regent-testkit", "--bin", "sim", "--"],
            rest,
        )),
        "fuzz" => fuzz::run(rest),
        "guest" => guest::run(rest),
        "schemas" => schemas::run(rest),
        "difference" => difference::run(rest),
        "help" | "--help" | "-h" => {
            say(USAGE);
            Ok(())
        }
        other => bail!("there is no chore `{other}`\n{USAGE}"),
    }
}

fn torture(rest: &[String]) -> Result<()> {
    // Tasks are tortured with the program itself, which must lie beside the harness.
    machine::cargo(&["build", "--quiet", "--release", "-p", "regent"])?;
    machine::cargo(&with_rest(
        &["run", "--quiet", "--release", "-p", "regent-testkit", "--bin", "torture", "--"],
        rest,
    ))?;
    if rest.iter().any(|word| word == "--quick" || (!word.starts_with("--") && word != "flips")) {
        return Ok(());
    }
    // A thousand damages, judged by a verifier that was written from FORMAT.md alone.
    let stranger =
        ["test", "--quiet", "--release", "-p", "regent-ledger", "--test", "stranger", "--", "--nocapture"];
    machine::cargo_with(&stranger, &[("REGENT_DAMAGES", "1000")])?;
    // Every bit of a thousand entries: a test, because it needs the ledger's insides to take less than hours.
    let every_bit = "adv_085_every_bit_flip_is_found_and_named";
    machine::cargo(&[
        "test",
        "--quiet",
        "--release",
        "-p",
        "regent-ledger",
        "--lib",
        every_bit,
        "--",
        "--nocapture",
    ])
}

fn tidy_up() -> Result<()> {
    let (mut found, size) = tidy::findings(&root());
    say(size);
    let mut metadata = machine::command("cargo");
    metadata.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    let metadata = machine::capture(&mut metadata, "cargo metadata")?;
    let metadata = serde_json::from_slice(&metadata.stdout).context("`cargo metadata` is not JSON")?;
    found.extend(tidy::packages::findings(&metadata).iter().map(|one| format!("Cargo.lock:1: {one}")));
    found.iter().for_each(say);
    if found.is_empty() { Ok(()) } else { bail!("tidy: {} findings", found.len()) }
}

fn with_rest<'a>(first: &[&'a str], rest: &'a [String]) -> Vec<&'a str> {
    first.iter().copied().chain(rest.iter().map(String::as_str)).collect()
}

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map_or(own.clone(), std::path::Path::to_path_buf)
}

/// What the chores print is their result.
#[expect(clippy::print_stdout, reason = "the one place where chores speak")]
pub(crate) fn say(line: impl std::fmt::Display) {
    println!("{line}");
}
