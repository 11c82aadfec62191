//! `regent-verify`: verifies a ledger folder or an exported session, without the kernel.
//!
//! Exit codes: 0 verified · 14 broken · 16 all signed entries verified, but a lane ends in an unproven tail · 1 verification failed to run
//! · 2 usage.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use regent_ledger::{Export, LedgerVerdict, PublicKey, Report, VerifyOptions, verify};
use serde_json::json;

const USAGE: &str =
    "usage: regent-verify [--json] [--key KEY]… [--expect FILE]… [--witness FILE] LEDGER-OR-EXPORT

Verifies the ledger in a folder, or an exported session in a file.
  --key KEY       trust this public key (base64 or C2SP verifier key); needed for exports
  --expect FILE   a signed checkpoint kept elsewhere that must be part of this history
  --witness FILE  the file that remembers the index's version, against rollback
  --json          print one JSON object
exit codes: 0 ok, 14 broken, 16 unproven tail, 1 error, 2 usage
";

const BROKEN: u8 = 14;
const UNPROVEN: u8 = 16;
const FAILED: u8 = 1;
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    let (code, to_stdout, text) = match Arguments::parse(std::env::args().skip(1)) {
        Err(message) if message.is_empty() => (0, true, USAGE.to_owned()),
        Err(message) => (USAGE_ERROR, false, format!("{message}\n{USAGE}")),
        Ok(arguments) => run(&arguments),
    };
    let written = if to_stdout {
        std::io::stdout().write_all(text.as_bytes())
    } else {
        std::io::stderr().write_all(text.as_bytes())
    };
    // A verdict that could not be printed counts as a failure.
    ExitCode::from(if written.is_ok() { code } else { FAILED })
}

struct Arguments {
    path: PathBuf,
    json: bool,
    keys: Vec<PublicKey>,
    expect: Vec<String>,
    witness: Option<PathBuf>,
}

impl Arguments {
    /// Parses the command line; an empty error message requests help.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let (mut json, mut keys, mut expect, mut witness, mut path) =
            (false, Vec::new(), Vec::new(), None, None);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("`{word}` needs a value"));
            match word.as_str() {
                "--help" | "-h" => return Err(String::new()),
                "--json" => json = true,
                "--key" => keys.push(value()?.parse().map_err(|error| format!("{error}"))?),
                "--expect" => expect.push(read_text(&value()?)?),
                "--witness" => witness = Some(PathBuf::from(value()?)),
                flag if flag.starts_with("--") => return Err(format!("unknown flag `{flag}`")),
                _ if path.is_none() => path = Some(PathBuf::from(word)),
                _ => return Err(format!("unexpected argument `{word}`")),
            }
        }
        let path = path.ok_or("missing argument: the ledger or export to verify")?;
        Ok(Arguments { path, json, keys, expect, witness })
    }
}

fn read_text(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("can't read `{path}`: {error}"))
}

/// Returns the exit code, whether the text is a result, and the text.
fn run(arguments: &Arguments) -> (u8, bool, String) {
    if arguments.path.is_file() {
        return run_export(&arguments.path, arguments);
    }
    let options = VerifyOptions {
        keys: arguments.keys.clone(),
        expect: arguments.expect.clone(),
        witness: arguments.witness.clone(),
        skip_payloads: false,
    };
    match verify(&arguments.path, &options) {
        Err(error) => failed(arguments, &with_source(&error)),
        Ok(report) => {
            let code = match &report.verdict {
                LedgerVerdict::Ok => 0,
                LedgerVerdict::Unproven { .. } => UNPROVEN,
                LedgerVerdict::Broken(_) => BROKEN,
            };
            let text = if arguments.json {
                let ok = code == 0;
                format!("{}\n", json!({"schema": "regent-verify/v1", "ok": ok, "data": report}))
            } else {
                describe(&report)
            };
            (code, true, text)
        }
    }
}

fn run_export(path: &Path, arguments: &Arguments) -> (u8, bool, String) {
    if arguments.keys.is_empty() {
        return failed(arguments, "an export can't be verified without `--key`");
    }
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return failed(arguments, &format!("can't read `{}`: {error}", path.display())),
    };
    let verified = Export::parse(&bytes)
        .and_then(|export| export.verify(&arguments.keys).map(|entries| (export.session, entries)));
    let (code, text, value) = match verified {
        Ok((session, entries)) => {
            let text = format!("ok: {entries} entries of session `{session}` are proven\n");
            (
                0,
                text,
                json!({"schema": "regent-verify/v1", "ok": true, "data": {"entries": entries, "session": session}}),
            )
        }
        Err(error) => {
            let text = format!("broken: {error}\n");
            let value = json!({"schema": "regent-verify/v1", "ok": false, "error": {"code": "broken", "message": error.to_string()}});
            (BROKEN, text, value)
        }
    };
    (code, true, if arguments.json { format!("{value}\n") } else { text })
}

fn failed(arguments: &Arguments, message: &str) -> (u8, bool, String) {
    if arguments.json {
        let error = json!({"code": "unverifiable", "message": message});
        let value = json!({"schema": "regent-verify/v1", "ok": false, "error": error});
        return (FAILED, true, format!("{value}\n"));
    }
    (FAILED, false, format!("error: {message}\n"))
}

fn with_source(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

fn describe(report: &Report) -> String {
    let mut text = String::new();
    if !report.ledger.is_empty() {
        text.push_str(&format!("ledger {}, signed by {}\n", report.ledger, report.key));
    }
    for lane in &report.lanes {
        // Of a lane that is broken from its start nothing is verified, whatever is in it.
        match lane.entries {
            0 if matches!(report.verdict, LedgerVerdict::Broken(_)) => {
                text.push_str(&format!("lane {}: no entry verified", lane.lane));
            }
            entries => text.push_str(&format!("lane {}: {entries} entries, root {}", lane.lane, lane.root)),
        }
        if lane.live {
            text.push_str(", being written");
        }
        if lane.settled {
            text.push_str(", ended by a crash, settled");
        }
        if let Some(tail) = &lane.tail {
            let (entries, torn) = (tail.entries, tail.torn_bytes);
            text.push_str(&format!(", unproven tail of {entries} entries and {torn} torn bytes"));
        }
        if lane.clock_steps_back > 0 {
            text.push_str(&format!(", {} entries older than the one before", lane.clock_steps_back));
        }
        text.push('\n');
    }
    let Report { entries, payloads, erased, erase_pending, .. } = report;
    let verified =
        if matches!(report.verdict, LedgerVerdict::Broken(_)) { " verified before the break" } else { "" };
    text.push_str(&format!(
        "{entries} entries{verified}, {payloads} payloads, {erased} erased, {erase_pending} to be erased\n"
    ));
    match &report.verdict {
        LedgerVerdict::Ok => text.push_str("ok\n"),
        LedgerVerdict::Unproven { .. } => text.push_str("unproven: no checkpoint covers the end\n"),
        LedgerVerdict::Broken(found) => text.push_str(&format!("broken: {found}\n")),
    }
    text
}
