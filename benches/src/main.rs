//! How fast is it? `cargo xtask bench [TOPIC] [--json]`. Figures are medians; ratios compare within one run.
#![forbid(unsafe_code)]

mod broker;
mod churn;
mod crashed;
mod evidence;
mod home;
mod judge;
mod lanes;
mod ledger;
#[cfg(feature = "models")]
mod local;
mod measure;
#[cfg(feature = "tiers")]
mod microvm;
#[cfg(feature = "models")]
mod models;
#[cfg(feature = "peers")]
mod peers;
mod policy;
mod program;
mod provenance;
mod redact;
mod report;
mod repository;
mod sandbox;
mod state;
mod stream;
mod syscall;
#[cfg(feature = "tiers")]
mod wasm;
mod task;

use anyhow::{Result, bail};

use report::Report;

type Topic = fn(&mut Report) -> Result<()>;

const TOPICS: &[(&str, Topic)] = &[
    ("policy", policy::measure),
    ("policy", provenance::measure),
    ("policy", evidence::measure),
    ("syscall", syscall::measure),
    ("state", state::measure),
    ("ledger", ledger::measure),
    ("ledger", crashed::measure),
    ("ledger", lanes::measure),
    ("sandbox", sandbox::measure),
    ("sandbox", broker::measure),
    ("judge", judge::measure),
    ("redact", redact::measure),
    ("stream", stream::measure),
    ("program", program::measure),
    #[cfg(feature = "models")]
    ("models", models::measure),
    ("task", task::measure),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((word, _)) if word == program::IDLE => return program::be_idle(),
        Some((word, _)) if word == task::THOUSAND => return task::be_a_thousand(),
        Some((word, rest)) if word == churn::CHURN => return churn::be_busy(rest.first()),
        Some((word, rest)) if word == crashed::FILL => return crashed::be_killed(rest),
        Some(_) | None => {}
    }
    let named: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| *word != "--json").collect();
    if let Some(unknown) = named.iter().find(|name| !TOPICS.iter().any(|(topic, _)| topic == *name)) {
        let known: Vec<&str> = TOPICS.iter().map(|(topic, _)| *topic).collect();
        bail!("there is no topic `{unknown}`; there are {}", known.join(", "));
    }
    let mut report = Report::new(arguments.iter().any(|word| word == "--json"));
    if named.is_empty() {
        let mut topics: Vec<&str> = TOPICS.iter().map(|(topic, _)| *topic).collect();
        topics.dedup();
        for topic in topics {
            if let Err(error) = apart(topic, &mut report) {
                report.skip(topic, format!("{error:#}"));
            }
        }
    }
    for (name, topic) in TOPICS.iter().filter(|(name, _)| named.contains(name)) {
        if let Err(error) = topic(&mut report) {
            report.skip(name, format!("{error:#}"));
        }
    }
    report.close();
    Ok(())
}

/// Measures one topic in a process of its own: what one leaves behind in memory would weigh on the next, for a fork costs what
/// the forking process holds.
fn apart(topic: &str, report: &mut Report) -> Result<()> {
    let ended = std::process::Command::new(std::env::current_exe()?)
        .args([topic, "--json"])
        .stderr(std::process::Stdio::inherit())
        .output()?;
    report.join(&serde_json::from_slice(&ended.stdout)?);
    Ok(())
}
