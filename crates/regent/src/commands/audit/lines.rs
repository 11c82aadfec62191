//! Entries as people read them. Whatever came from outside is made inert.

use regent_ledger::{Entry, Gone, Kind};
use serde_json::Value;

use crate::output::Screen;
use crate::term;

/// One entry on one line: when, where, who, what, verdict, rule, and what it was about.
pub(super) fn one(screen: &Screen, entry: &Entry) -> String {
    let head = format!("{} {}/{:<6}", screen.faint(&utc(entry.at_ms)), entry.lane, entry.seq);
    let rest = match entry.kind {
        Kind::Intent => intent(screen, &entry.body),
        Kind::Outcome => outcome(screen, &entry.body),
        Kind::Answer | Kind::Agent | Kind::Policy | Kind::Kernel => {
            format!(
                "{} {}",
                entry.kind,
                term::short(&entry.body.to_string(), screen.width.saturating_sub(44))
            )
        }
        Kind::Lane
        | Kind::Recovery
        | Kind::Key
        | Kind::Erase
        | Kind::Pack
        | Kind::Resume
        | Kind::Checkpoint => screen.faint(&format!(
            "{} {}",
            entry.kind,
            term::short(&entry.body.to_string(), screen.width.saturating_sub(44))
        )),
    };
    let unproven = if entry.proven { "" } else { " (unproven)" };
    format!("{head} {rest}{unproven}\n")
}

fn intent(screen: &Screen, body: &Value) -> String {
    let who = text(body, "/caller/name");
    let effect = text(body, "/verdict/effect");
    let verdict = match effect.as_str() {
        "allow" => screen.good("allow"),
        "ask" => screen.warn("ask  "),
        "deny" => screen.bad("deny "),
        other => other.to_owned(),
    };
    let tool = text(body, "/tool/name");
    let what = if tool.is_empty() { text(body, "/op") } else { tool };
    let rule = text(body, "/verdict/rule");
    let code = text(body, "/verdict/code");
    let by = match (rule.is_empty(), code.is_empty()) {
        (false, _) => rule,
        (true, false) => code,
        (true, true) => "-".to_owned(),
    };
    let host = match text(body, "/approved/voice").as_str() {
        "host_says" => screen.warn(" (the host says that it was agreed to)"),
        _person => String::new(),
    };
    format!("{who:<10} {verdict} {what:<14} {} {}{host}", screen.faint(&by), targets(body))
}

fn outcome(screen: &Screen, body: &Value) -> String {
    let status = match body.get("status") {
        Some(Value::String(word)) if word == "ok" => screen.good("ok"),
        Some(Value::String(word)) => screen.warn(&term::inline(word)),
        Some(Value::Object(fields)) => {
            let (word, detail) = fields
                .iter()
                .next()
                .map(|(word, detail)| (word.as_str(), detail))
                .unwrap_or(("?", &Value::Null));
            let code = detail.get("code").and_then(Value::as_str).or(detail.as_str()).unwrap_or_default();
            screen.warn(&term::short(&format!("{word} {code}"), 60))
        }
        Some(_) | None => "?".to_owned(),
    };
    let confinement = text(body, "/obtained/confinement");
    let tier = if confinement.is_empty() { String::new() } else { format!(" in {confinement}") };
    let intent = body.get("intent").and_then(Value::as_u64).unwrap_or_default();
    format!("{:<10} {status} {}{tier}", "", screen.faint(&format!("to {intent}")))
}

/// What a call reached for.
fn targets(body: &Value) -> String {
    let shown = body.get("targets").and_then(Value::as_array).into_iter().flatten().map(|target| {
        let path = target.pointer("/path/path").and_then(Value::as_str).map(str::to_owned);
        let argv = target
            .get("argv")
            .and_then(Value::as_array)
            .map(|argv| argv.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "));
        let host = target.get("endpoint").map(|endpoint| {
            let part = |name: &str| endpoint.get(name).and_then(Value::as_str).unwrap_or_default();
            format!("{} {}://{}{}", part("method"), part("scheme"), part("host"), part("path"))
        });
        let secret = target.get("secret").and_then(Value::as_str).map(|name| format!("secret://{name}"));
        path.or(argv).or(host).or(secret).unwrap_or_else(|| target.to_string())
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
        out.push_str(&format!("      … {} more lines; --json has them\n", lines - PAYLOAD_LINES_MAX));
    }
    out
}

/// What is said of a payload that is not there.
pub(super) fn gone(screen: &Screen, name: &str, gone: &Gone) -> String {
    let how = if gone.erased { "erased" } else { "removed by gc" };
    let (at, reason) = (utc(gone.at_ms), term::inline(&gone.reason));
    format!("    {}: {how} on {at}, because: {reason}\n", screen.strong(name))
}

fn text(body: &Value, pointer: &str) -> String {
    body.pointer(pointer).and_then(Value::as_str).map(|text| term::short(text, 60)).unwrap_or_default()
}

/// A time in UTC, to the second.
pub(super) fn utc(ms: i64) -> String {
    let (days, second) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000) / 1000);
    // Civil date from days since 1970, counted in eras of 400 years that start on 1 March.
    let shifted = days.saturating_add(719_468);
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// The same as programs write it.
pub(crate) fn rfc3339(ms: i64) -> String {
    utc(ms).replacen(' ', "T", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_utc() {
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
