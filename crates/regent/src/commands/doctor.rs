//! `regent doctor`: named checks, live escape attempts among them, and what to do about each that fails.

mod checks;
mod files;
mod fix;
mod git;

use clap::Args;
use serde_json::json;

use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::term;

/// Check this machine and your setup, with live attempts to escape the sandbox
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Fix what is safe to fix automatically: permissions, missing folders, stale sockets, a missing policy. A damaged state database is
    /// moved aside, which loses its budgets, rates and approvals
    #[arg(long)]
    fix: bool,
}

/// What a check found.
#[derive(Debug)]
pub(super) struct Check {
    /// A stable id.
    pub(super) id: String,
    pub(super) health: Health,
    /// The findings.
    pub(super) says: String,
    /// What to do about it.
    pub(super) help: Option<String>,
    /// Whether `--fix` can fix it.
    pub(super) fix: Option<fix::Fix>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    /// As it should be.
    Good,
    /// Works, with a weakness that the user should know of.
    Warning,
    /// Doesn't work, or isn't safe.
    Bad,
}

impl Check {
    pub(super) fn good(id: impl Into<String>, says: impl Into<String>) -> Self {
        Self { id: id.into(), health: Health::Good, says: says.into(), help: None, fix: None }
    }

    pub(super) fn warning(id: impl Into<String>, says: impl Into<String>, help: impl Into<String>) -> Self {
        Self { health: Health::Warning, help: Some(help.into()), ..Self::good(id, says) }
    }

    pub(super) fn bad(id: impl Into<String>, says: impl Into<String>, help: impl Into<String>) -> Self {
        Self { health: Health::Bad, ..Self::warning(id, says, help) }
    }

    pub(super) fn fixed_by(mut self, fix: fix::Fix) -> Self {
        self.fix = Some(fix);
        self
    }
}

pub(crate) async fn run(context: &Context, args: &DoctorArgs) -> CommandResult {
    let mut checks = checks::all(context).await;
    let mut fixed = Vec::new();
    if args.fix {
        let wanted: Vec<fix::Fix> = checks.iter().filter_map(|check| check.fix.clone()).collect();
        for fix in wanted {
            fixed.push(fix::apply(context, &fix)?);
        }
        if !fixed.is_empty() {
            checks = checks::all(context).await;
        }
    }
    let count = |health: Health| checks.iter().filter(|check| check.health == health).count();
    let (bad, warned) = (count(Health::Bad), count(Health::Warning));
    let text = render(context, &checks, &fixed);
    let rows: Vec<_> = checks
        .iter()
        .map(|check| {
            let health = match check.health {
                Health::Good => "ok",
                Health::Warning => "warn",
                Health::Bad => "failed",
            };
            json!({"id": check.id, "health": health, "says": check.says, "help": check.help, "fixable": check.fix.is_some()})
        })
        .collect();
    let data =
        json!({"checks": rows, "ok": count(Health::Good), "warnings": warned, "failed": bad, "fixed": fixed});
    if bad == 0 {
        return Ok(Done::new(data, text));
    }
    if !context.screen.json {
        // The checks are what was asked for, so they are the result even if some failed.
        crate::output::write_all(text.as_bytes())
            .map_err(|error| Failure::new(codes::IO, error.to_string()))?;
    }
    let failed: Vec<&str> =
        checks.iter().filter(|check| check.health == Health::Bad).map(|check| check.id.as_str()).collect();
    let code = if failed.iter().any(|id| id.starts_with("escape.")) {
        codes::SANDBOX_ESCAPE
    } else {
        codes::DOCTOR_FAILED
    };
    let failure =
        Failure::new(code, format!("{bad} of {} checks failed: {}", checks.len(), failed.join(", ")))
            .data(data);
    let fixable = checks.iter().any(|check| check.fix.is_some());
    Err(if fixable {
        failure.help("`regent doctor --fix` fixes what is safe to fix automatically")
    } else {
        failure
    })
}

fn render(context: &Context, checks: &[Check], fixed: &[String]) -> String {
    let screen = &context.screen;
    let mut text = String::new();
    for line in fixed {
        text.push_str(&format!("{} {}\n", screen.good("fixed"), term::inline(line)));
    }
    for check in checks {
        let mark = match check.health {
            Health::Good => screen.good("ok    "),
            Health::Warning => screen.warn("warn  "),
            Health::Bad => screen.bad("failed"),
        };
        text.push_str(&format!("{mark} {:<26} {}\n", check.id, term::inline(&check.says)));
        if let Some(help) = &check.help {
            text.push_str(&format!("       {:<26} {}\n", "", screen.faint(&term::inline(help))));
        }
    }
    let count = |health: Health| checks.iter().filter(|check| check.health == health).count();
    text.push_str(&format!(
        "\n{} checks: {} ok, {} warnings, {} failed\n",
        checks.len(),
        count(Health::Good),
        count(Health::Warning),
        count(Health::Bad)
    ));
    text
}
