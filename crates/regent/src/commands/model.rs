//! `regent model`: which models are set up, and whether they answer.

mod pull;

use clap::Subcommand;
use regent_kernel::{Completion, Confidentiality, Inference, Integrity, Label, Message, Op, Role, Sampling};
use regent_models::{Capability, CapabilitySource, Listed, Thinking, pull as weights};
use regent_runtime::TaskSpec;
use serde_json::{Value, json};

use crate::calls;
use crate::codes;
use crate::compose::limits::{self, AskedLimits};
use crate::compose::{self, BootedKernel, tasks};
use crate::context::Context;
use crate::failure::{Failure, did_you_mean};
use crate::output::{CommandResult, Done};
use crate::term;

/// What a test asks. Models that think need some room to do so.
const QUESTION: &str = "Answer with the single word: ready";
const TOKENS_MAX: u64 = 256;

/// List and test models
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// List models, where they run, their limits, and whether their price is known
    List,
    /// Send a model a short prompt with everything that a task sends; judged by policy, charged, recorded
    Test {
        /// As `provider/model`, `provider`, `auto` or `auto:CLASS` [default: each provider's first model]
        name: Option<String>,
    },
    /// Download a model (checksum verified, resumable)
    Pull {
        /// The model's name [default: the first that `model list` shows]
        name: Option<String>,
    },
    /// Explain which model `auto` selects now
    Why {
        /// For this class of tasks
        class: Option<String>,
    },
}

impl ModelCommand {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::List => "model.list",
            Self::Test { .. } => "model.test",
            Self::Pull { .. } => "model.pull",
            Self::Why { .. } => "model.why",
        }
    }
}

pub(crate) async fn run(context: &Context, command: ModelCommand) -> CommandResult {
    match command {
        ModelCommand::List => list(context),
        ModelCommand::Pull { name } => pull::run(context, name.as_deref()).await,
        ModelCommand::Why { class } => why(context, class.as_deref()),
        ModelCommand::Test { name } => {
            let names = names(context, name)?;
            let running = BootedKernel::boot(context).await?;
            let result = test(context, &running, &names).await;
            running.close(context, result).await
        }
    }
}

fn list(context: &Context) -> CommandResult {
    let hub = compose::models(context)?;
    let listed = hub.list();
    let table = hub.table();
    let mut text = String::new();
    for one in &listed {
        let name = context.screen.strong(&term::inline(&format!("{:<40}", one.model)));
        let place = one.remote.as_deref().unwrap_or("on this machine");
        let price = if one.priced { "" } else { ", no known price" };
        let ready = if one.is_ready { "" } else { ", weights not downloaded" };
        let kind = context.screen.faint(&format!("{:<10}", one.kind));
        let limits = limits(&one.capability);
        text.push_str(&format!("{name} {kind}  {}, {limits}{price}{ready}\n", term::inline(place)));
    }
    if listed.is_empty() {
        text = format!("No models are set up. {}\n", how(context));
    }
    let folder = context.paths.weights();
    let known: Vec<Value> = weights::table()
        .iter()
        .map(|one| {
            let is_here = weights::is_pulled(&folder, &one.name);
            json!({"name": one.name, "about": one.about, "licence": one.licence, "bytes": one.bytes, "is_here": is_here})
        })
        .collect();
    for one in weights::table().iter().filter(|one| !weights::is_pulled(&folder, &one.name)) {
        let name = format!("{:<40}", format!("local/{}", one.name));
        text.push_str(&format!(
            "{} {}  not downloaded; run `regent model pull {}` ({} MB)\n",
            context.screen.faint(&name),
            context.screen.faint("local     "),
            one.name,
            one.bytes / 1_000_000
        ));
    }
    let table = json!({"date": table.date, "note": table.note});
    Ok(Done::new(json!({"models": listed, "weights": known, "capabilities": table}), text))
}

/// `1000k window, 128k answers, thinks`, and where that is from if nobody knows.
fn limits(capability: &Capability) -> String {
    let thousands = |tokens: u64| match tokens {
        0..10_000 => tokens.to_string(),
        tokens => format!("{}k", tokens / 1_000),
    };
    let (window, answer) = (thousands(capability.window_tokens), thousands(capability.answer_tokens));
    let thinks = if capability.reasoning == Thinking::None { "" } else { ", thinks" };
    let assumed = if capability.source == CapabilitySource::Default { " (assumed)" } else { "" };
    format!("{window} window, {answer} answers{thinks}{assumed}")
}

fn how(context: &Context) -> String {
    format!(
        "`regent model pull` downloads one. Or add to `{}`, for example:\n\n[models.ollama]\nkind = \"ollama\"\nmodels = [\"qwen2.5-coder:0.5b\"]",
        context.paths.settings().display()
    )
}

