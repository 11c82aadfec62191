//! Every change on disk is detected and the first bad entry is named, also after a restart.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::storage::Memory;

fn segments_of(root: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(root.join("lanes/0000")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    paths
}

/// Changes the lines of a segment.
fn edit(path: &Path, change: impl FnOnce(&mut Vec<String>)) {
    let text = fs::read_to_string(path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

/// Checks that the ledger neither verifies nor opens, with the same error, and that its files stay unchanged.
fn check_broken(root: &Path) -> Break {
    let before: Vec<Vec<u8>> = segments_of(root).iter().map(|path| fs::read(path).unwrap()).collect();
    let found = broken(verdict(root));
    let opened = Ledger::open(root, key(), small_segments());
    let Err(OpenError::Broken(again)) = opened else { panic!("opened: {opened:?}") };
    assert_eq!((again.lane, again.seq), (found.lane, found.seq), "{again} / {found}");
    let after: Vec<Vec<u8>> = segments_of(root).iter().map(|path| fs::read(path).unwrap()).collect();
    assert_eq!(before, after, "nothing was touched");
    found
}

fn tampered(change: impl FnOnce(&mut Vec<String>)) -> Break {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 40);
    let segments = segments_of(dir.path());
    assert!(segments.len() > 3);
    edit(&segments[1], change);
    check_broken(dir.path())
}

fn seq_of(line: &str) -> u64 {
    serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap()
}

#[test]
fn adv_087_detects_a_deleted_entry_also_after_a_restart() {
    let mut seq = 0;
    let found = tampered(|lines| seq = seq_of(&lines.remove(2)));
    assert_eq!((found.seq, found.line), (Some(seq), Some(3)));
}

#[test]
fn adv_087_detects_an_inserted_entry_also_after_a_restart() {
    let mut seq = 0;
    let found = tampered(|lines| {
        seq = seq_of(&lines[2]);
        let forged = lines[2].replace("\"n\":", "\"m\":");
        lines.insert(2, forged);
    });
    assert!(found.seq == Some(seq) || found.seq == Some(seq + 1), "{found}");
}

#[test]
fn adv_087_detects_swapped_entries_also_after_a_restart() {
    let mut seq = 0;
    let found = tampered(|lines| {
        seq = seq_of(&lines[2]);
        lines.swap(2, 4);
    });
    assert_eq!(found.seq, Some(seq));
}

#[test]
fn adv_087_detects_a_duplicated_entry_also_after_a_restart() {
    let mut seq = 0;
    let found = tampered(|lines| {
        seq = seq_of(&lines[2]);
        lines.insert(3, lines[2].clone());
    });
    assert_eq!(found.seq, Some(seq + 1));
}

#[test]
fn adv_087_detects_an_edited_entry_also_after_a_restart() {
    let mut seq = 0;
    let found = tampered(|lines| {
        seq = seq_of(&lines[2]);
        lines[2] = lines[2].replacen("s0", "s1", 1).replacen("s2", "s1", 1).replacen("\"n\":", "\"n\":1", 1);
    });
    assert_eq!(found.seq, Some(seq));
}

#[test]
fn adv_087_detects_a_missing_segment_or_lane_also_after_a_restart() {
    for missing in [0, 1] {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path(), 40);
        fs::remove_file(&segments_of(dir.path())[missing]).unwrap();
        let found = check_broken(dir.path());
        assert!(matches!(found.why, Defect::MissingSegment { .. }), "{found}");
    }
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 40);
    fs::remove_dir_all(dir.path().join("lanes/0000")).unwrap();
    assert_eq!(broken(verdict(dir.path())).why, Defect::MissingLane);
    let opened = Ledger::open(dir.path(), key(), small_segments());
    assert!(matches!(opened, Err(OpenError::Broken(_))));
}

#[test]
fn adv_088_a_truncated_lane_is_shorter_than_its_index() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 40);
    let last = segments_of(dir.path()).pop().unwrap();
    edit(&last, |lines| lines.truncate(lines.len() - 2));
    let found = check_broken(dir.path());
    assert!(matches!(found.why, Defect::Shorter { from: "the index", .. }), "{found}");
}

