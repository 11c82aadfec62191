//! `regent audit prove` and `export`: evidence that others can check without us.

use std::path::Path;

use regent_ledger::{PublicKey, Reader, VerifyOptions};
use serde_json::json;

use super::{place, unreadable};
use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done, StdoutContent};
use crate::term;

/// The key that signed the ledger's index, which the proof is checked against.
fn signer(folder: &Path) -> Result<PublicKey, Failure> {
    let report =
        regent_ledger::verify(folder, &VerifyOptions { skip_payloads: true, ..VerifyOptions::default() })
            .map_err(|error| Failure::new(codes::AUDIT_UNREADABLE, error.to_string()))?;
    report.key.parse().map_err(|_| {
        Failure::new(codes::AUDIT_BROKEN, "the ledger doesn't verify, so it proves nothing")
            .help("`regent audit verify` says what is wrong")
    })
}

pub(super) fn prove(context: &Context, folder: &Path, text: &str) -> CommandResult {
    let (lane, seq) = place(text)?;
    let proof = Reader::new(folder).prove(lane, seq).map_err(|error| unreadable(&error))?;
    let key = signer(folder)?;
    proof.verify(&[key]).map_err(|error| Failure::new(codes::AUDIT_PROOF, error.to_string()))?;
    let mut out =
        format!("{} entry {lane}/{seq} is in the ledger, signed by {key}\n\n", context.screen.good("proved"));
    out.push_str(&format!("{}\n\n", term::inline(&proof.line)));
    for (step, digest) in proof.path.iter().enumerate() {
        out.push_str(&format!("  {step:>3}  {digest}\n"));
    }
    out.push_str(&format!("\n{}", term::block(&proof.checkpoint)));
    Ok(Done::new(json!({"lane": lane, "seq": seq, "key": key.to_string(), "proof": proof}), out))
}

pub(super) fn export(context: &Context, folder: &Path, session: &str, out: Option<&Path>) -> CommandResult {
    let export = Reader::new(folder).export(session).map_err(|error| unreadable(&error))?;
    let entries: usize = export.lanes.iter().map(|lane| lane.entries.len()).sum();
    if entries == 0 {
        return Err(Failure::new(codes::AUDIT_NO_ENTRY, format!("the session `{session}` has no entries"))
            .help("`regent audit tail --json` shows the sessions"));
    }
    export.verify(&[signer(folder)?]).map_err(|error| Failure::new(codes::AUDIT_PROOF, error.to_string()))?;
    let text = serde_json::to_string_pretty(&export)
        .map_err(|error| Failure::new(codes::INTERNAL, format!("the export can't be written: {error}")))?;
    let Some(path) = out else {
        return Ok(Done { data: json!(export), shown: StdoutContent::Text(text), exit: 0 });
    };
    let path = context.cwd.join(path);
    std::fs::write(&path, text + "\n").map_err(|error| Failure::io("write", &path, &error))?;
    let shown = path.display().to_string();
    Ok(Done::new(
        json!({"file": shown, "entries": entries}),
        format!("{entries} entries with proofs in {}\n", term::inline(&shown)),
    ))
}
