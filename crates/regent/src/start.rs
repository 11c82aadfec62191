//! From arguments to an exit code. Nothing is opened before the command line has been understood.

use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use rustix::mm::MlockAllFlags;
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use tokio::signal::unix::SignalKind;

use crate::cli::{Cli, Command};
use crate::codes;
use crate::commands;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Color, CommandResult, Screen};
use crate::secrets;

/// The signal that a file which may not grow sends (`ulimit -f`), on every architecture that Regent runs on.
const SIGXFSZ: i32 = 25;
/// Files that a kernel with a sandbox, a ledger and a control socket has open at once, with some to spare.
const FILES_MIN: u64 = 64;
/// What a limit that may be raised is raised to.
const FILES_WANTED: u64 = 1024;

/// Runs the program.
pub(crate) fn run(args: Vec<OsString>) -> ExitCode {
    close_to_others();
    install_panic_hook();
    // The shell's completion script calls us with this set; it is asked for before anything else so that Tab stays quick.
    if std::env::var_os("COMPLETE").is_some() {
        clap_complete::CompleteEnv::with_factory(Cli::command).complete();
    }
    let json = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    let exit = match std::panic::catch_unwind(AssertUnwindSafe(|| parse_and_run(args, json))) {
        Ok(exit) => exit,
        // The hook has printed it for the user; a program that reads us gets its object as well.
        Err(_panic) if json => {
            let failure = Failure::new(codes::INTERNAL, "a bug in regent ended the command");
            Screen::new(true, Color::Never).finish("regent", Err(failure))
        }
        Err(_panic) => codes::exit::ERROR,
    };
    ExitCode::from(exit)
}

fn parse_and_run(args: Vec<OsString>, json: bool) -> u8 {
    let words: Vec<String> = args.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, json, &help_of(&words)),
    };
    let schema = cli.schema();
    let helps = cli.command.as_ref().is_some_and(Command::helps_with_settings);
    let context = if helps { Context::with_mistakes } else { Context::new };
    match context(&cli.global, &schema) {
        Ok(context) => {
            let result = in_runtime(&context, cli);
            context.screen.finish(&schema, result)
        }
        Err(failure) => Screen::new(json, Color::Auto).finish(&schema, Err(failure)),
    }
}

fn in_runtime(context: &Context, cli: Cli) -> CommandResult {
    enough_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(codes::INTERNAL, format!("can't start: {error}")))?;
    let result = runtime.block_on(async {
        // With a handler in place a file that may not grow is an error (EFBIG) that is reported, not the end of the process.
        let _handled = tokio::signal::unix::signal(SignalKind::from_raw(SIGXFSZ)).ok();
        commands::run(context, cli.command).await
    });
    // Whatever still runs has no result that anyone waits for.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    result
}

/// Refuses to start with so few files that parts of the sandbox would fail one after the other, each with a reason of its own.
fn enough_files() -> Result<(), Failure> {
    let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
    if current.is_none_or(|files| files >= FILES_MIN) {
        return Ok(());
    }
    let wanted = maximum.map_or(FILES_WANTED, |most| most.min(FILES_WANTED));
    let raised = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    if wanted >= FILES_MIN && raised.is_ok() {
        return Ok(());
    }
    let files = maximum.unwrap_or(0);
    let message = format!("this process may open {files} files, but regent needs {FILES_MIN}");
    Err(Failure::new(codes::LIMIT_FILES, message)
        .help(format!("raise the limit, e.g. `ulimit -n {FILES_WANTED}`")))
}

/// Help and version are results; everything else that clap says is a mistake on the command line.
fn usage(error: &clap::Error, json: bool, help: &str) -> u8 {
    let is_result = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if is_result || !json {
        // If nobody reads it, there is nobody to tell.
        let _unread = error.print();
        return if is_result { codes::exit::OK } else { codes::exit::USAGE };
    }
    let text = error.render().to_string();
    // The names of missing arguments are on lines of their own.
    let lines: Vec<&str> = text
        .trim_start_matches("error: ")
        .lines()
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let message = if lines.is_empty() { "the command line is invalid".to_owned() } else { lines.join(" ") };
    let failure = Failure::new(codes::USAGE, message).help(help);
    Screen::new(true, Color::Never).finish("regent", Err(failure))
}

/// Where the arguments of the command that was given are described.
fn help_of(words: &[String]) -> String {
    let root = Cli::command();
    let (mut command, mut path) = (&root, vec!["regent"]);
    for word in words.iter().take_while(|word| *word != "--") {
        match command.find_subcommand(word) {
            Some(below) => {
                command = below;
                path.push(below.get_name());
            }
            None if path.len() > 1 && !word.starts_with('-') => break,
            // A flag of every command, or its value.
            None => {}
        }
    }
    match path.len() {
        1 => "`regent --help` lists the commands".to_owned(),
        _ => format!("`{} --help` describes its arguments", path.join(" ")),
    }
}

/// What this process holds is for nobody else: no debugger of another process of this user, no core file, and, where the machine
/// lets us, no swap. What fails costs protection and nothing else; `regent doctor` tells.
fn close_to_others() {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).ok();
    // With a limit, memory that is asked for later would be refused.
    if rustix::process::getrlimit(Resource::Memlock).current.is_none() {
        let touched = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
        rustix::mm::mlockall(touched).ok();
    }
}

/// A panic is a defect of ours. The person gets an apology and a code, not a dump.
fn install_panic_hook() {
    let wants_backtrace = std::env::var_os("RUST_BACKTRACE").is_some_and(|set| set != "0");
    std::panic::set_hook(Box::new(move |panic| {
        if wants_backtrace {
            // What panicked may quote anything.
            let text = format!("{panic}\n{}\n", std::backtrace::Backtrace::force_capture());
            Screen::new(false, Color::Never).say(&secrets::scrubbed(&text));
            return;
        }
        let place = panic.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
        let text = format!(
            "internal: sorry, this is a bug in regent{place}.\n  Nothing that was acknowledged is lost. More: `regent explain internal`\n"
        );
        Screen::new(false, Color::Never).say(&text);
    }));
}
