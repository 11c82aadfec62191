//! Where the steps of a task are: by the lookup index as far as it goes, and by a search of each lane's rest beyond that.
//!
//! An index that lags far behind isn't brought up to date first: a search reads a million entries in less time than it takes to index
//! fifty thousand.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use regent_kernel::{Entry, Fault, Reader, TaskId};
use regent_ledger::LaneId;
use regent_lookup::{Cost, GroupBy, Lookup, LookupError, Span};
use regent_runtime::task::TaskIndex;
use regent_wire::body::{BodyError, Decision, EntryBody};

/// As many entries are indexed before a search; where the index lags behind, each use brings it that much further.
pub(crate) const REFRESHED_MAX: u64 = 2_000;

/// The index of one ledger.
#[derive(Debug)]
pub(crate) struct Index {
    place: PathBuf,
    reader: Reader,
    lookup: Mutex<Option<Lookup>>,
}

/// What the index covers, and where each lane continues beyond it.
struct Known<T> {
    found: T,
    rests: Vec<Span>,
}

impl Index {
    /// Over the index at a place, which is made when it is first needed.
    pub(crate) fn new(place: &Path, reader: Reader) -> Self {
        Self { place: place.to_path_buf(), reader, lookup: Mutex::default() }
    }

    /// The same over an index that is open already.
    pub(crate) fn over(lookup: Lookup, place: &Path, reader: Reader) -> Self {
        Self { place: place.to_path_buf(), reader, lookup: Mutex::new(Some(lookup)) }
    }

    /// The newest tasks, at most about so many.
    pub(crate) fn newest(&self, count_max: u32) -> Result<Vec<String>, LookupError> {
        self.ids("", count_max, u64::MAX)
    }

    /// What was used, as receipts say.
    pub(crate) fn costs(&self, by: GroupBy, since_ms: Option<i64>) -> Result<Vec<Cost>, LookupError> {
        Ok(self.known(u64::MAX, |lookup| lookup.costs(by, since_ms))?.found)
    }

    /// The tasks whose ids begin like this, at most about so many.
    pub(crate) fn tasks(&self, prefix: &str, count_max: u32) -> Result<Vec<String>, LookupError> {
        // No other word is the beginning of an id, and a search must not be for anything else.
        if TaskId::new(prefix).is_none() {
            return Ok(Vec::new());
        }
        self.ids(prefix, count_max, REFRESHED_MAX)
    }

    fn ids(&self, prefix: &str, count_max: u32, refreshed_max: u64) -> Result<Vec<String>, LookupError> {
        let Known { mut found, rests } =
            self.known(refreshed_max, |lookup| lookup.tasks(prefix, count_max))?;
        // Ids are all of one length, so a whole one is the beginning of no other.
        if found.iter().any(|id| id == prefix) {
            return Ok(vec![prefix.to_owned()]);
        }
        for Span { lane, first, .. } in rests {
            let mut texts = vec![format!("\"task\":\"{prefix}")];
            let mut unreadable = None;
            self.reader.search_since(lane, first, &mut texts, |entry, _| match task_of(entry) {
                Ok(Some(id)) if id.starts_with(prefix) && !found.contains(&id) => found.push(id),
                Ok(_) => {}
                Err(error) => unreadable = Some(error),
            })?;
            if let Some(error) = unreadable {
                return Err(error.into());
            }
        }
        Ok(found)
    }

    /// Asks the index, after it has been brought further by so many entries.
    fn known<T>(
        &self,
        refreshed_max: u64,
        ask: impl FnOnce(&Lookup) -> Result<T, LookupError>,
    ) -> Result<Known<T>, LookupError> {
        let mut lookup = self.lookup.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = match lookup.take() {
            Some(open) => open,
            None => Lookup::open(&self.place)?,
        };
        open.refresh_some(&self.reader, refreshed_max)?;
        let found = ask(&open)?;
        // What isn't under a checkpoint yet is in no index either: this process's own last entries, and those of one that died.
        let sizes = open.sizes()?;
        let rest = |lane| Span { lane, first: sizes.get(&lane).copied().unwrap_or(0), last: u64::MAX };
        let rests = self.reader.lanes()?.into_iter().map(rest).collect();
        *lookup = Some(open);
        Ok(Known { found, rests })
    }
}

impl TaskIndex for Index {
    fn entries(&self, tasks: &[TaskId]) -> Result<Vec<Entry>, Fault> {
        let ids: Vec<String> = tasks.iter().map(ToString::to_string).collect();
        let known = self.known(REFRESHED_MAX, |lookup| lookup.spans_of(&ids));
        // An index that can't be used costs time, nothing else: then all is searched.
        let Known { found, rests } = match known {
            Ok(known) => known,
            Err(_unusable) => {
                let whole = |lane| Span { lane, first: 0, last: u64::MAX };
                Known { found: Vec::new(), rests: self.reader.lanes()?.into_iter().map(whole).collect() }
            }
        };
        let mut steps = Steps::new(&ids);
        let mut texts = std::mem::take(&mut steps.texts);
        for Span { lane, first, last } in found {
            for entry in self.reader.lane_since(lane, first)? {
                let entry = entry?;
                if entry.seq > last {
                    break;
                }
                steps.take(&entry, &mut texts);
            }
        }
        steps.texts = texts;
        steps.search(&self.reader, &rests)?;
        // After a full disk a call ends in another lane than it began in, perhaps in one that came before.
        if steps.has_left(&self.reader)? {
            steps.search(&self.reader, &rests)?;
        }
        steps.in_order()
    }

