//! All providers that are set up, and the kernel's way to them.

mod account;
mod attempt;
mod capable;
mod fallback;
mod outgoing;
mod parts;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_kernel::{
    BoxFuture, Clock, ExecuteError, Executor, Inference, Label, ModelPlan, Models, Permit, RawOutput, Reason,
    nearest, tier,
};
use regent_wire::Status;
use regent_wire::body::OutcomeBody;
use serde::Serialize;
use serde_json::{Value, json};

use crate::breaker::{Breaker, BreakerState, Trip};
use crate::capability::{Capability, CapabilitySpec, CapabilityTable};
use crate::patience::Patience;
use crate::provider::{Provider, ProviderError};
use crate::remote::Remote;
use crate::router::{self, ANY, Candidate, Choice, ModelStats};
use crate::scheduler::{Room, Scheduler};
use crate::scripted::Scripted;
use crate::settings::{ProviderKind, ProviderSettings, RouterSettings, Settings, SettingsError, check_model};
use crate::tokens;
use crate::wire::{Anthropic, Gemini, Ollama, OpenAiChat, OpenAiResponses, Wire, parameters};

/// Calls at once, and waiting, where the settings don't say.
const RUNNING_MAX: usize = 16;
const LOCAL_RUNNING_MAX: usize = 4;
const WAITING_MAX: usize = 1_024;
/// The name of weights that need no settings.
const LOCAL: &str = "local";
/// A conversation has no more turns, offers no more tools, and no answer is longer.
const TURNS_MAX: usize = 10_000;
const OFFERS_MAX: usize = 512;
const TOKENS_MAX: u64 = 1 << 20;

/// Performs calls to models.
pub struct Hub {
    entries: BTreeMap<String, ProviderEntry>,
    table: CapabilityTable,
    rules: RouterSettings,
    seen: Mutex<ModelStats>,
    /// Calls that are falling back just now: what they make of it doesn't fall back itself.
    falling: Mutex<BTreeSet<u64>>,
    clock: Arc<dyn Clock>,
}

/// One provider and what is kept about it.
#[derive(Debug)]
struct ProviderEntry {
    name: String,
    kind: &'static str,
    provider: Arc<dyn Provider>,
    models: Vec<String>,
    fallback: Vec<String>,
    redact: bool,
    patience: Patience,
    own_capabilities: BTreeMap<String, CapabilitySpec>,
    breaker: Breaker,
    scheduler: Scheduler,
    /// What it refuses, by model.
    refused: Mutex<BTreeMap<String, BTreeSet<&'static str>>>,
    /// Why it was last taken for down.
    failure: Mutex<String>,
}

/// Makes the provider for the weights in a folder, with this many threads. The crate `regent-inference` has one; a build without it passes
/// none.
pub type OpenWeights = fn(&Path, Option<usize>) -> Arc<dyn Provider>;

/// A model that is set up, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// As calls name it.
    pub model: String,
    /// What its provider speaks.
    pub kind: &'static str,
    /// Where it is; `None` on this machine.
    pub remote: Option<String>,
    /// The secret that opens it, by name.
    pub secret: Option<String>,
    /// Whether somebody knows its price.
    pub priced: bool,
    /// What it can do.
    pub capability: Capability,
    /// Its breaker lets calls pass.
    pub is_up: bool,
    /// What answers is there; weights in this process may have to be pulled first.
    pub is_ready: bool,
}

impl Hub {
    /// Without any provider.
    pub fn new(rules: RouterSettings, clock: Arc<dyn Clock>) -> Result<Self, SettingsError> {
        let table = CapabilityTable::compiled_in()
            .map_err(|error| SettingsError::Shape { message: error.to_string(), span: None })?;
        Ok(Self {
            entries: BTreeMap::new(),
            table,
            rules,
            seen: Mutex::default(),
            falling: Mutex::default(),
            clock,
        })
    }

