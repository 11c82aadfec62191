//! Judging for agents that others run: begin, decide, observe, end. One JSON object in, one out; whoever carries them (stdio, HTTP)
//! decides nothing. Each decision is a system call with its intent in the ledger; what the host says came of it is its outcome.

mod host;
mod memory;
mod shelf;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::{
    AgentId, Answer, Begin, DerivedFrom, Fault, Kernel, Op, Outcome, Principal, Reply, SpawnSpec, Status,
    TicketId, ToolCall,
};
use regent_policy::acs::Point;
use regent_policy::codes;
use regent_skills::Severity;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use host::Host;
use host::{Allowed, Expected, Observation};
pub(crate) use memory::Memory;

/// Sessions at the same time, in memory or not.
const SESSIONS_MAX: usize = 16_000;
/// Calls of one session that wait to be observed.
const WAITING_MAX: usize = 256;
/// Calls of one session that `derived_from` can name.
const PERFORMED_MAX: usize = 100_000;
/// The longest name of a session.
const NAME_BYTES_MAX: usize = 256;
/// How long the host's word holds: it is used at once.
const APPROVED_MS: u64 = 60_000;

/// A host's question to us.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Message {
    Begin {
        session: String,
        #[serde(default)]
        prompt: String,
        #[serde(default)]
        tools: Value,
        #[serde(default)]
        trusted: Value,
        #[serde(default)]
        mediates: Vec<String>,
        #[serde(default)]
        applies_changes: bool,
    },
    Decide {
        session: String,
        call: HostCall,
        #[serde(default)]
        derived_from: Value,
    },
    Observe {
        session: String,
        call: HostCall,
        output: HostOutput,
    },
    End {
        session: String,
    },
}