/// A choice as it would be for a user's own short question.
fn why(context: &Context, class: Option<&str>) -> CommandResult {
    let hub = compose::models(context)?;
    if let Ok(project) = context.project() {
        compose::recall_from(context, &hub, &project);
    }
    if let Some(class) = class.filter(|class| !hub.knows_class(class)) {
        let message = format!("unknown class of tasks `{}`", term::inline(class));
        let help = "`[router.classes.NAME]` in your settings file defines one; without a class it is `regent model why`";
        return Err(Failure::new(codes::MODEL_CLASS, message).help(did_you_mean(class, hub.classes(), help)));
    }
    let label = Label { integrity: Integrity::Operator, confidentiality: Confidentiality::Internal };
    let model = class.map_or_else(|| "auto".to_owned(), |class| format!("auto:{class}"));
    let choice = hub.explain(&question(&model), label);
    let mut text = String::new();
    for one in &choice.considered {
        let name = format!("{:<40}", one.model);
        let name = if one.fits {
            context.screen.strong(&term::inline(&name))
        } else {
            term::inline(&name).into_owned()
        };
        let no = if one.fits { "" } else { "no: " };
        text.push_str(&format!("{name} {no}{}\n", one.why));
    }
    if choice.considered.is_empty() {
        text = format!("No models are set up. {}\n", how(context));
    }
    Ok(Done::new(json!({"choice": choice}), text))
}

fn question(model: &str) -> Inference {
    Inference {
        model: model.to_owned(),
        messages: vec![Message::new(Role::User, QUESTION)],
        tools: Vec::new(),
        tokens_max: TOKENS_MAX,
        sampling: Sampling::default(),
    }
}

/// What is to be tested: what was named, or the first model of each provider.
fn names(context: &Context, name: Option<String>) -> Result<Vec<String>, Failure> {
    let hub = compose::models(context)?;
    if hub.is_empty() {
        return Err(Failure::new(codes::MODEL_NONE, "no models are set up").help(how(context)));
    }
    if let Some(name) = name {
        return Ok(vec![name]);
    }
    let mut names: Vec<String> = Vec::new();
    for Listed { model, .. } in hub.list() {
        let provider = |name: &str| name.split('/').next().map(str::to_owned);
        if names.last().and_then(|last| provider(last)) != provider(&model) {
            names.push(model);
        }
    }
    Ok(names)
}

async fn test(context: &Context, running: &BootedKernel, names: &[String]) -> CommandResult {
    let mut tested: Vec<Value> = Vec::new();
    let mut text = String::new();
    let mut failed = None;
    for name in names {
        match ask(context, running, name).await {
            Ok((line, value)) => {
                text.push_str(&line);
                tested.push(value);
            }
            Err(failure) => {
                if names.len() > 1 {
                    context.screen.say(&format!(
                        "{}: {}\n",
                        term::inline(name),
                        term::inline(&failure.message)
                    ));
                }
                failed.get_or_insert(failure);
            }
        }
    }
    match failed {
        Some(failure) => Err(failure),
        None => Ok(Done::new(json!({"tested": tested}), text)),
    }
}

/// A model's answer, as text or as the answer of a task.
fn said(completion: &Completion) -> String {
    let message = &completion.message;
    let answer = message.calls().next().map(|call| match call.args.get("answer").and_then(Value::as_str) {
        Some(answer) => answer.to_owned(),
        None => format!("{} {}", call.tool, call.args),
    });
    match message.text().trim() {
        "" => answer.unwrap_or_default(),
        text => text.to_owned(),
    }
}

/// What a task would send first, with the same prompt, tools and parameters: a model that passes here doesn't refuse a task. A model in
/// this process refuses nothing, and would read for minutes.
fn as_a_task(context: &Context, running: &BootedKernel, name: &str) -> Result<Inference, Failure> {
    if tasks::usual_tools(running, name).is_some() {
        return Ok(question(name));
    }
    let runtime = tasks::runtime(context, running, tasks::Asks::Later)?;
    let mut spec = TaskSpec { model: name.to_owned(), todo: true, ..TaskSpec::new(QUESTION) };
    spec.limits = limits::of_task(context, running, &spec, AskedLimits::default());
    Ok(runtime.first_question(spec)?)
}

async fn ask(context: &Context, running: &BootedKernel, name: &str) -> Result<(String, Value), Failure> {
    let began = context.clock.elapsed();
    let operator = running.caller();
    let asked = as_a_task(context, running, name)?;
    let outcome = calls::call(context, running, &operator, Op::Infer(asked)).await?;
    let took_ms = context.clock.elapsed().saturating_sub(began).as_millis();
    calls::succeeded(&outcome)?;
    let completion: Completion = serde_json::from_slice(outcome.output.bytes())
        .map_err(|error| Failure::new(codes::INTERNAL, format!("the answer can't be read: {error}")))?;
    let spent = outcome.spent;
    let said = said(&completion);
    let refused = outcome.obtained.as_ref().and_then(|receipt| receipt.get("refused")?.as_array());
    let refused: Vec<&str> = refused.into_iter().flatten().filter_map(Value::as_str).collect();
    let without = if refused.is_empty() {
        String::new()
    } else {
        format!("; it rejects the parameters {}", refused.join(", "))
    };
    let line = format!(
        "{} answered {} in {took_ms} ms, {} tokens, {} micro-USD{without}\n",
        context.screen.strong(&term::inline(&completion.model)),
        term::short(&format!("{said:?}"), 60),
        spent.tokens,
        spent.money_microusd
    );
    let value = json!({
        "asked": name,
        "model": completion.model,
        "text": said,
        "took_ms": u64::try_from(took_ms).unwrap_or(u64::MAX),
        "spent": spent,
        "receipt": outcome.obtained,
    });
    Ok((line, value))
}
