//! The index, tested against real ledgers.

use std::path::Path;

use regent_ledger::{CanonicalJson, EntryDraft, EntryKind, Ledger, LedgerKey, Options, Receipt};
use serde_json::{Value, json};

use super::*;

struct LookupFixture {
    folder: tempfile::TempDir,
    key: LedgerKey,
}

impl LookupFixture {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), key: LedgerKey::generate().unwrap() }
    }

    fn audit(&self) -> std::path::PathBuf {
        self.folder.path().join("audit")
    }

    fn ledger(&self) -> Ledger {
        Ledger::open(&self.audit(), self.key.clone(), Options::default()).unwrap()
    }

    fn lookup(&self) -> Lookup {
        Lookup::open(&self.folder.path().join("lookup.db")).unwrap()
    }

    fn reader(&self) -> Reader {
        Reader::new(&self.audit())
    }
}

fn append(ledger: &Ledger, kind: EntryKind, at_ms: i64, body: &Value) -> Receipt {
    let body = CanonicalJson::encode(body).unwrap();
    ledger.append_blocking(EntryDraft { kind, at_ms, body, payloads: Vec::new() }).unwrap()
}

fn call(ledger: &Ledger, at_ms: i64, who: &str, tool: &str, verdict: &str) -> Receipt {
    let body = json!({"caller": {"name": who}, "op": "tool.run", "session": "s1", "tool": {"name": tool}, "verdict": {"effect": verdict, "rule": "r"}});
    append(ledger, EntryKind::Intent, at_ms, &body)
}

fn end(ledger: &Ledger, at_ms: i64, intent: Receipt, status: &Value) -> Receipt {
    let body = json!({"intent": intent.seq, "lane": intent.lane, "op": "tool.run", "session": "s1", "status": status});
    append(ledger, EntryKind::Outcome, at_ms, &body)
}

fn places(hits: &[Hit]) -> Vec<u64> {
    hits.iter().map(|hit| hit.seq).collect()
}

fn all() -> Query {
    Query { count_max: 100, ..Query::default() }
}

#[test]
fn finds_calls_by_their_attributes() {
    let world = LookupFixture::new();
    let ledger = world.ledger();
    let read = call(&ledger, 10, "ada", "fs.read", "allow");
    end(&ledger, 11, read, &json!("ok"));
    let denied = call(&ledger, 20, "bob", "fs.read", "deny");
    let run = call(&ledger, 30, "ada", "shell.exec", "allow");
    end(&ledger, 31, run, &json!({"failed": {"code": "process.exit", "message": "1"}}));
    let open = call(&ledger, 40, "ada", "shell.exec", "allow");
    let caller = json!({"chain": ["carol"], "class": "operator", "name": "operator"});
    let body = json!({"caller": caller, "op": "token.list", "session": "s3", "verdict": {"effect": "allow", "rule": "r"}});
    let persons = append(&ledger, EntryKind::Intent, 5, &body);
    let mut lookup = world.lookup();
    lookup.refresh(&world.reader()).unwrap();
    let word = |text: &str| Some(text.to_owned());
    let cases = [
        (all(), vec![open, run, denied, read, persons]),
        (Query { agent: word("carol"), ..all() }, vec![persons]),
        (Query { agent: word("operator"), ..all() }, vec![persons]),
        (Query { agent: word("bob"), ..all() }, vec![denied]),
        (Query { tool: word("shell.exec"), ..all() }, vec![open, run]),
        (Query { verdict: word("deny"), ..all() }, vec![denied]),
        (Query { status: word("failed"), ..all() }, vec![run]),
        (Query { status: word("ok"), agent: word("ada"), ..all() }, vec![read]),
        (Query { status: word("open"), ..all() }, vec![open, persons]),
        (Query { since_ms: Some(20), until_ms: Some(30), ..all() }, vec![run, denied]),
        (Query { session: word("s2"), ..all() }, vec![]),
        (Query { agent: word("ada' OR '1'='1"), ..all() }, vec![]),
        (Query { count_max: 1, ..all() }, vec![open]),
    ];
    for (query, expected) in cases {
        let expected: Vec<u64> = expected.iter().map(|receipt| receipt.seq).collect();
        assert_eq!(places(&lookup.find(&query).unwrap()), expected, "{query:?}");
    }
    let outcome = lookup.outcome_of(run.lane, run.seq).unwrap();
    assert!(outcome.is_some_and(|(lane, seq)| lane == run.lane && seq > run.seq));
    assert_eq!(lookup.outcome_of(open.lane, open.seq).unwrap(), None);
}

