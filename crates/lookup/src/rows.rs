//! Maps entries to index rows.

use std::borrow::Cow;

use regent_ledger::Entry;
use regent_wire::Spent;
use regent_wire::body::{Charged, EntryBody, KernelBody};
use rusqlite::{Connection, params};

use crate::LookupError;

/// The columns of an entry. Columns that its kind lacks stay empty.
#[derive(Default)]
struct Row<'a> {
    session: Option<Cow<'a, str>>,
    agent: Option<Cow<'a, str>>,
    person: Option<String>,
    op: Option<Cow<'a, str>>,
    tool: Option<String>,
    verdict: Option<&'static str>,
    rule: Option<String>,
    status: Option<&'static str>,
    intent: Option<(u16, u64)>,
    task: Option<String>,
    model: Option<String>,
    spent: Option<Spent>,
}

/// Adds an entry. The ledger's own entries, such as checkpoints, are left out.
pub(crate) fn insert(connection: &Connection, entry: &Entry) -> Result<(), LookupError> {
    if entry.kind.is_internal() {
        return Ok(());
    }
    // An unreadable body is indexed by position and time only.
    let row = EntryBody::read_known(entry)?.map(|body| row(entry, body)).unwrap_or_default();
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO entry (lane, seq, at_ms, kind, session, agent, person, op, tool, verdict, rule, status, intent_lane, intent, task, model, tokens, money_microusd, wall_ms, bytes_out)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
        )?
        .execute(params![
            entry.lane.get(),
            entry.seq,
            entry.at_ms,
            entry.kind.to_string(),
            row.session,
            row.agent,
            row.person,
            row.op,
            row.tool,
            row.verdict,
            row.rule,
            row.status,
            row.intent.map(|(lane, _)| lane),
            row.intent.map(|(_, seq)| seq),
            row.task,
            row.model,
            row.spent.map(|spent| spent.tokens),
            row.spent.map(|spent| spent.money_microusd),
            row.spent.map(|spent| spent.wall_ms),
            row.spent.map(|spent| spent.bytes_out),
        ])?;
    Ok(())
}

fn row<'a>(entry: &Entry, body: EntryBody<'a>) -> Row<'a> {
    let intent = body.intent_place(entry).map(|(lane, seq)| (lane.get(), seq));
    match body {
        EntryBody::Intent(intent) => Row {
            tool: intent.tool_name().map(str::to_owned),
            verdict: Some(intent.verdict.effect.word()),
            rule: intent.decided_by().map(str::to_owned),
            task: intent.step.as_ref().map(|step| step.task.to_string()),
            person: intent.caller.person().map(str::to_owned),
            session: non_empty(intent.session),
            agent: non_empty(intent.caller.name),
            op: non_empty(intent.op),
            ..Row::default()
        },
        EntryBody::Outcome(outcome) => Row {
            status: Some(outcome.status.word()),
            intent,
            model: outcome
                .obtained
                .as_ref()
                .and_then(|receipt| Some(receipt.get("model")?.as_str()?.to_owned())),
            spent: outcome.spent.as_ref().map(Charged::spent),
            session: non_empty(outcome.session),
            op: non_empty(outcome.op),
            ..Row::default()
        },
        EntryBody::InDoubt(note) => Row {
            status: Some("in_doubt"),
            intent,
            session: non_empty(note.session),
            op: non_empty(note.op),
            ..Row::default()
        },
        EntryBody::Agent(note) => Row { session: non_empty(note.session), ..Row::default() },
        EntryBody::Policy(note) => Row { session: non_empty(note.session), ..Row::default() },
        EntryBody::Kernel(note) => match *note {
            KernelBody::State { session, .. } => Row { session: non_empty(session), ..Row::default() },
            KernelBody::Removal(_) => Row::default(),
        },
        EntryBody::Internal => Row::default(),
    }
}

/// Empty text becomes NULL, so that no query matches it.
fn non_empty(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    Some(text).filter(|text| !text.is_empty())
}
