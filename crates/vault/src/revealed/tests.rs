//! Marks find what was revealed, in every form, and give nothing of it away.

use proptest::prelude::*;

use super::*;

const VALUE: &[u8] = b"ghp_TOPSECRETvalue0123456789";

fn knowing(value: &[u8]) -> Revealed {
    let mut revealed = Revealed::empty().unwrap();
    revealed.add("github/token", &Secret::new(value.to_vec()));
    Revealed::read(&revealed.write().unwrap()).unwrap()
}

#[test]
fn h2_a_value_is_found_in_its_usual_forms_without_being_kept() {
    let revealed = knowing(VALUE);
    let hex: String = VALUE.iter().map(|byte| format!("{byte:02x}")).collect();
    for form in [String::from_utf8_lossy(VALUE).into_owned(), STANDARD.encode(VALUE), hex] {
        let mut text = format!("before {form} after").into_bytes();
        assert!(revealed.scrub(&mut text), "{form}");
        let text = String::from_utf8(text).unwrap();
        // The padding of base64 may stay: it says how long the value is modulo three, no more.
        assert_eq!(text.replace('=', ""), "before [secret:github/token] after");
    }
    // As `od` and C put it.
    let spaced: String = VALUE.iter().map(|byte| format!(" {byte:02x}")).collect();
    let escaped: String = VALUE.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    for form in [spaced, escaped] {
        let mut text = format!("before {form} after").into_bytes();
        assert!(revealed.scrub(&mut text), "{form}");
        assert!(!String::from_utf8_lossy(&text).contains(form.trim()), "{form}");
    }
    let written = revealed.write().unwrap();
    for window in VALUE.windows(6) {
        assert!(memchr::memmem::find(&written, window).is_none());
    }
    assert!(revealed.knows("github/token", &Secret::new(VALUE.to_vec())));
    assert!(!revealed.knows("github/token", &Secret::new(b"another value".to_vec())));
}

#[test]
fn h2_a_stream_waits_where_a_value_may_have_begun() {
    let revealed = knowing(VALUE);
    assert_eq!(Revealed::empty().unwrap().open_at(b"anything"), 8, "nothing is known: nothing waits");
    let before = [b' '; 60];
    for begun in 1..VALUE.len() {
        let text = [before.as_slice(), &VALUE[..begun]].concat();
        assert!(revealed.open_at(&text) <= before.len(), "{begun}");
    }
    // No more waits than the longest window, or a form that is longer and has begun.
    let whole = [before.as_slice(), VALUE, &before].concat();
    assert_eq!(revealed.open_at(&whole), whole.len() - (WINDOW_BYTES_MAX - 1));
    let hex: String = VALUE.iter().map(|byte| format!("{byte:02x}")).collect();
    let begun = [before.as_slice(), &hex.as_bytes()[..WINDOW_BYTES_MAX + 2]].concat();
    assert_eq!(revealed.open_at(&begun), before.len());
}

#[test]
fn h2_values_that_begin_alike_have_no_tag_in_common() {
    let mut revealed = Revealed::empty().unwrap();
    revealed.add("one", &Secret::new(b"eleven byte1 and the rest".to_vec()));
    revealed.add("two", &Secret::new(b"eleven byte2 and the rest".to_vec()));
    let tags = |value: usize| -> Vec<u32> {
        revealed.marks.iter().filter(|mark| mark.value == value).map(|mark| mark.tag).collect()
    };
    let (one, two) = (tags(0), tags(1));
    assert!(one.len() > 5, "{one:?}");
    assert!(one.iter().all(|tag| !two.contains(tag)), "a tag tells how a value begins");
}

#[test]
fn h2_a_damaged_record_is_refused() {
    let good = knowing(VALUE).write().unwrap();
    for bad in [&b""[..], b"{}", &good[..good.len() / 2], br#"{"form":9,"key":"","values":[]}"#] {
        assert!(Revealed::read(bad).is_err());
    }
}

proptest! {
    /// Wherever it stands, it is found; where it doesn't stand, nothing is changed.
    #[test]
    fn h2_found_exactly_where_it_stands(before in proptest::collection::vec(any::<u8>(), 0..64), after in proptest::collection::vec(any::<u8>(), 0..64)) {
        let revealed = knowing(VALUE);
        let mut text = [before.as_slice(), VALUE, after.as_slice()].concat();
        prop_assert!(revealed.scrub(&mut text));
        prop_assert_eq!(text, [before.as_slice(), b"[secret:github/token]", after.as_slice()].concat());
        let mut other = [before.as_slice(), after.as_slice()].concat();
        let same = other.clone();
        prop_assert!(!revealed.scrub(&mut other));
        prop_assert_eq!(other, same);
    }
}
