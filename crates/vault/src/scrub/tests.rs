//! Finds every usual form of a value at any position, and changes nothing else.

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

/// One line of `xxd`, `hexdump -C` or `hexdump`.
fn dump(bytes: &[u8], kind: &str) -> String {
    let text = |row: &[u8]| -> String {
        row.iter().map(|byte| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' }).collect()
    };
    let mut out = String::new();
    for (number, row) in bytes.chunks(16).enumerate() {
        let offset = number * 16;
        let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        out += &match kind {
            "xxd" => {
                let groups: Vec<String> = hex.chunks(2).map(|pair| pair.concat()).collect();
                format!("{offset:08x}: {:<39}  {}\n", groups.join(" "), text(row))
            }
            "canonical" => {
                let (one, two) = hex.split_at(hex.len().min(8));
                format!("{offset:08x}  {}  {}  |{}|\n", one.join(" "), two.join(" "), text(row))
            }
            _words => {
                let groups: Vec<String> =
                    hex.chunks(2).map(|pair| pair.iter().rev().cloned().collect()).collect();
                format!("{offset:07x} {}\n", groups.join(" "))
            }
        };
    }
    out
}

#[test]
fn l6_other_forms_that_programs_print() {
    const SECRET: &str = "hunter2-Hunter3=hunter4";
    let scrubber = scrubber(&[("t", SECRET)]);
    let each = |form: &dyn Fn(u8) -> String| SECRET.bytes().map(form).collect::<Vec<_>>();
    let wide = |big: bool| -> Vec<u8> {
        SECRET
            .encode_utf16()
            .flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() })
            .collect()
    };
    let wrapped = |text: &str, columns: usize| -> String {
        let lines: Vec<_> = text.as_bytes().chunks(columns).map(String::from_utf8_lossy).collect();
        lines.join("\n")
    };
    let around = format!("some text before {SECRET} and after");
    let cases: Vec<(&str, String)> = vec![
        ("hex with colons", each(&|byte| format!("{byte:02x}")).join(":")),
        ("hex with spaces", each(&|byte| format!("{byte:02X}")).join(" ")),
        ("hex in C", each(&|byte| format!("0x{byte:02x}")).join(", ")),
        ("backslash x", each(&|byte| format!("\\x{byte:02x}")).concat()),
        ("backslash x, quoted again", each(&|byte| format!("\\\\x{byte:02x}")).concat()),
        ("backslash u", each(&|byte| format!("\\u{byte:04x}")).concat()),
        ("octal", each(&|byte| format!("\\{byte:03o}")).concat()),
        ("decimal entities", each(&|byte| format!("&#{byte};")).concat()),
        ("hex entities", each(&|byte| format!("&#x{byte:x};")).concat()),
        ("quoted-printable", each(&|byte| format!("={byte:02X}")).concat()),
        ("quoted-printable of what needs it", SECRET.replace('=', "=3D")),
        ("quoted-printable, broken", format!("{}=\n{}", &SECRET[..9], &SECRET[9..])),
        ("percent twice", each(&|byte| format!("%25{byte:02X}")).concat()),
        ("some of it escaped", format!("hunter2%2DHunter3%3d{}", "hunter4")),
        ("some of it escaped in JSON", "hunter2\\u002dHunter3\\u003dhunter4".to_owned()),
        ("base64 at 20", wrapped(&STANDARD.encode(&around), 20)),
        ("base64 at 48", wrapped(&STANDARD.encode(around.repeat(3)), 48)),
        ("base64 of base64", STANDARD.encode(STANDARD.encode(&around))),
        ("base64 of UTF-16", STANDARD.encode(wide(false))),
        ("base64 of UTF-16BE", STANDARD.encode(wide(true))),
        ("base32", "NB2W45DFOIZC2SDVNZ2GK4RTHVUHK3TUMVZDI===".to_owned()),
        ("base32 in lower case", "nb2w45dfoizc2sdvnz2gk4rthvuhk3tumvzdi===".to_owned()),
        ("xxd", dump(around.as_bytes(), "xxd")),
        ("hexdump -C", dump(around.as_bytes(), "canonical")),
        ("hexdump", dump(around.as_bytes(), "words")),
    ];
    for (name, text) in cases {
        let (shown, masked) = scrubbed(&scrubber, format!("first line\n{text}\nlast line").as_bytes());
        assert!(masked && shown.contains("[secret:t]"), "{name}: {text}\n{shown}");
        assert!(shown.starts_with("first line\n") && shown.ends_with("\nlast line"), "{name}: {shown}");
        for part in ["unter", "nter3", "756e", "75 6e", "75:6e", "aHVud", "x75", "u0075", "=75", "&#117"] {
            assert!(!shown.contains(part), "{name}: `{part}` is left: {shown}");
        }
    }
    let (shown, masked) = scrubbed(&scrubber, &[b"a".as_slice(), &wide(true), b"b"].concat());
    assert_eq!((shown.as_str(), masked), ("a[secret:t]b", true));
}

