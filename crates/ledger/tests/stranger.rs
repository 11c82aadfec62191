//! An independent verifier, written from FORMAT.md alone, gives the same verdicts as ours on valid ledgers of every kind and on damaged
//! ones.

#[cfg(test)]
mod stranger {
    use std::fs;
    use std::future::Future;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    use regent_ledger::{
        Appending, CanonicalJson, EntryDraft, EntryKind, Ledger, LedgerKey, LedgerVerdict, Options, Payload,
        PayloadKey, Receipt, VerifyError, VerifyOptions, verify,
    };
    use serde_json::json;

    /// Number of damaged ledgers in an ordinary run; `REGENT_DAMAGES` raises it.
    const DAMAGES: usize = 120;

    fn key(seed: u8) -> LedgerKey {
        LedgerKey::from_seed(&[seed; 32])
    }

    struct Unpark(std::thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn wait(appending: Appending) -> Receipt {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut appending = std::pin::pin!(appending);
        loop {
            match appending.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(receipt) => return receipt.unwrap(),
                Poll::Pending => std::thread::park(),
            }
        }
    }

    fn draft(number: i64) -> EntryDraft {
        let body = json!({"n": number, "part": 0.5, "session": "s", "text": "née \"quoted\"\n\u{1}"});
        let payloads = if number % 3 == 0 { vec![Payload::new(vec![7; 40])] } else { Vec::new() };
        EntryDraft {
            kind: EntryKind::Intent,
            at_ms: 1000 + number,
            body: CanonicalJson::encode(&body).unwrap(),
            payloads,
        }
    }

    fn fill(root: &Path, options: &Options, close: bool) -> Ledger {
        let ledger = Ledger::open(root, key(1), options.clone()).unwrap();
        for number in 0..14 {
            let receipt = match number % 4 {
                2 => wait(ledger.append_unsigned(draft(number))),
                _ => ledger.append_blocking(draft(number)).unwrap(),
            };
            assert!(receipt.seq < ledger.head().size);
        }
        if close {
            ledger.close().unwrap();
        }
        ledger
    }

    /// Ledgers of every kind, each with its signing key and the expected verdict.
    fn ledgers(dir: &Path) -> Vec<(PathBuf, LedgerKey, &'static str)> {
        let small = Options { segment_bytes_max: 2500, ..Options::default() };
        let mut all = Vec::new();
        let mut place = |name: &str, signer: u8, verdict: &'static str| {
            all.push((dir.join(name), key(signer), verdict));
            dir.join(name)
        };
        drop(fill(&place("plain", 1, "ok"), &Options::default(), true));
        drop(fill(&place("segments", 1, "ok"), &small, true));
        let sealed = Options { payload_key: Some(PayloadKey::new([5; 32])), ..small.clone() };
        drop(fill(&place("encrypted", 1, "ok"), &sealed, true));

        let erased = fill(&place("erased", 1, "ok"), &small, false);
        erased.erase(&Payload::new(vec![7; 40]).digest(), "asked for", 5000).unwrap();
        erased.append_blocking(draft(99)).unwrap();
        erased.retain(1004, "old", 6000).unwrap();
        erased.close().unwrap();

        let rotated = fill(&place("rotated", 2, "ok"), &small, false);
        rotated.rotate_key(key(2), 7000).unwrap();
        for number in 20..24 {
            rotated.append_blocking(draft(number)).unwrap();
        }
        rotated.close().unwrap();

        let two = place("two writers", 1, "ok");
        let first = fill(&two, &small, false);
        drop(fill(&two, &small, true));
        first.close().unwrap();