impl Message {
    /// The session that it is about.
    pub(crate) fn session(&self) -> &str {
        match self {
            Self::Begin { session, .. }
            | Self::Decide { session, .. }
            | Self::Observe { session, .. }
            | Self::End { session } => session,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct HostCall {
    id: Value,
    tool: String,
    #[serde(default)]
    args: Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HostOutput {
    #[serde(default)]
    text: Value,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    error: Value,
}

/// Something that can't be answered as it was asked. Never a yes.
#[derive(Debug, thiserror::Error)]
enum JudgeError {
    #[error("the message can't be read: {0}")]
    Unreadable(String),
    #[error("there is no session `{0}`")]
    NoSession(String),
    #[error("the session `{0}` has begun already")]
    Begun(String),
    #[error(
        "more than {SESSIONS_MAX} sessions, or more than {WAITING_MAX} calls of one that wait to be observed"
    )]
    TooMany,
    #[error("the sessions that are open take all memory there is for them, and can't be saved to disk")]
    Full,
    #[error("no call with this id, tool and arguments was allowed or asked about")]
    NotJudged,
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// The judge: a kernel, and the sessions of its host.
#[derive(Debug)]
pub(crate) struct Judge {
    kernel: Kernel,
    /// In whose name sessions begin and end.
    operator: Principal,
    host: Arc<Host>,
    /// Sessions without a plan get one that is made of their request's words.
    proposes: bool,
    sessions: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Session>>>>,
    memory: Memory,
}

#[derive(Debug)]
struct Session {
    agent: Principal,
    id: AgentId,
    /// The host performs a call with other arguments, if policy changes them.
    applies_changes: bool,
    waiting: HashMap<String, Waiting>,
    /// Where the calls that were performed are in the ledger, by the host's ids. An id that was used twice names neither.
    performed: HashMap<String, Option<u64>>,
}

#[derive(Debug)]
struct Waiting {
    call: HostCall,
    derived_from: Option<DerivedFrom>,
    state: Judged,
}

#[derive(Debug)]
enum Judged {
    Allowed { intent: u64, observe: oneshot::Sender<Observation>, reply: JoinHandle<Result<Reply, Fault>> },
    Asked(TicketId),
}

impl Session {
    /// What the host says that a call was computed from. What it doesn't say is anything; what isn't known is refused.
    fn sources(&self, report: &Value) -> Result<Option<DerivedFrom>, JudgeError> {
        if report.is_null() {
            return Ok(None);
        }
        let number = |id: &Value| self.performed.get(&id.to_string()).copied().flatten();
        let read = DerivedFrom::read(report, number);
        read.map(Some).map_err(|error| JudgeError::Refused(error.to_string()))
    }

    /// A call was performed.
    fn note(&mut self, key: String, intent: u64) {
        if self.performed.len() < PERFORMED_MAX || self.performed.contains_key(&key) {
            self.performed.entry(key).and_modify(|known| *known = None).or_insert(Some(intent));
        }
    }
}

impl Judge {
    /// A judge over a kernel whose calls elsewhere go to this host.
    pub(crate) fn new(
        kernel: Kernel,
        operator: Principal,
        host: Arc<Host>,
        proposes: bool,
        memory: Memory,
    ) -> Self {
        Self { kernel, operator, host, proposes, sessions: Mutex::default(), memory }
    }

    /// Answers one message. Whatever comes in, something goes out, and it is a yes only if policy, plan and provenance say so.
    pub(crate) async fn answer(&self, message: Result<Message, String>) -> Value {
        let (decides, answer) = match message.map_err(JudgeError::Unreadable) {
            Ok(Message::Begin { session, prompt, tools, trusted, mediates, applies_changes }) => {
                let begun = match self.unseen(&mediates) {
                    None => self.begin(session, prompt, &tools, trusted, applies_changes).await,
                    Some(why) => Err(JudgeError::Refused(why)),
                };
                (false, begun)
            }
            Ok(Message::Decide { session, call, derived_from }) => {
                (true, self.decide(&session, call, &derived_from).await)
            }
            Ok(Message::Observe { session, call, output }) => {
                (false, self.observe(&session, call, output).await)
            }
            Ok(Message::End { session }) => (false, self.end(&session).await),
            Err(error) => (true, Err(error)),
        };
        match answer {
            Ok(answer) => answer,
            Err(error) if decides => {
                json!({"decision": "deny", "error": error.to_string(), "reason": error.to_string()})
            }
            Err(error) => json!({"error": error.to_string()}),
        }
    }

    /// Points of a manifest that a host passes without telling us, unless it says that it sees to them itself. A manifest that only
    /// seems to be in force is worse than none.
    fn unseen(&self, mediates: &[String]) -> Option<String> {
        let elsewhere = [Point::PreModelCall, Point::PostModelCall, Point::Output];
        let points: Vec<Point> =
            self.kernel.policy_outline().into_iter().flat_map(|one| one.points).collect();
        let missed = elsewhere.into_iter().filter(|at| points.contains(at)).map(Point::as_str);
        let missed: Vec<&str> = missed.filter(|at| !mediates.iter().any(|one| one == at)).collect();
        (!missed.is_empty()).then(|| {
            format!(
                "the manifest has {}, where nobody asks us; say in `mediates` which of them the host sees to itself",
                missed.join(", ")
            )
        })
    }

    async fn begin(
        &self,
        name: String,
        prompt: String,
        tools: &Value,
        trusted: Value,
        applies_changes: bool,
    ) -> Result<Value, JudgeError> {
        let unreadable = |error: serde_json::Error| JudgeError::Unreadable(error.to_string());
        let tools = if tools.is_null() {
            Default::default()
        } else {
            Deserialize::deserialize(tools).map_err(unreadable)?
        };
        let trusted = if self.proposes { with_proposal(trusted) } else { trusted };
        let begin = Box::new(Begin { request: prompt, tools, trusted });
        let flagged = flagged(&begin);
        let existing = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        if let Some(session) = existing {
            // A second beginning can only narrow: the kernel compares.
            let session = session.lock().await;
            let told = self.own(Op::Begin { agent: session.id.clone(), begin }).await;
            self.used(&session);
            return told;
        }
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(JudgeError::Unreadable("a session has a name of 1 to 256 bytes".to_owned()));
        }
        if self.memory.is_full() {
            return Err(JudgeError::Full);
        }
        let spawned =
            self.own(Op::Spawn(SpawnSpec { name: "elsewhere".to_owned(), ..SpawnSpec::default() })).await?;
        let id: AgentId = spawned.get("agent").and_then(Value::as_str).unwrap_or_default().into();
        let agent = self.kernel.principal_of(&self.operator, &id);
        let agent =
            agent.ok_or_else(|| JudgeError::Refused("the session's agent can't be found".to_owned()))?;
        let mut told = match self.own(Op::Begin { agent: id.clone(), begin }).await {
            Ok(told) => told,
            Err(error) => {
                self.kernel.syscall(&agent, Op::Exit { code: 1 }).await?;
                return Err(error);
            }
        };
        let (waiting, performed) = Default::default();
        let session = Session { agent: agent.clone(), id, applies_changes, waiting, performed };
        self.used(&session);
        let kept = self.keep(name.clone(), session);
        if let Err(error) = kept {
            agent.agent_id().into_iter().for_each(|id| self.memory.forget(id));
            self.kernel.syscall(&agent, Op::Exit { code: 1 }).await?;
            return Err(error);
        }
        if let (false, Some(fields)) = (flagged.is_empty(), told.as_object_mut()) {
            fields.insert("flagged".to_owned(), json!(flagged));
        }
        Ok(told)
    }

    fn keep(&self, name: String, session: Session) -> Result<(), JudgeError> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.contains_key(&name) {
            return Err(JudgeError::Begun(name));
        }
        if sessions.len() >= SESSIONS_MAX {
            return Err(JudgeError::TooMany);
        }
        sessions.insert(name, Arc::new(tokio::sync::Mutex::new(session)));
        Ok(())
    }

    async fn decide(&self, name: &str, call: HostCall, derived_from: &Value) -> Result<Value, JudgeError> {
        let session = self.session(name)?;
        let mut session = session.lock().await;
        let key = call.id.to_string();
        if session.waiting.len() >= WAITING_MAX {
            return Err(JudgeError::TooMany);
        }
        if matches!(session.waiting.get(&key), Some(Waiting { state: Judged::Allowed { .. }, .. })) {
            return Err(JudgeError::Refused(
                "a call with this id was allowed and not yet observed".to_owned(),
            ));
        }
        let derived_from = session.sources(derived_from)?;
        let put = self.put(&session, &call, derived_from.clone()).await;
        self.used(&session);
        match put? {
            Put::Allowed { allowed, observe, reply } => {
                let state = Judged::Allowed { intent: allowed.intent, observe, reply };
                session.waiting.insert(key, Waiting { call, derived_from, state });
                let mut answer = json!({"decision": "allow", "intent": allowed.intent, "reason": ""});
                if let (Some(args), Some(fields)) = (allowed.args, answer.as_object_mut()) {
                    fields.insert("args".to_owned(), args);
                }
                Ok(answer)
            }
            Put::Ended(reply) => match *reply {
                Reply::Denied(denial) => Ok(json!({
                    "code": denial.reason.code, "decision": "deny", "intent": denial.intent.seq, "reason": denial.reason.message,
                })),
                Reply::Pending(ticket) => {
                    let state = Judged::Asked(ticket.id.clone());
                    session.waiting.insert(key, Waiting { call, derived_from, state });
                    Ok(json!({
                        "decision": "ask", "intent": ticket.intent.seq, "question": ticket.summary, "reason": ticket.reason, "rule": ticket.rule,
                    }))
                }
                Reply::Done(Outcome { status: Status::Failed(failure), .. }) => {
                    Err(JudgeError::Refused(failure.message))
                }
                Reply::Done(_) => {
                    Err(JudgeError::Refused("the call ended before the host performed it".to_owned()))
                }
            },
        }
    }

    async fn observe(&self, name: &str, call: HostCall, output: HostOutput) -> Result<Value, JudgeError> {
        let session = self.session(name)?;
        let mut session = session.lock().await;
        let key = call.id.to_string();
        let same = session.waiting.get(&key).is_some_and(|waiting| waiting.call == call);
        let waiting = session.waiting.remove(&key).filter(|_| same).ok_or(JudgeError::NotJudged)?;
        let observation = Observation::of(output);
        let told = observation.output.clone();
        let (intent, outcome) = match waiting.state {
            Judged::Allowed { intent, observe, reply } => {
                (intent, performed(observe, reply, observation).await?)
            }
            Judged::Asked(ticket) => {
                // The host performed it, so it says that its user agreed. Nobody here has seen that: it is recorded as the host's word.
                let answer = Answer::HostSays { valid_ms: APPROVED_MS };
                self.own(Op::Answer { ticket, answer }).await?;
                match self.put(&session, &call, waiting.derived_from).await? {
                    Put::Allowed { allowed, observe, reply } => {
                        (allowed.intent, performed(observe, reply, observation).await?)
                    }
                    Put::Ended(reply) => {
                        return Err(match *reply {
                            Reply::Denied(denial) => JudgeError::Refused(denial.reason.message),
                            Reply::Pending(_) | Reply::Done(_) => JudgeError::NotJudged,
                        });
                    }
                }
            }
        };
        session.note(key, intent);
        self.used(&session);
        Ok(passed(&outcome, &told))
    }

    /// A session was used: those that were not make room for it.
    fn used(&self, session: &Session) {
        self.memory.note(&self.kernel, &self.operator, &session.id);
    }

    async fn end(&self, name: &str) -> Result<Value, JudgeError> {
        let session = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        let session = session.ok_or_else(|| JudgeError::NoSession(name.to_owned()))?;
        let mut session = session.lock().await;
        for (_, waiting) in session.waiting.drain() {
            match waiting.state {
                // Dropping the sender ends the call: nobody will ever say what came of it, and the outcome says that.
                Judged::Allowed { observe, reply, .. } => {
                    drop(observe);
                    let _unknown = reply.await;
                }
                Judged::Asked(ticket) => {
                    let because = Some("the session ended without it".to_owned());
                    self.own(Op::Answer { ticket, answer: Answer::Deny { because } }).await?;
                }
            }
        }
        self.memory.forget(&session.id);
        self.kernel.syscall(&session.agent, Op::Exit { code: 0 }).await?;
        self.kernel.forget_request(&self.operator, &session.id);
        Ok(json!({}))
    }

    fn session(&self, name: &str) -> Result<Arc<tokio::sync::Mutex<Session>>, JudgeError> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(name).cloned().ok_or_else(|| JudgeError::NoSession(name.chars().take(64).collect()))
    }

