//! `cargo xtask torture [--quick] [PART…]`: crashes at every point, I/O errors, `kill -9`, a full disk, bit flips. Prints the counts.

use std::process::ExitCode;
use std::time::Instant;

use regent_testkit::torture::points::{Blow, can_trace, strike};
use regent_testkit::torture::{Broken, Tally, child_program, flips, full, load, tasks};

/// The number of cases per part.
struct Amounts {
    /// Marks that a child makes while it is struck at every point.
    marks: u64,
    deaths: u64,
    fillings: u64,
    flips: flips::Extent,
    /// Strike at one in this many of a task's writes.
    task_points: usize,
    task_deaths: u64,
}

const QUICK: Amounts = Amounts {
    marks: 3,
    deaths: 60,
    fillings: 2,
    flips: flips::Extent::Few,
    task_points: 12,
    task_deaths: 20,
};
const WHOLE: Amounts = Amounts {
    marks: 12,
    deaths: 2_000,
    fillings: 10,
    flips: flips::Extent::Many,
    task_points: 1,
    task_deaths: 500,
};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let amounts = if words.iter().any(|word| word == "--quick") { &QUICK } else { &WHOLE };
    let named: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    match run(amounts, &named) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_breaches) => ExitCode::FAILURE,
        Err(broken) => {
            say(format!("torture: {broken}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the parts whose names contain one of the words, or all parts.
fn run(amounts: &Amounts, named: &[&str]) -> Result<usize, Broken> {
    let child = child_program()?;
    let mut breaches = 0;
    let mut part = |name: &str, tried: Result<(), Broken>, torment: &dyn Fn() -> Result<Tally, Broken>| {
        if !named.is_empty() && !named.iter().any(|word| name.contains(word)) {
            return;
        }
        if let Err(why) = tried {
            say(format!("{name:<20} skipped: {why}"));
            return;
        }
        let started = Instant::now();
        let tally = torment()
            .unwrap_or_else(|broken| Tally { breaches: vec![broken.to_string()], ..Tally::default() });
        let Tally { cases, missed, acknowledged, in_doubt, .. } = tally;
        let took_s = started.elapsed().as_secs_f32();
        let found = tally.breaches.len();
        say(format!(
            "{name:<20} {cases:>8} cases {missed:>4} missed {acknowledged:>8} acknowledged {in_doubt:>5} in doubt {found:>3} breaches {took_s:>7.1} s"
        ));
        tally.breaches.iter().take(20).for_each(|breach| say(format!("  {breach}")));
        breaches += found;
    };
    let strikes = [
        ("kill points", Blow::Kill),
        ("EIO points", Blow::Error("EIO")),
        ("ENOSPC points", Blow::Error("ENOSPC")),
    ];
    for (name, blow) in strikes {
        part(name, can_trace(), &|| strike(&child, amounts.marks, blow));
    }
    part("kill -9 under load", Ok(()), &|| load::kill(&child, amounts.deaths, 1));
    part("full disk", full::can_mount(), &|| full::fill(amounts.fillings));
    part("bit flips", Ok(()), &|| flips::flip(amounts.flips));
    part("forgeries", Ok(()), &flips::forge);
    let regent = tasks::regent_program();
    let built = || regent.as_ref().map(|_| ()).map_err(|broken| Broken::from(broken.to_string()));
    let path = || regent.as_deref().map_err(|broken| Broken::from(broken.to_string()));
    part("task kill points", can_trace().and_then(|()| built()), &|| {
        tasks::strike(path()?, amounts.task_points)
    });
    part("task kill -9", built(), &|| tasks::kill(path()?, amounts.task_deaths, 1));
    say(format!("torture: {breaches} breaches"));
    Ok(breaches)
}

#[expect(clippy::print_stdout, reason = "the counts are the result")]
fn say(line: impl std::fmt::Display) {
    println!("{line}");
}