#[test]
fn adv_088_a_tail_without_checkpoint_is_unproven_and_a_witnessed_head_finds_truncation() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    append(&ledger, 0..10);
    let head = ledger.checkpoint().unwrap();
    drop(ledger);
    let last = segments_of(dir.path()).pop().unwrap();
    let expecting = VerifyOptions { expect: vec![head], ..VerifyOptions::default() };
    assert_eq!(verify(dir.path(), &expecting).unwrap().verdict, LedgerVerdict::Ok);
    edit(&last, |lines| drop(lines.pop()));
    assert_eq!(verdict(dir.path()), LedgerVerdict::Unproven { lanes: vec![LaneId::FIRST] });
    edit(&last, |lines| drop(lines.pop()));
    assert_eq!(verdict(dir.path()), LedgerVerdict::Ok, "an unwitnessed loss is undetectable");
    let found = broken(verify(dir.path(), &expecting).unwrap().verdict);
    assert!(matches!(found.why, Defect::Shorter { from: "the expected checkpoint", .. }), "{found}");
}

#[test]
fn adv_089_a_whole_chain_rewritten_with_another_key_fails_its_signatures() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 10);
    let forged = tempfile::tempdir().unwrap();
    let forger = LedgerKey::from_seed(&[66; 32]);
    let ledger = Ledger::open(forged.path(), forger.clone(), small_segments()).unwrap();
    append(&ledger, 0..10);
    ledger.close().unwrap();
    let ours = VerifyOptions { keys: vec![key().public()], ..VerifyOptions::default() };
    assert!(matches!(broken(verify(forged.path(), &ours).unwrap().verdict).why, Defect::Index(_)));
    assert!(matches!(Ledger::open(forged.path(), key(), small_segments()), Err(OpenError::WrongKey)));

    // The forger keeps our index and replaces only the lane.
    fs::remove_dir_all(dir.path().join("lanes/0000")).unwrap();
    fs::rename(forged.path().join("lanes/0000"), dir.path().join("lanes/0000")).unwrap();
    let found = broken(verify(dir.path(), &ours).unwrap().verdict);
    assert_eq!(found.seq, Some(0), "{found}");
    assert!(matches!(Ledger::open(dir.path(), key(), small_segments()), Err(OpenError::Broken(_))));
}

#[test]
fn adv_087_lanes_cannot_be_swapped() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (open(dir.path()), open(dir.path()));
    assert_ne!(one.head().lane, two.head().lane);
    one.append_blocking(draft(1)).unwrap();
    two.append_blocking(draft(2)).unwrap();
    one.close().unwrap();
    two.close().unwrap();
    let lane = |name: &str| dir.path().join("lanes").join(name);
    fs::rename(lane("0000"), lane("0002")).unwrap();
    fs::rename(lane("0001"), lane("0000")).unwrap();
    fs::rename(lane("0002"), lane("0001")).unwrap();
    assert_eq!(check_broken(dir.path()).seq, Some(0));
}

#[test]
fn adv_090_the_witness_detects_a_rolled_back_folder() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("audit");
    let options = Options { witness: Some(dir.path().join("witness")), ..small_segments() };
    let run = |count: u64| {
        let ledger = Ledger::open(&root, key(), options.clone())?;
        append(&ledger, 0..count);
        ledger.close().unwrap();
        Ok::<(), OpenError>(())
    };
    run(5).unwrap();
    let backup = dir.path().join("yesterday");
    Reader::new(&root).backup(&backup).unwrap();
    run(5).unwrap();
    fs::remove_dir_all(&root).unwrap();
    fs::rename(&backup, &root).unwrap();
    assert_eq!(verdict(&root), LedgerVerdict::Ok, "by itself it is sound");
    let witnessed = VerifyOptions { witness: options.witness.clone(), ..VerifyOptions::default() };
    assert!(matches!(broken(verify(&root, &witnessed).unwrap().verdict).why, Defect::RolledBack { .. }));
    assert!(matches!(run(1), Err(OpenError::Older { .. })));
}

#[test]
fn adv_087_detects_tampering_with_an_old_segment_by_its_timestamps_alone() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 40);
    open(dir.path()).close().unwrap();
    assert!(dir.path().join("seen").exists());
    let old = &segments_of(dir.path())[0];
    let bytes = fs::read_to_string(old).unwrap();
    fs::write(old, bytes.replacen("quoted", "QUOTED", 1)).unwrap();
    assert_eq!(check_broken(dir.path()).seq, Some(2));
}

