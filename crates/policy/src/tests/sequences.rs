//! Rules that look back, driven as by the kernel: decide, begin, end.

use proptest::prelude::*;

use super::{call, policy, source};
use crate::{
    CallSketch, Confidentiality, Facts, History, Integrity, Label, Notes, Past, Policy, Verdict, codes, load,
};

/// A session as the kernel keeps it.
#[derive(Debug, Default, Clone, PartialEq)]
struct Session {
    now: History,
    lasting: History,
}

impl Session {
    fn judge(&self, policy: &Policy, call: &CallSketch) -> Verdict {
        let past = Past { session: &self.now, lasting: &self.lasting };
        call.with_facts(|facts| policy.decide(&Facts { past, ..*facts }))
    }

    fn notes(&mut self) -> Notes<'_> {
        Notes { session: &mut self.now, lasting: &mut self.lasting }
    }

    /// Makes a call with the given approval and output label. Returns the verdict.
    fn make(&mut self, policy: &Policy, text: &str, level: Confidentiality, agreed: bool) -> &'static str {
        let call = call(text);
        let verdict = self.judge(policy, &call);
        let goes = match &verdict {
            Verdict::Allow(_) => true,
            Verdict::Ask(_) => agreed,
            Verdict::Deny(_) => false,
        };
        if goes {
            let approved = matches!(verdict, Verdict::Ask(_));
            let awaited =
                call.with_facts(|facts| policy.begin(facts, approved, self.notes())).expect("in time");
            awaited.ended(Label { integrity: Integrity::File, confidentiality: level }, true, self.notes());
        }
        verdict.word()
    }

    /// A new session with the permanent history.
    fn next(&self) -> Self {
        let text = serde_json::to_string(&self.lasting).unwrap();
        Self { now: History::new(), lasting: serde_json::from_str(&text).unwrap() }
    }
}

const RULES: &str = "
version: 1
rules:
  - { id: all, effect: allow }
  - id: secrets-stay
    effect: ask
    match: { capability: network.* }
    after: { tool: fs.read, result: { min_confidentiality: secret } }
    until: approved
  - { id: one-payment, effect: deny, match: { tool: pay.* }, at_most: 1, scope: lasting }
  - { id: read-first, effect: deny, match: { tool: fs.write }, needs: { tool: fs.read }, same: path }
  - { id: known-order, effect: deny, match: { tool: order.cancel }, needs: { tool: order.get }, same: { earlier: /id, later: /order } }
  - { id: after-shell, effect: deny, match: { tool: mail.send }, after: { tool: shell.exec }, until: { tool: review } }
";

#[test]
fn after_reading_a_secret_nothing_leaves_without_an_approval() {
    let policy = policy(RULES);
    let (mut session, fetch) = (Session::default(), "{ tool: http.fetch, url: 'https://x.test/' }");
    let (public, secret) = (Confidentiality::Public, Confidentiality::Secret);
    assert_eq!(session.make(&policy, fetch, public, false), "allow");
    session.make(&policy, "{ tool: fs.read, path: a }", Confidentiality::Pii, false);
    assert_eq!(session.make(&policy, fetch, public, false), "allow");
    session.make(&policy, "{ tool: fs.read, path: .env }", secret, false);
    assert_eq!(session.make(&policy, fetch, public, false), "ask");
    assert_eq!(session.make(&policy, "{ tool: fs.read, path: b }", public, false), "allow");
    // An unanswered question changes nothing; an approval does.
    assert_eq!(session.make(&policy, fetch, public, true), "ask");
    assert_eq!(session.make(&policy, fetch, public, false), "allow");
    session.make(&policy, "{ tool: fs.read, path: .env }", secret, false);
    assert_eq!(session.make(&policy, fetch, public, false), "ask");
    assert_eq!(session.next().make(&policy, fetch, public, false), "allow");
}

#[test]
fn at_most_one_payment_across_sessions_and_concurrent_calls() {
    let policy = policy(RULES);
    let (mut session, pay) = (Session::default(), "{ tool: pay.send, args: { amount: 1 } }");
    // Two calls that were judged by the same count: the second is too late, and is denied before any effect.
    let call = call(pay);
    assert_eq!(session.judge(&policy, &call).word(), "allow");
    assert!(call.with_facts(|facts| policy.begin(facts, false, session.notes())).is_ok());
    let before = session.clone();
    let late = call.with_facts(|facts| policy.begin(facts, false, session.notes())).unwrap_err();
    assert_eq!((&*late.code.clone(), &*late.rule.unwrap().id), (codes::SEQUENCE, "one-payment"));
    assert_eq!(session, before);
    assert_eq!(session.make(&policy, pay, Confidentiality::Public, true), "deny");
    assert_eq!(session.next().make(&policy, pay, Confidentiality::Public, true), "deny");
    assert_eq!(session.make(&policy, "{ tool: x }", Confidentiality::Public, false), "allow");
}

