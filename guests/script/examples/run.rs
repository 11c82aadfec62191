//! Runs a source natively without a host: `cargo run --release --example run FILE JSON`. For benchmarks and experiments.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example for people at a terminal")]

use regent_script::{Limits, NoHost, Script};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (file, input) = (args.next().unwrap_or_default(), args.next().unwrap_or_else(|| "null".to_owned()));
    let script = Script::new(&std::fs::read_to_string(file)?)?;
    let began = std::time::Instant::now();
    let output = script.run(&input, &mut NoHost, Limits::default())?;
    println!("{output}");
    eprintln!("{:?}", began.elapsed());
    Ok(())
}
