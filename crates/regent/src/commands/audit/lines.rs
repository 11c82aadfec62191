//! Entries as people read them. Whatever came from outside is made inert.

use regent_ledger::{Entry, MissingPayload};
use regent_policy::Target;
pub(crate) use regent_runtime::utc;
use regent_wire::body::{Decision, EntryBody, IntentBody, OutcomeBody};
use regent_wire::{Status, ToolFailure, Voice};

use crate::output::Screen;
use crate::term;

/// One entry on one line: when, where, who, what, verdict, rule, and what it was about.
pub(super) fn one(screen: &Screen, entry: &Entry) -> String {
    let head = format!("{} {}/{:<6}", screen.faint(&utc(entry.at_ms)), entry.lane, entry.seq);
    let plain = || {
        format!("{} {}", entry.kind, term::short(&entry.body.to_string(), screen.width.saturating_sub(44)))
    };
    // One that can't be read is shown as it is.
    let rest = match EntryBody::read(entry) {
        Ok(EntryBody::Intent(body)) => intent(screen, &body),
        Ok(EntryBody::Outcome(body)) => outcome(screen, &body),
        Ok(EntryBody::InDoubt(note)) => ended(screen, &screen.warn("in_doubt"), "", note.intent),
        Ok(EntryBody::Agent(_) | EntryBody::Policy(_) | EntryBody::Kernel(_)) | Err(_) => plain(),
        Ok(EntryBody::Internal) => screen.faint(&plain()),
    };
    let unproven = if entry.proven { "" } else { " (unproven)" };
    format!("{head} {rest}{unproven}\n")
}

fn intent(screen: &Screen, body: &IntentBody<'_>) -> String {
    let short = |text: &str| term::short(text, 60);
    let verdict = match body.verdict.effect {
        Decision::Allow => screen.good("allow"),
        Decision::Ask => screen.warn("ask  "),
        Decision::Deny => screen.bad("deny "),
    };
    let (who, what) = (short(body.caller.display_name()), short(body.what()));
    let by = short(body.decided_by().unwrap_or("-"));
    let host = match body.approved.as_ref().map(|approved| approved.voice) {
        Some(Voice::HostSays) => screen.warn(" (approved, according to the host)"),
        Some(Voice::Person) | None => String::new(),
    };
    format!("{who:<10} {verdict} {what:<14} {} {}{host}", screen.faint(&by), targets(&body.targets))
}

fn outcome(screen: &Screen, body: &OutcomeBody<'_>) -> String {
    let word = body.status.word();
    let status = match &*body.status {
        Status::Ok => screen.good(word),
        Status::TimedOut | Status::Cancelled => screen.warn(word),
        Status::Failed(ToolFailure { code, .. }) | Status::Faulted(code) => {
            screen.warn(&term::short(&format!("{word} {code}"), 60))
        }
    };
    let confinement = body.obtained.as_ref().and_then(|receipt| receipt.get("confinement")?.as_str());
    let tier = confinement.map(|tier| format!(" in {}", term::short(tier, 60))).unwrap_or_default();
    ended(screen, &status, &tier, body.intent)
}

fn ended(screen: &Screen, status: &str, tier: &str, intent: u64) -> String {
    format!("{:<10} {status} {}{tier}", "", screen.faint(&format!("to {intent}")))
}

/// What a call reached for.
fn targets(targets: &[Target]) -> String {
    let shown = targets.iter().map(|target| match target {
        Target::Path { path, .. } => path.clone(),
        Target::Argv(argv) => argv.join(" "),
        Target::Endpoint { scheme, host, method, path, .. } => format!("{method} {scheme}://{host}{path}"),
        Target::Secret(name) => format!("secret://{name}"),
    });
    term::short(&shown.collect::<Vec<_>>().join(", "), 80)
}

/// The fields of an entry, one a line.
pub(super) fn body(screen: &Screen, entry: &Entry) -> String {
    let Some(fields) = entry.body.as_object() else { return String::new() };
    let mut out = String::new();
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        out.push_str(&format!("    {} {}\n", screen.faint(&format!("{name:<11}")), term::inline(&value)));
    }
    out.push_str(&format!("    {} {}\n", screen.faint("hash       "), entry.hash));
    out
}

const PAYLOAD_LINES_MAX: usize = 200;

/// What went in or out.
pub(super) fn payload(screen: &Screen, name: &str, bytes: &[u8], width: usize) -> String {
    let text = term::block_of_bytes(bytes);
    let mut out = format!("    {}\n", screen.strong(&format!("{name} ({} bytes)", bytes.len())));
    let lines = text.lines().count();
    for line in text.lines().take(PAYLOAD_LINES_MAX) {
        out.push_str(&format!("      {}\n", term::short(line, width.saturating_mul(4))));
    }
    if lines > PAYLOAD_LINES_MAX {
        out.push_str(&format!("      … {} more lines; use --json to see them\n", lines - PAYLOAD_LINES_MAX));
    }
    out
}

/// The message about a payload that is not there.
pub(super) fn gone(screen: &Screen, name: &str, gone: &MissingPayload) -> String {
    let how = if gone.erased { "erased" } else { "removed by gc" };
    let (at, reason) = (utc(gone.at_ms), term::inline(&gone.reason));
    format!("    {}: {how} on {at}, because: {reason}\n", screen.strong(name))
}

/// A time in UTC as programs write it.
pub(crate) fn rfc3339(ms: i64) -> String {
    utc(ms).replacen(' ', "T", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_times_in_utc() {
        for (ms, shown) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_400_000, "2000-02-29 00:00:00Z"),
            (1_799_999_999_999, "2027-01-15 07:59:59Z"),
            (-1, "1969-12-31 23:59:59Z"),
        ] {
            assert_eq!(utc(ms), shown);
        }
        for extreme in [i64::MIN, i64::MAX] {
            assert!(utc(extreme).ends_with('Z'));
        }
    }
}
