//! A session that can be swapped to disk. Every change is appended to a history; replaying the history gives a session with the same
//! rulings. The history takes a small fraction of the index's memory.
//!
//! Only this file changes the inner session, so that every change is recorded.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::flow::DerivedFrom;
use crate::labels::{Cleared, FieldLabels, SchemaNames};
use crate::plan::{Plan, ProposedStep};
use crate::ruling::{Point, Ruling, Stance};
use crate::session::{Observed, Reading, Session, SessionError, Trusted};
use crate::stored::StoredLabel;

/// Whether a session keeps a history and can be swapped to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Changes are recorded.
    Kept,
    /// The session stays in memory.
    NotKept,
}

/// Why a session can't be restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// The history is malformed.
    #[error("the history can't be read: {0}")]
    Unreadable(String),
    /// The history contains an impossible change.
    #[error("the history contradicts itself")]
    Contradiction,
}

/// A session with the history of its changes.
#[derive(Debug)]
pub struct Resumable {
    session: Session,
    history: History,
    /// One JSON object per line, since the history was last [taken](Self::take_history).
    unsaved: Vec<u8>,
    /// Why the session could not be restored.
    lost: Option<Box<str>>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Event<'a> {
    Begin(Cow<'a, str>, Narrowing<'a>),
    Tools(Vec<AddedTool>),
    Turn(Cow<'a, str>, Narrowing<'a>),
    Narrow(Narrowing<'a>),
    Take(Ruled),
    GiveBack(Ruled),
    Observe(Box<ObservedOutput<'a>>),
    Declassify(Cow<'a, Value>),
}

#[derive(Debug, Serialize, Deserialize)]
struct Narrowing<'a> {
    tools: Cow<'a, Option<BTreeSet<String>>>,
    plan: Cow<'a, Option<Plan>>,
    propose: Cow<'a, Option<Vec<ProposedStep>>>,
}

/// A tool added later, with the labels that hosts don't declare.
#[derive(Debug, Serialize, Deserialize)]
struct AddedTool {
    name: String,
    labels: FieldLabels,
    fields: SchemaNames,
    local: bool,
}

/// The lasting part of a ruling.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ruled {
    step: Option<usize>,
    acts: BTreeSet<u64>,
    turn: u32,
    asked: bool,
    swayed: bool,
    is_ours: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct ObservedOutput<'a> {
    ruling: Option<Ruled>,
    call: u64,
    tool: Cow<'a, str>,
    output: Cow<'a, Value>,
    failed: bool,
    agreed: Option<Cow<'a, Value>>,
    cleared: Option<Lowered<'a>>,
    #[serde(default)]
    reading: Reading,
    #[serde(default, skip_serializing_if = "StoredLabel::is_plain")]
    stored: StoredLabel,
}

/// See [`Cleared`].
#[derive(Debug, Serialize, Deserialize)]
struct Lowered<'a> {
    trust: Cow<'a, BTreeSet<String>>,
    open: Cow<'a, BTreeSet<String>>,
}

impl Resumable {
    /// See [`Session::begin`].
    pub fn begin(
        request: &str,
        tools: Arc<HashMap<String, FieldLabels>>,
        trusted: Trusted,
        history: History,
    ) -> Result<Self, SessionError> {
        let session = Session::begin_with(request, tools, trusted.clone())?;
        let mut new = Self { session, history, unsaved: Vec::new(), lost: None };
        new.note(&Event::Begin(request.into(), Narrowing::new(&trusted)));
        Ok(new)
    }

    /// Replays `history` with the tools that the session began with.
    pub fn resume(tools: Arc<HashMap<String, FieldLabels>>, history: &[u8]) -> Result<Self, ResumeError> {
        let unreadable = |error: serde_json::Error| ResumeError::Unreadable(error.to_string());
        let mut events = serde_json::Deserializer::from_slice(history).into_iter::<Event<'static>>();
        let Some(first) = events.next().transpose().map_err(unreadable)? else {
            return Err(ResumeError::Unreadable("it is empty".to_owned()));
        };
        let Event::Begin(request, trusted) = first else { return Err(ResumeError::Contradiction) };
        let session = Session::begin_with(&request, tools, trusted.into());
        let mut session = session.map_err(|_refused| ResumeError::Contradiction)?;
        for event in events {
            do_again(&mut session, event.map_err(unreadable)?)?;
        }
        Ok(Self { session, history: History::Kept, unsaved: Vec::new(), lost: None })
    }

