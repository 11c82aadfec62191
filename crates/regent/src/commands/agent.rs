//! `regent agent`: agents as processes, over all kernels that run.

mod fs;

use clap::Subcommand;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use regent_control::{self as control, ControlError, KernelProcesses, Peer};
use regent_kernel::{AgentId, Op, Signal, SignalError};
use regent_policy::nearest;
use regent_wire::body::DoubtEffect;
use regent_wire::result::{AgentView, ResultError, Signalled};
use regent_wire::{Outcome, Reply};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::caller::PresentedToken;
use crate::codes;
use crate::context::Context;
use crate::failure::{Failure, did_you_mean};
use crate::output::{CommandResult, Done};
use crate::paths::Paths;
use crate::term;

/// List and signal running agents
#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// List the agents of all your running kernels
    Ps,
    /// Send a signal to an agent
    Signal {
        /// The agent's id
        #[arg(add = ArgValueCandidates::new(agent_ids))]
        id: String,
        /// STOP, CONT, INT, KILL, TERM, USR1, USR2, POLICY, TRUST, BUDGET, LOOP, DRIFT, or the number
        signal: String,
        /// Signal its whole process group
        #[arg(long)]
        group: bool,
    },
    /// Trust a value in an agent's request, wherever it came from
    Declassify {
        /// The agent's id
        #[arg(add = ArgValueCandidates::new(agent_ids))]
        id: String,
        /// The value as the agent passes it: JSON, or text
        value: String,
    },
    /// Look into an agent's files: its memory, checkpoints, tools and pipes
    #[command(subcommand)]
    Fs(fs::FsCommand),
}

impl AgentCommand {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Ps => "agent.ps",
            Self::Signal { .. } => "agent.signal",
            Self::Declassify { .. } => "agent.declassify",
            Self::Fs(command) => command.word(),
        }
    }
}

pub(crate) async fn run(context: &Context, command: AgentCommand) -> CommandResult {
    match command {
        AgentCommand::Ps => ps(context).await,
        AgentCommand::Signal { id, signal, group } => send(context, &id, &signal, group).await,
        AgentCommand::Declassify { id, value } => declassify(context, &id, &value).await,
        AgentCommand::Fs(command) => fs::run(context, &command).await,
    }
}

/// A running agent and the kernel it runs in.
#[derive(Debug)]
struct RunningAgent {
    peer: usize,
    agent: AgentView,
}

/// Makes a call in the kernel that knows an agent, as the operator there.
pub(crate) async fn call_beside<T: DeserializeOwned>(
    context: &Context,
    id: &str,
    op: Op,
) -> Result<T, Failure> {
    answer(&kernel_of(context, id).await?, op).await
}

/// The kernel that knows an agent.
async fn kernel_of(context: &Context, id: &str) -> Result<Peer, Failure> {
    let peers = own_peers(context).await?;
    let seen = agents(&peers).await?;
    let found = seen.iter().find(|one| one.agent.agent.as_str() == id);
    found.and_then(|one| peers.get(one.peer)).cloned().ok_or_else(|| {
        let message = format!("no running kernel has an agent `{}`", term::inline(id));
        let help = did_you_mean(
            id,
            seen.iter().map(|one| one.agent.agent.as_str()),
            "`regent agent ps` lists running agents",
        );
        Failure::new(codes::AGENT_UNKNOWN, message).help(help)
    })
}

/// The kernels of this user that run now.
pub(crate) async fn processes(paths: &Paths) -> Result<KernelProcesses, Failure> {
    control::processes(&paths.runtime).await.map_err(|error| {
        Failure::new(codes::CONTROL_UNREACHABLE, format!("the running kernels can't be listed: {error}"))
    })
}

/// The same, as the caller of the command.
pub(crate) async fn own_peers(context: &Context) -> Result<Vec<Peer>, Failure> {
    let token = context.token.as_ref().map(PresentedToken::text);
    let found = processes(&context.paths).await?;
    for pid in found.silent {
        let line = format!(
            "regent: kernel {pid} doesn't answer. If it was stopped with Ctrl-Z, `fg` in its terminal continues it; `kill -KILL {pid}` ends it and its programs\n"
        );
        context.screen.say(&line);
    }
    Ok(found.peers.into_iter().map(|peer| peer.presenting(token)).collect())
}

