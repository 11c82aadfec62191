//! The kernel's ledger entries, written through the types of `regent_wire::body`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use regent_guard::Kinds;
use regent_ledger::{CanonicalJson, Digest, EntryDraft, EntryKind, Payload};
use regent_policy::{Access, Class, Declassified, Verdict};
use regent_provenance::Ruling;
use regent_wire::Version;
use regent_wire::body::{
    ApprovedBody, CallerBody, Charged, Decision, IntentBody, OutcomeBody, QuestionRef, StepBody, ToolBody,
    VerdictBody,
};
use serde::Serialize;
use serde_json::Value;

use crate::approval::{Approved, AskedQuestion};
use crate::budget::Settled;
use crate::call::{Call, HostCall, Op};
use crate::executor::ToolFailure;
use crate::facts::{Sheet, Target, reworded, sealed, text_bytes};
use crate::kernel::{Canonical, InForce};
use crate::secret::Secrets;
use crate::syscall::{Delivery, Frame, Labelled, Status};

/// What an entry says about targets before it cuts them.
const TARGETS_BYTES_MAX: usize = 64 << 10;
/// How many are left then, of everything that there can be several of.
const TARGETS_MAX: usize = 64;
/// And how much of a word.
const WORD_CHARS_MAX: usize = 256;

/// When something is written down, and which policy judged the call.
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
    ticket: Option<&AskedQuestion>,
) -> Canonical<EntryDraft> {
    let args = &sheet.recorded;
    let (effect, rule, reason, tier) = match verdict {
        Verdict::Allow(grant) => (Decision::Allow, grant.rule.as_ref(), None, grant.tier),
        Verdict::Ask(question) => (Decision::Ask, Some(&question.rule), None, question.grant.tier),
        Verdict::Deny(reason) => (Decision::Deny, reason.rule.as_ref(), Some(reason), sheet.tier),
    };
    let step = match call.principal.step() {
        Some(step) => Some(StepBody {
            call: Some(Digest::compute(CanonicalJson::encode(&call.op)?.as_str().as_bytes())),
            name: Cow::Borrowed(&step.name),
            task: step.task.clone(),
        }),
        None => None,
    };
    let report = if let Op::Elsewhere(HostCall { derived_from: Some(report), .. }) = &call.op {
        Some(Payload::new(CanonicalJson::encode(report)?.as_str().as_bytes().to_vec()))
    } else {
        None
    };
    let body = IntentBody {
        approved: sheet.approved.as_ref().map(approved),
        args: args.as_ref().map(Payload::reference),
        caller: CallerBody {
            agent: call.principal.agent_id().cloned(),
            authenticated: call.principal.authenticated_by().map(Cow::Owned),
            chain: call.principal.chain().into(),
            class: Some(call.principal.class()),
            name: call.principal.name().into(),
            role: call.principal.role().map(|role| role.as_str().into()),
        },
        depth: call.depth,
        derived_from: report.as_ref().map(Payload::reference),
        evidence: sheet.evidence.as_ref().map(Payload::reference),
        idempotent: sheet.is_idempotent(&call.op),
        op: call.op.name().into(),
        parent: call.parent,
        policy: Cow::Borrowed(&stamp.policy.digest),
        provenance: sheet.ruling.as_ref().map(origins),
        quarantined: matches!(&call.op, Op::Elsewhere(host) if host.quarantined),
        session: call.principal.session().into(),
        step,
        targets: redact_targets(stamp, &sheet.resources),
        ticket: ticket.map(|asked| QuestionRef { id: asked.id.clone(), with: asked.with.clone() }),
        tier: Some(tier),
        tool: sheet.tool.as_ref().map(|tool| ToolBody {
            digest: tool.digest_hex().into(),
            name: Cow::Borrowed(&tool.spec().name),
        }),
        v: Version::CURRENT,
        verdict: VerdictBody {
            code: reason.map(|reason| Cow::Borrowed(&*reason.code)),
            effect,
            help: reason.and_then(|reason| reason.help.as_deref().map(Cow::Borrowed)),
            reason: reason.map(|reason| stamp.secrets.redact(&reason.message)),
            rule: rule.map(|rule| Cow::Borrowed(&*rule.id)),
        },
    };
    Ok(EntryDraft {
        kind: EntryKind::Intent,
        at_ms: stamp.at_ms,
        body: CanonicalJson::encode(&body)?,
        payloads: args.iter().chain(&sheet.evidence).chain(&report).cloned().collect(),
    })
}

