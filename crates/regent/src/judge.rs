//! Judging for agents that others run: begin, decide, observe, end. One JSON object in, one out; whoever carries them (stdio, HTTP)
//! decides nothing. Each decision is a system call with its intent in the ledger; what the host says came of it is its outcome.

mod asked;
mod host;
mod memory;
mod message;
mod observing;
mod planner;
mod reading;
mod shelf;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::{
    AgentId, Answer, Begin, Declared, DerivedFrom, Fault, Kernel, Op, Outcome, Principal, Reply, SpawnSpec,
    Status, TicketId, ToolCall,
};
use regent_policy::acs::Point;
use regent_skills::Severity;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use host::Host;
use host::{Allowed, Expected, Observation};
pub(crate) use memory::Memory;
use message::HostFlow;
pub(crate) use message::{HostCall, HostOutput, Message, read};
pub(crate) use observing::Labels;
use observing::with_noted;
pub(crate) use planner::Planner;
pub(crate) use reading::HostRead;

use crate::labels::known::Watched;

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
    /// Who proposes plans to sessions that bring none.
    planner: Planner,
    sessions: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Session>>>>,
    memory: Memory,
    labels: Labels,
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
    /// Tools of which is remembered what their results hold.
    watched: Watched,
}

#[derive(Debug)]
struct Waiting {
    call: HostCall,
    flow: HostFlow,
    state: Judged,
}