async fn agents(peers: &[Peer]) -> Result<Vec<RunningAgent>, Failure> {
    let mut seen = Vec::new();
    for (at, peer) in peers.iter().enumerate() {
        let listed: Vec<AgentView> = answer(peer, Op::Agents).await?;
        seen.extend(listed.into_iter().map(|agent| RunningAgent { peer: at, agent }));
    }
    Ok(seen)
}

/// What a kernel answers.
pub(crate) async fn answer<T: DeserializeOwned>(peer: &Peer, op: Op) -> Result<T, Failure> {
    let pid = peer.hello().pid;
    output(peer, op).await?.read().map_err(|error| match error {
        ResultError::Failed(failure) => {
            let exit = codes::find(&failure.code).map_or(1, |code| code.exit);
            Failure::named(failure.code, exit, failure.message)
        }
        other @ (ResultError::Stopped(_) | ResultError::Unreadable(_)) => {
            Failure::new(codes::CONTROL_UNREACHABLE, format!("kernel {pid}: {other}"))
        }
    })
}

/// What a call to a kernel gives.
async fn output(peer: &Peer, op: Op) -> Result<Outcome, Failure> {
    let pid = peer.hello().pid;
    let reply = peer.call(op).await.map_err(|error| match error {
        ControlError::Refused { code, message } if code.starts_with("auth.") => {
            let exit = codes::exit_of(&code);
            Failure::named(code, exit, message)
        }
        other @ (ControlError::Folder { .. }
        | ControlError::Socket { .. }
        | ControlError::Refused { .. }
        | ControlError::Malformed(_)) => {
            Failure::new(codes::CONTROL_UNREACHABLE, format!("kernel {pid} doesn't answer: {other}"))
        }
    })?;
    match reply {
        Reply::Done(outcome) => Ok(*outcome),
        Reply::Denied(denial) => {
            let reason = denial.reason;
            let exit = codes::exit_of(&reason.code);
            let failure = Failure::named(reason.code, exit, format!("denied: {}", reason.message));
            Err(Failure { help: reason.help, ..failure })
        }
        Reply::Pending(ticket) => Err(Failure::new(
            codes::APPROVAL_NEEDED,
            format!("needs your approval (question {})", ticket.id.0),
        )),
        Reply::Fault(fault) => {
            let happened = fault.happened || fault.effect == DoubtEffect::Done;
            let code = if happened { codes::OUTCOME_UNRECORDED } else { codes::KERNEL_FAULT };
            Err(Failure::new(code, format!("kernel {pid}: {}", fault.message)))
        }
    }
}

async fn ps(context: &Context) -> CommandResult {
    let peers = own_peers(context).await?;
    let seen = agents(&peers).await?;
    let mut text = String::new();
    if seen.is_empty() {
        text = match peers.len() {
            0 => "no kernel is running\n".to_owned(),
            many => format!("{many} kernels are running, without agents\n"),
        };
    } else {
        text.push_str(&context.screen.strong(&format!(
            "{:<14} {:<16} {:<12} {:>5} {:>6} {:>6} {:>7}  {}\n",
            "ID", "NAME", "STATE", "TRUST", "CALLS", "DENIED", "KERNEL", "WORKSPACE"
        )));
    }
    let mut rows = Vec::new();
    for one in &seen {
        let Some(hello) = peers.get(one.peer).map(Peer::hello) else { continue };
        let agent = &one.agent;
        text.push_str(&format!(
            "{:<14} {:<16} {:<12} {:>5} {:>6} {:>6} {:>7}  {}\n",
            term::short(agent.agent.as_str(), 40),
            term::short(&agent.name, 40),
            agent.state.as_str(),
            agent.trust,
            agent.tool_calls,
            agent.denials,
            hello.pid,
            term::inline(&hello.workspace.display().to_string())
        ));
        rows.push(json!({"kernel": hello.pid, "workspace": hello.workspace, "agent": agent}));
    }
    let kernels: Vec<_> = peers.iter().map(Peer::hello).collect();
    Ok(Done::new(json!({"kernels": kernels, "agents": rows}), text))
}

