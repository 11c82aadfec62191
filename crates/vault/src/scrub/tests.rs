//! Every usual form of a value is found, wherever it stands; nothing else is touched.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use proptest::prelude::*;

use super::*;

fn scrubber(values: &[(&str, &str)]) -> Scrubber {
    let values: Vec<_> = values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Secret::new(value.as_bytes().to_vec())))
        .collect();
    Scrubber::new(&values).unwrap()
}

fn scrubbed(scrubber: &Scrubber, text: &[u8]) -> (String, bool) {
    let mut bytes = text.to_vec();
    let masked = scrubber.scrub(&mut bytes);
    (String::from_utf8_lossy(&bytes).into_owned(), masked)
}

const VALUE: &str = "p@ss/w0rd+\"ü\\&<k>=";

#[test]
fn usual_forms() {
    let scrubber = scrubber(&[("t", VALUE)]);
    let hex: String = VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
    let cases = [
        VALUE.to_owned(),
        STANDARD.encode(VALUE),
        STANDARD_NO_PAD.encode(VALUE),
        URL_SAFE.encode(VALUE),
        URL_SAFE_NO_PAD.encode(VALUE),
        hex.clone(),
        hex.to_uppercase(),
        VALUE.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        VALUE.bytes().map(|byte| format!("%{byte:02x}")).collect(),
        "p%40ss%2Fw0rd%2B%22%C3%BC%5C%26%3Ck%3E%3D".to_owned(),
        "p%40ss%2fw0rd%2b%22%c3%bc%5c%26%3ck%3e%3d".to_owned(),
        "p%40ss/w0rd%2B%22%C3%BC%5C%26%3Ck%3E%3D".to_owned(),
        "p@ss/w0rd+%22%C3%BC%5C&%3Ck%3E=".to_owned(),
        "p@ss/w0rd+\\\"ü\\\\&<k>=".to_owned(),
        "p@ss\\/w0rd+\\\"\\u00fc\\\\&<k>=".to_owned(),
        "p@ss/w0rd+\\\"\\u00FC\\\\&<k>=".to_owned(),
        serde_json::to_string(&serde_json::to_string(VALUE).unwrap()).unwrap(),
        "p@ss/w0rd+&quot;ü\\&amp;&lt;k&gt;=".to_owned(),
    ];
    for form in cases {
        for text in [form.clone(), format!("before {form} after"), format!("x{form}{form}y")] {
            let (shown, masked) = scrubbed(&scrubber, text.as_bytes());
            assert!(masked, "not found: {text}");
            assert!(shown.contains("[secret:t]"), "{shown}");
            for part in ["w0rd", &hex[4..12], "cC9", "%77%30"] {
                assert!(!shown.contains(part), "`{part}` is left of {text}: {shown}");
            }
        }
    }
}

#[test]
fn base64_of_something_around_it() {
    let scrubber = scrubber(&[("t", "hunter2-hunter2")]);
    for before in ["", "u", "us", "user:", "Basic user"] {
        for after in ["", "\n", "more"] {
            for engine in [STANDARD, URL_SAFE] {
                let (shown, masked) =
                    scrubbed(&scrubber, engine.encode(format!("{before}hunter2-hunter2{after}")).as_bytes());
                assert!(masked, "{before}…{after}");
                // One letter at each end belongs half to the neighbour and says a few bits at most.
                let left = shown.replace("[secret:t]", "");
                assert!(left.len() <= (before.len() + after.len()).div_ceil(3) * 4 + 6, "{shown}");
            }
        }
    }
}

#[test]
fn long_values_in_lines() {
    let key: String = (0..40).map(|line| format!("line{line:02}-0123456789abcdefghijklmnop\n")).collect();
    let scrubber = scrubber(&[("k", &key)]);
    let encoded = STANDARD.encode(&key);
    for columns in [64, 76] {
        let wrapped: Vec<&str> =
            encoded.as_bytes().chunks(columns).map(|line| std::str::from_utf8(line).unwrap()).collect();
        let (shown, _) = scrubbed(&scrubber, wrapped.join("\n").as_bytes());
        assert!(shown.replace("[secret:k]", "").trim().len() < 8, "{shown}");
    }
    let indented: String = key.lines().map(|line| format!("    {line}\n")).collect();
    let (shown, _) = scrubbed(&scrubber, indented.as_bytes());
    assert!(!shown.contains("abcdef"), "{shown}");
}

