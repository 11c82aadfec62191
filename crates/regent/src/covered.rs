//! What the smallest exception to a rule would have let through lately. Recorded calls are held against it, the newest runs first, within a
//! bound of entries and of time: a question must not wait for history.

use std::time::{Duration, Instant};

use regent_kernel::{Entry, EntryKind, OpenQuestion, Reader};
use regent_policy::{Cover, Covering};
use regent_wire::body::EntryBody;
use serde::Serialize;

use crate::term;

/// How far back.
const DAYS: u32 = 7;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const ENTRIES_MAX: u64 = 50_000;
const TIME_MAX: Duration = Duration::from_millis(700);
/// The time is looked at once in so many entries.
const ENTRIES_BETWEEN: u64 = 64;

/// What a rule would have covered, beside the call that is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Covered {
    /// In the last so many days.
    pub(crate) days: u32,
    /// Calls that it would have covered.
    pub(crate) calls: u64,
    /// How many of those were asked about or denied then.
    pub(crate) not_allowed_then: u64,
    /// Entries that were looked at.
    pub(crate) entries: u64,
    /// Whether that was all there is; if not, there may be more.
    pub(crate) complete: bool,
}

impl Covered {
    /// In a line.
    pub(crate) fn line(&self) -> String {
        let Self { days, calls, not_allowed_then, entries, complete } = self;
        let bound = if *complete { String::new() } else { format!(" (of the newest {entries} entries)") };
        format!(
            "in the last {days} days it would have covered {}{bound}, of which {not_allowed_then} were asked about or denied",
            term::count(*calls, "other call")
        )
    }
}

/// Counts for each question what its exception would have covered; `None` where there is none.
pub(crate) fn count(reader: &Reader, questions: &[&OpenQuestion]) -> Vec<Option<Covered>> {
    let covers: Vec<Option<Covering>> =
        questions.iter().map(|one| one.cover.as_ref().and_then(Cover::compiled)).collect();
    let newest_ms = questions.iter().map(|one| one.created_at_ms).max().unwrap_or(0);
    let mut tally = CoveredTally {
        since_ms: newest_ms.saturating_sub(DAY_MS.saturating_mul(i64::from(DAYS))),
        began: Instant::now(),
        entries: 0,
        complete: true,
        found: vec![(0, 0); questions.len()],
    };
    if covers.iter().any(Option::is_some) {
        tally.read(reader, questions, &covers);
    }
    let CoveredTally { entries, complete, found, .. } = tally;
    let told = found.into_iter().zip(&covers).map(|((calls, not_allowed_then), cover)| {
        cover.as_ref().map(|_| Covered { days: DAYS, calls, not_allowed_then, entries, complete })
    });
    told.collect()
}

struct CoveredTally {
    since_ms: i64,
    began: Instant,
    entries: u64,
    complete: bool,
    found: Vec<(u64, u64)>,
}

impl CoveredTally {
    fn read(&mut self, reader: &Reader, questions: &[&OpenQuestion], covers: &[Option<Covering>]) {
        // Lanes are numbered as they begin, so the highest is the newest run.
        for lane in reader.lanes().unwrap_or_default().into_iter().rev() {
            let Ok(entries) = reader.lane(lane) else {
                self.complete = false;
                continue;
            };
            for entry in entries {
                let late = self.entries.is_multiple_of(ENTRIES_BETWEEN) && self.began.elapsed() > TIME_MAX;
                if late || self.entries >= ENTRIES_MAX {
                    self.complete = false;
                    return;
                }
                self.entries += 1;
                match entry {
                    Ok(entry) => self.hold(&entry, questions, covers),
                    Err(_unreadable) => {
                        self.complete = false;
                        break;
                    }
                }
            }
        }
    }

    fn hold(&mut self, entry: &Entry, questions: &[&OpenQuestion], covers: &[Option<Covering>]) {
        if entry.kind != EntryKind::Intent || entry.at_ms < self.since_ms {
            return;
        }
        let call = match EntryBody::read(entry) {
            Ok(EntryBody::Intent(intent)) => intent.past_call(entry.at_ms, None, Vec::new()),
            Ok(_) | Err(_) => None,
        };
        let Some(call) = call else {
            self.complete = false;
            return;
        };
        for ((found, cover), question) in self.found.iter_mut().zip(covers).zip(questions) {
            let own = question.intent.is_some_and(|own| own.lane == entry.lane && own.seq == entry.seq);
            if !own && cover.as_ref().is_some_and(|cover| cover.covers(&call)) {
                found.0 += 1;
                found.1 += u64::from(call.verdict != "allow");
            }
        }
    }
}
