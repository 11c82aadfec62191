//! What the ledger is told. Fields are declared in the order that canonical JSON has them in.

use std::sync::Arc;

use regent_ledger::{CanonicalJson, Draft, Kind, Payload, PayloadRef};
use regent_policy::{Label, Tier, Verdict};
use serde::Serialize;
use serde_json::Value;

use crate::approval::{Approved, Asked};
use crate::budget::Settled;
use crate::call::Call;
use crate::facts::{Sheet, Target};
use crate::kernel::{Canonical, InForce};
use crate::syscall::{Frame, Labelled, Status};

#[derive(Serialize)]
struct IntentBody<'a> {
    approved: Option<&'a Approved>,
    args: Option<PayloadRef>,
    caller: CallerBody<'a>,
    depth: u8,
    idempotent: bool,
    op: &'static str,
    parent: Option<u64>,
    policy: &'a str,
    session: &'a str,
    targets: &'a [Target],
    ticket: Option<&'a Asked>,
    tier: Tier,
    tool: Option<ToolBody<'a>>,
    verdict: VerdictBody<'a>,
}

#[derive(Serialize)]
struct CallerBody<'a> {
    agent: Option<&'a str>,
    chain: &'a [String],
    class: regent_policy::Class,
    name: &'a str,
}

#[derive(Serialize)]
struct ToolBody<'a> {
    digest: &'a str,
    name: &'a str,
}

#[derive(Serialize)]
struct VerdictBody<'a> {
    code: Option<&'a str>,
    effect: &'static str,
    reason: Option<&'a str>,
    rule: Option<&'a str>,
}

#[derive(Serialize)]
struct OutcomeBody<'a> {
    intent: u64,
    label: Label,
    obtained: &'a Option<Value>,
    op: &'static str,
    output: Option<PayloadRef>,
    session: &'a str,
    spent: Option<&'a Settled>,
    status: &'a Status,
}

/// When something is written down, and which policy was in force then.
#[derive(Debug)]
pub(crate) struct Stamp {
    pub(crate) at_ms: i64,
    pub(crate) policy: Arc<InForce>,
}

/// The intent of a call, with the verdict on it.
pub(crate) fn intent(
    stamp: &Stamp,
    call: &Call,
    sheet: &Sheet,
    verdict: &Verdict,
    ticket: Option<&Asked>,
) -> Canonical<Draft> {
    let args = payload_of(&sheet.args)?;
    let (effect, rule, reason, tier) = match verdict {
        Verdict::Allow(grant) => ("allow", grant.rule.as_ref(), None, grant.tier),
        Verdict::Ask(question) => ("ask", Some(&question.rule), None, question.grant.tier),
        Verdict::Deny(reason) => ("deny", reason.rule.as_ref(), Some(reason), sheet.tier),
    };
    let body = IntentBody {
        approved: sheet.approved.as_ref(),
        args: args.as_ref().map(Payload::reference),
        caller: CallerBody {
            agent: call.principal.agent_id().map(crate::agent::AgentId::as_str),
            chain: call.principal.chain(),
            class: call.principal.class(),
            name: call.principal.name(),
        },
        depth: call.depth,
        idempotent: sheet.is_idempotent(&call.op),
        op: call.op.name(),
        parent: call.parent,
        policy: &stamp.policy.digest,
        session: call.principal.session(),
        targets: &sheet.resources,
        ticket,
        tier,
        tool: sheet.tool.as_ref().map(|tool| ToolBody { digest: tool.digest_hex(), name: &tool.spec().name }),
        verdict: VerdictBody {
            code: reason.map(|reason| reason.code),
            effect,
            reason: reason.map(|reason| reason.message.as_str()),
            rule: rule.map(|rule| &*rule.id),
        },
    };
    Ok(Draft {
        kind: Kind::Intent,
        at_ms: stamp.at_ms,
        body: CanonicalJson::of(&body)?,
        payloads: args.into_iter().collect(),
    })
}

/// What came of it.
pub(crate) fn outcome(stamp: &Stamp, frame: &Frame, ended: &Ending<'_>) -> Canonical<Draft> {
    let bytes = ended.output.bytes();
    let output = (!bytes.is_empty()).then(|| Payload::new(bytes.to_vec()));
    let body = OutcomeBody {
        intent: frame.intent.seq,
        label: ended.output.label(),
        obtained: ended.obtained,
        op: frame.call.op.name(),
        output: output.as_ref().map(Payload::reference),
        session: frame.call.principal.session(),
        spent: ended.spent.as_ref(),
        status: ended.status,
    };
    Ok(Draft {
        kind: Kind::Outcome,
        at_ms: stamp.at_ms,
        body: CanonicalJson::of(&body)?,
        payloads: output.into_iter().collect(),
    })
}

/// How a call ended, for its outcome.
#[derive(Debug)]
pub(crate) struct Ending<'a> {
    pub(crate) status: &'a Status,
    pub(crate) output: &'a Labelled,
    pub(crate) obtained: &'a Option<Value>,
    pub(crate) spent: Option<Settled>,
}

/// Something that isn't a call.
pub(crate) fn note(kind: Kind, at_ms: i64, body: &impl Serialize) -> Canonical<Draft> {
    Ok(Draft { kind, at_ms, body: CanonicalJson::of(body)?, payloads: Vec::new() })
}

/// Arguments go beside the ledger, where they can be erased; the ledger keeps their digest. Empty ones need no payload.
fn payload_of(args: &Value) -> Canonical<Option<Payload>> {
    match args {
        Value::Null => Ok(None),
        Value::Object(fields) if fields.is_empty() => Ok(None),
        other => Ok(Some(Payload::new(CanonicalJson::of(other)?.as_str().as_bytes().to_vec()))),
    }
}
