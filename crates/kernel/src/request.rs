//! The request that an agent works on, and where everything it has heard since came from. What follows from that is decided in
//! `regent-provenance`; here it meets the path: ruled on in step 1, narrowing in step 2, heard in step 6.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_policy::{Declassified, Integrity, Label, Layer, Question, Reason, RuleRef, Verdict};
use regent_provenance::{Begin, Cleared, FieldLabels, Observed, Origin, Ruling, Session, Stance};
use serde_json::{Value, json};

use crate::agent::AgentId;
use crate::call::{Call, HostCall, Op};
use crate::catalogue::{Tool, ToolSpec};
use crate::executor::RawOutput;
use crate::facts::{Sheet, refusal};
use crate::kernel::Core;
use crate::syscall::{Frame, Labelled, Status};

/// What an agent and its children work on together; nothing before a request has begun.
#[derive(Debug, Clone, Default)]
pub(crate) struct Work(Arc<Mutex<Option<Working>>>);

#[derive(Debug)]
struct Working {
    request: String,
    session: Session,
    /// The tools that the host performs itself.
    tools: HashMap<String, Arc<Tool>>,
}

impl Work {
    /// Gives a planned step back that was taken by a call which never ran.
    pub(crate) fn give_back(&self, ruling: &Ruling) {
        if let Some(working) = self.get().as_mut() {
            working.session.give_back(ruling);
        }
    }

    fn get(&self) -> MutexGuard<'_, Option<Working>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tool that the host of this request performs.
    pub(crate) fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        self.get().as_ref().and_then(|working| working.tools.get(name).cloned())
    }
}

impl Core {
    /// The effect of [`Op::Begin`]. Who has begun can only narrow.
    pub(crate) fn begin_request(&self, agent: &AgentId, begin: &Begin) -> RawOutput {
        let Some(agent) = self.agents.get(agent) else {
            return RawOutput::failed("request.no_agent", "there is no such agent");
        };
        let trusted = match begin.check() {
            Ok(trusted) => trusted,
            Err(error) => return RawOutput::failed("request.invalid", error.to_string()),
        };
        let mut work = agent.life.work().get();
        if let Some(working) = work.as_mut() {
            // The same request again narrows what it may do; another one is the person's next turn.
            let (changed, told) = if working.request == begin.request {
                (working.session.narrow(trusted), json!({"narrowed": true}))
            } else {
                (working.session.next_turn(&begin.request, trusted), json!({"turn": true}))
            };
            return match changed {
                Ok(()) => {
                    working.request.clone_from(&begin.request);
                    RawOutput::json(&told)
                }
                Err(error) => RawOutput::failed("request.wider", error.to_string()),
            };
        }
        let mut labels: HashMap<String, FieldLabels> = self
            .catalogue
            .all()
            .iter()
            .map(|tool| (tool.spec().name.clone(), tool.spec().field_labels()))
            .collect();
        let mut tools = HashMap::new();
        for (name, declared) in &begin.tools {
            let declared = declared.labelled(name);
            match Tool::new(ToolSpec::elsewhere(name, &declared)) {
                Ok(tool) => drop(tools.insert(name.clone(), Arc::new(tool))),
                Err(error) => return RawOutput::failed("request.invalid", error.to_string()),
            }
            labels.insert(name.clone(), declared.field_labels());
        }
        let inferred: Vec<&String> =
            begin.tools.keys().filter(|name| labels.get(*name).is_some_and(|one| one.inferred)).collect();
        let told = RawOutput::json(&json!({"inferred": inferred, "tools": begin.tools.len()}));
        match Session::begin(&begin.request, labels, trusted) {
            Ok(session) => *work = Some(Working { request: begin.request.clone(), session, tools }),
            Err(error) => return RawOutput::failed("request.invalid", error.to_string()),
        }
        told
    }

    /// The effect of [`Op::Declassify`].
    pub(crate) fn declassify(&self, agent: &AgentId, value: &Value) -> RawOutput {
        let agent = self.agents.get(agent);
        match agent.as_ref().map(|agent| agent.life.work().get()).as_deref_mut() {
            Some(Some(working)) => {
                working.session.declassify(value);
                RawOutput::json(&json!({}))
            }
            Some(None) | None => RawOutput::failed("request.none", "the agent works on no request"),
        }
    }