    /// A session that could not be restored. It denies every call.
    pub fn lost(why: &str) -> Self {
        let (history, unsaved) = (History::NotKept, Vec::new());
        Self { session: Session::default(), history, unsaved, lost: Some(why.into()) }
    }

    /// The history since the last call, if complete. All parts in order are the full history.
    pub fn take_history(&mut self) -> Option<Vec<u8>> {
        (self.history == History::Kept).then(|| std::mem::take(&mut self.unsaved))
    }

    /// Bytes of history in memory.
    pub fn unsaved_bytes(&self) -> usize {
        self.unsaved.len()
    }

    /// Puts back [taken](Self::take_history) history that could not be saved.
    pub fn put_back(&mut self, mut history: Vec<u8>) {
        history.append(&mut self.unsaved);
        self.unsaved = history;
    }

    /// The session, read-only.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether any untrusted input was received; true for a lost session.
    pub fn is_tainted(&self) -> bool {
        self.lost.is_some() || self.session.is_tainted()
    }

    /// See [`Session::rule`].
    pub fn rule(&self, tool: &str, args: &Value) -> Ruling {
        self.rule_derived(tool, args, None, &[])
    }

    /// See [`Session::rule_derived`].
    pub fn rule_derived(
        &self,
        tool: &str,
        args: &Value,
        report: Option<&DerivedFrom>,
        free: &[&str],
    ) -> Ruling {
        if let Some(why) = &self.lost {
            let reason = format!("the history of this session can't be restored ({why}): begin another one");
            return Ruling::new(Point::deny("provenance.lost", reason));
        }
        self.session.rule_derived(tool, args, report, free)
    }

    /// See [`Session::add_tools`].
    pub fn add_tools(&mut self, tools: HashMap<String, FieldLabels>) -> Result<(), SessionError> {
        if tools.is_empty() {
            return Ok(());
        }
        self.session.add_tools(tools.clone())?;
        self.note(&Event::Tools(tools.into_iter().map(AddedTool::new).collect()));
        Ok(())
    }

    /// See [`Session::next_turn`].
    pub fn next_turn(&mut self, request: &str, trusted: Trusted) -> Result<(), SessionError> {
        self.session.next_turn(request, trusted.clone())?;
        self.note(&Event::Turn(request.into(), Narrowing::new(&trusted)));
        Ok(())
    }

    /// See [`Session::narrow`].
    pub fn narrow(&mut self, trusted: Trusted) -> Result<(), SessionError> {
        self.session.narrow(trusted.clone())?;
        self.note(&Event::Narrow(Narrowing::new(&trusted)));
        Ok(())
    }

    /// See [`Session::take`].
    pub fn take(&mut self, ruling: &Ruling) -> bool {
        let taken = self.session.take(ruling);
        if taken && (ruling.step.is_some() || !ruling.acts.is_empty()) {
            self.note(&Event::Take(Ruled::new(ruling)));
        }
        taken
    }

    /// See [`Session::give_back`].
    pub fn give_back(&mut self, ruling: &Ruling) {
        self.session.give_back(ruling);
        if ruling.step.is_some() || !ruling.acts.is_empty() {
            self.note(&Event::GiveBack(Ruled::new(ruling)));
        }
    }

    /// See [`Session::observe`].
    pub fn observe(&mut self, ruling: Option<&Ruling>, observed: &Observed<'_>) -> Cleared {
        self.observe_stored(ruling, observed, &StoredLabel::default())
    }

    /// See [`Session::observe_stored`].
    pub fn observe_stored(
        &mut self,
        ruling: Option<&Ruling>,
        observed: &Observed<'_>,
        stored: &StoredLabel,
    ) -> Cleared {
        let Observed { call, tool, output, failed, agreed, cleared, reading } = *observed;
        self.note(&Event::Observe(Box::new(ObservedOutput {
            ruling: ruling.map(Ruled::new),
            call,
            tool: tool.into(),
            output: Cow::Borrowed(output),
            failed,
            agreed: agreed.map(Cow::Borrowed),
            cleared: cleared.map(Lowered::new),
            reading,
            stored: stored.clone(),
        })));
        self.session.observe_stored(ruling, observed, stored)
    }

