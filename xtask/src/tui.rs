//! Real full-screen programs under `regent run`, on a real terminal: driven through tmux, resized, killed. After each, the terminal must be
//! what it was before.
//!
//! It runs as the calling user, and where that is root also as an ordinary user.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::machine::{capture, command, finish, has, is_root, target};
use crate::ordinary::ORDINARY_ID;
use crate::{machine, say};

const PROGRAMS: &[&str] = &["tmux", "vim", "less", "htop"];
/// How long anything may take to show on a busy machine.
const SEEN_WITHIN: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(100);
const PROMPT: &str = "READY>";
const FIRST_SIZE: (usize, usize) = (100, 30);
const SECOND_SIZE: (usize, usize) = (80, 20);
const WIDE: &str = "version: 1\nrules:\n  - { id: all, effect: allow }\n";
/// A rule's limit: a file's default ends no program on a terminal.
const SHORT: &str = "version: 1\nrules:\n  - { id: all, effect: allow, limits: { wall: 5s } }\n";

/// Runs everything as each user there is.
pub(crate) fn run() -> Result<()> {
    let missing: Vec<&str> = PROGRAMS.iter().copied().filter(|program| !has(program)).collect();
    if !missing.is_empty() {
        bail!("install the programs first: `apt-get install {}`", missing.join(" "));
    }
    machine::cargo(&["build", "--quiet", "--workspace", "--bins", "--locked"])?;
    as_user(None)?;
    if is_root()? { as_user(Some(ORDINARY_ID)) } else { Ok(()) }
}

fn as_user(user: Option<u32>) -> Result<()> {
    let who = user.map_or_else(|| "the calling user".to_owned(), |id| format!("user {id}"));
    let folder = tempfile::Builder::new().prefix("regent-tui-").tempdir()?;
    let terminal = Terminal::start(folder.path(), user)?;
    let result = drive(&terminal, &who);
    if result.is_err() {
        say(format!("the screen of {who}:\n{}", terminal.screen().unwrap_or_default()));
    }
    // The server ends with its sessions; what is left of it would keep the folder busy.
    terminal.tmux(&["kill-server"]).ok();
    result
}

fn drive(terminal: &Terminal, who: &str) -> Result<()> {
    let mut found = Vec::new();
    let mut case = |name: &str, run: &dyn Fn() -> Result<String>| -> Result<()> {
        terminal.resize(FIRST_SIZE)?;
        let before = terminal.modes().with_context(|| format!("before {name}"))?;
        let saw = run().with_context(|| name.to_owned())?;
        terminal.see(PROMPT).with_context(|| format!("no prompt after {name}"))?;
        let after = terminal.modes().with_context(|| format!("after {name}"))?;
        ensure!(before == after, "{name}: the terminal's modes were {before} and are {after}");
        terminal.echoes().with_context(|| format!("after {name}"))?;
        found.push(format!("{name}: {saw}; modes as before, the shell echoes"));
        Ok(())
    };
    case("vim", &|| vim(terminal))?;
    case("less", &|| less(terminal))?;
    case("htop", &|| htop(terminal))?;
    case("stty", &|| stty(terminal))?;
    case("kill -9 of vim", &|| killed(terminal, "vim", "-KILL"))?;
    case("SIGTERM to regent", &|| killed(terminal, "regent", "-TERM"))?;
    case("kill -9 of regent", &|| killed(terminal, "regent", "-KILL"))?;
    terminal.policy(SHORT)?;
    case("vim at its time limit", &|| limited(terminal))?;
    found.iter().for_each(|line| say(format!("{who}: {line}")));
    Ok(())
}

fn vim(terminal: &Terminal) -> Result<String> {
    terminal.line(&format!("clear; $REGENT run --no-network -- vim -n -u NONE -N {}", terminal.poem))?;
    terminal.see("verse 7")?;
    let size = |(columns, rows): (usize, usize)| format!("{rows}x{columns}");
    for at in [FIRST_SIZE, SECOND_SIZE] {
        terminal.resize(at)?;
        terminal.until(&size(at), |screen| {
            // Asked again each time: the program may not know the size yet.
            terminal.line(":echo &lines.'x'.&columns").ok();
            screen.contains(&size(at))
        })?;
    }
    terminal.line(":q!")?;
    Ok(format!("drew the file at {} and {}", size(FIRST_SIZE), size(SECOND_SIZE)))
}

