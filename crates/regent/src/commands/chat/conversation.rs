//! A conversation: one task, to which each message is said in turn, with what it changed and how that is undone.

use std::cell::RefCell;
use std::collections::BTreeMap;

use regent_kernel::{Budget, Op, Signal, TaskId};
use regent_models::Listed;
use regent_runtime::snapshot::Restored;
use regent_runtime::task::Exchange;
use regent_runtime::{FollowUp, Mode, Runtime, TaskError, TaskHandle, TaskSpec, TaskState, TaskView};

use super::view::EndedCall;
use crate::codes;
use crate::commands::task;
use crate::compose::limits::{self, AskedLimits};
use crate::compose::{BootedKernel, instructions, tasks};
use crate::context::Context;
use crate::failure::Failure;
use crate::money;
use crate::past;
use crate::question::{self, AskedCall};

/// What the agent hears with the next message after its work was undone.
const UNDONE: &str = "[I have restored the workspace to what it was before the message that is quoted here. What you changed since is undone.]";
const QUOTED_CHARS_MAX: usize = 120;

/// A conversation, and who it is with.
pub(super) struct Conversation<'r> {
    context: &'r Context,
    running: &'r BootedKernel,
    runtime: Runtime,
    /// What a new one begins with.
    spec: TaskSpec,
    budget: Budget,
    task: Option<TaskId>,
    /// The model that goes on with the next message.
    model: Option<String>,
    /// What is said before the next message.
    note: Option<String>,
    /// The person stopped what the last message had begun.
    is_stopped: bool,
    /// So many of the last exchanges were undone.
    undone: usize,
    /// The snapshot that was taken last, and what was written since.
    snapshot: RefCell<(Option<String>, BTreeMap<String, String>)>,
}

impl<'r> Conversation<'r> {
    pub(super) fn new(
        context: &'r Context,
        running: &'r BootedKernel,
        runtime: Runtime,
        (mut spec, budget): (TaskSpec, Budget),
    ) -> Result<Self, Failure> {
        task::needs_a_model(context, running)?;
        task::is_a_model(running, &spec.model)?;
        spec.skills = task::skills(running);
        spec.conversation = true;
        spec.instructions = instructions::of_task(context)?;
        if spec.tools.is_none() {
            spec.tools = tasks::usual_tools(running, &spec.model);
            // A small model only writes lists.
            spec.todo = spec.tools.is_none();
        }
        Ok(Self {
            context,
            running,
            runtime,
            spec,
            budget,
            task: None,
            model: None,
            note: None,
            is_stopped: false,
            undone: 0,
            snapshot: RefCell::default(),
        })
    }

    pub(super) fn task(&self) -> Option<&TaskId> {
        self.task.as_ref()
    }

    pub(super) fn view(&self) -> Result<Option<TaskView>, Failure> {
        self.task.as_ref().map(|task| self.runtime.task(task)).transpose().map_err(Failure::from)
    }

    /// The model that answers the next message.
    pub(super) fn model(&self) -> Result<String, Failure> {
        if let Some(model) = &self.model {
            return Ok(model.clone());
        }
        let said = self.view()?.map(|view| {
            let later = view.record.said.iter().rev().find_map(|one| one.model.clone());
            later.unwrap_or(view.record.spec.model)
        });
        Ok(said.unwrap_or_else(|| self.spec.model.clone()))
    }

    pub(super) fn set_model(&mut self, model: String) -> Result<(), Failure> {
        task::is_a_model(self.running, &model)?;
        match self.task {
            Some(_) => self.model = Some(model),
            None => self.spec.model = model,
        }
        Ok(())
    }

    /// The names of the tools that the agent is offered; none if it is all that can be run.
    pub(super) fn tools(&self) -> Result<Option<Vec<String>>, Failure> {
        match self.view()? {
            Some(view) => Ok(Some(view.record.tools.keys().cloned().collect())),
            None => Ok(self.spec.tools.clone()),
        }
    }

    /// The models that are set up.
    pub(super) fn models(&self) -> Vec<Listed> {
        self.running.hub.list()
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.running.kernel.now_ms()
    }

