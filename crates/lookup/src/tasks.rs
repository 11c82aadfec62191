//! Positions of the steps of tasks.

use std::collections::BTreeMap;

use regent_ledger::LaneId;
use rusqlite::{Connection, params};

/// Entries further apart than this are read as two spans.
const GAP_MAX: u64 = 256;

/// A range of a lane, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The lane.
    pub lane: LaneId,
    /// The first entry.
    pub first: u64,
    /// The last entry.
    pub last: u64,
}

pub(crate) fn ids(connection: &Connection, prefix: &str, count_max: u32) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached(
        "SELECT task FROM entry WHERE task IS NOT NULL AND substr(task, 1, length(?1)) = ?1
         GROUP BY task ORDER BY MIN(at_ms) DESC, task DESC LIMIT ?2",
    )?;
    let rows = statement.query_map(params![prefix, count_max], |row| row.get(0))?;
    rows.collect()
}

pub(crate) fn spans(connection: &Connection, tasks: &[String]) -> rusqlite::Result<Vec<Span>> {
    let mut places: Vec<(u16, u64)> = Vec::new();
    let mut statement = connection.prepare_cached(
        "SELECT lane, seq FROM entry WHERE task = ?1
         UNION ALL SELECT o.lane, o.seq FROM entry i JOIN entry o ON o.intent_lane = i.lane AND o.intent = i.seq WHERE i.task = ?1",
    )?;
    for task in tasks {
        let rows = statement.query_map(params![task], |row| Ok((row.get(0)?, row.get(1)?)))?;
        for row in rows {
            places.push(row?);
        }
    }
    Ok(merged(places))
}

/// The outcomes of the newest calls of one operation.
pub(crate) fn outcomes(connection: &Connection, op: &str, count_max: u32) -> rusqlite::Result<Vec<Span>> {
    let mut statement = connection.prepare_cached(
        "SELECT o.lane, o.seq FROM entry i JOIN entry o ON o.intent_lane = i.lane AND o.intent = i.seq
         WHERE i.op = ?1 ORDER BY i.at_ms DESC LIMIT ?2",
    )?;
    let rows = statement.query_map(params![op, count_max], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(merged(rows.collect::<Result<_, _>>()?))
}

/// Merges positions into spans.
fn merged(mut places: Vec<(u16, u64)>) -> Vec<Span> {
    places.sort_unstable();
    let mut spans: Vec<Span> = Vec::new();
    for (lane, seq) in places {
        let Some(lane) = LaneId::new(lane) else { continue };
        match spans.last_mut() {
            Some(span) if span.lane == lane && seq.saturating_sub(span.last) <= GAP_MAX => span.last = seq,
            Some(_) | None => spans.push(Span { lane, first: seq, last: seq }),
        }
    }
    spans
}

pub(crate) fn sizes(connection: &Connection) -> rusqlite::Result<BTreeMap<LaneId, u64>> {
    let mut statement = connection.prepare_cached("SELECT lane, size FROM lane")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, u16>(0)?, row.get::<_, u64>(1)?)))?;
    let mut sizes = BTreeMap::new();
    for row in rows {
        let (lane, size) = row?;
        sizes.extend(LaneId::new(lane).map(|lane| (lane, size)));
    }
    Ok(sizes)
}
