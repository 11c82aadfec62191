//! `regent policy diff`, `sim`, `learn`, `cover` and `shadow`: changing a policy with evidence.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use regent_policy::{CallSketch, Cover, Layer, Policy, Replay, Replayed, Shift, Tallied, Trace, Verdict};
use regent_store::{self as store, Partition};
use serde_json::{Value, json};

use super::past::{self, PastEvent};
use crate::codes;
use crate::compose;
use crate::context::Context;
use crate::controls::Controls;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::paths;
use crate::term;

/// Rows shown of a long list; `--json` has all of them.
const ROWS_MAX: usize = 20;

/// Calls that may be without an outcome at once; more than that run in no kernel.
const OPEN_MAX: usize = 100_000;

/// Back-test: what would the ledger's calls have met under another policy?
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// The candidate, in the place of your own policy; without one, today's policy is held against what was decided then
    file: Option<PathBuf>,
    /// The candidate takes the place of the project's policy
    #[arg(long, requires = "file")]
    project: bool,
    /// How far back
    #[arg(long, value_name = "TIME", default_value = "7d")]
    since: String,
}

/// The candidate policy, loaded in its place.
fn candidate(context: &Context, file: &Path, as_project: bool) -> Result<Policy, Failure> {
    let (path, name) = (context.cwd.join(file), file.display().to_string());
    if as_project {
        let one = compose::load_policy(&path, &name, Layer::Project)?;
        return Ok(Policy::layered(compose::own_policies(&context.paths)?, Some(one)));
    }
    let one = compose::load_policy(&path, &name, Layer::User)?;
    Ok(match context.controls()?.as_ref().map(compose::project_policies).transpose()? {
        Some(below) => Policy::layered(one, below),
        None => one,
    })
}

pub(super) fn sim(context: &Context, args: &SimArgs) -> CommandResult {
    let controls = Controls::read(&context.project()?)?;
    let active = compose::policy(&context.paths, Some(&controls))?;
    let candidate = match &args.file {
        Some(file) => candidate(context, file, args.project)?,
        None => active.clone(),
    };
    let mut replay = Replay::new(active, candidate);
    let with_args = replay.needs_args();
    let since = past::since_ms(context, &args.since)?;
    let skipped = past::each(context, since, with_args, &mut |event| match event {
        PastEvent::Call(place, call) => replay.call(place, &call),
        PastEvent::Outcome(one) => replay.outcome(one.intent, one.label, one.went_well),
    })?;
    let found = replay.finish();
    let text = sim_text(context, &found, skipped, &args.since);
    let mut data = json!(found);
    if let Some(fields) = data.as_object_mut() {
        fields.insert("unreadable".to_owned(), json!(skipped));
        fields.insert("since".to_owned(), json!(args.since));
    }
    Ok(Done::new(data, text))
}

fn sim_text(context: &Context, found: &Replayed, skipped: u64, since: &str) -> String {
    let screen = &context.screen;
    let mut text = format!(
        "{} in {}: {} newly allowed, {} newly asked, {} newly denied\n",
        term::count(found.calls, "call"),
        since,
        found.newly_allowed,
        found.newly_asked,
        found.newly_denied
    );
    for change in found.changes.iter().take(ROWS_MAX) {
        let to = match change.to {
            "allow" => screen.warn("allow"),
            "ask" => screen.warn("ask  "),
            other => screen.bad(&format!("{other:<5}")),
        };
        let rule = change.rule.as_deref().unwrap_or("no rule");
        let example = change.example.as_deref().map(|one| format!(", e.g. {one}")).unwrap_or_default();
        let line = format!("{}  {} ({rule}{example})", change.agent, change.what);
        text.push_str(&format!("{:>7} × {:<5} → {to} {}\n", change.calls, change.from, term::inline(&line)));
    }
    if found.changes.len() > ROWS_MAX {
        text.push_str(
            &screen.faint(&format!("  and {} more; --json has all\n", found.changes.len() - ROWS_MAX)),
        );
    }
    if found.not_reproduced + skipped > 0 {
        text.push_str(&screen.faint(&format!(
            "  {} calls are decided differently now (an approval, a budget, a role, a changed policy), {skipped} can't be read\n",
            found.not_reproduced
        )));
    }
    text
}

