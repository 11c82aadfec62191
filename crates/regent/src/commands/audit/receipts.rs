//! `regent audit receipts`: a session's decisions as signed receipts that other systems read.

use std::path::Path;

use regent_ledger::{DecisionReceipt, Digest, Reader, ReceiptError, UnsignedDecision};
use regent_wire::body::{Decision, EntryBody};
use serde_json::{Value, json};

use super::{lines, payload_of, unreadable, unreadable_body};
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
        let body = EntryBody::read_known(&entry).map_err(|error| unreadable_body(&error))?;
        let Some(EntryBody::Intent(intent)) = body else { continue };
        if intent.session != session {
            continue;
        }
        let args = payload_of(context, &reader, &entry)?;
        let args = args.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_else(|| json!({}));
        let decided = UnsignedDecision {
            sequence: u64::try_from(receipts.len()).unwrap_or(u64::MAX).saturating_add(1),
            tool_name: intent.what(),
            tool_input: &args,
            allowed: intent.verdict.effect == Decision::Allow,
            policy_id: intent.decided_by().unwrap_or("none"),
            policy_digest: intent
                .policy
                .parse::<Digest>()
                .unwrap_or_else(|_| Digest::compute(intent.policy.as_bytes())),
            timestamp: &lines::rfc3339(entry.at_ms),
            issuer_id: ISSUER,
        };
        receipts.push(DecisionReceipt::sign(&decided, receipts.last(), &key).map_err(failed)?);
    }
    if receipts.is_empty() {
        let message = format!("the session `{}` has no decisions", term::inline(session));
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
