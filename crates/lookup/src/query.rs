//! Asking the index.

use regent_ledger::LaneId;
use rusqlite::{Connection, types::ToSql};
use serde::Serialize;

/// A query; all given conditions must match. Calls are found by their intents.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Who made the call.
    pub agent: Option<String>,
    /// Which tool.
    pub tool: Option<String>,
    /// Which operation, e.g. `model.infer`.
    pub op: Option<String>,
    /// In which session.
    pub session: Option<String>,
    /// `allow`, `ask` or `deny`.
    pub verdict: Option<String>,
    /// By which rule, or refused with which code.
    pub rule: Option<String>,
    /// How it ended: `ok`, `failed`, `timed_out`, `cancelled`, `faulted`; `open` for an allowed call without an outcome.
    pub status: Option<String>,
    /// Not before.
    pub since_ms: Option<i64>,
    /// Not after.
    pub until_ms: Option<i64>,
    /// How many at most.
    pub count_max: u32,
}

/// A call that fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// The lane of the intent.
    pub lane: LaneId,
    /// Its place there.
    pub seq: u64,
    /// When.
    pub at_ms: i64,
    /// Who.
    pub agent: String,
    /// What operation.
    pub op: String,
    /// Which tool, if the operation is one.
    pub tool: Option<String>,
    /// What policy said.
    pub verdict: String,
    /// By which rule or code.
    pub rule: Option<String>,
    /// How it ended; `None` if it never began or isn't over.
    pub status: Option<String>,
}

pub(crate) fn find(connection: &Connection, query: &Query) -> rusqlite::Result<Vec<Hit>> {
    let mut sql = String::from(
        "SELECT i.lane, i.seq, i.at_ms, i.agent, i.op, i.tool, i.verdict, i.rule, o.status
         FROM entry i LEFT JOIN entry o ON o.intent_lane = i.lane AND o.intent = i.seq WHERE i.kind = 'intent'",
    );
    let mut values: Vec<&dyn ToSql> = Vec::new();
    let texts = [
        (" AND i.agent = ?", &query.agent),
        (" AND i.tool = ?", &query.tool),
        (" AND i.op = ?", &query.op),
        (" AND i.session = ?", &query.session),
        (" AND i.verdict = ?", &query.verdict),
        (" AND i.rule = ?", &query.rule),
    ];
    for (condition, value) in texts {
        if let Some(value) = value {
            sql.push_str(condition);
            values.push(value);
        }
    }
    match &query.status {
        Some(word) if word == "open" => sql.push_str(" AND i.verdict = 'allow' AND o.seq IS NULL"),
        Some(word) => {
            sql.push_str(" AND o.status = ?");
            values.push(word);
        }
        None => {}
    }
    for (condition, value) in [(" AND i.at_ms >= ?", &query.since_ms), (" AND i.at_ms <= ?", &query.until_ms)]
    {
        if let Some(value) = value {
            sql.push_str(condition);
            values.push(value);
        }
    }
    sql.push_str(" ORDER BY i.at_ms DESC, i.lane DESC, i.seq DESC LIMIT ?");
    values.push(&query.count_max);
    let mut statement = connection.prepare(&sql)?;
    let rows = statement.query_map(values.as_slice(), |row| {
        Ok(Hit {
            lane: LaneId::new(row.get(0)?).unwrap_or(LaneId::FIRST),
            seq: row.get(1)?,
            at_ms: row.get(2)?,
            agent: row.get::<_, Option<String>>(3)?.unwrap_or_default(),
            op: row.get::<_, Option<String>>(4)?.unwrap_or_default(),
            tool: row.get(5)?,
            verdict: row.get::<_, Option<String>>(6)?.unwrap_or_default(),
            rule: row.get(7)?,
            status: row.get(8)?,
        })
    })?;
    rows.collect()
}
