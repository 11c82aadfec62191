//! Power cuts, kills and disk failures at every operation: acknowledged drafts survive, unacknowledged ones never count as acknowledged,
//! and a crash never looks like tampering.

use super::*;
use crate::storage::Sim;
use crate::storage::sim::{DiskFailure, Plan};

/// No scenario here runs longer than this many operations.
const OPERATIONS_MAX: u64 = 400;

thread_local! {
    /// The witness of the case on this thread. It survives every crash: its record is never ahead of the disk.
    static WITNESS: std::cell::RefCell<Option<(tempfile::TempDir, u64)>> = const { std::cell::RefCell::new(None) };
}

/// A disk with its own witness.
fn new_sim(seed: u64) -> Sim {
    WITNESS.with_borrow_mut(|witness| {
        // In memory if possible: thousands of witnesses are synced.
        let folder = || tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        witness.get_or_insert_with(|| (folder(), 0)).1 += 1;
    });
    Sim::new(seed)
}

fn options() -> Options {
    let witness = WITNESS.with_borrow(|witness| {
        witness.as_ref().map(|(folder, number)| folder.path().join(number.to_string()))
    });
    Options { segment_bytes_max: 2500, index_checkpoints_max: 3, witness, ..Options::default() }
}

fn open_sim(sim: &Sim) -> Result<Ledger, OpenError> {
    Ledger::open_on(Arc::new(sim.clone()), key(), options())
}

fn draft_with_payload(number: u64) -> EntryDraft {
    let mut draft = draft(number);
    // Every seventh draft starts a new day, and thereby a new segment.
    draft.at_ms += i64::try_from(number / 7).unwrap() * 24 * 60 * 60 * 1000;
    if number.is_multiple_of(4) {
        draft.payloads = vec![Payload::new(vec![u8::try_from(number % 251).unwrap(); 700])];
    }
    draft
}

/// Appends until the disk fails or all drafts are done. Returns the acknowledged and the failed ones.
fn work(sim: &Sim, from: u64) -> (Vec<u64>, Vec<u64>) {
    let (mut acknowledged, mut failed) = (Vec::new(), Vec::new());
    let Ok(ledger) = open_sim(sim) else { return (acknowledged, failed) };
    for number in from..from + 15 {
        let draft = draft_with_payload(number);
        let appended = match number % 3 {
            1 => ledger.append_unsigned(draft).wait(),
            _ => ledger.append_blocking(draft),
        };
        match appended {
            Ok(_) => acknowledged.push(number),
            Err(_) => failed.push(number),
        }
    }
    drop(ledger.close());
    (acknowledged, failed)
}

/// Checks that every acknowledged draft is readable and proven, and that no failed one counts as proven.
fn check(sim: &Sim, acknowledged: &[u64], failed: &[u64], context: &str) {
    let witnessed = VerifyOptions { witness: options().witness, ..VerifyOptions::default() };
    let report = verify_on(Arc::new(sim.clone()), &witnessed).unwrap();
    assert_eq!(report.verdict, LedgerVerdict::Ok, "{context}");
    let entries: Vec<Entry> =
        Reader::on(Arc::new(sim.clone())).entries().unwrap().map(Result::unwrap).collect();
    let with = |proven: bool| -> Vec<u64> {
        let entries =
            entries.iter().filter(|entry| entry.kind == EntryKind::Intent && entry.proven == proven);
        entries.map(|entry| entry.body["n"].as_u64().unwrap()).collect()
    };
    let proven = with(true);
    for number in acknowledged {
        assert_eq!(
            proven.iter().filter(|n| *n == number).count(),
            1,
            "{context}: {number} is lost or doubled"
        );
    }
    for number in failed {
        assert!(!proven.contains(number), "{context}: {number} was reported as failed");
    }
}

