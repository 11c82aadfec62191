//! How events travel. Each line is what `task run --json` printed before events could be read back.

use serde_json::json;

use super::*;

/// One of each kind, and of its forms.
const WRITTEN: &str = include_str!("written.jsonl");

#[test]
fn events_printed_before_they_could_be_read_are_read_and_written_byte_for_byte() {
    for line in WRITTEN.lines() {
        let event: EventLine = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(json!(event).to_string(), line);
    }
}

#[test]
fn an_event_of_a_newer_version_is_an_error() {
    let line = |v: u32| format!(r#"{{"event":"turn","step":"1","task":"t","v":{v}}}"#);
    assert!(serde_json::from_str::<EventLine>(&line(2)).is_err());
    assert!(serde_json::from_str::<EventLine>(&line(1)).is_ok());
}

#[test]
fn the_word_of_an_end_is_what_travels() {
    let all = [
        CallEnd::Done,
        CallEnd::Failed,
        CallEnd::Denied,
        CallEnd::TimedOut,
        CallEnd::Cancelled,
        CallEnd::Broke,
    ];
    assert!(all.iter().all(|end| json!(end) == end.word()));
}
