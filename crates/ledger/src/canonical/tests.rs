//! Cases of RFC 8785, and properties of `to_vec`, `parse` and `check`.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use super::*;

fn spell(value: &impl Serialize) -> String {
    String::from_utf8(to_vec(value).unwrap()).unwrap()
}

#[test]
fn numbers_are_spelled_as_in_rfc_8785() {
    let cases: &[(u64, &str)] = &[
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, text) in cases {
        assert_eq!(&spell(&f64::from_bits(*bits)), text);
    }
}

#[test]
fn writes_the_rfc_8785_sample_exactly() {
    let input = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let expected = concat!(
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
        r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
    );
    assert_eq!(spell(&parse(input.as_bytes()).unwrap()), expected);
}

#[test]
fn keys_sort_by_utf_16_units() {
    let mut map = BTreeMap::new();
    for key in ["\u{20ac}", "\r", "\u{fb33}", "1", "\u{1f600}", "\u{80}", "\u{f6}"] {
        map.insert(key, 0);
    }
    let order: Vec<String> = ["\\r", "1", "\u{80}", "\u{f6}", "\u{20ac}", "\u{1f600}", "\u{fb33}"]
        .map(|key| format!("\"{key}\":0"))
        .into();
    assert_eq!(spell(&map), format!("{{{}}}", order.join(",")));
}

#[test]
fn unsorted_structs_are_sorted_and_enums_are_tagged() {
    #[derive(Serialize)]
    struct Inner {
        z: u8,
        a: Option<u8>,
    }
    #[derive(Serialize)]
    enum Shape {
        Unit,
        New(Inner),
        Tuple(u8, u8),
        Fields { b: u8, a: u8 },
    }
    let shapes =
        [Shape::Unit, Shape::New(Inner { z: 1, a: None }), Shape::Tuple(1, 2), Shape::Fields { b: 2, a: 1 }];
    assert_eq!(
        spell(&shapes),
        r#"["Unit",{"New":{"a":null,"z":1}},{"Tuple":[1,2]},{"Fields":{"a":1,"b":2}}]"#
    );
}

#[test]
fn adv_002_rejects_ambiguous_json() {
    let deep_ok = format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
    assert!(parse(deep_ok.as_bytes()).is_ok());
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    type Expected = fn(&CanonicalError) -> bool;
    let cases: &[(&[u8], Expected)] = &[
        (br#"{"a":1,"a":2}"#, |e| matches!(e, CanonicalError::DuplicateKey(_))),
        (br#"{"a":1,"\u0061":2}"#, |e| matches!(e, CanonicalError::DuplicateKey(_))),
        (br#""\ud800""#, |e| matches!(e, CanonicalError::LoneSurrogate { .. })),
        (br#""\udc00""#, |e| matches!(e, CanonicalError::LoneSurrogate { .. })),
        (br#""\ud800\u0041""#, |e| matches!(e, CanonicalError::LoneSurrogate { .. })),
        (b"9007199254740992", |e| matches!(e, CanonicalError::IntegerRange)),
        (b"-9007199254740993", |e| matches!(e, CanonicalError::IntegerRange)),
        (b"9999199999e10", |e| matches!(e, CanonicalError::IntegerRange)),
        (b"1e999", |e| matches!(e, CanonicalError::NotFinite)),
        (b"NaN", |e| matches!(e, CanonicalError::Syntax { .. })),
        (b"\xef\xbb\xbf{}", |e| matches!(e, CanonicalError::Syntax { .. })),
        (b"\"\xff\"", |e| matches!(e, CanonicalError::NotUtf8)),
        (b"\"\x00\"", |e| matches!(e, CanonicalError::Syntax { .. })),
        (b"{} {}", |e| matches!(e, CanonicalError::Syntax { .. })),
        (b"01", |e| matches!(e, CanonicalError::Syntax { .. })),
        (b"[1,]", |e| matches!(e, CanonicalError::Syntax { .. })),
        (b"", |e| matches!(e, CanonicalError::Syntax { .. })),
        (deep.as_bytes(), |e| matches!(e, CanonicalError::TooDeep)),
    ];
    for (input, expected) in cases {
        let error = parse(input).unwrap_err();
        assert!(expected(&error), "{:?}: {error:?}", String::from_utf8_lossy(input).get(..20));
    }
}

#[test]
fn rejects_values_without_canonical_spelling() {
    assert_eq!(to_vec(&f64::NAN), Err(CanonicalError::NotFinite));
    assert_eq!(to_vec(&u64::MAX), Err(CanonicalError::IntegerRange));
    assert_eq!(to_vec(&1e17), Err(CanonicalError::IntegerRange));
    assert_eq!(to_vec(&i64::MIN), Err(CanonicalError::IntegerRange));
    assert_eq!(to_vec(&BTreeMap::from([((1, 2), 3)])), Err(CanonicalError::KeyNotText));
}

#[test]
fn check_refuses_every_other_spelling() {
    let canonical = ["{}", "[]", r#"{"a":1,"b":[true,null]}"#, r#""\u001f\n""#, "-1", "1.5", "1e+21", "0"];
    for text in canonical {
        assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
    }
    let other = [
        "",
        "{",
        "[1",
        " 1",
        "1 ",
        "-0",
        "01",
        "1.0",
        "1e5",
        "1E+21",
        r#"{"b":1,"a":2}"#,
        r#"{"a":1,"a":2}"#,
        r#""\u000a""#,
        r#""\u001F""#,
        r#""\/""#,
        r#""\u0041""#,
        r#"{"a": 1}"#,
        "[1,]",
        "9007199254740992",
        "--1",
        "1-1",
        "nul",
        "+1",
        ".5",
        "1.",
    ];
    for text in other {
        assert!(check(text.as_bytes()).is_err(), "{text}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9_007_199_254_740_991i64..=9_007_199_254_740_991).prop_map(Value::from),
        any::<f64>()
            .prop_filter("no canonical spelling", |n| n.is_finite() && (n.abs() < 9e15 || n.abs() >= 1e21))
            .prop_map(|n| json!(n)),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn written_values_are_canonical_and_read_back(value in any_json()) {
        let bytes = to_vec(&value).unwrap();
        prop_assert_eq!(check(&bytes), Ok(()));
        let back = parse(&bytes).unwrap();
        prop_assert_eq!(to_vec(&back).unwrap(), bytes);
    }

    #[test]
    fn our_reader_accepts_no_more_than_serde_json(text in r#"[\[\]{}",:0-9eE+\-.a\\u\u{0}d8]{0,24}"#) {
        if let Ok(value) = parse(text.as_bytes()) {
            let other: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(to_vec(&value).ok(), to_vec(&other).ok());
        }
    }

    #[test]
    fn no_bytes_make_the_readers_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let canonical = check(&bytes).is_ok();
        prop_assert!(!canonical || parse(&bytes).is_ok());
    }

    #[test]
    fn every_prefix_of_canonical_bytes_is_incomplete_not_wrong(value in any_json()) {
        let bytes = to_vec(&json!({"v": value})).unwrap();
        for end in (0..bytes.len()).filter(|end| std::str::from_utf8(&bytes[..*end]).is_ok()) {
            prop_assert_eq!(Cursor::new(&bytes[..end]).object(1), Err(Flaw::Incomplete));
        }
    }
}
