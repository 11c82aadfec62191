//! One run of a task's program: an agent is started, works, and ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use regent_kernel::{
    Begin, BoxFuture, Budget, Changes, Offer, Op, Principal, Reason, Reply, SideEffect, SpawnSpec, Status,
    Tier, Tool,
};
use regent_wire::result::Spawned;
use serde_json::Value;
use tokio::sync::{Mutex, watch};

use super::drive::Chronicle;
use super::held::Taking;
use super::{Checkpoints, Inner, TaskError};
use crate::agent::toolbox::OFFERED_MAX;
use crate::agent::{self, AgentAnswer, Craft, Work};
use crate::context::{Markers, Prompts};
use crate::door::{CallResult, Door, Milestones, Run, TaskUsage, Undone, is_before, is_not_now};
use crate::event::Events;
use crate::plan;
use crate::stop::{StopCause, StopRequest};
use crate::task::{Mode, TaskRecord, TaskState, TaskStateRecord};

/// Marks a field of a tool's schema that no model fills in.
pub(crate) const FILLED: &str = "x-regent-fill";

/// Capabilities of tools that change what Regent can do. Few tasks need them, so that an agent looks for them.
const RARE: [&str; 2] = ["skill.manage", "tool.generate"];

/// The steps that a replay may ask for.
#[derive(Debug)]
pub(super) struct Replaying(pub(super) BTreeSet<String>);

