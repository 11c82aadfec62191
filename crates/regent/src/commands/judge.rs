//! `regent judge`: decisions for agents that others run, one JSON object a line.

use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use regent_kernel::Host;
use regent_protocols::judge::{self, Judge, Parts, Planner};
use serde_json::json;

use crate::caller;
use crate::calls;
use crate::codes;
use crate::compose::{self, QuestionRecipient};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, CommandResult, Done, StdoutContent};

/// Judge the calls of an agent that runs in another application
#[derive(Debug, Args)]
#[command(
    after_help = "One JSON object per line on stdin, one answer each on stdout:\n  {\"op\":\"begin\",\"session\":S,\"prompt\":TEXT,\"tools\":{NAME:{\"description\",\"schema\",\"labels\"}},\"trusted\":{\"tools\",\"plan\"},\"applies_changes\":BOOL,\"mediates\":[POINT]}\n  {\"op\":\"decide\",\"session\":S,\"call\":{\"id\",\"tool\",\"args\"},\"derived_from\":[…],\"quarantined\":BOOL}  ->  {\"decision\":\"allow|ask|deny\",\"reason\",\"args\" if policy changed them}\n  {\"op\":\"observe\",\"session\":S,\"call\":{…},\"output\":{\"text\",\"data\",\"error\"},\"store\":{\"name\",\"key\",\"wrote\"}}  ->  {\"outcome\",\"withheld\" or \"output\" if policy says so}\n  {\"op\":\"read\",\"session\":S,\"read\":{\"id\",\"text\",\"question\",\"type\"}}  ->  {\"value\"}, with --model\n  {\"op\":\"end\",\"session\":S}\n\nIf `trusted` has no plan, Regent proposes one from the prompt; the answer to begin shows it. The host performs what is allowed and what its user approves, and reports the result. The ledger records every decision:\nthe project's ledger in a trusted project, otherwise one in your state folder."
)]
pub(crate) struct JudgeArgs {
    /// Use stdin and stdout, in your name
    #[arg(long, required_unless_present = "socket")]
    stdio: bool,
    /// Serve hosts on a Unix socket, each in the name that its token stands for, until interrupted
    #[arg(long, value_name = "PATH", conflicts_with = "stdio", value_hint = clap::ValueHint::FilePath)]
    socket: Option<PathBuf>,
    /// Don't propose a plan to sessions that have none
    #[arg(long)]
    no_planner: bool,
    /// The model that proposes plans from the request alone and reads quarantined text, as `provider/name`
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
}

pub(crate) async fn run(context: &Context, args: JudgeArgs) -> CommandResult {
    let asked = if args.socket.is_some() { QuestionRecipient::Here } else { QuestionRecipient::Host };
    let (host, parts) = compose::judge(context, Planner::new(!args.no_planner, args.model), asked).await?;
    let result = match &args.socket {
        Some(path) => on_socket(context, &host, parts, path).await.map(|()| json!({"socket": path})),
        None => on_stdio(context, &host, parts).await.map(|answered| json!({"answered": answered})),
    };
    let data = calls::settled(result, host.shutdown().await)?;
    Ok(Done { data, shown: StdoutContent::Already, exit: 0 })
}

async fn on_stdio(context: &Context, host: &Host, parts: Arc<Parts>) -> Result<u64, Failure> {
    // Who has none is judged all the same, but nobody reaches an agent that was suspended.
    let control = compose::control(context, host).await;
    if let Err(failure) = &control {
        context.screen.say(&format!(
            "regent: {}; `regent agent` doesn't reach the agents of this judge\n",
            failure.message
        ));
    }
    let judge = Arc::new(Judge::new(parts, caller::authenticate(context, host).await?));
    let input = BufReader::new(io::stdin());
    judge::serve(&judge, input, io::stdout(), output::line)
        .await
        .map_err(|error| Failure::new(codes::IO, format!("can't write answers: {error}")))
}

/// Other terminals see and signal the agents of the sessions, and answer questions, by the control socket.
async fn on_socket(context: &Context, host: &Host, parts: Arc<Parts>, path: &Path) -> Result<(), Failure> {
    let mut interrupts = calls::Interrupts::listen();
    let control = compose::control(context, host).await?;
    let listening = judge::listen(parts, host.authenticator(), path, output::line)
        .map_err(|error| Failure::io("listen on", path, &error))?;
    context.screen.say(&format!("regent: listening on {}\n", path.display()));
    interrupts.next().await;
    drop((listening, control));
    Ok(())
}