#[test]
fn l6_a_stream_holds_back_what_may_be_an_escaped_value() {
    const SECRET: &str = "hunter2-hunter2";
    let scrubber = scrubber(&[("t", SECRET)]);
    for form in [
        SECRET.bytes().map(|byte| format!("\\x{byte:02x}")).collect::<String>(),
        SECRET.bytes().map(|byte| format!("{byte:02x}:")).collect(),
        SECRET.bytes().map(|byte| format!("&#{byte};")).collect(),
    ] {
        let text = format!("before {form} after");
        for size in [1, 3, 7, 20] {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let shown = String::from_utf8(streamed(&scrubber, &chunks)).unwrap();
            let left = shown.matches("75").count() + shown.matches("117").count();
            assert!(left <= 1 && shown.contains("[secret:t]"), "{size}: {shown}");
        }
    }
}

#[test]
fn l6_leaves_ordinary_text_unchanged() {
    let scrubber = scrubber(&[("t", "hunter2-hunter2")]);
    let text = "id=550e8400 a=12 b=3D%20x \\n \\x41 &amp; &#65; 10:20:30:40 de:ad:be:ef 00000000: 4142 4344 ABCD\nabcd\nefgh\n";
    assert_eq!(scrubbed(&scrubber, text.as_bytes()), (text.to_owned(), false));
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
                // The character at each end also depends on the neighbouring text and discloses a few bits at most.
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
fn masks_a_truncated_value_up_to_the_cut() {
    let scrubber = scrubber(&[("t", "0123456789abcdefghij")]);
    assert_eq!(scrubbed(&scrubber, b"is 0123456789abcdef"), ("is [secret:t]".to_owned(), true));
    assert_eq!(scrubbed(&scrubber, b"is 012345678"), ("is [secret:t]".to_owned(), true));
    assert_eq!(scrubbed(&scrubber, b"is 0123456"), ("is 0123456".to_owned(), false));
}

#[test]
fn half_of_a_short_value_is_enough_to_be_masked_at_a_cut() {
    // The longer value begins alike, and of that one four bytes say little.
    let scrubber = scrubber(&[("short", "hunter22"), ("long", "hunt-0123456789abcdef")]);
    assert_eq!(scrubbed(&scrubber, b"is hunter2").0, "is [secret:short]");
    assert_eq!(scrubbed(&scrubber, b"is hunt").0, "is [secret:short]");
    assert_eq!(scrubbed(&scrubber, b"is hun").0, "is hun");
}

#[test]
fn masks_nested_values_completely() {
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
fn an_empty_scrubber_finds_nothing() {
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
        // Values that overlap themselves and each other, in a text full of their parts.
        let scrubber = scrubber(&[("x", "abaabaab"), ("y", "aabaabaabb")]);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
        let streamed = String::from_utf8(streamed(&scrubber, &chunks)).unwrap();
        // Adjacent masks may be merged or not; no value may remain.
        for value in ["abaabaab", "aabaabaabb"] {
            prop_assert!(!streamed.contains(value), "{text} became {streamed}");
        }
    }

    #[test]
    fn masks_every_form_of_any_value(value in "\\PC{8,40}", before in "\\PC{0,9}", after in "\\PC{0,9}") {
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
    fn other_texts_stay_unchanged(text in "[a-y ]{0,200}") {
        let scrubber = scrubber(&[("t", "Zxcvbnm-Zxcvbnm")]);
        prop_assert_eq!(scrubbed(&scrubber, text.as_bytes()), (text, false));
    }
}

#[test]
fn readings_track_sources_in_runs() {
    let value: Vec<u8> = (0..40_000_u32).map(|number| b'a' + (number % 23) as u8).collect();
    let spaced: String = value.iter().map(|byte| format!("{byte:02x} ")).collect();
    let escaped: String = value.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    for (text, width, step) in [(spaced, 2, 3), (escaped, 4, 4)] {
        let readings = normal::readings(text.as_bytes(), 100, normal::Least::WHOLE);
        let reading = readings.iter().find(|reading| reading.bytes == value).unwrap();
        for byte in [0, 1, 2, 20_000, 39_999] {
            assert_eq!(reading.start_of(byte), Some(byte * step));
        }
        assert_eq!((reading.end(), reading.start_of(40_000)), (39_999 * step + width, None));
        assert!(reading.runs() < 10, "{}", reading.runs());
    }
}
