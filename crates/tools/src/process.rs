//! Programs: what runs now, and the manifests of the tools that start some. Starting is the process sandbox's part.

use regent_kernel::{Confidentiality, Integrity, Label, PersonRole, RawOutput, ToolSpec, escape_name};
use serde_json::{Value, json};

use crate::manifest::{INTEGER_MAX, integer};
use crate::output::{OutputRoom, blocking, failure};
use crate::{Context, ToolError, tool};

/// Processes that are looked at.
const PROCESSES_MAX: usize = 8192;
/// A line of `/proc/<pid>/stat` is shorter.
const STAT_BYTES_MAX: u64 = 4096;
/// A program's time limit can be asked for up to this; policy may give less.
const TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1000;
const STDIN_BYTES_MAX: u64 = 8 << 20;

/// Names that make programs load, run or write something else than what they were called for, so a caller may not set them: the
/// loader, shells, interpreters, compilers, pagers and editors, version control, and where configuration is looked for.
const STEERING: &str = "^(LD_|DYLD_|GLIBC_|GCONV_|MALLOC_|BASH|ENV$|SHELLOPTS$|IFS$|PS[0-9]$|PROMPT_COMMAND$|ZDOTDIR$|PATH$|HOME$|\
    TMPDIR$|XDG_|PYTHON|NODE_|NPM_|npm_|PERL|RUBY|GEM_|BUNDLE_|PHP|JAVA_|JDK_|_JAVA|CLASSPATH$|LUA_|R_(HOME|LIBS|PROFILE|ENVIRON)|\
    GO(PATH|ROOT|FLAGS|ENV|BIN|PROXY|TOOLCHAIN|CACHE|TMPDIR)$|RUSTC|RUSTDOC|RUSTFLAGS$|RUSTUP|CARGO|CC$|CXX$|MAKE|CMAKE|GIT_|\
    SSH_|SUDO_|DBUS_|PAGER$|MANPAGER$|EDITOR$|VISUAL$|BROWSER$|LESS(OPEN|CLOSE|EDIT|KEY.*)?$|TERMINFO|TERMCAP$|LOCPATH$|NLSPATH$|\
    HOSTALIASES$|RES_OPTIONS$|LOCALDOMAIN$|OPENSSL_|SSL_|CURL_|.*_[Pp][Rr][Oo][Xx][Yy]$|REGENT)";

/// The tools that start programs.
pub fn program_specs() -> Vec<ToolSpec> {
    vec![exec(), shell()]
}

/// Run a program, by its argument list, in the process sandbox: without a network of its own, without the home folder, with the workspace
/// as its working folder.
///
/// - argv: the program and its arguments
/// - cwd: the folder to run in, inside the workspace; its root if absent
/// - env: variables to set; names that steer loaders, shells and interpreters are refused
/// - timeout_ms: stop it after this time; policy may stop it earlier
/// - terminal: give it the terminal of the person who reads the output, where there is one
/// - merge_stderr: write standard error into standard output, in order
// The weakest tier first: policy may raise it, and a program that is static can be a guest.
#[tool(
    name = "process.exec",
    driver = "process",
    tiers = ["process", "microvm"],
    effect = "write",
    capabilities = ["process.exec"],
    cost = "moderate",
    output = PROGRAM
)]
fn exec(
    #[arg(argv, schema = json!({
        "type": "array", "minItems": 1, "maxItems": 4096, "items": {"type": "string", "maxLength": 131_072},
    }))]
    argv: Vec<String>,
    #[arg(path = "read")] cwd: Option<String>,
    #[arg(schema = json!({
        "type": "object", "maxProperties": 256, "additionalProperties": {"type": "string", "maxLength": 32_768},
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": 128, "not": {"pattern": STEERING}},
    }))]
    env: Option<BTreeMap<String, String>>,
    #[arg(schema = stdin())] stdin: Option<String>,
    #[arg(schema = integer(1, TIMEOUT_MS_MAX))] timeout_ms: Option<u64>,
    terminal: Option<bool>,
    merge_stderr: Option<bool>,
    #[arg(schema = network())] network: Option<bool>,
);

