//! What the ledger is told. Fields are declared in the order that canonical JSON has them in.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use regent_guard::{GuardKind, Kinds};
use regent_ledger::{CanonicalJson, Digest, Draft, Kind, LaneId, Payload, PayloadRef};
use regent_policy::{Access, Class, Declassified, Label, Tier, Verdict};
use regent_provenance::Ruling;
use serde::Serialize;
use serde_json::Value;

use crate::approval::{Approved, Asked};
use crate::budget::Settled;
use crate::call::{Call, HostCall, Op};
use crate::executor::Failure;
use crate::facts::{Sheet, Target};
use crate::journal::TaskId;
use crate::kernel::{Canonical, InForce};
use crate::secret::Secrets;
use crate::syscall::{Frame, Labelled, Status};

/// What an entry says about targets before it cuts them.
const TARGETS_BYTES_MAX: usize = 64 << 10;
/// How many are left then, of everything that there can be several of.
const TARGETS_MAX: usize = 64;
/// And how much of a word.
const WORD_CHARS_MAX: usize = 256;

#[derive(Serialize)]
struct IntentBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    approved: Option<&'a Approved>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<PayloadRef>,
    caller: CallerBody<'a>,
    depth: u8,
    /// What the host says that the call was computed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    derived_from: Option<PayloadRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<PayloadRef>,
    idempotent: bool,
    op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u64>,
    policy: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    provenance: Option<BTreeMap<&'a str, &'static str>>,
    /// The host keeps the result from its agent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    quarantined: bool,
    session: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<StepBody<'a>>,
    targets: Cow<'a, [Target]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<&'a Asked>,
    tier: Tier,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<ToolBody<'a>>,
    verdict: VerdictBody<'a>,
}

#[derive(Serialize)]
struct CallerBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    chain: &'a [String],
    class: regent_policy::Class,
    name: &'a str,
}

/// The step of a task, and the digest of the call as it was asked for.
#[derive(Serialize)]
struct StepBody<'a> {
    call: Digest,
    name: &'a str,
    task: &'a TaskId,
}

#[derive(Serialize)]
struct ToolBody<'a> {
    digest: &'a str,
    name: &'a str,
}

#[derive(Serialize)]
struct VerdictBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    effect: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
}

#[derive(Serialize)]
struct OutcomeBody<'a> {
    /// Labels that rules have lowered: which rule, which fields.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    declassified: &'a [Declassified],
    intent: u64,
    label: Label,
    /// The lane of the intent: after a full disk the outcome can be in another one.
    lane: LaneId,
    /// What an agent has written that runs later: names of `regent_guard::GuardKind`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    marks: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    obtained: &'a Option<Value>,
    op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<PayloadRef>,
    session: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    spent: Option<&'a Settled>,
    status: Cow<'a, Status>,
    truncated: bool,
}

/// When something is written down, and which policy was in force then.
#[derive(Debug)]
pub(crate) struct Stamp {
    pub(crate) at_ms: i64,
    pub(crate) policy: Arc<InForce>,
    /// Free text is recorded as this shows it: an entry can't be erased.
    pub(crate) secrets: Arc<dyn Secrets>,
    /// Payloads are encrypted, so free text of a call stands in them alone.
    pub(crate) sealed: bool,
}

/// The intent of a call, with the verdict on it.
pub(crate) fn intent(
    stamp: &Stamp,
    call: &Call,
    sheet: &Sheet,
    verdict: &Verdict,
    ticket: Option<&Asked>,
) -> Canonical<Draft> {
    let args = &sheet.recorded;
    let (effect, rule, reason, tier) = match verdict {
        Verdict::Allow(grant) => ("allow", grant.rule.as_ref(), None, grant.tier),
        Verdict::Ask(question) => ("ask", Some(&question.rule), None, question.grant.tier),
        Verdict::Deny(reason) => ("deny", reason.rule.as_ref(), Some(reason), sheet.tier),
    };
    let step = match call.principal.step() {
        Some(step) => Some(StepBody {
            call: Digest::of(CanonicalJson::of(&call.op)?.as_str().as_bytes()),
            name: &step.name,
            task: &step.task,
        }),
        None => None,
    };
    let report = if let Op::Elsewhere(HostCall { derived_from: Some(report), .. }) = &call.op {
        Some(Payload::new(CanonicalJson::of(report)?.as_str().as_bytes().to_vec()))
    } else {
        None
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
        derived_from: report.as_ref().map(Payload::reference),
        evidence: sheet.evidence.as_ref().map(Payload::reference),
        idempotent: sheet.is_idempotent(&call.op),
        op: call.op.name(),
        parent: call.parent,
        policy: &stamp.policy.digest,
        provenance: sheet.ruling.as_ref().map(Ruling::words),
        quarantined: matches!(&call.op, Op::Elsewhere(host) if host.quarantined),
        session: call.principal.session(),
        step,
        targets: shown(stamp, &sheet.resources),
        ticket,
        tier,
        tool: sheet.tool.as_ref().map(|tool| ToolBody { digest: tool.digest_hex(), name: &tool.spec().name }),
        verdict: VerdictBody {
            code: reason.map(|reason| &*reason.code),
            effect,
            help: reason.and_then(|reason| reason.help.as_deref()),
            reason: reason.map(|reason| stamp.secrets.redact(&reason.message)),
            rule: rule.map(|rule| &*rule.id),
        },
    };
    Ok(Draft {
        kind: Kind::Intent,
        at_ms: stamp.at_ms,
        body: CanonicalJson::of(&body)?,
        payloads: args.iter().chain(&sheet.evidence).chain(&report).cloned().collect(),
    })
}

