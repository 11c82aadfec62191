//! The calls of one turn: those that change something run in the order given, those that only read run side by side.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use regent_kernel::{
    Access, ArgumentKind, DriverKind, Message, Op, Outcome, SideEffect, Status, Tier, ToolCall, ToolSpec,
    ToolUse,
};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::placeholders::{PlaceholderTable, final_call};
use super::shares::{Paging, Shown, cut_to_shares};
use super::todo::LIST_TOOL;
use super::toolbox::SEARCH;
use super::{AgentLoop, FINISH, observe};
use crate::door::{CallResult, LaterCall, Patience};
use crate::event::{Event, shorten};
use crate::runtime::FILLED;
use crate::stop::StopCause;
use crate::task::{Deed, DeedKind};

/// The tool that keeps a note in the agent's own memory.
const REMEMBER: &str = "memory.remember";

/// What a model hears of a call that the person stopped.
const NOT_MADE: &str = "[the person stopped you here: this was not done, or not all of it]";

/// What the files hold that this agent has read or written, by path: a later write says what it means to replace.
pub(super) type SeenFiles = BTreeMap<String, String>;

/// One turn's calls as they continue.
#[derive(Debug)]
struct Acting {
    running: JoinSet<(usize, Result<Acted, StopCause>)>,
    room: Arc<Semaphore>,
    texts: BTreeMap<usize, (Shown, Paging)>,
    /// Calls that a reviewer denied, with the advice to do something else.
    denied: BTreeMap<usize, String>,
    deeds: BTreeMap<usize, Deed>,
    stopped: Option<StopCause>,
    changed: bool,
}

/// The result of one call.
#[derive(Debug)]
struct Acted {
    text: (Shown, Paging),
    replayed: bool,
    denied: Option<String>,
    holds: Vec<(String, Option<String>)>,
    deed: Deed,
}