    /// With what the settings name.
    pub fn from_settings(
        settings: Settings,
        local: Option<OpenWeights>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SettingsError> {
        let Settings { models, router, weights, table } = settings;
        let mut hub = Self::new(router, clock)?;
        if let Some(own) = table {
            hub.table = own.over(hub.table);
        }
        if let (Some(open), Some(folder)) = (local, weights.as_deref()) {
            hub.add_weights(&models, open, folder);
        }
        for (name, own) in models {
            let provider = provider(&own, local, weights.as_deref())
                .map_err(|why| SettingsError::Provider { name: name.clone(), why })?;
            hub.add(&name, provider, own);
        }
        Ok(hub)
    }

    /// Models whose weights have been pulled need no settings: they are `local/NAME`.
    fn add_weights(&mut self, set_up: &BTreeMap<String, ProviderSettings>, open: OpenWeights, folder: &Path) {
        let pulled: Vec<&str> =
            crate::pull::names().filter(|name| crate::pull::is_pulled(folder, name)).collect();
        if !pulled.is_empty() && !set_up.contains_key(LOCAL) {
            self.add(LOCAL, open(folder, None), ProviderSettings::new(ProviderKind::Local, &pulled));
        }
    }

    /// Adds a provider of one's own under a name; its models and the rest are as in settings.
    pub fn add(&mut self, name: &str, provider: Arc<dyn Provider>, own: ProviderSettings) {
        let usual = if own.kind == ProviderKind::Local { LOCAL_RUNNING_MAX } else { RUNNING_MAX };
        let room = Room {
            running_max: own.running_max.unwrap_or(usual).max(1),
            waiting_max: own.waiting_max.unwrap_or(WAITING_MAX),
        };
        let entry = ProviderEntry {
            name: name.to_owned(),
            kind: own.kind.word(),
            models: own.models,
            fallback: own.fallback,
            redact: own.redact.unwrap_or(true),
            patience: own.patience,
            own_capabilities: own.capabilities,
            breaker: Breaker::new(Trip::default(), Arc::clone(&self.clock)),
            scheduler: Scheduler::new(room, own.shares),
            refused: Mutex::default(),
            failure: Mutex::default(),
            provider,
        };
        self.entries.insert(name.to_owned(), entry);
    }

    /// Nothing is set up.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The models that are set up.
    pub fn list(&self) -> Vec<Listed> {
        let one = |(entry, model): (&ProviderEntry, &str)| Listed {
            model: entry.full(model),
            kind: entry.kind,
            remote: entry.provider.endpoint(model),
            secret: entry.provider.secret().map(str::to_owned),
            priced: self.money(entry, model, 1, 1).is_some(),
            capability: self.capable(entry, model),
            is_up: entry.breaker.state() == BreakerState::Closed,
            is_ready: entry.provider.is_ready(model),
        };
        self.models().map(one).collect()
    }

    /// Whether a name is that of a model, or leaves the choice to the router; if neither, why not.
    pub fn check_name(&self, model: &str) -> Result<(), Reason> {
        if is_auto(model) { Ok(()) } else { self.find(model).map(drop) }
    }

    /// Which model `auto`, or `auto:CLASS`, would select now for a conversation with this label, and why.
    pub fn explain(&self, inference: &Inference, label: Label) -> Choice {
        let tokens_in = tokens::of_conversation(inference);
        let candidate = |(entry, model): (&ProviderEntry, &str)| Candidate {
            model: entry.full(model),
            is_remote: entry.provider.endpoint(model).is_some(),
            is_up: entry.breaker.would_pass() && entry.provider.is_ready(model),
            refuses: parts::refused(inference, &*entry.provider, &self.capable(entry, model)),
            money_microusd_max: self.money(entry, model, tokens_in, inference.tokens_max),
        };
        let candidates: Vec<Candidate> = self.models().map(candidate).collect();
        router::choose(&self.rules, class_of(&inference.model), label, &candidates, &self.seen())
    }

    /// Whether a task class has settings or statistics of its own. Any other is chosen for as `auto`.
    pub fn knows_class(&self, class: &str) -> bool {
        class == ANY || self.rules.classes.contains_key(class) || self.seen().has_class(class)
    }

    /// The task classes that have settings.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.rules.classes.keys().map(String::as_str)
    }

    /// The statistics of each model by task class.
    pub fn seen(&self) -> MutexGuard<'_, ModelStats> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the result of a task for its model, to improve the next choice.
    pub fn learn(&self, class: &str, model: &str, was_good: bool) {
        self.seen().learn(class, model, was_good);
    }

