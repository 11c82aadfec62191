//! The vault keeps its values, releases them only within their scope, and loses nothing on errors.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn secret(text: &str) -> Secret {
    Secret::new(text.as_bytes().to_vec())
}

fn fetch<'a>(hosts: &[&'a str]) -> Usage<'a> {
    Usage { tool: "http.fetch", agents: vec!["worker"], hosts: hosts.to_vec() }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn reveals_a_value_only_within_its_scope() {
    let folder = tempfile::tempdir().unwrap();
    let vault = Vault::new(folder.path(), None);
    assert_eq!(vault.list().unwrap(), []);
    assert_eq!(vault.reveal("a", &fetch(&[])).unwrap_err(), SecretError::NotFound("a".to_owned()));
    let scope = Scope { hosts: vec!["api.test".to_owned()], ..Scope::default() };
    vault.add("a", secret("hunter2-hunter2"), scope, Short::Refused, 1).unwrap();
    assert_eq!((mode(vault.path()), mode(vault.key_path())), (0o600, 0o600));
    let sealed = std::fs::read(vault.path()).unwrap();
    assert!(memchr::memmem::find(&sealed, b"hunter2").is_none());

    let other = Vault::new(folder.path(), None);
    assert_eq!(other.reveal("a", &fetch(&["api.test"])).unwrap().expose(), b"hunter2-hunter2");
    let refused = other.reveal("a", &fetch(&["evil.test"])).unwrap_err();
    assert_eq!(refused.code(), "secret.out_of_scope");
    assert_eq!(other.list().unwrap()[0].name, "a");
}

#[test]
fn scrubs_revealed_values_and_their_old_versions() {
    let folder = tempfile::tempdir().unwrap();
    let vault = Vault::new(folder.path(), None);
    vault.add("a", secret("first-value-1"), Scope::default(), Short::Refused, 1).unwrap();
    let mut bytes = b"x first-value-1 y".to_vec();
    vault.reveal("a", &fetch(&[])).unwrap();
    assert!(vault.scrub(&mut bytes));
    assert_eq!(bytes, b"x [secret:a] y");

    // Another process rotates the secret. This process sees the new value and still knows the old one.
    Vault::new(folder.path(), None).rotate("a", secret("second-value-2"), Short::Refused, 2).unwrap();
    assert_eq!(vault.reveal("a", &fetch(&[])).unwrap().expose(), b"second-value-2");
    let mut bytes = b"first-value-1 second-value-2".to_vec();
    assert!(vault.scrub(&mut bytes));
    assert_eq!(bytes, b"[secret:a] [secret:a]");

    // A later process that gets the new value knows the old one as well.
    let later = Vault::new(folder.path(), None);
    later.reveal("a", &fetch(&[])).unwrap();
    let mut bytes = b"first-value-1".to_vec();
    assert!(later.scrub(&mut bytes));
}

#[test]
fn a_value_is_masked_in_every_process_from_the_moment_it_is_set() {
    let folder = tempfile::tempdir().unwrap();
    let (running, vault) = (Vault::new(folder.path(), None), Vault::new(folder.path(), None));
    let masked = |vault: &Vault, text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        vault.scrub(&mut bytes);
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(masked(&running, "first-value-1"), "first-value-1");
    vault.add("a", secret("first-value-1"), Scope::default(), Short::Refused, 1).unwrap();
    vault.rotate("a", secret("second-value-2"), Short::Refused, 2).unwrap();
    let found = vec![("b".to_owned(), secret("third-value-3")), ("a".to_owned(), secret("unused-value-4"))];
    assert_eq!(vault.import(found, &Scope::default(), Short::Refused, 3).unwrap(), ["a"]);
    let text = "first-value-1 second-value-2 third-value-3 c2Vjb25kLXZhbHVlLTI= unused-value-4";
    let expected = "[secret:a] [secret:a] [secret:b] [secret:a]= unused-value-4";
    for vault in [&running, &vault, &Vault::new(folder.path(), None)] {
        assert_eq!(masked(vault, text), expected);
    }
    vault.remove("b").unwrap();
    assert_eq!(masked(&running, "third-value-3"), "[secret:b]", "what was removed stays masked");
}

