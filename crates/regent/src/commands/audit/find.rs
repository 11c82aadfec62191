//! `regent audit find`: calls by who, what, how judged, how ended and when, without reading the whole ledger.

use std::path::Path;

use clap::Args;
use regent_ledger::LaneId;
use regent_lookup::{Hit, Query};
use serde_json::json;

use super::lines;
use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done, Screen};
use crate::past::{failed, refreshed};
use crate::settings::duration_ms;
use crate::term;

/// What to look for; everything given must fit.
#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    /// Who made the call: an agent's name, a person's, or `operator` for all people
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Which tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Which operation, e.g. tool.run or model.infer
    #[arg(long, value_name = "NAME")]
    op: Option<String>,
    /// In which session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// How it was judged
    #[arg(long, value_parser = ["allow", "ask", "deny"])]
    verdict: Option<String>,
    /// By which rule, or refused with which code
    #[arg(long, value_name = "ID")]
    rule: Option<String>,
    /// How it ended; `open` for calls that were allowed and have no outcome
    #[arg(long, value_parser = ["ok", "failed", "timed_out", "cancelled", "faulted", "open"])]
    status: Option<String>,
    /// Not longer ago than this, e.g. 90s, 10min, 2h, 7d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Longer ago than this
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// How many at most, the newest first
    #[arg(short = 'n', long = "lines", default_value_t = 50, value_name = "N")]
    lines: u32,
}

pub(super) fn run(context: &Context, folder: &Path, args: FindArgs) -> CommandResult {
    let ago = |text: &Option<String>| -> Result<Option<i64>, Failure> {
        let Some(text) = text else { return Ok(None) };
        let ms = duration_ms(text).and_then(|ms| i64::try_from(ms).ok()).ok_or_else(|| {
            Failure::new(codes::USAGE, format!("`{}` is not a time", term::inline(text)))
                .help("give a number and a unit, e.g. 90s, 10min, 2h, 7d")
        })?;
        Ok(Some(context.clock.now_ms().saturating_sub(ms)))
    };
    let query = Query {
        since_ms: ago(&args.since)?,
        until_ms: ago(&args.until)?,
        agent: args.agent,
        tool: args.tool,
        op: args.op,
        session: args.session,
        verdict: args.verdict,
        rule: args.rule,
        status: args.status,
        count_max: args.lines,
    };
    let hits = refreshed(context, folder)?.find(&query).map_err(|error| failed(&error))?;
    let text = match hits.as_slice() {
        [] => "no matching calls\n".to_owned(),
        hits => hits.iter().map(|hit| line(&context.screen, hit)).collect(),
    };
    Ok(Done::new(json!({"calls": hits}), text))
}

/// Where the outcome of an intent is, if it has one.
pub(super) fn outcome_of(
    context: &Context,
    folder: &Path,
    lane: LaneId,
    intent: u64,
) -> Result<Option<(LaneId, u64)>, Failure> {
    refreshed(context, folder)?.outcome_of(lane, intent).map_err(|error| failed(&error))
}

fn line(screen: &Screen, hit: &Hit) -> String {
    let what = hit.tool.as_ref().unwrap_or(&hit.op);
    let verdict = match hit.verdict.as_str() {
        "allow" => screen.good("allow"),
        "ask" => screen.warn("ask  "),
        "deny" => screen.bad("deny "),
        other => other.to_owned(),
    };
    format!(
        "{} {}/{:<6} {:<10} {verdict} {:<14} {} {}\n",
        screen.faint(&lines::utc(hit.at_ms)),
        hit.lane,
        hit.seq,
        term::inline(hit.person.as_ref().unwrap_or(&hit.agent)),
        term::inline(what),
        hit.status.as_deref().unwrap_or("-"),
        screen.faint(&term::inline(hit.rule.as_deref().unwrap_or("-"))),
    )
}