fn less(terminal: &Terminal) -> Result<String> {
    terminal.line("clear; $REGENT run --no-network -- less long.txt")?;
    for (_, rows) in [FIRST_SIZE, SECOND_SIZE] {
        terminal.resize((SECOND_SIZE.0, rows))?;
        // The last row is its own.
        let last = rows - 1;
        terminal.until(&format!("{last} lines"), |screen| {
            terminal.keys(&["g"]).ok();
            let lines = screen.lines().filter(|line| line.starts_with("line ")).count();
            lines == last && screen.contains(&format!("line {last}\n"))
        })?;
    }
    terminal.keys(&["G"])?;
    terminal.see("line 500")?;
    terminal.keys(&["q"])?;
    Ok(format!("filled {} and {} rows", FIRST_SIZE.1, SECOND_SIZE.1))
}

fn htop(terminal: &Terminal) -> Result<String> {
    terminal.line("clear; $REGENT run --no-network -- htop")?;
    for at in [FIRST_SIZE, SECOND_SIZE] {
        terminal.resize(at)?;
        let is_whole = |screen: &str| {
            // Its keys are in the last row.
            screen.lines().nth(at.1 - 1).is_some_and(|row| row.contains("F1")) && screen.contains("PID")
        };
        terminal.until("its table and its keys in the last row", is_whole)?;
    }
    terminal.keys(&["q"])?;
    Ok("drew its table at both sizes".to_owned())
}

