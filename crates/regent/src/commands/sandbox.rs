//! `regent sandbox`: what this machine gives, and what a program would see.

use clap::Subcommand;
use serde_json::json;

use crate::codes;
use crate::compose;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::term;

/// Inspect the sandbox on this machine
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Probe which confinement works here
    Probe,
    /// Show what a program would see, and its limits
    Explain,
}

impl SandboxCommand {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Probe => "sandbox.probe",
            Self::Explain => "sandbox.explain",
        }
    }
}

pub(crate) async fn run(context: &Context, command: &SandboxCommand) -> CommandResult {
    match command {
        SandboxCommand::Probe => probe(context).await,
        SandboxCommand::Explain => explain(context),
    }
}

async fn probe(context: &Context) -> CommandResult {
    let screen = &context.screen;
    let mut probe = regent_sandbox::probe().clone();
    probe.findings.extend(compose::other_tiers().await);
    let mut text = String::new();
    for finding in &probe.findings {
        let mark = if finding.ok { screen.good("ok  ") } else { screen.warn("warn") };
        text.push_str(&format!("{mark} {:<22} {}\n", finding.name, term::inline(&finding.says)));
        if let Some(fix) = &finding.fix {
            text.push_str(&format!("     {:<22} {}\n", "", screen.faint(&term::inline(fix))));
        }
    }
    let data = json!(probe);
    if probe.full.is_some() && probe.fallback.is_some() {
        let why = probe.full.as_ref().map(|closed| closed.reason.clone()).unwrap_or_default();
        screen.say(&text);
        return Err(Failure::new(
            codes::SANDBOX_UNAVAILABLE,
            format!("this machine can't provide a sandbox: {why}"),
        )
        .data(data));
    }
    Ok(Done::new(data, text))
}

fn explain(context: &Context) -> CommandResult {
    let explained = compose::sandbox_view(context)?;
    let text = term::block(&explained.to_string()).into_owned();
    Ok(Done::new(json!(explained), text))
}
