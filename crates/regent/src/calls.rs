//! Makes a call for a user: asks policy's questions on the terminal; an interrupt stops the call and is recorded.

use regent_kernel::{
    Answered, ApprovalAnswer, Begin, Fault, Host, Op, Outcome, Principal, Reply, Scope, SpawnSpec, Status,
    Ticket,
};
use regent_wire::result::Spawned;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::caller;
use crate::codes;
use crate::compose::BootedKernel;
use crate::context::Context;
use crate::failure::Failure;
use crate::live::LiveOutput;
use crate::prompt;
use crate::question::{self, Length, QuestionText};
use crate::term;

/// Makes one call. "No" and "not yet" are failures to the user who made the call.
pub(crate) async fn call(
    context: &Context,
    running: &BootedKernel,
    caller: &Principal,
    op: Op,
) -> Result<Outcome, Failure> {
    call_on(context, &running.host, caller, op).await
}

/// The same; what comes while it runs is written at once.
pub(crate) async fn call_live(
    context: &Context,
    running: &BootedKernel,
    caller: &Principal,
    op: Op,
    live: &mut LiveOutput,
) -> Result<Outcome, Failure> {
    made(context, &running.host, caller, op, Some(live)).await
}

/// The same on a kernel that isn't a project's.
pub(crate) async fn call_on(
    context: &Context,
    host: &Host,
    caller: &Principal,
    op: Op,
) -> Result<Outcome, Failure> {
    made(context, host, caller, op, None).await
}

async fn made(
    context: &Context,
    host: &Host,
    caller: &Principal,
    op: Op,
    mut live: Option<&mut LiveOutput>,
) -> Result<Outcome, Failure> {
    let outcome = match interruptible(host, caller, op.clone(), live.as_deref_mut()).await? {
        Reply::Done(outcome) => outcome,
        Reply::Denied(denial) => return Err(denial.into()),
        Reply::Pending(ticket) => {
            if !context.screen.can_ask {
                return Err(pending_for(caller, &ticket));
            }
            ask(context, host, &ticket).await?;
            match interruptible(host, caller, op, live).await? {
                Reply::Done(outcome) => outcome,
                Reply::Denied(denial) => return Err(denial.into()),
                Reply::Pending(again) => return Err(pending(&again)),
            }
        }
    };
    let confinement =
        outcome.obtained.as_ref().and_then(|obtained| obtained.get("confinement")).and_then(Value::as_str);
    if confinement.is_some_and(|word| word != "full") {
        // Less than the best is allowed by `sandbox.floor`, but never in silence.
        let less = "regent: confined by Landlock and seccomp only, because user namespaces are disabled here; for details run `regent doctor`\n";
        context.screen.say(less);
    }
    for warning in &outcome.warnings {
        context.screen.say(&format!("warning: {}\n", term::inline(&warning.message)));
    }
    Ok(outcome)
}

/// How long an interrupted call waits for the reader of its output: longer than a program may take to end.
const READ_WITHIN: std::time::Duration = std::time::Duration::from_secs(4);

/// The call, unless the user interrupts it: then it is stopped, its outcome is recorded, and the kernel goes down.
async fn interruptible(
    host: &Host,
    caller: &Principal,
    op: Op,
    live: Option<&mut LiveOutput>,
) -> Result<Reply, Failure> {
    let mut reply = Box::pin(async {
        match live {
            Some(live) => live.pass(host, caller, op).await,
            None => host.syscall(caller, op).await,
        }
    });
    tokio::select! {
        biased;
        reply = &mut reply => return Ok(reply?),
        () = interrupt() => {}
    }
    // What the program still says is read meanwhile, so that the call needn't wait for its reader; but the reader of our own output may have
    // stopped for good (a pager).
    let (closed, reply) = tokio::join!(host.shutdown(), tokio::time::timeout(READ_WITHIN, reply));
    // Its result doesn't matter any more, unless the ledger lacks it.
    if let Ok(Err(fault @ Fault::Unrecorded { .. })) = reply {
        return Err(fault.into());
    }
    settled(Ok(()), closed)?;
    Err(Failure::new(codes::INTERRUPTED, "interrupted; the call was stopped and the ledger says so"))
}

/// What a command came to, once its kernel is down. A close that fails after success is a failure of its own: what was done is recorded.
pub(crate) fn settled<T>(result: Result<T, Failure>, closed: Result<(), Fault>) -> Result<T, Failure> {
    match (result, closed) {
        (Ok(_), Err(fault)) => Err(Failure::unclosed(fault)),
        (result, _) => result,
    }
}

