//! `regent run`: any program, judged, confined and recorded. Its exit code is passed on.

mod limits;

use std::io::{IsTerminal, Read, Write};

use clap::Args;
use regent_kernel::{Op, Outcome, Status, ToolCall};
use regent_sandbox::{Closed, Exit, ProgramEnded};
use serde_json::{Value, json};

use crate::calls;
use crate::codes;
use crate::compose::BootedKernel;
use crate::context::Context;
use crate::failure::{Failure, did_you_mean};
use crate::live::LiveOutput;
use crate::output::{CommandResult, Done, StdoutContent};
use crate::settings;
use crate::term;
use limits::Limit;

/// Run a program in the sandbox; policy judges it, the ledger records it
#[derive(Debug, Args)]
#[command(
    after_help = "Example: regent run -- cargo test\n\nThe program starts in the current folder and sees the project and a read-only system, not your home folder or environment. It reaches the network only through a proxy, and policy judges each connection.\n\nOn a terminal, Ctrl-C and Ctrl-Z go to the program, and time stopped with Ctrl-Z doesn't count. The third Ctrl-C within a second kills the program, unless it reads Ctrl-C as a key (editors, raw mode): then end regent with `kill` from another terminal. A default time limit of the policy doesn't end it; --timeout and the limits of a rule do."
)]
pub(crate) struct RunArgs {
    /// Run as an agent of this name: `agent ps` lists it, `agent signal` reaches it, rules about agents apply
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Time limit, e.g. 90s or 10m; policy may set a lower one
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// No network access, not even through the proxy
    #[arg(long)]
    no_network: bool,
    /// Pass stdin to the program: text, up to 8 MiB, read to its end before the program starts
    #[arg(short = 'i', long)]
    stdin: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    argv: Vec<String>,
}

/// As much as the tool takes.
const STDIN_BYTES_MAX: u64 = 8 << 20;

pub(crate) async fn run(context: &Context, args: RunArgs) -> CommandResult {
    refuse_misspelt(&args)?;
    let mut fields = arguments(context, &args)?;
    // Trying it takes as long as the start of the kernel, and needs nothing of it.
    let trial = (!args.no_network).then(|| tokio::task::spawn_blocking(regent_sandbox::full_closed));
    let running = BootedKernel::boot(context).await?;
    if let Some(trial) = trial
        && has_network(context, trial.await.ok().flatten())
        && let Some(fields) = fields.as_object_mut()
    {
        fields.insert("network".to_owned(), json!(true));
    }
    let call = ToolCall { tool: "process.exec".to_owned(), args: fields };
    let result = confined(context, &running, call, args.agent.as_deref()).await;
    running.close(context, result).await
}

/// No program is called like an option: without `--` before it, it is a misspelt one.
fn refuse_misspelt(args: &RunArgs) -> Result<(), Failure> {
    let Some(word) = args.argv.first().filter(|word| word.starts_with('-')) else { return Ok(()) };
    let options = RunArgs::augment_args(clap::Command::new("run"));
    let known: Vec<String> =
        options.get_arguments().filter_map(|one| Some(format!("--{}", one.get_long()?))).collect();
    let help = did_you_mean(
        word,
        known.iter().map(String::as_str),
        "options come before the program: `regent run [OPTIONS] -- PROGRAM`",
    );
    Err(Failure::new(codes::USAGE, format!("unknown option `{}`", term::inline(word))).help(help))
}

