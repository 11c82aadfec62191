//! Files, folders, room and labels of a region.

use proptest::prelude::*;

use super::*;

const ROOM: Room = Room { file_bytes_max: 32, files_max: 4, bytes_max: 64 };

fn region() -> Region {
    Region::new(&["working", "semantic"], ROOM)
}

fn label(integrity: Integrity, confidentiality: Confidentiality) -> Label {
    Label { integrity, confidentiality }
}

const OWN: Label = Label { integrity: Integrity::OwnModel, confidentiality: Confidentiality::Internal };
const WEB: Label = Label { integrity: Integrity::Web, confidentiality: Confidentiality::Public };
const SECRET: Label = Label { integrity: Integrity::User, confidentiality: Confidentiality::Secret };

#[test]
fn folders_come_with_their_files() {
    let region = region();
    region.put("working/a/x", b"1", OWN).unwrap();
    region.put("working/a-b", b"2", OWN).unwrap();
    region.put("working/a/y", b"3", WEB).unwrap();
    assert_eq!(region.list("").unwrap().names, ["working", "semantic"]);
    assert_eq!(region.list("working").unwrap().names, ["a-b", "a"]);
    assert_eq!(
        region.list("working/a").unwrap(),
        Folder { names: vec!["x".into(), "y".into()], label: OWN.join(WEB) }
    );
    assert_eq!(region.list("semantic").unwrap().names, [""; 0]);
    assert!(region.stat("working/a").unwrap().folder);
}

#[test]
fn what_is_no_place_for_a_file_takes_none() {
    let region = region();
    region.put("working/a", b"1", OWN).unwrap();
    region.put("working/dir/b", b"1", OWN).unwrap();
    for path in ["", "x", "working", "elsewhere/x", "working/a/below", "working/dir"] {
        assert!(region.put(path, b"1", OWN).is_err(), "{path:?}");
        assert!(region.write(path, None, b"1", OWN).is_err(), "{path:?}");
    }
    assert!(matches!(region.read("working", 0, 9), Err(VfsError::NotAFile(_))));
    assert!(matches!(region.read("working/none", 0, 9), Err(VfsError::NotFound(_))));
    assert!(matches!(region.list("working/a"), Err(VfsError::NotAFolder(_))));
}

#[test]
fn there_is_so_much_room_and_a_failed_write_changes_nothing() {
    let region = region();
    region.put("working/a", &[b'a'; 30], OWN).unwrap();
    assert!(matches!(region.write("working/a", None, b"xyz", WEB), Err(VfsError::Full(_))));
    assert!(matches!(region.write("working/a", Some(31), b"x", WEB), Err(VfsError::Gap(_))));
    assert!(matches!(region.write("working/a", Some(u64::MAX), b"x", WEB), Err(VfsError::Gap(_))));
    assert_eq!(region.read("working/a", 0, 99).unwrap(), Content { bytes: vec![b'a'; 30], label: OWN });
    region.put("working/b", &[b'b'; 30], OWN).unwrap();
    assert!(matches!(region.put("working/c", b"12345", OWN), Err(VfsError::Full(_))));
    region.put("working/c", b"", OWN).unwrap();
    region.put("working/d", b"", OWN).unwrap();
    assert!(matches!(region.put("working/e", b"", OWN), Err(VfsError::Full(_))));
}

#[test]
fn every_range_keeps_the_label_of_what_was_written_there() {
    let region = region();
    region.put("working/a", b"0123456789", OWN).unwrap();
    region.write("working/a", Some(3), b"web", WEB).unwrap();
    region.write("working/a", None, b"secret", SECRET).unwrap();
    let cases = [(0, 3, OWN), (3, 3, WEB), (2, 2, OWN.join(WEB)), (6, 4, OWN), (9, 2, OWN.join(SECRET))];
    for (offset, bytes, label) in cases {
        assert_eq!(region.read("working/a", offset, bytes).unwrap().label, label, "{offset}+{bytes}");
    }
    // The end of the file depends on all that was written.
    assert_eq!(region.read("working/a", 16, 5).unwrap().label, OWN.join(WEB).join(SECRET));
    region.put("working/a", b"new", OWN).unwrap();
    assert_eq!(region.read("working/a", 0, 99).unwrap().label, OWN);
}

#[test]
fn a_name_carries_the_label_of_its_author() {
    let region = region();
    region.write("working/the-secret-is-42", None, b"", SECRET).unwrap();
    assert_eq!(region.list("working").unwrap().label, SECRET);
    assert_eq!(region.stat("working/the-secret-is-42").unwrap().label, SECRET);
}

#[test]
fn names_and_content_are_searched() {
    let region = region();
    region.put("semantic/rust", b"a language", OWN).unwrap();
    region.put("semantic/tea", b"not a language", SECRET).unwrap();
    region.put("working/language", b"x", WEB).unwrap();
    let names = |text, most| -> Vec<String> {
        region.search("semantic", text, most).unwrap().into_iter().map(|found| found.name).collect()
    };
    assert_eq!(names("language", 9), ["rust", "tea"]);
    assert_eq!(names("language", 1), ["rust"]);
    assert_eq!(names("rust", 9), ["rust"]);
    assert_eq!(names("%' OR 1=1 --", 9), [""; 0]);
}

#[test]
fn the_oldest_number_goes_first() {
    let region = region();
    for name in ["working/2", "working/10", "working/9"] {
        region.put(name, b"", OWN).unwrap();
    }
    assert!(region.drop_oldest("working"));
    assert_eq!(region.list("working").unwrap().names, ["10", "9"]);
    assert!(region.drop_oldest("working") && region.drop_oldest("working") && !region.drop_oldest("working"));
}

proptest! {
    /// However it was written: the label of a read covers the label of every byte in it.
    #[test]
    fn no_byte_is_read_without_its_label(
        writes in proptest::collection::vec((0..20_usize, 1..8_usize, any::<bool>(), any::<bool>()), 1..150),
        from in 0..30_usize,
        most in 1..30_usize,
    ) {
        let region = region();
        let mut truth: Vec<Label> = Vec::new();
        for (at, len, web, secret) in writes {
            let one = label(
                if web { Integrity::Web } else { Integrity::User },
                if secret { Confidentiality::Secret } else { Confidentiality::Public },
            );
            let at = at.min(truth.len());
            if region.write("working/f", Some(at as u64), &vec![b'x'; len], one).is_ok() {
                truth.resize(truth.len().max(at + len), one);
                truth[at..at + len].fill(one);
            }
        }
        let read = region.read("working/f", from as u64, most).unwrap();
        let whole = truth.iter().skip(from).take(most).fold(read.label, |all, one| all.join(*one));
        prop_assert_eq!(whole, read.label);
        prop_assert_eq!(read.bytes.len(), truth.len().saturating_sub(from).min(most));
    }
}
