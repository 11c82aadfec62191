//! Marks find revealed values in every form, and disclose nothing about them.

use proptest::prelude::*;

use super::*;

const VALUE: &[u8] = b"ghp_TOPSECRETvalue0123456789";

fn knowing(value: &[u8]) -> Revealed {
    let mut revealed = Revealed::empty().unwrap();
    revealed.add("github/token", &Secret::new(value.to_vec()));
    Revealed::read(&revealed.write().unwrap()).unwrap()
}

#[test]
fn h2_finds_a_value_in_its_usual_forms_without_storing_it() {
    let revealed = knowing(VALUE);
    let hex: String = VALUE.iter().map(|byte| format!("{byte:02x}")).collect();
    for form in [String::from_utf8_lossy(VALUE).into_owned(), STANDARD.encode(VALUE), hex] {
        let mut text = format!("before {form} after").into_bytes();
        assert!(revealed.scrub(&mut text), "{form}");
        let text = String::from_utf8(text).unwrap();
        // The base64 padding may remain: it discloses only the length modulo three.
        assert_eq!(text.replace('=', ""), "before [secret:github/token] after");
    }
    // In the notation of `od` and C.
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
    // At most the longest window waits, or a longer form that has begun.
    let whole = [before.as_slice(), VALUE, &before].concat();
    assert_eq!(revealed.open_at(&whole), whole.len() - (WINDOW_BYTES_MAX - 1));
    let hex: String = VALUE.iter().map(|byte| format!("{byte:02x}")).collect();
    let begun = [before.as_slice(), &hex.as_bytes()[..WINDOW_BYTES_MAX + 2]].concat();
    assert_eq!(revealed.open_at(&begun), before.len());
}

impl Revealed {
    /// The record of one value in the format of an earlier version.
    pub(crate) fn older(form: u32, name: &str, value: &[u8]) -> Vec<u8> {
        let mut record = Revealed::empty().unwrap();
        record.add(name, &Secret::new(value.to_vec()));
        record.form = form;
        if form == FORM_WITH_SHORT_TAGS {
            let tag = record.short_tag(value);
            record.marks.retain(|mark| mark.length() == value.len());
            record.marks.iter_mut().for_each(|mark| mark.tag = tag);
        }
        record.write().unwrap()
    }
}

/// Random letters with a fixed part at one offset.
fn value_with(part: &[u8], at: usize, length: usize) -> Vec<u8> {
    let mut value = vec![0; length];
    getrandom::fill(&mut value).unwrap();
    value.iter_mut().for_each(|byte| *byte = b'a' + *byte % 26);
    value[at..at + part.len()].copy_from_slice(part);
    value
}

#[test]
fn h2_no_mark_depends_on_only_eleven_bytes_of_a_value() {
    const PART: &[u8] = b"elevenbytes";
    for length in 12..200 {
        let last = length - PART.len();
        for at in (0..last).step_by(13).chain([last]) {
            let mut revealed = Revealed::empty().unwrap();
            let one = value_with(PART, at, length);
            // A second value that differs in every other byte.
            let mut two: Vec<u8> = one.iter().map(|byte| b'a' + (byte - b'a' + 1) % 26).collect();
            two[at..at + PART.len()].copy_from_slice(PART);
            revealed.add("one", &Secret::new(one));
            revealed.add("two", &Secret::new(two));
            let marks = |value: usize| revealed.marks.iter().filter(move |mark| mark.value == value);
            assert!(marks(0).count() > 5, "{length}");
            let is_shared = |one: &Mark| {
                marks(1).any(|two| two.hash == one.hash || (two.tag, two.bytes) == (one.tag, one.bytes))
            };
            assert!(!marks(0).any(is_shared), "a part at {at} of {length} can be guessed by itself");
        }
    }
    // Shorter values have marks of the full value only.
    for length in 8..12 {
        let mut revealed = Revealed::empty().unwrap();
        let value = value_with(b"same", 0, length);
        revealed.add("one", &Secret::new(value.clone()));
        revealed.add("two", &Secret::new([&value[..length - 1], b"."].concat()));
        let hashes = |value: usize| revealed.marks.iter().filter(move |mark| mark.value == value);
        assert!(hashes(0).count() > 2, "{length}");
        assert!(!hashes(0).any(|one| hashes(1).any(|two| two.hash == one.hash)), "{length}");
    }
}

#[test]
fn h2_leading_escapes_do_not_shorten_the_window() {
    let mut revealed = Revealed::empty().unwrap();
    for (name, end) in
        [("one", "first end, which is long enough"), ("two", "other end, which is long enough")]
    {
        revealed
            .add(name, &Secret::new(format!("\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}\u{7}\u{1}\"{end}").into_bytes()));
    }
    let tags = |value: usize| revealed.marks.iter().filter(move |mark| mark.value == value);
    assert!(!tags(0).any(|one| tags(1).any(|two| (two.tag, two.bytes) == (one.tag, one.bytes))));
}

#[test]
fn h2_a_stream_waits_where_an_escaped_value_may_have_begun() {
    let revealed = knowing(VALUE);
    let escaped: String = VALUE.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    let text = format!("{}{escaped} after", "before ".repeat(12));
    for size in [1, 3, 7, 20, 50] {
        let (mut held, mut out) = (Vec::new(), Vec::new());
        for chunk in text.as_bytes().chunks(size) {
            held.extend_from_slice(chunk);
            let waits = held.split_off(revealed.open_at(&held));
            revealed.scrub(&mut held);
            out.append(&mut held);
            held = waits;
        }
        revealed.scrub(&mut held);
        out.append(&mut held);
        let shown = String::from_utf8(out).unwrap();
        assert!(shown.contains("[secret:github/token]") && !shown.contains("\\x50"), "{size}: {shown}");
    }
}

#[test]
fn h2_values_with_a_common_prefix_share_no_tag() {
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
fn h2_rejects_a_damaged_record() {
    let good = knowing(VALUE).write().unwrap();
    for bad in [&b""[..], b"{}", &good[..good.len() / 2], br#"{"form":9,"key":"","values":[]}"#] {
        assert!(Revealed::read(bad).is_err());
    }
}

proptest! {
    /// Finds a value wherever it occurs, and changes nothing else.
    #[test]
    fn h2_finds_a_value_exactly_where_it_occurs(before in proptest::collection::vec(any::<u8>(), 0..64), after in proptest::collection::vec(any::<u8>(), 0..64)) {
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