    /// Puts a call to the kernel, until it is allowed or has its answer.
    async fn put(
        &self,
        session: &Session,
        call: &HostCall,
        derived_from: Option<DerivedFrom>,
    ) -> Result<Put, JudgeError> {
        let (allowed, mut was_allowed) = oneshot::channel();
        let (observe, observed) = oneshot::channel();
        let applies_changes = session.applies_changes;
        self.host.expect(&session.id, Expected { allowed, applies_changes, observed });
        let run = ToolCall { tool: call.tool.clone(), args: call.args.clone() };
        let op = Op::Elsewhere(regent_kernel::HostCall { run, derived_from: derived_from.map(Box::new) });
        let (kernel, agent) = (self.kernel.clone(), session.agent.clone());
        let mut reply = tokio::spawn(async move { kernel.syscall(&agent, op).await });
        tokio::select! {
            biased;
            Ok(allowed) = &mut was_allowed => Ok(Put::Allowed { allowed, observe, reply }),
            ended = &mut reply => {
                self.host.forget(&session.id);
                Ok(Put::Ended(Box::new(ended.map_err(|_torn_down| Fault::TornDown)??)))
            }
        }
    }

    /// A call of our own, as the person that this process runs for. What doesn't succeed is an error.
    async fn own(&self, op: Op) -> Result<Value, JudgeError> {
        match self.kernel.syscall(&self.operator, op).await? {
            Reply::Done(Outcome { status: Status::Ok, output, .. }) => {
                Ok(serde_json::from_slice(output.bytes()).unwrap_or(Value::Null))
            }
            Reply::Done(Outcome { status: Status::Failed(failure), .. }) => {
                Err(JudgeError::Refused(failure.message))
            }
            Reply::Done(_) => Err(JudgeError::Refused("it was stopped".to_owned())),
            Reply::Denied(denial) => Err(JudgeError::Refused(denial.reason.message)),
            Reply::Pending(ticket) => Err(JudgeError::Refused(ticket.reason)),
        }
    }
}