/// Run a line in `/bin/sh` in the process sandbox: without a network of its own, without the home folder, with the workspace as its
/// working folder.
///
/// - command: the line for the shell
/// - cwd: the folder to run in, inside the workspace; its root if absent
/// - timeout_ms: stop it after this time; policy may stop it earlier
#[tool(
    name = "shell.exec",
    driver = "process",
    tiers = ["process", "microvm"],
    effect = "write",
    capabilities = ["process.exec"],
    cost = "moderate",
    output = PROGRAM
)]
fn shell(
    #[arg(shell, schema = json!({"type": "string", "minLength": 1, "maxLength": 131_072}))] command: String,
    #[arg(path = "read")] cwd: Option<String>,
    #[arg(schema = stdin())] stdin: Option<String>,
    #[arg(schema = integer(1, TIMEOUT_MS_MAX))] timeout_ms: Option<u64>,
    #[arg(schema = network())] network: Option<bool>,
);

fn network() -> Value {
    let description =
        "let it ask for connections (through a proxy, which its environment names); each is judged by itself";
    json!({"type": "boolean", "description": description})
}

fn stdin() -> Value {
    json!({"type": "string", "maxLength": STDIN_BYTES_MAX, "description": "what it reads from its standard input; a handle `secret://name` is given as its value"})
}

/// A program sees the workspace without what holds secrets, and the system's own files: what it prints is as secret as files outside the
/// workspace are taken for.
const PROGRAM: Label = Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Private };

/// Arguments and environments are left out because they hold secrets; names of other users' processes are theirs.
const PROCESSES: Label = Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Private };

/// Numbers of calls, and names that the caller's own agents have.
const PROGRAMS: Label = Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Internal };

/// List the programs that the caller and the agents that it started are running now. Returns JSON: programs (call, caller, tool). The
/// operator also gets the processes that run under this user on this machine: processes (pid, parent, name, state, started_ms after boot),
/// more. Arguments and environments are not shown: they hold secrets.
#[tool(
    name = "process.list",
    effect = "read",
    capabilities = ["process.list"],
    idempotent,
    reversible,
    cost = "cheap",
    output = PROGRAMS
)]
pub(crate) async fn list(context: &Context<'_>) -> Result<RawOutput, ToolError> {
    let mut room = OutputRoom::from_permit(context);
    let mut programs = Vec::new();
    for one in context.programs() {
        let program = json!({"call": one.call, "caller": one.caller, "tool": one.tool});
        if !room.take(&program) {
            break;
        }
        programs.push(program);
    }
    // The machine is an admin's to see; a guest that an admin runs is not the admin.
    let call = context.call();
    if call.principal().role() != Some(PersonRole::Admin) || call.parent().is_some() {
        return Ok(RawOutput::json(&json!({"programs": programs})));
    }
    let uid = rustix::process::getuid().as_raw();
    let (all, mut more) = blocking(context, move |_| processes_of(uid))
        .await?
        .map_err(|error| failure("process.unknown", format!("the processes can't be listed: {error}")))?;
    let mut processes = Vec::new();
    for process in all {
        if !room.take(&process) {
            more = true;
            break;
        }
        processes.push(process);
    }
    let all = json!({"programs": programs, "processes": processes, "more": more});
    Ok(RawOutput::json(&all).with_label(PROCESSES))
}

/// End a program that the caller, or an agent that it started, is running with process.exec or shell.exec: all its processes, at once. Its
/// call ends as cancelled. Returns JSON: call, killed.
///
/// - call: the number of the call, as process.list shows it
#[tool(name = "process.kill", effect = "write", capabilities = ["process.kill"], output = PROGRAMS)]
pub(crate) fn kill(
    #[schemars(range(min = 0, max = INTEGER_MAX))] call: u64,
    context: &Context<'_>,
) -> Result<Value, ToolError> {
    if !context.end_program(call) {
        // The same for a program of others and for none.
        let message = format!("no program of yours runs as call {call}; process.list shows those that do");
        return Err(ToolError::failed("process.unknown_call", message));
    }
    Ok(json!({"call": call, "killed": true}))
}

fn processes_of(uid: u32) -> std::io::Result<(Vec<Value>, bool)> {
    let mut found: Vec<(u32, Value)> = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if found.len() >= PROCESSES_MAX {
            return Ok((sorted(found), true));
        }
        // A process that ends while we look is simply not there.
        if let Ok(meta) = entry.metadata()
            && std::os::unix::fs::MetadataExt::uid(&meta) == uid
            && let Ok(stat) = read_stat(pid)
            && let Some(process) = describe(pid, &stat)
        {
            found.push((pid, process));
        }
    }
    Ok((sorted(found), false))
}