impl Inner {
    /// Runs the program of a task once. `known` is what the task has used, if the kernel knows its steps already. Gives back also what the task has used, all runs together, and what this one left
    /// undone.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        record: &TaskRecord,
        known: Option<TaskUsage>,
        book: Arc<Mutex<Chronicle>>,
        wish: watch::Receiver<StopRequest>,
        events: &Events,
    ) -> (Result<AgentAnswer, StopCause>, TaskUsage, Vec<Undone>) {
        let remembered = match known {
            Some(used) => Ok((used, None)),
            None => self.remembered(record).await,
        };
        let (before, last) = match remembered {
            Ok(remembered) => remembered,
            Err(stop) => return (Err(stop), TaskUsage::default(), Vec::new()),
        };
        let who = match self.start_agent(record, before).await {
            Ok(who) => who,
            Err(stop) => return (Err(stop), before, Vec::new()),
        };
        let running = TaskStateRecord {
            agent: who.agent_id().map(ToString::to_string),
            ..TaskStateRecord::state(TaskState::Running)
        };
        let begun = book.lock().await.state(running).await;
        if let Err(error) = begun {
            return (Err(stop_of(error)), before, Vec::new());
        }
        let milestones = self.options.snapshots.as_ref().map(|checkpoints| {
            Arc::new(Keeper::new(Arc::clone(self), checkpoints.clone(), book)) as Arc<dyn Milestones>
        });
        let used = std::sync::Mutex::new(before);
        let run = Arc::new(Run { milestones, used, ..self.new_run(record, wish, events.clone()) });
        run.tell_used();
        let who = if self.options.unattended { who.unattended() } else { who };
        let door = Door::new(Arc::clone(&run), who);
        // What a resumed task finds is the work of its earlier runs.
        match last {
            Some(step) => door.milestone(&step).await,
            None if before.calls == 0 => door.milestone("0").await,
            None => {}
        }
        let ended = self.program(&door, record).await;
        let exited = door.aside(Op::Exit { code: i32::from(ended.is_err()) }).await;
        (resolve_end(ended, &exited), run.used(), run.undone())
    }

    /// The same from the ledger alone.
    pub(super) async fn attempt_replay(
        self: &Arc<Self>,
        record: &TaskRecord,
        steps: Replaying,
    ) -> Result<AgentAnswer, TaskError> {
        let _hold = self.held.take(&self.kernel, &[record], Taking::Replay).await?;
        let who = self.start_agent(record, TaskUsage::default()).await?;
        let (_keep, wish) = watch::channel(StopRequest::GoOn);
        let run = Run { recorded: Some(steps.0), ..self.new_run(record, wish, Events::default()) };
        let door = Door::new(Arc::new(run), who);
        let ended = self.program(&door, record).await;
        let _ended = door.aside(Op::Exit { code: 0 }).await.is_ok();
        Ok(ended?)
    }

    /// Takes in what the ledger has of the task: what it has used so far, and its last step.
    async fn remembered(&self, record: &TaskRecord) -> Result<(TaskUsage, Option<String>), StopCause> {
        self.kernel.adopt(std::slice::from_ref(&record.task)).await?;
        let tapes = self.tapes(std::slice::from_ref(&record.task))?;
        let Some(tape) = tapes.get(&record.task) else { return Ok((TaskUsage::default(), None)) };
        let steps = tape.recorded().into_iter().filter(|step| !step.starts_with("run/"));
        let last = steps.reduce(|last, step| if is_before(&last, &step) { step } else { last });
        Ok((tape.used(), last))
    }

    fn new_run(&self, record: &TaskRecord, wish: watch::Receiver<StopRequest>, events: Events) -> Run {
        let head = self.owner.records.head();
        Run {
            kernel: self.kernel.clone(),
            owner: self.owner.principal.clone(),
            task: record.task.clone(),
            model: record.spec.model.clone(),
            ancestors: record.ancestors.clone(),
            said: record.said.clone(),
            recorded: None,
            asker: self.options.asker.clone(),
            wish,
            events,
            budget: record.spec.budget,
            began: (head.lane.to_string(), head.size),
            used: std::sync::Mutex::default(),
            undone: std::sync::Mutex::default(),
            told: std::sync::Mutex::default(),
            backoff_ms: record.spec.backoff_ms,
            milestones: None,
        }
    }

    /// Starts the agent, as the user whose task it is. What earlier runs used is gone from its budget.
    async fn start_agent(&self, record: &TaskRecord, before: TaskUsage) -> Result<Principal, StopCause> {
        let spec = &record.spec;
        let limited = spec.budget != Budget::default();
        let spawn = SpawnSpec {
            name: spec.agent.clone(),
            roles: spec.roles.clone(),
            new_group: true,
            trust: None,
            budget: limited.then(|| before.left_of(spec.budget)),
            priority: Some(spec.priority),
            grants: record.grants(),
        };
        let owner = &self.owner.principal;
        let outcome = match self.kernel.syscall(owner, Op::Spawn(spawn)).await? {
            Reply::Done(outcome) => outcome,
            Reply::Denied(denial) => return Err(refused(denial.reason)),
            Reply::Pending(ticket) => {
                return Err(ticket.into());
            }
        };
        let born = outcome.read::<Spawned>().map_err(|error| error.to_string());
        let who = born.and_then(|born| {
            self.kernel.principal_of(owner, &born.agent).ok_or_else(|| "it has ended already".to_owned())
        });
        let who = who.map_err(|why| StopCause::Passing(format!("can't start an agent: {why}")))?;
        self.begin(record, &who).await?;
        Ok(who)
    }

    /// Tells the kernel the user's request, before the agent has received any input. It is no step of the task: every run begins so.
    async fn begin(&self, record: &TaskRecord, who: &Principal) -> Result<(), StopCause> {
        let Some(agent) = who.agent_id().cloned() else { return Ok(()) };
        let spec = &record.spec;
        let request =
            requests_of(record).chain([spec.role.as_str()]).chain(spec.vars.values().map(String::as_str));
        let request = request.collect::<Vec<_>>().join("\n");
        let begin = Box::new(Begin { request, ..Begin::default() });
        let reply = self.kernel.syscall(&self.owner.principal, Op::Begin { agent, begin }).await?;
        match reply {
            Reply::Done(outcome) if outcome.status == Status::Ok => Ok(()),
            Reply::Done(outcome) => {
                Err(StopCause::Passing(format!("the task can't begin: {:?}", outcome.status)))
            }
            Reply::Denied(denial) => Err(refused(denial.reason)),
            Reply::Pending(ticket) => Err(ticket.into()),
        }
    }

    async fn program(&self, door: &Door, record: &TaskRecord) -> Result<AgentAnswer, StopCause> {
        let (work, craft) = (self.work(record), self.craft(record)?);
        match record.spec.mode {
            Mode::React => agent::work(door, &craft, &work).await,
            Mode::Plan => {
                let graph = plan::draft(door, &work).await?;
                plan::carry_out(door, &craft, &work, &graph, None).await
            }
        }
    }

    /// What the agent of a task is given.
    pub(super) fn work(&self, record: &TaskRecord) -> Work {
        let spec = &record.spec;
        let (offers, reserve) = self.offers(record);
        Work {
            goal: spec.goal.clone(),
            role: spec.role.clone(),
            offers,
            reserve,
            instructions: spec.instructions.clone(),
            skills: spec.skills.clone(),
            findings: Vec::new(),
            said: record.said.clone(),
            todo: record.spec.todo,
            changes: record.changes(),
            changing: self.changing(record),
            vars: spec.vars.clone(),
            sampling: spec.sampling.clone(),
            limits: spec.limits.clone(),
            markers: Markers::new(&record.seed),
        }
    }

    /// Tools that change something in Regent's own process. Programs and guests are confined, so that they can be run to look at things.
    fn changing(&self, record: &TaskRecord) -> BTreeSet<String> {
        let tools = record.tools.keys().filter_map(|name| self.kernel.tool(name));
        let changing = tools.filter(|tool| {
            let spec = tool.spec();
            matches!(spec.effect, SideEffect::Write | SideEffect::Delete) && spec.tiers.contains(&Tier::Host)
        });
        changing.map(|tool| tool.spec().name.clone()).collect()
    }

    /// The same with the task's own templates.
    pub(super) fn craft(&self, record: &TaskRecord) -> Result<Craft, StopCause> {
        let craft = self.options.craft.clone();
        if record.spec.prompts.is_empty() {
            return Ok(craft);
        }
        let mut prompts = Prompts::default();
        for (name, text) in &record.spec.prompts {
            prompts = prompts.part(name, text)?;
        }
        Ok(Craft { prompts: Arc::new(prompts), ..craft })
    }

    /// The tools that are offered from the first turn on, and those that a search finds. Tools that somebody named come in that order.
    fn offers(&self, record: &TaskRecord) -> (Vec<Offer>, Vec<Offer>) {
        let named = record.spec.tools.as_deref().unwrap_or_default();
        let rank = |tool: &Tool| {
            let is_rare = |capability: &String| RARE.contains(&capability.as_str());
            let rare = named.is_empty() && tool.spec().capabilities.iter().any(is_rare);
            (rare, named.iter().position(|name| *name == tool.spec().name))
        };
        let mut tools: Vec<_> = record.tools.keys().filter_map(|name| self.kernel.tool(name)).collect();
        tools.sort_by_key(|tool| rank(tool));
        let usual = tools.iter().filter(|tool| !rank(tool).0).count().min(OFFERED_MAX);
        let reserve = tools.split_off(usual);
        (offers_of(&tools), offers_of(&reserve))
    }
}