pub(super) fn diff(context: &Context, old: &Path, new: &Path) -> CommandResult {
    let load =
        |file: &Path| compose::load_policy(&context.cwd.join(file), &file.display().to_string(), Layer::User);
    let found = regent_policy::diff(&load(old)?, &load(new)?);
    let screen = &context.screen;
    let mut text = String::new();
    for (word, ids) in [("added", &found.added), ("removed", &found.removed), ("changed", &found.changed)] {
        if !ids.is_empty() {
            text.push_str(&format!("{word:<8} {}\n", term::inline(&ids.join(", "))));
        }
    }
    let row = |shift: &Shift| {
        let rule = shift.rule.as_deref().unwrap_or("no rule");
        let line = format!("{} → {}  {} ({rule})", shift.from, shift.to, shift.call);
        format!("  {}\n", term::inline(&line))
    };
    for (word, shifts) in [("gains", &found.gains), ("losses", &found.losses)] {
        if shifts.is_empty() {
            continue;
        }
        let title = if word == "gains" { screen.warn("gains") } else { screen.strong("losses") };
        text.push_str(&format!("{title}\n"));
        shifts.iter().take(ROWS_MAX).for_each(|shift| text.push_str(&row(shift)));
        if shifts.len() > ROWS_MAX {
            text.push_str(
                &screen.faint(&format!("  and {} more; --json has all\n", shifts.len() - ROWS_MAX)),
            );
        }
    }
    if text.is_empty() {
        text.push_str("nothing is different\n");
    }
    text.push_str(&screen.faint(&format!(
        "  both were evaluated on {} calls derived from their rules; `regent policy sim` uses recorded ones\n",
        found.tried
    )));
    Ok(Done::new(json!(found), text))
}

pub(super) fn learn(context: &Context, since: &str, out: Option<&Path>) -> CommandResult {
    let mut trace = Trace::default();
    // A call that was allowed and failed is no example: it may have been a mistake.
    let mut open = BTreeMap::new();
    past::each(context, past::since_ms(context, since)?, false, &mut |event| match event {
        PastEvent::Call(place, call) => {
            if open.len() < OPEN_MAX && call.verdict == "allow" {
                open.insert(place, call);
            }
        }
        PastEvent::Outcome(ended) => {
            if let Some(call) = open.remove(&ended.intent).filter(|_| ended.was_done) {
                trace.add(&call);
            }
        }
    })?;
    let policy = trace.policy();
    let data = json!({"calls": trace.seen(), "policy": policy});
    let Some(out) = out else { return Ok(Done::new(data, policy)) };
    let path = context.cwd.join(out);
    std::fs::write(&path, &policy).map_err(|error| Failure::io("write", &path, &error))?;
    let shown = term::inline(&out.display().to_string()).into_owned();
    Ok(Done::new(
        data,
        format!(
            "from {}: {shown}; `regent policy sim {shown}` tries it\n",
            term::count(trace.seen(), "call")
        ),
    ))
}

/// The smallest rule that would cover a call, and what else it would have allowed.
pub(super) fn cover(context: &Context, call: &str, since: &str) -> CommandResult {
    let controls = context.controls()?;
    let policy = compose::policy(&context.paths, controls.as_ref())?;
    let sketch =
        CallSketch::parse(call).map_err(|error| compose::invalid_policy("call", call.to_owned(), &error))?;
    let (verdict, found): (Verdict, Option<Cover>) = sketch.with_facts(|facts| {
        let verdict = policy.decide(facts);
        let cover = Cover::find(&policy, facts, &verdict);
        (verdict, cover)
    });
    let Some(cover) = found else {
        let text = format!("{} it is already allowed\n", context.screen.good("ok"));
        return Ok(Done::new(json!({"verdict": verdict.word(), "cover": Value::Null}), text));
    };
    let (mut covered, mut asked) = (0_u64, 0_u64);
    let conditions = cover.compiled();
    if controls.is_some_and(|controls| paths::may_exist(&controls.project().audit())) {
        past::each(context, past::since_ms(context, since)?, false, &mut |event| {
            if let PastEvent::Call(_, call) = event
                && conditions.as_ref().is_some_and(|conditions| conditions.covers(&call))
            {
                covered += 1;
                asked += u64::from(call.verdict != "allow");
            }
        })?;
    }
    let text = format!(
        "{}  {}\n{}{}",
        context.screen.warn(verdict.word()),
        term::inline(call),
        term::block(&cover.lines),
        context.screen.faint(&format!(
            "  in the last {since} it would have covered {}, of which {asked} were asked about or denied\n",
            term::count(covered, "call")
        ))
    );
    let data = json!({"verdict": verdict.word(), "cover": cover, "since": since, "covered": covered, "not_allowed_then": asked});
    Ok(Done::new(data, text))
}

/// Where the candidate would have decided otherwise than the policy in force.
pub(super) async fn shadow(context: &Context) -> CommandResult {
    let path = context.paths.candidate();
    if !paths::may_exist(&path) {
        let text = format!("no candidate; create {}\n", term::inline(&path.display().to_string()));
        return Ok(Done::new(json!({"candidate": Value::Null}), text));
    }
    let candidate = compose::load_policy(&path, &path.display().to_string(), Layer::User)?;
    let key = compose::tally_key(&candidate.digest());
    let state = crate::state::open(context).await?;
    let read = store::load(&*state, &key, &Partition::containing(&key)).await;
    let found: Tallied =
        read.map_err(|error| Failure::new(codes::STATE_UNUSABLE, error.to_string()))?.unwrap_or_default();
    let text = format!(
        "{} decisions compared with the active policy: {} would be newly allowed, {} newly asked, {} newly denied\n",
        found.judged, found.newly_allowed, found.newly_asked, found.newly_denied
    );
    Ok(Done::new(json!({"candidate": path.display().to_string(), "counted": found}), text))
}