fn sorted(mut found: Vec<(u32, Value)>) -> Vec<Value> {
    found.sort_unstable_by_key(|(pid, _)| *pid);
    found.into_iter().map(|(_, process)| process).collect()
}

fn read_stat(pid: u32) -> std::io::Result<Vec<u8>> {
    let mut stat = Vec::new();
    let file = std::fs::File::open(format!("/proc/{pid}/stat"))?;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, STAT_BYTES_MAX), &mut stat)?;
    Ok(stat)
}

/// Reads `pid (name) state parent … started …`. The name may hold anything, parentheses too, so it ends at the last one.
fn describe(pid: u32, stat: &[u8]) -> Option<Value> {
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let name = stat.get(open.checked_add(1)?..close)?;
    let rest = std::str::from_utf8(stat.get(close.checked_add(1)?..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = match fields.next()? {
        "R" => "running",
        "S" | "I" => "sleeping",
        "D" => "waiting",
        "T" | "t" => "stopped",
        "Z" => "ended",
        _other => "unknown",
    };
    let parent: u32 = fields.next()?.parse().ok()?;
    // Field 22 of the line counts from the pid; the parent was field 4.
    let ticks: u64 = fields.nth(17)?.parse().ok()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let started_ms = ticks.saturating_mul(1000) / per_second;
    Some(
        json!({"pid": pid, "parent": parent, "name": escape_name(name), "state": state, "started_ms": started_ms}),
    )
}

#[cfg(test)]
mod tests {
    use regent_kernel::{Catalogue, Driver, DriverKind, ToolSet};

    use super::*;

    #[test]
    fn a_process_can_not_forge_its_line() {
        let line = b"7 (x) R 1 (evil\n) S 3 7 7 0 -1 4 1 0 0 0 0 0 0 0 20 0 1 0 500 1 1";
        let process = describe(7, line).unwrap();
        assert_eq!((&process["name"], &process["parent"]), (&json!("x) R 1 (evil\\u{a}"), &json!(3)));
        assert_eq!(process["state"], "sleeping");
        for broken in [&b""[..], b"7", b"7 (", b"7 )(", b"7 (a)", b"7 (a) S", b"7 (a) S x", b"\xff(\xff)\xff"]
        {
            assert_eq!(describe(7, broken), None, "{broken:?}");
        }
    }

    #[test]
    fn our_own_process_is_listed_without_arguments() {
        let (processes, _) = processes_of(rustix::process::getuid().as_raw()).unwrap();
        let own = processes.iter().find(|process| process["pid"] == std::process::id()).unwrap();
        let keys: Vec<_> = own.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["name", "parent", "pid", "started_ms", "state"]);
    }

    #[test]
    fn adv_033_steering_names_are_refused_by_the_schema() {
        let catalogue = Catalogue::default();
        let driver = Driver::missing(DriverKind::Process);
        catalogue.admit_own(ToolSet::new("built-in").with(exec(), driver)).unwrap();
        let tool = catalogue.get("process.exec").unwrap();
        let fits = |name: &str| tool.check(&json!({"argv": ["true"], "env": {name: "x"}})).is_ok();
        let refused = [
            "LD_PRELOAD",
            "LD_AUDIT",
            "BASH_ENV",
            "BASH_FUNC_x",
            "ENV",
            "PYTHONSTARTUP",
            "PYTHONPATH",
            "NODE_OPTIONS",
            "GIT_SSH_COMMAND",
            "PERL5OPT",
            "RUSTC_WRAPPER",
            "PAGER",
            "EDITOR",
            "PATH",
            "http_proxy",
            "HTTPS_PROXY",
            "IFS",
        ];
        for name in refused {
            assert!(!fits(name), "{name}");
        }
        for name in
            ["LANG", "TZ", "TERM", "CI", "NO_COLOR", "MY_FLAG", "ENVIRONMENT", "VERBOSE", "DATABASE_URL"]
        {
            assert!(fits(name), "{name}");
        }
    }
}
