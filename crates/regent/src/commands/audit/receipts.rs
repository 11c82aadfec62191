//! `regent audit receipts`: a session's decisions as signed receipts that other systems read.

use std::path::Path;

use regent_ledger::{Decided, DecisionReceipt, Digest, Kind, Reader, ReceiptError};
use serde_json::{Value, json};

use super::{lines, payload_of, unreadable};
use crate::codes;
use crate::compose;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::term;

/// Who signs.
const ISSUER: &str = "regent";

pub(super) fn run(context: &Context, folder: &Path, session: &str, out: Option<&Path>) -> CommandResult {
    let reader = Reader::new(folder);
    let key = compose::ledger_key(&context.paths)?;
    let failed = |error: ReceiptError| Failure::new(codes::INTERNAL, error.to_string());
    let mut receipts: Vec<DecisionReceipt> = Vec::new();
    for entry in reader.entries().map_err(|error| unreadable(&error))? {
        let entry = entry.map_err(|error| unreadable(&error))?;
        let text = |pointer: &str| entry.body.pointer(pointer).and_then(Value::as_str);
        if entry.kind != Kind::Intent || text("/session") != Some(session) {
            continue;
        }
        let args = payload_of(context, &reader, &entry, "args")?;
        let args = args.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_else(|| json!({}));
        let policy = text("/policy").unwrap_or_default();
        let decided = Decided {
            sequence: u64::try_from(receipts.len()).unwrap_or(u64::MAX).saturating_add(1),
            tool_name: text("/tool/name").or(text("/op")).unwrap_or_default(),
            tool_input: &args,
            allowed: text("/verdict/effect") == Some("allow"),
            policy_id: text("/verdict/rule").or(text("/verdict/code")).unwrap_or("none"),
            policy_digest: policy.parse::<Digest>().unwrap_or_else(|_| Digest::of(policy.as_bytes())),
            timestamp: &lines::rfc3339(entry.at_ms),
            issuer_id: ISSUER,
        };
        receipts.push(DecisionReceipt::sign(&decided, receipts.last(), &key).map_err(failed)?);
    }
    if receipts.is_empty() {
        let message = format!("no decision belongs to the session `{}`", term::inline(session));
        return Err(Failure::new(codes::AUDIT_NO_ENTRY, message)
            .help("`regent audit tail --json` shows the sessions"));
    }
    DecisionReceipt::verify_chain(&receipts, Some(&key.public())).map_err(failed)?;
    let all: Vec<&Value> = receipts.iter().map(DecisionReceipt::as_json).collect();
    let text: String = all.iter().map(|receipt| format!("{receipt}\n")).collect();
    let Some(out) = out else { return Ok(Done::new(json!({"receipts": all}), text)) };
    let path = context.cwd.join(out);
    std::fs::write(&path, text).map_err(|error| Failure::io("write", &path, &error))?;
    let shown = path.display().to_string();
    Ok(Done::new(
        json!({"file": shown, "receipts": all.len()}),
        format!("{} receipts in {}\n", all.len(), term::inline(&shown)),
    ))
}
