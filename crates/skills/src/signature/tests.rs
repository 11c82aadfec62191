//! A signature is valid for one content and one key.

use super::*;

fn package(body: &str) -> Package {
    let text = format!("---\nname: pdf\ndescription: Reads.\nversion: 1.0.0\n---\n{body}");
    Package::default().with_file("SKILL.md", text.into_bytes())
}

fn signed(package: Package, signer: &str, key: &LedgerKey) -> Package {
    let note = sign(&package, signer, key).unwrap();
    package.with_file(SIGNATURE_FILE, note.into_bytes())
}

fn who(package: &Package, trusted: &[TrustedKey]) -> Result<Option<String>, SkillError> {
    signer(package, &Skill::from_package(package).unwrap(), trusted)
}

#[test]
fn only_a_trusted_key_vouches() {
    let (ada, eve) = (LedgerKey::from_seed(&[1; 32]), LedgerKey::from_seed(&[2; 32]));
    let trusted = [TrustedKey::parse(&ada.public().vkey("ada@example.org")).unwrap()];
    let good = signed(package("text"), "ada@example.org", &ada);
    assert_eq!(who(&good, &trusted).unwrap().as_deref(), Some("ada@example.org"));
    assert_eq!(who(&good, &[]).unwrap(), None);
    assert_eq!(who(&package("text"), &trusted).unwrap(), None);
    assert_eq!(who(&signed(package("text"), "eve", &eve), &trusted).unwrap(), None);
    // Ada's name with another key: the key id is unknown.
    assert_eq!(who(&signed(package("text"), "ada@example.org", &eve), &trusted).unwrap(), None);
}

#[test]
fn rejects_a_signature_over_other_content() {
    let ada = LedgerKey::from_seed(&[1; 32]);
    let trusted = [TrustedKey::parse(&ada.public().vkey("ada")).unwrap()];
    let note = sign(&package("text"), "ada", &ada).unwrap();
    let moved = package("other").with_file(SIGNATURE_FILE, note.clone().into_bytes());
    assert!(matches!(who(&moved, &trusted), Err(SkillError::Signature(_))));
    assert!(matches!(who(&moved, &[]), Err(SkillError::Signature(_))), "also without trusted keys");
    let added = package("text")
        .with_file("hidden.sh", b"x".to_vec())
        .with_file(SIGNATURE_FILE, note.clone().into_bytes());
    assert!(matches!(who(&added, &trusted), Err(SkillError::Signature(_))));
    let forged = note.replace("A", "B");
    let forged = package("text").with_file(SIGNATURE_FILE, forged.into_bytes());
    assert!(!matches!(who(&forged, &trusted), Ok(Some(_))));
    for odd in ["", "\u{200b}", "a b", "a+b"] {
        assert!(sign(&package("text"), odd, &ada).is_err(), "{odd:?}");
    }
}
