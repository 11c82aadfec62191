//! Agents and signals.

use std::sync::Arc;

use regent_wire::result::{
    Exited, PendingSignals, SignalAction, SignalMask, Signalled, SignalledAgent, Spawned, Waited,
};

use super::{HostPermit, Performed, broken};
use crate::agent::{Agent, AgentId, Delivered, End, Lifecycle, SpawnSpec};
use crate::executor::RawOutput;
use crate::kernel::Core;
use crate::signal::{Disposition, MaskChange, Signal};

pub(super) async fn spawn(core: &Arc<Core>, permit: HostPermit<'_>, spec: &SpawnSpec) -> Performed {
    match core.spawn(permit.call().principal(), spec).await.map_err(broken)? {
        Ok(agent) => {
            let did = agent.principal.did().map(ToString::to_string);
            Ok(RawOutput::result(&Spawned { agent: agent.id.clone(), did }))
        }
        Err(error) => Ok(RawOutput::failed(error.code(), error.to_string())),
    }
}

pub(super) async fn wait(core: &Arc<Core>, permit: HostPermit<'_>, agent: &AgentId) -> Performed {
    let Some(agent) = core.society.agents.get(agent) else { return Ok(unknown(agent)) };
    tokio::select! {
        () = agent.life.ended() => {}
        () = permit.cancelled() => {}
    }
    let (end, state) = (agent.life.end(), agent.life.stage());
    Ok(RawOutput::result(&Waited { agent: agent.id.clone(), end, state }))
}

pub(super) fn exit(core: &Arc<Core>, permit: HostPermit<'_>, code: i32) -> Performed {
    let own = permit.call().principal().agent_id().and_then(|id| core.society.agents.get(id));
    let ended = own.is_some_and(|agent| core.end(&agent, End::Code(code), Some(permit.intent().seq)));
    Ok(RawOutput::result(&Exited { ended }))
}

pub(super) fn list(core: &Arc<Core>, permit: HostPermit<'_>) -> Performed {
    Ok(RawOutput::result(&core.list_agents(permit.call().principal())))
}

/// Delivers a signal, and where it is deadly, waits until it is done: the process tree is dead when this says so.
pub(super) async fn signal(
    core: &Arc<Core>,
    permit: HostPermit<'_>,
    agent: &AgentId,
    signal: Signal,
    group: bool,
) -> Performed {
    let who = permit.call().principal();
    let targets = match core.society.agents.get(agent) {
        None => return Ok(unknown(agent)),
        Some(_) if group => core.society.agents.group_of(agent),
        Some(one) => vec![one],
    };
    // The end of the agent may be what shuts the kernel down. A signal that was delivered must not be recorded as cancelled.
    if !core.society.calls.let_finish(permit.intent().seq) {
        return Ok(RawOutput::new(Vec::new()));
    }
    let mut delivered = Vec::new();
    for target in &targets {
        let how = core.deliver(target, signal, Some(permit.intent().seq)).await.map_err(broken)?;
        delivered.push((target, how));
    }
    // An agent that waits for itself would deadlock: the wait is one of its own running calls.
    let is_own = |target: &Agent| who.line().any(|one| one.agent_id() == Some(&target.id));
    let is_dying = |(target, delivered): &(&Arc<Agent>, Delivered)| {
        target.life.stage().is_over() && *delivered == Delivered::Done && !is_own(target)
    };
    let dying: Vec<&Arc<Agent>> =
        delivered.iter().filter(|one| is_dying(one)).map(|(target, _)| *target).collect();
    core.are_dead(&dying).await;
    let to = delivered.iter().map(|(target, delivered)| {
        let waited = dying.iter().any(|one| one.id == target.id);
        let over = waited.then(|| target.life.stage() == Lifecycle::Terminated);
        SignalledAgent { agent: target.id.clone(), delivered: *delivered, over }
    });
    let to = to.collect();
    Ok(RawOutput::result(&Signalled { number: signal.number(), signal, to }))
}

pub(super) fn action(permit: HostPermit<'_>, signal: Signal, to: Disposition) -> Performed {
    let Some(life) = permit.call().principal().life() else { return Ok(not_an_agent()) };
    match life.with_inbox(|inbox| inbox.dispose(signal, to)) {
        Ok(()) => Ok(RawOutput::result(&SignalAction { disposition: to, signal })),
        Err(fixed) => Ok(RawOutput::failed("signal.fixed", fixed.to_string())),
    }
}

pub(super) async fn mask(core: &Arc<Core>, permit: HostPermit<'_>, change: &MaskChange) -> Performed {
    let own = permit.call().principal().agent_id().and_then(|id| core.society.agents.get(id));
    let Some(agent) = own else { return Ok(not_an_agent()) };
    let (through, masked) = agent.life.with_inbox(|inbox| (inbox.mask(change), inbox.masked()));
    for signal in &through {
        core.deliver(&agent, *signal, Some(permit.intent().seq)).await.map_err(broken)?;
    }
    Ok(RawOutput::result(&SignalMask { masked, through }))
}

pub(super) fn pending(permit: HostPermit<'_>) -> Performed {
    let Some(life) = permit.call().principal().life() else { return Ok(not_an_agent()) };
    Ok(RawOutput::result(&PendingSignals { signals: life.with_inbox(|inbox| inbox.take()) }))
}

fn unknown(agent: &AgentId) -> RawOutput {
    RawOutput::failed("agent.unknown", format!("there is no agent `{}`", agent.as_str().escape_debug()))
}

fn not_an_agent() -> RawOutput {
    RawOutput::failed("agent.not_an_agent", "only an agent has signals of its own")
}