async fn send(context: &Context, id: &str, signal: &str, group: bool) -> CommandResult {
    let signal = parse_signal(signal)?;
    let told = deliver(context, id, signal, group).await?;
    let text = format!("sent {} to {}\n", json!(signal).as_str().unwrap_or_default(), term::inline(id));
    Ok(Done::new(json!({"agent": id, "signal": signal, "delivered": told}), text))
}

/// Sends a signal to an agent of whichever kernel knows it, and gives back what became of it.
pub(crate) async fn deliver(
    context: &Context,
    id: &str,
    signal: Signal,
    group: bool,
) -> Result<Value, Failure> {
    let peer = kernel_of(context, id).await?;
    let pid = peer.hello().pid;
    match answer(&peer, Op::Signal { agent: AgentId::from(id), signal, group }).await {
        Ok::<Signalled, _>(told) => Ok(json!(told)),
        Err(failure) => {
            // A kernel that ran for this agent alone ends with it, perhaps before it has answered.
            let is_up = peers_up(context).await.contains(&pid);
            if is_up || !is_deadly(signal) {
                return Err(failure);
            }
            Ok(json!({"kernel": "ended"}))
        }
    }
}

/// Says that a value may be trusted in an agent's request. It is recorded there as this person's word.
async fn declassify(context: &Context, id: &str, value: &str) -> CommandResult {
    let value: Value = serde_json::from_str(value).unwrap_or_else(|_text| Value::String(value.to_owned()));
    let op = Op::Declassify { agent: AgentId::from(id), value: value.clone() };
    let _done: Value = call_beside(context, id, op).await?;
    let text =
        format!("trusted in the request of {}: {}\n", term::inline(id), term::short(&value.to_string(), 80));
    Ok(Done::new(json!({"agent": id, "value": value}), text))
}

async fn peers_up(context: &Context) -> Vec<u32> {
    let peers = processes(&context.paths).await.unwrap_or_default().peers;
    peers.iter().map(|peer| peer.hello().pid).collect()
}

/// Whether an agent ends by it.
fn is_deadly(signal: Signal) -> bool {
    match signal {
        Signal::Kill | Signal::Term | Signal::Policy | Signal::Trust => true,
        Signal::Stop
        | Signal::Cont
        | Signal::Int
        | Signal::Usr1
        | Signal::Usr2
        | Signal::Budget
        | Signal::Loop
        | Signal::Drift => false,
    }
}

/// By name, with or without `SIG`, or by number.
fn parse_signal(text: &str) -> Result<Signal, Failure> {
    let names: Vec<&str> = Signal::ALL.iter().map(|signal| signal.name()).collect();
    text.parse().map_err(|error: SignalError| {
        let failure = Failure::new(codes::USAGE, error.to_string());
        match nearest(text, names.iter().copied()) {
            Some(meant) => failure.help(format!("did you mean `{meant}`?")),
            None => failure,
        }
    })
}

/// Ids of running agents, for completion.
fn agent_ids() -> Vec<CompletionCandidate> {
    let running = || -> Option<Vec<RunningAgent>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(async {
            let peers = processes(&Paths::from_env().ok()?).await.ok()?.peers;
            agents(&peers).await.ok()
        })
    };
    let seen = running().unwrap_or_default().into_iter();
    seen.map(|one| CompletionCandidate::new(one.agent.agent.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_go_by_name_or_number() {
        for (text, signal) in [
            ("KILL", Signal::Kill),
            ("sigkill", Signal::Kill),
            ("4", Signal::Kill),
            ("drift", Signal::Drift),
            ("12", Signal::Drift),
        ] {
            assert_eq!(parse_signal(text).unwrap(), signal, "{text}");
        }
        for text in ["", "0", "13", "HUP", "SIG"] {
            assert_eq!(parse_signal(text).unwrap_err().exit, 2, "{text}");
        }
    }
}
