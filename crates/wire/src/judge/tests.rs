//! How messages of the judge and their answers travel. Answers are what hosts got before answers had types.

use serde_json::json;

use super::*;

/// One of each message.
const MESSAGES: &str = include_str!("messages.jsonl");
/// One of each answer, and of its forms.
const ANSWERS: &str = include_str!("answers.jsonl");

#[test]
fn answers_given_before_they_had_types_are_read_and_written_byte_for_byte() {
    for line in ANSWERS.lines() {
        let answer: JudgeAnswer =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(json!(answer).to_string(), line);
    }
}

#[test]
fn messages_are_read_with_and_without_their_version() {
    for line in MESSAGES.lines() {
        let message: JudgeMessage =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(message.session(), "s");
        let mut said = json!(message);
        assert_eq!(serde_json::from_value::<JudgeMessage>(said.clone()).unwrap(), message);
        said["v"] = json!(1);
        assert_eq!(serde_json::from_value::<JudgeMessage>(said.clone()).unwrap(), message);
        said["v"] = json!(2);
        assert!(
            serde_json::from_value::<JudgeMessage>(said.clone()).is_err(),
            "a newer version is not guessed at"
        );
        said["v"] = json!(1);
        said["misspelt"] = json!(1);
        assert!(serde_json::from_value::<JudgeMessage>(said).is_err());
    }
}
