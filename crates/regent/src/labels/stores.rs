//! Where the labels are kept of what hosts keep in their own stores. A call that wrote into a store leaves a label there; a call that reads
//! it back, in any later session or process, gets at least that label. Labels only rise: nobody knows whether a later write replaced what was
//! there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use regent_kernel::{Digest, StoreUse, StoredLabel};
use regent_store::{self as store, FOR_GOOD, Records, State, StateError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Keys with a label, of all stores together. What is written beyond that counts for every key of its store.
const KEYS_MAX: u64 = 50_000;
/// Stores with a label. What is written into others counts for all stores.
const STORES_MAX: u64 = 1_000;
/// The longest key of a store.
const KEY_BYTES_MAX: usize = 4_096;
/// The longest name of a store.
const NAME_BYTES_MAX: usize = 128;
/// How many records there are.
const COUNTS: &str = "stored.counts";
/// The label of every store there is.
const EVERYWHERE: &str = "stored.all";

/// The labels, in the state that processes share.
#[derive(Debug)]
pub(crate) struct Stores {
    state: Arc<dyn State>,
    /// A label could not be kept. From then on nothing that this process reads from a store is trusted.
    lost: AtomicBool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Counts {
    keys: u64,
    stores: u64,
}

/// What is known of a store as a whole.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Whole {
    /// Of everything in it, for reads that name no key.
    any: StoredLabel,
    /// Of each key, whatever its own label is.
    every: StoredLabel,
}

/// A host's report: `{"name", "key", "wrote"}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Report {
    name: String,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    wrote: Option<Vec<String>>,
}

impl Stores {
    pub(crate) fn new(state: Arc<dyn State>) -> Self {
        Self { state, lost: AtomicBool::new(false) }
    }

    /// What a host reports of a call with these arguments, with the label of what it has read.
    pub(crate) fn read(&self, report: &Value, args: &Value) -> Result<Option<StoreUse>, String> {
        let Some(mut used) = parse(report, args)? else { return Ok(None) };
        if used.wrote.is_none() {
            let unusable = |error: StateError| format!("the labels of stores can't be read: {error}");
            let kept = get(&*self.state, &used).map_err(unusable)?;
            used.label = if self.lost.load(Ordering::Relaxed) { StoredLabel::worst() } else { kept };
        }
        Ok(Some(used))
    }

    /// Keeps the label of what a call has written, as the kernel found it. What isn't known is the worst.
    pub(crate) fn keep(&self, used: &StoreUse, found: Option<&Value>) -> Result<(), String> {
        let label = found.and_then(|label| StoredLabel::deserialize(label).ok());
        put(&*self.state, used, &label.unwrap_or_else(StoredLabel::worst)).map_err(|error| {
            self.lost.store(true, Ordering::Relaxed);
            format!("the label of what was written into `{}` can't be kept: {error}", used.name)
        })
    }
}

/// Reads a host's report. An unclear one is an error: it was meant to raise a label.
fn parse(report: &Value, args: &Value) -> Result<Option<StoreUse>, String> {
    if report.is_null() {
        return Ok(None);
    }
    let shape = "give {\"name\", \"key\"} for a read and add \"wrote\": [arguments] for a write";
    let Report { name, key, wrote } =
        Report::deserialize(report).map_err(|error| format!("`store`: {error}; {shape}"))?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
        return Err(format!("`store.name` has 1 to {NAME_BYTES_MAX} letters, digits and `._-/:`"));
    }
    if key.as_ref().is_some_and(|key| key.len() > KEY_BYTES_MAX) {
        return Err(format!("`store.key` has {KEY_BYTES_MAX} bytes at most"));
    }
    if wrote.as_ref().is_some_and(Vec::is_empty) {
        return Err("`store.wrote` names no argument; leave it out for a call that only read".to_owned());
    }
    if let Some(unknown) = wrote.iter().flatten().find(|name| args.get(name.as_str()).is_none()) {
        return Err(format!("`store.wrote` names `{}`, which the call doesn't have", unknown.escape_debug()));
    }
    let key = key.map(|key| Digest::of(key.as_bytes()).to_string());
    Ok(Some(StoreUse { name, key, wrote, label: StoredLabel::default() }))
}

