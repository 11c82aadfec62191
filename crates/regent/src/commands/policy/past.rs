//! Reads the calls of a ledger back as policies judge them.

use std::collections::BTreeMap;

use regent_ledger::{Entry, Kind, Reader};
use regent_policy::{Confidentiality, Integrity, Label, Recorded};
use serde_json::Value;

use crate::codes;
use crate::commands::audit::{payload_of, unreadable};
use crate::compose;
use crate::context::Context;
use crate::failure::Failure;
use crate::settings::duration_ms;
use crate::term;

/// What stands in the ledger, one after the other.
#[derive(Debug)]
pub(super) enum Event {
    /// A call, and where its intent is.
    Call((u16, u64), Box<Recorded>),
    /// What came of a call: where its intent is, how it was labelled, whether it went well.
    Outcome((u16, u64), Label, bool),
}

/// `7d` ago, as a time.
pub(super) fn since_ms(context: &Context, since: &str) -> Result<i64, Failure> {
    let ms = duration_ms(since).and_then(|ms| i64::try_from(ms).ok()).ok_or_else(|| {
        Failure::new(codes::USAGE, format!("`{}` is not a time", term::inline(since)))
            .help("give a number and a unit, e.g. 90s, 10min, 2h, 7d")
    })?;
    Ok(context.clock.now_ms().saturating_sub(ms))
}

/// Shows everything since then to `visit`, oldest first. Arguments are read only where somebody wants them. Gives back how many calls
/// couldn't be read back.
pub(super) fn each(
    context: &Context,
    since_ms: i64,
    with_args: bool,
    visit: &mut dyn FnMut(Event),
) -> Result<u64, Failure> {
    let folder = context.project()?.audit();
    if !folder.is_dir() {
        return Err(Failure::new(codes::AUDIT_NONE, format!("there is no ledger at `{}`", folder.display()))
            .help("nothing has been done under Regent here yet"));
    }
    let reader = Reader::new(&folder);
    let capabilities: BTreeMap<String, Vec<String>> =
        compose::skills::specs(context)?.into_iter().map(|spec| (spec.name, spec.capabilities)).collect();
    let mut skipped = 0;
    for entry in reader.entries().map_err(|error| unreadable(&error))? {
        let entry = entry.map_err(|error| unreadable(&error))?;
        if entry.at_ms < since_ms {
            continue;
        }
        match entry.kind {
            Kind::Intent => {
                let args = if with_args { arguments(context, &reader, &entry)? } else { None };
                let tool = entry.body.pointer("/tool/name").and_then(Value::as_str).unwrap_or_default();
                let known = capabilities.get(tool).cloned().unwrap_or_default();
                match Recorded::read(entry.at_ms, &entry.body, args, known) {
                    Some(call) => visit(Event::Call((entry.lane.get(), entry.seq), Box::new(call))),
                    None => skipped += 1,
                }
            }
            Kind::Outcome => visit(outcome(&entry)),
            Kind::Answer
            | Kind::Agent
            | Kind::Policy
            | Kind::Kernel
            | Kind::Lane
            | Kind::Recovery
            | Kind::Key
            | Kind::Erase
            | Kind::Pack
            | Kind::Resume
            | Kind::Checkpoint => {}
        }
    }
    Ok(skipped)
}

fn arguments(context: &Context, reader: &Reader, entry: &Entry) -> Result<Option<Value>, Failure> {
    let bytes = payload_of(context, reader, entry, "args")?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn outcome(entry: &Entry) -> Event {
    let lane = entry.body.get("lane").and_then(Value::as_str).and_then(|lane| lane.parse().ok());
    let lane = lane.unwrap_or(entry.lane);
    let intent = entry.body.get("intent").and_then(Value::as_u64).unwrap_or(u64::MAX);
    let label = entry.body.get("label").cloned().and_then(|label| serde_json::from_value(label).ok());
    // What isn't said is taken for the worst.
    let worst = Label { integrity: Integrity::Web, confidentiality: Confidentiality::Credential };
    let went_well = entry.body.get("status").and_then(Value::as_str) == Some("ok");
    Event::Outcome((lane.get(), intent), label.unwrap_or(worst), went_well)
}