/// What came of it.
pub(crate) fn outcome(stamp: &Stamp, frame: &Frame, ended: &Ending<'_>) -> Canonical<Draft> {
    let output = (!ended.output.bytes().is_empty()).then(|| Payload::shared(ended.output.shared()));
    let body = OutcomeBody {
        declassified: ended.declassified,
        intent: frame.intent.seq,
        label: ended.output.label(),
        lane: frame.intent.lane,
        marks: marks(frame),
        obtained: ended.obtained,
        op: frame.call.op.name(),
        output: output.as_ref().map(Payload::reference),
        session: frame.call.principal.session(),
        spent: ended.spent.as_ref(),
        status: redacted(&*stamp.secrets, ended.status),
        truncated: ended.truncated,
    };
    Ok(Draft {
        kind: Kind::Outcome,
        at_ms: stamp.at_ms,
        body: CanonicalJson::of(&body)?,
        payloads: output.into_iter().collect(),
    })
}

/// Marks what an agent has written that runs later, so that a reviewer finds it.
fn marks(frame: &Frame) -> Vec<&'static str> {
    if frame.call.principal.class() != Class::Agent {
        return Vec::new();
    }
    let written = frame.targets.iter().filter_map(|target| match target {
        Target::Path { path, access: Access::Write } => Some(regent_guard::kinds_of(path)),
        Target::Path { .. } | Target::Endpoint { .. } | Target::Argv(_) | Target::Secret(_) => None,
    });
    let written: Vec<Kinds> = written.collect();
    let runs = Kinds::RUN_LATER.iter().filter(|kind| written.iter().any(|kinds| kinds.contains(*kind)));
    runs.map(GuardKind::name).collect()
}

/// A tool's and an executor's own words may quote anything.
fn redacted<'a>(secrets: &dyn Secrets, status: &'a Status) -> Cow<'a, Status> {
    match status {
        Status::Failed(failure) => match secrets.redact(&failure.message) {
            Cow::Borrowed(_) => Cow::Borrowed(status),
            Cow::Owned(message) => Cow::Owned(Status::Failed(Failure { message, ..failure.clone() })),
        },
        Status::Faulted(message) => match secrets.redact(message) {
            Cow::Borrowed(_) => Cow::Borrowed(status),
            Cow::Owned(message) => Cow::Owned(Status::Faulted(message)),
        },
        Status::Ok | Status::TimedOut | Status::Cancelled => Cow::Borrowed(status),
    }
}

/// How a call ended, for its outcome.
#[derive(Debug)]
pub(crate) struct Ending<'a> {
    pub(crate) status: &'a Status,
    pub(crate) output: &'a Labelled,
    pub(crate) obtained: &'a Option<Value>,
    pub(crate) spent: Option<Settled>,
    pub(crate) declassified: &'a [Declassified],
    /// More came than the grant allowed, and was cut.
    pub(crate) truncated: bool,
}

/// Something that isn't a call.
pub(crate) fn note(kind: Kind, at_ms: i64, body: &impl Serialize) -> Canonical<Draft> {
    Ok(Draft { kind, at_ms, body: CanonicalJson::of(body)?, payloads: Vec::new() })
}

/// Targets as an entry shows them: a program's arguments and the path of a URL are free text, which can't be erased here, so it
/// is redacted; and where there is much, long words are cut, since the payload has the whole. Where payloads are encrypted, free text is
/// left out: the entry says which program and which host, the payload says the rest.
fn shown<'a>(stamp: &Stamp, targets: &'a [Target]) -> Cow<'a, [Target]> {
    let secrets = &*stamp.secrets;
    let is_free = |target: &Target| matches!(target, Target::Argv(_) | Target::Endpoint { .. });
    let is_much = targets.iter().map(Target::bytes).sum::<usize>() > TARGETS_BYTES_MAX;
    if !is_much && !targets.iter().any(is_free) {
        return Cow::Borrowed(targets);
    }
    let most = if is_much { TARGETS_MAX } else { usize::MAX };
    let word = |word: &String| {
        let word = secrets.redact(word);
        match word.char_indices().nth(WORD_CHARS_MAX).filter(|_| is_much) {
            Some((at, _)) => format!("{}…", word.get(..at).unwrap_or_default()),
            None => word.into_owned(),
        }
    };
    let reworded = targets.iter().take(most).map(|target| target.reworded(most, &word));
    Cow::Owned(if stamp.sealed { reworded.map(Target::sealed).collect() } else { reworded.collect() })
}