/// A ledger of 1,000 entries in small segments, so that each flip is verified quickly.
fn thousand_entries() -> Memory {
    let storage = Memory::default();
    let options = Options { segment_bytes_max: 1500, ..Options::default() };
    let ledger = Ledger::open_on(Arc::new(storage.clone()), key(), options).unwrap();
    let mut number = 0;
    while ledger.head().size < 1000 {
        let waiting: Vec<Appending> = (0..3).map(|i| ledger.append(draft(number + i))).collect();
        assert!(waiting.into_iter().all(|appending| appending.wait().is_ok()));
        number += 3;
    }
    ledger.close().unwrap();
    storage
}

/// Flips bits of every segment. Verifies segments one by one, as `verify` does, from the tip of the previous one.
fn flip_bits(pick: impl Fn(usize) -> bool) -> u64 {
    let storage = thousand_entries();
    assert_eq!(verdict_on(storage.clone()), LedgerVerdict::Ok);
    let (index, _) = index::Index::load(&storage, &[key().public()]).unwrap().unwrap();
    let origin = entry::lane_origin(&index.ledger, LaneId::FIRST);
    let plan = lane::LanePlan::new(&storage, LaneId::FIRST, origin).unwrap();
    let ring = lane::KeyRing::Any(vec![key().public()]);
    let last = plan.segments.len() - 1;
    let mut flips = 0;
    for position in 0..=last {
        let path = layout::segment_path(plan.lane, plan.segments[position]);
        let mut bytes = storage::read_all(&storage, &path, u64::MAX).unwrap().unwrap();
        let start = plan.start(&storage, position).unwrap().unwrap();
        let mut seq = plan.segments[position];
        for at in 0..bytes.len() {
            let ends_entry = bytes[at] == b'\n';
            for bit in (0..8).filter(|bit| pick(at * 8 + bit)) {
                bytes[at] ^= 1 << bit;
                let piece = plan.walk_bytes(&bytes, start.clone());
                let mut state = lane::LaneState::start(&plan);
                let mut signatures = lane::Signatures::new(&ring);
                let found = plan.take(&mut state, &mut signatures, piece, (position, position == last));
                let Err(found) = found else {
                    panic!("bit {bit} of byte {at} in `{path}` went unnoticed: {:?}", state.end)
                };
                assert_eq!(found.seq, Some(seq), "bit {bit} of byte {at} in `{path}`: {found}");
                bytes[at] ^= 1 << bit;
                flips += 1;
            }
            seq += u64::from(ends_entry);
        }
    }
    flips
}

/// Every bit in a release build. A debug build would take minutes, so it samples one bit of every seventeenth byte.
#[test]
fn adv_085_every_bit_flip_is_found_and_named() {
    let sampled = |bit: usize| (bit / 8).is_multiple_of(17) && bit % 8 == (bit / 136) % 8;
    let all = !cfg!(debug_assertions);
    let flips = flip_bits(|bit| all || sampled(bit));
    println!("{flips} flips of single bits, all found and named");
    assert!(flips > if all { 2_000_000 } else { 15_000 }, "{flips}");
}

/// Lanes are verified under the ledger name in the index. A wrong name must be reported as an index error, not as a lane error.
#[test]
fn adv_085_a_changed_ledger_name_is_an_index_error() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 12);
    let path = dir.path().join("index");
    let good = fs::read(&path).unwrap();
    let line_end = good.iter().position(|byte| *byte == b'\n').unwrap();
    for at in 0..line_end {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            fs::write(&path, &bad).unwrap();
            let found = broken(verdict(dir.path()));
            assert_eq!(found.file, "index", "bit {bit} of byte {at}: {found}");
        }
    }
}

#[test]
fn adv_085_verify_detects_bit_flips() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 12);
    for path in segments_of(dir.path()) {
        let good = fs::read(&path).unwrap();
        for at in (0..good.len()).step_by(37) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&path, &bad).unwrap();
            broken(verdict(dir.path()));
        }
        fs::write(&path, &good).unwrap();
    }
    assert_eq!(verdict(dir.path()), LedgerVerdict::Ok);
}