        // A crash during a call, then a crash that tore a line; a session continues after each.
        drop(unsigned(&place("killed", 1, "unproven")));
        let resumed = place("resumed", 1, "ok");
        drop(unsigned(&resumed));
        drop(fill(&resumed, &Options::default(), true));
        tear(&place("torn", 1, "unproven"));
        let settled = place("settled", 1, "ok");
        tear(&settled);
        drop(fill(&settled, &Options::default(), true));
        all
    }

    /// A ledger whose last entry has no checkpoint.
    fn unsigned(root: &Path) -> Ledger {
        let ledger = fill(root, &Options::default(), false);
        wait(ledger.append_unsigned(draft(50)));
        ledger
    }

    fn tear(root: &Path) {
        drop(unsigned(root));
        let path = root.join("lanes/0000/000000000000.jsonl");
        let text = fs::read(&path).unwrap();
        fs::write(&path, [text.as_slice(), b"{\"at\":12,\"body\":{\"a\":\"\xc3"].concat()).unwrap();
    }

    fn ours(root: &Path, key: &LedgerKey) -> &'static str {
        let options = VerifyOptions { keys: vec![key.public()], ..VerifyOptions::default() };
        match verify(root, &options) {
            Ok(report) => match report.verdict {
                LedgerVerdict::Ok => "ok",
                LedgerVerdict::Unproven { .. } => "unproven",
                LedgerVerdict::Broken(_) => "broken",
            },
            Err(VerifyError::NoLedger) => "none",
            Err(_) => "broken",
        }
    }

    /// The independent verifier's verdicts, all from one process.
    #[expect(clippy::disallowed_methods, reason = "the other verifier is another program")]
    fn theirs(roots: &[&Path], key: &LedgerKey) -> Vec<String> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verify.py");
        let output = std::process::Command::new("python3")
            .arg(program)
            .args(["--key", &key.public().to_string()])
            .args(roots)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), roots.len(), "{}", String::from_utf8_lossy(&output.stderr));
        lines
    }

    fn copy_tree(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                copy_tree(&entry.path(), &to.join(entry.file_name()));
            } else {
                fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            }
        }
    }

    /// The files that a verifier reads.
    fn files(root: &Path) -> Vec<PathBuf> {
        let mut found = vec![root.join("index")];
        let mut lanes: Vec<_> =
            fs::read_dir(root.join("lanes")).unwrap().map(|lane| lane.unwrap().path()).collect();
        lanes.sort();
        for lane in lanes {
            let mut names: Vec<_> = fs::read_dir(lane).unwrap().map(|file| file.unwrap().path()).collect();
            names.retain(|path| path.extension().is_some_and(|end| end == "jsonl" || end == "pack"));
            names.sort();
            found.extend(names);
        }
        found
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % (end.max(1) as u64)).unwrap()
        }
    }

    /// Damages one file and returns a description.
    fn damage(root: &Path, random: &mut Random) -> String {
        let files = files(root);
        let path = &files[random.below(files.len())];
        let mut bytes = fs::read(path).unwrap();
        let (at, length) = (random.below(bytes.len()), random.below(60) + 1);
        let end = (at + length).min(bytes.len());
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        let line = random.below(lines.len());
        let how = random.below(12);
        match how {
            0 | 1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 if !bytes.is_empty() => bytes[at] = u8::try_from(random.below(256)).unwrap(),
            3 => drop(bytes.drain(at..end)),
            4 => drop(bytes.splice(at..at, vec![b'x'; length])),
            5 => bytes.truncate(at),
            6 => bytes[at..end].fill(0),
            7 => {
                let start = at / 512 * 512;
                bytes.truncate(start + 512);
                bytes[start..].fill(0);
            }
            8 => bytes.extend(b"{\"at\":1,\"body\":{\"a\":[1.5,tru".iter().take(length)),
            9 if path.extension().is_some_and(|end| end == "jsonl") => {
                lines.remove(line);
                bytes = lines.concat().into_bytes();
            }
            10 if path.extension().is_some_and(|end| end == "jsonl") => {
                lines.truncate(line);
                bytes = lines.concat().into_bytes();
            }
            _ => {
                fs::remove_file(path).unwrap();
                return format!("{} removed", path.display());
            }
        }
        fs::write(path, &bytes).unwrap();
        format!("{} damaged in way {how} at byte {at}, {length} bytes", path.display())
    }

    #[test]
    fn f10_the_test_vectors_match_format_md() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = fs::read_to_string(folder.join("FORMAT.md")).unwrap();
        for (name, entries) in [("format-1", 8), ("format-2", 5)] {
            let options = VerifyOptions { keys: vec![key(1).public()], ..VerifyOptions::default() };
            let report = verify(&folder.join("tests/vectors").join(name), &options).unwrap();
            assert_eq!((&report.verdict, report.entries), (&LedgerVerdict::Ok, entries), "{name}");
            assert_eq!((report.payloads, report.lanes.len()), (2, 1));
            assert!(page.contains(&report.lanes[0].root.to_string()), "{name}");
        }
        assert!(page.contains(&key(1).public().to_string()));
    }

    #[test]
    fn f10_an_independent_verifier_agrees_on_valid_and_damaged_ledgers() {
        let damages = std::env::var("REGENT_DAMAGES").ok().and_then(|count| count.parse().ok());
        let damages: usize = damages.unwrap_or(DAMAGES);
        let dir = tempfile::tempdir().unwrap();
        let mut cases = Vec::new();
        for (root, key, verdict) in ledgers(&dir.path().join("whole")) {
            assert_eq!(ours(&root, &key), verdict, "{}", root.display());
            cases.push((root, key, String::new()));
        }
        let whole = cases.len();
        let mut random = Random(88_172_645_463_325_252);
        for number in 0..damages {
            let (from, key, _) = cases[number % whole].clone();
            let root = dir.path().join(format!("damaged-{number}"));
            copy_tree(&from, &root);
            let how = damage(&root, &mut random);
            cases.push((root, key, how));
        }
        let mut found = std::collections::BTreeMap::<&str, usize>::new();
        for signer in [key(1), key(2)] {
            let own: Vec<_> = cases.iter().filter(|(_, key, _)| key.public() == signer.public()).collect();
            let roots: Vec<&Path> = own.iter().map(|(root, _, _)| root.as_path()).collect();
            for ((root, key, how), said) in own.iter().zip(theirs(&roots, &signer)) {
                let verdict = ours(root, key);
                let same =
                    said == verdict || said.strip_prefix(verdict).is_some_and(|why| why.starts_with(": "));
                assert!(same, "ours `{verdict}`, theirs `{said}`: {how} {}", root.display());
                *found.entry(verdict).or_default() += 1;
            }
        }
        println!("{damages} damages, the same verdict on all: {found:?}");
        assert!(found["broken"] > damages / 2, "{found:?}");
    }
}
