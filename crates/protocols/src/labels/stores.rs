//! Labels of values in a host's own stores. A call that writes to a store leaves a label there; a call that reads it back, in any later
//! session or process, gets at least that label. Labels only rise, because a later write may not have replaced the old value.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use regent_kernel::{Digest, StoreUse, StoredLabel};
use regent_store::{self as store, FOR_GOOD, Partition, State, StateDraft, StateError, key_part};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum labelled keys over all stores. Further writes apply to every key of their store.
const KEYS_MAX: u64 = 50_000;
/// Maximum labelled stores. Writes to further ones apply to all stores.
const STORES_MAX: u64 = 1_000;
/// Maximum length of a key.
const KEY_BYTES_MAX: usize = 4_096;
/// Maximum length of a store's name.
const NAME_BYTES_MAX: usize = 128;
/// The key of the record counts.
const COUNTS: &str = "stored.counts";
/// The key of the label for every store.
const EVERYWHERE: &str = "stored.all";

/// The labels, in the shared state.
#[derive(Debug)]
pub struct Stores {
    state: Arc<dyn State>,
    /// Whether storing a label failed. From then on, this process trusts nothing that it reads from a store.
    lost: AtomicBool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Counts {
    keys: u64,
    stores: u64,
}

/// The labels of an entire store.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoreLabels {
    /// The join of all labels in it, for reads that name no key.
    any: StoredLabel,
    /// Applies to every key, in addition to its own label.
    every: StoredLabel,
}

/// A host's report: `{"name", "key", "wrote"}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreReport {
    name: String,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    wrote: Option<Vec<String>>,
}

impl Stores {
    /// The labels in this state.
    pub fn new(state: Arc<dyn State>) -> Self {
        Self { state, lost: AtomicBool::new(false) }
    }

    /// The store that a host reports for a call, with the label of the value it reads.
    pub(crate) async fn read(&self, report: &Value, args: &Value) -> Result<Option<StoreUse>, String> {
        let Some(mut used) = parse(report, args)? else { return Ok(None) };
        if used.wrote.is_none() {
            let unusable = |error: StateError| format!("the labels of stores can't be read: {error}");
            let kept = get(&*self.state, &used).await.map_err(unusable)?;
            used.label = if self.lost.load(Ordering::Relaxed) { StoredLabel::worst() } else { kept };
        }
        Ok(Some(used))
    }

    /// Stores the label of a written value, as the kernel computed it. An unknown label is the worst.
    pub(crate) async fn keep(&self, used: &StoreUse, found: Option<&Value>) -> Result<(), String> {
        let label = found.and_then(|label| StoredLabel::deserialize(label).ok());
        put(&*self.state, used, &label.unwrap_or_else(StoredLabel::worst)).await.map_err(|error| {
            self.lost.store(true, Ordering::Relaxed);
            format!("the label of the value written to `{}` can't be stored: {error}", used.name)
        })
    }
}

/// Parses a host's report. An unclear report is an error, because it was intended to raise a label.
fn parse(report: &Value, args: &Value) -> Result<Option<StoreUse>, String> {
    if report.is_null() {
        return Ok(None);
    }
    let shape = "use {\"name\", \"key\"} for a read, and add \"wrote\": [arguments] for a write";
    let StoreReport { name, key, wrote } =
        StoreReport::deserialize(report).map_err(|error| format!("`store`: {error}; {shape}"))?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
        return Err(format!("`store.name` must have 1 to {NAME_BYTES_MAX} letters, digits and `._-/:`"));
    }
    if key.as_ref().is_some_and(|key| key.len() > KEY_BYTES_MAX) {
        return Err(format!("`store.key` must have at most {KEY_BYTES_MAX} bytes"));
    }
    if wrote.as_ref().is_some_and(Vec::is_empty) {
        return Err("`store.wrote` names no argument; omit it for a read".to_owned());
    }
    if let Some(unknown) = wrote.iter().flatten().find(|name| args.get(name.as_str()).is_none()) {
        return Err(format!("`store.wrote` names `{}`, which the call doesn't have", unknown.escape_debug()));
    }
    let key = key.map(|key| Digest::compute(key.as_bytes()).to_string());
    Ok(Some(StoreUse { name, key, wrote, label: StoredLabel::default() }))
}

fn whole_key(used: &StoreUse) -> String {
    format!("stored/{}", key_part(&used.name))
}

fn own_key(used: &StoreUse) -> Option<String> {
    Some(format!("stored.key/{}/{}", key_part(&used.name), used.key.as_ref()?))
}

/// The label of the value under a key.
async fn get(state: &dyn State, used: &StoreUse) -> Result<StoredLabel, StateError> {
    let keys = [Some(whole_key(used)), Some(EVERYWHERE.to_owned()), own_key(used)];
    let keys: Vec<String> = keys.into_iter().flatten().collect();
    store::change(state, &partition(), &keys, |records| {
        let whole: StoreLabels = records.load(&whole_key(used))?.unwrap_or_default();
        let own = match own_key(used) {
            Some(key) => records.load::<StoredLabel>(&key)?.unwrap_or_default().join(&whole.every),
            None => whole.any,
        };
        Ok(own.join(&records.load(EVERYWHERE)?.unwrap_or_default()))
    })
    .await
}

/// All labels of stores: one commit changes the counts, a store and a key in it.
fn partition() -> Partition {
    Partition::containing(EVERYWHERE)
}