fn offers_of(tools: &[Arc<Tool>]) -> Vec<Offer> {
    let offer = |tool: &Arc<Tool>| Offer {
        name: tool.spec().name.clone(),
        description: tool.spec().description.clone(),
        input: offered(tool.spec().input.clone()),
    };
    tools.iter().map(offer).collect()
}

/// What the person asks for: the last request, and those before it that asked for more than an answer. A question about a command doesn't
/// name it as one to run.
fn requests_of(record: &TaskRecord) -> impl Iterator<Item = &str> {
    let texts = std::iter::once(&record.spec.goal).chain(record.said.iter().map(|said| &said.text));
    let last = record.said.len();
    let counts =
        move |(index, (_, changes)): (usize, (u32, Changes))| index == last || changes != Changes::Denied;
    let counts: Vec<bool> = record.changes().into_iter().enumerate().map(counts).collect();
    texts.zip(counts).filter(|(_, counts)| *counts).map(|(text, _)| text.as_str())
}

/// A tool's schema as a model sees it: without the fields that the runtime fills in.
fn offered(mut input: Value) -> Value {
    if let Some(fields) = input.get_mut("properties").and_then(Value::as_object_mut) {
        fields.retain(|_, field| field.get(FILLED).is_none());
    }
    input
}

/// A call that was stopped looks like one that failed for now. If the agent can't even exit, someone has ended it.
fn resolve_end(
    ended: Result<AgentAnswer, StopCause>,
    exited: &Result<CallResult, StopCause>,
) -> Result<AgentAnswer, StopCause> {
    let is_ended = matches!(exited, Ok(CallResult::Denied(denial)) if denial.reason.code == "agent.ended");
    match ended {
        Err(StopCause::Passing(_)) if is_ended => Err(StopCause::Ended),
        other => other,
    }
}

