//! Random policies and calls, put to the indexed evaluator and to a plain one: `crates/policy/tests/difference`.

use anyhow::{Context as _, Result, bail};

use crate::machine::cargo_with;

/// As many as CI promises.
const PAIRS: u64 = 1_000_000;

pub(crate) fn run(rest: &[String]) -> Result<()> {
    let (mut pairs, mut seed) = (PAIRS, 7);
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let number = || -> Result<u64> {
            let text = words.clone().next().with_context(|| format!("`{word}` wants a number"))?;
            text.parse().with_context(|| format!("`{text}` is not a number"))
        };
        match word.as_str() {
            "--pairs" => pairs = number()?,
            "--seed" => seed = number()?,
            other if other.parse::<u64>().is_ok() => {}
            other => bail!("`{other}` means nothing here: --pairs N, --seed N"),
        }
    }
    // Optimised: a million pairs take seconds then.
    let test = ["test", "--quiet", "--release", "--locked", "-p", "regent-policy", "--test", "difference"];
    cargo_with(
        &[&test[..], &["--", "--nocapture"]].concat(),
        &[("REGENT_DIFFERENCE_PAIRS", &pairs.to_string()), ("REGENT_DIFFERENCE_SEED", &seed.to_string())],
    )
}
