//! What of an entry can be looked up.

use regent_ledger::{Entry, Kind};
use rusqlite::{Connection, params};
use serde_json::Value;

/// Adds an entry. The ledger's own (checkpoints and the like) are nobody's to look for.
pub(crate) fn insert(connection: &Connection, entry: &Entry) -> rusqlite::Result<()> {
    if entry.kind.is_internal() {
        return Ok(());
    }
    let body = &entry.body;
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
    let outcome = entry.kind == Kind::Outcome;
    let intent = body.get("intent").and_then(Value::as_u64).filter(|_| outcome);
    // An outcome names the lane of its intent, as text; it is nearly always its own.
    let intent_lane = intent
        .map(|_| text("/lane").and_then(|lane| lane.parse::<u16>().ok()).unwrap_or_else(|| entry.lane.get()));
    let spent = |pointer: &str| {
        body.pointer(pointer).and_then(Value::as_i64).filter(|amount| outcome && *amount >= 0)
    };
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO entry (lane, seq, at_ms, kind, session, agent, op, tool, verdict, rule, status, intent_lane, intent, task, model, tokens, money_microusd, wall_ms, bytes_out)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
        )?
        .execute(params![
            entry.lane.get(),
            entry.seq,
            entry.at_ms,
            entry.kind.to_string(),
            text("/session"),
            text("/caller/name"),
            text("/op"),
            text("/tool/name"),
            text("/verdict/effect"),
            text("/verdict/rule").or_else(|| text("/verdict/code")),
            if outcome { status(body) } else { None },
            intent_lane,
            intent,
            text("/step/task"),
            text("/obtained/model").filter(|_| outcome),
            spent("/spent/tokens"),
            spent("/spent/money_microusd"),
            spent("/spent/wall_ms"),
            spent("/spent/bytes_out"),
        ])?;
    Ok(())
}

/// `ok`, or the word that a longer status begins with.
fn status(body: &Value) -> Option<&str> {
    match body.get("status")? {
        Value::String(word) => Some(word),
        Value::Object(fields) => fields.keys().next().map(String::as_str),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}
