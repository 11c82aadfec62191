//! Step 1: everything that policy may look at, gathered and settled before it looks.
//!
//! What policy judges is what the executor gets: paths are resolved here, once, and the resolved form replaces the argument.

mod bound;
mod mentioned;
mod target;
mod transform;

use std::sync::Arc;

use regent_ledger::{CanonicalJson, Payload};
use regent_policy::{
    Access, ArgLabels, Awaited, BudgetLeft, Charge, Class, Confidentiality, Consideration, Facts, Grant,
    Integrity, Label, Past, Policy, RateCounts, Rates, Reason, Resource, Tier, Verdict, nearest,
};
use regent_provenance::Ruling;
use regent_wire::Inference;
use serde_json::{Value, json};

use crate::agent::CallSlot;
use crate::approval::Approved;
use crate::budget::{Reservation, estimate};
use crate::call::{Call, HostCall, Op};
use crate::catalogue::{ArgumentKind, DriverKind, Tool};
use crate::charges::Charges;
use crate::evidence::Foresight;
use crate::history::Histories;
use crate::journal::Doubt;
use crate::kernel::{Core, InForce};
use crate::model::ModelPlan;
use crate::request::ruled;
use crate::role;
use crate::rules;
use crate::syscall::Fault;
use crate::{grants, within};
pub(crate) use bound::{Binding, Bound, BoundTree, TreeState};
use regent_workspace::{PathError, Spellings, Workspace};
pub(crate) use target::{Target, program_target, relocates, reworded, sealed, text_bytes};

/// What a call may carry.
const ARGS_BYTES_MAX: usize = 16 << 20;

/// Capabilities of a call to a model: it stays on this machine, or it doesn't.
const MODEL_LOCAL: &str = "model.local";
const MODEL_REMOTE: &str = "model.remote";

/// The facts of one call, owned.
#[derive(Debug)]
pub(crate) struct Sheet {
    /// What judges the call, from its facts to its outcome, also if another policy is put in force meanwhile.
    pub(crate) policy: Arc<InForce>,
    /// The arguments as policy judges them and the executor gets them.
    pub(crate) args: Value,
    pub(crate) resources: Vec<Target>,
    /// What only policy looks at: the undeclared targets in the arguments of a tool elsewhere, and the names of links
    /// by which a path was given.
    pub(crate) mentioned: Vec<Target>,
    pub(crate) labels: ArgLabels,
    pub(crate) tool: Option<Arc<Tool>>,
    /// The plan of a model call: the model, its endpoint and its maximum cost.
    pub(crate) model: Option<ModelPlan>,
    /// Capabilities that the call has beside those that its tool declares.
    pub(crate) added: Vec<String>,
    /// The tier it would run at if policy doesn't raise it.
    pub(crate) tier: Tier,
    pub(crate) left: BudgetLeft,
    pub(crate) trust: u16,
    /// What the session has done so far, and this call's place in it.
    pub(crate) slot: CallSlot,
    /// How often the rules with a rate that may be about this call have been used.
    pub(crate) rates: RateCounts,
    /// What has happened so far, for rules that look back.
    pub(crate) past: Histories,
    /// What this call will have added to it.
    pub(crate) awaited: Awaited,
    /// Set where the kernel's own rules say no, whatever policy thinks.
    pub(crate) refusal: Option<Reason>,
    /// What provenance says to it, where a request has begun.
    pub(crate) ruling: Option<Ruling>,
    /// The text of others that a question about it quotes.
    pub(crate) quote: Option<String>,
    /// What the call has used up so far; given back unless it runs.
    pub(crate) charges: Charges,
    /// Set where a reviewer has approved exactly this call, or its repetition.
    pub(crate) approved: Option<Approved>,
    /// The arguments in the form that is recorded. Empty ones need no payload.
    pub(crate) recorded: Option<Payload>,
    /// The call at this step that may have happened already; a reviewer decides whether to repeat it.
    pub(crate) doubt: Option<Doubt>,
    /// What tells after a crash whether the call took effect.
    pub(crate) evidence: Option<Payload>,
    /// What the file that the call writes will hold, where its tool can tell.
    pub(crate) foresight: Option<Foresight>,
    /// The files that the approval is bound to, so that they can be compared again when the call is about to run.
    pub(crate) agreed: Option<Bound>,
}