fn stty(terminal: &Terminal) -> Result<String> {
    let size = format!("{} {}", SECOND_SIZE.1, SECOND_SIZE.0);
    // tmux tells the terminal its new size some time later, which may be while the program runs.
    let script = format!(r#"until [ "$(stty size)" = "{size}" ]; do sleep 0.1; done; echo now $(stty size)"#);
    terminal.resize(SECOND_SIZE)?;
    terminal.line(&format!("clear; $REGENT run --no-network -- sh -c '{script}'"))?;
    terminal.see(&format!("now {size}"))?;
    Ok(format!("said {size}"))
}

/// Kills a program of the call, by its name.
fn killed(terminal: &Terminal, name: &str, signal: &str) -> Result<String> {
    terminal.line(&format!("clear; $REGENT run --no-network -- vim -n -u NONE -N {}", terminal.poem))?;
    terminal.see("verse 7")?;
    let pid = terminal.pid_of(name)?;
    finish(command("kill").args([signal, &pid]), &format!("kill {signal} {pid}"))?;
    terminal.until("the shell's screen", |screen| !screen.contains("verse 7"))?;
    Ok(format!("ended process {pid}"))
}

fn limited(terminal: &Terminal) -> Result<String> {
    terminal.line(&format!("clear; $REGENT run --no-network -- vim -n -u NONE -N {}", terminal.poem))?;
    terminal.see("time limit of 5 s reached")?;
    Ok("was killed".to_owned())
}

/// A shell on a terminal that tmux draws, in a home and a project of its own.
struct Terminal {
    home: PathBuf,
    user: Option<u32>,
    /// A file for an editor, under a name that no other process has among its arguments.
    poem: String,
}

impl Terminal {
    fn start(folder: &Path, user: Option<u32>) -> Result<Self> {
        let home = folder.canonicalize()?;
        let name = home.file_name().context("a folder without a name")?.to_string_lossy().into_owned();
        let terminal = Self { home, user, poem: format!("{name}.txt") };
        let project = terminal.project();
        let verses: Vec<String> = (1..=8).map(|number| format!("verse {number}")).collect();
        let lines: Vec<String> = (1..=500).map(|number| format!("line {number}")).collect();
        for made in [project.clone(), terminal.home.join("run")] {
            std::fs::create_dir(&made)?;
            std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o700))?;
        }
        std::fs::write(project.join(&terminal.poem), verses.join("\n") + "\n")?;
        std::fs::write(project.join("long.txt"), lines.join("\n") + "\n")?;
        // Where this user can reach it, regardless of who owns the build.
        std::fs::copy(target().join("debug/regent"), terminal.home.join("regent"))?;
        if let Some(id) = user {
            let (own, run) = (terminal.home.clone(), terminal.home.join("run"));
            let files = [
                project.join(&terminal.poem),
                project.join("long.txt"),
                project,
                run,
                own.join("regent"),
                own,
            ];
            files.iter().try_for_each(|path| chown(path, Some(id), Some(id)))?;
        }
        terminal.regent(&["init", "--quick"])?;
        terminal.policy(WIDE)?;
        let (columns, rows) = (FIRST_SIZE.0.to_string(), FIRST_SIZE.1.to_string());
        let shell = format!(
            "exec env PS1='{PROMPT} ' REGENT={}/regent bash --norc --noprofile -i",
            terminal.home.display()
        );
        terminal.tmux(&["new-session", "-d", "-x", &columns, "-y", &rows, &shell])?;
        terminal.see(PROMPT)?;
        Ok(terminal)
    }

    fn project(&self) -> PathBuf {
        self.home.join("project")
    }

    /// A program of this user, with nothing in its environment but what it needs.
    fn run(&self, words: &[&str]) -> Result<Output> {
        let user = self.user.map(|id| id.to_string());
        let mut line: Vec<&str> = Vec::new();
        if let Some(id) = &user {
            line.extend(["setpriv", "--reuid", id, "--regid", id, "--clear-groups"]);
        }
        line.extend(words);
        let (program, rest) = line.split_first().context("an empty line")?;
        let mut started = command(program);
        started.args(rest).current_dir(self.project()).env_clear();
        started.env("HOME", &self.home).env("PATH", "/usr/bin:/bin").env("LANG", "C.UTF-8");
        started.env("XDG_RUNTIME_DIR", self.home.join("run")).env("TERM", "screen");
        // tmux runs commands by the user's shell, and that of an ordinary user of a system may be `nologin`.
        started.env("SHELL", "/bin/sh");
        let output = capture(&mut started, words.first().copied().unwrap_or_default())?;
        let said = || String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "`{}` failed: {}", words.join(" "), said());
        Ok(output)
    }

    fn regent(&self, words: &[&str]) -> Result<Output> {
        let program = self.home.join("regent").display().to_string();
        self.run(&[&[program.as_str()], words].concat())
    }

    fn policy(&self, text: &str) -> Result<()> {
        for path in [self.home.join(".config/regent/policy.yml"), self.project().join(".regent/policy.yml")] {
            std::fs::write(path, text)?;
        }
        self.regent(&["trust", "--yes"]).map(drop)
    }

    fn tmux(&self, words: &[&str]) -> Result<Output> {
        let socket = self.home.join("run/tmux").display().to_string();
        self.run(&[&["tmux", "-S", &socket, "-f", "/dev/null"], words].concat())
    }

    fn keys(&self, keys: &[&str]) -> Result<()> {
        self.tmux(&[&["send-keys"], keys].concat()).map(drop)
    }

    /// Types a line, letter by letter, and Enter.
    fn line(&self, text: &str) -> Result<()> {
        self.keys(&["-l", text])?;
        self.keys(&["Enter"])
    }

    fn resize(&self, (columns, rows): (usize, usize)) -> Result<()> {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]).map(drop)
    }

    fn screen(&self) -> Result<String> {
        let captured = self.tmux(&["capture-pane", "-p"])?;
        Ok(String::from_utf8_lossy(&captured.stdout).into_owned())
    }

    fn see(&self, text: &str) -> Result<()> {
        self.until(text, |screen| screen.contains(text))
    }

    fn until(&self, what: &str, is_there: impl Fn(&str) -> bool) -> Result<()> {
        let began = Instant::now();
        while !is_there(&self.screen()?) {
            ensure!(began.elapsed() < SEEN_WITHIN, "never seen: {what}");
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The terminal's modes, as the shell sees them.
    fn modes(&self) -> Result<String> {
        let file = self.project().join("modes");
        std::fs::remove_file(&file).ok();
        self.line("clear; stty -g > modes.new && mv modes.new modes")?;
        self.until("the terminal's modes", |_| file.exists())?;
        Ok(std::fs::read_to_string(file)?.trim().to_owned())
    }

    /// The terminal shows what is typed, and the answer to it.
    fn echoes(&self) -> Result<()> {
        self.line(r#"clear; echo a""live"#)?;
        self.until("an answer", |screen| screen.lines().any(|line| line == "alive"))?;
        self.keys(&["-l", "seen while typed"])?;
        self.see("seen while typed")?;
        self.keys(&["C-u"])
    }

    /// The oldest process with this name that has the poem among its arguments.
    fn pid_of(&self, name: &str) -> Result<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc")? {
            let entry = entry?;
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            let program =
                words.first().map(|word| Path::new(word.as_ref()).file_name() == Some(name.as_ref()));
            let number = entry.file_name().to_string_lossy().parse::<u32>();
            if let (Some(true), Ok(pid)) = (program, number)
                && words.iter().any(|word| *word == self.poem)
            {
                found.push(pid);
            }
        }
        // The first process of a sandbox is a copy of regent that is younger.
        let pid = found.iter().min();
        pid.map(ToString::to_string).with_context(|| format!("no process is called `{name}`"))
    }
}
