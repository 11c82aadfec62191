//! Judging for agents that others run: begin, decide, observe, end. One JSON object in, one out; the transport (stdio, HTTP)
//! decides nothing. Each decision is a system call with its intent in the ledger; what the host says came of it is its outcome.

mod asked;
mod host;
mod lines;
mod memory;
mod message;
mod observing;
mod planner;
mod reading;
mod shelf;
mod socket;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::{
    AgentId, ApprovalAnswer, AuthError, Begin, Declared, DerivedFrom, Fault, Kernel, Measured, Op, Outcome,
    Principal, Reply, SpawnSpec, Status, TicketId, ToolCall,
};
use regent_policy::acs::Point;
use regent_wire::judge::{JudgeAnswer, JudgeBegun, JudgeCall, JudgeDecision, JudgeMessage};
use regent_wire::result::{AnswerTaken, ResultError, Spawned};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub use host::Performer;
use host::{Allowed, Expected, Observation};
pub use lines::serve;
pub use memory::Memory;
use message::{HostFlow, flagged, unmeasured};
pub use observing::Labels;
use observing::with_noted;
pub use planner::Planner;
use socket::Connection;
pub use socket::listen;

use crate::labels::known::WatchedTools;

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

/// A message that can't be processed. Never an allow.
#[derive(Debug, thiserror::Error)]
enum JudgeError {
    #[error("the message can't be parsed: {0}")]
    Unreadable(String),
    #[error("there is no session `{0}`")]
    NoSession(String),
    #[error("the session `{0}` already exists")]
    Begun(String),
    #[error(
        "more than {SESSIONS_MAX} sessions, or more than {WAITING_MAX} calls of one session without a report"
    )]
    TooMany,
    #[error("open sessions use all of their memory, and can't be saved to disk")]
    Full,
    #[error("no call with this id, tool and arguments was decided")]
    NotJudged,
    #[error(transparent)]
    NotAuthenticated(#[from] AuthError),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Finds descriptions of tools that address the model, given a tool's name and its description.
pub type DescriptionScanner = fn(&str, &str) -> Vec<String>;

/// What a judge is made of. Each part is an authority that the composition root hands out.
#[derive(Debug)]
pub struct Parts {
    /// Makes the system calls.
    pub kernel: Kernel,
    /// The executor behind the kernel's calls that a host performs.
    pub performer: Arc<Performer>,
    /// Proposes plans to sessions that bring none.
    pub planner: Planner,
    /// Which sessions are in memory.
    pub memory: Memory,
    /// What outlives sessions.
    pub labels: Labels,
    /// Looks at the descriptions of a host's tools.
    pub scan: DescriptionScanner,
    /// The tool that reads a typed value out of a quarantined text.
    pub extract: &'static str,
}

/// The judge of one host: a kernel, the principal that the host acts for, and the host's sessions.
#[derive(Debug)]
pub struct Judge {
    parts: Arc<Parts>,
    /// In whose name sessions begin and end.
    caller: Principal,
    /// How the host shows that it still is who it was, where it came by a connection.
    credential: Option<Connection>,
    sessions: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Session>>>>,
}

#[derive(Debug)]
struct Session {
    agent: Principal,
    id: AgentId,
    /// The host is this agent, which somebody else has started and will end.
    attached: bool,
    /// The host performs a call with other arguments, if policy changes them.
    applies_changes: bool,
    waiting: HashMap<String, WaitingDecision>,
    /// Where the calls that were performed are in the ledger, by the host's ids. An id that was used twice names neither.
    performed: HashMap<String, Option<u64>>,
    /// Tools of which is remembered what their results hold.
    watched: WatchedTools,
}

#[derive(Debug)]
struct WaitingDecision {
    call: JudgeCall,
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
    pub fn new(parts: Arc<Parts>, caller: Principal) -> Self {
        Self { parts, caller, credential: None, sessions: Mutex::default() }
    }

    /// The same for a host that has to show its token again with each message: a token that was revoked opens nothing any more.
    fn connected(parts: Arc<Parts>, caller: Principal, credential: Connection) -> Self {
        Self { credential: Some(credential), ..Self::new(parts, caller) }
    }

    /// Ends what the host left open.
    async fn close(&self) {
        let names: Vec<String> =
            self.sessions.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        for name in names {
            // A session that can't be ended well ends with its kernel.
            drop(self.end(&name).await);
        }
    }

    /// Answers one message. Every message gets an answer, which is allow only if policy, plan and provenance say so.
    async fn answer(&self, message: Result<JudgeMessage, String>) -> JudgeAnswer {
        let known = match &self.credential {
            Some(connection) => connection.check().await,
            None => Ok(()),
        };
        let message = known.and_then(|()| message.map_err(JudgeError::Unreadable));
        let (decides, answer) = match message {
            Ok(JudgeMessage::Begin {
                session, prompt, tools, trusted, mediates, applies_changes, ..
            }) => {
                let begun = match self.unseen(&mediates) {
                    None => self.begin(session, prompt, &tools, trusted, applies_changes).await,
                    Some(why) => Err(JudgeError::Refused(why)),
                };
                (false, begun.map(|begun| JudgeAnswer::Begun(Box::new(begun))))
            }
            Ok(JudgeMessage::Decide { session, call, derived_from, quarantined, measured, .. }) => {
                let decided = match unmeasured(measured.as_ref()) {
                    None => self.decide(&session, call, (&derived_from, quarantined, measured)).await,
                    Some(why) => Err(JudgeError::Refused(why)),
                };
                (true, decided.map(JudgeAnswer::Decision))
            }
            Ok(JudgeMessage::Read { session, read, .. }) => {
                (false, self.read(&session, read).await.map(JudgeAnswer::Value))
            }
            Ok(JudgeMessage::Observe { session, call, output, store, .. }) => {
                (false, self.observe(&session, call, output, &store).await.map(JudgeAnswer::Observed))
            }
            Ok(JudgeMessage::End { session, .. }) => {
                (false, self.end(&session).await.map(|()| JudgeAnswer::Begun(Box::default())))
            }
            Err(error) => (true, Err(error)),
        };
        match answer {
            Ok(answer) => answer,
            Err(error) if decides => JudgeAnswer::Decision(JudgeDecision::refused(&error.to_string())),
            Err(error) => JudgeAnswer::Refused { error: error.to_string() },
        }
    }

    /// Points of a manifest that a host passes without telling us, unless it says that it sees to them itself. A manifest that only
    /// seems to be in force is worse than none.
    fn unseen(&self, mediates: &[String]) -> Option<String> {
        let elsewhere = [Point::PreModelCall, Point::PostModelCall, Point::Output];
        let points: Vec<Point> =
            self.parts.kernel.policy_outline().into_iter().flat_map(|one| one.points).collect();
        let missed = elsewhere.into_iter().filter(|at| points.contains(at)).map(Point::as_str);
        let missed: Vec<&str> = missed.filter(|at| !mediates.iter().any(|one| one == at)).collect();
        (!missed.is_empty()).then(|| {
            format!(
                "the manifest has {}, which Regent doesn't see; list in `mediates` which of them the host handles itself",
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
    ) -> Result<JudgeBegun, JudgeError> {
        let unreadable = |error: serde_json::Error| JudgeError::Unreadable(error.to_string());
        let tools: BTreeMap<String, Declared> = if tools.is_null() {
            Default::default()
        } else {
            Deserialize::deserialize(tools).map_err(unreadable)?
        };
        let flagged = flagged(&tools, self.parts.scan);
        let existing = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        if let Some(session) = existing {
            // A second beginning can only narrow: the kernel compares.
            let mut session = session.lock().await;
            self.bring_back(&session).await;
            let begun = self.begin_request(&session.agent, &session.id, (prompt, tools), trusted).await;
            self.used(&session).await;
            let (told, watched) = begun?;
            // A tool that was brought before keeps its labels, and so whether it is watched.
            for (tool, key) in watched {
                session.watched.entry(tool).or_insert(key);
            }
            return Ok(told);
        }
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(JudgeError::Unreadable("a session has a name of 1 to 256 bytes".to_owned()));
        }
        if self.parts.memory.is_full() {
            return Err(JudgeError::Full);
        }
        if let Some(id) = self.caller.agent_id() {
            return self.attach(name, id.clone(), (&prompt, &tools, &trusted), applies_changes);
        }
        let spec = SpawnSpec { name: self.agent_name(), ..SpawnSpec::default() };
        let Spawned { agent: id, .. } = self.own(Op::Spawn(spec)).await?;
        let agent = self.parts.kernel.principal_of(&self.caller, &id);
        let agent =
            agent.ok_or_else(|| JudgeError::Refused("the session's agent can't be found".to_owned()))?;
        let (mut told, watched) = match self.begin_request(&agent, &id, (prompt, tools), trusted).await {
            Ok(told) => told,
            Err(error) => {
                self.parts.kernel.syscall(&agent, Op::Exit { code: 1 }).await?;
                return Err(error);
            }
        };
        let (attached, (waiting, performed)) = (false, Default::default());
        let session =
            Session { agent: agent.clone(), id, attached, applies_changes, waiting, performed, watched };
        self.used(&session).await;
        let kept = self.keep(name.clone(), session);
        if let Err(error) = kept {
            agent.agent_id().into_iter().for_each(|id| self.parts.memory.forget(id));
            self.parts.kernel.syscall(&agent, Op::Exit { code: 1 }).await?;
            return Err(error);
        }
        told.flagged = flagged;
        Ok(told)
    }

    /// A service's agents have its name, so that rules can tell them apart.
    fn agent_name(&self) -> String {
        let own = self.caller.name().strip_prefix("service:").map(str::to_lowercase);
        own.map_or_else(|| "elsewhere".to_owned(), |name| name.replace('@', "."))
    }

    /// A host that is an agent itself: the principal that started the agent has begun its request.
    fn attach(
        &self,
        name: String,
        id: AgentId,
        (prompt, tools, trusted): (&str, &BTreeMap<String, Declared>, &Value),
        applies_changes: bool,
    ) -> Result<JudgeBegun, JudgeError> {
        if !prompt.is_empty() || !tools.is_empty() || !trusted.is_null() {
            let why = "only the caller that started this agent begins its request: leave out prompt, tools and trusted";
            return Err(JudgeError::Refused(why.to_owned()));
        }
        let answer = JudgeBegun { agent: Some(id.clone()), ..JudgeBegun::default() };
        let (agent, (waiting, performed, watched)) = (self.caller.clone(), Default::default());
        let session = Session { agent, id, attached: true, applies_changes, waiting, performed, watched };
        self.keep(name, session).map(|()| answer)
    }

    /// Begins the request, or its next turn, with a plan that is proposed if the host brings none. The tools are remembered here: the kernel
    /// has accepted the caller by then.
    async fn begin_request(
        &self,
        agent: &Principal,
        id: &AgentId,
        (request, mut tools): (String, BTreeMap<String, Declared>),
        trusted: Value,
    ) -> Result<(JudgeBegun, WatchedTools), JudgeError> {
        let noted = self.parts.labels.known.begin(&mut tools).await.map_err(JudgeError::Refused)?;
        let proposal =
            self.parts.planner.propose(&self.parts.kernel, agent, (&request, &tools), trusted).await;
        let begin = Box::new(Begin { request, tools, trusted: proposal.trusted });
        let request = Some(self.own(Op::Begin { agent: id.clone(), begin }).await?);
        let told = JudgeBegun { request, planner: proposal.told, ..JudgeBegun::default() };
        Ok((with_noted(told, &noted), noted.watched))
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
        call: JudgeCall,
        (derived_from, quarantined, measured): (&Value, bool, Option<Measured>),
    ) -> Result<JudgeDecision, JudgeError> {
        let session = self.session(name)?;
        let mut session = session.lock().await;
        let key = call.id.to_string();
        if session.waiting.len() >= WAITING_MAX {
            return Err(JudgeError::TooMany);
        }
        if matches!(session.waiting.get(&key), Some(WaitingDecision { state: Judged::Allowed { .. }, .. })) {
            return Err(JudgeError::Refused(
                "a call with this id was allowed and not yet reported".to_owned(),
            ));
        }
        let flow = HostFlow { derived_from: session.sources(derived_from)?, quarantined, measured };
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
        self.used(&session).await;
        match put? {
            Put::Allowed { allowed, observe, reply } => {
                let state = Judged::Allowed { intent: allowed.intent, observe, reply };
                session.waiting.insert(key, WaitingDecision { call, flow, state });
                Ok(JudgeDecision::Allow { args: allowed.args, intent: allowed.intent, reason: String::new() })
            }
            Put::Ended(reply) => match *reply {
                Reply::Denied(denial) => Ok(JudgeDecision::Deny {
                    code: Some(denial.reason.code.into_owned()),
                    error: None,
                    intent: Some(denial.intent.seq),
                    reason: denial.reason.message,
                }),
                Reply::Pending(ticket) => {
                    session.waiting.remove(&key);
                    let answer = asked::answer(&session.waiting, &ticket);
                    let cause = ticket.question.cause.clone();
                    let state = Judged::Asked { ticket: ticket.id, cause, intent: ticket.intent.seq };
                    session.waiting.insert(key, WaitingDecision { call, flow, state });
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
        call: JudgeCall,
        (output, observation): (&Value, Observation),
    ) -> Result<Outcome, JudgeError> {
        let session = self.session(name)?;
        let mut session = session.lock().await;
        let key = call.id.to_string();
        let same = session.waiting.get(&key).is_some_and(|waiting| waiting.call == call);
        // A result that can't be remembered leaves the call as it is: the host can report it again.
        if let Some(record) = session.watched.get(&call.tool).filter(|_| same && observation.error.is_none())
        {
            self.parts.labels.known.observe(record, output).await.map_err(Fault::from)?;
        }
        // A report about another call leaves this one as it is.
        let waiting = same.then(|| session.waiting.remove(&key)).flatten().ok_or(JudgeError::NotJudged)?;
        self.bring_back(&session).await;
        let (intent, outcome) = match waiting.state {
            Judged::Allowed { intent, observe, reply } => {
                (intent, performed(observe, reply, observation).await?)
            }
            Judged::Asked { ticket, .. } if !self.caller.may_approve() => {
                let why =
                    format!("it needs an approval here first: `regent approve {ticket}`, then decide again");
                return Err(JudgeError::Refused(why));
            }
            Judged::Asked { ticket, .. } => {
                // The host performed it, so it says that its user agreed. Nobody here has seen that: it is recorded as the host's word.
                let answer = ApprovalAnswer::HostSays { valid_ms: APPROVED_MS };
                let _taken: AnswerTaken = self.own(Op::Answer { ticket, with: Vec::new(), answer }).await?;
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
        self.used(&session).await;
        Ok(outcome)
    }

    /// Reads a session back that is not in memory, on a thread that may block: other sessions are answered meanwhile.
    async fn bring_back(&self, session: &Session) {
        if session.attached || !self.parts.kernel.request_size(&self.caller, &session.id).is_aside {
            return;
        }
        let (kernel, operator, id) = (self.parts.kernel.clone(), self.caller.clone(), session.id.clone());
        let read = tokio::task::spawn_blocking(move || kernel.bring_back(&operator, &id));
        // If the thread fails, the call reads the session back itself.
        read.await.ok();
    }

    /// A session was used: those that were not make room for it.
    async fn used(&self, session: &Session) {
        let (parts, caller, id) = (Arc::clone(&self.parts), self.caller.clone(), session.id.clone());
        if session.attached || parts.memory.note_in_memory(&parts.kernel, &caller, &id) {
            return;
        }
        // If the thread fails, the session stays in memory and counts there.
        tokio::task::spawn_blocking(move || parts.memory.note(&parts.kernel, &caller, &id)).await.ok();
    }

    async fn end(&self, name: &str) -> Result<(), JudgeError> {
        let session = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        let session = session.ok_or_else(|| JudgeError::NoSession(name.to_owned()))?;
        let mut session = session.lock().await;
        for (_, waiting) in session.waiting.drain() {
            match waiting.state {
                // Dropping the sender ends the call: no report will come, and the outcome says that.
                Judged::Allowed { observe, reply, .. } => {
                    drop(observe);
                    let _unknown = reply.await;
                }
                // The question was put to people here, and is theirs to answer.
                Judged::Asked { .. } if !self.caller.may_approve() => {}
                Judged::Asked { ticket, .. } => {
                    let because = Some("the session ended without it".to_owned());
                    let answer = ApprovalAnswer::Deny { because };
                    // A question that is answered, used up or expired needs no denial.
                    let denied: Result<AnswerTaken, JudgeError> =
                        self.own(Op::Answer { ticket, with: Vec::new(), answer }).await;
                    drop(denied);
                }
            }
        }
        if session.attached {
            return Ok(());
        }
        let ended = self.parts.kernel.syscall(&session.agent, Op::Exit { code: 0 }).await;
        self.parts.kernel.forget_request(&self.caller, &session.id);
        self.parts.memory.forget(&session.id);
        ended?;
        Ok(())
    }

    fn session(&self, name: &str) -> Result<Arc<tokio::sync::Mutex<Session>>, JudgeError> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(name).cloned().ok_or_else(|| JudgeError::NoSession(name.chars().take(64).collect()))
    }

    /// Puts a call to the kernel, until it is allowed or has its answer.
    async fn put(
        &self,
        session: &Session,
        call: &JudgeCall,
        HostFlow { derived_from, quarantined, measured }: HostFlow,
    ) -> Result<Put, JudgeError> {
        let (allowed, mut was_allowed) = oneshot::channel();
        let (observe, observed) = oneshot::channel();
        let applies_changes = session.applies_changes;
        let run = ToolCall { tool: call.tool.clone(), args: call.args.clone() };
        let derived_from = derived_from.map(Box::new);
        let call = regent_kernel::HostCall { run, derived_from, quarantined, measured };
        let expected = Expected { call: call.clone(), allowed, applies_changes, observed };
        // Until it is allowed, or this ends.
        let Some(_expectation) = self.parts.performer.expect(&session.id, expected) else {
            return Err(JudgeError::Refused("another call of this agent is being judged".to_owned()));
        };
        let op = Op::Elsewhere(call);
        let (kernel, agent) = (self.parts.kernel.clone(), session.agent.clone());
        let mut reply = tokio::spawn(async move { kernel.syscall(&agent, op).await });
        tokio::select! {
            biased;
            Ok(allowed) = &mut was_allowed => Ok(Put::Allowed { allowed, observe, reply }),
            ended = &mut reply => Ok(Put::Ended(Box::new(ended.map_err(|_torn_down| Fault::TornDown)??))),
        }
    }

    /// A call of our own, as the user that this process runs for. What doesn't succeed is an error.
    async fn own<T: DeserializeOwned>(&self, op: Op) -> Result<T, JudgeError> {
        match self.parts.kernel.syscall(&self.caller, op).await? {
            Reply::Done(outcome) => outcome.read().map_err(|error| match error {
                ResultError::Failed(failure) => JudgeError::Refused(failure.message),
                ResultError::Stopped(_) => JudgeError::Refused("the call was stopped".to_owned()),
                ResultError::Unreadable(_) => JudgeError::Refused(error.to_string()),
            }),
            Reply::Denied(denial) => Err(JudgeError::Refused(denial.reason.message)),
            Reply::Pending(ticket) => Err(JudgeError::Refused(ticket.reason)),
        }
    }
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