fn arguments(context: &Context, args: &RunArgs) -> Result<Value, Failure> {
    let mut fields = json!({"argv": args.argv});
    let mut set = |name: &str, value: Value| {
        if let Some(fields) = fields.as_object_mut() {
            fields.insert(name.to_owned(), value);
        }
    };
    if let Some(folder) = folder_below(context)? {
        set("cwd", json!(folder));
    }
    if let Some(text) = &args.timeout {
        let ms = settings::duration_ms(text).filter(|ms| *ms > 0).ok_or_else(|| {
            Failure::new(codes::USAGE, format!("`{text}` is not a time"))
                .help("give a time such as 90s, 10m, 2h or 1d")
        })?;
        set("timeout_ms", json!(ms));
    }
    if args.stdin {
        set("stdin", json!(stdin_text()?));
    } else if context.screen.interactive {
        set("terminal", json!(true));
    }
    if !context.screen.interactive && !context.screen.json && is_one_file() {
        // What goes to one place comes there in the order in which it was written.
        set("merge_stderr", json!(true));
    }
    Ok(fields)
}

/// The folder inside the project that the command was given in; none at its root.
fn folder_below(context: &Context) -> Result<Option<String>, Failure> {
    let root = context.project()?.root;
    let cwd = context.cwd.canonicalize().map_err(|error| Failure::io("enter", &context.cwd, &error))?;
    let Some(below) = cwd.strip_prefix(&root).ok().filter(|below| !below.as_os_str().is_empty()) else {
        return Ok(None);
    };
    let message = || format!("the name of the folder `{}` is not UTF-8", cwd.display());
    let below = below
        .to_str()
        .ok_or_else(|| Failure::new(codes::USAGE, message()).help("run the command at the project's root"))?;
    Ok(Some(below.to_owned()))
}

/// What is to be passed on. It becomes an argument of the call, so that policy and ledger see it: text of a limited size.
fn stdin_text() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::new(codes::IO, format!("can't read stdin: {error}")))?;
    let help = "write it to a file in the project and give the program the file's name";
    if bytes.len() as u64 > STDIN_BYTES_MAX {
        let message = format!("stdin has more than {STDIN_BYTES_MAX} bytes, the limit of `--stdin`");
        return Err(Failure::new(codes::USAGE, message).help(help));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let message = format!(
            "stdin is not UTF-8 text (byte {at}); `--stdin` takes text, up to {STDIN_BYTES_MAX} bytes"
        );
        Failure::new(codes::USAGE, message).help(help)
    })
}

/// Whether stdout and stderr are the same file, as after `2>&1`.
fn is_one_file() -> bool {
    let both = rustix::fs::fstat(std::io::stdout()).ok().zip(rustix::fs::fstat(std::io::stderr()).ok());
    both.is_some_and(|(out, err)| (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino))
}

/// Where namespaces are closed, network access can't be guarded: the program runs without it, and the user gets a warning.
fn has_network(context: &Context, closed: Option<&Closed>) -> bool {
    let open = closed.is_none();
    if !open {
        let less = "regent: no network for the program, because user namespaces are disabled here; for details run `regent doctor`\n";
        context.screen.say(less);
    }
    open
}

async fn confined(
    context: &Context,
    running: &BootedKernel,
    call: ToolCall,
    agent: Option<&str>,
) -> CommandResult {
    let caller = match agent {
        // The user typed the command, so the user wants it.
        Some(name) => calls::spawn_for(context, running, name, typed(&call)).await?,
        None => running.caller(),
    };
    let timeout_ms = call.args.get("timeout_ms").and_then(Value::as_u64);
    let op = Op::RunTool(call);
    let mut live = LiveOutput::new(context.screen.interactive);
    // One object of JSON has it all in the end.
    let outcome = match context.screen.json {
        true => calls::call(context, running, &caller, op.clone()).await?,
        false => calls::call_live(context, running, &caller, op.clone(), &mut live).await?,
    };
    let data = calls::outcome_json(&outcome);
    let Some(mut ran) = ProgramRun::from_outcome(&outcome) else {
        // It was not started: the sandbox says why.
        calls::succeeded(&outcome)?;
        return Ok(Done { data, shown: StdoutContent::Bytes(outcome.output.into_bytes()), exit: 0 });
    };
    let has_begun = live.has_begun();
    if has_begun {
        (ran.stdout, ran.stderr) = Default::default();
    }
    if !context.screen.json {
        pass_stderr(&ran.stderr);
    }
    for line in &ran.guarded {
        context.screen.say(&format!("regent: {line}\n"));
    }
    if let Some(limit) = ran.limit {
        let failure = limits::stopped(running, &caller, op, (limit, timeout_ms, ran.wall_ms)).await;
        return Err(print_before(context, &ran, failure).data(data));
    }
    match outcome.status {
        Status::TimedOut | Status::Cancelled | Status::Faulted(_) => {
            calls::succeeded(&outcome).map_err(|failure| print_before(context, &ran, failure))?;
        }
        Status::Ok | Status::Failed(_) => {}
    }
    live.written()?;
    let shown = if has_begun { StdoutContent::Already } else { StdoutContent::Bytes(ran.stdout) };
    Ok(Done { data, shown, exit: ran.exit })
}

