//! What a host says to the judge.

use std::collections::BTreeMap;

use regent_kernel::{Declared, DerivedFrom, Measured};
use regent_wire::judge::JudgeMessage;

use super::DescriptionScanner;

/// What the host says about the flow of a call.
#[derive(Debug, Clone, Default)]
pub(super) struct HostFlow {
    pub(super) derived_from: Option<DerivedFrom>,
    /// The host keeps the result from its agent.
    pub(super) quarantined: bool,
    /// What the host has measured of its agent.
    pub(super) measured: Option<Measured>,
}

/// Why what a host says that it has measured is no measure.
pub(super) fn unmeasured(measured: Option<&Measured>) -> Option<String> {
    let Measured { confidence, drift } = measured?;
    let fields = [("confidence", confidence), ("drift", drift)];
    let odd = |value: &f64| !(0.0..=1.0).contains(value);
    let (name, _) = fields.into_iter().find(|(_, value)| value.as_ref().is_some_and(odd))?;
    Some(format!("`measured.{name}` is a number from 0 to 1"))
}

/// Reads a message with the strict parser: a key that stands twice, or a number that some reader would see differently, could be one call
/// for policy and another for the host.
pub(super) fn read(line: &[u8]) -> Result<JudgeMessage, String> {
    let refused = match parse(line) {
        Ok(message) => return Ok(message),
        Err(why) => why,
    };
    // A stranger who puts half a character or an endless number into a result must not keep the result from being read. Calls are never
    // repaired.
    match parse(&with_long_integers_quoted(&without_lone_surrogates(line))) {
        Ok(message @ JudgeMessage::Observe { .. }) => Ok(message),
        Ok(_) | Err(_) => Err(refused),
    }
}