impl AgentLoop<'_> {
    /// Makes the calls of a turn. A call that changes something waits for all before it, and all after it wait for it. The answers
    /// come in the order of the calls. Says also whether something was really done, not only read or replayed. `asked` is what the
    /// model wrote, `uses` the same with the values of its placeholders.
    pub(super) async fn act(
        &mut self,
        turn: u32,
        (asked, uses): (&[ToolUse], &[ToolUse]),
        table: &PlaceholderTable,
    ) -> Result<(Vec<Message>, bool), StopCause> {
        let most = usize::try_from(self.work.limits.parallel_max.max(1)).unwrap_or(1);
        let mut acting = Acting {
            running: JoinSet::new(),
            room: Arc::new(Semaphore::new(most)),
            texts: BTreeMap::new(),
            denied: BTreeMap::new(),
            deeds: BTreeMap::new(),
            stopped: None,
            changed: false,
        };
        let (mut repeated, mut calls) = (0, VecDeque::new());
        for (index, (asked, used)) in asked.iter().zip(uses).enumerate() {
            if self.door.is_dropped(&format!("{turn}/tool/{index}")) {
                acting.texts.insert(index, word(NOT_MADE));
                continue;
            }
            if let Some(text) = self.held_back(used) {
                repeated += usize::from(
                    !matches!(used.tool.as_str(), FINISH | SEARCH | LIST_TOOL) && used.unreadable().is_none(),
                );
                acting.texts.insert(index, word(text));
                continue;
            }
            match self.call_to_make(asked, table) {
                Ok(call) => calls.push_back((index, call)),
                Err(text) => drop(acting.texts.insert(index, word(text))),
            }
        }
        while let Some((index, call)) = calls.pop_front() {
            let alone = self.is_ordered(&call);
            if alone {
                self.finish_running(uses, &mut acting).await;
            }
            if acting.stopped.is_some() {
                break;
            }
            let call = self.with_seen(call);
            let later = self.later(turn, alone, &calls);
            self.start((turn, index), call, later, &mut acting);
            if alone {
                self.finish_running(uses, &mut acting).await;
            }
        }
        self.finish_running(uses, &mut acting).await;
        if let Some(stop) = acting.stopped {
            return Err(stop);
        }
        self.deeds.extend(acting.deeds.into_values());
        self.stuck |= repeated == uses.len();
        merge_denials(&mut acting.texts, &acting.denied);
        let texts = cut_to_shares(acting.texts, self.window.estimated_room(), self.craft.estimator);
        let answer = |(used, text): (&ToolUse, String)| Message::answer(&used.id, text);
        Ok((uses.iter().zip(texts.into_values()).map(answer).collect(), acting.changed))
    }

    /// The calls that don't begin before this one has ended: those beside it are made at the same time.
    fn later(&self, turn: u32, alone: bool, calls: &VecDeque<(usize, ToolCall)>) -> Vec<LaterCall> {
        let later = calls.iter().skip_while(|(_, call)| !alone && !self.is_ordered(call));
        let later = later.map(|(index, call)| LaterCall {
            step: format!("{turn}/tool/{index}"),
            op: Op::RunTool(self.with_seen(call.clone())),
        });
        later.collect()
    }

    fn start(&self, (turn, index): (u32, usize), call: ToolCall, later: Vec<LaterCall>, acting: &mut Acting) {
        let (door, room) = (self.door.clone(), Arc::clone(&acting.room));
        let step = format!("{turn}/tool/{index}");
        let nonce = self.work.markers.issue(&door.name_of(&turn.to_string()));
        let known = door.kernel().tool(&call.tool);
        acting.running.spawn(async move {
            let _place = room.acquire().await;
            let (tool, args) = (call.tool.clone(), shorten(&call.args.to_string()));
            door.events().send(Event::Tool { step: door.name_of(&step), tool, args });
            let op = Op::RunTool(call.clone());
            let heard = door.persist_before(&step, op.clone(), Patience::Refusals, &later).await;
            // The memory of an agent ends with its process: a note that an earlier run kept is kept again.
            if let Ok((CallResult::Done(Outcome { status: Status::Ok, .. }), true)) = &heard
                && call.tool == REMEMBER
                && !door.is_replay()
                && let Err(stop) = door.aside(op).await
            {
                return (index, Err(stop));
            }
            let acted = heard.and_then(|(heard, replayed)| {
                let shown = observe::render(&heard, &nonce)?;
                let spec = known.as_ref().map(|tool| tool.spec());
                let output = shown.text.get(shown.content.clone()).unwrap_or_default();
                let paging = Paging::of_call(spec, &call.args, output);
                let denied = observe::advice(&heard).map(str::to_owned);
                let (holds, deed) = (holds(spec, &call, &heard), deed_of(spec, &call, &heard));
                Ok(Acted { text: (shown, paging), replayed, denied, holds, deed })
            });
            (index, acted)
        });
    }

    /// Waits for the calls that run.
    async fn finish_running(&mut self, uses: &[ToolUse], acting: &mut Acting) {
        while let Some(ended) = acting.running.join_next().await {
            match ended {
                Ok((index, Ok(acted))) => {
                    let changes = uses.get(index).is_some_and(|used| self.changes_something(used));
                    acting.changed |= !acted.replayed && changes;
                    acting.texts.insert(index, acted.text);
                    acting.deeds.insert(index, acted.deed);
                    acting.denied.extend(acted.denied.map(|advice| (index, advice)));
                    for (path, sha256) in acted.holds {
                        match sha256 {
                            Some(sha256) => drop(self.seen.insert(path, sha256)),
                            None => drop(self.seen.remove(&path)),
                        }
                    }
                }
                Ok((_, Err(stop))) => acting.stopped = Some(stop),
                Err(_torn_down) => acting.stopped = Some(StopCause::Passing("a call was aborted".to_owned())),
            }
        }
    }

    fn changes_something(&self, asked: &ToolUse) -> bool {
        !matches!(self.effect_of(&asked.tool), SideEffect::None | SideEffect::Read)
    }

    /// Whether the order of a call matters to others. Fetching a page doesn't change anything there.
    fn is_ordered(&self, call: &ToolCall) -> bool {
        match self.effect_of(&call.tool) {
            SideEffect::None | SideEffect::Read => false,
            SideEffect::Write | SideEffect::Delete => true,
            SideEffect::Network => {
                let method = call.args.get("method").and_then(Value::as_str).unwrap_or("GET");
                !self.names_method(&call.tool) || !matches!(method, "GET" | "HEAD")
            }
        }
    }

    /// What is not in the catalogue is refused by the kernel, and recorded there.
    fn effect_of(&self, tool: &str) -> SideEffect {
        let tool = self.door.kernel().tool(tool);
        tool.map_or(SideEffect::Write, |tool| tool.spec().effect)
    }

    /// Whether its calls say by which method they contact a URL, as policy judges it.
    fn names_method(&self, tool: &str) -> bool {
        self.door.kernel().tool(tool).is_some_and(|tool| {
            let contacts = tool.spec().arguments.values().any(|kind| *kind == ArgumentKind::Url);
            contacts && tool.spec().input.pointer("/properties/method").is_some()
        })
    }

    fn call_to_make(&self, asked: &ToolUse, table: &PlaceholderTable) -> Result<ToolCall, &'static str> {
        let tool = self.door.kernel().tool(&asked.tool);
        final_call(&call_of(asked), tool.as_ref().map(|tool| tool.spec()), table)
    }

    /// An agent that replaces a file means the content that it has seen. If that has changed since, the tool refuses.
    fn with_seen(&self, mut call: ToolCall) -> ToolCall {
        let tool = self.door.kernel().tool(&call.tool);
        if let Some(spec) = tool.as_ref().map(|tool| tool.spec()).filter(|spec| takes_seen(spec))
            && let [(path, Access::Write)] = paths_of(spec, &call).as_slice()
            && let Some(sha256) = self.seen.get(path)
            && let Some(fields) = call.args.as_object_mut()
        {
            fields.insert("seen".to_owned(), Value::String(sha256.clone()));
        }
        call
    }

    /// Calls that are answered here, without a system call.
    fn held_back(&mut self, used: &ToolUse) -> Option<String> {
        if let Some(raw) = used.unreadable() {
            return Some(unreadable(raw));
        }
        if used.tool == SEARCH {
            return Some(self.tools.search(&used.args));
        }
        if used.tool == LIST_TOOL && self.work.todo {
            let heard = self.todo.write(&used.args);
            self.door.events().send(Event::Todo { items: self.todo.items().to_vec() });
            return Some(heard);
        }
        if used.tool == FINISH {
            let text = "[not yet: other calls were made in the same turn; look at their answers first]";
            return Some(text.to_owned());
        }
        let effect = self.effect_of(&used.tool);
        self.circles
            .is_repeated(&call_of(used), effect)
            .then(|| "[refused: you have made this very call before and nothing has changed since; its answer is above]".to_owned())
    }
}

