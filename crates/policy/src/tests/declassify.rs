//! Rules that declassify: where they are valid, what they grant, and that lower layers add nothing.

use proptest::prelude::*;

use super::policy;
use crate::{CallSketch, Declassified, Grant, Layer, Policy, Source, Verdict, diff, lint, load};

const MAIL: &str = "version: 1\nrules:\n  - id: mail\n    effect: allow\n    match: { tool: mail.list }\n    declassify: { trust: [\"[].sender\"], open: [\"[].subject\"] }\n  - { id: rest, effect: allow, match: { tool: [mail.list, mail.send] } }\n";

fn with(line: &str) -> String {
    format!("version: 1\nrules:\n  - id: a\n{line}\n")
}

fn verdict(policy: &Policy, call: &str) -> Verdict {
    CallSketch::parse(call).unwrap().with_facts(|facts| policy.decide(facts))
}

fn grant(policy: &Policy, call: &str) -> Grant {
    match verdict(policy, call) {
        Verdict::Allow(grant) => grant,
        other @ (Verdict::Ask(_) | Verdict::Deny(_)) => panic!("not allowed: {other:?}"),
    }
}

fn fields(all: &[Declassified]) -> Vec<String> {
    let each = |one: &Declassified| {
        let trust = one.trust.iter().map(|field| format!("{} trusts {field}", one.rule));
        let open = one.open.iter().map(|field| format!("{} opens {field}", one.rule));
        trust.chain(open).collect::<Vec<_>>()
    };
    all.iter().flat_map(each).collect()
}

#[test]
fn declassified_fields_are_in_the_grant_of_their_rule_only() {
    let policy = policy(MAIL);
    assert_eq!(
        fields(&grant(&policy, "{ tool: mail.list }").declassify),
        ["mail trusts [].sender", "mail opens [].subject"]
    );
    assert!(grant(&policy, "{ tool: mail.send }").declassify.is_empty(), "another tool's result");
    let call = CallSketch::parse("{ tool: mail.list }").unwrap();
    let said = call.with_facts(|facts| policy.explain(facts).summary);
    assert!(said.contains("rule `mail` declassifies [].sender, [].subject of its result"), "{said}");
}

#[test]
fn mistakes_are_reported_at_their_position() {
    let allow = "    effect: allow\n    match: { tool: t }\n";
    let cases = [
        (with("    effect: allow\n    declassify: { trust: [x] }"), 5, 5, "needs named tools"),
        (
            with("    effect: allow\n    match: { tool: \"t*\" }\n    declassify: { trust: [x] }"),
            6,
            5,
            "named tools",
        ),
        (with(&format!("{allow}    declassify: {{}}")), 6, 17, "names no field"),
        (with(&format!("{allow}    declassify: {{ trust: [] }}")), 6, 26, "the list is empty"),
        (with(&format!("{allow}    declassify: {{ trust: [\"\"] }}")), 6, 27, "is not a field"),
        (with(&format!("{allow}    declassify: {{ trust: [\"*\"] }}")), 6, 27, "`*` is not a field"),
        (with(&format!("{allow}    declassify: {{ open: [\"a..b\"] }}")), 6, 26, "`a..b` is not a field"),
        (with(&format!("{allow}    declassify: {{ open: [\"[]\"] }}")), 6, 26, "`[]` is not a field"),
        (with(&format!("{allow}    declassify: {{ all: [x] }}")), 6, 19, "unknown key `all`"),
        (
            with("    effect: ask\n    match: { tool: t }\n    declassify: { trust: [x] }"),
            6,
            17,
            "`declassify` has no effect",
        ),
    ];
    for (text, line, column, message) in cases {
        let findings = load(&text, &Source::new("p", Layer::User)).expect_err(&text).findings;
        let found = findings
            .iter()
            .any(|one| (one.line, one.column) == (line, column) && one.message.contains(message));
        assert!(found, "{text}\n{findings:#?}");
    }
    for fine in ["sender", "a.b-c", "items[].id", "[].x", "[][].x.y_z", "m[][]"] {
        policy(&with(&format!("{allow}    declassify: {{ trust: [\"{fine}\"] }}")));
    }
}