#[test]
fn opens_only_with_the_right_passphrase() {
    let folder = tempfile::tempdir().unwrap();
    let vault = Vault::new(folder.path(), None);
    vault.add("a", secret("hunter2-hunter2"), Scope::default(), Short::Refused, 1).unwrap();
    assert!(matches!(vault.relock(Some(secret("short"))), Err(VaultError::PassphraseShort(8))));
    vault.relock(Some(secret("correct horse"))).unwrap();
    assert!(vault.has_passphrase().unwrap());

    let locked = Vault::new(folder.path(), None);
    assert!(matches!(locked.list(), Err(VaultError::PassphraseNeeded)));
    assert_eq!(locked.reveal("a", &fetch(&[])).unwrap_err().code(), "secret.locked");
    let before = std::fs::read(locked.path()).unwrap();
    let wrong = Vault::new(folder.path(), Some(secret("correct house")));
    assert!(matches!(wrong.list(), Err(VaultError::WrongKey("passphrase"))));
    let added = wrong.add("b", secret("something else"), Scope::default(), Short::Refused, 2);
    assert!(added.is_err());
    assert_eq!(std::fs::read(locked.path()).unwrap(), before, "the file was touched");

    locked.unlock(secret("correct horse"));
    assert_eq!(locked.reveal("a", &fetch(&[])).unwrap().expose(), b"hunter2-hunter2");
    locked.add("b", secret("something else"), Scope::default(), Short::Refused, 2).unwrap();
    assert!(locked.has_passphrase().unwrap(), "a change keeps the lock");
    locked.relock(None).unwrap();
    assert_eq!(Vault::new(folder.path(), None).list().unwrap().len(), 2);
}

#[test]
fn adv_014_a_damaged_vault_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let vault = Vault::new(folder.path(), None);
    vault.add("a", secret("hunter2-hunter2"), Scope::default(), Short::Refused, 1).unwrap();
    let whole = std::fs::read(vault.path()).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(vault.path(), &damaged).unwrap();
        assert!(Vault::new(folder.path(), None).list().is_err(), "byte {at} was changed unnoticed");
    }
    for length in (0..whole.len()).step_by(7) {
        std::fs::write(vault.path(), &whole[..length]).unwrap();
        assert!(Vault::new(folder.path(), None).list().is_err(), "cut to {length} unnoticed");
    }
    let added = vault.add("b", secret("something else"), Scope::default(), Short::Refused, 2);
    assert!(added.is_err(), "nothing is written over what can't be read");
    std::fs::write(vault.path(), &whole).unwrap();
    assert_eq!(vault.list().unwrap().len(), 1);
}

#[test]
fn rejects_files_that_other_users_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let vault = Vault::new(folder.path(), None);
    vault.add("a", secret("hunter2-hunter2"), Scope::default(), Short::Refused, 1).unwrap();
    for path in [vault.path(), vault.key_path()] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(vault.list(), Err(VaultError::Exposed(exposed)) if exposed == path));
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    }
    let aside = folder.path().join("aside");
    std::fs::rename(vault.key_path(), &aside).unwrap();
    assert!(matches!(vault.list(), Err(VaultError::KeyMissing(_))));
    std::os::unix::fs::symlink(&aside, vault.key_path()).unwrap();
    assert!(matches!(vault.list(), Err(VaultError::Exposed(_))));
}

#[test]
fn rejects_invalid_values_and_names() {
    let folder = tempfile::tempdir().unwrap();
    let vault = Vault::new(folder.path(), None);
    let add = |name: &str, value: &str, short| vault.add(name, secret(value), Scope::default(), short, 1);
    assert!(matches!(add("a", "1234567", Short::Refused), Err(VaultError::TooShort { bytes: 7, least: 8 })));
    assert!(matches!(add("a", "123", Short::Allowed), Err(VaultError::TooShort { .. })));
    assert!(matches!(
        add("a", &"x".repeat(VALUE_BYTES_MAX + 1), Short::Allowed),
        Err(VaultError::TooLong { .. })
    ));
    for name in ["", "A", "a b", "-a", "a/", "ä", "a\n"] {
        assert!(matches!(add(name, "12345678", Short::Refused), Err(VaultError::Name(_))), "{name:?}");
    }
    assert!(!vault.exists().unwrap(), "a refused value leaves nothing behind");
    add("pin", "1234", Short::Allowed).unwrap();
    assert!(matches!(add("pin", "5678", Short::Allowed), Err(VaultError::Exists(_))));
    assert!(matches!(
        vault.rotate("none", secret("12345678"), Short::Refused, 2),
        Err(VaultError::NotFound(_))
    ));
    assert!(matches!(vault.rotate("pin", secret("1234"), Short::Allowed, 2), Err(VaultError::SameValue(_))));
    vault.remove("pin").unwrap();
    assert!(matches!(vault.remove("pin"), Err(VaultError::NotFound(_))));
}