impl Core {
    pub(crate) async fn facts(self: &Arc<Self>, call: &Call) -> Result<Sheet, Fault> {
        let who = &call.principal;
        let ended = self.gate(who).await?;
        let policy = self.policy();
        let mut sheet = Sheet {
            args: Value::Null,
            resources: Vec::new(),
            mentioned: Vec::new(),
            labels: ArgLabels {
                default: self.label_of_input(call),
                fields: std::collections::BTreeMap::new(),
            },
            tool: None,
            model: None,
            added: Vec::new(),
            tier: Tier::Host,
            left: self.gate.budgets.left(who.lineage(), self.now()).await,
            trust: self.society.agents.trust(who),
            slot: self.society.agents.session_facts(who, &call.op),
            rates: RateCounts::default(),
            past: self.past(who, &policy).await?,
            policy,
            awaited: Awaited::default(),
            refusal: ended,
            ruling: None,
            quote: None,
            charges: Charges::new(self, who),
            approved: None,
            recorded: None,
            doubt: None,
            evidence: None,
            foresight: None,
            agreed: None,
        };
        if let Op::Elsewhere(HostCall { measured: Some(measured), .. }) = &call.op {
            let session = &mut sheet.slot.session;
            (session.confidence, session.drift) = (measured.confidence, measured.drift);
        }
        if let Op::RunTool(run) | Op::Elsewhere(HostCall { run, .. }) = &call.op {
            let tool = if matches!(call.op, Op::RunTool(_)) {
                self.catalogue.get(&run.tool)
            } else {
                call.principal.life().and_then(|life| life.work().tool(&run.tool))
            };
            self.facts_of_tool(&mut sheet, call, tool, run.args.clone());
            self.rule(call, &mut sheet, &run.tool, &run.args);
        } else {
            self.facts_of_own(&mut sheet, call, &call.op);
        }
        if let Some(reason) = self.refuses_token(who, &call.op).await? {
            sheet.refusal = Some(reason);
        } else if sheet.refusal.is_none() {
            sheet.refusal = role::refuses(who, call.op.name());
        }
        sheet.fix_args();
        Ok(sheet)
    }

    /// An agent's words carry everything it has seen so far.
    pub(crate) fn label_of_input(&self, call: &Call) -> Label {
        let who = &call.principal;
        if who.class() == Class::Agent { self.society.agents.context(who) } else { who.own_label() }
    }

    fn facts_of_tool(&self, sheet: &mut Sheet, call: &Call, tool: Option<Arc<Tool>>, args: Value) {
        let (Op::RunTool(run) | Op::Elsewhere(HostCall { run, .. })) = &call.op else { return };
        let name = &run.tool;
        let Some(tool) = tool else {
            let message = format!("unknown tool `{}`", name.escape_debug());
            let known = self.catalogue.all();
            let known = known.iter().filter(|_| matches!(call.op, Op::RunTool(_)));
            let meant = nearest(name, known.map(|tool| tool.spec().name.as_str()));
            let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
            let help = format!("{meant}`regent tool list` shows the tools that exist");
            sheet.refuse("tool.unknown", message, &help);
            return;
        };
        sheet.args = args;
        if let Some(reason) = rules::for_operator(call, &tool) {
            sheet.refusal = Some(reason);
            return;
        }
        if let Err(why) = tool.check(&sheet.args) {
            let message = format!("the arguments don't fit `{name}`: {why}");
            sheet.refuse("args.invalid", message, "`regent tool list --json` shows each tool's schema");
            return;
        }
        match tool.tier_at_least(Tier::Host) {
            Some(tier) => sheet.tier = tier,
            None => {
                sheet.refuse("tier.instruction", format!("`{name}` is listed to models and never run"), "")
            }
        }
        for (pointer, kind) in &tool.spec().arguments {
            sheet.resolve(&self.workspace, pointer, *kind);
        }
        // What is moved can be read where it goes.
        if relocates(&sheet.resources) {
            let moved = sheet.resources.iter().filter_map(|target| match target {
                Target::Path { path, access: Access::Delete } => {
                    Some(Target::Path { path: path.clone(), access: Access::Read })
                }
                Target::Path { .. } | Target::Endpoint { .. } | Target::Argv(_) | Target::Secret(_) => None,
            });
            sheet.mentioned.extend(moved);
        }
        sheet.name_secrets();
        if matches!(call.op, Op::Elsewhere(_)) {
            sheet.mention(&self.workspace, &tool);
        }
        sheet.tool = Some(tool);
    }

