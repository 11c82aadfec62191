//! How fast is it? `cargo xtask bench [TOPIC] [--json]`. Figures are medians; ratios compare within one run.

mod broker;
mod ledger;
mod measure;
mod microvm;
#[cfg(feature = "peers")]
mod peers;
mod policy;
mod program;
mod provenance;
mod redact;
mod report;
mod sandbox;
mod syscall;
mod wasm;

use anyhow::{Result, bail};

use report::Report;

type Topic = fn(&mut Report) -> Result<()>;

const TOPICS: &[(&str, Topic)] = &[
    ("policy", policy::measure),
    ("policy", provenance::measure),
    ("syscall", syscall::measure),
    ("ledger", ledger::measure),
    ("sandbox", sandbox::measure),
    ("redact", redact::measure),
    ("sandbox", broker::measure),
    ("program", program::measure),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == program::IDLE) {
        return program::be_idle();
    }
    let named: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| *word != "--json").collect();
    if let Some(unknown) = named.iter().find(|name| !TOPICS.iter().any(|(topic, _)| topic == *name)) {
        let known: Vec<&str> = TOPICS.iter().map(|(topic, _)| *topic).collect();
        bail!("there is no topic `{unknown}`; there are {}", known.join(", "));
    }
    let mut report = Report::new(arguments.iter().any(|word| word == "--json"));
    for (name, topic) in TOPICS.iter().filter(|(name, _)| named.is_empty() || named.contains(name)) {
        if let Err(error) = topic(&mut report) {
            report.skip(name, format!("{error:#}"));
        }
    }
    report.close();
    Ok(())
}
