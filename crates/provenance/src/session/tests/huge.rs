//! Outputs that are too large to look at as a whole.

use super::*;

const LARGE: usize = 300_000;

fn filler(bytes: usize) -> String {
    "word ".repeat(bytes / 5)
}

#[test]
fn what_is_not_indexed_is_found_nowhere() {
    let mut session = session("Read the letter", json!(null));
    hear(&mut session, "letter", json!(format!("first {} last@e.test", filler(LARGE))));
    let origin = |value: &str| session.transcript().origin(&json!(value)).word();
    assert_eq!((origin("first"), origin("last@e.test")), ("untrusted", "nowhere"));
    assert_eq!(stance(&session, "write", json!({"to": "last@e.test"})), Stance::Ask);
}

#[test]
fn strangers_take_no_room_from_trusted_outputs() {
    let mut session = session("Write to the sender", json!(null));
    for _ in 0..7 {
        let distinct: String = (0..40_000).map(|number| format!("w{number} ")).collect();
        hear(&mut session, "letter", json!(distinct));
    }
    hear(&mut session, "payments", json!([{"sender": "DE1200", "amount": 1}]));
    assert_eq!(session.transcript().origin(&json!("DE1200")).word(), "trusted");
}

/// With a plan, the only address in a stranger's text may be taken. Of a text that was not looked at to its end nobody can say that.
#[test]
fn no_value_is_the_only_one_where_something_was_not_looked_at() {
    let plan = json!({"plan": [{"tool": "letter"}, {"tool": "pay", "args": {"to": {"from": ["letter"]}}}]});
    let pays = |letter: String| {
        let mut session = session("Pay what the letter says", plan.clone());
        hear(&mut session, "letter", json!(letter));
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
fn what_some_may_read_and_nobody_looked_at_goes_to_others_only_if_asked() {
    let mut session = session("Write to eve@e.test and ann@a.test", json!(null));
    hear(&mut session, "salaries", json!({"remark": format!("{} Bob earns 1200", filler(LARGE))}));
    let ruling = session.rule("write", &json!({"to": "eve@e.test", "body": "Bob earns 1200"}));
    assert_eq!(ruling.stance, Stance::Ask, "{}", ruling.reason);
}