/// A denial that time or money can change is not the end of a task.
fn refused(reason: Reason) -> StopCause {
    if is_not_now(&reason) { StopCause::Used(reason) } else { StopCause::Denied(reason) }
}

pub(super) fn stop_of(error: TaskError) -> StopCause {
    match error {
        TaskError::Stop(stop) => stop,
        TaskError::Denied(reason) => refused(reason),
        TaskError::Fault(fault) => StopCause::Fault(fault),
        other @ (TaskError::Unknown(_)
        | TaskError::Over(..)
        | TaskError::Busy(_)
        | TaskError::Planned(_)
        | TaskError::Full(_)
        | TaskError::Goal
        | TaskError::NoTool(..)
        | TaskError::ToolChanged(_)
        | TaskError::Random(_)
        | TaskError::Lock(_)
        | TaskError::Snapshot(_)) => StopCause::Passing(other.to_string()),
    }
}

/// Takes snapshots of the workspace at milestones.
#[derive(Debug)]
struct Keeper {
    inner: Arc<Inner>,
    checkpoints: Checkpoints,
    book: Arc<Mutex<Chronicle>>,
    turns: AtomicU32,
    /// When the next is due by time; 0 before the first.
    due_ms: AtomicU64,
    /// Until when none is taken.
    rest_ms: AtomicU64,
}

/// What is long for a snapshot.
const SNAPSHOT_LONG_MS: u64 = 250;

impl Keeper {
    fn new(inner: Arc<Inner>, checkpoints: Checkpoints, book: Arc<Mutex<Chronicle>>) -> Self {
        Self {
            inner,
            checkpoints,
            book,
            turns: AtomicU32::new(0),
            due_ms: AtomicU64::new(0),
            rest_ms: AtomicU64::new(0),
        }
    }
}

impl Milestones for Keeper {
    fn reached<'a>(&'a self, step: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let turns = self.turns.fetch_add(1, Ordering::AcqRel).saturating_add(1);
            let now_ms = u64::try_from(self.inner.kernel.now_ms()).unwrap_or(0);
            let is_due = now_ms >= self.due_ms.load(Ordering::Acquire);
            let is_resting = now_ms < self.rest_ms.load(Ordering::Acquire);
            if is_resting || (turns < self.checkpoints.every_turns && !is_due) {
                return;
            }
            self.turns.store(0, Ordering::Release);
            self.due_ms.store(now_ms.saturating_add(self.checkpoints.every_ms), Ordering::Release);
            let (store, workspace) =
                (Arc::clone(&self.checkpoints.store), self.checkpoints.workspace.clone());
            let taken = tokio::task::spawn_blocking(move || store.take(&workspace)).await;
            let done_ms = u64::try_from(self.inner.kernel.now_ms()).unwrap_or(0);
            let took_ms = done_ms.saturating_sub(now_ms);
            if took_ms >= SNAPSHOT_LONG_MS {
                let pause_ms = took_ms.saturating_mul(self.checkpoints.rest_times);
                self.rest_ms.store(done_ms.saturating_add(pause_ms), Ordering::Release);
            }
            // A snapshot that can't be taken doesn't stop the work: the ledger is what the task resumes from.
            let mut book = self.book.lock().await;
            let why = match taken {
                Ok(Ok(id)) => match book.snapshot(&id, step).await {
                    Ok(()) => return,
                    Err(error) => error.to_string(),
                },
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            book.no_snapshot(step, why);
        })
    }
}
