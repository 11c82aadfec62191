//! A conversation: what the person says after the goal, to a task that runs here, that waits, or that has ended with an answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::TaskId;
use tokio::sync::watch;

use super::drive::TaskStart;
use super::held::Taking;
use super::{GOAL_BYTES_MAX, Inner, Runtime, TaskError, TaskHandle};
use crate::stop::StopRequest;
use crate::task::{Mode, Recorded, Said, StoppedTurn, Tape, TaskRecord, next_turn};

/// How many messages may wait for a running task.
const WAITING_MAX: usize = 64;

/// What the person says, before it has its place among the turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowUp {
    /// In their words.
    pub text: String,
    /// The model that goes on from here; the one before, if none.
    pub model: Option<String>,
    /// They stopped the task and want this instead: what is left of the turn that was stopped isn't done.
    pub instead: bool,
}

impl FollowUp {
    fn check(self) -> Result<Self, TaskError> {
        if self.text.trim().is_empty() || self.text.len() > GOAL_BYTES_MAX {
            return Err(TaskError::Goal);
        }
        Ok(self)
    }

    pub(super) fn before(self, turn: u32) -> Said {
        Said { turn, text: self.text, model: self.model, stopped: None }
    }
}

/// Steers a running task. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Reins {
    wish: watch::Sender<StopRequest>,
    messages: Arc<Mutex<VecDeque<FollowUp>>>,
    /// The task, if it follows a plan: that has no place for a message.
    planned: Option<TaskId>,
}

impl Reins {
    pub(super) fn new(record: &TaskRecord) -> (Self, watch::Receiver<StopRequest>) {
        let (wish, wished) = watch::channel(StopRequest::GoOn);
        let planned = (record.spec.mode == Mode::Plan).then(|| record.task.clone());
        (Self { wish, messages: Arc::default(), planned }, wished)
    }

    /// Stops it before its next step, for good.
    pub fn cancel(&self) {
        self.wish.send_replace(StopRequest::Cancel);
    }

    /// Stops it before its next step; it can be resumed.
    pub fn pause(&self) {
        self.wish.send_replace(StopRequest::Pause);
    }

    /// Tells it something: it works on that from its next turn on. Messages that come before then are told together.
    pub fn say(&self, message: FollowUp) -> Result<(), TaskError> {
        if let Some(planned) = &self.planned {
            return Err(TaskError::Planned(planned.clone()));
        }
        let message = message.check()?;
        {
            let mut waiting = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.len() >= WAITING_MAX {
                return Err(TaskError::Full(WAITING_MAX));
            }
            waiting.push_back(message);
        }
        self.wish.send_if_modified(|wish| {
            let goes_on = *wish == StopRequest::GoOn;
            if goes_on {
                *wish = StopRequest::Hear;
            }
            goes_on
        });
        Ok(())
    }

    /// What was said since this was asked last, in one message.
    pub(super) fn heard(&self) -> Option<FollowUp> {
        let mut waiting = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever stops the task has the messages back that it hasn't heard.
        if matches!(*self.wish.borrow(), StopRequest::Pause | StopRequest::Cancel) {
            return None;
        }
        self.wish.send_if_modified(|wish| {
            let hears = *wish == StopRequest::Hear;
            if hears {
                *wish = StopRequest::GoOn;
            }
            hears
        });
        let texts: Vec<&str> = waiting.iter().map(|one| one.text.as_str()).collect();
        let text = texts.join("\n\n");
        let model = waiting.iter().rev().find_map(|one| one.model.clone());
        waiting.clear();
        (!text.is_empty()).then_some(FollowUp { text, model, instead: false })
    }
}

impl Runtime {
    /// Says more to a task that doesn't run: it works on that, whether it waits or has ended with an answer. To one that runs here, the
    /// message is told, and nothing is returned.
    pub async fn say(&self, task: &TaskId, message: FollowUp) -> Result<Option<TaskHandle>, TaskError> {
        let live = self.0.live().get(task).cloned();
        if let Some(reins) = live {
            return reins.say(message).map(|()| None);
        }
        let (view, message) = (self.task(task)?, message.check()?);
        if view.record.spec.mode == Mode::Plan {
            return Err(TaskError::Planned(task.clone()));
        }
        if view.is_put_away() {
            return Err(TaskError::Over(task.clone(), view.word()));
        }
        self.check_tools(&view.record)?;
        let lock = self.0.lock(task).await?;
        // Another process may have run it until just now.
        let mut view = self.task(task)?;
        // What a person has stopped isn't made later, unless they resume it.
        let (turn, instead) = (self.0.next_turn(&view.record)?, message.instead || view.stopped);
        let mut said = message.before(turn);
        // What is left of an unfinished turn was asked for under other grants than the message gives.
        let mut next = view.record.clone();
        next.said.push(said.clone());
        if instead || next.reads_only() != view.record.reads_only() {
            said.stopped = self.0.stopped_turn(&view.record, turn)?;
        }
        self.0.note_said(task, view.runs, &said).await?;
        view.record.said.push(said);
        let hold = self.0.held.take(&self.0.kernel, &[&view.record], Taking::Run).await?.pop();
        let start = TaskStart {
            state: crate::task::TaskState::Pending,
            run: view.runs.saturating_add(1),
            // It looks at what is there before it changes more: that is what the message can be undone to.
            used: None,
        };
        self.enqueue(view.record, start, (hold, lock)).map(Some)
    }
}

impl Inner {
    /// The turn before a message, if it has begun, as far as it came.
    fn stopped_turn(&self, record: &TaskRecord, next: u32) -> Result<Option<StoppedTurn>, TaskError> {
        let Some(turn) = next.checked_sub(1).filter(|turn| *turn > 0) else { return Ok(None) };
        let family = record.ancestors.iter().map(|one| one.task.clone()).chain([record.task.clone()]);
        let tapes = self.tapes(&family.collect::<Vec<_>>())?;
        let made: Vec<Recorded> = Tape::whole(record, &tapes).into_values().collect();
        Ok(Some(StoppedTurn::new(turn, &made)))
    }

    /// The turn that answers what is said now.
    pub(super) fn next_turn(&self, record: &TaskRecord) -> Result<u32, TaskError> {
        let family: Vec<TaskId> =
            record.ancestors.iter().map(|one| one.task.clone()).chain([record.task.clone()]).collect();
        let tapes = self.tapes(&family)?;
        // A turn that has begun and has no end yet is made again without the message.
        let own =
            tapes.get(&record.task).into_iter().flat_map(|tape| &tape.steps).map(|step| step.step.as_str());
        let whole = Tape::whole(record, &tapes);
        Ok(next_turn(whole.keys().map(String::as_str).chain(own)))
    }
}