/// A result that is no tool's output.
fn word(text: impl Into<String>) -> (Shown, Paging) {
    (Shown::word(text), Paging::Items)
}

/// A reviewer who denies several calls of a turn gives one reason: the first call gets it, the others refer to it.
fn merge_denials(texts: &mut BTreeMap<usize, (Shown, Paging)>, denied: &BTreeMap<usize, String>) {
    let mut given: Vec<&String> = Vec::new();
    for (index, advice) in denied {
        if given.contains(&advice) {
            let text = format!("[denied ({}): this call was denied too, as above]", observe::DENIED);
            texts.insert(*index, word(text));
        } else {
            given.push(advice);
        }
    }
}

/// What files hold after a call, as the tool's receipt says; `None` as content if nobody knows any more.
/// What a call did, as far as an answer is compared with it.
fn deed_of(spec: Option<&ToolSpec>, call: &ToolCall, heard: &CallResult) -> Deed {
    let kind = match spec.map(|spec| (spec.effect, spec.tiers.contains(&Tier::Host))) {
        Some((SideEffect::None | SideEffect::Read, _)) => DeedKind::Looks,
        // Its own memory is no part of what was asked for.
        Some(_) if call.tool == REMEMBER => DeedKind::Looks,
        Some((_changes, false)) => DeedKind::Program,
        Some((SideEffect::Delete, true)) => DeedKind::Removes,
        Some((SideEffect::Write | SideEffect::Network, true)) | None => DeedKind::Changes,
    };
    let went_well = matches!(heard, CallResult::Done(Outcome { status: Status::Ok, .. }));
    let is_denied = observe::advice(heard).is_some();
    // What is written into a file names no file.
    let names = |name: &str| !matches!(name, "content" | "text" | "old" | "new");
    let args = call.args.as_object().into_iter().flatten().filter(|(name, _)| names(name));
    let args: Vec<String> = args.map(|(_, value)| value.to_string()).collect();
    Deed { tool: call.tool.clone(), args: args.join(" "), kind, went_well, is_denied }
}

fn holds(spec: Option<&ToolSpec>, call: &ToolCall, heard: &CallResult) -> Vec<(String, Option<String>)> {
    let (Some(spec), CallResult::Done(outcome)) = (spec, heard) else { return Vec::new() };
    // Where a program runs is no file that it reads.
    if spec.driver == DriverKind::Process {
        return Vec::new();
    }
    let sha256 = outcome.obtained.as_ref().and_then(|obtained| obtained.get("sha256")?.as_str());
    match (&outcome.status, sha256, paths_of(spec, call).as_slice()) {
        (Status::Ok, Some(sha256), [(path, _)]) => vec![(path.clone(), Some(sha256.to_owned()))],
        (status, _, paths) => {
            // A part that was read leaves what is known of the whole.
            let stays = |access: Access| {
                *status == Status::Ok && matches!(access, Access::Read | Access::List | Access::Execute)
            };
            let lost = paths.iter().filter(|(_, access)| !stays(*access));
            lost.map(|(path, _)| (path.clone(), None)).collect()
        }
    }
}

/// Whether the tool compares a file with what its caller has seen of it.
fn takes_seen(spec: &ToolSpec) -> bool {
    spec.input.pointer("/properties/seen").is_some_and(|field| field.get(FILLED).is_some())
}

/// The paths in the workspace that a call names, by what its manifest says of its arguments.
pub(super) fn paths_of(spec: &ToolSpec, call: &ToolCall) -> Vec<(String, Access)> {
    let path = |(pointer, kind): (&String, &ArgumentKind)| {
        let ArgumentKind::Path(access) = kind else { return None };
        let path = call.args.pointer(pointer)?.as_str()?;
        let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        (!path.starts_with('/') && !names.contains(&"..")).then(|| (names.join("/"), *access))
    };
    spec.arguments.iter().filter_map(path).collect()
}

/// What a model hears whose arguments can't be read.
fn unreadable(raw: &str) -> String {
    let why = match serde_json::from_str::<Value>(raw) {
        Ok(_) => "they were cut".to_owned(),
        Err(error) => error.to_string(),
    };
    format!(
        "[args.invalid: the arguments of this call are not JSON ({}). Nothing was done. Send them again as one JSON object]",
        observe::plain(&why)
    )
}

pub(super) fn call_of(used: &ToolUse) -> ToolCall {
    ToolCall { tool: used.tool.clone(), args: used.args.clone() }
}