    fn all(&self) -> Result<Vec<Entry>, Fault> {
        // Brought up to date first: a search for every task there is would compare each line with all of them.
        match self.newest(u32::MAX) {
            Ok(ids) => self.entries(&ids.iter().filter_map(|id| TaskId::new(id)).collect::<Vec<_>>()),
            Err(_unusable) => self.reader.entries()?.map(|entry| Ok(entry?)).collect(),
        }
    }
}

/// The steps of tasks, as they are found.
struct Steps {
    ids: BTreeSet<String>,
    /// What lines to look for: those that name a task, and the outcomes of calls that have none yet.
    texts: Vec<String>,
    found: BTreeMap<(LaneId, u64), Entry>,
    /// The places of the intents among them. An outcome nearly always lies in the lane of its intent; if not, it names the lane.
    intents: BTreeSet<(LaneId, u64)>,
    /// An entry that a newer Regent wrote.
    newer: Option<BodyError>,
}

impl Steps {
    fn new(ids: &[String]) -> Self {
        let texts = ids.iter().map(|id| format!("\"task\":\"{id}\"")).collect();
        let ids = ids.iter().cloned().collect();
        Self { ids, texts, found: BTreeMap::new(), intents: BTreeSet::new(), newer: None }
    }

    fn search(&mut self, reader: &Reader, rests: &[Span]) -> Result<(), Fault> {
        let mut texts = std::mem::take(&mut self.texts);
        for Span { lane, first, .. } in rests {
            reader.search_since(*lane, *first, &mut texts, |entry, texts| self.take(entry, texts))?;
        }
        self.texts = texts;
        Ok(())
    }

    /// Takes in an entry if it is a step of these tasks, or perhaps the outcome of one.
    fn take(&mut self, entry: &Entry, texts: &mut Vec<String>) {
        let (place, outcome_of) = ((entry.lane, entry.seq), |seq: u64| format!("\"intent\":{seq},"));
        let body = match EntryBody::read_known(entry) {
            Ok(Some(body)) => body,
            Ok(None) => return,
            Err(error) => {
                self.newer = Some(error);
                return;
            }
        };
        if let EntryBody::Intent(intent) = &body {
            let is_ours = intent.step.as_ref().is_some_and(|step| self.ids.contains(step.task.as_str()));
            let is_new = is_ours && self.found.insert(place, entry.clone()).is_none();
            // What was denied or asked about has no outcome.
            if is_new && intent.verdict.effect == Decision::Allow {
                self.intents.insert(place);
                texts.push(outcome_of(entry.seq));
            }
        } else if let Some(intent) = body.intent_place(entry).filter(|intent| self.intents.contains(intent)) {
            self.found.insert(place, entry.clone());
            // A note that a call is in doubt stands in the place of an outcome that may yet come.
            if matches!(body, EntryBody::Outcome(_)) {
                let ended = outcome_of(intent.1);
                // From the end: what was looked for last is nearly always what is found first.
                if let Some(at) = texts.iter().rposition(|text| *text == ended) {
                    texts.swap_remove(at);
                }
            }
        }
    }

    /// Whether a lane of these was left by its own writer.
    fn has_left(&self, reader: &Reader) -> Result<bool, Fault> {
        let lanes: BTreeSet<LaneId> = self.found.keys().map(|(lane, _)| *lane).collect();
        for lane in lanes {
            if reader.was_left(lane)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A lane stays in its order, whatever the clock did; a task that moved to another lane continues there.
    fn in_order(self) -> Result<Vec<Entry>, Fault> {
        if let Some(error) = self.newer {
            return Err(error.into());
        }
        let mut reached: BTreeMap<LaneId, i64> = BTreeMap::new();
        let timed = self.found.into_values().map(|entry| {
            let reached_ms = reached.entry(entry.lane).or_insert(i64::MIN);
            *reached_ms = entry.at_ms.max(*reached_ms);
            (*reached_ms, entry)
        });
        let mut timed: Vec<(i64, Entry)> = timed.collect();
        timed.sort_by_key(|(reached_ms, _)| *reached_ms);
        Ok(timed.into_iter().map(|(_, entry)| entry).collect())
    }
}

/// The task that an intent is a step of.
fn task_of(entry: &Entry) -> Result<Option<String>, BodyError> {
    let Some(EntryBody::Intent(intent)) = EntryBody::read_known(entry)? else { return Ok(None) };
    Ok(intent.step.as_ref().map(|step| step.task.to_string()))
}
