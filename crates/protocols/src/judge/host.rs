//! The executor of calls that the host application performs: it says that the host may go ahead, and waits for its report.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use regent_kernel::{
    AgentId, BoxFuture, ExecuteError, Executor, HostCall, Op, Permit, RawOutput, StoreUse, tier,
};
use serde_json::Value;
use tokio::sync::oneshot;

/// What the host says came of a call.
#[derive(Debug, Clone)]
pub(super) struct Observation {
    /// What came back, as JSON.
    pub(super) output: Vec<u8>,
    /// What went wrong, if it did.
    pub(super) error: Option<String>,
    /// What it did with a store of the host's.
    pub(super) store: Option<StoreUse>,
}

/// A call may be performed.
#[derive(Debug)]
pub(super) struct Allowed {
    /// Where its intent is in the ledger.
    pub(super) intent: u64,
    /// The arguments that it is allowed with, where they aren't those that were asked about.
    pub(super) args: Option<Value>,
}

/// Somebody waits for a call of an agent to be allowed.
#[derive(Debug)]
pub(super) struct Expected {
    /// Which call. Other programs with a token of the same agent may make others meanwhile.
    pub(super) call: HostCall,
    /// Notified when it is.
    pub(super) allowed: oneshot::Sender<Allowed>,
    /// Whether the host performs the call with other arguments, if policy changes them.
    pub(super) applies_changes: bool,
    /// Where the observation comes from.
    pub(super) observed: oneshot::Receiver<Observation>,
}

/// The host application, as the kernel sees it. An agent has one call under judgement at a time.
#[derive(Debug, Default)]
pub struct Performer(Mutex<ExpectedCalls>);

#[derive(Debug, Default)]
struct ExpectedCalls {
    /// Of the last one.
    number: u64,
    by_agent: HashMap<AgentId, (u64, Expected)>,
}

/// A call that is waited for. Dropping it ends that, unless the call was allowed meanwhile.
#[derive(Debug)]
pub(super) struct Expectation<'p> {
    performer: &'p Performer,
    agent: AgentId,
    /// The agent may have another call by then, of another connection.
    number: u64,
}

impl Performer {
    fn expected(&self) -> MutexGuard<'_, ExpectedCalls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a call of this agent; nothing, if another one is waited for.
    pub(super) fn expect(&self, agent: &AgentId, expected: Expected) -> Option<Expectation<'_>> {
        let mut all = self.expected();
        if all.by_agent.contains_key(agent) {
            return None;
        }
        all.number = all.number.saturating_add(1);
        let number = all.number;
        all.by_agent.insert(agent.clone(), (number, expected));
        Some(Expectation { performer: self, agent: agent.clone(), number })
    }

    /// What waits for exactly this call.
    fn take(&self, agent: &AgentId, call: &HostCall) -> Option<Expected> {
        let mut all = self.expected();
        if all.by_agent.get(agent).is_none_or(|(_, expected)| expected.call != *call) {
            return None;
        }
        all.by_agent.remove(agent).map(|(_, expected)| expected)
    }
}

impl Drop for Expectation<'_> {
    fn drop(&mut self) {
        let mut all = self.performer.expected();
        if all.by_agent.get(&self.agent).is_some_and(|(number, _)| *number == self.number) {
            all.by_agent.remove(&self.agent);
        }
    }
}

impl Executor<tier::Host> for Performer {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        let expected = match (permit.call().principal().agent_id(), permit.call().op()) {
            (Some(agent), Op::Elsewhere(call)) => self.take(agent, call),
            _no_call_of_a_host => None,
        };
        Box::pin(async move {
            let (Op::Elsewhere(host), Some(expected)) = (permit.call().op(), expected) else {
                return Err(ExecuteError::NoDriver(permit.call().op().name().to_owned()));
            };
            let args = (*permit.args() != host.run.args).then(|| permit.args().clone());
            if args.is_some() && !expected.applies_changes {
                let why = "policy allows it only with other arguments, and the host hasn't declared `applies_changes`";
                return Ok(RawOutput::failed("judge.changed", why));
            }
            // Nobody listens: then nobody will perform it either, and the outcome says that this isn't known.
            let _told = expected.allowed.send(Allowed { intent: permit.intent().seq, args });
            tokio::select! {
                observed = expected.observed => match observed {
                    Ok(observation) => Ok(came_back(observation)),
                    Err(_gone) => Err(ExecuteError::Broken("the host never reported the result".to_owned())),
                },
                () = permit.cancelled() => Err(ExecuteError::Broken("the host had not yet reported the result".to_owned())),
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

#[cfg(test)]
mod tests {
    use regent_kernel::ToolCall;
    use serde_json::json;

    use super::*;

    fn call(tool: &str) -> HostCall {
        HostCall {
            run: ToolCall { tool: tool.to_owned(), args: json!({}) },
            derived_from: None,
            quarantined: false,
            measured: None,
        }
    }

    fn expected(tool: &str) -> (Expected, oneshot::Receiver<Allowed>) {
        let (allowed, was_allowed) = oneshot::channel();
        let (_observe, observed) = oneshot::channel();
        (Expected { call: call(tool), allowed, applies_changes: false, observed }, was_allowed)
    }

    #[test]
    fn only_the_call_that_was_asked_about_is_allowed() {
        let (performer, agent) = (Performer::default(), AgentId::from("worker"));
        let (denied, mut was_allowed) = expected("denied");
        let _expectation = performer.expect(&agent, denied).unwrap();
        assert!(performer.take(&agent, &call("allowed")).is_none(), "another program's call");
        assert!(performer.take(&AgentId::from("other"), &call("denied")).is_none());
        assert!(was_allowed.try_recv().is_err());
        assert!(performer.take(&agent, &call("denied")).is_some());
        assert!(performer.take(&agent, &call("denied")).is_none(), "once");
    }

    #[test]
    fn a_call_that_ends_takes_no_other_one_with_it() {
        let (performer, agent) = (Performer::default(), AgentId::from("worker"));
        let one = performer.expect(&agent, expected("one").0).unwrap();
        assert!(performer.expect(&agent, expected("two").0).is_none(), "one at a time");
        assert!(performer.take(&agent, &call("one")).is_some());
        let two = performer.expect(&agent, expected("two").0).unwrap();
        drop(one);
        assert!(performer.expect(&agent, expected("three").0).is_none(), "`two` is still waited for");
        drop(two);
        assert!(performer.take(&agent, &call("two")).is_none(), "nobody waits for it any more");
        assert!(performer.expect(&agent, expected("three").0).is_some());
    }
}
