//! The executor of calls that the host application performs: it says that the host may go ahead, and waits for what came of it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use regent_kernel::{AgentId, BoxFuture, ExecuteError, Executor, Op, Permit, RawOutput, StoreUse, tier};
use serde_json::Value;
use tokio::sync::oneshot;

/// What the host says came of a call.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    /// What came back, as JSON.
    pub(crate) output: Vec<u8>,
    /// What went wrong, if it did.
    pub(crate) error: Option<String>,
    /// What it did with a store of the host's.
    pub(crate) store: Option<StoreUse>,
}

/// A call may be performed.
#[derive(Debug)]
pub(crate) struct Allowed {
    /// Where its intent is in the ledger.
    pub(crate) intent: u64,
    /// The arguments that it is allowed with, where they aren't those that were asked about.
    pub(crate) args: Option<Value>,
}

/// Somebody waits for a call of an agent to be allowed.
#[derive(Debug)]
pub(crate) struct Expected {
    /// Told when it is.
    pub(crate) allowed: oneshot::Sender<Allowed>,
    /// Whether the host performs the call with other arguments, if policy changes them.
    pub(crate) applies_changes: bool,
    /// Where the observation comes from.
    pub(crate) observed: oneshot::Receiver<Observation>,
}

/// The host application, as the kernel sees it. An agent has one call under judgement at a time.
#[derive(Debug, Default)]
pub(crate) struct Host(Mutex<HashMap<AgentId, Expected>>);

impl Host {
    fn expected(&self) -> MutexGuard<'_, HashMap<AgentId, Expected>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn expect(&self, agent: &AgentId, expected: Expected) {
        self.expected().insert(agent.clone(), expected);
    }

    /// The call was not allowed after all.
    pub(crate) fn forget(&self, agent: &AgentId) {
        self.expected().remove(agent);
    }
}

impl Executor<tier::Host> for Host {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        let agent = permit.call().principal().agent_id();
        let expected = agent.and_then(|agent| self.expected().remove(agent));
        Box::pin(async move {
            let (Op::Elsewhere(host), Some(expected)) = (permit.call().op(), expected) else {
                return Err(ExecuteError::NoDriver(permit.call().op().name().to_owned()));
            };
            let args = (*permit.args() != host.run.args).then(|| permit.args().clone());
            if args.is_some() && !expected.applies_changes {
                let why = "policy allows it with other arguments only, and the host hasn't said that it applies changes";
                return Ok(RawOutput::failed("judge.changed", why));
            }
            // Nobody listens: then nobody will perform it either, and the outcome says that this isn't known.
            let _told = expected.allowed.send(Allowed { intent: permit.intent().seq, args });
            tokio::select! {
                observed = expected.observed => match observed {
                    Ok(observation) => Ok(came_back(observation)),
                    Err(_gone) => Err(ExecuteError::Broken("the host never said what came of it".to_owned())),
                },
                () = permit.cancelled() => Err(ExecuteError::Broken("the host had not yet said what came of it".to_owned())),
            }
        })
    }
}

fn came_back(observation: Observation) -> RawOutput {
    let raw = RawOutput::new(observation.output).with_store(observation.store);
    match observation.error {
        Some(error) => raw.with_failure("host.failed", error),
        None => raw,
    }
}