    /// Learns from the recorded outcome of an earlier model call; ignores other outcomes.
    pub fn learn_from(&self, outcome: &OutcomeBody<'_>) {
        let Some(receipt) = outcome.obtained.as_deref() else { return };
        let text = |pointer: &str| receipt.pointer(pointer).and_then(Value::as_str);
        let (Some(model), Some(_usage)) = (text("/model"), text("/usage/source")) else { return };
        let class = class_of(text("/asked").unwrap_or_default());
        match &*outcome.status {
            Status::Ok => {
                self.learn_refusals(model, receipt);
                self.learn(class, model, true);
            }
            // A caller that stopped it says nothing about the model.
            Status::Cancelled => {}
            Status::Failed(_) | Status::TimedOut | Status::Faulted(_) => self.learn(class, model, false),
        }
    }

    /// What a model went without when it answered, it goes without from the start.
    fn learn_refusals(&self, model: &str, receipt: &Value) {
        let refused = receipt.get("refused").and_then(Value::as_array);
        if let (Some(refused), Ok((entry, model))) = (refused, self.find(model)) {
            for name in refused.iter().filter_map(Value::as_str).filter_map(parameters::known) {
                entry.go_without(model, name);
            }
        }
    }

    fn models(&self) -> impl Iterator<Item = (&ProviderEntry, &str)> {
        self.entries.values().flat_map(|entry| entry.models.iter().map(move |model| (entry, model.as_str())))
    }

    /// The provider and its own name for a model: `provider/model`, or `provider` for its first one.
    fn find<'h>(&'h self, model: &'h str) -> Result<(&'h ProviderEntry, &'h str), Reason> {
        let (name, own) = model.split_once('/').unwrap_or((model, ""));
        let unknown = || {
            let message = format!("unknown model `{}`", model.escape_debug());
            let meant = nearest(name, self.entries.keys().map(String::as_str));
            let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
            refusal("model.unknown", message, &format!("{meant}`regent model list` shows the models"))
        };
        let entry = self.entries.get(name).ok_or_else(unknown)?;
        let own = match own {
            "" => entry.models.first().map(String::as_str).ok_or_else(unknown)?,
            own => own,
        };
        check_model(own).map_err(|_| unknown())?;
        Ok((entry, own))
    }
}

impl ProviderEntry {
    fn full(&self, model: &str) -> String {
        format!("{}/{model}", self.name)
    }

    /// The parameters that a model has refused so far.
    fn refused_by(&self, model: &str) -> BTreeSet<&'static str> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get(model).cloned().unwrap_or_default()
    }

    /// Remembers that a model refuses a parameter; says whether that is news.
    fn go_without(&self, model: &str, parameter: &'static str) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.entry(model.to_owned()).or_default().insert(parameter)
    }

    fn note_failure(&self, error: &ProviderError) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = error.to_string();
    }

    fn last_failure(&self) -> String {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Models for Hub {
    fn plan(&self, inference: &Inference, label: Label) -> Result<ModelPlan, Reason> {
        check(inference)?;
        let chosen;
        let (entry, model) = if is_auto(&inference.model) {
            let choice = self.explain(inference, label);
            chosen = choice.fitting().next().map(str::to_owned).ok_or_else(|| none_fits(&choice))?;
            self.find(&chosen)?
        } else {
            self.find(&inference.model)?
        };
        let remote = entry.provider.endpoint(model);
        if remote.is_some() && !router::may_leave(label) {
            let level = json!(label.confidentiality);
            let message = format!(
                "the conversation is too confidential ({}) for the remote model `{}`",
                level.as_str().unwrap_or("unclassified"),
                entry.full(model)
            );
            let help = "use a local model, or leave out the tool with secret or unclassified output: `regent task run --tools a,b`; `regent tool show NAME` shows a tool's labels";
            return Err(refusal("model.confidential", message, help));
        }
        if let Some(part) = parts::refused(inference, &*entry.provider, &self.capable(entry, model)) {
            let message = format!("the model `{}` takes no {part}", entry.full(model));
            let help = "use a model that does (docs/models.md lists what each kind takes), or leave it out";
            return Err(refusal("model.unsupported_part", message, help));
        }
        let tokens_in = tokens::of_conversation(inference);
        Ok(ModelPlan {
            model: entry.full(model),
            remote,
            secret: entry.provider.secret().map(str::to_owned),
            tokens_in,
            money_microusd_max: self.money(entry, model, tokens_in, inference.tokens_max),
        })
    }
}

impl Executor<tier::Host> for Hub {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move { Ok(self.perform(&permit).await) })
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("providers", &self.entries.keys()).finish_non_exhaustive()
    }
}