#[test]
fn adv_103_concurrent_writers_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|threads| {
        for writer in 0..4 {
            let folder = folder.path();
            threads.spawn(move || {
                let vault = Vault::new(folder, None);
                for number in 0..5 {
                    let name = format!("w{writer}/n{number}");
                    vault.add(&name, secret("hunter2-hunter2"), Scope::default(), Short::Refused, 1).unwrap();
                }
            });
        }
    });
    assert_eq!(Vault::new(folder.path(), None).list().unwrap().len(), 20);
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(left.len(), 4, "{left:?}");
}

#[test]
fn an_internal_key_is_created_once_and_has_no_handle() {
    let folder = tempfile::tempdir().unwrap();
    let vault = Vault::new(folder.path(), None);
    let key = vault.key("ledger.payloads").unwrap();
    assert_eq!(*Vault::new(folder.path(), None).key("ledger.payloads").unwrap(), *key);
    assert_ne!(*vault.key("another").unwrap(), *key);
    assert!(vault.reveal("ledger.payloads", &fetch(&[])).is_err());
    assert_eq!(vault.list().unwrap(), []);
}

#[test]
fn rotation_keeps_a_limited_number_of_versions() {
    let folder = tempfile::tempdir().unwrap();
    let vault = Vault::new(folder.path(), None);
    vault.add("a", secret("value-number-0"), Scope::default(), Short::Refused, 0).unwrap();
    for number in 1..12 {
        let kept =
            vault.rotate("a", secret(&format!("value-number-{number}")), Short::Refused, number).unwrap();
        assert_eq!(kept as i64, (number + 1).min(8));
    }
    assert_eq!(vault.list().unwrap()[0].added_ms, 11);
}

#[test]
fn debug_output_and_errors_show_no_value() {
    let folder = tempfile::tempdir().unwrap();
    let vault = Vault::new(folder.path(), Some(secret("a passphrase")));
    vault.add("a", secret("hunter2-hunter2"), Scope::default(), Short::Refused, 1).unwrap();
    vault.reveal("a", &fetch(&[])).unwrap();
    let scrubber = vault.scrubber().unwrap();
    let shown = format!("{vault:#?} {scrubber:?} {:?}", vault.list().unwrap());
    assert!(!shown.contains("hunter2") && !shown.contains("passphrase"), "{shown}");
}

#[test]
fn h2_a_later_process_recognises_values_that_an_earlier_one_revealed() {
    let folder = tempfile::tempdir().unwrap();
    let first = Vault::new(folder.path(), None);
    first.add("a", secret("first-value-1"), Scope::default(), Short::Refused, 1).unwrap();
    let running = Vault::new(folder.path(), None);
    running.recognise().unwrap();
    first.reveal("a", &fetch(&[])).unwrap();
    assert_eq!(mode(&folder.path().join("vault.revealed")), 0o600);

    for (what, later) in
        [("a later process", Vault::new(folder.path(), None)), ("one that runs already", running)]
    {
        later.recognise().unwrap();
        let mut bytes = b"x first-value-1 never-in-the-vault".to_vec();
        assert!(later.scrub(&mut bytes), "{what}");
        assert_eq!(bytes, b"x [secret:a] never-in-the-vault", "{what}");
        // In pieces, as in a stream.
        let (mut held, mut out) = (Vec::new(), Vec::new());
        for piece in [&b"some text first-v"[..], b"alu", b"e-1 and more"] {
            held.extend_from_slice(piece);
            out.extend(later.scrub_part(&mut held).bytes);
        }
        later.scrub(&mut held);
        out.extend(held);
        assert_eq!(String::from_utf8_lossy(&out), "some text [secret:a] and more", "{what}");
    }

    // Also after the secret was removed from the vault, and without a passphrase.
    first.remove("a").unwrap();
    first.relock(Some(secret("a passphrase of mine"))).unwrap();
    let locked = Vault::new(folder.path(), None);
    locked.recognise().unwrap();
    let mut bytes = b"first-value-1".to_vec();
    assert!(locked.scrub(&mut bytes));
    assert_eq!(bytes, b"[secret:a]");
}

