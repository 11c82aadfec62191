//! A home of its own for each test, and the program run in it as a user would.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use rustix::pty::OpenptFlags;
use serde_json::Value;

/// A temporary home with a project in it.
#[derive(Debug)]
pub(crate) struct CliFixture {
    folder: tempfile::TempDir,
}

/// How the program ended.
#[derive(Debug)]
pub(crate) struct CliOutput {
    /// Exit code.
    pub(crate) code: i32,
    /// What it gave.
    pub(crate) stdout: String,
    /// What it wrote to stderr.
    pub(crate) stderr: String,
}

impl CliOutput {
    /// What `--json` gave.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("not JSON: {error}: {self:?}"))
    }

    /// The error code that `--json` gave.
    pub(crate) fn error_code(&self) -> String {
        self.json().pointer("/error/code").and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

impl CliFixture {
    /// Nothing is set up.
    pub(crate) fn bare() -> Self {
        let folder = tempfile::Builder::new().prefix("rg").tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("project")).unwrap();
        std::fs::create_dir_all(folder.path().join("run")).unwrap();
        Self { folder }
    }

    /// `regent init --quick` was run.
    pub(crate) fn ready() -> Self {
        let world = Self::bare();
        let ended = world.run(&["init", "--quick"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        world
    }

    /// Below the home.
    pub(crate) fn home(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Below the project.
    pub(crate) fn project(&self, name: &str) -> PathBuf {
        self.folder.path().join("project").join(name)
    }

    /// Runs a shell script in the project as its user would, outside Regent; whether it worked.
    pub(crate) fn host(&self, script: &str) -> bool {
        let mut shell = program(Path::new("/bin/sh"));
        let status =
            shell.args(["-c", script]).current_dir(self.project("")).env("HOME", self.home("")).status();
        status.is_ok_and(|status| status.success())
    }

    /// Writes a file of the project.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.project(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Runs the program in the project, without a terminal.
    pub(crate) fn run(&self, args: &[&str]) -> CliOutput {
        self.run_with(args, &[], b"")
    }

    /// Runs the program with more in its environment and something on stdin.
    pub(crate) fn run_with(&self, args: &[&str], env: &[(&str, &str)], stdin: &[u8]) -> CliOutput {
        let mut child = self.start_with(args, env);
        let mut pipe = child.stdin.take().unwrap();
        let bytes = stdin.to_vec();
        // A program that ends without reading closes the pipe; that is its right.
        let writer = std::thread::spawn(move || drop(pipe.write_all(&bytes)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        ended(&output)
    }

    /// Starts the program and leaves it running.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.start_with(args, &[])
    }

    fn start_with(&self, args: &[&str], env: &[(&str, &str)]) -> Child {
        let mut command = self.command(args, env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// The program in the project, with nothing in its environment but what is named.
    pub(crate) fn command(&self, args: &[&str], env: &[(&str, &str)]) -> Command {
        let mut command = program(binary());
        command.args(args);
        self.place(command, env)
    }

    /// Runs the program as on a host whose administrator has closed user namespaces.
    pub(crate) fn run_without_namespaces(&self, args: &[&str], env: &[(&str, &str)]) -> CliOutput {
        let mut command = program(Path::new("/usr/bin/unshare"));
        let line = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
        command
            .args(["-Ur", "--", "/bin/sh", "-c", line, "sh"])
            .arg(binary())
            .args(args)
            .stdin(Stdio::null());
        ended(&self.place(command, env).output().unwrap())
    }

    /// Runs the program in mounts of its own, after a line of shell has changed them.
    pub(crate) fn run_after(&self, line: &str, args: &[&str]) -> CliOutput {
        let mut command = program(Path::new("/usr/bin/unshare"));
        let line = format!("{line} && exec \"$@\"");
        command
            .args(["-Urm", "--", "/bin/sh", "-c", &line, "sh"])
            .arg(binary())
            .args(args)
            .stdin(Stdio::null());
        ended(&self.place(command, &[]).output().unwrap())
    }

    /// Runs the program from a shell that has set a limit first.
    pub(crate) fn run_limited(&self, limit: &str, args: &[&str]) -> CliOutput {
        let mut command = program(Path::new("/bin/sh"));
        let line = format!("{limit} && exec \"$@\"");
        command.args(["-c", &line, "sh"]).arg(binary()).args(args).stdin(Stdio::null());
        ended(&self.place(command, &[]).output().unwrap())
    }

    fn place(&self, mut command: Command, env: &[(&str, &str)]) -> Command {
        command.env_clear().current_dir(self.project(""));
        command
            .env("HOME", self.folder.path())
            .env("PATH", "/usr/bin:/bin")
            .env("XDG_RUNTIME_DIR", self.home("run"));
        command.envs(env.iter().copied());
        command
    }

    /// Runs the program on a terminal on which this was typed before it began; gives its exit code and all that was shown.
    pub(crate) fn at_terminal(&self, args: &[&str], typed: &str) -> (i32, String) {
        self.on_terminal(args, typed, &[])
    }

    /// Runs the program on a terminal at which somebody answers: each time a prompt is shown, the next of these lines is typed.
    pub(crate) fn answering(&self, args: &[&str], answers: &[&str]) -> (i32, String) {
        self.on_terminal(args, "", answers)
    }

    /// The same; this was typed before.
    pub(crate) fn on_terminal(&self, args: &[&str], ahead: &str, answers: &[&str]) -> (i32, String) {
        let (mut master, slave) = terminal();
        let mut command = self.command(args, &[("TERM", "xterm"), ("NO_COLOR", "1")]);
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        let mut child = command.spawn().unwrap();
        drop(command);
        master.write_all(ahead.as_bytes()).unwrap();
        let pieces = pieces_of(master.try_clone().unwrap());
        let (mut shown, mut answers, mut answer): (_, _, Option<&str>) =
            (String::new(), answers.iter(), None);
        let mut seen = 0;
        loop {
            match pieces.recv_timeout(std::time::Duration::from_millis(500)) {
                Ok(piece) => shown.push_str(&piece),
                Err(RecvTimeoutError::Disconnected) => break,
                // What is typed in the moment in which a question appears is dropped: where nothing but its echo came, it is typed again.
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(answer) = answer.filter(|answer| {
                        *answer != INTERRUPT && is_echo(shown.get(seen..).unwrap_or_default(), answer)
                    }) {
                        drop(master.write_all(format!("{answer}\n").as_bytes()));
                    }
                    continue;
                }
            }
            if !PROMPTS.iter().any(|prompt| shown.ends_with(prompt)) {
                continue;
            }
            if !shown.get(seen..).unwrap_or_default().contains("doesn't count") {
                answer = answers.next().copied();
            }
            seen = shown.len();
            if answer == Some(INTERRUPT) {
                rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            } else if let Some(answer) = answer {
                // A program that has just ended hears nothing more.
                drop(master.write_all(format!("{answer}\n").as_bytes()));
            }
        }
        (child.wait().unwrap().code().unwrap_or(-1), shown)
    }

    /// Starts the program on a terminal of its own of this size: the program, and the user's end.
    pub(crate) fn at_screen(&self, args: &[&str], (columns, rows): (u16, u16)) -> (Child, std::fs::File) {
        let (master, slave) = terminal();
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&master, size).unwrap();
        let mut command = self.command(args, &[("TERM", "xterm"), ("NO_COLOR", "1")]);
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        (command.spawn().unwrap(), master)
    }

    /// A shell with job control on a terminal of its own, with the program as `$REGENT`: keyboard and screen.
    pub(crate) fn shell(&self) -> (std::fs::File, std::fs::File) {
        let (master, slave) = terminal();
        let mut command = program(Path::new("/usr/bin/setsid"));
        command.args(["--ctty", "/bin/bash", "--norc", "--noprofile", "-i"]);
        let regent = binary().display().to_string();
        let mut command = self.place(command, &[("TERM", "xterm"), ("REGENT", &regent)]);
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        drop(command.spawn().unwrap());
        (master.try_clone().unwrap(), master)
    }

    /// The newest entries of the ledger.
    pub(crate) fn entries(&self) -> Vec<Value> {
        let ended = self.run(&["audit", "tail", "-n", "500", "--json"]);
        ended.json().pointer("/data/entries").and_then(Value::as_array).cloned().unwrap_or_default()
    }
}

/// A new terminal: the user's end and the program's.
fn terminal() -> (std::fs::File, std::fs::File) {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    rustix::pty::grantpt(&master).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    // The test's own process must not get it as its controlling terminal.
    let slave =
        rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    (master.into(), slave.into())
}

/// An answer that isn't typed: Ctrl-C.
pub(crate) const INTERRUPT: &str = "\u{3}";

/// How prompts end.
const PROMPTS: &[&str] = &["[y/N] ", "[a/N] ", "in full] ", " n: ", "[N] no: ", "TEXT: "];

/// Whether the terminal has shown nothing but what was typed.
fn is_echo(shown: &str, typed: &str) -> bool {
    shown.lines().all(|line| line.is_empty() || typed.lines().any(|one| one == line))
}

/// What comes out of a terminal, as it comes. When the last holder of the other end is gone, reading fails: that is the end.
pub(crate) fn pieces_of(mut master: std::fs::File) -> Receiver<String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut piece, mut held) = ([0; 4096], Vec::new());
        while let Ok(length @ 1..) = master.read(&mut piece) {
            held.extend_from_slice(&piece[..length]);
            // A character may come in two pieces.
            let whole = held.utf8_chunks().next().map_or(0, |chunk| chunk.valid().len());
            let whole = if held.len() - whole >= 4 { held.len() } else { whole };
            let text = String::from_utf8_lossy(&held.drain(..whole).collect::<Vec<u8>>()).into_owned();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    receiver
}

/// What became of a child.
pub(crate) fn ended(output: &std::process::Output) -> CliOutput {
    CliOutput {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The binary under test.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_regent"))
}

/// One request as a server hears it: its head, and its body.
pub(crate) fn request(stream: &TcpStream) -> (String, Vec<u8>) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = bytes.trim().parse().unwrap();
        }
        head.push_str(&line);
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (head, body)
}

#[expect(clippy::disallowed_methods, reason = "a test runs the program as a user would")]
fn program(path: &Path) -> Command {
    Command::new(path)
}