#[derive(Debug)]
enum Judged {
    Allowed { intent: u64, observe: oneshot::Sender<Observation>, reply: JoinHandle<Result<Reply, Fault>> },
    Asked { ticket: TicketId, cause: Option<String>, intent: u64 },
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
        planner: Planner,
        (memory, labels): (Memory, Labels),
    ) -> Self {
        Self { kernel, operator, host, planner, sessions: Mutex::default(), memory, labels }
    }

    /// Answers one message. Whatever comes in, something goes out, and it is a yes only if policy, plan and provenance say so.
    pub(crate) async fn answer(&self, message: Result<Message, String>) -> Value {
        let (decides, answer) = match message.map_err(JudgeError::Unreadable) {
            Ok(Message::Begin { session, prompt, tools, trusted, mediates, applies_changes, _suite }) => {
                let begun = match self.unseen(&mediates) {
                    None => self.begin(session, prompt, &tools, trusted, applies_changes).await,
                    Some(why) => Err(JudgeError::Refused(why)),
                };
                (false, begun)
            }
            Ok(Message::Decide { session, call, derived_from, quarantined }) => {
                (true, self.decide(&session, call, (&derived_from, quarantined)).await)
            }
            Ok(Message::Read { session, read }) => (false, self.read(&session, read).await),
            Ok(Message::Observe { session, call, output, store }) => {
                (false, self.observe(&session, call, output, &store).await)
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
        let mut tools: BTreeMap<String, Declared> = if tools.is_null() {
            Default::default()
        } else {
            Deserialize::deserialize(tools).map_err(unreadable)?
        };
        let noted = self.labels.known.begin(&mut tools).map_err(JudgeError::Refused)?;
        let flagged = flagged(&tools);
        let existing = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        if let Some(session) = existing {
            // A second beginning can only narrow: the kernel compares.
            let mut session = session.lock().await;
            self.bring_back(&session).await;
            let told = self.begin_request(&session.agent, &session.id, (prompt, tools), trusted).await;
            self.used(&session);
            // A tool that was brought before keeps its labels, and so whether it is watched.
            for (tool, key) in &noted.watched {
                session.watched.entry(tool.clone()).or_insert_with(|| key.clone());
            }
            return told.map(|told| with_noted(told, &noted));
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
        let mut told = match self.begin_request(&agent, &id, (prompt, tools), trusted).await {
            Ok(told) => told,
            Err(error) => {
                self.kernel.syscall(&agent, Op::Exit { code: 1 }).await?;
                return Err(error);
            }
        };
        let (watched, (waiting, performed)) = (noted.watched.clone(), Default::default());
        let session = Session { agent: agent.clone(), id, applies_changes, waiting, performed, watched };
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
        Ok(with_noted(told, &noted))
    }

    /// Begins the request, or its next turn, with a plan that is proposed if the host brings none.
    async fn begin_request(
        &self,
        agent: &Principal,
        id: &AgentId,
        (request, tools): (String, BTreeMap<String, Declared>),
        trusted: Value,
    ) -> Result<Value, JudgeError> {
        let proposal = self.planner.propose(&self.kernel, agent, (&request, &tools), trusted).await;
        let begin = Box::new(Begin { request, tools, trusted: proposal.trusted });
        let mut answer = self.own(Op::Begin { agent: id.clone(), begin }).await?;
        if let (Some(told), Some(fields)) = (proposal.told, answer.as_object_mut()) {
            fields.insert("planner".to_owned(), told);
        }
        Ok(answer)
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

    async fn decide(
        &self,
        name: &str,
        call: HostCall,
        (derived_from, quarantined): (&Value, bool),
    ) -> Result<Value, JudgeError> {
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
        let flow = HostFlow { derived_from: session.sources(derived_from)?, quarantined };
        // A misspelt name would take its sources from the argument that was meant.
        let named = flow.derived_from.iter().flat_map(|report| report.args.keys());
        if let Some(unknown) = named.into_iter().find(|name| call.args.get(name.as_str()).is_none()) {
            let why = format!(
                "`derived_from.args` names `{}`, which the call doesn't have",
                unknown.escape_debug()
            );
            return Err(JudgeError::Refused(why));
        }
        self.bring_back(&session).await;
        let put = self.put(&session, &call, flow.clone()).await;
        self.used(&session);
        match put? {
            Put::Allowed { allowed, observe, reply } => {
                let state = Judged::Allowed { intent: allowed.intent, observe, reply };
                session.waiting.insert(key, Waiting { call, flow, state });
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
                    session.waiting.remove(&key);
                    let answer = asked::answer(&session.waiting, &ticket);
                    let cause = ticket.question.cause.clone();
                    let state = Judged::Asked { ticket: ticket.id, cause, intent: ticket.intent.seq };
                    session.waiting.insert(key, Waiting { call, flow, state });
                    Ok(answer)
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

    async fn observed(
        &self,
        name: &str,
        call: HostCall,
        (output, observation): (&Value, Observation),
    ) -> Result<Outcome, JudgeError> {
        let session = self.session(name)?;
        let mut session = session.lock().await;
        let key = call.id.to_string();
        let same = session.waiting.get(&key).is_some_and(|waiting| waiting.call == call);
        // A result that can't be remembered leaves the call as it is: the host can report it again.
        if let Some(record) = session.watched.get(&call.tool).filter(|_| same && observation.error.is_none())
        {
            self.labels.known.observe(record, output).map_err(Fault::from)?;
        }
        // A report about another call leaves this one as it is.
        let waiting = same.then(|| session.waiting.remove(&key)).flatten().ok_or(JudgeError::NotJudged)?;
        self.bring_back(&session).await;
        let (intent, outcome) = match waiting.state {
            Judged::Allowed { intent, observe, reply } => {
                (intent, performed(observe, reply, observation).await?)
            }
            Judged::Asked { ticket, .. } => {
                // The host performed it, so it says that its user agreed. Nobody here has seen that: it is recorded as the host's word.
                let answer = Answer::HostSays { valid_ms: APPROVED_MS };
                self.own(Op::Answer { ticket, with: Vec::new(), answer }).await?;
                match self.put(&session, &call, waiting.flow).await? {
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
        Ok(outcome)
    }

    /// Reads a session back that is not in memory, on a thread that may block: other sessions are answered meanwhile.
    async fn bring_back(&self, session: &Session) {
        if !self.kernel.request_size(&self.operator, &session.id).is_aside {
            return;
        }
        let (kernel, operator, id) = (self.kernel.clone(), self.operator.clone(), session.id.clone());
        let read = tokio::task::spawn_blocking(move || kernel.bring_back(&operator, &id));
        // If the thread fails, the call reads the session back itself.
        read.await.ok();
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
                Judged::Asked { ticket, .. } => {
                    let because = Some("the session ended without it".to_owned());
                    self.own(Op::Answer { ticket, with: Vec::new(), answer: Answer::Deny { because } })
                        .await?;
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
        HostFlow { derived_from, quarantined }: HostFlow,
    ) -> Result<Put, JudgeError> {
        let (allowed, mut was_allowed) = oneshot::channel();
        let (observe, observed) = oneshot::channel();
        let applies_changes = session.applies_changes;
        self.host.expect(&session.id, Expected { allowed, applies_changes, observed });
        let run = ToolCall { tool: call.tool.clone(), args: call.args.clone() };
        let derived_from = derived_from.map(Box::new);
        let op = Op::Elsewhere(regent_kernel::HostCall { run, derived_from, quarantined });
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

/// Descriptions that speak to the model rather than about the tool, for the host's person to look at. They have no power either way.
fn flagged(tools: &BTreeMap<String, Declared>) -> BTreeMap<String, Vec<String>> {
    let mut flagged = BTreeMap::new();
    for (name, tool) in tools {
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