/// Reads a message with the strict parser: a key that stands twice, or a number that some reader would see differently, could be one call
/// for policy and another for the host.
pub(crate) fn read(line: &[u8]) -> Result<Message, String> {
    let value = regent_ledger::canonical::parse(line.trim_ascii()).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// Descriptions that speak to the model rather than about the tool, for the host's person to look at. They have no power either way.
fn flagged(begin: &Begin) -> BTreeMap<String, Vec<String>> {
    let mut flagged = BTreeMap::new();
    for (name, tool) in &begin.tools {
        let found = regent_skills::scan_text(name, tool.description.as_bytes());
        let mut said: Vec<String> =
            found.into_iter().filter(|one| one.severity > Severity::Low).map(|one| one.message).collect();
        said.dedup();
        if !said.is_empty() {
            flagged.insert(name.clone(), said);
        }
    }
    flagged
}

/// What the host knows of what the request needs, with a proposal where it has no plan. What isn't an object is for the kernel to refuse.
fn with_proposal(mut trusted: Value) -> Value {
    if trusted.is_null() {
        trusted = json!({});
    }
    if let Some(fields) = trusted.as_object_mut() {
        let plan = fields.entry("plan").or_insert(Value::Null);
        if plan.is_null() {
            *plan = json!("propose");
        }
    }
    trusted
}

enum Put {
    Allowed {
        allowed: Allowed,
        observe: oneshot::Sender<Observation>,
        reply: JoinHandle<Result<Reply, Fault>>,
    },
    Ended(Box<Reply>),
}

/// Gives an observation to the call that waits for it, and waits for its outcome.
async fn performed(
    observe: oneshot::Sender<Observation>,
    reply: JoinHandle<Result<Reply, Fault>>,
    observation: Observation,
) -> Result<Outcome, JudgeError> {
    // A call that was stopped meanwhile takes nothing; its outcome says so.
    let _taken = observe.send(observation);
    match reply.await.map_err(|_torn_down| Fault::TornDown)?? {
        Reply::Done(outcome) => Ok(outcome),
        Reply::Denied(_) | Reply::Pending(_) => Err(JudgeError::NotJudged),
    }
}

/// What the host may do with what it has observed: all of it, what policy has made of it, or nothing.
fn passed(outcome: &Outcome, told: &Value) -> Value {
    let seq = outcome.receipt.seq;
    if let Status::Failed(failure) = &outcome.status
        && failure.code == codes::WITHHELD
    {
        return json!({"outcome": seq, "withheld": failure.message});
    }
    match serde_json::from_slice::<Value>(outcome.output.bytes()) {
        Ok(passed) if passed != *told => json!({"outcome": seq, "output": passed}),
        Ok(_) | Err(_) => json!({"outcome": seq}),
    }
}

impl Observation {
    /// Structured output where there is any: its fields have labels of their own.
    fn of(output: HostOutput) -> Self {
        let HostOutput { text, data, error } = output;
        let error = match error {
            Value::Null => None,
            Value::String(text) => Some(text),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Some(other.to_string())
            }
        };
        let output = match (data.is_null(), has_more(&text, &data)) {
            (true, _) => text,
            (false, true) => json!([data, text]),
            (false, false) => data,
        };
        Self { output, error }
    }
}

/// Whether a text says more than the data that it comes with. If it only tells the same in other lines, the data has better labels.
fn has_more(text: &Value, data: &Value) -> bool {
    let words = |value: &Value| -> HashSet<String> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    };
    !text.is_null() && !words(text).is_subset(&words(data))
}