#[test]
fn what_is_cut_is_masked_up_to_the_cut() {
    let scrubber = scrubber(&[("t", "0123456789abcdefghij")]);
    assert_eq!(scrubbed(&scrubber, b"is 0123456789abcdef"), ("is [secret:t]".to_owned(), true));
    assert_eq!(scrubbed(&scrubber, b"is 012345678"), ("is [secret:t]".to_owned(), true));
    assert_eq!(scrubbed(&scrubber, b"is 0123456"), ("is 0123456".to_owned(), false));
}

#[test]
fn values_within_values_are_masked_whole() {
    let scrubber =
        scrubber(&[("long", "abcdefgh-ijklmnop"), ("short", "ijklmnop"), ("over", "ijklmnop-qrstuv")]);
    assert_eq!(scrubbed(&scrubber, b"abcdefgh-ijklmnop.").0, "[secret:long].");
    assert_eq!(scrubbed(&scrubber, b"abcdefgh-ijklmnop-qrstuv.").0, "[secret:long].");
    assert_eq!(scrubbed(&scrubber, b"xijklmnopx").0, "x[secret:short]x");
}

#[test]
fn a_text_full_of_a_value_is_one_mask() {
    let scrubber = scrubber(&[("a", "aaaaaaaa")]);
    assert_eq!(scrubbed(&scrubber, &[b'a'; 100_000]).0, "[secret:a]");
}

#[test]
fn nothing_revealed_is_nothing_found() {
    let (shown, masked) = scrubbed(&Scrubber::default(), b"anything");
    assert_eq!((shown.as_str(), masked), ("anything", false));
    assert_eq!(Scrubber::default().part(&mut b"ab".to_vec()).bytes, b"ab");
}

fn streamed(scrubber: &Scrubber, chunks: &[&[u8]]) -> Vec<u8> {
    let (mut held, mut out) = (Vec::new(), Vec::new());
    for chunk in chunks {
        held.extend_from_slice(chunk);
        out.extend(scrubber.part(&mut held).bytes);
    }
    scrubber.scrub(&mut held);
    out.extend(held);
    out
}

#[test]
fn a_stream_holds_back_only_what_may_be_a_value() {
    let scrubber = scrubber(&[("t", "hunter2-hunter2")]);
    let mut held = b"plain text hun".to_vec();
    assert_eq!(scrubber.part(&mut held).bytes, b"plain text ");
    assert_eq!(held, b"hun");
    held.extend(b"ting ");
    assert_eq!(scrubber.part(&mut held).bytes, b"hunting ");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chunks_change_nothing(text in "[ab]{0,40}", cuts in prop::collection::vec(0_usize..40, 0..6)) {
        // Values that overlap themselves and each other, over a text full of their parts.
        let scrubber = scrubber(&[("x", "abaabaab"), ("y", "aabaabaabb")]);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
        let streamed = String::from_utf8(streamed(&scrubber, &chunks)).unwrap();
        // Neighbouring masks may be one or two; no value may be left.
        for value in ["abaabaab", "aabaabaabb"] {
            prop_assert!(!streamed.contains(value), "{text} became {streamed}");
        }
    }

    #[test]
    fn no_form_of_any_value_is_left(value in "\\PC{8,40}", before in "\\PC{0,9}", after in "\\PC{0,9}") {
        let scrubber = scrubber(&[("t", &value)]);
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        let around = format!("{before}{value}{after}");
        for (text, form) in [
            (around.clone(), value.clone()),
            (hex(&around), hex(&value)),
            (serde_json::to_string(&around).unwrap(), serde_json::to_string(&value).unwrap().trim_matches('"').to_owned()),
            (STANDARD.encode(&around), STANDARD_NO_PAD.encode(&value)),
        ] {
            let (shown, masked) = scrubbed(&scrubber, text.as_bytes());
            prop_assert!(masked, "{text}");
            prop_assert!(!shown.contains(&form), "{shown}");
        }
    }

    #[test]
    fn other_texts_stay_as_they_are(text in "[a-y ]{0,200}") {
        let scrubber = scrubber(&[("t", "Zxcvbnm-Zxcvbnm")]);
        prop_assert_eq!(scrubbed(&scrubber, text.as_bytes()), (text, false));
    }
}