fn whole_key(used: &StoreUse) -> String {
    format!("stored/{}", store::key_part(&used.name))
}

fn own_key(used: &StoreUse) -> Option<String> {
    Some(format!("stored.key/{}/{}", store::key_part(&used.name), used.key.as_ref()?))
}

/// The label of what is under a key.
fn get(state: &dyn State, used: &StoreUse) -> Result<StoredLabel, StateError> {
    let parsed = |key: &str| -> Result<StoredLabel, StateError> {
        Ok(state.get(key)?.map(|bytes| store::parse(key, &bytes)).transpose()?.unwrap_or_default())
    };
    let key = whole_key(used);
    let whole: Option<Whole> = state.get(&key)?.map(|bytes| store::parse(&key, &bytes)).transpose()?;
    let whole = whole.unwrap_or_default();
    let own = match own_key(used) {
        Some(key) => parsed(&key)?.join(&whole.every),
        None => whole.any,
    };
    Ok(own.join(&parsed(EVERYWHERE)?))
}

/// Raises the label of a key by that of what was written there, in one step.
fn put(state: &dyn State, used: &StoreUse, label: &StoredLabel) -> Result<(), StateError> {
    if label.is_plain() {
        return Ok(());
    }
    store::change(state, |records| {
        let key = whole_key(used);
        let known: Option<Whole> = store::load(records, &key)?;
        let mut counts: Counts = store::load(records, COUNTS)?.unwrap_or_default();
        if known.is_none() && counts.stores >= STORES_MAX {
            return raise(records, EVERYWHERE, label).map(drop);
        }
        counts.stores = counts.stores.saturating_add(u64::from(known.is_none()));
        let mut whole = known.unwrap_or_default();
        whole.any = whole.any.join(label);
        match own_key(used).filter(|_| counts.keys < KEYS_MAX) {
            Some(own) => counts.keys = counts.keys.saturating_add(u64::from(raise(records, &own, label)?)),
            // Nobody knows which key it was, or there is no room to say so.
            None => whole.every = whole.every.join(label),
        }
        store::save(records, &key, &whole, FOR_GOOD)?;
        store::save(records, COUNTS, &counts, FOR_GOOD)
    })
}