/// Continues after a crash: the ledger opens, accepts entries, and verifies.
fn go_on(sim: &Sim, acknowledged: &mut Vec<u64>, context: &str) {
    let ledger = open_sim(sim).unwrap_or_else(|error| panic!("{context}: {error}"));
    for number in 900..903 {
        ledger.append_blocking(draft_with_payload(number)).unwrap();
        acknowledged.push(number);
    }
    ledger.close().unwrap();
}

#[test]
fn adv_099_a_power_cut_at_any_operation_loses_nothing_acknowledged() {
    let mut crashes = 0;
    for seed in 0..2u64 {
        for crash_at in 0..OPERATIONS_MAX {
            let context = format!("seed {seed}, power cut at operation {crash_at}");
            let sim = new_sim(seed * 1000 + crash_at);
            sim.plan(Plan { crash_at: Some(crash_at), ..Plan::default() });
            let (mut acknowledged, _) = work(&sim, 0);
            if sim.operations() <= crash_at {
                break;
            }
            crashes += 1;
            let sim = sim.after_power_cut();
            go_on(&sim, &mut acknowledged, &context);
            check(&sim, &acknowledged, &[], &context);
        }
    }
    assert!(crashes > 100, "{crashes}");
}

/// The witness isn't synced, so a power cut may revert it to any earlier state. The last unsigned entries are then unvouched. They remain
/// present, and no entry claims that they were refused.
#[test]
fn h7_a_power_cut_that_takes_the_witness_back_loses_nothing_acknowledged() {
    for crash_at in 0..OPERATIONS_MAX {
        let context = format!("power cut at operation {crash_at}, witness lost");
        let sim = new_sim(crash_at);
        sim.plan(Plan { crash_at: Some(crash_at), ..Plan::default() });
        let (mut acknowledged, _) = work(&sim, 0);
        if sim.operations() <= crash_at {
            return;
        }
        let sim = sim.after_power_cut();
        if let Some(witness) = options().witness.filter(|path| path.exists()) {
            let known = Witnessed::read(&witness).unwrap().unwrap();
            Witnessed { lanes: Default::default(), ..known }.store(&witness).unwrap();
        }
        go_on(&sim, &mut acknowledged, &context);
        let reader = Reader::on(Arc::new(sim.clone()));
        let entries: Vec<Entry> = reader.entries().unwrap().map(Result::unwrap).collect();
        for number in &acknowledged {
            let is = |entry: &&Entry| {
                entry.kind == EntryKind::Intent && entry.body["n"] == *number && !entry.refused
            };
            assert_eq!(entries.iter().filter(is).count(), 1, "{context}: {number} is lost or doubled");
            let signed = entries.iter().find(is).is_some_and(|entry| entry.proven);
            assert!(signed || number % 3 == 1, "{context}: {number} was signed");
        }
    }
}

#[test]
fn adv_099_a_second_power_cut_during_recovery_loses_nothing_acknowledged() {
    let mut crashes = 0;
    for crash_at in (0..OPERATIONS_MAX).step_by(7) {
        for again_at in 0..12 {
            let context = format!("power cuts at operations {crash_at} and {again_at}");
            let sim = new_sim(crash_at * 31 + again_at);
            sim.plan(Plan { crash_at: Some(crash_at), ..Plan::default() });
            let (mut acknowledged, _) = work(&sim, 0);
            if sim.operations() <= crash_at {
                break;
            }
            let sim = sim.after_power_cut();
            sim.plan(Plan { crash_at: Some(again_at), ..Plan::default() });
            acknowledged.extend(work(&sim, 100).0);
            let sim = sim.after_power_cut();
            go_on(&sim, &mut acknowledged, &context);
            check(&sim, &acknowledged, &[], &context);
            crashes += 1;
        }
    }
    assert!(crashes > 80, "{crashes}");
}

#[test]
fn adv_096_a_kill_at_any_operation_loses_nothing_acknowledged() {
    for crash_at in 0..OPERATIONS_MAX {
        let context = format!("killed at operation {crash_at}");
        let sim = new_sim(crash_at);
        sim.plan(Plan { crash_at: Some(crash_at), ..Plan::default() });
        let (mut acknowledged, _) = work(&sim, 0);
        if sim.operations() <= crash_at {
            return;
        }
        let sim = sim.after_kill();
        go_on(&sim, &mut acknowledged, &context);
        check(&sim, &acknowledged, &[], &context);
    }
}

