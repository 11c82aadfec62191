//! Labels of stored values: how they follow from a session, join, and restrict a later read.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::ruling::Stance;
use crate::session::{Observed, Reading, Trusted};

fn session(request: &str) -> Session {
    let declared = json!({
        "letter": {"effect": "read", "taint": "all"},
        "bank": {"effect": "read", "taint": "none", "secret": true},
        "salaries": {"effect": "read", "taint": "none", "readers": ["ann@a.test", "bob@b.test"]},
        "recall": {"effect": "read", "taint": "none"},
        "remember": {"effect": "write", "taint": "none", "sinks": ["key"]},
        "pay": {"effect": "write", "taint": "none", "sinks": ["to"]},
    });
    let of = |(name, labels): (&String, &Value)| (name.clone(), FieldLabels::declared(labels, &Value::Null));
    let tools: HashMap<String, FieldLabels> = declared.as_object().unwrap().iter().map(of).collect();
    Session::begin(request, tools, Trusted::default()).unwrap()
}

fn observe_output(session: &mut Session, tool: &str, output: &Value, stored: &StoredLabel) {
    let observed = Observed {
        call: 1,
        tool,
        output,
        failed: false,
        agreed: None,
        cleared: None,
        reading: Reading::Whole,
    };
    session.observe_stored(None, &observed, stored);
}

fn wrote(session: &Session, args: &Value) -> StoredLabel {
    let ruling = session.rule("remember", args);
    session.stored_label("remember", args, Some(&ruling), &["text".to_owned()])
}

#[test]
fn written_values_get_the_label_of_the_session() {
    const REQUEST: &str = "remember under ann that she likes tea";
    let cases = [
        (None, "she likes tea", (false, false)),
        (None, "a word of the agent's own", (false, false)),
        (Some(("letter", "ann moved to Mallory Vance")), "ann moved to Mallory Vance", (true, false)),
        // The outsider may have chosen what is stored and under which key.
        (Some(("letter", "ann moved to Mallory Vance")), "she likes tea", (true, false)),
        (Some(("bank", "code 7781-aaa")), "code 7781-aaa", (false, true)),
        (Some(("bank", "code 7781-aaa")), "7781 in other letters", (false, true)),
        (Some(("bank", "code 7781-aaa")), "she likes tea", (false, false)),
    ];
    for (received, text, (untrusted, confidential)) in cases {
        let mut session = session(REQUEST);
        if let Some((tool, output)) = received {
            observe_output(&mut session, tool, &json!(output), &StoredLabel::default());
        }
        let label = wrote(&session, &json!({"key": "ann", "text": text}));
        assert_eq!((label.untrusted, label.confidential), (untrusted, confidential), "{received:?}: {text}");
        assert!(label.readers.is_empty(), "{received:?}: {text}");
    }
    let unruled = session(REQUEST).stored_label("remember", &json!({}), None, &[]);
    assert_eq!(unruled, StoredLabel::worst());
}

#[test]
fn argument_keys_carry_labels_like_values() {
    let mut session = session("remember under ann that she likes tea");
    observe_output(&mut session, "bank", &json!("hunter2-password-9931"), &StoredLabel::default());
    assert!(wrote(&session, &json!({"key": "ann", "text": {"hunter2-password-9931": ""}})).confidential);
}

#[test]
fn readers_survive_a_store() {
    let mut first = session("remember under pay what ann earns");
    observe_output(&mut first, "salaries", &json!("ann earns 4711"), &StoredLabel::default());
    let label = wrote(&first, &json!({"key": "pay", "text": "4711"}));
    assert_eq!(Vec::from_iter(&label.readers), ["ann@a.test", "bob@b.test"]);
    for (to, stance) in [("ann@a.test", Stance::Allow), ("eve@e.test", Stance::Ask)] {
        let mut later = session("pay ann@a.test or eve@e.test as recall says");
        observe_output(&mut later, "recall", &json!("4711"), &label);
        assert_eq!(later.rule("pay", &json!({"to": to, "amount": "4711"})).stance, stance, "{to}");
    }
    let other = StoredLabel { readers: ["carl@c.test".to_owned()].into(), ..StoredLabel::default() };
    let both = label.join(&other);
    let mut later = session("pay ann@a.test as recall says");
    observe_output(&mut later, "recall", &json!("4711"), &both);
    assert_eq!(later.rule("pay", &json!({"to": "ann@a.test", "amount": "4711"})).stance, Stance::Ask);
}

#[test]
fn a_read_has_at_least_the_stored_label() {
    let theirs = StoredLabel { untrusted: true, ..StoredLabel::default() };
    for (label, tainted, stance) in
        [(StoredLabel::default(), false, Stance::Allow), (theirs, true, Stance::Ask)]
    {
        let mut session = session("pay whom recall names for ann");
        observe_output(&mut session, "recall", &json!("mallory@m.test"), &label);
        assert_eq!(session.is_tainted(), tainted);
        assert_eq!(session.rule("pay", &json!({"to": "mallory@m.test"})).stance, stance, "{label:?}");
    }
}

proptest! {
    /// The join is an upper bound of both labels in any order, and readers are only removed.
    #[test]
    fn joining_labels_only_raises_them(
        one in (any::<bool>(), any::<bool>(), proptest::collection::btree_set("[a-c]", 0..3)),
        other in (any::<bool>(), any::<bool>(), proptest::collection::btree_set("[a-c]", 0..3)),
    ) {
        let label = |(untrusted, confidential, readers)| StoredLabel { untrusted, confidential, readers };
        let (one, other) = (label(one), label(other));
        let both = one.join(&other);
        prop_assert_eq!(&both, &other.join(&one));
        prop_assert_eq!(&both.join(&one), &both);
        for part in [&one, &other] {
            prop_assert!(both.untrusted >= part.untrusted && both.confidential >= part.confidential);
            let admits = |reader: &String| part.readers.is_empty() || part.readers.contains(reader);
            prop_assert!(both.readers.iter().all(|reader| reader == NO_READER || admits(reader)));
            prop_assert!(part.readers.is_empty() || !both.readers.is_empty());
        }
    }
}
