//! The loop: reason, act, observe, until the agent says that it is done. A program without a clock or chance: every call has a step,
//! so the same answers lead to the same calls.

mod act;
mod circles;
mod compact;
mod hooks;
mod notes;
mod observe;
pub(crate) mod placeholders;
mod shares;
#[cfg(test)]
mod tests;
mod todo;
pub(crate) mod toolbox;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use regent_kernel::{
    Changes, Completion, Inference, Message, Offer, Op, Role, Sampling, Signal, Status, StopReason, ToolCall,
    ToolUse,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::context::{
    Estimator, Finding, Guardrails, Layer, Markers, Prompts, Turn, Variables, Window, tokens_about,
};
use crate::door::{CallResult, Door, Patience, Retry};
use crate::event::{Event, shorten};
use crate::stop::StopCause;
use crate::task::{Deed, Instructions, Said};
use act::{SeenFiles, call_of};
use circles::Circles;
pub use hooks::{Hooks, NoHooks, Tick};
use notes::NestedNotes;
use placeholders::restored_message;
use todo::{TodoList, todo_offer};
use toolbox::Toolbox;

/// The tool with which an agent ends its task. The loop handles it; it never reaches the kernel.
pub const FINISH: &str = "task.finish";
/// What a model is told where nothing may be changed.
const READ_ONLY: &str =
    "[Only an answer is wanted. Files can be read, and programs can look at them; nothing can be changed.]";
/// What a model hears of its answer when the person says more.
const ANSWER_TAKEN: &str = "[your answer was shown to the person]";
/// Turns in a row in which a model may say nothing of use.
const IDLE_TURNS_MAX: u32 = 3;

/// The limits of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentLimits {
    /// Turns until it must have an answer.
    pub turns_max: u32,
    /// Tokens of one conversation, the answer included.
    pub window_tokens_max: u64,
    /// Tokens of one answer.
    pub answer_tokens_max: u64,
    /// Calls side by side.
    pub parallel_max: u32,
    /// How often the same turns may follow each other before that is a circle.
    pub circles_max: u32,
    /// How often a model that fails is asked again within one run.
    pub tries_max: u32,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            turns_max: 200,
            window_tokens_max: 24_000,
            answer_tokens_max: 2_048,
            parallel_max: 8,
            circles_max: 3,
            tries_max: 3,
        }
    }
}

/// How agents work here, whatever they work on.
#[derive(Debug, Clone)]
pub struct Craft {
    /// The templates.
    pub prompts: Arc<Prompts>,
    /// The last look before anything is sent.
    pub guardrails: Guardrails,
    /// Callbacks, which may add a message.
    pub hooks: Arc<dyn Hooks>,
    /// How tokens are counted.
    pub estimator: Estimator,
}

impl Default for Craft {
    fn default() -> Self {
        Self {
            prompts: Arc::new(Prompts::default()),
            guardrails: Guardrails::default(),
            hooks: Arc::new(NoHooks),
            estimator: tokens_about,
        }
    }
}

/// One piece of work for one agent.
#[derive(Debug, Clone)]
pub struct Work {
    /// What is to be done.
    pub goal: String,
    /// Who the agent is.
    pub role: String,
    /// The tools that it is offered.
    pub offers: Vec<Offer>,
    /// The tools that it can find.
    pub reserve: Vec<Offer>,
    /// What instructs it beside the goal.
    pub instructions: Instructions,
    /// A line for each skill.
    pub skills: Vec<String>,
    /// What this builds on.
    pub findings: Vec<Finding>,
    /// What the person said after the goal.
    pub said: Vec<Said>,
    /// From which turn on which changes may be made.
    pub changes: Vec<(u32, Changes)>,
    /// The tools that do nothing but change something: they aren't offered where nothing may be changed.
    pub changing: BTreeSet<String>,
    /// Whether it keeps a list of what it has to do.
    pub todo: bool,
    /// For templates.
    pub vars: BTreeMap<String, String>,
    /// How answers are drawn.
    pub sampling: Sampling,
    /// What it may take.
    pub limits: AgentLimits,
    /// Marks what tools bring.
    pub markers: Markers,
}

impl Work {
    /// Whether nothing may be changed at a turn.
    fn reads_only(&self, turn: u32) -> bool {
        let so_far = self.changes.iter().take_while(|(since, _)| *since <= turn);
        so_far.last().is_some_and(|(_, changes)| *changes == Changes::Denied)
    }
}