    /// The kernel's own operations: their arguments are what the call says, and their paths are the virtual file system's.
    fn facts_of_own(&self, sheet: &mut Sheet, call: &Call, op: &Op) {
        sheet.args = match serde_json::to_value(op) {
            Ok(mut value) => value.get_mut("args").map(Value::take).unwrap_or_else(|| json!({})),
            Err(error) => {
                sheet.refuse("args.invalid", error.to_string(), "");
                return;
            }
        };
        for (path, access) in self.vfs_paths(call, op) {
            sheet.resources.push(Target::Path { path: format!("vfs:{path}"), access });
        }
        if let Op::Infer(inference) = op {
            self.facts_of_model(sheet, inference);
        }
        if let Some(reason) = self.own_rule(call, op) {
            sheet.refusal = Some(reason);
        }
    }

    /// Where a conversation would go is settled before policy judges it: the model that it sees is the model that is asked.
    fn facts_of_model(&self, sheet: &mut Sheet, inference: &Inference) {
        let Some(models) = &self.executors.models else {
            sheet.refuse(
                "model.none",
                "no model is set up".to_owned(),
                "`regent model list` shows the models",
            );
            return;
        };
        let conversation = sheet.labels.fields.values().fold(sheet.labels.default, |all, one| all.join(*one));
        let plan = match models.plan(inference, conversation) {
            Ok(plan) => plan,
            Err(reason) => {
                sheet.refusal = Some(reason);
                return;
            }
        };
        if let Some(slot) = sheet.args.get_mut("model") {
            *slot = Value::String(plan.model.clone());
        }
        match &plan.remote {
            Some(url) => {
                sheet.added.push(MODEL_REMOTE.to_owned());
                sheet.name_endpoint(url, "POST");
            }
            None => sheet.added.push(MODEL_LOCAL.to_owned()),
        }
        sheet.model = Some(plan);
    }

    /// The last of the facts: counts for the rates that policy names for this call, for the caller and for every agent above it.
    async fn count_rates(&self, call: &Call, sheet: &mut Sheet) {
        let mut needed = Vec::new();
        self.with_facts(call, sheet, |policy, facts| {
            policy.rates(&facts, &mut |charge| needed.push(charge));
            for above in call.principal.agents_above() {
                let facts = Facts { caller: above.as_caller(self.society.agents.trust(above)), ..facts };
                policy.rates(&facts, &mut |charge| needed.push(charge));
            }
        });
        sheet.rates = self.counted(call, &needed).await;
    }

    /// How often the caller has used each of these rates.
    pub(crate) async fn counted(&self, call: &Call, needed: &[Charge]) -> RateCounts {
        let (mut counts, now_ms) = (RateCounts::default(), self.clock.now_ms());
        for charge in needed {
            counts.insert(charge, self.gate.rates.used(charge, call.principal.rate_name(), now_ms).await);
        }
        counts
    }

    /// Step 2 without its conclusions: the pure decision on the facts.
    pub(crate) async fn decide(&self, call: &Call, sheet: &mut Sheet) -> Verdict {
        if let Some(reason) = &sheet.refusal {
            return Verdict::Deny(reason.clone());
        }
        if let Some(reason) = within::beyond(call, sheet).or_else(|| grants::beyond(call, sheet)) {
            return Verdict::Deny(reason);
        }
        self.count_rates(call, sheet).await;
        let verdict = self.with_facts(call, sheet, |policy, facts| {
            let own = policy.decide(&facts);
            self.gate.tallies.count(policy.contrast(&facts, &own));
            call.principal.agents_above().fold(own, |so_far, above| {
                let facts = Facts { caller: above.as_caller(self.society.agents.trust(above)), ..facts };
                so_far.narrowed(policy.decide(&facts), above.name())
            })
        });
        grants::asked(ruled(verdict, sheet.ruling.as_ref()), call, sheet)
    }

