//! The programs that chores start: cargo, and what tests need from the system.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::{root, say};

/// Debian packages that tests need, by the program each one brings.
const PACKAGES: &[(&str, &str)] = &[
    ("strace", "strace"),
    ("bwrap", "bubblewrap"),
    ("g++", "g++"),
    ("git", "git"),
    ("curl", "curl"),
    ("python3", "python3"),
    ("busybox", "busybox-static"),
    ("setpriv", "util-linux"),
    ("pg_ctlcluster", "postgresql"),
    ("redis-server", "redis-server"),
    ("tmux", "tmux"),
    ("vim", "vim"),
    ("less", "less"),
    ("htop", "htop"),
    ("node", "nodejs"),
    ("npm", "npm"),
];

/// How long a server may take to start.
const START: Duration = Duration::from_secs(60);

/// A program to be started in the workspace.
#[expect(clippy::disallowed_methods, reason = "chores start programs; nothing of what ships does so here")]
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Runs cargo, its output where ours goes.
pub(crate) fn cargo(arguments: &[&str]) -> Result<()> {
    cargo_with(arguments, &[])
}

/// Runs cargo with more in its environment.
pub(crate) fn cargo_with(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut cargo = command(&program);
    cargo.args(arguments).envs(environment.iter().copied());
    finish(&mut cargo, &format!("cargo {}", arguments.join(" ")))
}

/// Runs a command to its end; anything but success is an error.
pub(crate) fn finish(command: &mut Command, shown: &str) -> Result<()> {
    let status = command.status().with_context(|| format!("`{shown}` can't be started"))?;
    if status.success() { Ok(()) } else { bail!("`{shown}` failed: {status}") }
}

/// Runs a command and returns its output.
pub(crate) fn capture(command: &mut Command, shown: &str) -> Result<Output> {
    command.stdin(Stdio::null()).output().with_context(|| format!("`{shown}` can't be started"))
}

/// Whether a program can be found.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Installs what tests need, where that is possible; says what is missing where it isn't.
pub(crate) fn install() -> Result<()> {
    components()?;
    wasm_targets()?;
    let missing: Vec<&str> =
        PACKAGES.iter().filter(|(program, _)| !has(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let wanted = missing.join(" ");
    let by_hand = format!("install these first: {wanted}");
    if !has("apt-get") {
        bail!("{by_hand}");
    }
    let mut before: Vec<&str> = Vec::new();
    if !is_root()? {
        if !has("sudo") {
            bail!("{by_hand} (neither root nor sudo here)");
        }
        before.push("sudo");
    }
    say(format!("installing {wanted}"));
    let apt = |arguments: &[&str]| {
        let line: Vec<&str> =
            before.iter().copied().chain(["apt-get"]).chain(arguments.iter().copied()).collect();
        let (program, rest) = line.split_first().context("an empty line")?;
        finish(command(program).args(rest).env("DEBIAN_FRONTEND", "noninteractive"), &line.join(" "))
    };
    apt(&["update", "-q"])
        .and_then(|()| {
            apt(&[&["install", "-y", "-q", "--no-install-recommends"], missing.as_slice()].concat())
        })
        .with_context(|| by_hand.clone())
}

/// The interpreter of generated tools is rebuilt for the first target and compared; a test of the WASM tier builds a program for the second.
fn wasm_targets() -> Result<()> {
    for target in ["wasm32-unknown-unknown", "wasm32-wasip2"] {
        let asked =
            capture(command("rustc").args(["--print", "target-libdir", "--target", target]), "rustc")?;
        if Path::new(String::from_utf8_lossy(&asked.stdout).trim()).is_dir() {
            continue;
        }
        if !has("rustup") {
            bail!("install the standard library for {target} first");
        }
        finish(command("rustup").args(["target", "add", target]), "rustup target add")?;
    }
    Ok(())
}

/// rustfmt and clippy come with most toolchains, but not with the minimal one.
fn components() -> Result<()> {
    let has_both = ["fmt", "clippy"].iter().all(|part| {
        capture(command("cargo").args([part, "--version"]), "cargo")
            .is_ok_and(|output| output.status.success())
    });
    if has_both {
        return Ok(());
    }
    if !has("rustup") {
        bail!("install rustfmt and clippy for this toolchain first");
    }
    finish(command("rustup").args(["component", "add", "rustfmt", "clippy"]), "rustup component add")
}

pub(crate) fn is_root() -> Result<bool> {
    let output = capture(command("id").arg("-u"), "id -u")?;
    Ok(output.stdout.trim_ascii() == b"0")
}

/// The folder that cargo builds into.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |folder| root().join(Path::new(&folder)))
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Waits until the server that was just started accepts connections.
#[expect(clippy::disallowed_methods, reason = "it waits for a server that the chore started")]
pub(crate) fn wait_until_it_listens(name: &str, port: u16, log: &Path) -> Result<()> {
    let until = Instant::now() + START;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if Instant::now() > until {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            bail!("{name} doesn't listen; `{}` says:\n{said}", log.display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The interpreter of a virtual environment in the cache folder that has the packages and can import the modules; made on first use, and
/// again when the packages are others.
pub(crate) fn python_with(name: &str, modules: &[&str], packages: &[&str]) -> Result<PathBuf> {
    let folder = cache("regent-python")?.join(name);
    let python = folder.join("bin/python").display().to_string();
    let mut try_it = command(&python);
    try_it.args(["-c", &format!("import {}", modules.join(", "))]);
    let mut can_import = || capture(&mut try_it, "python").is_ok_and(|output| output.status.success());
    if !holds(&folder, packages) || !can_import() {
        let shown = folder.display().to_string();
        finish(command("python3").args(["-m", "venv", &shown]), "python3 -m venv")?;
        finish(command(&python).args(["-m", "pip", "install", "--quiet"]).args(packages), "pip install")?;
        std::fs::write(folder.join(HELD), packages.join("\n"))?;
    }
    Ok(PathBuf::from(python))
}

/// The folder in the cache folder with an npm package, which nothing of is run while it is installed.
pub(crate) fn node_with(name: &str, package: &str) -> Result<PathBuf> {
    let folder = cache("regent-node")?.join(name);
    if !holds(&folder, &[package]) {
        std::fs::create_dir_all(&folder)?;
        let shown = folder.display().to_string();
        let quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"];
        let mut npm = command("npm");
        npm.args(["install", "--prefix", &shown]).args(quiet).arg(package);
        finish(&mut npm, "npm install")?;
        std::fs::write(folder.join(HELD), package)?;
    }
    Ok(folder)
}

/// The file in such a folder that names what was installed there.
const HELD: &str = "packages";

fn holds(folder: &Path, packages: &[&str]) -> bool {
    std::fs::read_to_string(folder.join(HELD)).is_ok_and(|held| held == packages.join("\n"))
}

fn cache(kind: &str) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).context("HOME is not set")?;
    Ok(home.join(".cache").join(kind))
}