#[test]
fn f7_a_partial_refresh_reports_how_far_it_went() {
    let world = LookupFixture::new();
    let ledger = world.ledger();
    let calls: Vec<Receipt> = (0..10).map(|at_ms| call(&ledger, at_ms, "ada", "fs.read", "allow")).collect();
    let mut lookup = world.lookup();
    for (round, last) in [&calls[2], &calls[5], &calls[8], &calls[9]].into_iter().enumerate() {
        let taken = lookup.refresh_some(&world.reader(), 3).unwrap();
        assert_eq!(taken, if round == 3 { 1 } else { 3 });
        assert_eq!(lookup.sizes().unwrap().get(&last.lane), Some(&(last.seq + 1)));
    }
    assert_eq!(lookup.refresh_some(&world.reader(), 3).unwrap(), 0);
    assert_eq!(lookup.find(&all()).unwrap().len(), 10);
}

#[test]
fn a_refresh_reads_only_new_entries() {
    let world = LookupFixture::new();
    let ledger = world.ledger();
    call(&ledger, 1, "ada", "fs.read", "allow");
    let mut lookup = world.lookup();
    assert!(lookup.refresh(&world.reader()).unwrap() >= 1);
    assert_eq!(lookup.refresh(&world.reader()).unwrap(), 0);
    let second = call(&ledger, 2, "ada", "fs.read", "allow");
    assert!(lookup.refresh(&world.reader()).unwrap() >= 1);
    assert_eq!(lookup.find(&all()).unwrap().first().map(|hit| hit.seq), Some(second.seq));
    // A second process writes a separate lane.
    let other = world.ledger();
    let third = call(&other, 3, "bob", "fs.read", "allow");
    assert_ne!(third.lane, second.lane);
    lookup.refresh(&world.reader()).unwrap();
    assert_eq!(
        lookup.find(&all()).unwrap().first().map(|hit| (hit.lane, hit.seq)),
        Some((third.lane, third.seq))
    );
}

#[test]
fn rebuilds_the_index_of_another_ledger() {
    let world = LookupFixture::new();
    let ledger = world.ledger();
    for at_ms in 0..5 {
        call(&ledger, at_ms, "ada", "fs.read", "allow");
    }
    ledger.close().unwrap();
    let mut lookup = world.lookup();
    lookup.refresh(&world.reader()).unwrap();
    assert_eq!(lookup.find(&all()).unwrap().len(), 5);
    std::fs::remove_dir_all(world.audit()).unwrap();
    let ledger = world.ledger();
    call(&ledger, 9, "eve", "fs.read", "allow");
    lookup.refresh(&world.reader()).unwrap();
    let hits = lookup.find(&all()).unwrap();
    assert_eq!(hits.iter().map(|hit| hit.agent.as_str()).collect::<Vec<_>>(), ["eve"]);
}

#[test]
fn adv_014_rebuilds_a_damaged_index() {
    let world = LookupFixture::new();
    let ledger = world.ledger();
    call(&ledger, 1, "ada", "fs.read", "allow");
    let path = world.folder.path().join("lookup.db");
    for spoilt in [&b"this is no database at all, and it is long enough to be told from one........................................."[..], b"SQLite format 3\0garbage"] {
        std::fs::write(&path, spoilt).unwrap();
        remove(&path, "-wal");
        remove(&path, "-shm");
        let mut lookup = Lookup::open(&path).unwrap();
        lookup.refresh(&world.reader()).unwrap();
        assert_eq!(lookup.find(&all()).unwrap().len(), 1);
    }
}

fn remove(path: &Path, end: &str) {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    drop(std::fs::remove_file(name));
}

