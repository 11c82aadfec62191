//! What holds for every backend, and for the names of records.

pub(crate) mod beds;
mod contract;
mod loops;

use proptest::prelude::*;

use crate::Partition;
use crate::key_part;

#[test]
fn a_part_of_a_key_is_the_name_or_its_digest() {
    assert_eq!(key_part("did:key-1_a.b"), "did:key-1_a.b");
    assert_eq!(key_part("a/b"), "~c14cddc033f64b9dea80ea675cf280a015e672516090a5626781153dc68fea11");
}

#[test]
fn records_that_one_step_writes_are_in_one_partition() {
    for (key, partition) in [
        ("question/a1", "approval"),
        ("question-of/d1/a1", "approval"),
        ("attention/of/ann", "approval"),
        ("rate/00ff/ann", "rate/ann"),
        ("rate/00ff", "rate"),
        ("examined/~ab/3", "examined/~ab"),
        ("budget/user/day", "budget/user/day"),
        ("history/session/s/x", "history"),
        ("labels.tool/s/t", "labels"),
        ("labels.count", "labels"),
        ("stored.key/a/b", "stored"),
        ("stored/a", "stored"),
        ("", "none"),
        ("/", "none"),
    ] {
        assert_eq!(Partition::containing(key).as_str(), partition, "{key}");
    }
    let long = Partition::containing(&"k".repeat(500));
    assert!(long.as_str().starts_with('~') && long.as_str().len() < 256);
    assert!(Partition::new("").is_err() && Partition::new("p".repeat(257)).is_err());
    assert!(Partition::new("p".repeat(256)).is_ok());
}

proptest! {
    #[test]
    fn odd_names_stay_one_part_of_a_key(text in any::<String>(), other in any::<String>()) {
        let part = key_part(&text);
        prop_assert!(!part.is_empty() && part.len() <= 66 && !part.contains('/'));
        prop_assert_eq!(text == other, part == key_part(&other));
    }
}