/// A provider as the settings describe it.
fn provider(
    own: &ProviderSettings,
    local: Option<OpenWeights>,
    weights: Option<&Path>,
) -> Result<Arc<dyn Provider>, String> {
    let wire: Box<dyn Wire> = match own.kind {
        ProviderKind::Openai => Box::new(OpenAiChat { compatible: false }),
        ProviderKind::Compatible => Box::new(OpenAiChat { compatible: true }),
        ProviderKind::OpenaiResponses => Box::new(OpenAiResponses),
        ProviderKind::Anthropic => Box::new(Anthropic),
        ProviderKind::Gemini => Box::new(Gemini),
        ProviderKind::Ollama => Box::new(Ollama),
        ProviderKind::Scripted => {
            let path = own.file.as_ref().ok_or("a scripted model needs a `file`")?;
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("`{}` can't be read: {error}", path.display()))?;
            let script = Scripted::parse(&text).map_err(|why| format!("`{}`: {why}", path.display()))?;
            return Ok(Arc::new(script));
        }
        ProviderKind::Local => {
            let open = local.ok_or("this build can't run local models")?;
            let folder = own.file.as_deref().or(weights);
            return Ok(open(folder.ok_or("it needs a `file`: the folder with the weights")?, own.threads));
        }
    };
    let url = own.url.as_deref().or_else(|| own.kind.usual_url()).ok_or("it needs a `url`")?;
    Ok(Arc::new(Remote::new(wire, url, own.secret()?, own.patience)?))
}

fn is_auto(model: &str) -> bool {
    model == "auto" || model.starts_with("auto:")
}

/// The task class that a call names.
fn class_of(model: &str) -> &str {
    model.strip_prefix("auto:").filter(|class| !class.is_empty()).unwrap_or(ANY)
}

/// What no provider need see to refuse.
fn check(inference: &Inference) -> Result<(), Reason> {
    let wrong = |message: &str| Err(refusal("args.invalid", message.to_owned(), ""));
    if inference.messages.is_empty() || inference.messages.len() > TURNS_MAX {
        return wrong("a conversation must have between one turn and ten thousand");
    }
    if inference.tools.len() > OFFERS_MAX {
        return wrong("too many tools are offered");
    }
    if inference.tokens_max == 0 || inference.tokens_max > TOKENS_MAX {
        return wrong("`tokens_max` must be between 1 and 1048576");
    }
    parts::check(&inference.messages).or_else(|why| wrong(&why))
}

fn none_fits(choice: &Choice) -> Reason {
    let why: Vec<String> =
        choice.considered.iter().map(|one| format!("{}: {}", one.model, one.why)).collect();
    let why = if why.is_empty() { "none is set up".to_owned() } else { why.join("; ") };
    refusal("model.none_fits", format!("no model is usable: {why}"), "`regent model list` shows the models")
}

fn refusal(code: &'static str, message: String, help: &str) -> Reason {
    Reason { code: code.into(), message, rule: None, help: (!help.is_empty()).then(|| help.to_owned()) }
}

/// Settings of a provider that is added by hand, with these models and defaults for the rest.
impl ProviderSettings {
    /// Of this kind, with these models, and the rest as usual.
    pub fn new(kind: ProviderKind, models: &[&str]) -> Self {
        Self {
            kind,
            url: None,
            key: None,
            models: models.iter().map(|model| (*model).to_owned()).collect(),
            file: None,
            threads: None,
            fallback: Vec::new(),
            redact: None,
            running_max: None,
            waiting_max: None,
            shares: HashMap::new(),
            patience: Patience::default(),
            capabilities: BTreeMap::new(),
        }
    }
}
