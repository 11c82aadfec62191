//! Reads the calls of a ledger back as policies judge them.

use std::collections::BTreeMap;

use regent_ledger::{Entry, EntryKind, Reader};
use regent_policy::{Confidentiality, Integrity, Label, PastCall};
use regent_wire::Status;
use regent_wire::body::EntryBody;
use serde_json::Value;

use crate::codes;
use crate::commands::audit::{payload_of, unreadable, unreadable_body};
use crate::compose;
use crate::context::Context;
use crate::failure::Failure;
use crate::settings::duration_ms;
use crate::term;

/// How a program failed that ran and ended by itself.
const PROGRAM_EXIT: &str = "process.exit";

/// What stands in the ledger, one after the other.
#[derive(Debug)]
pub(super) enum PastEvent {
    /// A call, and where its intent is.
    Call((u16, u64), Box<PastCall>),
    /// The result of a call.
    Outcome(PastOutcome),
}

/// How a call ended.
#[derive(Debug)]
pub(super) struct PastOutcome {
    /// Where its intent is.
    pub(super) intent: (u16, u64),
    /// What its result was labelled.
    pub(super) label: Label,
    /// Whether it succeeded.
    pub(super) went_well: bool,
    /// Whether it did what it was for: it succeeded, or its program ran and ended with an exit code of its own.
    pub(super) was_done: bool,
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
    visit: &mut dyn FnMut(PastEvent),
) -> Result<u64, Failure> {
    let folder = context.project()?.audit();
    if !folder.is_dir() {
        return Err(Failure::new(codes::AUDIT_NONE, format!("there is no ledger at `{}`", folder.display()))
            .help("Regent has recorded nothing here yet"));
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
        match EntryBody::read_known(&entry).map_err(|error| unreadable_body(&error))? {
            Some(EntryBody::Intent(intent)) => {
                let args = if with_args { arguments(context, &reader, &entry)? } else { None };
                let known =
                    intent.tool_name().and_then(|tool| capabilities.get(tool)).cloned().unwrap_or_default();
                match intent.past_call(entry.at_ms, args, known) {
                    Some(call) => visit(PastEvent::Call((entry.lane.get(), entry.seq), Box::new(call))),
                    None => skipped += 1,
                }
            }
            Some(end @ (EntryBody::Outcome(_) | EntryBody::InDoubt(_))) => {
                if let Some((lane, seq)) = end.intent_place(&entry) {
                    visit(outcome((lane.get(), seq), &end));
                }
            }
            None => skipped += u64::from(entry.kind == EntryKind::Intent),
            Some(EntryBody::Agent(_) | EntryBody::Policy(_) | EntryBody::Kernel(_) | EntryBody::Internal) => {
            }
        }
    }
    Ok(skipped)
}

fn arguments(context: &Context, reader: &Reader, entry: &Entry) -> Result<Option<Value>, Failure> {
    let bytes = payload_of(context, reader, entry)?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn outcome(intent: (u16, u64), end: &EntryBody<'_>) -> PastEvent {
    // Missing fields count as the worst case.
    let worst = Label { integrity: Integrity::Web, confidentiality: Confidentiality::Credential };
    match end {
        EntryBody::Outcome(outcome) => {
            let went_well = *outcome.status == Status::Ok;
            let exited = matches!(&*outcome.status, Status::Failed(failure) if failure.code == PROGRAM_EXIT);
            let label = outcome.label.unwrap_or(worst);
            PastEvent::Outcome(PastOutcome { intent, label, went_well, was_done: went_well || exited })
        }
        EntryBody::InDoubt(_)
        | EntryBody::Intent(_)
        | EntryBody::Agent(_)
        | EntryBody::Policy(_)
        | EntryBody::Kernel(_)
        | EntryBody::Internal => {
            PastEvent::Outcome(PastOutcome { intent, label: worst, went_well: false, was_done: false })
        }
    }
}
