//! What holds for every backend, and for the names of records.

pub(crate) mod contract;

use proptest::prelude::*;

use crate::key_part;

#[test]
fn a_part_of_a_key_is_the_name_or_its_digest() {
    assert_eq!(key_part("did:key-1_a.b"), "did:key-1_a.b");
    assert_eq!(key_part("a/b"), "~c14cddc033f64b9dea80ea675cf280a015e672516090a5626781153dc68fea11");
}

proptest! {
    #[test]
    fn odd_names_stay_one_part_of_a_key(text in any::<String>(), other in any::<String>()) {
        let part = key_part(&text);
        prop_assert!(!part.is_empty() && part.len() <= 66 && !part.contains('/'));
        prop_assert_eq!(text == other, part == key_part(&other));
    }
}