    /// The rules that policy looks at for a call, and how each fares; for people, not for the path of a call.
    pub(crate) fn considered(&self, call: &Call, sheet: &Sheet) -> Vec<Consideration> {
        if sheet.refusal.is_some() {
            return Vec::new();
        }
        self.with_facts(call, sheet, |policy, facts| policy.explain(&facts).considered)
    }

    pub(crate) fn with_facts<R>(
        &self,
        call: &Call,
        sheet: &Sheet,
        ask: impl FnOnce(&Policy, Facts<'_>) -> R,
    ) -> R {
        let (resources, now_ms) = (sheet.resources(), self.clock.now_ms());
        let declared = sheet.tool.as_ref().map_or(&[][..], |tool| tool.spec().capabilities.as_slice());
        let all = if sheet.added.is_empty() { Vec::new() } else { [declared, &sheet.added].concat() };
        let facts = Facts {
            caller: call.principal.as_caller(sheet.trust),
            op: call.op.name(),
            tool: sheet.tool.as_ref().map(|tool| tool.spec().name.as_str()),
            capabilities: if sheet.added.is_empty() { declared } else { &all },
            args: &sheet.args,
            labels: &sheet.labels,
            resources: &resources,
            tier: sheet.tier,
            now_ms,
            utc_offset_min: 0,
            left: sheet.left,
            session: sheet.slot.session,
            rates: Rates::Counted(&sheet.rates),
            past: Past { session: &sheet.past.session, lasting: &sheet.past.lasting },
        };
        ask(&sheet.policy.policy, facts)
    }

    /// What an allow still needs: an executor at the tier, room in the budgets, room in the rates. Each is taken, not looked at: the
    /// budget first, and then what `sheet.charges` gives back if anything after it refuses.
    pub(crate) async fn reserve(
        &self,
        call: &Call,
        sheet: &mut Sheet,
        grant: &mut Grant,
    ) -> Result<Result<Reservation, Reason>, Fault> {
        if let Some(tool) = &sheet.tool {
            match tool.tier_at_least(grant.tier.max(sheet.tier)) {
                // Nothing of ours runs for a tool that is performed elsewhere.
                Some(tier) if matches!(call.op, Op::Elsewhere(_)) || tool.driver().has(tier) => {
                    grant.tier = tier;
                }
                Some(tier) => return Ok(Err(no_tier(tool, tier))),
                None => return Ok(Err(no_tier(tool, grant.tier))),
            }
        }
        let most = estimate(call, sheet, &grant.limits);
        let reservation =
            match self.gate.budgets.reserve(call.principal().lineage(), &most, self.now()).await? {
                Ok(reservation) => reservation,
                Err(reason) => return Ok(Err(reason)),
            };
        if let Some(reason) = self.take_rates(call, sheet, grant).await? {
            return Ok(Err(reason));
        }
        if let Some(reason) = self.note_begin(call, sheet).await? {
            return Ok(Err(reason));
        }
        if let Some(reason) = self.take_step(call, sheet) {
            return Ok(Err(reason));
        }
        grant.limits.wall_ms_max = grant.limits.wall_ms_max.min(reservation.wall_ms_max());
        grant.rule_wall_ms_max = grant.rule_wall_ms_max.min(reservation.wall_ms_max());
        Ok(Ok(reservation))
    }

    /// Counts the call against every rate of the grant; the count and the check are one step in the shared state.
    async fn take_rates(
        &self,
        call: &Call,
        sheet: &mut Sheet,
        grant: &Grant,
    ) -> Result<Option<Reason>, Fault> {
        for charge in &grant.charges {
            let now_ms = self.clock.now_ms();
            if self.gate.rates.take(charge, call.principal().rate_name(), now_ms).await? {
                sheet.charges.rate(*charge, now_ms);
            } else {
                let window_s = charge.window_ms.div_ceil(1_000);
                let message = format!("the rate of {} in {window_s} s is exceeded", charge.limit);
                return Ok(Some(refusal("rate.exceeded", message, "wait, or raise the rule's `rate`")));
            }
        }
        Ok(None)
    }
}

impl Sheet {
    pub(crate) fn refuse(&mut self, code: &'static str, message: String, help: &str) {
        self.refusal = Some(refusal(code, message, help));
    }