/// Joins a label to the one of a record. Says whether the record is new.
fn raise(records: &mut dyn Records, key: &str, label: &StoredLabel) -> Result<bool, StateError> {
    let before: Option<StoredLabel> = store::load(records, key)?;
    let is_new = before.is_none();
    store::save(records, key, &before.unwrap_or_default().join(label), FOR_GOOD)?;
    Ok(is_new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use regent_store::MemoryState;
    use serde_json::json;

    fn used(name: &str, key: Option<&str>) -> StoreUse {
        parse(&json!({"name": name, "key": key}), &json!({})).unwrap().unwrap()
    }

    fn theirs() -> StoredLabel {
        StoredLabel { untrusted: true, ..StoredLabel::default() }
    }

    #[test]
    fn a_label_is_found_under_its_key_and_for_reads_of_the_whole_store() {
        let state = MemoryState::default();
        put(&state, &used("memory", Some("ann")), &theirs()).unwrap();
        put(&state, &used("memory", Some("bob")), &StoredLabel::default()).unwrap();
        for (name, key, untrusted) in [
            ("memory", Some("ann"), true),
            ("memory", None, true),
            ("memory", Some("bob"), false),
            ("memory", Some("never written"), false),
            ("other", Some("ann"), false),
            ("other", None, false),
        ] {
            assert_eq!(get(&state, &used(name, key)).unwrap().untrusted, untrusted, "{name} {key:?}");
        }
        put(&state, &used("memory", Some("ann")), &StoredLabel::default()).unwrap();
        assert!(get(&state, &used("memory", Some("ann"))).unwrap().untrusted, "labels only rise");
        put(&state, &used("memory", None), &theirs()).unwrap();
        assert!(get(&state, &used("memory", Some("bob"))).unwrap().untrusted, "a write to any key");
    }

    #[test]
    fn what_has_no_room_counts_for_more_instead_of_nothing() {
        let state = MemoryState::default();
        let full = |keys, stores| {
            store::change(&state, |records| store::save(records, COUNTS, &Counts { keys, stores }, FOR_GOOD))
                .unwrap();
        };
        full(KEYS_MAX, 1);
        put(&state, &used("memory", Some("ann")), &theirs()).unwrap();
        assert!(get(&state, &used("memory", Some("bob"))).unwrap().untrusted);
        assert!(!get(&state, &used("other", Some("bob"))).unwrap().untrusted);
        full(0, STORES_MAX);
        put(&state, &used("new", Some("ann")), &theirs()).unwrap();
        assert!(get(&state, &used("other", Some("bob"))).unwrap().untrusted);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error() {
        let state = MemoryState::default();
        let own = used("memory", Some("ann"));
        state
            .change(&mut |records| records.put(&own_key(&own).unwrap(), b"{\"untrusted\": 1}", FOR_GOOD))
            .unwrap();
        assert!(get(&state, &own).is_err());
    }

    #[test]
    fn unclear_reports_are_refused() {
        let args = json!({"text": "x"});
        for (report, is_fine) in [
            (json!(null), true),
            (json!({"name": "memory"}), true),
            (json!({"name": "memory", "key": "ann"}), true),
            (json!({"name": "memory", "key": "ann", "wrote": ["text"]}), true),
            (json!({"name": "memory", "key": "ann", "wrote": []}), false),
            (json!({"name": "memory", "key": "ann", "wrote": ["body"]}), false),
            (json!({"name": "memory", "key": "ann", "write": ["text"]}), false),
            (json!({"name": "memory", "key": 7}), false),
            (json!({"name": ""}), false),
            (json!({"name": "a b"}), false),
            (json!({"key": "ann"}), false),
            (json!("memory"), false),
            (json!({"name": "memory", "key": "k".repeat(5_000)}), false),
        ] {
            assert_eq!(parse(&report, &args).is_ok(), is_fine, "{report}");
        }
    }

    /// A full disk, as the state reports it.
    #[derive(Debug)]
    struct Full(MemoryState);

    impl State for Full {
        fn change(&self, _step: store::Step<'_>) -> Result<(), StateError> {
            Err(StateError::Full)
        }
        fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError> {
            self.0.get(key)
        }
        fn scan(&self, prefix: &str) -> Result<Vec<store::Record>, StateError> {
            self.0.scan(prefix)
        }
        fn stale(&self, now_ms: i64) -> Result<Vec<String>, StateError> {
            self.0.stale(now_ms)
        }
    }

    #[test]
    fn once_a_label_is_lost_no_store_is_trusted() {
        let stores = Stores::new(Arc::new(Full(MemoryState::default())));
        let read = || stores.read(&json!({"name": "memory", "key": "ann"}), &json!({})).unwrap().unwrap();
        assert!(read().label.is_plain());
        assert!(stores.keep(&used("memory", Some("bob")), Some(&json!(theirs()))).is_err());
        assert_eq!(read().label, StoredLabel::worst());
    }

    #[test]
    fn a_label_that_the_kernel_did_not_find_is_the_worst() {
        let stores = Stores::new(Arc::new(MemoryState::default()));
        stores.keep(&used("memory", Some("ann")), None).unwrap();
        let read = stores.read(&json!({"name": "memory", "key": "ann"}), &json!({})).unwrap().unwrap();
        assert_eq!(read.label, StoredLabel::worst());
    }
}
