//! Appends drafts to a ledger and prints each acknowledgement, for a harness that kills the process.
//!
//! `append_child FOLDER COUNT [KEY-FILE]` prints `ack LANE SEQ NUMBER` for each acknowledged draft, in one write. The ledger acknowledged
//! every line that the harness has read.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use regent_ledger::{CanonicalJson, EntryDraft, EntryKind, Ledger, LedgerKey, Options, Payload};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let written = std::io::stderr().write_all(format!("append_child: {error}\n").as_bytes());
            ExitCode::from(if written.is_ok() { 1 } else { 2 })
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let folder = PathBuf::from(words.next().ok_or("usage: append_child FOLDER COUNT [KEY-FILE]")?);
    let count: u64 = words.next().and_then(|word| word.into_string().ok()).ok_or("no count")?.parse()?;
    let key = match words.next() {
        Some(path) => LedgerKey::load_or_create(&PathBuf::from(path))?,
        None => LedgerKey::from_seed(&[1; 32]),
    };
    // Small segments, so that a short run also rotates.
    let options = Options { segment_bytes_max: 4096, index_checkpoints_max: 8, ..Options::default() };
    let ledger = Ledger::open(&folder, key, options)?;
    let mut stdout = std::io::stdout();
    for number in 0..count {
        let payloads =
            if number % 4 == 0 { vec![Payload::new(number.to_le_bytes().to_vec())] } else { Vec::new() };
        let body = CanonicalJson::encode(&serde_json::json!({"n": number, "pid": std::process::id()}))?;
        let at_ms = i64::try_from(number)?;
        let receipt =
            ledger.append_blocking(EntryDraft { kind: EntryKind::Intent, at_ms, body, payloads })?;
        stdout.write_all(format!("ack {} {} {number}\n", receipt.lane, receipt.seq).as_bytes())?;
        stdout.flush()?;
    }
    ledger.close()?;
    Ok(())
}