/// A step of a task and its receipt.
fn step(ledger: &Ledger, at_ms: i64, task: &str, who: &str, money_microusd: u64) -> Receipt {
    let body = json!({"caller": {"name": who}, "op": "model.infer", "step": {"task": task, "name": "1/think"}, "verdict": {"effect": "allow"}});
    let intent = append(ledger, EntryKind::Intent, at_ms, &body);
    let body = json!({
        "intent": intent.seq, "lane": intent.lane, "op": "model.infer", "status": "ok", "obtained": {"model": format!("lab/{who}")},
        "spent": {"bytes_out": 1, "money_microusd": money_microusd, "tokens": 10, "wall_ms": 5},
    });
    append(ledger, EntryKind::Outcome, at_ms, &body);
    intent
}

#[test]
fn finds_tasks_by_prefix_and_their_entries_by_position() {
    let world = LookupFixture::new();
    let ledger = world.ledger();
    let first = step(&ledger, 10, "t-aa1", "ann", 5);
    for number in 0..400 {
        step(&ledger, 20 + number, "t-b", "bob", 1);
    }
    let last = step(&ledger, 500, "t-aa1", "ann", 5);
    step(&ledger, 600, "t-aa2", "ann", 5);
    ledger.close().unwrap();
    let mut lookup = world.lookup();
    lookup.refresh(&world.reader()).unwrap();
    assert_eq!(lookup.tasks("", 10).unwrap(), ["t-aa2", "t-b", "t-aa1"]);
    assert_eq!(lookup.tasks("t-aa", 10).unwrap(), ["t-aa2", "t-aa1"]);
    assert_eq!(lookup.tasks("t-aa", 1).unwrap(), ["t-aa2"]);
    assert!(lookup.tasks("%", 10).unwrap().is_empty() && lookup.tasks("t_b", 10).unwrap().is_empty());
    let spans = lookup.spans_of(&["t-aa1".to_owned()]).unwrap();
    let inside = |seq: u64| spans.iter().any(|span| (span.first..=span.last).contains(&seq));
    assert!(spans.len() == 2 && [first.seq, last.seq].into_iter().all(inside), "{spans:?}");
    let entries: u64 = spans.iter().map(|span| span.last - span.first + 1).sum();
    assert!(entries < 20, "{spans:?}");
    assert!(lookup.spans_of(&["t-none".to_owned()]).unwrap().is_empty());
}

#[test]
fn costs_are_sums_of_receipts() {
    let world = LookupFixture::new();
    let ledger = world.ledger();
    const DAY_MS: i64 = 24 * 60 * 60 * 1000;
    step(&ledger, 1, "t-a", "ann", 5);
    step(&ledger, DAY_MS, "t-a", "bob", 7);
    step(&ledger, DAY_MS + 1, "t-b", "bob", 11);
    let alone = call(&ledger, DAY_MS + 2, "ann", "fs.read", "allow");
    end(&ledger, DAY_MS + 3, alone, &json!("ok"));
    call(&ledger, DAY_MS + 4, "ann", "fs.read", "deny");
    ledger.close().unwrap();
    let mut lookup = world.lookup();
    lookup.refresh(&world.reader()).unwrap();
    let sums = |by, since_ms| -> Vec<(Option<String>, u64, u64)> {
        lookup
            .costs(by, since_ms)
            .unwrap()
            .into_iter()
            .map(|one| (one.of, one.calls, one.money_microusd))
            .collect()
    };
    let of = |name: &str| Some(name.to_owned());
    assert_eq!(sums(GroupBy::Task, None), [(of("t-a"), 2, 12), (of("t-b"), 1, 11), (None, 1, 0)]);
    assert_eq!(sums(GroupBy::Agent, None), [(of("bob"), 2, 18), (of("ann"), 2, 5)]);
    assert_eq!(sums(GroupBy::Day, None), [(of("1970-01-02"), 3, 18), (of("1970-01-01"), 1, 5)]);
    assert_eq!(sums(GroupBy::Model, Some(DAY_MS)), [(of("lab/bob"), 2, 18), (None, 1, 0)]);
    let whole = lookup.costs(GroupBy::Task, None).unwrap();
    assert_eq!(
        whole
            .iter()
            .map(|one| (one.tokens, one.bytes_out))
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)),
        (30, 3)
    );
}