/// What a later process passes on of a stream that comes in two parts.
fn streamed_later(vault: &Vault, text: &[u8], at: usize) -> String {
    let (mut held, mut out) = (Vec::new(), Vec::new());
    for piece in [&text[..at], &text[at..]] {
        held.extend_from_slice(piece);
        out.extend(vault.scrub_part(&mut held).bytes);
    }
    vault.scrub(&mut held);
    out.extend(held);
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn h2_no_cut_of_a_stream_goes_through_a_value_of_an_earlier_process() {
    let folder = tempfile::tempdir().unwrap();
    let first = Vault::new(folder.path(), None);
    let values =
        ["TopSecretValue-0123456789-abcdefXYZ", "another-0123456789abcdef0123456789abcdef0123456789abcdef"];
    for (name, value) in ["a", "b"].into_iter().zip(values) {
        first.add(name, secret(value), Scope::default(), Short::Refused, 1).unwrap();
        first.reveal(name, &fetch(&[])).unwrap();
    }
    let later = Vault::new(folder.path(), None);
    later.recognise().unwrap();
    for (name, value) in ["a", "b"].into_iter().zip(values) {
        for after in (0..80).step_by(3) {
            let text = format!("old={value}\n{}", "x".repeat(after));
            for at in (0..text.len()).step_by(5) {
                let out = streamed_later(&later, text.as_bytes(), at);
                assert_eq!(out, text.replace(value, &format!("[secret:{name}]")), "{after} {at}");
            }
        }
    }
}

#[test]
fn h2_an_unreadable_record_prevents_new_values_and_reveals() {
    let folder = tempfile::tempdir().unwrap();
    let first = Vault::new(folder.path(), None);
    first.add("a", secret("first-value-1"), Scope::default(), Short::Refused, 1).unwrap();
    std::fs::remove_file(folder.path().join("vault.revealed")).unwrap();
    std::fs::write(folder.path().join("vault.revealed"), "{").unwrap();
    let vault = Vault::new(folder.path(), None);
    assert!(matches!(vault.recognise(), Err(VaultError::Exposed(_))), "open to others");
    std::fs::set_permissions(folder.path().join("vault.revealed"), std::fs::Permissions::from_mode(0o600))
        .unwrap();
    assert!(matches!(vault.recognise(), Err(VaultError::Corrupt(_))));
    let unmasked = vault.add("b", secret("second-value-2"), Scope::default(), Short::Refused, 1);
    assert!(matches!(unmasked, Err(VaultError::Corrupt(_))) && vault.list().unwrap().len() == 1);
    assert!(
        vault.reveal("a", &fetch(&[])).is_err(),
        "no value is released that later processes can't recognise"
    );
}

#[test]
fn h2_after_a_removed_record_the_next_reveal_restores_known_values() {
    let folder = tempfile::tempdir().unwrap();
    let first = Vault::new(folder.path(), None);
    first.add("a", secret("first-value-1"), Scope::default(), Short::Refused, 1).unwrap();
    first.add("b", secret("second-value-2"), Scope::default(), Short::Refused, 1).unwrap();
    first.reveal("a", &fetch(&[])).unwrap();
    let running = Vault::new(folder.path(), None);
    running.recognise().unwrap();
    std::fs::remove_file(folder.path().join("vault.revealed")).unwrap();
    // A process without known values starts a new record; one that knows values continues with its own.
    let fresh = Vault::new(folder.path(), None);
    for revealing in [&fresh, &first] {
        revealing.reveal("b", &fetch(&[])).unwrap();
        let mut bytes = b"first-value-1 second-value-2".to_vec();
        assert!(running.scrub(&mut bytes));
        assert_eq!(bytes, b"[secret:a] [secret:b]");
        std::fs::remove_file(folder.path().join("vault.revealed")).ok();
    }
    first.add("c", secret("third-value-3"), Scope::default(), Short::Refused, 1).unwrap();
    first.reveal("c", &fetch(&[])).unwrap();
    let later = Vault::new(folder.path(), None);
    later.recognise().unwrap();
    let mut bytes = b"first-value-1 third-value-3".to_vec();
    assert!(later.scrub(&mut bytes));
    assert_eq!(bytes, b"[secret:a] [secret:c]", "the record keeps the known values");
}

#[test]
fn h2_an_open_vault_replaces_a_record_of_an_earlier_version() {
    for form in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vault.revealed");
        let vault = Vault::new(folder.path(), None);
        vault.add("a", secret("first-value-1"), Scope::default(), Short::Refused, 1).unwrap();
        std::fs::write(&file, crate::revealed::Revealed::older(form, "a", b"first-value-1")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        vault.recognise().unwrap();
        let mut bytes = b"x first-value-1 y".to_vec();
        assert!(vault.scrub(&mut bytes), "{form}");
        assert_eq!(bytes, b"x [secret:a] y", "{form}");
        vault.reveal("a", &fetch(&[])).unwrap();
        assert!(std::fs::read_to_string(&file).unwrap().starts_with("{\"form\":3,"), "{form}");
        let later = Vault::new(folder.path(), None);
        later.recognise().unwrap();
        assert!(later.scrub(&mut b"first-value-1".to_vec()), "{form}");
    }
}
