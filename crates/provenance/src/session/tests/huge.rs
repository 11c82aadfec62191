//! Outputs that are too large to index completely.

use super::*;

const LARGE: usize = 300_000;

fn filler(bytes: usize) -> String {
    "word ".repeat(bytes / 5)
}

#[test]
fn unindexed_text_has_no_origin() {
    let mut session = session("Read the letter", json!(null));
    observe_output(&mut session, "letter", json!(format!("first {} last@e.test", filler(LARGE))));
    let origin = |value: &str| session.transcript().origin(&json!(value)).word();
    assert_eq!((origin("first"), origin("last@e.test")), ("untrusted", "nowhere"));
    assert_eq!(stance(&session, "write", json!({"to": "last@e.test"})), Stance::Ask);
}

#[test]
fn untrusted_text_takes_no_space_from_trusted_outputs() {
    let mut session = session("Write to the sender", json!(null));
    for _ in 0..7 {
        let distinct: String = (0..40_000).map(|number| format!("w{number} ")).collect();
        observe_output(&mut session, "letter", json!(distinct));
    }
    observe_output(&mut session, "payments", json!([{"sender": "DE1200", "amount": 1}]));
    assert_eq!(session.transcript().origin(&json!("DE1200")).word(), "trusted");
}

/// A plan accepts the only address in an untrusted text. If the text was truncated, the address may not be the only one.
#[test]
fn no_value_of_a_truncated_text_is_unambiguous() {
    let plan = json!({"plan": [{"tool": "letter"}, {"tool": "pay", "args": {"to": {"from": ["letter"]}}}]});
    let pays = |letter: String| {
        let mut session = session("Pay what the letter says", plan.clone());
        observe_output(&mut session, "letter", json!(letter));
        session.rule("pay", &json!({"to": "GB29NWBK60161331926819"})).stance
    };
    let one = "pay to GB29NWBK60161331926819 please";
    let short = pays(format!("{one} {}", filler(1_000)));
    let long = pays(format!("{one} {}", filler(LARGE)));
    let cut = pays(format!("{one} {} not to US133000000121212121212", filler(LARGE)));
    assert_eq!((long, cut), (Stance::Ask, Stance::Ask));
    assert!(short <= long);
}

#[test]
fn asks_before_sending_unindexed_restricted_data() {
    let mut session = session("Write to eve@e.test and ann@a.test", json!(null));
    observe_output(&mut session, "salaries", json!({"remark": format!("{} Bob earns 1200", filler(LARGE))}));
    let ruling = session.rule("write", &json!({"to": "eve@e.test", "body": "Bob earns 1200"}));
    assert_eq!(ruling.stance, Stance::Ask, "{}", ruling.reason);
}