    /// The next message begins another one.
    pub(super) fn begin_anew(&mut self) {
        (self.task, self.model, self.note) = (None, None, None);
        (self.is_stopped, self.undone) = (false, 0);
        *self.snapshot.borrow_mut() = (None, BTreeMap::new());
    }

    /// The conversations that can go on, the newest first.
    pub(super) fn others(&self) -> Result<Vec<TaskView>, Failure> {
        let mut views = past::Past::open(self.context)?.newest(200)?;
        views.retain(|view| view.record.spec.conversation && !view.is_put_away());
        views.reverse();
        Ok(views)
    }

    /// Goes on with a task.
    pub(super) async fn open(&mut self, task: TaskId) -> Result<TaskView, Failure> {
        let view = self.runtime.task(&task)?;
        if view.record.spec.mode == Mode::Plan {
            return Err(TaskError::Planned(task).into());
        }
        if view.is_put_away() {
            return Err(TaskError::Over(task, view.word()).into());
        }
        if self.budget != Budget::default() {
            let limits = money::merged(view.record.spec.budget, self.budget);
            self.runtime.set_budget(&task, limits).await?;
        }
        self.begin_anew();
        self.task = Some(task);
        self.snapshot.borrow_mut().0 = view.snapshots.last().map(|(id, _)| id.clone());
        Ok(view)
    }

    /// Whether there is work that was begun and has no answer.
    pub(super) fn is_unfinished(view: &TaskView) -> bool {
        match view.state {
            TaskState::Completed | TaskState::Cancelled | TaskState::Finalized | TaskState::Failed => false,
            TaskState::Initialized | TaskState::Pending | TaskState::Running | TaskState::Retrying => true,
        }
    }

    /// Goes on with what was stopped.
    pub(super) async fn resume(&mut self) -> Result<Option<TaskHandle>, Failure> {
        let Some(task) = self.task.clone() else { return Ok(None) };
        let view = self.runtime.task(&task)?;
        if view.state.is_over() {
            return Ok(None);
        }
        self.is_stopped = false;
        Ok(Some(self.runtime.resume(&task).await?))
    }

    /// Says a message. The first is the goal.
    pub(super) async fn say(&mut self, text: &str) -> Result<TaskHandle, Failure> {
        let text = match &self.note {
            Some(note) => format!("{note}\n\n{text}"),
            None => text.to_owned(),
        };
        let handle = match &self.task {
            None => {
                let mut spec = TaskSpec { goal: text, budget: self.budget, ..self.spec.clone() };
                spec.limits = limits::of_task(self.context, self.running, &spec, AskedLimits::default());
                self.runtime.run(spec).await?
            }
            Some(task) => {
                let message = FollowUp { text, model: self.model.clone(), instead: self.is_stopped };
                let said = self.runtime.say(task, message).await?;
                said.ok_or_else(|| TaskError::Busy(task.clone()))?
            }
        };
        self.task = Some(handle.task.clone());
        // Only what was said is said.
        (self.note, self.model) = (None, None);
        (self.is_stopped, self.undone) = (false, 0);
        Ok(handle)
    }

    /// Notes how the work on a message ended.
    pub(super) fn note_stopped(&mut self) {
        self.is_stopped = true;
    }

    /// Stops the calls that run, of the model and of tools.
    pub(super) async fn stop_calls(&self) -> Result<(), Failure> {
        let Some(agent) = self.view()?.and_then(|view| view.agent) else { return Ok(()) };
        let op = Op::Signal { agent: agent.as_str().into(), signal: Signal::Int, group: true };
        // An agent that has just ended has no calls.
        drop(self.running.host.syscall(&self.running.caller(), op).await?);
        Ok(())
    }

    /// The arguments of a call, in full.
    pub(super) fn arguments(&self, step: &str) -> Option<String> {
        let bytes = self.runtime.arguments(self.task.as_ref()?, step).ok()??;
        String::from_utf8(bytes).ok()
    }

    /// Notes that a snapshot was taken.
    pub(super) fn note_snapshot(&self, id: String) {
        *self.snapshot.borrow_mut() = (Some(id), BTreeMap::new());
    }