/// Raises the label of a key by that of the written value, in one commit.
async fn put(state: &dyn State, used: &StoreUse, label: &StoredLabel) -> Result<(), StateError> {
    if label.is_plain() {
        return Ok(());
    }
    let keys = [Some(whole_key(used)), Some(COUNTS.to_owned()), own_key(used)];
    let keys: Vec<String> = keys.into_iter().flatten().collect();
    store::change(state, &partition(), &keys, |records| {
        let key = whole_key(used);
        let known: Option<StoreLabels> = records.load(&key)?;
        let mut counts: Counts = records.load(COUNTS)?.unwrap_or_default();
        if known.is_none() && counts.stores >= STORES_MAX {
            return raise(records, EVERYWHERE, label).map(drop);
        }
        counts.stores = counts.stores.saturating_add(u64::from(known.is_none()));
        let mut whole = known.unwrap_or_default();
        whole.any = whole.any.join(label);
        match own_key(used).filter(|_| counts.keys < KEYS_MAX) {
            Some(own) => counts.keys = counts.keys.saturating_add(u64::from(raise(records, &own, label)?)),
            // The key is unknown, or there is no space for it.
            None => whole.every = whole.every.join(label),
        }
        records.save(&key, &whole, FOR_GOOD)?;
        records.save(COUNTS, &counts, FOR_GOOD)
    })
    .await
}

/// Joins a label to a record's. Returns whether the record is new.
fn raise(records: &mut StateDraft<'_>, key: &str, label: &StoredLabel) -> Result<bool, StateError> {
    let before: Option<StoredLabel> = records.load(key)?;
    let is_new = before.is_none();
    records.save(key, &before.unwrap_or_default().join(label), FOR_GOOD)?;
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

    #[tokio::test]
    async fn a_label_is_found_under_its_key_and_for_reads_of_the_whole_store() {
        let state = MemoryState::default();
        put(&state, &used("memory", Some("ann")), &theirs()).await.unwrap();
        put(&state, &used("memory", Some("bob")), &StoredLabel::default()).await.unwrap();
        for (name, key, untrusted) in [
            ("memory", Some("ann"), true),
            ("memory", None, true),
            ("memory", Some("bob"), false),
            ("memory", Some("never written"), false),
            ("other", Some("ann"), false),
            ("other", None, false),
        ] {
            assert_eq!(get(&state, &used(name, key)).await.unwrap().untrusted, untrusted, "{name} {key:?}");
        }
        put(&state, &used("memory", Some("ann")), &StoredLabel::default()).await.unwrap();
        assert!(get(&state, &used("memory", Some("ann"))).await.unwrap().untrusted, "labels only rise");
        put(&state, &used("memory", None), &theirs()).await.unwrap();
        assert!(get(&state, &used("memory", Some("bob"))).await.unwrap().untrusted, "a write to any key");
    }

    #[tokio::test]
    async fn what_has_no_room_counts_for_more_instead_of_nothing() {
        let state = MemoryState::default();
        let full = async |keys, stores| {
            let counts = Counts { keys, stores };
            store::change(&state, &partition(), &[], |records| records.save(COUNTS, &counts, FOR_GOOD))
                .await
                .unwrap();
        };
        full(KEYS_MAX, 1).await;
        put(&state, &used("memory", Some("ann")), &theirs()).await.unwrap();
        assert!(get(&state, &used("memory", Some("bob"))).await.unwrap().untrusted);
        assert!(!get(&state, &used("other", Some("bob"))).await.unwrap().untrusted);
        full(0, STORES_MAX).await;
        put(&state, &used("new", Some("ann")), &theirs()).await.unwrap();
        assert!(get(&state, &used("other", Some("bob"))).await.unwrap().untrusted);
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_is_an_error() {
        let state = MemoryState::default();
        let own = used("memory", Some("ann"));
        let key = own_key(&own).unwrap();
        store::change(&state, &partition(), &[], |records| {
            records.put(&key, b"{\"untrusted\": 1}", FOR_GOOD)
        })
        .await
        .unwrap();
        assert!(get(&state, &own).await.is_err());
    }

    #[tokio::test]
    async fn unclear_reports_are_refused() {
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
        fn read<'s>(
            &'s self,
            partition: &'s Partition,
            keys: &'s [String],
        ) -> store::BoxFuture<'s, Result<Vec<Option<store::Versioned>>, StateError>> {
            self.0.read(partition, keys)
        }
        fn scan<'s>(
            &'s self,
            partition: &'s Partition,
            prefix: &'s str,
        ) -> store::BoxFuture<'s, Result<Vec<store::Record>, StateError>> {
            self.0.scan(partition, prefix)
        }
        fn commit<'s>(
            &'s self,
            _partition: &'s Partition,
            _change: store::Change,
        ) -> store::BoxFuture<'s, Result<store::Committed, StateError>> {
            Box::pin(async { Err(StateError::Full) })
        }
        fn sweep(&self, now_ms: i64, max: usize) -> store::BoxFuture<'_, Result<usize, StateError>> {
            self.0.sweep(now_ms, max)
        }
        fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
            self.0.changes()
        }
    }

    #[tokio::test]
    async fn once_a_label_is_lost_no_store_is_trusted() {
        let stores = Stores::new(Arc::new(Full(MemoryState::default())));
        let report = json!({"name": "memory", "key": "ann"});
        let read = async || stores.read(&report, &json!({})).await.unwrap().unwrap();
        assert!(read().await.label.is_plain());
        assert!(stores.keep(&used("memory", Some("bob")), Some(&json!(theirs()))).await.is_err());
        assert_eq!(read().await.label, StoredLabel::worst());
    }

    #[tokio::test]
    async fn a_label_that_the_kernel_did_not_find_is_the_worst() {
        let stores = Stores::new(Arc::new(MemoryState::default()));
        stores.keep(&used("memory", Some("ann")), None).await.unwrap();
        let read = stores.read(&json!({"name": "memory", "key": "ann"}), &json!({})).await.unwrap().unwrap();
        assert_eq!(read.label, StoredLabel::worst());
    }
}