/// The result of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentAnswer {
    /// In its words.
    pub text: String,
    /// How many turns it took.
    pub turns: u32,
    /// What was done for the last request.
    #[serde(skip)]
    pub(crate) deeds: Vec<Deed>,
}

/// Lets an agent work until it is done or has to stop.
pub async fn work(door: &Door, craft: &Craft, work: &Work) -> Result<AgentAnswer, StopCause> {
    let mut agent = AgentLoop::prepare(door, craft, work).await?;
    craft.hooks.on_bootstrap(door.task(), &work.goal).await;
    let ended = agent.turns().await;
    craft.hooks.on_shutdown(door.task(), &ended).await;
    ended
}

struct AgentLoop<'a> {
    door: &'a Door,
    craft: &'a Craft,
    work: &'a Work,
    window: Window,
    circles: Circles,
    warned: bool,
    /// It asks again for what it has: all that is left to it is to finish.
    stuck: bool,
    idle: u32,
    seen: SeenFiles,
    compacted_turns: usize,
    nested: NestedNotes,
    tools: Toolbox,
    todo: TodoList,
    /// What was done for the last request.
    deeds: Vec<Deed>,
}

impl<'a> AgentLoop<'a> {
    async fn prepare(door: &'a Door, craft: &'a Craft, work: &'a Work) -> Result<Self, StopCause> {
        let mut agent = Self {
            door,
            craft,
            work,
            window: opening(craft, work)?,
            circles: Circles::default(),
            warned: false,
            stuck: false,
            idle: 0,
            seen: SeenFiles::new(),
            compacted_turns: 0,
            nested: NestedNotes::default(),
            tools: Toolbox::new(&work.offers, &work.reserve),
            todo: TodoList::default(),
            deeds: Vec::new(),
        };
        agent.read_notes().await?;
        Ok(agent)
    }

    async fn turns(&mut self) -> Result<AgentAnswer, StopCause> {
        self.tell_heard(1, &self.work.goal);
        let mut left = self.work.limits.turns_max;
        for turn in 1.. {
            if self.hear(turn) {
                left = self.work.limits.turns_max;
            }
            if left == 0 {
                break;
            }
            left = left.saturating_sub(1);
            if let Some(stop) = self.door.is_to_stop().or_else(|| self.door.is_told()) {
                return Err(stop);
            }
            if self.door.is_dropped_turn(turn) {
                continue;
            }
            match self.craft.hooks.on_tick(self.door.task(), turn).await {
                Tick::GoOn => {}
                Tick::Say(text) => self.window.push(Turn::from_user(text)),
                Tick::Cancel => return Err(StopCause::Cancelled),
            }
            if let Some(text) = self.turn(turn).await?
                && self.work.said.iter().all(|one| one.turn <= turn)
            {
                return Ok(AgentAnswer { text, turns: turn, deeds: std::mem::take(&mut self.deeds) });
            }
        }
        Err(StopCause::Turns(self.work.limits.turns_max))
    }

    /// Takes in what the person said before this turn. The work begins anew with it, as far as limits go.
    fn hear(&mut self, turn: u32) -> bool {
        let (work, mut heard) = (self.work, false);
        for said in work.said.iter().filter(|one| one.turn == turn) {
            self.tell_heard(turn, &said.text);
            self.window.push(Turn::from_user(with_note(said.text.clone(), work.reads_only(turn))));
            heard = true;
        }
        if heard {
            (self.circles, self.warned, self.stuck, self.idle) = (Circles::default(), false, false, 0);
            self.deeds.clear();
        }
        heard
    }

    fn tell_heard(&self, turn: u32, text: &str) {
        self.door.events().send(Event::Heard { turn, text: shorten(text) });
    }