#[test]
fn adv_101_a_full_disk_at_any_operation_refuses_and_resumes_without_restart() {
    for fail_at in 0..OPERATIONS_MAX {
        let context = format!("no room at operation {fail_at}");
        let sim = new_sim(fail_at);
        sim.plan(Plan { fail_at: Some((fail_at, DiskFailure::Full)), ..Plan::default() });
        let (mut acknowledged, failed) = work(&sim, 0);
        if sim.operations() <= fail_at {
            return;
        }
        assert!(failed.len() <= 1, "{context}: {failed:?}");
        if !acknowledged.is_empty() {
            check(&sim, &acknowledged, &failed, &context);
        }
        go_on(&sim, &mut acknowledged, &context);
        check(&sim, &acknowledged, &failed, &context);
    }
}

#[test]
fn adv_101_a_disk_that_stays_full_keeps_refusing_until_there_is_room() {
    for room in (0..9000).step_by(150) {
        let context = format!("room for {room} bytes");
        let sim = new_sim(room);
        let ledger = open_sim(&sim).unwrap();
        sim.plan(Plan { room_bytes: Some(room), ..Plan::default() });
        let (mut acknowledged, mut failed) = (Vec::new(), Vec::new());
        for number in 0..30 {
            match ledger.append_blocking(draft_with_payload(number)) {
                Ok(_) => acknowledged.push(number),
                Err(error) => {
                    assert_eq!(error, AppendError::Full, "{context}");
                    failed.push(number);
                }
            }
            if number == 20 {
                let read = Reader::on(ledger.storage()).entries().unwrap().filter(Result::is_ok).count();
                assert!(read > acknowledged.len(), "{context}: reads still work");
                sim.plan(Plan::default());
            }
        }
        assert!(acknowledged.ends_with(&[21, 22, 23, 24, 25, 26, 27, 28, 29]), "{context}: it resumed");
        ledger.close().unwrap();
        check(&sim, &acknowledged, &failed, &context);
    }
}

#[test]
fn an_announced_entry_outlives_a_full_disk() {
    let sim = new_sim(7);
    let ledger = open_sim(&sim).unwrap();
    ledger.announce(EntryDraft { kind: EntryKind::Kernel, ..draft(99) }).unwrap();
    sim.plan(Plan { room_bytes: Some(0), ..Plan::default() });
    assert_eq!(ledger.append_blocking(draft(0)).unwrap_err(), AppendError::Full);
    sim.plan(Plan::default());
    ledger.append_blocking(draft(1)).unwrap();
    ledger.close().unwrap();
    let entries = Reader::on(ledger.storage()).entries().unwrap();
    let found: Vec<u64> = entries.filter_map(|entry| entry.unwrap().body["n"].as_u64()).collect();
    assert_eq!(found, [99, 1]);
}

#[test]
fn adv_093b_adv_102_an_io_error_seals_the_ledger() {
    for failure in [DiskFailure::Io, DiskFailure::ReadOnly] {
        for fail_at in 0..OPERATIONS_MAX {
            let context = format!("{failure:?} at operation {fail_at}");
            let sim = new_sim(fail_at);
            sim.plan(Plan { fail_at: Some((fail_at, failure)), ..Plan::default() });
            let (mut acknowledged, failed) = work(&sim, 0);
            if sim.operations() <= fail_at {
                break;
            }
            if let Some(first) = failed.first() {
                assert_eq!(failed.len() as u64, 15 - first, "{context}: sealed until reopened");
            }
            // Another process opens the ledger: entries of the failed batch that reached the disk may remain.
            let sim = sim.after_kill();
            go_on(&sim, &mut acknowledged, &context);
            check(&sim, &acknowledged, &[], &context);
        }
    }
}