    /// What a call changed in a file, as a difference.
    pub(super) async fn change(&self, call: &EndedCall) -> Option<String> {
        let args: serde_json::Value = serde_json::from_str(&call.args).ok()?;
        let text = |name: &str| args.get(name).and_then(serde_json::Value::as_str).map(str::to_owned);
        let path = text("path")?;
        let (snapshot, known) = {
            let (snapshot, written) = &*self.snapshot.borrow();
            (snapshot.clone(), written.get(&path).cloned())
        };
        let before = match (known, snapshot) {
            (Some(text), _) => Some(text),
            (None, Some(id)) => match self.runtime.file_in(&id, &path).await {
                Ok(Some(bytes)) => String::from_utf8(bytes).ok(),
                Ok(None) => Some(String::new()),
                Err(_) => None,
            },
            (None, None) => None,
        };
        let after = match (text("content"), text("old"), text("new"), &before) {
            (Some(content), ..) if text("mode").as_deref() != Some("append") => Some(content),
            (Some(more), .., Some(before)) => Some(format!("{before}{more}")),
            (None, Some(old), Some(new), Some(before)) => Some(before.replacen(&old, &new, 1)),
            _unknown => None,
        };
        let asked = AskedCall { tool: call.tool.clone(), args };
        let change = question::change(&self.context.screen, &self.running.host, &asked, |_| before.clone())?;
        if let Some(after) = after {
            self.snapshot.borrow_mut().1.insert(path, after);
        }
        Some(change)
    }

    /// The snapshot from before the last `count` messages that aren't undone yet, and the exchange that they begin with.
    pub(super) fn before_last(&self, count: usize) -> Result<(String, Exchange, usize), Failure> {
        let none = || Failure::new(codes::TASK_SNAPSHOT, "there is nothing to undo yet");
        let (task, view) = self.task.as_ref().zip(self.view()?).ok_or_else(none)?;
        let left = view.exchanges.len().saturating_sub(self.undone);
        let index = left.checked_sub(count).ok_or_else(|| {
            Failure::new(codes::TASK_SNAPSHOT, format!("only {left} of the messages can be undone"))
        })?;
        let exchange = view.exchanges.get(index).cloned().ok_or_else(none)?;
        let (id, _) = self.runtime.snapshot(task, &exchange.turn.to_string())?;
        Ok((id, exchange, self.undone.saturating_add(count)))
    }

    /// The first snapshot, or the one from before the last message.
    pub(super) fn since(&self, whole: bool) -> Result<Option<String>, Failure> {
        let Some((task, view)) = self.task.as_ref().zip(self.view()?) else { return Ok(None) };
        let first = view.snapshots.first().map(|(id, _)| id.clone());
        let last =
            view.exchanges.last().and_then(|one| self.runtime.snapshot(task, &one.turn.to_string()).ok());
        Ok(if whole { first } else { last.map(|(id, _)| id).or(first) })
    }

    /// What restoring a snapshot would change.
    pub(super) async fn foresee(&self, snapshot: &str) -> Result<Restored, Failure> {
        let task = self
            .task
            .as_ref()
            .ok_or_else(|| Failure::new(codes::TASK_SNAPSHOT, "there is no conversation yet"))?;
        Ok(self.runtime.foresee(task, snapshot).await?)
    }

    /// A file in a snapshot, as text; empty where it isn't there.
    pub(super) async fn file_in(&self, snapshot: &str, path: &str) -> Option<String> {
        match self.runtime.file_in(snapshot, path).await {
            Ok(Some(bytes)) => String::from_utf8(bytes).ok(),
            Ok(None) => Some(String::new()),
            Err(_) => None,
        }
    }

    /// Restores a snapshot. The agent hears of it with the next message.
    pub(super) async fn undo(
        &mut self,
        snapshot: &str,
        from: &Exchange,
        undone: usize,
    ) -> Result<Restored, Failure> {
        let Some(task) = self.task.clone() else {
            return Err(Failure::new(codes::TASK_SNAPSHOT, "there is no conversation yet"));
        };
        let restored = self.runtime.rollback(&task, snapshot).await?;
        // What the person said is theirs to quote; the names of files may be others'.
        let quote: String = from.request.chars().take(QUOTED_CHARS_MAX).collect();
        self.note = Some(format!("{UNDONE}\n> {}", quote.replace('\n', "\n> ")));
        self.undone = undone;
        self.note_snapshot(snapshot.to_owned());
        Ok(restored)
    }
}
