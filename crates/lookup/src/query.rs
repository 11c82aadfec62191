//! Queries on the index.

use regent_ledger::LaneId;
use rusqlite::{Connection, types::ToSql};
use serde::Serialize;

/// A query; all given conditions must match. It matches calls by their intents.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The calling agent, or the person: by their name, or `operator` for all people.
    pub agent: Option<String>,
    /// The tool.
    pub tool: Option<String>,
    /// The operation, e.g. `model.infer`.
    pub op: Option<String>,
    /// The session.
    pub session: Option<String>,
    /// `allow`, `ask` or `deny`.
    pub verdict: Option<String>,
    /// The rule that decided, or the code of the denial.
    pub rule: Option<String>,
    /// Status: `ok`, `failed`, `timed_out`, `cancelled`, `faulted`; `open` for an allowed call without an outcome.
    pub status: Option<String>,
    /// Earliest time.
    pub since_ms: Option<i64>,
    /// Latest time.
    pub until_ms: Option<i64>,
    /// Maximum number of hits.
    pub count_max: u32,
}

/// A matching call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// The lane of the intent.
    pub lane: LaneId,
    /// Its position in the lane.
    pub seq: u64,
    /// Time of the intent.
    pub at_ms: i64,
    /// The calling agent.
    pub agent: String,
    /// The person, if one made the call.
    pub person: Option<String>,
    /// The operation.
    pub op: String,
    /// The tool, if the operation calls one.
    pub tool: Option<String>,
    /// The verdict.
    pub verdict: String,
    /// The rule that decided, or the code of the denial.
    pub rule: Option<String>,
    /// Status; `None` if the call never began or is still running.
    pub status: Option<String>,
}

pub(crate) fn find(connection: &Connection, query: &Query) -> rusqlite::Result<Vec<Hit>> {
    let mut sql = String::from(
        "SELECT i.lane, i.seq, i.at_ms, i.agent, i.op, i.tool, i.verdict, i.rule, o.status, i.person
         FROM entry i LEFT JOIN entry o ON o.intent_lane = i.lane AND o.intent = i.seq WHERE i.kind = 'intent'",
    );
    let mut values: Vec<&dyn ToSql> = Vec::new();
    let texts = [
        (" AND i.tool = ?", &query.tool),
        (" AND i.op = ?", &query.op),
        (" AND i.session = ?", &query.session),
        (" AND i.verdict = ?", &query.verdict),
        (" AND i.rule = ?", &query.rule),
    ];
    if let Some(name) = &query.agent {
        sql.push_str(" AND (i.agent = ? OR i.person = ?)");
        values.extend([name as &dyn ToSql, name]);
    }
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
            person: row.get(9)?,
        })
    })?;
    rows.collect()
}
