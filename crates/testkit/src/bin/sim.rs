//! `cargo xtask sim [--crowd] [--seed N] [--seeds K]`: simulations that crash between any two steps, with one caller or, with `--crowd`,
//! several concurrent ones. See `regent_testkit::sim`.

use std::process::ExitCode;

use regent_testkit::sim::crowd::simulate_crowd;
use regent_testkit::sim::{SimCounts, simulate};

const SEEDS: u64 = 2_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| -> Option<u64> {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1)?.parse().ok()
    };
    let crowd = words.iter().any(|word| word == "--crowd");
    let name = if crowd { "sim --crowd" } else { "sim" };
    let simulate: fn(u64) -> Result<SimCounts, String> = if crowd { simulate_crowd } else { simulate };
    let first = number("--seed").unwrap_or(0);
    let seeds = number("--seeds").unwrap_or(if number("--seed").is_some() { 1 } else { SEEDS });
    let mut total = SimCounts::default();
    let mut failed = 0;
    for seed in first..first.saturating_add(seeds) {
        match simulate(seed) {
            Ok(seen) => {
                total.lives += seen.lives;
                total.blows += seen.blows;
                total.acknowledged += seen.acknowledged;
                total.in_doubt += seen.in_doubt;
            }
            Err(why) => {
                failed += 1;
                say(format!("cargo xtask {name} --seed {seed}  # {why}"));
            }
        }
    }
    let SimCounts { lives, blows, acknowledged, in_doubt } = total;
    say(format!(
        "{name}: {seeds} worlds, {lives} lives, {blows} blows, {acknowledged} acknowledged, {in_doubt} in doubt, {failed} failed"
    ));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::print_stdout, reason = "the counts are the result")]
fn say(line: impl std::fmt::Display) {
    println!("{line}");
}
