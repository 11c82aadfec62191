//! `regent demo --task`: a real task in a throw-away folder, by a model on this machine, under the policy that `init` writes.
//!
//! Where no model can be had, a scripted one plays its part, and the output names it. Everything else is the same: the calls are judged, made
//! and recorded, and the ledger is verified in the end.

use regent_kernel::Budget;
use regent_ledger::{LedgerVerdict, VerifyOptions};
use regent_runtime::TaskSpec;
use serde_json::{Value, json};

use super::script::DemoFolders;
use crate::codes;
use crate::commands::model::{self, ModelCommand};
use crate::commands::task;
use crate::compose::{self, BootedKernel, error_chain};
use crate::context::Context;
use crate::controls::Controls;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::paths::{self, Project};
use crate::settings::Settings;
use crate::term;

/// What the agent is to do, with which tools. A small model can do it, and whether it did can be seen.
const GOAL: &str = "List the folder inbox, read the one file in it, and say where we meet.";
const TOOLS: [&str; 2] = ["fs.list", "fs.read"];
const LETTER: (&str, &str) = ("inbox/letter.txt", "Meet me at the harbour at nine. Bring the blue map.\n");
const PLACE: &str = "harbour";
const CALLS_MAX: u64 = 40;

/// Who does it.
struct Doer {
    model: String,
    /// A file of turns plays a model.
    is_scripted: bool,
}

pub(super) async fn run(context: &Context, no_model: bool) -> CommandResult {
    let world = DemoFolders::make()?;
    let place = |settings: Settings| Context {
        paths: world.paths.clone(),
        cwd: world.project.clone(),
        settings,
        ..context.clone()
    };
    let doer = match on_this_machine(context, &world, &place, no_model).await? {
        Some(doer) => doer,
        None => scripted(&world)?,
    };
    paths::write_private(&world.project.join(LETTER.0), LETTER.1.as_bytes())?;
    let inside = place(Settings::load(&world.paths, None, false)?);
    let project = Project::open(&world.project)?;
    let policy = compose::policy(&inside.paths, Some(&Controls::read(&project)?))?;
    let running = BootedKernel::boot_with(&inside, &project, policy).await?;
    let spec = TaskSpec {
        model: doer.model.clone(),
        tools: Some(TOOLS.map(str::to_owned).to_vec()),
        budget: Budget { calls: Some(CALLS_MAX), ..Budget::default() },
        ..TaskSpec::new(GOAL)
    };
    context.screen.say(&format!(
        "{}\n  {}\n  by {} in a temporary folder, under the policy that `regent init` writes\n",
        context.screen.aside().strong("A task"),
        GOAL,
        term::inline(&doer.model)
    ));
    let ended = task::watched(&inside, &running, spec, None).await;
    let ended = running.close(&inside, ended).await?;
    let is_right = ended.answer().is_ok_and(|answer| answer.to_lowercase().contains(PLACE));
    let mut data = ended.json();
    if let Some(fields) = data.as_object_mut() {
        let more = [
            ("model", json!(doer.model)),
            ("scripted", json!(doer.is_scripted)),
            ("as_asked", json!(is_right)),
        ];
        fields.extend(more.map(|(name, value)| (name.to_owned(), value)));
    }
    report(context, &project, &ended, is_right, data)
}

/// A model on this machine: one that is here, or one that is brought here now. Says why not, unless none is wanted.
async fn on_this_machine(
    context: &Context,
    world: &DemoFolders,
    place: &impl Fn(Settings) -> Context,
    no_model: bool,
) -> Result<Option<Doer>, Failure> {
    if no_model {
        return Ok(None);
    }
    // Weights are large: those that the user has are used where they are.
    paths::make_private(&world.paths.data)?;
    let (link, own) = (world.paths.weights(), context.paths.weights());
    std::os::unix::fs::symlink(&own, &link).map_err(|error| Failure::io("make", &link, &error))?;
    if let Some(doer) = here(&place(Settings::load(&world.paths, None, false)?))? {
        return Ok(Some(doer));
    }
    context.screen.say("Downloading a model; it is kept for later.\n");
    let brought = model::run(context, ModelCommand::Pull { name: None }).await;
    let found = here(&place(Settings::load(&world.paths, None, false)?))?;
    if found.is_none() {
        let why = brought
            .err()
            .map_or_else(String::new, |failure| format!(" ({})", term::inline(&failure.message)));
        context.screen.say(&format!("No model is available{why}, so a script replaces it.\n"));
    }
    Ok(found)
}

/// The first model whose weights are here.
fn here(inside: &Context) -> Result<Option<Doer>, Failure> {
    let ready = compose::models(inside)?.list().into_iter().find(|one| one.remote.is_none() && one.is_ready);
    Ok(ready.map(|one| Doer { model: one.model, is_scripted: false }))
}

/// A file of turns that does the same.
fn scripted(world: &DemoFolders) -> Result<Doer, Failure> {
    let call = |tool: &str, args: Value| json!({"calls": [{"tool": tool, "args": args}]});
    let turns = json!({"turns": [
        call("fs.list", json!({"path": "inbox"})),
        call("fs.read", json!({"path": LETTER.0})),
        call("task.finish", json!({"answer": "You meet at the harbour, at nine."})),
    ]});
    let file = world.paths.config.join("turns.json");
    paths::write_private(&file, turns.to_string().as_bytes())?;
    let settings = json!({"kind": "scripted", "file": file.display().to_string(), "models": ["demo"]});
    let lines = settings.as_object().into_iter().flatten().map(|(name, value)| format!("{name} = {value}\n"));
    let text = format!("[models.script]\n{}", lines.collect::<String>());
    paths::write_private(&world.paths.settings(), text.as_bytes())?;
    Ok(Doer { model: "script/demo".to_owned(), is_scripted: true })
}

fn report(
    context: &Context,
    project: &Project,
    ended: &task::TaskResult,
    is_right: bool,
    mut data: Value,
) -> CommandResult {
    let screen = &context.screen;
    let report = regent_ledger::verify(&project.audit(), &VerifyOptions::default())
        .map_err(|error| Failure::new(codes::AUDIT_UNREADABLE, error_chain(&error)))?;
    let entries: u64 = report.lanes.iter().map(|lane| lane.entries).sum();
    let is_whole = report.verdict == LedgerVerdict::Ok;
    if let Some(fields) = data.as_object_mut() {
        fields.insert("ledger".to_owned(), json!(report));
    }
    if !is_whole {
        return Err(Failure::new(codes::DEMO_UNEXPECTED, "the ledger doesn't verify").data(data));
    }
    let answer = match ended.answer() {
        Ok(answer) => term::block(answer).into_owned(),
        Err(failure) => return Err(failure.data(data)),
    };
    let word = if is_right { screen.good("done      ") } else { screen.warn("not quite ") };
    let right = if is_right {
        "the answer is correct"
    } else {
        "the answer is wrong, which small models sometimes are"
    };
    let text = format!(
        "\n{answer}\n\n  {word} {right}\n  {} {entries} entries: every attempt, verdict and outcome\n\nRun `regent init` in a project folder, then `regent task run \"GOAL\"`.\n",
        screen.good("verified  "),
    );
    Ok(Done::new(data, text))
}