/// Resolves when the user, or the system, wants us to end.
pub(crate) async fn interrupt() {
    Interrupts::listen().next().await;
}

/// Who wants us to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// From the user at the terminal, or from `kill`: a second one is meant.
    Asked,
    /// The terminal was closed. The shell and the system both say so, so the second one says nothing new.
    HungUp,
}

/// The signals that end us, received from the moment it was made: none is missed between two waits.
#[derive(Debug)]
pub(crate) struct Interrupts(Option<[(Signal, Interrupt); 3]>);

impl Interrupts {
    pub(crate) fn listen() -> Self {
        let of = |kind, means| signal(kind).ok().map(|signal| (signal, means));
        let int = of(SignalKind::interrupt(), Interrupt::Asked);
        let term = of(SignalKind::terminate(), Interrupt::Asked);
        let hup = of(SignalKind::hangup(), Interrupt::HungUp);
        Self(int.zip(term).zip(hup).map(|((int, term), hup)| [int, term, hup]))
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Interrupt {
        match &mut self.0 {
            Some([(int, asked), (term, ended), (hup, closed)]) => tokio::select! {
                _ = int.recv() => *asked,
                _ = term.recv() => *ended,
                _ = hup.recv() => *closed,
            },
            // Without handlers the system's own take effect: the process ends, and recovery finds the call in doubt.
            None => std::future::pending().await,
        }
    }
}

/// The same as [`pending`], where the caller may be gone before anyone can answer.
fn pending_for(caller: &Principal, ticket: &Ticket) -> Failure {
    let failure = pending(ticket);
    if caller.agent_id().is_none() {
        return failure;
    }
    // An approval is for one agent with its key, and the next command starts another one.
    failure.help("the agent ended with the command, so an approval would have no effect: run the command at a terminal, without `--agent`, or in a task")
}

/// The error of a call that needs an approval if nobody can be asked.
fn pending(ticket: &Ticket) -> Failure {
    let id = &ticket.id.0;
    let message = format!("needs your approval (rule `{}`): {} (question {id})", ticket.rule, ticket.reason);
    let data = json!({
        "verdict": "ask", "question": id, "rule": ticket.rule, "reason": ticket.reason, "summary": ticket.summary, "intent": ticket.intent,
    });
    Failure::new(codes::APPROVAL_NEEDED, message)
        .help(format!(
            "approve with `regent approve {id}` or deny with `regent deny {id}`, then rerun the command"
        ))
        .data(data)
}

/// Shows exactly what would be done and by which rule it is asked, until it is answered. Only an explicit `y` approves.
async fn ask(context: &Context, host: &Host, ticket: &Ticket) -> Result<(), Failure> {
    const AGAIN: &str = "  Allow this once? [y/N] ";
    let screen = context.screen.aside();
    let QuestionText { text, cut: mut unseen } = question::inline(&screen, host, ticket, Length::Cut);
    let choice = if unseen { "[y/N, a to show it in full]" } else { "[y/N]" };
    let id = &ticket.id.0;
    let mut asked = format!(
        "\n{text}  question {id}; from another terminal: `regent approve {id}`\n  Allow this once? {choice} "
    );
    loop {
        let typed = tokio::select! {
            // In this order: who sees the question can interrupt it.
            biased;
            () = interrupt() => {
                let message = format!("interrupted; nothing was done; question {} stays open", ticket.id);
                return Err(Failure::new(codes::INTERRUPTED, message));
            }
            answered = host.answered(&ticket.id) => {
                let answered = answered.map_err(|error| crate::state::failed(context, &error))?;
                context.screen.say("answered from another terminal\n");
                return elsewhere(answered, ticket);
            }
            typed = prompt::awaited(&context.screen, &asked) => typed?.unwrap_or_default(),
        };
        if unseen && matches!(typed.trim(), "a" | "all") {
            let QuestionText { text, cut } = question::inline(&screen, host, ticket, Length::Whole);
            unseen = cut;
            asked = format!("\n{text}{AGAIN}");
            continue;
        }
        let answer = match prompt::is_yes(&typed) {
            true if unseen => {
                asked = format!("  {}: a shows it [a/N] ", question::unseen_help(&ticket.id));
                continue;
            }
            true => {
                ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: context.settings.approve_valid_ms() }
            }
            false => ApprovalAnswer::Deny { because: None },
        };
        match settle(context, host, ticket, answer).await {
            Err(failure) if failure.code == TOO_SOON => {
                asked = format!("  {}\n{AGAIN}", term::inline(&failure.message));
            }
            settled => return settled,
        }
    }
}

