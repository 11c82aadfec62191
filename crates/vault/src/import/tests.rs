//! Files of secrets in their usual forms, and tampered files.

use aes_gcm::aead::consts::U32;
use aes_gcm::aead::generic_array::GenericArray;
use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::aes::Aes256;
use aes_gcm::{AesGcm, Nonce};
use age::secrecy::ExposeSecret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha512};

use super::*;

fn to_pairs(imported: &Imported) -> Vec<(String, String)> {
    imported
        .values
        .iter()
        .map(|(name, value)| (name.clone(), String::from_utf8(value.expose().to_vec()).unwrap()))
        .collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn dotenv() {
    let text = "# comment\n\nexport GITHUB_TOKEN=abcdefgh # the token\nDB_PASSWORD='single $quoted \\n value'\n\
        MULTI=\"line one\nline \\\"two\\\"\\nline three\" # done\nEMPTY=\nSHORT=abc\nURL=postgres://u:p@h/db?x=1#frag\n  SPACED = spaced value  \n";
    let imported = read(text, "", "app/", 8).unwrap();
    let expected = [
        ("app/github_token", "abcdefgh"),
        ("app/db_password", "single $quoted \\n value"),
        ("app/multi", "line one\nline \"two\"\nline three"),
        ("app/url", "postgres://u:p@h/db?x=1#frag"),
        ("app/spaced", "spaced value"),
    ];
    assert_eq!(to_pairs(&imported), pairs(&expected));
    assert_eq!(imported.left_out, ["app/empty", "app/short"]);
    for (broken, line) in [
        ("A=12345678\nB", "line 2"),
        ("A='open\nB=2", "line 1"),
        ("A B=1", "line 1"),
        ("A='x' y", "line 1"),
        ("A=\"a\nb\"\nC", "line 3"),
    ] {
        let error = read(broken, "", "", 0).unwrap_err().to_string();
        assert!(error.contains(line), "{broken:?}: {error}");
    }
    assert!(read("A=1234\na=5678", "", "", 0).unwrap_err().to_string().contains("two values"));
}

/// Encrypts as `sops` does.
struct Sops {
    identity: age::x25519::Identity,
    key: [u8; 32],
}

const MODIFIED: &str = "2026-01-05T12:00:00Z";

impl Sops {
    fn new() -> Self {
        Self { identity: age::x25519::Identity::generate(), key: [7; 32] }
    }

    fn keys(&self) -> String {
        format!("# created: now\n{}\n", self.identity.to_string().expose_secret())
    }

    fn sealed_key(&self) -> String {
        age::encrypt_and_armor(&self.identity.to_public(), &self.key).unwrap()
    }

    fn value(&self, text: &str, bound: &str, kind: &str) -> String {
        let cipher: AesGcm<Aes256, U32> = AesGcm::new(GenericArray::from_slice(&self.key));
        let nonce = [u8::try_from(bound.len()).unwrap(); 32];
        let payload = Payload { msg: text.as_bytes(), aad: bound.as_bytes() };
        let sealed = cipher.encrypt(Nonce::<U32>::from_slice(&nonce), payload).unwrap();
        let (text, tag) = sealed.split_at(sealed.len() - 16);
        let [text, nonce, tag] = [text, &nonce, tag].map(|part| STANDARD.encode(part));
        format!("ENC[AES256_GCM,data:{text},iv:{nonce},tag:{tag},type:{kind}]")
    }

    fn code(&self, values: &[&str]) -> String {
        let code: String = Sha512::digest(values.concat()).iter().map(|byte| format!("{byte:02X}")).collect();
        self.value(&code, MODIFIED, "str")
    }

    fn yaml(&self) -> String {
        format!(
            "db:\n    password: {}\n    port: {}\nplain: true\nratio: 1.50\nnothing: null\nlist:\n    - {}\nsops:\n    age:\n        - recipient: {}\n          enc: |\n            {}\n    lastmodified: \"{MODIFIED}\"\n    mac: {}\n    version: 3.9.0\n",
            self.value("hunter2-hunter2", "db:password:", "str"),
            self.value("5432", "db:port:", "int"),
            self.value("in a list", "list:", "str"),
            self.identity.to_public(),
            self.sealed_key().trim().replace('\n', "\n            "),
            self.code(&["hunter2-hunter2", "5432", "True", "1.5", "in a list"]),
        )
    }
}

#[test]
fn sops_in_yaml() {
    let sops = Sops::new();
    let imported = read(&sops.yaml(), &sops.keys(), "", 8).unwrap();
    assert_eq!(to_pairs(&imported), pairs(&[("db/password", "hunter2-hunter2"), ("list/0", "in a list")]));
    assert_eq!(imported.left_out, ["db/port"]);
}

#[test]
fn sops_in_json_and_lines() {
    let sops = Sops::new();
    let json = serde_json::json!({
        "z": sops.value("value of z", "z:", "str"),
        "sops": {
            "age": [{"recipient": sops.identity.to_public().to_string(), "enc": sops.sealed_key()}],
            "lastmodified": MODIFIED, "mac": sops.code(&["value of z", "value of a"]),
        },
    });
    // Document order matters, but serde_json sorts keys, so the test moves `a` after `z`.
    let text = serde_json::to_string_pretty(&json).unwrap();
    let end = text.rfind('}').unwrap();
    let text =
        format!("{},\n\t\"a\": \"{}\"\n}}", &text[..end].trim_end(), sops.value("value of a", "a:", "str"));
    assert_eq!(
        to_pairs(&read(&text, &sops.keys(), "", 8).unwrap()),
        pairs(&[("z", "value of z"), ("a", "value of a")])
    );

    let lines = format!(
        "API_KEY={}\nsops_age__list_0__map_recipient={}\nsops_age__list_0__map_enc={}\nsops_lastmodified={MODIFIED}\nsops_mac={}\n",
        sops.value("value of key", "API_KEY:", "str"),
        sops.identity.to_public(),
        sops.sealed_key().replace('\n', "\\n"),
        sops.code(&["value of key"]),
    );
    assert_eq!(to_pairs(&read(&lines, &sops.keys(), "", 8).unwrap()), pairs(&[("api_key", "value of key")]));
}

#[test]
fn rejects_a_tampered_sops_file() {
    let sops = Sops::new();
    let whole = sops.yaml();
    let changed = [
        ("a plain value", whole.replace("plain: true", "plain: false")),
        ("a value moved", whole.replace("    port: ENC", "    moved: ENC")),
        (
            "a value removed",
            whole.lines().filter(|line| !line.contains("port:")).collect::<Vec<_>>().join("\n"),
        ),
        ("a value added", whole.replace("plain: true", "plain: true\nmore: x")),
        ("another time", whole.replace(MODIFIED, "2026-01-06T12:00:00Z")),
        ("no code", whole.replace("mac: ENC", "mic: ENC")),
        ("no code over plain ones", format!("{whole}    mac_only_encrypted: true\n")),
    ];
    for (what, text) in changed {
        assert_ne!(text, whole, "{what}");
        assert!(read(&text, &sops.keys(), "", 0).is_err(), "{what} went unnoticed");
    }
    let stranger = Sops::new();
    assert!(read(&whole, &stranger.keys(), "", 0).unwrap_err().to_string().contains("none of the age keys"));
    assert!(read(&whole, "", "", 0).is_err());
}

#[test]
fn dotenv_keeps_the_first_letter_of_a_quoted_value() {
    for (text, value) in [
        ("Z='klmnopqrst'\n", "klmnopqrst"),
        ("Z='klmnopqrst'", "klmnopqrst"),
        ("Z=\"klmnopqrst\" # end\n", "klmnopqrst"),
        ("export Z=  'klmnopqrst'\r\n", "klmnopqrst"),
        ("Z='klmnopqrst'\n\n", "klmnopqrst"),
        ("Z='klm\nnopqrst'\n", "klm\nnopqrst"),
        ("A=abcdefgh\nZ='klmnopqrst'\nY=xxxxxxxx", "klmnopqrst"),
    ] {
        let imported = read(text, "", "", 8).unwrap();
        assert!(
            to_pairs(&imported).contains(&("z".to_owned(), value.to_owned())),
            "{text:?}: {:?}",
            to_pairs(&imported)
        );
    }
}