fn parse(line: &[u8]) -> Result<JudgeMessage, String> {
    let value = regent_ledger::canonical::parse(line.trim_ascii()).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// The largest integer that every reader of JSON has exactly.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// JSON with each integer that not every reader has exactly as a string of its digits: an id of twenty digits stays what it is.
fn with_long_integers_quoted(line: &[u8]) -> Vec<u8> {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let (mut quoted, mut at, mut in_text) = (Vec::with_capacity(line.len()), 0_usize, false);
    while let Some(byte) = line.get(at) {
        let rest = line.get(at..).unwrap_or_default();
        let number =
            rest.iter().take_while(|byte| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9'));
        let length = match byte {
            b'\\' if in_text => 2,
            b'-' | b'0'..=b'9' if !in_text => number.count(),
            _ => 1,
        };
        in_text ^= *byte == b'"';
        let token = rest.get(..length).unwrap_or(rest);
        let digits = token.strip_prefix(b"-").unwrap_or(token);
        let is_long = !in_text
            && digits.len() > 15
            && digits.iter().all(is_digit)
            && std::str::from_utf8(digits)
                .ok()
                .and_then(|text| text.parse().ok())
                .is_none_or(|exact: u64| exact > EXACT_MAX);
        let mark: &[u8] = if is_long { b"\"" } else { b"" };
        quoted.extend([mark, token, mark].concat());
        at = at.saturating_add(length.max(1));
    }
    quoted
}

/// JSON with each escaped half of a character replaced.
fn without_lone_surrogates(line: &[u8]) -> Vec<u8> {
    let code = |at: usize| {
        let digits = line.get(at..at.saturating_add(6))?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut repaired, mut at) = (Vec::with_capacity(line.len()), 0_usize);
    while let Some(byte) = line.get(at) {
        let length = match (byte, code(at)) {
            (b'\\', Some(0xd800..=0xdbff)) if matches!(code(at.saturating_add(6)), Some(0xdc00..=0xdfff)) => {
                12
            }
            (b'\\', Some(0xd800..=0xdfff)) => {
                repaired.extend_from_slice(b"\\ufffd");
                at = at.saturating_add(6);
                continue;
            }
            (b'\\', Some(_)) => 6,
            (b'\\', None) => 2,
            (_plain, _) => 1,
        };
        let end = at.saturating_add(length).min(line.len());
        repaired.extend_from_slice(line.get(at..end).unwrap_or_default());
        at = end;
    }
    repaired
}

/// Descriptions that speak to the model rather than about the tool, for the host's person to look at. They have no power either way.
pub(super) fn flagged(
    tools: &BTreeMap<String, Declared>,
    scan: DescriptionScanner,
) -> BTreeMap<String, Vec<String>> {
    let mut flagged = BTreeMap::new();
    for (name, tool) in tools {
        let mut said = scan(name, &tool.description);
        said.dedup();
        if !said.is_empty() {
            flagged.insert(name.clone(), said);
        }
    }
    flagged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_integers_of_a_result_become_their_digits_and_in_a_call_are_refused() {
        let cases = [
            ("[9007199254740991,-9007199254740991]", "[9007199254740991,-9007199254740991]"),
            ("[9007199254740992,-9007199254740992]", r#"["9007199254740992","-9007199254740992"]"#),
            (r#"{"id":1234567890123456789012}"#, r#"{"id":"1234567890123456789012"}"#),
            (
                r#"{"a\"9007199254740992":1,"9007199254740993":2}"#,
                r#"{"a\"9007199254740992":1,"9007199254740993":2}"#,
            ),
            (
                "[12345678901234567.5,1e20,0.12345678901234567]",
                "[12345678901234567.5,1e20,0.12345678901234567]",
            ),
            ("", ""),
            ("\"\\", "\"\\"),
        ];
        for (line, expected) in cases {
            let quoted = with_long_integers_quoted(line.as_bytes());
            assert_eq!(String::from_utf8(quoted).unwrap(), expected, "{line}");
        }
        let call = r#"{"op":"observe","session":"s","call":{"id":1,"tool":"t","args":{}},"output":{"data":{"id":1234567890123456789}}}"#;
        let Ok(JudgeMessage::Observe { output, .. }) = read(call.as_bytes()) else { panic!() };
        assert_eq!(output.data["id"], "1234567890123456789");
        let call =
            r#"{"op":"decide","session":"s","call":{"id":1,"tool":"t","args":{"x":1234567890123456789}}}"#;
        assert!(read(call.as_bytes()).is_err());
    }

    #[test]
    fn an_unknown_field_is_an_error_that_names_it() {
        let cases = [
            (r#"{"op":"begin","session":"s","tolls":{}}"#, "tolls"),
            (r#"{"op":"decide","session":"s","call":{"id":1,"tool":"t"},"derived":[]}"#, "derived"),
            (
                r#"{"op":"observe","session":"s","call":{"id":1,"tool":"t"},"output":{},"stores":{}}"#,
                "stores",
            ),
            (r#"{"op":"end","session":"s","prompt":""}"#, "prompt"),
        ];
        for (line, field) in cases {
            let why = read(line.as_bytes()).unwrap_err();
            assert!(why.contains(&format!("`{field}`")), "{line}: {why}");
        }
        let known = [
            r#"{"op":"begin","session":"s","suite":"banking","prompt":"p","tools":{},"trusted":{},"mediates":[],"applies_changes":true}"#,
            r#"{"op":"decide","session":"s","call":{"id":1,"tool":"t","args":{}},"derived_from":[],"quarantined":true,"measured":{"confidence":1,"drift":0.5}}"#,
            r#"{"op":"observe","session":"s","call":{"id":1,"tool":"t","args":{}},"output":{"text":"","data":null,"error":null},"store":{}}"#,
            r#"{"op":"read","session":"s","read":{"id":1,"text":"","question":"","type":"number"}}"#,
        ];
        for line in known {
            assert!(read(line.as_bytes()).is_ok(), "{line}: {:?}", read(line.as_bytes()));
        }
    }

    #[test]
    fn half_a_character_in_a_result_is_replaced_and_in_a_call_refused() {
        let cases = [
            (r#"a\ud83db"#, r#"a\ufffdb"#),
            (r#"\ud83d\ude00"#, r#"\ud83d\ude00"#),
            (r#"\ude00\ud83d"#, r#"\ufffd\ufffd"#),
            (r#"\\ud83d"#, r#"\\ud83d"#),
            (r#"\u00e9\n\""#, r#"\u00e9\n\""#),
            (r#"\ud83"#, r#"\ud83"#),
            ("\\", "\\"),
        ];
        for (line, expected) in cases {
            assert_eq!(
                String::from_utf8(without_lone_surrogates(line.as_bytes())).unwrap(),
                expected,
                "{line}"
            );
        }
        let call = r#"{"op":"OP","session":"s","call":{"id":1,"tool":"t","args":{"x":"\ud83d"}},"output":{"text":"x \ud83d"}}"#;
        assert!(read(call.replace("OP", "observe").as_bytes()).is_ok());
        assert!(read(call.replace("OP", "decide").as_bytes()).is_err());
    }
}