    /// Puts the arguments into the one form that is recorded, or refuses them: what can't be written down exactly isn't done. The
    /// attempt still leaves a trace.
    fn fix_args(&mut self) {
        self.recorded = match &self.args {
            Value::Null => None,
            Value::Object(fields) if fields.is_empty() => None,
            args @ (Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_)) => match CanonicalJson::encode(args) {
                Ok(text) if text.as_str().len() <= ARGS_BYTES_MAX => {
                    Some(Payload::new(text.as_str().as_bytes().to_vec()))
                }
                Ok(text) => {
                    let message = format!("the arguments have {} bytes", text.as_str().len());
                    self.refuse("args.too_large", message, "a call may carry at most 16 MiB");
                    None
                }
                Err(error) => {
                    let written = args.to_string().into_bytes();
                    self.refuse("args.invalid", error.to_string(), "pass such a number as text");
                    (written.len() <= ARGS_BYTES_MAX).then(|| Payload::new(written))
                }
            },
        };
    }

    fn resources(&self) -> Vec<Resource<'_>> {
        self.resources.iter().chain(&self.mentioned).map(Target::view).collect()
    }

    /// Whether a reviewer has approved the call.
    pub(crate) fn is_agreed(&self) -> bool {
        self.approved.as_ref().is_some_and(|approved| approved.voice.is_person())
    }

    /// Turns one declared argument into the resource it stands for. Missing optional arguments stand for nothing.
    fn resolve(&mut self, workspace: &Workspace, pointer: &str, kind: ArgumentKind) {
        let Some(value) = self.args.pointer(pointer).cloned() else { return };
        match (kind, &value) {
            (ArgumentKind::Path(access), Value::String(text)) => {
                self.resolve_path(workspace, pointer, text, access)
            }
            (ArgumentKind::Url, Value::String(text)) => self.resolve_url(pointer, text),
            (ArgumentKind::Argv, Value::Array(_)) | (ArgumentKind::Shell, Value::String(_)) => {
                self.resources.extend(program_target(kind, &value));
            }
            (ArgumentKind::Path(_) | ArgumentKind::Url | ArgumentKind::Argv | ArgumentKind::Shell, _) => {
                self.refuse("args.invalid", format!("`{pointer}` doesn't match what the tool declares"), "");
            }
        }
    }

    fn resolve_path(&mut self, workspace: &Workspace, pointer: &str, text: &str, access: Access) {
        // What is done to an entry of a folder is done to a link, not to where it leads.
        let found = match access {
            Access::Delete => workspace.entry_spellings(text),
            Access::Read | Access::Write | Access::Execute | Access::List => workspace.spellings(text),
        };
        match found {
            Ok(Spellings { real, others }) => {
                if let Some(slot) = self.args.pointer_mut(pointer) {
                    *slot = Value::String(real.clone());
                }
                // A rule about a link is one about where it leads.
                for path in others.iter().chain([&real]) {
                    if let Some(reason) = rules::guarded_path(workspace, path, access) {
                        self.refusal = Some(reason);
                    }
                }
                self.resources.push(Target::Path { path: real, access });
                self.mentioned.extend(others.into_iter().map(|path| Target::Path { path, access }));
            }
            Err(error @ PathError::NotText) => self.refuse("path.invalid", error.to_string(), ""),
            Err(error) => {
                let help = "give a path inside the workspace, without links that lead out of it";
                self.refuse("path.refused", format!("`{}`: {error}", text.escape_debug()), help);
            }
        }
    }

    fn resolve_url(&mut self, pointer: &str, text: &str) {
        let method = self.args.get("method").and_then(Value::as_str).unwrap_or("GET").to_ascii_uppercase();
        if let Some(url) = self.name_endpoint(text, &method)
            && let Some(slot) = self.args.pointer_mut(pointer)
        {
            *slot = Value::String(url);
        }
    }

    /// Makes a URL into a target for policy, and returns its one spelling.
    fn name_endpoint(&mut self, text: &str, method: &str) -> Option<String> {
        match crate::endpoint::parse(text) {
            Ok(url) => {
                self.resources.push(Target::Endpoint {
                    scheme: url.scheme().to_owned(),
                    host: crate::endpoint::host_of(&url),
                    port: url.port_or_known_default().unwrap_or(0),
                    method: method.to_owned(),
                    path: url.path().to_owned(),
                });
                Some(url.to_string())
            }
            Err(why) => {
                self.refuse("url.refused", why, "give an http or https URL without user name or password");
                None
            }
        }
    }

    /// The tool, if the call runs a program in the process sandbox.
    pub(crate) fn program(&self) -> Option<String> {
        let spec = self.tool.as_ref().map(|tool| tool.spec())?;
        (spec.driver == DriverKind::Process).then(|| spec.name.clone())
    }

    /// An approval was found for the call, bound to these files.
    pub(crate) fn agree(&mut self, approved: Approved, bound: Bound) {
        self.charges.approved(&approved);
        (self.approved, self.agreed) = (Some(approved), Some(bound));
    }

    /// A fault before the effect: the call never runs, and has used up nothing.
    pub(crate) async fn unless_fault<T>(&mut self, done: Result<T, Fault>) -> Result<T, Fault> {
        if done.is_err() {
            self.charges.give_back().await;
        }
        done
    }

    /// The call runs, so it has used what it took; or it doesn't run after all, and has used up nothing.
    pub(crate) async fn spend(&mut self, reserved: Option<Reservation>, runs: bool) -> Option<Reservation> {
        if runs {
            self.charges.keep();
            self.slot.keep();
            return reserved;
        }
        self.charges.give_back().await;
        self.awaited = Awaited::default();
        None
    }

    /// Gives the judged arguments to the permit.
    pub(crate) fn take_args(&mut self) -> Value {
        std::mem::take(&mut self.args)
    }

    /// And what they reach for. The key of a model goes with the model that was judged: the settings put the two
    /// together, no caller can choose it, and so no rule has to name it.
    pub(crate) fn take_targets(&mut self) -> Vec<Target> {
        let mut targets = std::mem::take(&mut self.resources);
        targets.extend(self.model.iter().flat_map(|plan| plan.secrets.clone()).map(Target::Secret));
        targets
    }

    /// Whether doing it twice is the same as doing it once, so that recovery may try it again.
    pub(crate) fn is_idempotent(&self, op: &Op) -> bool {
        match &self.tool {
            Some(tool) => tool.spec().idempotent,
            // The kernel's own state lives in this process: after a crash there is nothing left that a repeat could double. Asking a
            // model again changes nothing in the world; at worst it is paid for twice.
            None => !matches!(op, Op::RunTool(_) | Op::Elsewhere(_)),
        }
    }

    /// The least trusted and most secret that the output can be taken for.
    pub(crate) fn output_floor(&self) -> Label {
        let own = match &self.tool {
            Some(tool) => tool.spec().output,
            None if self.model.is_some() => {
                Label { integrity: Integrity::OwnModel, confidentiality: Confidentiality::Internal }
            }
            None => Label { integrity: Integrity::System, confidentiality: Confidentiality::Internal },
        };
        // A result is at least as secret as what went in; where it came from is the tool's own matter.
        let inputs = self.labels.fields.values().fold(self.labels.default, |all, one| all.join(*one));
        Label { confidentiality: own.confidentiality.max(inputs.confidentiality), ..own }
    }
}

pub(crate) fn refusal(code: &'static str, message: String, help: &str) -> Reason {
    let help = (!help.is_empty()).then(|| help.to_owned());
    Reason { code: code.into(), message, rule: None, help }
}

fn no_tier(tool: &Tool, tier: Tier) -> Reason {
    let message = format!("`{}` requires the tier `{tier}`, which is not available here", tool.spec().name);
    refusal("tier.unavailable", message, "`regent doctor` says what this machine lacks")
}