/// The result.
pub(crate) fn outcome(stamp: &Stamp, frame: &Frame, ended: &Ending<'_>) -> Canonical<EntryDraft> {
    let output = (!ended.output.bytes().is_empty()).then(|| Payload::shared(ended.output.shared()));
    let body = OutcomeBody {
        declassified: ended.declassified.into(),
        delivered: ended.delivered.into(),
        intent: frame.intent.seq,
        label: Some(ended.output.label()),
        lane: Some(frame.intent.lane),
        marks: marks(frame),
        obtained: ended.obtained.as_ref().map(Cow::Borrowed),
        op: frame.call.op.name().into(),
        output: output.as_ref().map(Payload::reference),
        session: frame.call.principal.session().into(),
        spent: ended.spent.as_ref().map(charged),
        status: redacted(&*stamp.secrets, ended.status),
        truncated: ended.truncated,
        v: Version::CURRENT,
    };
    Ok(EntryDraft {
        kind: EntryKind::Outcome,
        at_ms: stamp.at_ms,
        body: CanonicalJson::encode(&body)?,
        payloads: output.into_iter().collect(),
    })
}

fn approved(found: &Approved) -> ApprovedBody {
    ApprovedBody {
        asked_at_ms: found.asked_at_ms,
        attention_percent: found.attention_percent,
        by: found.by.clone(),
        decided_at_ms: found.decided_at_ms,
        scope: found.scope,
        ticket: found.ticket.clone(),
        voice: found.voice,
    }
}

fn origins(ruling: &Ruling) -> BTreeMap<Cow<'_, str>, Cow<'_, str>> {
    ruling.words().into_iter().map(|(argument, origin)| (argument.into(), origin.into())).collect()
}

fn charged(settled: &Settled) -> Charged<'static> {
    Charged {
        bytes_out: settled.bytes_out,
        money_microusd: settled.money_microusd,
        over: settled.over.iter().copied().map(Cow::Borrowed).collect(),
        tokens: settled.tokens,
        wall_ms: settled.wall_ms,
    }
}

/// Marks what an agent has written that runs later, so that a reviewer finds it.
fn marks(frame: &Frame) -> Vec<Cow<'static, str>> {
    if frame.call.principal.class() != Class::Agent {
        return Vec::new();
    }
    let written = frame.targets.iter().filter_map(|target| match target {
        Target::Path { path, access: Access::Write } => Some(regent_guard::kinds_of(path)),
        Target::Path { .. } | Target::Endpoint { .. } | Target::Argv(_) | Target::Secret(_) => None,
    });
    let written: Vec<Kinds> = written.collect();
    let runs = Kinds::RUN_LATER.iter().filter(|kind| written.iter().any(|kinds| kinds.contains(*kind)));
    runs.map(|kind| Cow::Borrowed(kind.name())).collect()
}

/// A tool's and an executor's own words may quote anything.
fn redacted<'a>(secrets: &dyn Secrets, status: &'a Status) -> Cow<'a, Status> {
    match status {
        Status::Failed(failure) => match secrets.redact(&failure.message) {
            Cow::Borrowed(_) => Cow::Borrowed(status),
            Cow::Owned(message) => Cow::Owned(Status::Failed(ToolFailure { message, ..failure.clone() })),
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
    /// What a reader was given while the call ran.
    pub(crate) delivered: &'a [Delivery],
    pub(crate) spent: Option<Settled>,
    pub(crate) declassified: &'a [Declassified],
    /// More came than the grant allowed, and was cut.
    pub(crate) truncated: bool,
}

/// Something that isn't a call.
pub(crate) fn note(kind: EntryKind, at_ms: i64, body: &impl Serialize) -> Canonical<EntryDraft> {
    Ok(EntryDraft { kind, at_ms, body: CanonicalJson::encode(body)?, payloads: Vec::new() })
}

/// Targets as an entry shows them: a program's arguments and the path of a URL are free text, which can't be erased here, so it
/// is redacted; and where there is much, long words are cut, since the payload has the whole. Where payloads are encrypted, free text is
/// left out: the entry says which program and which host, the payload says the rest.
fn redact_targets<'a>(stamp: &Stamp, targets: &'a [Target]) -> Cow<'a, [Target]> {
    let secrets = &*stamp.secrets;
    let is_free = |target: &Target| matches!(target, Target::Argv(_) | Target::Endpoint { .. });
    let is_much = targets.iter().map(text_bytes).sum::<usize>() > TARGETS_BYTES_MAX;
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
    let spelt = targets.iter().take(most).map(|target| reworded(target, most, &word));
    Cow::Owned(if stamp.sealed { spelt.map(sealed).collect() } else { spelt.collect() })
}
