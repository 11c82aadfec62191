//! The index against ledgers that were really written.

use std::path::Path;

use regent_ledger::{CanonicalJson, Draft, Kind, Ledger, LedgerKey, Options, Receipt};
use serde_json::{Value, json};

use super::*;

struct World {
    folder: tempfile::TempDir,
    key: LedgerKey,
}

impl World {
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

fn append(ledger: &Ledger, kind: Kind, at_ms: i64, body: &Value) -> Receipt {
    let body = CanonicalJson::of(body).unwrap();
    ledger.append_blocking(Draft { kind, at_ms, body, payloads: Vec::new() }).unwrap()
}

fn call(ledger: &Ledger, at_ms: i64, who: &str, tool: &str, verdict: &str) -> Receipt {
    let body = json!({"caller": {"name": who}, "op": "tool.run", "session": "s1", "tool": {"name": tool}, "verdict": {"effect": verdict, "rule": "r"}});
    append(ledger, Kind::Intent, at_ms, &body)
}

fn end(ledger: &Ledger, at_ms: i64, intent: Receipt, status: &Value) -> Receipt {
    let body = json!({"intent": intent.seq, "lane": intent.lane, "op": "tool.run", "session": "s1", "status": status});
    append(ledger, Kind::Outcome, at_ms, &body)
}

fn places(hits: &[Hit]) -> Vec<u64> {
    hits.iter().map(|hit| hit.seq).collect()
}

fn all() -> Query {
    Query { count_max: 100, ..Query::default() }
}

#[test]
fn calls_are_found_by_what_they_are() {
    let world = World::new();
    let ledger = world.ledger();
    let read = call(&ledger, 10, "ada", "fs.read", "allow");
    end(&ledger, 11, read, &json!("ok"));
    let denied = call(&ledger, 20, "bob", "fs.read", "deny");
    let run = call(&ledger, 30, "ada", "shell.exec", "allow");
    end(&ledger, 31, run, &json!({"failed": {"code": "process.exit", "message": "1"}}));
    let open = call(&ledger, 40, "ada", "shell.exec", "allow");
    let mut lookup = world.lookup();
    lookup.refresh(&world.reader()).unwrap();
    let word = |text: &str| Some(text.to_owned());
    let cases = [
        (all(), vec![open, run, denied, read]),
        (Query { agent: word("bob"), ..all() }, vec![denied]),
        (Query { tool: word("shell.exec"), ..all() }, vec![open, run]),
        (Query { verdict: word("deny"), ..all() }, vec![denied]),
        (Query { status: word("failed"), ..all() }, vec![run]),
        (Query { status: word("ok"), agent: word("ada"), ..all() }, vec![read]),
        (Query { status: word("open"), ..all() }, vec![open]),
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
fn only_what_is_new_is_read_again() {
    let world = World::new();
    let ledger = world.ledger();
    call(&ledger, 1, "ada", "fs.read", "allow");
    let mut lookup = world.lookup();
    assert!(lookup.refresh(&world.reader()).unwrap() >= 1);
    assert_eq!(lookup.refresh(&world.reader()).unwrap(), 0);
    let second = call(&ledger, 2, "ada", "fs.read", "allow");
    assert!(lookup.refresh(&world.reader()).unwrap() >= 1);
    assert_eq!(lookup.find(&all()).unwrap().first().map(|hit| hit.seq), Some(second.seq));
    // A second process writes a lane of its own.
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
fn an_index_of_another_ledger_starts_over() {
    let world = World::new();
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
fn adv_014_a_spoilt_index_is_made_anew() {
    let world = World::new();
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
