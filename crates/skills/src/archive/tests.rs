//! Hostile archives are rejected while reading, so none of their files is written.

use std::io::Write as _;

use super::*;

fn tar_with(change: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    put(&mut builder, "SKILL.md", b"text", EntryType::Regular, "");
    change(&mut builder);
    builder.into_inner().unwrap()
}

/// Writes an entry with exactly this name, which the library itself would reject.
fn put(builder: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8], kind: EntryType, link: &str) {
    let mut header = tar::Header::new_ustar();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o755);
    header.set_cksum();
    builder.append(&header, content).unwrap();
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zip_with(entries: &[(&str, &[u8], Option<u32>)]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content, mode) in entries {
        let options =
            zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        let options = mode.map_or(options, |mode| options.unix_permissions(mode));
        writer.start_file(*name, options).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn every_archive_format_gives_the_same_package() {
    let tar = tar_with(|builder| put(builder, "bin/run.sh", b"#!/bin/sh\n", EntryType::Regular, ""));
    let zip = zip_with(&[("SKILL.md", b"text", Some(0o755)), ("bin/run.sh", b"#!/bin/sh\n", Some(0o755))]);
    let read = Package::from_archive(&tar).unwrap();
    assert_eq!(read.paths().collect::<Vec<_>>(), ["SKILL.md", "bin/run.sh"]);
    assert_eq!(Package::from_archive(&gz(&tar)).unwrap(), read);
    assert_eq!(Package::from_archive(&zip).unwrap(), read);
    let nested = zip_with(&[("pdf/SKILL.md", b"text", None), ("pdf/a", b"", None)]);
    assert_eq!(Package::from_archive(&nested).unwrap().paths().collect::<Vec<_>>(), ["SKILL.md", "a"]);
}

#[test]
fn adv_012_rejects_path_traversal_links_and_devices() {
    let cases = [
        ("../evil", EntryType::Regular, ""),
        ("a/../../evil", EntryType::Regular, ""),
        ("/etc/evil", EntryType::Regular, ""),
        ("link", EntryType::Symlink, "/etc/passwd"),
        ("link", EntryType::Symlink, "SKILL.md"),
        ("hard", EntryType::Link, "SKILL.md"),
        ("hard", EntryType::Link, "/etc/passwd"),
        ("null", EntryType::Char, ""),
        ("disk", EntryType::Block, ""),
        ("pipe", EntryType::Fifo, ""),
        ("sparse", EntryType::GNUSparse, ""),
        ("skill.md", EntryType::Regular, ""),
        ("SKILL.md", EntryType::Regular, ""),
        ("SKILL.md/a", EntryType::Regular, ""),
        ("../up", EntryType::Directory, ""),
        (".git/hooks/post-checkout", EntryType::Regular, ""),
    ];
    for (name, kind, link) in cases {
        let bytes = tar_with(|builder| put(builder, name, b"", kind, link));
        for bytes in [gz(&bytes), bytes] {
            assert!(matches!(Package::from_archive(&bytes), Err(SkillError::Package(_))), "{name} {kind:?}");
        }
    }
    for (name, mode) in [("../evil", None), ("/etc/evil", None), ("a\\..\\evil", None), ("Skill.md", None)] {
        let bytes = zip_with(&[("SKILL.md", b"text", None), (name, b"x", mode)]);
        assert!(matches!(Package::from_archive(&bytes), Err(SkillError::Package(_))), "{name}");
    }
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    writer.add_symlink("link", "/etc/passwd", zip::write::SimpleFileOptions::default()).unwrap();
    let bytes = writer.finish().unwrap().into_inner();
    assert!(matches!(Package::from_archive(&bytes), Err(SkillError::Package(_))));
}

#[test]
fn adv_012_rejects_archive_bombs() {
    let zeros = vec![0_u8; 24 << 20];
    // By ratio: 24 MiB of zeros in a few kilobytes.
    let tar = gz(&tar_with(|builder| put(builder, "zeros", &zeros, EntryType::Regular, "")));
    let zip = zip_with(&[("SKILL.md", b"text", None), ("zeros", &zeros, None)]);
    assert!(tar.len() < 64 << 10 && zip.len() < 64 << 10);
    for bytes in [tar, zip] {
        let error = Package::from_archive(&bytes).unwrap_err().to_string();
        assert!(error.contains("unpacks to"), "{error}");
    }
    // By count.
    let many = tar_with(|builder| {
        for index in 0..=FILES_MAX {
            put(builder, &format!("f{index}"), b"", EntryType::Regular, "");
        }
    });
    assert!(Package::from_archive(&many).is_err());
    // A header that claims more bytes than follow, and one that claims more than fits.
    let mut header = tar::Header::new_ustar();
    header.set_path("claims").unwrap();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    for claimed in [1 << 20, 1 << 33] {
        header.set_size(claimed);
        header.set_cksum();
        let bytes = [header.as_bytes().as_slice(), &[0; 1024]].concat();
        assert!(Package::from_archive(&bytes).is_err(), "{claimed}");
    }
}

#[test]
fn rejects_garbage() {
    let tar = gz(&tar_with(|_| {}));
    let zip = zip_with(&[("SKILL.md", b"text", None)]);
    for bytes in
        [&b""[..], b"PK", b"PK\x03\x04", b"\x1f\x8b", b"hello", &tar[..tar.len() / 2], &zip[..zip.len() / 2]]
    {
        assert!(Package::from_archive(bytes).is_err());
    }
}

proptest::proptest! {
    #[test]
    fn reading_archives_never_panics(mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..600), kind in 0..4) {
        let valid = match kind {
            0 => zip_with(&[("SKILL.md", b"text", None)]),
            1 => gz(&tar_with(|_| {})),
            2 => tar_with(|_| {}),
            _ => Vec::new(),
        };
        // A valid start, then noise over the rest.
        let at = bytes.len().min(valid.len());
        let mut mixed = valid.clone();
        for (place, byte) in mixed.iter_mut().rev().take(at / 8).zip(&bytes) {
            *place ^= byte;
        }
        drop(Package::from_archive(&mixed));
        bytes.splice(0..0, valid.into_iter().take(8));
        drop(Package::from_archive(&bytes));
    }
}
