//! Bodies as they were written before they had types, and whatever else can be written.

use std::borrow::Cow;
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use regent_ledger::{CanonicalJson, Digest, Entry, EntryKind, LaneId, PayloadRef};
use regent_policy::{Access, Class, Confidentiality, Integrity, Label, Target, Tier};
use serde_json::{Value, json};

use super::*;
use crate::{Scope, Status, TaskId, TicketId, ToolFailure, Version, Voice};

/// One `{"body":…,"kind":…}` a line. The first ones are a real ledger's, by the version of Regent that wrote `json!` bodies.
const WRITTEN: &str = include_str!("written.jsonl");

fn entry(kind: &str, body: Value) -> Entry {
    Entry {
        lane: LaneId::FIRST,
        seq: 7,
        at_ms: 1,
        kind: EntryKind::from_bytes(kind.as_bytes()).unwrap(),
        prev: Digest::compute(b""),
        hash: Digest::compute(b""),
        body,
        proven: true,
        refused: false,
    }
}

fn spelt(body: &EntryBody<'_>) -> String {
    let json = match body {
        EntryBody::Intent(body) => CanonicalJson::encode(body),
        EntryBody::Outcome(body) => CanonicalJson::encode(body),
        EntryBody::InDoubt(body) => CanonicalJson::encode(body),
        EntryBody::Agent(body) => CanonicalJson::encode(body),
        EntryBody::Policy(body) => CanonicalJson::encode(body),
        EntryBody::Kernel(body) => CanonicalJson::encode(body),
        EntryBody::Internal => panic!("the ledger's own"),
    };
    json.unwrap().to_string()
}

#[test]
fn bodies_written_before_they_had_types_are_read_and_written_byte_for_byte() {
    assert!(WRITTEN.lines().count() > 40);
    for line in WRITTEN.lines() {
        let written: Value = serde_json::from_str(line).unwrap();
        let entry = entry(written["kind"].as_str().unwrap(), written["body"].clone());
        let body = EntryBody::read(&entry).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(spelt(&body), CanonicalJson::encode(&entry.body).unwrap().to_string());
    }
}

#[test]
fn a_newer_version_is_an_error_that_says_so_and_is_never_half_read() {
    for line in WRITTEN.lines() {
        let written: Value = serde_json::from_str(line).unwrap();
        let kind = written["kind"].as_str().unwrap();
        let with = |version: Value| {
            let mut body = written["body"].clone();
            body["v"] = version;
            entry(kind, body)
        };
        let newer = with(json!(2));
        let error = EntryBody::read(&newer).unwrap_err();
        assert!(error.is_newer() && error.to_string().ends_with("update Regent"), "{error}");
        assert_eq!(EntryBody::read_known(&newer).unwrap_err(), error, "nobody may overlook it");
        // Whatever else a newer one has, its version is what is wrong with it.
        let strange = entry(kind, json!({"v": 9, "status": 1, "verdict": []}));
        assert!(EntryBody::read(&strange).unwrap_err().is_newer());
        for odd in [json!("1"), json!(0), json!(-1), json!(null), json!(1.5)] {
            let odd = with(odd);
            assert!(matches!(EntryBody::read(&odd), Err(BodyError::Malformed { .. })), "{:?}", odd.body);
            assert_eq!(EntryBody::read_known(&odd), Ok(None));
        }
        assert!(EntryBody::read(&with(json!(1))).is_ok(), "version 1 may be explicit");
    }
}

