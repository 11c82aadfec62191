//! Costs, summed from receipts.

use rusqlite::{Connection, params};
use serde::Serialize;

/// The grouping of costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    /// The task that the call belongs to.
    Task,
    /// The calling agent.
    Agent,
    /// The UTC day on which the call ended.
    Day,
    /// The model that answered.
    Model,
}

/// The cost of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// The group's name; `None` for calls that belong to no group.
    pub of: Option<String>,
    /// Number of calls with an outcome.
    pub calls: u64,
    /// Model tokens.
    pub tokens: u64,
    /// Money, in millionths of a US dollar.
    pub money_microusd: u64,
    /// Wall-clock time.
    pub wall_ms: u64,
    /// Bytes sent to other machines.
    pub bytes_out: u64,
}

pub(crate) fn sums(
    connection: &Connection,
    by: GroupBy,
    since_ms: Option<i64>,
) -> rusqlite::Result<Vec<Cost>> {
    let key = match by {
        GroupBy::Task => "i.task",
        GroupBy::Agent => "i.agent",
        GroupBy::Day => "strftime('%Y-%m-%d', o.at_ms / 1000, 'unixepoch')",
        GroupBy::Model => "o.model",
    };
    // Only outcomes are receipts, and each exists once, so each is counted once.
    let sql = format!(
        "SELECT {key}, COUNT(*), COALESCE(SUM(o.tokens), 0), COALESCE(SUM(o.money_microusd), 0), COALESCE(SUM(o.wall_ms), 0), COALESCE(SUM(o.bytes_out), 0)
         FROM entry o LEFT JOIN entry i ON i.lane = o.intent_lane AND i.seq = o.intent
         WHERE o.kind = 'outcome' AND o.at_ms >= ?1
         GROUP BY 1 ORDER BY 4 DESC, 3 DESC, 2 DESC, 1"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params![since_ms.unwrap_or(i64::MIN)], |row| {
        Ok(Cost {
            of: row.get(0)?,
            calls: row.get(1)?,
            tokens: row.get(2)?,
            money_microusd: row.get(3)?,
            wall_ms: row.get(4)?,
            bytes_out: row.get(5)?,
        })
    })?;
    rows.collect()
}