#[test]
fn a_projects_file_declassifies_nothing() {
    let error = load(MAIL, &Source::new("p", Layer::Project)).expect_err("loaded");
    let found = &error.findings[0];
    assert_eq!((found.line, found.column), (6, 5));
    assert!(found.message.contains("can only narrow"), "{}", found.message);
    // Nor does any file below the first that applies to the caller, such as a tenant's.
    let plain = "version: 1\nrules:\n  - { id: all, effect: allow }\n";
    let below = Policy::layered(policy(plain), Some(policy(MAIL)));
    assert!(grant(&below, "{ tool: mail.list }").declassify.is_empty());
    let above = Policy::layered(policy(MAIL), Some(policy(plain)));
    assert_eq!(fields(&grant(&above, "{ tool: mail.list }").declassify).len(), 2);
}

#[test]
fn lint_and_diff_report_declassification() {
    let notes = lint(&policy(MAIL), &[]);
    let says = |text: &str| notes.iter().any(|note| note.message.contains(text) && note.line == 3);
    assert!(says("rule `mail` trusts `[].sender`") && says("releases `[].subject` to anyone"), "{notes:#?}");
    let without = MAIL.replace(", open: [\"[].subject\"]", "");
    let wider = diff(&policy(&without), &policy(MAIL));
    assert_eq!((wider.changed.as_slice(), wider.losses.len()), (&["user:mail".to_owned()][..], 0));
    assert!(wider.gains.iter().any(|gain| gain.to == "allow, and declassify"), "{:?}", wider.gains);
    let narrower = diff(&policy(MAIL), &policy(&without));
    assert!(
        narrower.gains.is_empty() && narrower.losses.iter().any(|loss| loss.from == "allow, and declassify")
    );
}

#[test]
fn only_the_deciding_rule_declassifies_under_other_strategies() {
    let first = MAIL.replace("version: 1\n", "version: 1\nconflicts: first-match\n");
    assert_eq!(fields(&grant(&policy(&first), "{ tool: mail.list }").declassify).len(), 2);
    let other = first
        .replace("effect: allow, match: { tool: [mail", "effect: allow, priority: 9, match: { tool: [mail");
    assert!(grant(&policy(&other), "{ tool: mail.list }").declassify.is_empty());
}

fn rules() -> impl Strategy<Value = String> {
    let rule = (0..2_u8, prop::sample::subsequence(vec!["a", "b", "c"], 0..3), any::<bool>());
    prop::collection::vec(rule, 0..4).prop_map(|rules| {
        let each = rules.into_iter().enumerate().map(|(at, (tool, fields, opens))| {
            let list = fields.join(", ");
            let what = if opens { "open" } else { "trust" };
            let clause = if fields.is_empty() {
                String::new()
            } else {
                format!(", declassify: {{ {what}: [{list}] }}")
            };
            format!("  - {{ id: r{at}, effect: allow, match: {{ tool: t{tool} }}{clause} }}\n")
        });
        format!(
            "version: 1\nmode: permissive\nrules:\n{}  - {{ id: end, effect: allow }}\n",
            each.collect::<String>()
        )
    })
}

proptest! {
    /// No layer below a policy and no ancestors of the caller declassify a field that the policy alone wouldn't.
    #[test]
    fn narrowing_never_declassifies(one in rules(), other in rules(), tool in 0..2_u8) {
        let call = format!("{{ tool: t{tool} }}");
        let (one, other) = (policy(&one), policy(&other));
        let [alone, theirs] = [&one, &other].map(|policy| grant(policy, &call));
        let layered = grant(&Policy::layered(one, Some(other)), &call);
        prop_assert!(!crate::declassify::goes_beyond(&layered.declassify, &alone.declassify));
        let met = alone.clone().meet(theirs.clone());
        prop_assert!(!crate::declassify::goes_beyond(&met.declassify, &alone.declassify));
        prop_assert!(!crate::declassify::goes_beyond(&met.declassify, &theirs.declassify));
    }
}
