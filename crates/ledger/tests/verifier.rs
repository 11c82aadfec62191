//! The standalone verifier, run as a separate process on a folder or a file.

#[cfg(test)]
mod verifier {
    use std::fs;
    use std::path::Path;

    use regent_ledger::{CanonicalJson, EntryDraft, EntryKind, Ledger, LedgerKey, Options, Reader};
    use serde_json::{Value, json};

    fn key() -> LedgerKey {
        LedgerKey::from_seed(&[1; 32])
    }

    fn fill(root: &Path) {
        let ledger = Ledger::open(root, key(), Options::default()).unwrap();
        for number in 0..10 {
            let body = CanonicalJson::encode(&json!({"n": number, "session": "s"})).unwrap();
            ledger
                .append_blocking(EntryDraft {
                    kind: EntryKind::Intent,
                    at_ms: number,
                    body,
                    payloads: Vec::new(),
                })
                .unwrap();
        }
        ledger.close().unwrap();
    }

    #[expect(clippy::disallowed_methods, reason = "a test of the binary has to start it")]
    fn run(arguments: &[&str]) -> (i32, String) {
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_regent-verify")).args(arguments).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    #[test]
    fn adv_093b_the_verifier_binary_distinguishes_ok_broken_and_unproven() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("audit");
        fill(&root);
        let folder = root.to_str().unwrap();
        let (code, text) = run(&[folder]);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("lane 0000: 22 entries") && text.ends_with("ok\n"), "{text}");

        let segment = root.join("lanes/0000/000000000000.jsonl");
        let good = fs::read_to_string(&segment).unwrap();
        fs::write(&segment, good.replacen("\"n\":3", "\"n\":4", 1)).unwrap();
        let (code, text) = run(&[folder, "--json"]);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((code, &value["ok"]), (14, &json!(false)));
        assert_eq!(value["data"]["verdict"]["broken"]["seq"], 8);

        // Without the index's record of the lane's length, a lost checkpoint looks like the result of a crash.
        let again = dir.path().join("again");
        let ledger = Ledger::open(&again, key(), Options::default()).unwrap();
        let body = CanonicalJson::encode(&json!({})).unwrap();
        ledger
            .append_blocking(EntryDraft { kind: EntryKind::Intent, at_ms: 1, body, payloads: Vec::new() })
            .unwrap();
        drop(ledger);
        let segment = again.join("lanes/0000/000000000000.jsonl");
        let text = fs::read_to_string(&segment).unwrap();
        // A slow disk may have had time for more than one checkpoint.
        let intent = text.find("\"kind\":\"intent\"").unwrap();
        let cut = intent + text[intent..].find('\n').unwrap() + 1;
        fs::write(&segment, &text[..cut]).unwrap();
        // A process that another test is just starting holds copies of our descriptors, and so of the lane's lock, until it calls exec.
        let ended = (0..100).find_map(|_| {
            let (code, text) = run(&[again.to_str().unwrap()]);
            (!text.contains("being written")).then_some((code, text))
        });
        let (code, text) = ended.unwrap();
        assert_eq!(code, 16, "{text}");
    }

    #[test]
    fn exports_verify_offline_with_a_key_only() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("audit");
        fill(&root);
        let export = serde_json::to_string(&Reader::new(&root).export("s").unwrap()).unwrap();
        let file = dir.path().join("export.json");
        fs::write(&file, &export).unwrap();
        let (file, key) = (file.to_str().unwrap(), key().public().vkey("regent/any/name"));
        let (code, text) = run(&["--key", &key, file]);
        assert_eq!((code, text.as_str()), (0, "ok: 10 entries of session `s` are proven\n"));
        assert_eq!(run(&[file]).0, 1);
        let stranger = LedgerKey::from_seed(&[2; 32]).public().to_string();
        assert_eq!(run(&["--key", &stranger, file]).0, 14);
        fs::write(file, export.replacen("\\\"n\\\":1,", "\\\"n\\\":2,", 1)).unwrap();
        assert_eq!(run(&["--key", &key, "--json", file]).0, 14);
    }

    #[test]
    fn usage_errors_and_missing_ledgers_have_their_own_exit_codes() {
        let dir = tempfile::tempdir().unwrap();
        let none = dir.path().join("none");
        assert_eq!(run(&[]).0, 2);
        assert_eq!(run(&["--nonsense", "x"]).0, 2);
        assert_eq!(run(&["--key", "nonsense", "x"]).0, 2);
        assert_eq!(run(&["--help"]).0, 0);
        assert_eq!(run(&[none.to_str().unwrap()]).0, 1);
    }
}