#[test]
fn what_a_kind_does_not_have_is_malformed_and_what_is_unknown_is_left_alone() {
    for (kind, body) in [
        ("intent", json!({})),
        ("intent", json!({"verdict": "allow"})),
        ("intent", json!({"verdict": {"effect": "perhaps"}})),
        ("intent", json!({"idempotent": "yes", "verdict": {"effect": "allow"}})),
        ("outcome", json!({"intent": "first", "status": "ok"})),
        ("outcome", json!({"intent": 1})),
        ("outcome", json!({"intent": 1, "status": "odd"})),
        ("agent", json!({"agent": "a", "event": "odd"})),
        ("kernel", json!({"state": "asleep"})),
        ("policy", json!([])),
    ] {
        let entry = entry(kind, body);
        assert!(matches!(EntryBody::read(&entry), Err(BodyError::Malformed { .. })), "{:?}", entry.body);
    }
    let least = entry("intent", json!({"new": 1, "verdict": {"effect": "allow", "new": 2}}));
    let Ok(EntryBody::Intent(intent)) = EntryBody::read(&least) else { panic!("{least:?}") };
    assert_eq!((intent.verdict.effect, intent.idempotent, intent.tier), (Decision::Allow, false, None));
    assert_eq!(EntryBody::read(&entry("checkpoint", json!({}))), Ok(EntryBody::Internal));
}

#[test]
fn an_outcome_names_the_lane_of_its_intent_or_means_its_own() {
    let place = |body: Value| {
        let entry = entry("outcome", body);
        EntryBody::read(&entry).unwrap().intent_place(&entry)
    };
    assert_eq!(place(json!({"intent": 3, "status": "ok"})), Some((LaneId::FIRST, 3)));
    let other = LaneId::new(4).unwrap();
    assert_eq!(place(json!({"intent": 3, "lane": "0004", "status": "in_doubt"})), Some((other, 3)));
}

fn text() -> impl Strategy<Value = Cow<'static, str>> {
    "\\PC{0,12}".prop_map(Cow::Owned)
}

fn payload() -> impl Strategy<Value = PayloadRef> {
    (0..1_u64 << 53, any::<[u8; 32]>())
        .prop_map(|(bytes, digest)| PayloadRef { bytes, sha256: Digest::from_bytes(digest) })
}

fn label() -> impl Strategy<Value = Label> {
    let integrity = prop::sample::select(vec![Integrity::System, Integrity::OwnModel, Integrity::Web]);
    let confidentiality = prop::sample::select(vec![Confidentiality::Public, Confidentiality::Credential]);
    (integrity, confidentiality).prop_map(|(integrity, confidentiality)| Label { integrity, confidentiality })
}

fn target() -> impl Strategy<Value = Target> {
    let access = prop::sample::select(vec![Access::Read, Access::Write, Access::Delete]);
    prop_oneof![
        ("\\PC{0,9}", access).prop_map(|(path, access)| Target::Path { path, access }),
        ("[a-z]{1,5}", any::<u16>(), "\\PC{0,9}").prop_map(|(host, port, path)| Target::Endpoint {
            scheme: "https".to_owned(),
            host,
            port,
            method: "GET".to_owned(),
            path,
        }),
        vec("\\PC{0,9}", 0..4).prop_map(Target::Argv),
        "[a-z/]{1,9}".prop_map(Target::Secret),
    ]
}

fn approved() -> impl Strategy<Value = ApprovedBody> {
    let scope = prop::sample::select(vec![Scope::Once, Scope::Session, Scope::Project]);
    let voice = prop::sample::select(vec![Voice::Person, Voice::HostSays]);
    (0..1_i64 << 50, any::<u8>(), vec("\\PC{0,9}", 0..3), scope, "[a-z]{4}", voice).prop_map(
        |(at_ms, attention_percent, by, scope, ticket, voice)| ApprovedBody {
            asked_at_ms: at_ms,
            attention_percent,
            by,
            decided_at_ms: at_ms + 1,
            scope,
            ticket: TicketId(ticket),
            voice,
        },
    )
}

fn verdict() -> impl Strategy<Value = VerdictBody<'static>> {
    let effect = prop::sample::select(vec![Decision::Allow, Decision::Ask, Decision::Deny]);
    (option::of(text()), effect, option::of(text()), option::of(text()), option::of(text()))
        .prop_map(|(code, effect, help, reason, rule)| VerdictBody { code, effect, help, reason, rule })
}

fn caller() -> impl Strategy<Value = CallerBody<'static>> {
    let class = prop::sample::select(vec![Class::Operator, Class::Agent, Class::Kernel]);
    (option::of("[a-z]{1,9}"), vec("\\PC{0,9}", 0..3), class, text()).prop_map(
        |(agent, chain, class, name)| CallerBody {
            agent: agent.map(|id| id.as_str().into()),
            chain: chain.into(),
            class: Some(class),
            name,
            ..CallerBody::default()
        },
    )
}

