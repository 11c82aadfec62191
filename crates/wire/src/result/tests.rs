//! How results travel. Each line is an operation and what the kernel wrote before results had types.

use serde_json::json;

use super::*;
use crate::{OpenQuestion, TokenSummary};

/// One of each result, and of its forms.
const WRITTEN: &str = include_str!("written.txt");

/// Reads a result and writes it as the kernel does.
fn again<T: Serialize + DeserializeOwned>(line: &str) -> String {
    let result: T = read(&Status::Ok, line.as_bytes()).unwrap_or_else(|error| panic!("{error}: {line}"));
    json!(result).to_string()
}

type Again = fn(&str) -> String;

const TYPES: &[(&str, Again)] = &[
    ("agent.spawn", again::<Spawned>),
    ("agent.wait", again::<Waited>),
    ("agent.exit", again::<Exited>),
    ("agent.list", again::<Vec<AgentView>>),
    ("signal.send", again::<Signalled>),
    ("signal.action", again::<SignalAction>),
    ("signal.mask", again::<SignalMask>),
    ("signal.pending", again::<PendingSignals>),
    ("vfs.open", again::<Opened>),
    ("vfs.close", again::<Closed>),
    ("vfs.write", again::<WrittenFile>),
    ("vfs.stat", again::<FileStat>),
    ("vfs.list", again::<FolderNames>),
    ("vfs.mount", again::<Mounted>),
    ("vfs.unmount", again::<Unmounted>),
    ("memory.remember", again::<Remembered>),
    ("memory.recall", again::<Recollection>),
    ("pipe.open", again::<Piped>),
    ("pipe.send", again::<Sent>),
    ("policy.get", again::<PolicyView>),
    ("policy.check", again::<Checked>),
    ("approval.answer", again::<AnswerTaken>),
    ("approval.list", again::<Vec<OpenQuestion>>),
    ("budget.set", again::<BudgetSet>),
    ("token.list", again::<Vec<TokenSummary>>),
    ("auth.whoami", again::<Identity>),
    ("request.begin", again::<Begun>),
    ("label.declassify", again::<LabelLowered>),
];

#[test]
fn results_written_before_they_had_types_are_read_and_written_byte_for_byte() {
    for line in WRITTEN.lines() {
        let (op, result) = line.split_once(' ').unwrap();
        let (_, again) = TYPES.iter().find(|(name, _)| *name == op).unwrap_or_else(|| panic!("{op}"));
        assert_eq!(again(result), result, "{op}");
    }
    assert!(TYPES.iter().all(|(op, _)| WRITTEN.lines().any(|line| line.starts_with(op))));
}