#[test]
fn a_write_needs_a_read_of_the_same_file() {
    let policy = policy(RULES);
    let mut session = Session::default();
    let mut make = |text: &str| session.make(&policy, text, Confidentiality::Public, false);
    assert_eq!(make("{ tool: fs.write, path: a }"), "deny");
    assert_eq!(make("{ tool: fs.read, path: b }"), "allow");
    assert_eq!(make("{ tool: fs.write, path: a }"), "deny");
    assert_eq!(make("{ tool: fs.read, path: a }"), "allow");
    assert_eq!(make("{ tool: fs.write, path: a }"), "allow");
    assert_eq!(make("{ tool: fs.write, path: [a, c] }"), "deny");
    assert_eq!(make("{ tool: fs.write, path: [a, b] }"), "allow");
    // Without a path, nothing can be the same.
    assert_eq!(make("{ tool: fs.write, args: {} }"), "deny");
    assert_eq!(make("{ tool: order.get, args: { id: 7 } }"), "allow");
    assert_eq!(make("{ tool: order.cancel, args: { order: 8 } }"), "deny");
    assert_eq!(make("{ tool: order.cancel, args: { order: 7 } }"), "allow");
    assert_eq!(make("{ tool: mail.send }"), "allow");
    assert_eq!(make("{ tool: shell.exec, command: ls }"), "allow");
    assert_eq!(make("{ tool: mail.send }"), "deny");
    assert_eq!(make("{ tool: review }"), "allow");
    assert_eq!(make("{ tool: mail.send }"), "allow");
}

#[test]
fn a_failed_read_does_not_count() {
    let policy = policy(RULES);
    let mut session = Session::default();
    let read = call("{ tool: fs.read, path: a }");
    let awaited = read.with_facts(|facts| policy.begin(facts, false, session.notes())).unwrap();
    let label = Label { integrity: Integrity::File, confidentiality: Confidentiality::Secret };
    awaited.ended(label, false, session.notes());
    assert_eq!(session.make(&policy, "{ tool: fs.write, path: a }", Confidentiality::Public, false), "deny");
    // Data that it returned before it failed is still known.
    let fetch = "{ tool: http.fetch, url: 'https://x.test/' }";
    assert_eq!(session.make(&policy, fetch, Confidentiality::Public, false), "ask");
}

#[test]
fn rejects_invalid_history_conditions() {
    let rule = |rest: &str| format!("version: 1\nrules: [{{ id: a, {rest} }}]");
    let cases = [
        ("effect: allow, at_most: 1", "has no effect"),
        ("effect: deny, at_most: -1", "whole number"),
        ("effect: deny, until: approved", "has no effect without `after`"),
        ("effect: deny, at_most: 1, needs: { tool: x }", "one of `after`"),
        ("effect: deny, scope: lasting", "has no effect without `after`"),
        ("effect: deny, needs: { tool: x }, same: '$..k'", "several values"),
        ("effect: deny, after: {}", "no conditions"),
        ("effect: deny, after: { tool: x }, until: never", "`approved` or conditions"),
        ("effect: deny, at_most: 1, scope: week", "unknown scope"),
        ("effect: warn", "needs `reason`"),
    ];
    for (rest, message) in cases {
        let found = load(&rule(rest), &source("p.yml")).expect_err(rest).findings;
        assert!(found.iter().any(|finding| finding.message.contains(message)), "{rest}: {found:#?}");
    }
}

/// The reference model: remembers all calls that ran, and evaluates each question against all of them.
#[derive(Debug, Default)]
struct ReferenceHistory(Vec<(String, Confidentiality, bool)>);

impl ReferenceHistory {
    fn verdict(&self, tool: &str, path: &str) -> &'static str {
        let armed = self.0.iter().fold(false, |armed, (made, level, asked)| match made.split(' ').next() {
            Some("fs.read") if *level >= Confidentiality::Secret => true,
            Some("http.fetch") if *asked => false,
            _ => armed,
        });
        let read = self.0.iter().any(|(made, _, _)| *made == format!("fs.read {path}"));
        let paid = self.0.iter().any(|(made, _, _)| made.starts_with("pay.send"));
        match tool {
            "http.fetch" if armed => "ask",
            "fs.write" if !read => "deny",
            "pay.send" if paid => "deny",
            _ => "allow",
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn recorded_history_matches_the_reference_model(steps in prop::collection::vec((0_usize..4, 0_usize..3, any::<bool>(), any::<bool>()), 1..40)) {
        let policy = policy(RULES);
        let (mut session, mut reference) = (Session::default(), ReferenceHistory::default());
        for (tool, path, is_secret, agreed) in steps {
            let (tool, path) = (["fs.read", "fs.write", "http.fetch", "pay.send"][tool], ["a", "b", "c"][path]);
            let text = match tool {
                "http.fetch" => "{ tool: http.fetch, url: 'https://x.test/' }".to_owned(),
                "pay.send" => "{ tool: pay.send }".to_owned(),
                _ => format!("{{ tool: {tool}, path: {path} }}"),
            };
            let level = if is_secret { Confidentiality::Secret } else { Confidentiality::Public };
            let expected = reference.verdict(tool, path);
            prop_assert_eq!(session.make(&policy, &text, level, agreed), expected, "{} after {:?}", text, reference);
            if expected == "allow" || (expected == "ask" && agreed) {
                reference.0.push((format!("{tool} {path}"), level, expected == "ask"));
            }
        }
    }

    #[test]
    fn history_never_loosens_a_verdict_without_needs_or_until(steps in prop::collection::vec(0_usize..3, 0..20)) {
        // Without `needs` and `until`, more history only narrows.
        let policy = policy("version: 1\nrules:\n  - { id: all, effect: allow }\n  - { id: a, effect: deny, match: { tool: x }, after: { tool: y } }\n  - { id: b, effect: deny, match: { tool: z }, at_most: 2 }\n");
        let mut session = Session::default();
        let mut denied = std::collections::BTreeSet::new();
        for step in steps {
            let tool = ["x", "y", "z"][step];
            let said = session.make(&policy, &format!("{{ tool: {tool} }}"), Confidentiality::Public, false);
            prop_assert!(!denied.contains(tool) || said == "deny");
            if said == "deny" {
                denied.insert(tool);
            }
        }
    }
}