/// What an answer from another terminal means for the pending call here.
fn elsewhere(answered: Answered, ticket: &Ticket) -> Result<(), Failure> {
    match answered {
        Answered::Approved => Ok(()),
        Answered::Denied { because } => {
            let advice = because.map(|because| format!(": {because}")).unwrap_or_default();
            Err(Failure::new(codes::APPROVAL_REFUSED, format!("the call was denied{advice}")))
        }
        Answered::Waiting { .. } | Answered::Gone => Err(pending(ticket)),
    }
}

/// The kernel's word for an approval that came too soon to have been read.
pub(crate) const TOO_SOON: &str = "approval.too_soon";

async fn settle(
    context: &Context,
    host: &Host,
    ticket: &Ticket,
    answer: ApprovalAnswer,
) -> Result<(), Failure> {
    let refused = matches!(answer, ApprovalAnswer::Deny { .. });
    let op = Op::Answer { ticket: ticket.id.clone(), with: Vec::new(), answer };
    match host.syscall(&caller::authenticate(context, host).await?, op).await? {
        Reply::Done(_) if refused => Err(Failure::new(codes::APPROVAL_REFUSED, "you denied the call")),
        Reply::Done(outcome) => succeeded(&outcome),
        Reply::Denied(denial) => Err(denial.into()),
        Reply::Pending(again) => Err(pending(&again)),
    }
}

/// Starts an agent of this name that works on a request, and gives its principal.
pub(crate) async fn spawn_for(
    context: &Context,
    running: &BootedKernel,
    name: &str,
    request: String,
) -> Result<Principal, Failure> {
    let agent = spawn(context, running, name).await?;
    let Some(id) = agent.agent_id().cloned() else { return Ok(agent) };
    let begin = Box::new(Begin { request, ..Begin::default() });
    let begun = call(context, running, &running.caller(), Op::Begin { agent: id, begin }).await?;
    succeeded(&begun)?;
    Ok(agent)
}

/// Starts an agent of this name and gives its principal, so that rules about agents can be tried.
pub(crate) async fn spawn(
    context: &Context,
    running: &BootedKernel,
    name: &str,
) -> Result<Principal, Failure> {
    let spec: SpawnSpec = serde_json::from_value(json!({"name": name, "roles": []}))
        .map_err(|error| Failure::new(codes::USAGE, format!("`{name}` can't be an agent: {error}")))?;
    let operator = running.caller();
    let outcome = call(context, running, &operator, Op::Spawn(spec)).await?;
    let born: Spawned = result(&outcome)?;
    running.kernel.principal_of(&operator, &born.agent).ok_or_else(|| {
        Failure::new(codes::INTERNAL, format!("the agent `{name}` started but can't be found"))
    })
}

/// The result of an operation, or its failure.
pub(crate) fn result<T: DeserializeOwned>(outcome: &Outcome) -> Result<T, Failure> {
    succeeded(outcome)?;
    outcome.read().map_err(|error| Failure::new(codes::INTERNAL, error.to_string()))
}

/// Whether the effect came about; if not, why.
pub(crate) fn succeeded(outcome: &Outcome) -> Result<(), Failure> {
    let failure = match &outcome.status {
        Status::Ok => return Ok(()),
        Status::Failed(failure) => {
            let exit = codes::find(&failure.code).map_or(codes::TOOL_FAILED.exit, |code| code.exit);
            Failure::named(failure.code.clone(), exit, failure.message.clone())
        }
        Status::TimedOut => {
            let after = match outcome.spent.wall_ms {
                0 => String::new(),
                ms => format!(" after {}", term::span(ms)),
            };
            Failure::new(codes::TOOL_TIMED_OUT, format!("the call was stopped{after}: it reached its time limit"))
                .help("`limits.wall` of the policy, or of the rule that allows the call, sets it; `regent policy why` names the rule")
        }
        Status::Cancelled => Failure::new(codes::TOOL_CANCELLED, "the call was stopped by a signal"),
        Status::Faulted(message) => Failure::new(codes::KERNEL_FAULT, message.clone()),
    };
    Err(failure.data(outcome_json(outcome)))
}

/// What `--json` says of an outcome.
pub(crate) fn outcome_json(outcome: &Outcome) -> Value {
    let bytes = outcome.output.bytes();
    let output = match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        Err(_) => json!(term::block_of_bytes(bytes)),
    };
    json!({
        "verdict": "allow",
        "status": outcome.status,
        "output": output,
        "label": outcome.output.label(),
        "obtained": outcome.obtained,
        "intent": outcome.intent,
        "outcome": outcome.receipt,
        "warnings": outcome.warnings,
    })
}