    /// One turn: reason, act, observe. Gives back the answer if there is one.
    async fn turn(&mut self, turn: u32) -> Result<Option<String>, StopCause> {
        self.compact_if_nearly_full(turn).await?;
        let step = format!("{turn}/think");
        self.door.events().send(Event::Turn { step: self.door.name_of(&step) });
        let (mut completion, replayed) = self.think(turn, &step).await?;
        name_calls(completion.message.calls_mut(), turn);
        let (table, asked) = (completion.redacted, calls_of(&completion.message));
        let message = restored_message(completion.message, &table);
        let news = Event::Said {
            step: self.door.name_of(&step),
            text: shorten(&message.text()),
            model: completion.model,
        };
        self.door.events().send(news);
        self.craft.hooks.on_message(self.door.task(), &message).await;
        let calls = calls_of(&message);
        if calls.is_empty() {
            return self.said(message, completion.stop);
        }
        self.idle = 0;
        if let [only] = calls.as_slice()
            && only.tool == FINISH
        {
            let (answer, taken) = (answer_in(&only.args), Message::answer(&only.id, ANSWER_TAKEN));
            self.window.push(Turn::new(vec![message, taken]));
            return Ok(Some(answer));
        }
        self.stuck = false;
        self.look_for_circles(&calls, replayed).await?;
        let (answers, changed) = self.act(turn, (&asked, &calls), &table).await?;
        if changed {
            self.door.milestone(&format!("{turn}")).await;
        }
        let mut messages = vec![message];
        messages.extend(answers);
        messages.extend(self.nested_notes(turn, &calls).await?);
        for offer in self.tools.next_turn() {
            self.window.take(tokens_of_offers(std::slice::from_ref(offer), self.craft.estimator));
        }
        self.window.push(Turn::new(messages));
        Ok(None)
    }

    async fn think(&mut self, turn: u32, step: &str) -> Result<(Completion, bool), StopCause> {
        let messages = self.window.messages()?;
        self.craft.guardrails.check(&messages, &self.work.markers)?;
        let reads_only = self.work.reads_only(turn);
        let left_out = |offer: &Offer| self.stuck || (reads_only && self.work.changing.contains(&offer.name));
        let offers = self.tools.offered().iter().filter(|offer| !left_out(offer));
        let inference = question(self.work, self.door.model_at(step), messages, offers);
        let others = tokens_of_offers(&inference.tools, self.craft.estimator);
        let answer = infer(self.door, step, inference, self.work.limits.tries_max).await?;
        self.window.calibrate(&answer.0.usage, others);
        Ok(answer)
    }

    /// Words without a call: an answer, or nothing of use.
    fn said(&mut self, message: Message, stop: StopReason) -> Result<Option<String>, StopCause> {
        let text = message.text();
        let is_said = !text.trim().is_empty();
        match stop {
            StopReason::Refusal => return Err(StopCause::Model("it refuses".to_owned())),
            StopReason::End | StopReason::ToolUse if is_said => {
                let text = text.into_owned();
                self.window.push(Turn::new(vec![message]));
                return Ok(Some(text));
            }
            StopReason::End | StopReason::ToolUse | StopReason::Length => {}
        }
        self.idle = self.idle.saturating_add(1);
        if self.idle >= IDLE_TURNS_MAX {
            return Err(StopCause::Model(format!("{IDLE_TURNS_MAX} turns without a call or an answer")));
        }
        let mut turn = if is_said { vec![message] } else { Vec::new() };
        let nudge = if stop == StopReason::Length {
            format!("[your answer was cut off; be shorter: call one tool, or {FINISH}]")
        } else {
            format!("[you said nothing; call a tool, or {FINISH} with the answer]")
        };
        turn.extend_from_slice(Turn::from_user(nudge).messages());
        self.window.push(Turn::new(turn));
        Ok(None)
    }

    /// The first circle brings the signal and a word to the model; a second one is the end.
    async fn look_for_circles(&mut self, uses: &[ToolUse], replayed: bool) -> Result<(), StopCause> {
        let calls: Vec<ToolCall> = uses.iter().map(call_of).collect();
        let times = usize::try_from(self.work.limits.circles_max).unwrap_or(usize::MAX);
        let Some(length) = self.circles.turn(&calls, times) else { return Ok(()) };
        let why = format!("the same {length} turns, {times} times over");
        if !replayed && let Some(agent) = self.door.who().agent_id() {
            self.door.kernel().raise(self.door.owner(), agent, Signal::Loop, &why).await?;
        }
        if self.warned {
            return Err(StopCause::Circles(why));
        }
        (self.warned, self.stuck, self.circles) = (true, true, Circles::default());
        Ok(())
    }
}

/// What a model is asked first: what a trial of a model sends is what a task would send.
pub(crate) fn first_question(craft: &Craft, work: &Work, model: &str) -> Result<Inference, StopCause> {
    Ok(question(
        work,
        model,
        opening(craft, work)?.messages()?,
        Toolbox::new(&work.offers, &work.reserve).offered().iter(),
    ))
}

/// A request, with a word about what the kernel holds its agent to.
fn with_note(request: String, reads_only: bool) -> String {
    if reads_only { format!("{request}\n\n{READ_ONLY}") } else { request }
}

