//! Sub-agents: work that is given to a child, which has no more power than its parent and answers through a pipe.
//!
//! Starting the child, the pipe and its end belong to one run of the program and are no steps: a resumed task starts the child again, and
//! the child's own steps, which lie below its prefix, are replayed.

use regent_kernel::{AgentId, Budget, Op, Outcome, PipeSpec, SpawnSpec, Status};
use regent_wire::result::{Piped, Spawned};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::agent::{self, Craft, Work};
use crate::door::{CallResult, Door};
use crate::stop::StopCause;

const ANSWER_BYTES_MAX: u32 = 1 << 20;
/// The answer is in the pipe before it is asked for.
const WAIT_MS_MAX: u64 = 1_000;

/// The specification of a child.
#[derive(Debug, Clone)]
pub struct Child {
    /// Its name below its parent's.
    pub name: String,
    /// What the names of its steps begin with, e.g. `1/0/`.
    pub prefix: String,
    /// Its roles; the parent's if absent. Never more.
    pub roles: Option<Vec<String>>,
    /// How much of the parent's budget it may use.
    pub budget: Option<Budget>,
}

/// Delegates work to a child and waits for its answer, which is labelled as another agent's and put between markers.
pub async fn delegate(door: &Door, craft: &Craft, work: &Work, child: &Child) -> Result<String, StopCause> {
    let spec = SpawnSpec {
        grants: regent_kernel::Grants::default(),
        name: child.name.clone(),
        roles: child.roles.clone().unwrap_or_else(|| door.who().roles().to_vec()),
        new_group: false,
        trust: None,
        budget: child.budget,
        priority: None,
    };
    let Spawned { agent: id, .. } = result_of(door.aside(Op::Spawn(spec)).await?)?;
    let who = door.kernel().principal_of(door.who(), &id).ok_or(StopCause::Ended)?;
    let own = door.below(who, &child.prefix);
    let worked = agent::work(&own, craft, work).await;
    let passed = match &worked {
        Ok(answer) => pass_on(door, &own, &answer.text, work).await,
        Err(_) => Ok(String::new()),
    };
    // However it went, the child ends and is waited for: nobody is left behind.
    let code = i32::from(worked.is_err());
    let _ended = own.aside(Op::Exit { code }).await.is_ok();
    let _waited = door.aside(Op::Wait { agent: id }).await.is_ok();
    worked?;
    passed
}

/// The child writes, the parent reads: the answer's label goes along with it.
async fn pass_on(door: &Door, own: &Door, text: &str, work: &Work) -> Result<String, StopCause> {
    let reader = door.who().agent_id().cloned().unwrap_or_else(|| AgentId::from("operator"));
    let spec = PipeSpec {
        reader,
        schema: json!({"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}),
        messages_max: 1,
        message_bytes_max: ANSWER_BYTES_MAX,
    };
    let Piped { pipe } = result_of(own.aside(Op::Pipe(spec)).await?)?;
    outcome_of(own.aside(Op::Send { pipe, message: json!({"answer": text}) }).await?)?;
    let heard = door.aside(Op::Recv { pipe, wait_ms_max: WAIT_MS_MAX }).await?;
    Ok(outcome_of(heard)?.output.for_model(&work.markers.issue(&own.name_of("answer"))))
}

fn result_of<T: DeserializeOwned>(heard: CallResult) -> Result<T, StopCause> {
    outcome_of(heard)?.read().map_err(|error| StopCause::Passing(error.to_string()))
}

/// The result of a call that must succeed.
fn outcome_of(heard: CallResult) -> Result<Outcome, StopCause> {
    match heard {
        CallResult::Done(outcome) if outcome.status == Status::Ok => Ok(outcome),
        CallResult::Done(outcome) => Err(StopCause::Passing(format!("{:?}", outcome.status))),
        CallResult::Denied(denial) => Err(StopCause::Denied(denial.reason)),
        CallResult::Broke(message) => Err(StopCause::Passing(message)),
    }
}