    /// See [`Session::declassify`].
    pub fn declassify(&mut self, value: &Value) {
        self.note(&Event::Declassify(Cow::Borrowed(value)));
        self.session.declassify(value);
    }

    fn note(&mut self, event: &Event<'_>) {
        if self.history == History::NotKept {
            return;
        }
        if serde_json::to_writer(&mut self.unsaved, event).is_err() {
            // A history with a gap is useless.
            (self.history, self.unsaved) = (History::NotKept, Vec::new());
            return;
        }
        self.unsaved.push(b'\n');
    }
}

fn do_again(session: &mut Session, event: Event<'_>) -> Result<(), ResumeError> {
    let contradicts = |_refused: SessionError| ResumeError::Contradiction;
    match event {
        Event::Begin(..) => return Err(ResumeError::Contradiction),
        Event::Tools(tools) => {
            let tools = tools.into_iter().map(AddedTool::into_labels).collect();
            session.add_tools(tools).map_err(contradicts)?;
        }
        Event::Turn(request, trusted) => session.next_turn(&request, trusted.into()).map_err(contradicts)?,
        Event::Narrow(trusted) => session.narrow(trusted.into()).map_err(contradicts)?,
        Event::Take(ruled) => {
            if !session.take(&ruled.ruling()) {
                return Err(ResumeError::Contradiction);
            }
        }
        Event::GiveBack(ruled) => session.give_back(&ruled.ruling()),
        Event::Observe(received) => {
            let ObservedOutput { ruling, call, tool, output, failed, agreed, cleared, reading, stored } =
                *received;
            let ruling = ruling.map(Ruled::ruling);
            let lowered =
                |one: Lowered<'_>| Cleared { trust: one.trust.into_owned(), open: one.open.into_owned() };
            let cleared = cleared.map(lowered);
            let (agreed, cleared) = (agreed.as_deref(), cleared.as_ref());
            let observed = Observed { call, tool: &tool, output: &output, failed, agreed, cleared, reading };
            session.observe_stored(ruling.as_ref(), &observed, &stored);
        }
        Event::Declassify(value) => session.declassify(&value),
    }
    Ok(())
}

impl AddedTool {
    fn new((name, labels): (String, FieldLabels)) -> Self {
        let (fields, local) = (labels.fields.clone(), labels.local);
        Self { name, labels, fields, local }
    }

    fn into_labels(self) -> (String, FieldLabels) {
        let Self { name, labels, fields, local } = self;
        (name, FieldLabels { fields, local, ..labels })
    }
}

impl<'a> Narrowing<'a> {
    fn new(trusted: &'a Trusted) -> Self {
        let Trusted { tools, plan, propose } = trusted;
        Self { tools: Cow::Borrowed(tools), plan: Cow::Borrowed(plan), propose: Cow::Borrowed(propose) }
    }
}

impl From<Narrowing<'_>> for Trusted {
    fn from(narrowing: Narrowing<'_>) -> Self {
        let Narrowing { tools, plan, propose } = narrowing;
        Self { tools: tools.into_owned(), plan: plan.into_owned(), propose: propose.into_owned() }
    }
}

impl<'a> Lowered<'a> {
    fn new(cleared: &'a Cleared) -> Self {
        let Cleared { trust, open } = cleared;
        Self { trust: Cow::Borrowed(trust), open: Cow::Borrowed(open) }
    }
}

impl Ruled {
    fn new(ruling: &Ruling) -> Self {
        let Ruling { step, turn, swayed, is_ours, .. } = *ruling;
        Self { step, acts: ruling.acts.clone(), turn, asked: ruling.stance != Stance::Allow, swayed, is_ours }
    }

    fn ruling(self) -> Ruling {
        let Self { step, acts, turn, asked, swayed, is_ours } = self;
        let stance = if asked { Stance::Ask } else { Stance::Allow };
        Ruling { stance, step, acts, turn, swayed, is_ours, ..Ruling::new(Point::fine()) }
    }
}

#[cfg(test)]
mod tests;
