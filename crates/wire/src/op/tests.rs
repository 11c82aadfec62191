//! How operations travel.

use std::collections::BTreeSet;

use super::Op;

/// One of every operation, and of its forms.
const WRITTEN: &str = include_str!("written.jsonl");

#[test]
fn an_operation_travels_byte_for_byte() {
    let mut names = BTreeSet::new();
    for line in WRITTEN.lines() {
        let op: Op = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(serde_json::to_string(&op).unwrap(), line);
        names.insert(op.name());
    }
    assert_eq!(names, Op::NAMES.iter().copied().collect(), "every operation is there");
}

#[test]
fn k7_policy_knows_exactly_the_operations_of_the_kernel() {
    let sorted = |names: &[&'static str]| {
        let mut names = names.to_vec();
        names.sort_unstable();
        names
    };
    assert_eq!(sorted(Op::NAMES), sorted(regent_policy::OPS));
}