/// The beginning of a conversation.
fn opening(craft: &Craft, work: &Work) -> Result<Window, StopCause> {
    let tools: Vec<String> = work.offers.iter().map(|offer| offer.name.clone()).collect();
    let variables = Variables {
        goal: &work.goal,
        role: &work.role,
        tools: &tools,
        skills: &work.skills,
        findings: &work.findings,
        vars: &work.vars,
    };
    let offered = Toolbox::new(&work.offers, &work.reserve);
    let taken =
        tokens_of_offers(offered.offered(), craft.estimator).saturating_add(work.limits.answer_tokens_max);
    let mut window = Window::new(work.limits.window_tokens_max.saturating_sub(taken), craft.estimator);
    let render = |layer| craft.prompts.render(layer, &variables);
    let system = [render(Layer::System)?, render(Layer::Role)?];
    let system = system.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join("\n\n");
    window.pin(Role::System, system);
    window.pin(Role::User, with_note(render(Layer::Task)?, work.reads_only(1)));
    Ok(window)
}

fn tokens_of_offers(offers: &[Offer], of: Estimator) -> u64 {
    of(&serde_json::to_string(offers).unwrap_or_default())
}

fn question<'o>(
    work: &Work,
    model: &str,
    messages: Vec<Message>,
    offers: impl Iterator<Item = &'o Offer>,
) -> Inference {
    Inference {
        model: model.to_owned(),
        messages,
        tools: offers.cloned().chain(work.todo.then(todo_offer)).chain([finish_offer()]).collect(),
        tokens_max: work.limits.answer_tokens_max,
        sampling: work.sampling.clone(),
    }
}

/// Asks a model at a step.
pub(crate) async fn infer(
    door: &Door,
    step: &str,
    inference: Inference,
    tries_max: u32,
) -> Result<(Completion, bool), StopCause> {
    let (heard, replayed) = door.persist(step, Op::Infer(inference), Patience::Failures(tries_max)).await?;
    let outcome = match heard {
        CallResult::Done(outcome) => outcome,
        CallResult::Denied(denial) => {
            return Err(StopCause::of_denial(&denial.reason).unwrap_or(StopCause::Denied(denial.reason)));
        }
        CallResult::Broke(message) => return Err(StopCause::Passing(message)),
    };
    match &outcome.status {
        Status::Ok => {}
        Status::Failed(failure) => {
            let why = format!("{}: {}", failure.code, failure.message);
            return Err(match Retry::from_outcome(&outcome) {
                Retry::Unsaid => StopCause::Passing(why),
                Retry::Never => StopCause::Refused(why),
                Retry::Later(at_ms) => StopCause::Unavailable { why, at_ms },
            });
        }
        Status::TimedOut => return Err(StopCause::Passing("the model took too long".to_owned())),
        Status::Cancelled => return Err(StopCause::Passing("the call to the model was stopped".to_owned())),
        Status::Faulted(message) => return Err(StopCause::Passing(message.clone())),
    }
    if outcome.truncated {
        return Err(StopCause::Model("it reached the output limit".to_owned()));
    }
    let completion = serde_json::from_slice(outcome.output.bytes());
    completion.map(|completion| (completion, replayed)).map_err(|error| StopCause::Model(error.to_string()))
}

fn finish_offer() -> Offer {
    Offer {
        name: FINISH.to_owned(),
        description: "End the task, with the answer to it. If it can't be done, say what is in the way."
            .to_owned(),
        input: json!({
            "type": "object",
            "properties": {"answer": {"type": "string", "description": "what was asked for, or what was done"}},
            "required": ["answer"],
            "additionalProperties": false,
        }),
    }
}

/// Small models put the answer under many names; any text will do.
fn answer_in(args: &Value) -> String {
    let named = args.get("answer").map_or_else(|| args.clone(), Value::clone);
    match named {
        Value::String(text) => text,
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    }
}

fn calls_of(message: &Message) -> Vec<ToolUse> {
    message.calls().cloned().collect()
}

/// Every call has a name of its own, so that answers can be distinguished.
fn name_calls<'c>(calls: impl Iterator<Item = &'c mut ToolUse>, turn: u32) {
    let mut seen = BTreeSet::new();
    for (index, call) in calls.enumerate() {
        if call.id.is_empty() || !seen.insert(call.id.clone()) {
            call.id = format!("call-{turn}-{index}");
            seen.insert(call.id.clone());
        }
    }
}