fn typed(call: &ToolCall) -> String {
    let words = call.args.get("argv").and_then(Value::as_array).into_iter().flatten();
    words.filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

/// The program's output comes before the reason why it was stopped.
fn print_before(context: &Context, ran: &ProgramRun, failure: Failure) -> Failure {
    if !context.screen.json {
        // Nobody reads it: then nobody misses it.
        let _unread = crate::output::write_all(&ran.stdout);
    }
    failure
}

/// The program's own stderr: as it is into a pipe, made inert on a terminal.
fn pass_stderr(bytes: &[u8]) {
    let mut stderr = std::io::stderr().lock();
    let shown = if stderr.is_terminal() { term::block_of_bytes(bytes).into_bytes() } else { bytes.to_vec() };
    // If stderr is gone there is nobody left to tell.
    let _nobody = stderr.write_all(&shown);
}

/// What became of a program that was started, as the receipt tells it.
#[derive(Debug)]
struct ProgramRun {
    exit: u8,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    limit: Option<Limit>,
    wall_ms: u64,
    /// What became of guarded files, a line each.
    guarded: Vec<String>,
}

impl ProgramRun {
    fn from_outcome(outcome: &Outcome) -> Option<Self> {
        let ended = ProgramEnded::read(outcome.obtained.as_ref()?)?;
        let exit = match ended.status {
            Exit::Code(code) => u8::try_from(code & 0xff),
            // As shells count it.
            Exit::Signal(signal) => u8::try_from(128 + (signal & 0x7f)),
        };
        // The kernel's own clock is the same limit, and stops a program that the sandbox didn't.
        let limit = Limit::reached(ended.why).or((outcome.status == Status::TimedOut).then_some(Limit::Wall));
        // Output is what came on stdout, then what came on stderr.
        let all = outcome.output.bytes();
        let cut = usize::try_from(ended.stdout_bytes).unwrap_or(all.len());
        let (stdout, stderr) = all.split_at_checked(cut).unwrap_or((all, &[]));
        Some(Self {
            exit: exit.unwrap_or(codes::exit::ERROR),
            stdout: stdout.to_vec(),
            stderr: stderr.to_vec(),
            limit,
            wall_ms: ended.wall_ms,
            guarded: guarded(&ended),
        })
    }
}

/// Guarded files that the program was refused, and those that appeared all the same.
fn guarded(ended: &ProgramEnded) -> Vec<String> {
    let refused = ended.refused.iter().map(|path| {
        let path = term::inline(path);
        format!("the program may not write the guarded file {path}; write it yourself, outside the sandbox")
    });
    let planted = ended.planted.iter().map(|one| {
        let path = term::inline(&one.path);
        match one.moved_to.as_deref().map(term::inline) {
            Some(moved) => format!("{path} appeared while the program ran and was moved aside to {moved}"),
            None => format!("{path} appeared while the program ran and could NOT be moved aside: remove it before you run git, an editor or a shell there"),
        }
    });
    refused.chain(planted).collect()
}