prop_compose! {
    fn intent()(
        (approved, args, caller, depth) in (option::of(approved()), option::of(payload()), caller(), any::<u8>()),
        (derived_from, evidence, idempotent) in (option::of(payload()), option::of(payload()), any::<bool>()),
        (op, parent, policy) in (text(), option::of(0..1_u64 << 53), text()),
        (provenance, quarantined) in (option::of(prop::collection::btree_map(text(), text(), 0..3)), any::<bool>()),
        (session, step, targets) in (text(), option::of((option::of(any::<[u8; 32]>()), text())), vec(target(), 0..4)),
        (ticket, tool, verdict) in (option::of(("[a-z]{4}", option::of("[a-z]{4}"))), option::of((text(), text())), verdict()),
        tier in prop::sample::select(vec![Tier::Host, Tier::Microvm]),
    ) -> IntentBody<'static> {
        let provenance: Option<BTreeMap<_, _>> = provenance;
        IntentBody {
            approved, args, caller, depth, derived_from, evidence, idempotent, op, parent, policy, provenance, quarantined, session,
            step: step.map(|(call, name)| StepBody {
                call: call.map(Digest::from_bytes), name, task: TaskId::new("t-1").unwrap(),
            }),
            targets: targets.into(),
            ticket: ticket.map(|(id, with)| QuestionRef { id: TicketId(id), with: with.map(TicketId) }),
            tier: Some(tier),
            tool: tool.map(|(digest, name)| ToolBody { digest, name }),
            v: Version::CURRENT,
            verdict,
        }
    }
}

fn delivery() -> impl Strategy<Value = Delivery> {
    (prop::sample::select(Channel::ALL.to_vec()), 0..1_u64 << 53, any::<[u8; 32]>()).prop_map(
        |(channel, bytes, digest)| Delivery {
            bytes,
            channel,
            digest: Digest::from_bytes(digest),
            kept_bytes: bytes,
        },
    )
}

fn status() -> impl Strategy<Value = Status> {
    prop_oneof![
        Just(Status::Ok),
        Just(Status::TimedOut),
        Just(Status::Cancelled),
        "\\PC{0,9}".prop_map(Status::Faulted),
        ("[a-z.]{1,9}", "\\PC{0,9}")
            .prop_map(|(code, message)| Status::Failed(ToolFailure { code, message })),
    ]
}

prop_compose! {
    fn outcome()(
        (intent, label, lane) in (0..1_u64 << 53, label(), 0..10_000_u16),
        (marks, op, output, session) in (vec(text(), 0..3), text(), option::of(payload()), text()),
        spent in option::of((0..1_u64 << 53, vec(text(), 0..3))),
        delivered in vec(delivery(), 0..3),
        (status, truncated) in (status(), any::<bool>()),
    ) -> OutcomeBody<'static> {
        OutcomeBody {
            declassified: Vec::new().into(),
            delivered: delivered.into(),
            intent,
            label: Some(label),
            lane: LaneId::new(lane),
            marks,
            obtained: None,
            op,
            output,
            session,
            spent: spent.map(|(amount, over)| Charged { tokens: amount, wall_ms: amount, over, ..Charged::default() }),
            status: Cow::Owned(status),
            truncated,
            v: Version::CURRENT,
        }
    }
}

proptest! {
    #[test]
    fn an_intent_comes_back_as_it_was_written(intent in intent()) {
        let json: Value = serde_json::from_str(CanonicalJson::encode(&intent).unwrap().as_str()).unwrap();
        prop_assert_eq!(IntentBody::parse(&json), Ok(intent));
    }

    #[test]
    fn an_outcome_comes_back_as_it_was_written(outcome in outcome()) {
        let json: Value = serde_json::from_str(CanonicalJson::encode(&outcome).unwrap().as_str()).unwrap();
        prop_assert_eq!(OutcomeBody::parse(&json), Ok(outcome));
    }
}