    /// Step 1: where the arguments come from. Found by what the agent said, before paths were resolved.
    pub(crate) fn rule(&self, call: &Call, sheet: &mut Sheet, tool: &str, args: &Value) {
        let Some(life) = call.principal.life() else { return };
        let report = if let Op::Elsewhere(host) = &call.op { host.derived_from.as_deref() } else { None };
        let ruling = life.work().get().as_ref().map(|one| one.session.rule_derived(tool, args, report));
        let Some(ruling) = ruling else { return };
        for found in &ruling.found {
            let integrity = match found.origin {
                Origin::Request => Integrity::User,
                Origin::Trusted(_) => Integrity::Tool,
                Origin::Untrusted(_) | Origin::Nowhere => Integrity::Web,
            };
            let pointer = format!("/{}", found.argument.replace('~', "~0").replace('/', "~1"));
            sheet.labels.fields.insert(pointer, Label { integrity, ..sheet.labels.default });
        }
        sheet.ruling = Some(ruling);
    }

    /// Takes the planned step that the ruling rests on; of two calls side by side, one gets it.
    pub(crate) fn take_step(&self, call: &Call, sheet: &mut Sheet) -> Option<Reason> {
        let (ruling, life) = (sheet.ruling.as_ref()?, call.principal.life()?);
        let taken = life.work().get().as_mut().is_none_or(|working| working.session.take(ruling));
        if taken {
            sheet.charges.step(ruling);
        }
        (!taken).then(|| refusal("plan.used_up", "another call has taken the planned step".to_owned(), ""))
    }

    /// Step 6: what came back is heard, whatever way it came. Gives back what rules have declassified of it.
    pub(crate) fn hear(
        &self,
        frame: &Frame,
        sheet: &Sheet,
        (output, status): (&Labelled, &Status),
        rules: &[Declassified],
    ) -> Vec<Declassified> {
        let Some(life) = frame.call.principal.life() else { return Vec::new() };
        let mut work = life.work().get();
        let Some(working) = work.as_mut() else { return Vec::new() };
        let (tool, ours) = if let Op::RunTool(run) | Op::Elsewhere(HostCall { run, .. }) = &frame.call.op {
            (run.tool.as_str(), false)
        } else {
            // The kernel's own words are trusted; what it only passes on is labelled.
            (frame.call.op.name(), output.label().integrity <= Integrity::OwnModel)
        };
        if output.bytes().is_empty() && sheet.ruling.is_none() || ours {
            return Vec::new();
        }
        let heard = serde_json::from_slice(output.bytes())
            .unwrap_or_else(|_| Value::String(output.text().into_owned()));
        // A host's report vouches for no value: only what a person saw and agreed to counts as theirs.
        let agreed = sheet.approved.as_ref().filter(|approved| approved.voice.is_person());
        let agreed = agreed.map(|_| &frame.args);
        let failed = matches!(status, Status::Failed(_));
        let cleared = Cleared {
            trust: rules.iter().flat_map(|one| &one.trust).cloned().collect(),
            open: rules.iter().flat_map(|one| &one.open).cloned().collect(),
        };
        // Only what came back whole and well is what its fields say it is.
        let cleared = (*status == Status::Ok).then_some(&cleared);
        let used = working.session.observe(
            sheet.ruling.as_ref(),
            &Observed { call: frame.intent.seq, tool, output: &heard, failed, agreed, cleared },
        );
        let really =
            |one: &Declassified| one.only(|name| used.trust.contains(name), |name| used.open.contains(name));
        rules.iter().map(really).filter(|one| !one.is_empty()).collect()
    }
}

/// Step 2: the stricter of what policy and provenance say.
pub(crate) fn ruled(verdict: Verdict, ruling: Option<&Ruling>) -> Verdict {
    let Some(ruling) = ruling else { return verdict };
    match (ruling.stance, verdict) {
        (Stance::Allow, verdict)
        | (Stance::Ask | Stance::Deny, verdict @ Verdict::Deny(_))
        | (Stance::Ask, verdict @ Verdict::Ask(_)) => verdict,
        (Stance::Deny, _) => Verdict::Deny(refusal(
            ruling.code,
            ruling.reason.clone(),
            "do only what the request needs, with values that it names",
        )),
        (Stance::Ask, Verdict::Allow(grant)) => Verdict::Ask(Question {
            rule: RuleRef { id: "provenance".into(), layer: Layer::Builtin, line: 0 },
            reason: ruling.reason.clone(),
            grant,
            approvers: 1,
        }),
    }
}
